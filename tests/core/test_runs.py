"""Several consumers of one queue are handed runs of what they share, in turn (broker/cursors/runs.py)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.performatives import Released
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors import halting, runs
from holdfast.broker.entries import packed
from holdfast.endpoints.consumer import ConsumerLink
from support.one_node import fill, world
from support.rig import Client, Rig

DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}


@pytest.fixture
def in_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each run had."""
    found: list[int] = []
    take_all = ConsumerLink.take_all

    def run(self: ConsumerLink, *given: Any) -> int:
        taken = take_all(self, *given)
        found.append(taken)
        return taken

    monkeypatch.setattr(ConsumerLink, "take_all", run)
    return found


def numbers(client: Client) -> list[int]:
    return [int(body) for body in client.bodies()]


def consumers(rig: Rig, count: int, credit: int = 1_000, **options: Any) -> list[Client]:
    """Each on a connection of its own."""
    made = [rig.client(rig.nodes["hub"]) for _ in range(count)]
    for client in made:
        client.receiver("work", credit=credit, **options)
    rig.settle()
    return made


@pytest.mark.parametrize("stored", [False, True])
def test_each_has_its_share_once_and_in_order(stored: bool, in_runs: list[int]) -> None:
    rig, node, client = world()
    if stored:  # read from the disk
        fill(rig, client, 300)
        node.crash()
        node.start()
        client = rig.client(node)
    takers = consumers(rig, 3)
    if not stored:
        fill(rig, client, 300)
    rig.settle()
    found = [numbers(taker) for taker in takers]
    assert sorted(number for item in found for number in item) == list(range(1, 301))
    assert all(item == sorted(item) for item in found)
    assert max(map(len, found)) - min(map(len, found)) <= runs.SHARE_MAX
    assert max(in_runs) > 1


def test_what_one_has_no_credit_for_is_the_others(in_runs: list[int]) -> None:
    rig, node, client = world()
    node.hold_commits = True
    little, much = consumers(rig, 1, 7), consumers(rig, 1)
    link = client.sender("work")
    rig.settle()
    for number in range(200):
        client.send(link, str(number))
    rig.settle()
    node.hold_commits = False
    rig.run(2)
    assert len(numbers(little[0])) == 7
    assert sorted(numbers(little[0]) + numbers(much[0])) == list(range(200))
    assert numbers(much[0]) == sorted(numbers(much[0])) and max(in_runs) > 1


def test_links_that_share_a_small_window_get_all_in_order(in_runs: list[int]) -> None:
    """A run ends where the window does; what is left goes on from there."""
    rig, node, client = world()
    fill(rig, client, 100)
    taker = rig.client(node, incoming_window=10)
    first, second = taker.receiver("work", credit=1_000), taker.receiver("work", credit=1_000)
    rig.settle()
    both = [[int(body) for body in taker.bodies(link)] for link in (first, second)]
    assert sorted(number for item in both for number in item) == list(range(1, 101))
    assert all(item == sorted(item) for item in both)


def test_a_subscription_to_everything_is_handed_runs_and_finishes_each_once(in_runs: list[int]) -> None:
    rig, node, client = world()
    taker = rig.client(node)
    taker.receiver("work", name="copies", source=DURABLE)
    rig.settle()
    fill(rig, client, 200)
    rig.settle()
    assert numbers(taker) == list(range(1, 201)) and max(in_runs) > 1
    taker.accept()
    rig.settle()
    cursor = node.queue("work").named["copies"]
    assert cursor.floor == 201 and not cursor.finished and not cursor.acquired


def test_a_run_of_a_subscription_ends_before_what_it_has_finished() -> None:
    """Some come back, are handed out again, and what was finished between them is not."""
    rig, node, client = world()
    taker = rig.client(node)
    link = taker.receiver("work", name="copies", source=DURABLE)
    rig.settle()
    fill(rig, client, 20)
    rig.settle()
    for place, delivery in enumerate(list(taker.deliveries)):
        link.settle(delivery.delivery_id, delivery.delivery_id, Released() if place % 3 == 0 else None)
    taker.deliveries.clear()
    taker.flush()
    rig.settle()
    again = numbers(taker)
    assert set(range(1, 21, 3)) <= set(again)


def test_what_a_subscription_holds_is_bounded_in_runs_too(monkeypatch: pytest.MonkeyPatch, in_runs: list[int]) -> None:
    monkeypatch.setattr(halting, "OUTSTANDING_MAX", 8)
    rig, node, client = world()
    taker = rig.client(node)
    taker.receiver("work", name="copies", source=DURABLE)
    rig.settle()
    fill(rig, client, 40)
    rig.settle()
    assert len(node.queue("work").named["copies"].acquired) == 8 and max(in_runs) > 1
    seen: list[int] = []
    while taker.deliveries:
        seen += map(int, taker.accept())
        rig.settle()
    assert seen == list(range(1, 41))


def test_a_failure_in_a_run_costs_the_consumer_that_it_befell(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world()
    fill(rig, client, 100)
    send_run = Sender.send_run
    failed: list[int] = []

    def fails_once(self: Sender, *given: Any, **options: Any) -> int:
        if not failed:
            failed.append(1)
            raise RuntimeError("as a defect would")
        return send_run(self, *given, **options)

    monkeypatch.setattr(Sender, "send_run", fails_once)
    takers = [rig.client(node) for _ in range(2)]
    for taker in takers:
        taker.receiver("work", credit=1_000)
    rig.run(3)
    assert failed
    assert sorted(number for taker in takers for number in numbers(taker)) == list(range(1, 101))


@pytest.mark.parametrize("annotated", [1, 2])
def test_messages_that_end_each_run_are_looked_at_a_bounded_number_of_times(
    annotated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, or every second one: as many sizes were taken of all that lay ahead for each that was handed out."""
    rig, node, client = world()
    taker = rig.client(node)
    taking = taker.receiver("work", credit=0)  # what comes while somebody is there is kept in memory
    link = client.sender("work")
    rig.settle()
    for number in range(1_000):
        notes = {} if number % annotated else {Symbol("x-opt-own"): number}
        client.send(link, str(number), message_annotations=notes)
    rig.settle()
    looked: list[int] = []
    lasting_sizes = packed.lasting_sizes

    def counting(values: Any) -> list[int]:
        looked.append(len(values))
        return lasting_sizes(values)

    monkeypatch.setattr(packed, "lasting_sizes", counting)
    taking.grant(2_000)
    taker.flush()
    rig.settle()
    assert numbers(taker) == list(range(1_000))
    assert 0 < sum(looked) <= 1_000 * (runs.RUN_LEAST + 4)
