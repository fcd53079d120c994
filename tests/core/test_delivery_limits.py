"""Most deliveries of a queue: what fails too often becomes a dead letter, over crashes too (docs/adr/0066)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.wire.extensions import SELECTOR_CODE
from holdfast.amqp.wire.performatives import Modified, Rejected, Released
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.stored import records
from holdfast.custody.dead_lettering import DEAD_DELIVERIES, DEAD_FROM, REASON, DeadLettering
from holdfast.engine.events import Stopping
from holdfast.errors import ConfigError
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.standing import core_of

FAILED = Modified(delivery_failed=True)


def limited(most: int = 3, **fields: Any) -> tuple[Rig, Node, Client]:
    return world(QueueConfig(name="work", deliveries_max=most, **fields))


def consumer(rig: Rig, node: Node, credit: int = 10, address: str = "work", **options: Any) -> Client:
    client = rig.client(node)
    client.receiver(address, credit=credit, **options)
    rig.settle()
    return client


def selecting(text: str) -> dict[str, Any]:
    return {"source": {"filter": {Symbol("s"): Described(Ulong(SELECTOR_CODE), text)}}}


def dead(rig: Rig, node: Node) -> list[tuple[str, str, int]]:
    """Of each dead letter: body, where from, failed deliveries."""
    reader = rig.client(node)
    reader.receiver("$dead-letters", source={"distribution_mode": Symbol("copy")})
    rig.settle()
    found = []
    for message in reader.messages():
        notes = message.message_annotations or {}
        assert "deliver" in notes[REASON]
        found.append((message.body_bytes().decode(), notes[DEAD_FROM], notes[DEAD_DELIVERIES]))
    reader.close_transport()
    rig.settle()
    return found


def rows(node: Node) -> list[bytes]:
    """Keys of table `node`."""
    return [key for key, _ in node.store.table("node")]


def stop(rig: Rig, node: Node) -> None:
    node.handle(Stopping())
    rig.run(5)
    assert node.stopped
    node.core = None
    node.start()
    rig.settle()


def kill(rig: Rig, node: Node) -> None:
    node.crash()
    node.start()
    rig.settle()


def counts(client: Client) -> list[int]:
    return [message.header.delivery_count if message.header else 0 for message in client.messages()]


def test_what_fails_so_often_becomes_a_dead_letter_with_its_count() -> None:
    rig, node, client = limited(3)
    fill(rig, client, 2)
    taker = consumer(rig, node, credit=100)
    seen: list[tuple[str, int]] = []
    while taker.deliveries:
        seen += zip(taker.bodies(), counts(taker), strict=True)
        taker.accept(FAILED)
        rig.settle()
    assert sorted(seen) == [("1", 0), ("1", 1), ("1", 2), ("2", 0), ("2", 1), ("2", 2)]
    assert sorted(dead(rig, node)) == [("1", "work", 3), ("2", "work", 3)]
    assert node.bodies("work") == [] and node.queue("work").messages == 0
    assert not [key for key in rows(node) if key[:1] == b"v"]


def test_a_release_does_not_count() -> None:
    rig, node, client = limited(2)
    fill(rig, client, 1)
    taker = consumer(rig, node, credit=100)
    for _ in range(5):
        assert taker.accept(Released()) == ["1"]
        rig.settle()
    taker.accept(Modified(delivery_failed=False))
    rig.settle()
    assert counts(taker) == [0] and dead(rig, node) == []


@pytest.mark.parametrize("most", [1, 3])
def test_a_message_that_ends_each_of_its_consumers(most: int) -> None:
    rig, node, client = limited(most)
    fill(rig, client, 1)
    for _ in range(most):
        taker = consumer(rig, node, credit=1)
        assert taker.bodies() == ["1"]
        taker.close_transport()
        rig.settle()
    assert consumer(rig, node).bodies() == []
    assert dead(rig, node) == [("1", "work", most)]


@pytest.mark.parametrize("options", [{}, selecting("JMSPriority = 4")])
def test_a_message_that_ends_the_node_each_time(options: dict[str, Any]) -> None:
    """With a selector it is shown beyond the cursor's watermark."""
    rig, node, client = limited(3)
    fill(rig, client, 3)
    for _ in range(3):
        taker = consumer(rig, node, credit=1, **options)
        assert taker.bodies() == ["1"]
        node.crash()
        node.start()
        rig.settle()
    taker = consumer(rig, node, credit=10, **options)
    assert taker.bodies() == ["2", "3"] and counts(taker) == [0, 0], "what was never shown counts for nothing"
    assert dead(rig, node) == [("1", "work", 3)]


