"""What hostile peers say, each stream with the answer that it must get.

Rules of this file: a table; nothing is run here. `test_streams.py` says it to a NodeCore in memory, whole and byte by
byte; `test_scan.py` to a node's process. The node is one without users that makes a queue of any address.

An answer is one of
    dropped             the connection ends, no close is sent (none may be: nothing was opened)
    header X            the same, but first the header X is told (§2.2): AMQP or SASL
    sasl 1              the login's outcome is that code, then the connection ends
    close CONDITION     a close with it (without one: an orderly close), then the connection ends
    end CONDITION       an end with it; the connection serves on
    detach CONDITION    a detach with it; session and connection serve on
    refused CONDITION   the same after an attach with a null terminus (§2.6.3)
    rejected CONDITION  the delivery's outcome; all serves on
    lives               nothing is wrong enough for an error; the connection serves on
"""

import struct
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple
from uuid import UUID

from amqp.joined import wire
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import _BY_CLASS
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME, SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Properties,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
)
from holdfast.amqp.wire.types import Described, Symbol
from support.raw import DATA, HELLO, credit, receives, sends, transfer

DECODE = "close amqp:decode-error"
FRAMING = "close amqp:connection:framing-error"
NOT_ALLOWED = "close amqp:not-allowed"
ILLEGAL = "close amqp:illegal-state"
MESSAGE_BYTES_MAX = 1_000_000
CREDIT = 100
NAME_BYTES_MAX = 1_024
"""Limits of the node that they are said to."""
BEGIN = Begin(None, 0, 5_000, 5_000)


class Stream(NamedTuple):
    """`said`: all in one, but for the pieces that need the answer to the one before."""

    name: str
    said: tuple[bytes, ...]
    answer: str


def _of(name: str, answer: str, *said: Any, channel: int = 0, after: bytes = HELLO) -> Stream:
    data = b"".join(item if isinstance(item, bytes) else wire(item, channel=channel) for item in said)
    return Stream(name, (after + data,) if after is not None else (data,), answer)


def body(raw: bytes, *, channel: int = 0, kind: int = 0) -> bytes:
    """A frame around bytes that need not mean anything."""
    return frame(channel, raw, kind)


def performative(code: int, *values: Any) -> bytes:
    """The body of a performative with these fields, whatever they are; bytes of type Raw go as they are."""
    rows = [value.raw if isinstance(value, Raw) else encoding.encode(value) for value in values]
    inside = b"".join(rows)
    return b"\x00\x53" + bytes((code,)) + b"\xd0" + struct.pack(">II", len(inside) + 4, len(rows)) + inside


