"""Sessions and transactions of clients as `$management` lists them, and a transaction that is closed by hand."""

import pytest

from core.test_entities import ask, rows
from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.settings.hosts import VhostConfig
from support.one_node import done, fill
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