def test_both_count_together_and_a_stop_forgets_nothing() -> None:
    rig, node, client = limited(4)
    fill(rig, client, 1)
    taker = consumer(rig, node, credit=1)
    taker.accept(FAILED)
    rig.settle()
    consumer(rig, node, credit=1)
    node.crash()
    node.start()
    rig.settle()
    assert counts(consumer(rig, node, credit=1)) == [2]
    stop(rig, node)
    taker = consumer(rig, node, credit=1)
    assert counts(taker) == [3]
    taker.accept(FAILED)
    rig.settle()
    assert dead(rig, node) == [("1", "work", 4)]


@pytest.mark.parametrize("options", [{}, selecting("n > 0")], ids=["all", "selected"])
def test_what_was_released_is_marked_after_a_proper_stop(options: dict[str, Any]) -> None:
    rig, node, client = limited(3)
    link = client.sender("work")
    rig.settle()
    client.send(link, "1", application_properties={"n": 1})
    rig.settle()
    taker = consumer(rig, node, credit=1, **options)
    taker.accept(Released())
    rig.settle()
    taker.close_transport()
    rig.settle()
    stop(rig, node)
    stop(rig, node)  # a life in which it was not shown forgets nothing
    taker = consumer(rig, node, credit=1, **options)
    header = taker.messages()[0].header
    assert header is not None and not header.first_acquirer
    assert header.delivery_count == 0
    taker.accept()
    rig.settle()
    stop(rig, node)
    assert not [key for key in rows(node) if key[:1] == records.FAILURES], "its row leaves with it"


def test_a_life_in_which_it_was_not_shown_does_not_count() -> None:
    rig, node, client = limited(3)
    fill(rig, client, 20)
    taker = consumer(rig, node, credit=2)
    assert taker.bodies() == ["1", "2"]
    for _ in range(5):
        node.crash()
        node.start()
        rig.settle()
    taker = consumer(rig, node, credit=5)
    assert taker.bodies() == ["1", "2", "3", "4", "5"]
    assert counts(taker) == [1, 1, 0, 0, 0]


def test_what_a_selector_passes_over_was_not_shown() -> None:
    rig, node, client = limited(2)
    link = client.sender("work")
    rig.settle()
    for number in range(20):
        client.send(link, str(number), application_properties={"n": number})
    rig.settle()
    for _ in range(2):
        taker = consumer(rig, node, **selecting("n = 15"))
        assert taker.bodies() == ["15"]
        node.crash()
        node.start()
        rig.settle()
    assert consumer(rig, node, credit=100, **selecting("n >= 10")).bodies() == [
        str(number) for number in range(10, 20) if number != 15
    ]
    assert dead(rig, node) == [("15", "work", 2)]


KINDS = pytest.mark.parametrize(
    ("options", "sorts"),
    [({}, False), (selecting("TRUE"), False), ({}, True), (selecting("TRUE"), True)],
    ids=["all", "selected", "sorted", "sorted and selected"],
)


def put(rig: Rig, client: Client, *bodies: str) -> None:
    link = client.sender("work")
    rig.settle()
    for number, body in enumerate(bodies):
        client.send(link, body)
        if number % 100 == 99:
            rig.settle()
    rig.settle()


