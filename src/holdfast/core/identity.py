"""The identities that this node gives, and how a store that was rolled back becomes someone new (CUSTODY, "Names").

Rules of this file: entries stored by the earlier life keep the identity they have; only what this life numbered
with a rolled-back counter, and has not sent, is numbered anew.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.broker import entry, rewriting
from holdfast.broker.queue import Queue

if TYPE_CHECKING:
    from holdfast.core.catalog import Tables
    from holdfast.core.node import NodeCore


def next_identity(core: "NodeCore", destination: str) -> entry.Identity:
    """The next number given here for that destination; it goes with this turn's batch, or is given back with it."""
    number = core.catalog.identities.get(destination, 1)
    identity = entry.Identity(core.store_uuid, number)
    core.turn.identities.setdefault(destination, number)
    core.turn.changes += 1
    core.catalog.put_identity(destination, number + 1)
    return identity


def begin_anew(store: "Tables") -> str | None:
    """Before anything is read of a store that is a copy: it gets a UUID of its own, as a restored one does (ADR 0025).

    The catalog finds that its tables speak of another store, and begins the numbers and the queues' UUIDs anew.
    Returns why, None where it is no copy.
    """
    why = store.copied
    if why is not None:
        store.mint()
    return why


def tell_former(core: "NodeCore") -> None:
    """What has become of the store, in the log and in the records, once the catalog has read whose it was."""
    former = core.catalog.former
    if former is None:
        return
    core.renewed = True
    core.log(
        "WARNING",
        f"this store was copied or put back: {core.copied or 'it became someone new before it was stopped'}. It was "
        f"{former}, it is {core.store_uuid} now; its messages keep their identity, new ones are numbered from 1",
    )


def _tell_reused(core: "NodeCore", old: UUID, destination: str, mark: int) -> None:
    """The numbers that this life gave and sent though an earlier one may have: copies, for who has the first."""
    reason = "given a second time by a store that was put back: the destination may have dropped them as copies"
    for name, last in core.forwarding.sent.items():
        first = core.identities_at_start.get(name, 1)
        last = min(last, mark) if name == destination else last
        if first <= last:
            core.lost(old, [(first, last)], f"{name!r}: {reason}")


def renew(core: "NodeCore", destination: str, mark: int) -> None:
    """A peer is ahead of our own counters: this store was rolled back. From now on it is someone new."""
    old = core.store_uuid
    core.store_uuid = entry.uuid_of(core.store.mint().bytes)
    core.renewed = True
    core.log(
        "WARNING",
        f"{destination} has {mark} of ours, we know of fewer: this store was restored; it is {core.store_uuid} now",
    )
    lives = core.identities_at_start
    first = lives.get(destination, 1)
    core.record("loss", {"origin": str(old), "first": first, "last": mark, "reason": "this store was restored"})
    _tell_reused(core, old, destination, mark)
    core.forwarding.sent.clear()
    core.catalog.put_numbered_by(core.store_uuid)
    for name in [*core.catalog.identities, *core.catalog.transit]:
        core.catalog.put_identity(name, 1)
        core.catalog.receipts[name] = 0
        core.catalog.put_receipt(name)
    for name, queue in core.catalog.transmissions():
        first = core.sequences_at_start.get(name, 1)  # what this life numbered it also appended
        while found := queue.read(first, count_max=1_000, bytes_max=8 * 1024 * 1024):
            for sequence, value in found:
                _rename(core, queue, name, sequence, value, old, lives.get(name, 1))
            first = found[-1][0] + 1
        _rename_unseen(core, queue, name, old, lives.get(name, 1))
        queue.shared.forget_read_ahead()
    core.identities_at_start = {}
    for neighbour in core.neighbours.values():
        if neighbour.control is not None and neighbour.control.link.attached:
            neighbour.control_attached()  # who we are now


def _rename_unseen(core: "NodeCore", queue: Queue, destination: str, old: UUID, since: int) -> None:
    """The same for what a commit in flight, or the turn gathered behind it, appends."""
    if core.in_flight is not None:
        for queue_id, sequence, value in core.in_flight.batch.appends:
            if queue_id == queue.queue_id:
                _rename(core, queue, destination, sequence, value, old, since)
    gathered = core.work.batch.appends
    for index, (queue_id, sequence, value) in enumerate(gathered):
        if queue_id == queue.queue_id:
            renamed = _renamed(core, destination, value, old, since)
            if renamed is not None:
                queue.uncache(sequence)
                gathered[index] = (queue_id, sequence, renamed)


def _rename(
    core: "NodeCore", queue: Queue, destination: str, sequence: int, value: bytes, old: UUID, since: int
) -> None:
    renamed = _renamed(core, destination, value, old, since)
    if renamed is not None:
        rewriting.replace(queue, sequence, value, renamed)
        core.turn.rewrite(queue, sequence, renamed)


def _renamed(core: "NodeCore", destination: str, value: bytes, old: UUID, since: int) -> bytes | None:
    """What was numbered in this life by a rolled-back counter, and never sent, is numbered anew; else None."""
    item = entry.unpack(value)
    if item.identity is None or item.identity.origin != old or item.identity.number < since:
        return None
    return entry.repack(item._replace(identity=next_identity(core, destination), trace=b""))


def check(core: "NodeCore", destination: str, number: int) -> bool:
    """Whether `number` of ours, which another node shows us, can be; else a restored store's, and we are someone new.

    What this life numbered and has not sent, whichever way, nobody else can have.
    """
    if number < core.identities_at_start.get(destination, 1) or number <= core.forwarding.sent.get(destination, 0):
        return True
    if core.renewed:  # of what it gave since then nobody else can know: the neighbour is wrong
        core.log("WARNING", f"{destination}: number {number} of ours is shown to us, which was not sent: passed over")
        return False
    renew(core, destination, number)
    return False


def receipt(core: "NodeCore", destination: str, mark: int) -> None:
    """The destination's word on what it finished of ours (CUSTODY, end to end 2)."""
    if mark <= core.catalog.receipts.get(destination, 0) or not check(core, destination, mark):
        return
    core.catalog.receipts[destination] = mark
    core.catalog.put_receipt(destination)
