"""A delivery whose last frame has not arrived yet. AMQP 1.0 §2.6.14.

Rules of this file: a receiver keeps one such delivery at a time.
"""

from typing import Any, Final

APART_BYTES: Final = 4_096
"""A part of at least this size is kept as a separate object until the delivery is complete."""


class Partial:
    """A delivery whose last frame has not arrived yet."""

    __slots__ = (
        "delivery_id", "frames", "held_bytes", "kept_bytes", "message_format", "mode", "parts", "passed_over", "resume",
        "settled", "size", "state", "streamed", "tag",
    )  # fmt: skip

    def __init__(self, delivery_id: int, tag: bytes, message_format: int, mode: int | None, resume: bool) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.mode = mode
        self.resume = resume
        self.settled = False
        self.state: Any = None
        self.parts: list[bytes | bytearray] = []
        """Payload that was not handed on yet. Small parts are joined: an object for each tiny frame would cost more
        memory than the frame has bytes."""
        self.kept_bytes = 0
        """Bytes of `parts`."""
        self.frames = 0
        self.held_bytes = 0
        """Its share of the connection's `partial_bytes`."""
        self.size = 0
        self.passed_over = False
        """The delivery is settled already: its further bytes are dropped."""
        self.streamed = False
        """A part of it was handed on."""

    def keep(self, part: bytes) -> None:
        """Adds the payload of the next frame."""
        parts = self.parts
        self.kept_bytes += len(part)
        if len(part) >= APART_BYTES:
            parts.append(part)
        elif parts and isinstance(parts[-1], bytearray):
            parts[-1] += part
        else:
            parts.append(bytearray(part))
