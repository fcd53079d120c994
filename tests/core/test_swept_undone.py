"""What a refused commit gives back to a transaction's hands is not swept away with what was finished."""

import pytest

from holdfast.amqp.wire.performatives import Accepted, Discharge, Released, TransactionalState
from holdfast.broker.queue import RECLAIM_COUNT
from support.one_node import done, fill
from support.transactions import condition, request, started

COUNT = RECLAIM_COUNT + 500


@pytest.mark.parametrize("deleted", [True, False])
def test_a_subscription_made_and_deleted_during_a_refused_commit_loses_nothing(deleted: bool) -> None:
    rig, node, client, controller = started()
    other = rig.client(node)
    done(other, "QUERY", "subscription", "")
    for first in range(1, COUNT, 500):
        fill(rig, client, 500, first=first)
    link = client.receiver("work", credit=COUNT, source={"default_outcome": Released()})
    sender = client.sender("more")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, sender, "x")
    assert len(client.deliveries) == COUNT
    link.settle(
        client.deliveries[0].delivery_id, client.deliveries[-1].delivery_id, TransactionalState(mine, Accepted())
    )
    rig.settle()
    node.hold_commits = True
    controller.link.send(request(Discharge(mine, False)), context="commit")
    rig.settle()
    assert node.pending is not None and len(node.pending.batch.retires) == COUNT
    other.request("OPEN", "subscription", "s", queue="work", mode="copy")
    if deleted:
        other.request("DELETE", "subscription", "s", queue="work")
    rig.settle()
    node.refuse = 1
    node.hold_commits = False
    for _ in range(10):
        rig.run(1)
    answers = [state for told, state in client.outcomes if told == "commit"]
    assert condition(answers[0]) == "amqp:resource-limit-exceeded", "it never was"
    assert node.bodies("more") == []
    assert len(node.bodies("work")) == COUNT, "messages of a transaction that was rolled back are gone"
