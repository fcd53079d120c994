"""The programs in examples/, each run against a node as a reader would run it; what they print is compared.

`examples/spark_stream.py` is run with the Spark tests (`tests/pipeline/test_spark_node.py`).
"""

import ast
import asyncio
import inspect
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.client import connect
from support.documents import ROOT, python_in
from support.process import NodeProcess, killed_at_the_end

StartNode = Callable[..., Awaitable[NodeProcess]]

EXAMPLES = ROOT / "examples"
LIMIT_S = 60.0
DAY = ("morning", "day", "night")


async def printed(program: str, *arguments: str | Path, said: str = "") -> list[str]:
    """The lines that `examples/PROGRAM.py` prints; it ends with exit code 0; its log matches `said`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / f"{program}.py", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    async with killed_at_the_end(process):
        out, error = await asyncio.wait_for(process.communicate(), LIMIT_S)
    assert process.returncode == 0 and re.fullmatch(said, error.decode()), error.decode()
    return out.decode().splitlines()


@pytest.mark.parametrize("program", sorted(path.stem for path in EXAMPLES.glob("*.py")))
async def test_without_arguments_a_program_says_which_it_takes(program: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / f"{program}.py", stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    async with killed_at_the_end(process):
        _, error = await asyncio.wait_for(process.communicate(), LIMIT_S)
    first, *_, last = error.decode().splitlines()
    assert process.returncode == 2 and "arguments are required: url" in last
    words = first.removeprefix(f"usage: {program}.py [-h] ").upper()
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"| [{program}.py]({program}.py) | `{words}` |" in page


async def test_send_and_receive(start_node: StartNode) -> None:
    node = await start_node()
    assert await printed("send_and_receive", node.url) == ["1 good morning", "2 good day", "3 good night"]


async def test_a_transfer_answers_each_greeting(start_node: StartNode) -> None:
    node = await start_node()
    async with await connect(node.url) as connection:
        sender = await connection.sender("greetings")
        for part in DAY:
            await sender.send(f"good {part}")
    assert await printed("transfer", node.url) == [f"answered good {part}" for part in DAY]
    lines = await printed("read_queue", node.url, "answers")
    assert [line.split("b'")[1].rstrip("'") for line in lines] == [f"good {part} to you" for part in DAY]


async def test_a_question_is_answered_by_another_program(start_node: StartNode) -> None:
    node = await start_node()
    answering = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / "ask.py", node.url, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    async with killed_at_the_end(answering):
        assert await printed("ask", node.url, "1", "2", "3") == ["6"]


async def test_a_producer_that_is_started_again_sends_what_is_new(start_node: StartNode, tmp_path: Path) -> None:
    node = await start_node()
    file = tmp_path / "rows"
    file.write_text("a\nb\n")
    assert await printed("producer", node.url, file) == ["the node has lines up to 0", "accepted 2, rejected 0"]
    file.write_text("a\nb\nc\n")
    assert await printed("producer", node.url, file) == ["the node has lines up to 2", "accepted 3, rejected 0"]
    lines = await printed("read_queue", node.url, "lines")
    assert [line.split()[::2] for line in lines] == [["1", "b'a'"], ["2", "b'b'"], ["3", "b'c'"]]


async def test_a_sensor_goes_on_without_its_node(start_node: StartNode, tmp_path: Path) -> None:
    node = await start_node()
    url = node.url
    await node.stop()
    said = rf"{url}: Connection refused; trying again for [\d.]+ s\n"
    assert await printed("sensor", url, tmp_path / "spool", said=said) == ["accepted 0, waiting 5"]
    await node.restart(same_port=True)
    assert await printed("sensor", url, tmp_path / "spool") == ["accepted 10, waiting 0"]


async def test_a_device_feeds_its_readings(start_node: StartNode, tmp_path: Path) -> None:
    node = await start_node()
    options = ["--journal", str(tmp_path / "j"), "--listen", "127.0.0.1:0", "--format", "json", "--url", node.url]
    async with NodeProcess(["feed", "readings", "--producer", "mill-1", *options]) as feed:
        await feed.restart()
        lines = await printed("device", node.url, feed.ready["listen"])
    assert lines == [f'{number + 1} {{"device": "mill-1", "kg": {number}}}' for number in range(5)]


async def test_a_big_file_is_the_same_at_the_other_end(start_node: StartNode, tmp_path: Path) -> None:
    node = await start_node()
    file, copy = tmp_path / "file", tmp_path / "copy"
    file.write_bytes(os.urandom(3_000_000))
    assert await printed("big_file", node.url, file, copy) == ["Accepted", "{'file-name': 'file'} 3000000"]
    assert copy.read_bytes() == file.read_bytes()


async def test_a_queue_is_made_and_listed(start_node: StartNode) -> None:
    node = await start_node()
    assert await printed("manage", node.url, "jobs") == ["jobs 0"]


async def run_block(text: str, **names: object) -> None:
    """Runs a block of a document with these names, inside an event loop; `await` may stand in it."""
    code = compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(code, names)
    if inspect.iscoroutine(waiting):
        await asyncio.wait_for(waiting, LIMIT_S)


async def test_the_client_s_document_shows_what_runs(
    start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its addresses are put in, and where it would wait for the next message, an end."""
    monkeypatch.chdir(tmp_path)
    node = await start_node("hub")
    first = python_in("docs/client.md", "from holdfast.client import").replace(
        "amqp://user:password@127.0.0.1:5672", node.url
    )
    await run_block(first.replace('receiver("flights")', 'receiver("flights", count_max=3)'))
    lines = ["1 None {'flight': 'B6 23', 'delay': 5}", "2 jfk late", "3 None b'counted, no future'", "0"]
    assert capsys.readouterr().out.splitlines() == lines

    async with await connect(node.url) as connection:
        await (await connection.sender("pictures")).send(b"a picture")
        parts = python_in("docs/client.md", "parts_receiver")
        await run_block(
            parts.replace('receiver("pictures")', 'receiver("pictures", count_max=1)'), connection=connection, Path=Path
        )
    assert (tmp_path / "picture").read_bytes() == b"a picture"

    blocking = python_in("docs/client.md", "BlockingConnection").replace("amqp://127.0.0.1:5672", node.url)
    await asyncio.to_thread(exec, blocking.replace("1, 1001", "4, 5").replace("...", "print(sequence, message)"), {})
    assert capsys.readouterr().out.endswith("value=MISSING, footer=None)\n")


def test_every_example_is_listed_and_run() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    run = "".join(
        (ROOT / "tests" / path).read_text(encoding="utf-8")
        for path in ("test_programs.py", "pipeline/test_spark_node.py", "interop/test_plain_broker.py")
    )
    for path in sorted(EXAMPLES.glob("*.py")):
        assert f"[{path.name}]({path.name})" in listed
        assert f'"{path.stem}"' in run or f'"{path.name}"' in run, f"no test runs {path.name}"
