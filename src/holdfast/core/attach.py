"""What an attach asks for, and the link that answers it (AMQP 1.0 §2.6.3, §3.5; CLIENTS 13 to 17, 32 to 35, 39).

Rules of this file: everything in an attach is hostile until checked; a refusal is an attach with a null terminus and
a detach that says what is accepted. Only filters that are applied are echoed; a link that takes messages away is
refused for any other, because it would be given what it did not ask for (ADR 0022).
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.amqp import conditions
from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.extensions import (
    END_SEQUENCE,
    LAST_NUMBER,
    MISSING,
    PRODUCER,
    PRODUCER_EPOCH,
    START_SEQUENCE,
    SUBSCRIPTION,
    TELLS_PATH,
)
from holdfast.amqp.performatives import (
    RCV_SETTLE_MODE_MAX,
    SND_SETTLE_MODE_MAX,
    Attach,
    Coordinator,
    Source,
    Target,
)
from holdfast.amqp.types import Described, Symbol, Ulong
from holdfast.broker.producers import NAME_BYTES_MAX
from holdfast.broker.queue import Queue
from holdfast.core import hops, subscriptions
from holdfast.core.browser import ReaderLink
from holdfast.core.catalog import TooManyQueues
from holdfast.core.consumer import ConsumerLink
from holdfast.core.control import CONTROL_ADDRESS, CONTROL_CREDIT, ControlReceiver
from holdfast.core.hop_receiver import CustodyReceiver
from holdfast.core.incoming import NODE_MESSAGE_BYTES_MAX
from holdfast.core.memory import LINK_BYTES
from holdfast.core.peer import Peer
from holdfast.core.places import (
    MANAGEMENT,
    QUEUE_EFFORT,
    Place,
    Refusal,
    address_of,
    place,
    plain_address,
    target_of,
    transmission,
)
from holdfast.core.producer import ProducerLink
from holdfast.core.relay import RelayLink
from holdfast.core.temporaries import TemporaryQueue
from holdfast.core.unroutable import UnroutableLink
from holdfast.errors import ConfigError
from holdfast.names import check_name

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore
    from holdfast.core.sessions import Neighbour

COPY: Final = Symbol("copy")
MOVE: Final = Symbol("move")

OWN_FILTERS: Final = (START_SEQUENCE, END_SEQUENCE, SUBSCRIPTION)

DURABILITY_MAX: Final = 2
EXPIRY_POLICIES: Final = ("link-detach", "session-end", "connection-close", "never")

PRODUCER_KEY_BYTES_MAX: Final = 400
"""A producer's name and address together: what a key of the store's small tables holds (broker/port.py)."""


def answer(core: "NodeCore", peer: Peer, link: Receiver | Sender) -> None:
    """Accepts the peer's attach with the link that it asks for, or refuses it."""
    if not peer.amqp.usable:
        return
    if link.detached:  # by what came behind the attach
        peer.refuse_detached(link)
        return
    queues = core.catalog.next_queue_id
    try:
        if link.remote_attach is not None:
            _check_terms(link.remote_attach)
        if link.role or link.remote_attach is None or link.remote_attach.source is not None:
            core.resume.reattached(peer, link)  # an attach without a source asks, and takes nobody's place
        _check_room(core, peer, link)
        if isinstance(link, Receiver):
            _receive(core, peer, link)
        else:
            _send(core, peer, link)
    except Refusal as refusal:
        link.refuse(refusal.condition, refusal.description)
    except TooManyQueues as error:
        link.refuse(conditions.RESOURCE_LIMIT_EXCEEDED, str(error))
    except ConfigError as error:
        link.refuse(conditions.INVALID_FIELD, str(error))
    if core.catalog.next_queue_id != queues:
        peer.amqp.burden(QUEUE_EFFORT, core.clock.now)
    peer.touch()


