"""The bytes that similar transfer frames of one link have in common. AMQP 1.0 §2.7.5.

Rules of this file: it only holds data; amqp/session/runs.py learns it from one frame and compares the next frames with
it.
"""

from struct import Struct
from typing import NamedTuple


class FrameTemplate:
    """What the first frames of one link's deliveries have in common: the bytes before the delivery-id, the length of
    the tag, and the bytes after the tag. `cut`: further frames follow, whose performatives are `middle` and `last`;
    None until one has come.
    """

    __slots__ = (
        "cut", "head_bytes", "identity_bytes", "last", "message_format", "middle", "prefix", "settled", "tag_code",
        "tail", "unpack",
    )  # fmt: skip

    def __init__(
        self, prefix: bytes, number_format: str, tag_code: bytes, tail: bytes, settled: bool, message_format: int,
        cut: bool,
    ) -> None:  # fmt: skip
        form = Struct(f">I{len(prefix)}s{number_format}2s{tag_code[1]}x{len(tail)}s")
        self.unpack = form.unpack_from
        self.head_bytes = form.size
        self.identity_bytes = form.size - 4 - len(prefix) - len(tail)
        """Of the delivery-id, and the tag with its length."""
        self.prefix = prefix
        self.tag_code = tag_code
        self.tail = tail
        self.settled = settled
        self.message_format = message_format
        self.cut = cut
        self.middle: Following | None = None
        self.last: Following | None = None


class Following(NamedTuple):
    """The later frames of a delivery, from the data offset to the payload: `before`, then the delivery's id if `named`
    (most senders leave it out, §2.7.5), then `behind`."""

    before: bytes
    named: bool
    behind: bytes
