"""A consumer or a reader that drains is answered within bounded time, whatever state its queue, its link and the node
are in: its credit is used up, by messages or without (AMQP 1.0 §2.6.7).

Rules of this file: each state is made by one function, which returns who drains, with what credit. The world is not
helped on while the answer is awaited: no commit that is held comes back, nobody settles and nobody grants anything.
"""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Received, Rejected, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.broker import purge
from holdfast.broker.cursors import cursor, exclusions, halting
from holdfast.core import offering
from holdfast.endpoints import settlements
from holdfast.engine import events
from holdfast.management.operations.answers import Later
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world
from support.rig import Client, Node, Rig

ANSWER_S = 5.0
SMALL = 300
"""What a small consumer takes: any of the numbers, and no message of BIG."""
BIG = "x" * 1_000
SUBSCRIPTION = {"durable": 2, "expiry_policy": Symbol("never")}
Patch = pytest.MonkeyPatch
State = Callable[[Patch], tuple[Rig, Node, Receiver, int]]
STATES: list[State] = []


def state(make: State) -> State:
    STATES.append(make)
    return make


def consumer(rig: Rig, client: Client, **options: Any) -> Receiver:
    """A consumer without credit."""
    link = client.receiver("work", credit=0, **options)
    rig.settle()
    return link


def send(rig: Rig, client: Client, *bodies: str, **parts: Any) -> None:
    link = client.sender("work")
    rig.settle()
    for body in bodies:
        client.send(link, body, **parts)
        rig.settle()


def give_all(client: Client, link: Receiver, outcome: Any, count: int | None = None) -> None:
    for item in [item for item in client.deliveries if item.link is link][:count]:
        link.settle(item.delivery_id, item.delivery_id, outcome)
        client.deliveries.remove(item)


def is_answered(link: Receiver) -> bool:
    return link.credit == 0 and not link._draining


# ------------------------------------------------------------------------------------------------ messages or none


@state
def empty(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    return rig, node, consumer(rig, client), 10


@state
def fewer_than_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 3)
    return rig, node, consumer(rig, client), 10


@state
def as_many_as_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 10)
    return rig, node, consumer(rig, client), 10


@state
def more_than_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 30)
    return rig, node, consumer(rig, client), 10


@state
def settled_when_sent(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 30)
    return rig, node, consumer(rig, client, snd_settle_mode=1), 10


@state
def a_backlog_of_an_earlier_life(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 1_000)
    node.crash()
    node.start()
    return rig, node, consumer(rig, rig.client(node)), 600


