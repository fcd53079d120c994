"""Searches a message at this node: in which queue it is, what it waits for, or where it was sent (docs/where.md).

Rules of this file: it only reads. A search is a generator that reads a bounded share at each step, and returns how far
it came; it keeps no references to queues, and skips those that are deleted meanwhile. Messages that left the node are
known as far as `passed` remembers them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from holdfast.broker.entries import annotate, delays, entry, packed
from holdfast.broker.entries.host_names import host_of, hosted, node_of
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.dead_lettering import REASON
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.oversized import answer_awaited
from holdfast.custody.hop.paced_sender import PacedSender
from holdfast.custody.hop.sender import CustodySender
from holdfast.custody.names.store_names import StoreNames
from holdfast.custody.sent_back import HELD_MAX
from holdfast.endpoints.addresses.remote_queues import split
from holdfast.endpoints.remotes.remote import UP, Remote
from holdfast.management.where.message_ids import HEAD_BYTES, first_field
from holdfast.names import DEAD_LETTERS
from holdfast.peering.sessions import Neighbour
from holdfast.state.catalog import DELAYED, WAITING, Catalog
from holdfast.state.tables import Tables
from holdfast.units import iso8601

ENDED: Final = "it ended on its way (expired, purged, dead letter) or was given up"
NEWEST: Final = 5_000
"""Entries of each queue that are looked at first: what is asked for is mostly new."""

SHARE_COUNT: Final = 500
SHARE_BYTES: Final = 1024 * 1024
"""What one step reads of a queue."""

QUEUES_A_STEP: Final = 200
"""Empty queues that one step passes over."""

GAPS_MAX: Final = 10
"""Ranges of missing numbers that one answer lists."""

OUTGOING: Final = (QueueKind.TRANSMISSION, QueueKind.REMOTE)
"""Queues whose messages go elsewhere."""

Step = dict[str, Any]


class Hint(NamedTuple):
    """What is known of the message before the search, from the node that passed it on."""

    destination: str
    identity: entry.Identity
    to: str


class Whereabouts:
    """What this node knows about where a message is; `node`: its name."""

    def __init__(
        self,
        node: str,
        catalog: Catalog,
        store: Tables,
        forwarding: Forwarding,
        destination: Destination,
        names: StoreNames,
        neighbours: Mapping[str, Neighbour],
        hops: Mapping[str, NextHop],
        remotes: Mapping[str, Remote],
    ) -> None:
        self.node = node
        self.catalog = catalog
        self._ledger = catalog.ledger
        self.forwarding = forwarding
        self._store = store
        self._destination = destination
        self._names = names
        self._neighbours = neighbours
        self.hops = hops
        self._remotes = remotes

    def look(self, host: str, wanted: tuple[bytes, ...], hint: Hint | None) -> "Look":
        """A search for a message with one of those message-ids, encoded, in that virtual host."""
        return Look(self, host, wanted, hint)

    def head_of(self, value: bytes) -> bytes:
        """The beginning of an entry's bare message, which may be a blob."""
        at = packed.bare_at(value)
        if not value[1] & entry.BLOB:
            return value[at : at + HEAD_BYTES]
        if len(value) - at != entry.REFERENCE_BYTES:
            return b""
        return (self._store.piece(entry.blob_of(value).blob, 0) or b"")[:HEAD_BYTES]

    def identity(self, item: entry.Entry, destination: str) -> Step:
        """The identity of a message in custody, and the nodes that it passed before this one."""
        assert item.identity is not None
        return {
            "origin": self._names.name_of(item.identity.origin),
            "number": item.identity.number,
            "destination": node_of(destination),
            "path": self._names.names_of(item.trace),
        }

    def state_of(self, queue: Queue, sequence: int, value: bytes) -> Step:
        """The state of a message that is here."""
        item = entry.unpack(value)
        step: Step = {"queue": queue.name, "sequence": sequence, "since": iso8601(item.enqueued_ms), "custody": True}
        in_transit = queue.in_transit
        if item.identity is not None:
            step |= self.identity(item, queue.destination if in_transit else self.node)
        if queue.kind is QueueKind.DEAD_LETTERS:
            notes = annotate.notes_of(item)
            return step | {"state": "dead letter", "reason": str(notes.get(REASON, "")), "waits_for": "an operator"}
        if queue.expired(value):
            return step | {"state": "expired", "waits_for": "its turn, at which its end is reported"}
        if queue.kind is QueueKind.DELAYED:
            return step | {"state": "delayed", "waits_for": self._time(item.to, value)}
        if queue.kind is QueueKind.WAITING:
            return step | {"state": "held back", "waits_for": self._gap(queue.host, item, sequence)}
        if in_transit:
            return step | {"state": "in transmission", "waits_for": self._wait(queue.destination, queue, sequence)}
        if queue.kind is QueueKind.REMOTE:
            return step | {"state": "in transmission", "waits_for": self._wait_for_remote(queue, sequence)}
        return step | _in_local(queue, sequence)

    def ended_of(self, queue: Queue, sequence: int, value: bytes) -> Step:
        """The state of a message whose tombstone is here."""
        item = entry.unpack(value)
        return {
            "queue": queue.name,
            "sequence": sequence,
            "since": iso8601(item.enqueued_ms),
            **self.identity(item, queue.destination),
            "state": "ended",
            "reason": ENDED,
            "waits_for": "its turn, at which its end is reported",
        }

    def _time(self, name: str, value: bytes) -> str:
        """What a delayed message for that queue waits for."""
        due_ms = delays.told_ms(value)
        if due_ms is not None and due_ms <= self.catalog.clock.wall_ms:
            return _room(name)
        return "its time" if due_ms is None else f"its time, {iso8601(due_ms)}"

    def _gap(self, host: str, item: entry.Entry, sequence: int) -> str:
        """For which earlier numbers it waits."""
        assert item.identity is not None
        origin = self._ledger.origin_at(host, item.identity.origin, sequence)
        gaps = [(first, last) for first, last in origin.gaps(GAPS_MAX + 1) if first < item.identity.number]
        if not gaps:
            return _room(item.to) if self._destination.full.is_full(hosted(host, item.to)) else "its turn"
        told = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in gaps[:GAPS_MAX])
        more = " and more" if len(gaps) > GAPS_MAX else ""
        return f"missing numbers of {self._names.name_of(item.identity.origin)}: {told}{more}"

    def _wait(self, destination: str, queue: Queue, sequence: int) -> str:
        """What a message in transmission waits for."""
        forwarding = self.forwarding
        hop = self.hops.get(forwarding.via(destination))
        if hop is None:
            return f"a route to {node_of(destination)!r}"
        if not hop.may_have(destination):
            return f"hosts of the [[neighbour]] {hop.name!r}, which does not list its virtual host"
        if forwarding.sent_back.holds(destination, sequence):
            return "a change of a routing table: the message came back"
        if not hop.established:
            return f"the session with {hop.name!r}, which is {self._neighbours[hop.name].state.value}"
        if not hop.takes(destination):
            return f"a version of {hop.name!r} that knows virtual hosts"
        sender = hop.senders.get(destination)
        blocked = None if sender is None else _blocked(sender, queue.value(sequence))
        if blocked is not None:
            return blocked
        if sender is None or sender.link is None or not sender.open:
            return f"a link to {hop.name!r} for {node_of(destination)!r}"
        if isinstance(sender, PacedSender) and sequence in sender.waiting:
            return f"its rate: {destination!r} paces this node"
        if sequence in sender.in_doubt.values():
            return f"the answer of {hop.name!r}"
        if sequence in sender.oversized.sequences:
            sent_to = answer_awaited(sender, sequence)
            if sent_to is not None:
                return f"the answer of {sent_to!r}"
            return f"room for a dead letter: it is larger than {hop.name!r} takes"
        if forwarding.sent_back.held(destination) >= HELD_MAX:
            return "a change of a routing table: too many messages came back"
        if not sender.link.credit:
            return f"credit of {hop.name!r}"
        if sender.wants() <= 0:
            return f"answers of {hop.name!r} to what went before"
        return "its turn"

    def _wait_for_remote(self, queue: Queue, sequence: int) -> str:
        """What a message for an address at a remote waits for."""
        name = split(queue)[1]
        remote = self._remotes.get(name)
        if remote is None:
            return f"a [[remote]] {name!r}, which is not configured"
        if remote.state != UP:
            why = f": {remote.reason}" if remote.reason else ""
            return f"the connection to the remote {name!r}, which is {remote.state}{why}"
        link = remote.sending.get(queue)
        if link is not None and link.reason:
            return f"the remote {name!r}: {link.reason}"
        if link is None or link.serving is None:
            return f"a link to the remote {name!r}"
        if sequence in queue.shared.acquired:
            return f"the answer of the remote {name!r}"
        return "its turn" if link.link is not None and link.link.credit else f"credit of the remote {name!r}"

    def finished_here(self, hint: Hint) -> Step:
        """What this node, the destination, knows of an identity that is in none of its queues."""
        host = host_of(hint.destination)
        origin = self._ledger.by_host[host].get(hint.identity.origin)
        number = hint.identity.number
        if origin is not None and (number <= origin.mark or number in origin.finished):
            if number in origin.ended:
                return {"state": "ended", "reason": ENDED}
            return {"state": "delivered", "queue": hint.to}
        waits = {"waits_for": _room(hint.to)} if self._destination.full.is_full(hosted(host, hint.to)) else {}
        return {"state": "expected", **waits}


