"""`holdfast service` against a node (docs/amqp.md, "Services")."""

import json

from support.process import NodeProcess, run_holdfast


async def run(node: NodeProcess, *line: str, code: int = 0) -> str:
    ended = await run_holdfast(*line, "--url", node.url)
    assert ended.code == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


async def test_a_service_is_registered_used_changed_and_removed(node: NodeProcess) -> None:
    assert json.loads(await run(node, "service", "list", "--json")) == []
    assert await run(node, "service", "register", "billing", "orders") == "billing registered\n"
    again = await run(node, "service", "register", "billing", "orders")
    assert again == "billing is registered already, for this address\n"
    await run(node, "send", "$service/billing", "--count", "2")
    assert "is registered for 'orders'" in await run(node, "service", "register", "billing", "later", code=1)
    assert await run(node, "service", "register", "billing", "later", "--replace") == "billing registered\n"
    assert await run(node, "service", "find", "billing") == "later\n"
    assert json.loads(await run(node, "service", "find", "billing", "--json")) == {
        "name": "billing",
        "address": "later",
    }
    await run(node, "send", "$service/billing", "--count", "1")
    for queue, count in (("orders", 2), ("later", 1)):
        lines = (await run(node, "receive", queue, "--browse", "--count", str(count), "--json")).splitlines()
        assert len(lines) == count
    assert (await run(node, "service", "list")).split() == ["name", "address", "billing", "later"]
    assert await run(node, "service", "remove", "billing", "--json") == '{"removed": "billing"}\n'
    assert "no service 'billing'" in await run(node, "service", "find", "billing", code=1)
    assert "amqp:not-found" in await run(node, "send", "$service/billing", "--count", "1", code=1)
