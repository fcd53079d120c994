"""What a request deletes stays deleted when the node starts again, and until then what it made is there."""

from typing import Any

import pytest

from holdfast.amqp.wire.types import Symbol
from support.one_node import done
from support.rig import Client, Rig

DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "queue": ("q", {"messages_max": 5}, {}),
    "link": ("l", {"from": "a", "to": "b"}, {}),
    "service": ("billing", {"address": "a"}, {}),
    "subscription": ("s", {}, {"queue": "topic/news"}),
    "federation": ("news@hub", {"mode": "static", "patterns": ["#"]}, {}),
}
"""By type: a name, with what it is made, and with what it is named."""
ROWS = {
    "queue": "queues", "link": "links", "service": "services", "subscription": "subscriptions",
    "federation": "federation",
}  # fmt: skip


def named(client: Client, kind: str, name: str) -> list[dict[str, Any]]:
    rows = done(client, "QUERY", kind, "")[ROWS[kind]]
    return [row for row in rows if row.get("name", f"{row.get('topic')}@{row.get('neighbour')}") == name]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deleted_stays_so_over_a_restart(kind: str) -> None:
    name, made, which = KINDS[kind]
    rig = Rig()
    node, _ = rig.pair()
    rig.run(1)

    def restarted() -> Client:
        node.crash()
        node.start()
        rig.run(1)
        return rig.client(node)

    client = rig.client(node)
    done(client, "CREATE", "queue", "a")
    if kind == "subscription":
        link = client.receiver("topic/news", name=name, source=DURABLE)
        rig.settle()
        link.detach(closed=False)
        rig.settle()
    else:
        done(client, "CREATE", kind, name, **made)
    client = restarted()
    assert len(named(client, kind, name)) == 1
    done(client, "DELETE", kind, name, **which)
    assert not named(client, kind, name)
    assert not named(restarted(), kind, name)
