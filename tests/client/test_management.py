"""Requests to `$management` whose answer does not come: which are sent again, and which end in doubt."""

import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from client.fake_broker import FakeBroker, Peer
from holdfast.amqp.message.message import Message
from holdfast.client import Connection, ConnectionFailed, ManagementError, RequestInDoubt, connect
from holdfast.client.management import READ, SET, is_repeatable
from support.process import NodeProcess, killed_at_the_end, run_holdfast

ONCE = {"CLOSE", "COPY", "DELETE", "FORGET", "MOVE", "PURGE", "REQUEUE", "SKIP"}
"""What these operations do a second time is something else."""
LIMIT_S = 20.0

Answer = tuple[int, str, object]


def cutting(broker: FakeBroker, *, cuts: int) -> list[str]:
    """Has the broker carry out requests, and cut the connection instead of its answer so many times. Returns the
    operations, as they come."""
    asked: list[str] = []

    def answer(told: dict[str, Any], value: object) -> Answer:
        asked.append(str(told["operation"]))
        if len(asked) <= cuts:
            broker.cut()
        return 200, "", {"asked": len(asked)}

    broker.answer = answer
    return asked


@pytest.mark.parametrize("operation", sorted(READ | SET))
async def test_a_request_that_may_be_repeated_is_sent_again(
    broker: FakeBroker, connection: Connection, operation: str
) -> None:
    asked = cutting(broker, cuts=2)
    async with asyncio.timeout(LIMIT_S):
        assert await connection.manage(operation, "holdfast:queue", "q") == {"asked": 3}
    assert asked == [operation] * 3 and connection.reconnects == 2


@pytest.mark.parametrize("operation", sorted(ONCE))
async def test_a_request_that_may_have_been_carried_out_is_not_sent_again(
    broker: FakeBroker, connection: Connection, operation: str
) -> None:
    asked = cutting(broker, cuts=1)
    wanted = rf"^{operation} holdfast:queue 'q': the connection to \S+ broke before the answer came; the node may have"
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(RequestInDoubt, match=wanted) as caught:
            await connection.manage(operation, "holdfast:queue", "q")
        assert "\n" not in str(caught.value)
        assert await connection.manage("READ", "holdfast:queue", "q") == {"asked": 2}
    assert asked == [operation, "READ"]


async def test_only_what_reads_is_repeated_at_nodes_of_others(broker: FakeBroker, connection: Connection) -> None:
    assert is_repeatable("READ", "org.example:queue") and not is_repeatable("CREATE", "org.example:queue")
    assert not is_repeatable("read", "holdfast:queue")
    asked = cutting(broker, cuts=1)
    with pytest.raises(RequestInDoubt):
        await asyncio.wait_for(connection.manage("CREATE", "org.example:queue", "q"), LIMIT_S)
    assert asked == ["CREATE"]


async def test_what_was_not_sent_before_a_break_is_sent_after_it(broker: FakeBroker, connection: Connection) -> None:
    asked = cutting(broker, cuts=0)
    await connection.manage("READ", "holdfast:queue")
    await broker.stop()
    deleting = asyncio.ensure_future(connection.manage("DELETE", "holdfast:queue", "q"))
    await asyncio.sleep(0.1)
    await broker.listen()
    assert await asyncio.wait_for(deleting, LIMIT_S) == {"asked": 2}
    assert asked == ["READ", "DELETE"]


