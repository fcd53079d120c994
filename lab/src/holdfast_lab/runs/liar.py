"""A node that lies to its neighbours: well-formed frames that claim what is not so.

Rules of this file: a liar's own core is honest and unchanged; what it says to nodes, never to clients, is altered on
its way out, and for `custody` what it hears on its way in. Frames are replaced or added, never taken away: sessions
count on. What a liar may lose is excused key by key: what it held or was sent, and,
where a lie speaks of another node's messages, those that began there. AMQP 1.0 says what is well-formed.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire import fast
from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import NUMBER, ORIGIN
from holdfast.amqp.wire.frames import frame
from holdfast.amqp.wire.performatives import Accepted, Attach, Begin, Disposition, Modified, Open, Rejected, Released
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import entry
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.core.node import NodeCore
from holdfast.custody.hop import sender as hops
from holdfast.custody.receipts import PAIRS_MAX
from holdfast.custody.sent_back import HELD_MAX
from holdfast.custody.transfers import carried_form
from holdfast.engine.port import Batch
from holdfast.peering import sessions
from holdfast.state.catalog import WAITING
from holdfast_lab.base.client_history import KEY_BYTES, Violation, key_in
from holdfast_lab.judge.checkers import key_of
from holdfast_lab.judge.frames import FrameReader
from holdfast_lab.sim.cuts import frame_bytes
from holdfast_lab.sim.network import End
from holdfast_lab.sim.node import SimNode
from holdfast_lab.sim.sim_bed import SimBed

SHARE: Final = 0.5
"""Of the frames that a lie could be told in, those in which it is."""
FRAME_BYTES_MAX: Final = 60_000
"""A lie that would make a frame larger is not told: every node takes 65,536."""
UNKNOWN_ORIGINS: Final = 200
"""Stores that nobody has, named in one control message."""

_NUMBER_NAME: Final = NUMBER.encode()
_VALUE: Final = b"\x00\x53\x77"
_DELIVERY_ANNOTATIONS: Final = b"\x00\x53\x71"
_HEADER: Final = b"\x00\x53\x70"
_HUGE: Final = (2**31, 2**53, 2**62, 2**63 - 1)


class Word:
    """One frame that a node says: as FrameReader sees it, and how to say it otherwise."""

    __slots__ = ("channel", "code", "fields", "payload", "whole")

    def __init__(self, whole: bytes, channel: int, code: bytes, fields: Any, payload: bytes) -> None:
        self.whole = whole
        """The frame itself."""
        self.channel = channel
        self.code = code
        self.fields = fields
        self.payload = payload

    def custody(self) -> tuple[dict[Any, Any], int, int] | None:
        """A transfer in custody: its delivery annotations, and where that section starts and ends; else None."""
        payload = self.payload
        if self.code != fast.TRANSFER or self.fields[5] or _NUMBER_NAME not in payload:
            return None
        at = decode(payload, 0)[1] if payload.startswith(_HEADER) else 0
        if not payload.startswith(_DELIVERY_ANNOTATIONS, at):
            return None
        section, end = decode(payload, at)
        return section.value, at, end

    def control(self) -> dict[Any, Any] | None:
        """The control message in it; None where it is none."""
        if self.code != fast.TRANSFER or not self.payload.startswith(_VALUE):
            return None
        fields = decode(self.payload, len(_VALUE))[0]
        return fields if isinstance(fields, dict) and "kind" in fields else None

    def annotated(self, changes: dict[Any, Any]) -> list[bytes]:
        """This transfer in custody with some of its delivery annotations otherwise."""
        found = self.custody()
        assert found is not None
        told, at, end = found
        return self.carrying(self.payload[:at] + _DELIVERY_ANNOTATIONS + encode(told | changes) + self.payload[end:])

    def carrying(self, payload: bytes) -> list[bytes]:
        """This transfer with another payload."""
        altered = self.whole[: len(self.whole) - len(self.payload)] + payload
        return [len(altered).to_bytes(4, "big") + altered[4:]]

    def saying(self, value: object) -> list[bytes]:
        """This control message with another value."""
        return self.carrying(_VALUE + encode(value))

    def performing(self, performative: object) -> list[bytes]:
        """Another performative on this channel."""
        return [frame(self.channel, encode(performative))]


def words(data: bytes) -> list[Word | bytes]:
    """The frames of the data as a list of Word; bytes that are no message (headers, SASL, empty frames) unchanged."""
    found: list[Word | bytes] = []
    at = 0
    while at < len(data):
        size = frame_bytes(data, at)
        whole = data[at : at + size]
        at += size
        seen = FrameReader().read(whole) if len(whole) == size > 8 and whole[5] == 0 else []
        found += [Word(whole, *frame) for frame in seen] or [whole]
    return found


# ---------------------------------------------------------------------------------------------------- lies

Lie = Callable[["Liar", str, Word], list[bytes] | None]
"""(liar, who listens, the frame) to what is said in its place; None where it is no frame for this lie."""


def last_stored(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Answers an attach with more stored than is."""
    attach = word.fields
    if not isinstance(attach, Attach) or not attach.role or hops.EPOCH not in (attach.properties or {}):
        return None
    assert attach.properties is not None
    true = int(attach.properties.get(hops.LAST_STORED, 0))
    claimed = Ulong(true + liar.random.choice((1, 5, 1_000, *_HUGE)) if true < 2**62 else true)
    return word.performing(replace(attach, properties=attach.properties | {hops.LAST_STORED: claimed}))