class Raw:
    """An encoded value."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw


# ------------------------------------------------------------------------------------------------- beginnings


def headers() -> Iterator[Stream]:
    """What is no AMQP at all."""
    for name, said in (
        ("http", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("tls client hello", bytes.fromhex("1603010200010001fc0303") + bytes(64)),
        ("ssh", b"SSH-2.0-OpenSSH_9.2\r\n"),
        ("smtp", b"EHLO example.org\r\n"),
        ("mqtt", bytes.fromhex("101000044d5154540402003c000474657374")),
        ("zeros", bytes(64)),
        ("ones", b"\xff" * 64),
        ("amqp 0-9-1", b"AMQP\x00\x00\x09\x01"),
        ("amqp 0-10", b"AMQP\x01\x01\x00\x0a"),
        ("tls over amqp", b"AMQP\x02\x01\x00\x00"),
        ("an unknown protocol id", b"AMQP\x04\x01\x00\x00"),
        ("version 2", b"AMQP\x00\x02\x00\x00"),
        ("minor 1", b"AMQP\x00\x01\x01\x00"),
        ("revision 1", b"AMQP\x00\x01\x00\x01"),
        ("small letters", b"amqp\x00\x01\x00\x00"),
        ("a frame before the header", wire(Open("c"))),
    ):
        yield Stream(f"header: {name}", (said,), "header AMQP")
    yield Stream("header: sasl twice", (SASL_HEADER + SASL_HEADER,), "dropped")
    yield Stream("header: amqp twice", (AMQP_HEADER + AMQP_HEADER,), FRAMING)


def logins() -> Iterator[Stream]:
    """The SASL layer."""

    def sasl(value: Any) -> bytes:
        return body(value if isinstance(value, bytes) else encoding.encode(value), kind=SASL_FRAME)

    good = sasl(SaslInit("ANONYMOUS", b""))
    for name, answer, said in (
        ("an unknown mechanism", "sasl 1", sasl(SaslInit("EXTERNAL", b""))),
        ("a mechanism of 8,000 bytes", "sasl 1", sasl(SaslInit("X" * 8_000))),
        ("plain without nul", "sasl 1", sasl(SaslInit("PLAIN", b"user"))),
        ("plain with three nuls", "sasl 1", sasl(SaslInit("PLAIN", b"\0u\0p\0x"))),
        ("plain without user", "sasl 1", sasl(SaslInit("PLAIN", b"\0\0p"))),
        ("plain that is not utf-8", "sasl 1", sasl(SaslInit("PLAIN", b"\0\xff\xfe\0p"))),
        ("plain of nuls", "sasl 1", sasl(SaslInit("PLAIN", bytes(7_000)))),
        ("a challenge answered wrong", "sasl 1", sasl(SaslInit("PLAIN")) + sasl(SaslResponse(b"x"))),
        ("two inits", "dropped", sasl(SaslInit("PLAIN")) + good),
        ("a response first", "dropped", sasl(SaslResponse(b"x"))),
        ("mechanisms from the client", "dropped", sasl(SaslMechanisms(("PLAIN",)))),
        ("an outcome from the client", "dropped", sasl(SaslOutcome(0))),
        ("an open", "dropped", sasl(Open("c"))),
        ("an empty frame", "dropped", sasl(b"")),
        ("nothing decodable", "dropped", sasl(b"\x00\x53\x41\xff")),
        ("init without mechanism", "dropped", sasl(performative(0x41, None))),
        ("a frame of type amqp", "dropped", body(encoding.encode(SaslInit("ANONYMOUS")))),
        ("a frame of 8,193 bytes", "dropped", struct.pack(">IBBH", 8_193, 2, 1, 0)),
        ("a frame of 1 gb", "dropped", struct.pack(">IBBH", 1 << 30, 2, 1, 0)),
        ("a frame of 4 gb", "dropped", struct.pack(">IBBH", 2**32 - 1, 2, 1, 0)),
        ("a frame of 7 bytes", "dropped", struct.pack(">IBBH", 7, 2, 1, 0)),
        ("a data offset of 1", "dropped", struct.pack(">IBBH", 8, 1, 1, 0)),
        ("a data offset past the end", "dropped", struct.pack(">IBBH", 8, 3, 1, 0)),
        ("sasl again after the login", "header AMQP", good + SASL_HEADER),
        ("another protocol after the login", "header AMQP", good + b"GET / HTTP/1.1\r\n\r\n"),
        ("a sasl frame after the login's end", FRAMING, good + AMQP_HEADER + good),
    ):
        yield Stream(f"login: {name}", (SASL_HEADER + said,), answer)


def openings() -> Iterator[Stream]:
    """Between the header and the open."""
    for name, answer, said in (
        ("begin", ILLEGAL, BEGIN),
        ("attach", ILLEGAL, sends()),
        ("transfer", ILLEGAL, transfer()),
        ("flow", ILLEGAL, Flow(0, 1, 0, 1)),
        ("disposition", ILLEGAL, Disposition(True, 0)),
        ("detach", ILLEGAL, Detach(0)),
        ("end", ILLEGAL, End()),
        ("close", ILLEGAL, Close()),
        ("a sasl init", "close amqp:decode-error", SaslInit("ANONYMOUS")),
        ("a max-frame-size of 511", "close amqp:invalid-field", Open("c", max_frame_size=511)),
        ("an idle time-out of 1 ms", "close amqp:invalid-field", Open("c", idle_time_out=1)),
        ("a container-id of 1,025 bytes", "close amqp:invalid-field", Open("c" * 1_025)),
        ("a hostname of 1,025 bytes", "close amqp:invalid-field", Open("c", "é" * 513)),
        ("open twice", ILLEGAL, wire(Open("c"), Open("c"))),
    ):
        yield _of(f"before open: {name}", answer, said, after=AMQP_HEADER)


# --------------------------------------------------------------------------------------------------- frames


def frame_heads() -> Iterator[Stream]:
    """Sizes that lie, before and after the open."""
    for after, when in ((AMQP_HEADER, "before open"), (HELLO, "in a session")):
        for name, head in (
            *((f"of {size} bytes", struct.pack(">IBBH", size, 2, 0, 0)) for size in range(8)),
            ("of 65,537 bytes", struct.pack(">IBBH", 65_537, 2, 0, 0)),
            ("of 16 mb", struct.pack(">IBBH", 1 << 24, 2, 0, 0)),
            ("of 1 gb", struct.pack(">IBBH", 1 << 30, 2, 0, 0)),
            ("of 2 gb", struct.pack(">IBBH", 1 << 31, 2, 0, 0)),
            ("of 4 gb less one", struct.pack(">IBBH", 2**32 - 1, 2, 0, 0)),
            ("with a data offset of 0", struct.pack(">IBBH", 8, 0, 0, 0)),
            ("with a data offset of 1", struct.pack(">IBBH", 8, 1, 0, 0)),
            ("with a data offset past its end", struct.pack(">IBBH", 8, 3, 0, 0)),
            ("with a data offset of 255", struct.pack(">IBBH", 64, 255, 0, 0)),
            ("of type sasl", struct.pack(">IBBH", 8, 2, 1, 0)),
            ("of type 2", struct.pack(">IBBH", 8, 2, 2, 0)),
            ("of type 255", struct.pack(">IBBH", 8, 2, 255, 0)),
        ):
            yield _of(f"frame {when}: {name}", FRAMING, head, after=after)
    yield _of("frame: an extended header", "lives", struct.pack(">IBBH", 8 + 32, 10, 0, 0) + bytes(32))
    yield _of("frame: ten thousand empty ones", "lives", EMPTY_FRAME * 10_000)


def _lists(levels: int) -> bytes:
    """Lists of one element in each other."""
    raw = b"\x45"
    for _ in range(levels):
        raw = b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw
    return raw


def bodies() -> Iterator[Stream]:
    """Frames whose size is right and whose body is not."""
    alike = b"".join(b"\x98" + (5 + (2**61 - 1) * k).to_bytes(16, "big") + b"\x40" for k in range(1, 3_500))
    for name, said in (
        ("a null", b"\x40"),
        ("a byte that is not a format code", b"\x01"),
        ("0xff", b"\xff" * 100),
        ("a descriptor alone", b"\x00\x53\x12"),
        ("a descriptor of a descriptor", b"\x00\x00\x53\x12\x53\x12\x45"),
        ("an unknown performative", b"\x00\x53\x77\x45"),
        ("an unknown symbol", b"\x00\xa3\x05hello\x45"),
        ("a performative that is a map", b"\x00\x53\x12\xc1\x01\x00"),
        ("a performative that is null", b"\x00\x53\x12\x40"),
        ("an outcome", encoding.encode(Accepted())),
        ("a list that announces 1 gb", b"\x00\x53\x12\xd0" + struct.pack(">II", 1 << 30, 3)),
        ("a list of 4 billion elements", b"\x00\x53\x12\xd0" + struct.pack(">II", 4, 2**32 - 1)),
        ("a list shorter than its elements", b"\x00\x53\x12\xc0\x02\x01\x70\x00\x00\x00\x00"),
        ("a list longer than its elements", b"\x00\x53\x12\xc0\x09\x01\x43\x43\x43\x43\x43\x43\x43\x43"),
        ("more fields than there are", performative(0x12, *[None] * 15)),
        ("a string of 1 gb", performative(0x12, Raw(b"\xb1\x40\x00\x00\x00"), 0, True)),
        ("a string cut short", performative(0x12, Raw(b"\xa1\xff"))),
        ("a string that is not utf-8", performative(0x12, Raw(b"\xa1\x02\xff\xfe"), 0, True)),
        ("a string of surrogates", performative(0x12, Raw(b"\xa1\x03\xed\xa0\x80"), 0, True)),
        ("a symbol that is not ascii", performative(0x10, "c", None, None, None, None, Raw(b"\xa3\x01\xff"))),
        ("a boolean of 2", performative(0x12, "l", Raw(b"\x43"), Raw(b"\x56\x02"))),
        ("a map of odd count", performative(0x10, "c", *[None] * 8, Raw(b"\xc1\x02\x01\x40"))),
        ("a map with a list as key", performative(0x10, "c", *[None] * 8, Raw(b"\xc1\x03\x02\x45\x40"))),
        ("a map with a map as key", performative(0x10, "c", *[None] * 8, Raw(b"\xc1\x06\x02\xc1\x01\x00\x40\x40"))),
        ("keys that are alike", performative(0x12, "l", Raw(b"\x43"), False, None, None, None, None, Raw(
            b"\xd1" + struct.pack(">II", len(alike) + 4, 2 * 3_499) + alike
        ))),
        ("an array of 4 billion nulls", performative(0x12, Raw(b"\xf0" + struct.pack(">II", 5, 2**32 - 1) + b"\x40"))),
        ("an array of a million nulls", performative(0x12, Raw(b"\xf0" + struct.pack(">II", 5, 1 << 20) + b"\x40"))),
        ("an array of 4,097 nulls", performative(0x12, Raw(b"\xf0" + struct.pack(">II", 5, 4_097) + b"\x40"))),
        ("an array of no type", performative(0x12, Raw(b"\xf0" + struct.pack(">II", 5, 1) + b"\x01"))),
        ("an array cut short", performative(0x12, Raw(b"\xe0\x03\x05\x50\x00"))),
        ("an array of arrays of arrays", performative(0x12, Raw(b"\xe0\x02\x01\xe0"))),
        ("lists nested 40 deep", performative(0x12, Raw(_lists(40)))),
        ("lists nested 5,000 deep", performative(0x12, Raw(_lists(5_000)))),
        ("descriptors nested 20,000 deep", b"\x00" * 20_000),
        ("60,000 empty lists", performative(0x12, *[Raw(b"\x45")] * 60_000)),
        ("a char past unicode", performative(0x12, Raw(b"\x73\x00\x11\x00\x00"))),
    ):  # fmt: skip
        yield _of(f"body: {name}", DECODE, body(said))


def wrong_fields() -> Iterator[Stream]:
    """Each field of each performative with a value of another type, and each mandatory one left out."""
    wrong = {
        "boolean": "x", "ubyte": Described(Symbol("x"), 1), "ushort": -1, "uint": 2**40, "ulong": -1, "string": 7,
        "symbol": 7, "symbols": 7, "fields": [], "map": [], "unsettled": [], "terminus": 7, "state": 7, "error": 7,
        "binary": "text",
    }  # fmt: skip
    whole: dict[type, Any] = {
        Open: Open("c"), Begin: BEGIN, Attach: sends(), Flow: Flow(0, 1, 0, 1), Transfer: Transfer(0, 0, b"t"),
        Disposition: Disposition(True, 0), Detach: Detach(0), End: End(), Close: Close(),
    }  # fmt: skip
    for kind, value in whole.items():
        shape = _BY_CLASS[kind]
        names = [field.name for field in fields(kind)]
        after = AMQP_HEADER if kind is Open else HELLO
        for index, (name, what, mandatory, _) in enumerate(shape.fields):
            row = [_plain(getattr(value, each)) for each in names[: index + 1]]
            spoilt = performative(int(shape.code), *row[:-1], wrong[what])
            said = frame(1 if kind is Begin else 0, spoilt)
            yield _of(f"field: {kind.__name__.lower()}.{name} is no {what}", DECODE, said, after=after)
            if mandatory:
                left_out = frame(1 if kind is Begin else 0, performative(int(shape.code), *row[:-1]))
                yield _of(f"field: {kind.__name__.lower()} without {name}", DECODE, left_out, after=after)


def _plain(value: Any) -> Any:
    """`value` as a peer would write it: whole numbers as uint."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Raw(b"\x70" + struct.pack(">I", value))
    return value


