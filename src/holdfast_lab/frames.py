"""The frames of one direction of a connection, for those who look on.

Rules of this file: reads what the simulator's own nodes and clients wrote; it is no judge of strangers' bytes.
"""

from collections.abc import Iterator
from typing import Any

from holdfast.amqp import fast
from holdfast.amqp.performatives import Disposition, Flow, Transfer, decode_composite

Seen = tuple[int, bytes, Any, bytes]
"""Channel, code as amqp/fast.py names the hot three or empty, fields (their tuple, else the performative), payload."""


class FrameReader:
    """Gathers bytes until a frame is whole. Headers and SASL are passed over."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def read(self, data: bytes) -> Iterator[Seen]:
        """The frames that are whole with these bytes, in order."""
        held = self._held
        held += data
        while len(held) >= 8:
            if held[:4] == b"AMQP":
                del held[:8]
                continue
            size = int.from_bytes(held[:4], "big")
            if len(held) < size:
                return
            frame = bytes(held[:size])
            del held[:size]
            if frame[5] == 0 and size > 8:
                yield _seen(frame)


def _seen(frame: bytes) -> Seen:
    channel = int.from_bytes(frame[6:8], "big")
    body = frame[4] * 4
    code = frame[body : body + 3]
    parsed: Any = None
    if code == fast.TRANSFER:
        parsed = fast.parse_transfer(frame, body + 3, len(frame))
        if parsed is not None:
            return channel, code, parsed, frame[parsed[10] :]
    elif code == fast.DISPOSITION:
        parsed = fast.parse_disposition(frame, body + 3, len(frame))
    elif code == fast.FLOW:
        parsed = fast.parse_flow(frame, body + 3, len(frame))
    if parsed is not None:
        return channel, code, parsed, b""
    found, used = decode_composite(frame[body:])
    payload = frame[body + used :]
    if isinstance(found, Transfer):
        fields = (
            found.handle, found.delivery_id, found.delivery_tag, found.message_format, found.settled, bool(found.more),
            found.rcv_settle_mode, found.state, bool(found.resume), bool(found.aborted), 0,
        )  # fmt: skip
        return channel, fast.TRANSFER, fields, payload
    if isinstance(found, Disposition):
        fields_ = (bool(found.role), found.first, found.last, bool(found.settled), found.state)
        return channel, fast.DISPOSITION, fields_, b""
    if isinstance(found, Flow):
        return channel, fast.FLOW, found, b""
    return channel, b"", found, b""
