"""A node in which one call raises, and clients that reach their goals all the same.

Rules of this file: the call is named by its number in a run of one stage; stages follow from nothing but their code.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import CO_GENERATOR
from random import Random
from types import CodeType, FrameType
from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import SELECTOR
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
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.core import turn_end
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.errors import HoldfastError
from holdfast.links.containment import Containment
from holdfast.units import KIB
from support.actors import Lost, World, in_order, names
from support.hops import reroute
from support.packages import NODE
from support.rig import Node
from support.transactions import request

PACKAGES = tuple(f"holdfast.{name}." for name in NODE)
"""The node's own code: what a peer's event may run through (pyproject.toml, "imports go down only")."""
LARGE = 300 * KIB

Site = tuple[CodeType, int, CodeType]
"""Who calls, in which line, and what."""


class Injected(Exception):
    """Raised where no code of the node's own would."""


class Injector:
    """Counts the calls that a node's core makes of its own functions; raises at the entry of the one numbered `at`."""

    def __init__(self, node: Node, at: int = 0) -> None:
        self.at = at
        self.calls = 0
        self.sites: dict[Site, list[int]] = {}
        """Each call site, and the numbers of the calls from there."""
        self.raised: Site | None = None
        self.why = ""
        self.ended: list[str] = []
        """The functions that were under way when the failure ended the node, the innermost last."""
        self.node = node
        core = node.core
        assert core is not None
        self._handle, self._next_deadline = core.handle, core.next_deadline
        core.handle = self._watched  # type: ignore[method-assign]
        core.next_deadline = self._asked  # type: ignore[method-assign]

    def _watched(self, event: events.Event, now: float) -> list[events.Command]:
        sys.setprofile(self._called if not self.raised else None)
        try:
            return self._handle(event, now)
        except (Injected, HoldfastError) as error:
            sys.setprofile(None)
            self.why = repr(error)
            trace = error.__traceback__ if isinstance(error, Injected) else (error.__cause__ or error).__traceback__
            while trace is not None:
                self.ended.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            self.node.crash()  # as the driver does; a supervisor starts it again
            self.node.start()
            return []
        finally:
            sys.setprofile(None)

    def _asked(self) -> float | None:
        sys.setprofile(self._called if not self.raised else None)
        try:
            return self._next_deadline()
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, what: str, argument: object) -> None:
        if what != "call" or not _may_fail(frame):
            return
        caller = frame.f_back
        assert caller is not None
        if id(caller.f_code) in _DISPATCHER or caller.f_code.co_name in ("_watched", "_asked"):
            return
        self.calls += 1
        site = (caller.f_code, caller.f_lineno, frame.f_code)
        self.sites.setdefault(site, []).append(self.calls)
        if self.calls == self.at:
            self.raised = site
            raise Injected(f"call {self.at}")


_DISPATCHER = frozenset(
    id(function.__code__)
    for function in (
        NodeCore.handle, NodeCore._handle_rare, NodeCore._end_turn, NodeCore._committed, turn_end.completed,
        NodeCore._tick, turn_end.flush, turn_end.account, Containment.run,
    )
)  # fmt: skip
"""What surrounds the work, and calls it; a failure of its own ends the node. By identity: code of two modules may be
equal, and takes long to hash."""

_known: dict[int, tuple[CodeType, bool]] = {}
"""By identity, which the code keeps while it is here: whether a call of it may fail."""


def _may_fail(frame: FrameType) -> bool:
    """Whether the call is one of a function of the node's own."""
    code = frame.f_code
    known = _known.get(id(code))
    if known is None:
        own = str(frame.f_globals.get("__name__")).startswith(PACKAGES)
        known = _known[id(code)] = code, own and not code.co_flags & CO_GENERATOR and id(code) not in _DISPATCHER
    return known[1]


# ---------------------------------------------------------------------------------------------------------- stages


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
        wide.client.receiver("local", credit=0)
        client = small.client
        link = client.receiver("local", credit=6, max_message_size=250)
        small.wait(lambda: link.detached or len(client.deliveries) >= 3, "what is small enough")
        if link.detached:  # nobody who takes more was there
            raise Lost("the link was ended")
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


STAGES: dict[str, Callable[[World, Node, Callable[[], None]], None]] = {
    stage.__name__: stage
    for stage in (
        local,
        rejected,
        outward,
        inward,
        cut,
        large,
        subscribed,
        managed,
        anonymous,
        resumed,
        asked,
        skipped,
        expired,
        sized,
        selecting,
        sorting,
        departed,
        routed,
    )
}
ROUTED = {"routed"}
"""Stages of a world whose nodes compute their routes."""


def run(name: str, at: int = 0) -> tuple[Injector, World]:
    """One stage, with a failure at the call numbered `at`; 0: none. Checks what must hold after any failure."""
    world = World(routed=name in ROUTED)
    injector = Injector(world.hub, at)
    bystander = world.actor(world.hub, "bystander")
    count = 0

    def calm() -> None:
        nonlocal count
        count += 1
        bystander.produce("calm", names("c", 3 * count))
        bystander.consume("calm", names("c", 3 * count))

    calm()
    STAGES[name](world, world.hub, calm)
    calm()
    in_order(bystander, "calm", names("c", 3 * count))
    world.rig.run(3)
    for node in (world.hub, world.jfk):
        assert node.core is not None
        node.core.validate()
    return injector, world


@dataclass(frozen=True)
class Measured:
    """The calls of a stage without a failure: how many, and their numbers by call site."""

    calls: int
    sites: dict[Site, list[int]]


@cache
def measure(name: str) -> Measured:
    """One stage's calls as they come again: what a process remembers for good, the first run has found. Kept: each
    test of a stage needs them."""
    run(name)
    injector, _ = run(name)
    return Measured(injector.calls, injector.sites)


def sample(sites: dict[Site, list[int]], random: Random, count: int) -> list[int]:
    """The first calls of so many call sites."""
    calls = sorted(numbers[0] for numbers in sites.values())
    return calls if len(calls) <= count else sorted(random.sample(calls, count))
