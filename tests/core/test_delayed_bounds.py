"""Delays within their bound, whichever way a message comes, in an account of memory, and for who asks where a message
is (docs/adr/0067)."""

from typing import Any

import pytest

from holdfast.amqp.wire.extensions import DELIVERY_DELAY, DELIVERY_TIME
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected
from holdfast.amqp.wire.types import Timestamp, Ulong
from holdfast.settings.limits import Limits
from holdfast.settings.queues import LinkConfig, QueueConfig
from support.hops import names
from support.one_node import done
from support.rig import Client, Node, Rig
from support.transactions import FULL, Controller, condition, quiet, started

DELAYED = "$delayed"
MOST = 3


def held(node: Node) -> int:
    assert node.core is not None
    node.core.validate()
    queue = node.core.catalog.queues.get(DELAYED)
    return 0 if queue is None else queue.messages


def later(milliseconds: int = 60_000) -> dict[str, Any]:
    return {"message_annotations": {DELIVERY_DELAY: Ulong(milliseconds)}}


def send(rig: Rig, client: Client, *bodies: str, to: str = "work", **parts: Any) -> list[Any]:
    link = client.sender(to)
    rig.settle()
    before = len(client.outcomes)
    for body in bodies:
        client.send(link, body, **parts)
    rig.settle()
    return [state for _, state in client.outcomes[before:]]


# ------------------------------------------------------------------------------------------------ transactions


def test_a_transaction_brings_no_more_than_may_be_delayed() -> None:
    rig, node, client, controller = started(limits=Limits(delayed_max=MOST))
    assert send(rig, client, "first", **later()) == [Accepted()]
    link = client.sender("work")
    rig.settle()
    one, two = controller.begin(), controller.begin()
    assert controller.send(one, link, "1", **later()) == Accepted()
    assert controller.send(two, link, "2", **later()) == Accepted()
    (refused,) = send(rig, client, "3", **later())
    assert isinstance(refused, Rejected) and "3 messages are delayed" in str(refused.error)  # places are reserved
    assert condition(controller.send(two, link, "4", **later())) == FULL
    assert controller.commit(one) == Accepted()
    assert isinstance(controller.commit(two), Rejected) and quiet(node)
    assert held(node) == 2
    assert send(rig, client, "5", **later()) == [Accepted()]
    assert held(node) == MOST and node.bodies(DELAYED) == ["first", "1", "5"]


def test_a_transaction_has_the_places_that_it_has_reserved() -> None:
    rig, node, client, controller = started(limits=Limits(delayed_max=MOST))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    for body in names(1, MOST):
        assert controller.send(mine, link, body, **later()) == Accepted()
    assert controller.commit(mine) == Accepted()
    assert held(node) == MOST and quiet(node)


def test_a_clock_that_is_set_back_before_the_commit() -> None:
    rig, node, client, controller = started(limits=Limits(delayed_max=MOST))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    at = {"message_annotations": {DELIVERY_TIME: Timestamp(rig.wall_ms - 1_000)}}
    for body in names(1, MOST + 1):
        assert controller.send(mine, link, body, **at) == Accepted()
    node.clock_error_ms = -3_600_000
    rig.run(1)
    assert condition(controller.commit(mine)) == FULL
    assert held(node) == 0 and quiet(node)


def test_a_rollback_gives_the_places_back() -> None:
    rig, node, client, controller = started(limits=Limits(delayed_max=MOST))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    for body in names(1, MOST):
        assert controller.send(mine, link, body, **later()) == Accepted()
    assert controller.abort(mine) == Accepted()
    assert send(rig, client, *names(1, MOST), **later()) == [Accepted()] * MOST
    assert quiet(node) and held(node) == MOST


# ------------------------------------------------------------------------------------------------ links


def test_a_link_brings_no_more_than_may_be_delayed() -> None:
    """Messages whose time had come are delayed once more where somebody sets the clock back."""
    rig = Rig()
    queues = (QueueConfig(name="work"), QueueConfig(name="to"))
    links = (LinkConfig(name="moves", source="work", target="to"),)
    node = rig.node("hub", queues=queues, links=links, limits=Limits(delayed_max=MOST))
    rig.settle()
    client = rig.client(node)
    done(client, "STOP", "link", "moves")
    at = {"message_annotations": {DELIVERY_TIME: Timestamp(rig.wall_ms - 1_000)}}
    assert send(rig, client, *names(1, 5), **at) == [Accepted()] * 5
    node.clock_error_ms = -3_600_000
    rig.run(1)
    done(client, "START", "link", "moves")
    rig.run(3)
    assert held(node) == MOST and len(node.bodies("$dead-letters")) == 2
    assert not node.bodies("to") and not node.bodies("work")


# ------------------------------------------------------------------------------------------------ other nodes


