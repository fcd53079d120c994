"""Credit that a transaction brings at a full queue comes at once, and goes with it."""

import pytest

from holdfast.endpoints.producer import TRANSACTION_CREDIT
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.transactions import started


def test_who_declares_is_given_credit_without_any_other_event() -> None:
    """A declare is carried out as links are given credit: what it gives waits for the next turn, which has a time."""
    rig, _, client, controller = started(QueueConfig(name="work", messages_max=1, when_full="block"))
    fill(rig, client, 1)
    link = client.sender("work")
    rig.settle()
    assert link.credit == 0
    controller.begin()
    assert link.credit == TRANSACTION_CREDIT


@pytest.mark.parametrize("commits", [True, False])
def test_where_room_goes_by_priority_the_credit_ends_with_the_transaction(commits: bool) -> None:
    full = QueueConfig(name="work", messages_max=1, when_full="block", room_low=0.5)
    rig, _, client, controller = started(full)
    fill(rig, client, 1)
    link = client.sender("work")
    rig.settle()
    mine, other = controller.begin(), controller.begin()
    assert link.credit == TRANSACTION_CREDIT
    controller.abort(other)
    assert link.credit == TRANSACTION_CREDIT, "one of them is open"
    (controller.commit if commits else controller.abort)(mine)
    assert link.credit == 0
