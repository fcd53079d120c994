"""What a durable subscription of a topic may not keep becomes dead letters; its bound of bytes (docs/topics.md)."""

import random
from collections.abc import Iterable

import pytest

from core.test_subscription_bounds import TOPIC, away, bound, check, made, numbered, read, waiting
from core.test_topics import bodies, durable, log, publish, publisher
from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.broker import weighed
from holdfast.broker.backlogs import unfinished_bytes
from holdfast.broker.cursors.halting import FINISHED_MAX
from holdfast.broker.stored.bounds import AT_BOUND, BOUND_MAX
from holdfast.broker.weighed import SIZE_BYTES, Weighed
from holdfast.custody import overflow
from holdfast.custody.dead_lettering import DEAD, DEAD_FROM, REASON
from holdfast.settings.queues import QueueConfig
from support.rig import Node, Rig
from support.standing import core_of
from support.streams import LARGE, LIMITS
from support.transactions import started

DEAD_LETTERS = "$dead-letters"
OVERHEAD = 300
"""What a message may have beside its body, here."""


@pytest.fixture
def rig() -> Rig:
    return Rig()


def dead(rig: Rig, node: Node) -> list[tuple[str, str]]:
    """Body and reason of each dead letter."""
    reader = rig.client(node)
    reader.receiver(DEAD_LETTERS, source={"distribution_mode": Symbol("copy")})
    rig.settle()
    found = []
    for message in reader.messages():
        notes = message.message_annotations or {}
        assert notes[DEAD_FROM] == TOPIC
        found.append((message.body_bytes().decode().strip(), notes[REASON]))
    reader.close_transport()
    rig.settle()
    return found


def dead_bodies(rig: Rig, node: Node) -> list[str]:
    return [body for body, _ in dead(rig, node)]


def names(numbers: Iterable[int]) -> list[str]:
    return [str(number) for number in numbers]


# ------------------------------------------------------------------------------------------------ dead letters


def test_the_oldest_become_dead_letters_and_others_keep_theirs(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", messages_max=3, when_full="dead-letter")
    made(rig, hub, "all")
    numbered(rig, publisher(rig, hub), 0, 8)
    rig.run(1)
    check(hub)
    assert read(client, "slow")["messages"] == 3
    why = "subscription 'slow' had more than 3 messages"
    assert dead(rig, hub) == [(str(number), why) for number in range(5)]
    assert waiting(rig, hub, "slow") == ["5", "6", "7"]
    assert waiting(rig, hub, "all") == names(range(8))
    rig.run(3)
    assert log(hub).messages == 0 and log(hub).dropped_total == 0


def test_what_a_link_holds_is_no_dead_letter(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "slow", credit=2)
    bound(client, "slow", messages_max=3, when_full="dead-letter")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 2)
    numbered(rig, sender, 2, 6)
    rig.run(1)
    check(hub)
    assert bodies(client, link) == ["0", "1"] and dead_bodies(rig, hub) == ["2", "3", "4"]
    client.accept(Released(), link=link)
    rig.settle()
    link.grant(100)
    rig.settle()
    assert bodies(client, link) == ["0", "1", "5"], "what was given back is offered in its place"


def test_what_was_given_back_is_the_oldest_again(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "slow", credit=3)
    bound(client, "slow", messages_max=3, when_full="dead-letter")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 3)
    client.accept(Modified(delivery_failed=True), link=link)
    rig.settle()
    away(rig, client, link)
    numbered(rig, sender, 3, 5)
    rig.run(1)
    check(hub)
    assert dead_bodies(rig, hub) == ["0", "1"]
    assert waiting(rig, hub, "slow") == ["2", "3", "4"]