@KINDS
@pytest.mark.parametrize("live", [False, True], ids=["waiting", "live"])
def test_what_the_one_with_credit_cannot_have_was_not_shown(options: dict[str, Any], sorts: bool, live: bool) -> None:
    """It is too large for it, and for another one that takes it and has no credit."""
    rig, node, client = limited(2, priorities=sorts)
    sizes = [1_000, 1_000, 1, 1_000, 1, 1_000]
    if not live:
        put(rig, client, *(str(number).ljust(size) for number, size in enumerate(sizes)))
    for kills in range(3):
        consumer(rig, node, credit=0, **options)
        small = consumer(rig, node, credit=10, max_message_size=600, **options)
        if live and not kills:
            put(rig, rig.client(node), *(str(number).ljust(size) for number, size in enumerate(sizes)))
        assert small.bodies() == (["2", "4"] if kills < 2 else [])
        kill(rig, node)
    taker = consumer(rig, node, credit=10, **options)
    assert [body.strip() for body in taker.bodies()] == ["0", "1", "3", "5"] and not any(counts(taker))
    assert sorted(dead(rig, node)) == [("2", "work", 2), ("4", "work", 2)]


def test_what_lies_behind_the_credit_of_the_one_that_can_have_it_was_not_shown() -> None:
    """Though another consumer, without credit, cannot have all."""
    rig, node, client = limited(1)
    put(rig, client, "0".ljust(1_000), "1", "2", "3")
    consumer(rig, node, credit=0, max_message_size=600)
    large = consumer(rig, node, credit=2)
    rig.run(1)
    assert [body.strip() for body in large.bodies()] == ["0", "1"]
    kill(rig, node)
    taker = consumer(rig, node, credit=10)
    assert taker.bodies() == ["2", "3"] and not any(counts(taker))


@KINDS
@pytest.mark.parametrize("beside", [None, "FALSE"], ids=["alone", "beside another"])
@pytest.mark.parametrize("credit", [1, 10])
def test_what_no_consumer_can_have_was_not_shown(
    options: dict[str, Any], sorts: bool, beside: str | None, credit: int
) -> None:
    """It is too large for the only one, whose link it ends, and so may be what lies behind it."""
    rig, node, client = limited(1, priorities=sorts)
    put(rig, client, *(f"{number}".ljust(1_000) for number in range(4)), "small")
    if beside is not None:
        consumer(rig, node, **selecting(beside))
    small = consumer(rig, node, credit=credit, max_message_size=600, **options)
    assert not small.deliveries and small.detached
    kill(rig, node)
    taker = consumer(rig, node, credit=10, **options)
    assert [body.strip() for body in taker.bodies()] == ["0", "1", "2", "3", "small"] and not any(counts(taker))
    assert dead(rig, node) == []


@KINDS
@pytest.mark.parametrize("leaves", [False, True])
def test_what_was_left_to_another_is_marked_together_as_it_gets_credit(
    options: dict[str, Any], sorts: bool, leaves: bool
) -> None:
    """Not one with each commit; and no more than it has credit for."""
    rig, node, client = limited(4, priorities=sorts)
    put(rig, client, *(f"{number:03}".ljust(1_000) for number in range(200)))
    large = rig.client(node)
    link = large.receiver("work", credit=0, **options)
    small = consumer(rig, node, credit=10, max_message_size=600, **options)
    put(rig, client, "small")
    assert small.bodies() == ["small"]
    if leaves:
        small.close_transport()
        rig.run(1)
    commits = core_of(node).turns.number
    link.grant(150)
    rig.run(1)
    assert len(large.deliveries) == 150 and core_of(node).turns.number - commits < 10
    assert [body[:3] for body in large.bodies() if body[0] != "s"] == names(150 - ("small" in large.bodies()))
    kill(rig, node)
    taker = consumer(rig, node, credit=1_000, **options)
    shown = [body for body, count in zip(taker.bodies(), counts(taker), strict=True) if count]
    assert len(taker.deliveries) == 201 and len(shown) == 151


