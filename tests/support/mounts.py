"""File systems of a test's own, on loop devices, that stop answering when told: `fsfreeze`, and a device that hangs.

Rules of this file: for root with loop devices alone; where that is not to be had the test is skipped with the reason. A
mount that is left frozen would hang whoever touches it: every freeze is ended in a `finally`, and should this process
die first, by a guard of its own, which takes the mounts down as well.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.units import MIB

TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze", "losetup")
LIMIT_S = 20.0

STOPPED_MAX_S = 60
GUARD = """
import os, select, subprocess, sys
limit, *places = sys.argv[1:]
def go_on():
    for place in places:
        subprocess.run(["fsfreeze", "-u", place], stderr=subprocess.DEVNULL)
stopped = False
while True:
    if not select.select([0], [], [], float(limit) if stopped else None)[0]:
        go_on()
        stopped = False
        continue
    said = os.read(0, 4096)
    if not said:
        break
    stopped = said.endswith(b"stopped ")
go_on()
for place in places:
    subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL)
"""
"""Ends what stops after so many seconds: this process may hang in it, with all its threads. And takes the mounts (its
other arguments, the innermost first) down at the end of whoever started it."""


class Disk:
    """A mounted file system, `path`, that can be stopped.

    `frozen` stops what changes it, as `fsfreeze -f` does. `hung` stops the device under it, as `dmsetup suspend
    --nolockfs` does: what lies in the page cache is read and written, what has to reach the device waits. (The device
    is a file in a file system of its own, and that one is frozen.)
    """

    def __init__(self, path: Path, under: Path, guard: "subprocess.Popen[bytes]") -> None:
        self.path = path
        self._under = under
        self._guard = guard

    @contextmanager
    def stopped(self, how: str) -> Iterator[None]:
        """`how`: "frozen" or "hung"; goes on at the end of the block at the latest."""
        place = {"frozen": self.path, "hung": self._under}[how]
        self._tell(b"stopped ")
        _run("fsfreeze", "-f", place)
        try:
            yield
        finally:
            _run("fsfreeze", "-u", place)
            self._tell(b"goes on ")

    def _tell(self, what: bytes) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(what)


@contextmanager
def disk(work: Path, *, size: int = 160 * MIB) -> Iterator[Disk]:
    """An ext4 of about `size` bytes in `work`; skips the test where none can be had."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or not Path("/dev/loop-control").exists():
        pytest.skip(f"no file system on a loop device here: {', '.join(missing) or '/dev/loop-control'} is not there")
    under, path = work / "under", work / "disk"
    with ExitStack() as stack:
        command = [sys.executable, "-c", GUARD, str(STOPPED_MAX_S), str(path), str(under)]
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
        stack.callback(guard.communicate)
        stack.enter_context(_mounted(work / "outer.img", under, size + size // 4))
        stack.enter_context(_mounted(under / "inner.img", path, size))
        yield Disk(path, under, guard)


@contextmanager
def _mounted(image: Path, place: Path, size: int) -> Iterator[None]:
    place.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    _run("mkfs.ext4", "-q", "-F", image)
    made = subprocess.run(
        ["mount", "-o", "loop", image, place], timeout=LIMIT_S, capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no loop mount here: {made.stderr.strip()}")
    try:
        yield
    finally:
        try:
            _run("umount", place)  # its loop device goes with it
        except AssertionError:  # somebody is in there still
            _run("umount", "-l", place)
            raise


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}"
