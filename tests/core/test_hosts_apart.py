"""Nothing crosses between virtual hosts: what the clients of a host do and see is what they would alone on a node.

Rules of this file: every name is the same in every host, at two nodes between which all of them may cross. What one
host's clients see among others is compared, act by act, with the same acts on nodes where nobody else is
(noninterference, Goguen and Meseguer 1982); times, UUIDs and drawn names are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire.extensions import DELIVERY_DELAY, PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Modified, Properties, Rejected, Released, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.custody.hop.sender import CUSTODY_ADDRESS
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import LinkConfig, QueueConfig, TriggerConfig
from support import today
from support.rig import Client, Node, Rig
from support.transactions import Controller, bound_for, within

HOSTS: Final = ("", "acme", "globex")
COPY: Final = Symbol("copy")
OUTCOMES: Final = (Accepted(), Rejected(), Released(), Modified(delivery_failed=True))
ADDRESSES: Final = ("work", "target", "topic/news", "topic/news/a.b", "small", "$dead-letters")
FAR: Final = ("work@far", "small@far", "target@far", "topic/news@far", "$dead-letters@far", "work@nowhere")
UNTOLD: Final = ("uuid", "queue_uuid", "enqueued", "oldest_s", "store", "since", "at", "expires_in_s", "lease_epoch")
"""Of rows: of each life, or of the moment."""


@dataclass
class Actor:
    """The clients of one host, and what they saw. `other`: the node that is not `node`."""

    node: Node
    other: Node
    host: str
    seen: list[Any] = field(default_factory=list)
    client: Client = field(init=False)
    there: Client = field(init=False)
    """At the other node."""
    sent: int = 0
    temporary: list[str] = field(default_factory=list)
    acts: int = 0

    def __post_init__(self) -> None:
        self.connect()

    @property
    def rig(self) -> Rig:
        return self.node.rig

    def connect(self) -> None:
        hostname = f"vhost:{self.host}" if self.host else None
        self.client, self.there = (self.rig.client(node, hostname=hostname) for node in (self.node, self.other))
        self.rig.settle()

    def body(self) -> str:
        self.sent += 1
        return f"{self.host or 'default'}-{self.sent}"

    def name(self) -> str:
        self.acts += 1
        return f"l{self.acts}"

    # ------------------------------------------------------------------------------------------------ links

    def attached(self, make: Callable[[], Any]) -> Any:
        """The link, or what it was refused with."""
        before = len(self.client.detached)
        link = make()
        self.rig.settle()
        refused = [item.error for item in self.client.detached[before:] if item.link is link and item.error]
        return str(refused[0].condition) if refused else link

    def leave(self, link: Any) -> None:
        if isinstance(link, (Sender, Receiver)) and not link.detached:
            link.detach(closed=True)
            self.rig.settle()

    def send(self, address: str | None, *, number: int | None = None, **parts: Any) -> Any:
        """What comes of a message to that address, None for a link without one; `number`: a named producer's."""
        client = self.client
        terms = {} if number is None else {"properties": {Symbol(PRODUCER): "p"}}
        link = self.attached(
            lambda: client.session.attach_sender(self.name(), Source(), Target(address=address), **terms)
        )
        if isinstance(link, str):
            return link
        body = self.body() if number is None else f"{self.host or 'default'}-named-{number}"
        parts.setdefault("properties", Properties(message_id="m"))
        client.send(link, body, number=number, **parts)
        self.rig.settle()
        outcomes = [type(state).__name__ for told, state in client.outcomes if told == body]
        client.outcomes.clear()
        self.leave(link)
        return outcomes

    def take(self, address: str, outcome: Any, count: int, **options: Any) -> Any:
        """Receives up to `count` messages and gives them that outcome; their bodies."""
        options.setdefault("name", self.name())
        link = self.attached(lambda: self.client.receiver(address, credit=count, **options))
        if isinstance(link, str):
            return link
        found = self.client.accept(outcome, link=link)
        self.rig.settle()
        self.leave(link)
        return found

    # ------------------------------------------------------------------------------------------------ acts

    def to_queue(self, number: int) -> Any:
        return self.send(ADDRESSES[number % len(ADDRESSES)])

    def to_named(self, number: int) -> Any:
        return self.send("work", number=1 + number % 3)

    def anonymously(self, number: int) -> Any:
        return self.send(None, properties=bound_for(ADDRESSES[number % len(ADDRESSES)]))

    def later(self, number: int) -> Any:
        return self.send("work", message_annotations={DELIVERY_DELAY: 2_000})

    def in_transaction(self, number: int) -> Any:
        controller = Controller(self.client, self.name())
        begun = controller.begin()
        link = self.attached(lambda: self.client.sender("work", name=self.name()))
        body = self.body()
        self.client.send(link, body) if number % 3 == 2 else link.send(
            b"\x00\x53\x75\xa0" + bytes([len(body)]) + body.encode(), context=body, state=within(begun)
        )
        self.rig.settle()
        told = controller.commit(begun) if number % 2 else controller.abort(begun)
        for each in (link, controller.link):
            self.leave(each)
        return type(told).__name__

    def consume(self, number: int) -> Any:
        return self.take(("work", "target", "$dead-letters", "small")[number % 4], OUTCOMES[number // 4 % 4], 2)

    def browse(self, number: int) -> Any:
        address = ("work", "target", "$dead-letters", "$delayed", "$waiting")[number % 5]
        return self.take(address, None, 100, source={"distribution_mode": COPY})

    def read_range(self, number: int) -> Any:
        link = self.attached(lambda: self.client.reader("work", 1, 100, name=self.name()))
        found = link if isinstance(link, str) else self.client.accept(link=link)
        self.leave(link)
        return found

    def subscribe(self, number: int) -> Any:
        """A durable subscription, shared or not, that stays."""
        shared = (Symbol("shared"), Symbol("global")) if number % 2 else ()
        source = {"durable": 2, "expiry_policy": Symbol("never"), "capabilities": shared or None}
        address = "topic/news" if number % 3 else "work"
        name = f"s{number % 2}" if address != "work" else "s2"
        link = self.attached(lambda: self.client.receiver(address, name=name, credit=2, source=source))
        if isinstance(link, str):
            return link
        found = self.client.accept(link=link)
        self.rig.settle()
        if not link.detached:
            link.detach(closed=False)
            self.rig.settle()
        return found

    def unsubscribe(self, number: int) -> Any:
        link = self.attached(lambda: self.client.session.attach_receiver(f"s{number % 3}", None, Target(address="x")))
        self.leave(link)
        return link if isinstance(link, str) else "found"

    def listen(self, number: int) -> Any:
        """A subscription that is not durable, while something is published."""
        source = {"capabilities": (Symbol("shared"),)} if number % 2 else {}
        link = self.attached(lambda: self.client.receiver("topic/news", name=f"v{number % 2}", source=source))
        sent = self.send("topic/news")
        found = link if isinstance(link, str) else self.client.accept(link=link)
        self.leave(link)
        return sent, found

    def dynamic(self, number: int) -> Any:
        """A dynamic node that stays, and what it holds."""
        source = {"dynamic": True}
        link = self.attached(lambda: self.client.receiver(None, name=self.name(), source=source))
        assert isinstance(link, Receiver) and isinstance(link.source, Source)
        self.temporary.append(str(link.source.address))
        self.send(self.temporary[-1])
        return self.client.accept(link=link)

    def across(self, number: int) -> Any:
        """To a queue of the other node."""
        return self.send(FAR[number % len(FAR)])

    def far(self, number: int) -> Any:
        """An act at the other node, of which some send to the first."""
        self.client, self.there = self.there, self.client
        try:
            kind = ("consume", "browse", "manage", "back")[number % 4]
            return self.send("work@hub") if kind == "back" else getattr(self, kind)(number // 4)
        finally:
            self.client, self.there = self.there, self.client

    def guess(self, address: str) -> Any:
        """What is said of an address that a client of another host may know, in each direction."""
        found = [self.attached(lambda: self.client.sender(address, name=self.name()))]
        found.append(self.attached(lambda: self.client.receiver(address, name=self.name())))
        found.append(self.client.manage("READ", "queue", address)[0])
        found.append(self.client.manage("QUERY", "entry", address)[0])
        found.append(self.client.manage("PURGE", "queue", address)[0])
        found.append(self.client.manage("OPEN", "subscription", "x", queue=address)[0])
        for link in found:
            self.leave(link)
        return [each if isinstance(each, (str, int)) else "attached" for each in found]

    def manage(self, number: int) -> Any:
        """One request of `$management`, its status and its answer."""
        queue = ("work", "target", "$dead-letters", "$delayed", "small", "made")[number // 20 % 6]
        operation, kind, name, arguments = REQUESTS[number % len(REQUESTS)]
        name = name.replace("QUEUE", queue)
        arguments = {key: value.replace("QUEUE", queue) if isinstance(value, str) else value
                     for key, value in arguments.items()}  # fmt: skip
        if kind == "entry" and operation != "QUERY":
            found = self.client.manage("QUERY", "entry", queue)[1]
            rows = found.get("entries") or [{"sequence": 1, "delivery_count": 0}]
            row = rows[number % len(rows)]
            arguments |= {key: row[key] for key in ("sequence", "delivery_count")}
            arguments["queue_uuid"] = found.get("queue_uuid", "")
            if operation == "READ":
                arguments.pop("delivery_count")
        status, body, _ = self.client.manage(operation, kind, name, **arguments)
        if kind == "node" and operation == "STATUS":
            body = {key: body[key] for key in ("queues", "queues_more", "links", "triggers", "dead_letters")}
        if kind == "org.amqp.management":
            body = {"rows": [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]}
        return status, _told(body)

    def act(self, kind: str, number: int, foreign: str) -> None:
        if kind == "guess":
            found = self.guess(foreign)
        elif kind == "own":
            address = self.temporary[-1] if self.temporary else "$temporary/none"
            found = self.send(address)
        else:
            found = getattr(self, kind)(number)
        self.seen.append((kind, number, found))


REQUESTS: Final[tuple[tuple[str, str, str, dict[str, Any]], ...]] = (
    ("QUERY", "queue", "", {}),
    ("READ", "queue", "QUEUE", {}),
    ("CREATE", "queue", "made", {}),
    ("DELETE", "queue", "made", {}),
    ("UPDATE", "queue", "QUEUE", {"messages_max": 50}),
    ("PURGE", "queue", "QUEUE", {}),
    ("STATUS", "node", "", {}),
    ("WHERE", "node", "", {"message_id": "m", "limit_s": 1.0}),
    ("QUERY", "entry", "QUEUE", {}),
    ("READ", "entry", "QUEUE", {}),
    ("DELETE", "entry", "QUEUE", {}),
    ("MOVE", "entry", "QUEUE", {"to": "target"}),
    ("COPY", "entry", "QUEUE", {"to": "target"}),
    ("REQUEUE", "entry", "$dead-letters", {}),
    ("OPEN", "subscription", "r", {"queue": "QUEUE", "mode": "copy"}),
    ("DELETE", "subscription", "r", {"queue": "QUEUE"}),
    ("QUERY", "subscription", "", {}),
    ("QUERY", "link", "", {}),
    ("CREATE", "link", "made", {"from": "work", "to": "target", "mode": "copy"}),
    ("DELETE", "link", "made", {}),
    ("STOP", "link", "configured", {}),
    ("START", "link", "configured", {}),
    ("QUERY", "org.amqp.management", "self", {"entityType": "holdfast:queue"}),
    ("QUERY", "org.amqp.management", "self", {"entityType": "holdfast:subscription"}),
    ("QUERY", "org.amqp.management", "self", {"entityType": "holdfast:link"}),
)
ACTS: Final = (
    "to_queue", "to_named", "anonymously", "later", "in_transaction", "consume", "browse", "read_range", "subscribe",
    "unsubscribe", "listen", "dynamic", "own", "guess", "manage", "manage", "across", "across", "far", "far",
)  # fmt: skip


def _told(value: Any) -> Any:
    """An answer without what differs from run to run; a string in full, so that no other host's words are in it."""
    if isinstance(value, dict):
        return {str(key): _told(item) for key, item in value.items() if key not in UNTOLD}
    if isinstance(value, list):
        return [_told(item) for item in value]
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return "$temporary" if value.startswith("$temporary/") else str(value)
    return value


def same(together: list[Any], alone: list[Any]) -> None:
    for one, other in zip(together, alone, strict=True):
        assert one == other


def node_of(rig: Rig, name: str, neighbour: NeighbourConfig) -> Node:
    def of_each(**fields: Any) -> list[dict[str, Any]]:
        return [{"vhost": host, **fields} for host in HOSTS]

    node = rig.node(
        name,
        neighbours=(replace(neighbour, hosts=tuple(host for host in HOSTS if host)),),
        vhosts=tuple(VhostConfig(name=host) for host in HOSTS if host),
        create_queues=True,
        queues=(
            *(QueueConfig(name="work", deliveries_max=3, **each) for each in of_each()),
            *(QueueConfig(name="small", messages_max=1, when_full="dead-letter", **each) for each in of_each()),
            *(QueueConfig(name="raw", **each) for each in of_each()),
        ),
        links=tuple(LinkConfig(name="configured", source="raw", target="target", **each) for each in of_each()),
        triggers=tuple(
            TriggerConfig(name=f"t{at}", queue="work", command=("true",), messages=3, **each)
            for at, each in enumerate(of_each())
        ),
    )
    node.unwatched |= {"None", CUSTODY_ADDRESS}  # what comes on a link without an address may be for a topic
    return node


Step = tuple[int, str, int]
"""Whose turn it is, what is done, and how; of HOSTS + 0 to 2: time passes, the node restarts."""

STEPS: Final = st.lists(
    st.tuples(st.integers(0, len(HOSTS) + 1), st.sampled_from(ACTS), st.integers(0, 119)), min_size=1, max_size=30
)


def play(steps: list[Step], hosts: tuple[str, ...]) -> dict[str, list[Any]]:
    """What the clients of these hosts see where theirs are the only acts."""
    rig = Rig()
    node = node_of(rig, "hub", NeighbourConfig(name="far", remote="127.0.0.1:1"))
    other = node_of(rig, "far", NeighbourConfig(name="hub"))
    rig.run(2)
    actors = {host: Actor(node, other, host) for host in hosts}
    for who, kind, number in steps:
        if who == len(HOSTS):
            node.rig.run(3)
        elif who == len(HOSTS) + 1:
            if number % 4:
                continue
            killed = other if number % 8 else node
            killed.crash()
            killed.start()
            rig.run(8)  # until both have a session again
            for actor in actors.values():
                actor.connect()
        elif HOSTS[who] in actors:
            actor = actors[HOSTS[who]]
            theirs = [name for each in actors.values() if each is not actor for name in each.temporary]
            names = [f"{host}\0work" for host in HOSTS if host != actor.host]
            names += [f"{host}/work" for host in HOSTS if host != actor.host] if kind != "guess" else []
            names += [theirs[-1] if theirs else f"$temporary/{'0' * 32}"]
            actor.act(kind, number, names[number % len(names)])
    rig.run(3)
    for each in (node, other):
        assert each.core is not None
        each.core.validate()
    for host, actor in actors.items():
        marks = [f"{other or 'default'}-" for other in HOSTS if other != host]
        assert not any(mark in repr(actor.seen) for mark in marks), "a body of another host was seen"
    return {host: actor.seen for host, actor in actors.items()}


@settings(max_examples=today.drawn(14))
@given(STEPS)
def test_a_host_sees_what_it_would_see_alone(steps: list[Step]) -> None:
    together = play(steps, HOSTS)
    for host in HOSTS:
        same(together[host], play(steps, (host,))[host])


def test_every_act_is_carried_out_in_some_host_with_something_to_see() -> None:
    """The property says nothing of acts that always fail: here each does something, all names the same in all hosts."""
    steps: list[Step] = []
    for who in range(len(HOSTS)):
        steps += [(who, kind, number) for kind in ACTS[:4] for number in range(6)]
        steps += [(who, "in_transaction", 1), (who, "in_transaction", 2), (who, "dynamic", 0), (who, "own", 0)]
        steps += [(who, "subscribe", number) for number in range(6)]
        steps += [(who, "across", number) for number in range(12)] + [(who, "far", 3), (who, "far", 23)]
    steps.append((len(HOSTS), "to_queue", 0))
    for who in range(len(HOSTS)):
        steps += [(who, "consume", number) for number in range(16)] + [(who, "browse", number) for number in range(5)]
        steps += [(who, "to_queue", 2), (who, "read_range", 0), (who, "listen", 0), (who, "listen", 1)]
        steps += [(who, "subscribe", number) for number in range(6)] + [(who, "guess", number) for number in range(6)]
        steps += [(who, "manage", number) for number in range(120)]
        steps += [(who, "unsubscribe", number) for number in range(3)]
        steps += [(who, "far", 4 * number) for number in range(16)] + [(who, "far", 4 * at + 1) for at in range(5)]
        steps += [(who, "far", 4 * number + 2) for number in range(30)]
    together = play(steps, HOSTS)
    for host in HOSTS:
        alone = play(steps, (host,))[host]
        same(together[host], alone)
        found = {(kind, repr(told)) for kind, _, told in alone}
        for kind in ("consume", "browse", "read_range", "subscribe", "dynamic", "far"):
            assert any(body in told for seen, told in found if seen == kind for body in (f"{host or 'default'}-",))
        assert all("attached" not in told for kind, told in found if kind == "guess")
        assert {told[0] for kind, _, told in alone if kind == "manage"} >= {200, 201}