def _in_local(queue: Queue, sequence: int) -> Step:
    """The step of a message in a queue of this node, its destination."""
    shared = queue.shared
    left = [
        name for name, cursor in queue.named.items() if cursor.floor <= sequence and sequence not in cursor.finished
    ]
    told: Step = {"subscriptions": sorted(left)} if left else {}
    if sequence in shared.acquired:
        return told | {"state": "with a consumer", "waits_for": "its outcome"}
    taken = queue.taken_by
    if taken is not None:
        return told | {"state": "queued", "waits_for": f"subscription {taken!r}"}
    waits = sequence >= shared.position or sequence in shared.requeued or sequence in shared.exclusions.aside
    done = sequence in shared.finished or not waits
    if done and left:
        return told | {"state": "consumed", "waits_for": f"subscriptions {', '.join(sorted(left))}"}
    if done:
        return told | {"state": "consumed", "waits_for": "nothing"}
    return told | {"state": "queued", "waits_for": "a consumer's credit" if shared.consumers else "a consumer"}


def _room(name: str) -> str:
    return f"room in queue {name!r}, which is full"


def _blocked(sender: CustodySender, value: bytes | None) -> str | None:
    """What the message waits for if the next hop has no room for a message of its origin."""
    if value is None:
        return None
    name, identity = sender.hop.name, packed.identity_of(value)
    blocked = sender.blocked.get(identity.origin)
    if blocked is None:
        return None
    if identity.number <= blocked.lowest:
        return f"a place at {name!r}, which has had none for it yet"
    return f"an earlier number of its origin, for which {name!r} has had no place yet"


