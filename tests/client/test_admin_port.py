"""The admin port of a node in a process of its own (node/admin)."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast


async def page(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    async with asyncio.timeout(10):
        answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


async def test_a_node_tells_what_it_measures_and_that_it_is_ready(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text(f'[node]\nname = "hub"\ndata = "{tmp_path}/d"\n[admin]\nlisten = "127.0.0.1:0"\n'
                      '[[queue]]\nname = "work"\n')  # fmt: skip
    async with await NodeProcess.start(config=config) as node:
        await node.logged("/metrics")
        port = int(re.findall(r"admin port: http://127.0.0.1:(\d+)/metrics", node.stderr)[0])
        sent = await run_holdfast("send", "work", "--count", "5", "--size", "10", "--url", node.url)
        assert sent.code == 0, sent.stderr
        assert await page(port, "/readyz") == (200, "ready\n")
        assert await page(port, "/healthz") == (200, "ok\n")

        async def told() -> str:
            return (await page(port, "/metrics"))[1]

        found = await eventually_async(told, lambda text: 'holdfast_queue_messages{queue="work",vhost=""} 5.0' in text)
        commits = re.findall(r"^holdfast_commit_seconds_count (\S+)$", found, re.M)
        assert float(commits[0]) >= 1
        status = json.loads((await run_holdfast("status", "--json", "--url", node.url)).stdout)
        assert f'store="{status["store"]}"' in found
        assert await node.stop() == 0


async def test_the_manager_of_services_hears_that_it_is_ready_lives_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        async with await NodeProcess.start(tmp_path / "d", name="hub") as node:
            heard = [end.recv(100) for _ in range(4)]
            assert heard == [b"READY=1", *[b"WATCHDOG=1"] * 3]
            assert await node.stop() == 0
        end.setblocking(False)
        last = b""
        try:
            while last != b"STOPPING=1":
                last = end.recv(100)
        except BlockingIOError:
            pass
        assert last == b"STOPPING=1"


@pytest.mark.parametrize("module", ["holdfast.node.command", "holdfast.core", "holdfast.node.runtime", "holdfast.cli"])
def test_its_library_is_loaded_only_where_there_is_an_admin_port(module: str) -> None:
    code = f"import sys, {module}; print([name for name in sys.modules if name.startswith('prometheus')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
