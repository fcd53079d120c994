"""Custody on its way through: where what is for other nodes goes next, and what comes back (CUSTODY, "Transit").

Rules of this file: the table is given from outside and may change at any moment; a message in transit is judged by
its hop number alone, copies are its destination's business; what is kept of other nodes' messages beside the entries
is bounded, and to lose it costs a retry or a later receipt, never a message.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from holdfast.broker import entry
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.custody import carried, carried_runs
from holdfast.custody.carried import Arrival
from holdfast.custody.carried_runs import ArrivedRun
from holdfast.custody.destination import Destination
from holdfast.custody.directory import Directory
from holdfast.custody.endings import Endings
from holdfast.custody.hop_credit import HopCredits
from holdfast.custody.identity import Identities
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import ROOM_BYTES, Disk
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Refilled
from holdfast.settings import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Undone

PAIRS_MAX: Final = 10_000
"""(origin, destination) pairs of which it is remembered who brought them, and the last mark."""

HELD_MAX: Final = 10_000
"""Returned messages held for one destination; beyond it nothing new is sent there, and nothing returned is taken."""

RETURN_S: Final = (0.5, 60.0)
"""The first and the longest wait before what was returned is sent again once a table changed. The longest is also
how long it is held where nothing is heard to have changed: in a longer loop it may have, out of earshot."""

PASSED_BYTES: Final = 512
"""Of an entry that was handed on, what is remembered beside its trace: identity, address, a short message-id."""

RESERVE_BYTES: Final = 1024 * 1024
"""What of the store's reserve transit may use beside that of arrivals for this node, each queue its share."""

TIGHT_CREDIT: Final = 16
"""The credit of a link whose queue may still use its share of the reserve."""


def place_in(trace: bytes, store: bytes) -> int:
    """Where in a trace, as entries hold it, that store's 16 bytes stand first; -1 where it was not passed."""
    at = trace.find(store)
    while at > 0 and at % 16:
        at = trace.find(store, at + 1)
    return at


@dataclass(slots=True)
class Returned:
    """What came back of one destination's messages, by sequence in its transmission queue, and when it goes again."""

    due: float
    sequences: dict[int, None] = field(default_factory=dict)
    by: dict[str, None] = field(default_factory=dict)
    """Neighbours that returned some of it."""
    attempts: int = 0
    sent_again_at: float = 0.0


Passed = tuple[bytes, str, str, int]
"""What was handed on, for those who ask where it is: the entry's beginning, its destination, the neighbour, and when,
in ms of wall time. A plain tuple: one is made for each message."""


class HopSender(Protocol):
    """Our end of a neighbour's hop for one destination. `retry_at`: when it asks for a link again; None where nothing
    keeps it from one."""

    retry_at: float | None

    def stop(self) -> None:
        """The way to its destination is another one now."""


class Hop(Protocol):
    """A neighbour, as the next hop of messages and as the one that brought some.

    `senders` by destination. `brings`: (origin, destination) of what it was the last to bring. `told`: the last mark
    that it was told in this session, by (destination, origin).
    """

    brings: dict[tuple[UUID, str], None]
    told: dict[tuple[str, UUID], int]

    @property
    def name(self) -> str: ...
    @property
    def senders(self) -> Mapping[str, HopSender]: ...
    def sender_to(self, destination: str) -> object:
        """The sender for that destination, which pumps its transmission queue from now on."""

    def tell_version(self) -> None:
        """This node's table is another one."""


class Bringer(Refilled, Protocol):
    """A neighbour's link that brings messages for `destination`, which is another node than this. `way`: the origin
    last noted as coming this way, and when, as `Forwarding.ways` counts. `onward`: the transmission queue that it
    fills."""

    neighbour: str
    destination: str
    way: tuple[int, UUID] | None
    onward: Queue | None


