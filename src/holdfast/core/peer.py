"""One connection as the core sees it: its AMQP engine, who is behind it, and the links on it.

Rules of this file: a peer is a client until a session adopts it as a neighbour; what only neighbours may say is
believed from neighbours alone (ARCHITECTURE, "Hostile until checked").
"""

from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.amqp.connection import Connection

if TYPE_CHECKING:
    from holdfast.core.requests import RequestLink
    from holdfast.core.sessions import Neighbour

NEVER: Final = inf


class Writer(Protocol):
    """A link that sends when it may."""

    def credited(self) -> None: ...


class Peer:
    """`number` is the driver's name for the connection. `writable`: the socket takes more than control."""

    __slots__ = (
        "address", "amqp", "dialled", "egress", "loopback", "neighbour", "number", "reply_bytes", "stalled",
        "touched", "unread_bytes", "wake_at", "writable",
    )  # fmt: skip

    def __init__(
        self, number: int, amqp: Connection, *, address: str, loopback: bool, dialled: bool, touched: "dict[Peer, None]"
    ) -> None:
        self.number = number
        self.amqp = amqp
        self.address = address
        self.loopback = loopback
        self.dialled = dialled
        self.neighbour: Neighbour | None = None
        self.writable = True
        self.unread_bytes = 0
        """Bytes written since `writable` ended."""
        self.reply_bytes = 0
        """Answers to requests that wait for credit."""
        self.stalled: dict[RequestLink, None] = {}
        """Links whose requests wait until such answers have gone."""
        self.touched = touched
        self.wake_at = NEVER
        """Where it stands among the node's deadlines (deadlines.py)."""
        self.egress: dict[Writer, None] = {}
        """The links of this connection that carry messages away, told when the socket takes more again."""

    def touch(self) -> None:
        """There is something to write before the turn ends."""
        self.touched[self] = None

    @property
    def name(self) -> str:
        remote = self.amqp.remote_open
        return f"{remote.container_id}@{self.address}" if remote is not None else self.address
