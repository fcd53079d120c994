"""Where a queue begins: right in any state, and as cheap while it is purged as otherwise (broker/head.py)."""

from collections.abc import Iterator
from random import Random

import pytest

from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected, Released
from holdfast.broker.queue import Queue
from holdfast.management.operations.answers import Later
from holdfast.management.requests import RequestLink
from holdfast.settings.queues import QueueConfig
from support import today
from support.one_node import fill, world
from support.rig import Client, Node, Rig

DEEP = 3_000


class Counted(dict[int, bytes]):
    """Entries of a queue in memory; counts those that are looked at."""

    looks = 0

    def items(self) -> Iterator[tuple[int, bytes]]:  # type: ignore[override]
        for item in super().items():
            self.looks += 1
            yield item

    def get(self, key: int, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        self.looks += 1
        return super().get(key, default)


def deep(durable: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, Node, Client, list[int]]:
    """A deep queue, and what is looked at of it from now on."""
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    fill(rig, client, DEEP)
    looks = [0]
    queue = node.queue("work")
    if durable:
        read = node.store.read

        def counting(queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
            found = read(queue_id, first, count_max=count_max, bytes_max=bytes_max)
            looks[0] += max(1, len(found))
            return found

        monkeypatch.setattr(node.store, "read", counting)
    else:
        queue.ephemeral = Counted(queue.ephemeral)
    return rig, node, client, looks


def looked(node: Node, looks: list[int]) -> int:
    """How many since the last time."""
    queue = node.queue("work")
    found, looks[0] = looks[0], 0
    if isinstance(queue.ephemeral, Counted):
        found, queue.ephemeral.looks = queue.ephemeral.looks, 0
    return found


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("durable", [True, False])
def test_who_asks_for_it_during_a_purge_reads_a_bounded_number(
    monkeypatch: pytest.MonkeyPatch, durable: bool, more: int
) -> None:
    """`more`: messages that came meanwhile."""
    rig, node, client, looks = deep(durable, monkeypatch)
    core = node.core
    assert core is not None
    assert isinstance(core.management.operations["holdfast:queue", "PURGE"].carry_out("", "work", {}), Later)
    if more:
        monkeypatch.setattr("holdfast.broker.purge.RECLAIM_COUNT", 1)
        node.hold_commits = not durable
        fill(rig, client, more, first=DEEP + 1)
    looked(node, looks)
    for operation, kind, name, arguments in (
        ("READ", "queue", "work", {}),
        ("OPEN", "subscription", "sub", {"queue": "work", "mode": "copy"}),
        ("READ", "subscription", "sub", {"queue": "work"}),
    ):
        answer = core.management.operations[f"holdfast:{kind}", operation].carry_out("", name, arguments)
        assert not isinstance(answer, Later) and answer.body["head"] == DEEP + 1, operation
        assert looked(node, looks) <= 300, operation
    core.catalog.before_stop()
    assert looked(node, looks) <= 300


def test_what_is_held_or_waits_for_its_turn_is_found_behind_what_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, _, looks = deep(True, monkeypatch)
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=1_000)
    rig.run(1)
    ids = [item.delivery_id for item in consumer.deliveries]
    node.hold_commits = True
    receiver.settle(ids[0], ids[499], Accepted())
    receiver.settle(ids[700], ids[999], Released())
    rig.settle()
    queue = node.queue("work")
    looked(node, looks)
    assert queue.head() == 501 and looked(node, looks) <= 200
    receiver.settle(ids[500], ids[699], Accepted())
    rig.settle()
    looked(node, looks)
    assert queue.head() == 701 == queue.shared.requeued[0] and looked(node, looks) <= 200


def test_what_was_given_back_is_not_searched_for_each_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsearched(list[int]):
        def __contains__(self, item: object) -> bool:
            raise AssertionError(f"a search for {item}")

    rig, node, _, _ = deep(True, monkeypatch)
    consumer = rig.client(node)
    receiver = consumer.receiver("work", credit=1_000)
    rig.run(1)
    ids = [item.delivery_id for item in consumer.deliveries]
    node.hold_commits = True
    receiver.settle(ids[0], ids[499], Accepted())
    rig.settle()
    consumer.close_transport()
    rig.settle()
    queue = node.queue("work")
    queue.shared.requeued = Unsearched(queue.shared.requeued)
    assert len(queue.shared.requeued) == 500 and queue.head() == 501


def expected(queue: Queue) -> int:
    """By looking at each entry that is there."""
    shared = queue.shared
    for sequence, _ in queue.read(shared.floor, count_max=10**6, bytes_max=2**40):
        if shared.tracked or (sequence >= shared.position and sequence not in shared.finished):
            return sequence
        if sequence in shared.below_position():
            return sequence
    return queue.visible


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("seed", today.some(range(8), 3))
def test_any_order_of_steps(monkeypatch: pytest.MonkeyPatch, seed: int, durable: bool) -> None:
    monkeypatch.setattr("holdfast.broker.head.FRONT_COUNT", 4, raising=False)
    monkeypatch.setattr("holdfast.broker.purge.RECLAIM_COUNT", 7)
    monkeypatch.setattr("holdfast.broker.queue.RECLAIM_COUNT", 7)
    random = Random(seed)
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    sender = client.sender("work")
    consumers = [rig.client(node) for _ in range(3)]
    links = [each.receiver("work", credit=0) for each in consumers]
    rig.settle()
    count = 0
    for _ in range(150):
        step = random.randrange(9)
        at = random.randrange(3)
        consumer, link = consumers[at], links[at]
        if step <= 1:
            for _ in range(random.randint(1, 10)):
                count += 1
                client.send(sender, str(count))
        elif step == 2:
            link.grant(random.randint(1, 15))
        elif step <= 5 and consumer.deliveries:
            outcome = random.choice(
                [Accepted(), Accepted(), Released(), Rejected(), Modified(undeliverable_here=True), Modified(True)]
            )
            consumer.accept(outcome, count=random.randint(1, 8), link=link)
        elif step == 6 and random.random() < 0.3:
            assert node.core is not None
            if not node.queue("work").named:
                node.core.management.operations["holdfast:queue", "PURGE"].carry_out("", "work", {})
                node.due = True
        elif step == 7 and random.random() < 0.3:
            consumer.close_transport()
            consumers[at] = rig.client(node)
            links[at] = consumers[at].receiver("work", credit=0)
        elif step == 8 and random.random() < 0.2:
            assert node.core is not None
            operation = "DELETE" if node.queue("work").named else "OPEN"
            operations = node.core.management.operations
            given = {"queue": "work", "mode": "copy"}
            operations["holdfast:subscription", operation].carry_out("", "s", given)
            node.due = True
        node.hold_commits = random.random() < 0.5
        for _ in range(random.randint(0, 12)):
            rig.step()
            queue = node.queue("work")
            assert queue.head() == expected(queue)
    node.hold_commits = False
    rig.run(1)
    queue = node.queue("work")
    assert queue.head() == expected(queue)


@pytest.mark.parametrize(("kind", "operation"), [("queue", "READ"), ("subscription", "READ"), ("subscription", "OPEN")])
def test_what_consumers_hold_is_in_the_cost_of_asking(kind: str, operation: str) -> None:
    """Where what is at the front leaves, all of it is looked at."""
    rig, node, client = world()
    fill(rig, client, 1)
    core = node.core
    assert core is not None
    name, arguments = ("work", {"queue": "other"}) if kind == "queue" else ("s", {"queue": "work"})
    alone = core.management.cost_of("", f"holdfast:{kind}", operation, name, arguments)
    node.checks = False
    node.queue("work").shared.acquired.update(dict.fromkeys(range(10_000, 110_000)))
    assert core.management.cost_of("", f"holdfast:{kind}", operation, name, arguments) == alone + 100


def test_a_request_is_carried_out_at_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    _, node, client = world(QueueConfig(name="work"))
    assert node.core is not None
    monkeypatch.setattr(node.core.management, "cost_of", lambda *asked: asked.index("work") and 1_234)
    spent: list[int] = []
    serve_one = RequestLink.serve_one
    monkeypatch.setattr(RequestLink, "serve_one", lambda link: spent.append(serve_one(link)) or spent[-1])
    assert client.manage("READ", "queue", "work")[0] == 200 and spent == [1_234]