class Forwarding:
    """The forwarding table of a node, and its part in the custody of messages that are for others."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        catalog: Catalog,
        room: Room,
        disk: Disk,
        outbox: Outbox,
        log: Log,
        links: LinkTables,
        identities: Identities,
        endings: Endings,
        destination: Destination,
        hops: Mapping[str, Hop],
        *,
        version: int,
        changed: Callable[[], None],
    ) -> None:
        """`version`: of the table at first. `changed` is called when the table is another one."""
        self._config = config
        self._clock = clock
        self._catalog = catalog
        self._ledger = catalog.ledger
        self._room = room
        self._disk = disk
        self._outbox = outbox
        self._log = log
        self._links = links
        self._identities = identities
        self._endings = endings
        self._destination = destination
        self._hops = hops
        self._changed = changed
        self._directory: Directory | None = None
        self.table = dict(config.forwarding)
        self.version = version
        """Told to neighbours and compared for equality alone; wall time at start sets lives apart."""
        self.hop_credits = HopCredits(config.limits.credit)
        self.brought: dict[tuple[UUID, str], str] = {}
        """(origin, destination) -> the neighbour that last brought such a message: the way back for its receipts."""
        self.ways = 0
        """Counts the changes of `brought`, for those who remember what stands there."""
        self.returned: dict[str, Returned] = {}
        self.passed: deque[Passed] = deque(maxlen=config.limits.passed_max)
        self.refused = 0
        """Attaches and messages for nodes of which nothing is known."""

    # ------------------------------------------------------------------------------------------------ the table

    def routed_by(self, directory: Directory) -> None:
        """There is a topology: its nodes are known."""
        self._directory = directory

    def via(self, destination: str) -> str:
        """Where a message for `destination` goes next: as the table says, else to a neighbour of that name, which need
        not be there."""
        return self.table.get(destination, destination)

    def _next_hop(self, destination: str) -> Hop | None:
        return self._hops.get(self.table.get(destination, destination))

    def knows(self, destination: str) -> bool:
        """Whether `destination` is in the configuration (a neighbour, or with a route) or in the topology.

        That something is queued for it says nothing: it may have left (ADR 0024).
        """
        if self.table.get(destination, destination) in self._hops:
            return True
        return self._directory is not None and self._directory.knows(destination)

    def change(self, table: dict[str, str]) -> None:
        """A new table: every transmission queue is pumped by its next hop's sender, and by no other."""
        accepted = {}
        for destination, via in table.items():
            if via in self._hops and destination != self._config.name:
                accepted[destination] = via
            else:
                text = f"route to {destination!r}: found {via!r}, accepted is a neighbour, for another node than this"
                self._log.write("WARNING", text)
        if accepted == self.table:
            return
        self.table = accepted
        self.version += 1
        for destination, _ in self._catalog.transmissions():
            self.steer(destination)
        for destination in self.returned:
            self._try_soon(destination)
        for neighbour in self._hops.values():
            neighbour.tell_version()
        self._changed()

    def wake(self) -> None:
        """Every transmission queue is pumped by its next hop's sender."""
        for destination, _ in self._catalog.transmissions():
            self.steer(destination)

    def steer(self, destination: str) -> None:
        """Has the transmission queue for `destination` pumped by its next hop's sender alone."""
        hop = self._next_hop(destination)
        for neighbour in self._hops.values():
            sender = neighbour.senders.get(destination)
            if sender is not None and neighbour is not hop:
                sender.stop()
        if hop is not None:
            hop.sender_to(destination)

    def established(self, neighbour: Hop) -> None:
        for destination, _ in self._catalog.transmissions():
            if self._next_hop(destination) is neighbour:
                neighbour.sender_to(destination)

    # ------------------------------------------------------------------------------------------------ in transit

    def take(self, receiver: Bringer, arrival: Arrival, message_format: int) -> bool | None:
        """True: taken into the turn, bound for the next node. None: no room, the link waits for it."""
        destination = receiver.destination
        ours = self._identities.store_uuid.bytes
        origin, number = arrival.identity
        if origin.bytes == ours:
            self._identities.check_or_renew(destination, number)
        else:
            if receiver.way != (self.ways, origin):
                self._brought(origin, destination, receiver.neighbour)
                receiver.way = self.ways, origin
            if arrival.receipt:
                self.note(origin, destination, arrival.receipt)
        queue = receiver.onward
        if queue is None:
            queue = receiver.onward = self._catalog.transmission(destination)
        trace = arrival.trace
        passed = place_in(trace, ours) if ours in trace else -1
        came_back = False
        if passed >= 0:  # the loop is cut out, so that a trace grows by the way alone
            came_back = self._would_return(destination, trace[passed + 16 : passed + 32])
            trace = trace[:passed]
        ended = arrival.tombstone
        too_long = len(trace) >= 16 * entry.TRACE_MAX
        clock = self._clock
        value = carried.entry_of(
            arrival,
            enqueued_ms=clock.wall_ms,
            steady_ms=clock.steady_ms,
            message_format=message_format,
            trace=b"" if too_long else trace,
        )
        size = arrival.size
        if not ended:
            crowded = came_back and self.held(destination) >= HELD_MAX
            if crowded or not queue.fits(size) or not self._has_room(queue, len(value)):
                self._links.wait_for_room(receiver)
                return None
        if too_long and not ended:
            reason = f"the trace is full: {entry.TRACE_MAX} nodes passed it on, the last was {receiver.neighbour!r}"
            text = f"number {number} of origin {origin} for {destination!r} becomes a dead letter: {reason}"
            self._log.write("ERROR", f"{text}; compare the routes of these nodes, which lead in a circle")
            self._endings.dead_letter(value, reason, destination)
            value, size = self._end_of(arrival)
        sequence = queue.append(value, size)
        if passed >= 0:
            self._destination.paths.came_back(receiver.neighbour)
        if came_back:
            self._hold(destination, sequence, receiver.neighbour)
        if self._config.telemetry_messages:
            record_message(self._outbox, "received", queue, sequence, value, destination=destination)
        return True

    def take_run(self, receiver: Bringer, run: ArrivedRun, payloads: Sequence[bytes], message_format: int) -> bool:
        """As `take`, for all messages of a run at once; False where one of them needs a look of its own, or there is no
        room for all, and nothing has changed."""
        origin, ours = run.origin, self._identities.store_uuid.bytes
        if run.raw_origin == ours or ours in run.trace or len(run.trace) >= 16 * entry.TRACE_MAX:
            return False
        destination = receiver.destination
        queue = receiver.onward
        if queue is None or self._config.telemetry_messages:
            return False
        values = carried_runs.entries_of(run, payloads, enqueued_ms=self._clock.wall_ms, message_format=message_format)
        count = len(values)
        size = sum([len(payload) for payload in payloads[:count]]) - count * run.bare_at
        if not (queue.fits_all(count, size) and self._room.has(sum([len(value) for value in values]))):
            return False
        if receiver.way != (self.ways, origin):
            self._brought(origin, destination, receiver.neighbour)
            receiver.way = self.ways, origin
        if run.receipt:
            self.note(origin, destination, run.receipt)
        queue.append_all(values, size)
        return True

    def _would_return(self, destination: str, went_by: bytes) -> bool:
        """Whether what came back would go the way again that it came back from; not where the table has changed."""
        hop = self._next_hop(destination)
        store = self._ledger.neighbour_stores.get(hop.name) if hop is not None else None
        return store is None or store.bytes == went_by

    def _end_of(self, arrival: Arrival) -> tuple[bytes, int]:
        stone = entry.pack(
            flags=entry.DURABLE | entry.TOMBSTONE,
            enqueued_ms=self._clock.wall_ms,
            bare=b"\x00\x53\x77\x40",
            identity=arrival.identity,
            to=arrival.to,
        )
        return stone, entry.size_of(stone)

    def _has_room(self, queue: Queue, size: int) -> bool:
        """Whether the store takes `size` more for `queue`; near its bound each queue still has a small share.

        The share is by destination, since ways to one destination never form a circle: of the full nodes on such a
        way, the last that holds something for it has before it one whose share is free.
        """
        if self._room.has(size):
            return True
        return self._may_share(queue, size) and self._room.has(size, forwarding=True, reserve=RESERVE_BYTES)

    def _may_share(self, queue: Queue, size: int) -> bool:
        share = RESERVE_BYTES // max(1, len(self._catalog.transit))
        return not queue.messages or queue.bytes_held + size <= share

    def credit(self, destination: str) -> int:
        """The credit that a custody link for `destination` may have now; 0 where the store is full or the disk
        stalls."""
        if self._disk.takes_nothing:
            return 0
        if destination == self._config.name:
            return self._config.limits.credit if self._room.has(ROOM_BYTES, forwarding=True) else 0
        if self._room.has(ROOM_BYTES):
            return self._config.limits.credit
        queue = self._catalog.transmission(destination)
        shared = self._may_share(queue, 0) and self._room.has(ROOM_BYTES, forwarding=True, reserve=RESERVE_BYTES)
        return min(TIGHT_CREDIT, self._config.limits.credit) if shared else 0

    # ------------------------------------------------------------------------------------------------ what came back

    def _hold(self, destination: str, sequence: int, neighbour: str) -> None:
        held = self.returned.get(destination)
        now = self._clock.now
        if held is None:
            held = self.returned[destination] = Returned(now + RETURN_S[1])
        if not held.sequences:
            held.due = now + RETURN_S[1]
            if now - held.sent_again_at > RETURN_S[1]:
                held.attempts = 0
            text = f"messages for {destination!r} come back from {neighbour!r}, whose route leads over this node"
            self._log.write(
                "WARNING", f"{text}: held until a route changes; compare the routes of both in their status"
            )
        held.sequences[sequence] = None
        held.by[neighbour] = None

    def holds(self, destination: str, sequence: int) -> bool:
        """Whether that entry waits for a table to change; its sender keeps it without sending it."""
        held = self.returned.get(destination)
        return held is not None and sequence in held.sequences

    def held(self, destination: str) -> int:
        """How many messages are held; at HELD_MAX nothing new is sent the same way."""
        held = self.returned.get(destination)
        return 0 if held is None else len(held.sequences)

    def forget(self, destination: str) -> None:
        """The transmission queue for that destination is deleted."""
        self.returned.pop(destination, None)

    def undo(self, undone: Undone) -> None:
        """What those turns appended never was, and is not among what was returned."""
        by_id = self._catalog.by_id
        for turn in undone.turns if self.returned else ():
            for queue_id, sequence, _ in turn.batch.appends:
                queue = by_id.get(queue_id)
                if queue is None or not queue.in_transit or (queue, sequence) in turn.rewritten:
                    continue
                held = self.returned.get(queue.destination)
                if held is not None:
                    held.sequences.pop(sequence, None)

    def version_heard(self, neighbour: Hop) -> None:
        """That neighbour's table is another one now: what it returned, or would get, may be tried again."""
        for destination, held in self.returned.items():
            if neighbour.name in held.by or self._next_hop(destination) is neighbour:
                self._try_soon(destination)
        for sender in neighbour.senders.values():
            if sender.retry_at is not None:
                sender.retry_at = self._clock.now

    def _try_soon(self, destination: str) -> None:
        held = self.returned[destination]
        first, longest = RETURN_S
        if held.sequences:
            held.due = min(held.due, self._clock.now + min(longest, first * 2.0 ** min(held.attempts, 10)))

    def tick(self, now: float) -> None:
        for destination, held in list(self.returned.items()):
            if not held.sequences:
                if now - held.sent_again_at > RETURN_S[1]:
                    del self.returned[destination]
            elif now >= held.due:
                again, held.sequences = held.sequences, {}
                held.by.clear()
                held.attempts += 1
                held.sent_again_at = now
                queue = self._catalog.transmission(destination)
                queue.shared.give_back(list(again), failed=False)

    def next_deadline(self) -> float | None:
        if not self.returned:
            return None
        return min((held.due for held in self.returned.values() if held.sequences), default=None)

    # ------------------------------------------------------------------------------------------------ receipts

    def _brought(self, origin: UUID, destination: str, neighbour: str) -> None:
        """Remembers the way back. After a restart it is learnt anew with the next message that passes."""
        pair = (origin, destination)
        before = self.brought.get(pair)
        if before == neighbour:
            return
        if before is not None:
            self._forget_pair(pair)
        elif len(self.brought) >= PAIRS_MAX:
            self._forget_pair(next(iter(self.brought)))
        self.brought[pair] = neighbour
        self.ways += 1
        self._hops[neighbour].brings[pair] = None

    def _forget_pair(self, pair: tuple[UUID, str]) -> None:
        self.ways += 1
        neighbour = self._hops[self.brought.pop(pair)]
        neighbour.brings.pop(pair, None)
        neighbour.told.pop((pair[1], pair[0]), None)

    def note(self, origin: UUID, destination: str, mark: int) -> None:
        """The highest word of `destination` on that origin which passed here, either way.

        It is stored, a row for each pair in a batch that is written anyway, and goes along with each message of that
        origin: so a destination with a new disk begins there, whichever node restarted in between.
        """
        passing = self._ledger.passing
        if mark <= passing.get((origin, destination), 0):
            return
        if (origin, destination) not in passing and len(passing) >= PAIRS_MAX:
            self._ledger.drop_passing(next(iter(passing)))
        self._ledger.put_passing(origin, destination, mark)

    def receipt_for(self, origin: bytes, destination: str) -> int:
        """What goes along with a message of that store as the last known receipt; 0 where none is known."""
        catalog = self._catalog
        if origin == self._identities.store_uuid.bytes:
            return catalog.ledger.receipts.get(destination, 0)
        return catalog.ledger.passing.get((entry.uuid_of(origin), destination), 0) if catalog.ledger.passing else 0

    def hear_mark(self, neighbour: Hop, destination: str, origin: UUID, mark: int) -> None:
        """A row of a control message. Passed on at most once for each value, and so never in a circle."""
        if destination == self._config.name or mark <= 0:
            return
        if (origin, destination) in neighbour.brings:  # it need not hear its own words
            neighbour.told[destination, origin] = max(mark, neighbour.told.get((destination, origin), 0))
        if origin == self._identities.store_uuid:
            self._identities.receipt(destination, mark)
        else:
            self.note(origin, destination, mark)

    def marks_for(self, neighbour: Hop, rows_max: int, *, at_first: bool) -> list[tuple[str, UUID, int]]:
        """(destination, origin, mark) that the neighbour has not been told: of its own store, and of what it brought.

        `at_first` looks for all of its own store: should that have been rolled back, it must hear so before it sends.
        """
        name, stored, passing = self._config.name, self._destination.stored_marks, self._ledger.passing
        store = self._ledger.neighbour_stores.get(neighbour.name)
        pairs = [] if store is None else [(store, name)]
        if at_first:
            pairs += [pair for pair in passing if pair[0] == store]
        rows = []
        for origin, destination in dict.fromkeys([*pairs, *neighbour.brings]):
            mark = stored.get(origin, 0) if destination == name else passing.get((origin, destination), 0)
            if mark > neighbour.told.get((destination, origin), 0):
                rows.append((destination, origin, mark))
                if len(rows) >= rows_max:
                    break
        return rows

    def arrived(self, origin: UUID, neighbour: str) -> None:
        """A message for this very node came by that neighbour: so its receipts go back."""
        self._brought(origin, self._config.name, neighbour)
