"""What an operation of management changed is a line in the log: who, what, how many."""

from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.hops import send
from support.one_node import done, fill, world
from support.rig import Node, Rig


def changes(node: Node) -> list[str]:
    """What was logged of the client's doings, without who it was."""
    marks = (" (without a login)", " (by user 'ops')")
    return [line.partition(": ")[2].rsplit(" (", 1)[0] for line in node.logs if line.endswith(marks)]


def test_what_makes_drops_or_ends_something_is_logged() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 3)
    done(client, "PURGE", "queue", "work")
    done(client, "CREATE", "queue", "other")
    done(client, "OPEN", "subscription", "s", queue="other", mode="copy")
    done(client, "DELETE", "subscription", "s", queue="other")
    other = rig.client(node)
    fill(rig, other, 2, "other")
    other.close_transport()
    rig.settle()
    done(client, "DELETE", "queue", "other")
    assert changes(node) == [
        "queue 'work' purged: 3 messages dropped",
        "queue 'other' created",
        "subscription 's' on queue 'other' created, mode copy",
        "subscription 's' on queue 'other' deleted",
        "queue 'other' deleted: 2 messages dropped",
    ]


def test_the_user_and_the_address_are_told() -> None:
    rig = Rig()
    node = rig.node("hub", users=(UserConfig(name="ops", password="x"),), queues=(QueueConfig(name="work"),))
    client = rig.client(node, mechanism="PLAIN", user="ops", password="x")
    done(client, "PURGE", "queue", "work")
    assert "client@client: queue 'work' purged: 0 messages dropped (by user 'ops')" in node.logs


def test_what_only_asks_or_changes_nothing_is_not() -> None:
    _, node, client = world(QueueConfig(name="work"))
    done(client, "CREATE", "queue", "work")
    done(client, "STATUS", "node", "")
    done(client, "READ", "queue", "work")
    done(client, "QUERY", "queue", "")
    done(client, "SKIP", "queue", "work")
    assert client.manage("DELETE", "queue", "nosuch")[0] == 404
    done(client, "OPEN", "subscription", "s", queue="work")
    before = len(changes(node))
    done(client, "OPEN", "subscription", "s", queue="work")  # its next holder
    assert len(changes(node)) == before == 1


def test_skipped_gaps() -> None:
    rig = Rig()
    a, c = rig.graph("a-c", c={"queues": (QueueConfig(name="work", order="strict"),)})
    rig.run(1)
    a.core.catalog.ledger.identities["c"] = 4
    send(rig, a, "4", to="c")
    rig.run(1)
    done(rig.client(c), "SKIP", "queue", "work")
    assert changes(c) == ["gaps skipped for queue 'work': 3 numbers in 1 range given up"]


def test_a_client_that_creates_and_deletes_without_end_floods_nothing() -> None:
    _, node, client = world(limits=Limits(log_lines_per_minute=5))
    for _ in range(50):
        done(client, "CREATE", "queue", "q")
        done(client, "DELETE", "queue", "q")
    assert len(changes(node)) == 5 and node.core.log.left_out_total == 95


def test_what_a_purge_leaves_is_in_its_line() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    fill(rig, client, 5)
    client.receiver("work", credit=2)
    rig.settle()
    done(rig.client(node), "PURGE", "queue", "work")
    assert changes(node) == ["queue 'work' purged: 3 messages dropped, 2 kept: held by consumers or the next node"]
