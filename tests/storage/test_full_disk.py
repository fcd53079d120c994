"""A disk that is really full: a small tmpfs of its own. Refused are appends, never retirements."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.port import Batch
from holdfast.errors import StorageFull
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.backup import backup
from holdfast.storage.upkeep.check import check
from holdfast.storage.upkeep.compaction import compact
from holdfast.units import MIB
from support.disks import fill_disk, free_bytes, small_disk
from support.stores import LoneNode

DISK_BYTES = 24 * MIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def batch(first: int, count: int = 20) -> Batch:
    return Batch(appends=[(1, number, bytes(1_000)) for number in range(first, first + count)])


def numbers(store: LmdbStore) -> list[int]:
    return [number for number, _ in store.read(1, 0, count_max=1_000_000, bytes_max=1 << 40)]


def fill_room(store: LmdbStore, first: int) -> int:
    while store.room_bytes() >= 20_000:
        store.commit(batch(first))
        first += 20
    return first


def test_a_full_disk_refuses_appends_takes_retirements_and_goes_on_with_space(disk: Path) -> None:
    """The disk is smaller than the bound, and someone else takes the rest of it."""
    store = LmdbStore(disk / "store", ahead_bytes=4 * MIB)
    ballast = fill_disk(disk)
    end = fill_room(store, 0)
    assert end > 500
    while True:  # heed no room any more
        try:
            store.commit(batch(end))
        except StorageFull:
            break
        end += 20
    assert numbers(store) == list(range(end))
    assert free_bytes(disk) == 0

    assert store.room_bytes() < 0
    for first in range(0, end - 60, 50):
        store.commit(Batch(retires=[(1, number) for number in range(first, first + 50)]))
    kept = numbers(store)
    assert 0 < len(kept) < 70
    refilled = fill_room(store, end)  # what was retired is room again, on the same full disk
    assert refilled > end
    assert numbers(store) == [*kept, *range(end, refilled)]

    before = store.bytes_on_disk()
    ballast.unlink()
    assert store.room_bytes() > MIB // 2  # seen without a commit
    grown = fill_room(store, refilled)
    assert grown > refilled + 500
    assert store.bytes_on_disk() > before
    store.close()


def test_a_store_on_a_full_disk_opens_and_can_be_emptied(disk: Path) -> None:
    store = LmdbStore(disk / "store", ahead_bytes=4 * MIB)
    end = fill_room(store, 0)
    store.close()
    fill_disk(disk)
    store = LmdbStore(disk / "store", ahead_bytes=4 * MIB)
    assert numbers(store) == list(range(end))
    store.commit(Batch(retires=[(1, number) for number in range(end)]))
    assert numbers(store) == []
    assert store.room_bytes() > 0
    store.commit(batch(end))
    store.close()


@pytest.mark.parametrize("mib", [4, 8, 12, 16])
def test_a_store_takes_and_gives_back_on_a_disk_smaller_than_the_reserve_of_a_large_one(
    tmp_path: Path, mib: int
) -> None:
    """A fixed reserve of 16 MiB left such a disk "full" for ever, though nothing was stored."""
    with small_disk(tmp_path / "small", mib * MIB) as place:
        store = LmdbStore(place / "store")
        assert store.room_bytes() > MIB // 2
        assert free_bytes(place) > 0, "an idle store leaves some of the disk to others"
        end = 0
        for _ in range(3):
            first, end = end, append_until_full(store, end, 1_000, 20)
            assert end > first + mib * 100
            for number in range(first, end, 7):  # from the middle: most records stay, in part
                store.commit(Batch(retires=[(1, number)]))
            store.commit(Batch(retires=[(1, number) for number in range(first, end)]))
            assert numbers(store) == [] and store.room_bytes() > MIB // 2
        store.close()


def test_a_new_store_on_a_full_disk_is_refused_and_made_later(disk: Path) -> None:
    ballast = fill_disk(disk)
    with pytest.raises(StorageFull, match="no space on disk"):
        LmdbStore(disk / "store")
    ballast.unlink()
    LmdbStore(disk / "store").close()


def test_a_batch_that_outgrows_the_disk_writes_nothing(disk: Path) -> None:
    """Past every estimate: the write itself meets the end of the disk, and nothing of it is seen."""
    store = LmdbStore(disk / "store", ahead_bytes=MIB)
    store.commit(batch(0))
    ballast = fill_disk(disk)
    store._room.make = lambda batch, groups: None  # type: ignore[method-assign]  # the check under test is the next one
    for _ in range(3):
        with pytest.raises(StorageFull, match="nothing of the batch was written"):
            store.commit(batch(1_000, 30_000))
        assert numbers(store) == list(range(20))
    store.commit(Batch(retires=[(1, 0)]))
    ballast.unlink()
    store.commit(batch(20))
    assert numbers(store) == list(range(1, 40))
    store.close()


def append_until_full(store: LmdbStore, end: int, size: int, count: int) -> int:
    """Appends of `size` bytes from `end` on until the store refuses them, heeding no room; where it ended."""
    while True:
        try:
            store.commit(Batch(appends=[(1, end + number, bytes(size)) for number in range(count)]))
        except StorageFull:
            return end
        end += count


@pytest.mark.parametrize(("size", "count", "least"), [(80, 500, 70_000), (200_000, 2, 35), (3_000, 20, 1_500)])
def test_a_deep_queue_on_a_full_disk_is_drained_to_the_last_entry(
    disk: Path, size: int, count: int, least: int
) -> None:
    """In both directions and from the middle; small entries, cut ones, and those of a page."""
    store = LmdbStore(disk / "store")
    fill_disk(disk)
    deep = append_until_full(store, 1, size, count) - 1
    assert deep >= least
    third = deep // 3
    order = [*range(third + 1, 2 * third), *range(deep, 2 * third - 1, -1), *range(1, third + 1)]
    for place in range(0, len(order), 100):
        store.commit(Batch(retires=[(1, sequence) for sequence in order[place : place + 100]]))
    assert numbers(store) == [] and free_bytes(disk) == 0
    assert store.room_bytes() > 0
    store.close()
    assert check(disk / "store").findings == []


def test_a_deep_queue_is_deleted_on_a_full_disk_over_a_restart(disk: Path) -> None:
    node = LoneNode(disk / "store")
    fill_disk(disk)
    while node.core.room.has(2_000):
        node.fill("q", 500)
    deep = node.queue("q").messages
    assert deep > 10_000
    queue = node.queue("q")
    node.core.delete_queue(queue)
    for _ in range(3):
        node.turn()
    node.crash()
    node = LoneNode(disk / "store")
    node.settle()
    assert not node.core.catalog.leaving and node.core.room.has(2_000)
    node.fill("anew", 5)
    assert node.sequences("anew") == [1, 2, 3, 4, 5]
    node.stop()
    left = check(disk / "store")
    assert left.findings == [] and left.entries == 5


def test_a_compaction_a_backup_and_an_upgrade_on_a_full_disk_are_refused_and_harm_nothing(disk: Path) -> None:
    store = LmdbStore(disk / "store", ahead_bytes=MIB)
    end = fill_room(store, 0)
    store.close()
    fill_disk(disk)
    with pytest.raises(StorageFull, match=r"compaction: .*; \d+ are needed|no space on disk"):
        compact(disk / "store")
    with pytest.raises(StorageFull, match=r"backup of .*; \d+ are needed|no space on disk"):
        backup(disk / "store", disk / "copy")
    assert sorted(entry.name for entry in disk.iterdir()) == ["ballast", "store"]
    store = LmdbStore(disk / "store", ahead_bytes=MIB)
    assert numbers(store) == list(range(end))
    store.close()


def test_what_may_be_stored_does_not_rise_when_the_file_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LmdbStore(tmp_path / "store", bytes_max=256 * MIB, ahead_bytes=MIB)
    monkeypatch.setattr(store._room.allocation, "free_on_disk", lambda: 2**40)
    now, possible = [], []
    for number in range(100):
        store.commit(Batch(appends=[(1, number + 1, bytes(250_000))]))
        now.append(store.room_bytes())
        possible.append(now[-1] + store.growth_bytes())
        assert possible[-1] == store.room_bytes_possible()
    assert sorted(now, reverse=True) != now, "the file grows ahead, in steps"
    assert sorted(possible, reverse=True) == possible
    store.close()


def test_the_most_that_a_store_could_hold_is_what_its_file_system_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever else uses it now."""
    small = LmdbStore(tmp_path / "small", bytes_max=16 * MIB)
    bounded = small.room_bytes_most()
    assert 0 < bounded * small.pieces_a_byte < 16 * MIB
    small.close()
    large = LmdbStore(tmp_path / "large", bytes_max=64 * 1024 * MIB)
    assert large.room_bytes_most() > bounded
    monkeypatch.setattr(large._room.allocation, "disk_bytes", lambda: 16 * MIB)
    assert large.room_bytes_most() == bounded
    large.close()
