"""Custody over several hops: the histories of CUSTODY.md that need a node in between, and lines that break."""

import copy
from typing import Any
from uuid import UUID

import pytest

from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Header
from holdfast.broker import entry
from holdfast.core import events
from holdfast.core.config import Limits, NeighbourConfig, NodeConfig, QueueConfig
from holdfast.core.forwarding import RETURN_S
from holdfast.errors import ConfigError
from holdfast.storage.memory import MemoryStore
from support.rig import Client, Node, Rig

STRICT = {"queues": (QueueConfig(name="work", order="strict"),)}


def send(rig: Rig, node: Node, *bodies: str, to: str = "d", queue: str = "work", **parts: Any) -> Client:
    client = rig.client(node)
    link = client.sender(f"{queue}@{to}")
    rig.settle()
    for body in bodies:
        if not link.sendable:
            rig.settle()
        client.send(link, body, **parts)
    rig.settle()
    return client


def names(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def snapshot(node: Node) -> MemoryStore:
    store = MemoryStore(mint_from=node.rig.uuid)
    store.uuid = node.store.uuid
    store._queues, store._tables = copy.deepcopy(node.store._queues), dict(node.store._tables)
    return store


def reroute(rig: Rig, node: Node, **table: str) -> None:
    node.handle(events.ForwardingChanged(table=table))
    rig.settle()


def is_empty(*nodes: Node) -> bool:
    """Whether nothing is in transit, nor waits."""
    return all(
        not queue.messages
        for node in nodes
        if node.core is not None
        for name, queue in node.core.catalog.queues.items()
        if name.startswith(("@", "$waiting"))
    )


def apart(rig: Rig, one: str, two: str, *, silent: bool = False) -> None:
    for wire in rig.between(one, two):
        wire.cut(silent=silent)


# ------------------------------------------------------------------------------------------------ lines


def test_along_a_line_and_back() -> None:
    rig = Rig()
    nodes = rig.line("a", "b", "c", "d", a=STRICT, d=STRICT)
    a, b, c, d = nodes
    rig.run(3)
    send(rig, a, *names(1, 3000))
    send(rig, d, *names(1, 500), to="a")
    rig.run(1)
    assert d.bodies("work") == names(1, 3000) and a.bodies("work") == names(1, 500)
    assert is_empty(*nodes)
    value = d.queue("work").read(0, count_max=1, bytes_max=1)[0][1]
    assert entry.unpack(value).trace == b"".join(node.store.uuid.bytes for node in (a, b, c))


def test_a_destination_never_heard_of_is_refused() -> None:
    rig = Rig()
    a, b = rig.graph("a-b", routes={"a": {"nowhere": "b"}})
    rig.run(2)
    send(rig, a, "1", to="nowhere")
    rig.run(100)
    assert a.queue("@nowhere").messages == 1
    assert "@nowhere" not in b.core.catalog.queues
    refused = [line for line in a.logs if "amqp:not-found" in line]
    assert 1 < len(refused) < 12  # tried again, later each time
    other = rig.client(b).sender("work@nowhere")
    rig.settle()
    assert other.refused


def test_time_to_live_and_tombstones_pass_through() -> None:
    rig = Rig()
    a, b, c, d = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    d.crash()
    send(rig, a, "1")
    send(rig, a, "2", header=Header(ttl=60_000))
    send(rig, a, "3", header=Header(ttl=1_000))
    send(rig, a, "4")
    assert c.queue("@d").messages == 4
    c.crash()
    c.start()
    rig.run(10)
    d.start()
    rig.run(10)
    assert d.bodies("work") == ["1", "2", "4"] and is_empty(a, b, c, d)
    client = rig.client(d)
    client.receiver("work")
    rig.settle()
    ttl = [message.header.ttl for message in client.messages() if message.header is not None]
    assert ttl[0] is None and ttl[2] is None and 0 < ttl[1] < 51_000


class Source:
    """A named producer's program at a node: sends 1, 2, 3 … in bursts, and goes on from what is stored."""

    def __init__(self, rig: Rig, node: Node, to: str, messages: int) -> None:
        self.rig, self.node, self.messages = rig, node, messages
        self.address = f"work@{to}"
        self.client: Client | None = None
        self.link: Any = None
        self.sent = -1
        self.done = False

    def act(self) -> None:
        if self.node.core is None or self.done:
            return
        if self.client is None or self.client.over or self.link.detached:
            self.client = self.rig.client(self.node)
            self.link = self.client.sender(self.address, properties={"holdfast:producer": "p"})
            self.sent = -1
            return
        if not self.link.attached:
            return
        told = {str(key): value for key, value in (self.link.remote_attach.properties or {}).items()}
        if self.sent < 0:
            missing = told["holdfast:missing"]
            self.sent = missing[0][0] - 1 if missing else told["holdfast:last-number"]
        if any(type(state).__name__ != "Accepted" for _, state in self.client.outcomes):
            self.client.close_transport()
            return
        self.client.outcomes.clear()
        for _ in range(self.rig.random.randint(1, 60)):
            if self.sent < self.messages and self.link.sendable:
                self.sent += 1
                self.client.send(self.link, f"{self.node.name}-{self.sent}", number=self.sent)
        if self.sent >= self.messages and not self.link.unsettled:
            self.done = True


def check_exact(origin: Node, destination: Node, messages: int) -> None:
    """All is there once, and in the order in which the origin numbered it."""
    given = [Message.decode(origin.given[number]).body_bytes().decode() for number in sorted(origin.given)]
    assert sorted(given) == sorted(f"{origin.name}-{number}" for number in range(1, messages + 1))
    assert destination.bodies("work") == given
    assert origin.core is not None and not origin.core.losses


@pytest.mark.parametrize("order", ["strict", "bounded"])
@pytest.mark.parametrize("seed", range(4))
def test_a_line_that_breaks_at_random(seed: int, order: str) -> None:
    """Thousands both ways over two nodes in between, which crash, are cut, run full and stop answering."""
    rig = Rig(seed * 11 + len(order))
    ends = {"queues": (QueueConfig(name="work", order=order),), "limits": Limits(ranges_max=(1024, 2)[seed % 2])}
    nodes = rig.line("a", "b", "c", "d", a=ends, d=ends)
    random = rig.random
    sources = [Source(rig, nodes[0], "d", 1000), Source(rig, nodes[3], "a", 300)]
    for _ in range(2500):
        dice = random.random()
        node = random.choice(nodes if random.random() < 0.2 else nodes[1:3])
        if dice < 0.006:
            if node.core is None:
                node.start()
            else:
                node.crash()
        elif dice < 0.012:
            wires = [wire for wire in rig.wires if not wire.dead and all(end.node for end in wire.ends)]
            if wires:
                random.choice(wires).cut(silent=random.random() < 0.5)
        elif dice < 0.016:
            node.refuse = 1
        elif dice < 0.06:
            rig.pass_time(random.choice((0.05, 0.5, 4.0)))
        elif dice < 0.2:
            random.choice(sources).act()
        else:
            rig.step()
    for node in nodes:
        node.refuse = 0
        if node.core is None:
            node.start()
    for _ in range(400):
        rig.run(0.3)
        for source in sources:
            source.act()
        if all(source.done for source in sources) and is_empty(*nodes):
            break
    rig.run(3)
    check_exact(nodes[0], nodes[3], 1000)
    check_exact(nodes[3], nodes[0], 300)
    assert is_empty(*nodes)


# ------------------------------------------------------------------------------------------------ the trace


def stale(rig: Rig) -> list[Node]:
    """a's way to d is right (by b, who has it from elsewhere soon), b's is stale: back to a."""
    return rig.graph("a-b", "b-d", routes={"a": {"d": "b"}, "b": {"d": "a"}}, d=STRICT)


def held(node: Node, destination: str = "d") -> int:
    assert node.core is not None
    return node.core.forwarding.held(destination)


def test_stale_return() -> None:
    """What comes back is held, does not go round, and goes again once the neighbour's table is another one."""
    rig = Rig()
    a, b, d = nodes = stale(rig)
    rig.run(3)
    send(rig, a, *names(1, 50))
    assert held(a) == 50 and a.queue("@d").messages == 50 and b.queue("@d").messages == 0
    rig.run(20)
    assert b.queue("@d").in_total == 50  # it went once, and rests
    routes = rig.client(a).manage("STATUS", "node")[1]["routes"]
    assert [(route["next_hop"], route["held"]) for route in routes] == [("b", 50)]
    send(rig, a, *names(51, 60))
    reroute(rig, b)  # d is its neighbour
    rig.run(2)
    assert d.bodies("work") == names(1, 60) and is_empty(*nodes) and not held(a)
    traces = {entry.unpack(value).trace for _, value in d.queue("work").read(0, count_max=100, bytes_max=2**30)}
    assert traces == {a.store.uuid.bytes + b.store.uuid.bytes}


def test_what_is_held_holds_nothing_up() -> None:
    rig = Rig()
    a, b, d = nodes = stale(rig)
    rig.run(3)
    send(rig, a, *names(1, 5))
    assert held(a) == 5
    b.core.forwarding.table.clear()  # right again, and nobody says so
    b.core.forwarding.steer("d")
    other = send(rig, a, "6", queue="other")
    assert not other.detached and held(a) == 5 and d.queue("$waiting").messages == 1
    rig.run(RETURN_S[1] + 1)
    assert d.bodies("work") == names(1, 5) and d.bodies("other") == ["6"] and is_empty(*nodes)


def test_a_neighbour_whose_table_changes_all_the_time_is_tried_ever_later() -> None:
    rig = Rig()
    a, b, _ = stale(rig)
    rig.run(3)
    send(rig, a, "1")
    for turn in range(100):
        reroute(rig, b, d="a", **{f"x{turn}": "a"})
        rig.run(1)
    assert held(a) == 1 and 3 < b.queue("@d").in_total < 12


def test_held_over_a_restart_and_a_full_disk() -> None:
    rig = Rig()
    a, b, d = nodes = stale(rig)
    rig.run(3)
    send(rig, a, "1")
    a.crash()
    a.start()
    rig.run(5)  # tried once more
    assert held(a) == 1 and b.queue("@d").in_total == 2
    apart(rig, "a", "b")
    rig.refuse_dials = True
    send(rig, a, "2")
    a.refuse = 2
    rig.refuse_dials = False
    rig.run(5)
    assert held(a) == a.queue("@d").messages == 2
    reroute(rig, b)
    rig.run(5)
    assert d.bodies("work") == ["1", "2"] and is_empty(*nodes)


def test_held_until_the_own_table_changes() -> None:
    rig = Rig()
    a, b, d = nodes = rig.graph("a-b", "a-d", "b-d", routes={"a": {"d": "b"}, "b": {"d": "a"}}, d=STRICT)
    rig.run(3)
    send(rig, a, *names(1, 9))
    assert held(a) == 9
    reroute(rig, a)
    rig.run(2)
    assert d.bodies("work") == names(1, 9) and is_empty(*nodes)
    assert b.queue("@d").in_total == 9


def test_own_origin() -> None:
    """What begins anew at the hub comes home: that it is for here is asked before the trace is."""
    rig = Rig()
    jfk, hub = rig.graph("jfk-hub", jfk=STRICT)
    rig.run(3)
    send(rig, jfk, "1", to="hub", queue="in")
    client = rig.client(hub)  # the internal link of hub: from its queue `in` to work@jfk
    client.receiver("in")
    link = client.sender("work@jfk")
    rig.settle()
    for message in client.messages():
        link.send(message.encode(), context=None)
    client.accept()
    rig.settle()
    assert jfk.bodies("work") == ["1"] and is_empty(jfk, hub)
    item = entry.unpack(jfk.queue("work").read(0, count_max=1, bytes_max=1)[0][1])
    assert item.identity == (hub.store.uuid, 1) and item.trace == hub.store.uuid.bytes


def test_the_destination_takes_what_it_finds_itself_in_the_trace_of() -> None:
    rig = Rig()
    a, b, d = rig.line("a", "b", "d", d=STRICT)
    rig.run(3)
    d.crash()
    send(rig, a, "1")
    queue = b.queue("@d")
    (sequence, value) = queue.read(0, count_max=1, bytes_max=1)[0]
    item = entry.unpack(value)
    b.store._queues[queue.queue_id].values[sequence] = entry.repack(
        item._replace(trace=a.store.uuid.bytes + d.store.uuid.bytes)
    )
    queue.cache.clear()
    d.start()
    rig.run(5)
    assert d.bodies("work") == ["1"]


def test_a_full_trace_ends_as_a_dead_letter_and_a_tombstone() -> None:
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT)
    rig.run(3)
    b.crash()
    send(rig, a, "1", "2")
    queue = a.queue("@d")
    (sequence, value) = queue.read(0, count_max=1, bytes_max=1)[0]
    trace = b"".join(UUID(int=number).bytes for number in range(1, entry.TRACE_MAX))
    a.store._queues[queue.queue_id].values[sequence] = entry.repack(entry.unpack(value)._replace(trace=trace))
    queue.cache.clear()
    b.start()
    rig.run(5)
    assert d.bodies("work") == ["2"] and b.bodies("$dead-letters") == ["1"] and is_empty(*nodes)
    assert len([line for line in b.logs if "the trace is full" in line]) == 1


