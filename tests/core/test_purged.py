"""A purge of what was given back: it costs what it looks at, however much waits (docs/management.md)."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker import purge
from holdfast.broker.cursors import holdings
from holdfast.broker.entries.work import RETIRES_MAX, Work
from holdfast.broker.purge import leave_some
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.endpoints.background_jobs import AskedPurge, Purge
from holdfast.engine.port import Batch
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support.hops import names
from support.one_node import fill, world
from support.rig import Rig


def test_what_was_given_back_is_gone_through_once_for_a_share_and_not_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    fill(rig, client, 300)
    consumer = rig.client(node)
    consumer.receiver("work", credit=300)
    rig.settle()
    shared = node.queue("work").shared
    assert len(shared.acquired) == 300
    consumer.close_transport()
    rig.settle()
    assert len(shared.requeued) == 300
    passes = 0
    heapify = holdings.heapify

    def counting(found: list[int]) -> None:
        nonlocal passes
        passes += 1
        heapify(found)

    monkeypatch.setattr(holdings, "heapify", counting)
    status, body, _ = client.manage("PURGE", "queue", "work")
    assert (status, body["purged"]) == (200, 300)
    assert passes <= 2 and shared.requeued == [] and shared.counts == {}
    assert node.queue("work").messages == 0


def test_one_by_one_the_lowest_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Departures take one at a time, in ascending order."""
    rig, node, client = world()
    fill(rig, client, 100)
    consumer = rig.client(node)
    consumer.receiver("work", credit=100)
    rig.settle()
    consumer.close_transport()
    rig.settle()
    shared = node.queue("work").shared

    def never(found: list[int]) -> None:
        raise AssertionError(f"a pass over {len(found)}")

    with monkeypatch.context() as patch:
        patch.setattr(holdings, "heapify", never)
        for sequence in range(1, 51):
            shared.forget(sequence)
    assert sorted(shared.requeued) == list(range(51, 101))
    shared.forget(80)
    shared.forget(1_000)
    assert sorted(shared.requeued) == [*range(51, 80), *range(81, 101)] and shared.requeued[0] == 51


def test_what_a_deleted_queue_left_is_gone_through_once() -> None:
    """Each turn begins behind the last one's share, whether that is on disk or not."""
    store = MemoryStore()
    count = RECLAIM_COUNT + 2
    store.commit(Batch(appends=[(7, sequence, b"x" * 40) for sequence in range(3, 3 + count)]))
    work = Work[Queue]()
    batch = work.batch
    places: list[int | None] = [0]
    for _ in range(3):
        places.append(leave_some(store, work, 7, places[-1] or 0))
    assert places == [0, 3 + RECLAIM_COUNT, 3 + count, None]
    assert batch.retires == [(7, sequence) for sequence in range(3, 3 + count)]
    batch.retires += [(7, 0)] * RETIRES_MAX
    assert leave_some(store, work, 7, 5) == 5, "a full batch takes nothing more"
    del batch.retires[-RETIRES_MAX // 2 :]
    work.moved = [(7, 0)] * (RETIRES_MAX // 2)
    assert leave_some(store, work, 7, 5) == 5, "nor one that is full with what the turn moves"


def test_a_purge_of_what_is_on_its_way_that_the_disk_refuses() -> None:
    """Nothing of it happened: what leaves at last leaves its end behind, and nobody waits for it."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(1)
    client = rig.client(jfk)
    for wire in rig.between("jfk", "hub"):
        wire.cut()
    link = client.sender("work@hub")
    rig.settle()
    for body in names(1, 5):
        client.send(link, body)
    rig.settle()
    jfk.refuse = 1
    assert jfk.core is not None and hub.core is not None
    status, _, _ = client.manage("PURGE", "queue", "@hub")
    jfk.core.validate()
    assert status in (200, 503) and not jfk.refuse
    rig.run(20)
    jfk.core.validate()
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "last")
    rig.run(30)
    assert hub.bodies("work")[-1:] == ["last"]


def test_a_second_purge_takes_what_came_since_the_first() -> None:
    """The first one is not over: there is one purge, up to the end of the second."""
    _, node, client = world()
    fill(node.rig, client, 6)
    assert node.core is not None
    jobs, queue, told = node.core.jobs, node.queue("work"), list[int]()
    jobs.purge(queue, told.append)
    queue.visible += 2  # as commits between the two requests do
    jobs.purge(queue, told.append)
    assert jobs.purges[queue].end == queue.visible == 9


def test_two_purges_at_once_count_each_message_once() -> None:
    rig, node, client = world()
    fill(rig, client, 6)
    assert node.core is not None
    told = list[tuple[str, int]]()
    node.core.jobs.purge(node.queue("work"), lambda gone: told.append(("first", gone)))
    node.core.jobs.purge(node.queue("work"), lambda gone: told.append(("second", gone)))
    rig.run(1)
    assert told == [("first", 6), ("second", 0)] and node.queue("work").messages == 0


def purge_of_two() -> Purge:
    """The first is for what lies below 7, the second for what lies below 9."""
    return Purge(0, 9, 0, [AskedPurge(7, lambda gone: None), AskedPurge(9, lambda gone: None)])


def test_a_message_that_came_between_two_purges_counts_for_the_second() -> None:
    found = purge_of_two()
    found.count([(5, b""), (7, b""), (8, b"")])
    found.count([])
    assert [asked.gone for asked in found.asked] == [1, 2]


def test_what_came_back_to_a_full_disk_counts_for_the_first_purges_first() -> None:
    found = purge_of_two()
    found.count([(number, b"") for number in range(4, 9)])
    found.count_at_most(4)
    assert [asked.gone for asked in found.asked] == [3, 1]


def test_who_asked_for_a_purge_is_told_though_the_queue_is_deleted_meanwhile() -> None:
    rig, node, client = world()
    fill(rig, client, 6)
    assert node.core is not None
    told = list[int]()
    node.core.jobs.purge(node.queue("work"), told.append)
    node.core.jobs.forget(node.queue("work"))
    assert told == [0] and not node.core.jobs.purges


def test_a_purge_of_messages_in_transit_ends_once_they_have_left_the_disk() -> None:
    """What a full disk keeps has not left; what others took before is none of its."""
    rig, node, client = world()
    assert node.core is not None
    purge_of_all = Purge(9, 9, 3, [AskedPurge(9, lambda gone: None, 4)])
    queue: Any = SimpleNamespace(tombstones=5)
    node.hold_commits = True
    link = client.sender("work")
    rig.settle()
    client.send(link, "1")
    rig.settle()
    assert node.pending is not None and node.core.jobs._waits(queue, purge_of_all)
    node.hold_commits = False
    rig.settle()
    assert not node.core.jobs._waits(queue, purge_of_all) and purge_of_all.asked[0].gone == 2


@pytest.mark.parametrize("verb", ["PURGE", "DELETE"])
def test_a_full_batch_is_committed_at_once(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """The batch does not wait for something to be appended, while the node asks in each turn whether it may go on."""
    monkeypatch.setattr(purge, "RETIRES_MAX", 5)
    monkeypatch.setattr(purge, "RECLAIM_COUNT", 5)
    rig, node, client = world()
    client.manage("CREATE", "queue", "other")
    producer = rig.client(node)
    fill(rig, producer, 30, "other")
    assert producer.end is not None
    producer.end.wire.cut()
    rig.run(1)
    turns = node.turns
    status, _, text = client.manage(verb, "queue", "other")
    assert status in (200, 204), text
    rig.run(1)
    assert node.core is not None and not node.core.jobs.pending
    assert node.turns - turns < 100, "it is busy for nothing"
