"""A large message that nobody has subscribed to leaves the topic again, also where another one follows it."""

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Discharge
from support.streams import LARGE, LIMITS, body, is_clean
from support.transactions import request, started, within


@pytest.mark.parametrize("together", [False, True])
def test_large_messages_for_nobody_leave_though_their_commits_follow_each_other(together: bool) -> None:
    """A turn that looks for them before they are on disk finds nothing, and forgets them: they stay for good."""
    rig, node, client, controller = started(limits=LIMITS)
    link = client.sender("topic/news")
    rig.settle()
    transactions = [controller.begin(), controller.begin()]
    for number, mine in enumerate(transactions):
        message = Message(data=[body(LARGE, str(number)).encode()])
        link.send(message.encode(), context=number, state=within(mine))
        rig.run(1)
    node.hold_commits = together
    for mine in transactions:
        controller.link.send(request(Discharge(mine, False)), context="commit")
        rig.settle()
    node.hold_commits = False
    for _ in range(10):
        rig.run(1)
    assert node.queue("topic/news").messages == 0 and is_clean(node)
