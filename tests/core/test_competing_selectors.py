"""Consumers that share a queue and have selectors: each is given what matches, once, in order (docs/selectors.md)."""

from typing import Any

import pytest

from holdfast.amqp.session.bounds import Bounds
from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Rejected, Released
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors import matches
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.endpoints.attaching.filters import KEPT_MAX, Compiler
from holdfast.settings.queues import QueueConfig
from support.rig import Rig
from support.selecting import NAME, OTHERS, THIRDS, consume, fill, numbers, others, thirds


@pytest.fixture
def rig() -> Rig:
    return Rig()


# ------------------------------------------------------------------------------------------------ who is given what


@pytest.mark.parametrize("durable", [True, False])
def test_a_consumer_is_given_what_its_selector_matches_and_the_rest_stays(rig: Rig, durable: bool) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="work", durable=durable),))
    if not durable:
        hub.unwatched.add("work")  # what it accepts there is on no disk
    fill(rig, hub, 10)
    client = rig.client(hub)
    link = consume(rig, client, THIRDS)
    assert numbers(client) == [0, 3, 6, 9]
    assert link.remote_attach is not None and link.remote_attach.source is not None
    assert link.remote_attach.source.filter == {Symbol("selector"): Described(NAME, THIRDS)}
    fill(rig, hub, 6, first=10)
    assert numbers(client) == [0, 3, 6, 9, 12, 15]
    client.accept()
    rig.run(1)
    assert hub.queue("work").messages == len(others(16))
    rest = rig.client(hub)
    consume(rig, rest, None)
    assert numbers(rest) == others(16)
    assert all(message.header is not None and not message.header.delivery_count for message in rest.messages())
    rest.accept()
    rig.run(1)
    assert hub.queue("work").messages == 0


def test_several_selectors_and_none_share_a_queue(rig: Rig) -> None:
    hub = rig.node("hub")
    clients = [rig.client(hub) for _ in range(4)]
    for client, selector in zip(clients, (THIRDS, OTHERS, "JMSPriority > 4", None), strict=True):
        consume(rig, client, selector)
    fill(rig, hub, 200)
    got = [numbers(client) for client in clients]
    assert sorted(number for each in got for number in each) == list(range(200))
    assert all(each == sorted(each) for each in got) and all(got)
    assert not set(got[0]) - set(thirds(200)) and not set(got[1]) - set(others(200))
    assert all(number % 10 > 4 for number in got[2])


def test_equal_selectors_share_what_matches(rig: Rig) -> None:
    hub = rig.node("hub")
    one, two = rig.client(hub), rig.client(hub)
    consume(rig, one, THIRDS)
    consume(rig, two, "( JMSType  =  'third' )")
    fill(rig, hub, 60)
    assert sorted(numbers(one) + numbers(two)) == thirds(60) and len(numbers(one)) == len(numbers(two))
    assert len(list(hub.queue("work").shared.selections)) == 1


def test_a_message_that_many_match_goes_to_each_of_them_in_turn(rig: Rig) -> None:
    hub = rig.node("hub")
    clients = [rig.client(hub) for _ in range(3)]
    for client, selector in zip(clients, ("JMSPriority >= 0", "JMSPriority < 10", "TRUE"), strict=True):
        consume(rig, client, selector)
    fill(rig, hub, 30)
    assert [len(numbers(client)) for client in clients] == [10, 10, 10]


# ------------------------------------------------------------------------------------------------ given back


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True)])
def test_what_is_given_back_goes_to_whom_it_matches_at_its_old_place(rig: Rig, outcome: Any) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 12)
    client = rig.client(hub)
    link = consume(rig, client, THIRDS, credit=3)
    assert numbers(client) == [0, 3, 6]
    client.accept(outcome, count=2)
    rig.settle()
    link.grant(10)
    rig.settle()
    assert numbers(client) == [6, 0, 3, 9]
    link.detach(closed=True)
    rig.settle()
    rest = rig.client(hub)
    consume(rig, rest, None)
    assert numbers(rest) == list(range(12))


def test_what_one_gives_back_another_with_another_selector_is_given(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 10)
    one, two = rig.client(hub), rig.client(hub)
    first = consume(rig, one, THIRDS)
    consume(rig, two, "JMSPriority >= 5")
    assert numbers(one) == [0, 3, 6, 9] and numbers(two) == [5, 7, 8]
    first.detach(closed=True)
    rig.settle()
    assert numbers(two) == [5, 7, 8, 6, 9]


