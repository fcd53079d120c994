"""The anonymous terminus: a link without a target address, on which each message's `to` says where it goes (AMQP
Anonymous Terminus for Message Routing 1.0; CLIENTS 33).

Rules of this file: an error of one message is that message's outcome, and the link continues. A full queue rejects
messages here even if it blocks its own producers, because withheld credit, or a waiting message, would block all other
addresses of the link.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.access.actions import NODE, SEND
from holdfast.amqp.connection import Delivery, Receiver
from holdfast.amqp.effort import ADDRESSED, LOOKED_UP, MADE, REFUSED
from holdfast.amqp.message.message import to_of
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import TransactionalState
from holdfast.endpoints.addresses.attach import QUEUE_EFFORT
from holdfast.endpoints.addresses.link_refusal import Refusal, permit, plain_address
from holdfast.endpoints.addresses.resolver import MANAGEMENT, ResolvedAddress
from holdfast.endpoints.addresses.services import SERVICE_PREFIX
from holdfast.endpoints.producer import ProducerLink, ProducerParts
from holdfast.errors import RemoteProtocolError
from holdfast.links.incoming import Intake
from holdfast.links.ingress import NODE_MESSAGE_BYTES_MAX, rejection
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer

ROUTES_MAX: Final = 256
"""Addresses that one link remembers; the oldest is looked up anew when it comes again."""


class Requests(Protocol):
    """Handles requests to `$management` on a link without an address."""

    def delivered(self, delivery: Delivery) -> None: ...
    def gone(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RelayParts(ProducerParts):
    """What links without an address use besides `ProducerParts`. `requests` creates the handler of their requests."""

    requests: Callable[[Peer, Receiver], Requests]


class Route(ProducerLink):
    """Where a relay sends messages for one address. It keeps no reference to the queue, so a deleted queue is looked up
    again."""

    parts: RelayParts

    may_wait = False

    def __init__(self, relay: "RelayLink", found: ResolvedAddress, address: str, action: str) -> None:
        """`address`: in the node's own form. `action`: what is asked about there for each message; "" for nothing."""
        super().__init__(
            relay.parts, relay.peer, relay.link, found.queue,
            destination=found.destination, to=found.to, unknown=found.unknown, subject=found.subject,
        )  # fmt: skip
        self.relay = relay
        self.address = address
        self.action = action
        self.parts.links.producers_of(self.queue).pop(self)

    @property
    def is_valid(self) -> bool:
        """Whether the address still leads there: the queue is the same, and the other node has not left."""
        parts = self.parts
        if not parts.catalog.has(self.queue):
            return False
        return self.destination is None or parts.resolver.knows(self.destination)

    def refill(self) -> None:
        self.relay.refill()

    def wait_for_room(self) -> None:
        """Does nothing: its relay has the messages, and outlives it."""
        self.relay.wait_for_room()

    def waited_ms(self, delivery_id: int) -> int:
        return self.relay.waited_ms(delivery_id)


