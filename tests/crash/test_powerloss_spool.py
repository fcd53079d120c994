"""Power loss at each call of a client with a spool: what it sends next is stored, and nothing twice.

Recorded and cut as docs/powerloss.md says. The node keeps what it stored; the next life of the client begins with what
the disk kept, sends something new, and drains.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from client.fake_broker import FakeBroker
from crash.spool_life import ADDRESS, PRODUCER, make_small, node_of
from crash.test_powerloss_copies import images
from holdfast.client import Spool, connect
from holdfast.client.spool import numbering, spool
from holdfast.errors import HoldfastError
from holdfast_lab.powerloss.calls import Record, parted, read_log
from holdfast_lab.powerloss.record import build_shim, find_compiler, prove_complete

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler: cc, gcc or clang"),
]

SPOOL = Path("made", "here", "spool")
LIVES = 16
COUNT = 25
NEW = 10**6
LIMIT_S = 20.0


def record(work: Path, seed: int) -> list[Record]:
    """Lives one after the other, about half of them killed at a drawn call."""
    root, log = (work / "root").resolve(), work / "log"
    root.mkdir(parents=True)
    log.touch()
    shim = build_shim(work)
    rng = Random(f"lives {seed}")
    for life in range(LIVES):
        kill_at = rng.choice((0, rng.randint(1, 60)))
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "LD_PRELOAD": str(shim),
            "HOLDFAST_POWERLOSS_ROOT": str(root),
            "HOLDFAST_POWERLOSS_LOG": str(log),
            "HOLDFAST_POWERLOSS_KILL": str(kill_at),
        }
        numbers = map(str, (seed * LIVES + life, life * COUNT, COUNT))
        command = [sys.executable, "-m", "crash.spool_life", str(root / SPOOL), str(root), str(log), *numbers]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert answer.returncode in (0, -signal.SIGKILL), answer.stderr
    records = read_log(log, root)
    prove_complete(records, root)
    return parted(records)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return record(tmp_path_factory.mktemp("spool") / "work", 1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "BLOCK", numbering.BLOCK)
    monkeypatch.setattr(spool, "COMPACT_BYTES", spool.COMPACT_BYTES)
    make_small()


def bodies(broker: FakeBroker) -> list[int]:
    return [int(body.split()[0]) for body in broker.bodies(ADDRESS)]


async def judge(path: Path, before: Sequence[Record]) -> str:
    """What is wrong with the spool at `path`, for a node that has what `before` says; empty if nothing is."""
    broker = node_of(before)
    await broker.listen()
    try:
        for first in (NEW, NEW + 10):  # twice: what this life leaves is opened too
            connection = await connect(broker.url, retry_s=LIMIT_S, wait=first == NEW, rng=Random(1))
            held = Spool(path, fsync_interval_s=60)
            sender = await connection.sender(ADDRESS, producer=PRODUCER, in_doubt_max=5, when_full=held)
            for number in range(first, first + 10):
                await sender.post(b"%d" % number)
            await asyncio.wait_for(sender.drain(), LIMIT_S)
            await connection.abort()
    except (HoldfastError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await broker.stop()
    got = bodies(broker)
    kept = {
        mark["number"] for one in before if one.kind == "M" and (mark := one.mark)["did"] == "post" and mark["kept"]
    }
    if got != sorted(set(got)):
        return f"twice, or out of order: {got}"
    if lost := {*kept, *range(NEW, NEW + 20)} - set(got):
        return f"lost: {sorted(lost)}"
    if list(broker.producers[ADDRESS, PRODUCER]) != [(1, len(got))]:
        return f"numbers left out: {list(broker.producers[ADDRESS, PRODUCER])}"
    return ""


async def first_violation(
    records: list[Record], place: Path, cuts: int | None, ignored: frozenset[str], seed: int = 1
) -> tuple[int, str]:
    """(images judged, the first that was wrong)."""
    judged = 0
    for cut, image in images([], records, place, cuts=cuts, ignored=ignored, seed=seed):
        judged += 1
        if what := await judge(image / SPOOL, records[:cut]):
            return judged, f"cut {cut}: {what}"
    return judged, ""


async def test_after_a_power_loss_every_new_message_is_stored_and_none_twice(
    recording: list[Record], tmp_path: Path, day: int
) -> None:
    """At other cuts each day."""
    did = [one.mark["did"] for one in recording if one.kind == "M"]
    assert did.count("post") > 120 and did.count("store") > 80 and did.count("end") > 1
    assert sum(one.kind == "r" for one in recording) > 2  # compacted
    judged, what = await first_violation(recording, tmp_path / "image", 20, frozenset(), day)
    assert what == "" and judged > 30


@pytest.mark.parametrize("ignored", ["data", "names"])
async def test_a_disk_that_ignores_a_kind_of_sync_is_found_out(
    recording: list[Record], tmp_path: Path, ignored: str
) -> None:
    _, what = await first_violation(recording, tmp_path / "image", 60, frozenset({ignored}))
    assert what
