"""The testbed: plans of the simulator on real nodes, real sockets and real time (docs/adr/0009-simulator.md).

Rules of this room: nodes are started by the command line and judged from outside, by what clients were told and shown
and by `status`. What needs a simulated disk or clock is refused here.
"""

from holdfast_lab.testbed.bed import TestBed
from holdfast_lab.testbed.faults import TestbedFaults
from holdfast_lab.testbed.run import run_on_testbed

__all__ = ["TestBed", "TestbedFaults", "run_on_testbed"]
