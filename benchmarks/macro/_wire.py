"""AMQP 1.0 for the raw load: frames encoded ahead, frames read with the least work.

Not the product's codec, on purpose: a peer that measures a broker must not share its mistakes or its
costs. Encodes only what a sender and a receiver need and reads any performative generically. Ids are
32-bit serial numbers that wrap (AMQP 1.0 §2.8.10, RFC 1982). No sockets, no clocks.
"""

import random
import struct
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
FALSE: Final = b"\x42"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
ACCEPTED: Final = b"\x00\x53\x24\x45"
DURABLE_HEADER: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
PRIORITY_HEADER: Final = b"\x00\x53\x70\xc0\x04\x02\x41\x50\x04"
"""Durable, and a priority, the last byte."""
PRIORITIES: Final = 10
SENDER, RECEIVER = False, True
FRAME_BYTES_MAX: Final = 65536
FRAME_BODY_BYTES_MAX: Final = 60_000
"""A body up to this stays in one frame of every peer: frames and deliveries are the same count. Longer: in several."""
BODY_BYTES_LEAST: Final = 8
"""The number alone."""
BODY_BYTES_MAX: Final = 131_000
"""Stays in one frame of 0-9-1, whose usual bound is 128 KiB."""

_U32 = struct.Struct(">I")


class WireError(Exception):
    """The peer sent what this load cannot use; the text says what."""


# --- values ---------------------------------------------------------------------------------------


def uint(number: int) -> bytes:
    """A uint, always in its five-byte form, modulo 2**32."""
    return b"\x70" + _U32.pack(number & 0xFFFFFFFF)


def ubyte(number: int) -> bytes:
    return bytes((0x50, number))


def boolean(flag: bool) -> bytes:
    return TRUE if flag else FALSE


