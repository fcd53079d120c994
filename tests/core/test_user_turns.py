"""In which order the consumers of one user get messages while the user's bound is met (peers/use.py)."""

from random import Random
from typing import Any, cast

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Accepted, Modified, Properties, Rejected, Released
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors import looking, matches, priorities, runs, selections
from holdfast.broker.entries.work import Work
from holdfast.core import offering
from holdfast.peers.use import Use
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support.rig import Client, Node, Rig
from support.selecting import NAME, OTHERS, THIRDS, consume, fill, numbers

LIMITS = Limits(user_unsettled_bytes_max=2 * KIB)
"""Two messages of `put`. All clients here have no name, so that they are one user."""

IN_MEMORY = tuple(QueueConfig(name=name, durable=False) for name in "abcdxyz")
"""Queues whose messages wait for no watermark."""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Messages are handed out one by one, because a run may exceed the bound."""
    for module in (runs, selections, priorities):
        monkeypatch.setattr(module, "RUN_COUNT", 1)
    return Rig()


def hub(rig: Rig) -> Node:
    node = rig.node("hub", limits=LIMITS, queues=IN_MEMORY)
    node.unwatched.update(queue.name for queue in IN_MEMORY)  # what it accepts there is on no disk
    return node


def put(rig: Rig, node: Node, queue: str, *names: str, size: int = KIB) -> None:
    client = rig.client(node)
    link = client.sender(queue)
    rig.settle()
    for name in names:
        client.send(link, name.ljust(size))
    rig.settle()
    client.close_transport()
    rig.settle()


def greedy(rig: Rig, node: Node, credit: int = 1000, queue: str = "busy") -> tuple[Client, Receiver]:
    """A consumer that holds as much as its user may, of a queue that has more."""
    put(rig, node, queue, *[str(number) for number in range(20)])
    client = rig.client(node)
    link = client.receiver(queue, credit=credit)
    rig.settle()
    assert len(client.deliveries) == 2
    return client, link


def receiving(rig: Rig, node: Node, *queues: str) -> Client:
    """A client that consumes from each of these queues."""
    client = rig.client(node)
    for queue in queues:
        client.receiver(queue)
    rig.settle()
    return client


def put_each(rig: Rig, node: Node, *queues: str, size: int = KIB) -> None:
    """A message in each of these queues, with its name, one after the other."""
    for queue in queues:
        put(rig, node, queue, queue, size=size)


def came(client: Client) -> list[str]:
    return [body.strip() for body in client.bodies()]


def is_over(node: Node) -> bool:
    """Whether nobody is woken any more, and it is nobody's turn."""
    assert node.core is not None
    users = node.core.users
    return not users.waking and not users.anonymous.offered_now


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("outcome", [Accepted(), Released(), Rejected(), Modified(delivery_failed=True)])
def test_who_settles_gets_more_after_those_who_have_waited_longer(rig: Rig, outcome: object, durable: bool) -> None:
    """Its own queue is looked at first: what it released is there again, and there is more behind what it accepted. A
    durable queue must first store that its message is shown, and others get something meanwhile."""
    node = hub(rig)
    names = ["one", "two", "three"] if durable else ["a", "b", "c"]
    other = receiving(rig, node, *names)
    client, _ = greedy(rig, node)
    put_each(rig, node, *names)
    got: list[str] = []
    for _ in range(8 if durable else 4):
        client.accept(outcome, count=1)
        rig.run(1)
        got += came(other)
        other.accept()
        rig.run(1)
    assert sorted(got) == sorted(names) and len(client.deliveries) == 2 and is_over(node)


def test_who_asks_for_more_as_it_settles_gets_it_after_those_who_have_waited_longer(rig: Rig) -> None:
    """It did not wait itself when the room came back."""
    node = hub(rig)
    other = receiving(rig, node, "a")
    client, link = greedy(rig, node, credit=2)
    put(rig, node, "a", "a")
    client.accept()
    link.grant(2)
    rig.run(1)
    assert came(other) == ["a"] and len(client.deliveries) == 1