@state
def all_have_expired(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    send(rig, client, *"abc", header=Header(ttl=1_000))
    rig.now += 3  # nobody looked for them yet
    return rig, node, consumer(rig, client), 10


@state
def more_have_expired_than_leave_in_a_turn(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    patch.setattr(cursor, "RETIRES_MAX", 10)
    rig, node, client = world()
    send(rig, client, *map(str, range(50)), header=Header(ttl=1_000))
    rig.now += 3
    return rig, node, consumer(rig, client), 10


# ------------------------------------------------------------------------------------------------ not for this link


@state
def all_is_undeliverable_here(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 5)
    link = client.receiver("work", credit=5)
    rig.settle()
    give_all(client, link, Modified(undeliverable_here=True))
    rig.settle()
    return rig, node, link, 10


@state
def all_is_too_large_and_another_takes_it(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    consumer(rig, client)
    link = consumer(rig, client, max_message_size=SMALL)
    send(rig, client, BIG, BIG)
    return rig, node, link, 10


def _aside(patch: Patch, count: int) -> tuple[Rig, Node, Receiver, int]:
    """Some it called undeliverable, the others are too large for it; which is which it takes a look at each to know."""
    patch.setattr(exclusions, "SCAN_MAX", 5)
    rig, node, client = world()
    link = client.receiver("work", credit=count, max_message_size=SMALL)
    rig.settle()
    fill(rig, client, count)
    other = client.receiver("work", credit=count)
    rig.settle()
    send(rig, client, *[BIG] * count)
    give_all(client, other, Released())
    give_all(client, link, Modified(undeliverable_here=True))
    rig.settle()
    return rig, node, link, 10


@state
def a_little_of_both_is_aside(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    return _aside(patch, 2)


@state
def much_of_both_is_aside(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    return _aside(patch, 20)


@state
def no_more_may_be_set_aside(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    patch.setattr(exclusions, "ASIDE_MAX", 3)
    rig, node, client = world()
    consumer(rig, client)
    link = consumer(rig, client, max_message_size=SMALL)
    send(rig, client, *[BIG] * 10)
    return rig, node, link, 10


@state
def a_subscription_with_too_many_gaps(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    patch.setattr(halting, "FINISHED_MAX", 2)
    rig, node, client = world()
    link = client.receiver("work", name="sub", source=SUBSCRIPTION, credit=6)
    rig.settle()
    fill(rig, client, 8)
    for position in (1, 3, 5):
        number = client.deliveries[position].delivery_id
        link.settle(number, number, Accepted())
    rig.settle()
    return rig, node, link, 10


@state
def a_subscription_with_too_many_gaps_and_what_it_cannot_have(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, link, credit = a_subscription_with_too_many_gaps(patch)
    (client,) = rig.clients
    number = client.deliveries[0].delivery_id
    link.settle(number, number, Modified(undeliverable_here=True))
    rig.settle()
    return rig, node, link, credit


# ------------------------------------------------------------------------------------------------ the link has enough


@state
def it_holds_all_that_it_may(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world(limits=Limits(unsettled_max=10))
    fill(rig, client, 30)
    link = client.receiver("work")
    rig.settle()
    return rig, node, link, 10


@state
def its_user_holds_all_that_it_may(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world(limits=Limits(user_unsettled_bytes_max=SMALL))
    send(rig, client, BIG, BIG)
    link = client.receiver("work", credit=1)
    rig.settle()
    assert len(client.deliveries) == 1
    return rig, node, link, 10


def _rejecting(patch: Patch) -> tuple[Rig, Node, Receiver, Client]:
    """It rejected ten of thirty, and they are on their way to the dead letters, which a slow disk keeps them from."""
    patch.setattr(settlements, "SETTLED_BYTES_MAX", 1)
    rig, node, client = world(limits=Limits(unsettled_max=10))
    fill(rig, client, 30)
    link = client.receiver("work", credit=10)
    rig.settle()
    node.hold_commits = True
    send(rig, rig.client(node), "31")  # the commit that does not come back
    first, last = client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id
    link.settle(first, last, Rejected())
    client.deliveries.clear()
    rig.settle()
    assert node.core is not None and node.core.jobs.settlements.waiting
    return rig, node, link, client


@state
def what_it_rejected_counts_still(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, link, _ = _rejecting(patch)
    return rig, node, link, 10


@state
def it_rejected_too_much(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    patch.setattr(settlements, "WAITING_MAX", 5)
    rig, node, _, client = _rejecting(patch)
    return rig, node, consumer(rig, client), 10


@state
def its_session_s_window_is_closed_and_the_queue_is_empty(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, _ = world()
    client = rig.client(node, incoming_window=2)
    return rig, node, consumer(rig, client), 10


@state
def more_is_to_be_resumed_than_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    source = {"timeout": 60}
    fill(rig, client, 8)
    first = rig.client(node)
    first.receiver("work", name="c", source=source, credit=10)
    rig.settle()
    first.close_transport()
    rig.settle()
    again = rig.client(node)
    unsettled = {number.to_bytes(4): Received(0, 0) for number in range(6)}
    return rig, node, consumer(rig, again, name="c", source=source, unsettled=unsettled), 3


@state
def it_was_given_back(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 5)
    first = client.receiver("work", credit=5)
    rig.settle()
    link = consumer(rig, client)
    give_all(client, first, Released())
    rig.settle()
    return rig, node, link, 10


# ------------------------------------------------------------------------------------------------ the node is not ready


def _purging(patch: Patch) -> tuple[Rig, Node, Client]:
    """A purge that a slow disk holds up; there is more behind what is purged."""
    patch.setattr(purge, "RECLAIM_COUNT", 5)
    patch.setattr(purge, "RETIRES_MAX", 5)
    rig, node, client = world()
    fill(rig, client, 30)
    node.hold_commits = True
    send(rig, client, "31")
    assert node.core is not None
    assert isinstance(node.core.management.operations["holdfast:queue", "PURGE"].carry_out("", "work", {}), Later)
    node.handle(events.TurnEnded(wall_ms=node.wall_ms))
    assert node.core is not None and node.core.jobs.purges
    return rig, node, client


@state
def a_purge_is_under_way(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = _purging(patch)
    return rig, node, consumer(rig, client), 10


@state
def the_queue_rests_after_a_failure(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 5)
    core = node.core
    assert core is not None
    core.containment.resting[node.queue("work")] = core.clock.now + 60
    return rig, node, consumer(rig, client), 10


@state
def the_disk_does_not_answer(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    """What is stored may not be shown before the mark that says so is stored too."""
    rig, node, client = world(limits=Limits(commit_stall_s=2.0))
    fill(rig, client, 500)
    node.crash()
    node.start()
    client = rig.client(node)
    link = consumer(rig, client)
    producer = client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(producer, "501")
    rig.settle()
    return rig, node, link, 10


# ------------------------------------------------------------------------------------------------ who moves nothing


def _reader(count: int, **options: Any) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, count)
    link = client.reader("work", 1, credit=0, **options)
    rig.settle()
    return rig, node, link, 10


@state
def a_reader_of_fewer_than_its_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    return _reader(3)


@state
def a_reader_of_as_many_as_its_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    return _reader(10)


@state
def a_reader_of_more_than_its_credit(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    return _reader(30)


@state
def a_reader_of_a_range_that_is_not_there_yet(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    return _reader(3, last=100)


@state
def a_browser(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 30)
    return rig, node, consumer(rig, client, source={"distribution_mode": Symbol("copy")}), 10


@state
def a_browser_that_settles_nothing(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world(limits=Limits(unsettled_max=10))
    fill(rig, client, 30)
    link = consumer(rig, client, source={"distribution_mode": Symbol("copy")}, snd_settle_mode=0)
    link.grant(10)
    rig.settle()
    return rig, node, link, 10


@state
def a_browser_while_the_queue_rests(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    fill(rig, client, 5)
    core = node.core
    assert core is not None
    link = consumer(rig, client, source={"distribution_mode": Symbol("copy")})
    core.containment.resting[node.queue("work")] = core.clock.now + 60
    return rig, node, link, 10


@state
def a_browser_while_a_purge_is_under_way(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = _purging(patch)
    return rig, node, consumer(rig, client, source={"distribution_mode": Symbol("copy")}), 10


@state
def answers_of_management(patch: Patch) -> tuple[Rig, Node, Receiver, int]:
    rig, node, client = world()
    link = client.receiver("$management", credit=0)
    rig.settle()
    return rig, node, link, 10


# ------------------------------------------------------------------------------------------------ the answer


@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
def test_a_drain_is_answered(make: State, monkeypatch: Patch) -> None:
    rig, node, link, credit = make(monkeypatch)
    link.grant(credit, drain=True)
    for client in rig.clients:
        client.flush()
    rig.run(ANSWER_S)
    assert not link.detached and is_answered(link), (link.credit, link._draining)
    core = node.core
    assert core is not None and not core.links.drains


def test_a_drain_of_a_queue_in_memory_on_a_stalled_disk_ends_with_the_last_message(monkeypatch: Patch) -> None:
    """It waits for no mark on the disk, whatever one pump hands out."""
    monkeypatch.setattr(offering, "PUMP_LIMIT", 10)
    rig, node, client = world(QueueConfig(name="mem", durable=False), limits=Limits(commit_stall_s=2.0))
    node.unwatched.add("mem")
    fill(rig, client, 40, "mem")
    other = client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(other, "x")
    rig.run(3)
    assert node.core is not None and node.core.disk.stalled
    reader = rig.client(node)
    link = reader.receiver("mem", credit=0)
    rig.settle()
    link.grant(50, drain=True)
    rig.settle()
    assert len(reader.deliveries) == 40 and is_answered(link)


@pytest.mark.parametrize("kind", ["shared", "subscription", "browse"])
@pytest.mark.parametrize("durable", [True, False], ids=["stored", "in memory"])
def test_what_needs_no_disk_is_handed_out_while_a_commit_does_not_come_back(kind: str, durable: bool) -> None:
    """Of a queue in memory all, of another what readers and consumers below the stored mark have left over."""
    rig, node, client = world(QueueConfig(name="deep", durable=durable))
    node.unwatched.add("deep")
    consumer = rig.client(node)
    terms: dict[str, Any] = {"subscription": {"name": "sub", "source": SUBSCRIPTION}}.get(kind, {})
    if kind == "browse":
        terms = {"source": {"distribution_mode": Symbol("copy")}}
    link = consumer.receiver("deep", snd_settle_mode=1, credit=1_000 if durable else 0, **terms)
    sender, other = client.sender("deep"), client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(other, "first")
    rig.settle()
    for number in range(256):
        client.send(sender, f"{number:<{20 * 1024}}")
    rig.settle()
    node.finish_commit()  # now all of it is in the next
    rig.settle()
    client.send(other, "last")
    rig.settle()
    if durable:
        node.finish_commit()
    else:
        link.grant(1_000)
    rig.settle()
    assert node.pending is not None and len(consumer.deliveries) == 256
