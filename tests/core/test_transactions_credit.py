"""Credit that a transaction brings at a full queue comes at once."""

from holdfast.endpoints.producer import TRANSACTION_CREDIT
from holdfast.settings.queues import QueueConfig
from support.one_node import fill
from support.transactions import started


def test_who_declares_is_given_credit_without_any_other_event() -> None:
    """A declare is carried out as links are given credit: what it gives waits for the next turn, which has a time."""
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=1, when_full="block"))
    fill(rig, client, 1)
    link = client.sender("work")
    rig.settle()
    assert link.credit == 0
    controller.begin()
    assert link.credit == TRANSACTION_CREDIT
