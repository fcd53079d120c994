"""What a link that ended held goes back to its places, a bounded number in each turn (custody/returns.py)."""

from collections import Counter
from typing import Any, cast

import pytest

from holdfast.amqp.wire.performatives import Accepted
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors.cursor import Cursor
from holdfast.custody import returns
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.engine import events
from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world
from support.rig import Client, Node, Rig


class Unlisted(dict[int, Any]):
    """Whose items nobody may walk through."""

    def items(self) -> Any:
        raise AssertionError("all that is shown was looked through")


def all_bodies(rig: Rig, node: Node, count: int) -> list[str]:
    """What a fresh consumer is given, in the order in which it comes."""
    client = rig.client(node)
    client.receiver("work", credit=count)
    rig.settle()
    found = client.bodies()
    client.accept(Accepted())
    rig.settle()
    return found


def looks_by_turn(monkeypatch: pytest.MonkeyPatch, node: Node) -> Counter[int]:
    """How many entries are looked at in each turn, from now on."""
    by_turn: Counter[int] = Counter()
    give_back = returns.Return.give_back

    def counted(self: returns.Return, cursor: Cursor, most: int) -> int:
        looked = give_back(self, cursor, most)
        by_turn[node.turns] += looked
        return looked

    monkeypatch.setattr(returns.Return, "give_back", counted)
    return by_turn


@pytest.mark.parametrize("end", ["detach", "close", "lost", "resumable", "resumable close"])
def test_the_end_of_a_link_looks_at_what_it_held_alone(end: str) -> None:
    """However much other links of the queue hold: a connection may have thousands of links on one."""
    rig, node, client = world()
    node.checks = False
    fill(rig, client, 100)
    other = rig.client(node)
    other.receiver("work", credit=40)
    rig.settle()
    mine = rig.client(node)
    terms = {"source": {"timeout": 20}} if end.startswith("resumable") else {}
    links = [mine.receiver("work", credit=5, **terms) for _ in range(5)]
    rig.settle()
    assert len(mine.deliveries) == 25
    shared = node.queue("work").shared
    shared.acquired = Unlisted(shared.acquired)
    for link in links:
        if end not in ("lost", "resumable"):
            link.detach(closed=end != "detach")
    if end in ("lost", "resumable"):
        mine.close_transport()
    rig.run(30)
    assert not node.core.containment.peers_ended and not node.core.containment.parts_failed  # type: ignore[union-attr]
    shared.acquired = dict(shared.acquired)
    assert all_bodies(rig, node, 60) == [str(number) for number in range(41, 101)]
    other.close_transport()
    rig.settle()
    assert all_bodies(rig, node, 40) == [str(number) for number in range(1, 41)]


@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_much_goes_back_over_several_turns_in_order(
    monkeypatch: pytest.MonkeyPatch, resumable: bool, durable: bool
) -> None:
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    fill(rig, client, 100)
    lost = rig.client(node)
    for _ in range(2):
        lost.receiver("work", credit=50, source={"timeout": 1} if resumable else {})
    rig.settle()
    assert len(lost.deliveries) == 100
    core = node.core
    assert core is not None
    most = 0
    requeue = type(node.queue("work").shared).requeue

    def counted(cursor: Any, sequences: list[int], *, failed: bool) -> None:
        nonlocal most
        most = max(most, len(sequences))
        requeue(cursor, sequences, failed=failed)

    monkeypatch.setattr(type(node.queue("work").shared), "requeue", counted)
    turns = node.turns
    lost.close_transport()
    rig.run(2)
    assert most == 10 and node.turns - turns >= 10 and not core.jobs.returns.waiting
    again = rig.client(node)
    again.receiver("work", credit=200)
    rig.settle()
    assert sorted(again.bodies(), key=int) == [str(number) for number in range(1, 101)]
    assert all(message.header is not None and message.header.delivery_count == 1 for message in again.messages())
    assert node.queue("work").shared.acquired.keys() == set(range(1, 101))


NEVER_ENDS = {"durable": 2, "expiry_policy": Symbol("never")}
ALL_MATCH = {"filter": {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), "TRUE")}}
NUMBERS = [str(number) for number in range(1, 31)]


