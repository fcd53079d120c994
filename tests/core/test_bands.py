"""A queue with room by priority: what clients bring of a low priority fills less of it (docs/adr/0077)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected, Source
from holdfast.broker.bands import QUIET_S
from holdfast.broker.stored.producers import Producer
from holdfast.endpoints.overtaking import OVERTAKEN_MAX
from holdfast.errors import ConfigError
from holdfast.settings.limits import DEFAULT_LIMITS
from holdfast.settings.queues import QueueConfig
from support.one_node import done, world
from support.rig import Client, Node, Rig
from support.transactions import Controller

BANDS = {"room_low": 0.5, "room_normal": 0.75}


def banded(**fields: Any) -> tuple[Rig, Node, Client]:
    """Of eight messages low priorities may fill four, the default priority six."""
    return world(QueueConfig(**{"name": "work", "messages_max": 8, "when_full": "refuse", **BANDS, **fields}))


def linked(rig: Rig, client: Client, address: str = "work") -> Sender:
    link = client.sender(address)
    rig.settle()
    return link


def send(rig: Rig, client: Client, link: Sender, priority: int | None, count: int = 1) -> None:
    """None: without a header."""
    header = None if priority is None else Header(durable=True, priority=priority)
    for number in range(count):
        client.send(link, f"{priority}-{number}", header=header)
    rig.settle()


def rejected(client: Client) -> list[Rejected]:
    return [state for _, state in client.outcomes if isinstance(state, Rejected)]


# ----------------------------------------------------------------------------------------------------- refuse


@pytest.mark.parametrize(("priority", "fits"), [(0, 4), (3, 4), (4, 6), (None, 6), (5, 8), (9, 8), (200, 8)])
def test_each_priority_fills_its_part(priority: int | None, fits: int) -> None:
    rig, node, client = banded()
    send(rig, client, linked(rig, client), priority, 10)
    assert node.queue("work").messages == fits and len(rejected(client)) == 10 - fits


def test_bounds_of_bytes_have_the_same_parts() -> None:
    rig, node, client = banded(messages_max=None, bytes_max=1_000)
    link = linked(rig, client)
    for priority, expected in ((1, 500), (4, 750), (9, 1_000)):
        for _ in range(100):
            client.send(link, "x" * 45, header=Header(priority=priority))
        rig.settle()
        assert expected - 60 < node.queue("work").bytes_held <= expected


def test_a_higher_priority_is_taken_while_lower_ones_are_refused() -> None:
    rig, node, client = banded()
    link = linked(rig, client)
    for priority, messages in ((0, 4), (4, 6), (0, 6), (9, 8), (4, 8)):
        send(rig, client, link, priority, 4)
        assert node.queue("work").messages == messages
    told = str(rejected(client)[0].error)
    assert conditions.RESOURCE_LIMIT_EXCEEDED in told and "no more room for priority 4: 6 messages" in told
    send(rig, client, link, 9)
    assert "is full: 8 messages" in str(rejected(client)[-1].error)


def test_refusals_are_counted_by_client_and_priority() -> None:
    rig, node, client = banded()
    other = rig.client(node, container_id="oth\x07er" + 200 * "r")
    send(rig, client, linked(rig, client), 0, 7)
    send(rig, client, linked(rig, client), 4, 3)
    send(rig, other, linked(rig, other), 0, 1)
    send(rig, other, linked(rig, other), 77, 3)
    told = done(client, "STATUS", "node", "")["refused"]
    rows = {(row["queue"], row["client"][:6], row["priority"]): (row["messages"], row["bytes"]) for row in told}
    size = node.queue("work").bytes_held // node.queue("work").messages
    assert {key: count for key, (count, _) in rows.items()} == {
        ("work", "client", 0): 3, ("work", "client", 4): 1, ("work", "oth?er", 0): 1, ("work", "oth?er", 9): 1,
    }  # fmt: skip
    assert rows["work", "client", 0][1] == pytest.approx(3 * size, abs=6)
    assert max(len(row["client"]) for row in told) == 100
    queue = done(client, "READ", "queue", "work")
    assert queue["refused_total"] == 6 and queue["room"] == {"low": 0.5, "normal": 0.75, "quiet_s": QUIET_S}


def test_without_a_header_on_the_way_of_many_the_parts_are_the_same() -> None:
    """Runs of messages that are taken at once."""
    rig, node, client = banded(messages_max=100)
    link = linked(rig, client)
    send(rig, client, link, None, 60)
    send(rig, client, link, 2, 40)
    assert node.queue("work").messages == 60, "the band of low priorities is at 50"
    send(rig, client, link, None, 40)
    assert node.queue("work").messages == 75


def test_an_empty_queue_takes_any_size_of_any_priority() -> None:
    rig, node, client = banded(messages_max=None, bytes_max=1_000)
    client.send(linked(rig, client), "x" * 5_000, header=Header(priority=0))
    rig.settle()
    assert node.queue("work").messages == 1


# ----------------------------------------------------------------------------------------------------- block


def test_credit_shrinks_to_the_room_of_its_band() -> None:
    rig, node, client = banded(when_full="block", messages_max=100)
    low, high = linked(rig, client), linked(rig, client)
    send(rig, client, low, 1)
    send(rig, client, high, 8)
    assert low.credit <= 49 and high.credit <= 99
    send(rig, client, low, 1, 40)
    assert low.credit <= 9, "what is left of its half"
    send(rig, client, high, 8, 20)
    assert low.credit == 0 and 0 < high.credit <= 38
    assert node.queue("work").messages == 62 and not rejected(client)


def test_who_has_sent_nothing_yet_is_given_credit_while_the_queue_has_room() -> None:
    rig, node, client = banded(when_full="block")
    send(rig, client, linked(rig, client), 4, 6)
    late = linked(rig, client)
    assert late.credit == 2
    send(rig, client, late, 9, 2)
    assert node.queue("work").messages == 8


def test_what_was_under_way_waits_and_nothing_is_lost() -> None:
    rig, node, client = banded(when_full="block")
    low, high = linked(rig, client), linked(rig, client)
    send(rig, client, low, 0, 6)
    assert node.queue("work").messages == 4
    send(rig, client, high, 9, 4)
    assert node.queue("work").messages == 8, "the low ones that wait hold up no other link"
    taker = rig.client(node)
    taker.receiver("work", credit=2)
    rig.settle()
    for left in (7, 6, 5):
        taker.accept(count=1)
        rig.settle()
        assert node.queue("work").messages >= left
    taker.receiver("work", credit=100)
    rig.settle()
    while taker.deliveries:
        taker.accept()
        rig.settle()
    rig.run(1)
    assert len([state for _, state in client.outcomes if isinstance(state, Accepted)]) == 10
    assert low.credit > 0, "there is room again, and so there is credit"


def test_the_band_opens_after_a_while_without_higher_priorities_and_who_waits_goes_on() -> None:
    rig, node, client = banded(when_full="block", room_quiet_s=30.0)
    low = linked(rig, client)
    send(rig, client, low, 0, 6)
    rig.run(29)
    assert node.queue("work").messages == 4
    rig.run(2)
    assert node.queue("work").messages == 6 and low.credit > 0
    high = linked(rig, client)
    send(rig, client, high, 5)
    assert low.credit == 0, "a higher priority came"
    send(rig, client, low, 0, 0)
    rig.run(29)
    assert low.credit == 0
    rig.run(2)
    assert low.credit > 0


def test_a_run_of_low_messages_keeps_no_band_that_it_does_not_use() -> None:
    rig, node, client = banded(room_quiet_s=10.0)
    link = linked(rig, client)
    send(rig, client, link, 1, 2)
    rig.run(9)
    send(rig, client, link, 1, 2)
    rig.run(2)
    send(rig, client, link, 1, 6)
    assert node.queue("work").messages == 8, "nothing above came for longer than room_quiet_s"


def test_a_higher_priority_that_is_refused_keeps_the_band_too() -> None:
    rig, node, client = banded(room_quiet_s=30.0)
    send(rig, client, linked(rig, client), 9, 8)
    rig.run(29)
    send(rig, client, linked(rig, client), 9)
    taker = rig.client(node)
    taker.receiver("work", credit=4)
    rig.settle()
    taker.accept()
    rig.run(15)
    send(rig, client, linked(rig, client), 0)
    assert node.queue("work").messages == 4


# ----------------------------------------------------------------------------------------------------- beside


def test_a_transaction_is_bounded_by_the_bands() -> None:
    rig, node, client = banded()
    controller = Controller(client)
    link = linked(rig, client)
    txn = controller.begin()
    for _ in range(4):
        assert controller.send(txn, link, "low", header=Header(priority=1)) == Accepted()
    refused = controller.send(txn, link, "low", header=Header(priority=1))
    assert isinstance(refused, Rejected) and "no more room for priority 1" in str(refused.error)
    other = controller.begin()
    controller.abort(txn)
    for _ in range(8):
        assert controller.send(other, link, "high", header=Header(priority=9)) == Accepted()
    controller.commit(other)
    rig.settle()
    assert node.queue("work").messages == 8


def test_a_link_without_an_address_is_refused_by_band() -> None:
    rig, node, client = banded(when_full="block")
    link = client.session.attach_sender("relay", Source(), None)
    rig.settle()
    for priority in (0, 0, 0, 0, 0, 9):
        client.send(link, "x", header=Header(priority=priority), properties=Properties(to="work"))
    rig.settle()
    assert node.queue("work").messages == 5 and len(rejected(client)) == 1


def test_what_another_node_brings_may_fill_the_whole_queue() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=8, room_low=0.5),))
    client = rig.client(jfk)
    send(rig, client, linked(rig, client, "work@hub"), 0, 8)
    rig.run(1)
    assert hub.queue("work").messages == 8 and jfk.queue("@hub").messages == 0


def test_bands_are_kept_over_a_restart_and_changed_by_management() -> None:
    rig, node, client = world(create_queues=True)
    done(client, "CREATE", "queue", "work", messages_max=8, when_full="refuse", room_low=0.5)
    node.crash()
    node.start()
    client = rig.client(node)
    send(rig, client, linked(rig, client), 0, 8)
    assert node.queue("work").messages == 4
    done(client, "UPDATE", "queue", "work", room_low=1.0)
    send(rig, client, linked(rig, client), 0, 8)
    assert node.queue("work").messages == 8
    status, _, text = client.manage("UPDATE", "queue", "work", room_normal=0.4)
    assert status == 400 and "room_low and room_normal" in text


def test_without_bands_nothing_is_kept_free() -> None:
    rig, node, client = world(QueueConfig(name="work", messages_max=8, when_full="refuse"))
    assert node.queue("work").bands is None
    send(rig, client, linked(rig, client), 0, 9)
    assert node.queue("work").messages == 8


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "without a bound"),
        ({"messages_max": 8, "when_full": "drop-oldest"}, "expected block, refuse or dead-letter"),
    ],
)
def test_bands_that_mean_nothing_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        QueueConfig(name="work", **BANDS, **fields).validate()


def test_dead_letters_take_what_is_beyond_its_band() -> None:
    rig, node, client = banded(when_full="dead-letter")
    send(rig, client, linked(rig, client), 0, 6)
    assert node.queue("work").messages == 4 and node.queue("$dead-letters").messages == 2
    assert not rejected(client)


# ----------------------------------------------------------------------------------------------------- one link


def stored(node: Node) -> list[str]:
    return list(node.bodies("work"))


def mixed(rig: Rig, client: Client, link: Sender, *priorities: int) -> None:
    """All of them at once, on one link; the body tells the place and the priority."""
    for at, priority in enumerate(priorities):
        client.send(link, f"{at}-{priority}", header=Header(durable=True, priority=priority))
    rig.settle()


def test_an_urgent_message_passes_lower_ones_of_its_link_that_wait() -> None:
    rig, node, client = banded(when_full="block")
    link = linked(rig, client)
    mixed(rig, client, link, 0, 0, 0, 0, 0, 9, 4, 3)
    assert stored(node) == ["0-0", "1-0", "2-0", "3-0", "5-9", "6-4"]
    assert [type(state) for _, state in client.outcomes] == [Accepted] * 6, "the two low ones wait"
    mixed(rig, client, link, 9, 9)
    assert stored(node)[6:] == ["0-9", "1-9"], "and the link still has credit for what is urgent"
    assert not rejected(client)


def test_room_that_comes_is_for_the_highest_that_waits() -> None:
    rig, node, client = banded(when_full="block")
    link = linked(rig, client)
    mixed(rig, client, link, 9, 9, 9, 9, 9, 9, 0)
    assert node.queue("work").messages == 6 and link.credit == 2, "what is urgent has room"
    mixed(rig, client, link, 9, 9)
    assert node.queue("work").messages == 8 and link.credit == 0
    other = linked(rig, rig.client(node))
    assert other.credit == 0
    taker = rig.client(node)
    taker.receiver("work", credit=1)
    rig.settle()
    taker.accept()
    rig.settle()
    assert link.credit == 1 and node.queue("work").messages == 7
    mixed(rig, client, link, 8)
    assert stored(node)[-1] == "0-8" and "6-0" not in stored(node)
    taker.receiver("work", credit=100)
    for _ in range(10):
        rig.settle()
        taker.accept()
    rig.run(1)
    assert not node.queue("work").messages
    assert {type(state) for _, state in client.outcomes} == {Accepted} and len(client.outcomes) == 10


def test_within_a_band_the_order_stays_and_nothing_is_lost_or_doubled() -> None:
    rig, node, client = banded(when_full="block", messages_max=20)
    link = linked(rig, client)
    order = [0, 9, 4] * 12
    at = 0
    seen: dict[str, None] = {}
    taker = rig.client(node)
    takes = taker.receiver("work", credit=3)
    for _ in range(200):
        while at < len(order) and link.sendable and link.credit > 0:
            client.send(link, f"{at:02}-{order[at]}", header=Header(priority=order[at]))
            at += 1
        rig.settle()
        seen |= dict.fromkeys(stored(node))
        taker.accept()
        takes.grant(3)
        rig.run(0.1)
    assert at == len(order) == len(client.outcomes) == len(seen)
    for priority in (0, 4, 9):
        mine = [body for body in seen if body.endswith(f"-{priority}")]
        assert mine == sorted(mine)
    assert list(seen) != sorted(seen), "some passed others"
    assert not node.queue("work").messages and node.queue("work").in_total == len(order)


def test_as_many_may_wait_as_a_named_producers_numbers_may_have_gaps() -> None:
    """And where its numbers have too many gaps already, or memory has no room for more, nothing passes."""
    assert DEFAULT_LIMITS.ranges_max > OVERTAKEN_MAX
    rig, node, client = banded(when_full="block")
    link = linked(rig, client)
    mixed(rig, client, link, 0, 0, 0, 0, 0)
    assert node.core is not None
    (found,) = node.core.links.producers_of(node.queue("work"))
    intake: Any = found
    assert intake.may_pass
    intake.producer = Producer("me", "work")
    assert intake.may_pass
    for number in range(1, 2 * (DEFAULT_LIMITS.ranges_max - OVERTAKEN_MAX + 1), 2):
        intake.producer.stored.add(number)
    assert not intake.may_pass
    intake.producer = None
    assert link.credit == 0, "who brings low ones alone is given credit for these alone"


def test_so_many_wait_and_then_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("overtaking", "producer"):
        monkeypatch.setattr(f"holdfast.endpoints.{module}.OVERTAKEN_MAX", 3)
    rig, node, client = banded(when_full="block", messages_max=20)
    link = linked(rig, client)
    mixed(rig, client, link, 9, *[0] * 11, 9)
    assert "12-9" in stored(node) and len(stored(node)) == 11, "nine low ones, and both urgent ones"
    assert link.credit == 1, "two wait"
    mixed(rig, client, link, 0)
    assert link.credit == 0, "three wait"
    mixed(rig, rig_client := rig.client(node), linked(rig, rig_client), 9)
    assert node.queue("work").messages == 12, "another link is not held up"
