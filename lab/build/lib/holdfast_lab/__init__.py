"""What tests and shows Holdfast: the simulator, real nodes under faults, checkers, planted defects, the demonstration.

Layers and what each holds: docs/simulator.md, "Inside the lab". Rules of this package: nodes that are processes,
senders and the pipeline are started through the command line, never imported (docs/adr/0008-harness.md).
"""