@pytest.mark.parametrize(
    ("config", "source"),
    [
        pytest.param({}, {}, id="a queue"),
        pytest.param({"durable": False}, {}, id="a queue in memory"),
        pytest.param({"priorities": True}, {}, id="a queue that sorts"),
        pytest.param({}, ALL_MATCH, id="with a selector"),
        pytest.param({}, NEVER_ENDS, id="a durable subscription"),
    ],
)
def test_nothing_is_handed_out_before_all_that_lost_links_held_is_back(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], source: dict[str, Any]
) -> None:
    """What none of them had got was first shown behind later messages."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 1)
    rig, node, client = world(QueueConfig(name="work", **config))
    node.unwatched.add("work")
    lost, again = rig.client(node), rig.client(node)
    for _ in range(1 if source is NEVER_ENDS else 2):
        lost.receiver("work", name="first" if source is NEVER_ENDS else None, credit=10, source=source)
    rig.settle()
    fill(rig, client, 30)
    assert len(lost.deliveries) in (10, 20)
    lost.close_transport()
    again.receiver("work", name="first" if source is NEVER_ENDS else None, credit=30, source=source)
    rig.settle()
    assert again.bodies() == NUMBERS


@pytest.mark.parametrize("others", [0, 5])
def test_a_drain_waits_for_what_a_lost_link_held(monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    """Also while nothing of it is back, because other queues have their turns."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 1)
    rig, node, client = world()
    lost, again = rig.client(node), rig.client(node)
    for number in range(others):
        fill(rig, client, 1, f"q{number}")
        lost.receiver(f"q{number}")
    fill(rig, client, 30)
    lost.receiver("work", credit=30)
    link = again.receiver("work", credit=0)
    rig.settle()
    assert len(lost.deliveries) == 30 + others
    lost.close_transport()
    link.grant(40, drain=True)
    rig.settle()
    assert again.bodies() == NUMBERS and link.credit == 0


def test_a_link_that_held_nothing_does_not_wait_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its queue would hand out nothing meanwhile."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 0)
    rig, node, client = world()
    fill(rig, client, 1)
    fill(rig, client, 1, "other")
    lost = rig.client(node)
    lost.receiver("work")
    lost.receiver("other", credit=0)
    rig.settle()
    lost.close_transport()
    assert node.core is not None
    assert [cursor.queue.name for cursor in node.core.jobs.returns.lanes] == ["work"]


def test_entries_of_a_lost_link_go_back_while_a_commit_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may stall; nothing has to be stored for what goes back, nor for what is handed out then."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 1)
    rig, node, client = world(QueueConfig(name="work", durable=False))
    node.unwatched.add("work")
    fill(rig, client, 30)
    lost, again = rig.client(node), rig.client(node)
    lost.receiver("work", credit=20)
    stored = client.sender("other")
    rig.settle()
    node.hold_commits = True
    client.send(stored, "1")
    rig.settle()
    assert node.pending is not None
    lost.close_transport()
    again.receiver("work", credit=30)
    rig.settle()
    assert node.pending is not None and again.bodies() == NUMBERS


