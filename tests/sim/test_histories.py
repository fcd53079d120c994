"""Every history of docs/CUSTODY.md on simulated nodes: each ends as it must, whatever the seed."""

import pytest

from holdfast_lab.histories import HISTORIES
from support import today

pytestmark = pytest.mark.sim

NAMES = [
    "batch-hole",
    "bindings-away",
    "bindings-spoilt",
    "bindings-spread",
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


def test_all_are_there() -> None:
    assert sorted(HISTORIES) == NAMES
    for name, history in HISTORIES.items():
        assert history.name == name and history.sentence.endswith(".") and "\n" not in history.sentence


@pytest.mark.parametrize("seed", today.some([1, 2, 3], 1))
@pytest.mark.parametrize("name", NAMES)
def test_it_ends_well(name: str, seed: int) -> None:
    result = HISTORIES[name].run(seed)
    assert result.ok, f"{name}, seed {seed}: {result.failure}"
