"""kill -9 in the middle of commits: what was reported committed is there, and every batch is there whole or not."""

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from holdfast.storage.lmdb import LmdbStore

WRITER = Path(__file__).with_name("writer_process.py")
WINDOW = 20
SIZE = 25

pytestmark = pytest.mark.crash


def check(path: Path, reported: int) -> int:
    """The store's last batch; it holds the last WINDOW of them, each entry with its batch inside."""
    store = LmdbStore(path, ahead_bytes=1 << 20)
    last = int(dict(store.table("node")).get(b"batch", b"0"))
    found = store.read(1, 0, count_max=1_000_000, bytes_max=1 << 40)
    store.close()
    # Killed between the sync and the report, one more than reported; never one less, never two more.
    assert reported <= last <= reported + 1
    first = max(1, last - WINDOW + 1)
    assert [sequence for sequence, _ in found] == list(range(first * SIZE, (last + 1) * SIZE))
    for sequence, value in found:
        number = sequence // SIZE
        large = 100_000 if number % 10 == 0 and sequence % SIZE == 0 else 0
        assert value == b"%d " % number + bytes(number % 7 * 400 + large)
    return last


def start(path: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(WRITER), str(path), str(SIZE), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)


def drain(process: "subprocess.Popen[bytes]", reported: int) -> int:
    rest = process.communicate(timeout=60)[0].split()
    assert process.returncode == -signal.SIGKILL
    return int(rest[-1]) if rest else reported


@pytest.mark.parametrize("point", ["committing", "committed"])
def test_killed_at_a_named_moment(tmp_path: Path, point: str) -> None:
    last = 0
    for count in (1, 2, 7, 40):
        reported = drain(start(tmp_path, point, str(count)), last)
        now = check(tmp_path, reported)
        assert reported == last + count - 1
        assert now == last + count - (point == "committing")
        last = now


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """The moment is some way into the commit that follows a report; which report, is drawn."""
    rng = Random(20)
    last = 0
    for _ in range(25):
        process = start(tmp_path)
        assert process.stdout is not None
        reported = last
        for _ in range(rng.randint(1, 40)):
            reported = int(process.stdout.readline())
        for _ in range(rng.randint(0, 20_000)):  # a moment that no clock of the test draws
            pass
        process.kill()
        last = check(tmp_path, drain(process, reported))
