"""What a service manager is told (node/process/notify.py)."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from holdfast.node.process.notify import ALIVE, READY, ServiceManager, manager_of


@pytest.mark.parametrize("abstract", [False, True])
def test_it_is_told_at_its_socket(tmp_path: Path, abstract: bool) -> None:
    name = f"holdfast-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name}" if abstract else name)
        ServiceManager(f"@{name}" if abstract else name, 0.0).tell(READY)
        end.settimeout(10)
        assert end.recv(100) == b"READY=1"


def test_a_manager_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    ServiceManager("", 1.0).tell(READY)
    ServiceManager(str(tmp_path / "none"), 1.0).tell(READY)
    ServiceManager("x" * 200, 1.0).tell(READY)


async def test_a_loop_that_runs_tells_so_again_and_again(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        end.setblocking(False)
        manager = ServiceManager(str(tmp_path / "notify"), 0.02)
        manager.watch(loop)
        async with asyncio.timeout(10):
            for _ in range(5):
                while True:
                    try:
                        assert end.recv(100) == ALIVE.encode()
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.001)
        manager.close()


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({}, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "60000000"}, 60.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 60.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_environment_says_how_often_and_is_not_handed_on(environment: dict[str, str], watchdog_s: float) -> None:
    manager = manager_of(environment, 7)
    assert manager._watchdog_s == watchdog_s and environment == {}