def test_a_lost_connection_gives_back_and_what_none_matches_is_there_for_the_next(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 20)
    plain, picky = rig.client(hub), rig.client(hub)
    consume(rig, plain, None, credit=15)
    consume(rig, picky, THIRDS, credit=1)
    assert numbers(plain) == list(range(15)) and numbers(picky) == [15]
    plain.close_transport()
    rig.settle()
    assert numbers(picky) == [15]
    picky.deliveries.clear()
    more = rig.client(hub)
    consume(rig, more, THIRDS)
    assert numbers(more) == [0, 3, 6, 9, 12, 18]
    rest = rig.client(hub)
    consume(rig, rest, None)
    assert numbers(rest) == others(20)


def test_what_was_read_ahead_while_another_held_it_is_not_handed_out_after_it_left(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 20)
    picky, plain = rig.client(hub), rig.client(hub)
    consume(rig, picky, THIRDS)
    fill(rig, hub, 1, first=20)
    hub.crash()  # nothing is cached now
    hub.start()
    rig.settle()
    picky, plain = rig.client(hub), rig.client(hub)
    consume(rig, picky, THIRDS)
    link = consume(rig, plain, None, credit=2)
    assert numbers(plain) == [1, 2]
    picky.accept()
    rig.run(1)
    link.grant(50)
    rig.settle()
    assert numbers(plain) == others(21)


def test_annotations_that_touch_a_selector_are_looked_at_again(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 3)
    one, two = rig.client(hub), rig.client(hub)
    consume(rig, two, "amqp.annotation.x-opt-seen = 1")
    consume(rig, one, THIRDS, credit=1)
    assert numbers(one) == [0] and not numbers(two)
    one.accept(Modified(message_annotations={Symbol("x-opt-seen"): 1}))
    rig.run(1)
    assert numbers(two) == [0]


def test_what_is_undeliverable_on_one_link_waits_for_another_of_the_same_selector(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 12)
    one = rig.client(hub)
    consume(rig, one, THIRDS, credit=10)
    one.accept(Modified(undeliverable_here=True), count=2)
    rig.settle()
    assert numbers(one) == [6, 9]
    two = rig.client(hub)
    consume(rig, two, THIRDS)
    assert numbers(two) == [0, 3]


def test_a_message_that_is_too_large_waits_for_a_link_that_takes_it(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 4, size=2_000)
    fill(rig, hub, 4, first=4)
    small, large = rig.client(hub), rig.client(hub)
    consume(rig, large, THIRDS, credit=0)
    consume(rig, small, THIRDS, max_message_size=500)
    assert numbers(small) == [6] and not small.detached
    link = consume(rig, large, THIRDS)
    assert numbers(large) == [0, 3] and not link.detached


def test_who_alone_matches_and_takes_too_little_is_told_so(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 1, size=2_000)
    small, other = rig.client(hub), rig.client(hub)
    consume(rig, other, OTHERS)
    consume(rig, small, THIRDS, max_message_size=500)
    assert str(small.detached[0].error.condition) == "amqp:link:message-size-exceeded"  # type: ignore[union-attr]
    assert hub.queue("work").messages == 1


@pytest.mark.parametrize("selector", ["JMSType IS NOT NULL", None])
def test_a_message_that_was_left_to_another_is_looked_at_again_when_that_one_goes(
    rig: Rig, selector: str | None
) -> None:
    hub = rig.node("hub")
    small, large = rig.client(hub), rig.client(hub)
    link = consume(rig, large, selector, credit=0)
    consume(rig, small, THIRDS, max_message_size=500)
    fill(rig, hub, 1, size=2_000)
    assert not small.detached
    link.detach(closed=True)
    rig.run(1)
    assert str(small.detached[0].error.condition) == "amqp:link:message-size-exceeded"  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ ends and failures


def test_a_drain_is_answered_once_all_was_looked_at(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 700)
    client = rig.client(hub)
    none = consume(rig, client, "FALSE", credit=0)
    some = consume(rig, client, "JMSPriority = 9 AND JMSType = 'third'", credit=0)
    for link in (none, some):
        link.grant(1_000, drain=True)
    rig.run(1)
    expected = [number for number in range(700) if number % 10 == 9 and number % 3 == 0]
    assert none.credit == some.credit == 0 and numbers(client) == expected
    some.grant(5, drain=True)
    rig.run(1)
    assert some.credit == 0


def test_a_drain_is_answered_though_all_that_matches_is_undeliverable_here(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 4)
    client, asleep = rig.client(hub), rig.client(hub)
    consume(rig, asleep, THIRDS, credit=0)
    link = consume(rig, client, THIRDS, credit=2)
    client.accept(Modified(undeliverable_here=True))
    rig.settle()
    link.grant(5, drain=True)
    rig.run(1)
    assert link.credit == 0 and not numbers(client)


