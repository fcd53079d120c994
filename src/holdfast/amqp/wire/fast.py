"""The hot path: hand-written codecs for transfers, dispositions and flows in their usual encodings. AMQP 1.0 §2.7.4 to
§2.7.6.

Rules of this file: an optimised form beside a plain one. Each parser returns None for an unusual encoding, which the
codec then decodes; if it returns a value, the codec must give the same (tests/amqp/test_fast.py). `at` points at the
list after the descriptor. No parser raises.
"""

import struct
from typing import Any, Final

from holdfast.amqp.wire.performatives import Accepted, Rejected, Released

TRANSFER: Final = b"\x00\x53\x14"
DISPOSITION: Final = b"\x00\x53\x15"
FLOW: Final = b"\x00\x53\x13"

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

ParsedTransfer = tuple[int, int | None, bytes | None, int | None, bool | None, bool, int | None, Any, bool, bool, int]
"""handle, delivery-id, tag, message-format, settled, more, rcv-settle-mode, state, resume, aborted, payload at."""

ParsedDisposition = tuple[bool, int, int | None, bool, Any]
"""role, first, last, settled, state."""

ParsedFlow = tuple[
    int | None, int, int, int, int | None, int | None, int | None, int | None, bool, bool, dict[Any, Any] | None
]  # fmt: skip
"""next-incoming-id, incoming-window, next-outgoing-id, outgoing-window, handle, delivery-count, link-credit,
available, drain, echo, properties (only null here)."""

_UINT_AFTER_CODE: Final = struct.Struct(">I").unpack_from


def parse_transfer(buf: bytes, at: int, end: int) -> ParsedTransfer | None:
    """The transfer whose list is at `at` in a frame that ends at `end`; None if it is unusual."""
    try:
        code = buf[at]
        if code == 0xC0:
            stop = at + 2 + buf[at + 1]
            count = buf[at + 2]
            pos = at + 3
        elif code == 0xD0:
            stop = at + 5 + _UINT_AFTER_CODE(buf, at + 1)[0]
            count = _UINT_AFTER_CODE(buf, at + 5)[0]
            pos = at + 9
        else:
            return None
        if stop > end or count > 11:
            return None
        # handle
        code = buf[pos]
        if code == 0x43:
            handle = 0
            pos += 1
        elif code == 0x52:
            handle = buf[pos + 1]
            pos += 2
        elif code == 0x70:
            handle = _UINT_AFTER_CODE(buf, pos + 1)[0]
            pos += 5
        else:
            return None
        delivery_id: int | None = None
        tag: bytes | None = None
        message_format: int | None = None
        settled: bool | None = None
        more = False
        if count > 1:
            code = buf[pos]
            if code == 0x70:
                delivery_id = _UINT_AFTER_CODE(buf, pos + 1)[0]
                pos += 5
            elif code == 0x52:
                delivery_id = buf[pos + 1]
                pos += 2
            elif code == 0x43:
                delivery_id = 0
                pos += 1
            elif code == 0x40:
                pos += 1
            else:
                return None
            if count > 2:
                code = buf[pos]
                if code == 0xA0:
                    start = pos + 2
                    pos = start + buf[pos + 1]
                    tag = buf[start:pos]
                elif code == 0x40:
                    pos += 1
                else:
                    return None
                if count > 3:
                    code = buf[pos]
                    if code == 0x43:
                        message_format = 0
                        pos += 1
                    elif code == 0x40:
                        pos += 1
                    elif code == 0x52:
                        message_format = buf[pos + 1]
                        pos += 2
                    elif code == 0x70:
                        message_format = _UINT_AFTER_CODE(buf, pos + 1)[0]
                        pos += 5
                    else:
                        return None
                    if count > 4:
                        code = buf[pos]
                        pos += 1
                        if code == 0x42:
                            settled = False
                        elif code == 0x41:
                            settled = True
                        elif code != 0x40:
                            return None
                        if count > 5:
                            code = buf[pos]
                            pos += 1
                            if code == 0x41:
                                more = True
                            elif code != 0x42 and code != 0x40:
                                return None
                            if count > 6:
                                return _rest_of_transfer(
                                    buf, pos, stop, count,
                                    (handle, delivery_id, tag, message_format, settled, more),
                                )  # fmt: skip
        if pos != stop:
            return None
        return handle, delivery_id, tag, message_format, settled, more, None, None, False, False, stop
    except (IndexError, struct.error):
        return None


def _rest_of_transfer(
    buf: bytes, pos: int, stop: int, count: int,
    begun: tuple[int, int | None, bytes | None, int | None, bool | None, bool],
) -> ParsedTransfer | None:  # fmt: skip
    """rcv-settle-mode, state (only null here), resume, aborted, batchable."""
    mode: int | None = None
    code = buf[pos]
    if code == 0x50:
        mode = buf[pos + 1]
        pos += 2
    elif code == 0x40:
        pos += 1
    else:
        return None
    if count > 7:
        if buf[pos] != 0x40:
            return None
        pos += 1
    flags = [False, False, False]
    for index in range(count - 8):
        code = buf[pos]
        pos += 1
        if code == 0x41:
            flags[index] = True
        elif code != 0x42 and code != 0x40:
            return None
    if pos != stop:
        return None
    return (*begun, mode, None, flags[0], flags[1], stop)


_STATES: Final = {
    b"\x00\x53\x24\x45": ACCEPTED,
    b"\x00\x53\x24\xc0\x01\x00": ACCEPTED,
    b"\x00\x53\x24\xd0\x00\x00\x00\x04\x00\x00\x00\x00": ACCEPTED,
    b"\x00\x53\x26\x45": RELEASED,
    b"\x00\x53\x26\xc0\x01\x00": RELEASED,
    b"\x00\x53\x26\xd0\x00\x00\x00\x04\x00\x00\x00\x00": RELEASED,
}


