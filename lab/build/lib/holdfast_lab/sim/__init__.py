"""The simulator: NodeCores, unchanged, in virtual time (docs/simulator.md).

Rules of this package: nothing here reads a clock, opens a socket or draws a number that the seed does not give.
"""
