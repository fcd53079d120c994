"""Power loss at each call of an upgrade, a backup and a restore: there whole or not at all, and there once told.

The processes are recorded and their disks cut as docs/powerloss.md says; the source of a copy is on another disk.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from holdfast.errors import StorageError
from holdfast.storage.layout.schema import SCHEMA
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.backup import backup
from holdfast.storage.upkeep.check import Checked, check
from holdfast_lab.powerloss.calls import Record, parted, read_log
from holdfast_lab.powerloss.disk import VARIANTS, Disk, Image
from holdfast_lab.powerloss.record import build_shim, find_compiler
from storage.test_upgrades import golden
from support.stores import LoneNode

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(find_compiler() is None, reason="needs a C compiler: cc, gcc or clang"),
]

MESSAGES = 45


def recorded(work: Path, program: str, *arguments: Path) -> list[Record]:
    """What `program` does below `work/root`, which is there."""
    root, log = (work / "root").resolve(), work / "log"
    log.touch()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(build_shim(work)),
        "HOLDFAST_POWERLOSS_ROOT": str(root),
        "HOLDFAST_POWERLOSS_LOG": str(log),
    }
    command = [sys.executable, "-c", "import sys; from pathlib import Path\n" + program, *map(str, arguments)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 0, answer.stderr
    return parted(read_log(log, root))


def before(root: Path) -> list[Record]:
    """Records that make what lies below `root` already, all of it synced."""
    found: list[Record] = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_dir():
            found.append(Record("d", name))
        else:
            found += [Record("o", name), Record("w", name, data=path.read_bytes()), Record("s", name)]
    directories = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()]
    return [*found, *(Record("s", name) for name in directories), Record("s", ".")]


def images(
    first: list[Record],
    records: list[Record],
    place: Path,
    cuts: int | None = None,
    ignored: frozenset[str] = frozenset(),
    seed: int = 1,
) -> Iterator[tuple[int, Path]]:
    """(cut, directory) of every different disk that a power loss may leave; `cuts` of them, by `seed`, and the last.

    `ignored`: kinds of sync that the disk does not do (`Disk`)."""
    wanted = range(len(records) + 1)
    chosen = set(wanted) if cuts is None else {*Random(seed).sample(wanted, min(cuts, len(wanted))), len(records)}
    disk = Disk(ignored)
    for one in first:
        disk.apply(one)
    for cut in wanted:
        known: set[tuple[object, ...]] = set()
        for variant in VARIANTS if cut in chosen else ():
            image = Image(disk, variant, Random(f"{seed} {cut} {variant}"))
            if tuple(image.choices) not in known:
                known.add(tuple(image.choices))
                place.mkdir()
                image.write(place)
                yield cut, place
                shutil.rmtree(place)
        if cut < len(records):
            disk.apply(records[cut])


def filled(path: Path) -> None:
    node = LoneNode(path)
    node.fill("q", MESSAGES - 5, size=1_500)
    node.fill("q", 1, size=150_000)
    node.fill("@hub", 4)
    node.stop()


def whole(store: Path, entries: int = MESSAGES) -> Checked:
    checked = check(store)
    assert (checked.findings, checked.entries) == ([], entries)
    return checked


def test_an_upgrade_leaves_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    told = golden(root / "store", 1)
    entries = sum(len(queue["sequences"]) for queue in told["queues"].values())
    first = before(root)
    program = "from holdfast.storage.upkeep.upgrades import upgrade; upgrade(Path(sys.argv[1]), copied=False)"
    records = recorded(tmp_path, program, root / "store")
    seen: set[bool] = set()
    for cut, image in images(first, records, tmp_path / "image", cuts=40):
        try:
            is_new = check(image / "store").schema == SCHEMA
        except StorageError:
            is_new = False
        seen.add(is_new)
        assert is_new or cut < len(records)
        store = LmdbStore(image / "store", ahead_bytes=1 << 16)
        assert str(store.uuid) == told["store"]
        store.close()
        whole(image / "store", entries)
    assert seen == {False, True}


def test_a_backup_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    root = tmp_path / "root"
    (root / "kept").mkdir(parents=True)
    first = before(root)
    program = "from holdfast.storage.upkeep.backup import backup; backup(Path(sys.argv[1]), Path(sys.argv[2]))"
    records = recorded(tmp_path, program, tmp_path / "store", root / "kept" / "copy")
    seen: set[bool] = set()
    for cut, image in images(first, records, tmp_path / "image"):
        there = (image / "kept" / "copy" / "data.mdb").exists()
        seen.add(there)
        assert there or cut < len(records)
        if there:
            assert whole(image / "kept" / "copy").backup is not None
    assert seen == {False, True}


def test_a_restored_store_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    made = backup(tmp_path / "store", tmp_path / "backup")
    root = tmp_path / "root"
    (root / "new").mkdir(parents=True)
    first = before(root)
    program = "from holdfast.storage.upkeep.backup import restore; restore(Path(sys.argv[1]), Path(sys.argv[2]))"
    records = recorded(tmp_path, program, tmp_path / "backup", root / "new" / "store")
    seen: set[bool] = set()
    for cut, image in images(first, records, tmp_path / "image"):
        there = (image / "new" / "store" / "data.mdb").exists()
        seen.add(there)
        assert there or cut < len(records)
        if there:
            assert whole(image / "new" / "store").store != made.store
    assert seen == {False, True}