@pytest.mark.parametrize("together", [False, True])
def test_what_waited_for_an_earlier_number_comes_within_the_bound(together: bool) -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),), limits=Limits(delayed_max=MOST))
    rig.run(8)
    assert jfk.core is not None and hub.core is not None
    jfk.core.catalog.ledger.identities["hub"] = 2  # somebody has number 1
    client = rig.client(jfk)
    if together:
        controller, link = Controller(client), client.sender("work@hub")
        rig.settle()
        mine = controller.begin()
        for body in names(2, 4):
            assert controller.send(mine, link, body, **later(5_000)) == Accepted()
        assert controller.commit(mine) == Accepted()
    else:
        send(rig, client, *names(2, 4), to="work@hub", **later(5_000))
    (origin,) = hub.core.catalog.ledger.all_origins()
    assert len(origin.waiting) == 3
    local = rig.client(hub)
    assert send(rig, local, "x", "y", to="work", **later(5_000)) == [Accepted()] * 2
    done(local, "SKIP", "queue", "work")
    rig.run(1)
    assert held(hub) == (2 if together else MOST)
    rig.run(30)
    assert sorted(hub.bodies("work")) == ["2", "3", "4", "x", "y"] and held(hub) == 0


def test_more_of_one_transaction_than_may_ever_be_delayed() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),), limits=Limits(delayed_max=MOST))
    rig.run(8)
    client = rig.client(jfk)
    controller, link = Controller(client), client.sender("work@hub")
    rig.settle()
    mine = controller.begin()
    for body in names(1, 5):
        assert controller.send(mine, link, body, **later(2_000)) == Accepted()
    assert controller.commit(mine) == Accepted()
    rig.run(1)
    assert held(hub) == MOST
    rig.run(20)
    assert sorted(hub.bodies("work")) == names(1, 5)


# ------------------------------------------------------------------------------------------------ by hand


def test_an_operator_copies_nothing_beyond_the_bound() -> None:
    rig = Rig()
    node = rig.node("hub", limits=Limits(delayed_max=MOST))
    client = rig.client(node)
    send(rig, client, *names(1, MOST), **later())
    found = done(client, "QUERY", "entry", DELAYED)
    row = found["entries"][0]
    place = {"queue_uuid": found["queue_uuid"], "sequence": row["sequence"], "delivery_count": row["delivery_count"]}
    status, _, why = client.manage("COPY", "entry", DELAYED, **place, to="other")
    assert status == 409 and "3 messages are delayed" in why
    status, _, why = client.manage("MOVE", "entry", DELAYED, **place, to="other")
    assert status == 200, why
    rig.run(1)
    assert held(node) == MOST


# ------------------------------------------------------------------------------------------------ memory


def test_what_delays_take_in_memory_is_in_an_account() -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    core = node.core
    assert core is not None and core.memory.delays.held == 0
    send(rig, client, *names(1, 50), **later(2_000))
    each = core.memory.delays.held // 50
    assert each >= 100 and core.memory.delays.held == 50 * each
    node.crash()
    node.start()
    rig.run(0.5)
    core = node.core
    assert core is not None and core.memory.delays.held == 50 * each
    assert core.memory.total.held >= 50 * each
    rig.run(3)
    assert core.memory.delays.held == 0 and len(node.bodies("work")) == 50


def test_also_of_what_finds_no_room_and_after_a_refused_commit() -> None:
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work", messages_max=2),))
    client = rig.client(node)
    for body in names(1, 6):
        send(rig, client, body, **later(1_000))
    node.refuse = 1
    rig.run(5)
    core = node.core
    assert core is not None and node.refuse == 0
    core.validate()
    each = core.memory.delays.held // 4
    assert len(node.bodies("work")) == 2 and held(node) == 4 and core.memory.delays.held == 4 * each > 0


# ------------------------------------------------------------------------------------------------ where


def test_who_asks_where_a_delayed_message_is_hears_of_its_time() -> None:
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work", messages_max=1),))
    client = rig.client(node)
    send(rig, client, "1", properties=Properties(message_id="order-17"), **later(5_000))
    send(rig, client, "first")
    (step,) = done(client, "WHERE", "node", "", message_id="order-17")["steps"]
    assert step["state"] == "delayed" and step["queue"] == DELAYED
    assert step["waits_for"].startswith("its time, 2023-11-14T22:13:2")
    rig.run(7)
    (step,) = done(client, "WHERE", "node", "", message_id="order-17")["steps"]
    assert step["state"] == "delayed" and step["waits_for"] == "room in queue 'work', which is full"


def test_at_another_node_too() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(8)
    client = rig.client(jfk)
    send(rig, client, "1", to="work@hub", properties=Properties(message_id="order-17"), **later())
    rig.run(2)
    answer = done(client, "WHERE", "node", "", message_id="order-17")
    assert answer["state"] == "delayed" and answer["custody"] == "hub"
