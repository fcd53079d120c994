"""Messages that a consumer cannot have: undeliverable on its link, or larger than it takes (docs/amqp.md)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Modified, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors import cursor, exclusions, halting
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.broker.entries import annotate
from holdfast.broker.queue import Queue
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import MIB
from support.memory import check_accounts
from support.one_node import fill, send, world
from support.rig import Client, Rig

NOT_HERE = Modified(undeliverable_here=True)
SMALL = 300
"""What a small consumer takes: any of the numbers, and no message of BIG."""
BIG = "x" * 1_000


def taken(client: Client, link: Receiver) -> list[str]:
    return client.accept(link=link)


def condition(client: Client, link: Receiver) -> str:
    """Why the link was detached; "" where it is not."""
    errors = [str(event.error.condition) for event in client.detached if event.link is link and event.error]
    return errors[0] if errors else ""


class Reads:
    """Entries that queues were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read, value = Queue.read, Queue.value

        def counting_read(queue: Queue, first: int, **bounds: int) -> list[tuple[int, bytes]]:
            found = read(queue, first, **bounds)
            self.count += len(found)
            return found

        def counting_value(queue: Queue, sequence: int) -> bytes | None:
            self.count += 1
            return value(queue, sequence)

        monkeypatch.setattr(Queue, "read", counting_read)
        monkeypatch.setattr(Queue, "value", counting_value)


# ------------------------------------------------------------------------------------------------ undeliverable here


def refused(rig: Rig, client: Client, count: int) -> Receiver:
    """A consumer that has called so many undeliverable, the first of the queue."""
    link = client.receiver("work", credit=count)
    rig.settle()
    client.accept(NOT_HERE, link=link)
    rig.settle()
    return link


def test_what_a_link_cannot_have_is_not_read_again_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, _, client = world()
    fill(rig, client, 200)
    link = refused(rig, client, 200)
    link.grant(1_000)
    rig.settle()
    reads = Reads(monkeypatch)
    for number in range(50):
        fill(rig, client, 1, first=1_000 + number)
        assert taken(client, link) == [str(1_000 + number)]
    assert reads.count <= 2 * 50


def test_another_consumer_has_them_in_their_order_and_nothing_is_remembered() -> None:
    rig, node, client = world()
    fill(rig, client, 50)
    link = refused(rig, client, 50)
    link.grant(100)
    other = client.receiver("work", credit=7)
    rig.settle()
    got: list[str] = []
    while mine := taken(client, other):
        got += mine
        other.grant(7)
        rig.settle()
    assert got == [str(number) for number in range(1, 51)]
    rig.run(1)
    found = node.queue("work").shared.exclusions
    assert (found.live, found.aside) == ({}, {})
    fill(rig, client, 3, first=100)
    assert sorted(taken(client, link) + taken(client, other)) == ["100", "101", "102"]


def test_what_only_a_consumer_without_credit_can_have_waits_for_its_credit() -> None:
    rig, _, client = world()
    fill(rig, client, 3)
    waiting = client.receiver("work", credit=0)
    link = refused(rig, client, 3)
    link.grant(10)
    rig.settle()
    assert client.deliveries == []
    waiting.grant(1)
    rig.settle()
    assert taken(client, waiting) == ["1"]
    waiting.grant(10)
    rig.settle()
    assert taken(client, waiting) == ["2", "3"]


def test_a_drain_is_answered_though_what_is_excluded_waits() -> None:
    rig, _, client = world()
    fill(rig, client, 5)
    link = refused(rig, client, 5)
    link.grant(10, drain=True)
    rig.settle()
    assert link.credit == 0
    other = client.receiver("work", credit=0)
    rig.settle()
    other.grant(10, drain=True)
    rig.settle()
    assert taken(client, other) == ["1", "2", "3", "4", "5"] and other.credit == 0


def test_a_purge_and_a_lost_link_leave_nothing_behind() -> None:
    rig, node, client = world()
    fill(rig, client, 5)
    refused(rig, client, 5)
    other = rig.client(node)
    assert other.manage("PURGE", "queue", "work")[0] == 200
    rig.run(1)
    assert node.queue("work").messages == 0
    assert node.queue("work").shared.exclusions.live == {}
    fill(rig, other, 4, first=10)
    refused(rig, other, 4).detach()
    rig.settle()
    last = rig.client(node)
    link = last.receiver("work")
    rig.settle()
    assert taken(last, link) == ["10", "11", "12", "13"]


