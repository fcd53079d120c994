"""Which publications came before: what is remembered, and how it is stored beside the turns in which they came."""

from random import Random

import pytest

from holdfast.errors import StorageError
from holdfast.federation import publications
from holdfast.federation.publications import RANGES_ALL_MAX, RANGES_MAX, ROWS_MAX, Publications, Seen
from holdfast.federation.stored import check_row, sets_of

Disk = dict[bytes, bytes]


def write(disk: Disk, seen: Publications) -> int:
    """A commit; how many bytes it wrote."""
    size = 0
    for key, value in seen.records():
        if value is None:
            disk.pop(key, None)
        else:
            disk[key] = value
            check_row(key, value)
            size += len(value)
    return size


def test_a_publication_comes_once() -> None:
    seen = Publications()
    assert [seen.take("s", 1), seen.take("s", 1), seen.take("other", 1)] == [Seen.NEW, Seen.COPY, Seen.NEW]


def test_ranges_of_a_publisher_are_bounded() -> None:
    seen = Publications()
    for number in range(1, 2 * RANGES_MAX + 3, 2):
        assert seen.take("s", number) is Seen.NEW
    assert len(seen.ranges["s"]) == RANGES_MAX
    assert seen.take("s", 1) is Seen.OLD  # it is delivered, and counted
    assert seen.take("s", 2 * RANGES_MAX + 1) is Seen.COPY


def test_ranges_of_all_publishers_are_bounded() -> None:
    seen, disk = Publications(), Disk()
    for publisher in range(RANGES_ALL_MAX // RANGES_MAX + 2):
        for number in range(1, 2 * RANGES_MAX + 1, 2):
            seen.take(f"s{publisher}", number)
        write(disk, seen)
    assert sum(map(len, seen.ranges.values())) <= RANGES_ALL_MAX and "s0" not in seen.ranges
    again = Publications(disk.items())
    assert {store: list(ranges) for store, ranges in again.ranges.items()} == {
        store: list(ranges) for store, ranges in seen.ranges.items()
    }, "what was forgotten left the disk"


@pytest.mark.parametrize("comes_again", [True, False])
def test_what_was_forgotten_leaves_the_disk_though_its_turn_was_undone(
    monkeypatch: pytest.MonkeyPatch, comes_again: bool
) -> None:
    monkeypatch.setattr(publications, "PUBLISHERS_MAX", 2)
    seen, disk = Publications(), Disk()
    for number in range(1, 9, 2):
        for publisher in "ab":
            seen.take(publisher, number)
        write(disk, seen)
        seen.stored()
    assert len(disk) == 8
    seen.take("c", 1)  # in place of a
    seen.records()
    seen.forget("c", 1)
    if comes_again:
        seen.take("a", 20)
    seen.take("c", 2)
    write(disk, seen)
    seen.stored()
    again = Publications(disk.items())
    assert {store: list(ranges) for store, ranges in again.ranges.items()} == (
        {"a": [(20, 20)], "c": [(2, 2)]} if comes_again else {"b": [(1, 1), (3, 3), (5, 5), (7, 7)], "c": [(2, 2)]}
    )
    assert seen.records() == []


def test_what_came_is_known_after_a_restart() -> None:
    """Whatever turns were undone: what is in memory after them is what the disk has, and nothing that was undone is."""
    random, disk, seen = Random(1), Disk(), Publications()
    known: set[tuple[str, int]] = set()
    for _ in range(600):
        turn = [(random.choice("ab"), random.randrange(1, 2_000)) for _ in range(random.randrange(6))]
        new = [one for one in turn if seen.take(*one) is Seen.NEW]
        rows, undone = seen.records(), random.random() < 0.1
        if undone:
            for one in new:
                seen.forget(*one)
        else:
            known.update(new)
            for key, value in rows:
                disk.pop(key, None) if value is None else disk.__setitem__(key, value)
        if random.random() < 0.02:
            seen = Publications(disk.items())
    again = Publications(disk.items())
    assert {(store, number) for store in "ab" for number in range(1, 2_000) if number in again.ranges[store]} == known
    assert len(disk) <= 2 * (ROWS_MAX + 1)
    assert sets_of(disk.items()) == {}


def test_a_turn_writes_little_however_much_is_remembered() -> None:
    seen, disk = Publications(), Disk()
    for number in range(1, 2 * RANGES_MAX, 2):
        seen.take("s", number)
    write(disk, seen)
    sizes = []
    for number in range(2 * RANGES_MAX + 1, 2 * RANGES_MAX + 400, 2):
        seen.take("s", number)
        sizes.append(write(disk, seen))
    assert sum(sizes) / len(sizes) < 16 * RANGES_MAX / ROWS_MAX + 100


@pytest.mark.parametrize("value", [b"\xff", b"\x40", b"\x45"])
def test_a_damaged_row_is_one_line(value: bytes) -> None:
    key = publications.PREFIX + bytes(17)
    for read in (lambda: Publications([(key, value)]), lambda: check_row(key, value)):
        with pytest.raises(StorageError, match="cannot be read"):
            read()


def test_a_key_of_another_store_is_found() -> None:
    seen, disk = Publications(), Disk()
    seen.take("s", 1)
    write(disk, seen)
    ((key, value),) = disk.items()
    with pytest.raises(StorageError, match="its key is another's"):
        Publications([(key[:-2] + b"xx", value)])
