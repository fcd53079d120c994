"""Clients' programs that reach their goals over as many connections as it takes, at two nodes.

Rules of this file: an actor reconnects and sends again what was not accepted, as honest programs do, and is never
disconnected but by the failure under test. Every message has a number of a named producer, so that what goes again
counts once.
"""

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected, Released, Source, Target
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.errors import LocalProtocolError
from holdfast.routing.settings import RoutingConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.steps.parsing import as_text
from holdfast.units import KIB
from support.rig import Client, Node, Rig
from support.routing import topology

QUEUES = (
    *(QueueConfig(name=name, order="strict") for name in ("work", "calm")),
    QueueConfig(name="sorted", priorities=True),
    *(QueueConfig(name=name, durable=False) for name in ("in-memory", "in-memory-on")),
    *(QueueConfig(name=name) for name in ("linked", "linked-on")),
    QueueConfig(name="limited", deliveries_max=1),
)
STEPS = as_text([{"drop_repeats": {"key": "JMSMessageID", "within_s": 5}}, {"properties": {"add": {"a": 1}}}], "")
LINKS = (
    LinkConfig(name="stepped", source="linked", target="linked-on", steps=STEPS),
    LinkConfig(name="in-memory", source="in-memory", target="in-memory-on"),
)


class Lost(Exception):
    """The actor's connection ended before its goal was reached: it goes on with another."""


class World:
    """hub, where the failure is, and jfk, which dials it; an actor that has nothing to do with what fails. `routed`:
    they compute their routes, and have heard of syd behind jfk, which is not there."""

    def __init__(self, seed: int = 1, *, routed: bool = False) -> None:
        self.rig = Rig(seed)
        shared: dict[str, Any] = {"limits": Limits(stream_bytes=100 * KIB), "queues": QUEUES, "links": LINKS}
        if routed:
            shared |= {
                "topology": topology("jfk-hub", "jfk-syd"),
                "routing": RoutingConfig(cost="measured", refresh_s=2.0),
            }
        self.jfk, self.hub = self.rig.pair(jfk=shared, **shared)
        self.hub.unwatched |= {"None", "$coordinator", "in-memory"}
        self.actors: list[Actor] = []
        self.rig.run(0.5)

    def actor(self, node: Node, name: str) -> "Actor":
        actor = Actor(self, node, name)
        self.actors.append(actor)
        return actor

    def reconnects(self) -> int:
        return sum(actor.lost for actor in self.actors)


