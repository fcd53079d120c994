"""The frames of a link's deliveries as they are written; the bytes that do not change are prepared once. AMQP 1.0
§2.7.5.

Rules of this file: it only handles bytes. It makes the heads of frames; a payload is sent unchanged.
"""

import struct
from collections.abc import Callable, Sequence

from holdfast.amqp.wire.fast import TRANSFER

Buffer = bytes | memoryview
"""A piece of a payload: it goes out as it is, and must not change until it has."""


class TransferForm:
    """Transfers of one link: everything but size, delivery-id and settled is prepared.

    `pack` makes the head of a delivery's only frame; `cut` the frames of a larger one, of which those after the first
    only have handle and more. `frame_bytes_max`: of the peer's.

    The tag is the delivery-id's 4 bytes: unique while unsettled, because delivery-ids are. `tag_offset` is added to
    it on a link that may be resumed, whose tags go on where those of its last session ended.
    """

    __slots__ = (
        "_cut_prefix", "_first_max", "_following_max", "_last", "_middle", "_pack_cut", "first_bytes",
        "following_bytes", "head_bytes", "pack", "payload_max", "prefix",
    )  # fmt: skip

    pack: Callable[[int, bytes, int, bytes, int, bytes], bytes]
    """(size, prefix, delivery-id, tag's code and length, tag, message-format and settled) → the frame's head."""

    def __init__(self, channel: int, handle: int, frame_bytes_max: int, tag_offset: int = 0) -> None:
        wire_handle = b"\x43" if handle == 0 else bytes((0x52, handle)) if handle < 256 else b"\x70" + (
            handle.to_bytes(4, "big")
        )  # fmt: skip
        opening = b"\x02\x00" + channel.to_bytes(2, "big") + TRANSFER + b"\xc0"
        size = 1 + len(wire_handle) + 5 + 6 + 2
        self.prefix = opening + bytes((size, 5)) + wire_handle + b"\x70"
        form = struct.Struct(f">I{len(self.prefix)}sI2sI2s")
        self.pack = _with_tags(form.pack, tag_offset) if tag_offset else form.pack
        self.head_bytes = form.size
        """Bytes of the frame before the payload."""
        self.payload_max = frame_bytes_max - self.head_bytes
        """The longest payload that goes out in one frame."""
        self._cut_prefix = opening + bytes((size + 1, 6)) + wire_handle + b"\x70"
        cut_form = struct.Struct(f">I{len(self.prefix)}sI2sI3s")
        self._pack_cut = _with_tags(cut_form.pack, tag_offset) if tag_offset else cut_form.pack
        self.first_bytes = cut_form.size
        """The same of the first of several frames."""
        self._first_max = frame_bytes_max - self.first_bytes
        self._middle = opening + bytes((6 + len(wire_handle), 6)) + wire_handle + b"\x40\x40\x40\x40\x41"
        self._last = opening + bytes((1 + len(wire_handle), 1)) + wire_handle
        self.following_bytes = 4 + len(self._middle)
        """The same of a frame that follows it, at most."""
        self._following_max = frame_bytes_max - self.following_bytes

    def frames(self, size: int) -> int:
        """Frames of a delivery of `size` bytes that does not fit into one."""
        return 1 - (self._first_max - size) // self._following_max

    def cut(self, output: list[Buffer], delivery_id: int, pieces: Sequence[Buffer], size: int, settled: bool) -> int:
        """Write a delivery in several frames, without copying what is in them; returns how many."""
        room = self._first_max
        output.append(self.first(room, delivery_id, settled))
        left = size - room
        frames = 1
        part: list[Buffer] = []
        for piece in pieces:
            length = len(piece)
            if length <= room:
                part.append(piece)
                room -= length
                continue
            view = memoryview(piece)
            at = 0
            while length - at > room:
                part.append(view[at : at + room])
                output += part
                at += room
                room = min(left, self._following_max)
                left -= room
                output.append(self.following(room, left > 0))
                frames += 1
                part = []
            part.append(view[at:])
            room -= length - at
        output += part
        return frames

    def first(self, payload_bytes: int, delivery_id: int, settled: bool) -> bytes:
        """The first of several frames of a delivery, up to the payload."""
        return self._pack_cut(
            self.first_bytes + payload_bytes, self._cut_prefix, delivery_id, b"\xa0\x04", delivery_id,
            b"\x43\x41\x41" if settled else b"\x43\x42\x41",
        )  # fmt: skip

    def following(self, payload_bytes: int, more: bool) -> bytes:
        """A further frame of it, up to the payload."""
        prefix = self._middle if more else self._last
        return (4 + len(prefix) + payload_bytes).to_bytes(4, "big") + prefix


def _with_tags(pack: Callable[..., bytes], offset: int) -> Callable[[int, bytes, int, bytes, int, bytes], bytes]:
    def pack_with_offset(
        size: int, prefix: bytes, delivery_id: int, code: bytes, tag: int, settled: bytes
    ) -> bytes:  # fmt: skip
        return pack(size, prefix, delivery_id, code, (tag + offset) & 0xFFFFFFFF, settled)

    return pack_with_offset
