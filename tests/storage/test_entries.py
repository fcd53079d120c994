"""Records of several entries: what they hold, when they go, and that they are never longer than they may be."""

from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from holdfast.storage.layout import entries
from holdfast.storage.layout.entries import DATABASES, Entries
from holdfast.storage.layout.records import CHUNK_BYTES, SEGMENT_BYTES, SEGMENT_COUNT_MAX, WHOLE_BYTES, by_queue, pack


class Place:
    """An environment with the databases of entries alone."""

    def __init__(self, path: Path) -> None:
        self.env = lmdb.open(str(path), map_size=64 << 20, max_dbs=len(DATABASES), sync=False)
        self.handles = [self.env.open_db(name) for name in DATABASES]
        self.entries = Entries(self.handles)

    def append(self, *appends: tuple[int, int, bytes]) -> None:
        with self.env.begin(write=True, buffers=True) as txn:
            self.entries.append(txn, pack(appends))

    def retire(self, *places: tuple[int, int]) -> None:
        with self.env.begin(write=True, buffers=True) as txn:
            self.entries.retire(txn, by_queue(places))

    def sequences(self, queue_id: int = 1) -> list[int]:
        with self.env.begin(buffers=True) as txn:
            found = self.entries.read(txn, queue_id, 0, count_max=1_000_000, bytes_max=1 << 40)
        return [sequence for sequence, _ in found]

    def rows(self) -> tuple[int, int, int]:
        """How many of `entries`, `chunks` and `gaps` there are."""
        with self.env.begin() as txn:
            counts = [txn.stat(handle)["entries"] for handle in self.handles]
        return counts[0], counts[1], counts[2]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.env.close()


def run(first: int, count: int, size: int = 1_000, queue_id: int = 1) -> list[tuple[int, int, bytes]]:
    return [(queue_id, sequence, bytes(size)) for sequence in range(first, first + count)]


def test_consecutive_entries_share_records(place: Place) -> None:
    place.append(*run(1, 160))
    assert place.rows() == (10, 0, 0)  # sixteen of 1,004 bytes each fit into four pages
    assert place.sequences() == list(range(1, 161))


@pytest.mark.parametrize(
    "size", [0, 1, 30, 2_000, SEGMENT_BYTES - 6, SEGMENT_BYTES - 5, WHOLE_BYTES - 6, WHOLE_BYTES - 5]
)
def test_no_record_is_longer_than_it_may_be(size: int) -> None:
    (group,) = pack(run(1, 3_000 if size < 100 else 20, size))
    counts = [int.from_bytes(record[:2], "big") for _, record in group.records]
    assert all(
        len(record) <= SEGMENT_BYTES if count > 1 else len(record) <= (WHOLE_BYTES if count else CHUNK_BYTES)
        for (_, record), count in zip(group.records, counts, strict=True)
    )
    assert max(counts) <= SEGMENT_COUNT_MAX
    assert bool(group.chunks) == (size + 6 > WHOLE_BYTES)


def test_a_record_goes_when_all_of_it_has_left(place: Place) -> None:
    place.append(*run(1, 16))
    for sequence in (3, 16, 1):
        place.retire((1, sequence))
    assert place.rows() == (1, 0, 1)
    assert place.sequences() == [2, *range(4, 16)]
    place.retire(*[(1, sequence) for sequence in range(1, 17)])
    assert place.rows() == (0, 0, 0)


def test_a_record_of_which_little_is_left_is_written_anew(place: Place) -> None:
    place.append(*run(1, 16))
    place.retire(*[(1, sequence) for sequence in range(1, 12)])
    assert place.rows() == (1, 0, 1)
    place.retire((1, 14))  # less than a quarter is left
    assert place.rows() == (2, 0, 0) and place.sequences() == [12, 13, 15, 16]


def test_one_commit_writes_so_many_anew_and_no_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "REWRITES_MAX", 2)
    place.append(*run(1, 48))
    place.retire(*[(1, sequence) for sequence in range(1, 49) if sequence % 16 not in (0, 1)])
    assert place.rows() == (2 + 2 + 1, 0, 1)
    assert place.sequences() == [1, 16, 17, 32, 33, 48]


def test_an_entry_written_anew_stays_in_its_place(place: Place) -> None:
    place.append(*run(1, 16))
    place.retire((1, 5))
    place.append((1, 5, b"back"), (1, 9, b"x" * 200_000))
    with place.env.begin(buffers=True) as txn:
        assert place.entries.get(txn, 1, 5) == b"back"
        assert place.entries.get(txn, 1, 9) == b"x" * 200_000
    assert place.sequences() == list(range(1, 17))
    place.retire((1, 9))
    assert place.sequences() == [*range(1, 9), *range(10, 17)] and place.rows()[1] == 0


def test_queues_beside_each_other(place: Place) -> None:
    place.append(*[item for first in range(1, 40) for queue_id in (2, 1, 3) for item in run(first, 1, 100, queue_id)])
    assert place.rows() == (3, 0, 0)
    place.retire(*[(2, sequence) for sequence in range(60)], (3, 7), (1, 39), (4, 1))
    assert [len(place.sequences(queue_id)) for queue_id in (1, 2, 3)] == [38, 0, 38]


def test_the_last_entry_of_the_last_record_is_replaced_in_its_record(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.append(*((1, sequence, b"old") for sequence in range(1, 6)))
    place.append((1, 5, b"new"))
    with place.env.begin(buffers=True) as txn:
        found = place.entries.read(txn, 1, 0, count_max=100, bytes_max=1 << 20)
    assert found == [*((sequence, b"old") for sequence in range(1, 5)), (5, b"new")]