def _check_terms(attach: Attach) -> None:
    """What AMQP restricts to a few values; anything else would be echoed as if it were in force."""
    for what, found, most in (
        ("snd-settle-mode", attach.snd_settle_mode, SND_SETTLE_MODE_MAX),
        ("rcv-settle-mode", attach.rcv_settle_mode, RCV_SETTLE_MODE_MAX),
    ):
        if found > most:
            raise Refusal(conditions.INVALID_FIELD, f"{what}: found {found}, accepted is 0 to {most}")
    for what, terminus in (("source", attach.source), ("target", attach.target)):
        if not isinstance(terminus, (Source, Target)):
            continue
        if terminus.durable > DURABILITY_MAX:
            text = f"{what} durable: found {terminus.durable}, accepted is 0 to {DURABILITY_MAX}"
            raise Refusal(conditions.INVALID_FIELD, text)
        if terminus.expiry_policy not in EXPIRY_POLICIES:
            text = f"{what} expiry-policy: found {terminus.expiry_policy!r}, accepted is {', '.join(EXPIRY_POLICIES)}"
            raise Refusal(conditions.INVALID_FIELD, text)


def _check_room(core: "NodeCore", peer: Peer, link: Receiver | Sender) -> None:
    """Refusal where the peer's user has too many links, or the node no memory; a neighbour's control link passes."""
    target = link.remote_attach.target if link.remote_attach is not None else None
    if peer.neighbour is not None and isinstance(target, Target) and target.address == CONTROL_ADDRESS:
        return
    text = core.users.too_many_links(peer)
    if text is None and not core.memory.admits(peer, LINK_BYTES):
        text = "the node's memory is used up; try again later"
    if text is not None:
        raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)


def _queue_of(core: "NodeCore", peer: Peer, terminus: Source | Target, address: Any) -> tuple[Any, Place]:
    """The terminus as the answer tells it, and where it lies; a dynamic one is made here (§3.5.3, §3.5.4)."""
    if not terminus.dynamic:
        if not isinstance(address, str):
            raise Refusal(conditions.NOT_IMPLEMENTED, "a terminus without an address: accepted is an address")
        meant = target_of if isinstance(terminus, Target) else address_of
        return terminus, place(core, meant(core, address))
    queue = core.temporaries.create(peer, terminus.dynamic_node_properties)
    if queue is None:
        text = f"accepted are {core.config.limits.dynamic_nodes_max} dynamic nodes of a connection"
        raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, text)
    made = replace(terminus, address=queue.name, durable=0, dynamic_node_properties=queue.properties())
    return made, Place(queue, None, "")


# ------------------------------------------------------------------------------------------------ the peer sends


def _receive(core: "NodeCore", peer: Peer, link: Receiver) -> None:
    attach = link.remote_attach
    target = attach.target if attach is not None else None
    properties = (attach.properties or {}) if attach is not None else {}
    if target is None:
        target = Target()
    if isinstance(target, Coordinator):
        text = "transactions are not offered here: accepted is a target with an address"
        raise Refusal(conditions.NOT_IMPLEMENTED, text)
    if not isinstance(target, Target):
        raise Refusal(conditions.NOT_IMPLEMENTED, "target: found none, accepted is one with an address")
    address = plain_address(target.address)
    if address is None and not target.dynamic:
        if PRODUCER in properties:
            raise Refusal(
                conditions.INVALID_FIELD, f"{PRODUCER}: found without an address, accepted is a target with one"
            )
        link.context = relay = RelayLink(core, peer, link)
        link.accept(target=target)
        relay.refill()
    elif address == MANAGEMENT:
        link.context = requests = core.requests.request_link(peer, link)
        link.accept(max_message_size=core.config.limits.request_bytes_max)
        requests.top_up(core.config.limits.requests_max)
    elif address == CONTROL_ADDRESS:
        neighbour = _of_neighbour(core, peer)
        if peer.has_control:
            raise Refusal(conditions.NOT_ALLOWED, "a control link: accepted is one in the life of a connection")
        peer.has_control = True
        link.context = ControlReceiver(core.log, peer, link, neighbour)
        link.accept(max_message_size=NODE_MESSAGE_BYTES_MAX)
        link.grant(CONTROL_CREDIT)
    elif address == hops.CUSTODY_ADDRESS:
        _custody(core, peer, link, properties)
    else:
        told, found = _queue_of(core, peer, target, address)
        _produce(core, peer, link, told, found, properties)


