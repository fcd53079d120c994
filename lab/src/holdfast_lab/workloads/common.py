"""What workloads share: the Workload protocol, keys in bodies, links that are tried again, questions asked again.

Rules of this file: nothing here knows a workload or a bed's insides. A break of a connection or of a link is no
failure: programs go on until they are done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, Final, Protocol, TypeVar

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire import conditions
from holdfast.broker.entries.address import parse
from holdfast.broker.entries.host_names import hosted
from holdfast.client import (
    Connection,
    ConnectionEnded,
    ConnectionFailed,
    Delivery,
    LinkError,
    ManagementError,
    ProducerConflict,
    Receiver,
    RequestInDoubt,
    Sender,
)
from holdfast.errors import HoldfastError
from holdfast_lab.base.client_history import History, Violation, key_in
from holdfast_lab.base.contents import content_of, difference, message_of
from holdfast_lab.workloads.bed import Bed

RETRY_S: Final = 1.0
MANAGE_LIMIT_S: Final = 10.0

BREAKS: Final = (LinkError, ConnectionFailed, ConnectionEnded, ProducerConflict)
"""What ends a link or a connection under a program, which then makes another."""

DELIVERIES: Final = "x-opt-dead-letter-deliveries"

NOT_LOOKED_AT: Final = (conditions.RESOURCE_LIMIT_EXCEEDED, conditions.DETACH_FORCED)
"""With which a message is rejected before anybody looks where it goes: there is no place for it, or its node, or the
one that it is for, is drained."""

Link = TypeVar("Link")


class Workload(Protocol):
    """One program or several. `kind` names it in scenarios."""

    kind: ClassVar[str]

    async def setup(self, bed: Bed) -> None: ...
    def start(self, bed: Bed) -> None: ...
    def check(self, bed: Bed) -> None: ...
    def metrics(self) -> dict[str, float]: ...


def spawn_each(bed: Bed, count: int, name: str, run: Callable[[Bed, str], Coroutine[Any, Any, None]]) -> None:
    """Runs `count` programs beside each other, each with a name of its own, by which chance is drawn."""
    for number in range(count):
        own = f"{name}-{number}"
        bed.spawn(run(bed, own), own)


def is_marked(message: Message) -> bool:
    """Whether it came as a redelivery (AMQP 1.0 §3.2.1)."""
    header = message.header
    return header is not None and (bool(header.delivery_count) or header.first_acquirer is False)


def marked(delivery: Delivery) -> bool:
    """As `is_marked`, of the client's."""
    return is_marked(delivery.message)


def key_of(history: History, payload: bytes, message: Message, place: str) -> bytes | None:
    """The key of what a consumer of `place` was shown; None for a message that no workload sent. Raises Violation
    where it is not what was sent under that key."""
    key = key_in(payload)
    sent = None if key is None else history.sent.get(key)
    if key is not None and sent is not None:
        told = difference(sent, payload, message)
        if told is not None:
            raise Violation(f"{key.decode()} was shown at {place}: it {told}")
    return key


def key_shown(history: History, delivery: Delivery, place: str) -> bytes | None:
    """As `key_of`, of the client's."""
    return key_of(history, delivery.payload, delivery.message, place)


def failed_deliveries(delivery: Delivery) -> int | None:
    """How many deliveries of a dead letter have failed, where it is one because of that."""
    told = (delivery.message.message_annotations or {}).get(DELIVERIES)
    return None if told is None else int(told)


def own_key_of(history: History, producer: int, payload: bytes, message: Message, place: str) -> bytes:
    """As `key_of`, where nobody but that producer sends. Raises Violation for what it has not sent, too."""
    key = key_in(payload)
    if key is None or int(key[:3]) != producer or key not in history.sent:
        raise Violation(f"{place}: {key!r} was shown, which nobody sent there")
    key_of(history, payload, message, place)
    return key


def offered(history: History, key: bytes, place: str, size: int) -> Message:
    """A message of that key for that place, which the run's record has from now on as it is sent."""
    message = message_of(key, size, None)
    history.sent[key] = content_of(message)
    history.offer(key, place)
    return message


def check_not_refused(history: History, key: bytes, place: str) -> None:
    """Raises Violation where the node had refused what is shown now."""
    if key in history.refused:
        raise Violation(f"{key.decode()} was refused ({history.refused[key]}), and was shown at {place}")


def check_refused_stay_unseen(history: History, producer: int) -> None:
    """At the end: raises Violation where something of that producer was refused, and was shown before or after."""
    for key in history.refused:
        if int(key[:3]) == producer and key in history.received:
            raise Violation(f"{key.decode()} was refused ({history.refused[key]}), and was shown")


def queue_and_node(address: str, node: str) -> tuple[str, str]:
    """The queue that `address` means at `node`, and the node where that is."""
    found = parse(address, own_name=node)
    return found.queue, found.node or node


def full_address(address: str, node: str, vhost: str = "") -> str:
    """`queue@node` for what `address` means at `node` in that virtual host, as the node's store calls the queue."""
    queue, at = queue_and_node(address, node)
    return f"{hosted(vhost, queue)}@{at}"


def place_of(queue: str, node: str, vhost: str = "") -> str:
    """Where a consumer of that queue is, as `History` takes it."""
    return f"{hosted(vhost, queue)} at {node}"


async def attached(attach: Callable[[], Awaitable[Link]]) -> Link:
    """The link, tried until the node gives it: a node that is down, or has not its queues yet, is no failure."""
    while True:
        try:
            return await attach()
        except (LinkError, ConnectionFailed, ProducerConflict):
            await asyncio.sleep(RETRY_S)


async def receive_each(
    attach: Callable[[], Awaitable[Receiver]], take: Callable[[Delivery], Coroutine[Any, Any, None]]
) -> None:
    """Gives `take` each delivery of a link, for ever: one that breaks, also while `take` runs, is made anew."""
    while True:
        receiver = await attached(attach)
        try:
            async for delivery in receiver:
                await take(delivery)
        except BREAKS:
            pass
        await ended(receiver)
        await asyncio.sleep(RETRY_S)


async def asked(
    connection: Connection, operation: str, kind: str, name: str, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The answer of the node's `$management`, asked again until there is one. Raises ManagementError.

    So a question may have been answered twice: whoever changes something must expect to find it changed.
    """
    while True:
        try:
            return await connection.manage(operation, f"holdfast:{kind}", name, arguments, limit_s=MANAGE_LIMIT_S)
        except ManagementError as error:
            if error.code != 503:
                raise
        except (LinkError, ConnectionFailed, RequestInDoubt):
            pass
        await asyncio.sleep(RETRY_S)


async def is_bounded(connection: Connection, queue: str, name: str, bounds: dict[str, Any]) -> bool:
    """Makes that durable subscription, and gives it these bounds. False where it is gone by then: a crash came before
    it was stored, or the bounds that it had have ended it. Raises ManagementError."""
    await ended(await attached(lambda: connection.receiver(queue, credit=1, subscription=name)))
    try:
        await asked(connection, "UPDATE", "subscription", name, {"queue": queue, **bounds})
    except ManagementError as error:
        if error.code != 404:
            raise
        return False
    return True


async def ended(link: Sender | Receiver) -> None:
    """Detaches what may be broken already; what a sender has in doubt stays so."""
    try:
        await (link.close(drain=False) if isinstance(link, Sender) else link.close())
    except HoldfastError:
        pass


async def closed(connection: Connection) -> None:
    """Closes politely; what a broken sender had in doubt, its program has sent again."""
    try:
        await connection.close()
    except HoldfastError:
        pass
