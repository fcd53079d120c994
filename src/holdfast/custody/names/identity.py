"""The identities that this node gives, and how a store that was rolled back gets a new UUID (CUSTODY, "Names").

Rules of this file: entries stored before this start keep their identities; only entries that this run numbered with a
rolled-back counter, and has not sent, get new numbers. A sent entry may be stored at the next node already, and leaves
when that is answered; under a new number the destination would wait for the old one for ever.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from holdfast.broker import rewriting
from holdfast.broker.entries import entry
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import custody_records
from holdfast.broker.stored.custody_records import Renewal
from holdfast.engine.effects import Effect
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.engine.port import Rows
from holdfast.state import own_names
from holdfast.state.catalog import WAITING, Catalog
from holdfast.state.losses import Losses
from holdfast.state.room import Room
from holdfast.state.tables import Tables
from holdfast.state.turns import Turn, Turns, Undone

RENEW_COUNT: Final = 500
RENEW_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one turn renumbers at most, and one read more (ADR 0013)."""

RENEW_ROOM_BYTES: Final = 64 * 1024
"""Room below which a restored store postpones renumbering."""


class Former(NamedTuple):
    """The UUID that a store had before this start gave it a new one, and why."""

    uuid: UUID
    why: str


def begin_anew(store: Tables, name: str) -> Former | None:
    """Gives a store that is a copy, or another node's, a new UUID before anything is read from it (ADR 0025). For a
    copy, the catalog finds that its tables name another store, and gives new numbers and queue UUIDs. A store of a
    renamed node begins new numbers at once, and keeps its queues.
    """
    former = store.uuid

    def copied(fresh: UUID) -> Rows:
        """Tables of an earlier version do not name their store: records the former UUID before the store gets a new
        one."""
        rows = {} if renamed is None else dict(renamed.names_alone(fresh))
        if custody_records.NUMBERED_BY not in dict(store.table("custody")):
            rows["custody", custody_records.NUMBERED_BY] = former.bytes
        return rows

    renamed, why = own_names.change(store, name, WAITING), store.copied
    if renamed is not None:
        store.mint(renamed.rows if why is None else copied)
        why = why or f"it belonged to node {renamed.former!r}, this node is {name!r}"
    elif why is not None:
        store.mint(copied)
    return None if why is None else Former(former, why)


class Informed(Protocol):
    """A neighbour that is informed of this node's store."""

    def tell_identity(self) -> None:
        """Sends the hello again if the control link is attached; the store may have changed."""


@dataclass(frozen=True, slots=True, eq=False)
class TellIdentity(Effect):
    """The new UUID is on disk: all neighbours are informed."""

    store: UUID


@dataclass(frozen=True, slots=True, eq=False)
class OfferRenumbered(Effect):
    """A transmission queue is offered again, because all of it was renumbered."""

    destination: str
    renewal: Renewal = field(repr=False)


