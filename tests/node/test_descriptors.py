"""File descriptors that run out: said once, shown in `status`, gone when it is over."""

import asyncio
import errno
import json
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.engine.events import DescriptorsMeasured
from holdfast.node.network import descriptors
from holdfast.node.network.descriptors import Descriptors, count
from node.fakes import LIMIT_S, FakeCore, Running, settings
from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast


def test_count() -> None:
    before, held = count(), os.open(os.devnull, os.O_RDONLY)
    after = count()
    os.close(held)
    assert before is not None and after is not None and after.left == before.left - 1
    assert after.most == resource.getrlimit(resource.RLIMIT_NOFILE)[0] and not after.of_system


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EACCES])
def test_count_without_one_to_count_with(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(path: str) -> list[str]:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "listdir", listdir)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    left = DescriptorsMeasured(left=0, most=most, of_system=number == errno.ENFILE)
    assert count() == (None if number == errno.EACCES else left)


async def test_they_are_counted_now_and_then_and_soon_while_few_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "LOOK_S", 1_000.0)
    monkeypatch.setattr(descriptors, "NEAR_S", 0.01)
    monkeypatch.setattr(descriptors, "NEAR", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    core = FakeCore()
    async with Running(core, settings(tmp_path)) as running:
        assert not core.of(DescriptorsMeasured)
        _, writer = await running.connect()
        await core.until(DescriptorsMeasured, 3)
        writer.close()


async def test_a_loop_that_cannot_accept_brings_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio's own, as it says it; what else it says is logged as ever."""
    monkeypatch.setattr(descriptors, "NEAR_S", 0.0)
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    found: asyncio.Queue[DescriptorsMeasured] = asyncio.Queue()
    counting = Descriptors(loop, found.put_nowait)
    counting.start()
    try:
        others: list[dict[str, object]] = []
        monkeypatch.setattr(loop, "default_exception_handler", others.append)
        failed = {"message": "socket.accept() out of system resource", "socket": None}
        loop.call_exception_handler({**failed, "exception": OSError(errno.EMFILE, "no")})
        assert (await asyncio.wait_for(found.get(), LIMIT_S)).left > 0 and not others
        loop.call_exception_handler({**failed, "exception": OSError(errno.EINVAL, "no")})
        assert len(others) == 1
    finally:
        counting.close()
        loop.set_exception_handler(before)


async def test_a_node_without_a_descriptor_says_so_once_and_in_status_until_it_is_over(tmp_path: Path) -> None:
    async with await NodeProcess.start(tmp_path / "hub.holdfast", name="hub") as node:
        used = len(os.listdir(f"/proc/{node.pid}/fd"))
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (used + 40, used + 40))
        with ExitStack() as sockets:
            held = [sockets.enter_context(socket.create_connection(("127.0.0.1", node.port))) for _ in range(60)]
            await node.logged("WARNING file descriptors: ")
            full = await run_holdfast("status", "--url", node.url)
            assert full.code == 1, "there is none for it"
            for one in held[:10]:
                one.close()
            plain = await run_holdfast("status", "--url", node.url)
            assert f"of {used + 40} are left, and connections past them are dropped" in plain.stdout
            assert "warning: file descriptors: " in plain.stdout
            told = json.loads((await run_holdfast("status", "--url", node.url, "--json")).stdout)
            assert told["descriptors"]["short"] and told["descriptors"]["max"] == used + 40
        await node.logged(f"of {used + 40} are left again")

        async def warnings() -> list[str]:
            answer = await run_holdfast("status", "--url", node.url, "--json")
            assert json.loads(answer.stdout)["descriptors"]["short"] is False
            return list(json.loads(answer.stdout)["warnings"])

        await eventually_async(warnings, lambda found: found == [], what="no warning")
        assert node.stderr.count("WARNING file descriptors: ") == 1