def _of_neighbour(core: "NodeCore", peer: Peer) -> "Neighbour":
    if peer.neighbour is None:
        raise Refusal(conditions.UNAUTHORIZED_ACCESS, core.doors.why_no_neighbour(peer))
    return core.neighbours[peer.neighbour.name]


def _custody(core: "NodeCore", peer: Peer, link: Receiver, properties: dict[Any, Any]) -> None:
    neighbour = _of_neighbour(core, peer)
    destination, epoch = properties.get(hops.DESTINATION), properties.get(hops.EPOCH)
    if not isinstance(destination, str) or not isinstance(epoch, UUID):
        raise Refusal(conditions.INVALID_FIELD, f"accepted are the properties {hops.DESTINATION} and {hops.EPOCH}")
    if destination != core.config.name:
        transmission(core, str(destination))
    receiver = CustodyReceiver(
        core.receiver_parts, peer, link, neighbour=neighbour.name, destination=str(destination), epoch=epoch
    )
    older = core.links.custody_receivers.get(receiver.key)
    if older is not None:
        older.fence()
    core.links.custody_receivers[receiver.key] = receiver
    link.context = receiver
    core.turns.gathered.then.append(lambda: receiver.answer(properties.get(hops.CONTINUES)))


def _produce(
    core: "NodeCore", peer: Peer, link: Receiver, target: Target, found: Place, properties: dict[Any, Any]
) -> None:
    queue, destination, to, unknown = found
    name = properties.get(PRODUCER)
    if name is None:
        kept = not isinstance(queue, TemporaryQueue) and unknown is None
        if kept and core.resume.producer(peer, link, queue, target=target, destination=destination, to=to):
            return
        if unknown is None:
            producer_link = ProducerLink(core, peer, link, queue, destination=destination, to=to)
        else:
            producer_link = UnroutableLink(core, peer, link, found)
        link.context = producer_link
        if isinstance(queue, TemporaryQueue) and target.dynamic:
            queue.creator = producer_link
        link.accept(target=replace(target, timeout=0))  # nothing is kept of it
        producer_link.refill()
        return
    if target.dynamic:
        raise Refusal(conditions.INVALID_FIELD, f"{PRODUCER}: found without an address, accepted is a target with one")
    far = destination or unknown
    address = queue.name if far is None else f"{to}@{far}"
    if not isinstance(name, str) or not name or len(name.encode()) > NAME_BYTES_MAX or "\0" in name:
        raise Refusal(conditions.INVALID_FIELD, f"{PRODUCER}: accepted is a string of 1 to {NAME_BYTES_MAX} bytes")
    if len(f"{name}\0{address}".encode()) > PRODUCER_KEY_BYTES_MAX:
        text = f"{PRODUCER}: accepted are at most {PRODUCER_KEY_BYTES_MAX - 1} bytes together with the address"
        raise Refusal(conditions.INVALID_FIELD, text)
    producer = core.catalog.producer(str(name), address)
    older = producer.holder
    if isinstance(older, ProducerLink):
        older.detach_with(f"producer {name!r} speaks from a newer link", conditions.STOLEN)
    producer.epoch += 1
    if unknown is None:
        named = ProducerLink(core, peer, link, queue, destination=destination, to=to, producer=producer)
    else:
        named = UnroutableLink(core, peer, link, found, producer=producer)
    link.context = named
    producer.holder = named
    core.catalog.put_producer(producer)

    def stored() -> None:
        """What the older link had brought is on disk or refused: now the numbers are the truth."""
        if link.detached or producer.holder is not named:
            peer.refuse_detached(link)
            return
        told = {
            LAST_NUMBER: Ulong(producer.stored.last),
            PRODUCER_EPOCH: Ulong(producer.epoch),
            MISSING: [[Ulong(first), Ulong(last)] for first, last in producer.missing()],
        }
        link.accept(properties=told)
        named.refill()
        peer.touch()

    core.turns.gathered.then.append(stored)


