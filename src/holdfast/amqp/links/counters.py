"""Counters of transfers to the peer, which a session shares with its senders. AMQP 1.0 §2.5.6, §2.6.12.

Rules of this file: it only holds numbers. The session creates the object and gives it to its senders, which count in it
what they write themselves, because a call for each message would cost more than the rest of the work.
"""


class OutgoingCounters:
    """The outgoing half of a session's flow control state; ids are 32-bit serial numbers (RFC 1982)."""

    __slots__ = ("next_delivery_id", "next_outgoing_id", "window")

    def __init__(self, first_id: int) -> None:
        self.next_outgoing_id = first_id
        """Of the next transfer frame."""
        self.next_delivery_id = first_id
        self.window = 0
        """Transfer frames that the peer takes now (remote-incoming-window)."""
