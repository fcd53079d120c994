"""Rouses a node that waits: what it does then, it should have done before.

Rules of this file: a node in which no wake-up is forgotten does nothing when it is roused, so a run with these checks
is the run without them. They find a wake-up that is missing where the next event would take its place.
"""

from typing import Final

from holdfast.core.node import NodeCore
from holdfast.custody.expiry import TIMER_S
from holdfast.engine import events
from holdfast.links.incoming import Intake
from holdfast_lab.base.client_history import Violation

QUEUES_MAX: Final = 400
"""A node with more queues is not roused: that would take longer than all else of its turn."""

SLACK_S: Final = TIMER_S + 0.002
"""Parts name a time that is a little late, and act if they are asked before: that of windows which are over is up to
two milliseconds late, because the wall clock has whole ones."""


def is_at_rest(core: NodeCore, now: float) -> bool:
    """Whether the node waits for an event, or for a time that has not come, and for no disk."""
    if core.turns.in_flight is not None or core.disk.rests or core.stopping:
        return False
    deadline = core.next_deadline()
    return deadline is None or deadline > now + SLACK_S


def check_punctual(core: NodeCore, now: float, wall_ms: int, put_off_bytes: int) -> None:
    """Violation where the node acts though the time it named has not come; to be called where it `is_at_rest`."""
    _acts_not(core, now, wall_ms, put_off_bytes, "named no time for")


def check_roused(core: NodeCore, now: float, wall_ms: int, put_off_bytes: int) -> None:
    """Violation where the node acts once every queue is looked at; to be called where it `is_at_rest`."""
    producers = [link for links in core.links.producers.values() for link in links]
    if any(link.parked for link in (*producers, *core.links.parked_receivers)):
        return  # each look at what is parked counts as work of its peer
    if any(isinstance(link, Intake) and link.link.partial is not None for link in producers):
        return  # the first frame of a message uses credit, which is renewed with its last one
    if len(core.catalog.queues) > QUEUES_MAX or core.disk.full or core.disk.takes_nothing:
        return  # a disk without room takes credit back as links are looked at
    queues = [*core.catalog.queues.values()]
    first = [queue.offered_first for queue in queues]
    for queue in queues:
        queue.touch()
    _acts_not(core, now, wall_ms, put_off_bytes, "was not woken for")
    for queue, offered_first in zip(queues, first, strict=True):
        queue.offered_first = offered_first


def _acts_not(core: NodeCore, now: float, wall_ms: int, put_off_bytes: int, why: str) -> None:
    found = core.handle(events.TimerFired(), now)
    found += core.handle(events.TurnEnded(wall_ms=wall_ms, put_off_bytes=put_off_bytes), now)
    if found:
        raise Violation(f"{core.config.name} {why} what it does when it is roused: {found[0]!r:.200}")
