"""A delivery with frames that wait for the peer's window. AMQP 1.0 §2.5.6, §2.6.12.

Rules of this file: the items of a session's backlog, and what the backlog may ask of the link that sends them.
"""

from typing import Any, Protocol


class DeliveryPort(Protocol):
    """What a delivery in progress needs of the link that sends it; implemented by Sender."""

    @property
    def handle(self) -> int:
        """Ours, in the link's session."""

    def tag_of(self, delivery_id: int) -> bytes:
        """The tag of one of the link's deliveries."""

    def renumber(self, old: int, new: int) -> None:
        """The delivery `old` of the backlog gets the id `new`, because others before it were dropped."""


class Pending:
    """A delivery of `sender`. `at`: payload bytes that were sent; `started`: whether its first frame was sent."""

    __slots__ = (
        "aborted", "at", "delivery_id", "message_format", "payload", "resume", "sender", "settled", "started", "state",
    )  # fmt: skip

    def __init__(
        self, sender: DeliveryPort, delivery_id: int, payload: bytes, settled: bool, message_format: int, state: Any,
        *, resume: bool = False, aborted: bool = False,
    ) -> None:  # fmt: skip
        self.sender = sender
        self.delivery_id = delivery_id
        self.payload = payload
        self.settled = settled
        self.message_format = message_format
        self.state = state
        self.at = 0
        self.started = False
        self.resume = resume
        self.aborted = aborted