class Identities:
    """`store_uuid`: the origin of messages that this node numbers now. `renewed`: whether this run found its store
    rolled back, and gave it a new UUID. `former`: if the store was a copy, or another node's, at this start: its UUID
    before, and why. `sent`: by destination, the highest own number that this run has sent, by any route. `offer_again`
    is called with a transmission queue once all of it was renumbered.
    """

    def __init__(
        self,
        store: Tables,
        former: Former | None,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        room: Room,
        outbox: Outbox,
        log: Log,
        losses: Losses,
        neighbours: Mapping[str, Informed],
        *,
        offer_again: Callable[[Queue], None],
    ) -> None:
        self.store_uuid = entry.uuid_of(store.uuid.bytes)
        self.former = former
        self.renewed = False
        self.sent: dict[str, int] = {}
        self._store = store
        self._catalog = catalog
        self._ledger = catalog.ledger
        self._turns = turns
        self._work = work
        self._room = room
        self._outbox = outbox
        self._log = log
        self._losses = losses
        self._neighbours = neighbours
        self._offer_again = offer_again
        turns.effects.on(TellIdentity, self._tell_identity)
        turns.effects.on(OfferRenumbered, self._offer_renumbered)
        self._first = dict(catalog.ledger.identities)
        """By destination: the first number that this run gives."""
        self._places = {name: queue.next_sequence for name, queue in catalog.transit.items()}
        """By destination: the end of its transmission queue when this run began."""

    def next(self, destination: str) -> entry.Identity:
        """Gives the next number for that destination; it is stored with this turn's batch, and given back if the turn
        is undone."""
        renewal = self._ledger.renewals.get(destination)
        if renewal is None or renewal.done:
            return self._next(destination)
        renewal.following += 1
        return entry.Identity(renewal.store, renewal.following - 1)

    def _next(self, destination: str) -> entry.Identity:
        number = self._ledger.identities.get(destination, 1)
        identity = entry.Identity(self.store_uuid, number)
        self._turns.gathered.identities.setdefault(destination, number)
        self._turns.gathered.changes += 1
        self._ledger.put_identity(destination, number + 1)
        return identity

    def tell_former(self) -> None:
        """Logs and records what happened to the store, once the catalog has read its former UUID."""
        if self.former is None and self._catalog.former is not None:
            self.former = Former(self._catalog.former, "it got a new UUID before it was stopped")
        if self.former is None:
            return
        self.renewed = True
        self._log.write(
            "WARNING" if self._catalog.former is not None or self._neighbours else "INFO",  # alone, nobody knows it
            f"this store was copied, put back or renamed: {self.former.why}. It was {self.former.uuid}, it is "
            f"{self.store_uuid} now; its messages keep their identity, new ones are numbered from 1",
        )

    def _tell_reused(self, old: UUID, destination: str, mark: int) -> None:
        """Reports the numbers that this run gave and sent although an earlier run may have given them: a destination
        takes the second message for a copy of the first. Numbers that the destination acknowledged in this run, and
        those above its mark, are not among them.
        """
        reason = "given a second time by a store that was put back: the destination may have dropped them as copies"
        for name, last in self.sent.items():
            first = self._first.get(name, 1)
            acknowledged = self._ledger.receipts.get(name, 0)
            if name == destination:  # it has them up to `mark`, whoever sent them
                first, last = max(first, acknowledged + 1), min(last, mark)
            if first <= last and (name == destination or acknowledged < first):
                self._losses.add(old, [(first, last)], f"{name!r}: {reason}")

    def renew(self, destination: str, mark: int) -> None:
        """A peer has more of our numbers than our counters: this store was rolled back, and gets a new UUID. The UUID
        and the list of entries to renumber are in this turn's batch: a crash between the two would leave entries under
        numbers that their destination has for other messages. Others are informed once this is on disk, because after a
        crash the store might get yet another UUID.
        """
        old = self.store_uuid
        catalog = self._catalog
        begun = self._renewals(old)
        fresh = self._store.draw_uuid()
        self._work.batch.mint = fresh
        self.store_uuid = entry.uuid_of(fresh.bytes)
        self.renewed = True
        self._log.write(
            "WARNING",
            f"{destination} has finished number {mark}, which this store has not given: the store was restored; "
            f"it is {self.store_uuid} now",
        )
        first = self._first.get(destination, 1)
        fields = {"origin": str(old), "first": first, "last": mark, "reason": "this store was restored"}
        self._outbox.record("loss", fields)
        self._tell_reused(old, destination, mark)
        self.sent = {}
        catalog.ledger.put_numbered_by(self.store_uuid)
        self._turns.gathered.begun_anew = True
        for name, renewal in begun.items():
            catalog.ledger.put_renewal(name, renewal)
            catalog.transit[name].shared.forget_read_ahead()
        for name in [*catalog.ledger.identities, *catalog.transit]:
            catalog.ledger.put_identity(name, 1)
            catalog.ledger.receipts[name] = 0
            catalog.ledger.put_receipt(name)
        for turn in (self._turns.gathered, self._turns.in_flight):
            if turn is not None:  # undone, it gives back numbers of who we are now
                turn.identities = dict.fromkeys(turn.identities, 1)
        self._first = {}

        self._turns.gathered.then.append(TellIdentity(self._turns.event, self.store_uuid))

    def _renewals(self, old: UUID) -> dict[str, Renewal]:
        """By destination: entries that this run numbered and has not sent."""
        found = {}
        sent, places = self.sent, self._places  # what this life numbered it also appended
        for name, _ in self._catalog.transmissions():
            since = max(self._first.get(name, 1), sent.get(name, 0) + 1)
            following = self._ledger.identities.get(name, 1)
            if following > since:
                first = places.get(name, 1)
                found[name] = Renewal(old, since, first, first, following)
        return found

    def is_busy(self) -> bool:
        """Whether the next turn has something to renumber, and room for it."""
        waits = any(not renewal.done for renewal in self._ledger.renewals.values())
        return waits and self._room.has(RENEW_ROOM_BYTES, forwarding=True)

    def renew_some(self) -> None:
        """Does this turn's share of the renumbering that `renew` began. A queue offers nothing until all of its part
        was renumbered and is on disk; messages that arrive meanwhile still get numbers of the former store, and so keep
        their places behind the others."""
        if not self._ledger.renewals:
            return
        count, size = RENEW_COUNT, RENEW_BYTES
        for destination, renewal in self._ledger.renewals.items():
            queue = self._catalog.transit[destination]
            while not renewal.done:
                if count <= 0 or size <= 0 or not self._room.has(RENEW_ROOM_BYTES, forwarding=True):
                    return
                self._turns.gathered.renewals.setdefault(destination, (renewal, renewal.place))
                found = queue.read(renewal.place, count_max=min(count, 100), bytes_max=READ_BYTES)
                leaving = queue.leaving() if found else set()
                for sequence, value in found:
                    if sequence not in leaving:
                        self._rename(queue, destination, sequence, value, renewal)
                    size -= len(value)
                    renewal.place = sequence + 1
                count -= max(1, len(found))
                if not found:
                    self._caught_up(queue, destination, renewal)

    def _caught_up(self, queue: Queue, destination: str, renewal: Renewal) -> None:
        """Whether only entries of the commit in flight, or of the gathered turn, are left."""
        if self._turns.in_flight is not None:
            leaving = queue.leaving()
            for queue_id, sequence, value in list(self._turns.in_flight.batch.appends):
                if queue_id == queue.queue_id and sequence >= queue.visible and sequence not in leaving:
                    self._rename(queue, destination, sequence, value, renewal)
        gathered = self._work.batch.appends
        for index, (queue_id, sequence, value) in enumerate(gathered):
            if queue_id == queue.queue_id:
                renamed = self._renamed(destination, value, renewal)
                if renamed is not None:
                    queue.uncache(sequence)
                    gathered[index] = (queue_id, sequence, renamed)
        renewal.done = True
        self._ledger.drop_renewal(destination)
        self._turns.gathered.then.append(OfferRenumbered(self._turns.event, destination, renewal))

    def _tell_identity(self, effect: TellIdentity) -> None:
        for neighbour in self._neighbours.values():
            neighbour.tell_identity()

    def _offer_renumbered(self, effect: OfferRenumbered) -> None:
        destination, renewal = effect.destination, effect.renewal
        if renewal.done and self._ledger.renewals.get(destination) is renewal:
            del self._ledger.renewals[destination]
            self._offer_again(self._catalog.transit[destination])

    def remember_sent(self, destination: str, number: int) -> None:
        """Records that a message with that number is about to be sent. Call it before sending: a number that is not
        recorded would look like one of a restored store."""
        self.sent[destination] = max(number, self.sent.get(destination, 0))

    def undo(self, undone: Undone) -> None:
        """Undoes those turns: the store keeps its new UUID, and entries that were renumbered in them are renumbered
        again."""
        for turn in undone.turns:
            for destination, number in turn.identities.items():
                self._ledger.put_identity(destination, number)
            self._undo(turn)

    def _undo(self, turn: Turn) -> None:
        catalog, work = self._catalog, self._work
        work.batch.mint = work.batch.mint or turn.batch.mint
        if turn.begun_anew:
            self._turns.gathered.begun_anew = True
            for destination, following in list(catalog.ledger.identities.items()):
                catalog.ledger.put_identity(destination, following)
        for destination, (renewal, place) in turn.renewals.items():
            if destination in catalog.transit:
                renewal.place, renewal.done = min(renewal.place, place), False
                catalog.ledger.put_renewal(destination, renewal)

    def forget(self, destination: str) -> None:
        """The transmission queue for that destination was deleted: a new queue of that name begins at 1."""
        if self._ledger.renewals.pop(destination, None) is not None:
            self._ledger.drop_renewal(destination)
        self._places.pop(destination, None)

    def _rename(self, queue: Queue, destination: str, sequence: int, value: bytes, renewal: Renewal) -> None:
        renamed = self._renamed(destination, value, renewal)
        if renamed is not None:
            rewriting.replace(queue, sequence, value, renamed, self._turns.gathered.rewritten)

    def _renamed(self, destination: str, value: bytes, renewal: Renewal) -> bytes | None:
        """The entry with a new number, if this run numbered it by a rolled-back counter and never sent it; else
        None."""
        item = entry.unpack(value)
        if item.identity is None or item.identity.origin != renewal.store or item.identity.number < renewal.since:
            return None
        return entry.repack(item._replace(identity=self._next(destination), trace=b"", group=None))

    def check_or_renew(self, destination: str, number: int) -> bool:
        """Checks a number of ours that another node has. If this run cannot have sent it, this store was restored:
        `renew`. No other node can have a number that this run gave and has not sent by any route.
        """
        if number < self._first.get(destination, 1) or number <= self.sent.get(destination, 0):
            return True
        if self.renewed or self._ledger.renewals:  # no other node can have numbers given since
            text = f"node {destination!r} acknowledges number {number}, which this node has not sent: ignored"
            self._log.write("WARNING", f"{text}; look whether another node runs on a copy of this one's store")
            return False
        self.renew(destination, number)
        return False

    def receipt(self, destination: str, mark: int) -> None:
        """Handles a destination's receipt for our messages (CUSTODY, end to end 2)."""
        if mark <= self._ledger.receipts.get(destination, 0) or not self.check_or_renew(destination, mark):
            return
        self._ledger.receipts[destination] = mark
        self._ledger.put_receipt(destination)
