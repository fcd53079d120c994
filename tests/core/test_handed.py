"""What a connection is handed in one turn is bounded: what its socket takes is known only then (links/outgoing.py)."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.peers.limits.memory import HANDED_BYTES, HANDED_BYTES_MIN
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.one_node import world
from support.rig import Client, Node, Rig

SIZE = 20 * KIB
KINDS = ["shared", "presettled", "browse", "in memory", "subscription"]


def attach(client: Client, kind: str, queue: str = "work", credit: int = 1_000) -> Any:
    terms: dict[str, Any] = {}
    if kind == "presettled":
        terms = {"snd_settle_mode": 1}
    elif kind == "browse":
        terms = {"source": {"distribution_mode": Symbol("copy")}}
    elif kind == "subscription":
        terms = {"name": "sub", "source": {"durable": 2, "expiry_policy": Symbol("never")}}
    return client.receiver(queue, credit=credit, **terms)


def put(rig: Rig, node: Node, queue: str, count: int, size: int = SIZE) -> None:
    if not node.queue(queue).config.durable:
        node.unwatched.add(queue)
    client = rig.client(node)
    link = client.sender(queue)
    rig.settle()
    for number in range(count):
        while not link.sendable:
            rig.settle()
        client.send(link, f"{number:<{size}}")
    rig.settle()
    client.close_transport()


def fill_for(rig: Rig, node: Node, kind: str, links: int, count: int) -> int:
    """Fills `work` for links of that kind; how many of the wanted there may be. A subscription is there before."""
    if kind == "subscription":
        early = rig.client(node)
        attach(early, kind)
        rig.settle()
        early.close_transport()
        links = 1
    put(rig, node, "work", count)
    return links


def written(node: Node) -> list[Counter[int]]:
    """Bytes by connection of each call of the core; filled as it runs."""
    core, found = node.core, []
    assert core is not None
    handle: Callable[..., list[events.Command]] = core.handle

    def watched(event: events.Event, now: float) -> list[events.Command]:
        commands = handle(event, now)
        sizes: Counter[int] = Counter()
        for command in commands:
            if isinstance(command, events.SendBytes):
                sizes[command.connection] += sum(len(chunk) for chunk in command.chunks)
        found.append(sizes)
        return commands

    core.handle = watched  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("links", [1, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_however_many_links_it_has_a_turn_hands_a_connection_a_bounded_share(kind: str, links: int) -> None:
    rig, node, _ = world(QueueConfig(name="work", durable=kind != "in memory"))
    links = fill_for(rig, node, kind, links, 400)
    client = rig.client(node)
    sizes = written(node)
    for _ in range(links):
        attach(client, kind)
    rig.settle()
    most = max(count for turn in sizes for count in turn.values())
    assert HANDED_BYTES // 2 < most < HANDED_BYTES + 4 * SIZE
    bodies = [body.strip() for body in client.bodies()]
    assert Counter(bodies) == {str(number): links if kind == "browse" else 1 for number in range(400)}
    if links == 1:
        assert bodies == [str(number) for number in range(400)]


@pytest.mark.parametrize("kind", ["shared", "presettled", "browse", "in memory"])
def test_the_links_of_a_connection_have_its_share_in_turn(kind: str) -> None:
    names = ("a", "b", "c")
    rig, node, _ = world(*(QueueConfig(name=name, durable=kind != "in memory") for name in names))
    for name in names:
        put(rig, node, name, 200)
    client = rig.client(node)
    links = {attach(client, kind, name): name for name in names}
    rig.settle()
    came = [links[item.link] for item in client.deliveries]
    assert Counter(came) == {"a": 200, "b": 200, "c": 200}
    for name in names:  # nobody waits until another one has had all
        assert came.index(name) < 150
        assert 600 - came[::-1].index(name) > 450


def test_readers_of_one_queue_have_the_share_of_their_connection_in_turn() -> None:
    rig, node, _ = world(QueueConfig(name="work"))
    put(rig, node, "work", 200)
    client = rig.client(node)
    links = [attach(client, "browse") for _ in range(3)]
    rig.settle()
    came = [links.index(item.link) for item in client.deliveries]
    assert Counter(came) == {0: 200, 1: 200, 2: 200}
    assert all(came.index(number) < 150 for number in range(3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("links", [1, 4])
def test_with_little_memory_who_reads_gets_all_of_it(kind: str, links: int) -> None:
    """The share is a part of the node's memory: nobody is dropped for what he was handed and is about to read."""
    rig, node, _ = world(
        QueueConfig(name="work", durable=kind != "in memory"),
        limits=Limits(memory_bytes_max=MIB if kind != "in memory" else 16 * MIB),
    )
    links = fill_for(rig, node, kind, links, 300)
    client = rig.client(node)
    sizes = written(node)
    for _ in range(links):
        attach(client, kind)
    rig.settle()
    core = node.core
    assert core is not None and not core.memory.dropped and not client.over
    if kind != "in memory":
        assert max(count for turn in sizes for count in turn.values()) < HANDED_BYTES_MIN + 4 * SIZE
    assert {body.strip() for body in client.bodies()} == {str(number) for number in range(300)}