@pytest.mark.parametrize("more", [0, 1])
def test_excluded_max(more: int) -> None:
    """At the bound the link goes on; one more ends it, and what it could not have goes to others."""
    rig, node, client = world(limits=Limits(excluded_max=10))
    fill(rig, client, 10 + more)
    link = refused(rig, client, 10 + more)
    assert condition(client, link) == ("amqp:resource-limit-exceeded" if more else "")
    other = rig.client(node)
    consumer = other.receiver("work")
    rig.settle()
    assert len(taken(other, consumer)) == 10 + more


def test_what_others_have_taken_does_not_count() -> None:
    rig, node, client = world(limits=Limits(excluded_max=10))
    other = rig.client(node)
    link = client.receiver("work", credit=10)
    for first in range(0, 100, 10):
        fill(rig, client, 10, first=first)
        client.accept(NOT_HERE, link=link)
        rig.settle()
        consumer = other.receiver("work", credit=10)
        rig.settle()
        assert len(taken(other, consumer)) == 10
        consumer.detach()
        rig.run(1)
        link.grant(10)
        rig.settle()
    assert condition(client, link) == "" and len(client.detached) == 0


def test_what_others_took_of_what_is_excluded_makes_room_for_one_more() -> None:
    """What counts is what it cannot have and is not done with, not how many it ever excluded."""
    rig, node, client = world(limits=Limits(excluded_max=2))
    other = rig.client(node)
    link = client.receiver("work", credit=10)
    fill(rig, client, 2)
    client.accept(NOT_HERE, link=link)
    rig.settle()
    consumer = other.receiver("work", credit=1)
    rig.settle()
    assert taken(other, consumer) == ["1"]
    consumer.detach()
    for number, ends in ((3, ""), (4, "amqp:resource-limit-exceeded")):
        fill(rig, other, 1, first=number)
        client.accept(NOT_HERE, link=link)
        rig.settle()
        assert condition(client, link) == ends


def test_what_many_links_exclude_is_bounded_and_the_connection_that_excludes_the_most_loses_links() -> None:
    """Each link stays within `excluded_max`; all of them together do not. Producers' gaps are remembered as before."""
    count = 300
    rig, node, client = world(limits=Limits(memory_bytes_max=8 * MIB, excluded_max=count, attaches_burst=50_000))
    core = node.core
    assert core is not None
    account = core.memory.withheld.excluded
    fill(rig, client, count)
    modest = rig.client(node)
    kept = refused(rig, modest, 20)
    hog = rig.client(node)
    links = []
    for _ in range(20):
        links.append(hog.receiver("work", credit=count))
        rig.settle()
        hog.accept(NOT_HERE, link=links[-1])
        rig.settle()
        assert account.held <= account.held_max
    rig.run(1)
    ended = [link for link in links if condition(hog, link) == "amqp:resource-limit-exceeded"]
    assert 5 <= len(ended) < len(links)
    assert account.most > account.held_max * 3 // 4 and condition(modest, kept) == ""
    assert core.memory.ranges.held == 0 and core.memory.ranges.room > 0
    assert len(node.queue("work").shared.exclusions.live) == count
    hog.close_transport()
    rig.settle()
    assert len(node.queue("work").shared.exclusions.live) == 20 and account.held == 20 * exclusions.EXCLUDED_BYTES
    last = rig.client(node)
    link = last.receiver("work")
    rig.settle()
    assert len(taken(last, link)) == count


# ------------------------------------------------------------------------------------------------ given back


