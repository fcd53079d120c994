"""The field absolute-expiry-time of a message's properties, found without decoding the others. AMQP 1.0 §3.2.4.

Rules of this file: it reads a bounded number of field headers, whatever the message contains. A value that is not a
timestamp counts as absent, because a node passes the bare message on without checking it.
"""

from typing import Final

from holdfast.amqp.message.message import PROPERTIES, section_at
from holdfast.errors import RemoteProtocolError

PLACE: Final = 8
"""The index of the field in the list: the fields before it are skipped."""
TIME_MAX: Final = 2**63 - 1
_TIMESTAMP: Final = 0x83
_ONE_BYTE, _FOUR_BYTES, _NONE = 0, -1, -2


def _step(form: int) -> int:
    """The bytes from a value's constructor to the next value (§1.6.26). For a value of variable width a mark for
    the width of its size field; _NONE if the value cannot be skipped."""
    kind = form >> 4
    if kind < 4:
        return _NONE
    return 1 + (0, 1, 2, 4, 8, 16)[kind - 4] if kind < 0xA else (_FOUR_BYTES if kind & 1 else _ONE_BYTE)


_STEPS: Final = tuple(map(_step, range(256)))


def expiry_of(data: bytes | memoryview, at: int) -> int:
    """The expiry time, in ms since the epoch, of a message whose bare part begins at `at`: from 1 to TIME_MAX, or 0 if
    it has none. IndexError if more bytes of it are needed."""
    if data[at] or data[at + 1] != 0x53:
        try:
            code, at = section_at(bytes(data), at)
        except RemoteProtocolError:
            return 0
        if code != PROPERTIES:
            return 0
    elif data[at + 2] != PROPERTIES:
        return 0
    else:
        at += 3
    form = data[at]
    if form == 0xC0:
        end, count, at = at + 2 + data[at + 1], data[at + 2], at + 3
    elif form == 0xD0:
        data[at + 8]  # the last byte of the list's header: a slice that is cut off would pass for a smaller number
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        count, at = int.from_bytes(data[at + 5 : at + 9], "big"), at + 9
    else:
        return 0
    if count <= PLACE:
        return 0
    for _ in range(PLACE):
        step = _STEPS[data[at]]
        if step > 0:
            at += step
        elif step == _ONE_BYTE:
            at += 2 + data[at + 1]
        elif step == _FOUR_BYTES:
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        else:
            return 0
    if at >= end:
        return 0
    if data[at] != _TIMESTAMP or at + 9 > end:
        return 0
    data[at + 8]
    return max(1, int.from_bytes(data[at + 1 : at + 9], "big", signed=True))


def expiry_of_whole(data: bytes | memoryview, at: int) -> int:
    """As `expiry_of`, of a complete message."""
    try:
        return expiry_of(data, at)
    except IndexError:
        return 0