# --------------------------------------------------------------------------------------------------- sessions


def sessions() -> Iterator[Stream]:
    """Sequences that §2.5 does not have."""
    end = "end amqp:session:"
    for name, answer, said in (
        ("begin twice on a channel", NOT_ALLOWED, BEGIN),
        ("begin that answers nobody", NOT_ALLOWED, wire(Begin(7, 0, 1, 1), channel=1)),
        ("begin that answers a session in use", NOT_ALLOWED, wire(Begin(0, 0, 1, 1), channel=1)),
        ("begin on channel 256", FRAMING, wire(BEGIN, channel=256)),
        ("begin on channel 65,535", FRAMING, wire(BEGIN, channel=65_535)),
        ("end where none is", NOT_ALLOWED, wire(End(), channel=1)),
        ("end twice", NOT_ALLOWED, wire(End(), End())),
        ("attach where none is", NOT_ALLOWED, wire(sends(), channel=1)),
        ("transfer where none is", NOT_ALLOWED, wire((Transfer(0, 0, b"t"), DATA), channel=1)),
        ("flow where none is", NOT_ALLOWED, wire(Flow(0, 1, 0, 1), channel=1)),
        ("disposition where none is", NOT_ALLOWED, wire(Disposition(True, 0), channel=1)),
        ("detach where none is", NOT_ALLOWED, wire(Detach(0), channel=1)),
        ("attach after end", NOT_ALLOWED, wire(End(), sends())),
        ("flow after end", NOT_ALLOWED, wire(End(), Flow(0, 1, 0, 1))),
        ("begin, end, begin on one channel", "lives", wire(End(), BEGIN, End(), BEGIN)),
        ("transfer before attach", f"{end}unattached-handle", transfer()),
        ("flow for a handle before attach", f"{end}unattached-handle", credit(1)),
        ("detach before attach", f"{end}unattached-handle", Detach(0)),
        ("detach twice", f"{end}unattached-handle", wire(sends(), Detach(0, True), Detach(0, True))),
        ("transfer after detach", f"{end}unattached-handle", wire(sends(), Detach(0, True)) + transfer()),
        ("a handle in use", f"{end}handle-in-use", wire(sends(), sends("other", name="other"))),
        ("a handle past the highest", FRAMING, sends(handle=1_024)),
        ("a handle of 4 billion", FRAMING, sends(handle=2**32 - 1)),
        ("a transfer on a link that receives", "end amqp:not-allowed", wire(receives()) + transfer()),
        ("a disposition from last to first", "end amqp:invalid-field", Disposition(True, 5, 4)),
        ("a disposition over half of all ids", "end amqp:invalid-field", Disposition(True, 0, 2**31)),
        ("a flow that is ahead of us", "end amqp:invalid-field", Flow(77, 1, 0, 1)),
        ("a disposition for ids never used", "lives", Disposition(True, 100, 2**31 + 50, True, Accepted())),
        ("a settlement for ids never used", "lives", Disposition(False, 100, 2**31 + 50, True)),
        ("an echo", "lives", wire(*[Flow(0, 1, 0, 1, echo=True)] * 1_000)),
        ("a window of nothing, then of all", "lives", wire(*[Flow(0, 0, 0, 1), Flow(0, 2**32 - 1, 0, 1)] * 500)),
        ("after a fault, anything", "end amqp:session:unattached-handle", wire(
            Detach(0), Detach(0), sends(), Flow(0, 1, 0, 1, 99), Disposition(True, 5, 4)
        )),
    ):  # fmt: skip
        yield _of(f"session: {name}", answer, said)
    begins = b"".join(wire(BEGIN, channel=number) for number in range(1, 253))
    yield _of("session: 253 at once", "lives", begins)
    yield _of("session: a begin and an end, a thousand times", "lives", wire(End(), BEGIN) * 1_000)


