"""What clients sent, what nodes accepted and what clients received: the record by which a run is judged, kept outside
the nodes.

Rules of this file: facts as clients saw them, no verdicts (`judge/checkers.py` has those). Every body ends with a key
of 12 ASCII characters, producer and number, so that a message is known again in any bytes that end with it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final

from holdfast.broker.entries.host_names import read_key
from holdfast_lab.base.contents import Content
from holdfast_lab.base.rights import Rights

KEY_BYTES: Final = 12
PRODUCERS_MAX: Final = 1_000


class Violation(AssertionError):
    """A promise of docs/GUARANTEES.md was broken; the text says which, by whom and for what message."""


def make_key(producer: int, number: int) -> bytes:
    """`007-00000123`: producer below 1,000, number below 10 to the 8th."""
    return b"%03d-%08d" % (producer, number)


def key_in(data: bytes) -> bytes | None:
    """The key that the data ends with; None for a message that no workload sent."""
    key = bytes(data[-KEY_BYTES:])
    return key if len(key) == KEY_BYTES and key[3] == 0x2D and key[:3].isdigit() and key[4:].isdigit() else None


class History:
    """The record. Each dict is in the order of events."""

    def __init__(self) -> None:
        self.producers: list[str] = []
        self.offered: dict[bytes, str] = {}
        """Key to the address that it was sent to."""
        self.sent: dict[bytes, Content] = {}
        """Key to what was sent under it, where a workload drew it."""
        self.may_repeat: set[bytes] = set()
        """Keys in doubt when what would tell them again was lost: a disk, or the link of a producer without a name."""
        self.sent_once: dict[int, str] = {}
        """Producers that send each number once, in their order, and the node where they do: so it is stored there."""
        self.accepted: dict[bytes, None] = {}
        self.refused: dict[bytes, str] = {}
        """Rejected, released or modified for good: the producer knows that it was not taken."""
        self.received: dict[bytes, int] = {}
        """Key to how often a consumer was shown it."""
        self.excused: dict[bytes, str] = {}
        """Keys that need not arrive, and why: expired, purged, or only a dead disk held them."""
        self.nodes_that_skip: set[str] = set()
        """Nodes whose operator does not wait for what is missing: it may come late, whichever queue it is for."""
        self.outstanding: dict[bytes, None] = {}
        """Accepted, not excused, and not yet shown to a consumer."""
        self.redeliveries = 0
        self.places: dict[bytes, tuple[str, int]] = {}
        """Key to the place and the sequence under which it was first shown."""
        self.doubled: dict[bytes, tuple[str, int]] = {}
        """Keys that were shown under another sequence too, and where: what was moved by hand, or stored twice."""
        self.readers: dict[str, tuple[str, Callable[[bytes], bool]]] = {}
        """Readers that must get every message of a `queue@node`, besides the consumers that share it."""
        self.owed: dict[str, dict[bytes, None]] = {}
        """By reader: accepted, not excused, and not yet shown to it."""
        self.topics: set[str] = set()
        """Those of `readers`' addresses that store a message only for readers that want it."""
        self.rounds: dict[str, int] = {}
        """By `queue@node`: how often links between queues bring a message there, if not once."""
        self.kept: dict[str, dict[int, bytes]] = {}
        """By `queue@node` that a workload named: each entry that was stored there, by its sequence; of a large message
        its key alone. The key is the end of each."""
        self.rights = Rights()
        self.disks_changed: Counter[str] = Counter()
        """By node: how often it got another disk, or an older state of its own."""
        self.lives: Counter[str] = Counter()
        """By node: how often it has started."""
        self.clock_ahead_s = 0.0
        """Seconds by which faults have set wall clocks forward, in all."""
        self.counted_ahead_s = 0.0
        """Of these, what starts may have taken for time that had passed: a node counts by its wall clock what passed
        since its last commit, and that was set after it."""
        self._set_s: defaultdict[str, float] = defaultdict(float)
        """By node: the seconds that its clock was set forward, less those back, that its disk may not know of."""
        self._set_ever_s: defaultdict[str, float] = defaultdict(float)
        """The same, and only forward, since the run began."""
        self._told: Counter[str] = Counter()
        """By node: how often its disk was told the time since it was set."""
        self.on_clock: list[Callable[[], None]] = []
        self.on_accepted: list[Callable[[bytes], None]] = []
        self._paid: set[tuple[str, bytes]] = set()
        self._shown_by: dict[bytes, set[tuple[str, int]]] = {}
        """By key: the nodes that have shown it to consumers, each with the number of the disk that it came from."""

    def new_producer(self, name: str) -> int:
        """Returns the number with which the keys of a new producer begin."""
        self.producers.append(name)
        assert len(self.producers) <= PRODUCERS_MAX
        return len(self.producers) - 1

    def offer(self, key: bytes, address: str) -> None:
        self.offered[key] = address

    def accept(self, key: bytes) -> None:
        """The node has accepted the message of the producer."""
        self.accepted[key] = None
        if key not in self.received and key not in self.excused and self.offered.get(key) not in self.topics:
            self.outstanding[key] = None
        if self.readers and key not in self.excused:
            address = self.offered.get(key)
            for reader, (wanted, selects) in self.readers.items():
                if wanted == address and selects(key) and (reader, key) not in self._paid:
                    self.owed[reader][key] = None
        for listener in self.on_accepted:
            listener(key)

    def refuse(self, key: bytes, outcome: str) -> None:
        self.refused[key] = outcome

    def receive(self, key: bytes, place: str, *, marked: bool, sequence: int = 0, disk: int | None = None) -> None:
        """A consumer of `place` was shown it; `marked`: as a redelivery (AMQP 1.0 §3.2.1). `sequence` 0: not told.

        `disk`: which of its node's, as `disks_changed` counts them; None: the one that is there now. A disk remembers
        what it has shown itself: what another one has shown may come from it as if for the first time.
        """
        if sequence:
            self.see(key, place, sequence)
        self.stays(key, place, "was shown at")
        self.received[key] = self.received.get(key, 0) + 1
        node = place.rpartition(" at ")[2]
        by = (node, self.disks_changed[node] if disk is None else disk)
        shown_by = self._shown_by.get(key)
        if shown_by is None:
            self._shown_by[key] = {by}
            self.outstanding.pop(key, None)
            return
        self.redeliveries += 1
        known = by in shown_by or any(
            there != node and self.disks_changed[there] == number for there, number in shown_by
        )
        shown_by.add(by)
        if known and not marked and key not in self.excused and key not in self.may_repeat:
            raise Violation(f"{key.decode()} was shown twice at {place}, the second time not as a redelivery")

    def stays(self, key: bytes, place: str, how: str) -> None:
        """Raises Violation where a message is out of the virtual host that it was sent in; `place`: as a node's store
        calls the queue."""
        sent, found = read_key(self.offered.get(key, place))[0], read_key(place)[0]
        if sent != found:
            host, other = (f"virtual host {name!r}" if name else "the default host" for name in (sent, found))
            raise Violation(f"{key.decode()} was sent in {host}, and {how} {read_key(place)[1]} in {other}")

    def see(self, key: bytes, place: str, sequence: int) -> None:
        """The message is at that place under that sequence."""
        if self.places.setdefault(key, (place, sequence)) != (place, sequence):
            self.doubled[key] = place, sequence

    def excuse(self, key: bytes, why: str) -> None:
        self.excused[key] = why
        self.outstanding.pop(key, None)
        for owed in self.owed.values():
            owed.pop(key, None)

    # ------------------------------------------------------------------------------------------------ readers

    def add_reader(self, name: str, address: str, selects: Callable[[bytes], bool] = lambda key: True) -> None:
        """From now on the reader must get every message that is accepted for `address` (`queue@node`) and that
        `selects` matches."""
        self.readers[name] = address, selects
        self.owed[name] = {}

    def is_stored_for_nobody(self, key: bytes) -> bool:
        """Whether it was sent to a topic, and each reader there that wants it has been shown it."""
        address = self.offered.get(key)
        return address in self.topics and not any(
            wanted == address and selects(key) and (reader, key) not in self._paid
            for reader, (wanted, selects) in self.readers.items()
        )

    def paid(self, reader: str, key: bytes) -> None:
        """The reader has received the message."""
        self._paid.add((reader, key))
        self.owed[reader].pop(key, None)

    @property
    def settled(self) -> bool:
        """Whatever was accepted has been shown to all who must see it, or is excused."""
        return not self.outstanding and not any(self.owed.values())

    # ------------------------------------------------------------------------------------------------ machines

    def disk_changed(self, node: str) -> None:
        """What readers there were owed is no longer known: a place in a queue went with the disk."""
        self.disks_changed[node] += 1
        self._set_s[node] = self._set_ever_s[node]
        for reader, (address, _) in list(self.readers.items()):
            if address.endswith(f"@{node}"):
                del self.readers[reader]
                self.owed[reader].clear()

    def clock_stepped(self, node: str, seconds: float) -> None:
        """The wall clock of a node was set."""
        self.clock_ahead_s += max(0.0, seconds)
        self._set_s[node] += seconds
        self._set_ever_s[node] += max(0.0, seconds)
        self._told[node] = 0
        for listener in self.on_clock:
            listener()

    def clock_stored(self, node: str) -> None:
        """The time by the node's wall clock is on its disk."""
        self._told[node] += 1
        if self._told[node] > 1:  # the first time may have been on its way to the disk when the clock was set
            self._set_s[node] = 0.0

    def started(self, node: str) -> None:
        """A life of the node begins."""
        self.lives[node] += 1
        ahead_s = self._set_s.pop(node, 0.0)
        if ahead_s > 0.0:
            self.counted_ahead_s += ahead_s
            for listener in self.on_clock:
                listener()
