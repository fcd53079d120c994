"""Which permissions the operations of `$management` need (docs/security.md has the table).

Rules of this file: it only looks. What a request asks for is hostile until checked; an invalid address is left to the
operation, which refuses it. One method for each kind of need, (host, name, arguments) -> actions at addresses; an
operation's record names the method.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.access.actions import ADMINISTER, CREATE, LINK_FROM, LINK_TO, NODE, RECEIVE, RELAY, SEND
from holdfast.broker.entries.address import Address
from holdfast.broker.entries.host_names import HostedName, hosted
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.addresses.services import SERVICE_PREFIX
from holdfast.queue_links.link import QueueLink

Right = tuple[str, str]
"""(action, address), as an `Authoriser` is asked."""

Arguments = Mapping[str, Any]


class Rights:
    """Finds what a request needs. `links`: the links between queues, by name."""

    def __init__(self, resolver: Resolver, links: Callable[[HostedName], QueueLink | None]) -> None:
        self._resolver = resolver
        self._links = links

    def of_administrator(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        yield ADMINISTER, NODE

    def of_everybody(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        """Of an operation whose answer is the same at every node, and says nothing of this one."""
        yield from ()

    def of_subscription(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        queue = arguments.get("queue")
        yield (RECEIVE, queue) if isinstance(queue, str) and queue else (ADMINISTER, NODE)

    def of_opening(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        """Of a subscription that is made, perhaps with its queue."""
        yield from self.of_subscription(host, name, arguments)
        queue = arguments.get("queue")
        if isinstance(queue, str) and self._resolver.makes(Address(queue, None, host)):
            yield CREATE, queue

    def of_new_link(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        yield from self._of_link(host, arguments.get("from"), arguments.get("to"))

    def of_link(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        link = self._links(hosted(host, name))
        if link is None:
            yield ADMINISTER, NODE
        else:
            yield from self._of_link(host, link.config.source, link.config.target)

    def of_service(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        """Of a service that is used."""
        yield from self._to(host, f"{SERVICE_PREFIX}{name}", SEND)

    def of_target(self, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        """Of the address to which a message is moved or copied."""
        yield from self._to(host, arguments.get("to"), SEND)

    def _of_link(self, host: str, source: object, target: object) -> Iterator[Right]:
        """A link takes from one queue, and sends to another, as long as it is there."""
        if isinstance(source, str) and source:
            yield LINK_FROM, source
            if self._resolver.makes(Address(source, None, host)):
                yield CREATE, source
        else:
            yield ADMINISTER, NODE
        yield from self._to(host, target, LINK_TO)

    def _to(self, host: str, address: object, action: str) -> Iterator[Right]:
        """The permission to send messages to that address."""
        try:
            meant = self._resolver.target_of(address, host) if isinstance(address, str) else None
        except Refusal:
            meant = None
        if meant is None:  # the operation refuses it as well
            yield ADMINISTER, NODE
            return
        if action != SEND or meant.node is None:
            yield action, str(meant)
        if meant.node is not None:
            yield RELAY, str(meant)
        elif self._resolver.makes(meant):
            yield CREATE, str(meant)


def at_queue(action: str) -> Callable[[Rights, str, str, Arguments], Iterator[Right]]:
    """That permission at the queue that the request names; an administrator's where it names none."""

    def needs(rights: Rights, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        yield (action, name) if name else (ADMINISTER, NODE)

    return needs


def from_queue(action: str) -> Callable[[Rights, str, str, Arguments], Iterator[Right]]:
    """The same, and to send to the address to which the message goes."""

    def needs(rights: Rights, host: str, name: str, arguments: Arguments) -> Iterator[Right]:
        if name:
            yield action, name
            yield from rights.of_target(host, name, arguments)
        else:
            yield ADMINISTER, NODE

    return needs