def test_who_does_not_read_is_handed_one_share_and_costs_the_others_nothing() -> None:
    rig, node, _ = world(QueueConfig(name="work"), QueueConfig(name="calm"))
    put(rig, node, "work", 400)
    put(rig, node, "calm", 50)
    deaf, good = rig.client(node), rig.client(node)
    rig.settle()
    assert deaf.end is not None
    number = next(end.number for end in deaf.end.wire.ends if end.node is node)
    sizes = written(node)
    for _ in range(20):
        attach(deaf, "browse")
    deaf.flush()
    core = node.core
    assert core is not None
    while not sizes or not max(sizes[-1].values(), default=0) > MIB // 2:
        assert rig.move()
    node.handle(events.WritingPaused(connection=number))
    attach(good, "shared", "calm")
    rig.settle()
    assert sum(turn[number] for turn in sizes) < HANDED_BYTES + 64 * SIZE
    assert len(good.bodies()) == 50
    node.handle(events.WritingResumed(connection=number))
    rig.settle()
    assert len(deaf.deliveries) == 20 * 400


@pytest.mark.parametrize("kind", ["shared", "browse"])
def test_who_was_handed_something_long_ago_is_not_behind_who_was_just_now(kind: str) -> None:
    """A link for which a share was enough is, where a later one is not enough, as any other that had nothing of it."""
    rig, node, _ = world(QueueConfig(name="early"), QueueConfig(name="much"))
    client = rig.client(node)
    much, early = attach(client, kind, "much", credit=0), attach(client, kind, "early", credit=1)
    put(rig, node, "early", 1)
    assert len(client.deliveries) == 1
    for name in ("early", "much"):
        put(rig, node, name, 200)
    for link in (much, early):
        link.grant(1_000)
    rig.settle()
    came = [item.link for item in client.deliveries[1:]]
    share = came.index(early)
    assert len(came) == 400 and HANDED_BYTES // SIZE - 4 < share < HANDED_BYTES // SIZE + 4


@pytest.mark.parametrize("kind", ["presettled", "shared", "subscription"])
def test_the_mark_is_stored_ahead_for_who_has_had_the_share_of_the_turn(kind: str) -> None:
    """What comes in that turn is shown once its own commit is on disk: it needs no further one."""
    rig, node, client = world(QueueConfig(name="work"))
    consumer = rig.client(node)
    attach(consumer, kind)
    link = client.sender("work")
    rig.settle()
    node.hold_commits = True
    sent = 0
    for count in (1, 100, 5):  # the first is in a commit alone, then those that are a share and more
        for _ in range(count):
            client.send(link, f"{sent:<{SIZE}}")
            sent += 1
        rig.settle()
        if count == 100:
            node.finish_commit()
            rig.settle()
    node.finish_commit()
    rig.settle()
    assert len(consumer.deliveries) == 101 and node.pending is not None
    node.finish_commit()
    rig.settle()
    assert len(consumer.deliveries) == 106
