"""What a link has got before a message that is too large for it: its outcomes count (docs/amqp.md)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.message.message import Header
from holdfast.amqp.wire.extensions import SELECTOR_CODE
from holdfast.amqp.wire.performatives import Accepted, Modified, Rejected, Released
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.endpoints import too_large
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.rig import Client, Node, Rig
from support.transactions import Controller

SMALL = 300
BIG = "x" * 1_000
TOO_LARGE = "amqp:link:message-size-exceeded"
SUBSCRIPTION: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
SELECTING: dict[str, Any] = {"filter": {Symbol("s"): Described(Ulong(SELECTOR_CODE), "TRUE")}}


def put(rig: Rig, client: Client, *texts: str, address: str = "work", **parts: Any) -> None:
    link = client.sender(address)
    rig.settle()
    for text in texts:
        client.send(link, text, **parts)
    rig.settle()


def small(rig: Rig, client: Client, **options: Any) -> Receiver:
    link = client.receiver("work", max_message_size=SMALL, **options)
    rig.settle()
    return link


def why(client: Client, link: Receiver) -> str:
    """Why the link was detached; "" where it is not."""
    errors = [str(event.error.condition) for event in client.detached if event.link is link and event.error]
    return errors[0] if errors else ""


def dead(node: Node) -> bool:
    """Whether there are dead letters."""
    assert node.core is not None
    return "$dead-letters" in node.core.catalog.queues


def before_a_large_one(count: int = 3, *queues: QueueConfig, **limits: Any) -> tuple[Rig, Node, Client]:
    rig, node, client = world(*(queues or (QueueConfig(name="work"),)), limits=Limits(**limits))
    fill(rig, client, count)
    put(rig, client, BIG, "behind")
    return rig, node, client


@pytest.mark.parametrize("options", [{}, {"source": SELECTING}])
@pytest.mark.parametrize("priorities", [False, True])
def test_what_comes_before_a_message_that_is_too_large_is_delivered_and_its_outcomes_count(
    options: dict[str, Any], priorities: bool
) -> None:
    """The link is ended once these are settled."""
    rig, node, client = before_a_large_one(3, QueueConfig(name="work", priorities=priorities, deliveries_max=2))
    link = small(rig, client, **options)
    assert client.bodies(link) == ["1", "2", "3"] and why(client, link) == ""
    client.accept(link=link, count=2)
    rig.settle()
    assert client.bodies(link) == ["3"] and why(client, link) == ""
    client.accept(link=link)
    rig.settle()
    assert why(client, link) == TOO_LARGE
    rig.run(1)
    assert node.bodies("work") == [BIG, "behind"] and not dead(node)


def test_where_the_node_settles_it_has_done_so_before_the_link_is_ended() -> None:
    rig, node, client = before_a_large_one(2)
    link = small(rig, client, rcv_settle_mode=1)
    node.hold_commits = True
    for item in client.deliveries:
        link.session.write_disposition(True, item.delivery_id, item.delivery_id, False, Accepted())
    rig.run(0.2)
    assert why(client, link) == ""
    node.hold_commits = False
    node.finish_commit()
    rig.settle()
    assert why(client, link) == TOO_LARGE and node.bodies("work") == [BIG, "behind"]


@pytest.mark.parametrize("outcome", [Rejected(), Modified(message_annotations={Symbol("x-opt-n"): 1})])
def test_rejected_and_annotated_messages_count_before_the_link_ends(outcome: Any) -> None:
    rig, _, client = before_a_large_one(1)
    link = small(rig, client)
    client.accept(outcome, link=link)
    rig.settle()
    again = client.bodies(link)
    assert again == ([] if isinstance(outcome, Rejected) else ["1"])
    client.accept(link=link)
    rig.settle()
    assert why(client, link) == TOO_LARGE


def test_a_durable_subscription_has_accepted_what_comes_before_a_message_that_is_too_large() -> None:
    rig, _, client = world()
    options: dict[str, Any] = {"name": "mine", "source": SUBSCRIPTION}
    link = small(rig, client, **options)
    put(rig, client, "1", "2", BIG)
    assert client.accept(link=link) == ["1", "2"] and why(client, link) == ""
    rig.settle()
    assert why(client, link) == TOO_LARGE
    again = small(rig, client, **options)
    assert client.bodies(again) == [] and why(client, again) == TOO_LARGE


def test_a_presettled_link_has_got_what_comes_before_a_message_that_is_too_large() -> None:
    rig, node, client = before_a_large_one()
    link = small(rig, client, snd_settle_mode=1)
    assert client.bodies(link) == ["1", "2", "3"] and why(client, link) == TOO_LARGE
    rig.run(1)
    assert node.bodies("work") == [BIG, "behind"]


def test_a_drain_is_answered_before_a_message_that_is_too_large() -> None:
    rig, _, client = before_a_large_one()
    link = small(rig, client, credit=0)
    link.grant(10, drain=True)
    rig.settle()
    assert client.bodies(link) == ["1", "2", "3"] and link.credit == 0 and why(client, link) == ""
    client.accept(link=link)
    link.grant(10)
    rig.settle()
    assert why(client, link) == TOO_LARGE


def test_two_consumers_of_one_session_are_each_ended_once_their_own_are_settled() -> None:
    rig, _, client = before_a_large_one(4)
    one, other = small(rig, client, credit=2), small(rig, client, credit=2)
    one.grant(5)
    other.grant(5)
    rig.settle()
    assert client.bodies(one) == ["1", "2"] and client.bodies(other) == ["3", "4"]
    client.accept(link=one)
    rig.settle()
    assert (why(client, one), why(client, other)) == (TOO_LARGE, "")
    client.accept(link=other)
    rig.settle()
    assert why(client, other) == TOO_LARGE


def test_a_link_goes_on_where_another_took_the_message_that_is_too_large_for_it() -> None:
    rig, _, client = before_a_large_one()
    link = small(rig, client)
    other = client.receiver("work", credit=1)
    rig.settle()
    assert client.accept(link=other) == [BIG]
    assert client.accept(link=link) == ["1", "2", "3", "behind"]
    rig.settle()
    assert why(client, link) == ""


@pytest.mark.parametrize("options", [{}, {"source": SELECTING}])
@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("way", ["held", "accepted", "purged", "expired", "deleted", "might be"])
def test_a_stopped_link_goes_on_without_an_outcome_once_the_message_is_not_for_it(
    way: str, priorities: bool, options: dict[str, Any]
) -> None:
    """It got nothing for five minutes, though the message had gone: a client that settles in large batches met that
    each time."""
    rig, node, client = world(QueueConfig(name="work", priorities=priorities))
    fill(rig, client, 3)
    put(rig, client, BIG, header=Header(ttl=1_000) if way == "expired" else None)
    put(rig, client, "behind")
    link = small(rig, client, **options)
    assert client.bodies(link) == ["1", "2", "3"] and link.credit > 0
    if way in ("held", "accepted"):
        other = client.receiver("work", credit=1)
        rig.settle()
        assert client.bodies(other) == [BIG]
        if way == "accepted":
            client.accept(link=other)
    elif way == "might be":  # it has no credit, and accepts such
        client.receiver("work", credit=0)
    elif way == "purged":
        done(client, "PURGE", "queue", "work")
        put(rig, client, "behind")
    elif way == "deleted":
        uuid = str(node.queue("work").uuid)
        done(client, "DELETE", "entry", "work", queue_uuid=uuid, sequence=Ulong(4), delivery_count=Ulong(0))
    rig.settle()
    rig.run(3 if way == "expired" else 0.1)
    if way == "expired":
        put(rig, client, "later")
    assert client.bodies(link)[3:4] == ["behind"] and why(client, link) == ""
    assert node.core is not None and not node.core.too_large.waiting and not node.core.too_large.met_in
    client.accept(link=link)
    rig.settle()
    assert why(client, link) == "" and link.credit > 0


def test_a_link_stops_again_where_the_other_consumer_returned_the_message() -> None:
    rig, _, client = before_a_large_one()
    link = small(rig, client)
    other = client.receiver("work", credit=1)
    rig.settle()
    assert client.bodies(link) == ["1", "2", "3", "behind"] and client.bodies(other) == [BIG]
    other.detach(closed=True)
    put(rig, client, "last")
    assert client.bodies(link) == ["1", "2", "3", "behind"] and why(client, link) == ""
    client.accept(link=link)
    rig.settle()
    assert why(client, link) == TOO_LARGE


@pytest.mark.parametrize("settled", [False, True])
def test_a_transaction_takes_what_comes_before_a_message_that_is_too_large(settled: bool) -> None:
    rig, node, client = before_a_large_one()
    controller = Controller(client)
    transaction = controller.begin()
    link = small(rig, client)
    assert controller.take(transaction, count=3, settled=settled) == ["1", "2", "3"]
    assert why(client, link) == (TOO_LARGE if settled else "")
    assert isinstance(controller.commit(transaction), Accepted)
    rig.run(1)
    assert why(client, link) == TOO_LARGE and node.bodies("work") == [BIG, "behind"]


def test_a_link_that_settles_nothing_is_ended_in_the_end_and_nothing_of_it_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each outcome gives it the time anew."""
    monkeypatch.setattr(too_large, "PATIENCE_S", 20.0)
    rig, node, client = before_a_large_one(3, QueueConfig(name="work", deliveries_max=1))
    link = small(rig, client)
    rig.run(19)
    client.accept(link=link, count=1)
    rig.run(19)
    assert why(client, link) == ""
    rig.run(2)
    assert why(client, link) == TOO_LARGE
    assert node.bodies("work") == ["2", "3", BIG, "behind"] and not dead(node)
    assert node.core is not None and not node.core.too_large.waiting