def test_after_a_crash_what_may_have_been_shown_is_marked(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 9)
    client = rig.client(hub)
    consume(rig, client, THIRDS)
    client.accept(count=1)
    rig.run(1)
    hub.crash()
    hub.start()
    rig.settle()
    client = rig.client(hub)
    consume(rig, client, THIRDS)
    assert numbers(client) == [3, 6]
    headers = [message.header for message in client.messages()]
    assert all(header is not None and header.delivery_count == 1 for header in headers)


@pytest.mark.parametrize("sorts", [False, True])
def test_what_another_was_given_and_finished_is_not_marked_as_shown(rig: Rig, sorts: bool) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="work", deliveries_max=5, priorities=sorts),))
    taker, waiter = rig.client(hub), rig.client(hub)
    consume(rig, taker, OTHERS)
    waiting = consume(rig, waiter, "TRUE", credit=0)
    fill(rig, hub, 30)
    waiting.grant(10)
    rig.settle()
    assert sorted(numbers(waiter)) == thirds(30)
    taker.accept()
    waiter.accept()
    fill(rig, hub, 30, first=30)
    taker.accept()
    rig.run(1)
    waiting.grant(30)
    rig.settle()
    assert sorted(numbers(waiter)) == [number for number in thirds(60) if number >= 30], "what is left, at once"
    waiter.accept()
    rig.run(1)
    counts = hub.queue("work").shared.counts
    assert not hub.queue("work").messages and isinstance(counts, DeliveryCounts) and not counts.marked
    assert not [key for key, _ in hub.store.table("node") if key[:1] == records.FAILURES]


def test_a_row_that_was_kept_of_what_had_left_goes_when_the_node_starts(rig: Rig) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="work", deliveries_max=5),))
    client = rig.client(hub)
    consume(rig, client, OTHERS, credit=10)
    fill(rig, hub, 9)
    client.accept(count=2)
    rig.run(1)
    queue = hub.queue("work")
    gone = [sequence for sequence in range(1, 10) if queue.value(sequence) is None]
    hub.checks = False  # as earlier versions did
    queue.shared.mark_shown(gone)
    rig.run(1)
    for _ in range(2):
        hub.crash()
        hub.start()
        rig.settle()
        counts = hub.queue("work").shared.counts
        assert len(gone) == 2 and len(counts) == 4 and counts.keys().isdisjoint(gone)
    rig.run(1)
    kept = [key for key, _ in hub.store.table("node") if key[:1] == records.FAILURES]
    assert len(kept) == 4


def test_what_never_was_on_disk_with_a_watermark_is_not_shown(rig: Rig) -> None:
    """A match that lies far ahead waits for the watermark that says that it may have been shown."""
    hub = rig.node("hub")
    fill(rig, hub, 600)
    hub.hold_commits = True
    client = rig.client(hub)
    consume(rig, client, "JMSPriority = 9 AND JMSType = 'third'", credit=2)
    assert not numbers(client)
    hub.hold_commits = False
    rig.run(1)
    assert numbers(client) == [9, 39]


def test_a_refused_commit_leaves_what_was_to_leave(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 9)
    client = rig.client(hub)
    consume(rig, client, THIRDS)
    hub.refuse, hub.refuse_all = 1, True
    client.accept(Rejected(), count=1)
    client.accept(Accepted())
    rig.run(2)
    assert sorted([*hub.bodies("work"), *hub.bodies("$dead-letters")]) == sorted(map(str, [*others(9), 0]))


def test_a_resumed_link_goes_on_with_what_it_held(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 12)
    client = rig.client(hub)
    source = {"timeout": 60, "expiry_policy": Symbol("connection-close")}
    link = consume(rig, client, THIRDS, credit=2, name="r", source=dict(source))
    assert numbers(client) == [0, 3]
    held = {delivery.tag: None for delivery in client.deliveries}
    client.close_transport()
    rig.settle()
    other = rig.client(hub)
    consume(rig, other, THIRDS, credit=1)
    assert numbers(other) == [6]
    client = rig.client(hub)
    link = consume(rig, client, THIRDS, credit=5, name="r", source=dict(source), unsettled=held)
    assert not link.detached and sorted(numbers(client)) == [0, 3, 9]


def test_what_expires_is_given_to_nobody_and_leaves(rig: Rig) -> None:
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    for number in range(6):
        client.send(link, f"{number}", header=Header(durable=True, ttl=1_000 if number % 2 else None))
    rig.settle()
    picky = rig.client(hub)
    receiver = consume(rig, picky, "TRUE", credit=1)
    rig.run(5)
    receiver.grant(10)
    rig.settle()
    assert numbers(picky) == [0, 2, 4] and hub.queue("work").messages == 3


