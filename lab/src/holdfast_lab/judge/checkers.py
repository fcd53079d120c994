"""Holds a run to docs/GUARANTEES.md at each step: disks and wires are watched, nodes are not asked.

Rules of this file: `Ledger` knows every copy on every disk and `Watch` every delivery that awaits its answer; either
raises Violation in the moment in which a promise breaks. Nothing here changes what a node does.
"""

from collections.abc import Callable, Container, Iterable
from functools import cache
from typing import Any, Final

from holdfast.amqp.wire import conditions, fast
from holdfast.amqp.wire.performatives import Accepted, Attach, Close, Detach, End
from holdfast.broker.entries import entry
from holdfast.broker.entries.host_names import destination_of, read_key
from holdfast.broker.stored import records
from holdfast.broker.stored.custody_records import WALL
from holdfast.custody.transfers.carried import passed_by
from holdfast.engine.port import Batch
from holdfast.links import large_receives as streams
from holdfast.names import DEAD_LETTERS
from holdfast.storage.port import Store
from holdfast_lab.base.client_history import KEY_BYTES, History, Violation, key_in
from holdfast_lab.judge.frames import FrameReader

host_sent_in: Final = cache(lambda address: read_key(address)[0])
"""The virtual host of an address that messages are sent to: there are few."""

TRANSMISSION: Final = "@"
OWN: Final = "$"
WAITING: Final = "$waiting"
BROKEN_PROTOCOL: Final = frozenset(
    (
        conditions.DECODE_ERROR,
        conditions.FRAMING_ERROR,
        conditions.WINDOW_VIOLATION,
        conditions.ERRANT_LINK,
        conditions.HANDLE_IN_USE,
        conditions.UNATTACHED_HANDLE,
        conditions.TRANSFER_LIMIT_EXCEEDED,
    )
)
"""Errors that no peer that follows the protocol may get; nodes and clients of a run follow it."""
_IDENTITY_AT: Final = entry.FIXED_BYTES
_IDENTITY_END: Final = entry.FIXED_BYTES + 24


def key_of(value: bytes, store: Store, coming: Iterable[tuple[int, int, bytes]] = ()) -> bytes | None:
    """The key of an entry's message; of a large one the end of its body lies in `store`, or is among the pieces that
    are `coming`. None for a message that no workload sent."""
    if not value[1] & entry.BLOB:
        return key_in(value)
    blob, length = entry.blob_of(value)
    last = max(0, length - 1) // vars(streams)["PIECE_BYTES"]
    found = {index: data for number, index, data in coming if number == blob}
    ends = [found.get(index) or store.piece(blob, index) or b"" for index in range(max(0, last - 1), last + 1)]
    return key_in(b"".join(ends))


class Disk:
    """What lies on one node's disk, as its commits said: place to key, and the queues' names."""

    __slots__ = ("answered", "counts", "ever", "hosts", "name", "names", "places", "store", "transit", "waiting")

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.places: dict[tuple[int, int], bytes] = {}
        self.names: dict[int, str] = {}
        self.hosts: dict[int, str] = {}
        """The virtual host of each."""
        self.transit: set[int] = set()
        self.waiting: set[int] = set()
        """Transmission queues, and those of what waits for earlier messages, of all virtual hosts."""
        self.counts: dict[int, int] = {}
        self.ever: set[bytes] = set()
        """Keys that this place, on whichever disk, has stored."""
        self.answered: set[bytes] = set()
        """Keys that this place said it has: whoever sent them may forget them when that arrives."""


