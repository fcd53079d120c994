"""`holdfast network status`, `drain` and `resume`: what a person sees, and a node that is emptied."""

import asyncio
import json
import os
import pty
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import __version__
from holdfast.client.verbs.network import CLEAR, _left_text, duration, network_lines
from holdfast.lines import RED, YELLOW, Painted
from support.process import NodeProcess, killed_at_the_end, run_holdfast

ROW: dict[str, Any] = {
    "node": "ewr", "state": "up", "age_s": 0.2, "version": "0.1.0", "protocol": 1, "uptime_s": 60, "messages": 120,
    "in_transmission": 3, "oldest_s": 4, "dead_letters": 0, "sessions_up": 1, "sessions": 2, "links": 6,
    "connections": 2, "room_bytes": 10 * 2**30, "warnings": 0, "disk_fails": False, "drained": False, "owed": {},
}  # fmt: skip
SILENT = {"node": "lga", "state": "up", "age_s": None}
LIMIT_S = 100.0


def test_a_row_for_each_node_and_a_line_for_what_else_is_to_be_known() -> None:
    gone = ROW | {"node": "jfk", "state": "unreachable", "age_s": 420.0, "drained": True}
    short = ROW | {"node": "hub", "warnings": 2, "disk_fails": True, "owed": {"jfk": 12}, "drained": True}
    lines = network_lines([ROW, short, gone, SILENT, {"node": "x", "state": "lost", "age_s": None}])
    assert lines[0].split() == [
        "node", "state", "version", "messages", "in", "transit", "oldest", "dead", "sessions", "links", "room",
    ]  # fmt: skip
    assert lines[1].split() == ["ewr", "up", "0.1.0", "120", "3", "4", "s", "0", "1", "of", "2", "6", "10.0", "GiB"]
    assert lines[2].split()[:2] == ["hub", "drained"] and lines[3].split()[:2] == ["jfk", "unreachable"]
    assert lines[4].split() == ["lga", "up", *["-"] * 8] and lines[5].split()[:2] == ["x", "lost"]
    assert lines[6:] == [
        "",
        "hub: its disk takes nothing",
        "hub: 2 warnings; run `holdfast status` there",
        "hub: 12 messages for jfk, which is drained or gone",
        "jfk: as of 7 min ago",
        "lga: no answer; its version may know no such question",
    ]
    assert max(map(len, lines)) <= 100


def test_what_needs_attention_is_in_colour() -> None:
    rows = [ROW, ROW | {"node": "hub", "drained": True, "warnings": 1}, ROW | {"node": "jfk", "state": "unreachable"}]
    colours = [line.colour if isinstance(line, Painted) else None for line in network_lines(rows)]
    assert colours == [None, None, YELLOW, RED, None, YELLOW, YELLOW]


async def test_a_look_takes_the_place_of_the_one_before_on_a_terminal(node: NodeProcess) -> None:
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "network", "status", "--watch", "0.1", "--url", node.url,
            stdin=asyncio.subprocess.DEVNULL, stdout=theirs,
        )  # fmt: skip
        os.close(theirs)
        async with killed_at_the_end(process), asyncio.timeout(LIMIT_S):
            drawn = b""
            while drawn.count(CLEAR.encode()) < 2:
                drawn += await asyncio.to_thread(os.read, ours, 1 << 16)
    finally:
        os.close(ours)
    assert drawn.startswith(CLEAR.encode()) and b"\\u001b" not in drawn and b"node  state" in drawn


def test_counts_of_one_are_singular() -> None:
    left = {"messages": 1, "in_transmission": 0, "dead_letters": 1, "owed": 0, "unknown": []}
    text = "hub holds 1 message, 0 for other nodes; others hold 0 for it; it keeps 1 dead letter"
    assert _left_text("hub", left) == text
    assert _left_text("hub", left | {"messages": 0, "dead_letters": 2}) == "hub is empty; it keeps 2 dead letters"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119.9, "120 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (200_000, "2 d"), (None, None)],
)
def test_seconds_for_people(seconds: float | None, text: str | None) -> None:
    assert duration(seconds) == text


async def run(node: NodeProcess, line: str, *, stdin: str | None = None, code: int = 0) -> tuple[str, str]:
    ended = await run_holdfast(*line.split(), "--url", node.url, stdin=stdin)
    assert ended.code == code, (ended.stdout, ended.stderr)
    return ended.stdout, ended.stderr


async def test_a_node_is_drained_empty_and_resumed(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    file.write_text(f'[node]\nname = "hub"\ndata = "{tmp_path}/store"\n[[queue]]\nname = "work"\n')
    async with asyncio.timeout(LIMIT_S), await NodeProcess.start(config=file) as node:
        await run(node, "send work", stdin="1\n2\n")
        out, _ = await run(node, "network status --json")
        [row] = json.loads(out)
        assert (row["node"], row["messages"], row["version"], row["drained"]) == ("hub", 2, __version__, False)
        out, told = await run(node, "drain --no-wait")
        until = "; it takes no new messages until `holdfast resume`\n"
        assert (out, told) == (f"hub holds 2 messages, 0 for other nodes; others hold 0 for it{until}", "")
        _, told = await run(node, "send work --retry 0", stdin="3\n", code=1)
        assert "node 'hub' is being drained: it takes no new messages; send to another node" in told
        waiting = asyncio.create_task(run(node, "drain"))
        out, _ = await run(node, "receive work --count 2")
        assert out == "1\n2\n"
        out, told = await waiting
        assert (
            out == f"hub is empty{until}" and "is empty" not in told and "hub was being drained already, since" in told
        )
        await node.kill()
        await node.restart()
        assert "node 'hub' is being drained" in node.stderr
        out, _ = await run(node, "network status")
        assert out.splitlines()[1].split()[:2] == ["hub", "drained"]
        out, _ = await run(node, "drain --json")
        assert json.loads(out) == {
            "node": "hub", "messages": 0, "in_transmission": 0, "dead_letters": 0, "owed": 0, "unknown": [],
        }  # fmt: skip
        assert await run(node, "resume") == ("hub takes new messages again\n", "")
        assert await run(node, "resume") == ("hub takes new messages already\n", "")
        await run(node, "send work", stdin="3\n")
        assert await node.stop() == 0


async def test_who_stops_waiting_for_a_drained_node_is_told_that_it_stays_drained(node: NodeProcess) -> None:
    await run(node, "send work", stdin="1\n")
    for ends, code in ((lambda process: process.send_signal(signal.SIGINT), 130), (lambda _: node.kill(), 1)):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "drain", "--url", node.url,
            stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with killed_at_the_end(process):
            assert process.stderr is not None
            while b"t holds 1 message" not in await process.stderr.readline():
                pass
            if (ended := ends(process)) is not None:
                await ended
            _, said = await asyncio.wait_for(process.communicate(), LIMIT_S)
        assert process.returncode == code
        assert b"holdfast drain: t stays drained until `holdfast resume`\n" in said
