"""The undo of a turn, after a full disk or a failure that was contained (docs/adr/0019).

Rules of this file: one mechanism for both cases; they differ in which turns are undone, and in the outcomes that
senders get. Each part reverts its own state (`Parts.undoing`).
"""

from collections.abc import Collection
from typing import Final

from holdfast.amqp.wire.performatives import Released
from holdfast.core.parts import Parts
from holdfast.engine.port import Batch
from holdfast.peers.peer import Peer
from holdfast.state.turns import Turn, Undone

RELEASED: Final = Released()


def refuse(core: Parts, room_bytes: int) -> None:
    """The disk is full: undoes the turn in flight and the one gathered after it; only their retirements are
    committed."""
    failed = core.turns.in_flight
    assert failed is not None
    core.turns.in_flight = None
    core.work.retires_in_flight = []
    core.disk.look()
    core.room.bytes = min(room_bytes, 0)
    core.disk.refused(failed.batch)
    core.links.room_may_be_back()
    _take_back(core, Undone((core.turns.gathered, failed), core.disk.text, ()), core.disk.refusal)


def take_back_gathered(core: Parts, ended: Collection[Peer]) -> None:
    """A failure was contained: undoes the gathered turn; the one in flight stays. Deliveries of peers that are about to
    end get no outcome; all others are released, so that they are sent again.
    """
    _take_back(core, Undone((core.turns.gathered,), "", ended), RELEASED)


def _take_back(core: Parts, undone: Undone, outcome: object) -> None:
    """Undoes those turns; what remains of them goes into a fresh one."""
    core.work.batch = retry = Batch()
    core.work.moved = []
    core.turns.gathered = Turn(retry)
    for part in core.undoing:
        part.undo(undone)
    for turn in reversed(undone.turns):
        for effect in turn.decided:
            core.containment.finish(core.turns.effects.decided(effect, stored=False), undoing=True, decides=True)
        for link, deliveries in turn.arrivals.items():
            if link.peer in undone.ended:
                continue
            try:
                if link.stays(undone.lost):
                    link.stored(deliveries)
                else:
                    link.refused(deliveries, outcome)
            except Exception as error:
                core.containment.failed(error, link, changed=False)
        core.turns.gathered.answers += turn.answers
        core.turns.gathered.then += turn.then
