"""Small file systems for tests: a tmpfs of a given size, what fills it, and what a node says of its disk."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import Connection


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """An empty file system of `size` bytes at `place`, which is made; the test is skipped where none can be mounted."""
    place.mkdir()
    try:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except OSError as error:
        pytest.skip(f"no mount command here ({error})")
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here ({made.stderr.strip()})")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], timeout=30, check=True)


def free_bytes(place: Path) -> int:
    """What the file system would still give."""
    state = os.statvfs(place)
    return state.f_bavail * state.f_frsize


def fill_disk(place: Path) -> Path:
    """Another's file takes all that is left."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(65_536)) == 65_536:
                pass
            while file.write(bytes(4_096)):
                pass
        except OSError:
            pass
    assert free_bytes(place) == 0
    return ballast


async def disk_of(connection: Connection) -> dict[str, Any]:
    """What the node's status says of its disk."""
    told: dict[str, Any] = (await connection.manage("STATUS", "holdfast:node"))["disk"]
    return told


async def until_disk(connection: Connection, state: str, *, limit_s: float) -> None:
    """Waits until the node's status says that its disk is in that state: "ok", "full", "gone"."""
    async with asyncio.timeout(limit_s):
        while (await disk_of(connection))["state"] != state:
            pass