def test_a_link_that_settles_nothing_is_ended_in_time_though_one_that_stopped_before_settles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(too_large, "PATIENCE_S", 20.0)
    rig, _, client = before_a_large_one(4)
    second = client.receiver("work", credit=1, max_message_size=SMALL)
    rig.settle()
    first = small(rig, client)
    rig.run(1)
    second.grant(1)
    rig.run(5)
    assert client.bodies(first) == ["2", "3", "4"] and client.bodies(second) == ["1"]
    client.accept(link=first, count=1)
    rig.run(16)
    assert (why(client, first), why(client, second)) == ("", TOO_LARGE)


def test_nothing_is_kept_of_links_whose_queue_was_deleted() -> None:
    rig, node, _ = before_a_large_one()
    other = rig.client(node)
    small(rig, other)
    assert node.core is not None and node.core.too_large.met_in
    node.core.catalog.delete(node.queue("work"))
    other.close_transport()
    rig.settle()
    assert not node.core.too_large.met_in and not node.core.too_large.waiting


def test_what_a_link_held_that_the_node_ended_for_its_own_sake_does_not_count_as_failed() -> None:
    rig, node, client = world(QueueConfig(name="work", deliveries_max=1), limits=Limits(excluded_max=1))
    fill(rig, client, 4)
    link = client.receiver("work")
    rig.settle()
    client.accept(Modified(undeliverable_here=True), link=link, count=2)
    rig.settle()
    assert why(client, link) == "amqp:resource-limit-exceeded"
    rig.run(1)
    assert not dead(node) and node.queue("work").messages == 4


