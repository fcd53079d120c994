"""Sessions and transactions of clients as `$management` lists them; sessions, links and transactions closed by hand."""

from typing import Any

import pytest

from core.test_entities import ask, rows
from holdfast.amqp.wire.performatives import Accepted, Rejected, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.queues import QueueConfig
from support.one_node import done, fill, world
from support.resuming import Producer
from support.rig import Client, Rig
from support.standing import core_of
from support.transactions import ROLLBACK, UNKNOWN, condition, quiet, started


def test_sessions_are_listed_with_their_links() -> None:
    rig, node, client, _ = started()
    other = rig.client(node)
    other.receiver("work")
    other.receiver("next")
    rig.settle()
    found = rows(client, "session")
    identities = [row["identity"] for row in found]
    assert len(found) == 2 and identities == [f"{row['connection']}/{row['channel']}" for row in found]
    assert found[1]["links"] == 2
    (rest,) = rows(client, "session", after=identities[0])
    assert rest == found[1]
    assert ask(client, "QUERY", entityType="holdfast:session", after="1")[0] == 400


def one(client: Client, kind: str, name: str) -> dict[str, Any]:
    """The row of that kind about the link of that name, or of its session."""
    (link,) = [row for row in rows(client, "attachment") if row["name"] == name]
    if kind == "attachment":
        return link
    (session,) = [
        row
        for row in rows(client, kind)
        if (row["connection"], row["channel"]) == (link["connection"], link["session"])
    ]
    return session


@pytest.mark.parametrize("kind", ["session", "attachment"])
@pytest.mark.parametrize("answers", [True, False])
def test_a_session_or_a_link_is_closed_by_hand(kind: str, answers: bool) -> None:
    rig, node, client = world(QueueConfig(name="work"), QueueConfig(name="other"))
    fill(rig, client, 3)
    user = rig.client(node)
    mine = user.receiver("work", name="mine", credit=2)
    away = user.sender("work", name="away")
    beside = user.amqp.begin().attach_receiver("beside", Source(address="other"), Target())
    beside.grant(5)
    rig.settle()
    sent = user.bodies(mine)
    name = one(client, kind, "mine")["identity"]
    if not answers:
        user.receive = lambda data: None  # type: ignore[method-assign]  # it reads no more
    assert done(client, "CLOSE", kind, name) == {"closed": name}
    rig.settle()
    assert core_of(node).validate() is None
    ended = {event.link for event in user.detached}
    if answers:
        assert ended == ({mine, away} if kind == "session" else {mine})
        (error,) = {(event.error.condition, event.error.description) for event in user.detached if event.error}
        assert error == ("amqp:link:detach-forced", "closed by an operator")
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.accept() == ["1", "2", "3"], "what it held is offered again, whether it answers or not"
    assert sent == ["1", "2"]
    assert client.manage("CLOSE", kind, name)[0] in (404, 409)
    left = {row["name"] for row in rows(client, "attachment") if row["connection"] == name.partition("/")[0]}
    assert left == ({"beside"} if kind == "session" else {"away", "beside"} if answers else {"away", "beside", "mine"})
    if answers:
        assert user.amqp.usable
        link = other.sender("other")
        rig.settle()
        other.send(link, "x")
        rig.settle()
        assert user.bodies(beside) == ["x"], "the other session goes on"
        again = user.amqp.begin().attach_receiver("mine", Source(address="work"), Target())
        rig.settle()
        assert again.attached


@pytest.mark.parametrize("kind", ["session", "attachment"])
def test_a_sender_that_resumes_a_link_closed_by_hand_is_told_what_was_being_stored(kind: str) -> None:
    """Else it sends that again."""
    rig, node, client = world(QueueConfig(name="work"))
    producer = Producer(rig, node)
    name = one(client, kind, "p")["identity"]
    node.hold_commits = True
    producer.send("a")
    rig.settle()
    assert done(client, "CLOSE", kind, name) == {"closed": name}
    rig.settle()
    assert producer.link.over and producer.link.closed == (kind == "attachment")
    producer.lose()
    node.hold_commits = False
    rig.settle()
    assert producer.come_back() == {bytes(4): Accepted()}
    assert node.bodies("work") == ["a"]


@pytest.mark.parametrize("kind", ["session", "attachment"])
def test_what_is_no_session_and_no_link_is_not_found(kind: str) -> None:
    rig, node, client = world(QueueConfig(name="work"), vhosts=(VhostConfig(name="acme"),))
    user = rig.client(node)
    user.receiver("work", name="mine")
    rig.settle()
    name = one(client, kind, "mine")["identity"]
    short = name.rpartition("/")[0]
    for other in (short, f"{name}/0", f"{short}/9", "", "/", "x/0", "-1/0", "9" * 30 + "/0", "1/0/0/0"):
        assert client.manage("CLOSE", kind, other)[0] == 404, other
    stranger = rig.client(node, hostname="acme")
    rig.settle()
    assert stranger.manage("CLOSE", kind, name)[0] == 404
    assert not user.detached