class Actor:
    """One client's program, over as many connections as it takes."""

    def __init__(self, world: World, node: Node, name: str) -> None:
        self.world, self.node, self.name = world, node, name
        self.rig = world.rig
        self.lost = 0
        self.links: dict[str, Any] = {}
        self.seen: dict[str, dict[str, int]] = {}
        """By queue: the sequence of each body."""
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None or self._client.over:
            if self._client is not None:
                self.lost += 1
            self.links.clear()
            self._client = self.rig.client(self.node, container_id=self.name)
        return self._client

    def wait(self, goal: Callable[[], object], what: str) -> None:
        """Until the goal is reached; Lost where the connection ends first."""
        for _ in range(120):
            self.rig.settle()
            if self._client is None or self._client.over:
                raise Lost(what)
            if goal():
                return
            self.rig.run(0.1)
        raise AssertionError(f"{self.name} is connected and waits in vain: {what}")

    def stubborn(self, work: Callable[[], None]) -> None:
        """Does the work, anew with each connection that is lost meanwhile."""
        for _ in range(6):
            try:
                work()
                return
            except (Lost, LocalProtocolError):
                self.rig.run(0.2)
                if self._client is not None and not self._client.over:
                    self._client.close_transport()
                    self.rig.settle()
                    self.lost -= 1
        raise AssertionError(f"{self.name} loses one connection after the other")

    # ------------------------------------------------------------------------------------------------ sending

    def sender(self, address: str, **options: Any) -> Sender:
        client = self.client
        link = self.links.get(address)
        if link is None or link.detached:
            link = self.links[address] = client.sender(address, **options)
        self.wait(lambda: link.detached or (link.attached and link.credit), f"credit for {address}")
        if link.detached:
            self.links.pop(address)
            raise Lost("the link was ended")
        return link

    def produce(
        self, address: str, bodies: Iterable[str], *, batch: int = 4, message_ids: bool = False, ttl: int | None = None,
        notes: dict[Any, Any] | None = None,
    ) -> None:  # fmt: skip
        """Each body once, in order, whatever is released or lost on the way. `message_ids`: each is its own. `notes`:
        message annotations of each."""
        numbered = list(enumerate(bodies, 1))
        done: set[int] = set()

        def send_some(left: list[tuple[int, str]]) -> None:
            link = self.sender(address, properties={PRODUCER: self.name})
            client = self.client
            before = len(client.outcomes)
            for number, body in left:
                told: dict[str, Any] = {"properties": Properties(message_id=body)} if message_ids else {}
                if ttl is not None:
                    told["header"] = Header(ttl=ttl)
                annotations = {**(notes or {}), Symbol("x-opt-holdfast-number"): Ulong(number)}
                client.send(link, body, context=number, message_annotations=annotations, **told)
            self.wait(lambda: len(client.outcomes) - before >= len(left) or link.detached, f"outcomes of {address}")
            for context, state in client.outcomes[before:]:
                if isinstance(state, Accepted):
                    done.add(context)
                else:
                    assert isinstance(state, (Released, Rejected)), state

        def work() -> None:
            while left := [item for item in numbered if item[0] not in done][:batch]:
                send_some(left)

        self.stubborn(work)

    # ------------------------------------------------------------------------------------------------ receiving

    def consume(self, queue: str, wanted: Iterable[str], outcome: Any = None, **options: Any) -> None:
        """Takes until it has had each body."""
        want = list(wanted)
        seen = self.seen.setdefault(queue, {})

        def work() -> None:
            client = self.client
            link: Receiver | None = self.links.get(f"from {queue}")
            if link is None or link.detached:
                link = self.links[f"from {queue}"] = client.receiver(queue, **options)
            known = link
            while not set(want) <= seen.keys():
                self.wait(lambda: known.detached or any(item.link is known for item in client.deliveries), f"{queue}")
                if known.detached and not any(item.link is known for item in client.deliveries):
                    raise Lost("the link was ended")
                self.note(queue, client.messages(known))
                client.accept(outcome, link=known)
            self.rig.settle()

        self.stubborn(work)

    def note(self, queue: str, messages: list[Message]) -> None:
        seen = self.seen.setdefault(queue, {})
        for message in messages:
            body = message.body_bytes().decode()
            sequence = int((message.message_annotations or {})[Symbol("x-opt-sequence-number")])
            assert seen.setdefault(body, sequence) == sequence, f"{queue} holds {body!r} twice"

    def presettled(self, queue: str, count: int) -> None:
        """Takes some without answers; what is under way when a connection ends is lost."""
        client = self.client
        link = client.receiver(queue, credit=count, snd_settle_mode=1)
        self.wait(lambda: any(item.link is link for item in client.deliveries), queue)
        client.accept(link=link)
        link.detach()
        self.rig.settle()

    def manage(self, operation: str, kind: str, name: str = "", **arguments: Any) -> dict[str, Any]:
        told: list[dict[str, Any]] = []

        def work() -> None:
            client = self.client
            if "requests" not in self.links:
                self.links["replies"] = client.session.attach_receiver(
                    "replies", Source(address="$management"), Target(address="replies")
                )
                self.links["replies"].grant(100)
                self.links["requests"] = client.sender("$management")
            link, replies = self.links["requests"], self.links["replies"]
            self.wait(lambda: link.attached and link.credit and replies.attached, "$management")
            request = Message(
                properties=Properties(message_id="m", reply_to="replies"),
                application_properties={"operation": operation, "type": f"holdfast:{kind}", "name": name},
                value=arguments,
            )
            link.send(request.encode(), context=None, settled=True)
            self.wait(lambda: any(item.link is replies for item in client.deliveries), f"{operation} of {kind}")
            answer = Message.decode(next(item for item in client.deliveries if item.link is replies).payload)
            client.deliveries = [item for item in client.deliveries if item.link is not replies]
            told.append(
                {str(key): value for key, value in (answer.application_properties or {}).items()} | answer.value
            )

        self.stubborn(work)
        return told[-1]


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:03d}" for number in range(1, count + 1)]


def in_order(actor: Actor, queue: str, bodies: list[str]) -> None:
    """Each body lies once in the queue, in the order sent."""
    seen = actor.seen[queue]
    assert list(seen.keys() & set(bodies)) != [] and set(bodies) <= seen.keys()
    assert sorted(bodies, key=seen.__getitem__) == bodies, seen
