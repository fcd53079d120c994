"""Compares what each node takes for true of its neighbours with what is.

Rules of this file: reads, never changes a node; to be called when nothing is in progress. What one node should have
told another and did not is seldom missed at once: much else wakes the two.
"""

from collections.abc import Mapping

from holdfast.core.node import NodeCore
from holdfast_lab.base.client_history import Violation


def check_beliefs(cores: Mapping[str, NodeCore]) -> None:
    """Violation for the first node that takes the disk of a neighbour for stalled that works, or the other way."""
    for name, core in cores.items():
        for other, session in core.neighbours.items():
            there = cores.get(other)
            if there is None or not (session.established and there.neighbours[name].established):
                continue
            believed, stalls = core.disk.stalled_at(session), there.disk.takes_nothing
            if believed != stalls:
                words = "stalled" if believed else "working"
                raise Violation(f"{name} takes the disk of {other} for {words}, which it is not")
