"""As `failure_stages.py`: consumers that share a queue, links between queues, delays, most deliveries, transactions.

Rules of this file: as there.
"""

from collections.abc import Callable
from typing import Any

from holdfast.amqp.connection import Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import DELIVERY_DELAY, SELECTOR
from holdfast.amqp.wire.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Released,
    Source,
    TransactionalState,
)
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from support.actors import Actor, Lost, World, in_order, names
from support.rig import Node
from support.transactions import request


def selecting(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Consumers with selectors that compete with each other and with one that has none, give back and leave."""
    _sharing(world, hub, calm, "local")


def sorting(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """The same at a queue that sorts by priority."""
    _sharing(world, hub, calm, "sorted")


def _matching(text: str) -> dict[Symbol, Described]:
    return {Symbol("selector"): Described(SELECTOR, text)}


def _sharing(world: World, hub: Node, calm: Callable[[], None], queue: str) -> None:
    sender, one, two = world.actor(hub, "sender"), world.actor(hub, "one"), world.actor(hub, "two")
    sender.produce(queue, names("m", 8))
    calm()

    def some(text: str) -> Callable[[], None]:
        def take() -> None:
            client = one.client
            held = client.receiver(queue, credit=1, name=f"held-{text}", source={"filter": _matching(text)})
            link = client.receiver(queue, credit=4, name=text, source={"filter": _matching(text)}, max_message_size=250)
            one.wait(lambda: len(client.deliveries) >= 4, "four to refuse")
            ways = [Released(), Modified(delivery_failed=True), Modified(undeliverable_here=True), Released()]
            for item, outcome in zip(list(client.deliveries), ways, strict=False):
                item.link.settle(item.delivery_id, item.delivery_id, outcome)
            client.deliveries.clear()
            world.rig.settle()
            for left in (held, link):
                left.detach()
                world.rig.settle()

        return take

    one.stubborn(some("JMSPriority >= 0"))
    calm()
    one.stubborn(some("JMSPriority < 9"))
    two.consume(queue, names("m", 8))
    in_order(two, queue, names("m", 8))
    if two._client is not None and not two._client.over:
        two._client.close_transport()
        two.lost -= 1
        world.rig.settle()
    three, goes_on = world.actor(hub, "three"), {"filter": _matching("JMSPriority = 4")}
    for count in (10, 24):  # what comes while it is there goes to it many at once
        sender.produce(queue, names("m", count), batch=12)
        three.consume(queue, names("m", count)[8:], source=goes_on, name="all")
    in_order(three, queue, names("m", 24)[8:])
    calm()


def linked(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Links that move messages to another queue, through a step with windows and between queues in memory."""
    sender, consumer = world.actor(hub, "sender"), world.actor(hub, "consumer")
    sender.produce("linked", names("m", 8), message_ids=True)
    calm()
    consumer.consume("linked-on", names("m", 8))
    in_order(consumer, "linked-on", names("m", 8))
    calm()

    def in_memory() -> None:  # what it has is lost with the node
        client = consumer.client
        link, taken = client.sender("in-memory"), client.receiver("in-memory-on")
        consumer.wait(lambda: link.credit and taken.attached, "queues in memory")
        for body in names("n", 4):
            client.send(link, body)
        consumer.wait(lambda: len(client.bodies(taken)) >= 4 or link.detached, "what was sent")
        client.accept(link=taken)
        world.rig.settle()
        for end in (link, taken):
            end.detach()

    consumer.stubborn(in_memory)
    calm()


def delayed(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Messages that wait for their time, while a commit that has what was due is refused."""
    sender, consumer = world.actor(hub, "sender"), world.actor(hub, "consumer")
    sender.produce("local", names("m", 6), notes={DELIVERY_DELAY: Ulong(1_000)})
    calm()
    hub.refuse = 1
    world.rig.run(4)
    consumer.consume("local", names("m", 6))
    calm()


def limited(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Deliveries that fail as often as their queue allows, beside others; so do those of a connection that ends."""
    sender, one, two = world.actor(hub, "sender"), world.actor(hub, "one"), world.actor(hub, "two")
    sender.produce("limited", names("m", 4))

    def fail() -> None:
        client = one.client
        link = client.receiver("limited", credit=2)
        one.wait(lambda: len(client.deliveries) >= 2, "two to fail")
        for item in list(client.deliveries):
            item.link.settle(item.delivery_id, item.delivery_id, Modified(delivery_failed=True))
        client.deliveries.clear()
        world.rig.settle()
        link.detach()
        world.rig.settle()

    one.stubborn(fail)
    calm()
    taken: set[str] = set()

    def take() -> None:
        client = two.client
        link = client.receiver("limited", credit=10)
        for _ in range(40):  # a part that failed may rest
            two.wait(lambda: link.attached, "its link")
            taken.update(client.bodies(link))
            client.accept(link=link)
            world.rig.run(0.5)
            if not hub.queue("limited").messages:
                return
        raise AssertionError("what has failed stays")

    two.stubborn(take)
    calm()
    dead = [body for body in names("m", 4) if body not in taken]
    assert {"m001", "m002"} <= {*dead}
    two.consume("$dead-letters", dead)
    calm()


def transacted(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """A transaction that takes, rejects and sends, is rolled back, refused by the disk, and done at last."""
    sender, mover, reader = world.actor(hub, "sender"), world.actor(hub, "mover"), world.actor(hub, "reader")
    sender.produce("local", names("m", 4))
    calm()
    bodies = (f"t{number}" for number in range(100))

    def move(ends: Discharge) -> None:
        client = mover.client
        coordinator = client.session.attach_sender("tx", Source(), Coordinator())
        link, taken = client.sender("other"), client.receiver("local", credit=10)
        mover.wait(lambda: coordinator.attached and coordinator.credit and link.credit, "the coordinator")
        declared = _asked(mover, coordinator, Declare())
        if not isinstance(declared, Declared):
            raise Lost("nothing was declared")
        mover.wait(lambda: client.deliveries, "what is taken")
        ways = [Accepted(), Rejected(), Modified(delivery_failed=True), Released()]
        for item, outcome in zip(list(client.deliveries), ways, strict=False):
            taken.settle(item.delivery_id, item.delivery_id, TransactionalState(declared.txn_id, outcome))
        client.deliveries.clear()
        body = next(bodies)
        link.send(Message(data=[body.encode()]).encode(), context=body, state=TransactionalState(declared.txn_id))
        _asked(mover, coordinator, Discharge(declared.txn_id, ends.fail))
        world.rig.settle()
        for end in (link, taken, coordinator):
            end.detach()
        world.rig.settle()

    mover.stubborn(lambda: move(Discharge(b"", True)))
    calm()
    hub.refuse = 1
    mover.stubborn(lambda: move(Discharge(b"", False)))
    calm()
    mover.stubborn(lambda: move(Discharge(b"", False)))
    reader.consume("other", hub.bodies("other"))
    calm()


def _asked(actor: Actor, coordinator: Sender, value: Any) -> Any:
    """What the coordinator answers; None where it ends."""
    asked, told = object(), list[Any]()
    coordinator.send(request(value), context=asked)

    def answered() -> bool:
        told[:] = [state for context, state in actor.client.outcomes if context is asked]
        return bool(told) or coordinator.detached

    actor.wait(answered, "the coordinator's answer")
    return told[0] if told else None
