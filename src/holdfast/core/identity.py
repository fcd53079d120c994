"""The identities that this node gives, and how a store that was rolled back gets a new UUID (CUSTODY, "Names").

Rules of this file: entries stored by the earlier life keep the identity they have; only what this life numbered
with a rolled-back counter, and has not sent, is numbered anew. What was sent may be stored already where it went, and
leaves once that is answered: under another number it would be waited for in vain.
"""

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from holdfast.amqp import conditions
from holdfast.amqp.performatives import Error
from holdfast.amqp.types import Symbol
from holdfast.broker import entry, records, rewriting
from holdfast.broker.cursor import READ_BYTES
from holdfast.broker.port import Rows
from holdfast.broker.queue import Queue
from holdfast.broker.records import Renewal
from holdfast.core import own_names
from holdfast.core.catalog import WAITING

if TYPE_CHECKING:
    from holdfast.core.catalog import Tables
    from holdfast.core.node import NodeCore
    from holdfast.core.peer import Peer
    from holdfast.core.turns import Turn

RENEW_COUNT: Final = 500
RENEW_BYTES: Final = 4 * 1024 * 1024
"""What one turn numbers anew at most, and one read more (ADR 0013)."""

RENEW_ROOM_BYTES: Final = 64 * 1024
"""Below that a store that was put back numbers nothing anew for now."""


def next_identity(core: "NodeCore", destination: str) -> entry.Identity:
    """The next number given here for that destination; it goes with this turn's batch, or is given back with it."""
    renewal = core.catalog.renewals.get(destination)
    if renewal is None or renewal.done:
        return _next(core, destination)
    renewal.following += 1
    return entry.Identity(renewal.store, renewal.following - 1)


def _next(core: "NodeCore", destination: str) -> entry.Identity:
    number = core.catalog.identities.get(destination, 1)
    identity = entry.Identity(core.store_uuid, number)
    core.turns.gathered.identities.setdefault(destination, number)
    core.turns.gathered.changes += 1
    core.catalog.put_identity(destination, number + 1)
    return identity


class Former(NamedTuple):
    """Who a store was before this life found that it needed a new UUID, and why."""

    uuid: UUID
    why: str


def begin_anew(store: "Tables", name: str) -> Former | None:
    """Before anything is read of a store that is a copy, or another node's: it gets a UUID of its own (ADR 0025).

    Of a copy the catalog finds that its tables speak of another store, and begins numbers and queues' UUIDs anew. One
    that has another name now begins its numbers anew at once, and keeps its queues.
    """
    former = store.uuid

    def copied(fresh: UUID) -> Rows:
        """An earlier version's tables do not say whose they are: it is said before the store is someone else."""
        rows = {} if renamed is None else dict(renamed.names_alone(fresh))
        if records.NUMBERED_BY not in dict(store.table("custody")):
            rows["custody", records.NUMBERED_BY] = former.bytes
        return rows

    renamed, why = own_names.change(store, name, WAITING), store.copied
    if renamed is not None:
        store.mint(renamed.rows if why is None else copied)
        why = why or f"it belonged to node {renamed.former!r}, this node is {name!r}"
    elif why is not None:
        store.mint(copied)
    return None if why is None else Former(former, why)


def tell_former(core: "NodeCore") -> None:
    """What has become of the store, in the log and in the records, once the catalog has read whose it was."""
    if core.former is None and core.catalog.former is not None:
        core.former = Former(core.catalog.former, "it got a new UUID before it was stopped")
    if core.former is None:
        return
    core.renewed = True
    core.log.write(
        "WARNING" if core.catalog.former is not None or core.neighbours else "INFO",  # alone, nobody knows its name
        f"this store was copied, put back or renamed: {core.former.why}. It was {core.former.uuid}, it is "
        f"{core.store_uuid} now; its messages keep their identity, new ones are numbered from 1",
    )


def tell_renamed(core: "NodeCore", neighbour: str, store: UUID) -> None:
    """Where a neighbour's store was another name's: what it shows of ours may be of that name's numbers."""
    others = [name for name, known in core.catalog.neighbour_stores.items() if known == store]
    if others:
        names = " and ".join(others)
        text = f"neighbour {neighbour} has the store {store}, known as {names} before: the node was renamed"
        core.log.write("WARNING", f"{text}, or two nodes run on copies of one store", about=neighbour)