# ------------------------------------------------------------------------------------------------ another way


def diamond(rig: Rig, **fields: Any) -> list[Node]:
    """a to d by b, or by c."""
    routes = {"a": {"d": "b"}, "d": {"a": "b"}}
    return rig.graph("a-b", "a-c", "b-d", "c-d", routes=routes, d=STRICT, **fields)


def test_low_water() -> None:
    """5 sleeps at a dark node while 6 travels another way: it is waited for, and nothing moves the mark past it."""
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    send(rig, a, *names(1, 4))
    apart(rig, "b", "d")
    d_of_b = b.core.neighbours["d"]
    d_of_b.dial_at = None
    send(rig, a, "5")
    assert b.queue("@d").messages == 1 and a.queue("@d").messages == 0
    b.crash()
    reroute(rig, a, d="c")
    send(rig, a, "6")
    rig.run(500)
    assert is_empty(a, c) and d.bodies("work") == names(1, 4) and d.bodies("$waiting") == ["6"]
    assert d.core.catalog.origins[a.store.uuid].mark == 4
    assert a.core.catalog.receipts["d"] == 4
    d.crash()
    d.start()
    rig.run(100)  # nor does a restart of the destination give it up
    assert d.bodies("work") == names(1, 4)
    b.start()
    rig.run(5)
    assert d.bodies("work") == names(1, 6) and is_empty(*nodes) and not d.core.losses