@pytest.mark.parametrize("priorities", [False, True])
def test_consumers_with_selectors_of_one_queue_have_their_turns(rig: Rig, priorities: bool) -> None:
    """Those that have one of the selectors are not always first."""
    node = rig.node("hub", limits=LIMITS, queues=(QueueConfig(name="work", priorities=priorities),))
    fill(rig, node, 18, size=2 * KIB)
    client = rig.client(node)
    links = [consume(rig, client, OTHERS), consume(rig, client, THIRDS)]
    got: list[str] = []
    for _ in range(10):
        got += [item.link.name for item in client.deliveries]
        client.accept()
        rig.run(1)
    assert all(got.count(link.name) >= 4 for link in links)


@pytest.mark.parametrize("woken", [1, 2, 1000])
def test_each_of_many_has_its_turn_however_few_are_woken_at_once(
    rig: Rig, woken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are behind others which want nothing any more."""
    monkeypatch.setattr("holdfast.peers.use.LINKS_WOKEN", woken)
    node = hub(rig)
    purged, other = receiving(rig, node, "x", "y", "z"), receiving(rig, node, "a", "b", "c", "d")
    client, _ = greedy(rig, node)
    put_each(rig, node, "x", "a", "y", "b", "z", "c", "d")
    for queue in "xyz":
        assert rig.client(node).manage("PURGE", "queue", queue)[0] == 200
    got: list[str] = []
    for _ in range(4):
        client.accept(Released())
        rig.run(1)
        got += came(other)
        other.accept()
        rig.run(1)
    assert got == ["a", "b", "c", "d"] and not purged.deliveries and len(client.deliveries) == 2 and is_over(node)


@pytest.mark.parametrize("woken", [1, 1000])
def test_those_who_can_have_nothing_of_their_queue_do_not_wake_one_another(
    rig: Rig, woken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room, and they have credit: their turns end, and the node waits."""
    monkeypatch.setattr("holdfast.peers.use.LINKS_WOKEN", woken)
    node = hub(rig)
    others = [rig.client(node) for _ in range(3)]
    for other in others:
        other.receiver("unwanted")
    put(rig, node, "unwanted", "unwanted")
    for _ in others:
        for other in others:
            other.accept(Modified(undeliverable_here=True))
            rig.settle()
    client, _ = greedy(rig, node)
    put(rig, node, "unwanted", "large", size=3 * KIB)
    for _ in range(20):
        for each in (client, *others):
            each.accept(Modified(undeliverable_here=True) if each in others else None)
            rig.settle()
    assert node.queue("unwanted").messages == 2 and node.queue("busy").messages == 0
    assert is_over(node) and node.core is not None and node.core.next_deadline() != rig.now


def test_all_that_waited_come_first_however_few_are_woken_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before one whose queue is looked at in the same turn, after those that were woken."""
    monkeypatch.setattr("holdfast.peers.use.LINKS_WOKEN", 1)
    node = hub(rig)
    client, busy = greedy(rig, node, credit=2)
    link, other = client.receiver("a"), receiving(rig, node, "b")
    rig.settle()
    put_each(rig, node, "a", "b")
    link.grant(1)
    client.accept()
    busy.grant(2)
    rig.run(1)
    assert came(other) == ["b"] and came(client) == ["a"]


def test_who_is_not_reached_in_a_turn_of_the_node_keeps_its_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the queue of the one that settles is before its own also in the next turn."""
    node = hub(rig)
    other = receiving(rig, node, "b")
    client, busy = greedy(rig, node, credit=2)
    busy_queue, queue = node.queue("busy"), node.queue("b")
    put_each(rig, node, "b")
    presettled = client.receiver("a", credit=0, snd_settle_mode=1)
    rig.settle()
    put(rig, node, "a", *[str(number) for number in range(5)], size=1)
    assert node.core is not None
    node.core.memory.offered_count_max = 2
    presettled.grant(2)
    client.accept()
    busy.grant(2)
    rig.run(1)
    assert came(other) == ["b"] and queue.messages == 1 and busy_queue.messages == 18
    assert len([body for body in came(client) if len(body) == 1]) == 3


def test_who_is_not_reached_within_its_queue_keeps_its_turn(rig: Rig) -> None:
    """Other readers of the queue use up what the node hands out in a turn of its loop."""
    node = hub(rig)
    client, taker = rig.client(node), rig.client(node)
    source = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}
    subscription = client.receiver("work", credit=0, name="one", source=source)
    presettled = taker.receiver("work", credit=0, snd_settle_mode=1)
    rig.settle()
    put(rig, node, "work", *[str(number) for number in range(60)], size=1)
    holder, _ = greedy(rig, node)
    subscription.grant(5)
    rig.settle()
    assert node.core is not None
    node.core.memory.offered_count_max = 2
    rounds = 0
    while len(client.deliveries) < 5 and rounds < 20:
        rounds += 1
        presettled.grant(4)
        holder.accept(count=1)
        rig.settle()
    assert len(client.deliveries) == 5 and rounds < 10


