"""A disk whose syncs do not return, under a real node: it serves on, takes nothing, says so, and recovers.

Rules of this file: syncs stall by a library of a few lines before the system's own (LD_PRELOAD), for as long as a file
is there. Without a C compiler the tests are skipped.
"""

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import holdfast.client as holdfast
from support.process import NodeProcess

LIMIT_S = 30.0
STOP_S = 5.0
"""What an operator is promised."""

CONFIG = """
[node]
create_queues = true
[store]
bytes_max = 16_000_000
[limits]
commit_stall_s = 0.5
"""

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static void stall(void)
{
    const char *file = getenv("HOLDFAST_TEST_STALL");
    while (file && access(file, F_OK) == 0)
        usleep(5000);
}
int fdatasync(int fd)
{
    stall();
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
int fsync(int fd)
{
    stall();
    return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""


@pytest.fixture
def stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While that file is there, no sync of a node that is started now returns."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, shim = tmp_path / "stall.c", tmp_path / "stall.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", shim, source, "-ldl"], timeout=60, check=True)
    file = tmp_path / "stalls"
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    monkeypatch.setenv("HOLDFAST_TEST_STALL", str(file))
    return file


def stalls(file: Path, *, ends: bool = False) -> None:
    if ends:
        file.unlink()
    else:
        file.touch()


async def started(data: Path, tmp_path: Path) -> NodeProcess:
    config = tmp_path / "node.toml"
    config.write_text(CONFIG)
    return await NodeProcess.start(data, config=config, name="hub")


async def until_state(connection: holdfast.Connection, state: str) -> None:
    """Asks for the node's status, which needs no disk, until it is that."""
    async with asyncio.timeout(LIMIT_S):
        while (await connection.manage("STATUS", "holdfast:node"))["disk"]["state"] != state:
            pass


async def test_a_node_says_that_its_disk_hangs_serves_on_and_recovers(stall: Path, tmp_path: Path) -> None:
    async with (
        await started(tmp_path / "data", tmp_path) as node,
        asyncio.timeout(LIMIT_S),
        await holdfast.connect(node.url) as connection,
    ):
        sender, idle = await connection.sender("work"), await connection.sender("idle")
        await sender.send(b"one")
        stalls(stall)
        under_way = asyncio.ensure_future(sender.send(b"two"))
        await until_state(connection, "stalled")
        late = asyncio.ensure_future(idle.send(b"three"))
        await until_state(connection, "stalled")
        assert not under_way.done() and not late.done()
        await node.logged("the disk has not answered a commit for 0.5 s")
        stalls(stall, ends=True)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(under_way, late)
        await until_state(connection, "ok")
        await node.logged("the disk answers again")
        assert node.stderr.count("the disk has not answered a commit for 0.5 s") == 1
        assert (await connection.manage("READ", "holdfast:queue", "work"))["messages"] == 2
        await connection.close()
        assert await node.stop() == 0


async def test_a_clean_stop_meanwhile_ends_in_time_and_says_why(stall: Path, tmp_path: Path) -> None:
    async with await started(tmp_path / "data", tmp_path) as node, asyncio.timeout(LIMIT_S):
        connection = await holdfast.connect(node.url)
        sender = await connection.sender("work")
        await sender.send(b"one")
        stalls(stall)
        under_way = asyncio.ensure_future(sender.send(b"two"))
        await until_state(connection, "stalled")
        node.signal(signal.SIGTERM)
        assert await node.wait(STOP_S) == 1
        assert "ending without it" in node.stderr and "not every peer" not in node.stderr
        await connection.abort()
        await asyncio.gather(under_way, return_exceptions=True)
        stalls(stall, ends=True)
        await node.restart()
        async with await holdfast.connect(node.url) as again:
            told = await again.manage("READ", "holdfast:queue", "work")
        assert told["messages"] in (1, 2)  # what was not answered may be there or not