@pytest.mark.parametrize("stored", [False, True])
def test_rerouted_while_in_doubt(stored: bool) -> None:
    """The old neighbour falls silent with numbers in doubt; its copies come late, and are known as copies."""
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    send(rig, a, "1")
    b.hold_commits = True
    send(rig, a, *names(2, 20))
    if stored:
        commit = b.pending
        assert commit is not None
        b.store.commit(commit.batch)  # on disk, and not answered
        b.remember(commit.batch)
    apart(rig, "b", "d", silent=True)
    apart(rig, "a", "b", silent=True)
    reroute(rig, a, d="c")
    send(rig, a, *names(21, 30))
    assert d.bodies("work") == names(1, 30) and is_empty(a, c, d)
    b.crash()
    b.hold_commits = False
    b.start()
    rig.run(10)
    assert d.bodies("work") == names(1, 30) and is_empty(*nodes)
    assert d.core.catalog.origins[a.store.uuid].duplicates in ((19, 20) if stored else (0, 1))


def test_an_answer_of_the_old_way_still_retires() -> None:
    """Accepted there is stored there: it leaves, though it was given to the new way meanwhile; it leaves once."""
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    reroute(rig, a, d="c")
    send(rig, a, "1")
    reroute(rig, a, d="b")
    send(rig, a, "2")
    b.hold_commits = c.hold_commits = True
    send(rig, a, *names(3, 20))
    reroute(rig, a, d="c")
    assert len(a.core.neighbours["c"].senders["d"].in_doubt) == 18
    send(rig, a, *names(21, 25))
    b.hold_commits = False
    rig.settle()
    assert d.bodies("work") == names(1, 20) and a.queue("@d").messages == 5
    c.hold_commits = False
    rig.settle()
    assert d.bodies("work") == names(1, 25) and is_empty(*nodes)
    assert d.core.catalog.origins[a.store.uuid].duplicates == 18
    a.crash()
    a.start()
    rig.run(3)
    assert a.queue("@d").messages == 0 and is_empty(*nodes)