def refuse_shared_store(core: "NodeCore", neighbour: str, peer: "Peer", store: object) -> bool:
    """Closes the connection that a neighbour opens where its store is another's whose session is up: as origins the two
    would be one. Both ends say why. Whether it did."""
    for other in core.neighbours.values():
        if (
            other.name != neighbour
            and other.peer is not None
            and core.catalog.neighbour_stores.get(other.name) == store
        ):
            text = f"the store {store} belongs to node {other.name!r} too, whose session is up; a store is for one node"
            core.incidents.store_shared(neighbour, text)
            peer.log("INFO", text)
            peer.amqp.close(Error(Symbol(conditions.NOT_ALLOWED), text))
            peer.touch()
            return True
    return False


def _tell_reused(core: "NodeCore", old: UUID, destination: str, mark: int) -> None:
    """The numbers that this life gave and sent though an earlier one may have: copies, for who has the first.

    Not what a destination acknowledged in this life, nor what is above: it did not have that then.
    """
    reason = "given a second time by a store that was put back: the destination may have dropped them as copies"
    for name, last in core.forwarding.sent.items():
        first = core.identities_at_start.get(name, 1)
        acknowledged = core.catalog.receipts.get(name, 0)
        if name == destination:  # it has them up to `mark`, whoever sent them
            first, last = max(first, acknowledged + 1), min(last, mark)
        if first <= last and (name == destination or acknowledged < first):
            core.losses.add(old, [(first, last)], f"{name!r}: {reason}")


def renew(core: "NodeCore", destination: str, mark: int) -> None:
    """A peer is ahead of our own counters: this store was rolled back. It gets a new UUID.

    All of that goes with this turn's batch: who it is, and what is to be numbered anew, which a crash between the two
    would leave under numbers of the former store that its destination has, of other messages. Others hear of it once
    it is on disk: a crash must not make the store someone of whom nobody will hear again.
    """
    old = core.store_uuid
    catalog = core.catalog
    begun = _renewals(core, old)
    fresh = core.store.draw_uuid()
    core.work.batch.mint = fresh
    core.store_uuid = entry.uuid_of(fresh.bytes)
    core.renewed = True
    core.log.write(
        "WARNING",
        f"{destination} has {mark} of ours, we know of fewer: this store was restored; it is {core.store_uuid} now",
    )
    lives = core.identities_at_start
    first = lives.get(destination, 1)
    core.outbox.record("loss", {"origin": str(old), "first": first, "last": mark, "reason": "this store was restored"})
    _tell_reused(core, old, destination, mark)
    core.forwarding.sent = {}
    catalog.put_numbered_by(core.store_uuid)
    core.turns.gathered.begun_anew = True
    for name, renewal in begun.items():
        catalog.put_renewal(name, renewal)
        catalog.transit[name].shared.forget_read_ahead()
    for name in [*catalog.identities, *catalog.transit]:
        catalog.put_identity(name, 1)
        catalog.receipts[name] = 0
        catalog.put_receipt(name)
    for turn in (core.turns.gathered, core.turns.in_flight):
        if turn is not None:  # undone, it gives back numbers of who we are now
            turn.identities = dict.fromkeys(turn.identities, 1)
    core.identities_at_start = {}

    def stored() -> None:
        for neighbour in core.neighbours.values():
            if neighbour.control is not None and neighbour.control.link.attached:
                neighbour.control_attached()  # who we are now

    core.turns.gathered.then.append(stored)


def _renewals(core: "NodeCore", old: UUID) -> dict[str, Renewal]:
    """By destination: what of its queue this life of the store numbered, and has not sent."""
    found = {}
    sent, places = core.forwarding.sent, core.sequences_at_start  # what this life numbered it also appended
    for name, _ in core.catalog.transmissions():
        since = max(core.identities_at_start.get(name, 1), sent.get(name, 0) + 1)
        following = core.catalog.identities.get(name, 1)
        if following > since:
            first = places.get(name, 1)
            found[name] = Renewal(old, since, first, first, following)
    return found


def is_busy(core: "NodeCore") -> bool:
    """Whether the next turn has something to number anew, and room for it."""
    waits = any(not renewal.done for renewal in core.catalog.renewals.values())
    return waits and core.room.has(RENEW_ROOM_BYTES, forwarding=True)


