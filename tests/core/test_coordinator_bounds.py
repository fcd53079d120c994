"""What waits at a coordinator is bounded."""

from collections.abc import Iterator

from holdfast.amqp.wire.performatives import Declare, Discharge
from holdfast.endpoints.transactions.coordinator import CREDIT, CoordinatorLink
from holdfast.settings.limits import Limits
from support.rig import Node
from support.transactions import request, started


def coordinators(node: Node) -> Iterator[CoordinatorLink]:
    assert node.core is not None
    for peer in node.core.connections.values():
        for session in peer.amqp.sessions:
            yield from (link.context for link in session.links.values() if isinstance(link.context, CoordinatorLink))


def test_what_waits_behind_a_commit_that_waits_is_bounded() -> None:
    """A disk that stalls has a commit wait, and credit is given for ever more behind it."""
    rig, node, client, controller = started(limits=Limits(commit_stall_s=1))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    node.hold_commits = True
    client.send(link, "holds")
    rig.run(3)  # the disk stalls
    controller.link.send(request(Discharge(mine, False)), context="commit")
    rig.settle()
    for _ in range(40):
        while controller.link.credit > 0:
            controller.link.send(request(Declare()), context=None)
        rig.settle()
    assert [len(found.waiting) for found in coordinators(node)] <= [2 * CREDIT]
