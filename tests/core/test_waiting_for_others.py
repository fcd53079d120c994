"""Messages that no consumer with credit can have, and others of the same selector can: too large for its link, or
undeliverable on it (docs/adr/0063, docs/adr/0072). They keep nothing from anybody, however many they are."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Header, Modified, Properties, Released
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors import halting, looking, matches
from holdfast.broker.cursors.cursor import Cursor
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.selecting import NAME, OTHERS, THIRDS, consume, numbers

LARGE = 400
SMALL = 5
TAKES_SMALL = 300


def with_bound(patch: pytest.MonkeyPatch, most: int) -> None:
    patch.setattr(matches, "HITS_MAX", most)
    patch.setattr(looking, "FOR_OTHERS_MAX", most)


def built(sorts: bool) -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node("hub", queues=(QueueConfig(name="work", priorities=sorts),))


def put(rig: Rig, node: Node, bodies: range, size: int, ttl: int | None = None, subject: str = "third") -> None:
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in bodies:
        header = Header(durable=True, ttl=ttl)
        client.send(link, f"{number}".ljust(size), properties=Properties(subject=subject), header=header)
    rig.settle()


def drain_late(rig: Rig, node: Node, link: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link drains while the turn's share is used up, and is not told that there is nothing."""
    assert node.core is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(node.core.work), "is_used_up", True)
        link.grant(5, drain=True)
        for _ in range(5):
            rig.move()
        assert link.credit == 5


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize("how", ["taken", "expired", "purged", "still there"])
def test_what_is_small_comes_though_more_than_the_bound_is_large(
    sorts: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bound(monkeypatch, 5)
    rig, node = built(sorts)
    small, large, other = (rig.client(node) for _ in range(3))
    consume(rig, small, THIRDS, max_message_size=TAKES_SMALL)
    consume(rig, large, THIRDS, credit=0)
    put(rig, node, range(8), LARGE, ttl=5_000 if how == "expired" else None)
    put(rig, node, range(100, 101), SMALL)
    assert numbers(small) == [100]
    if how == "taken":
        consume(rig, other, "TRUE", credit=8)
        other.accept()
    elif how == "purged":
        done(small, "PURGE", "queue", "work")
    rig.run(20)
    put(rig, node, range(101, 103), SMALL)
    assert numbers(small) == [100, 101, 102]


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize("most", [1, 3, 4_096])
def test_whoever_can_have_it_gets_it_in_order(sorts: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what was forgotten past the bound, and beside it the other sizes."""
    with_bound(monkeypatch, most)
    rig, node = built(sorts)
    clients = [rig.client(node) for _ in range(3)]
    sizes = (TAKES_SMALL, TAKES_SMALL + LARGE, 10_000)
    links = [
        consume(rig, client, THIRDS, credit=0 if place else 1_000, max_message_size=size)
        for place, (client, size) in enumerate(zip(clients, sizes, strict=True))
    ]
    for number in range(30):
        put(rig, node, range(number, number + 1), (2 * LARGE, LARGE, SMALL)[number % 3])
    assert numbers(clients[0]) == list(range(2, 30, 3))
    for _ in range(10):
        links[1].grant(1)
        rig.settle()
    assert numbers(clients[1]) == list(range(1, 30, 3))
    links[2].grant(4)
    rig.settle()
    put(rig, node, range(30, 32), SMALL)
    links[2].grant(20)
    rig.settle()
    assert numbers(clients[2]) == list(range(0, 30, 3)) and numbers(clients[0])[10:] == [30, 31]


class Looks:
    """Entries that pumps looked at."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        pump = Cursor.pump

        def counting(cursor: Cursor, limit: int) -> int:
            before = cursor.queue.work.offered_count
            try:
                return pump(cursor, limit)
            finally:
                self.count += cursor.queue.work.offered_count - before

        patch.setattr(Cursor, "pump", counting)


def take_some(rig: Rig, client: Client, count: int) -> None:
    """One by one; each is accepted before the next."""
    for _ in range(count):
        client.deliveries[0].link.grant(1)
        client.accept()
        rig.settle()


@pytest.mark.parametrize(("sorts", "selector"), [(False, THIRDS), (True, THIRDS), (True, None)])
@pytest.mark.parametrize("most", [8, 4_096])
def test_who_takes_large_ones_holds_nobody_up(
    most: int, sorts: bool, selector: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked at a few times, however few are kept; what is small behind them comes as if nobody took them."""
    with_bound(monkeypatch, most)
    looks = Looks(monkeypatch)
    rig, node = built(sorts)
    node.checks = False
    small, large = rig.client(node), rig.client(node)
    link = consume(rig, small, selector, credit=0, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, selector, credit=0)
    for first in range(0, 1_000, 100):
        put(rig, node, range(first, first + 100), LARGE)
    put(rig, node, range(1_000, 1_001), SMALL)
    link.grant(10)
    taking.grant(1)
    for _ in range(20):
        rig.move()
        if large.deliveries:
            take_some(rig, large, 1)
    rig.settle()
    assert numbers(small) == [1_000]
    looks.count = 0
    take_some(rig, large, 30)
    assert looks.count < 30 * 10


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize("every", [1, 20])
def test_what_was_forgotten_is_looked_at_once_for_who_takes_it(
    every: int, sorts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while what is kept waits for another one, and whether it takes many of them or few."""
    with_bound(monkeypatch, 5)
    looks = Looks(monkeypatch)
    rig, node = built(sorts)
    node.checks = False
    small, large, huge = (rig.client(node) for _ in range(3))
    consume(rig, small, THIRDS, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, THIRDS, credit=0, max_message_size=2 * LARGE)
    last = consume(rig, huge, THIRDS, credit=0)
    for number in range(200):
        put(rig, node, range(number, number + 1), LARGE if number % every == 0 and number > 9 else 4 * LARGE)
    looks.count = 0
    for _ in range(200 // every):
        taking.grant(1)
        large.accept()
        rig.settle()
    assert looks.count < 4 * 200
    taking.grant(1)
    looks.count = 0
    for _ in range(200):
        last.grant(1)
        huge.accept()
        rig.settle()
    assert node.queue("work").messages == 0 and looks.count < 6 * 200


@pytest.mark.parametrize("sorts", [False, True])
def test_what_becomes_too_large_or_small_enough_is_offered_anew(sorts: bool) -> None:
    """Its annotations count in its size."""
    rig, node = built(sorts)
    small, large, other = (rig.client(node) for _ in range(3))
    consume(rig, small, THIRDS, max_message_size=TAKES_SMALL)
    consume(rig, large, THIRDS, credit=0)
    put(rig, node, range(1), SMALL)
    assert numbers(small) == [0]
    seen = Symbol("x-opt-seen")
    small.accept(Modified(message_annotations={seen: "x" * LARGE}))
    rig.run(1)
    assert not small.deliveries
    link = consume(rig, other, "TRUE", credit=1)
    assert numbers(other) == [0]
    other.accept(Modified(message_annotations={seen: ""}))
    rig.run(1)
    assert numbers(small) == [0] and link.credit == 0


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize(("large", "most"), [(False, 4_096), (True, 4_096), (True, 1)])
def test_a_drain_is_answered_while_the_queue_is_halted(
    large: bool, most: int, sorts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not an entry waits for others, which the draining link cannot have, or was forgotten."""
    monkeypatch.setattr(halting, "OUTSTANDING_MAX", 10)
    with_bound(monkeypatch, most)
    rig, node, client = world(QueueConfig(name="work", priorities=sorts))
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")

    def taking(text: str) -> dict[str, Any]:
        return {"filter": {Symbol("s"): Described(NAME, text)}}

    small, other, taker, late = (rig.client(node) for _ in range(4))
    small.receiver("work", credit=1, source=taking("JMSPriority = 4"), max_message_size=TAKES_SMALL)
    other.receiver("work", credit=0, source=taking("JMSPriority = 4"))
    rig.settle()
    if large:
        put(rig, node, range(2), 2 * LARGE)
    fill(rig, client, 1)
    taker.receiver("work", credit=20, source=taking("JMSPriority > 3"), max_message_size=LARGE)
    rig.settle()
    fill(rig, client, 30, first=2)
    assert node.queue("work").shared.halted
    link = late.receiver("work", credit=0, source=taking("JMSPriority = 4"), max_message_size=TAKES_SMALL)
    rig.settle()
    turns = node.turns
    link.grant(5, drain=True)
    rig.run(20)
    assert link.credit == 0 and node.turns - turns < 100


def test_a_drain_waits_for_what_nobody_else_takes_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not offered yet, because the turn's share is used up."""
    rig, node = built(False)
    small, large = rig.client(node), rig.client(node)
    link = consume(rig, small, THIRDS, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, THIRDS, credit=0)
    put(rig, node, range(1), LARGE)
    assert not small.deliveries
    with monkeypatch.context() as patch:
        assert node.core is not None
        patch.setattr(type(node.core.work), "is_used_up", True)
        taking.detach(closed=True)
        for _ in range(5):
            rig.move()
        link.grant(1_000, drain=True)
        for _ in range(5):
            rig.move()
        assert link.credit and not link.detached
    rig.run(1)
    assert link.detached


def test_a_drain_waits_for_what_was_left_to_others_since_the_link_had_nothing_to_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not offered yet, because the turn's share is used up."""
    rig, node = built(False)
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, THIRDS, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, THIRDS)
    taking.grant(0, drain=True)
    rig.settle()
    assert not taking.credit
    put(rig, node, range(1), LARGE)
    drain_late(rig, node, taking, monkeypatch)
    rig.run(1)
    assert numbers(large) == [0] and not taking.credit


@pytest.mark.parametrize("sorts", [False, True])
def test_what_came_back_does_not_come_before_what_was_forgotten_past_the_bound(
    sorts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bound(monkeypatch, 1)
    rig, node = built(sorts)
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, THIRDS, credit=1, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, THIRDS, credit=0)
    put(rig, node, range(3), LARGE)
    put(rig, node, range(3, 4), SMALL)
    assert small.accept(Released()) == [f"{3}".ljust(SMALL)]
    rig.run(1)
    for _ in range(4):
        taking.grant(1)
        rig.run(1)
    assert numbers(large) == [0, 1, 2, 3]


@pytest.mark.parametrize("sorts", [False, True])
def test_a_drain_waits_for_what_was_forgotten_past_the_bound(sorts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not scanned again yet, because the turn's share is used up."""
    with_bound(monkeypatch, 1)
    rig, node = built(sorts)
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, THIRDS, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, THIRDS, credit=0)
    put(rig, node, range(2), LARGE)
    taking.grant(1)
    rig.settle()
    assert numbers(large) == [0]
    drain_late(rig, node, taking, monkeypatch)
    rig.run(1)
    assert numbers(large) == [0, 1] and not taking.credit


def test_what_waits_for_others_makes_room_as_the_lowest_that_it_is() -> None:
    rig = Rig()
    full = QueueConfig(name="work", priorities=True, messages_max=2, when_full="drop-oldest")
    node = rig.node("hub", queues=(full,))
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, None, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, None, credit=0)
    put(rig, node, range(2), LARGE)
    put(rig, node, range(2, 3), SMALL)
    assert numbers(small) == [2] and node.queue("work").dropped_total == 1
    taking.grant(5)
    rig.settle()
    assert numbers(large) == [1]


@pytest.mark.parametrize("selector", [None, THIRDS])
@pytest.mark.parametrize("sorts", [False, True])
def test_what_waits_for_others_comes_before_many_that_came_later(sorts: bool, selector: str | None) -> None:
    """Which may be handed out together: it is on disk that they may have been shown."""
    rig, node = built(sorts)
    small, large, other = (rig.client(node) for _ in range(3))
    consume(rig, small, selector, credit=1, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, selector, credit=0)
    consume(rig, other, OTHERS)
    put(rig, node, range(1), LARGE)
    put(rig, node, range(1, 8), SMALL)
    put(rig, node, range(8, 9), SMALL, subject="other")
    assert numbers(small) == [1] and numbers(other) == [8]
    taking.grant(10)
    rig.settle()
    assert numbers(large) == [0, *range(2, 8)]


def test_what_was_forgotten_past_the_bound_stays_before_the_place_that_all_have_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing that waits for others is kept any more, and all behind it is finished."""
    with_bound(monkeypatch, 1)
    monkeypatch.setattr(looking, "MOVED_LEAST", 2)
    rig, node = built(True)
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, None, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, None, credit=0)
    put(rig, node, range(3), LARGE)
    taking.grant(1)
    rig.settle()
    put(rig, node, range(3, 20), SMALL)
    small.accept()
    rig.settle()
    put(rig, node, range(20, 21), SMALL)
    taking.grant(2)
    rig.settle()
    assert numbers(large) == [0, 1, 2]


def test_what_is_scanned_again_and_left_to_others_is_not_ready_too() -> None:
    """It would be offered again and again to who cannot have it."""
    rig, node = built(True)
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, None, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, None, credit=0)
    put(rig, node, range(1), LARGE)
    (group,) = node.queue("work").shared.sharing
    level = group.ready.levels[4]
    assert [*level.for_others] == [1] and level.behind is None
    level.behind = 1
    put(rig, node, range(1, 3), SMALL)
    assert numbers(small) == [1, 2] and not level and level.behind is None
    taking.grant(1)
    rig.settle()
    assert numbers(large) == [0]


def test_while_the_queue_is_halted_what_waits_for_others_comes_before_what_came_back_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig, node = built(True)
    small, large = rig.client(node), rig.client(node)
    consume(rig, small, None, credit=1, max_message_size=TAKES_SMALL)
    taking = consume(rig, large, None, credit=0)
    put(rig, node, range(1), LARGE)
    put(rig, node, range(1, 2), SMALL)
    assert numbers(small) == [1]
    monkeypatch.setattr(halting, "is_halted", lambda cursor: True)
    small.accept(Released())
    rig.settle()
    taking.grant(2)
    rig.settle()
    assert numbers(large) == [0, 1]


def test_a_halted_subscription_gets_a_bounded_number_of_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halting, "FILLING_MAX", 3)
    rig, node, client = world(QueueConfig(name="work", priorities=True))
    done(client, "OPEN", "subscription", "s", queue="work", mode="copy")
    monkeypatch.setattr(halting, "is_halted", lambda cursor: True)
    monkeypatch.setattr(halting, "outstanding_room", lambda cursor: 0)
    fill(rig, client, 10, first=0)
    taker = rig.client(node)
    consume(rig, taker, None)
    assert numbers(taker) == [0, 1, 2]
    taker.accept()
    rig.settle()
    assert numbers(taker) == [3, 4, 5]
