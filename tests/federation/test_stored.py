"""The rows of sets and entries (federation/stored.py): what is written is read, and a damaged row is told."""

import pytest

from holdfast.amqp.wire.encoding import encode
from holdfast.errors import StorageError
from holdfast.federation.keeping import Drop, Put, Sets
from holdfast.federation.rows import Row, Stamp
from holdfast.federation.sets import Key, make, substitute
from holdfast.federation.settings import Entry
from holdfast.federation.stored import check_row, entries_of, entry_key, pack_entry, row_of, sets_of

LONG = "n" * 200


def table_of(sets: Sets) -> dict[bytes, bytes]:
    """What a commit writes."""
    found: dict[bytes, bytes] = {}
    for write in sets.records():
        key, value = row_of(write)
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    sets.commit()
    return found


def test_what_is_written_is_read() -> None:
    """Names of the greatest length in a key that a store takes (`storage/bounds.py`)."""
    sets = Sets()
    whole = make(Stamp(7, 2), [Row("us.#"), Row("eu.*", "x > 1", 1)], ["hub", "jfk"])
    sets.put(Key(LONG, LONG), whole)
    sets.put(Key("b", "t"), substitute(Stamp(3, 1), frozenset(), 99))
    sets.put(Key("c", "t"), make(Stamp(3, 1), [], []))
    rows = table_of(sets)
    assert max(map(len, rows)) <= 400
    for key, value in rows.items():
        check_row(key, value)
    again = Sets()
    again.load(sets_of(rows.items()))
    assert again.stored == sets.stored and again.stored[Key(LONG, LONG)] == whole


def test_what_goes_goes_with_its_rows() -> None:
    sets = Sets()
    sets.put(Key("b", "t"), make(Stamp(1, 1), [Row("us.#")], []))
    rows = table_of(sets)
    sets.drop(Key("b", "t"))
    gone = [row_of(write) for write in sets.records()]
    assert {key for key, value in gone if value is None} == set(rows)


def test_entries_are_read_and_a_row_without_its_set_is_passed_over() -> None:
    entry = Entry("t", "hub", "static", ("us.#", "eu.#"))
    orphan, value = row_of(Put(("row", "b", "t", f"{5:016x}"), ["us.#", None, 0]))
    assert value is not None
    rows = [(entry_key("t", "hub"), pack_entry(entry)), (b"name", b"hub")]
    assert entries_of(rows) == [entry] and sets_of([(orphan, value)]) == {}
    assert row_of(Drop(("row", "b", "t", f"{5:016x}"))) == (orphan, None)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (entry_key("t", "hub"), b"\xff", "cannot be read"),
        (entry_key("t", "hub"), pack_entry(Entry("t", "hub", "other")), "invalid mode"),
        (entry_key("t", "hub"), pack_entry(Entry("t", "hub", direction="up")), "invalid direction 'up'"),
        (entry_key("t", "hub")[:-1], pack_entry(Entry("t", "hub")), "another form"),
    ],
)
def test_a_damaged_row_is_one_line(key: bytes, value: bytes, why: str) -> None:
    with pytest.raises(StorageError, match=why):
        entries_of([(key, value)])
    with pytest.raises(StorageError, match=why):
        check_row(key, value)


@pytest.mark.parametrize(
    "entry",
    [
        Entry("t", "hub", "static", ("us.#",), "from"),
        Entry("t", "hub", direction="both"),
        Entry("t", "hub", "static", ("us.#", "eu.#"), asked=True),
        Entry("t", "hub", asked=True),
    ],
)
def test_an_entry_of_another_direction_is_read_as_it_was_written(entry: Entry) -> None:
    key, value = entry_key("t", "hub", asked=entry.asked), pack_entry(entry)
    assert entries_of([(key, value)]) == [entry]
    check_row(key, value)
    with pytest.raises(StorageError, match="its key is another's"):
        check_row(entry_key("t", "hub", asked=not entry.asked), value)


def test_an_entry_is_written_as_earlier_versions_read_it() -> None:
    assert pack_entry(Entry("t", "hub", "static", ("us.#",))) == encode(["t", "hub", "static", "us.#"])


def test_a_row_of_no_kind_is_told() -> None:
    with pytest.raises(StorageError, match="another form"):
        sets_of([(b"x" + bytes(16), pack_entry(Entry("t", "hub")))])


def test_a_key_of_another_row_is_found() -> None:
    with pytest.raises(StorageError, match="its key is another's"):
        check_row(entry_key("t", "jfk"), pack_entry(Entry("t", "hub")))
    key, value = row_of(Put(("row", "b", "t", f"{5:016x}"), ["us.#", None, 0]))
    assert value is not None
    with pytest.raises(StorageError, match="its key is another's"):
        check_row(key, value)