def _variable(short: int, long: int, data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((short, len(data))) + data
    return bytes((long,)) + _U32.pack(len(data)) + data


def symbol(text: str) -> bytes:
    return _variable(0xA3, 0xB3, text.encode("ascii"))


def string(text: str) -> bytes:
    return _variable(0xA1, 0xB1, text.encode())


def binary(data: bytes) -> bytes:
    return _variable(0xA0, 0xB0, data)


def described_list(code: int, fields: Iterable[bytes]) -> bytes:
    """Described list of encoded fields; trailing nulls are left out."""
    kept = list(fields)
    while kept and kept[-1] == NULL:
        kept.pop()
    body = b"".join(kept)
    head = bytes((0x00, 0x53, code))
    if len(body) < 255 and len(kept) < 256:
        return head + bytes((0xC0, len(body) + 1, len(kept))) + body
    return head + b"\xd0" + _U32.pack(len(body) + 4) + _U32.pack(len(kept)) + body


def mapping(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A map of encoded keys and values."""
    kept = list(pairs)
    body = b"".join(key + value for key, value in kept)
    return b"\xd1" + _U32.pack(len(body) + 4) + _U32.pack(2 * len(kept)) + body


# --- frames ---------------------------------------------------------------------------------------


def frame(body: bytes, *, sasl: bool = False) -> bytes:
    """A frame on channel 0."""
    return struct.pack(">IBBH", 8 + len(body), 2, int(sasl), 0) + body


EMPTY_FRAME: Final = frame(b"")
CLOSE_FRAME: Final = frame(described_list(CLOSE, ()))


def sasl_init_frame(mechanism: str, response: bytes) -> bytes:
    return frame(described_list(SASL_INIT, (symbol(mechanism), binary(response))), sasl=True)


def open_frame(container_id: str, hostname: str) -> bytes:
    fields = (string(container_id), string(hostname), uint(FRAME_BYTES_MAX), b"\x60\x00\xff")
    return frame(described_list(OPEN, fields))


def begin_frame(
    next_outgoing_id: int, incoming_window: int, outgoing_window: int, remote_channel: int | None = None
) -> bytes:
    remote = NULL if remote_channel is None else b"\x60" + struct.pack(">H", remote_channel)
    fields = (remote, uint(next_outgoing_id), uint(incoming_window), uint(outgoing_window))
    return frame(described_list(BEGIN, fields))


def selector_filter(selector: str) -> bytes:
    """The filter set of a source with that selector (AMQP 1.0 §3.5.8)."""
    key = symbol("apache.org:selector-filter:string")
    return mapping([(key, b"\x00" + key + string(selector))])


def attach_frame(
    name: str, role: bool, address: str, *, durable: bool = True, expiry: str | None = None, filters: bytes = NULL
) -> bytes:
    """Attach handle 0 to a terminus at `address`: unsettled, receiver settles first. `expiry` and `filters` are a
    source's."""
    durability = uint(2 if durable else 0)
    policy = NULL if expiry is None else symbol(expiry)
    parts = (string(address), durability, policy, NULL, NULL, NULL, NULL, filters)
    source = described_list(0x28, parts if role is RECEIVER else (NULL, NULL))
    target = described_list(0x29, (string(address), durability) if role is SENDER else (NULL, NULL))
    unsettled, first = ubyte(0), ubyte(0)
    initial = NULL if role is RECEIVER else uint(0)
    fields = (string(name), uint(0), boolean(role), unsettled, first, source, target, NULL, NULL, initial)
    return frame(described_list(ATTACH, fields))


def flow_frame(
    *,
    next_incoming_id: int,
    incoming_window: int,
    next_outgoing_id: int,
    outgoing_window: int,
    delivery_count: int,
    link_credit: int,
) -> bytes:
    """A flow for the link with handle 0."""
    numbers = (next_incoming_id, incoming_window, next_outgoing_id, outgoing_window)
    fields = [uint(number) for number in (*numbers, 0, delivery_count, link_credit)]
    return frame(described_list(FLOW, fields))


def disposition_frame(role: bool, first: int, last: int) -> bytes:
    """Accepted and settled, for the range first..last."""
    return frame(described_list(DISPOSITION, (boolean(role), uint(first), uint(last), TRUE, ACCEPTED)))


class Batch:
    """`count_max` equal messages, encoded once; numbers are patched in before each write.

    `one`: a message with all its frames; its number (8 bytes, big-endian) is at `number_at`, its id (4 bytes)
    at each of `id_ats`. All have one length: each byte of an id is patched in all by one strided assignment.
    """

    def __init__(self, one: bytes, count_max: int, number_at: int, id_ats: tuple[int, ...] = ()) -> None:
        self.one, self.step, self.count_max = one, len(one), count_max
        self._number_at, self._id_ats = number_at, id_ats
        self._buffer = bytearray(one * count_max)
        self._view = memoryview(self._buffer)

    def patch(self, delivery_id: int, number: int, count: int) -> memoryview:
        """The bytes of `count` messages with ids from `delivery_id` (wrapping), numbers from `number`.

        The view is valid until the next call. 1 <= count <= count_max.
        """
        end = count * self.step
        buffer, step = self._buffer, self.step
        numbers = array("Q", range(number, number + count))
        numbers.byteswap()
        number_bytes = numbers.tobytes()
        for place in range(8):
            buffer[self._number_at + place : end : step] = number_bytes[place::8]
        if self._id_ats:
            ids = array("I", [(delivery_id + index) & 0xFFFFFFFF for index in range(count)])
            ids.byteswap()
            id_bytes = ids.tobytes()
            for place in range(4):
                plane = id_bytes[place::4]
                for id_at in self._id_ats:
                    buffer[id_at + place : end : step] = plane
        return self._view[:end]

    def put(self, at: int, plane: bytes) -> None:
        """One byte into each of the first messages, at `at` from its beginning."""
        self._buffer[at : len(plane) * self.step : self.step] = plane


def body_after_number(size: int) -> bytes:
    """What follows the number in a body of `size` bytes. ValueError where no peer takes it in one piece."""
    if not BODY_BYTES_LEAST <= size <= BODY_BYTES_MAX:
        raise ValueError(f"invalid value {size} for --size; expected {BODY_BYTES_LEAST} to {BODY_BYTES_MAX} bytes")
    return bytes(33 + index * 7 % 93 for index in range(size - 8))


def frames_for(size: int) -> int:
    """Transfer frames of a message whose body has `size` bytes, as this load cuts it."""
    return -(-size // FRAME_BODY_BYTES_MAX)


def transfer_batch(size: int, count_max: int, properties: bytes = b"", header: bytes = DURABLE_HEADER) -> Batch:
    """Transfers on handle 0: delivery-id, tag (the id again), message-format 0, settled false, more where the body
    goes on in further frames; then the encoded header and sections `properties`, and one data section of
    `size` bytes that begins with the message's number."""
    body = bytes(8) + body_after_number(size)
    parts = [body[at : at + FRAME_BODY_BYTES_MAX] for at in range(0, size, FRAME_BODY_BYTES_MAX)]
    more = b"\x41" if len(parts) > 1 else b""
    fields = b"\x43\x70\0\0\0\0\xa0\x04\0\0\0\0\x43\x42" + more
    first = bytes((0x00, 0x53, 0x14, 0xC0, len(fields) + 1, 5 + len(more))) + fields
    section = header + properties + b"\x00\x53\x75\xb0" + _U32.pack(size)
    one = frame(first + section + parts[0])
    number_at = len(one) - len(parts[0])
    for index, part in enumerate(parts[1:], 2):
        last = index == len(parts)
        one += frame(described_list(TRANSFER, (b"\x43",) if last else (b"\x43", *[NULL] * 4, TRUE)) + part)
    return Batch(one, count_max, number_at, (16, 22))


def priority_batch(size: int, count_max: int, seed: int) -> Batch:
    """As `transfer_batch`, of messages with priorities drawn from 0 to 9."""
    batch = transfer_batch(size, count_max, header=PRIORITY_HEADER)
    at = batch.one.index(PRIORITY_HEADER) + len(PRIORITY_HEADER) - 1
    batch.put(at, bytes(random.Random(seed).choices(range(PRIORITIES), k=count_max)))
    return batch


# --- reading --------------------------------------------------------------------------------------


class Described(NamedTuple):
    descriptor: object
    value: object


_FIXED: Final = {
    0x50: ">B", 0x51: ">b", 0x52: ">B", 0x53: ">B", 0x54: ">b", 0x55: ">b", 0x60: ">H", 0x61: ">h",
    0x70: ">I", 0x71: ">i", 0x72: ">f", 0x80: ">Q", 0x81: ">q", 0x82: ">d", 0x83: ">q",
}  # fmt: skip
_OPAQUE: Final = {0x73: 4, 0x74: 4, 0x84: 8, 0x94: 16, 0x98: 16}
_CONSTANT: Final[dict[int, object]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}


def _at_code(data: bytes, at: int, code: int) -> tuple[object, int]:
    if code in _CONSTANT:
        return _CONSTANT[code], at
    if code in _FIXED:
        form = _FIXED[code]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if code == 0x56:
        return data[at] == 1, at + 1
    if code in _OPAQUE:
        return data[at : at + _OPAQUE[code]], at + _OPAQUE[code]
    wide = bool(code & 0x10)
    kind = code & 0xEF
    length_bytes = 4 if wide else 1
    length = int.from_bytes(data[at : at + length_bytes], "big")
    at += length_bytes
    end = at + length
    if end > len(data):
        raise WireError("a value ends past its frame")
    if kind in (0xA0, 0xA1, 0xA3):
        raw = data[at:end]
        return (raw if kind == 0xA0 else raw.decode()), end
    if kind in (0xC0, 0xC1, 0xE0):
        count = int.from_bytes(data[at : at + length_bytes], "big")
        at += length_bytes
        items: list[object] = []
        if kind == 0xE0:
            element, at = data[at], at + 1
            for _ in range(count):
                item, at = _at_code(data, at, element)
                items.append(item)
            return items, end
        for _ in range(count):
            item, at = decode(data, at)
            items.append(item)
        return (dict(zip(map(str, items[::2]), items[1::2], strict=True)) if kind == 0xC1 else items), end
    raise WireError(f"type code 0x{code:02x}")


def decode(data: bytes, at: int = 0) -> tuple[object, int]:
    """(value, end) of the value at `at`. Map keys become text. WireError on bytes that are no AMQP."""
    try:
        if data[at] == 0:
            descriptor, at = decode(data, at + 1)
            value, at = decode(data, at)
            return Described(descriptor, value), at
        return _at_code(data, at + 1, data[at])
    except (IndexError, struct.error) as error:
        raise WireError("a value ends past its frame") from error


class Performative(NamedTuple):
    code: int
    fields: list[object]

    def field(self, index: int, default: object = None) -> object:
        """Field `index`, or `default` where it is null or left out."""
        value = self.fields[index] if index < len(self.fields) else None
        return default if value is None else value

    def number(self, index: int, default: int) -> int:
        value = self.field(index, default)
        if not isinstance(value, int):
            raise WireError(f"performative 0x{self.code:02x}: field {index} is {value!r}, no number")
        return value


def performative(data: bytes) -> Performative:
    """The performative that begins at data[0], a frame's body without its header."""
    value, _ = decode(data)
    if isinstance(value, Described):
        code, fields = value
        if isinstance(code, int) and isinstance(fields, list):
            return Performative(code, fields)
    raise WireError(f"no performative: {data[:16]!r}")


class Scan(NamedTuple):
    """What a scan of a buffer found: `transfers` whole transfer frames, the last at `last_at` (-1: none)
    and `last_end`; other frames' bodies in order; `end`: where an incomplete frame begins."""

    transfers: int
    last_at: int
    last_end: int
    others: list[bytes]
    end: int


def scan(buffer: bytes | bytearray, end: int) -> Scan:
    """Count the transfer frames in buffer[:end], hand out the bodies of the others. The hot loop."""
    at = count = 0
    last_at, last_end = -1, 0
    others: list[bytes] = []
    unpack = _U32.unpack_from
    while end - at >= 8:
        size = unpack(buffer, at)[0]
        stop = at + size
        if size < 8:
            raise WireError(f"a frame of {size} bytes")
        if stop > end:
            break
        if size > 11 and buffer[at + 10] == 0x14:
            count += 1
            last_at, last_end = at, stop
        elif size > 8:
            others.append(bytes(buffer[at + 4 * buffer[at + 4] : stop]))
        at = stop
    return Scan(count, last_at, last_end, others, at)


def transfer_ends(buffer: bytes | bytearray, end: int) -> list[int]:
    """Where each whole transfer frame in buffer[:end] ends."""
    at, ends = 0, []
    while end - at >= 8:
        stop = at + _U32.unpack_from(buffer, at)[0]
        if stop > end:
            break
        if stop - at > 11 and buffer[at + 10] == 0x14:
            ends.append(stop)
        at = stop
    return ends


def transfer_delivery_id(buffer: bytes | bytearray, at: int) -> int:
    """The delivery-id of the transfer frame at `at`. WireError where it has none (a later frame)."""
    head = bytes(buffer[at + 4 * buffer[at + 4] : at + 64])
    place = {0xC0: 6, 0xD0: 12}.get(head[3])
    if place is None:
        raise WireError("a transfer without fields")
    _, place = decode(head, place)
    value, _ = decode(head, place)
    if not isinstance(value, int):
        raise WireError("a transfer without a delivery-id: the load takes one frame a delivery")
    return value


def body_number(buffer: bytes | bytearray, frame_end: int, body_size: int) -> int:
    """The message's number: the first 8 bytes of the last `body_size` bytes of its frame."""
    return int.from_bytes(buffer[frame_end - body_size : frame_end - body_size + 8], "big")


def serial_distance(to: int, start: int) -> int:
    """to - start in 32-bit serial arithmetic, from -2**31 to 2**31 - 1."""
    return ((to - start + 0x80000000) & 0xFFFFFFFF) - 0x80000000
