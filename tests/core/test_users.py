"""What each user and neighbour may have, at the bound and one past it (peers/users.py)."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Properties, Released, Source, Target
from holdfast.engine import events
from holdfast.peers.use import Use
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.limits import Limits
from holdfast.units import KIB
from support.limits import RESOURCE
from support.rig import Client, Node, Rig

USERS = (
    UserConfig(
        name="ann", password="a", connections_max=2, links_max=3, unsettled_bytes_max=50 * KIB, requests_per_s=5
    ),
    UserConfig(name="bob", password="b"),
)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def login(rig: Rig, node: Node, name: str = "ann") -> Client:
    return rig.login(node, name, name[0])


def use(node: Node, name: str) -> dict[str, Any]:
    assert node.core is not None
    (found,) = [row for row in node.core.users.status("") if row["user"] == name]
    return found


def payload(size: int) -> bytes:
    return b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4, "big") + bytes(size - 8)


def test_connections_of_a_user_and_one_more(rig: Rig) -> None:
    node = rig.node("hub", users=USERS)
    first, second = login(rig, node), login(rig, node)
    rig.settle()
    assert not first.over and not second.over and use(node, "ann")["connections"] == 2
    third, other = login(rig, node), login(rig, node, "bob")
    rig.run(1)
    assert third.over and not other.over and not first.over
    assert any("user 'ann' has 2 connections, the most it may have" in line for line in node.logs)
    first.close_transport()
    rig.settle()
    again = login(rig, node)
    rig.run(1)
    assert not again.over and use(node, "ann") | {"connections": 2, "refused": 1} == use(node, "ann")


def test_totals_are_of_all_hosts_and_do_not_fall_when_a_user_is_removed(rig: Rig) -> None:
    """Prometheus takes a counter that falls for a restart."""
    host = UserConfig(name="cleo", password="c", vhost="acme")
    node = rig.node("hub", users=(*USERS, host), vhosts=(VhostConfig(name="acme"),))
    first = [login(rig, node) for _ in range(3)]
    rig.run(1)
    assert sum(client.over for client in first) == 1
    users = node.core.users
    users.by_name[host.key].refused += 1
    assert users.totals() == {"refused": 2, "requests": 0, "requests_delayed": 0}
    for client in first:
        client.close_transport()
    rig.settle()
    node.handle(events.ConfigRead(config=replace(node.config, users=USERS[1:])))
    rig.run(1)
    assert list(users.by_name) == ["bob"] and users.totals()["refused"] == 2


def test_user_connections_max_bounds_those_without_a_name_together(rig: Rig) -> None:
    node = rig.node("hub", limits=Limits(user_connections_max=2))
    kept = [rig.client(node), rig.client(node)]
    rig.settle()
    more = rig.client(node)
    rig.run(1)
    assert more.over and not any(client.over for client in kept)
    assert use(node, "anonymous")["connections"] == 2


def test_user_connections_max_holds_for_clients_and_leaves_the_neighbour_its_own(rig: Rig) -> None:
    jfk, hub = rig.pair(limits=Limits(user_connections_max=1))
    rig.run(3)
    assert rig.client(hub) is not None
    rig.settle()
    more = rig.client(hub)
    rig.run(3)
    assert more.over and hub.core is not None and hub.core.neighbours["jfk"].established
    assert use(hub, "jfk")["kind"] == "neighbour" and use(hub, "jfk")["connections"] == 1
    jfk.crash()
    rig.run(5)
    jfk.start()
    rig.run(5)
    assert hub.core.neighbours["jfk"].established


def test_links_of_a_user_and_one_more(rig: Rig) -> None:
    node = rig.node("hub", users=USERS, create_queues=True)
    first, second = login(rig, node), login(rig, node)
    links = [first.sender("a"), first.sender("b"), second.sender("c")]
    rig.settle()
    assert not first.detached and not second.detached and use(node, "ann")["links"] == 3
    second.sender("d")
    rig.settle()
    assert [str(item.error.condition) for item in second.detached if item.error] == [RESOURCE]
    links[0].detach(closed=True)
    rig.settle()
    second.detached.clear()
    second.sender("e")
    rig.settle()
    assert not second.detached and use(node, "ann")["refused"] == 1


@pytest.mark.parametrize(("count", "refused"), [(4, 0), (5, 1)])
def test_user_links_max(rig: Rig, count: int, refused: int) -> None:
    node = rig.node("hub", limits=Limits(user_links_max=4))
    client = rig.client(node)
    for number in range(count):
        client.sender(f"q{number}")
        rig.settle()
    assert len([item for item in client.detached if item.error]) == refused


def test_unsettled_bytes_of_a_user_are_bounded_over_its_links_and_others_go_on(rig: Rig) -> None:
    node = rig.node("hub", users=USERS, create_queues=True)
    producer = login(rig, node, "bob")
    senders = [producer.sender("a"), producer.sender("b")]
    rig.settle()
    first, second = login(rig, node), login(rig, node)
    first.receiver("a")
    second.receiver("b")
    rig.settle()
    for number in range(10):
        for link in senders:
            link.send(payload(10 * KIB), context=number)
            rig.settle()  # what is handed out in one run may go beyond
    held = first.deliveries + second.deliveries
    size = use(node, "ann")["unsettled_bytes"]
    assert len(held) == 5 and 50 * KIB <= size < 51 * KIB
    other = login(rig, node, "bob")
    other.receiver("b")
    rig.run(1)
    assert len(other.deliveries) >= 5
    for client in (first, second):
        for item in client.deliveries:
            item.link.settle(item.delivery_id, item.delivery_id, Accepted() if item.delivery_id % 2 else Released())
        client.deliveries.clear()
    rig.run(1)
    assert first.deliveries
    first.close_transport()
    second.close_transport()
    rig.run(1)
    assert node.core is not None and node.core.users.by_name["ann"].unsettled_bytes == 0


def test_with_room_again_each_consumer_of_the_user_is_offered_what_waits_for_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait before it and want nothing any more: a turn wakes a few, and the next ones the others."""
    monkeypatch.setattr("holdfast.peers.use.LINKS_WOKEN", 3)
    node = rig.node("hub", limits=Limits(user_unsettled_bytes_max=10 * KIB))
    client, other = rig.client(node), rig.client(node)
    link = client.sender("held")
    rig.settle()
    link.send(payload(20 * KIB), context=0)
    holder = client.receiver("held")
    rig.settle()
    (held,) = client.deliveries
    names = [f"q{number}" for number in range(20)]
    for name in names:
        client.receiver(name)
        link = client.sender(name)
        rig.settle()
        client.send(link, name)
        rig.settle()
    for name in names[:-1]:
        assert other.manage("PURGE", "queue", name)[0] == 200
    rig.run(1)
    assert client.deliveries == [held]
    holder.settle(held.delivery_id, held.delivery_id, Accepted())
    rig.settle()
    assert client.bodies()[1:] == names[-1:]
    assert node.core is not None and not node.core.users.waking


