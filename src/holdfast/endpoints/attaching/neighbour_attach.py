"""Links that only neighbours may attach: the control link, and those of hops (CUSTODY, "The session", "The hop").

Rules of this file: a refusal tells a peer that is not a neighbour why, and how to become one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire import conditions
from holdfast.broker.entries.host_names import host_of, node_of
from holdfast.custody.hop import sender as hops
from holdfast.custody.hop.receiver import CustodyReceiver, ReceiverParts
from holdfast.endpoints.addresses.attach import AttachTable
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.engine.effects import LinkEffect
from holdfast.engine.log import Log
from holdfast.links.ingress import NODE_MESSAGE_BYTES_MAX
from holdfast.peering.control import CONTROL_ADDRESS, CONTROL_CREDIT, ControlOwner, ControlReceiver
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer
from holdfast.state.turns import Turns


@dataclass(frozen=True, slots=True, eq=False)
class AnswerHop(LinkEffect):
    """Answers the attach of a hop's link. `continues`: the epoch that its sender continues."""

    link: CustodyReceiver = field(repr=False)
    continues: object


class NeighbourAttach:
    """Answers such attaches; `name` is the node's."""

    def __init__(
        self,
        name: str,
        log: Log,
        turns: Turns,
        links: LinkTables,
        resolver: Resolver,
        neighbours: Mapping[str, ControlOwner],
        parts: ReceiverParts,
        *,
        why_no_neighbour: Callable[[Peer], str],
    ) -> None:
        self._name = name
        self._log = log
        self._turns = turns
        self._links = links
        self._resolver = resolver
        self._neighbours = neighbours
        self._parts = parts
        self._why_no_neighbour = why_no_neighbour
        turns.effects.on(AnswerHop, _answer_hop)

    def serve(self, table: AttachTable) -> None:
        table.serve(CONTROL_ADDRESS, receive=self.receive_control, send=self.send_control, vital=True)
        table.serve(hops.CUSTODY_ADDRESS, receive=self.receive_custody)

    def receive_control(self, peer: Peer, link: Receiver, _: Any) -> None:
        neighbour = self._of(peer)
        if peer.has_control:
            raise Refusal(conditions.NOT_ALLOWED, "this connection has, or had, a control link already")
        peer.has_control = True
        link.context = ControlReceiver(self._log, peer, link, neighbour)
        link.accept(max_message_size=NODE_MESSAGE_BYTES_MAX)
        link.grant(CONTROL_CREDIT)

    def send_control(self, peer: Peer, link: Sender, _: Any) -> None:
        raise Refusal(conditions.NOT_ALLOWED, f"{CONTROL_ADDRESS} cannot be a source; attach to it as a target")

    def receive_custody(self, peer: Peer, link: Receiver, _: Any) -> None:
        neighbour = self._of(peer)
        properties = (link.remote_attach.properties or {}) if link.remote_attach is not None else {}
        destination, epoch = properties.get(hops.DESTINATION), properties.get(hops.EPOCH)
        if not isinstance(destination, str) or not isinstance(epoch, UUID):
            text = f"invalid properties; expected {hops.DESTINATION}, a string, and {hops.EPOCH}, a UUID"
            raise Refusal(conditions.INVALID_FIELD, text)
        host = host_of(destination)
        if not self._parts.hops[neighbour.name].takes(destination):
            text = f"{self._name!r} takes nothing of virtual host {host[:60]!r} from neighbour {neighbour.name!r}"
            raise Refusal(conditions.NOT_ALLOWED, f"{text}; add it to hosts of its [[neighbour]] there")
        if node_of(destination) != self._name:
            self._resolver.transmission(str(destination))
        receiver = CustodyReceiver(
            self._parts, peer, link, neighbour=neighbour.name, destination=str(destination), epoch=epoch
        )
        older = self._links.custody_receivers.get(receiver.key)
        if older is not None:
            older.fence()
        self._links.custody_receivers[receiver.key] = receiver
        link.context = receiver
        continues = properties.get(hops.CONTINUES)
        self._turns.gathered.then.append(AnswerHop(self._turns.event, peer.number, link.name, receiver, continues))

    def _of(self, peer: Peer) -> ControlOwner:
        if peer.neighbour is None:
            raise Refusal(conditions.UNAUTHORIZED_ACCESS, self._why_no_neighbour(peer))
        return self._neighbours[peer.neighbour.name]


def _answer_hop(effect: AnswerHop) -> None:
    effect.link.answer(effect.continues)