def test_a_refused_commit_leaves_them_to_the_subscription(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", messages_max=3, when_full="dead-letter")
    hub.hold_commits = True
    numbered(rig, publisher(rig, hub), 0, 5)
    hub.finish_commit()  # they are on disk; the next one has the dead letters
    rig.settle()
    cursor = log(hub).named["slow"]
    assert {item.consumer for item in cursor.acquired.values()} == {DEAD}
    hub.refuse, hub.hold_commits = 1, False
    rig.run(5)
    assert not hub.refuse
    check(hub)
    assert dead_bodies(rig, hub) == ["0", "1"] and read(client, "slow")["messages"] == 3
    assert not cursor.counts, "no delivery has failed"
    hub.crash()
    hub.start()
    rig.run(2)
    check(hub)
    assert dead_bodies(rig, hub) == ["0", "1"]
    assert waiting(rig, hub, "slow") == ["2", "3", "4"]


def test_a_crash_before_they_are_stored_loses_none_and_doubles_none(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "slow", messages_max=3, when_full="dead-letter")
    hub.hold_commits = True
    numbered(rig, publisher(rig, hub), 0, 5)
    hub.finish_commit()
    hub.crash()
    hub.hold_commits = False
    hub.start()
    rig.run(2)
    check(hub)
    assert dead_bodies(rig, hub) == ["0", "1"]
    assert waiting(rig, hub, "slow") == ["2", "3", "4"]


def test_without_room_they_stay_and_are_delivered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", messages_max=3, when_full="dead-letter")
    assert hub.core is not None
    lettering = type(hub.core.dead_lettering)
    with monkeypatch.context() as no_room:
        no_room.setattr(lettering, "has_room_for_dead_letter", lambda self, size: False)
        numbered(rig, publisher(rig, hub), 0, 6)
        rig.run(2)
        check(hub)
        assert read(client, "slow")["messages"] == 6
        link = durable(rig, client, "slow", credit=1)
        assert bodies(client, link) == ["0"]
        client.accept(link=link)
        away(rig, client, link)
    numbered(rig, publisher(rig, hub), 6, 7)
    rig.run(2)
    check(hub)
    assert dead_bodies(rig, hub) == ["1", "2", "3"]
    assert waiting(rig, hub, "slow") == ["4", "5", "6"]


def test_a_turn_moves_a_bounded_number(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overflow, "MOVED_COUNT", 3)
    hub = rig.node("hub")
    client = rig.client(hub)
    for name in "ab":
        made(rig, hub, name)
    numbered(rig, publisher(rig, hub), 0, 20)
    for name in "ab":
        bound(client, name, messages_max=5, when_full="dead-letter")
    rig.run(2)
    check(hub)
    assert sorted(dead_bodies(rig, hub), key=int) == [str(number) for number in range(15) for _ in "ab"]
    assert waiting(rig, hub, "a") == waiting(rig, hub, "b") == names(range(15, 20))


def test_a_large_message_becomes_one_dead_letter(rig: Rig) -> None:
    hub = rig.node("hub", limits=LIMITS)
    made(rig, hub, "slow", messages_max=1, when_full="dead-letter")
    client, link = publisher(rig, hub)
    for number in range(2):
        client.send(link, str(number) * LARGE)
        rig.run(1)
    check(hub)
    assert hub.queue(DEAD_LETTERS).messages == 1 and log(hub).messages == 1
    made(rig, hub, "other")
    client.manage("DELETE", "subscription", "slow", queue=TOPIC)
    rig.run(2)
    reader = rig.client(hub)
    reader.receiver(DEAD_LETTERS)
    rig.run(1)
    assert [message.body_bytes() for message in reader.messages()] == [b"0" * LARGE]


def test_a_subscription_that_goes_meanwhile_goes_with_its_messages(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "slow", messages_max=3, when_full="dead-letter")
    hub.hold_commits = True
    numbered(rig, publisher(rig, hub), 0, 5)
    hub.finish_commit()
    rig.settle()
    log(hub).remove_cursor("slow")
    hub.hold_commits = False
    rig.run(2)
    check(hub)
    assert log(hub).messages == 0 and len(dead(rig, hub)) == 2


def test_a_subscription_that_is_replaced_while_what_it_rejected_becomes_a_dead_letter_leaves_nothing(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "s")
    numbered(rig, publisher(rig, hub), 0, 2)
    hub.hold_commits = True
    client.accept(Rejected(), count=1, link=link)
    rig.settle()
    durable(rig, rig.client(hub), "s", "another.pattern")
    hub.hold_commits = False
    rig.run(2)
    check(hub)
    assert dead_bodies(rig, hub) == ["0"] and log(hub).messages == 0


# ------------------------------------------------------------------------------------------------ bytes


def test_bytes_are_bounded_beside_messages(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", bytes_max=5_000, when_full="drop-oldest")
    assert read(client, "slow")["messages_max"] == BOUND_MAX
    sender = publisher(rig, hub)
    for number in range(9):
        publish(rig, sender, str(number), size=1_000)
    check(hub)
    told = read(client, "slow")
    size = log(hub).bytes_held // log(hub).messages
    assert told["bytes"] == 4 * size <= 5_000 < 5 * size and told["messages"] == 4
    assert waiting(rig, hub, "slow") == ["5", "6", "7", "8"]
    assert read(client, "slow")["bytes"] == 0
    publish(rig, sender, "small")
    publish(rig, sender, "large", size=20_000)
    check(hub)
    assert read(client, "slow")["messages"] == 1
    assert waiting(rig, hub, "slow") == ["large"], "the newest stays, however large"


def test_at_a_bound_of_bytes_it_ends_or_has_dead_letters(rig: Rig) -> None:
    hub = rig.node("hub")
    made(rig, hub, "ends", bytes_max=5_000, when_full="end")
    made(rig, hub, "dies", bytes_max=3_000, when_full="dead-letter")
    sender = publisher(rig, hub)
    publish(rig, sender, *names(range(4)), size=1_000)
    rig.run(1)
    check(hub)
    why = "subscription 'dies' had more than 3000 bytes"
    assert "ends" in log(hub).named and dead(rig, hub) == [("0", why), ("1", why)]
    publish(rig, sender, "4", size=1_000)
    rig.run(1)
    check(hub)
    assert [*log(hub).named] == ["dies"]
    assert any("'ends' of 'topic/flights' has ended: it had more than 5000 bytes" in line for line in hub.logs)


def test_a_bound_of_bytes_is_taken_up_at_once_and_outlives_restarts(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", "a.#")
    made(rig, hub, "all")
    sender = publisher(rig, hub)
    publish(rig, sender, *(f"{word}.{number}" for number in range(10) for word in "ab"), size=1_000)
    bound(client, "slow", bytes_max=4_500, when_full="drop-oldest")
    rig.run(1)
    check(hub)
    assert read(client, "slow")["messages"] == 4
    hub.crash()
    hub.start()
    rig.run(1)
    check(hub)
    client = rig.client(hub)
    assert read(client, "slow")["messages"] == 4
    publish(rig, publisher(rig, hub), "a.10", "b.10", size=1_000)
    assert log(hub).dropped_total == 1
    told = bound(client, "slow", bytes_max=None)
    assert (told["bytes_max"], told["messages_max"]) == (None, BOUND_MAX)
    assert not isinstance(log(hub).named["slow"].finished, Weighed)
    publish(rig, publisher(rig, hub), *(f"a.{number}" for number in range(11, 31)), size=1_000)
    check(hub)
    assert waiting(rig, hub, "slow", "a.#") == [f"a.{number}" for number in range(7, 31)]


def test_while_the_log_is_looked_through_no_size_of_what_is_dropped_is_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.broker.topic.MARK_COUNT", 8)
    hub = rig.node("hub")
    client = made(rig, hub, "slow")
    publish(rig, publisher(rig, hub), *names(range(100)), size=100)
    most = 0
    note = weighed.Weighed.note

    def noted(self: Weighed, number: int, size: int) -> None:
        nonlocal most
        note(self, number, size)
        most = max(most, len(self.sizes))

    monkeypatch.setattr(weighed.Weighed, "note", noted)
    bound(client, "slow", bytes_max=1_000, messages_max=10, when_full="drop-oldest")
    rig.run(2)
    check(hub)
    assert read(client, "slow")["messages"] <= 10 and 0 < most <= 18


def test_sizes_are_counted_in_memory(rig: Rig) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "slow", bytes_max=100_000, when_full="drop-oldest")
    numbered(rig, publisher(rig, hub), 0, 10)
    assert hub.core is not None
    assert hub.core.memory.ranges.held == 10 * SIZE_BYTES
    client.manage("DELETE", "subscription", "slow", queue=TOPIC)
    assert hub.core.memory.ranges.held == 0


def test_annotations_that_grow_count(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = durable(rig, client, "slow", credit=1)
    bound(client, "slow", bytes_max=100_000, when_full="drop-oldest")
    numbered(rig, publisher(rig, hub), 0, 2)
    before = read(client, "slow")["bytes"]
    client.accept(Modified(message_annotations={Symbol("x-opt-note"): "n" * 200}), link=link)
    rig.run(1)
    check(hub)
    assert read(client, "slow")["bytes"] > before + 200


def test_ranges_of_a_bounded_subscription_fit() -> None:
    assert BOUND_MAX * 2 <= FINISHED_MAX


@pytest.mark.parametrize("when_full", AT_BOUND)
def test_a_refused_commit_counts_no_bytes(rig: Rig, when_full: str) -> None:
    hub = rig.node("hub")
    client = made(rig, hub, "s", "a.#", bytes_max=3_500, when_full=when_full)
    sender = publisher(rig, hub)
    publish(rig, sender, "a.0", "a.1", "a.2", size=1_000)
    held = read(client, "s")["bytes"]
    hub.refuse = 1
    publish(rig, sender, "a.3", "a.4", size=1_000)
    rig.run(5)
    check(hub)
    assert read(client, "s")["bytes"] == held
    assert waiting(rig, hub, "s", "a.#") == ["a.0", "a.1", "a.2"]


def test_what_a_transaction_has_taken_counts_and_is_no_dead_letter() -> None:
    rig, hub, client, controller = started()
    durable(rig, client, "slow", credit=2)
    bound(client, "slow", messages_max=3, when_full="dead-letter")
    sender = publisher(rig, hub)
    numbered(rig, sender, 0, 3)
    mine = controller.begin()
    assert controller.take(mine, count=2) == ["0", "1"]
    numbered(rig, sender, 3, 8)
    rig.run(1)
    check(hub)
    assert read(client, "slow")["messages"] == 3 and len(dead(rig, hub)) == 5
    controller.commit(mine)
    rig.run(1)
    check(hub)
    assert dead_bodies(rig, hub) == names(range(2, 7)) and read(client, "slow")["messages"] == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("when_full", ["drop-oldest", "dead-letter"])
def test_it_has_the_latest_whatever_happens(rig: Rig, seed: int, when_full: str) -> None:
    """After each step it has the last of what was accepted and what it wants that is within both bounds; the others
    are dead letters, each once."""
    draw = random.Random(seed)
    hub = rig.node("hub", queues=(QueueConfig(name=TOPIC, deliveries_max=draw.choice((None, 50))),))
    most, size = draw.randint(1, 6), draw.choice((1_000, 3_000, 9_000))
    made(rig, hub, "s", "a.#", messages_max=most, bytes_max=size, when_full=when_full)
    if draw.random() < 0.7:
        made(rig, hub, "all")
    wanted: list[tuple[str, int]] = []
    gone: list[str] = []
    for step in range(50):
        kind = draw.choice(("publish", "publish", "publish", "refuse", "crash", "take", "hold"))
        if kind == "crash":
            hub.crash()
            hub.start()
            rig.run(1)
        elif kind == "take":
            assert waiting(rig, hub, "s", "a.#") == [name for name, _ in wanted]
            wanted = []
        elif kind == "hold":
            client = rig.client(hub)
            link = durable(rig, client, "s", "a.#", credit=draw.randint(1, 4))
            client.accept(Released(), link=link)
            away(rig, client, link)
        else:
            sender = publisher(rig, hub)
            if kind == "refuse":
                hub.refuse = draw.randint(1, 3)
            made_now = [f"{draw.choice('ab')}.{step}.{number}" for number in range(draw.randint(1, 5))]
            body = draw.choice((1, 500, 2_000))
            publish(rig, sender, *made_now, size=body)
            rig.run(8)
            hub.refuse = 0
            states = zip(made_now, sender[0].outcomes, strict=True)
            accepted = [name for name, (_, state) in states if state == Accepted()]
            wanted += [(name, body) for name in accepted if name.startswith("a.")]
        check(hub)
        cursor = log(hub).named["s"]
        held = unfinished_bytes(cursor)
        told = read(rig.client(hub), "s")
        count = len(wanted) - told["messages"]
        left, wanted = wanted[:count], wanted[count:]
        gone += [name for name, _ in left]
        assert told["messages"] == len(wanted) <= most and told["bytes"] == held
        assert held <= size or len(wanted) == 1
        assert not left or len(wanted) == most or held + left[-1][1] + OVERHEAD > size, "it has as many as it may"
    assert waiting(rig, hub, "s", "a.#") == [name for name, _ in wanted]
    if when_full == "dead-letter" and gone:
        assert dead_bodies(rig, hub) == gone
    else:
        assert DEAD_LETTERS not in core_of(hub).catalog.queues