def names(count: int) -> list[str]:
    return [f"{number:03}" for number in range(count)]


@KINDS
def test_what_is_undeliverable_on_the_link_of_the_one_with_credit_was_not_shown(
    options: dict[str, Any], sorts: bool
) -> None:
    rig, node, client = limited(3, priorities=sorts)
    fill(rig, client, 10)
    one = consumer(rig, node, credit=10, **options)
    consumer(rig, node, credit=0, **options)
    one.accept(Modified(undeliverable_here=True))
    rig.settle()
    one.deliveries.clear()
    assert one.bodies() == []
    kill(rig, node)
    assert counts(consumer(rig, node, credit=10, **options)) == [1] * 10, "they were shown once"
    kill(rig, node)
    fill(rig, rig.client(node), 3, first=11)
    taker = consumer(rig, node, credit=20, **options)
    assert counts(taker) == [2] * 10 + [0] * 3


def test_each_subscription_counts_for_itself() -> None:
    rig, node, client = limited(2)
    for name in ("one", "two"):
        done(client, "OPEN", "subscription", name, queue="work", mode="copy", start="first")
    fill(rig, client, 1)
    durable = {"source": {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}}
    one = rig.client(node)
    one.receiver("work", name="one", credit=10, **durable)
    rig.settle()
    for _ in range(2):
        assert one.accept(FAILED) == ["1"]
        rig.settle()
    assert one.bodies() == []
    assert dead(rig, node) == [("1", "work", 2)]
    two = rig.client(node)
    two.receiver("work", name="two", credit=10, **durable)
    rig.settle()
    assert two.bodies() == ["1"] and counts(two) == [0]
    node.crash()
    node.start()
    rig.settle()
    two = rig.client(node)
    two.receiver("work", name="two", credit=10, **durable)
    one = rig.client(node)
    one.receiver("work", name="one", credit=10, **durable)
    rig.settle()
    assert counts(two) == [1] and one.bodies() == []
    two.accept(FAILED)
    rig.settle()
    assert [body for body, _, _ in dead(rig, node)] == ["1", "1"]


def test_a_topic_counts_for_each_of_its_subscriptions() -> None:
    rig, node, client = world()
    done(client, "CREATE", "queue", "topic/news", deliveries_max=2)
    durable = {"source": {"durable": 2, "expiry_policy": Symbol("never")}}
    takers = []
    for name in ("one", "two"):
        taker = rig.client(node)
        taker.receiver("topic/news", name=name, credit=10, **durable)
        takers.append(taker)
    rig.settle()
    fill(rig, client, 1, "topic/news")
    for _ in range(2):
        assert takers[0].accept(FAILED) == ["1"]
        rig.settle()
    takers[1].accept()
    rig.run(2)
    assert takers[0].bodies() == [] and dead(rig, node) == [("1", "topic/news", 2)]
    assert node.queue("topic/news").messages == 0


def test_a_refused_commit_leaves_it_where_it_was() -> None:
    rig, node, client = limited(1)
    fill(rig, client, 2)
    taker = consumer(rig, node, credit=2)
    node.hold_commits = True
    taker.accept(FAILED)
    rig.settle()
    assert node.pending is not None and node.pending.batch.appends
    node.refuse = 1
    node.finish_commit()
    assert node.core is not None
    node.core.validate()
    cursor = node.queue("work").shared
    assert node.bodies("work") == ["1", "2"] and cursor.counts == {1: 1, 2: 1} and cursor.exhausted.keys() == {1, 2}
    node.hold_commits = False
    rig.run(10)
    assert taker.bodies() == []
    assert node.bodies("work") == [] and sorted(dead(rig, node)) == [("1", "work", 1), ("2", "work", 1)]