@pytest.mark.parametrize(("bound", "count"), [(30 * KIB, 3), (30 * KIB + 1, 4)])
def test_user_unsettled_bytes_max(rig: Rig, bound: int, count: int) -> None:
    """At the bound nothing more is given; the last message may go beyond it. A drain is answered meanwhile."""
    node = rig.node("hub", limits=Limits(user_unsettled_bytes_max=bound))
    client = rig.client(node)
    link = client.sender("a")
    rig.settle()
    for number in range(6):
        link.send(payload(10 * KIB), context=number)
        rig.settle()
    receiver = client.receiver("a", credit=0)
    rig.settle()
    for _ in range(6):
        receiver.grant(1)
        rig.settle()
    assert len(client.deliveries) == count
    receiver.grant(5, drain=True)
    rig.settle()
    assert receiver.credit == 0
    item = client.deliveries.pop(0)
    item.link.settle(item.delivery_id, item.delivery_id, Accepted())
    receiver.grant(1)
    rig.run(1)
    assert len(client.deliveries) == count


def ask(client: Client, link: Any, count: int) -> None:
    request = Message(
        properties=Properties(reply_to="replies"),
        application_properties={"operation": "QUERY", "type": "holdfast:subscription", "name": ""},
        value={},
    ).encode()
    for _ in range(count):
        link.send(request, context=None, settled=True)
    client.flush()


