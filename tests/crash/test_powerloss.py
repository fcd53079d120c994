"""Power loss at drawn points of a store's life (all of them: `python -m holdfast_lab.powerloss --cuts all`).

What is recorded and what is assumed of the disk: docs/powerloss.md.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from holdfast_lab.powerloss.calls import Record, RecordingFailed
from holdfast_lab.powerloss.disk import SYNCS, Change, Disk, File, Image
from holdfast_lab.powerloss.record import LifePlan, draw_lives, find_compiler, prove_complete, record
from holdfast_lab.powerloss.replay import Replay

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler: cc, gcc or clang"),
]

SEED = 1


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return record(tmp_path_factory.mktemp("powerloss") / "work", SEED, draw_lives(SEED, lives=9, steps=34))


def test_a_store_holds_every_commit_that_returned_and_none_in_part(recording: list[Record], day: int) -> None:
    """At other cuts, and with other remains, each day."""
    replay = Replay(recording, SEED)
    seen = replay.history.counts
    assert seen["commit"] > 80 and seen["mint"] > 5 and seen["full"] > 5 and seen["open"] > 10
    assert seen["compacted"] > 2
    assert seen["killed before the write"] + seen["killed after the write"] > 0
    replay.seed = day
    found = replay.run(cuts=15)
    assert found.violations == []
    assert found.cuts == 15 and found.images > 60


@pytest.mark.parametrize("ignored", SYNCS)
def test_a_disk_that_ignores_a_kind_of_sync_is_found_out(recording: list[Record], ignored: str) -> None:
    found = Replay(recording, SEED, frozenset({ignored})).run(cuts=45, violations_max=1)
    assert len(found.violations) == 1


@pytest.fixture(scope="module")
def calls_of_a_life(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    records = record(tmp_path_factory.mktemp("life") / "work", SEED, [LifePlan(3)])
    return [one for one in records if one.kind != "M"]


def test_killed_before_the_name_of_a_new_store_was_synced(tmp_path: Path, calls_of_a_life: list[Record]) -> None:
    """Who comes next finds the store made: its name, and those of the directories above, are still to be synced."""
    named = next(number for number, one in enumerate(calls_of_a_life, 1) if one.kind == "r")
    records = record(tmp_path / "work", SEED, [LifePlan(2, named), LifePlan(2)])
    assert sum(one.kind == "r" for one in records) == 1
    found = Replay(records, SEED).run(variants=["lost", "last"])
    assert found.violations == [] and found.cuts > 20


def test_what_a_store_shows_when_opened_is_not_lost_again(tmp_path: Path, calls_of_a_life: list[Record]) -> None:
    """Killed in the sync of a commit: who comes next reads it, answers on it, and must find it after the power loss."""
    roots = [number for number, one in enumerate(calls_of_a_life, 1) if one.synced and "/new/" not in one.path]
    records = record(tmp_path / "work", SEED, [LifePlan(3, roots[1]), LifePlan(2)])
    replay = Replay(records, SEED)
    assert replay.history.counts["killed after the write"] == 1
    found = replay.run(variants=["lost", "last"])
    assert found.violations == [] and found.cuts > 20


def test_a_log_that_misses_a_write_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    records = record(work, SEED, [LifePlan(3)])
    root = (work / "root").resolve()
    prove_complete(records, root)
    writes = [place for place, one in enumerate(records) if one.kind == "w"]
    with pytest.raises(RecordingFailed, match="other bytes"):
        prove_complete([one for place, one in enumerate(records) if place != writes[-1]], root)
    with pytest.raises(RecordingFailed, match="does not know"):
        prove_complete([*records, replace(records[writes[-1]], kind="?")], root)


def test_what_a_sync_keeps() -> None:
    file = File()
    file.change(Change(0, b"a" * 2_000))
    file.sync()
    file.change(Change(500, b"b" * 1_000))
    file.change(Change(4_000))
    file.sync_range(600, 610)  # of the sector from 512 to 1,024
    assert bytes(file.kept) == b"a" * 512 + b"b" * 512 + b"a" * 976
    assert [(one.offset, len(one.data)) for one in file.pending] == [(500, 12), (1_024, 476), (4_000, 0)]
    assert [file.pending[1].sector(index).offset for index in range(file.pending[1].sectors)] == [1_024]
    file.sync()
    assert file.kept == file.shown and len(file.kept) == 4_000


def test_names_last_as_long_as_their_directory_was_synced() -> None:
    def names(*records: Record) -> set[tuple[str, ...]]:
        disk = Disk()
        for one in records:
            disk.apply(one)
        images = [Image(disk, variant, Random(seed)) for variant in ("lost", "kept", "some") for seed in range(9)]
        return {tuple(sorted(name for name, _ in image.nodes)) for image in images}

    made, moved = Record("o", "a"), Record("r", "a", "b")
    root_synced = Record("s", ".")
    assert names(made) == {(), ("a",)}
    assert names(made, root_synced) == {("a",)}
    assert names(made, root_synced, moved) == {("a",), ("b",), ("a", "b"), ()}
    assert names(made, root_synced, moved, root_synced) == {("b",)}
    assert names(Record("d", "d"), Record("o", "d/a"), root_synced) == {("d",), ("d", "d/a")}
