"""Answers the attach of a client's receiver (AMQP 1.0 §3.5; CLIENTS 13 to 17, 32, 34, 35, 39).

Rules of this file: everything in an attach is hostile until checked. Only what is applied is echoed.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import TELLS_PATH
from holdfast.amqp.wire.performatives import Attach, Source
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.beginnings import put_back
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntrySelector
from holdfast.broker.entries.address import split_topic
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.endpoints.addresses.browsing import COPY, browses, subscribes
from holdfast.endpoints.addresses.dynamic_nodes import TEMPORARY_TOPIC, TemporaryQueue, TemporaryTopic
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import Resolver
from holdfast.endpoints.attaching.filters import (
    Compiler,
    Decoded,
    Filters,
    check_taking,
    entry_selector,
    filters_of,
)
from holdfast.endpoints.attaching.subscriptions import LinkSubscriptions
from holdfast.endpoints.attaching.topic_attach import TopicAttach
from holdfast.endpoints.browser import ReaderLink, ReaderParts
from holdfast.endpoints.consumer import ConsumerLink, ConsumerParts
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.stored_answers import Answering, StoredAnswers, Told, at_once
from holdfast.endpoints.subscription_ends import named
from holdfast.endpoints.topic_bindings import TopicBindings, asked_ms
from holdfast.names import check_name
from holdfast.peers.peer import Peer
from holdfast.selectors.predicate import Predicate
from holdfast.state.catalog import Catalog

MOVE: Final = Symbol("move")


@dataclass(frozen=True, slots=True)
class Terms:
    """What the link gets: `source`: the terminus at this node; `echoed`: the same with the filters that are applied."""

    attach: Attach
    source: Source
    echoed: Source
    filters: Filters

    @property
    def presettled(self) -> bool:
        return self.attach.snd_settle_mode == 1


class ConsumerAttach:
    """Answers the attaches of clients' receivers; `name` is the node's."""

    def __init__(
        self,
        name: str,
        catalog: Catalog,
        resolver: Resolver,
        resume: Resumption,
        subscriptions: LinkSubscriptions,
        topics: TopicAttach,
        consumer_parts: ConsumerParts,
        reader_parts: ReaderParts,
        decoded: Decoded,
        bindings: TopicBindings,
        stored_answers: StoredAnswers,
    ) -> None:
        """`decoded`: what all selectors of the node share."""
        self._name = name
        self._catalog = catalog
        self._resolver = resolver
        self._resume = resume
        self._subscriptions = subscriptions
        self._topics = topics
        self._consumer_parts = consumer_parts
        self._reader_parts = reader_parts
        self._compiler = Compiler()
        self._decoded = decoded
        self._bindings = bindings
        self._stored_answers = stored_answers

    def send(self, peer: Peer, link: Sender, address: Any) -> None:
        """`address` as `plain_address` returns it. Raises Refusal, ConfigError, TooManyQueues."""
        attach = link.remote_attach
        source = attach.source if attach is not None else None
        if attach is None or source is None:
            self._subscriptions.look_up(peer, link)
            return
        source = self._checked(peer, source, address)
        filters = filters_of(source, lambda text: self._compile(peer, text))
        copies, durable = browses(source), subscribes(source)
        if not copies:
            check_taking(source)
        if filters.no_local and not self._is_topic(peer, source, address):
            if not copies:  # before anything is created
                text = "filter no-local is for topics; the messages of a queue go to one consumer each"
                raise Refusal(conditions.NOT_IMPLEMENTED, text)
            filters.leave_out_no_local()
        source, found = self._resolver.terminus(peer, source, address)
        queue = found.queue
        durable = durable and bool(source.durable)  # a dynamic node has no subscriptions
        terms = Terms(attach, source, replace(source, filter=filters.applied or None), filters)
        if isinstance(queue, Topic):
            if copies:
                text = f"{queue.name} is a topic, which has subscriptions only: it cannot be browsed (distribution-mode"
                raise Refusal(conditions.NOT_IMPLEMENTED, f"{text} copy)")
            self._subscribe(peer, link, terms, queue, found.subject, durable=durable)
        elif copies:
            self._browse(peer, link, terms, queue)
        elif durable:
            self._subscribe_queue(peer, link, terms, queue)
        elif queue.taken_by is not None:
            text = f"queue {queue.name!r} is taken by subscription {queue.taken_by!r}, which reads alone"
            advice = f"`holdfast subscription delete {queue.taken_by} --queue {queue.name}` ends it"
            raise Refusal(conditions.RESOURCE_LOCKED, f"{text}; {advice}")
        else:
            selector = entry_selector(filters, queue.reader, self._decoded)
            self._consume(peer, link, terms, queue, queue.shared, selector)

    def _checked(self, peer: Peer, source: Any, address: Any) -> Source:
        """The source, if clients may receive from such a source at all."""
        if not isinstance(source, Source):
            raise Refusal(conditions.NOT_IMPLEMENTED, "the attach has no source; give it one with an address")
        if isinstance(address, str) and not source.dynamic:
            if address.startswith("@"):
                text = f"{address[:60]}: clients cannot receive from a transmission queue"
                raise Refusal(conditions.NOT_ALLOWED, f"{text}; use a queue of {self._name!r}")
            if self._resolver.address_of(address, peer.host).node is not None:  # one text: remotes are not revealed
                text = f"{address} is at another node or a remote; connect to that, or use a queue of {self._name!r}"
                raise Refusal(conditions.NOT_FOUND, text)
        if source.distribution_mode not in (None, MOVE, COPY):
            text = f"invalid value {source.distribution_mode!r} for distribution-mode; expected {MOVE} or {COPY}"
            raise Refusal(conditions.NOT_IMPLEMENTED, text)
        return source

    def _subscribe(self, peer: Peer, link: Sender, terms: Terms, topic: Topic, subject: str, *, durable: bool) -> None:
        """Answers with a consumer of a topic's subscription, which is created if there is none."""
        if durable and isinstance(topic, TemporaryTopic):
            text = f"{topic.name} is a temporary topic, which has no durable subscriptions; attach without durable"
            raise Refusal(conditions.NOT_ALLOWED, text)
        confirm_ms = asked_ms(terms.attach.properties)
        made = self._topics.subscription(peer, link, terms.source, topic, subject, terms.filters, durable=durable)
        answering: Answering = at_once
        if confirm_ms is not None:
            answering = partial(self._bindings.confirm, peer, link, topic, made.selector, confirm_ms)
        if durable:
            answering = self._stored_answers.of(peer, link, made.cursor, answering)
        self._consume(peer, link, terms, made.queue, made.cursor, None, answering)
        if terms.source.dynamic and isinstance(topic, TemporaryTopic):
            topic.creator = link.context

    def _browse(self, peer: Peer, link: Sender, terms: Terms, queue: Queue) -> None:
        """Answers with a browser, or a reader by sequence."""
        filters = terms.filters
        selector = entry_selector(filters, queue.reader, self._decoded)
        if filters.lease is not None:
            _check_lease(queue, filters.lease)
            if filters.end is not None and filters.end > queue.visible:  # the lease's holder asked where it ends
                raise Refusal(conditions.ILLEGAL_STATE, put_back(queue.name, filters.end, queue.visible))
        reader = ReaderLink(
            self._reader_parts, peer, link, queue, start=filters.start, end=filters.end, selector=selector,
            settled=terms.presettled, tells_path=TELLS_PATH in (terms.attach.desired_capabilities or ()),
        )  # fmt: skip
        _attached(link, reader, queue, terms.echoed)
        queue.touch()

    def _subscribe_queue(self, peer: Peer, link: Sender, terms: Terms, queue: Queue) -> None:
        """Answers with a consumer of a queue's durable subscription, which is created if there is none."""
        name = check_name(link.name)
        cursor = queue.named.get(name)
        if cursor is None:
            full = self._catalog.subscriptions_full(queue)
            if full is not None:
                raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, full)
            cursor = queue.add_cursor(name, "copy", queue.next_sequence)
            peer.log("INFO", f"{named(cursor)} is created")
        if cursor.mode != "copy":
            text = f"subscription {name!r} on queue {queue.name!r} is read by sequence, not by links"
            raise Refusal(conditions.NOT_ALLOWED, text)
        for older in list(cursor.consumers):
            if isinstance(older, ConsumerLink):
                older.detach_with(f"subscription {name!r} is read on a newer link", conditions.STOLEN)
        cursor.selector = entry_selector(terms.filters, queue.reader, self._decoded)
        self._consume(peer, link, terms, queue, cursor, None, self._stored_answers.of(peer, link, cursor))

    def _consume(
        self,
        peer: Peer,
        link: Sender,
        terms: Terms,
        queue: Queue,
        cursor: Cursor,
        selector: EntrySelector | None,
        answering: Answering = at_once,
    ) -> None:
        """Answers with a consumer on `cursor`."""
        presettled, echoed = terms.presettled, terms.echoed
        if (
            presettled
            or isinstance(queue, TemporaryQueue)
            or not self._resume.consumer(peer, link, cursor, terms.source, echoed, selector, answering=answering)
        ):
            consumer = ConsumerLink(self._consumer_parts, peer, link, cursor, presettled=presettled, selector=selector)
            _attached(link, consumer, queue, replace(echoed, timeout=0), answering)  # nothing is kept for it

    def _is_topic(self, peer: Peer, source: Source, address: Any) -> bool:
        """Whether the link would subscribe to a topic."""
        if source.dynamic or not isinstance(address, str):
            return bool(source.dynamic) and TEMPORARY_TOPIC in (source.capabilities or ())
        if isinstance(self._catalog.find(peer.host, address), TemporaryTopic):
            return True
        topic = split_topic(self._resolver.address_of(address, peer.host).queue)
        return topic is not None and isinstance(self._catalog.find(peer.host, topic[0]), (Topic, type(None)))

    def _compile(self, peer: Peer, text: object) -> Predicate:
        def charge(units: int) -> None:
            peer.amqp.charge_late(units, self._consumer_parts.clock.now)

        return self._compiler.compile(text, charge)


def _attached(
    link: Sender, context: ConsumerLink | ReaderLink, queue: Queue, source: Source, answering: Answering = at_once
) -> None:
    link.context = context
    if isinstance(queue, TemporaryQueue) and (source.dynamic or (queue.topic is not None and queue.creator is None)):
        queue.creator = context
    tells_path = isinstance(context, ReaderLink) and context.tells_path

    def answer(told: Told) -> None:
        if link.detached or link.context is not context:
            context.peer.refuse_detached(link)
            return
        link.accept(source=source, properties=told, offered_capabilities=(TELLS_PATH,) if tells_path else None)
        if answering is not at_once:
            context.credited()  # by a flow that came with the attach
            context.peer.touch()

    answering(answer)


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