@pytest.mark.parametrize("priorities", [False, True])
def test_a_drain_does_not_keep_the_node_busy_until_a_failure_is_stored(priorities: bool) -> None:
    """What is accepted beside it may wait a little for its commit; a message that is to be shown again does not."""
    rig, node, client = limited(priorities=priorities)
    fill(rig, client, 2)
    taker = consumer(rig, node, credit=2)
    link = taker.deliveries[0].link
    taker.accept(count=1)
    taker.accept(FAILED)
    link.grant(1, drain=True)
    turns = node.turns
    rig.settle()
    assert taker.bodies() == ["2"] and link.credit == 0 and node.turns - turns < 20


def test_without_room_for_the_dead_letter_it_stays_and_goes_later() -> None:
    rig, node, client = limited(1)
    fill(rig, client, 2)
    taker = consumer(rig, node, credit=1)
    node.refuse, node.refuse_all = 10**6, True
    taker.accept(FAILED)
    rig.run(5)
    assert node.bodies("work") == ["1", "2"] and node.core is not None
    node.refuse, node.refuse_all = 0, False
    rig.run(10)
    assert node.bodies("work") == ["2"] and dead(rig, node) == [("1", "work", 1)]


def test_a_bound_that_is_raised_before_there_is_room_for_the_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is none: the message is offered again."""
    rig, node, client = limited(1)
    fill(rig, client, 1)
    taker = consumer(rig, node, credit=1)
    with monkeypatch.context() as patch:
        patch.setattr(DeadLettering, "has_room_for_dead_letter", lambda self, size: False)
        taker.accept(FAILED)
        rig.run(5)
        queue = node.queue("work")
        assert queue.shared.exhausted.keys() == {1}
        queue.config = replace(queue.config, deliveries_max=3)
    core_of(node).delivery_limits.refill()
    other = consumer(rig, node)
    rig.run(5)
    assert [*taker.bodies(), *other.bodies()] == ["1"] and not queue.shared.exhausted
    assert node.bodies("work") == ["1"] and "$dead-letters" not in core_of(node).catalog.queues
    assert not core_of(node).containment.parts_failed


def test_the_ends_of_lives_are_known_the_highest_first() -> None:
    """So that the lowest are forgotten where there are more than count."""
    rig, node, client = limited(2)
    fill(rig, client, 5)
    ends = []
    for credit in (1, 2, 3):
        consumer(rig, node, credit=credit)
        ends.append(node.queue("work").shared.watermark_stored)
        node.crash()
        node.start()
        rig.settle()
    assert ends[0] < ends[1] < ends[2]
    assert node.queue("work").shared.lives == (ends[2], ends[1])
    core_of(node).validate()


def test_in_memory_too() -> None:
    rig, node, client = limited(2, durable=False)
    node.unwatched.add("work")
    fill(rig, client, 1)
    taker = consumer(rig, node)
    for _ in range(2):
        assert taker.accept(FAILED) == ["1"]
        rig.settle()
    assert taker.bodies() == [] and dead(rig, node) == [("1", "work", 2)] and node.queue("work").messages == 0


def test_a_bound_that_is_raised_or_made_while_the_queue_is_used() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 2)
    taker = consumer(rig, node, credit=100)
    for _ in range(3):
        taker.accept(FAILED)
        rig.settle()
    assert counts(taker) == [3, 3]
    body = done(client, "UPDATE", "queue", "work", deliveries_max=5)
    assert body["deliveries_max"] == 5
    node.crash()
    node.start()
    rig.settle()
    taker = consumer(rig, node, credit=100)
    assert counts(taker) == [4, 4], "three failed, and the end of the node"
    done(client := rig.client(node), "UPDATE", "queue", "work", deliveries_max=2)
    taker.accept(Released())
    rig.settle()
    assert sorted(body for body, _, _ in dead(rig, node)) == ["1", "2"] and node.bodies("work") == []
    done(client, "UPDATE", "queue", "work", deliveries_max=None)
    assert done(client, "READ", "queue", "work")["deliveries_max"] is None


@pytest.mark.parametrize("end", [kill, stop])
def test_a_queue_without_the_bound_that_had_one_marks_what_was_shown(end: Callable[[Rig, Node], None]) -> None:
    rig, node, client = world()
    done(client, "CREATE", "queue", "work", deliveries_max=9)
    fill(rig, client, 3)
    consumer(rig, node, credit=2)
    end(rig, node)
    client = rig.client(node)
    done(client, "UPDATE", "queue", "work", deliveries_max=None)
    for _ in range(2):
        end(rig, node)
    taker = consumer(rig, node)
    assert [count > 0 for count in counts(taker)] == [True, True, False]
    assert not [key for key in rows(node) if key[:1] in b"vl"]


@pytest.mark.parametrize("end", [kill, stop])
@pytest.mark.parametrize("options", [{}, selecting("TRUE")], ids=["all", "selected"])
def test_a_bound_that_is_taken_away_changes_no_count(end: Callable[[Rig, Node], None], options: dict[str, Any]) -> None:
    """After the next start; also of what was released, and of what a consumer had when the node ended."""

    def counted(*, taken_away: bool) -> list[int]:
        rig, node, client = limited(9)
        fill(rig, client, 4)
        taker = consumer(rig, node, credit=3, **options)
        taker.accept(Released(), count=1)
        taker.accept(FAILED, count=1)
        rig.settle()
        if taken_away:
            done(client, "UPDATE", "queue", "work", deliveries_max=None)
        end(rig, node)
        if end is stop:
            stop(rig, node)
        return counts(consumer(rig, node, credit=10, **options))

    assert counted(taken_away=True) == counted(taken_away=False)


def test_nothing_of_a_queue_or_subscription_that_is_deleted_stays() -> None:
    rig, node, client = limited(5)
    done(client, "OPEN", "subscription", "one", queue="work", mode="copy", start="first")
    fill(rig, client, 3)
    durable = {"source": {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}}
    for _ in range(2):
        one = rig.client(node)
        one.receiver("work", name="one", credit=10, **durable)
        taker = consumer(rig, node)
        taker.accept(FAILED)
        one.accept(FAILED)
        rig.settle()
        node.crash()
        node.start()
        rig.settle()
    assert {b"v", b"l"} <= {key[:1] for key in rows(node)}
    client = rig.client(node)
    done(client, "DELETE", "subscription", "one", queue="work")
    done(client, "DELETE", "queue", "work")
    rig.run(1)
    assert not {key for key in rows(node) if key[:1] in b"vl"}


def test_a_rejected_message_is_a_dead_letter_for_that_and_keeps_its_count_if_refused() -> None:
    rig, node, client = limited(5)
    fill(rig, client, 1)
    taker = consumer(rig, node, credit=100)
    for _ in range(3):
        taker.accept(FAILED)
        rig.settle()
    node.refuse = 1
    taker.accept(Rejected())
    rig.run(1)
    taker.accept(Released())
    rig.settle()
    assert counts(taker) == [3]


@pytest.mark.parametrize("value", [0, 10_001])
def test_values_that_are_refused(value: int) -> None:
    with pytest.raises(ConfigError, match=r"invalid value .* deliveries_max; expected a whole number from 1 to 10,000"):
        QueueConfig(name="work", deliveries_max=value).validate()


@pytest.mark.parametrize("options", [{}, selecting("JMSPriority = 4")])
def test_it_is_not_given_again_before_its_failure_is_on_disk(options: dict[str, Any]) -> None:
    """So that a node that is killed between forgets none."""
    rig, node, client = limited(2)
    fill(rig, client, 1)
    taker = consumer(rig, node, **options)
    node.hold_commits = True
    taker.accept(FAILED)
    rig.settle()
    assert taker.bodies() == []
    node.hold_commits = False
    rig.settle()
    assert taker.bodies() == ["1"] and counts(taker) == [1]
    node.crash()
    node.start()
    rig.settle()
    assert consumer(rig, node, **options).bodies() == [] and dead(rig, node) == [("1", "work", 2)]
