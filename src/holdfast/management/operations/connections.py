"""The operations of `$management` about connections, sessions and the links that peers have attached
(docs/management.md).

Rules of this file: a connection is identified by its number, which is unique until the node stops; a session by its
connection and channel, an attachment by its handle too. A connection is closed with the reason, and has as much time to
close as a refused one.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast.amqp.connection import ConnEvent, Link, Receiver, Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Source, Target
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.entity_types import ATTACHMENT, CONNECTION, SESSION
from holdfast.errors import LocalProtocolError
from holdfast.management.operations.answers import Answer, Refused
from holdfast.management.operations.changes import done_to
from holdfast.management.operations.entities import EntityType
from holdfast.management.operations.operation import Operation, Table
from holdfast.peers.connections import Connections
from holdfast.peers.limits.refusals import Refusals
from holdfast.peers.peer import Peer

CONNECTION_ATTRIBUTES: Final = (
    "container_id", "user", "address", "tls", "certificate", "kind", "sessions", "links", "bytes_in", "writable",
    "paused",
)  # fmt: skip
SESSION_ATTRIBUTES: Final = ("connection", "channel", "links")
ATTACHMENT_ATTRIBUTES: Final = ("connection", "direction", "address", "credit", "session")
CLOSED: Final = "closed by an operator"
FORCED: Final = Error(Symbol(conditions.DETACH_FORCED), CLOSED)
DEPTHS: Final = {"connection": 1, "session": 2, "attachment": 3}
"""How many numbers the identity of each has."""


class Attachment(NamedTuple):
    """A link that a peer has attached; `place`: connection, channel, handle."""

    place: tuple[int, int, int]
    link: Link


class ConnectionOperations:
    """What there is of connections, sessions and attachments; CLOSE of each."""

    def __init__(self, connections: Connections, refusals: Refusals) -> None:
        self._connections = connections
        self._refusals = refusals

    def register(self, table: Table) -> None:
        table |= {
            (CONNECTION, "CLOSE"): Operation(self.close, done_to("connection", "closed"), in_memory=True),
            (SESSION, "CLOSE"): Operation(self.close_session, done_to("session", "closed"), in_memory=True),
            (ATTACHMENT, "CLOSE"): Operation(self.close_attachment, done_to("attachment", "closed"), in_memory=True),
        }

    def types(self) -> tuple[EntityType, ...]:
        """The attributes of QUERY."""
        return (
            EntityType(CONNECTION, CONNECTION_ATTRIBUTES, self._keys, self._connection),
            EntityType(SESSION, SESSION_ATTRIBUTES, self._sessions, self._session),
            EntityType(ATTACHMENT, ATTACHMENT_ATTRIBUTES, self._attachments, self._attachment),
        )

    def close(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Closes a connection as the specification says; its peer may connect again. 409 if it is being closed
        already."""
        found, _ = self._found(host, "connection", name)
        found.why_closed = CLOSED
        found.log("INFO", f"connection {CLOSED}")
        found.amqp.close(Error(Symbol(conditions.CONNECTION_FORCED), CLOSED))
        found.touch()
        self._refusals.closing(found)
        return Answer(200, "OK", {"closed": name})

    def close_session(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """Ends a session, and with it its links; what they held unsettled is offered again. Refused for one of a
        neighbour, whose connection is of no use without it."""
        found, (channel,) = self._client(host, "session", name)
        if channel not in {each.channel for each in found.amqp.sessions}:
            raise Refused(404, f"no session {name!r}")
        return self._forced(found, "session", name, lambda: found.amqp.force_end(channel, FORCED))

    def close_attachment(self, host: str, name: str, arguments: dict[str, Any]) -> Answer:
        """The same with one link."""
        found, (channel, handle) = self._client(host, "attachment", name)
        if (found.number, channel, handle) not in {each.place for each in _links(found)}:
            raise Refused(404, f"no attachment {name!r}")
        return self._forced(found, "attachment", name, lambda: found.amqp.force_detach(channel, handle, FORCED))

    def _forced(self, found: Peer, what: str, name: str, force: Callable[[], list[ConnEvent]]) -> Answer:
        try:
            told = force()
        except LocalProtocolError:
            raise Refused(409, f"{what} {name!r} is being opened or closed") from None
        found.log("INFO", f"{what} {name} {CLOSED}")
        self._connections.told(found, told)
        return Answer(200, "OK", {"closed": name})

    def _client(self, host: str, what: str, name: str) -> tuple[Peer, tuple[int, ...]]:
        found, rest = self._found(host, what, name)
        if found.neighbour is not None:
            raise Refused(409, f"{what} {name!r} is a neighbour's; close its connection, which comes again")
        return found, rest

    def _found(self, host: str, what: str, name: str) -> tuple[Peer, tuple[int, ...]]:
        """The connection of that identity, and the numbers behind it. Refused."""
        parts = name.split("/", DEPTHS[what])
        is_identity = len(parts) == DEPTHS[what] and all(map(_is_number, parts))
        number, *rest = map(int, parts) if is_identity else (-1,)
        found = self._connections.get(number)
        if found is None or found.host != host:
            raise Refused(404, f"no {what} {name[:60]!r}")
        if not found.amqp.usable:
            raise Refused(409, f"connection {number} is being opened or closed")
        return found, tuple(rest)

    # ------------------------------------------------------------------------------------------------ rows

    def _keys(self, host: str, after: str) -> list[int]:
        (first,) = _numbers(after, 1)
        return sorted(number for number, peer in self._connections.items() if number > first and peer.host == host)

    def _connection(self, number: int) -> dict[str, Any]:
        peer = self._connections[number]
        sessions = list(peer.amqp.sessions)
        opened = peer.amqp.remote_open
        return {
            "name": peer.name,
            "identity": str(number),
            "container_id": None if opened is None else str(opened.container_id),
            "user": peer.amqp.authenticated_user,
            "address": peer.address,
            "tls": peer.tls_version,
            "certificate": peer.certificate,
            "kind": "neighbour" if peer.neighbour is not None else "client" if peer.remote is None else "remote",
            "sessions": len(sessions),
            "links": sum(len(session.links) for session in sessions),
            "bytes_in": Ulong(peer.heard_bytes),
            "writable": peer.writable,
            "paused": sorted(peer.pauses),
        }

    def _sessions(self, host: str, after: str) -> list[tuple[int, int]]:
        first = _numbers(after, 2)
        of_host = (peer for peer in self._connections.values() if peer.host == host)
        found = ((peer.number, session.channel) for peer in of_host for session in peer.amqp.sessions)
        return sorted(place for place in found if place > first)

    def _session(self, place: tuple[int, int]) -> dict[str, Any]:
        number, channel = place
        (links,) = (len(each.links) for each in self._connections[number].amqp.sessions if each.channel == channel)
        identity = f"{number}/{channel}"
        return {"name": identity, "identity": identity, "connection": str(number), "channel": channel, "links": links}

    def _attachments(self, host: str, after: str) -> list[Attachment]:
        first = _numbers(after, 3)
        found = (each for peer in self._connections.values() if peer.host == host for each in _links(peer))
        return sorted((each for each in found if each.place > first), key=attrgetter("place"))

    def _attachment(self, found: Attachment) -> dict[str, Any]:
        place, link = found
        terminus = link.target if isinstance(link, Receiver) else link.source
        address = terminus.address if isinstance(terminus, (Source, Target)) else None
        return {
            "name": link.name,
            "identity": "/".join(map(str, place)),
            "connection": str(place[0]),
            "direction": "in" if isinstance(link, Receiver) else "out",
            "address": address if isinstance(address, str) else None,
            "credit": link.credit if isinstance(link, (Receiver, Sender)) else 0,
            "session": place[1],
        }


def _links(peer: Peer) -> Iterator[Attachment]:
    for session in peer.amqp.sessions:
        for handle, link in session.links.items():
            yield Attachment((peer.number, session.channel, handle), link)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def _numbers(identity: str, count: int) -> tuple[int, ...]:
    """The numbers of an identity; if it is empty, numbers below all others."""
    if not identity:
        return (-1,) * count
    parts = identity.split("/", count)
    if len(parts) != count or not all(map(_is_number, parts)):
        expected = "/".join(["NUMBER"] * count)
        raise Refused(400, f"invalid value {identity[:60]!r} for after; expected an identity, {expected}")
    return tuple(map(int, parts))