def test_an_answer_of_the_old_way_retires_what_waits_for_the_new() -> None:
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    send(rig, a, "1")
    b.hold_commits = True
    send(rig, a, *names(2, 20))
    c.crash()
    reroute(rig, a, d="c")
    b.hold_commits = False
    rig.run(1)
    assert a.queue("@d").messages == a.queue("@d").bytes_held == 0
    c.start()
    send(rig, a, "21")
    rig.run(5)
    assert d.bodies("work") == names(1, 21) and is_empty(*nodes)
    assert not d.core.catalog.origins[a.store.uuid].duplicates


def test_to_and_fro_while_in_doubt() -> None:
    rig = Rig()
    a, b, c, d = nodes = diamond(rig)
    rig.run(3)
    b.hold_commits = c.hold_commits = True
    for turn in range(6):
        send(rig, a, *names(turn * 10 + 1, turn * 10 + 10))
        reroute(rig, a, d="bc"[turn % 2])
    c.hold_commits = False
    rig.run(2)
    b.hold_commits = False
    rig.run(5)
    assert d.bodies("work") == names(1, 60) and is_empty(*nodes) and a.queue("@d").bytes_held == 0


@pytest.mark.parametrize("seed", range(4))
def test_rerouted_at_random(seed: int) -> None:
    """Tables change under way at every node, rightly and wrongly, while nodes in between crash and wires break."""
    rig = Rig(seed + 77)
    a, b, c, d = nodes = diamond(rig, a=STRICT | {"limits": Limits(ranges_max=(1024, 2)[seed % 2])})
    random = rig.random
    sources = [Source(rig, a, "d", 600), Source(rig, d, "a", 300)]
    for _ in range(3000):
        dice = random.random()
        node = random.choice([b, c])
        if dice < 0.004:
            if node.core is None:
                node.start()
            else:
                node.crash()
        elif dice < 0.008:
            wires = [wire for wire in rig.wires if not wire.dead and all(end.node for end in wire.ends)]
            if wires:
                random.choice(wires).cut(silent=random.random() < 0.5)
        elif dice < 0.02:
            random.choice([a, d]).handle(
                events.ForwardingChanged(table={"d": random.choice("bc"), "a": random.choice("bc")})
            )
        elif dice < 0.026:
            node.handle(events.ForwardingChanged(table=random.choice([{}, {"d": "a"}, {"a": "d"}])))
        elif dice < 0.07:
            rig.pass_time(random.choice((0.05, 0.5, 4.0)))
        elif dice < 0.2:
            random.choice(sources).act()
        else:
            rig.step()
    for node in (b, c):
        if node.core is None:
            node.start()
        node.handle(events.ForwardingChanged(table={}))
    for _ in range(600):
        rig.run(0.3)
        for source in sources:
            source.act()
        if all(source.done for source in sources) and is_empty(*nodes):
            break
    check_exact(a, d, 600)
    check_exact(d, a, 300)
    assert is_empty(*nodes)
    for node in nodes:
        assert all(not queue.bytes_held for name, queue in node.core.catalog.queues.items() if name.startswith("@"))


