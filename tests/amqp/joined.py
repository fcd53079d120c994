"""Two engines joined in memory, and the small words the other tests are written with.

Rules of this file: no sockets; time stands still unless a test moves it.
"""

from typing import Any

from holdfast.amqp.connection import Connection, ConnEvent, LinkAttached, Receiver, Sender, Session, Settings
from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.composites import decode_composite
from holdfast.amqp.wire.frames import frame
from holdfast.amqp.wire.performatives import Source, Target

NOW = 100.0


def server(**changes: Any) -> Connection:
    """The answering side."""
    authenticate = changes.pop("authenticate", None)
    return Connection(Settings(container_id="s", **changes), server=True, authenticate=authenticate, now=NOW)


def client(**changes: Any) -> Connection:
    """The opening side; no SASL layer unless `mechanism` says so."""
    return Connection(Settings(container_id="c", **changes), server=False, now=NOW)


def hear(side: Connection, data: bytes, now: float = NOW) -> list[Any]:
    """What the bytes mean to that side; each test knows which events it expects."""
    return list(side.receive(data, now))


def tick(side: Connection, now: float) -> list[Any]:
    """What the passing of time means to that side."""
    return list(side.tick(now))


def pump(first: Connection, second: Connection, *, cut: int = 0, now: float = NOW) -> tuple[list[Any], list[Any]]:
    """Carry bytes both ways until none are left; `cut` bytes at a time (0: all at once). Events of each side."""
    events: tuple[list[Any], list[Any]] = ([], [])
    for _ in range(10_000):
        there, back = b"".join(first.take_output(now)), b"".join(second.take_output(now))
        if not there and not back:
            return events
        for data, side, into in ((there, second, events[1]), (back, first, events[0])):
            step = cut or len(data) or 1
            for at in range(0, len(data), step):
                into += side.receive(data[at : at + step], now)
    raise AssertionError("the two sides never come to rest")


class Pair:
    """A client and a server with a session; `links` attaches one link and accepts it."""

    def __init__(
        self, client_settings: dict[str, Any] | None = None, server_settings: dict[str, Any] | None = None
    ) -> None:
        self.client = client(**(client_settings or {}))
        self.server = server(**(server_settings or {}))
        self.session: Session = self.client.begin()
        self.client_events: list[ConnEvent] = []
        self.server_events: list[ConnEvent] = []
        self.pump()

    def pump(self, *, cut: int = 0) -> tuple[list[Any], list[Any]]:
        """New events of client and server."""
        mine, theirs = pump(self.client, self.server, cut=cut)
        self.client_events += mine
        self.server_events += theirs
        return mine, theirs

    def sender(self, name: str = "to", **terms: Any) -> tuple[Sender, Receiver]:
        """(client's sender, server's receiver), attached."""
        mine = self.session.attach_sender(name, Source("here"), Target("q"), **terms)
        theirs = accepted(self.pump()[1])
        self.pump()
        assert isinstance(theirs, Receiver) and mine.attached and theirs.attached
        return mine, theirs

    def receiver(self, name: str = "from", source: Source | None = None, **terms: Any) -> tuple[Receiver, Sender]:
        """(client's receiver, server's sender), attached."""
        mine = self.session.attach_receiver(name, source or Source("q"), Target("here"), **terms)
        theirs = accepted(self.pump()[1])
        self.pump()
        assert isinstance(theirs, Sender) and mine.attached and theirs.attached
        return mine, theirs


def accepted(events: list[ConnEvent]) -> Any:
    """Accept the one link that was attached; return it."""
    (link,) = [event.link for event in events if isinstance(event, LinkAttached) and event.remote_initiated]
    link.accept()
    return link


def of(kind: type, events: list[ConnEvent]) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def performatives(data: bytes) -> list[tuple[int, Any, bytes]]:
    """(channel, performative or None for an empty frame, payload) of each AMQP or SASL frame, headers skipped."""
    found = []
    at = 0
    while at < len(data):
        if data[at : at + 4] == b"AMQP":
            at += 8
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        channel = int.from_bytes(data[at + 6 : at + 8], "big")
        body = data[at + 4 * data[at + 4] : at + size]
        at += size
        if not body:
            found.append((channel, None, b""))
            continue
        value, end = decode_composite(body)
        found.append((channel, value, body[end:]))
    return found


def wire(*values: Any, channel: int = 0) -> bytes:
    """Frames of these performatives; a tuple is (performative, payload)."""
    out = b""
    for value in values:
        performative, payload = value if isinstance(value, tuple) else (value, b"")
        out += frame(channel, encoding.encode(performative) + payload)
    return out


def long_form(body: bytes) -> bytes:
    """A composite written as a list8, written as a list32, as some clients do."""
    return body[:3] + b"\xd0" + (body[4] + 3).to_bytes(4, "big") + body[5].to_bytes(4, "big") + body[6:]


def said(connection: Connection, kind: type | None = None) -> list[Any]:
    """The performatives that the connection wants to send, only of one kind if given."""
    found = [value for _, value, _ in performatives(b"".join(connection.take_output(NOW)))]
    return [value for value in found if kind is None or isinstance(value, kind)]
