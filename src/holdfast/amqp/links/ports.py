"""What sessions and links use of what made them. AMQP 1.0 §2.4 to §2.6.

Rules of this file: protocols alone. A Connection is a ConnectionPort, a Session all of the others. Attributes are
read, lists and dicts are the owner's and shared, so that the hot path needs no call; all else that changes the owner
is a method of it.
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
        """Sessions may speak."""

    @property
    def output(self) -> list[bytes | memoryview]:
        """Chunks for the transport, appended to; always the same list."""

    @property
    def frame_size_out(self) -> int:
        """Bytes of the largest frame that the peer takes."""

    @property
    def body_bytes_max(self) -> int:
        """Bytes of such a frame's body, before the peer's open too."""

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
        """Whether work is counted, so that what is beyond a turn's share waits."""

    def write(self, channel: int, performative: Any) -> None:
        """Queue a performative; LocalProtocolError for one that no frame of the peer's holds."""

    def count_links(self, change: int) -> None:
        """So many more are attached, or fewer."""

    def charge(self, units: int) -> None:
        """Count work that the peer makes for us."""

    def spend(self, units: int, again: bytes = b"") -> None:
        """As `charge`, at the end of a frame: raises Throttled where what comes behind it has to wait."""

    def keep(self, held_bytes: int) -> None:
        """Count what is kept of the peer's words; RemoteProtocolError past the bound."""

    def check_name(self, what: str, name: str) -> None:
        """RemoteProtocolError for a name that is too long."""

    def hold_part(self, payload_bytes: int, held_bytes: int, bounded: bool) -> bool:
        """Count a frame of an unfinished delivery; False where it is `bounded` and past the bound, and not counted."""

    def release_parts(self, payload_bytes: int, held_bytes: int) -> None:
        """The opposite, for what is handed on or given up."""


class SessionPort(Protocol):
    """What every link uses of its session."""

    @property
    def connection(self) -> ConnectionPort: ...

    @property
    def channel(self) -> int:
        """Ours."""

    @property
    def usable(self) -> bool:
        """Links may be attached and may speak."""

    def take_handle(self, link: Any) -> int:
        """The lowest handle of ours that is free; LocalProtocolError if there is none."""

    def free_handle(self, link: object, handle: int) -> None:
        """Both sides have detached `link`."""

    def forget(self, link: Any) -> None:
        """The link is over; its name is free."""

    def forget_frames_of(self, link: Any) -> None:
        """Drop what waits for the window on `link`."""

    def fits(self, performative: Any) -> bool:
        """Whether one frame of the peer's holds it."""

    def write(self, performative: Any) -> None:
        """Send a performative on the session's channel, if it still may speak."""

    def end(self, error: Error | None = None) -> None:
        """End the session."""


class StreamPort(SessionPort, Protocol):
    """What both kinds of links use beside: flows, dispositions and ranges of delivery-ids."""

    def write_flow(self, handle: int, delivery_count: int | None, credit: int, drain: bool) -> None:
        """A link's flow."""

    def write_disposition(self, role: bool, first: int, last: int, settled: bool, state: Any) -> None:
        """Tell the peer the state of first..last."""

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
        """Counted in by the session and its senders."""

    @property
    def unsettled_out(self) -> dict[int, Any]:
        """delivery-id → its sender; always the same dict."""

    @property
    def backlog(self) -> deque[Any]:
        """What waits for the peer's window; always the same deque. Who finds it empty may write."""

    @property
    def window_out(self) -> int:
        """Transfer frames that the peer takes now."""

    def tag_offset(self, next_tag: int) -> int:
        """For Sender.use_tags of a link attached now: its tags count from `next_tag` at the lowest."""

    def send_later(self, pending: Pending) -> None:
        """Send as many frames of the delivery as the window lets through, keep the rest."""

    def answer_drain_later(self, sender: Any) -> None:
        """Have `sender` answer its drain behind what waits for the window."""

    def write_transfer(self, body: bytes, payload: bytes) -> None:
        """One transfer frame, within the peer's window."""