def left_waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, Node, Client]:
    """A node on which much is still to go back."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 0)
    rig, node, client = world()
    fill(rig, client, 30)
    lost = rig.client(node)
    lost.receiver("work", credit=30)
    rig.settle()
    assert lost.end is not None
    node.due = False
    lost.close_transport()
    assert node.core is not None and len(node.core.jobs.returns.waiting) == 1
    return rig, node, client


def test_a_node_that_stops_meanwhile_offers_it_again_as_delivered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, _ = left_waiting(monkeypatch)
    node.handle(events.Stopping())
    assert node.core is not None and not node.core.jobs.returns.waiting
    node.core.validate()
    node.crash()
    node.start()
    again = rig.client(node)
    again.receiver("work")
    rig.settle()
    assert again.bodies() == [str(number) for number in range(1, 31)]
    assert all(message.header is not None and not message.header.first_acquirer for message in again.messages())


def test_what_is_to_go_back_to_a_queue_that_was_deleted_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    _, node, _ = left_waiting(monkeypatch)
    core = node.core
    assert core is not None
    core.catalog.delete(node.queue("work"))
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    core.jobs.returns.step()
    assert not core.jobs.returns.waiting


def test_what_goes_back_in_a_turn_is_bounded_over_all_links_that_end_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the links give back themselves, as they end, and this turn's share of the rest."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    rig, node, client = world()
    fill(rig, client, 100)
    lost = rig.client(node)
    for _ in range(20):
        lost.receiver("work", credit=5)
    rig.settle()
    assert len(lost.deliveries) == 100
    by_turn: Counter[int] = Counter()
    requeue = Cursor.requeue

    def counted(self: Cursor, sequences: list[int], *, failed: bool) -> None:
        by_turn[node.turns] += len(sequences)
        requeue(self, sequences, failed=failed)

    monkeypatch.setattr(Cursor, "requeue", counted)
    lost.close_transport()
    rig.run(2)
    assert by_turn.total() == 100 and max(by_turn.values()) <= 20


def test_what_a_lost_connection_held_is_looked_for_a_bounded_number_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred links of 5,000 entries each were all looked for in the turn in which their connection was lost."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    rig, node, client = world()
    fill(rig, client, 100)
    lost = rig.client(node)
    for _ in range(20):
        lost.receiver("work", credit=5)
    rig.settle()
    by_turn = looks_by_turn(monkeypatch, node)
    lost.close_transport()
    rig.run(2)
    assert by_turn.total() == 100 and max(by_turn.values()) <= 20
    assert all_bodies(rig, node, 100) == [str(number) for number in range(1, 101)]


def test_links_that_ended_first_give_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a later one holds so little that the turn has room for it."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 1)
    rig, node, client = world()
    fill(rig, client, 1)
    assert node.core is not None
    waits, cursor = node.core.jobs.returns, node.queue("work").shared
    for name, sequences in (("first", [1, 2]), ("second", [3]), ("third", [4])):
        waits.requeue(cast(Any, name), cursor, sequences, failed=True)
    assert [(item.consumer, item.sequences) for item in waits.waiting] == [
        ("first", [1, 2]), ("second", [3]), ("third", [4]),
    ]  # fmt: skip
    waits.forget()


def test_all_that_a_link_holds_goes_back_though_its_own_deliveries_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a failure: all that its queue has handed out is searched, a bounded number in each turn."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    rig, node, client = world()
    fill(rig, client, 60)
    lost, other = rig.client(node), rig.client(node)
    other.receiver("work", credit=20)
    rig.settle()
    lost.receiver("work", credit=40)
    rig.settle()
    assert len(lost.deliveries) == 40
    (link,) = [link for link in node.queue("work").shared.consumers if cast(ConsumerLink, link).held == 40]
    for delivery in list(cast(ConsumerLink, link).link.unsettled)[5:]:
        del cast(ConsumerLink, link).link.unsettled[delivery]
    node.checks = False
    by_turn = looks_by_turn(monkeypatch, node)
    lost.close_transport()
    rig.run(2)
    assert by_turn.total() == 5 + 55 and max(by_turn.values()) <= 20
    assert all_bodies(rig, node, 60) == [str(number) for number in range(21, 61)]


# ------------------------------------------------------------------------------------------------- of several queues


def test_one_message_of_another_queue_does_not_wait_behind_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its own link held that one alone, it came back after a hundred turns."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    rig, node, client = world()
    fill(rig, client, 1_000)
    fill(rig, client, 1, "other")
    lost, mine, third = rig.client(node), rig.client(node), rig.client(node)
    lost.receiver("work", credit=1_000)
    link = mine.receiver("other", credit=1)
    rig.settle()
    third.receiver("other", credit=1)
    rig.settle()
    assert len(lost.deliveries) == 1_000 and len(mine.deliveries) == 1
    turns = node.turns
    lost.close_transport()
    rig.move()
    link.detach(closed=True)
    while third.bodies() != ["1"]:
        assert rig.move() and node.turns <= turns + 6
    assert node.core is not None and node.core.jobs.returns.lanes


def lanes(monkeypatch: pytest.MonkeyPatch, *held: tuple[int, int]) -> tuple[Node, list[Cursor]]:
    """Each queue's link or links, and what each of them held, wait to go back."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 0)
    rig, node, client = world()
    lost = rig.client(node)
    for number, (links, count) in enumerate(held):
        fill(rig, client, links * count, f"q{number}")
        for _ in range(links):
            lost.receiver(f"q{number}", credit=count)
    rig.settle()
    assert len(lost.deliveries) == sum(links * count for links, count in held)
    node.due = False
    lost.close_transport()
    assert node.core is not None and len(node.core.jobs.returns.lanes) == len(held)
    return node, [node.queue(f"q{number}").shared for number in range(len(held))]


@pytest.mark.parametrize("others", [[(1, 300)], [(1, 30)] * 4, [(1, 6)] * 30, [(30, 1)] * 4])
@pytest.mark.parametrize("own", [1, 7])
@pytest.mark.parametrize("most", [1, 3, 10, 24])
def test_a_queue_waits_for_its_own_entries_among_other_queues_whatever_these_hold(
    monkeypatch: pytest.MonkeyPatch, most: int, own: int, others: list[tuple[int, int]]
) -> None:
    """About as many turns as its entries, times the queues, by what goes back in a turn."""
    node, (*_, cursor) = lanes(monkeypatch, *others, (1, own))
    assert node.core is not None
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", most)
    turns = 0
    while cursor.returning:
        node.core.jobs.returns.step()
        turns += 1
    assert turns <= 1 + 2 * (own + 1) * (len(others) + 1) / most
    assert len(cursor.requeued) == own and not cursor.acquired
    node.core.validate()


