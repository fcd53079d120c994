"""The frames of one direction of a connection, for those who look on.

Rules of this file: reads what the simulator's own nodes and clients wrote; it is no judge of strangers' bytes.
"""

from collections.abc import Container
from typing import Any, Final

from holdfast.amqp.wire import fast
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.performatives import Disposition, Flow, Transfer

FRAME_HEADER_BYTES: Final = 8

Seen = tuple[int, bytes, Any, bytes]
"""Channel, code as amqp/wire/fast.py names the hot three or empty, fields (their tuple, else the performative),
payload."""


class FrameReader:
    """Gathers bytes until a frame is whole. Headers, SASL and frames of a code in `skipped` are passed over."""

    __slots__ = ("_held", "_skipped")

    def __init__(self, *, skipped: Container[bytes] = ()) -> None:
        self._held = b""
        self._skipped = skipped

    def read(self, data: bytes) -> list[Seen]:
        """The frames that are whole with these bytes, in order."""
        held = self._held + data
        at, end, skipped = 0, len(held), self._skipped
        found = []
        while end - at >= FRAME_HEADER_BYTES:
            if held.startswith(b"AMQP", at):
                at += 8
                continue
            size = int.from_bytes(held[at : at + 4], "big")
            if size < FRAME_HEADER_BYTES:
                raise ValueError(f"a frame says that it has {size} bytes")
            stop = at + size
            if stop > end:
                break
            if held[at + 5] == 0 and size > FRAME_HEADER_BYTES:
                body = at + held[at + 4] * 4
                code = held[body : body + 3]
                if code not in skipped:
                    parsed = fast.parse_transfer(held, body + 3, stop) if code == fast.TRANSFER else None
                    if parsed is None:
                        found.append(_seen(held, at, body, stop, code))
                    else:  # here, for most frames are transfers
                        found.append((held[at + 6] << 8 | held[at + 7], code, parsed, held[parsed[10] : stop]))
            at = stop
        self._held = held[at:]
        return found


def _seen(held: bytes, at: int, body: int, stop: int, code: bytes) -> Seen:
    """The frame between `at` and `stop`, whose performative begins at `body`; no transfer of the fast form."""
    channel = held[at + 6] << 8 | held[at + 7]
    parsed: Any = None
    if code == fast.DISPOSITION:
        parsed = fast.parse_disposition(held, body + 3, stop)
    elif code == fast.FLOW:
        parsed = fast.parse_flow(held, body + 3, stop)
    if parsed is not None:
        return channel, code, parsed, b""
    found, used = decode_composite(held[body:stop])
    payload = held[body + used : stop]
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
