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


def test_a_drain_waits_for_what_a_lost_link_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 1)
    rig, node, client = world()
    fill(rig, client, 30)
    lost, again = rig.client(node), rig.client(node)
    lost.receiver("work", credit=30)
    link = again.receiver("work", credit=0)
    rig.settle()
    assert len(lost.deliveries) == 30
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
    assert [item.cursor.queue.name for item in node.core.jobs.returns.waiting] == ["work"]


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
    by_turn: Counter[int] = Counter()
    in_hands = ConsumerLink.in_hands

    def counted(self: ConsumerLink, unsettled: list[int], *others: int, held: int = 0) -> list[int]:
        by_turn[node.turns] += len(unsettled)
        return in_hands(self, unsettled, *others, held=held)

    monkeypatch.setattr(ConsumerLink, "in_hands", counted)
    lost.close_transport()
    rig.run(2)
    assert by_turn.total() == 100 and max(by_turn.values()) <= 20
    assert all_bodies(rig, node, 100) == [str(number) for number in range(1, 101)]


def test_links_that_ended_first_give_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is known at once what they held, or is to be looked for."""
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 0)
    rig, node, client = world()
    fill(rig, client, 1)
    assert node.core is not None
    waits, cursor = node.core.jobs.returns, node.queue("work").shared
    waits.requeue_found(cast(Any, "first"), cursor, lambda: [1, 2], 2, failed=True)
    waits.requeue(cast(Any, "second"), cursor, [3], failed=True)
    waits.requeue_found(cast(Any, "third"), cursor, lambda: [4], 1, failed=True)
    assert [(item.consumer, [*item.remaining()]) for item in waits.waiting] == [
        ("first", [1, 2]), ("second", [3]), ("third", [4]),
    ]  # fmt: skip
