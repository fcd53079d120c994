"""The interfaces through which sessions and links use their connection and session. AMQP 1.0 §2.4 to §2.6.

Rules of this file: protocols alone. A Connection is a ConnectionPort, a Session all of the others. Attributes are only
read. Lists and dicts belong to the owner and are shared, so that the hot path needs no call. Everything else that
changes the owner is a method.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from holdfast.amqp.links.counters import OutgoingCounters
from holdfast.amqp.links.pending import Pending
from holdfast.amqp.settings import Partials, Settings
from holdfast.amqp.wire.performatives import Error


class ConnectionPort(Protocol):
    """What a session and its links use of their connection."""

    @property
    def settings(self) -> Settings: ...

    @property
    def usable(self) -> bool:
        """Sessions may send frames."""

    @property
    def output(self) -> list[bytes | memoryview]:
        """Chunks for the transport, to be appended to; always the same list."""

    @property
    def frame_size_out(self) -> int:
        """The largest frame that the peer accepts, in bytes."""

    @property
    def body_bytes_max(self) -> int:
        """The largest body of such a frame, in bytes, also before the peer's open."""

    @property
    def links(self) -> int:
        """How many are attached, of all sessions."""

    @property
    def partials(self) -> Partials: ...

    @property
    def partial_bytes(self) -> int:
        """Held of deliveries of which the last frame is still to come, all links together."""

    @property
    def is_counted(self) -> bool:
        """Whether work is counted, so that work beyond a turn's share waits."""

    def write(self, channel: int, performative: Any) -> None:
        """Queues a performative. LocalProtocolError if it fits into no frame that the peer accepts."""

    def count_links(self, change: int) -> None:
        """Counts links that were attached, or, if negative, that ended."""

    def charge(self, units: int) -> None:
        """Counts work that the peer causes."""

    def spend(self, units: int, again: bytes = b"") -> None:
        """As `charge`, at the end of a frame: raises Throttled if the bytes after it have to wait."""

    def keep(self, held_bytes: int) -> None:
        """Counts memory for what the peer has declared; RemoteProtocolError past the bound."""

    def check_name(self, what: str, name: str) -> None:
        """RemoteProtocolError for a name that is too long."""

    def hold_part(self, payload_bytes: int, held_bytes: int, bounded: bool) -> bool:
        """Counts a frame of an unfinished delivery. False if it is `bounded` and exceeds the bound; then it is not
        counted."""

    def release_parts(self, payload_bytes: int, held_bytes: int) -> None:
        """The opposite, for parts that were handed on or dropped."""


class SessionPort(Protocol):
    """What every link uses of its session."""

    @property
    def connection(self) -> ConnectionPort: ...

    @property
    def channel(self) -> int:
        """Ours."""

    @property
    def usable(self) -> bool:
        """Links may be attached and may send frames."""

    def take_handle(self, link: Any) -> int:
        """Our lowest free handle; LocalProtocolError if there is none."""

    def free_handle(self, link: object, handle: int) -> None:
        """Both sides have detached `link`."""

    def forget(self, link: Any) -> None:
        """The link has ended, and its name is free."""

    def forget_frames_of(self, link: Any) -> None:
        """Drops the frames of `link` that wait for the window."""

    def fits(self, performative: Any) -> bool:
        """Whether it fits into one frame that the peer accepts."""

    def write_if_fits(self, performative: Any) -> bool:
        """Sends it, and returns True, if it fits into one frame that the peer accepts."""

    def write(self, performative: Any) -> None:
        """Sends a performative on the session's channel, unless the session has ended."""

    def end(self, error: Error | None = None) -> None:
        """End the session."""


class StreamPort(SessionPort, Protocol):
    """What both kinds of links also use: flows, dispositions and ranges of delivery-ids."""

    def write_flow(self, handle: int, delivery_count: int | None, credit: int, drain: bool) -> None:
        """A link's flow."""

    def write_disposition(self, role: bool, first: int, last: int, settled: bool, state: Any) -> None:
        """Sends the peer the state of first..last."""

    def ids_between(self, first: int, last: int, known: dict[int, Any]) -> Iterable[int]:
        """The ids first..last (serial, inclusive), or those of them in `known` where these are fewer."""


class IncomingPort(StreamPort, Protocol):
    """What a Receiver uses of its session."""

    @property
    def unsettled_in(self) -> dict[int, Any]:
        """delivery-id → its receiver."""

    @property
    def unsettled_max(self) -> int:
        """How many of these there may be."""


class OutgoingPort(StreamPort, Protocol):
    """What a Sender, and a delivery that it sends in parts, use of their session."""

    @property
    def outgoing(self) -> OutgoingCounters:
        """Counters that the session shares with its senders."""

    @property
    def unsettled_out(self) -> dict[int, Any]:
        """delivery-id → its sender; always the same dict."""

    @property
    def backlog(self) -> deque[Any]:
        """Deliveries that wait for the peer's window; always the same deque. While it is empty, senders may write."""

    @property
    def window_out(self) -> int:
        """Transfer frames that the peer accepts now."""

    def tag_offset(self, next_tag: int) -> int:
        """For Sender.use_tags of a link attached now: its tags count from `next_tag` at the lowest."""

    def send_later(self, pending: Pending) -> None:
        """Sends as many frames of the delivery as the window allows, and keeps the rest."""

    def answer_drain_later(self, sender: Any) -> None:
        """Makes `sender` answer its drain after the deliveries that wait for the window."""

    def write_transfer(self, body: bytes, payload: bytes) -> None:
        """One transfer frame, within the peer's window."""