@pytest.mark.parametrize("held", [[(1, 1)] * 40, [(40, 1)], [(1, 40)], [(5, 3)] * 8])
def test_the_work_of_a_turn_is_bounded_whatever_the_number_of_queues_and_links(
    monkeypatch: pytest.MonkeyPatch, held: list[tuple[int, int]]
) -> None:
    node, cursors = lanes(monkeypatch, *held)
    assert node.core is not None
    waits = node.core.jobs.returns
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    while waits.lanes:
        before = sum(len(item.sequences) - item.looked + 1 for item in waits.waiting)
        waits.step()
        left = sum(len(item.sequences) - item.looked + 1 for item in waits.waiting)
        assert 10 <= before - left <= 11 or not left
    assert all(not cursor.acquired and not cursor.returning for cursor in cursors)


def test_a_queue_that_is_deleted_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The links of it are forgotten, a bounded number in each turn."""
    node, (_, cursor) = lanes(monkeypatch, (40, 1), (1, 1))
    core = node.core
    assert core is not None
    core.catalog.delete(node.queue("q0"))
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    core.jobs.returns.step()
    assert not cursor.returning and len(core.jobs.returns.waiting) >= 30
    for _ in range(4):
        core.jobs.returns.step()
    assert not core.jobs.returns.lanes


# ------------------------------------------------------------------------------------------------- what is not held


def test_a_queue_hands_out_again_though_nothing_was_left_to_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumer waited, and nothing else wakes it."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 1)
    rig, node, client = world()
    fill(rig, client, 1)
    assert node.core is not None
    node.core.jobs.returns.requeue(cast(Any, "gone"), node.queue("work").shared, [7, 8, 9], failed=False)
    client.receiver("work")
    rig.settle()
    assert client.bodies() == ["1"]


def held_by_one(monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[Rig, returns.Returns, ConsumerLink, Cursor]:
    """A consumer that holds so many entries."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    rig, node, client = world()
    fill(rig, client, count)
    client.receiver("work", credit=count)
    rig.settle()
    cursor = node.queue("work").shared
    (consumer,) = cursor.consumers
    assert node.core is not None and len(cursor.acquired) == count
    return rig, node.core.jobs.returns, cast(ConsumerLink, consumer), cursor


@pytest.mark.parametrize("named", [[], [1, 1, 2], [1, 2, 99]])
def test_all_that_a_link_holds_goes_back_though_it_names_others_or_the_same_twice(
    monkeypatch: pytest.MonkeyPatch, named: list[int]
) -> None:
    """It holds as many as it names, or names none."""
    _, waits, consumer, cursor = held_by_one(monkeypatch, 3)
    waits.requeue(consumer, cursor, named, failed=False, held=3)
    while waits.lanes:
        waits.step()
    assert not cursor.acquired and sorted(cursor.requeued) == [1, 2, 3]


def test_what_goes_back_at_once_is_counted_for_one_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else much that went back long ago would make a link wait."""
    rig, waits, consumer, cursor = held_by_one(monkeypatch, 12)
    for first in (1, 7):
        waits.requeue(consumer, cursor, [*range(first, first + 6)], failed=False)
        assert not waits.lanes and len(cursor.acquired) == 13 - first - 6
        fill(rig, rig.client(rig.nodes["hub"]), 1, "other")


def test_a_link_that_holds_less_than_it_counted_is_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue would hand out nothing any more."""
    _, waits, consumer, cursor = held_by_one(monkeypatch, 4)
    waits.requeue(consumer, cursor, [1, 2], failed=False, held=6)
    for _ in range(2):
        waits.step()
    assert not waits.lanes and not cursor.returning and not cursor.acquired


def test_what_a_turn_gave_back_is_counted_when_a_link_ends_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    node, (first, second) = lanes(monkeypatch, (1, 30), (1, 1))
    assert node.core is not None
    waits = node.core.jobs.returns
    (item,) = waits.lanes.pop(second)
    second.returning = False
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 10)
    waits.step()
    assert len(first.requeued) == 10
    waits.requeue(item.consumer, second, item.sequences, failed=False, held=1)
    assert second in waits.lanes and second.returning and not second.requeued
