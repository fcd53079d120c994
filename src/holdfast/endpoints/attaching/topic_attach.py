"""Subscriptions of topics, as links ask for them (AMQP 1.0 §3.5; AMQP JMS mapping, "Topic subscriptions"; ADR 0064).

Rules of this file: everything in an attach is hostile until checked. A durable subscription is a cursor of the topic,
with the name of its link; another one has a queue in memory that ends with it.
"""

from typing import Final, NamedTuple

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker import backlogs
from holdfast.broker.cursors import entry_consumer
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries import entry
from holdfast.broker.queue import Queue
from holdfast.broker.stored.records import BindingRecord
from holdfast.broker.subjects import Pattern
from holdfast.broker.topic import Topic
from holdfast.endpoints.addresses.dynamic_nodes import LIFETIME_POLICY, ON_NO_LINKS, DynamicNodes, TemporaryQueue
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.attaching.filters import Decoded, EntrySelector, Filters, entry_selector, pattern_of
from holdfast.endpoints.publishers import Publishers
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.subscription_ends import detach_all, end, named
from holdfast.errors import StorageError
from holdfast.names import NAME_BYTES_MAX, check_name
from holdfast.peers.containers import asks_to_be_sole
from holdfast.peers.peer import Peer
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.predicate import compile_selector
from holdfast.settings.limits import Limits
from holdfast.state.catalog import Catalog
from holdfast.state.configured_subscriptions import ConfiguredSubscriptions

SHARED: Final = Symbol("shared")
GLOBAL: Final = Symbol("global")
"""Capabilities of a source: several links share the subscription; links of any container do."""


class Subscribed(NamedTuple):
    """The queue and cursor that a link reads, and its subscription's pattern and selector."""

    queue: Queue
    cursor: Cursor
    selector: EntrySelector | None


