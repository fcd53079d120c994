"""Custody in transit: the next hop of messages for other nodes, and messages that come back (CUSTODY, "Transit"). Rules
of this file: the table is given from outside and may change at any moment; for a message in transit only the hop number
counts, and its destination detects copies.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.host_names import host_of, node_of
from holdfast.broker.message_records import record_message
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.custody.hop_credit import HopCredits
from holdfast.custody.hop_port import Hop
from holdfast.custody.names.directory import Directory
from holdfast.custody.names.identity import Identities
from holdfast.custody.receipts import Receipts
from holdfast.custody.sent_back import HELD_MAX, SentBack
from holdfast.custody.transfers import carried, carried_runs
from holdfast.custody.transfers.carried import Arrival
from holdfast.custody.transfers.carried_runs import ArrivedRun
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.links.disk import ROOM_BYTES, Disk
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Refilled
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog
from holdfast.state.room import Room

PASSED_BYTES: Final = 512
"""Bytes that are remembered of a forwarded entry besides its trace: identity, address, a short message-id."""

RESERVE_BYTES: Final = 1024 * 1024
"""Bytes of the store's reserve that transit may use besides that of arrivals for this node; each queue has a share."""

TIGHT_CREDIT: Final = 16
"""The credit of a link whose queue may still use its share of the reserve."""


def place_in(trace: bytes, store: bytes) -> int:
    """The first offset of that store's 16 bytes in a trace as entries hold it; -1 if the store was not passed."""
    at = trace.find(store)
    while at > 0 and at % 16:
        at = trace.find(store, at + 1)
    return at


Passed = tuple[bytes, str, str, int]
"""A forwarded message, for `where`: the entry's beginning, its destination, the neighbour, and when, in ms of wall
time. A plain tuple, because one is made for each message."""


