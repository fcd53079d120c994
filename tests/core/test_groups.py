"""Messages of one transaction for one other node become visible there together (docs/adr/0073; history group-gap)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Modified
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries import entry
from holdfast.custody.arrival import group_bounds
from holdfast.endpoints.transactions import together
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.hops import names, reroute, send, snapshot
from support.rig import Client, Node, Rig
from support.transactions import Controller

ORDERS = ("strict", "bounded", "none")


class Shown:
    """What each commit of a node has made visible in its queues, in order."""

    def __init__(self, node: Node, *queues: str) -> None:
        self.node, self.queues = node, queues or ("work", "other")
        self.seen: set[str] = set()
        self.steps: list[list[str]] = []
        finish = node.finish_commit

        def finished() -> None:
            finish()
            self.look()

        node.finish_commit = finished  # type: ignore[method-assign]

    def look(self) -> None:
        catalog = self.node.core.catalog if self.node.core is not None else None
        if catalog is None:
            return
        here = {body for name in self.queues if name in catalog.queues for body in self.node.bodies(name)}
        if here - self.seen:
            self.steps.append(sorted(here - self.seen))
            self.seen |= here


def world(order: str = "strict", *, jfk: dict[str, Any] | None = None, **hub: Any) -> tuple[Rig, Node, Node, Shown]:
    """jfk has few messages under way at once, so that a line that breaks leaves it with the rest."""
    rig = Rig()
    hub.setdefault("queues", tuple(QueueConfig(name=name, order=order) for name in ("work", "other")))
    fields = {"limits": Limits(hop_in_doubt_max=1), **(jfk or {})}
    jfk_node, hub_node = rig.pair(jfk=fields, **hub)
    rig.run(8)
    return rig, jfk_node, hub_node, Shown(hub_node)


def commit(
    rig: Rig, node: Node, *bodies: str, to: str = "hub", queues: tuple[str, ...] = ("work",), **parts: Any
) -> Client:
    """Sends all of them in one transaction, to each queue in turn."""
    client = rig.client(node)
    controller = Controller(client)
    links = [client.sender(f"{queue}@{to}") for queue in queues]
    rig.settle()
    mine = controller.begin()
    for at, body in enumerate(bodies):
        assert controller.send(mine, links[at % len(links)], body, **parts) == Accepted()
    assert controller.commit(mine) == Accepted()
    client.close_transport()
    return client


def go_away(rig: Rig) -> None:
    """Nobody reaches anybody."""
    rig.refuse_dials = True
    for wire in [*rig.between("jfk", "hub"), *rig.between("a", "b")]:
        wire.cut()
    rig.settle()


def come_half_way(rig: Rig, node: Node, count: int) -> None:
    """The line is there again, until so many of a group wait at its destination."""
    rig.refuse_dials = False
    for _ in range(20_000):
        held = node.core.catalog.queues.get("$waiting") if node.core is not None else None
        if held is not None and held.messages == count and held.visible == held.next_sequence:
            return
        if not rig.move():
            rig.pass_time(0.05)
    raise AssertionError("they do not come")


def half_way(order: str = "strict", **hub: Any) -> tuple[Rig, Node, Node, Shown]:
    """The first two of five are at the hub, the line is cut."""
    rig, jfk, hub_node, shown = world(order, **hub)
    go_away(rig)
    commit(rig, jfk, *names(1, 5), queues=("work", "other"))
    come_half_way(rig, hub_node, 2)
    go_away(rig)
    assert waiting(hub_node) == 2 and shown.steps == []
    return rig, jfk, hub_node, shown


def waiting(node: Node) -> int:
    assert node.core is not None
    return sum(len(origin.waiting) for origin in node.core.catalog.ledger.all_origins())


def go_on(rig: Rig, seconds: float = 40) -> None:
    rig.refuse_dials = False
    rig.run(seconds)


def apart(node: Node) -> dict[str, int]:
    assert node.core is not None
    return dict(node.core.destination.groups.apart)


# ------------------------------------------------------------------------------------------------ together


@pytest.mark.parametrize("order", ORDERS)
def test_messages_of_one_transaction_are_shown_together(order: str) -> None:
    rig, jfk, hub, shown = world(order)
    commit(rig, jfk, *names(1, 5), queues=("work", "other"))
    rig.run(5)
    assert shown.steps == [names(1, 5)]
    assert hub.bodies("work") == ["1", "3", "5"] and hub.bodies("other") == ["2", "4"]
    assert waiting(hub) == 0 and not apart(hub) and hub.queue("$waiting").messages == 0
    assert not any(value[1] & entry.GROUP for _, value in hub.queue("work").read(0, count_max=9, bytes_max=10**6))


@pytest.mark.parametrize("order", ORDERS)
def test_a_line_that_breaks_shows_no_part(order: str) -> None:
    rig, _, hub, shown = half_way(order)
    rig.run(300)
    assert shown.steps == [] and waiting(hub) == 2
    go_on(rig)
    assert shown.steps == [names(1, 5)] and not apart(hub)


def test_messages_without_a_transaction_and_one_by_itself_wait_for_nothing() -> None:
    rig, jfk, hub, _ = world()
    commit(rig, jfk, "1")
    send(rig, jfk, "2", "3", to="hub")
    rig.run(5)
    assert hub.bodies("work") == names(1, 3) and "$waiting" not in hub.core.catalog.queues  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ORDERS)
def test_what_comes_behind_a_group_does_as_its_queue_says(order: str) -> None:
    rig, jfk, hub, shown = half_way(order)
    send(rig, jfk, "6", to="hub")
    go_on(rig)
    assert shown.seen == set(names(1, 6))
    if order != "none":
        assert shown.steps[0] == names(1, 5) or shown.steps == [names(1, 6)]
        assert hub.bodies("work") == ["1", "3", "5", "6"]


@pytest.mark.parametrize("restart", ["hub", "jfk", "both"])
def test_a_restart_while_a_group_waits(restart: str) -> None:
    rig, jfk, hub, shown = half_way()
    for node in (jfk, hub):
        if restart in (node.name, "both"):
            node.crash()
            node.start()
    rig.run(100)
    assert shown.steps == [] and waiting(hub) == 2
    go_on(rig)
    assert shown.steps == [names(1, 5)] and not apart(hub)


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_refused_commits_while_a_group_comes_and_as_it_is_shown(refused: int) -> None:
    rig, _, hub, shown = half_way()
    hub.refuse = refused
    go_on(rig)
    assert hub.refuse == 0 and shown.steps == [names(1, 5)]
    assert hub.bodies("work") == ["1", "3", "5"] and hub.queue("$waiting").messages == 0


def test_another_way_while_a_group_waits() -> None:
    rig = Rig()
    few = {"limits": Limits(hop_in_doubt_max=1)}
    a, b, c, d = rig.graph(
        "a-b", "a-c", "b-d", "c-d", routes={"a": {"d": "b"}, "b": {"a": "a"}, "c": {"a": "a"}, "d": {"a": "b"}},
        a=few, d={"queues": (QueueConfig(name="work", order="strict"),)},
    )  # fmt: skip
    rig.run(8)
    shown = Shown(d)
    go_away(rig)
    commit(rig, a, *names(1, 30), to="d")
    rig.refuse_dials = False
    transit = b.core.catalog.transit  # type: ignore[union-attr]
    while "d" not in transit or transit["d"].in_total < 10:
        if not rig.move():
            rig.pass_time(0.05)
    reroute(rig, a, d="c")
    rig.run(40)
    assert shown.steps == [sorted(names(1, 30))] and d.bodies("work") == names(1, 30)
    assert len(c.core.forwarding.passed) > 0 and not apart(d)  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------ group-gap


@pytest.mark.parametrize("order", ORDERS)
def test_a_member_that_expires_on_its_way_holds_nothing_up(order: str) -> None:
    rig, jfk, hub, shown = world(order)
    client = rig.client(jfk)
    controller = Controller(client)
    link = client.sender("work@hub")
    rig.settle()
    mine = controller.begin()
    go_away(rig)
    for body in names(1, 4):
        header = Header(durable=True, ttl=2_000) if body == "3" else None
        assert controller.send(mine, link, body, header=header) == Accepted()
    assert controller.commit(mine) == Accepted()
    come_half_way(rig, hub, 2)
    go_away(rig)
    rig.run(20)
    go_on(rig)
    assert shown.steps == [["1", "2", "4"]] and not apart(hub) and waiting(hub) == 0


def test_a_member_that_expires_while_it_waits() -> None:
    rig, jfk, hub, shown = world()
    client = rig.client(jfk)
    controller = Controller(client)
    link = client.sender("work@hub")
    rig.settle()
    mine = controller.begin()
    go_away(rig)
    for body in names(1, 4):
        header = Header(durable=True, ttl=5_000) if body == "2" else None
        assert controller.send(mine, link, body, header=header) == Accepted()
    assert controller.commit(mine) == Accepted()
    come_half_way(rig, hub, 2)
    go_away(rig)
    rig.run(20)
    assert waiting(hub) == 1
    go_on(rig)
    assert shown.steps == [["1", "3", "4"]] and not apart(hub)


@pytest.mark.parametrize("queue", ["gone", "memory"])
def test_a_member_that_becomes_a_dead_letter_holds_nothing_up(queue: str) -> None:
    queues = (QueueConfig(name="work", order="strict"), QueueConfig(name="memory", durable=False))
    rig, jfk, hub, shown = world(queues=queues, create_queues=False)
    commit(rig, jfk, *names(1, 4), queues=("work", queue))
    rig.run(5)
    assert shown.steps == [["1", "3"]] and hub.bodies("$dead-letters") == ["2", "4"] and waiting(hub) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_members_that_are_deleted_on_their_way(order: str) -> None:
    """An operator purges what has not gone: the rest comes, together."""
    rig, jfk, hub, shown = half_way(order)
    status, _, why = rig.client(jfk).manage("PURGE", "queue", "@hub")
    assert status == 200, why
    go_on(rig)
    assert shown.steps == [["1", "2"]] and not apart(hub)


@pytest.mark.parametrize("order", ORDERS)
def test_members_that_never_come_are_waited_for_no_longer_than_group_wait_s(order: str) -> None:
    rig, _, hub, shown = half_way(order, limits=Limits(group_wait_s=600))
    rig.run(590)
    hub.crash()
    hub.start()
    assert shown.steps == []
    rig.run(20)
    assert shown.steps == [["1", "2"]] and apart(hub) == {group_bounds.INCOMPLETE: 1}
    assert any("the rest of it did not come within 600 s (group_wait_s)" in line for line in hub.logs)
    go_on(rig)
    assert shown.seen == set(names(1, 5)) and waiting(hub) == 0
    assert shown.steps[1:] == [["3", "4", "5"]]  # what is late comes together too


def test_an_operator_gives_up_what_is_missing() -> None:
    rig, _, hub, shown = half_way()
    status, body, why = rig.client(hub).manage("SKIP", "queue", "work")
    assert status == 200, why
    rig.run(2)
    assert shown.steps == [["1", "2"]] and body
    go_on(rig)
    assert sorted(shown.seen) == names(1, 5)  # the others come late


def test_an_origin_whose_disk_was_replaced_keeps_nobody_waiting() -> None:
    rig, jfk, hub, shown = half_way()
    jfk.crash()
    jfk.store = type(jfk.store)(mint_from=rig.uuid)
    jfk.start()
    go_on(rig, 100)
    assert shown.steps == [["1", "2"]] and waiting(hub) == 0


def test_a_store_that_was_put_back_sends_its_rest_by_itself() -> None:
    """Messages that a store which became another numbers anew are shown one by one."""
    rig, jfk, hub, shown = world()
    send(rig, jfk, "0", to="hub")
    rig.run(1)
    old = snapshot(jfk)
    send(rig, jfk, "x", to="hub")
    rig.run(3)
    rig.refuse_dials = True
    jfk.crash()
    jfk.store = old
    old.copied = None
    jfk.start()
    commit(rig, jfk, *names(1, 3))
    go_on(rig, 100)
    assert set(names(1, 3)) <= shown.seen and waiting(hub) == 0


# ------------------------------------------------------------------------------------------------ bounds


def test_more_than_group_messages_max_are_shown_by_themselves() -> None:
    rig, jfk, hub, shown = world(jfk={"limits": Limits(hop_in_doubt_max=1, group_messages_max=3)})
    commit(rig, jfk, *names(1, 4))
    commit(rig, jfk, *names(5, 7))
    rig.run(5)
    assert shown.steps == [["1"], ["2"], ["3"], ["4"], ["5", "6", "7"]]
    assert jfk.core.transactions.groups_apart == 1 and not apart(hub)  # type: ignore[union-attr]
    assert any("4 messages for 'hub'; group_messages_max is 3" in line for line in jfk.logs)


def test_the_destination_has_a_bound_of_its_own() -> None:
    rig, jfk, hub, shown = world(limits=Limits(group_messages_max=3))
    commit(rig, jfk, *names(1, 4))
    commit(rig, jfk, *names(5, 7))
    rig.run(5)
    assert shown.steps == [["1"], ["2"], ["3"], ["4"], ["5", "6", "7"]]
    assert apart(hub) == {group_bounds.TOO_LARGE: 1}


def test_a_group_with_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_bounds, "GROUP_BYTES_MAX", 1_000)
    rig, jfk, hub, shown = world()
    commit(rig, jfk, *[str(number) * 200 for number in range(1, 5)])
    rig.run(5)
    assert len(shown.seen) == 4 and waiting(hub) == 0
    assert apart(hub) == {group_bounds.TOO_LARGE: 1}


def test_a_transaction_with_too_many_bytes_is_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "GROUP_BYTES_MAX", 1_000)
    rig, jfk, hub, shown = world()
    commit(rig, jfk, *[str(number) * 400 for number in range(1, 5)])
    rig.run(5)
    assert len(shown.seen) == 4 and not apart(hub)
    assert jfk.core.transactions.groups_apart == 1  # type: ignore[union-attr]
    assert any("bytes for 'hub'; the limit is 1000" in line for line in jfk.logs)


def test_too_many_groups_of_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_bounds, "GROUPS_MAX", 0)
    rig, jfk, hub, shown = world()
    commit(rig, jfk, *names(1, 3))
    rig.run(5)
    assert shown.steps == [["1"], ["2"], ["3"]] and apart(hub) == {group_bounds.TOO_MANY: 1}


def test_a_group_that_its_queue_can_never_hold() -> None:
    rig, jfk, hub, shown = world(queues=(QueueConfig(name="work", order="strict", messages_max=3, when_full="block"),))
    commit(rig, jfk, *names(1, 5))
    rig.run(5)
    assert shown.seen == set(names(1, 3)) and apart(hub) == {group_bounds.NO_ROOM: 1}
    client = rig.client(hub)
    client.receiver("work", credit=100)
    rig.run(2)
    client.accept()
    rig.run(5)
    assert shown.seen == set(names(1, 5)) and waiting(hub) == 0


def test_a_group_waits_for_room_for_all_of_it_though_others_send_on() -> None:
    """Room is kept for it: a producer here would take each place as it becomes free."""
    rig, jfk, hub, shown = world(queues=(QueueConfig(name="work", order="strict", messages_max=4, when_full="block"),))
    local = rig.client(hub)
    link = local.sender("work")
    rig.settle()
    for at in range(4):
        local.send(link, f"x{at}")
    rig.settle()
    assert hub.queue("work").messages == 4
    reader = rig.client(hub)
    takes = reader.receiver("work", credit=1)
    rig.settle()
    reader.accept()  # one place: the first of the group comes and begins to wait
    rig.settle()
    commit(rig, jfk, *names(1, 3))
    rig.run(2)
    assert waiting(hub) == 3
    sent = 0
    for at in range(4, 12):
        if link.credit > 0:
            local.send(link, f"x{at}")
            sent += 1
        rig.run(1)
        takes.grant(1)
        rig.run(1)
        reader.accept()
        rig.run(1)
    assert sent > 1  # once the group is there
    assert [step for step in shown.steps if "1" in step] == [names(1, 3)] and not apart(hub)


def test_a_queue_that_is_deleted_while_a_group_waits_for_its_room() -> None:
    rig, jfk, hub, _ = world(queues=(QueueConfig(name="work", order="strict", messages_max=4, when_full="block"),))
    local = rig.client(hub)
    send(rig, hub, "x0", "x1", to="hub").close_transport()
    commit(rig, jfk, *names(1, 3))
    rig.run(2)
    assert waiting(hub) == 3 and hub.queue("work").awaited == 3 and hub.core is not None
    status, _, why = local.manage("DELETE", "queue", "work")
    assert status == 200, why
    hub.core.validate()
    rig.run(2)
    hub.core.validate()
    assert waiting(hub) == 0 and sorted(hub.bodies("work")) == names(1, 3)  # it is made anew for them


def test_a_turn_is_not_bounded_within_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.custody.arrival.destination.RELEASE_COUNT", 2)
    rig, jfk, _, shown = world("none")
    commit(rig, jfk, *names(1, 9))
    rig.run(5)
    assert shown.steps == [names(1, 9)]


def test_a_turn_is_bounded_within_a_group_that_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of it is shown by itself."""
    monkeypatch.setattr("holdfast.custody.arrival.destination.RELEASE_COUNT", 1)
    rig, _, hub, shown = half_way("none", limits=Limits(group_wait_s=10))
    rig.run(20)
    assert shown.steps == [["1"], ["2"]] and apart(hub) == {group_bounds.INCOMPLETE: 1}