def links() -> Iterator[Stream]:
    """Sequences that §2.6 does not have, and attaches that lead nowhere."""
    refused = "refused amqp:"
    for name, answer, said in (
        ("a target that is empty", f"{refused}invalid-field", sends("")),
        ("a target with a control character", f"{refused}invalid-field", sends("a\nb")),
        ("a target of 201 bytes", f"{refused}invalid-field", sends("q" * 201)),
        ("a target of 60,000 bytes", f"{refused}invalid-field", sends("q" * 60_000)),
        ("a target of the node's own", f"{refused}not-found", sends("$nothing")),
        ("a target at nowhere", f"{refused}not-found", sends("q@nowhere")),
        ("a source at nowhere", f"{refused}not-found", receives("q@nowhere")),
        ("a source that is empty", f"{refused}invalid-field", receives("")),
        ("a neighbour's custody link", f"{refused}unauthorized-access", sends("$holdfast/custody")),
        ("a neighbour's control link", f"{refused}unauthorized-access", sends("$holdfast/control")),
        ("a control link the other way", f"{refused}not-allowed", receives("$holdfast/control")),
        ("a transmission queue", f"{refused}invalid-field", sends("@hub")),
        ("a producer whose name is a list", f"{refused}invalid-field", sends(
            properties={Symbol("holdfast:producer"): [1]}
        )),
        ("a producer of 151 bytes", f"{refused}invalid-field", sends(
            properties={Symbol("holdfast:producer"): "p" * 151}
        )),
        ("a reader that starts at a word", f"{refused}invalid-field", Attach(
            "r", 0, True, source=Source("q", filter={Symbol("f"): Described(
                Symbol("holdfast:start-sequence:ulong"), "one"
            )}), target=Target("x"),
        )),
        ("a name of 1,025 bytes", "close amqp:invalid-field", sends(name="n" * 1_025)),
        ("sixty kilobytes of properties", "lives", sends(
            properties={Symbol(f"k{number}"): "v" * 100 for number in range(500)}
        )),
        ("eight megabytes of values", "close amqp:resource-limit-exceeded", b"".join(
            wire(sends(handle=number, properties={Symbol("x"): [[]] * 60_000})) for number in range(3)
        )),
        ("a thousand links", "lives", b"".join(wire(sends(handle=number)) for number in range(1_000))),
        ("attached and detached a thousand times", "lives", wire(sends(), Detach(0, True)) * 1_000),
        ("one name a thousand times", "detach amqp:link:stolen", b"".join(
            wire(sends(name="same", handle=number)) for number in range(1_000)
        )),
        ("a drain without credit, a thousand times", "lives", wire(
            receives("empty"), *[credit(0, drain=True)] * 1_000
        )),
        ("all the credit there is", "lives", wire(receives("empty"), credit(2**32 - 1))),
    ):  # fmt: skip
        yield _of(f"link: {name}", answer, said)