class Bringer(Refilled, Protocol):
    """A neighbour's link with messages for `destination`, which is another node. `way`: the origin last recorded as
    arriving by this link, and when, as `Receipts.ways` counts. `onward`: the transmission queue that it fills."""

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
        dead_lettering: DeadLettering,
        destination: Destination,
        hops: Mapping[str, Hop],
        *,
        version: int,
        changed: Callable[[], None],
    ) -> None:
        """`version`: of the first table. `changed` is called when the table has changed."""
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
        self._dead_lettering = dead_lettering
        self._destination = destination
        self._hops = hops
        self._changed = changed
        self._directory: Directory | None = None
        self.table = dict(config.forwarding)
        self.version = version
        """Sent to neighbours and compared for equality only; it begins at the wall time of the start, so that runs
        differ."""
        self.hop_credits = HopCredits(config.limits.credit)
        self.receipts = Receipts(config.name, self._ledger, identities, destination, hops)
        self.sent_back = SentBack(clock, catalog, log)
        self.returned = self.sent_back.by_destination
        self.passed: deque[Passed] = deque(maxlen=config.limits.passed_max)
        self.refused = 0
        """Attaches and messages for unknown nodes."""

    # ------------------------------------------------------------------------------------------------ the table

    def routed_by(self, directory: Directory) -> None:
        """Connects the topology, whose nodes are known."""
        self._directory = directory

    def via(self, destination: str) -> str:
        """The next hop for `destination`: that of the table for its node, else a neighbour of that name, connected or
        not."""
        node = node_of(destination)
        return self.table.get(node, node)

    def _next_hop(self, destination: str) -> Hop | None:
        """The next hop; None also if the virtual host may not cross there: then messages wait."""
        hop = self._hops.get(self.via(destination))
        return hop if hop is not None and hop.may_have(destination) else None

    def knows(self, destination: str) -> bool:
        """Whether the node of `destination` is in the configuration (a neighbour, or with a route) or in the topology.
        Messages may be queued for an unknown node, because it may have left (ADR 0024).
        """
        if self.table.get(destination, destination) in self._hops:
            return True
        node = node_of(destination)
        if node != destination:
            return self.knows(node)
        return self._directory is not None and self._directory.knows(node)

    def is_drained(self, node: str) -> bool:
        """Whether the topology has that node as drained."""
        return self._directory is not None and self._directory.is_drained(node)

    def may_leave(self, host: str) -> bool:
        """Whether messages of that virtual host may cross to any neighbour."""
        return not host or any(host in hop.hosts for hop in self._hops.values())

    def kept_here(self) -> Iterator[tuple[str, str]]:
        """Destinations in virtual hosts whose messages wait because the next hop may not have them or does not know the
        host; each with a line for the operator."""
        for destination, queue in self._catalog.transmissions():
            waiting, host = queue.messages - queue.tombstones, host_of(destination)
            hop = self._hops.get(self.via(destination))
            if not host or not waiting or hop is None or hop.takes(destination):
                continue
            text = f"{waiting} messages of virtual host {host!r} for {node_of(destination)!r} wait"
            if not hop.may_have(destination):
                yield destination, f"neighbour {hop.name}: {text}: add the host to hosts of its [[neighbour]]"
            elif hop.established:
                yield destination, f"neighbour {hop.name}: {text}: its version knows no virtual hosts; upgrade it"

    def change(self, table: dict[str, str]) -> None:
        """Sets a new table: every transmission queue is pumped by its next hop's sender only."""
        accepted = {}
        for destination, via in table.items():
            if via in self._hops and destination != self._config.name:
                accepted[destination] = via
            else:
                text = f"invalid route to {destination!r} via {via!r}; expected another node, via a neighbour"
                self._log.write("WARNING", text)
        if accepted == self.table:
            return
        self.table = accepted
        self.version += 1
        for destination, _ in self._catalog.transmissions():
            self.steer(destination)
        for destination in self.returned:
            self.sent_back.try_soon(destination)
        for neighbour in self._hops.values():
            neighbour.tell_version()
        self._changed()

    def wake(self) -> None:
        """Has every transmission queue pumped by its next hop's sender."""
        for destination, _ in self._catalog.transmissions():
            self.steer(destination)

    def steer(self, destination: str) -> None:
        """Has the transmission queue for `destination` pumped by its next hop's sender only."""
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
        """True: added to the turn, for the next node. None: no room, the link waits for it."""
        destination = receiver.destination
        ours = self._identities.store_uuid.bytes
        origin, number = arrival.identity
        if origin.bytes == ours:
            self._identities.check_or_renew(destination, number)
        else:
            self._came_by(receiver, origin, arrival.receipt)
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
        size = arrival.size
        crowded = came_back and self.sent_back.held(destination) >= HELD_MAX
        if not ended and crowded:  # before it is copied: it is asked about in each turn
            self._links.wait_for_room(receiver)
            return None
        too_long = len(trace) >= 16 * entry.TRACE_MAX
        clock = self._clock
        value = carried.entry_of(
            arrival,
            enqueued_ms=clock.wall_ms,
            steady_ms=clock.steady_ms,
            message_format=message_format,
            trace=b"" if too_long else trace,
        )
        if not ended and not self._has_room(queue, len(value)):
            self._links.wait_for_room(receiver)
            return None
        if too_long and not ended:
            reason = f"the trace is full: {entry.TRACE_MAX} nodes passed it on, the last was {receiver.neighbour!r}"
            text = f"number {number} of origin {origin} for {destination!r} becomes a dead letter: {reason}"
            self._log.write("ERROR", f"{text}; compare the routes of these nodes, which lead in a circle")
            place = f"{entry.unpack(value).to}@{node_of(destination)}"
            self._dead_lettering.dead_letter(queue.host, value, reason, place)
            value, size = self._end_of(arrival)
        sequence = queue.append(value, size)
        if passed >= 0:
            self._destination.paths.came_back(receiver.neighbour)
        if came_back:
            self.sent_back.hold(destination, sequence, receiver.neighbour)
        if self._config.telemetry_messages:
            record_message(self._outbox, "received", queue, sequence, value, destination=destination)
        return True

    def take_run(self, receiver: Bringer, run: ArrivedRun, payloads: Sequence[bytes], message_format: int) -> bool:
        """As `take`, for all messages of a run at once. False, with nothing changed, if one of them must be examined
        singly, or there is no room for all."""
        origin, ours = run.origin, self._identities.store_uuid.bytes
        if run.raw_origin == ours or ours in run.trace or len(run.trace) >= 16 * entry.TRACE_MAX:
            return False
        queue = receiver.onward
        if queue is None or self._config.telemetry_messages:
            return False
        values = carried_runs.entries_of(run, payloads, enqueued_ms=self._clock.wall_ms, message_format=message_format)
        count = len(values)
        size = sum([len(payload) for payload in payloads[:count]]) - count * run.bare_at
        if not self._room.has(sum([len(value) for value in values])):
            return False
        self._came_by(receiver, origin, run.receipt)
        queue.append_all(values, size)
        return True

    def _came_by(self, receiver: Bringer, origin: UUID, receipt: int) -> None:
        """Records the path back to another node's store, and the receipt that came along (0: none)."""
        receipts, destination = self.receipts, receiver.destination
        if receiver.way != (receipts.ways, origin):
            receipts.brought_by(origin, destination, receiver.neighbour)
            receiver.way = receipts.ways, origin
        if receipt:
            receipts.note(origin, destination, receipt)

    def _would_return(self, destination: str, went_by: bytes) -> bool:
        """Whether a returned message would be sent again to the neighbour that returned it; not if the table has
        changed."""
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
        return stone, packed.size_of(stone)

    def _has_room(self, queue: Queue, size: int) -> bool:
        """Whether the store has room for `size` more bytes of `queue`; near its bound each queue still has a small
        share. The share is by destination, because routes to one destination never form a loop: so some full node on
        the route can always send to one whose share is free.
        """
        if self._room.has(size):
            return True
        return self._may_share(queue, size) and self._room.has(size, forwarding=True, reserve=RESERVE_BYTES)

    def _may_share(self, queue: Queue, size: int) -> bool:
        share = RESERVE_BYTES // max(1, len(self._catalog.transit))
        return not queue.messages or queue.bytes_held + size <= share

    def credit(self, destination: str, *, in_transit: bool) -> int:
        """The credit that a custody link for `destination` may have now; 0 where the store is full or the disk
        stalls. `in_transit`: whether another node is meant."""
        if self._disk.takes_nothing:
            return 0
        if not in_transit:
            return self._config.limits.credit if self._room.has(ROOM_BYTES, forwarding=True) else 0
        if self._room.has(ROOM_BYTES):
            return self._config.limits.credit
        queue = self._catalog.transmission(destination)
        shared = self._may_share(queue, 0) and self._room.has(ROOM_BYTES, forwarding=True, reserve=RESERVE_BYTES)
        return min(TIGHT_CREDIT, self._config.limits.credit) if shared else 0

    # ------------------------------------------------------------------------------------------------ what came back

    def version_heard(self, neighbour: Hop) -> None:
        """That neighbour's table has changed: messages that it returned, or would get, may be tried again."""
        for destination, held in self.returned.items():
            if neighbour.name in held.by or self._next_hop(destination) is neighbour:
                self.sent_back.try_soon(destination)
        for sender in neighbour.senders.values():
            if sender.retry_at is not None:
                sender.retry_at = self._clock.now