def test_what_was_given_back_is_counted_and_where_it_is_too_much_nothing_new_is_offered_before_some_is_done() -> None:
    """A consumer may take all of a deep queue, and release it: what is known of each entry stays in memory."""
    rig, node, client = world()
    core = node.core
    assert core is not None
    account = core.memory.withheld.given_back
    account.held_max = 100 * exclusions.GIVEN_BACK_BYTES
    fill(rig, client, 500)
    fill(rig, client, 50, "other")
    greedy = rig.client(node)
    for _ in range(3):
        greedy.receiver("work", credit=100)
        rig.settle()
    assert len(greedy.accept(Released())) == 300
    rig.settle()
    greedy.close_transport()
    rig.settle()
    assert account.held == 300 * exclusions.GIVEN_BACK_BYTES
    link = client.receiver("work", credit=500)
    other = client.receiver("other", credit=50)
    rig.settle()
    assert client.bodies(link) == [str(number) for number in range(1, 301)]
    assert len(client.bodies(other)) == 50, "a queue of which little came back"
    client.accept(link=link)
    rig.run(1)
    assert client.bodies(link) == [str(number) for number in range(301, 501)]
    client.accept(link=link)
    rig.run(1)
    assert account.held == 0 and node.queue("work").messages == 0
    check_accounts(core)


# ------------------------------------------------------------------------------------------------ larger than it takes


@pytest.mark.parametrize("settle_mode", [0, 1])
def test_a_message_that_no_consumer_takes_becomes_a_dead_letter(settle_mode: int) -> None:
    rig, node, client = world(limits=Limits(too_large_links_max=3))
    send(rig, client, BIG, "2")
    ended = []
    got: list[str] = []
    for _ in range(4):
        link = client.receiver("work", max_message_size=SMALL, snd_settle_mode=settle_mode)
        rig.settle()
        got += taken(client, link)
        ended.append(condition(client, link))
    assert ended == ["amqp:link:message-size-exceeded"] * 3 + [""]
    assert got == ["2"]
    rig.run(1)
    assert node.bodies("$dead-letters") == [BIG] and node.queue("work").messages == 0
    shared = node.queue("work").shared
    assert (shared.links_ended, shared.counts, shared.exclusions.live) == ({}, {}, {})
    letters = rig.client(node)
    letters.receiver("$dead-letters")
    rig.settle()
    (letter,) = letters.messages()
    reason = (letter.message_annotations or {})[Symbol("x-opt-dead-letter-reason")]
    assert "more than the consumers take" in reason and "3 links" in reason


def test_a_consumer_that_takes_more_gets_it_and_nobody_is_detached() -> None:
    """Whichever is offered it first, and though the one that can take it has no credit yet."""
    rig, node, client = world()
    small = client.receiver("work", max_message_size=SMALL)
    large = client.receiver("work", credit=0)
    rig.settle()
    send(rig, client, BIG, "1", BIG, "2")
    assert taken(client, small) == ["1", "2"]
    large.grant(10)
    rig.settle()
    assert taken(client, large) == [BIG, BIG]
    assert client.detached == [] and "$dead-letters" not in node.core.catalog.queues  # type: ignore[union-attr]


def test_with_the_last_consumer_that_takes_it_gone_the_others_are_told() -> None:
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    small = client.receiver("work", max_message_size=SMALL)
    large = client.receiver("work", credit=0)
    rig.settle()
    send(rig, client, BIG, "1")
    assert taken(client, small) == ["1"]
    large.detach()
    rig.settle()
    assert condition(client, small) == "amqp:link:message-size-exceeded"
    again = client.receiver("work", max_message_size=SMALL)
    rig.settle()
    assert condition(client, again) == "" and node.bodies("$dead-letters") == [BIG]


def test_a_dead_letter_is_never_dropped_for_its_size() -> None:
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    send(rig, client, BIG)
    for _ in range(2):
        client.receiver("work", max_message_size=SMALL)
        rig.settle()
    assert node.bodies("$dead-letters") == [BIG]
    for _ in range(3):
        link = client.receiver("$dead-letters", max_message_size=SMALL)
        rig.settle()
    assert condition(client, link) == "" and node.bodies("$dead-letters") == [BIG]
    other = rig.client(node)
    other.receiver("$dead-letters")
    rig.settle()
    assert other.bodies() == [BIG]


def test_a_durable_subscription_passes_it() -> None:
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    fields: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    client.receiver("work", name="mine", source=fields, max_message_size=SMALL)
    rig.settle()
    send(rig, client, BIG, "1")
    again = client.receiver("work", name="mine", source=fields, max_message_size=SMALL)
    rig.settle()
    assert taken(client, again) == ["1"] and node.bodies("$dead-letters") == [BIG]


