"""Local transactions at one node, over AMQP (AMQP 1.0 part 4; docs/adr/0060)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Discharge,
    Error,
    Modified,
    Rejected,
    Released,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.transactions import (
    FULL,
    TIMEOUT,
    UNKNOWN,
    Controller,
    bound_for,
    condition,
    quiet,
    request,
    started,
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ commit and rollback


def test_the_coordinator_says_what_it_can() -> None:
    _, _, _, controller = started()
    answer = controller.link.remote_attach
    assert answer is not None and isinstance(answer.target, Coordinator)
    assert Symbol("amqp:local-transactions") in (answer.target.capabilities or ())
    assert controller.link.credit == 100


def test_what_is_sent_is_seen_together_at_the_commit() -> None:
    rig, node, client, controller = started()
    link, other = client.sender("work"), client.sender("other")
    rig.settle()
    mine = controller.begin()
    for number in range(3):
        assert controller.send(mine, link, str(number)) == Accepted()
    assert controller.send(mine, other, "x") == Accepted()
    assert node.bodies("work") == node.bodies("other") == []
    commits = node.tries
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["0", "1", "2"] and node.bodies("other") == ["x"]
    assert node.tries == commits + 1
    assert quiet(node)


def test_what_is_sent_never_was_after_a_rollback() -> None:
    rig, node, client, controller = started()
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "1") == Accepted()
    assert controller.abort(mine) == Accepted()
    assert node.bodies("work") == [] and quiet(node)
    assert condition(controller.commit(mine)) == UNKNOWN


@pytest.mark.parametrize("settled", [True, False])
def test_what_is_taken_leaves_with_the_commit(settled: bool) -> None:
    rig, node, client, controller = started()
    fill(rig, client, 4)
    client.receiver("work", credit=3)
    rig.settle()
    mine = controller.begin()
    assert controller.take(mine, count=2, settled=settled) == ["1", "2"]
    rig.run(1)
    assert node.queue("work").messages == 4
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.bodies() == ["4"]
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["3", "4"] and quiet(node)
    if not settled:
        assert len(client.session.unsettled_in) == 1  # the node settled both
    client.close_transport()
    rig.settle()
    assert other.bodies() == ["4", "3"]


@pytest.mark.parametrize(
    ("outcome", "again", "count", "dead"),
    [
        (Accepted(), False, 0, False),
        (Rejected(Error(Symbol("a:b"), "why")), False, 0, True),
        (Released(), True, 0, False),
        (Modified(delivery_failed=True), True, 1, False),
        (Modified(message_annotations={Symbol("note"): "n"}), True, 0, False),
        (Modified(delivery_failed=True, undeliverable_here=True), False, 1, False),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("durable", [True, False])
def test_each_outcome_is_in_force_at_the_commit(
    outcome: Any, again: bool, count: int, dead: bool, settled: bool, durable: bool
) -> None:
    rig, node, client, controller = started(QueueConfig(name="work", durable=durable))
    node.unwatched |= set() if durable else {"work"}
    fill(rig, client, 1)
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.take(mine, outcome, settled=settled)
    client.deliveries.clear()
    rig.run(1)
    assert client.bodies() == [] and node.queue("work").messages == 1
    assert controller.commit(mine) == Accepted()
    rig.run(1)
    assert client.bodies() == (["1"] if again else [])
    if again:
        message = client.messages()[0]
        assert message.header is not None and message.header.delivery_count == count
        noted = (message.message_annotations or {}).get(Symbol("note"))
        assert noted == ("n" if getattr(outcome, "message_annotations", None) else None)
    assert ("$dead-letters" in node.core.catalog.queues and node.bodies("$dead-letters") == ["1"]) is dead  # type: ignore[union-attr]
    stays = again or isinstance(outcome, Modified)
    assert node.queue("work").messages == stays and quiet(node)


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)])
def test_a_rollback_gives_back_what_was_settled_by_the_default_outcome(outcome: Any) -> None:
    """Qpid JMS settles at once, and its sources say `modified`."""
    rig, node, client, controller = started()
    fill(rig, client, 1)
    client.receiver("work", source={"default_outcome": Modified(delivery_failed=True)})
    rig.settle()
    mine = controller.begin()
    controller.take(mine, outcome)
    assert controller.abort(mine) == Accepted()
    assert client.bodies() == ["1"]
    header = client.messages()[0].header
    assert header is not None and header.delivery_count == 1
    assert quiet(node) and node.bodies("work") == ["1"]


def test_a_rollback_leaves_what_was_not_settled_with_its_link() -> None:
    """Proton settles when it hears of the end: after a rollback it releases."""
    rig, node, client, controller = started()
    fill(rig, client, 2)
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.take(mine, settled=False)
    assert controller.abort(mine) == Accepted()
    rig.settle()
    assert client.bodies() == ["1", "2"] and quiet(node)  # nothing came again
    client.accept(count=1)
    rig.run(1)
    assert node.bodies("work") == ["2"]


def test_another_word_takes_a_delivery_out_of_its_transaction() -> None:
    rig, node, client, controller = started()
    fill(rig, client, 3)
    client.receiver("work")
    rig.settle()
    first, second = controller.begin(), controller.begin()
    controller.take(first, count=3, settled=False)
    controller.take(second, Rejected(), count=1)  # now it is the second's
    client.accept(count=1)  # and this one nobody's
    assert controller.commit(first) == Accepted()
    rig.run(1)
    assert node.bodies("work") == ["1"]
    assert controller.commit(second) == Accepted()
    assert node.bodies("work") == [] and node.bodies("$dead-letters") == ["1"] and quiet(node)


def test_several_at_once_know_nothing_of_each_other() -> None:
    rig, node, client, controller = started()
    link = client.sender("work")
    rig.settle()
    one, two = controller.begin(), controller.begin()
    assert one != two
    for number in range(4):
        controller.send((one, two)[number % 2], link, str(number))
    assert controller.commit(two) == Accepted()
    assert node.bodies("work") == ["1", "3"]
    assert controller.commit(one) == Accepted()
    assert node.bodies("work") == ["1", "3", "0", "2"] and quiet(node)


@pytest.mark.parametrize("ends", ["detach", "close", "wire"])
def test_the_end_of_its_coordinator_rolls_it_back(ends: str) -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    link = client.sender("work")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine, count=1)
    controller.take(mine, count=1, settled=False)
    if ends == "detach":
        controller.link.detach(closed=True)
    elif ends == "close":
        client.amqp.close()
    else:
        client.close_transport()
    rig.settle()
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert quiet(node) and node.bodies("work") == ["1", "2"]
    shown = sorted(client.bodies() + other.bodies()) if ends == "detach" else other.bodies()
    assert sorted(set(shown)) == ["1", "2"]


@pytest.mark.parametrize("settled", [True, False])
def test_a_consumer_that_ends_leaves_its_part_in_the_transaction(settled: bool) -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    receiver = client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.take(mine, settled=settled)
    receiver.detach(closed=True)
    rig.settle()
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert other.bodies() == ["2"]
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["2"] and quiet(node)


def test_what_a_consumer_had_that_ended_has_failed_where_its_transaction_is_rolled_back() -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    receiver = client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.take(mine, settled=False)
    receiver.detach(closed=True)
    rig.settle()
    controller.abort(mine)
    assert quiet(node)
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    found = {item.body_bytes().decode(): item.header for item in other.messages()}
    assert sorted(found) == ["1", "2"]
    assert all(header is not None and header.delivery_count == 1 for header in found.values())


# ------------------------------------------------------------------------------------------------ errors


def test_ids_of_others_and_of_earlier_starts_are_unknown() -> None:
    rig, node, client, controller = started()
    other = Controller(rig.client(node))
    mine = controller.begin()
    assert condition(other.commit(mine)) == UNKNOWN
    second = Controller(client, "second")
    assert condition(second.commit(mine)) == UNKNOWN
    node.crash()
    node.start()
    controller = Controller(rig.client(node))
    assert controller.begin() != mine
    assert condition(controller.commit(mine)) == UNKNOWN


def test_another_connection_takes_no_part_in_a_transaction() -> None:
    """It may know the id: what it sends and settles with it is of an unknown transaction."""
    rig, node, client, controller = started()
    fill(rig, client, 1)
    mine = controller.begin()
    client.sender("next")
    other = rig.client(node)
    theirs = Controller(other)
    link = other.sender("next")
    other.receiver("work", credit=1)
    rig.settle()
    assert condition(theirs.send(mine, link, "x")) == UNKNOWN
    theirs.take(mine)
    assert [str(told.error.condition) for told in other.detached if told.error is not None] == [UNKNOWN]
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["1"] and node.bodies("next") == [] and quiet(node)


def test_what_is_no_request_is_rejected() -> None:
    rig, _, client, controller = started()
    for payload in (Message(data=[b"x"]).encode(), Message(value="x").encode(), request(Accepted()), b"\x00\x53\x77"):
        context = object()
        controller.link.send(payload, context=context)
        rig.settle()
        assert condition(dict(client.outcomes[-1:])[context]) == "amqp:decode-error"
    controller.link.send(Message(data=[b"x" * 2_000]).encode(), context=1)
    rig.settle()
    assert condition(client.outcomes[-1][1]) == FULL
    assert condition(controller.ask(Declare("global"))) == "amqp:not-implemented"
    assert controller.begin()


@pytest.mark.parametrize(("value", "expected"), [(Declare(), "amqp:not-allowed"), (Discharge(b"none", False), UNKNOWN)])
def test_a_request_that_is_settled_and_fails_ends_the_link(value: Any, expected: str) -> None:
    _, _, client, controller = started()
    controller.ask(value, settled=True)
    (detached,) = client.detached
    assert detached.error is not None and detached.error.condition == expected


def test_a_discharge_may_be_settled() -> None:
    rig, node, client, controller = started()
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "1")
    controller.ask(Discharge(mine, False), settled=True)
    assert node.bodies("work") == ["1"] and quiet(node) and not client.detached


@pytest.mark.parametrize("address", ["work", None])
def test_a_message_that_is_refused_leaves_only_the_rollback(address: Any) -> None:
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=1, when_full="refuse"))
    link = client.sender(address)
    rig.settle()
    mine = controller.begin()
    to = {} if address else {"properties": bound_for("work")}
    assert controller.send(mine, link, "1", **to) == Accepted()
    assert condition(controller.send(mine, link, "2", **to)) == FULL
    assert condition(controller.send(mine, link, "3", **to)) == FULL
    assert condition(controller.commit(mine)) == FULL
    assert node.bodies("work") == [] and quiet(node)
    again = controller.begin()
    assert controller.send(again, link, "4", **to) == Accepted()
    assert controller.commit(again) == Accepted()
    assert node.bodies("work") == ["4"]


def test_a_link_without_address_takes_part_but_not_for_requests() -> None:
    rig, node, client, controller = started()
    link = client.sender(None)  # type: ignore[arg-type]
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "1", properties=bound_for("work")) == Accepted()
    assert controller.send(mine, link, "2", properties=bound_for("other")) == Accepted()
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["1"] and node.bodies("other") == ["2"]
    for where, expected in (("$management", "amqp:not-implemented"), (None, "amqp:precondition-failed")):
        mine = controller.begin()
        assert condition(controller.send(mine, link, "1", properties=bound_for(where))) == expected  # type: ignore[arg-type]
        assert condition(controller.commit(mine)) == expected
    assert quiet(node)


# ------------------------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("count", [3, 4])
def test_operations_are_bounded(count: int) -> None:
    rig, node, client, controller = started(limits=Limits(transaction_operations_max=3))
    fill(rig, client, 2)
    link = client.sender("other")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.take(mine, count=2)
    outcomes = [controller.send(mine, link, str(number)) for number in range(count - 2)]
    assert outcomes[0] == Accepted() and all(condition(item) == FULL for item in outcomes[1:])
    committed = controller.commit(mine)
    if count == 3:
        assert committed == Accepted() and node.bodies("work") == [] and node.bodies("other") == ["0"]
    else:
        assert condition(committed) == FULL
        assert node.bodies("work") == ["1", "2"] and node.bodies("other") == []
    assert quiet(node)


@pytest.mark.parametrize("takes", [True, False])
def test_one_take_too_many_is_told_at_the_commit(takes: bool) -> None:
    rig, node, client, controller = started(limits=Limits(transaction_operations_max=2))
    fill(rig, client, 3)
    client.receiver("work", source={"default_outcome": Released()})
    rig.settle()
    mine = controller.begin()
    controller.take(mine, count=3, settled=takes)
    assert condition(controller.commit(mine)) == FULL
    assert node.bodies("work") == ["1", "2", "3"] and quiet(node)


@pytest.mark.parametrize("size", [5_000, 5_001])
def test_bytes_are_bounded(size: int) -> None:
    rig, node, client, controller = started(limits=Limits(transaction_bytes_max=5_000 + 30))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    outcome = controller.send(mine, link, "x" * (size - 8))
    assert (outcome == Accepted()) == (size == 5_000)
    assert (controller.commit(mine) == Accepted()) == (size == 5_000)
    assert len(node.bodies("work")) == (size == 5_000) and quiet(node)


def test_transactions_of_a_connection_are_bounded() -> None:
    rig, node, client, controller = started(limits=Limits(transactions_max=2))
    one = controller.begin()
    controller.begin()
    assert condition(controller.ask(Declare())) == FULL
    controller.abort(one)
    controller.begin()
    assert Controller(rig.client(node)).begin()
    assert condition(Controller(client, "second").ask(Declare())) == FULL


def test_all_of_them_together_are_bounded() -> None:
    rig, node, client, controller = started(limits=Limits(transactions_bytes_max=65_536))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "x" * 50_000) == Accepted()
    other = rig.client(node)
    theirs = Controller(other)
    work = other.sender("work")
    rig.settle()
    second = theirs.begin()
    assert condition(theirs.send(second, work, "x" * 20_000)) == FULL
    assert controller.commit(mine) == Accepted()
    assert condition(theirs.commit(second)) == FULL
    third = theirs.begin()
    assert theirs.send(third, work, "x" * 20_000) == Accepted()
    assert theirs.commit(third) == Accepted() and quiet(node)


def test_time_is_bounded() -> None:
    rig, node, client, controller = started(limits=Limits(transaction_s=5))
    fill(rig, client, 2)
    link = client.sender("other")
    client.receiver("work", source={"default_outcome": Released()})
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine)
    rig.run(4)
    assert client.bodies() == ["2"]
    rig.run(2)
    assert client.bodies() == ["2", "1"]
    assert node.core is not None and node.core.memory.transactions.held < 3_000
    assert condition(controller.send(mine, link, "y")) == TIMEOUT
    assert condition(controller.commit(mine)) == TIMEOUT
    assert node.bodies("other") == [] and node.bodies("work") == ["1", "2"] and quiet(node)
