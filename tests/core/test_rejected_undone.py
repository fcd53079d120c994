"""What a consumer rejected is a dead letter or is offered again, also where the turn with it is undone."""

import pytest

from holdfast.amqp.wire.performatives import Error, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.core.undo import take_back_gathered
from support.one_node import done, fill, world


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_rejected_message_outlives_a_failure_that_is_contained(subscribed: bool) -> None:
    """Another peer's failure undoes the turn: the dead letter never was. Beside a subscription the shared cursor has
    finished the message all the same."""
    rig, node, client = world()
    if subscribed:
        done(client, "OPEN", "subscription", "s", queue="work", mode="copy", start="next")
    fill(rig, client, 1)
    link = client.receiver("work", credit=1)
    rig.settle()
    node.hold_commits = True
    fill(rig, client, 1, "other")  # a commit is under way, so that what comes next is gathered
    client.accept(Rejected(Error(Symbol("a:b"), "why")), link=link)
    rig.settle()
    assert node.core is not None and node.pending is not None
    assert any(len(value) for _, _, value in node.core.turns.gathered.batch.appends), "the dead letter"
    take_back_gathered(node.core, ())
    node.hold_commits = False
    rig.run(3)
    again = rig.client(node)
    again.receiver("work")
    rig.run(3)
    assert [*node.bodies("$dead-letters"), *again.bodies()] == ["1"], "neither a dead letter nor offered again"


@pytest.mark.parametrize("subscribed", [False, True])
def test_what_was_rejected_has_failed_where_the_dead_letter_is_refused(subscribed: bool) -> None:
    rig, node, client = world()
    if subscribed:
        done(client, "OPEN", "subscription", "s", queue="work", mode="copy", start="next")
    fill(rig, client, 1)
    link = client.receiver("work", credit=1)
    rig.settle()
    node.refuse = 1
    client.accept(Rejected(), link=link)
    rig.run(3)
    again = rig.client(node)
    again.receiver("work")
    rig.run(3)
    (message,) = again.messages()
    assert message.header is not None and message.header.delivery_count == 1
    assert "$dead-letters" not in node.core.catalog.queues or node.bodies("$dead-letters") == []  # type: ignore[union-attr]