def test_a_queue_in_memory_too() -> None:
    rig, node, client = world(QueueConfig(name="work", durable=False), limits=Limits(too_large_links_max=1))
    node.unwatched.add("work")
    send(rig, client, BIG, "1")
    for _ in range(2):
        link = client.receiver("work", max_message_size=SMALL)
        rig.settle()
    assert taken(client, link) == ["1"] and node.bodies("$dead-letters") == [BIG]


def test_given_back_by_another_it_still_counts_as_shown() -> None:
    rig, _, client = world()
    large = client.receiver("work", credit=1)
    small = client.receiver("work", max_message_size=SMALL)
    rig.settle()
    send(rig, client, BIG)
    assert client.accept(Released(), link=large) == [BIG]
    rig.settle()
    assert client.bodies(small) == [] and condition(client, small) == ""
    large.grant(1)
    rig.settle()
    assert taken(client, large) == [BIG]


def test_what_is_set_aside_counts_among_what_a_tracked_cursor_has_outstanding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may become a range of the cursor's row (tests/core/test_rows.py)."""
    monkeypatch.setattr(halting, "OUTSTANDING_MAX", 8)
    rig, node, client = world()
    other = rig.client(node)
    other.receiver("work", name="sub", credit=0, source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    link = client.receiver("work", credit=8)
    rig.settle()
    fill(rig, client, 20)
    client.accept(NOT_HERE, link=link)
    link.grant(20)
    rig.settle()
    shared = node.queue("work").shared
    assert len(shared.exclusions.aside) == 8 and client.deliveries == []
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    got: list[str] = []
    while consumer.deliveries or client.deliveries:
        got += consumer.accept() + client.accept(link=link)
        rig.settle()
    assert sorted(got, key=int) == [str(number) for number in range(1, 21)]


# ------------------------------------------------------------------------------------------------ bounds of the work


def test_many_small_consumers_beside_a_large_one_ask_once_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an entry has as a delivery is the same for all of them; the largest limit says whether another takes it."""
    rig, _, client = world()
    for _ in range(40):
        client.receiver("work", max_message_size=SMALL)
    large = client.receiver("work", credit=0)
    rig.settle()
    built = 0
    for_consumer = annotate.for_consumer

    def counting(*parts: Any) -> Any:
        nonlocal built
        built += 1
        return for_consumer(*parts)

    monkeypatch.setattr(annotate, "for_consumer", counting)
    send(rig, client, *[BIG] * 30)
    assert client.deliveries == [] and built <= 2 * 30
    large.grant(30)
    rig.settle()
    assert taken(client, large) == [BIG] * 30 and client.detached == []


@pytest.mark.parametrize("durable", [True, False])
def test_no_more_is_set_aside_than_the_bound(monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    """Then the others wait behind it; all of it is counted, and goes to who takes it, in order."""
    monkeypatch.setattr(exclusions, "ASIDE_MAX", 20, raising=False)
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    small = client.receiver("work", max_message_size=SMALL)
    large = client.receiver("work", credit=0)
    rig.settle()
    shared = node.queue("work").shared
    before = node.core.memory.withheld.aside.held  # type: ignore[union-attr]
    send(rig, client, *[BIG + str(number) for number in range(100)], "1")
    assert len(shared.exclusions.aside) == 20 and client.deliveries == []
    assert node.core.memory.withheld.aside.held >= before + 20 * 100  # type: ignore[union-attr]
    small.grant(10, drain=True)
    rig.settle()
    assert small.credit == 0
    small.grant(10)
    got: list[str] = []
    for _ in range(20):
        large.grant(7)
        rig.settle()
        got += taken(client, large)
    assert got == [BIG + str(number) for number in range(100)]
    assert taken(client, small) == ["1"] and client.detached == []
    rig.run(1)
    assert not shared.exclusions.counted_aside
    assert node.core.memory.withheld.aside.held == before  # type: ignore[union-attr]


def test_where_memory_is_used_up_little_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusions, "ASIDE_MIN", 3, raising=False)
    rig, node, client = world()
    client.receiver("work", max_message_size=SMALL)
    client.receiver("work", credit=0)
    rig.settle()
    account = node.core.memory.withheld.aside  # type: ignore[union-attr]
    monkeypatch.setattr(account, "held_max", account.held)
    send(rig, client, *[BIG] * 10)
    assert len(node.queue("work").shared.exclusions.aside) == 3


def test_a_pump_asks_a_bounded_number_of_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it comes in the next turns; nobody is passed over."""
    monkeypatch.setattr(exclusions, "LOOKS_MAX", 5, raising=False)
    monkeypatch.setattr(cursor, "LOOKS_MAX", 5, raising=False)
    most = 0
    choose = Exclusions.choose

    def counting(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        return choose(*arguments)

    pump = Cursor.pump

    def pumping(*arguments: Any) -> int:
        nonlocal asked, most
        asked = 0
        given = pump(*arguments)
        most = max(most, asked)
        return given

    asked = 0
    monkeypatch.setattr(Exclusions, "choose", counting)
    monkeypatch.setattr(Cursor, "pump", pumping)
    rig, _, client = world()
    for _ in range(5):
        client.receiver("work", max_message_size=SMALL)
    larges = [client.receiver("work", credit=0) for _ in range(5)]
    rig.settle()
    send(rig, client, *[BIG] * 20)
    assert client.deliveries == [] and 1 <= most <= 2
    for link in larges:
        link.grant(4)
    rig.settle()
    assert client.accept() == [BIG] * 20 and client.detached == []


def test_what_was_set_aside_because_of_a_lost_connection_goes_on_at_once() -> None:
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    other = rig.client(node)
    other.receiver("work", credit=0)
    rig.settle()
    small = client.receiver("work", max_message_size=SMALL)
    send(rig, client, BIG)
    assert node.queue("work").shared.exclusions.aside
    other.close_transport()
    rig.settle()
    assert condition(client, small) == "amqp:link:message-size-exceeded"


def test_what_one_of_two_large_ones_refused_is_left_to_the_other_as_long_as_it_stays() -> None:
    """The largest limit alone does not say who can have it."""
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    first = client.receiver("work", credit=1)
    second = client.receiver("work", credit=0)
    rig.settle()
    send(rig, client, BIG)
    client.accept(NOT_HERE, link=first)
    small = client.receiver("work", max_message_size=SMALL)
    rig.settle()
    assert condition(client, small) == "" and node.queue("work").shared.exclusions.aside
    second.detach()
    rig.settle()
    assert condition(client, small) == "amqp:link:message-size-exceeded"


def test_an_entry_that_became_a_dead_letter_is_in_nobodys_hands() -> None:
    """What its consumer is counted with is given back, as long as the link goes on."""
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    send(rig, client, BIG, "2")
    for _ in range(2):
        client.receiver("work", max_message_size=SMALL)
        rig.settle()
    (consumer,) = node.queue("work").shared.consumers
    assert isinstance(consumer, ConsumerLink)
    (size,) = [shown.size for shown in node.queue("work").shared.acquired.values()]
    assert node.bodies("$dead-letters") == [BIG] and consumer.held_bytes == size


def test_one_turn_asks_each_consumer_what_it_wants_once_though_they_take_different_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where deliveries are counted and each message is marked as shown by itself."""
    rig, hub, client = world(QueueConfig(name="work", deliveries_max=5))
    for number in range(40):
        client.receiver("work", credit=5, max_message_size=SMALL if not number else 100_000)
    rig.settle()
    asked: list[int] = []
    will_want, pump = ConsumerLink.will_want, Cursor.pump

    def counting(consumer: ConsumerLink) -> int:
        asked[-1] += 1
        return will_want(consumer)

    def pumped(self: Cursor, limit: int) -> int:
        asked.append(0)
        return pump(self, limit)

    asked.append(0)
    monkeypatch.setattr(ConsumerLink, "will_want", counting)
    monkeypatch.setattr(Cursor, "pump", pumped)
    send(rig, rig.client(hub), *[BIG] * 90)
    rig.run(1)
    assert len(client.deliveries) == 90 and max(asked) <= 8 * 40, "and again for each that is handed out"