@pytest.mark.parametrize("kind", ["session", "attachment"])
def test_a_session_of_a_neighbour_is_closed_with_its_connection(kind: str) -> None:
    rig = Rig()
    _, hub = rig.pair()
    rig.run(3)
    client = rig.client(hub)
    (peer,) = [row["identity"] for row in rows(client, "connection") if row["kind"] == "neighbour"]
    of_peer = [row["identity"] for row in rows(client, kind) if row["connection"] == peer]
    status, _, text = client.manage("CLOSE", kind, of_peer[0])
    assert (status, text) == (409, f"{kind} {of_peer[0]!r} is a neighbour's; close its connection, which comes again")


def test_a_session_ends_while_an_attach_waits_for_the_disk() -> None:
    rig, node, client = world(QueueConfig(name="topic/t"))
    user = rig.client(node)
    user.sender("topic/t", name="beside")
    rig.settle()
    name = one(client, "session", "beside")["identity"]
    node.hold_commits = True
    link = user.receiver("topic/t", name="s", source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    assert not link.attached
    waiting = one(client, "attachment", "s")["identity"]
    assert client.manage("CLOSE", "attachment", waiting)[::2] == (
        409, f"attachment {waiting!r} is being opened or closed"
    )  # fmt: skip
    assert done(client, "CLOSE", "session", name) == {"closed": name}
    rig.settle()
    node.hold_commits = False
    rig.run(1)
    assert core_of(node).validate() is None and not core_of(node).containment.peers_ended
    assert {event.link.name for event in user.detached} == {"beside", "s"} and user.amqp.usable
    assert rig.client(node).manage("READ", "subscription", "s", queue="topic/t")[0] == 200, "as if the link were lost"


def test_the_session_that_asks_may_close_itself() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    (row,) = rows(client, "session")
    with pytest.raises(IndexError):  # nobody is left to hear the answer
        client.manage("CLOSE", "session", row["identity"])
    rig.run(1)
    assert len(client.detached) == 2 and client.amqp.usable
    assert core_of(node).validate() is None
    assert rig.client(node).manage("READ", "queue", "work")[0] == 200


def test_a_transaction_is_rolled_back_with_its_session() -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    client.receiver("work", credit=1)
    rig.settle()
    mine = controller.begin()
    controller.take(mine)
    operator = rig.client(node)
    (row,) = [row for row in rows(operator, "session") if row["links"] > 2]
    assert done(operator, "CLOSE", "session", row["identity"])
    rig.run(1)
    assert quiet(node) and node.bodies("work") == ["1", "2"]


def test_transactions_are_listed_and_one_is_closed() -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    client.receiver("work", credit=1)
    link = client.sender("next")
    rig.settle()
    first, second = controller.begin(), controller.begin()
    assert controller.send(first, link, "x" * 100) == Accepted()
    controller.take(first)
    found = rows(client, "transaction")
    assert [row["name"] for row in found] == [first.hex(), second.hex()]
    assert (found[0]["messages"], found[0]["deliveries"], found[0]["failed"]) == (1, 1, None)
    assert found[0]["bytes"] >= 100 and 0 < found[0]["left_s"] <= 300 and found[1]["messages"] == 0
    assert [row["name"] for row in rows(client, "transaction", after=first.hex())] == [second.hex()]
    operator = rig.client(node)
    assert done(operator, "CLOSE", "transaction", first.hex()) == {"closed": first.hex()}
    rig.settle()
    assert node.bodies("work") == ["1", "2"] and node.bodies("next") == []
    (row, _) = rows(client, "transaction")
    assert (row["messages"], row["deliveries"], row["failed"]) == (0, 0, "the transaction was closed by an operator")
    assert condition(controller.send(first, link, "y")) == ROLLBACK
    outcome = controller.commit(first)
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert condition(outcome) == ROLLBACK and "closed by an operator" in str(outcome.error.description)
    assert condition(controller.commit(first)) == UNKNOWN
    assert controller.commit(second) == Accepted()
    assert quiet(node)
    assert operator.manage("CLOSE", "transaction", first.hex())[0] == 404


@pytest.mark.parametrize("name", ["", "x", "00" * 16])
def test_there_is_no_other_transaction(name: str) -> None:
    _, _, client, controller = started()
    controller.begin()
    assert client.manage("CLOSE", "transaction", name)[0] == 404


def test_a_transaction_of_another_host_is_not_there() -> None:
    rig, node, client, controller = started(vhosts=(VhostConfig(name="acme"),))
    txn_id = controller.begin()
    stranger = rig.client(node, hostname="vhost:acme")
    assert rows(stranger, "transaction") == [] and len(rows(client, "transaction")) == 1
    assert stranger.manage("CLOSE", "transaction", txn_id.hex())[0] == 404
