"""The node's memory for its peers, in one account, and how it is freed when it is used up.

Rules of this file: every holder of a peer's bytes or rows has an account here, or is measured with its connection. When
memory is short, caches are freed first (entries kept or read ahead for consumers). Then new requests, attaches and
messages for queues in memory are refused to the connections that hold the most. Beyond the bound, links that wait to be
resumed are forgotten, and the connections that hold the most are dropped. A neighbour's connection is never dropped,
and is always read, because its own bounds are small. Source: docs/adr/0030-one-account-of-memory.md.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, Protocol

from holdfast.accounts import Account
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.read_ahead import ReadAhead
from holdfast.broker.entries.withheld import Withheld
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored.producers import Producer
from holdfast.broker.stored.ranges import RangeSet
from holdfast.engine.port import PIECE_BYTES
from holdfast.peers.connections import Connections
from holdfast.peers.peer import Peer, Refilled
from holdfast.settings.limits import Limits
from holdfast.units import MIB

CONNECTION_BYTES: Final = 8 * 1024
"""An open connection's own objects, here and in the driver."""
LINK_BYTES: Final = 2 * 1024
"""A link's own objects, beside what its attach says."""
NODE_BYTES: Final = 7 * 1024
"""The objects of a dynamic node that a link created, without messages: of a subscription of a topic its queue, and its
binding where federation has it."""
SEND_BYTES: Final = PIECE_BYTES + 64 * 1024
"""Bytes of a large message that is being sent: a piece and a frame of it."""
REQUEST_BYTES: Final = 1_024
"""Bytes that a request uses besides its own."""
REPLY_BYTES: Final = 64 * 1024
"""Bytes that one more answer may use."""
PARKED_BYTES: Final = 512
"""Bytes that a delivery which waits for room uses besides its own."""
HANDED_BYTES: Final = MIB
HANDED_BYTES_MIN: Final = 64 * 1024
"""Bytes of messages that one connection gets in one turn, and one message more: until the end of the turn it is not
known whether its socket accepts them, and they are in memory. With little memory less than the second value."""
OFFERED_BYTES: Final = 32 * MIB
"""The same for all connections together: beyond it the other queues, and the other subscriptions and readers of a
queue, follow in the next turn."""
OFFERED_COUNT: Final = 1_024
"""Entries that all connections get in one turn, or that are examined without result, and those of one cursor or reader
more: about 10 us each, however few bytes they have. Entries of a run count less (Cursor.pump)."""
UNMEASURED_BYTES_MAX: Final = 64 * 1024
UNMEASURED_PARTS: Final = 2_048
"""After so many bytes, or such a part of the bound, changed connections are measured. A byte from a peer uses at most
320 bytes of memory (an attach of 39 bytes is a subscription of a topic), so memory that is not counted yet is a part of
the half that is free."""
SETS_PART: Final = 4
"""Bindings of federated topics have one part of the bound in so many."""
STEP_BYTES: Final = 2 * 1024
"""Steps in which a connection's account grows."""
LOOKS_A_TURN: Final = 1_000
"""Sessions that one turn measures; other changed connections are measured in the next."""
STALLED_A_TURN: Final = 100
"""Connections whose requests wait for memory that one turn examines while there is no room for others."""
REFILL_BYTES: Final = MIB
"""Room of queues in memory below which their producers are not woken, because they would only wait again."""


class WaitsForMemory(Refilled, Protocol):
    """A link to a queue in memory."""

    @property
    def queue(self) -> Queue: ...