@pytest.mark.parametrize(("count", "delayed"), [(5, 0), (6, 1)])
def test_user_requests_per_s(rig: Rig, count: int, delayed: int) -> None:
    node = rig.node("hub", limits=Limits(user_requests_per_s=5))
    client = rig.client(node)
    replies = client.session.attach_receiver("replies", *_management())
    replies.grant(100)
    link = client.sender("$management")
    rig.settle()
    ask(client, link, count)
    rig.settle()
    assert len(client.deliveries) == 5 and use(node, "anonymous")["requests_delayed"] == delayed
    rig.run(0.25)
    assert len(client.deliveries) == count


def _management() -> tuple[Any, Any]:
    return Source(address="$management"), Target(address="replies")


def test_a_flood_of_requests_of_one_user_keeps_no_other_waiting(rig: Rig) -> None:
    node = rig.node("hub", users=USERS)
    client = login(rig, node)
    client.session.attach_receiver("replies", *_management()).grant(1_000)
    links = [client.sender("$management"), client.sender("$management")]
    rig.settle()
    for link in links:
        ask(client, link, 20)
    rig.settle()
    assert len(client.deliveries) == 5
    other = login(rig, node, "bob")
    assert other.manage("STATUS", "node")[0] == 200
    rig.run(1)
    assert 9 <= len(client.deliveries) <= 11
    links[0].detach(closed=True)
    rig.run(10)
    assert node.core is not None and not node.core.users.waiting and 20 <= len(client.deliveries) < 40
    status = {row["user"]: row for row in other.manage("STATUS", "node")[1]["users"]}
    assert status["ann"]["requests_per_s"] == 5 and status["ann"]["requests"] == len(client.deliveries)


