"""Answers the attach of a client's sender (AMQP 1.0 §3.5; CLIENTS 13 to 17, 32, 33, 35).

Rules of this file: everything in an attach is hostile until checked. A named producer's attach is answered once the
messages of its older link are on disk or refused.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import LAST_NUMBER, MISSING, PRODUCER, PRODUCER_EPOCH
from holdfast.amqp.wire.performatives import Coordinator, Target
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.stored.producers import NAME_BYTES_MAX, Producer
from holdfast.endpoints.addresses.dynamic_nodes import Temporary
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import ResolvedAddress, Resolver
from holdfast.endpoints.attaching.unroutable import UnroutableLink
from holdfast.endpoints.producer import ProducerLink
from holdfast.endpoints.relay import RelayLink, RelayParts
from holdfast.endpoints.resumption.resume import Resumption
from holdfast.endpoints.transactions.coordinator import CoordinatorParts
from holdfast.engine.effects import LinkEffect
from holdfast.peers.peer import Peer
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns

ANSWER_BYTES: Final = 192
"""Upper bound of the answer's size without the fields of the attach and the ranges."""

PRODUCER_KEY_BYTES_MAX: Final = 400
"""Bytes of a producer's name and address together, which a key of the store's small tables holds (engine/port.py)."""


@dataclass(frozen=True, slots=True, eq=False)
class AnswerNamedProducer(LinkEffect):
    """Answers the attach of a named producer's link."""

    producer: str
    link: ProducerLink = field(repr=False)
    named: Producer = field(repr=False)


class ProducerAttach:
    """Answers the attaches of clients' senders."""

    def __init__(
        self,
        catalog: Catalog,
        turns: Turns,
        resolver: Resolver,
        resume: Resumption,
        parts: RelayParts,
        coordinators: CoordinatorParts,
    ) -> None:
        self._catalog = catalog
        self._turns = turns
        self._resolver = resolver
        self._resume = resume
        self._parts = parts
        self._coordinators = coordinators
        turns.effects.on(AnswerNamedProducer, _answer_named)

    def receive(self, peer: Peer, link: Receiver, address: Any) -> None:
        """`address` as `plain_address` has it. Raises Refusal, ConfigError, TooManyQueues."""
        attach = link.remote_attach
        target = attach.target if attach is not None else None
        properties = (attach.properties or {}) if attach is not None else {}
        if target is None:
            target = Target()
        if isinstance(target, Coordinator):
            self._coordinators.attach(peer, link)
            return
        if not isinstance(target, Target):
            raise Refusal(conditions.NOT_IMPLEMENTED, "invalid target; expected one with an address")
        if address is None and not target.dynamic:
            if PRODUCER in properties:
                raise Refusal(conditions.INVALID_FIELD, f"{PRODUCER} needs a target with an address")
            link.context = relay = RelayLink(self._parts, peer, link)
            link.accept(target=target)
            relay.refill()
            return
        told, found = self._resolver.terminus(peer, target, address)
        self._resolver.admit(found.queue, found.destination)
        self._produce(peer, link, told, found, properties)

    def _produce(
        self, peer: Peer, link: Receiver, target: Target, found: ResolvedAddress, properties: dict[Any, Any]
    ) -> None:
        queue, destination, to, unknown, subject = found
        name = properties.get(PRODUCER)
        if name is None:
            kept = not (isinstance(queue, Temporary) or subject) and unknown is None
            if kept and self._resume.producer(peer, link, queue, target=target, destination=destination, to=to):
                return
            if unknown is None:
                producer_link = ProducerLink(
                    self._parts, peer, link, queue, destination=destination, to=to, subject=subject
                )
            else:
                producer_link = UnroutableLink(self._parts, peer, link, found)
            link.context = producer_link
            if isinstance(queue, Temporary) and target.dynamic:
                queue.creator = producer_link
            link.accept(target=replace(target, timeout=0))  # nothing is kept of it
            producer_link.refill()
            return
        if target.dynamic:
            raise Refusal(conditions.INVALID_FIELD, f"{PRODUCER} needs a target with an address")
        far = destination or unknown
        address = queue.key if far is None else f"{to}@{far}"
        if not isinstance(name, str) or not name or len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
            text = f"invalid value for {PRODUCER}; expected a string of 1 to {NAME_BYTES_MAX} bytes"
            raise Refusal(conditions.INVALID_FIELD, text)
        if len(f"{name}\0{address}".encode()) > PRODUCER_KEY_BYTES_MAX:
            text = f"{PRODUCER} and the address are too long; the limit is {PRODUCER_KEY_BYTES_MAX - 1} bytes together"
            raise Refusal(conditions.INVALID_FIELD, text)
        producer = self._catalog.producers.named(str(name), address)
        older = producer.holder
        if isinstance(older, ProducerLink):
            older.detach_with(f"producer {name!r} has a newer link", conditions.STOLEN)
        producer.epoch += 1
        if unknown is None:
            named = ProducerLink(
                self._parts, peer, link, queue,
                destination=destination, to=to, producer=producer, subject=subject,
            )  # fmt: skip
        else:
            named = UnroutableLink(self._parts, peer, link, found, producer=producer)
        link.context = named
        producer.holder = named
        self._catalog.producers.put(producer)
        effect = AnswerNamedProducer(self._turns.event, peer.number, link.name, producer.name, named, producer)
        self._turns.gathered.then.append(effect)


def _answer_named(effect: AnswerNamedProducer) -> None:
    """The messages of the older link are on disk or refused: now the numbers are final."""
    named, producer = effect.link, effect.named
    link, peer = named.link, named.peer
    if link.detached or producer.holder is not named:
        peer.refuse_detached(link)
        return
    told = {
        LAST_NUMBER: Ulong(producer.stored.last),
        PRODUCER_EPOCH: Ulong(producer.epoch),
        MISSING: _missing(link, producer),
    }
    link.accept(properties=told)
    named.refill()
    peer.touch()


def _missing(link: Receiver, producer: Producer) -> list[list[Ulong]]:
    """The ranges of numbers that are not stored, as many as fit into the answer's frame. Otherwise the attach would be
    refused each time."""
    ranges = _as_ulong(producer.missing())
    if not ranges:
        return []
    left = link.session.connection.body_bytes_max - ANSWER_BYTES - len(encode(link.remote_attach))
    for count, one in enumerate(ranges):
        left -= len(encode(one))
        if left < 0:
            return _as_ulong(producer.missing(max(1, count)))
    return ranges


def _as_ulong(ranges: list[list[int]]) -> list[list[Ulong]]:
    return [[Ulong(first), Ulong(last)] for first, last in ranges]
