"""A queue that offers nothing new before some of what lies below is done: when it is halted, and when it goes on."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Modified, Released, Source, Target
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors import halting
from holdfast.broker.cursors.exclusions import GIVEN_BACK_BYTES
from holdfast.engine import events
from holdfast.settings.queues import QueueConfig
from support import selecting
from support.hops import names
from support.memory import check_accounts
from support.one_node import fill, world
from support.rig import Client, Node, Rig
from support.selecting import NAME, THIRDS, consume, numbers

COUNT = 2 * halting.GIVEN_BACK_MIN


def core_of(node: Node) -> Any:
    assert node.core is not None
    return node.core


def given_back(rig: Rig, node: Node, client: Client, address: str = "work") -> None:
    """COUNT messages in the queue, which were shown to somebody who is gone."""
    fill(rig, client, COUNT, address)
    greedy = rig.client(node)
    greedy.receiver(address, credit=COUNT)
    rig.settle()
    assert len(greedy.deliveries) == COUNT
    greedy.close_transport()
    rig.settle()


def take(rig: Rig, client: Client, link: Any) -> list[str]:
    """All that comes, accepted as it comes."""
    found: list[str] = []
    while some := client.accept(link=link):
        found += some
        rig.run(1)
    return found


def test_what_an_earlier_life_gave_back_halts_nothing_that_lies_ahead() -> None:
    """Its counts are known, and nobody holds any of it: what would be waited for could never be done."""
    rig, node, client = world()
    given_back(rig, node, client)
    node.handle(events.Stopping())
    rig.run(1)
    assert node.stopped
    node.crash()
    node.start()
    core = core_of(node)
    account = core.memory.withheld.given_back
    account.held_max = 0
    shared = node.queue("work").shared
    assert len(shared.counts) == COUNT and not shared.halted
    consumer = rig.client(node)
    link = consumer.receiver("work", credit=COUNT)
    rig.run(1)
    assert account.held > 0 and account.room == 0
    assert consumer.bodies() == names(1, halting.GIVEN_BACK_MIN) and shared.halted
    assert take(rig, consumer, link) == names(1, COUNT)
    assert all(message.header is None or not message.header.first_acquirer for message in consumer.messages())
    assert account.held == 0 and not shared.counts
    check_accounts(core)


def without_memory(node: Node) -> None:
    """None for what is given back, nor for what waits for consumers."""
    withheld = core_of(node).memory.withheld
    withheld.given_back.held_max = withheld.aside.held_max = 0


@pytest.mark.parametrize("held", ["TRUE", THIRDS])
def test_who_has_a_selector_gets_all_that_came_back_while_nothing_new_is_offered(held: str) -> None:
    """It settles nothing before it has all. What nobody was shown lies between."""
    rig, node, _ = world()
    selecting.fill(rig, node, 10 * COUNT)
    shown = selecting.thirds(10 * COUNT) if held == THIRDS else [*range(10 * COUNT)]
    greedy, consumer = rig.client(node), rig.client(node)
    consume(rig, greedy, held, credit=10 * COUNT)
    assert numbers(greedy) == shown
    without_memory(node)
    greedy.close_transport()
    rig.run(1)
    link = consume(rig, consumer, "TRUE", credit=20 * COUNT)
    rig.run(1)
    assert node.queue("work").shared.halted and link.credit == 20 * COUNT - len(consumer.deliveries)
    found = numbers(consumer)
    assert not set(shown).difference(found) and len(found) < len(shown) + halting.GIVEN_BACK_MIN * 3
    turns = node.turns
    link.grant(link.credit, drain=True)
    rig.run(1)
    assert link.credit == 0 and node.turns - turns < 100, "a drain is answered"
    while consumer.deliveries:
        consumer.accept(count=100)
        link.grant(20 * COUNT)
        rig.run(1)
    assert node.queue("work").messages == 0


def test_what_came_back_and_one_consumer_cannot_have_is_another_s_while_nothing_new_is_offered() -> None:
    rig, node, _ = world()
    for first in range(0, 6 * COUNT, COUNT):
        selecting.fill(rig, node, COUNT, first=first, size=1_000 if first % (2 * COUNT) else 1)
    greedy, small, large = (rig.client(node) for _ in range(3))
    consume(rig, greedy, "TRUE", credit=6 * COUNT)
    assert len(numbers(greedy)) == 6 * COUNT
    without_memory(node)
    greedy.close_transport()
    rig.run(1)
    taking = consume(rig, large, "TRUE", credit=0)
    consume(rig, small, "TRUE", credit=10 * COUNT, max_message_size=600)
    rig.run(1)
    assert len(numbers(small)) == 3 * COUNT and node.queue("work").shared.halted
    for _ in range(2):
        taking.grant(COUNT)
        rig.run(1)
    assert len(numbers(large)) == 2 * COUNT
    small.accept(Released(), count=COUNT)
    rig.run(1)
    assert len(numbers(small)) == 3 * COUNT and len(numbers(large)) == 2 * COUNT


@pytest.mark.parametrize("small_settles", [False, True])
def test_what_came_back_and_was_forgotten_is_given_to_who_can_have_it_while_nothing_new_is_offered(
    small_settles: bool,
) -> None:
    """More than is kept waits for the consumer that has no credit. What it gets is all that came back."""
    rig, node, _ = world()
    core = core_of(node)
    core.memory.withheld.aside.held_max = 0
    core.memory.withheld.given_back.held_max = 100 * GIVEN_BACK_BYTES
    holder, small, large = (rig.client(node) for _ in range(3))
    consume(rig, holder, "TRUE", credit=170)
    selecting.fill(rig, node, 80, size=1_000)
    selecting.fill(rig, node, 40, first=80)
    selecting.fill(rig, node, 50, first=120)
    rig.run(1)
    assert len(holder.deliveries) == 170
    taking = consume(rig, large, "JMSPriority >= 0", credit=0)
    consume(rig, small, "JMSPriority >= 0", credit=500, max_message_size=600)
    for _ in range(6):
        holder.accept(Modified(delivery_failed=True), count=20)
        rig.run(1)
    shared = node.queue("work").shared
    assert shared.halted and numbers(small) == [*range(80, 120)]
    assert any(each.for_others.forgotten_from is not None for each in shared.selections)
    if small_settles:
        small.accept(Modified(delivery_failed=True), count=10)
        rig.run(1)
    turns = node.turns
    taking.grant(500, drain=True)
    rig.run(1)
    assert numbers(large) == [*range(80)] and not taking.credit and node.turns - turns < 50


@pytest.mark.parametrize("counted", [False, True])
def test_who_has_no_selector_gets_all_that_came_back_ahead_while_nothing_new_is_offered(counted: bool) -> None:
    """The first messages are in hands, and nobody without a selector was offered any before. Who drains is answered."""
    rig, node, _ = world(QueueConfig(name="work", deliveries_max=50 if counted else None))
    core_of(node).memory.withheld.given_back.held_max = 100 * GIVEN_BACK_BYTES
    holder, first, second = (rig.client(node) for _ in range(3))
    consume(rig, holder, "TRUE", credit=170)
    selecting.fill(rig, node, 200)
    rig.run(1)
    assert numbers(holder) == [*range(170)]
    del holder.deliveries[:70]
    holder.accept(Modified(delivery_failed=True))
    rig.run(1)
    links = [consume(rig, each, None, credit=10) for each in (first, second)]
    rig.run(1)
    shared = node.queue("work").shared
    assert shared.halted and shared.position == 0
    assert sorted(numbers(first) + numbers(second)) == [*range(70, 90)]
    assert len(first.deliveries) == len(second.deliveries) == 10
    second.accept(Released(), count=5)
    rig.run(1)
    turns = node.turns
    links[0].grant(500, drain=True)
    rig.run(1)
    assert not links[0].credit and node.turns - turns < 50
    assert sorted(numbers(first) + numbers(second)) == [*range(70, 170)]
    for each in (first, second):
        each.accept()
    rig.run(1)
    links[1].grant(500)
    rig.run(1)
    assert not shared.halted and numbers(second) == [*range(170, 200)]
    core_of(node).validate()


def test_what_came_back_ahead_and_is_too_large_for_one_without_a_selector_is_another_s() -> None:
    rig, node, _ = world()
    core_of(node).memory.withheld.given_back.held_max = 100 * GIVEN_BACK_BYTES
    holder, small, large = (rig.client(node) for _ in range(3))
    consume(rig, holder, "TRUE", credit=170)
    selecting.fill(rig, node, 70)
    selecting.fill(rig, node, 50, first=70, size=1_000)
    selecting.fill(rig, node, 50, first=120)
    rig.run(1)
    del holder.deliveries[:70]
    holder.accept(Modified(delivery_failed=True))
    rig.run(1)
    taking = consume(rig, large, None, credit=0)
    link = consume(rig, small, None, credit=500, max_message_size=600)
    rig.run(1)
    assert node.queue("work").shared.halted and numbers(small) == [*range(120, 170)]
    turns = node.turns
    link.grant(450, drain=True)
    rig.run(1)
    assert not link.credit and node.turns - turns < 50 and not large.deliveries
    taking.grant(500)
    rig.run(1)
    assert numbers(large) == [*range(70, 120)] and node.turns - turns < 100
    core_of(node).validate()


@pytest.mark.parametrize("ranges_are_full", [False, True])
def test_a_halted_queue_goes_on_at_once_when_another_makes_room(ranges_are_full: bool) -> None:
    """With the turn in which the room comes, whoever has nothing else to do: nobody asks for it again. Another account
    that it needs nothing of may be full meanwhile."""
    rig, node, client = world()
    core = core_of(node)
    account = core.memory.withheld.given_back
    for address in ("work", "other"):
        given_back(rig, node, client, address)
    account.held_max = account.held
    if ranges_are_full:
        core.memory.ranges.held_max = core.memory.ranges.held
    fill(rig, client, 10, first=COUNT + 1)
    mine, theirs = rig.client(node), rig.client(node)
    mine.receiver("work", credit=10 * COUNT)
    theirs.receiver("other", credit=COUNT)
    rig.run(1)
    assert mine.bodies() == names(1, COUNT) and len(theirs.deliveries) == COUNT
    assert core.work.halted == {account: {node.queue("work"): None}}
    theirs.accept()
    rig.settle()  # no time passes, and no commit comes back: what was accepted waits for more to share one
    assert mine.bodies() == names(1, COUNT + 10) and not core.work.halted
    rig.run(1)
    mine.accept()
    rig.run(1)
    assert account.held == 0 and node.queue("work").messages == 0


@pytest.mark.parametrize("given_back_is_full", [False, True])
def test_a_subscription_that_is_halted_for_want_of_memory_for_ranges_goes_on_with_it(given_back_is_full: bool) -> None:
    rig, node, client = world()
    core = core_of(node)
    if given_back_is_full:
        core.memory.withheld.given_back.held_max = 0
    fill(rig, client, 1)
    source = Source("work", durable=2, expiry_policy=Symbol("never"))
    link = client.session.attach_receiver("sub", source, Target())
    link.grant(10 * COUNT)
    fill(rig, client, 2 * COUNT, first=2)
    subscription = node.queue("work").named["sub"]
    for number, delivery in enumerate(client.deliveries):
        if number % 2:
            link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
    rig.run(1)
    assert len(subscription.finished) > halting.FINISHED_MIN
    ranges = core.memory.ranges
    ranges.held_max = ranges.held
    before = len(client.deliveries)
    fill(rig, client, 10)
    rig.run(1)
    assert len(client.deliveries) == before and core.work.halted == {ranges: {node.queue("work"): None}}
    ranges.held_max *= 2
    rig.settle()
    assert len(client.deliveries) == before + 10 and not core.work.halted


def test_who_is_short_of_two_accounts_is_looked_at_once_for_each_that_has_room() -> None:
    """Not again and again while only one of them has."""
    rig, node, client = world()
    core = core_of(node)
    source = Source("work", durable=2, expiry_policy=Symbol("never"))
    link = client.session.attach_receiver("sub", source, Target())
    link.grant(10 * COUNT)
    fill(rig, client, 4 * COUNT)
    outcomes = [Accepted(), Released()]
    for number, delivery in enumerate(client.deliveries):
        if number % 2 or number >= 2 * COUNT:
            link.settle(delivery.delivery_id, delivery.delivery_id, outcomes[number >= 2 * COUNT])
    client.deliveries.clear()
    rig.run(1)
    assert len(client.deliveries) == 2 * COUNT
    ranges, given_back = core.memory.ranges, core.memory.withheld.given_back
    ranges.held_max, given_back.held_max = ranges.held, given_back.held
    fill(rig, client, 10)
    rig.run(1)
    queue = node.queue("work")
    assert len(client.deliveries) == 2 * COUNT and core.work.halted == {
        ranges: {queue: None},
        given_back: {queue: None},
    }
    given_back.held_max *= 2
    turns = node.turns
    rig.run(5)
    assert node.turns < turns + 50 and core.work.halted == {ranges: {queue: None}}
    ranges.held_max *= 2
    rig.settle()
    assert len(client.deliveries) == 2 * COUNT + 10 and not core.work.halted


def test_a_queue_that_is_deleted_while_it_is_halted_wakes_nobody() -> None:
    rig, node, client = world()
    core = core_of(node)
    given_back(rig, node, client)
    account = core.memory.withheld.given_back
    account.held_max = account.held
    consumer = rig.client(node)
    consumer.receiver("work", credit=10 * COUNT)
    rig.run(1)
    fill(rig, client, 10, first=COUNT + 1)
    assert core.work.halted
    for each in (consumer, client):
        each.close_transport()
    rig.run(1)
    asker = rig.client(node)
    assert asker.manage("PURGE", "queue", "work")[0] == 200
    assert asker.manage("DELETE", "queue", "work")[0] == 200
    rig.run(1)
    assert not core.work.halted and "work" not in core.catalog.queues and account.held == 0
    core.validate()


def test_a_queue_that_is_deleted_while_others_use_the_memory_up_is_not_kept_for_them() -> None:
    """It waits for room that does not come with its end, and is forgotten all the same."""
    rig, node, client = world()
    core = core_of(node)
    for address in ("work", "other"):
        given_back(rig, node, client, address)
    account = core.memory.withheld.given_back
    account.held_max = account.held // 2
    consumer = rig.client(node)
    consumer.receiver("work", credit=10 * COUNT)
    rig.run(1)
    fill(rig, client, 10, first=COUNT + 1)
    assert [*core.work.halted] == [account]
    for each in (consumer, client):
        each.close_transport()
    rig.run(1)
    asker = rig.client(node)
    assert asker.manage("PURGE", "queue", "work")[0] == 200
    assert asker.manage("DELETE", "queue", "work")[0] == 200
    rig.run(1)
    assert not account.room and not any(core.work.halted.values()), "the other's messages are given back still"


@pytest.mark.parametrize("refused", [False, True])
def test_what_came_back_ahead_and_waits_for_the_disk_takes_no_turns_meanwhile(refused: bool) -> None:
    """Also where to ask its selector about it takes a turn's whole share: it is not asked about anew."""
    count = halting.GIVEN_BACK_MIN
    rig, node, client = world(QueueConfig(name="work", deliveries_max=5))
    link = client.sender("work")
    rig.settle()
    for number in range(count + 3):
        large = number >= count
        client.send(
            link, "x" * 100_000 if large else "x", application_properties={"n": number - count + 1 if large else 0}
        )
    rig.settle()
    failing = rig.client(node)
    failing.receiver("work", credit=count + 3)
    rig.settle()
    failing.accept(Modified(delivery_failed=True))
    rig.settle()
    node.crash()
    node.start()
    rig.settle()
    without_memory(node)
    holding, picking = rig.client(node), rig.client(node)
    holding.receiver("work", credit=count)
    rig.run(1)
    assert node.queue("work").shared.halted
    rig.settle()
    node.hold_commits = not refused
    if refused:
        node.refuse, node.refuse_all = 10**9, True
    selector = Described(NAME, " OR ".join(["n = 99"] * 399 + ["n = 1"]))
    picking.receiver("work", credit=5, source={"filter": {Symbol("s"): selector}})
    holding.receiver("work", credit=5)
    holding.accept(Modified(delivery_failed=True), count=1)
    rig.settle(limit=1_000)
    node.hold_commits, node.refuse = False, 0
    rig.run(30)
    assert len(holding.deliveries) + len(picking.deliveries) == count + 3


def test_who_has_finished_too_much_out_of_order_gets_what_lies_between_after_a_restart() -> None:
    """It lies ahead again then, and only if it is finished are the ranges fewer."""
    rig, node, client = world()
    assert client.manage("OPEN", "subscription", "one", queue="work", mode="copy", start="first")[0] in (200, 201)
    node.queue("work").ranges.held_max = 0
    fill(rig, client, 4 * halting.FINISHED_MIN)
    consumer = rig.client(node)
    link = consumer.receiver("work", credit=4 * halting.FINISHED_MIN)
    rig.settle()
    for delivery in list(consumer.deliveries)[1::2]:
        link.settle(delivery.delivery_id, delivery.delivery_id, Accepted())
    rig.run(1)
    assert node.queue("work").shared.halted
    node.crash()
    node.start()
    node.queue("work").ranges.held_max = 0
    again = rig.client(node)
    again.receiver("work", credit=1_000)
    rig.run(1)
    assert len(take(rig, again, None)) == 2 * halting.FINISHED_MIN and not node.queue("work").shared.halted