# ------------------------------------------------------------------------------------------------ full


def test_strict_full() -> None:
    """The missing number is behind the same full link, one hop before the destination: it gets through."""
    rig = Rig()
    nodes = rig.line("a", "b", "d", d={"queues": STRICT["queues"], "limits": Limits(ranges_max=2)})
    a, b, d = nodes
    rig.run(3)
    d.crash()
    a.core.catalog.identities["d"] = 2  # 1 sleeps elsewhere
    send(rig, a, *names(2, 2500))
    a.core.catalog.identities["d"] = 1
    send(rig, a, "1")
    assert b.queue("@d").messages == 2500
    d.start()
    rig.run(30)
    assert d.bodies("work") == names(1, 2500) and is_empty(*nodes)
    assert not d.core.losses


def test_an_origin_whose_number_is_missing_holds_up_no_other() -> None:
    """So much of one origin waits that no more is taken: others use the same link, for days if need be."""
    rig = Rig()
    limited = {"queues": STRICT["queues"], "limits": Limits(ranges_max=2)}
    a, b, c, d = nodes = rig.graph("a-b", "c-b", "b-d", routes={"a": {"d": "b"}, "c": {"d": "b"}}, d=limited)
    rig.run(3)
    a.core.catalog.identities["d"] = 2  # 1 sleeps elsewhere
    send(rig, a, *names(2, 200))
    rig.run(10)
    send(rig, c, *[f"c{number}" for number in range(1, 100)])
    rig.run(100)
    assert d.bodies("work") == [f"c{number}" for number in range(1, 100)]
    assert b.queue("@d").messages == 200 - 1 - 32
    b.crash()
    b.start()
    rig.run(3)
    send(rig, c, *[f"c{number}" for number in range(100, 200)])
    rig.run(40)
    assert d.bodies("work") == [f"c{number}" for number in range(1, 200)]
    a.core.catalog.identities["d"] = 1
    send(rig, a, "1")
    rig.run(3)
    assert d.bodies("work")[199:] == names(1, 200) and is_empty(*nodes)


