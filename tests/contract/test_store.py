"""What every store must do (storage/port.py), whichever it is. A new store joins by a line in STORES."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from holdfast.engine.port import PIECE_BYTES, TABLES, Batch
from holdfast.errors import LocalProtocolError, StorageError, StorageFull
from holdfast.storage.layout.records import CHUNK_BYTES, WHOLE_BYTES
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.port import Store
from holdfast.units import KIB, MIB

SMALL_BYTES_MAX = 4 * MIB

STORES: dict[str, Callable[[Path, int | None], Store]] = {
    "lmdb": lambda path, bytes_max: LmdbStore(path, bytes_max=bytes_max or 1024 * MIB, ahead_bytes=32 * MIB),
    "memory": lambda path, bytes_max: MemoryStore(bytes_max=bytes_max),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = STORES[request.param](tmp_path / "store", None)
    yield opened
    opened.close()


@pytest.fixture(params=STORES)
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = STORES[request.param](tmp_path / "store", SMALL_BYTES_MAX)
    yield opened
    opened.close()


def appends(*entries: tuple[int, int, bytes]) -> Batch:
    return Batch(appends=list(entries))


def everything(store: Store, queue_id: int = 1) -> list[tuple[int, bytes]]:
    return store.read(queue_id, 0, count_max=1_000_000, bytes_max=1 << 40)


def test_a_new_store_is_empty(store: Store) -> None:
    assert everything(store) == []
    assert store.get(1, 1) is None
    assert [list(store.table(name)) for name in TABLES] == [[]] * len(TABLES)
    assert store.room_bytes() >= 10 * MIB


@pytest.mark.parametrize(
    ("first", "count_max", "bytes_max", "expected"),
    [
        (0, 10, 1_000, [2, 3, 5, 8]),
        (2, 10, 1_000, [2, 3, 5, 8]),
        (3, 10, 1_000, [3, 5, 8]),
        (4, 10, 1_000, [5, 8]),
        (9, 10, 1_000, []),
        (0, 1, 1_000, [2]),
        (0, 3, 1_000, [2, 3, 5]),
        (0, 10, 10, [2]),
        (0, 10, 19, [2]),
        (0, 10, 20, [2, 3]),
        (0, 10, 29, [2, 3]),
        (0, 10, 30, [2, 3, 5]),
        (0, 10, 1, [2]),  # at least one, however small the bound
        (0, 0, 0, [2]),
    ],
)
def test_read_is_ascending_and_within_both_bounds(
    store: Store, first: int, count_max: int, bytes_max: int, expected: list[int]
) -> None:
    store.commit(appends(*[(7, sequence, b"%010d" % sequence) for sequence in (5, 2, 8, 3)]))
    found = store.read(7, first, count_max=count_max, bytes_max=bytes_max)
    assert found == [(sequence, b"%010d" % sequence) for sequence in expected]


def test_queues_do_not_mix(store: Store) -> None:
    places = [(0, 0), (0, 2**64 - 1), (1, 0), (1, 2**64 - 1), (2, 1), (2**32 - 1, 0), (2**32 - 1, 2**64 - 1)]
    store.commit(appends(*[(queue, sequence, b"%d/%d" % (queue, sequence)) for queue, sequence in places]))
    for queue in {queue for queue, _ in places}:
        expected = [(number, b"%d/%d" % (queue, number)) for other, number in places if other == queue]
        assert everything(store, queue) == expected
    assert everything(store, 3) == []


@pytest.mark.parametrize(
    "size",
    [
        *(0, 1, 2_000, 4_080, 4_081, 10_000_000),
        *(CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 1),
        *(WHOLE_BYTES - 6, WHOLE_BYTES - 5),
    ],
)
def test_values_of_any_size_come_back_whole(store: Store, size: int) -> None:
    value = Random(size).randbytes(size)
    store.commit(appends((1, 1, b"before"), (1, 2, value), (1, 3, b"after")))
    assert store.get(1, 2) == value
    assert store.get_all(1, [3, 2, 9, 1], bytes_max=1 << 30) == {3: b"after", 2: value, 1: b"before"}
    assert everything(store) == [(1, b"before"), (2, value), (3, b"after")]
    assert store.read(1, 1, count_max=9, bytes_max=6 + size)[1:] == [(2, value)]
    if size:
        assert store.read(1, 1, count_max=9, bytes_max=5 + size) == [(1, b"before")]
    store.commit(Batch(retires=[(1, 2)]))
    assert store.get(1, 2) is None
    assert everything(store) == [(1, b"before"), (3, b"after")]


@pytest.mark.parametrize(
    "sizes", [(200_000, 10), (200_000, 70_000), (10, 200_000), (200_000, CHUNK_BYTES), (WHOLE_BYTES, 70_000)]
)
def test_a_value_written_anew_keeps_nothing_of_the_old(store: Store, sizes: tuple[int, int]) -> None:
    old, new = (bytes([number]) * size for number, size in enumerate(sizes))
    store.commit(appends((1, 1, old)))
    store.commit(appends((1, 1, new)))
    assert store.get(1, 1) == new
    store.commit(appends((1, 1, old), (1, 1, new)))  # the last of a key wins
    assert store.get(1, 1) == new


def test_what_is_retired_and_appended_in_one_batch_is_there(store: Store) -> None:
    store.commit(appends((1, 1, b"old" * 50_000)))
    store.commit(Batch(retires=[(1, 1)], appends=[(1, 1, b"new")]))
    assert everything(store) == [(1, b"new")]


def test_retiring_what_is_not_there_is_no_error(store: Store) -> None:
    store.commit(Batch(retires=[(1, 1), (9, 9)]))
    store.commit(appends((1, 2, b"x"), (1, 4, bytes(100_000))))
    store.commit(Batch(retires=[(1, 4), (1, 1), (1, 3), (1, 4), (1, 5)]))
    assert everything(store) == [(2, b"x")]


def test_appends_in_the_middle_of_what_is_there(store: Store) -> None:
    store.commit(appends((5, 10, b"a"), (9, 1, b"b")))
    store.commit(appends((9, 2, b"e"), (5, 11, b"c"), (1, 1, b"d"), (5, 9, b"f")))
    assert everything(store, 5) == [(9, b"f"), (10, b"a"), (11, b"c")]
    assert everything(store, 9) == [(1, b"b"), (2, b"e")]
    assert everything(store, 1) == [(1, b"d")]


def test_tables_keep_rows_by_key_and_apart(store: Store) -> None:
    puts = {(name, key): name.encode() + key for name in TABLES for key in (b"b", b"\x00", b"\xff" * 400, b"a")}
    store.commit(Batch(puts=puts))
    for name in TABLES:
        rows = list(store.table(name))
        assert rows == [(key, name.encode() + key) for key in (b"\x00", b"a", b"b", b"\xff" * 400)]
    store.commit(Batch(deletes=[("queues", b"a"), ("queues", b"none")], puts={("queues", b"b"): b""}))
    assert [key for key, _ in store.table("queues")] == [b"\x00", b"b", b"\xff" * 400]
    assert dict(store.table("queues"))[b"b"] == b""
    assert len(list(store.table("custody"))) == 4


def test_deletes_come_before_puts(store: Store) -> None:
    store.commit(Batch(puts={("node", b"k"): b"1"}))
    store.commit(Batch(deletes=[("node", b"k")], puts={("node", b"k"): b"2"}))
    assert list(store.table("node")) == [(b"k", b"2")]


@pytest.mark.parametrize(
    "batch",
    [
        Batch(puts={("nonsense", b"k"): b"v"}),
        Batch(puts={("node", b""): b"v"}),
        Batch(puts={("node", b"k" * 401): b"v"}),
        Batch(puts={("node", b"k"): bytes(MIB + 1)}),
        Batch(deletes=[("nonsense", b"k")]),
        Batch(deletes=[("node", b"k" * 401)]),
        Batch(appends=[(2**32, 1, b"")]),
        Batch(appends=[(1, 2**64, b"")]),
        Batch(appends=[(-1, 1, b"")]),
        Batch(retires=[(1, -1)]),
    ],
)
def test_a_batch_beyond_the_bounds_is_a_defect_and_changes_nothing(store: Store, batch: Batch) -> None:
    batch = Batch(
        appends=[(1, 1, b"beside"), *batch.appends],
        retires=batch.retires,
        puts={("node", b"beside"): b"", **batch.puts},
        deletes=batch.deletes,
    )
    with pytest.raises(LocalProtocolError):
        store.commit(batch)
    assert everything(store) == []
    assert list(store.table("node")) == []
    store.commit(Batch(puts={("node", b"k" * 400): bytes(MIB)}))  # at the bounds, and the store is usable


def test_an_unknown_table_is_refused_with_the_known_ones(store: Store) -> None:
    with pytest.raises(LocalProtocolError, match="queues, subscriptions"):
        store.table("nonsense")


def test_an_empty_batch_is_allowed(store: Store) -> None:
    store.commit(Batch())


def test_mint_makes_the_store_someone_new(store: Store) -> None:
    before = store.uuid
    fresh = store.mint()
    assert fresh != before
    assert store.uuid == fresh


def test_mint_stores_rows_with_the_uuid_or_nothing(store: Store) -> None:
    store.commit(Batch(puts={("custody", b"a"): b"before", ("node", b"b"): b"kept"}))
    fresh = store.mint(lambda uuid: {("custody", b"a"): b"after", ("custody", b"c"): uuid.bytes})
    assert list(store.table("custody")) == [(b"a", b"after"), (b"c", fresh.bytes)]
    with pytest.raises(LocalProtocolError):
        store.mint(lambda _: {("custody", b"a"): b"never", ("nonsense", b"d"): b""})
    assert store.uuid == fresh and list(store.table("node")) == [(b"b", b"kept")]
    assert list(store.table("custody")) == [(b"a", b"after"), (b"c", fresh.bytes)]


def test_scattered_entries_are_read_up_to_the_one_with_which_they_are_past_the_bytes(store: Store) -> None:
    random = Random(1)
    values = {number: random.randbytes(random.choice((10, 500, 5_000, 90_000))) for number in range(1, 300)}
    store.commit(appends(*((1, number, value) for number, value in values.items())))
    store.commit(appends((2, 5, b"another queue's"), (1, 400, b"later")))
    gone = random.sample(sorted(values), 120)
    store.commit(Batch(retires=[(1, number) for number in gone]))
    left = {number: value for number, value in values.items() if number not in gone} | {400: b"later"}
    for _ in range(20):
        asked = random.sample(range(450), 60)
        assert store.get_all(1, asked, bytes_max=1 << 40) == {at: left[at] for at in asked if at in left}
        size, expected = random.choice((1, 600, 20_000)), {}
        for at in asked:
            if at in left and sum(map(len, expected.values())) < size:
                expected[at] = left[at]
        assert store.get_all(1, asked, bytes_max=size) == expected
    assert store.get_all(3, [1, 2], bytes_max=9) == {} and store.get_all(1, [], bytes_max=9) == {}


def test_a_closed_store_refuses_and_closes_again(store: Store) -> None:
    store.close()
    store.close()
    for call in (
        lambda: store.get(1, 1),
        lambda: store.get_all(1, [1], bytes_max=1),
        lambda: everything(store),
        lambda: store.table("node"),
        lambda: store.commit(Batch()),
        store.mint,
        store.room_bytes,
        store.bytes_on_disk,
    ):
        with pytest.raises(StorageError, match="closed"):
            call()


def test_reads_run_beside_a_commit_and_see_whole_batches(store: Store) -> None:
    def write() -> None:
        for number in range(150):
            store.commit(
                Batch(
                    appends=[(1, number * 10 + place, bytes(900)) for place in range(10)],
                    retires=[(1, number * 10 - 50 + place) for place in range(10) if number >= 5],
                    puts={("node", b"next"): b"%d" % (number * 10 + 10)},
                )
            )

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            found = [sequence for sequence, _ in everything(store)]
            assert len(found) % 10 == 0
            assert found == list(range(found[0], found[0] + len(found))) if found else True
        writing.result()
    assert len(everything(store)) == 50


# ------------------------------------------------------------------------------------------------- full stores


def fill(store: Store, size: int, *, first: int = 1, per_batch: int = 20) -> int:
    """Append values of `size` bytes as long as the room allows; the number of the next."""
    sequence = first
    while store.room_bytes() >= size * per_batch:
        store.commit(appends(*[(1, sequence + place, bytes(size)) for place in range(per_batch)]))
        sequence += per_batch
    return sequence


@pytest.mark.parametrize("size", [100, 1_000, 1_400, 3_000, 5_000, 20_000, 100_000])
@pytest.mark.parametrize("last_queue", [1, 9])
def test_what_the_room_promises_fits(small: Store, size: int, last_queue: int) -> None:
    """The whole room in one batch, over and over, until nothing is left; then all of it again."""
    small.commit(appends((last_queue, 2**40, b"")))  # queue 9: every append falls into the middle
    for _ in range(2):
        sequence = 1
        while count := max(0, small.room_bytes()) // size:
            small.commit(appends(*[(1, sequence + place, bytes(size)) for place in range(count)]))
            sequence += count
        assert sequence * size > SMALL_BYTES_MAX // 8, "too little was let in"
        assert small.bytes_on_disk() <= SMALL_BYTES_MAX + 64 * KIB
        for start in range(1, sequence, 100):
            small.commit(Batch(retires=[(1, number) for number in range(start, start + 100)]))
        assert [number for number, _ in everything(small) if number < 2**40] == []


def test_a_batch_that_does_not_fit_writes_nothing(small: Store) -> None:
    fill(small, 1_000)
    before = everything(small)
    with pytest.raises(StorageFull, match=r"full|fit|space"):
        small.commit(
            Batch(
                appends=[(2, number, bytes(1_000)) for number in range(5_000)],
                puts={("node", b"k"): b"v"},
                retires=[(1, 1)],
            )
        )
    assert everything(small) == before
    assert everything(small, 2) == []
    assert list(small.table("node")) == []


@pytest.mark.parametrize("order", ["oldest first", "newest first", "scattered"])
def test_retiring_always_fits_and_makes_room(small: Store, order: str) -> None:
    end = fill(small, 1_000, per_batch=10)
    with pytest.raises(StorageFull):
        # Whoever heeds no room, into the reserve as far as it goes.
        for sequence in range(end, end + 10_000):
            small.commit(appends((1, sequence, bytes(1_000))))
    present = [sequence for sequence, _ in everything(small)]
    if order == "newest first":
        present.reverse()
    elif order == "scattered":
        Random(1).shuffle(present)
    for start in range(0, len(present), 50):
        small.commit(Batch(retires=[(1, sequence) for sequence in present[start : start + 50]]))
    assert everything(small) == []
    assert fill(small, 1_000, first=100_000, per_batch=10) > 100_000 + SMALL_BYTES_MAX // 4_000


def test_a_full_store_that_is_emptied_in_one_batch_takes_more_at_once(small: Store) -> None:
    end = fill(small, 1_000)
    small.commit(Batch(retires=[(1, sequence) for sequence in range(1, end)]))
    room = small.room_bytes()
    assert room > SMALL_BYTES_MAX // 8
    small.commit(appends(*[(1, end + place, bytes(1_000)) for place in range(room // 1_000)]))


# --------------------------------------------------------------------------------------------------- blobs


def blob(store: Store, number: int) -> list[bytes]:
    found = []
    while (piece := store.piece(number, len(found))) is not None:
        found.append(piece)
    return found


def test_a_blob_is_read_piece_by_piece_as_it_was_written(store: Store) -> None:
    whole = Random(1).randbytes(5 * PIECE_BYTES + 17)
    pieces = [whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES)]
    assert store.piece(7, 0) is None
    for start in (0, 2, 4):
        store.commit(Batch(pieces=[(7, index, pieces[index]) for index in range(start, min(start + 2, len(pieces)))]))
    store.commit(Batch(pieces=[(8, 0, b"another"), (6, 0, b"before")]))
    assert b"".join(blob(store, 7)) == whole
    assert blob(store, 8) == [b"another"] and blob(store, 6) == [b"before"]
    assert store.piece(7, 6) is None and store.piece(2**64 - 1, 2**32 - 1) is None


def test_pieces_and_entries_of_one_batch_are_there_together(store: Store) -> None:
    store.commit(Batch(appends=[(1, 1, b"entry")], pieces=[(1, 0, b"piece")], puts={("blobs", b"k"): b"v"}))
    assert (store.get(1, 1), store.piece(1, 0), list(store.table("blobs"))) == (b"entry", b"piece", [(b"k", b"v")])


def test_the_last_piece_of_a_place_wins(store: Store) -> None:
    store.commit(Batch(pieces=[(1, 0, b"one"), (1, 0, b"two")]))
    assert store.piece(1, 0) == b"two"
    store.commit(Batch(pieces=[(1, 0, b"three")]))
    assert blob(store, 1) == [b"three"]


@pytest.mark.parametrize(("first", "end", "left"), [(0, 0, 5), (0, 2, 3), (1, 3, 3), (4, 9, 4), (0, 5, 0), (5, 9, 5)])
def test_a_drop_takes_its_range_and_nothing_else(store: Store, first: int, end: int, left: int) -> None:
    store.commit(Batch(pieces=[(number, index, b"%d" % index) for number in (1, 2, 3) for index in range(5)]))
    store.commit(Batch(drops=[(2, first, end)]))
    assert [store.piece(2, index) for index in range(5)] == [
        None if first <= index < end else b"%d" % index for index in range(5)
    ]
    assert sum(store.piece(2, index) is not None for index in range(5)) == left
    assert len(blob(store, 1)) == len(blob(store, 3)) == 5
    store.commit(Batch(drops=[(2, 0, 2**32 - 1), (2, 0, 2**32 - 1), (99, 0, 1)]))
    assert blob(store, 2) == []


def test_drops_come_before_pieces(store: Store) -> None:
    store.commit(Batch(pieces=[(1, 0, b"old")]))
    store.commit(Batch(drops=[(1, 0, 1)], pieces=[(1, 0, b"new")]))
    assert blob(store, 1) == [b"new"]


@pytest.mark.parametrize(
    "batch",
    [
        Batch(pieces=[(1, 0, b"")]),
        Batch(pieces=[(1, 0, bytes(PIECE_BYTES + 1))]),
        Batch(pieces=[(2**64, 0, b"x")]),
        Batch(pieces=[(1, 2**32, b"x")]),
        Batch(drops=[(-1, 0, 1)]),
        Batch(drops=[(1, 0, 2**32)]),
    ],
)
def test_a_piece_out_of_bounds_is_a_defect_and_nothing_is_written(store: Store, batch: Batch) -> None:
    batch.puts["node", b"k"] = b"v"
    with pytest.raises(LocalProtocolError):
        store.commit(batch)
    assert list(store.table("node")) == []
    store.commit(Batch(pieces=[(2**64 - 1, 2**32 - 1, bytes(PIECE_BYTES))]))


def test_a_full_store_refuses_pieces_and_drops_make_room(small: Store) -> None:
    index = 0
    with pytest.raises(StorageFull):
        while True:
            small.commit(Batch(pieces=[(1, index, bytes(PIECE_BYTES))], puts={("blobs", b"k"): b"%d" % index}))
            index += 1
    assert index > 5
    assert len(blob(small, 1)) == index
    assert dict(small.table("blobs")) == {b"k": b"%d" % (index - 1)}
    for first in range(0, index, 4):
        small.commit(Batch(drops=[(1, first, first + 4)]))
    small.commit(Batch())
    room = small.room_bytes()
    assert room > 0
    small.commit(Batch(pieces=[(2, 0, bytes(PIECE_BYTES))]))
    assert blob(small, 1) == [] and len(blob(small, 2)) == 1


def test_a_batch_that_makes_it_someone_new_is_all_or_nothing(store: Store) -> None:
    before, fresh = store.uuid, store.draw_uuid()
    assert fresh != before == store.uuid and fresh != store.draw_uuid()
    with pytest.raises(LocalProtocolError):
        store.commit(Batch(mint=fresh, puts={("nonsense", b"d"): b""}))
    assert store.uuid == before
    store.commit(Batch(mint=fresh, puts={("custody", b"a"): b"1"}, appends=[(1, 1, b"value")]))
    assert store.uuid == fresh and store.get(1, 1) == b"value"
    store.commit(Batch(mint=before))
    assert store.uuid == before