# ------------------------------------------------------------------------------------------------ the peer receives


def _send(core: "NodeCore", peer: Peer, link: Sender) -> None:
    attach = link.remote_attach
    source = attach.source if attach is not None else None
    if source is None:
        subscriptions.look_up(core, peer, link)
        return
    if not isinstance(source, Source):
        raise Refusal(conditions.NOT_IMPLEMENTED, "source: found none, accepted is one with an address")
    wanted = plain_address(source.address)
    if wanted == MANAGEMENT:
        target = attach.target if attach is not None else None
        reply_to = target.address if isinstance(target, Target) else None
        link.context = core.requests.reply_link(peer, link, str(reply_to) if reply_to is not None else link.name)
        link.accept()
        return
    if wanted == CONTROL_ADDRESS:
        raise Refusal(conditions.NOT_ALLOWED, f"{CONTROL_ADDRESS}: found as a source, accepted is as a target")
    if isinstance(wanted, str) and not source.dynamic and wanted.startswith("@"):
        text = f"{wanted[:60]}: nobody receives from a transmission queue, accepted is a queue of {core.config.name!r}"
        raise Refusal(conditions.NOT_ALLOWED, text)
    if isinstance(wanted, str) and not source.dynamic and address_of(core, wanted).node is not None:
        raise Refusal(
            conditions.NOT_FOUND, f"{wanted}: found a queue of another node, accepted is one of {core.config.name!r}"
        )
    if source.distribution_mode not in (None, MOVE, COPY):
        text = f"distribution-mode {source.distribution_mode!r}: accepted is {MOVE} or {COPY}"
        raise Refusal(conditions.NOT_IMPLEMENTED, text)
    start, end, held = _filters(source)
    copies = source.distribution_mode == COPY or start is not None
    if not copies:
        _check_taking(source)
    source, (queue, *_) = _queue_of(core, peer, source, wanted)
    presettled = attach is not None and attach.snd_settle_mode == 1
    echoed = replace(source, filter=_applied(source))
    if copies:
        if held is not None:
            _check_lease(queue, held)
        tells_path = attach is not None and TELLS_PATH in (attach.desired_capabilities or ())
        reader = ReaderLink(core, peer, link, queue, start=start, end=end, settled=presettled, tells_path=tells_path)
        _attached(link, reader, queue, echoed)
        queue.touch()
        return
    cursor = queue.shared
    if source.durable and str(source.expiry_policy) == "never":
        name = check_name(link.name)
        found = queue.named.get(name)
        full = core.catalog.subscriptions_full(queue) if found is None else None
        if full is not None:
            raise Refusal(conditions.RESOURCE_LIMIT_EXCEEDED, full)
        if found is None:
            found = queue.add_cursor(name, "copy", queue.next_sequence)
        if found.mode != "copy":
            raise Refusal(
                conditions.NOT_ALLOWED,
                f"subscription {name!r} on queue {queue.name!r} is read by sequence, not by links",
            )
        for taker in list(found.takers):
            if isinstance(taker, ConsumerLink):
                taker.detach_with(f"subscription {name!r} is read on a newer link", conditions.STOLEN)
        cursor = found
    elif queue.taken_by is not None:
        text = f"queue {queue.name!r} is taken by subscription {queue.taken_by!r}, which reads alone"
        raise Refusal(conditions.RESOURCE_LOCKED, text)
    if presettled or isinstance(queue, TemporaryQueue) or not core.resume.consumer(peer, link, cursor, source, echoed):
        consumer = ConsumerLink(core, peer, link, cursor, presettled=presettled)
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
        text = f"filter {name}: none is applied to a link that takes messages; accepted is none, or to copy unfiltered"
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
        raise Refusal(conditions.ILLEGAL_STATE, f"queue {queue.name!r} was made anew: it is {queue.uuid} now")
    if epoch != cursor.lease_epoch:
        raise Refusal(
            conditions.STOLEN, f"subscription {str(name)!r} has a newer holder: lease epoch {cursor.lease_epoch}"
        )
