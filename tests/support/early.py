"""That nobody is late: nodes that are woken before the first deadline find nothing to do.

Rules of this file: it looks at some steps of a rig, on each day at others; what it asks of a node is handed on to
nobody, for there must be nothing but lines of the log.
"""

from typing import Any, Final

from holdfast.engine import events
from support import today

LOOK_EVERY = 3
"""One millisecond of so many is looked at."""

EARLY_S: Final = 0.002
"""So long before the deadline nothing is due yet; times of the calendar are whole milliseconds."""


def pass_until(rig: Any, at: float) -> None:
    """Time passes up to `at`, when the first of the rig's nodes is due. Whoever acts shortly before would have acted
    late, along with something else. Sessions are asked whether they are due or not."""
    if at - rig.now > EARLY_S and not (int(1000 * rig.now) + today.number) % LOOK_EVERY:
        _look(rig, at)
    rig.pass_time(at - rig.now)


def _look(rig: Any, at: float) -> None:
    nodes = [node for node in rig.nodes.values() if node.core is not None and not node.stopped]
    if any("handle" in vars(node.core) for node in nodes):
        return  # a test counts what a node does, and has it fail
    for node in nodes:
        node.end_turn()  # whatever the test did to it by hand
    rig.settle()
    rig.pass_time(at - rig.now - EARLY_S)
    for node in nodes:
        core = node.core
        if core is not None and not node.stopped and node.pending is None:
            node.asked, deadline = None, core.next_deadline()
            core.due_times.stirred.update(dict.fromkeys(core.neighbours.values()))
            commands = core.handle(events.TimerFired(), rig.now)
            commands += core.handle(events.TurnEnded(wall_ms=node.wall_ms), rig.now)
            node.logs += [command.text for command in commands if isinstance(command, events.Log)]
            done = [command for command in commands if not isinstance(command, events.Log)]
            assert not done, f"{node.name} acts at {rig.now}, before {at}: {done}"
            after = core.next_deadline()
            late = deadline is not None and (after is None or after > deadline + EARLY_S)
            assert not late, f"{node.name} puts off what was due at {deadline}, to {after}"