def fill(rig: Rig, node: Node, to: str, body: str) -> int:
    """Sends until the node refuses; returns how many it took."""
    client = rig.client(node)
    link = client.sender(f"work@{to}")
    rig.settle()
    taken = 0
    while True:
        while link.sendable and len(link.unsettled) < 20:
            client.send(link, f"{node.name}-{taken + len(link.unsettled) + 1} {body}")
        rig.settle()
        states = [type(state).__name__ for _, state in client.outcomes]
        client.outcomes.clear()
        taken += states.count("Accepted")
        if "Rejected" in states or not states:
            client.close_transport()
            return taken


@pytest.fixture
def small_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept aside is an eighth of what it is, so that disks can be as small."""
    for name in ("node.FORWARDING_BYTES", "forwarding.RESERVE_BYTES"):
        monkeypatch.setattr(f"holdfast.core.{name}", 128 * 1024)
    monkeypatch.setattr("holdfast.core.forwarding.ROOM_BYTES", 32 * 1024)


@pytest.mark.usefixtures("small_disks")
def test_full_neighbours() -> None:
    """Two nodes in the middle at their disks' bound, each full of what must pass the other: both flow on."""
    rig = Rig()
    a, b, c, d = nodes = rig.line("a", "b", "c", "d", a=STRICT, d=STRICT)
    for node in (b, c):
        node.store = MemoryStore(bytes_max=4 * 2**20, mint_from=rig.uuid)
    for node in nodes:
        node.crash()
    b.start()
    from_b = fill(rig, b, "d", "x" * 3_750)
    b.crash()
    c.start()
    from_c = fill(rig, c, "a", "x" * 3_750)
    assert min(from_b, from_c) > 300
    more = [f"{number} {'x' * 3_750}" for number in range(200)]
    d.start()
    send(rig, d, *more, to="a")  # would fill what c keeps for forwarding
    rig.run(5)
    c.crash()
    a.start()
    b.start()
    send(rig, a, *more)
    rig.run(5)
    assert a.queue("@d").messages == d.queue("@a").messages == 200  # the way through is kept free of it
    assert max(b.core.room_bytes, c.store.room_bytes()) < 3_750
    c.start()
    rig.run(200)
    assert len(d.bodies("work")) == from_b + 200 and len(a.bodies("work")) == from_c + 200 and is_empty(*nodes)
    assert all("$dead-letters" not in node.core.catalog.queues for node in nodes)