@pytest.mark.parametrize("priorities", [False, True])
def test_nobody_else_has_a_turn_before_all_was_looked_through_for_whose_turn_it_is(
    rig: Rig, priorities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it can have lies behind more than one pump looks at, which its selector does not match."""
    monkeypatch.setattr(offering, "PUMP_LIMIT", 4)
    monkeypatch.setattr(looking, "SCAN_COUNT", 16)
    node = rig.node("hub", limits=LIMITS, queues=(QueueConfig(name="work", priorities=priorities),))
    client, sends = rig.client(node), rig.client(node)
    link = sends.sender("work")
    holder, _ = greedy(rig, node)
    for number in range(400):
        sends.send(link, str(number), properties=Properties(subject="other"))
        if number % 100 == 99:
            rig.settle()
    sends.send(link, "last", properties=Properties(subject="third"))
    rig.settle()
    consume(rig, client, THIRDS)
    rounds = 0
    while not client.deliveries and rounds < 20:
        rounds += 1
        holder.accept(count=1)
        rig.run(1)
    assert came(client) == ["last"] and rounds < 6


def test_nobody_waits_for_one_without_credit_while_another_user_s_search_goes_on_in_its_queue(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wanted more when its user was at the bound, and has as many hits as it may."""
    monkeypatch.setattr(offering, "PUMP_LIMIT", 4)
    monkeypatch.setattr(matches, "HITS_MAX", 4)
    users = tuple(UserConfig(name=name, password=f"password-of-{name}") for name in ("ann", "bob"))
    node = rig.node("hub", limits=LIMITS, users=users, queues=IN_MEMORY)
    node.unwatched.update(queue.name for queue in IN_MEMORY)

    def login(name: str) -> Client:
        return rig.login(node, name, f"password-of-{name}")

    def put_many(queue: str, subject: str, count: int, size: int) -> None:
        sends = login("bob")
        link = sends.sender(queue)
        for number in range(count):
            if number % 50 == 0:
                rig.settle()
            sends.send(link, str(number).ljust(size), properties=Properties(subject=subject))
        rig.settle()

    def select(client: Client, selector: str) -> Receiver:
        return client.receiver("a", source={"filter": {NAME: Described(NAME, selector)}})

    put_many("x", "other", 5, KIB)
    put_many("a", "third", 20, 1)
    holder, wants_nothing, waits, bob = login("ann"), login("ann"), login("ann"), login("bob")
    holding = holder.receiver("x")
    rig.settle()
    link = select(wants_nothing, THIRDS)
    rig.settle()
    put_many("a", "other", 600, 1)
    waiting = waits.receiver("b", credit=1)
    rig.settle()
    put_many("b", "other", 3, KIB)
    assert len(holder.deliveries) == 2 and not wants_nothing.deliveries and not waits.deliveries
    select(bob, "JMSType = 'none'")
    link.grant(0)
    holder.accept(count=1)
    holding.grant(0)
    for _ in range(2):
        turns = node.turns
        while not waits.deliveries and node.turns - turns < 20:
            assert rig.move()
        assert waits.deliveries
        waits.accept()
        waiting.grant(1)
    assert any(each.position < 600 for each in node.queue("a").shared.selections), "the search goes on"


def test_what_is_left_when_others_had_their_turn_is_handed_out_while_a_commit_lasts(rig: Rig) -> None:
    node = hub(rig)
    other = receiving(rig, node, "a")
    client, link = greedy(rig, node, credit=2, queue="d")
    put_each(rig, node, "a")
    producer = rig.client(node)
    sender = producer.sender("durable")
    rig.settle()
    node.hold_commits = True
    producer.send(sender, "waits")
    rig.settle()
    client.accept()
    link.grant(2)
    rig.settle()
    assert node.pending is not None and came(other) == ["a"] and len(client.deliveries) == 1


def test_a_drain_waits_while_it_is_the_turn_of_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for what it asks for once they had theirs, so it is not told that there is nothing."""
    monkeypatch.setattr("holdfast.peers.use.LINKS_WOKEN", 1)
    node = hub(rig)
    other = receiving(rig, node, "a", "b", "c")
    client, link = greedy(rig, node, credit=2)
    put_each(rig, node, "a", "b", "c", size=1)
    client.accept()
    link.grant(1, drain=True)
    rig.run(1)
    assert came(other) == ["a", "b", "c"] and len(client.deliveries) == 1 and link.credit == 0


def test_nobody_waits_for_the_turn_of_a_consumer_that_is_gone(rig: Rig) -> None:
    node = hub(rig)
    large, other = receiving(rig, node, "a"), receiving(rig, node, "b")
    client, _ = greedy(rig, node)
    put_each(rig, node, "a", "b", size=3 * KIB)
    client.accept()
    rig.run(1)
    assert came(large) == ["a"] and not other.deliveries and not is_over(node)
    other.close_transport()
    rig.settle()
    assert is_over(node)
    large.accept()
    rig.run(1)
    assert len(client.deliveries) == 2 and is_over(node)


def test_a_drain_without_settlements_waits_for_no_room(rig: Rig) -> None:
    """The user's bound does not count what comes settled, so that a drain gets all that the queue has, also what must
    first be stored as shown."""
    node = hub(rig)
    greedy(rig, node)
    put(rig, node, "durable", "one", "two")
    client = rig.client(node)
    link = client.receiver("durable", credit=0, snd_settle_mode=1)
    rig.settle()
    link.grant(5, drain=True)
    rig.run(1)
    assert came(client) == ["one", "two"] and link.credit == 0


def test_consumers_are_woken_when_all_is_counted_anew(rig: Rig) -> None:
    """A failure may have left a count that is too high."""
    node = hub(rig)
    other = receiving(rig, node, "a")
    assert node.core is not None
    users = node.core.users
    users.anonymous.given(2 * KIB)
    node.checks = False
    put(rig, node, "a", "a")
    assert not other.deliveries
    users.recover()
    rig.run(1)
    assert came(other) == ["a"] and is_over(node)


class Consumer:
    """One that counts how often its queue is to be offered."""

    returning = False
    visible = 10

    def __init__(self) -> None:
        self.cursor = self.queue = self
        self.touched = 0
        self.asked = 0
        """One past the last message about which it was asked."""
        self.wanted = 1

    def will_want(self) -> int:
        return self.wanted

    def asked_up_to(self, consumer: object) -> int:
        return self.asked

    def touch(self) -> None:
        self.touched += 1


def full(waiting: int) -> tuple[Use, list[Any], dict[Use, None]]:
    """A user at its bound, with so many consumers that wait; and the users that are to be woken."""
    waking: dict[Use, None] = {}
    use, consumers = Use("user", "ann", LIMITS, None, 0.0, waking), [cast(Any, Consumer()) for _ in range(waiting)]
    use.given(2 * KIB)
    assert all(use.block_if_full(consumer) for consumer in consumers)
    return use, consumers, waking


def test_a_higher_bound_wakes_those_that_wait() -> None:
    use, (consumer,), waking = full(1)
    use.change(UserConfig(name="ann", password="", unsettled_bytes_max=3 * KIB), LIMITS)
    assert use in waking
    use.wake()
    assert consumer.touched == 1 and not use.block_if_full(consumer)


def test_who_found_no_room_in_its_turn_is_woken_though_nobody_waits_behind_it() -> None:
    """What others hold may be settled by one that wants nothing."""
    use, (consumer,), waking = full(1)
    use.settled(KIB)
    use.wake()
    use.given(KIB)
    assert use.block_if_full(consumer)
    use.offered((), Work())
    assert use not in waking
    use.settled(KIB)
    assert use in waking
    use.wake()
    assert consumer.touched == 2 and not use.block_if_full(consumer)


def test_nobody_waits_for_one_that_has_left_before_its_turn() -> None:
    use, (consumer,), _ = full(1)
    use.leave(consumer)
    use.settled(KIB)
    assert not use.block_if_full(cast(Any, Consumer()))


def test_a_turn_lasts_until_its_consumer_was_asked_about_all_that_was_there_when_it_began() -> None:
    """What came later keeps nobody waiting."""
    use, (consumer,), _ = full(1)
    use.settled(KIB)
    use.wake()
    consumer.visible, work = 20, Work[Any]()
    for asked in (0, 9):
        consumer.asked = asked
        work.cut_short.add(consumer)
        use.offered((), work)
        assert consumer in use.offered_now
        use.wake()
    consumer.asked = 10
    use.offered((), work)
    assert not use.offered_now


def test_nobody_waits_for_one_that_wants_nothing_while_its_queue_is_searched_for_others() -> None:
    """Without room it is not asked what it wants: it waits for that."""
    use, (consumer,), _ = full(1)
    use.settled(KIB)
    use.wake()
    work = Work[Any]()
    work.cut_short.add(consumer)
    consumer.wanted = 0
    use.given(KIB)
    use.offered((), work)
    assert consumer in use.offered_now
    use.settled(KIB)
    use.wake()
    use.offered((), work)
    assert not use.offered_now


@pytest.mark.parametrize("why", ["left", "unreached", "returning"])
def test_a_turn_lasts_until_its_consumer_is_asked(why: str) -> None:
    use, (consumer,), _ = full(1)
    use.settled(KIB)
    use.wake()
    work = Work[Any]()
    if why == "unreached":
        work.unreached.add(consumer)
    consumer.returning = why == "returning"
    use.offered([consumer] if why == "left" else (), work)
    assert consumer in use.offered_now
    consumer.returning = False
    use.offered((), Work())
    assert not use.offered_now


def test_who_comes_later_is_not_woken_with_the_last_of_those_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.peers.use.LINKS_WOKEN", 2)
    use, (first, second, third), _ = full(3)
    use.settled(KIB)
    use.wake()
    later = cast(Any, Consumer())
    assert use.block_if_full(later) and [each.touched for each in (first, second, third)] == [1, 1, 0]
    for each in (first, second):
        use.served(each)
    use.wake()
    assert third.touched == 1 and not later.touched and use.block_if_full(later) and not use.block_if_full(third)


@pytest.mark.parametrize("selectors", [(THIRDS, OTHERS), (OTHERS, None), ("TRUE", "JMSType = 'third' OR TRUE")])
def test_consumers_at_their_users_bound_get_messages_in_order(selectors: tuple[str, str | None]) -> None:
    """One is blocked when one entry is asked about, and might be free again when the next is, in the same turn."""
    rig = Rig()
    node = rig.node("hub", limits=LIMITS)
    sizes = Random(7).choices([1, KIB // 5, 3 * KIB], [80, 15, 5], k=300)
    sender = rig.client(node)
    link = sender.sender("work")
    rig.settle()
    for number, size in enumerate(sizes):
        subject = Properties(subject="third" if number % 3 == 0 else "other")
        sender.send(link, str(number).ljust(size), properties=subject)
        rig.settle()
    clients = [rig.client(node) for _ in selectors]
    for client, selector in zip(clients, selectors, strict=True):
        consume(rig, client, selector)
    got: list[list[int]] = [[] for _ in clients]
    for _ in range(600):
        for client, found in zip(clients, got, strict=True):
            found += numbers(client)
            client.accept()
            rig.settle()
    assert all(found == sorted(found) for found in got)
    assert sorted(number for found in got for number in found) == list(range(300))