class Memory:
    """The accounts of a node's memory for its peers. `total` bounds all together; each other account is for one
    purpose."""

    def __init__(self, limits: Limits, connections: Connections) -> None:
        self._open = connections
        most = limits.memory_bytes_max
        self.total = total = Account("total", most)
        self.connections = Account("connections", most, total)
        """The measured memory of each connection: Peer.held_bytes."""
        self.unstored = Account("unstored", limits.unstored_bytes_max, total)
        """Bytes that were read and not committed yet (links/pressure.py)."""
        self.parked = Account("parked", limits.parked_bytes_max, total)
        """Deliveries that wait for room in their queue (links/incoming.py)."""
        self.requests = Account("requests", most, total)
        """Requests to `$management` until they are answered, and the answers until they are sent
        (management/requests.py)."""
        self.queues = Account("queues", limits.memory_queue_bytes_max, total)
        """Entries of queues that are not durable."""
        self.dynamic = Account("dynamic", limits.dynamic_bytes_max, total)
        """The same of dynamic nodes (endpoints/addresses/dynamic_nodes.py)."""
        self.cached = Account("cached", limits.cache_bytes, total, spared=most // 4)
        """Entries kept for consumers that keep up."""
        self.read_ahead = ReadAhead(Account("read_ahead", limits.cache_bytes, total, spared=most // 4))
        self.resumable = Account("resumable", most, total)
        """The state of links that may be resumed (endpoints/resumption/)."""
        self.rejected = Account("rejected", most // 16, total)
        """Rejected deliveries that the producers of such links may ask for."""
        self.settling = Account("settling", most // 16, total)
        """Entries that consumers rejected or annotated and that are being processed, with the peers' errors and
        annotations (endpoints/settlements.py)."""
        self.transactions = Account("transactions", limits.transactions_bytes_max, total)
        """The contents of clients' open transactions (endpoints/transactions/)."""
        self.windows = Account("windows", most // 4, total)
        """Rows of the windows of links between queues (queue_links/)."""
        self.bindings = Account("bindings", most // 16, total)
        """Messages of neighbours about bindings that wait for a later turn (peering/binding_messages.py)."""
        self.sets = Account("sets", most, total)
        """The bindings of this node and of others that federation has; beyond SETS_PART of the bound those of others
        are replaced (peering/binding_control.py)."""
        self.delays = Account("delays", most, total)
        """When each delayed message is due (custody/delays.py); `delayed_max` bounds how many there are."""
        self.ranges = Account("ranges", most // 4, total)
        """Numbers that producers have stored and subscriptions have finished, as ranges; they outlive connections."""
        names = ("aside", "excluded", "given_back", "ready")
        self.withheld = Withheld(*(Account(name, most // 16, total) for name in names))
        """Entries that no consumer with credit can have, that consumers declared undeliverable on their links, that
        were requeued and are unfinished, and that are ready in queues that sort by priority."""
        self.changed: dict[Peer, None] = {}
        """Connections to be measured anew."""
        self.passed_bytes = 0
        """Bytes received from and handed to connections since they were last measured."""
        self.unmeasured_max = min(UNMEASURED_BYTES_MAX, most // UNMEASURED_PARTS)
        self.handed_max = min(HANDED_BYTES, max(HANDED_BYTES_MIN, most // 32))
        """Bytes that one connection is handed in one turn."""
        self.offered_count_max = OFFERED_COUNT
        self.waiting: dict[WaitsForMemory, None] = {}
        """Links to queues in memory that have no credit until there is room."""
        self.room_before: dict[Account, int] = {}
        """By account of queues, the least room that a waiting link found: with more than that it is refilled."""
        self.stalled: dict[Peer, None] = {}
        """Connections whose requests wait until there is room for answers."""
        self.nodes_of: Mapping[Peer, int] = {}
        """The dynamic nodes of each connection's links (endpoints/addresses/dynamic_nodes.py)."""
        self.dropped = 0
        self.refused = 0
        self._holders: list[tuple[Account, Callable[[], int]]] = []
        self.held_in(self.connections, lambda: sum(peer.held_bytes for peer in connections.values()))

    @property
    def accounts(self) -> tuple[Account, ...]:
        """All accounts but the total, which is their sum."""
        return (
            self.connections, self.unstored, self.parked, self.requests, self.queues, self.dynamic, self.cached,
            self.read_ahead.account, self.resumable, self.rejected, self.settling,
            self.transactions, self.windows, self.bindings, self.sets, self.delays, self.ranges, *self.withheld,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------ counted anew

    def held_in(self, account: Account, count: Callable[[], int]) -> None:
        """Registers a holder of that account; `count` returns its bytes. `unstored`, which is set at the end of a turn,
        and `requests`, in which an answer may outlive its connection, have no holders."""
        self._holders.append((account, count))

    def counted(self) -> dict[Account, int]:
        """The bytes of all holders, by account."""
        found: dict[Account, int] = {}
        for account, count in self._holders:
            found[account] = found.get(account, 0) + count()
        return found

    def recover(self) -> None:
        """Sets the accounts to what their holders have."""
        for account, size in self.counted().items():
            account.held = size
        self.total.held = sum(account.held for account in self.accounts)

    # ------------------------------------------------------------------------------------------------ asked

    def admits(self, peer: Peer, size: int) -> bool:
        """Whether a peer's request may use `size` bytes. If memory is short, only connections that hold less than their
        share may: half of the bound, divided by the connections."""
        if self.has_room(peer, size):
            return True
        self.refused += 1
        return False

    def has_room(self, peer: Peer, size: int) -> bool:
        if peer.neighbour is not None or self.total.fits(size):
            return True
        return self.weight(peer) + size <= self.share()

    @property
    def offered_max(self) -> int:
        """Bytes that all connections together may get in one turn."""
        return min(OFFERED_BYTES, max(self.handed_max, self.total.room // 2))

    def give_budget(self, work: Work[Any]) -> None:
        """Sets the turn's budget of offered bytes."""
        work.offered_bytes_max, work.offered_count_max = self.offered_max, self.offered_count_max

    def share(self) -> int:
        """How much each connection may hold, however short memory is."""
        return self.total.held_max // (2 * max(1, len(self._open)))

    def weight(self, peer: Peer) -> int:
        """Bytes that are held for that connection alone."""
        return peer.held_bytes + peer.parked_bytes + peer.request_bytes + peer.reply_bytes + peer.ahead_bytes

    def wait(self, link: WaitsForMemory) -> None:
        """Refills the link's credit once there is more room for its queue's memory than now."""
        account = link.queue.memory
        assert account is not None, "the queue is in memory"
        self.waiting[link] = None
        self.room_before[account] = min(account.room, self.room_before.get(account, account.room))

    # ------------------------------------------------------------------------------------------------ measured

    def measure(self, peer: Peer) -> None:
        """Updates the account of that connection: never below what it holds, and seldom changed. It is rounded up to
        STEP_BYTES, and only lowered if it is two steps too high, so that single messages change nothing.
        """
        engine = peer.amqp
        held = CONNECTION_BYTES + engine.held_bytes + engine.links * LINK_BYTES + len(peer.sends) * SEND_BYTES
        held += self.nodes_of.get(peer, 0) * NODE_BYTES
        held += peer.bodies_given.held_bytes + peer.bodies_taken.held_bytes
        held += peer.unread_bytes if peer.unread_bytes > peer.unsent_bytes else peer.unsent_bytes
        if not held <= peer.held_bytes <= held + 2 * STEP_BYTES:
            held += -held % STEP_BYTES
            self.connections.recount(peer.held_bytes, held)
            peer.held_bytes = held
        if peer.counted_links != engine.links and peer.use is not None:
            peer.use.links += engine.links - peer.counted_links
            peer.counted_links = engine.links

    def unsent(self, told: Iterable[tuple[int, int]]) -> None:
        """Bytes that the driver holds for the sockets of these connections."""
        for number, size in told:
            peer = self._open.get(number)
            if peer is not None:
                peer.unsent_bytes = size
                self.passed_bytes += size
                self.changed[peer] = None

    def count_ranges(self, holder: Producer | Cursor, ranges: RangeSet) -> None:
        """Updates the account of ranges."""
        size = ranges.held_bytes
        self.ranges.recount(holder.counted_bytes, size)
        holder.counted_bytes = size

    def left(self, peer: Peer) -> None:
        """The connection has ended."""
        self.connections.refund(peer.held_bytes)
        peer.held_bytes = 0
        self.changed.pop(peer, None)
        self.stalled.pop(peer, None)

    def is_due(self, offered_bytes: int) -> bool:
        """Called once a turn, in which so many bytes were offered: whether the changed connections must be measured
        now. While less than half of the bound is held, this waits until enough bytes have moved to matter."""
        self.passed_bytes += offered_bytes
        total = self.total
        return self.passed_bytes >= self.unmeasured_max or total.held > total.held_max // 2 or bool(self._open.sending)

    def measure_changed(self) -> None:
        """Measures changed connections, a bounded number each turn."""
        self.passed_bytes = 0
        changed = self.changed
        looks = LOOKS_A_TURN
        for peer in list(changed) if len(changed) <= looks else list(islice(changed, looks)):
            if looks <= 0:
                break
            del changed[peer]
            if self._open.holds(peer):
                self.measure(peer)
                looks -= 1 + peer.amqp.session_count

    @property
    def is_short(self) -> bool:
        """Whether so much is held that memory must be freed."""
        most = self.total.held_max
        return self.total.held > most - most // 4

    @property
    def excludes_too_much(self) -> bool:
        """Whether too many messages are undeliverable on links."""
        excluded = self.withheld.excluded
        return excluded.held > excluded.held_max

    @property
    def is_waited_for(self) -> bool:
        """Whether anything waits for memory."""
        return bool(self.stalled or self.room_before)

    def status(self) -> dict[str, Any]:
        """The fields of `status`."""
        return {
            "bytes_max": Ulong(self.total.held_max),
            "bytes": Ulong(self.total.held),
            "bytes_most": Ulong(self.total.most),
            "connections_dropped": Ulong(self.dropped),
            "refused": Ulong(self.refused + self.parked.refused),
            "held": {account.name: Ulong(account.held) for account in self.accounts},
        }
