"""What each operation of `$management` takes: which actions at which addresses (docs/security.md has the table).

Rules of this file: it only looks. What a request asks for is hostile until checked; an address that is none is refused
by its operation, which then does nothing. An operation that is not listed here is an administrator's.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from holdfast.access.actions import (
    ADMINISTER,
    BROWSE,
    CREATE,
    DELETE,
    LINK_FROM,
    LINK_TO,
    NODE,
    RECEIVE,
    RELAY,
    SEND,
)
from holdfast.broker.entries.address import Address
from holdfast.broker.entries.host_names import HostedName, hosted
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.addresses.services import SERVICE_PREFIX
from holdfast.management.operations.answers import ENTRY, LINK, MANAGEMENT, QUEUE, SERVICE, SUBSCRIPTION
from holdfast.queue_links.link import QueueLink

Right = tuple[str, str]
"""(action, address), as an `Authoriser` is asked."""

OF_QUEUES: Final[Mapping[tuple[str, str], str]] = {
    (QUEUE, "READ"): BROWSE,
    (QUEUE, "CREATE"): CREATE,
    (QUEUE, "UPDATE"): ADMINISTER,
    (QUEUE, "DELETE"): DELETE,
    (QUEUE, "PURGE"): DELETE,
    (QUEUE, "SKIP"): ADMINISTER,
    (ENTRY, "QUERY"): BROWSE,
    (ENTRY, "READ"): BROWSE,
    (ENTRY, "DELETE"): DELETE,
    (ENTRY, "REQUEUE"): ADMINISTER,
    (ENTRY, "MOVE"): RECEIVE,
    (ENTRY, "COPY"): BROWSE,
}
"""What is asked about at the queue that the request names."""

FREE: Final = frozenset(("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-MGMT-NODES"))
"""Of the management node: what is the same at every node, and says nothing of this one."""


class Rights:
    """Finds what a request takes. `links`: the links between queues, by name."""

    def __init__(self, resolver: Resolver, links: Callable[[HostedName], QueueLink | None]) -> None:
        self._resolver = resolver
        self._links = links

    def of(self, host: str, kind: str, operation: str, name: str, arguments: Mapping[str, Any]) -> Iterator[Right]:
        """All that it takes; nothing for an operation that everybody may ask for."""
        if kind == MANAGEMENT and operation in FREE:
            return
        if kind == SUBSCRIPTION:
            queue = arguments.get("queue")
            yield (RECEIVE, queue) if isinstance(queue, str) and queue else (ADMINISTER, NODE)
            if operation == "OPEN" and isinstance(queue, str) and self._resolver.makes(Address(queue, None, host)):
                yield CREATE, queue
        elif kind == LINK and operation == "CREATE":
            yield from self._of_link(host, arguments.get("from"), arguments.get("to"))
        elif kind == LINK and operation != "QUERY" and (link := self._links(hosted(host, name))) is not None:
            yield from self._of_link(host, link.config.source, link.config.target)
        elif (kind, operation) == (SERVICE, "READ"):
            yield from self._to(host, f"{SERVICE_PREFIX}{name}", SEND)
        elif (kind, operation) in OF_QUEUES and name:
            yield OF_QUEUES[kind, operation], name
            if operation in ("MOVE", "COPY"):
                yield from self._to(host, arguments.get("to"), SEND)
        else:
            yield ADMINISTER, NODE

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