def transfers() -> Iterator[Stream]:
    """Deliveries that break the rules, on a link that has credit."""
    detach = "detach amqp:link:"
    window = b"".join(transfer(number, settled=True) for number in range(CREDIT + 1))
    for name, answer, said in (
        ("without a tag", "detach amqp:invalid-field", wire((Transfer(0, 0), DATA))),
        ("without an id", "detach amqp:invalid-field", wire((Transfer(0, None, b"t"), DATA))),
        ("with a tag of 33 bytes", "detach amqp:invalid-field", wire((Transfer(0, 0, b"t" * 33), DATA))),
        ("past the credit", f"{detach}transfer-limit-exceeded", window),
        ("with an id that is open", "end amqp:invalid-field", transfer(0) + transfer(0)),
        ("begun before the last one ended", "detach amqp:invalid-field", transfer(0, more=True) + transfer(1)),
        ("that is aborted", "lives", wire((Transfer(0, 0, b"t", more=True), DATA), Transfer(0, aborted=True))),
        ("of nothing but beginnings", "lives", transfer(0, b"", more=True) + wire(Transfer(0, more=True)) * 3_000),
        ("with a state that is no state", DECODE, body(
            performative(0x14, Raw(b"\x43"), Raw(b"\x43"), b"t", None, None, None, None, 7)
        )),
        ("of an empty message", "rejected amqp:decode-error", transfer(0, b"\x40")),
        ("of a section that is none", "rejected amqp:decode-error", transfer(0, b"\x00\x53\x10\x45")),
        ("of sections out of order", "rejected amqp:decode-error", transfer(
            0, b"\x00\x53\x72\xc1\x01\x00\x00\x53\x70\x45" + DATA
        )),
        ("of a header that is a map", "rejected amqp:decode-error", transfer(0, b"\x00\x53\x70\xc1\x01\x00" + DATA)),
        ("of annotations cut short", "rejected amqp:decode-error", transfer(0, b"\x00\x53\x72\xc1\x09\x02\xa3")),
        ("of annotations that announce 1 gb", "rejected amqp:decode-error", transfer(
            0, b"\x00\x53\x71\xd1" + struct.pack(">II", 1 << 30, 2) + DATA
        )),
        ("of annotations of a list", "rejected amqp:decode-error", transfer(0, b"\x00\x53\x72\x45" + DATA)),
        ("of 1,001 annotations", "rejected amqp:decode-error", transfer(0, b"\x00\x53\x72" + encoding.encode(
            {Symbol(f"{number}"): None for number in range(1_001)}
        ) + DATA)),
        ("of a producer's number from nobody", "lives", transfer(0, b"\x00\x53\x72" + encoding.encode(
            {Symbol("x-opt-holdfast-number"): "x"}
        ) + DATA)),
    ):  # fmt: skip
        yield Stream(f"transfer: {name}", (HELLO + wire(sends("deliveries")), said), answer)
    more = wire((Transfer(0, more=True), bytes(60_000)))
    large = wire((Transfer(0, 0, b"t", more=True), bytes(60_000))) + more * (MESSAGE_BYTES_MAX // 60_000)
    attached = HELLO + wire(sends("deliveries"))
    yield Stream("transfer: of more than a message may have", (attached, large), f"{detach}message-size-exceeded")


def management() -> Iterator[Stream]:
    """Requests that are none."""
    named = Properties(message_id=UUID(int=1), reply_to="nobody")
    for name, answer, payload in (
        ("nothing", "lives", b"\x00\x53\x77\x40"),
        ("no message", "rejected amqp:decode-error", b"\xff\xff"),
        ("a body cut short", "rejected amqp:decode-error", b"\x00\x53\x77\xd1\x00\x00\x10\x00"),
        ("lists nested 5,000 deep", "rejected amqp:decode-error", b"\x00\x53\x77" + _lists(5_000)),
        ("a reply to nobody", "rejected amqp:not-found", encoding.encode(named) + b"\x00\x53\x77\x40"),
        ("60 kb of empty lists", "lives", b"\x00\x53\x77\xd0" + struct.pack(">II", 60_004, 60_000) + b"\x45" * 60_000),
    ):
        yield Stream(f"management: {name}", (HELLO + wire(sends("$management")), transfer(0, payload)), answer)
    parts = wire((Transfer(0, 0, b"t", more=True), bytes(60_000)), (Transfer(0), bytes(9_000)))
    large = "detach amqp:link:message-size-exceeded"
    yield Stream("management: 69,000 bytes", (HELLO + wire(sends("$management")), parts), large)


def endings() -> Iterator[Stream]:
    """After the end."""
    yield _of("end: close, then anything", "close", Close(), b"\xff" * 1_000)
    yield _of("end: close, then a begin", "close", Close(), wire(BEGIN, channel=5))


def streams() -> list[Stream]:
    """All of them; their names differ."""
    found = [
        stream
        for part in (
            headers, logins, openings, frame_heads, bodies, wrong_fields, sessions, links, transfers, management,
            endings,
        )
        for stream in part()
    ]  # fmt: skip
    assert len({stream.name for stream in found}) == len(found)
    return found


STREAMS = streams()
