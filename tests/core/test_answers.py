"""What `$management` answers about names that are not there, and about what an operation left."""

import pytest

from holdfast.management.operations.costs import WAITING_LOOKED_AT
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import WAITING
from support.hops import names, send
from support.one_node import done, fill, world
from support.rig import Rig


def test_what_a_purge_leaves_in_somebodys_hands_is_told() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 5)
    link = client.receiver("work", credit=2)
    rig.settle()
    assert done(rig.client(node), "PURGE", "queue", "work") == {"purged": 3, "held": 2}
    assert client.accept(link=link) == ["1", "2"]
    assert done(rig.client(node), "PURGE", "queue", "work") == {"purged": 0, "held": 0}


def test_what_a_purge_leaves_with_the_next_node_is_told() -> None:
    rig = Rig()
    a, _ = rig.graph("a-c", c={"queues": (QueueConfig(name="work", messages_max=1),)})
    rig.run(1)
    send(rig, a, *names(1, 100), to="c")
    rig.run(1)
    body = done(rig.client(a), "PURGE", "queue", "@c")
    queue = a.queue("@c")
    assert body["held"] == queue.messages - queue.tombstones > 0 and body["purged"] + body["held"] == 99


@pytest.mark.parametrize("operation", ["SKIP", "PURGE", "DELETE", "READ"])
def test_a_queue_that_is_not_there_is_404(operation: str) -> None:
    _, _, client = world()
    assert client.manage(operation, "queue", "nosuch")[::2] == (404, "no queue 'nosuch'")


def test_the_queue_of_what_waits_is_the_node_s_own_whether_it_is_there_or_not() -> None:
    """A purge names the command that helps; a link is told whose queue it is, not that the name cannot be."""
    rig, _, client = world()
    status, _, text = client.manage("PURGE", "queue", WAITING)
    assert (status, "`holdfast queue skip QUEUE`" in text) == (409, True)
    link = client.receiver(WAITING)
    rig.settle()
    (error,) = (item.error for item in client.detached if item.link is link)
    assert error is not None and str(error.condition) == "amqp:invalid-field"
    assert (error.description or "").startswith("$waiting: the queue belongs to the node")


def test_subscriptions_of_a_queue_that_is_not_there() -> None:
    _, _, client = world(QueueConfig(name="work"))
    assert client.manage("QUERY", "subscription", queue="nosuch")[::2] == (404, "no queue 'nosuch'")
    assert client.manage("QUERY", "subscription", queue=7)[0] == 400
    assert done(client, "QUERY", "subscription", "", queue="work")["subscriptions"] == []


def test_whether_a_queue_was_there_already_is_told() -> None:
    _, _, client = world()
    assert [done(client, "CREATE", "queue", "q")["created"] for _ in range(2)] == [True, False]


def test_a_gap_may_be_skipped_for_a_queue_that_is_not_there_yet() -> None:
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (QueueConfig(name="work", order="strict"),)})
    rig.run(1)
    a.core.catalog.ledger.identities["c"] = 2
    send(rig, a, "2", to="c")
    rig.run(1)
    c.core.delete_queue(c.queue("work"))
    rig.run(1)
    assert len(done(rig.client(c), "SKIP", "queue", "work")["lost"]) == 1


def test_what_waits_is_in_the_cost_of_skipping() -> None:
    """A name that is not there, too, has every number that waits looked at."""
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (QueueConfig(name="work", order="strict"),)})
    rig.run(1)
    a.core.catalog.ledger.identities["c"] = 2
    send(rig, a, *names(2, 50), to="c")
    rig.run(1)
    assert c.queue(WAITING).messages == 49
    client = rig.client(c)
    assert client.manage("SKIP", "queue", "nosuch")[0] == 404
    assert client.manage("SKIP", "queue", "nosuch", origin=[[]] * 1_000)[0] == 404
    assert len(done(client, "SKIP", "queue", "work", origin="nobody")["lost"]) == 0
    assert len(done(client, "SKIP", "queue", "work")["lost"]) == 1
    rig.run(1)
    c.checks = False
    alone = c.core.management.cost_of("", "holdfast:queue", "SKIP", "nosuch", {})
    c.queue(WAITING).messages += 100 * WAITING_LOOKED_AT
    assert c.core.management.cost_of("", "holdfast:queue", "SKIP", "nosuch", {}) == alone + 100


def test_a_queue_that_another_made_is_there_once_it_is_on_disk() -> None:
    """Whoever asks for it meanwhile waits for the same commit."""
    rig, node, one = world()
    other = rig.client(node)
    for client in (one, other):
        client.manage("STATUS", "node")
    node.hold_commits = True
    for client in (one, other):
        with pytest.raises(IndexError):  # no answer
            client.manage("CREATE", "queue", "q")
    node.hold_commits = False
    rig.settle()
    assert len(one.deliveries) == len(other.deliveries) == 1