class Ledger:
    """Knows every copy on every disk. `hops`: transmission entries retired because a neighbour has them."""

    def __init__(
        self,
        history: History,
        *,
        count: Callable[[str, bytes], None] | None = None,
        remark: Callable[[str, str, str], None] | None = None,
    ) -> None:
        """`count` gets each batch for the digest, `remark` each message for the log."""
        self.history = history
        self.disks: dict[str, Disk] = {}
        self.copies: dict[bytes, int] = {}
        self.appended: dict[str, set[bytes]] = {}
        """By `queue@node`: keys that reached it, to be there once."""
        self.dead: dict[bytes, str] = {}
        """Keys among the dead letters, and where."""
        self.hops = 0
        self.bounds: dict[str, int] = {}
        """By `queue@node`: messages_max."""
        self.orders: dict[str, str] = {}
        """By `queue@node`: its order. `none` promises none; what is not here is judged as `bounded`."""
        self.stored: Callable[[str, str, bytes], None] = lambda name, queue, key: None
        """Called with each message that a node stores, in their order: the node, the queue and the key."""
        self.ended: set[tuple[str, bytes]] = set()
        """Destinations and identities of which a tombstone was written anywhere."""
        self.vanished: dict[bytes, str] = {}
        """Keys whose last copy left a disk before a consumer had it: none of them may ever be accepted."""
        self.answered_for: dict[bytes, str] = {}
        """Keys that a dead disk held and had answered for, and its node: the answer may still be under way."""
        self.moved_by_hand: set[str] = set()
        """Names of queues whose messages a client moves on under their own keys: those may be there again."""
        self._came: dict[tuple[str, bytes], int] = {}
        """How often each message that goes round came to a queue, if more than once."""
        self.doubtful: set[bytes] = set()
        """Keys that a lying node held, was sent or spoke of: those may be lost, left lying, or come again."""
        self._last: dict[tuple[str, bytes], int] = {}
        self._straight: set[bytes] = set()
        """Traces that name no store twice."""
        self._once: dict[int, int] = {}
        """By producer of `history.sent_once`: the last number that its node has stored."""
        self._count = count
        self._remark = remark
        history.on_accepted.append(self._accepted)

    # ------------------------------------------------------------------------------------------------ disks

    def disk(self, name: str, store: Store) -> Disk:
        """The record of the disk under that node; made when it is first seen."""
        found = self.disks.get(name)
        if found is None:
            found = self.disks[name] = Disk(name, store)
        return found

    def changed(self, name: str, store: Store) -> None:
        """The node has another disk, or an older state of its own: what it alone held is nobody's fault."""
        disk = self.disk(name, store)
        before = list(disk.places.values())
        for key in before:
            self.copies[key] -= 1
        disk.places.clear()
        for known in (disk.names, disk.hosts, disk.counts, disk.transit, disk.waiting):
            known.clear()
        disk.store = store
        self.history.disk_changed(name)
        self.history.may_repeat.update(key for key in self.history.offered if key not in self.history.accepted)
        for queue in [place for place in self.appended if place.endswith(f"@{name}")]:
            self.appended[queue] = set()
        self._last = {place: number for place, number in self._last.items() if not place[0].endswith(f"@{name}")}
        for raw, data in store.table("queues"):
            self._named(disk, raw, data)
        for queue_id in sorted(disk.names):
            first = 0
            while found := store.read(queue_id, first, count_max=10_000, bytes_max=1 << 30):
                for sequence, value in found:
                    found_key = key_of(value, store)
                    if found_key is not None and not value[1] & entry.TOMBSTONE:
                        self._put(disk, queue_id, sequence, found_key)
                first = found[-1][0] + 1
        if self._remark is not None:
            self._remark(name, "holds", f"{len(disk.places)} messages")
        for key in before:
            if key in self.history.received:
                continue
            if self.copies.get(key, 0) <= 0:
                self.history.excuse(key, f"only the old disk of {name} held it")
            elif key in disk.answered:
                self.answered_for[key] = name

    def _named(self, disk: Disk, raw: bytes, data: bytes) -> None:
        queue_id = int(records.unpack_map(data)["id"])
        name = disk.names[queue_id] = raw.decode()
        disk.counts.setdefault(queue_id, 0)
        disk.hosts[queue_id], own_name = read_key(name)
        if own_name.startswith(TRANSMISSION):
            disk.transit.add(queue_id)
        elif own_name == WAITING:
            disk.waiting.add(queue_id)

    # ------------------------------------------------------------------------------------------------ commits

    def applied(self, name: str, store: Store, batch: Batch) -> None:
        """A batch is on that node's disk."""
        disk = self.disk(name, store)
        if batch.puts:
            for (table, raw), data in batch.puts.items():
                if table == "queues":
                    self._named(disk, raw, data)
                elif raw == WALL:
                    self.history.clock_stored(name)
        if self.history.kept:
            for queue_id, sequence, value in batch.appends:
                kept = self.history.kept.get(f"{disk.names[queue_id]}@{name}")
                if kept is not None:
                    kept.setdefault(sequence, (key_of(value, store) or b"") if value[1] & entry.BLOB else value)
        keys = []
        offered, places, hosts = self.history.offered, disk.places, disk.hosts
        for queue_id, sequence, value in batch.appends:
            if value[1] & entry.TOMBSTONE and value[1] & entry.CUSTODY:
                destination = read_key(disk.names[queue_id])[1].removeprefix(TRANSMISSION)
                self.ended.add((destination, value[_IDENTITY_AT:_IDENTITY_END]))
            key = value[-KEY_BYTES:] if not value[1] & entry.BLOB else key_of(value, store) or b""
            if key not in offered or value[1] & entry.TOMBSTONE:
                continue
            keys.append(key)
            if (queue_id, sequence) not in places:  # else annotated, and put anew at its place
                if self.history.sent_once and key not in disk.ever:
                    self._in_order(name, key)
                self._put(disk, queue_id, sequence, key)
                name_there = disk.names[queue_id]
                self.stored(name, name_there, key)
                if hosts[queue_id] != host_sent_in(offered[key]):
                    self.history.stays(key, f"{name_there} at {name}", "lies in")
                if queue_id not in disk.transit and queue_id not in disk.waiting:
                    self._arrived(disk, name_there, key, value)
                elif value[3] > 1 and key not in self.doubtful:
                    self._goes_straight(name_there, name, key, value)
            if self._remark is not None:
                self._remark(name, "append", f"{key.decode()} to {disk.names[queue_id]}")
        copies, received = self.copies, self.history.received
        ended = {(queue_id, sequence) for queue_id, sequence, value in batch.appends if value[1] & entry.TOMBSTONE}
        for place in (*batch.retires, *ended):  # a tombstone may take the place of its message
            gone = places.pop(place, None)
            if gone is None:
                continue
            queue_id = place[0]
            disk.counts[queue_id] -= 1
            left = copies[gone] = copies[gone] - 1
            if queue_id in disk.transit and place not in ended:
                self.hops += 1
            if left <= 0:
                del copies[gone]
                if gone not in received:
                    self._gone(gone, f"{disk.names[queue_id]} at {name}")
        for queue_id in {queue_id: None for queue_id, _, _ in batch.appends} if self.bounds else ():
            # After the whole batch: what it retires makes room for what it appends.
            bound = self.bounds.get(f"{disk.names[queue_id]}@{name}")
            if bound is not None and disk.counts[queue_id] > bound:
                where = f"{disk.names[queue_id]} at {name}"
                raise Violation(f"{where} holds {disk.counts[queue_id]} messages, its bound is {bound}")
        if self._count is not None:
            self._count(name, b"".join(keys))
        if self._remark is not None and (keys or batch.retires):
            self._remark(name, "holds", f"{len(disk.places)} messages")

    def _in_order(self, name: str, key: bytes) -> None:
        """The first node of a producer that sends each number once stores them in their order."""
        producer, number = int(key[:3]), int(key[4:])
        if self.history.sent_once.get(producer) != name:
            return
        last = self._once.get(producer, 0)
        if number <= last:
            raise Violation(f"{key.decode()} was stored at {name} behind number {last}, which was sent after it")
        self._once[producer] = number

    def _goes_straight(self, queue: str, name: str, key: bytes, value: bytes) -> None:
        """A trace names each store once: where a message came back, the loop is cut out of it."""
        trace = passed_by(value)
        if trace in self._straight:
            return
        stores = [trace[at : at + 16] for at in range(0, len(trace), 16)]
        if len({*stores}) < len(stores):
            raise Violation(f"{key.decode()} lies in {queue} at {name} with a trace that names a store twice")
        self._straight.add(trace)

    def _put(self, disk: Disk, queue_id: int, sequence: int, key: bytes) -> None:
        disk.places[queue_id, sequence] = key
        disk.counts[queue_id] += 1
        disk.ever.add(key)
        self.answered_for.pop(key, None)
        self.copies[key] = self.copies.get(key, 0) + 1

    def _arrived(self, disk: Disk, name: str, key: bytes, value: bytes) -> None:
        """In a queue of that node's own: at its destination, or among the dead letters."""
        if read_key(name)[1] == DEAD_LETTERS:
            self.dead[key] = disk.name
            return
        place = f"{name}@{disk.name}"
        there = self.appended.get(place)
        if there is None:
            there = self.appended[place] = set()
        if key in there and place in self.history.rounds:
            came = self._came[place, key] = self._came.get((place, key), 1) + 1
            if came > self.history.rounds[place]:
                raise Violation(f"{key.decode()} came {came} times to {name} at {disk.name}")
        elif key in there and not (
            name in self.moved_by_hand or key in self.doubtful or key in self.history.may_repeat
        ):
            raise Violation(f"{key.decode()} was appended twice to {name} at {disk.name}")
        there.add(key)
        order = self.orders.get(place)
        if value[1] & entry.CUSTODY and key not in self.doubtful and order != "none":
            origin = value[_IDENTITY_AT : _IDENTITY_AT + 16]
            number = int.from_bytes(value[_IDENTITY_END - 8 : _IDENTITY_END], "big")
            last, late = self._last.get((place, origin), 0), value[1] & entry.LATE
            wrong = ""
            if not late:
                wrong = "and not as a late one" if number <= last else ""
            elif order == "strict" and not self._may_be_late(name, disk.name, value):
                wrong = "late, though its order is strict and it never ended"
            if wrong:
                raise Violation(
                    f"{key.decode()}, number {number} of its origin, came to {name} at {disk.name} behind number "
                    f"{last}, {wrong}"
                )
            if not late:  # a copy of what was ended before its turn came may be ahead of the others: it is marked
                self._last[place, origin] = max(last, number)

    def _may_be_late(self, name: str, node: str, value: bytes) -> bool:
        """Whether a `strict` queue may have gone on without that message: it ended somewhere (with a time to live also
        on the wire, where no tombstone is written), an operator gave it up, or its store may be gone."""
        return (
            (destination_of(read_key(name)[0], node), value[_IDENTITY_AT:_IDENTITY_END]) in self.ended
            or value[12:20] != entry.NEVER
            or node in self.history.nodes_that_skip
            or any(self.history.disks_changed.values())
        )

    def _gone(self, key: bytes, where: str) -> None:
        """The last copy left a disk, and no consumer was shown it."""
        if key in self.history.excused or self.history.is_stored_for_nobody(key):
            return
        if key in self.answered_for:
            self.history.excuse(key, f"the old disk of {self.answered_for[key]} had answered for it")
            return
        self.vanished[key] = where
        if key in self.history.accepted:
            raise Violation(f"{key.decode()} was accepted, and its last copy is gone from {where}")

    def _accepted(self, key: bytes) -> None:
        if key in self.vanished and key not in self.history.received and key not in self.history.excused:
            raise Violation(f"{key.decode()} is accepted, its last copy was gone from {self.vanished[key]} before")

    # ------------------------------------------------------------------------------------------------ at rest

    def on_its_way(self) -> str:
        """Where a message is still in transit or waits for an earlier one; empty if none does."""
        for disk in self.disks.values():
            for (queue_id, _), key in disk.places.items():
                if (queue_id in disk.transit or queue_id in disk.waiting) and key not in self.doubtful:
                    return f"{key.decode()} still lies in {disk.names[queue_id]} at {disk.name}"
        return ""

    def at_rest(self) -> None:
        """Nothing is in transit; every accepted message was consumed, dead-lettered or excused."""
        if left := self.on_its_way():
            raise Violation(left)
        for owed in self.history.owed.values():
            for key in [key for key in owed if key in self.dead]:
                del owed[key]
        lost = [key for key in self.history.outstanding if key not in self.dead]
        if lost:
            some = ", ".join(key.decode() for key in lost[:5])
            raise Violation(f"{len(lost)} accepted messages never reached a consumer: {some}")


