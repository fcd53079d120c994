"""Reads deliveries that come in several transfer frames each (AMQP 1.0 §2.6.14): bodies too long for one.

Rules of this file: as _wire.py's. It decodes every transfer, which is cheap where each carries tens of kilobytes.
"""

import struct
from typing import NamedTuple

import _wire as wire
from _wire import Described, Performative, WireError

U32 = struct.Struct(">I")


class PartScan(NamedTuple):
    """`frames` of transfer, in which `numbers`: of each delivery that ended, its first eight body bytes; the ids of
    the first and the last of them; `others` and `end` as in Scan."""

    frames: int
    numbers: list[int]
    first_id: int
    last_id: int
    others: list[bytes]
    end: int


class Parts:
    """Reads deliveries of several frames each; keeps between two scans what an unfinished one began with."""

    def __init__(self) -> None:
        self._open: tuple[int, int] | None = None

    def scan(self, buffer: bytes | bytearray, end: int) -> PartScan:
        """As `scan`, where a delivery has any count of frames."""
        at = frames = 0
        ended: list[tuple[int, int]] = []
        others: list[bytes] = []
        while end - at >= 8:
            size = U32.unpack_from(buffer, at)[0]
            if size < 8:
                raise WireError(f"a frame of {size} bytes")
            if at + size > end:
                break
            body = bytes(buffer[at + 4 * buffer[at + 4] : at + size])
            if body[:3] != b"\x00\x53\x14":
                others += [body] if body else []
            else:
                frames += 1
                value, payload_at = wire.decode(body)
                assert isinstance(value, Described) and isinstance(value.value, list)
                transfer = Performative(wire.TRANSFER, value.value)
                if self._open is None:
                    self._open = transfer.number(1, 0), first_number(body, payload_at)
                if transfer.field(5) is not True:
                    ended.append(self._open)
                    self._open = None
            at += size
        ids = (ended[0][0], ended[-1][0]) if ended else (0, 0)
        return PartScan(frames, [number for _, number in ended], *ids, others, at)


def first_number(payload: bytes, at: int) -> int:
    """The first 8 bytes of the data section in the message that begins at payload[at] and may be cut after them."""
    while payload[at : at + 3] != b"\x00\x53\x75":
        _, at = wire.decode(payload, at)
    at += 5 if payload[at + 3] == 0xA0 else 8
    return int.from_bytes(payload[at : at + 8], "big")
