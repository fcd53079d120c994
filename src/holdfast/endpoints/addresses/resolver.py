"""Which queue an address means at this node: for links, and for messages that carry their own address.

Rules of this file: an address is hostile until checked; an invalid one raises Refusal. The permission is checked before
anything is created for it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdfast.access.actions import BROWSE, CREATE, RECEIVE, RELAY, SEND
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.broker.entries.address import Address, parse, split_topic
from holdfast.broker.entries.host_names import destination_of, node_of
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.custody.forwarding import Forwarding
from holdfast.endpoints.addresses.browsing import browses
from holdfast.endpoints.addresses.dynamic_nodes import (
    PREFIX,
    TEMPORARY_TOPIC,
    DynamicNodes,
    Temporary,
    properties_of,
)
from holdfast.endpoints.addresses.link_refusal import Refusal, permit
from holdfast.endpoints.addresses.remote_queues import RemoteQueues
from holdfast.endpoints.addresses.services import SERVICE_PREFIX, Services
from holdfast.errors import ConfigError
from holdfast.names import DEAD_LETTERS, check_name
from holdfast.peers.authorise import Authoriser
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import DELAYED, WAITING, Catalog, TooManyQueues
from holdfast.state.on_demand import makes

MANAGEMENT: Final = "$management"
"""Where requests go, and where the answers to them come from (management/requests.py)."""


class ResolvedAddress(NamedTuple):
    """Where messages for an address go: `queue` holds them; `destination` and `to` are set for another node. `unknown`:
    that other node, if it is unknown and `queue` is that of the dead letters. `subject`: the part after the name of a
    topic, of which `queue` is the log.
    """

    queue: Queue
    destination: str | None
    to: str
    unknown: str | None = None
    subject: str = ""


class Resolver:
    """Finds the queue of an address, and creates it if the node creates queues on demand."""

    def __init__(
        self,
        config: NodeConfig,
        catalog: Catalog,
        forwarding: Forwarding,
        remotes: RemoteQueues,
        dynamic_nodes: DynamicNodes,
        services: Services,
        authoriser: Authoriser,
        admit: Callable[[Queue, str | None], None],
    ) -> None:
        """`admit(queue, destination)` raises Refusal where that queue, or that other node, takes no new messages."""
        self._config = config
        self._catalog = catalog
        self._forwarding = forwarding
        self._remotes = remotes
        self._dynamic_nodes = dynamic_nodes
        self.services = services
        self.authoriser = authoriser
        self.knows = forwarding.knows
        self.admit = admit

    def address_of(self, text: str, host: str) -> Address:
        """Parses an address in that virtual host; the name of a service is the address that it is registered for."""
        if text.startswith(SERVICE_PREFIX):
            found = self.services.find(host, text[len(SERVICE_PREFIX) :])
            if found is None:  # refused once it is known that the peer may know this
                return Address(text, None, host)
            text = found
        if text == DEAD_LETTERS or text.startswith(PREFIX):
            return Address(text, None, host)
        if text == WAITING:
            text = "the queue belongs to the node, which moves a message from it once those before it have come"
            raise Refusal(conditions.INVALID_FIELD, f"{WAITING}: {text}; `holdfast status` says what is missing")
        if text == DELAYED:
            text = "the queue belongs to the node, which moves each message from it at its time"
            raise Refusal(conditions.INVALID_FIELD, f"{DELAYED}: {text}; `holdfast messages list` shows them")
        if text.startswith("$"):
            raise Refusal(conditions.NOT_FOUND, f"no address {text[:60]!r} at {self._config.name!r}")
        try:
            return parse(text, own_name=self._config.name, own_addresses=self._config.own_addresses, host=host)
        except ConfigError as error:
            raise Refusal(conditions.INVALID_FIELD, str(error)) from error

    def target_of(self, text: str, host: str) -> Address:
        """As `address_of`, for a client's messages: Refusal for the dead letters of any node. Messages that the node
        itself puts there, or that a neighbour has in custody, do not use this method."""
        if DEAD_LETTERS in (text, text.rpartition("@")[0]):
            text = f"clients cannot send to {DEAD_LETTERS}; only the node does, and clients receive from it"
            raise Refusal(conditions.NOT_ALLOWED, text)
        return self.address_of(text, host)

    def ask(self, peer: Peer, action: str, terminus: Source | Target, address: Any) -> None:
        """Refusal if the peer may not do that at the address of an attach; a dynamic one is checked as "". An invalid
        address is refused later, with the reason."""
        if action == RECEIVE and isinstance(terminus, Source) and browses(terminus):
            action = BROWSE
        if terminus.dynamic:
            permit(self.authoriser, peer, action, "")
        elif isinstance(address, str):
            try:
                meant = self._meant(peer, terminus, address)
            except Refusal:
                return
            self.permit(peer, action, meant)

    def permit(self, peer: Peer, action: str, meant: Address) -> str:
        """Refusal if the peer may not do that there. Returns the action to check for each message; "" if none is
        needed, because the dynamic node is the peer's own."""
        if meant.queue.startswith(PREFIX) and self._is_own(peer, meant):
            return ""
        if action == SEND and meant.node is not None:
            action = RELAY
        permit(self.authoriser, peer, action, str(meant))
        if self.makes(meant):
            permit(self.authoriser, peer, CREATE, str(meant))
        return action

    def makes(self, meant: Address) -> bool:
        """Whether using that address creates a queue or topic of this node."""
        return meant.node is None and makes(self._catalog, meant.host, meant.queue)

    def _is_own(self, peer: Peer, meant: Address) -> bool:
        """Whether the dynamic node was created by the peer's user."""
        found = self._catalog.find(meant.host, meant.queue)
        return isinstance(found, Temporary) and found.owner == peer.who

    def resolve(self, address: Address) -> ResolvedAddress:
        """Where messages for that address are stored or sent. The permission was checked before."""
        if address.node is None:
            queue = self._local(address.host, address.queue)
            subject = address.queue[len(queue.name) + 1 :] if queue.kind is QueueKind.TOPIC else ""
            return ResolvedAddress(queue, None, "", subject=subject)
        if self._remotes.knows(address.node):
            return ResolvedAddress(self._at_remote(address.host, address.node, address.queue), None, "")
        if not self._forwarding.may_leave(address.host):
            text = f"{address}: messages of virtual host {address.host!r}"
            why = "do not leave this node, since no [[neighbour]] lists it in hosts"
            raise Refusal(conditions.NOT_ALLOWED, f"{text} {why}; send to a queue of this node")
        topic = split_topic(address.queue)
        if topic is not None and topic[1]:
            text = f"{address}: a topic of another node takes no subject from an address; give the messages one"
            raise Refusal(conditions.NOT_IMPLEMENTED, text)
        if self._config.unknown_destination == "dead-letter" and not self._forwarding.knows(address.node):
            return ResolvedAddress(self._catalog.own(address.host, DEAD_LETTERS), None, address.queue, address.node)
        destination = destination_of(address.host, address.node)
        return ResolvedAddress(self.transmission(destination), destination, address.queue)

    def terminus(self, peer: Peer, terminus: Source | Target, address: Any) -> tuple[Any, ResolvedAddress]:
        """The terminus for the answer to an attach, and its queue; creates a dynamic one (§3.5.3, §3.5.4). `address` as
        `plain_address` returns it."""
        if not terminus.dynamic:
            if not isinstance(address, str):
                raise Refusal(conditions.NOT_IMPLEMENTED, "the terminus has no address; give it one")
            return terminus, self.resolve(self._meant(peer, terminus, address))
        nodes, wanted = self._dynamic_nodes, terminus.dynamic_node_properties
        is_topic = TEMPORARY_TOPIC in (terminus.capabilities or ())
        queue = nodes.create_topic(peer, wanted) if is_topic else nodes.create(peer, wanted)
        if queue is None:
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, nodes.bound_reached_text(peer, "dynamic nodes"))
        made = replace(terminus, address=queue.name, durable=0, dynamic_node_properties=properties_of(queue))
        return made, ResolvedAddress(queue, None, "")

    def _meant(self, peer: Peer, terminus: Source | Target, address: str) -> Address:
        return (self.target_of if isinstance(terminus, Target) else self.address_of)(address, peer.host)

    def _local(self, host: str, name: str) -> Queue:
        """The queue of that name in that host, created if the node creates queues on demand."""
        if name.startswith((PREFIX, SERVICE_PREFIX)):
            queue = self._catalog.find(host, name)
        else:
            try:
                queue = self._catalog.local(host, name)
            except TooManyQueues as error:
                raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, str(error)) from error
            except ConfigError as error:
                raise Refusal(conditions.INVALID_FIELD, str(error)) from error
        if queue is None:
            what = f"service {name[len(SERVICE_PREFIX) :]!r}" if name.startswith(SERVICE_PREFIX) else f"queue {name!r}"
            raise Refusal(conditions.NOT_FOUND, f"no {what} at {self._config.name!r}")
        return queue

    def _at_remote(self, host: str, remote: str, address: str) -> Queue:
        """The queue for an address at a remote."""
        try:
            return self._remotes.queue(remote, address, host)
        except TooManyQueues as error:
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, str(error)) from error
        except ConfigError as error:
            raise Refusal(conditions.NOT_ALLOWED, str(error)) from error

    def transmission(self, destination: str) -> Queue:
        """The transmission queue for another node, which must be known unless messages for unknown nodes are kept. The
        caller has checked that messages of its virtual host may leave."""
        node = check_name(node_of(destination))
        known = self._forwarding.knows(node)
        if not known and self._config.unknown_destination != "keep":
            self._forwarding.refused += 1
            raise Refusal(conditions.NOT_FOUND, f"{self._config.name!r} has no route to {node!r}")
        try:
            queue = self._catalog.transmission(destination, known=known)
        except TooManyQueues as error:
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, str(error)) from error
        self._forwarding.steer(destination)
        return queue
