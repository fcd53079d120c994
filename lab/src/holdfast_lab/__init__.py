"""Real processes under load and under faults: the demo, the fault proxy, the kill -9 campaign.

Rules of this package: nodes, senders and the pipeline are started through the command line, never imported
(docs/adr/0008-harness.md).
"""