def marks(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Receipts higher than the truth: of nodes that are there, and of hundreds that nobody knows."""
    fields = word.control()
    if fields is None:
        return None
    random = liar.random
    places = [name for name in liar.bed.sim_nodes if name != listener]
    rows: list[Any] = []
    for name in liar.others():
        mark = random.choice((1, 2, 5, 20, 1_000, *_HUGE))
        rows += [[place, liar.name_origin(name), Ulong(mark)] for place in places]
    for _ in range(UNKNOWN_ORIGINS):
        rows.append([random.choice(places), liar.unknown(), Ulong(random.choice((1, 1_000, *_HUGE)))])
    return word.saying(fields | {"marks": rows} if fields["kind"] == "hello" else {"kind": "marks", "marks": rows})


def hop_number(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """A hop number that skips, repeats or is none."""
    found = word.custody()
    if found is None:
        return None
    number = int(found[0][NUMBER])
    other = liar.random.choice((number + 1, number + 7, max(0, number - 1), 0, 2**63))
    return word.annotated({NUMBER: Ulong(other)})


def identity(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """A message under another node's name or nobody's, or with a sequence far ahead."""
    found = word.custody()
    if found is None:
        return None
    random = liar.random
    true = int(found[0][carried_form.SEQUENCE])
    sequence = random.choice((1, 2, true + 1, true + random.randint(2, 50), *_HUGE))
    if random.random() < 0.4:
        origin = liar.unknown()
    else:
        origin = liar.name_origin(random.choice(liar.others()))
    return word.annotated({ORIGIN: origin, carried_form.SEQUENCE: Ulong(sequence)})


def trace(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """A trace that names stores it did not pass, too many of them, or the listener's own."""
    if word.custody() is None:
        return None
    length = liar.random.choice((0, 1, 63, 64, 65, 500))
    passed = [liar.unknown() for _ in range(length)]
    if liar.random.random() < 0.5:
        passed.insert(liar.random.randint(0, length), liar.store_of(listener))
    return word.annotated({carried_form.TRACE: passed})


def store(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Says that its store is another node's, in its open or in a hello."""
    claimed = liar.random.choice([liar.store_of(name) for name in liar.bed.sim_nodes] + [liar.unknown()])
    opened = word.fields
    if isinstance(opened, Open):
        return word.performing(replace(opened, properties=(opened.properties or {}) | {sessions.STORE: claimed}))
    fields = word.control()
    if fields is None:
        return None
    if fields["kind"] == "hello":
        return word.saying(fields | {"store": claimed})
    return word.saying({"kind": "hello", "store": claimed, "version": Ulong(1), "marks": []})


def tombstone(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Ends messages that are alive: the one at hand, or one of another origin's."""
    found = word.custody()
    if found is None:
        return None
    changes: dict[Any, Any] = {carried_form.TOMBSTONE: True}
    if liar.random.random() < 0.7:
        changes[ORIGIN] = liar.name_origin(liar.random.choice(liar.others()))
        changes[carried_form.SEQUENCE] = Ulong(liar.random.choice((1, 2, liar.random.randint(1, 400), *_HUGE)))
    return word.annotated(changes)


def receipt(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """The origin's last known receipt, in a message, higher than the truth."""
    found = word.custody()
    if found is None:
        return None
    liar.name_store(found[0][ORIGIN])
    true = int(found[0].get(carried_form.RECEIPT, 0))
    higher = min(true + liar.random.choice((1, 10, 1_000, *_HUGE)), 2**64 - 1)
    return word.annotated({carried_form.RECEIPT: Ulong(higher)})


def control(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Control messages of unknown kinds and wrong types, with lists and texts far too long."""
    fields = word.control()
    if fields is None or fields["kind"] == "hello":
        return None
    nest: Any = 1
    for _ in range(20):
        nest = [nest]
    wild: tuple[object, ...] = (
        {"kind": "gossip", "rows": list(range(1_000))},
        {"kind": 7},
        {"kind": None, "marks": nest},
        {"kind": nest},
        {},
        {None: "probe", 3: [None]},
        {"kind": "probe", "number": "x" * 5_000, "version": [1]},
        {"kind": "probe", "number": -1, "version": -(2**63)},
        {"kind": "echo", "number": Ulong(2**64 - 1)},
        {"kind": "echo", "number": float("nan")},
        {"kind": "table", "version": Ulong(liar.random.getrandbits(64))},
        {"kind": "marks", "marks": {"a": 1}},
        {"kind": "marks", "marks": [[1, 2, 3]] * 2_000},
        {"kind": "marks", "marks": [["x" * 3_000, liar.unknown(), Ulong(5)], ["", liar.unknown(), -1], [None] * 3]},
        {"kind": "marks", "marks": [["no-such-node", liar.unknown(), Ulong(2**64 - 1)], [["x"], liar.unknown(), True]]},
        [1, 2, 3],
        "hello",
        None,
    )
    return word.saying(liar.random.choice(wild))


def disposition(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Settles ids that were never sent, few or half of all there are."""
    if word.code not in (fast.TRANSFER, fast.FLOW, fast.DISPOSITION):
        return None
    random = liar.random
    first = random.choice((0, 1_000_000, 2**31, 2**32 - 5))
    last = (first + random.choice((0, 3, 10_000, 2**31 - 2))) % 2**32
    state = random.choice((Accepted(), Released(), Rejected(), Modified(delivery_failed=True), None))
    lie = Disposition(random.random() < 0.7, first, last, random.random() < 0.7, state)
    return [word.whole, *word.performing(lie)]


def limits(liar: "Liar", listener: str, word: Word) -> list[bytes] | None:
    """Takes next to nothing: the least frames, one channel, one handle, a window of one or none."""
    said, draw = word.fields, liar.random.choice
    if isinstance(said, Open):
        return word.performing(replace(said, max_frame_size=512, channel_max=draw((0, 1, said.channel_max))))
    if isinstance(said, Begin):
        handles, window = draw((0, 1, 2, said.handle_max)), draw((0, 1, said.incoming_window))
        return word.performing(replace(said, handle_max=handles, incoming_window=window))
    return None


TELLERS: Final[dict[str, Lie | None]] = {
    "custody": None,
    "last-stored": last_stored,
    "marks": marks,
    "hop-number": hop_number,
    "identity": identity,
    "trace": trace,
    "store": store,
    "tombstone": tombstone,
    "receipt": receipt,
    "control": control,
    "disposition": disposition,
    "limits": limits,
}
"""By the names of LIES. `custody` is told by what the liar hears: it answers for what it does not keep."""


# ---------------------------------------------------------------------------------------------------- the liar


class Liar:
    """One node that can lie; made before the run, so that it knows where each message began."""

    def __init__(self, bed: SimBed, node: SimNode) -> None:
        self.bed = bed
        self.node = node
        self.random = bed.world.seeds.stream(f"liar/{node.name}")
        self.told: Counter[str] = Counter()
        """How often each lie was told."""
        self.active: list[str] = []
        self.share = SHARE
        self.named: dict[str, None] = {}
        """Nodes of whose messages a lie spoke."""
        self._began: dict[str, dict[bytes, None]] = {name: {} for name in bed.sim_nodes}
        self._stores: dict[UUID, str] = {}
        self._shifts: dict[tuple[End, int, int], int] = {}
        bed.on_applied.append(self._applied)
        bed.on_said.append(self._sent)

    def begin(self, lies: Iterable[str], share: float = SHARE) -> None:
        """From now on every frame that can carry one of these lies does, with the chance `share`."""
        self.active = list(lies)
        self.share = share
        self.node.liar = self
        self.bed.world.note(self.node.name, "lies", " ".join(self.active))
        disk = self.bed.ledger.disk(self.node.name, self.node.store)
        self._excuse(disk.places.values(), "a liar held it")

    def end(self) -> None:
        """Ends the lies."""
        self.active = []
        self.named.clear()
        if self.told["limits"]:  # they hold for as long as the connection does
            for name in self.others():
                for connection in self.bed.network.between(self.node.name, name):
                    connection.cut(silent=False, keep=(0.0, 0.0))
        self.bed.world.note(self.node.name, "lies", "no more")

    # ------------------------------------------------------------------------------------------------ who is who

    def others(self) -> list[str]:
        return [name for name in self.bed.sim_nodes if name != self.node.name]

    def store_of(self, name: str) -> UUID:
        core = self.bed.sim_nodes[name].core
        found = core.identities.store_uuid if core is not None else self.bed.sim_nodes[name].store.uuid
        self._stores[found] = name
        return found

    def unknown(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def name_origin(self, name: str) -> UUID:
        """That node's store, to lie about: its messages may suffer."""
        if name not in self.named:
            self.named[name] = None
            self._excuse(self._began[name], f"a liar spoke of what {name} sent")
        return self.store_of(name)

    def name_store(self, origin: UUID) -> None:
        for name in self.bed.sim_nodes:
            self.store_of(name)
        if origin in self._stores:
            self.name_origin(self._stores[origin])

    # ------------------------------------------------------------------------------------------------ excuses

    def _excuse(self, keys: Iterable[bytes], why: str) -> None:
        history, doubtful = self.bed.history, self.bed.ledger.doubtful
        for key in list(keys):
            if key_in(key) is not None and key not in doubtful:
                doubtful.add(key)
                history.excuse(key, why)

    def _applied(self, node: SimNode, batch: Batch) -> None:
        for _, _, value in batch.appends:
            if not value[1] & entry.CUSTODY or value[1] & entry.TOMBSTONE:
                continue
            key = key_of(value, node.store)
            if key is None:
                continue
            if not entry.unpack(value).trace and key not in self._began[node.name]:
                self._began[node.name][key] = None
                if node.name in self.named:
                    self._excuse([key], f"a liar spoke of what {node.name} sent")
        if self.active and node is self.node:
            held = [key_of(value, node.store) for _, _, value in batch.appends]
            self._excuse([key for key in held if key is not None], "a liar held it")

    def _sent(self, node: SimNode, end: End, data: bytes) -> None:
        if self.active and end.peer == self.node.name:
            keys = [word.payload[-KEY_BYTES:] for word in words(data) if isinstance(word, Word) and word.payload]
            self._excuse(keys, "a liar was sent it")

    # ------------------------------------------------------------------------------------------------ speech

    def said(self, end: End, data: bytes) -> bytes:
        """What goes out in place of `data`."""
        if not self.active or end.peer not in self.bed.sim_nodes:
            return data
        found: list[bytes] = []
        for word in words(data):
            found += self._altered(end.peer, word) if isinstance(word, Word) else [word]
        return b"".join(found)

    def _altered(self, listener: str, word: Word) -> list[bytes]:
        name = self.random.choice(self.active)
        lie = TELLERS[name]
        if lie is None or self.random.random() >= self.share:
            return [word.whole]
        altered = lie(self, listener, word)
        if altered is None or any(len(item) > FRAME_BYTES_MAX for item in altered):
            return [word.whole]
        self.told[name] += 1
        self.bed.world.note(self.node.name, "lie", f"{name} to {listener}")
        return altered

    def heard(self, end: End, data: bytes) -> bytes:
        """What the liar's core hears in place of `data`: `custody` makes some numbers ones that it has already."""
        if end.peer not in self.bed.sim_nodes:
            return data
        if self.active:
            self._sent(self.bed.sim_nodes[end.peer], end, data)
        if "custody" not in self.active and not self._shifts:
            return data
        found: list[bytes] = []
        for word in words(data):
            found += self._overheard(end, word) if isinstance(word, Word) else [word]
        return b"".join(found)

    def _overheard(self, end: End, word: Word) -> list[bytes]:
        custody = word.custody()
        if custody is None:
            return [word.whole]
        link = end, word.channel, word.fields[0]
        number = int(custody[0][NUMBER])
        shift = self._shifts.get(link, 0) if number > 1 else 0
        self._shifts[link] = shift
        before = number - shift - 1
        if "custody" in self.active and self.random.random() < self.share and before:  # it has none before the first
            self._shifts[link] = shift + 1
            self.told["custody"] += 1
            return word.annotated({NUMBER: Ulong(before)})
        return word.annotated({NUMBER: Ulong(number - shift)}) if shift else [word.whole]


# ---------------------------------------------------------------------------------------------------- bounds


def sizes(core: NodeCore) -> dict[str, int]:
    """How much state of each kind a node keeps from what neighbours claim."""
    catalog, forwarding, destination = core.catalog, core.forwarding, core.destination
    origins = catalog.ledger.origins.values()
    waiting = catalog.find(DEFAULT_HOST, WAITING)
    return {
        "origins": len(catalog.ledger.origins),
        "ranges of an origin": max((len(origin.finished) for origin in origins), default=0),
        "waiting of an origin": max((len(origin.waiting) for origin in origins), default=0),
        "waiting entries": waiting.messages if waiting is not None else 0,
        "passing marks": len(catalog.ledger.passing),
        "ways back": len(forwarding.receipts.brought),
        "marks told": sum(len(hop.told) for hop in core.next_hops.values()),
        "replaced stores": len(catalog.ledger.replaced),
        "closing stores": len(destination.closing),
        "hops": len(catalog.ledger.hops),
        "queues": catalog.queues_counted - len(catalog.transit),
        "returned": max((len(held.sequences) for held in forwarding.returned.values()), default=0),
    }


def check_bounds(core: NodeCore) -> None:
    """Raises Violation where what a node keeps of claims is beyond the bound that the house gives."""
    limits = core.config.limits
    bounds = {
        "ranges of an origin": limits.ranges_max + 1,
        "waiting of an origin": limits.ranges_max * 16,
        "passing marks": PAIRS_MAX,
        "ways back": PAIRS_MAX,
        "queues": limits.queues_max,
        "returned": HELD_MAX,
    }
    found = sizes(core)
    for what, bound in bounds.items():
        if found[what] > bound:
            raise Violation(f"{core.config.name} keeps {found[what]} of {what}, its bound is {bound}")
