"""The field absolute-expiry-time of a message's properties, found without decoding the others. AMQP 1.0 §3.2.4.

Rules of this file: reads a bounded number of bytes' heads, whatever is in them. What is no timestamp is as none: a node
passes the bare message on as it is, and does not judge it.
"""

from typing import Final

from holdfast.amqp.message.message import PROPERTIES, section_at
from holdfast.errors import RemoteProtocolError

PLACE: Final = 8
"""Of the field in the list: fields before it are passed over."""
TIME_MAX: Final = 2**63 - 1
_TIMESTAMP: Final = 0x83
_WIDTHS: Final = (0, 1, 2, 4, 8, 16)
"""Of values whose constructor begins with 4 to 9; those above have a size before them."""


def expiry_of(data: bytes | memoryview, at: int) -> int:
    """When a message expires whose bare part begins at `at`, in ms since the epoch: from 1 to TIME_MAX, and 0 where it
    does not say. IndexError where more of it must be known."""
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
        end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        count, at = int.from_bytes(data[at + 5 : at + 9], "big"), at + 9
    else:
        return 0
    if count <= PLACE:
        return 0
    for _ in range(PLACE):
        form = data[at]
        kind = form >> 4
        if form == 0x40:
            at += 1
        elif kind >= 0xA:
            at += 2 + data[at + 1] if kind & 1 == 0 else 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        elif kind >= 4:
            at += 1 + _WIDTHS[kind - 4]
        else:
            return 0
        if at >= end:
            return 0
    if data[at] != _TIMESTAMP or at + 9 > end:
        return 0
    data[at + 8]
    return max(1, int.from_bytes(data[at + 1 : at + 9], "big", signed=True))


def expiry_of_whole(data: bytes | memoryview, at: int) -> int:
    """As `expiry_of`, of a message that is all here."""
    try:
        return expiry_of(data, at)
    except IndexError:
        return 0
