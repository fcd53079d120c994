"""What clients do while a call of their node fails: each stage is a program, which reaches its goals all the same
(support/failing.py).

Rules of this file: a stage follows from nothing but its code; what a failure may cost it, it does again.
"""

from collections.abc import Callable
from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.units import KIB
from support.actors import Lost, World, in_order, names
from support.hops import reroute
from support.rig import Node
from support.transactions import request

LARGE = 300 * KIB


def local(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """A named producer, consumers that compete, each outcome."""
    one, two, sender = world.actor(hub, "one"), world.actor(hub, "two"), world.actor(hub, "sender")
    sender.produce("local", names("m", 8))
    calm()

    def refuse() -> None:
        client = two.client
        link = client.receiver("local", credit=4)
        two.wait(lambda: len(client.deliveries) >= 4, "four to refuse")
        ways = [Released(), Modified(delivery_failed=True), Modified(message_annotations={Symbol("x-opt-a"): "b"})]
        for item, outcome in zip(list(client.deliveries), [*ways, Modified(undeliverable_here=True)], strict=True):
            item.link.settle(item.delivery_id, item.delivery_id, outcome)
        client.deliveries.clear()
        world.rig.settle()
        link.detach()
        world.rig.settle()

    two.stubborn(refuse)
    one.consume("local", names("m", 8))
    in_order(one, "local", names("m", 8))
    calm()


def rejected(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """What the node heard of goes to the dead letters, whatever becomes of the connection; the rest is offered anew."""
    sender, consumer, reader = world.actor(hub, "sender"), world.actor(hub, "consumer"), world.actor(hub, "reader")
    sender.produce("local", names("m", 3))
    while left := hub.bodies("local"):
        consumer.seen.clear()
        consumer.consume("local", left, Rejected())
        world.rig.run(0.2)
    calm()
    reader.consume("$dead-letters", names("m", 3))


def outward(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Custody to the neighbour."""
    sender, consumer = world.actor(hub, "sender"), world.actor(world.jfk, "consumer")
    sender.produce("work@jfk", names("m", 8))
    calm()
    consumer.consume("work", names("m", 8))
    in_order(consumer, "work", names("m", 8))
    world.rig.run(2)


def inward(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Custody from the neighbour."""
    sender, consumer = world.actor(world.jfk, "sender"), world.actor(hub, "consumer")
    sender.produce("work@hub", names("m", 8))
    calm()
    consumer.consume("work", names("m", 8))
    in_order(consumer, "work", names("m", 8))
    world.rig.run(2)


def cut(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """The hop breaks with messages under way, and a commit is refused."""
    there, here = world.actor(hub, "there"), world.actor(world.jfk, "here")
    hub.hold_commits = True
    here.client.flush()
    for wire in world.rig.between("jfk", "hub"):
        wire.cut()
    hub.hold_commits = False
    here.produce("work@hub", names("m", 4))
    hub.refuse = 1
    there.produce("work@jfk", names("n", 4))
    calm()
    hub.refuse = 1
    there.produce("local", names("p", 4))
    there.consume("work", names("m", 4))
    here.consume("work", names("n", 4))
    in_order(there, "work", names("m", 4))
    in_order(here, "work", names("n", 4))


def large(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Messages in pieces: in, out, and over the hop both ways."""
    bodies = ["a" * LARGE, "b" * LARGE]
    here, there = world.actor(hub, "here"), world.actor(world.jfk, "there")
    here.produce("local", bodies)
    here.consume("local", bodies)
    calm()
    here.produce("work@jfk", bodies, batch=2)
    there.consume("work", bodies)
    there.produce("work@hub", bodies, batch=2)
    here.consume("work", bodies)
    in_order(here, "local", bodies)
    calm()


def subscribed(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """A durable subscription beside a consumer, readers by sequence, presettled and draining."""
    sender, copy, plain = world.actor(hub, "sender"), world.actor(hub, "copy"), world.actor(hub, "plain")
    durable = {"durable": 2, "expiry_policy": Symbol("never")}
    sender.produce("local", names("m", 2))

    def subscribe() -> None:
        link = copy.client.receiver("local", name="sub", source=durable)
        copy.wait(lambda: link.attached, "a subscription")

    copy.stubborn(subscribe)
    copy.links.clear()
    copy.client.close_transport()
    copy.lost -= 1
    sender.produce("local", names("m", 5))
    copy.consume("local", names("m", 5)[2:], name="sub", source=durable)
    sender.produce("other", names("m", 5))
    plain.stubborn(lambda: plain.presettled("other", 1))
    plain.consume("local", names("m", 5))
    calm()

    def browse() -> None:
        client = copy.client
        link = client.reader("local", 1, 3)
        copy.wait(lambda: link.detached, "the end of the range")
        client.deliveries.clear()
        drained = client.receiver("local", credit=0)
        drained.grant(5, drain=True)
        copy.wait(lambda: drained.credit == 0, "a drain")

    copy.stubborn(browse)
    calm()


def managed(world: World, hub: Node, calm: Callable[[], None]) -> None:
    boss = world.actor(hub, "boss")
    assert boss.manage("STATUS", "node")["statusCode"] == 200
    assert boss.manage("CREATE", "queue", "made")["statusCode"] in (200, 201, 409)
    boss.produce("made", names("m", 5))
    calm()
    assert boss.manage("QUERY", "queue")["statusCode"] == 200
    assert boss.manage("PURGE", "queue", "made")["statusCode"] == 200
    boss.produce("other", names("n", 3))
    for name in ("made", "other"):

        def delete(name: str = name) -> None:
            link = boss.links.pop(name, None)
            if link is not None:
                link.detach(closed=True)

        boss.stubborn(delete)
        assert boss.manage("DELETE", "queue", name)["statusCode"] in (200, 404)
    calm()
    assert not {"made", "other"} & hub.core.catalog.queues.keys()  # type: ignore[union-attr]


def anonymous(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """The anonymous terminus, a transaction that uses it, a dynamic node."""
    sender, consumer = world.actor(hub, "sender"), world.actor(hub, "consumer")

    def work() -> None:
        client = sender.client
        link = client.sender(None)  # type: ignore[arg-type]
        sender.wait(lambda: link.attached and link.credit, "the anonymous terminus")
        for number, to in enumerate(("local", "work@jfk", "other", "no such name!", "local")):
            client.send(link, f"a{number}", properties=Properties(to=to), context=number)
        sender.wait(lambda: len(client.outcomes) >= 5, "its outcomes")
        coordinator = client.session.attach_sender("tx", Source(), Coordinator())
        sender.wait(lambda: coordinator.attached and coordinator.credit, "the coordinator")

        def ask(value: Any) -> Any:
            asked = object()
            coordinator.send(request(value), context=asked)
            told: list[Any] = []

            def answered() -> bool:
                told[:] = [state for context, state in client.outcomes if context is asked]
                return bool(told) or coordinator.detached

            sender.wait(answered, "the coordinator's answer")
            return told[0] if told else None

        declared = ask(Declare())
        if isinstance(declared, Declared):
            message = Message(properties=Properties(to="transacted"), data=[b"t"]).encode()
            link.send(message, context="t", state=TransactionalState(declared.txn_id))
            ask(Discharge(declared.txn_id, False))

    sender.stubborn(work)
    calm()

    def dynamic() -> None:
        client = consumer.client
        link = client.session.attach_receiver("dyn", Source(dynamic=True), Target("here"))
        link.grant(10)
        consumer.wait(lambda: link.attached, "a dynamic node")
        answers = client.sender(link.remote_attach.source.address)  # type: ignore[union-attr]
        consumer.wait(lambda: answers.attached and answers.credit, "its credit")
        client.send(answers, "reply")
        consumer.wait(lambda: client.deliveries, "its message")
        client.accept()
        world.rig.settle()
        link.detach()
        world.rig.settle()

    consumer.stubborn(dynamic)
    calm()


def resumed(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Links that are resumed, with deliveries that were in doubt."""
    sender, consumer = world.actor(hub, "sender"), world.actor(hub, "consumer")
    sender.produce("local", names("m", 4))
    doubt: dict[bytes, Any] = {}

    def attach() -> Any:
        client = consumer.client
        terms = {"source": {"timeout": 30}, "credit": 10}
        link = client.receiver("local", name="kept", unsettled=dict.fromkeys(doubt), **terms)
        consumer.wait(lambda: link.attached, "a link that is resumed")
        return link

    def hold() -> None:
        attach()
        client = consumer.client
        consumer.wait(lambda: len(client.deliveries) >= 4, "what is held")
        doubt.update(dict.fromkeys(item.tag for item in client.deliveries))

    consumer.stubborn(hold)
    consumer.client.close_transport()
    consumer.lost -= 1
    world.rig.settle()
    calm()
    consumer.stubborn(lambda: attach() and None)
    consumer.client.close_transport()
    consumer.lost -= 1
    world.rig.run(31)
    consumer.consume("local", names("m", 4))
    in_order(consumer, "local", names("m", 4))


def asked(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Where a message is: here, at the neighbour, and as a neighbour asks."""
    sender, boss, other = world.actor(hub, "sender"), world.actor(hub, "boss"), world.actor(world.jfk, "other")
    sender.produce("local", names("m", 2), message_ids=True)
    sender.produce("work@jfk", names("n", 2), message_ids=True)
    world.rig.run(1)
    calm()
    for actor, body in ((boss, "m001"), (boss, "n002"), (boss, "nowhere"), (other, "m002")):
        answer = actor.manage("WHERE", "node", message_id=body)
        assert answer["statusCode"] == 200 and answer["steps"], answer
    calm()


def skipped(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Numbers that never come: what waits behind them is let go by hand."""
    boss, consumer, sender = world.actor(hub, "boss"), world.actor(hub, "consumer"), world.actor(world.jfk, "sender")
    sender.produce("work@hub", names("m", 2))
    world.rig.run(1)
    assert world.jfk.core is not None
    world.jfk.core.catalog.ledger.identities["hub"] += 3
    sender.produce("work@hub", names("m", 4))
    world.rig.run(1)
    calm()
    for _ in range(4):
        code = boss.manage("SKIP", "queue", "work")["statusCode"]
        assert code in (200, 503), code
        world.rig.run(0.5)
    consumer.consume("work", names("m", 4))
    in_order(consumer, "work", names("m", 4))
    calm()


def expired(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Messages with a time to live, in somebody's hands and in nobody's."""
    sender, consumer = world.actor(hub, "sender"), world.actor(hub, "consumer")
    sender.produce("local", names("m", 4), ttl=1_500)
    sender.produce("other", names("n", 2), ttl=1_500)

    def hold() -> None:
        link = consumer.client.receiver("local", credit=2)
        consumer.wait(lambda: link.attached, "its link")

    consumer.stubborn(hold)
    calm()
    world.rig.run(4)
    if consumer._client is not None and not consumer._client.over:
        consumer._client.close_transport()
        consumer.lost -= 1
    for _ in range(70):  # a part that failed may rest
        world.rig.run(1)
        if not hub.queue("local").messages and not hub.queue("other").messages and not hub.queue("local").hidden:
            break
    else:
        raise AssertionError("what has expired stays")
    calm()


def sized(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Consumers that take messages up to a size, and call some undeliverable."""
    sender, small, wide = world.actor(hub, "sender"), world.actor(hub, "small"), world.actor(hub, "wide")
    bodies = [body + "x" * (300 if number % 2 else 0) for number, body in enumerate(names("m", 6))]
    sender.produce("local", bodies)

    def some() -> None:
        client, other = small.client, wide.client
        takes_more = other.receiver("local", credit=0)
        link = client.receiver("local", credit=6, max_message_size=250)

        def is_alone() -> bool:
            """Nobody who takes more is there: its link is ended, or stops at what is larger."""
            return bool(link.detached or takes_more.detached or other.over)

        small.wait(lambda: is_alone() or len(client.deliveries) >= 3, "what is small enough")
        if is_alone():
            raise Lost("nobody takes more")
        item = client.deliveries[0]
        link.settle(item.delivery_id, item.delivery_id, Modified(undeliverable_here=True))
        world.rig.settle()
        link.detach()
        world.rig.settle()

    small.stubborn(some)
    calm()
    wide.consume("local", bodies)
    in_order(wide, "local", bodies)
    calm()


def departed(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Mail for a node that leaves the tables, which the operator ends."""
    boss, sender = world.actor(hub, "boss"), world.actor(hub, "sender")

    def tell(**table: str) -> None:
        """Until it is taken: a change of tables that fails is given again."""
        reroute(world.rig, hub, **table)
        if dict(hub.core.forwarding.table) != table:  # type: ignore[union-attr]
            reroute(world.rig, hub, **table)

    tell(syd="jfk")
    sender.produce("work@syd", names("m", 6))
    assert "@syd" in hub.core.catalog.queues  # type: ignore[union-attr]
    calm()
    tell()
    world.rig.run(1)
    for wanted in (False, True, True, True, True):
        status = boss.manage("DELETE", "queue", "@syd", tombstones=wanted)["statusCode"]
        if status == 404:
            break
        assert status in (200, 409), status
        world.rig.run(1)
    else:
        raise AssertionError("the queue of a node that left stays")
    calm()
    world.actor(hub, "reader").consume("$dead-letters", names("m", 6))


def routed(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """Routes that the nodes compute: a link lost and found again, a record that changes, a node that is forgotten."""
    boss, sender, consumer = world.actor(hub, "boss"), world.actor(hub, "sender"), world.actor(world.jfk, "consumer")
    sender.produce("work@jfk", names("m", 4))
    calm()
    for wire in world.rig.between("jfk", "hub"):
        wire.cut()
    world.rig.run(5)
    sender.produce("work@jfk", names("m", 8))
    world.rig.run(15)  # digests, stamps, measured costs
    assert boss.manage("STATUS", "node")["statusCode"] == 200
    assert boss.manage("FORGET", "node", "syd")["statusCode"] in (200, 404, 409)
    calm()
    consumer.consume("work", names("m", 8))
    in_order(consumer, "work", names("m", 8))
    world.rig.run(5)
    for node in (hub, world.jfk):
        assert node.core is not None and node.core.routing is not None and node.core.routing.synchronised