@pytest.mark.usefixtures("small_disks")
def test_a_full_node_in_between_withholds_credit() -> None:
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT)
    b.crash()
    b.store = MemoryStore(bytes_max=2 * 2**20, mint_from=rig.uuid)
    b.start()
    rig.run(3)
    d.crash()
    send(rig, a, *[f"{number} {'x' * 3_750}" for number in range(1, 701)])
    rig.run(10)
    assert 0 < b.queue("@d").messages < 600 and a.queue("@d").messages + b.queue("@d").messages == 700
    assert not any("the disk is full" in line for line in b.logs)
    d.start()
    rig.run(30)
    assert [body.split()[0] for body in d.bodies("work")] == names(1, 700) and is_empty(*nodes)


# ------------------------------------------------------------------------------------------------ receipts


def test_receipts_reach_an_origin_three_hops_away() -> None:
    rig = Rig()
    nodes = a, b, c, d = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    send(rig, a, *names(1, 40))
    rig.run(5)
    assert a.core.catalog.receipts["d"] == 40
    pair = (a.store.uuid, "d")
    assert [node.core.catalog.passing.get(pair) for node in (b, c)] == [40, 40]
    for node in (b, c):  # the way back is learnt anew
        node.crash()
        node.start()
    rig.run(5)
    send(rig, a, *names(41, 50))
    rig.run(5)
    assert a.core.catalog.receipts["d"] == 50
    d.crash()
    d.store = MemoryStore(mint_from=rig.uuid)
    send(rig, a, *names(51, 60))
    for node in (b, c):
        node.crash()
        node.start()
    d.start()
    rig.run(5)
    assert d.bodies("work") == names(51, 60) and is_empty(*nodes)
    assert d.core.catalog.origins[a.store.uuid].mark == 60


def test_marks_of_a_message_that_went_round_do_not_go_round() -> None:
    rig = Rig()
    nodes = rig.graph("a-b", "b-c", "c-a", "c-d", routes={"a": {"d": "b"}, "b": {"d": "c"}, "c": {"d": "a"}}, d=STRICT)
    _, b, c, d = nodes
    rig.run(3)
    send(rig, b, *names(1, 10))  # b, c, a, and back to b
    assert held(b) == 10
    reroute(rig, c)
    rig.run(RETURN_S[1] + 5)
    assert d.bodies("work") == names(1, 10) and is_empty(*nodes)
    assert b.core.catalog.receipts["d"] == 10
    said = {node.name: sum(len(end.inbox) for end in node.ends.values()) for node in nodes}
    assert not any(said.values())


