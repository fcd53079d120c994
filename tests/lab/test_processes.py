"""Children: their ready line, their end, and that nothing of them is left."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast_lab.base.processes import ChildFailed, Children, first_of, parse_ready, session_members
from support.eventually import eventually_true

LIMIT_S = 20.0

SERVER = "import sys, time; print('ready name=ewr amqp=127.0.0.1:5672 store=x', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVER
WITH_GRANDCHILD = (
    "import subprocess, sys, os; "
    "subprocess.Popen([sys.executable, '-c', 'import os, time; os.setpgid(0, 0); time.sleep(600)']); " + SERVER
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("ready name=ewr amqp=127.0.0.1:1", {"name": "ewr", "amqp": "127.0.0.1:1"}),
        ("ready", {}),
        ("ready a=b=c junk", {"a": "b=c"}),
        ("readying name=x", None),
        ("", None),
        ("not ready name=x", None),
    ],
)
def test_ready_line(line: str, fields: dict[str, str] | None) -> None:
    assert parse_ready(line) == fields


async def test_ready_then_stopped_by_sigterm(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        child = await children.start("ewr", python(SERVER))
        assert (await child.ready())["amqp"] == "127.0.0.1:5672"
        assert await child.stop() == -signal.SIGTERM
        assert not alive(child.pid)


async def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        child = await children.start("ewr", python(STUBBORN))
        await child.ready()
        assert await child.stop(timeout_s=0.2) == -signal.SIGKILL


async def test_one_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        child = await children.start("hub", python("import sys; sys.stderr.write('port taken\\n'); sys.exit(2)"))
        with pytest.raises(ChildFailed, match=r"hub: ended with 2 .*port taken"):
            await child.ready()


async def test_one_that_never_gets_ready_says_so(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        child = await children.start("hub", python("import time; time.sleep(600)"))
        with pytest.raises(ChildFailed, match="no ready line"):
            await child.ready(timeout_s=0.2)


async def test_summary_is_the_last_json_line_of_this_process(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        first = await children.start("send", python("import sys; sys.stderr.write('{\"sent\": 1}\\n')"))
        await first.success()
        second = await children.start("send", python("import sys; sys.stderr.write('{\"sent\": 2}\\nbye\\n')"))
        await second.success()
        third = await children.start("send", python("pass"))
        await third.success()
        assert (first.summary(), second.summary(), third.summary()) == ({"sent": 1}, {"sent": 2}, None)


@pytest.mark.parametrize("how", ["leaving", "exception", "cancelled"])
async def test_nothing_is_left_behind(tmp_path: Path, how: str) -> None:
    """Not even a grandchild in a process group of its own, as Spark's Python workers are."""
    sessions: list[int] = []
    started = asyncio.Event()

    async def run() -> None:
        async with Children(tmp_path) as children:
            for number in range(2):
                child = await children.start(f"n{number}", python(WITH_GRANDCHILD))
                await child.ready()
                sessions.append(child.pid)
                assert len(session_members(child.pid)) == 2
            started.set()
            if how == "exception":
                raise RuntimeError("as a defect would")
            if how == "cancelled":
                await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT_S):
        task = asyncio.create_task(run())
        await started.wait()
        if how == "cancelled":
            task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() is (how == "cancelled")
        error = None if task.cancelled() else task.exception()
        assert isinstance(error, RuntimeError) is (how == "exception")
    assert [session_members(session) for session in sessions] == [[], []]


async def test_killing_one_process_leaves_its_own_children_to_the_sweep(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        child = await children.start("driver", python(WITH_GRANDCHILD))
        await child.ready()
        await child.kill()
        assert len(session_members(child.pid)) == 1
        child.sweep()
        assert session_members(child.pid) == []


ORPHANING = """
import asyncio, os, signal, sys
from pathlib import Path
from holdfast_lab.base.processes import Children

async def main():
    async with Children(Path(sys.argv[1])) as children:
        child = await children.start("inner", [sys.executable, "-c", sys.argv[2]])
        await child.ready()
        print(f"ready inner={child.pid}", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_children_end_with_the_one_who_started_them(tmp_path: Path, number: signal.Signals) -> None:
    """By Ctrl-C, and even when it is killed itself."""
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        outer = await children.start("outer", [*python(ORPHANING), str(tmp_path / "inner"), SERVER])
        inner = int((await outer.ready())["inner"])
        assert session_members(inner) == [inner]
        outer.signal(number)
        await outer.wait()
        await eventually_true(lambda: session_members(inner) == [], what="nothing left of the inner session")


async def test_the_first_of_what_a_group_of_tasks_raised() -> None:
    async def fail(text: str) -> None:
        raise ChildFailed(text)

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail("inner"))

    with pytest.raises(ChildFailed, match=r"^inner$"):
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(group())
        except BaseExceptionGroup as errors:
            assert isinstance(errors.exceptions[0], BaseExceptionGroup)
            raise first_of(errors) from None
