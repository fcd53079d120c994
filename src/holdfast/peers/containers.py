"""One connection for a container that asks for it (AMQP Sole Connection Enforcement; CLIENTS 36).

Rules of this file: a container-id is only a claim, so an open connection is never closed for another one: the later one
is refused. Containers that do not ask for this may share an id, as the connections of one program do. A neighbour's
name belongs to its session's connection, even if another connection uses it. Ids of other users do not count, so that
no user can keep another one out by using its container-id.
"""

from collections.abc import Container, Mapping
from typing import Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Open
from holdfast.amqp.wire.types import Symbol
from holdfast.peers.peer import Peer

SOLE: Final = Symbol("sole-connection-for-container")
ESTABLISHMENT_FAILED: Final = Symbol("amqp:connection-establishment-failed")


def answer_open(
    connections: Mapping[int, Peer], neighbours: Container[str], theirs: Open, ours: Open, *, host: str, who: str | None
) -> Error | None:
    """Offers `sole-connection-for-container` to a container that asks for it; returns the error for a second connection
    of such a container. Containers in other virtual hosts, and of other users than `who`, do not count."""
    asks = asks_to_be_sole(theirs)
    for peer in connections.values():
        other = peer.amqp.remote_open
        if (
            other is None
            or other is theirs
            or other.container_id != theirs.container_id  # nothing is called for the other clients
            or peer.host != host
            or peer.who != who
            or not peer.amqp.usable
        ):
            continue
        if theirs.container_id in neighbours and peer.neighbour is None:
            continue  # it only has a neighbour's name, and must not block the neighbour
        if asks or asks_to_be_sole(other):
            ours.properties = {**(ours.properties or {}), ESTABLISHMENT_FAILED: True}
            text = f"container-id {theirs.container_id[:60]!r}: that container has a connection already"
            return Error(Symbol(conditions.INVALID_FIELD), text, {Symbol("invalid-field"): Symbol("container-id")})
    if asks and theirs.container_id not in neighbours:
        ours.offered_capabilities = (*(ours.offered_capabilities or ()), SOLE)
    return None


def asks_to_be_sole(opened: Open) -> bool:
    """Whether the container asks to have no second connection, so that its id is unique."""
    return SOLE in (opened.desired_capabilities or ())