def test_a_restored_origin_hears_of_it_three_hops_away() -> None:
    rig = Rig()
    nodes = a, b, _, d = rig.line("a", "b", "c", "d", d=STRICT)
    rig.run(3)
    send(rig, a, *names(1, 3))
    kept = snapshot(a)
    send(rig, a, *names(4, 6))
    rig.run(5)  # the mark has reached b
    a.crash()
    a.store = kept
    rig.refuse_dials = True
    a.start()
    send(rig, a, *names(7, 12))
    b.crash()
    b.start()
    rig.refuse_dials = False
    rig.run(10)
    assert d.bodies("work") == names(1, 12) and is_empty(*nodes)


def test_a_number_that_comes_back_shows_that_the_own_store_was_restored() -> None:
    """Nobody had told a mark, but a number that we have not given comes back on a stale way."""
    rig = Rig()
    a, b, d = nodes = rig.line("a", "b", "d", d=STRICT)
    kept = snapshot(a)
    rig.run(3)
    d.crash()
    send(rig, a, *names(1, 3))
    a.crash()
    a.store = kept
    old = kept.uuid
    a.start()
    reroute(rig, b, d="a")
    d.start()
    rig.run(3)
    assert a.core.store_uuid != old and held(a) + held(b) == 3
    send(rig, a, "4")
    reroute(rig, b)
    rig.run(3)
    assert sorted(d.bodies("work")) == names(1, 4) and is_empty(*nodes)


# ------------------------------------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("forwarding", "said"),
    [
        ((("d", "c"),), "route 'd' via: found 'c', accepted is the name of a [[neighbour]] (b)"),
        ((("a", "b"),), "route 'a': found the node's own name"),
        ((("d", "b"), ("d", "b")), "route 'd': found twice"),
        ((("$d", "b"),), "name '$d'"),
    ],
)
def test_routes_are_checked(forwarding: tuple[tuple[str, str], ...], said: str) -> None:
    config = NodeConfig(name="a", neighbours=(NeighbourConfig(name="b"),), forwarding=forwarding)
    with pytest.raises(ConfigError) as error:
        config.validate()
    assert said in str(error.value)


def test_a_table_given_while_running_is_checked_too() -> None:
    rig = Rig()
    a, _ = rig.graph("a-b")
    reroute(rig, a, a="b", d="nobody", e="b")
    assert a.core.forwarding.table == {"e": "b"}
    assert len([line for line in a.logs if line.startswith("route to")]) == 2


def test_the_longest_names_can_be_neighbours() -> None:
    rig = Rig()
    one, two = "a" * 200, "b" * 200
    a, b = rig.graph(f"{one}-{two}")
    rig.run(3)
    send(rig, a, "1", to=two)
    assert b.bodies("work") == ["1"] and is_empty(a, b)


def test_what_comes_back_where_the_way_has_changed_goes_on_at_once() -> None:
    rig = Rig()
    a, b, c, d = nodes = rig.graph(
        "a-b", "b-c", "a-d", "d-c", routes={"a": {"c": "b"}, "b": {"c": "c"}, "d": {"c": "c"}}, c=STRICT
    )
    rig.run(3)
    c.crash()
    send(rig, a, "1", "2", to="c")
    assert b.queue("@c").messages == 2
    reroute(rig, a, c="d")
    reroute(rig, b, c="a")  # hands back what it has
    assert held(a, "c") == 0 and d.queue("@c").messages == 2
    c.start()
    rig.run(5)
    assert c.bodies("work") == ["1", "2"] and is_empty(*nodes)


def test_a_table_that_changes_while_the_node_stops_is_borne() -> None:
    rig = Rig()
    a, _, _ = rig.line("a", "b", "d")
    rig.run(3)
    reroute(rig, a, d="b", x="b")
    send(rig, a, "1", to="x")  # b knows no way to x and refuses the link
    rig.run(0.5)
    a.handle(events.Stopping())
    a.handle(events.ForwardingChanged(table={}))
    a.handle(events.ForwardingChanged(table={"x": "b"}))
    rig.run(3)
    assert a.stopped
