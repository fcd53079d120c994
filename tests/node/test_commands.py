"""Commands of triggers in processes of their own: how they are started, how they end, and that the node's end ends
them."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from holdfast.engine.events import CommandEnded, RunCommand
from holdfast.node.process import commands
from holdfast.node.process.commands import Commands
from support.process import NodeProcess, run_holdfast


def python(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


async def ran(command: tuple[str, ...], timeout_s: float = 20.0, **environment: str) -> str:
    """How it ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[CommandEnded] = loop.create_future()
    Commands(loop, ended.set_result).run(
        RunCommand(trigger="t", command=command, environment=environment, timeout_s=timeout_s)
    )
    event = await asyncio.wait_for(ended, 30)
    assert event.trigger == "t"
    return event.problem


async def test_a_command_has_the_environment_and_no_input(tmp_path: Path) -> None:
    text = "import os, sys; open(sys.argv[1], 'w').write(os.environ['HOLDFAST_QUEUE'] + sys.stdin.read())"
    assert await ran((*python(text), str(tmp_path / "out")), HOLDFAST_QUEUE="reads; rm") == ""
    assert (tmp_path / "out").read_text() == "reads; rm"


async def test_how_it_failed_is_told() -> None:
    assert await ran(python("raise SystemExit(3)")) == "its command ended with 3"
    assert await ran(python("import os; os.kill(os.getpid(), 9)")) == "its command was ended by signal 9"
    problem = await ran(("/nowhere/at-all",))
    assert problem == "'/nowhere/at-all' cannot be run (No such file or directory); look at its command"


async def test_what_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "END_S", 0.2)
    child = (
        "import signal, time, sys; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'w').close(); time.sleep(60)"
    )
    text = (
        "import signal, subprocess, sys, time, os; signal.signal(15, signal.SIG_IGN);"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}, sys.argv[1] + '-up']);"
        "open(sys.argv[1], 'w').write(str(p.pid)); p.wait()"
    )
    problem = await ran((*python(text), str(tmp_path / "pid")), timeout_s=3.0)
    assert problem == "its command had not ended after 3 s, and was ended"
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not is_alive(pid):
            break
        await asyncio.sleep(0.05)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_a_node_runs_it_and_ends_it_with_itself(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    config = tmp_path / "node.toml"
    command = ", ".join(json.dumps(item) for item in (sys.executable, "-c", text, str(pid)))
    config.write_text(
        f'[node]\nname = "hub"\n[[queue]]\nname = "reads"\n'
        f'[[trigger]]\nname = "batch"\nqueue = "reads"\nmessages = 2\ncommand = [{command}]\n'
    )
    async with await NodeProcess.start(tmp_path / "data", config=config) as node:
        sent = await run_holdfast("send", "reads", "--count", "2", "--size", "10", "--url", node.url)
        assert sent.code == 0, sent.stderr
        for _ in range(200):
            if pid.exists() and pid.read_text():
                break
            await asyncio.sleep(0.05)
        assert is_alive(int(pid.read_text()))
        assert await node.stop() == 0
    for _ in range(100):
        if not is_alive(int(pid.read_text())):
            break
        await asyncio.sleep(0.05)
    assert not is_alive(int(pid.read_text()))