def test_a_turn_looks_at_few_of_the_links_whose_requests_wait_for_their_users_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: COST_MAX when they come, and those whose time has come afterwards, each in its turn."""
    monkeypatch.setattr("holdfast.management.requests.COST_MAX", 20)
    node = rig.node("hub", limits=Limits(user_requests_per_s=5))
    client = rig.client(node)
    client.session.attach_receiver("replies", *_management()).grant(1_000)
    links = [client.session.attach_sender(f"s{n}", Source(), Target(address="$management")) for n in range(200)]
    rig.settle()
    core = node.core
    assert core is not None
    looks, most, woken = [0], [0], [0]
    admit_request, tick, handle = core.users.admit_request, core.users.tick, node.handle

    def counted(link: Any) -> bool:
        looks[0] += 1
        return admit_request(link)

    def ticked(now: float) -> None:
        before = len(core.users.waiting)
        tick(now)
        woken[0] = max(woken[0], before - len(core.users.waiting))

    def handled(event: Any) -> None:
        looks[0] = 0
        handle(event)
        most[0] = max(most[0], looks[0])

    monkeypatch.setattr(core.users, "admit_request", counted)
    monkeypatch.setattr(core.users, "tick", ticked)
    monkeypatch.setattr(node, "handle", handled)
    for link in links:
        ask(client, link, 2)
    rig.settle()
    assert most[0] == 20 and len(client.deliveries) == 5 and len(core.users.waiting) == 200
    most[0] = 0
    rig.run(10)
    assert (most[0], woken[0]) == (1, 1) and 53 <= len(client.deliveries) <= 56
    rig.run(35)
    assert 198 <= len(client.deliveries) <= 231
    asked = [link for link in core.users.waiting if len(link.waiting) == 2]
    assert len(asked) < 10, "each has its turn before any has its second"
    client.end.wire.cut()
    rig.settle()
    assert not core.users.waiting and not core.users.granted and not core.users.uses


def test_a_message_larger_than_a_consumer_takes_does_not_count_for_its_user(rig: Rig) -> None:
    """Neither where it ends the link nor where it becomes a dead letter: else the user gets nothing any more."""
    node = rig.node("hub", users=USERS, create_queues=True, limits=Limits(too_large_links_max=1))
    producer = login(rig, node, "bob")
    link = producer.sender("a")
    rig.settle()
    link.send(payload(60 * KIB), context=0)
    rig.settle()
    client = login(rig, node)
    for _ in range(2):
        client.receiver("a", max_message_size=1_000)
        rig.settle()
        assert use(node, "ann")["unsettled_bytes"] == 0
    assert node.queue("$dead-letters").messages == 1 and node.queue("a").messages == 0
    link.send(payload(100), context=1)
    rig.settle()
    assert len(client.deliveries) == 1


@pytest.mark.parametrize("step", ["given", "settled"])
def test_a_failure_as_bytes_are_counted_leaves_the_user_what_its_consumers_hold(
    rig: Rig, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what one connection's failure left over would keep messages from its user for good."""
    node = rig.node("hub", users=USERS)
    ann, another, bob = login(rig, node), login(rig, node), login(rig, node, "bob")
    link = bob.sender("work")
    rig.settle()
    for client in (ann, another):
        client.receiver("work", credit=2)
        rig.settle()
        for number in range(2):
            bob.send(link, str(number).ljust(11 * KIB))
        rig.settle()
    assert node.core is not None and len(ann.deliveries) == len(another.deliveries) == 2
    ann_use = node.core.users.by_name["ann"]
    held = ann_use.unsettled_bytes
    count = getattr(Use, step)

    def once(self: Use, size: int) -> None:
        if not node.core.containment.peers_ended and size:
            raise RuntimeError("for once")
        count(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(Use, step, once)
        if step == "settled":
            ann.accept(Accepted(), count=1)
        else:
            another.deliveries[0].link.grant(1)
            rig.settle()
            bob.send(link, "more")
        rig.settle()
    assert [ann.over, another.over].count(True) == 1 and ann_use.unsettled_bytes == held // 2
    for client in (ann, another):
        if not client.over:
            client.accept()
    rig.run(1)
    assert ann_use.unsettled_bytes == 0


def test_a_consumer_that_is_lost_resumed_and_lost_again_counts_once_and_is_told_of(rig: Rig) -> None:
    node = rig.node("hub", users=USERS)
    bob = login(rig, node, "bob")
    link = bob.sender("work")
    rig.settle()
    for number in range(3):
        bob.send(link, str(number).ljust(1 * KIB))
    rig.settle()
    unsettled = None
    for _ in range(3):
        ann = rig.client(node, mechanism="PLAIN", user="ann", password="a", container_id="client")
        ann.receiver("work", name="mine", credit=3, source={"timeout": 60}, unsettled=unsettled)
        rig.settle()
        held = use(node, "ann")["unsettled_bytes"]
        assert 3 * KIB < held < 4 * KIB
        unsettled = unsettled or {item.tag: None for item in ann.deliveries}
        ann.close_transport()
        rig.settle()
        assert (use(node, "ann")["connections"], use(node, "ann")["unsettled_bytes"]) == (0, held)
    rig.run(61)
    assert not any(row["user"] == "ann" for row in node.core.users.status(""))


@pytest.mark.parametrize("what", ["connections", "links"])
def test_who_is_at_a_bound_is_told_which_one_it_is(what: str) -> None:
    """The user's own, or the one of all."""
    for own, key in ((2, f"{what}_max of the [[user]]"), (None, f"user_{what}_max")):
        config = replace(USERS[1], **{f"{what}_max": own})
        text = Use("user", "bob", Limits(), config, 0.0, {}).bound_reached_text(2, what)
        assert text == f"user 'bob' has 2 {what}, the most it may have ({key})"