async def test_a_link_that_ends_before_the_answer_leaves_it_in_doubt(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes on."""
    asked = cutting(broker, cuts=0)
    with monkeypatch.context() as patch:
        patch.setattr(Peer, "answer", lambda peer, event: broker.detach_all("amqp:link:detach-forced"))
        with pytest.raises(RequestInDoubt):
            await asyncio.wait_for(connection.manage("PURGE", "holdfast:queue", "q"), LIMIT_S)
    assert await asyncio.wait_for(connection.manage("READ", "holdfast:queue", "q"), LIMIT_S) == {"asked": 1}
    assert asked == ["READ"] and connection.reconnects == 0


async def test_without_an_answer_in_time_it_is_in_doubt_too(broker: FakeBroker, connection: Connection) -> None:
    cutting(broker, cuts=0)
    await connection.manage("READ", "holdfast:queue")
    broker.silent = True
    for operation, error in (("MOVE", RequestInDoubt), ("READ", ConnectionFailed)):
        with pytest.raises(error, match=r"no answer from \S+ for 0\.2 s"):
            await connection.manage(operation, "holdfast:entry", "q", limit_s=0.2)


async def test_the_end_of_the_connection_leaves_it_in_doubt(broker: FakeBroker, connection: Connection) -> None:
    asked = cutting(broker, cuts=0)
    await connection.manage("READ", "holdfast:queue")
    broker.silent = True
    moving = asyncio.ensure_future(connection.manage("MOVE", "holdfast:entry", "q"))
    await asyncio.sleep(0.1)
    await connection.abort()
    with pytest.raises(RequestInDoubt):
        await asyncio.wait_for(moving, LIMIT_S)
    assert asked == ["READ"]


async def test_a_refusal_is_a_refusal(broker: FakeBroker, connection: Connection) -> None:
    broker.answer = lambda told, value: (409, "in use", None)
    with pytest.raises(ManagementError, match="409 in use"):
        await connection.manage("DELETE", "holdfast:queue", "q")


async def test_each_operation_of_a_node_says_whether_it_may_be_repeated(node: NodeProcess) -> None:
    """A new operation is to be put into one of the three sets, and into docs/management.md."""
    assert not (READ & SET or (READ | SET) & ONCE)
    async with await connect(node.url) as connection:
        found = await connection.manage("GET-OPERATIONS", "org.amqp.management", "self")
    names = {name for operations in found.values() for name in operations}
    assert names | {f"GET-{what}" for what in ("ATTRIBUTES", "MGMT-NODES", "OPERATIONS", "TYPES")} == READ | SET | ONCE


async def test_the_command_line_says_it_in_one_line(broker: FakeBroker) -> None:
    asked = cutting(broker, cuts=1)
    done = await run_holdfast("queue", "purge", "q", "--url", broker.url, "--retry", "10")
    assert (done.code, done.stdout, asked) == (1, "", ["PURGE"])
    line = done.stderr.splitlines()[-1]
    assert line.startswith("holdfast queue purge: PURGE holdfast:queue 'q': the connection to ")
    assert line.endswith("; the node may have carried it out or not: look before you ask again")


@pytest.mark.parametrize(
    ("words", "asked", "code"),
    [
        ("queue purge q", "PURGE holdfast:queue 'q'", signal.SIGINT),
        ("queue create q", "CREATE holdfast:queue 'q'", signal.SIGTERM),
        ("messages copy q 1 --to x", "COPY holdfast:entry 'q'", signal.SIGINT),
        ("messages move q 1 --to x --json", "MOVE holdfast:entry 'q'", signal.SIGINT),
        ("queue list", "", signal.SIGINT),
    ],
)
async def test_ctrl_c_before_the_answer_to_a_change_is_told_in_one_line(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, words: str, asked: str, code: signal.Signals
) -> None:
    """What only reads is ended without a word."""
    answer, stop = Peer.answer, asyncio.Event()

    def answer_questions(peer: Peer, event: Any) -> None:
        told = Message.decode(event.payload).application_properties or {}
        if told["operation"] == "QUERY" and told["type"] == "holdfast:entry":
            answer(peer, event)
        else:
            stop.set()

    broker.answer = lambda told, value: (
        200,
        "",
        {"entries": [{"sequence": 1, "delivery_count": 0}], "queue_uuid": "u"},
    )
    monkeypatch.setattr(Peer, "answer", answer_questions)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *words.split(), "--url", broker.url,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with killed_at_the_end(process):
        await asyncio.wait_for(stop.wait(), LIMIT_S)
        process.send_signal(code)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode == 128 + code
    verb = " ".join(words.split()[:2])
    doubt = "the node may have carried it out or not: look before you ask again"
    line = f"holdfast {verb}: {asked}: given up before the answer came; {doubt}\n"
    assert stderr.decode() == (line if asked else "")


def test_the_documents_say_which_may_be_repeated() -> None:
    text = (Path(__file__).parents[2] / "docs" / "management.md").read_text(encoding="utf-8")
    rows = text.partition("| operations | sent again |")[2].splitlines()[2:5]
    told = [set(re.findall(r"`([A-Z-]+)`", row.split("|")[1])) for row in rows]
    assert told == [{name for name in READ if not name.startswith("GET-")}, set(SET), ONCE]


@pytest.mark.parametrize("retry_s", ["10", "0"])
async def test_the_command_line_names_the_messages_that_are_in_doubt(broker: FakeBroker, retry_s: str) -> None:
    """It goes on with the others as long as there is a connection, and tells what was done in any case."""
    moved: list[int] = []

    def answer(told: dict[str, Any], value: dict[str, Any]) -> Answer:
        if told["operation"] == "QUERY":
            return 200, "", {"entries": [{"sequence": value["after"] + 1, "delivery_count": 0}], "queue_uuid": "u"}
        moved.append(value["sequence"])
        if value["sequence"] == 2:
            broker.cut()
        return 200, "", {"to": "x", "sequence": 1}

    broker.answer = answer
    words = ("messages", "move", "q", "1", "2", "3", "--to", "x", "--json", "--url", broker.url, "--retry", retry_s)
    ended = await run_holdfast(*words)
    goes_on = retry_s != "0"
    assert ended.code == 1 and moved == ([1, 2, 3] if goes_on else [1, 2])
    assert [row["sequence"] for row in json.loads(ended.stdout)] == ([1, 3] if goes_on else [1])
    doubtful = [line for line in ended.stderr.splitlines() if "may have carried it out" in line]
    assert [line.partition(": MOVE")[0] for line in doubtful] == ["holdfast messages move: q 2"]
