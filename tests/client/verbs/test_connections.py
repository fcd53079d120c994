"""`holdfast connection` against a node."""

import json
from typing import Any

from holdfast.client import connect
from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast


async def run(node: NodeProcess, *line: str, code: int = 0) -> str:
    ended = await run_holdfast("connection", *line, "--url", node.url)
    assert ended.code == code, ended.stderr
    assert code == 0 or ended.stderr.count("\n") == 1, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


async def rows(node: NodeProcess, *line: str) -> list[dict[str, Any]]:
    found = json.loads(await run(node, *line, "--json"))
    assert isinstance(found, list)
    return found


async def test_a_client_is_listed_with_its_links_and_closed_piece_by_piece(node: NodeProcess) -> None:
    async with await connect(node.url, container_id="lister") as connection:
        sender = await connection.sender("flights")
        await sender.send("one")
        found = {row["container_id"]: row for row in await rows(node, "list")}
        ours = found["lister"]["identity"]
        assert len(found) == 2 and found["lister"]["kind"] == "client", "and the one that asks"
        printed = await run(node, "list")
        assert printed.splitlines()[0].split()[:4] == ["identity", "kind", "user", "address"] and "lister" in printed
        assert max(map(len, printed.splitlines())) <= 120

        (session,) = await rows(node, "sessions", ours)
        (link,) = await rows(node, "links", ours)
        assert (session["connection"], session["links"]) == (ours, 1)
        assert (link["direction"], link["address"]) == ("in", "flights")
        assert len(await rows(node, "links")) == 3, "those of the one that asks, too"
        assert "flights" in await run(node, "links", ours)

        for identity in (link["identity"], session["identity"]):
            assert await run(node, "close", identity) == f"{identity} closed\n"
            await sender.send("again")  # it has attached again
        (again,) = [row["identity"] for row in await rows(node, "list") if row["container_id"] == "lister"]
        assert json.loads(await run(node, "close", again, "--json")) == {"closed": again}
        await sender.send("again")
        assert f"no connection '{again}'" in await run(node, "close", again, code=1)

    async def left() -> int:
        return len(await rows(node, "list"))

    await eventually_async(left, lambda count: count == 1)


async def test_mistakes_get_one_line(node: NodeProcess) -> None:
    assert "no session '99/0'" in await run(node, "close", "99/0", code=1)
    for action in ("links", "sessions"):
        ended = await run_holdfast("connection", action, "99", "--url", node.url)
        said = f"holdfast connection {action}: no connection '99'\n"
        assert (ended.code, ended.stdout, ended.stderr) == (1, "", said)
    for words, said in (
        (["close", "one"], "invalid value 'one' for NUMBER[/CHANNEL[/HANDLE]]; expected an identity, such as 17"),
        (["close", "9" * 5_000], "; expected an identity, such as 17"),
        (["close", "1/2/3/4"], "expected an identity, such as 17, 17/0 or 17/0/2"),
        (["links", "x"], "expected the number of a connection, such as 17"),
        (["lst"], "did you mean list?"),
    ):
        ended = await run_holdfast("connection", *words)
        assert ended.code == 2 and said in ended.stderr and "Traceback" not in ended.stderr, ended.stderr