class Watch:
    """One connection of a node, both ways: no accepted answer before a stored copy, and no side violates the protocol.

    Answers are watched on custody's and producers' links; control, management and replies are not messages of a
    workload. A transfer without credit, beyond a window or for no link is told to who sent it: that is a violation.
    """

    __slots__ = ("_heard", "_links", "_parts", "_said", "_waiting", "disk", "doubtful", "in_memory", "name", "unowed")

    def __init__(
        self,
        name: str,
        disk: Callable[[], Disk],
        *,
        doubtful: Container[bytes] = (),
        in_memory: Container[str] = (),
        unowed: Callable[[bytes], bool] = lambda key: False,
    ) -> None:
        self.name = name
        self.unowed = unowed
        """Whether nobody is owed a message that is accepted: then a topic stores none."""
        self.in_memory = in_memory
        """Names of queues that are not durable: what is sent to them is accepted, and on no disk."""
        self.disk = disk
        self.doubtful = doubtful
        """Keys that a liar brought: under numbers that are another's, they may be accepted and dropped."""
        self._heard = FrameReader(skipped=(fast.DISPOSITION, fast.FLOW))
        self._said = FrameReader(skipped=(fast.TRANSFER, fast.FLOW))
        self._links: dict[tuple[int, int], Any] = {}
        self._parts: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._waiting: dict[tuple[int, int], bytes] = {}

    def heard(self, data: bytes) -> None:
        """What the node is about to read."""
        for channel, code, fields, payload in self._heard.read(data):
            if code == fast.TRANSFER:
                place = channel, fields[0]
                if place not in self._links:
                    continue
                if fields[9]:  # aborted: nobody answers it
                    self._parts.pop(place, None)
                    continue
                if fields[5] or place in self._parts:
                    number, before = self._parts.pop(place, (fields[1], b""))
                    payload = before + payload
                    if fields[5]:
                        self._parts[place] = number, payload
                        continue
                else:
                    number = fields[1]
                self._waiting[channel, number] = payload[-KEY_BYTES:]
            elif isinstance(fields, Detach):
                self._parts.pop((channel, fields.handle), None)
            elif isinstance(fields, Attach) and not fields.role:
                address = str(getattr(fields.target, "address", ""))
                watched = address == "$holdfast/custody" or not address.startswith(OWN)
                if watched and address not in self.in_memory:
                    self._links[channel, fields.handle] = address

    def said(self, data: bytes) -> None:
        """What the node writes."""
        for channel, code, fields, _ in self._said.read(data):
            if code == fast.DISPOSITION and fields[0]:
                _, first, last, _, state = fields
                self._answered(channel, first, first if last is None else last, state)
            elif isinstance(fields, (Detach, End, Close)) and fields.error is not None:
                error = fields.error
                if str(error.condition) in BROKEN_PROTOCOL:
                    raise Violation(f"{self.name} was sent what AMQP forbids: {error.text}")

    def _answered(self, channel: int, first: int, last: int, state: object) -> None:
        accepted = isinstance(state, Accepted)
        disk = self.disk()
        ever = disk.ever
        waiting = self._waiting
        for number in range(first, last + 1):
            key = waiting.pop((channel, number), None)
            stored = key is None or key in ever or key in self.doubtful
            if accepted and key is not None and not stored and key_in(key) is not None and not self.unowed(key):
                raise Violation(f"{self.name} accepted {key.decode()}, which it has not stored")
            if accepted and key is not None:
                disk.answered.add(key)