class Look:
    """One search at this node. `run` it to its end, or as far as time allows; `step` is the result."""

    def __init__(self, here: "Whereabouts", host: str, wanted: tuple[bytes, ...], hint: Hint | None) -> None:
        self.here = here
        self.host = host
        self.wanted = wanted
        self.hint = hint
        self.looked_at = 0
        self.complete = False
        self.step: Step | None = None
        self._stone: Step | None = None
        """Of its tombstone, which counts where nothing else is found: beside it may lie a dead letter."""
        self.onward: Hint | None = None
        """The question for the next node, if the message was forwarded."""
        self.neighbour: str | None = None
        """Whom it was handed to."""

    def run(self, entries_max: int) -> Iterator[None]:
        """Searches, newest first; ends when the message is found or `entries_max` entries were looked at."""
        for newest in (True, False):
            names = self._names()
            for at, name in enumerate(names):
                if at % QUEUES_A_STEP == QUEUES_A_STEP - 1:
                    yield
                for _ in self._in_queue(name, newest):
                    if self.step is not None:
                        return
                    if self.looked_at >= entries_max:
                        return
                    yield
                if self.step is not None:
                    return
            if newest:
                yield from self._in_passed()
                if self.step is not None:
                    return
        self.complete = True
        self.step = self._stone

    def _names(self) -> list[str]:
        """The host's queues in the order of the search: transmission queues first."""
        queues, hint = list(self.here.catalog.of_host(self.host)), self.hint
        if hint is not None and node_of(hint.destination) != self.here.node:
            return [f"@{hint.destination}", DEAD_LETTERS]
        first = [hint.to] if hint is not None else sorted(queue.name for queue in queues if queue.kind in OUTGOING)
        names = [*first, WAITING, DELAYED, DEAD_LETTERS]
        if hint is None:
            clients = [queue for queue in queues if queue.kind in (QueueKind.ORDINARY, QueueKind.TOPIC)]
            names += [queue.name for queue in clients if queue.messages]
        return names

    def _in_queue(self, name: str, newest: bool) -> Iterator[None]:
        queue = self.here.catalog.find(self.host, name)
        if queue is None:
            return
        first = max(0, queue.next_sequence - NEWEST)
        end = queue.next_sequence
        if not newest:
            first, end = 0, first
        while first < end and self.here.catalog.has(queue):
            found = queue.read(first, count_max=SHARE_COUNT, bytes_max=SHARE_BYTES)
            for sequence, value in found:
                if sequence >= end:
                    return
                self.looked_at += 1
                if self._is(value) and not queue.leaves(sequence):
                    self.step = self.here.state_of(queue, sequence, value)
                    self._ask_on(queue, sequence, value)
                    return
                if value[1] & entry.TOMBSTONE and self._is_known(value):
                    self._stone = self.here.ended_of(queue, sequence, value)
            if not found:
                return
            first = found[-1][0] + 1
            yield

    def _ask_on(self, queue: Queue, sequence: int, value: bytes) -> None:
        """If the message only waits for a neighbour's answer or credit, asks that neighbour too: it says what it lacks,
        or that it has the message by now."""
        forwarding, destination = self.here.forwarding, queue.destination
        hop = self.here.hops.get(forwarding.via(destination)) if queue.in_transit else None
        if hop is None or not hop.established or queue.expired(value):
            return
        if forwarding.sent_back.holds(destination, sequence):
            return
        sender = hop.senders.get(destination)
        if sender is not None and sender.open:
            item = entry.unpack(value)
            assert item.identity is not None
            self.onward, self.neighbour = Hint(destination, item.identity, item.to), hop.name

    def _in_passed(self) -> Iterator[None]:
        """Searches messages that were passed on, the newest first; changes meanwhile do not matter."""
        passed = self.here.forwarding.passed
        for at, (value, destination, neighbour, wall_ms) in enumerate(list(reversed(passed))):
            if at % SHARE_COUNT == SHARE_COUNT - 1:
                yield
            if host_of(destination) == self.host and self._is(value):
                self.neighbour = neighbour
                found = entry.unpack(value)
                assert found.identity is not None
                self.onward = Hint(destination, found.identity, found.to)
                self.step = {
                    "state": "passed",
                    "next": neighbour,
                    "at": iso8601(wall_ms),
                    "since": iso8601(found.enqueued_ms),
                    **self.here.identity(found, destination),
                }
                return

    def _is_known(self, value: bytes) -> bool:
        """Whether the entry has the identity in the question."""
        return self.hint is not None and packed.identity_of(value) == self.hint.identity

    def _is(self, value: bytes) -> bool:
        if value[1] & entry.TOMBSTONE:
            return False
        hint = self.hint
        if hint is not None and value[1] & entry.CUSTODY and packed.identity_of(value) != hint.identity:
            return False
        return first_field(self.here.head_of(value)).startswith(self.wanted)