def test_a_purge_leaves_what_is_held_and_the_next_is_given(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 12)
    client = rig.client(hub)
    link = consume(rig, client, THIRDS, credit=2)
    status, body, _ = client.manage("PURGE", "queue", "work")
    assert (status, body["purged"], body["held"]) == (200, 10, 2)
    fill(rig, hub, 6, first=12)
    link.grant(10)
    rig.settle()
    assert numbers(client) == [0, 3, 12, 15]
    client.accept()
    rig.run(1)
    assert sorted(map(int, hub.bodies("work"))) == [13, 14, 16, 17]


def test_a_subscription_beside_it_is_given_all(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 3)
    client, copies = rig.client(hub), rig.client(hub)
    consume(rig, client, THIRDS)
    durable = {"durable": 2, "expiry_policy": Symbol("never")}
    consume(rig, copies, None, source=durable, name="s")
    fill(rig, hub, 9, first=3)
    assert numbers(client) == [0, 3, 6, 9] and numbers(copies) == list(range(3, 12))
    client.accept()
    copies.accept()
    rig.run(1)
    rest = rig.client(hub)
    consume(rig, rest, None)
    assert numbers(rest) == others(12)
    rest.accept()
    rig.run(1)
    assert hub.queue("work").messages == 0
    status, _, _ = copies.manage("STATUS", "node")
    assert status == 200


# ------------------------------------------------------------------------------------------------ what it costs


def test_what_was_passed_over_is_not_looked_at_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 1_000)
    client = rig.client(hub)
    link = consume(rig, client, "JMSType = 'rare'")
    rig.run(1)
    read: list[int] = []
    original = Queue.read

    def counting(queue: Queue, first: int, **bounds: int) -> list[tuple[int, bytes]]:
        found = original(queue, first, **bounds)
        read.append(len(found))
        return found

    monkeypatch.setattr(Queue, "read", counting)
    for number in range(10):
        fill(rig, hub, 1, first=1_000 + number)
        link.grant(1)
        rig.settle()
    assert sum(read) < 100, sum(read)


def test_more_matches_than_may_wait_for_credit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "HITS_MAX", 5)
    hub = rig.node("hub")
    fill(rig, hub, 90)
    asleep, awake = rig.client(hub), rig.client(hub)
    link = consume(rig, asleep, "JMSType = 'third' AND JMSPriority >= 0", credit=0)
    consume(rig, awake, OTHERS)
    assert numbers(awake) == others(90) and not numbers(asleep)
    assert [len(item.hits) <= 5 for item in hub.queue("work").shared.selections] == [True, True]
    for _ in range(30):
        link.grant(link.credit + 1)
        rig.settle()
    assert numbers(asleep) == thirds(90)


def test_too_many_given_back_are_looked_for_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matches, "HITS_MAX", 4)
    hub = rig.node("hub")
    fill(rig, hub, 90)
    one, two = rig.client(hub), rig.client(hub)
    first = consume(rig, one, THIRDS, credit=30)
    link = consume(rig, two, "JMSPriority >= 0 AND JMSType = 'third'", credit=1)
    assert numbers(one) == thirds(90) and not numbers(two)
    first.detach(closed=True)
    rig.settle()
    for _ in range(40):
        link.grant(1)
        rig.settle()
    assert numbers(two) == thirds(90)


@pytest.mark.parametrize(
    ("texts", "compiled"),
    [
        (["a = 1", "a = 1", "b = 2", "a = 1"], 2),
        ([f"a = '{'x' * 300}'"] * 2, 2),  # a long one is not kept
        (["a = ", "a = "], 2),
    ],
)
def test_a_selector_that_is_compiled_costs_its_connection_effort(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, texts: list[str], compiled: int
) -> None:
    """So a client that attaches long ones again and again waits, and holds nobody up."""
    charged: list[int] = []
    original = Bounds.charge_late

    def charge_late(bounds: Bounds, units: int, now: float) -> None:
        charged.append(units)
        original(bounds, units, now)

    hub = rig.node("hub")
    fill(rig, hub, 1)
    monkeypatch.setattr(Bounds, "charge_late", charge_late)
    for text in texts:
        consume(rig, rig.client(hub), text, credit=0)
    assert len(charged) == compiled and set(charged) == {10 * len(text) for text in texts}


def test_the_selectors_that_are_kept_compiled_are_bounded(rig: Rig) -> None:
    compiler = Compiler()
    charged: list[int] = []
    for number in range(KEPT_MAX + 1):
        compiler.compile(f"a = {number}", charged.append)
    assert len(charged) == KEPT_MAX + 1
    compiler.compile("a = 1", charged.append)
    assert len(charged) == KEPT_MAX + 1
    compiler.compile("a = 0", charged.append)  # the one that was longest unused
    assert len(charged) == KEPT_MAX + 2