class RelayLink(Intake):
    """A client's sender without an address."""

    parts: RelayParts

    def __init__(self, parts: RelayParts, peer: Peer, link: Receiver) -> None:
        super().__init__(parts, peer, link)
        self.routes: dict[str, Route] = {}
        self.requests = parts.requests(peer, link)
        parts.links.relays[self] = None

    def refill(self) -> None:
        """Called once a turn while messages arrive, and when the store reports its room."""
        self.take_parked()
        if self.parts.disk.takes_nothing:
            self.stop()
            self.wait_for_room()
        elif not self.parked:
            self.top_up(self.parts.limits.credit)

    def gone(self) -> None:
        super().gone()
        self.requests.gone()
        self.parts.links.relays.pop(self, None)
        self.routes.clear()

    def begins(self, stream: Stream, head: bytes) -> None:
        try:
            address = self._address(head)
            if address == MANAGEMENT:
                text = f"the message to {MANAGEMENT} is too large; the limit is {NODE_MESSAGE_BYTES_MAX} bytes"
                raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
            resolver = self.parts.resolver
            resolver.permit(self.peer, SEND, resolver.target_of(address, self.peer.host))
            stream.address = address
        except Refusal as error:
            stream.fail(error.condition, error.description)

    def take(self, delivery: Delivery, *, large: Stream | None) -> bool:
        self.peer.amqp.took(ADDRESSED)
        try:
            address = self._address(delivery.payload)
        except (Refusal, RemoteProtocolError) as error:
            return self._reject(delivery, error)
        if address == MANAGEMENT:
            return self._request(delivery)
        return self._take_for(address, delivery, large=large)

    def in_transaction(self, delivery: Delivery, state: TransactionalState) -> bool:
        work = self.parts.transactional_work
        self.peer.amqp.took(ADDRESSED)
        try:
            address = self._address(delivery.payload)
            if address == MANAGEMENT:
                text = f"a request to {MANAGEMENT} cannot be a part of a transaction; send it without one"
                raise Refusal(conditions.NOT_IMPLEMENTED, text)
            return work.post(self._route(address), delivery, state)
        except (Refusal, RemoteProtocolError) as error:
            return work.refuse(self, delivery, state, error)

    def large_in_transaction(self, stream: Stream, state: TransactionalState) -> bool:
        return self.parts.transactional_work.begin_large(self.peer, stream, state)

    def take_in_transaction(self, stream: Stream, state: TransactionalState) -> None:
        work = self.parts.transactional_work
        try:
            route = self._route(stream.address or "") if stream.outcome is None else self
            work.post_large(route, stream, state)
        except (Refusal, RemoteProtocolError) as error:
            work.refuse(self, stream.delivery(), state, error)

    def _request(self, delivery: Delivery) -> bool:
        try:
            permit(self.parts.resolver.authoriser, self.peer, SEND, NODE)
        except Refusal as error:
            return self._reject(delivery, error)
        self.requests.delivered(delivery)
        return True

    def take_whole(self, stream: Stream) -> bool:
        assert stream.address is not None
        return self._take_for(stream.address, stream.delivery(), large=stream)

    def _take_for(self, address: str, delivery: Delivery, *, large: Stream | None) -> bool:
        try:
            return self._route(address).take(delivery, large=large)
        except (Refusal, RemoteProtocolError) as error:
            return self._reject(delivery, error)

    def _reject(self, delivery: Delivery, error: Refusal | RemoteProtocolError) -> bool:
        self.peer.amqp.took(REFUSED)
        outcome = rejection(error.condition, error.description)
        self.settle_one(delivery.delivery_id, delivery.settled, outcome)
        return True

    def _address(self, payload: bytes) -> str:
        """Where the message says it goes."""
        bytes_max = self.parts.limits.annotation_bytes_max
        address = plain_address(to_of(payload, bytes_max))
        if not isinstance(address, str):
            text = "on a link without a target address every message needs the property `to`"
            raise Refusal(conditions.PRECONDITION_FAILED, text)
        return str(address)

    def _moved(self, address: str, route: Route) -> bool:
        """Whether it is the name of a service whose address has changed."""
        if not address.startswith(SERVICE_PREFIX):
            return False
        return str(self.parts.resolver.address_of(address, self.peer.host)) != route.address

    def _route(self, address: str) -> Route:
        """Where that address leads; Refusal as for an attach to it. The permission is checked for each message, because
        it can change while the link is attached."""
        routes, resolver = self.routes, self.parts.resolver
        route = routes.get(address)
        if route is not None and route.is_valid and not self._moved(address, route):
            if route.action:
                permit(resolver.authoriser, self.peer, route.action, route.address)
            resolver.admit(route.queue, route.destination)
            return route
        amqp = self.peer.amqp
        amqp.took(LOOKED_UP)
        queues = self.parts.catalog.next_queue_id
        meant = resolver.target_of(address, self.peer.host)
        action = resolver.permit(self.peer, SEND, meant)
        route = Route(self, resolver.resolve(meant), str(meant), action)
        resolver.admit(route.queue, route.destination)
        if self.parts.catalog.next_queue_id != queues:
            amqp.took(MADE)
            amqp.charge_late(QUEUE_EFFORT, self.parts.clock.now)
        routes.pop(address, None)
        if route.unknown is not None:  # looked up again each time: the node may be known by then
            return route
        if len(routes) >= ROUTES_MAX:
            del routes[next(iter(routes))]
        routes[address] = route
        return route
