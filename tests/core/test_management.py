"""A request of `$management` is carried out only where its sender may ask for it
(management/operations/operation.py)."""

import pytest

from holdfast.amqp.wire.types import Symbol
from holdfast.custody import returns
from holdfast.engine import events
from holdfast.entity_types import MANAGEMENT
from holdfast.management.operations.answers import Refused
from holdfast.settings.hosts import UserConfig
from holdfast.settings.queues import QueueConfig
from support.one_node import fill, world
from support.rig import Rig


class Readers:
    """Everyone may browse, and do nothing else."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, str, str]] = []

    def authorise(self, who: str | None, action: str, address: str, *, host: str) -> str | None:
        self.asked.append((who, action, address))
        return None if action == "browse" else f"{action} is for operators"


def test_a_request_is_carried_out_where_it_is_allowed_and_else_answered_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    node = rig.node("hub", users=(UserConfig(name="ann", password="x"),))
    assert node.core is not None
    client = rig.client(node, mechanism="PLAIN", user="ann", password="x")
    assert client.manage("CREATE", "queue", "work")[0] == 201
    readers = Readers()
    monkeypatch.setattr(node.core.management, "_authoriser", readers)
    assert client.manage("READ", "queue", "work")[0] == 200
    assert client.manage("DELETE", "queue", "work")[::2] == (403, "delete is for operators")
    assert client.manage("OPEN", "subscription", "sub", queue="work")[0] == 403
    assert client.manage("STATUS", "node")[0] == 403
    assert client.manage("NOSUCH", "queue", "work")[0] == 501, "what is no operation is nobody's to allow"
    assert readers.asked == [
        ("ann", "browse", "work"),
        ("ann", "delete", "work"),
        ("ann", "receive", "work"),
        ("ann", "administer", "$management"),
    ]
    assert "work" in node.core.catalog.queues and not node.queue("work").named


@pytest.mark.parametrize("link", ["consumer", "consumer without credit", "producer", "reader", "subscription"])
def test_a_queue_that_a_link_uses_is_not_deleted(link: str) -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 2)
    client.close_transport()
    rig.settle()
    operator, user = rig.client(node), rig.client(node)
    if link == "producer":
        user.sender("work")
    elif link == "reader":
        user.reader("work", 1)
    elif link == "subscription":
        user.receiver("work", name="sub", source={"durable": 2, "expiry_policy": Symbol("never")})
    else:
        user.receiver("work", credit=0 if link == "consumer without credit" else 1)
    rig.settle()
    status, _, text = operator.manage("DELETE", "queue", "work")
    assert (status, text.startswith("queue 'work' has ")) == (409, True)
    assert node.bodies("work") == ["1", "2"]
    user.close_transport()
    rig.settle()
    assert operator.manage("DELETE", "queue", "work")[0] == (409 if link == "subscription" else 200)


def test_a_queue_is_not_deleted_while_what_a_lost_consumer_held_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "GIVEN_BACK_MAX", 2)
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 9)
    client.close_transport()
    operator, user = rig.client(node), rig.client(node)
    operator.manage("STATUS", "node")
    user.receiver("work")
    rig.settle()
    queue = node.queue("work")
    node.hold_commits = True
    user.close_transport()
    node.handle(events.TurnEnded(wall_ms=node.wall_ms))
    assert not queue.shared.consumers and queue.shared.acquired
    assert node.core is not None
    delete = node.core.management.operations["holdfast:queue", "DELETE"].carry_out
    with pytest.raises(Refused, match="queue 'work' has links"):
        delete("", "work", {})
    node.hold_commits = False
    rig.settle()
    assert operator.manage("DELETE", "queue", "work")[0] == 200


def test_an_argument_that_an_operation_does_not_have_is_refused_and_nothing_is_done() -> None:
    """Left out it would be another request: a purge of some messages would be one of all."""
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 3)
    assert node.core is not None
    operations = [(kind, name) for kind, name in node.core.management.operations if kind != MANAGEMENT]
    assert len(operations) > 40
    for kind, operation in operations:
        status, _, text = client.manage(operation, kind.removeprefix("holdfast:"), "work", selecter="TRUE")
        assert status == 400 and "unknown key 'selecter'; " in text, (kind, operation, text)
    rig.run(1)
    assert node.bodies("work") == ["1", "2", "3"]
    assert client.manage("READ", "queue", "work", x=1)[2].endswith("this request has no arguments")