@pytest.mark.parametrize("looks", [1, 3, 100])
@pytest.mark.parametrize("order", ORDERS)
def test_groups_are_shown_although_one_look_uses_up_a_turns_share(
    order: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.custody.arrival.destination.LOOKS_MAX", looks)
    rig, jfk, hub, shown = world(order, jfk={"limits": Limits()})
    hub.hold_commits = True
    for first in range(1, 41, 2):
        commit(rig, jfk, *names(first, first + 1))
    rig.run(1)
    hub.hold_commits = False
    rig.run(5)
    assert waiting(hub) == 0 and hub.bodies("work") == names(1, 40) and not apart(hub)
    assert all(len(step) == 2 or (len(step) % 2 == 0 and looks > 1) for step in shown.steps), "one in each turn"


# ------------------------------------------------------------------------------------------------ who speaks


def test_a_client_cannot_say_a_group() -> None:
    rig, jfk, hub, _ = world()
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    group = {Symbol("x-opt-holdfast-group"): [Ulong(1), Ulong(1_000)]}
    client.send(link, "1", message_annotations=group, delivery_annotations=group)
    rig.run(5)
    assert hub.bodies("work") == ["1"] and waiting(hub) == 0


def test_a_rejected_member_of_a_group_is_nobodys_group_any_more() -> None:
    """What was shown is a message as others are: it is given back, and sent on, by itself."""
    rig, jfk, hub, _ = world()
    commit(rig, jfk, *names(1, 2))
    rig.run(5)
    client = rig.client(hub)
    client.receiver("work", credit=3)
    rig.settle()
    client.accept(Modified(delivery_failed=True, message_annotations={Symbol("note"): "n"}), count=1)
    rig.run(1)
    found = [Message.decode(item.payload) for item in client.deliveries]
    assert len(found) == 2 and all(Symbol("x-opt-holdfast-group") not in (m.message_annotations or {}) for m in found)