def parse_disposition(buf: bytes, at: int, end: int) -> ParsedDisposition | None:
    """The disposition whose list is at `at` and fills the frame until `end`; None if it is unusual."""
    try:
        code = buf[at]
        if code == 0xC0:
            stop = at + 2 + buf[at + 1]
            count = buf[at + 2]
            pos = at + 3
        elif code == 0xD0:
            stop = at + 5 + _UINT_AFTER_CODE(buf, at + 1)[0]
            count = _UINT_AFTER_CODE(buf, at + 5)[0]
            pos = at + 9
        else:
            return None
        if stop != end or not 2 <= count <= 6:
            return None
        code = buf[pos]
        if code != 0x41 and code != 0x42:
            return None
        role = code == 0x41
        code = buf[pos + 1]
        if code == 0x70:
            first = _UINT_AFTER_CODE(buf, pos + 2)[0]
            pos += 6
        elif code == 0x52:
            first = buf[pos + 2]
            pos += 3
        elif code == 0x43:
            first = 0
            pos += 2
        else:
            return None
        last: int | None = None
        settled = False
        state: Any = None
        if count > 2:
            code = buf[pos]
            if code == 0x70:
                last = _UINT_AFTER_CODE(buf, pos + 1)[0]
                pos += 5
            elif code == 0x52:
                last = buf[pos + 1]
                pos += 2
            elif code == 0x43:
                last = 0
                pos += 1
            elif code == 0x40:
                pos += 1
            else:
                return None
            if count > 3:
                code = buf[pos]
                pos += 1
                if code == 0x41:
                    settled = True
                elif code != 0x42 and code != 0x40:
                    return None
                if count > 4:
                    tail = stop
                    if count == 6:
                        tail -= 1
                        if not 0x40 <= buf[tail] <= 0x42:
                            return None
                    state = _STATES.get(buf[pos:tail])
                    if state is None and (buf[pos] != 0x40 or tail != pos + 1):
                        return None
                    pos = stop
        if pos != stop:
            return None
        return role, first, last, settled, state
    except (IndexError, struct.error):
        return None


def parse_flow(buf: bytes, at: int, end: int) -> ParsedFlow | None:
    """The flow whose list is at `at` and fills the frame until `end`; None if it is unusual."""
    try:
        code = buf[at]
        if code == 0xC0:
            stop = at + 2 + buf[at + 1]
            count = buf[at + 2]
            pos = at + 3
        elif code == 0xD0:
            stop = at + 5 + _UINT_AFTER_CODE(buf, at + 1)[0]
            count = _UINT_AFTER_CODE(buf, at + 5)[0]
            pos = at + 9
        else:
            return None
        if stop != end or not 4 <= count <= 11:
            return None
        row: list[Any] = [None, None, None, None, None, None, None, None, False, False, None]
        for index in range(count):
            code = buf[pos]
            if code == 0x70:
                if index > 7:
                    return None
                row[index] = _UINT_AFTER_CODE(buf, pos + 1)[0]
                pos += 5
            elif code == 0x52:
                if index > 7:
                    return None
                row[index] = buf[pos + 1]
                pos += 2
            elif code == 0x43:
                if index > 7:
                    return None
                row[index] = 0
                pos += 1
            elif code == 0x40:
                pos += 1
            elif code == 0x41 or code == 0x42:
                if index != 8 and index != 9:
                    return None
                row[index] = code == 0x41
                pos += 1
            else:
                return None
        if pos != stop or row[1] is None or row[2] is None or row[3] is None:
            return None
        return row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], None
    except (IndexError, struct.error):
        return None


# ------------------------------------------------------------------------------------------------- encoding


_STATE_BYTES: Final[dict[type[Any], bytes]] = {
    type(None): b"\x40",
    Accepted: b"\x00\x53\x24\x45",
    Released: b"\x00\x53\x26\x45",
}
_DISPOSITION: Final = struct.Struct(">I2sH3s3sBBIBIB")


def disposition_frame(channel: int, role: bool, first: int, last: int, settled: bool, state: Any) -> bytes | None:
    """The frame, for the states without fields; None for the others."""
    raw = _STATE_BYTES.get(type(state))
    if raw is None:
        if state != _PLAIN_REJECTED:
            return None
        raw = b"\x00\x53\x25\x45"
    size = len(raw)
    return _DISPOSITION.pack(
        26 + size, b"\x02\x00", channel, DISPOSITION, bytes((0xC0, 13 + size, 5)), 0x41 if role else 0x42,
        0x70, first, 0x70, last, 0x41 if settled else 0x42,
    ) + raw  # fmt: skip


_PLAIN_REJECTED: Final = Rejected()

_FLOW: Final = struct.Struct(">I2sH3s3sBIBIBIBIBIBIBI3s")


def flow_frame(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, outgoing_window: int,
    handle: int, delivery_count: int, link_credit: int, drain: bool,
) -> bytes:  # fmt: skip
    """A link's flow with everything that the usual one has; available null, echo false."""
    return _FLOW.pack(
        52, b"\x02\x00", channel, FLOW, b"\xc0\x27\x0a", 0x70, next_incoming_id, 0x70, incoming_window, 0x70,
        next_outgoing_id, 0x70, outgoing_window, 0x70, handle, 0x70, delivery_count, 0x70, link_credit,
        b"\x40\x41\x42" if drain else b"\x40\x42\x42",
    )  # fmt: skip
