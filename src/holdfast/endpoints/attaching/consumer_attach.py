"""What a client's receiver asks for, and the link that answers it (AMQP 1.0 §3.5; CLIENTS 13 to 17, 32, 34, 35, 39).

Rules of this file: everything in an attach is hostile until checked. Only filters that are applied are echoed; a link
that takes messages away is refused for any other, because it would be given what it did not ask for (ADR 0022).
"""

from dataclasses import replace
from typing import Any, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import END_SEQUENCE, START_SEQUENCE, SUBSCRIPTION, TELLS_PATH
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.queue import Queue
from holdfast.endpoints.addresses.dynamic_nodes import TemporaryQueue
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.attaching.subscriptions import LinkSubscriptions
from holdfast.endpoints.browser import ReaderLink, ReaderParts
from holdfast.endpoints.consumer import ConsumerLink, ConsumerParts
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.names import check_name
from holdfast.peers.peer import Peer
from holdfast.state.catalog import Catalog

COPY: Final = Symbol("copy")
MOVE: Final = Symbol("move")

OWN_FILTERS: Final = (START_SEQUENCE, END_SEQUENCE, SUBSCRIPTION)


class ConsumerAttach:
    """Answers the attaches of clients' receivers; `name` is the node's."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        resolver: Resolver,
        resume: Resumption,
        subscriptions: LinkSubscriptions,
        consumer_parts: ConsumerParts,
        reader_parts: ReaderParts,
    ) -> None:
        self._name = name
        self._catalog = catalog
        self._resolver = resolver
        self._resume = resume
        self._subscriptions = subscriptions
        self._consumer_parts = consumer_parts
        self._reader_parts = reader_parts

    def send(self, peer: Peer, link: Sender, address: Any) -> None:
        """`address` as `plain_address` has it. Raises Refusal, ConfigError, TooManyQueues."""
        attach = link.remote_attach
        source = attach.source if attach is not None else None
        if source is None:
            self._subscriptions.look_up(peer, link)
            return
        if not isinstance(source, Source):
            raise Refusal(conditions.NOT_IMPLEMENTED, "source: found none, accepted is one with an address")
        if isinstance(address, str) and not source.dynamic and address.startswith("@"):
            text = f"{address[:60]}: clients cannot receive from a transmission queue; use a queue of {self._name!r}"
            raise Refusal(conditions.NOT_ALLOWED, text)
        if isinstance(address, str) and not source.dynamic and self._resolver.address_of(address).node is not None:
            raise Refusal(
                conditions.NOT_FOUND, f"{address}: found a queue of another node, accepted is one of {self._name!r}"
            )
        if source.distribution_mode not in (None, MOVE, COPY):
            text = f"distribution-mode {source.distribution_mode!r}: accepted is {MOVE} or {COPY}"
            raise Refusal(conditions.NOT_IMPLEMENTED, text)
        start, end, held = _filters(source)
        copies = source.distribution_mode == COPY or start is not None
        if not copies:
            _check_taking(source)
        source, (queue, *_) = self._resolver.terminus(peer, source, address)
        presettled = attach is not None and attach.snd_settle_mode == 1
        echoed = replace(source, filter=_applied(source))
        if copies:
            if held is not None:
                _check_lease(queue, held)
            tells_path = attach is not None and TELLS_PATH in (attach.desired_capabilities or ())
            reader = ReaderLink(
                self._reader_parts, peer, link, queue, start=start, end=end, settled=presettled, tells_path=tells_path
            )
            _attached(link, reader, queue, echoed)
            queue.touch()
            return
        cursor = queue.shared
        if source.durable and str(source.expiry_policy) == "never":
            name = check_name(link.name)
            found = queue.named.get(name)
            full = self._catalog.subscriptions_full(queue) if found is None else None
            if full is not None:
                raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, full)
            if found is None:
                found = queue.add_cursor(name, "copy", queue.next_sequence)
            if found.mode != "copy":
                raise Refusal(
                    conditions.NOT_ALLOWED,
                    f"subscription {name!r} on queue {queue.name!r} is read by sequence, not by links",
                )
            for older in list(found.consumers):
                if isinstance(older, ConsumerLink):
                    older.detach_with(f"subscription {name!r} is read on a newer link", conditions.STOLEN)
            cursor = found
        elif queue.taken_by is not None:
            text = f"queue {queue.name!r} is taken by subscription {queue.taken_by!r}, which reads alone"
            raise Refusal(conditions.RESOURCE_LOCKED, text)
        if (
            presettled
            or isinstance(queue, TemporaryQueue)
            or not self._resume.consumer(peer, link, cursor, source, echoed)
        ):
            consumer = ConsumerLink(self._consumer_parts, peer, link, cursor, presettled=presettled)
            _attached(link, consumer, queue, replace(echoed, timeout=0))  # nothing is held for it


def _attached(link: Sender, context: ConsumerLink | ReaderLink, queue: Queue, source: Source) -> None:
    link.context = context
    if isinstance(queue, TemporaryQueue) and source.dynamic:
        queue.creator = context
    tells_path = isinstance(context, ReaderLink) and context.tells_path
    link.accept(source=source, offered_capabilities=(TELLS_PATH,) if tells_path else None)


def _check_taking(source: Source) -> None:
    """A link that takes messages away can have no filter: what it leaves out others would miss."""
    for key, value in (source.filter or {}).items():
        if value is None:  # §3.5.8: a filter that is not set
            continue
        if not isinstance(value, Described):
            raise Refusal(conditions.INVALID_FIELD, f"filter {str(key)!r}: accepted is a described value")
        name = str(value.descriptor)
        if name in OWN_FILTERS:
            text = f"filter {name}: accepted of a link that reads by sequence, with {START_SEQUENCE}, or copies"
            raise Refusal(conditions.INVALID_FIELD, text)
        text = f"filter {name}: not supported on a link that takes messages; remove it, or copy unfiltered"
        raise Refusal(conditions.NOT_IMPLEMENTED, text)


def _filters(source: Source) -> tuple[int | None, int | None, list[Any] | None]:
    """(start, end, subscription) as the source's filters say."""
    start: int | None = None
    end: int | None = None
    held: list[Any] | None = None
    for value in (source.filter or {}).values():
        if not isinstance(value, Described):
            continue
        name = str(value.descriptor)
        if name in (START_SEQUENCE, END_SEQUENCE):
            if not isinstance(value.value, int) or isinstance(value.value, bool) or value.value < 0:
                raise Refusal(conditions.INVALID_FIELD, f"filter {name}: found {value.value!r}, accepted is a ulong")
            if name == START_SEQUENCE:
                start = int(value.value)
            else:
                end = int(value.value)
        elif name == SUBSCRIPTION:
            if not isinstance(value.value, list) or len(value.value) != 3:
                raise Refusal(conditions.INVALID_FIELD, f"filter {name}: accepted is a list of name, queue UUID, epoch")
            held = value.value
    return start, end, held


def _applied(source: Source) -> dict[Any, Any] | None:
    kept = {
        key: value
        for key, value in (source.filter or {}).items()
        if isinstance(value, Described) and str(value.descriptor) in OWN_FILTERS
    }
    return kept or None


def _check_lease(queue: Queue, held: list[Any]) -> None:
    name, uuid, epoch = held
    cursor = queue.named.get(str(name))
    if cursor is None:
        raise Refusal(conditions.NOT_FOUND, f"no subscription {str(name)!r} on queue {queue.name!r}")
    if str(uuid) != str(queue.uuid):
        raise Refusal(
            conditions.ILLEGAL_STATE, f"queue {queue.name!r} was deleted and created again: it is {queue.uuid} now"
        )
    if epoch != cursor.lease_epoch:
        raise Refusal(
            conditions.STOLEN, f"subscription {str(name)!r} has a newer holder: lease epoch {cursor.lease_epoch}"
        )
