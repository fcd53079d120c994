"""What custody writes beside a message is read by its bytes, and the long way round, to the same result."""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import NUMBER, ORIGIN
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.entries import entry, packed
from holdfast.custody.transfers import carried, carried_form
from holdfast.errors import RemoteProtocolError
from holdfast.peers.neighbours.trace_aliases import Count, Taken

u63 = st.integers(1, carried_form.NUMBER_MAX)
BARE = b"\x00\x53\x75\xa0\x03abc"
DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"


def taken(*stores: UUID) -> Taken:
    """A link on which each of `stores` has the number of its place."""
    aliases = Taken(Count())
    aliases.hear(b"".join(bytes((number,)) + store.bytes for number, store in enumerate(stores)))
    return aliases


def fields(arrival: carried.Arrival) -> list[object]:
    values = [getattr(arrival, name) for name in carried.Arrival.__slots__ if name != "stored"]
    return [bytes(value) if isinstance(value, memoryview) else value for value in values]


@given(
    u63, st.uuids(), u63, st.text(max_size=50).filter(lambda text: len(text.encode()) <= 200),
    st.lists(st.uuids(), max_size=entry.TRACE_MAX), st.integers(0, carried_form.NUMBER_MAX),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_both_ways_read_the_same(
    number: int, origin: UUID, sequence: int, to: str, trace: list[UUID], receipt: int, tombstone: bool, durable: bool
) -> None:
    passed = b"".join(store.bytes for store in trace)
    section = carried.write(
        entry.pack_identity(entry.Identity(origin, sequence)),
        number,
        to=to.encode(),
        trace=passed,
        receipt=receipt,
        tombstone=tombstone,
    )
    payload = (DURABLE if durable else b"") + section + BARE
    long = carried.read_any(payload, taken())
    assert fields(carried.read(payload, taken())) == fields(long)
    assert (long.number, long.identity, long.to, long.trace) == (number, (origin, sequence), to, passed)
    assert (long.receipt, long.tombstone, long.durable, bytes(long.bare)) == (receipt, tombstone, durable, BARE)
    short = carried._read_own(payload, taken())
    assert (short is None) == (len(trace) > 15)


@given(st.uuids(), u63, st.text(max_size=20), st.lists(st.uuids(), max_size=15), st.booleans())
def test_both_ways_store_the_same(origin: UUID, sequence: int, to: str, trace: list[UUID], durable: bool) -> None:
    passed = b"".join(store.bytes for store in trace)
    identity = entry.pack_identity(entry.Identity(origin, sequence))
    payload = (DURABLE if durable else b"") + carried.write(identity, 1, to=to.encode(), trace=passed, receipt=0) + BARE
    told = {"enqueued_ms": 5, "steady_ms": 9, "message_format": 3, "trace": passed}
    short, long = carried.read(payload, taken()), carried.read_any(payload, taken())
    assert short.stored is not None and long.stored is None
    assert carried.entry_of(short, **told) == carried.entry_of(long, **told)
    assert carried.entry_of(short, late=True, **told) == carried.entry_of(long, late=True, **told)
    _, parts = carried.parts_of(carried.entry_of(short, **told), 1, trace=passed, receipt=0, steady_ms=9)
    assert b"".join(parts) == payload


@given(st.data())
def test_a_changed_byte_is_read_alike_or_refused(data: st.DataObject) -> None:
    """Whatever the short way takes, the long way takes too, and means the same."""
    section = carried.write(
        UUID(int=7).bytes + (3).to_bytes(8, "big"), 2, to=b"work", trace=UUID(int=9).bytes, receipt=5, tombstone=True
    )
    payload = bytearray(DURABLE + section + BARE)
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    short = carried._read_own(bytes(payload), taken())
    if short is not None:
        assert fields(short) == fields(carried.read_any(bytes(payload), taken()))


def test_another_encoding_is_read_too() -> None:
    told = {
        NUMBER: Ulong(1),
        ORIGIN: UUID(int=7),
        carried_form.SEQUENCE: Ulong(2),
        carried_form.TO: "work",
        carried_form.TRACE: [UUID(int=9)],
    }
    section = encode(Described(Ulong(0x71), {Symbol(key): value for key, value in told.items()}))
    arrival = carried.read(section + BARE, taken())
    assert (arrival.number, arrival.identity, arrival.trace) == (1, (UUID(int=7), 2), UUID(int=9).bytes)


@pytest.mark.parametrize("lacking", ["NUMBER", "ORIGIN", "SEQUENCE", "TO", "TRACE"])
def test_what_custody_needs_must_be_there(lacking: str) -> None:
    told = {
        NUMBER: Ulong(1),
        ORIGIN: UUID(int=7),
        carried_form.SEQUENCE: Ulong(2),
        carried_form.TO: "work",
        carried_form.TRACE: [],
    }
    del told[getattr(carried, lacking)]
    payload = encode(Described(Ulong(0x71), dict(told))) + BARE
    with pytest.raises(RemoteProtocolError, match="expected its number"):
        carried.read(payload, taken())


@pytest.mark.parametrize("number", [0, -1, -(2**31), True, 1.0])
@pytest.mark.parametrize("name", ["NUMBER", "SEQUENCE"])
def test_numbers_begin_at_1(name: str, number: object) -> None:
    """One below would pass for a copy of what was taken, and its message be thrown away."""
    told: dict[object, object] = {
        NUMBER: Ulong(1),
        ORIGIN: UUID(int=7),
        carried_form.SEQUENCE: Ulong(2),
        carried_form.TO: "work",
        carried_form.TRACE: [],
    }
    told[getattr(carried, name)] = number
    payload = encode(Described(Ulong(0x71), told)) + BARE
    with pytest.raises(RemoteProtocolError, match="expected its number"):
        carried.read(payload, taken())


@pytest.mark.parametrize("receipt", [-1, 2**63, True])
def test_a_receipt_is_none_or_a_number(receipt: int) -> None:
    told = {
        NUMBER: Ulong(1),
        ORIGIN: UUID(int=7),
        carried_form.SEQUENCE: Ulong(2),
        carried_form.TO: "work",
        carried_form.TRACE: [],
        carried_form.RECEIPT: Ulong(receipt) if receipt > 1 else receipt,
    }
    with pytest.raises(RemoteProtocolError, match="expected its number"):
        carried.read(encode(Described(Ulong(0x71), dict(told))) + BARE, taken())


@pytest.mark.parametrize("durable", [False, True])
def test_no_transfer_has_the_number_0(durable: bool) -> None:
    """Nor as nodes write it."""
    section = carried.write(UUID(int=7).bytes + bytes(7) + b"\1", 0, to=b"work", trace=UUID(int=9).bytes, receipt=0)
    with pytest.raises(RemoteProtocolError, match="expected its number"):
        carried.read((DURABLE if durable else b"") + section + BARE, taken())


# ------------------------------------------------------------------------------------------------ aliases


@given(
    u63, st.uuids(), u63, st.text(max_size=20),
    st.lists(st.uuids(), min_size=1, max_size=entry.TRACE_MAX, unique=True), st.integers(0, carried_form.NUMBER_MAX),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_a_trace_by_aliases_means_the_same_both_ways(
    number: int, origin: UUID, sequence: int, to: str, trace: list[UUID], receipt: int, tombstone: bool, durable: bool,
    told_before: bool,
) -> None:  # fmt: skip
    path = bytes(range(len(trace)))
    aliases = b"".join(bytes((place,)) + store.bytes for place, store in enumerate(trace))
    told = {"to": to.encode(), "receipt": receipt, "tombstone": tombstone}
    identity = entry.pack_identity(entry.Identity(origin, sequence))
    full = carried.write(identity, number, trace=b"".join(store.bytes for store in trace), **told)
    short = carried.write(identity, number, trace=path, short=True, aliases=b"" if told_before else aliases, **told)
    head = DURABLE if durable else b""
    wanted = fields(carried.read(head + full + BARE, taken()))
    link = taken(*trace) if told_before else taken()
    assert fields(carried.read(head + short + BARE, link)) == wanted
    assert fields(carried.read(head + short + BARE, link)) == wanted  # as when there was no room at first
    assert fields(carried.read_any(head + short + BARE, link)) == wanted
    assert (carried._read_own(head + short + BARE, link) is None) == (not told_before)
    assert len(short) < len(full) or not told_before


@given(st.data())
def test_a_changed_byte_of_the_short_form_is_read_alike_or_refused(data: st.DataObject) -> None:
    section = carried.write(
        UUID(int=7).bytes + (3).to_bytes(8, "big"), 2, to=b"work", trace=b"\0\1", receipt=5, short=True,
        aliases=data.draw(st.sampled_from((b"", b"\2" + UUID(int=4).bytes))),
    )  # fmt: skip
    payload = bytearray(DURABLE + section + BARE)
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    stores = UUID(int=9), UUID(int=8)
    try:
        short = carried._read_own(bytes(payload), taken(*stores))
    except RemoteProtocolError:
        short = None
    if short is not None:
        assert fields(short) == fields(carried.read_any(bytes(payload), taken(*stores)))


@pytest.mark.parametrize("both", [carried.read, carried.read_any])
@pytest.mark.parametrize(
    ("path", "aliases", "text"),
    [
        (b"\5", b"", "invalid alias 5 in a transfer in custody; expected one that was sent on this link"),
        (b"\0", b"\0" + UUID(int=3).bytes, "invalid alias 0 in a transfer in custody; expected a new one"),
        (b"\0", b"\3" * 16, "invalid 16 bytes of aliases in a transfer in custody; expected 17 for each"),
        (b"\0", bytes((250,)) + bytes(16), "invalid alias 250 in a transfer in custody; expected at most 249"),
        (b"\0" * 65, b"", "expected its number, identity and trace"),
    ],
)
def test_what_no_alias_can_be_is_refused(both: Callable[..., object], path: bytes, aliases: bytes, text: str) -> None:
    section = carried.write(
        UUID(int=7).bytes + bytes(7) + b"\1", 1, to=b"work", trace=path, receipt=0, short=True, aliases=aliases
    )
    with pytest.raises(RemoteProtocolError, match=text):
        both(section + BARE, taken(UUID(int=9)))


@pytest.mark.parametrize(("length", "told"), [(0, 0), (1, 1), (2**40, 2**40)])
def test_a_large_message_says_how_long_it_is(length: int, told: int) -> None:
    """In its first frame, before there is more of it; and who does not know of it reads the rest all the same."""
    identity = entry.pack_identity(entry.Identity(UUID(int=5), 7))
    section = carried.write(identity, 3, to=b"work", trace=UUID(int=9).bytes, receipt=0, length=length)
    payload = section + b"\x00\x53\x75\xb0\x00\x01\x00\x00" + bytes(100)
    assert carried.length_of(payload) == told
    assert carried.length_of(payload[: len(section) - 5]) == 0, "cut off, nothing is known"
    arrival = carried.read(payload, Taken(Count()))
    assert (arrival.number, arrival.identity.number, arrival.to) == (3, 7, "work")


def test_nonsense_about_its_length_is_as_nothing() -> None:
    for value in ("x", -1, 0, Ulong(2**63), None, [1]):
        section = Message(delivery_annotations={carried_form.LENGTH: value}, data=[b"x"]).encode()
        assert carried.length_of(section) == 0


@pytest.mark.parametrize("at_ms", [1, 1_700_000_000_000, carried_form.NUMBER_MAX])
@pytest.mark.parametrize("notes", [b"", encode(Symbol("x-opt-n")) + encode("y")])
def test_when_a_message_expires_is_told(at_ms: int, notes: bytes) -> None:
    value = entry.pack(
        flags=entry.DURABLE, enqueued_ms=1, bare=BARE, identity=entry.Identity(UUID(int=1), 3), to="q",
        annotation_count=2 if notes else 0, annotations=notes, expires_at_ms=at_ms,
    )  # fmt: skip
    _, parts = carried.parts_of(value, 5, trace=UUID(int=9).bytes, receipt=0, steady_ms=0)
    arrival = carried.read(b"".join(parts), taken())
    assert (arrival.expires_at_ms, arrival.ttl_ms, arrival.number) == (at_ms, None, 5)
    again = carried.entry_of(arrival, enqueued_ms=1, steady_ms=0, message_format=0, trace=arrival.trace)
    assert entry.unpack(again).expires_at_ms == at_ms and packed.size_of(again) == packed.size_of(value)


@pytest.mark.parametrize("at_ms", ["soon", -1, Ulong(2**63), True, None, [1]])
def test_nonsense_about_when_it_expires_is_refused(at_ms: object) -> None:
    told: dict[object, object] = {
        NUMBER: Ulong(1),
        ORIGIN: UUID(int=7),
        carried_form.SEQUENCE: Ulong(2),
        carried_form.TO: "work",
        carried_form.TRACE: [],
        carried_form.EXPIRES_AT: at_ms,
    }
    with pytest.raises(RemoteProtocolError, match="expected its number"):
        carried.read(encode(Described(Ulong(0x71), told)) + BARE, taken())
