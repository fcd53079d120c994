"""Every history of docs/CUSTODY.md on simulated nodes: each ends as it must, whatever the seed."""

from functools import cache

import pytest

from holdfast.harness.histories import HISTORIES
from holdfast.harness.sim.run import Result

pytestmark = pytest.mark.sim

NAMES = [
    "batch-hole",
    "bounded-restarts",
    "clock-jump",
    "commit-in-flight",
    "copied-store",
    "copied-there-and-back",
    "cut-in-the-ring",
    "dead-letter-back",
    "departed-node",
    "expired-in-custody",
    "full-neighbours",
    "killed-as-someone-new",
    "late-after-tombstone",
    "late-news",
    "late-old-connection",
    "low-water",
    "one-cursor",
    "own-origin",
    "producer-crash",
    "purged-twice",
    "recreated-queue",
    "refused-then-retried",
    "renamed-at-rest",
    "renamed-in-doubt",
    "replaced-disk-receiver",
    "replaced-disk-sender",
    "restored-backup",
    "sender-restart",
    "split-and-heal",
    "stale-return",
    "strict-full",
    "super-lost",
    "two-names-at-once",
]


@cache
def played(name: str, seed: int, depth: str) -> Result:
    return HISTORIES[name].run(seed, depth)


def test_all_are_there() -> None:
    assert sorted(HISTORIES) == NAMES
    for name, history in HISTORIES.items():
        assert history.name == name and history.sentence.endswith(".") and "\n" not in history.sentence


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_it_ends_well(name: str, seed: int) -> None:
    result = played(name, seed, "frames")
    assert result.ok, f"{name}, seed {seed}: {result.failure}"


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_frames_are_one_history(name: str) -> None:
    frames, in_bytes = played(name, 1, "frames"), played(name, 1, "bytes")
    assert in_bytes.ok, f"{name}, seed 1, bytes: {in_bytes.failure}"
    assert (frames.digest, frames.hops, frames.virtual_s) == (in_bytes.digest, in_bytes.hops, in_bytes.virtual_s)
