"""The control link between neighbours: both ends, and its two most frequent messages (CUSTODY, "The session"). Rules of
this file: a probe and an echo are built and read without the codec, in the exact bytes that the codec would produce;
any other form of them is decoded like every control message. An echo that finds no credit is sent later, never dropped.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol

from holdfast.amqp.connection import Delivery, Receiver, Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.engine.log import Log
from holdfast.errors import RemoteProtocolError
from holdfast.links.ingress import NODE_MESSAGE_BYTES_MAX, Ingress
from holdfast.links.outgoing import Egress
from holdfast.peers.connections import Connections
from holdfast.peers.neighbours.session_port import BINDINGS_RESERVE
from holdfast.peers.peer import REASON_CHARACTERS_MAX, Peer

CONTROL_ADDRESS: Final = "$holdfast/control"
CONTROL_CREDIT: Final = 200

VALUE: Final = b"\x00\x53\x77"
"""The descriptor of an amqp-value section (AMQP 1.0 §3.2.8)."""

_NUMBER: Final = 0x1122334455667788
_VERSION: Final = 0x99AABBCCDDEEFF00


def _around(fields: dict[str, Any], *numbers: int) -> tuple[bytes, ...]:
    """What the codec writes before, between and behind those numbers."""
    rest, parts = VALUE + encode(fields), []
    for number in numbers:
        part, _, rest = rest.partition(number.to_bytes(8, "big"))
        parts.append(part)
    return (*parts, rest)


_PROBE_HEAD, _PROBE_MIDDLE, _PROBE_TAIL = _around(
    {"kind": "probe", "number": Ulong(_NUMBER), "version": Ulong(_VERSION)}, _NUMBER, _VERSION
)
_ECHO_HEAD, _ECHO_TAIL = _around({"kind": "echo", "number": Ulong(_NUMBER)}, _NUMBER)
assert not _PROBE_TAIL and not _ECHO_TAIL  # the numbers come last
_PROBE: Final = Struct(f">{len(_PROBE_HEAD)}sQ{len(_PROBE_MIDDLE)}sQ")
_ECHO: Final = Struct(f">{len(_ECHO_HEAD)}sQ")


def probe(number: int, version: int) -> bytes:
    """A probe as it goes out; both are ulongs."""
    return _PROBE.pack(_PROBE_HEAD, number, _PROBE_MIDDLE, version)


def echo(number: int) -> bytes:
    """The answer to probe `number`, a ulong."""
    return _ECHO.pack(_ECHO_HEAD, number)


def read_probe(payload: bytes) -> tuple[int, int] | None:
    """(number, version) where it is a probe as `probe` makes it."""
    if len(payload) != _PROBE.size:
        return None
    head, number, middle, version = _PROBE.unpack(payload)
    return (number, version) if head == _PROBE_HEAD and middle == _PROBE_MIDDLE else None


def read_echo(payload: bytes) -> int | None:
    """The number where it is an echo as `echo` makes it."""
    if len(payload) != _ECHO.size:
        return None
    head, number = _ECHO.unpack(payload)
    return int(number) if head == _ECHO_HEAD else None


class ControlOwner(Protocol):
    """The session that has the two control links. `peer`: its connection. `control`: our link on it. `refill`: tops
    up the neighbour's link, which sets it."""

    peer: Peer | None
    control: "ControlSender | None"
    refill: Callable[[], None]

    @property
    def name(self) -> str:
        """The neighbour's."""

    @property
    def messages_waiting(self) -> int:
        """Control messages of the neighbour that wait for a later turn."""

    def control_attached(self) -> None:
        """Our link was answered; nothing was sent on it yet."""

    def control_credited(self) -> None:
        """Our link has credit, and owes no echo."""

    def hear_probe(self, number: int, version: int) -> None: ...
    def hear_echo(self, number: int) -> None: ...
    def hear(self, fields: dict[Any, Any]) -> None:
        """Handles any other control message, and these two in another form."""


class ControlSender(Egress):
    """Our control link."""

    def __init__(self, connections: Connections, peer: Peer, link: Sender, neighbour: ControlOwner) -> None:
        super().__init__(peer, link)
        self._connections = connections
        self.neighbour = neighbour
        self.greeted = False
        self.owed: int | None = None
        """The last probe's number that found no credit for its echo."""
        self.hello_owed = False
        """Whether the hello, or a message that precedes it, found no credit."""

    def send(self, payload: bytes, *, reserve: int = 0) -> bool:
        """Sends one message. False if the peer's credit less `reserve`, its session's window or its link's limit does
        not allow it: beyond the window it would wait in the session's backlog, which has no bound."""
        link = self.link
        limit = link.message_bytes_max
        if (
            not link.attached
            or not link.sendable
            or link.credit <= reserve
            or (limit is not None and len(payload) > limit)
        ):
            return False
        link.send(payload, context=None, settled=True)
        self.peer.touch()
        return True

    def answer(self, number: int) -> None:
        """Sends the echo, now or with the next credit; of several that wait only the last is sent."""
        self.owed = None if self.send(echo(number)) else number

    def credited(self) -> None:
        if self.neighbour.control is not self:
            return
        if not self.greeted:
            limit = self.link.message_bytes_max
            if limit is not None and limit < NODE_MESSAGE_BYTES_MAX:
                text = f"its control link allows messages of {limit} bytes; expected {NODE_MESSAGE_BYTES_MAX} or more"
                self._connections.drop(self.peer, text)
                return
            if self.link.sendable:
                self.greeted = True
                self.neighbour.control_attached()
        if self.owed is not None:
            self.answer(self.owed)
        self.neighbour.control_credited()

    def gone(self, unsettled: list[Any]) -> None:
        if self.neighbour.control is self:
            error = self.link.error
            reason = "" if error is None else f": {error.text[:REASON_CHARACTERS_MAX]}"
            self._connections.drop(self.peer, f"the control link was detached{reason}")


class ControlReceiver(Ingress):
    """The peer's control link. A message of many frames is held whole, however much of other links is unfinished."""

    def __init__(self, log: Log, peer: Peer, link: Receiver, neighbour: ControlOwner) -> None:
        super().__init__(peer, link)
        self._log = log
        link.vital = True
        self.neighbour = neighbour
        neighbour.refill = self.refill

    def delivered(self, delivery: Delivery) -> None:
        neighbour = self.neighbour
        if neighbour.peer is self.peer:
            payload = bytes(delivery.payload)
            found = read_probe(payload)
            if found is not None:
                neighbour.hear_probe(*found)
            elif (number := read_echo(payload)) is not None:
                neighbour.hear_echo(number)
            else:
                self._hear(payload)
        self.refill()

    def refill(self) -> None:
        """What waits keeps back credit, but for that which the neighbour keeps for other messages than bindings."""
        least = min(BINDINGS_RESERVE, CONTROL_CREDIT)
        self.top_up(max(least, CONTROL_CREDIT - self.neighbour.messages_waiting))

    def _hear(self, payload: bytes) -> None:
        try:
            fields = Message.decode(payload).value
        except RemoteProtocolError as error:
            self._log.write(
                "WARNING",
                f"neighbour {self.neighbour.name}: control message: {error.description}",
                about=self.neighbour.name,
            )
            return
        if isinstance(fields, dict):
            self.neighbour.hear(fields)
