"""Tests and demonstrates Holdfast: the simulator, real nodes under faults, checkers, planted defects, the demo.

The layers and their contents: docs/simulator.md, "Inside the lab". Rules of this package: nodes that are processes,
senders and the pipeline are started through the command line, never imported (docs/adr/0008-harness.md).
"""
