"""Consumers, bounds and producers at one node, over AMQP (CUSTODY, "Producers")."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Rejected, Released
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.names import DEAD_LETTERS
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.hops import names
from support.one_node import fill, world
from support.rig import Client, Rig


def test_competing_consumers_share_and_a_lost_ones_come_back_in_order() -> None:
    rig, node, client = world()
    one, two = rig.client(node), rig.client(node)
    one.receiver("work", credit=3)
    rig.settle()
    fill(rig, client, 6)
    assert one.bodies() == names(1, 3)
    one.close_transport()
    rig.settle()
    two.receiver("work")
    rig.settle()
    assert two.bodies() == names(1, 6)
    headers = [message.header for message in two.messages()]
    assert [(header.first_acquirer, header.delivery_count) for header in headers] == [(False, 1)] * 3 + [(True, 0)] * 3
    two.accept()
    rig.settle()
    assert node.queue("work").messages == 0


@pytest.mark.parametrize(
    ("outcome", "again", "count"),
    [
        (Released(), True, 0),
        (Modified(delivery_failed=True), True, 1),
        (Modified(delivery_failed=False), True, 0),
        (Modified(delivery_failed=True, undeliverable_here=True), False, 1),
        (Rejected(), False, 0),
        (Accepted(), False, 0),
    ],
)
def test_outcomes(outcome: object, again: bool, count: int) -> None:
    rig, node, client = world()
    fill(rig, client, 1)
    client.receiver("work")
    rig.settle()
    client.accept(outcome)
    rig.run(0.1)  # a retirement alone waits a moment for a commit to share
    assert client.bodies() == (["1"] if again else [])
    if again:
        header = client.messages()[0].header
        assert header is not None and header.delivery_count == count and not header.first_acquirer
    stays = again or isinstance(outcome, Modified)
    assert node.bodies("work") == (["1"] if stays else [])
    if isinstance(outcome, Rejected):
        assert node.bodies("$dead-letters") == ["1"]
    if stays and not again:
        other = rig.client(node)
        other.receiver("work")
        rig.settle()
        assert other.bodies() == ["1"]


@pytest.mark.parametrize("begins_anew", [False, True])
def test_each_failed_delivery_raises_the_count_also_after_a_restart(begins_anew: bool) -> None:
    """§3.4.5: whoever sets delivery-failed has the count raised. After a restart it begins at 1, since the message may
    have been shown before; what is given back otherwise leaves it as it is.
    """
    rig, node, client = world()
    fill(rig, client, 1)
    if begins_anew:
        client.receiver("work")
        rig.settle()
        node.crash()
        node.start()
        client = rig.client(node)
    client.receiver("work")
    rig.settle()
    counts = []
    outcomes = (Modified(delivery_failed=True), Released(), Modified(delivery_failed=True), Modified(), None)
    for outcome in outcomes:
        (message,) = client.messages()
        assert message.header is not None
        counts.append(message.header.delivery_count)
        if outcome is not None:
            client.accept(outcome)
            rig.run(0.1)
    first = 1 if begins_anew else 0
    assert counts == [first, first + 1, first + 1, first + 2, first + 2]


def test_annotations_of_modified_are_kept_and_bounded() -> None:
    rig, _, client = world()
    fill(rig, client, 1)
    client.receiver("work")
    rig.settle()
    for turn in range(60):
        client.accept(Modified(message_annotations={Symbol(f"x-{turn}-{key}"): 1 for key in range(900)}))
        rig.settle()
    notes = client.messages()[0].message_annotations
    assert "x-0-899" in notes and len(notes) <= 1_002


@pytest.mark.parametrize("clean", [True, False])
def test_a_redelivery_is_marked_after_a_restart(clean: bool) -> None:
    rig, node, client = world()
    fill(rig, client, 4)
    client.receiver("work", credit=2)
    rig.settle()
    if clean:
        from holdfast.engine.events import Stopping

        node.handle(Stopping())
        rig.settle()
        assert node.stopped
    node.crash()
    node.start()
    rig.settle()
    again = rig.client(node)
    again.receiver("work")
    rig.settle()
    assert again.bodies() == names(1, 4)
    first = [message.header.first_acquirer for message in again.messages()]
    assert first[:2] == [False, False]
    assert first[2:] == ([True, True] if clean else first[2:])


def test_a_drain_is_answered() -> None:
    rig, _, client = world()
    fill(rig, client, 2)
    link = client.receiver("work", credit=0)
    link.grant(10, drain=True)
    rig.settle()
    assert client.bodies() == names(1, 2)
    assert link.credit == 0


def test_a_drain_is_answered_to_who_holds_as_much_as_the_node_lets_it() -> None:
    """Nothing goes out until it settles, so a drain that waited for that would wait for the client (CLIENTS 23)."""
    rig, _, client = world(limits=Limits(unsettled_max=3))
    fill(rig, client, 5)
    link = client.receiver("work", credit=10)
    rig.settle()
    assert (client.bodies(), link.credit) == (names(1, 3), 7)
    link.grant(7, drain=True)
    rig.settle()
    assert (client.bodies(), link.credit) == (names(1, 3), 0)
    client.accept()
    rig.settle()
    link.grant(10, drain=True)
    rig.settle()
    assert client.bodies() == names(4, 5)
    assert link.credit == 0


@pytest.mark.parametrize("bound", [{"messages_max": 3}, {"bytes_max": 3 * 9}])
def test_block_parks_and_resumes(bound: dict[str, int]) -> None:
    rig, node, client = world(QueueConfig(name="work", **bound))
    link = client.sender("work")
    rig.settle()
    while link.credit and len(link.unsettled) < 5:
        client.send(link, str(len(link.unsettled) + 1))
    sent = len(link.unsettled)
    rig.settle()
    assert 1 <= node.queue("work").messages == min(3, sent)
    assert link.credit == (0 if sent >= 3 else 1)
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    while consumer.accept():
        rig.settle()
    assert not link.unsettled and link.credit > 0
    assert node.queue("work").messages == node.queue("work").bytes_held == 0


def test_refuse_rejects() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=2, when_full="refuse"))
    fill(rig, client, 4)
    kinds = [(body, type(state).__name__) for body, state in sorted(client.outcomes, key=lambda pair: pair[0])]
    assert kinds == [("1", "Accepted"), ("2", "Accepted"), ("3", "Rejected"), ("4", "Rejected")]
    refused = [state.error.condition for _, state in client.outcomes if isinstance(state, Rejected)]
    assert refused == ["amqp:resource-limit-exceeded"] * 2
    assert node.bodies("work") == names(1, 2)


@pytest.mark.parametrize("when_full", ["block", "refuse"])
def test_an_empty_queue_takes_one_message_of_any_size(when_full: str) -> None:
    """`bytes_max` counts whole messages: their sections as they came, annotations included, and the body."""
    rig, node, client = world(QueueConfig(name="work", bytes_max=1_000, when_full=when_full))
    link = client.sender("work")
    rig.settle()
    parts = {"application_properties": {"key": "v" * 100}, "message_annotations": {Symbol("x-key"): "a" * 50}}
    client.send(link, "b" * 5_000, **parts)
    rig.settle()
    assert [type(state) for _, state in client.outcomes] == [Accepted]
    assert 5_150 < node.queue("work").bytes_held < 5_150 + 100
    if link.sendable:  # a queue that refuses gives credit
        client.send(link, "2")
        rig.settle()
        assert isinstance(client.outcomes[-1][1], Rejected)
    assert link.sendable is (when_full == "refuse") and node.queue("work").messages == 1


def test_there_is_no_bound_on_how_often_a_delivery_fails() -> None:
    """It is counted, and offered again: who gives up rejects it."""
    rig, node, client = world()
    fill(rig, client, 1)
    client.receiver("work")
    rig.settle()
    for count in range(200):
        assert client.messages()[0].header.delivery_count == count
        client.accept(Modified(delivery_failed=True))
        rig.settle()
    assert DEAD_LETTERS not in node.core.catalog.queues
    client.accept(Rejected())
    rig.run(1)
    assert node.bodies(DEAD_LETTERS) == ["1"] and node.queue("work").messages == 0


@pytest.mark.parametrize("both", [False, True])
def test_a_full_disk_refuses_and_loses_nothing(both: bool) -> None:
    rig, node, client = world()
    fill(rig, client, 2)
    consumer = rig.client(node)
    consumer.receiver("work", credit=1)
    rig.settle()
    node.refuse, node.hold_commits = 1, True
    link = client.sender("work")
    rig.settle()
    client.send(link, "3")
    rig.settle()
    if both:
        client.send(link, "4")
        rig.settle()
    node.hold_commits = False
    rig.settle()
    refused = {body: state for body, state in client.outcomes if isinstance(state, Rejected)}
    assert set(refused) == ({"3", "4"} if both else {"3"})
    assert {state.error.condition for state in refused.values()} == {"amqp:resource-limit-exceeded"}
    client.send(link, "5")
    rig.settle()
    assert node.bodies("work") == ["1", "2", "5"]
    consumer.receiver("work")
    rig.settle()
    assert consumer.bodies() == ["1", "2", "5"]
    node.crash()
    node.start()
    assert node.bodies("work") == ["1", "2", "5"] and node.queue("work").messages == 3


def test_a_volatile_queue_heeds_no_disk() -> None:
    rig, node, client = world(QueueConfig(name="quick", durable=False))
    node.unwatched.add("quick")
    fill(rig, client, 3, "quick")
    assert {type(state) for _, state in client.outcomes} == {Accepted}
    assert not any(node.store.read(node.queue("quick").queue_id, 0, count_max=9, bytes_max=9))
    client.receiver("quick")
    rig.settle()
    assert client.bodies() == names(1, 3)


def test_time_to_live() -> None:
    rig, node, client = world()
    link = client.sender("work")
    rig.settle()
    client.send(link, "short", header=Header(ttl=1000))
    client.send(link, "long", header=Header(ttl=60_000))
    rig.settle()
    rig.pass_time(2)
    client.receiver("work")
    rig.settle()
    assert client.bodies() == ["long"]
    assert 50_000 < client.messages()[0].header.ttl <= 58_000
    assert node.queue("work").expired_total == 1


def test_clock_jump() -> None:
    """The wall clock jumps; times to live do not."""
    rig, _, client = world()
    link = client.sender("work")
    rig.settle()
    client.send(link, "1", header=Header(ttl=10_000))
    rig.settle()
    rig.wall_ms += 86_400_000
    client.send(link, "2", header=Header(ttl=10_000))
    rig.settle()
    rig.wall_ms -= 3 * 86_400_000
    client.receiver("work")
    rig.settle()
    assert client.bodies() == ["1", "2"]


def test_told_annotations_stand_once() -> None:
    rig, _, client = world()
    link = client.sender("work")
    rig.settle()
    notes = {Symbol("x-opt-sequence-number"): Ulong(77), Symbol("x-opt-holdfast-late"): True, Symbol("mine"): 1}
    client.send(link, "1", message_annotations=notes)
    client.receiver("work")
    rig.settle()
    told = client.messages()[0].message_annotations
    assert set(told) == {"x-opt-sequence-number", "x-opt-enqueued-time", "mine"} and told["x-opt-sequence-number"] == 1


# ------------------------------------------------------------------------------------------------ producers


def producer(rig: Rig, client: Client, name: str = "p", address: str = "work") -> tuple[Any, dict[str, Any]]:
    link = client.sender(address, properties={Symbol("holdfast:producer"): name})
    rig.settle()
    return link, {str(key): value for key, value in (link.remote_attach.properties or {}).items()}


@pytest.mark.parametrize("restart", [False, True])
def test_producer_crash(restart: bool) -> None:
    rig, node, client = world()
    link, _ = producer(rig, client)
    for number in (1, 2, 3, 3, 5):
        client.send(link, str(number), number=number)
    rig.settle()
    client.close_transport()
    if restart:
        node.crash()
        node.start()
    client = rig.client(node)
    link, told = producer(rig, client)
    assert (told["holdfast:last-number"], told["holdfast:missing"]) == (5, [[4, 4]])
    assert told["holdfast:producer-epoch"] == 2
    for number in (4, 5, 6):
        client.send(link, str(number), number=number)
    rig.settle()
    assert len(client.outcomes) == 3
    assert node.bodies("work") == ["1", "2", "3", "5", "4", "6"]


def test_refused_then_retried() -> None:
    rig, node, client = world()
    link, _ = producer(rig, client)
    node.refuse = 1
    client.send(link, "5", number=5)
    rig.settle()
    client.send(link, "6", number=6)
    rig.settle()
    client.send(link, "5", number=5)
    rig.settle()
    assert [type(state).__name__ for _, state in client.outcomes] == ["Rejected", "Accepted", "Accepted"]
    assert node.bodies("work") == ["6", "5"]


def test_a_stolen_link_is_told_and_brings_nothing_more() -> None:
    rig, node, client = world()
    link, _ = producer(rig, client)
    other = rig.client(node)
    producer(rig, other)
    assert client.detached[0].error.condition == "amqp:link:stolen" and link.detached


def test_a_producer_attaches_while_its_queue_is_busy() -> None:
    rig, node, client = world()
    node.hold_commits = True
    plain = client.sender("work")
    rig.settle()
    node.hold_commits = False
    rig.settle()
    node.hold_commits = True
    client.send(plain, "1")
    client.sender("work", properties={Symbol("holdfast:producer"): "p"})
    client.receiver("work")
    rig.settle()
    node.hold_commits = False
    rig.settle()
    assert client.bodies() == ["1"]


def test_gaps_of_a_producer_are_bounded() -> None:
    rig, _, client = world(limits=Limits(ranges_max=2))
    link, _ = producer(rig, client)
    for number in (2, 4, 6, 3):
        client.send(link, str(number), number=number)
    rig.settle()
    assert sorted(body for body, state in client.outcomes if isinstance(state, Accepted)) == ["2", "3", "4"]


def test_a_producers_name_and_address_fit_a_key() -> None:
    rig, _ = Rig(), None
    hub = rig.pair(jfk={})[0]
    rig.settle()
    client = rig.client(hub)
    link = client.sender("q" * 196 + "@hub", properties={Symbol("holdfast:producer"): "p" * 150})
    rig.settle()
    assert link.attached and not link.refused
    refused = client.sender("work", properties={Symbol("holdfast:producer"): "p" * 151})
    rig.settle()
    assert refused.refused


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_handed_out_is_counted_once(count: int) -> None:
    """Many at once to one consumer, and one by one to several that share little."""
    rig, node, client = world()
    clients = [rig.client(node) for _ in range(count)]
    for each in clients:
        each.receiver("work", credit=20)
    rig.settle()
    for _ in range(3):
        fill(rig, client, 4)
    assert sum(len(each.bodies()) for each in clients) == 12 == node.queue("work").out_total