class TopicAttach:
    """Creates and finds the subscriptions that links ask for."""

    def __init__(
        self,
        limits: Limits,
        catalog: Catalog,
        dynamic_nodes: DynamicNodes,
        resume: Resumption,
        decoded: Decoded,
        publishers: Publishers,
        configured: ConfiguredSubscriptions,
    ) -> None:
        self._limits = limits
        self._catalog = catalog
        self._dynamic_nodes = dynamic_nodes
        self._resume = resume
        self._decoded = decoded
        self._publishers = publishers
        self._configured = configured
        self._shared: dict[tuple[Topic, str], TemporaryQueue] = {}
        """Shared subscriptions that are not durable, by name; ended ones are found when they are looked up."""
        for topic in catalog.topics():
            self._restore(topic)

    def _restore(self, topic: Topic) -> None:
        """Applies the stored subscriptions after a start."""
        for name, wants in topic.bindings.items():
            try:
                pattern = Pattern(wants.pattern) if wants.pattern else None
                predicate = compile_selector(wants.selector, is_canonical=True) if wants.selector else None
            except (SelectorError, ValueError) as error:
                raise StorageError(f"subscription {name!r} of {topic.name!r}: {error}") from error
            filters = Filters(selector=predicate, pattern=pattern)
            topic.select(topic.named[name], entry_selector(filters, topic.reader, self._decoded, wants.not_from))
        self._configured.apply(topic)
        topic.look_again_at_stored()

    def subscription(
        self, peer: Peer, link: Sender, source: Source, topic: Topic, subject: str, filters: Filters, *, durable: bool
    ) -> Subscribed:
        """The queue and the cursor that the link reads, of a new or an existing subscription. Raises Refusal."""
        if subject:
            if filters.pattern is not None:
                text = f"{topic.name}/{subject[:60]}: the address has a pattern, and so have the filters; remove one"
                raise Refusal(conditions.INVALID_FIELD, text)
            filters.pattern = pattern_of(subject)
        is_shared = SHARED in (source.capabilities or ())
        not_from = b""
        if filters.no_local and is_shared:
            text = "filter no-local is not for shared subscriptions, which are read by several connections; remove one"
            raise Refusal(conditions.NOT_IMPLEMENTED, text)
        if filters.no_local:
            not_from = self._publishers.container(peer) if durable else self._publishers.connection(peer)
        selector = entry_selector(filters, topic.reader, self._decoded, not_from)
        if not durable:
            queue = self._in_memory(peer, link, source, topic, selector, is_shared=is_shared)
            return Subscribed(queue, queue.shared, selector)
        name = self._name(peer, link, source, is_shared=is_shared)
        wants = BindingRecord(
            "" if filters.pattern is None else filters.pattern.text,
            "" if filters.selector is None else filters.selector.text,
            is_shared,
            not_from,
        )
        stolen = f"subscription {name!r} is read on a newer link"
        found = topic.named.get(name)
        if found is not None and found.mode != "copy":
            text = f"subscription {name!r} on {topic.name!r} is read by sequence, not by links"
            raise Refusal(conditions.NOT_ALLOWED, text)
        if found is not None and not wants.is_like(
            topic.bindings.get(name)
        ):  # another subscription under its name, as in JMS
            if is_shared and found.consumers:
                text = f"subscription {name!r} on {topic.name!r} has readers, with another selector or pattern"
                raise Refusal(conditions.RESOURCE_LOCKED, text)
            self._replace(peer, topic, found, wants, stolen)
            found = None
        if found is None:
            full = self._catalog.subscriptions_full(topic)
            if full is not None:
                raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, full)
            found = topic.add_cursor(name, "copy", topic.next_sequence)
            peer.log("INFO", f"{named(found)} is created: {_spelt(wants)}")
        elif name in topic.bindings:
            wants = wants.bounded_as(topic.bindings[name])
        wants = self._configured.bounded(topic, name, wants)
        if topic.bindings.get(name) != wants:  # new, or another container's from now on
            self._catalog.rows.bind(topic, name, wants)
        if not is_shared:
            detach_all(found, stolen, conditions.STOLEN)
        topic.select(found, selector)
        return Subscribed(topic, found, selector)

    def _replace(self, peer: Peer, topic: Topic, cursor: Cursor, wants: BindingRecord, stolen: str) -> None:
        """Ends a subscription, because another one, which wants something else, has its name from now on."""
        dropped, before = backlogs.unfinished(cursor), topic.bindings.get(cursor.name)
        text = f"{_spelt(before)} before, {_spelt(wants)} now"
        if dropped:
            gone = f"up to {dropped} messages that waited for it are dropped"
            peer.log("WARNING", f"{named(cursor)} is replaced, and {gone}: {text}")
        else:
            peer.log("INFO", f"{named(cursor)} is replaced: {text}")
        end(topic, cursor, self._resume, stolen, conditions.STOLEN)

    def _name(self, peer: Peer, link: Sender, source: Source, *, is_shared: bool) -> str:
        """The subscription's name: that of the link, with its container if the container has its own names."""
        name = check_name(link.name.partition("|")[0] if is_shared else link.name)
        opened = peer.amqp.remote_open
        container = "" if opened is None else opened.container_id
        if is_shared:
            is_own = GLOBAL not in (source.capabilities or ())
        else:
            is_own = opened is not None and asks_to_be_sole(opened)
        if is_own:
            name = f"{check_name(container)}|{name}"
            if len(name.encode()) > NAME_BYTES_MAX:
                text = f"container-id and subscription have {len(name.encode())} bytes; the limit is {NAME_BYTES_MAX}"
                raise Refusal(conditions.INVALID_FIELD, text)
        return name

    def _in_memory(
        self, peer: Peer, link: Sender, source: Source, topic: Topic, selector: EntrySelector | None, *, is_shared: bool
    ) -> TemporaryQueue:
        """The queue of a subscription that is not durable."""
        key = (topic, "")
        if is_shared:
            name = self._name(peer, link, source, is_shared=True)
            key = (topic, f"{name}\0{'' if selector is None else selector.text}")
            queue = self._shared.get(key)
            if queue is not None and self._catalog.has(queue):
                return queue
            self._shared = {known: each for known, each in self._shared.items() if self._catalog.has(each)}
        most = self._limits.queue_subscriptions_max
        if len(topic.listeners) >= most:
            text = f"topic {topic.name!r} has {most} subscriptions that are not durable"
            text += ", the most that it may have (queue_subscriptions_max)"
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        policy = {LIFETIME_POLICY: Described(ON_NO_LINKS, [])} if is_shared else None
        queue = self._dynamic_nodes.create(peer, policy)
        if queue is None:
            text = self._dynamic_nodes.bound_reached_text(peer, "subscriptions that are not durable")
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
        queue.topic = topic
        topic.listen(queue, selector)
        if selector is not None:
            queue.shared.selector = OfLarge(selector)
        if is_shared:
            self._shared[key] = queue
        return queue


def _spelt(wants: BindingRecord | None) -> str:
    """What a subscription wants, as the log says it."""
    if wants is None:
        return "all messages"
    parts = [f"pattern {wants.pattern!r}"] if wants.pattern else []
    parts += [f"selector {wants.selector!r}"] if wants.selector else []
    parts += ["no-local"] if wants.not_from else []
    parts += ["shared"] if wants.is_shared else []
    return " and ".join(parts) or "all messages"


class OfLarge(entry_consumer.EntrySelector):
    """Matches large messages for a subscription that is not durable; all others were matched when they were
    published."""

    def __init__(self, selector: EntrySelector) -> None:
        self.text, self.weight = selector.text, selector.weight
        self._selector = selector

    def matches(self, value: bytes) -> bool:
        return not value[1] & entry.BLOB or self._selector.matches(value)
