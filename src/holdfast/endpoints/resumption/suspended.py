"""The record of a link that may be resumed, common to producers and consumers; it outlives the link.

Source: AMQP 1.0 §2.6.5, §2.6.13.
"""

from typing import Final

from holdfast.amqp.connection import Receiver, Sender

RECORD_BYTES: Final = 2_048
"""What the record of a link holds in memory, about."""


class Suspendable:
    """One link by its key, whether it is attached or not. `hold_s`: seconds that it is kept after its end, 0: not.

    `until`: when it is forgotten, None while it is attached.
    """

    def __init__(self, key: bytes, hold_s: float) -> None:
        self.key = key
        self.hold_s = hold_s
        self.until: float | None = None
        self.over = False
        """Whether the record was forgotten."""
        self.counted_bytes = 0
        """The bytes that it counts in the node's memory."""

    @property
    def held_bytes(self) -> int:
        """The bytes that it uses, about."""
        return RECORD_BYTES


def is_resumable(link: Receiver | Sender) -> bool:
    """Whether the link ended so that it can be resumed: it was lost, or detached without being closed."""
    return link.over and not link.closed
