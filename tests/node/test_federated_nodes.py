"""Nodes that forward a topic to each other, as processes: entries of the file and of requests, and what is told of
them (docs/federation.md)."""

import asyncio
import json
from pathlib import Path
from typing import Any

from holdfast.client import connect
from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast

LIMIT_S = 100.0
HUB = """
[node]
name = "hub"

[[neighbour]]
name = "jfk"

[[federation]]
topic = "flights"
neighbour = "jfk"
"""
JFK = """
[node]
name = "jfk"

[[neighbour]]
name = "hub"
remote = "{hub}"
"""


async def run(node: NodeProcess, line: str, code: int = 0) -> str:
    ended = await run_holdfast(*line.split(), "--url", node.url)
    assert ended.code == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


async def told(node: NodeProcess, line: str) -> Any:
    return json.loads(await run(node, f"{line} --json"))


async def test_entries_are_added_listed_and_removed_and_outlive_a_kill(tmp_path: Path) -> None:
    hub_file, jfk_file = tmp_path / "hub.toml", tmp_path / "jfk.toml"
    hub_file.write_text(HUB)
    async with asyncio.timeout(LIMIT_S), await NodeProcess.start(tmp_path / "hub.holdfast", config=hub_file) as hub:
        jfk_file.write_text(JFK.format(hub=hub.ready["amqp"]))
        async with await NodeProcess.start(tmp_path / "jfk.holdfast", config=jfk_file) as jfk:
            assert await run(jfk, "federation add flights hub") == "flights@hub added\n"
            assert await run(jfk, "federation add flights hub") == "flights@hub is there already\n"
            push = "federation add flights hub --mode push"
            assert "in another way, direction to and mode dynamic; remove that first" in await run(jfk, push, code=1)
            assert "expected the name of a [[neighbour]]" in await run(jfk, "federation add flights ewr", code=1)
            for verb in ("federation add topic/flights hub", "topology tree topic/flights x"):
                assert "invalid topic 'topic/flights' in federation; leave out topic/" in await run(jfk, verb, code=1)
            static = "federation add prices hub --mode static --pattern us.#"
            assert await run(jfk, static) == "prices@hub added\n"
            assert "no topic" not in await run(jfk, "federation list")

            async def is_up() -> bool:
                rows = {row["topic"]: row for row in await told(jfk, "federation list")}
                status = await told(jfk, "status")
                return [row["state"] for row in rows.values()] == ["up", "up"] and status["federated_by"] == [
                    {"topic": "flights", "neighbour": "hub", "mode": "dynamic", "sets": 1}
                ]

            await eventually_async(is_up)
            await jfk.kill()
            await jfk.restart()
            await eventually_async(is_up)
            (row,) = [row for row in await told(jfk, "federation list") if row["topic"] == "prices"]
            assert (row["mode"], row["patterns"], row["configured"]) == ("static", ["us.#"], False)
            tree = await told(jfk, "topology tree prices us.ibm")
            assert tree == [{"destination": "hub", "next_hop": "hub", "path": None, "relay": True}]
            assert "is in the configuration; remove it there" in await run(hub, "federation remove flights jfk", code=1)
            assert await run(jfk, "federation remove flights hub") == "flights@hub removed\n"
            assert "there is no federation of 'flights' with 'hub'" in await run(
                jfk, "federation remove flights hub", code=1
            )
            assert len((await run(jfk, "federation list")).splitlines()) == 2
            assert await told(jfk, "federation remove prices hub") == {"removed": "prices@hub", "asked": False}
            assert await told(jfk, "federation list") == []
            assert await run(jfk, "federation add news hub --direction from") == "news@hub added\n"

            async def is_asked() -> bool:
                return [row["topic"] for row in await told(hub, "federation list") if row["asked"]] == ["news"]

            await eventually_async(is_asked)
            assert await run(hub, "federation remove news jfk") == (
                "news@jfk removed; jfk asks for it, so it comes back until it is removed there\n"
            )


async def test_what_is_bound_is_known_over_a_kill_and_withdrawn(tmp_path: Path) -> None:
    hub_file, jfk_file = tmp_path / "hub.toml", tmp_path / "jfk.toml"
    hub_file.write_text(HUB)
    async with asyncio.timeout(LIMIT_S), await NodeProcess.start(tmp_path / "hub.holdfast", config=hub_file) as hub:
        jfk_file.write_text(JFK.format(hub=hub.ready["amqp"]) + '[[queue]]\nname = "topic/flights"\n')
        async with await NodeProcess.start(tmp_path / "jfk.holdfast", config=jfk_file) as jfk:

            async def bound() -> list[Any]:
                (row,) = await told(hub, "federation list")
                assert isinstance(row["bindings"], list)
                return row["bindings"]

            async def is_known() -> bool:
                return await bound() == [{"pattern": "delayed.#", "origins": ["jfk"]}]

            async def is_withdrawn() -> bool:
                return await bound() == []

            async with await connect(jfk.url) as connection:
                receiver = await connection.receiver("topic/flights/delayed.#", subscription="s")
                await eventually_async(is_known)
                await receiver.close()
            assert await told(hub, "topology tree flights delayed.jfk") == [
                {"destination": "jfk", "next_hop": "jfk", "path": ["hub", "jfk"], "relay": False}
            ]
            await jfk.kill()
            await hub.kill()
            await hub.restart(same_port=True)
            assert await is_known(), "from its own disk"
            await jfk.restart()
            await run(jfk, "subscription delete s --queue topic/flights")
            await eventually_async(is_withdrawn)


async def test_a_mistake_in_the_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    for text, why in (
        ("[[federation]]\ntopic = 'x'\n", "federation 'x' has no neighbour; expected the name of a [[neighbour]]"),
        ("[[federation]]\nneighbour = 'x'\n", "federation number 1 has no topic; expected text in quotes"),
        (
            "[[federation]]\ntopic = 'topic/x'\nneighbour = 'y'\n",
            "invalid topic 'topic/x' in federation; leave out topic/",
        ),
        ("[[federation]]\ntopic = 'x/y'\nneighbour = 'y'\n", "expected a topic's name, which has no /"),
        ("[[federation]]\ntopic = 'x'\nneighbour = 'y'\n", "invalid neighbour 'y' in federation of 'x'"),
        (
            "[[neighbour]]\nname = 'y'\n[[federation]]\ntopic = 'x'\nneighbour = 'y'\nmode = 'all'\n",
            "invalid mode 'all'",
        ),
    ):
        file.write_text(text)
        ended = await run_holdfast("node", str(file), "--data", str(tmp_path / "d"))
        assert ended.code == 2 and why in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