def renew_some(core: "NodeCore") -> None:
    """This turn's share of what `renew` began. A queue offers nothing until all of its part is numbered anew, and on
    disk; what comes meanwhile still gets a number of the former store, and so keeps its place behind the others."""
    if not core.catalog.renewals:
        return
    count, size = RENEW_COUNT, RENEW_BYTES
    for destination, renewal in core.catalog.renewals.items():
        queue = core.catalog.transit[destination]
        while not renewal.done:
            if count <= 0 or size <= 0 or not core.room.has(RENEW_ROOM_BYTES, forwarding=True):
                return
            core.turns.gathered.renewals.setdefault(destination, (renewal, renewal.place))
            found = queue.read(renewal.place, count_max=min(count, 100), bytes_max=READ_BYTES)
            leaving = queue.leaving() if found else set()
            for sequence, value in found:
                if sequence not in leaving:
                    _rename(core, queue, destination, sequence, value, renewal)
                size -= len(value)
                renewal.place = sequence + 1
            count -= max(1, len(found))
            if not found:
                _caught_up(core, queue, destination, renewal)


def _caught_up(core: "NodeCore", queue: Queue, destination: str, renewal: Renewal) -> None:
    """Nothing is left but what a commit in flight, or the turn gathered behind it, appends."""
    if core.turns.in_flight is not None:
        leaving = queue.leaving()
        for queue_id, sequence, value in list(core.turns.in_flight.batch.appends):
            if queue_id == queue.queue_id and sequence >= queue.visible and sequence not in leaving:
                _rename(core, queue, destination, sequence, value, renewal)
    gathered = core.work.batch.appends
    for index, (queue_id, sequence, value) in enumerate(gathered):
        if queue_id == queue.queue_id:
            renamed = _renamed(core, destination, value, renewal)
            if renamed is not None:
                queue.uncache(sequence)
                gathered[index] = (queue_id, sequence, renamed)
    renewal.done = True
    core.catalog.drop_renewal(destination)

    def stored() -> None:
        if renewal.done and core.catalog.renewals.get(destination) is renewal:
            del core.catalog.renewals[destination]
            core.chores.offer_again(queue)

    core.turns.gathered.then.append(stored)


def undo(core: "NodeCore", turn: "Turn") -> None:
    """The turn never was: who the store became it stays; what was numbered anew in it is so once more."""
    catalog = core.catalog
    if turn.begun_anew:
        core.turns.gathered.begun_anew = True
        for destination, following in list(catalog.identities.items()):
            catalog.put_identity(destination, following)
    for destination, (renewal, place) in turn.renewals.items():
        if destination in catalog.transit:
            renewal.place, renewal.done = min(renewal.place, place), False
            catalog.put_renewal(destination, renewal)


def forget(core: "NodeCore", destination: str) -> None:
    """The transmission queue for that destination is deleted."""
    if core.catalog.renewals.pop(destination, None) is not None:
        core.catalog.drop_renewal(destination)


def _rename(core: "NodeCore", queue: Queue, destination: str, sequence: int, value: bytes, renewal: Renewal) -> None:
    renamed = _renamed(core, destination, value, renewal)
    if renamed is not None:
        rewriting.replace(queue, sequence, value, renamed, core.turns.gathered.rewritten)


def _renamed(core: "NodeCore", destination: str, value: bytes, renewal: Renewal) -> bytes | None:
    """What was numbered in this life by a rolled-back counter, and never sent, is numbered anew; else None."""
    item = entry.unpack(value)
    if item.identity is None or item.identity.origin != renewal.store or item.identity.number < renewal.since:
        return None
    return entry.repack(item._replace(identity=_next(core, destination), trace=b""))


def check_or_renew(core: "NodeCore", destination: str, number: int) -> bool:
    """Whether `number` of ours, which another node shows us, can be. If not, this store was restored: `renew`.

    What this life numbered and has not sent, whichever way, nobody else can have.
    """
    if number < core.identities_at_start.get(destination, 1) or number <= core.forwarding.sent.get(destination, 0):
        return True
    if core.renewed or core.catalog.renewals:  # of what it gave since then nobody else can know: the neighbour is wrong
        text = f"node {destination!r} speaks of number {number} of this node, which has not sent it: passed over"
        core.log.write("WARNING", f"{text}; look whether another node runs on a copy of this one's store")
        return False
    renew(core, destination, number)
    return False


def receipt(core: "NodeCore", destination: str, mark: int) -> None:
    """The destination's word on what it finished of ours (CUSTODY, end to end 2)."""
    if mark <= core.catalog.receipts.get(destination, 0) or not check_or_renew(core, destination, mark):
        return
    core.catalog.receipts[destination] = mark
    core.catalog.put_receipt(destination)