def test_a_link_that_is_lost_is_no_longer_waited_for() -> None:
    rig, node, client = before_a_large_one()
    other = rig.client(node)
    small(rig, other)
    assert node.core is not None and len(node.core.too_large.waiting) == 1
    other.close_transport()
    rig.settle()
    assert not node.core.too_large.waiting
    link = small(rig, client)
    assert client.bodies(link) == ["1", "2", "3"]


@pytest.mark.parametrize("options", [{}, {"source": SELECTING}])
def test_one_that_was_released_and_is_too_large_for_the_next_link_is_there_once(options: dict[str, Any]) -> None:
    rig, node, client = world(QueueConfig(name="work"))
    put(rig, client, BIG, "behind")
    first = client.receiver("work", credit=2)
    rig.settle()
    assert client.bodies(first) == [BIG, "behind"]
    client.accept(Released())
    first.detach(closed=True)
    rig.settle()
    link = small(rig, client, **options)
    assert node.core is not None
    node.core.validate()
    assert why(client, link) == TOO_LARGE
    last = client.receiver("work", credit=10, source=SELECTING)
    rig.settle()
    assert client.bodies(last) == [BIG, "behind"]


@pytest.mark.parametrize("mine", [{}, {"source": SELECTING}], ids=["all", "selected"])
@pytest.mark.parametrize("other", [{}, {"source": SELECTING}], ids=["another", "another selected"])
@pytest.mark.parametrize("priorities", [False, True])
def test_a_link_is_not_ended_for_a_message_that_another_takes_later(
    mine: dict[str, Any], other: dict[str, Any], priorities: bool
) -> None:
    rig, node, client = world(QueueConfig(name="work", priorities=priorities))
    wide = rig.client(node)
    taker = wide.receiver("work", credit=0, **other)
    rig.settle()
    put(rig, client, BIG, "behind")
    link = small(rig, client, **mine)
    assert client.bodies(link) == ["behind"] and why(client, link) == ""
    taker.grant(5)
    wide.flush()
    rig.settle()
    assert wide.bodies(taker) == [BIG]


@pytest.mark.parametrize("priorities", [False, True])
def test_a_message_that_was_left_to_a_consumer_with_a_selector_is_offered_again_once_that_has_gone(
    priorities: bool,
) -> None:
    rig, node, client = world(QueueConfig(name="work", priorities=priorities))
    wide = rig.client(node)
    wide.receiver("work", credit=0, source=SELECTING)
    rig.settle()
    put(rig, client, BIG, "behind")
    link = small(rig, client)
    assert client.accept(link=link) == ["behind"]
    rig.settle()
    assert why(client, link) == ""
    wide.close_transport()
    rig.run(1)
    assert why(client, link) == TOO_LARGE and node.bodies("work") == [BIG]
