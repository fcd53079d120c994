"""The journal of a feed: what it has promised is there after a crash at any byte, and nothing twice."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.feed import journal as journal_module
from holdfast.client.feed.journal import PLACES_MAX, Journal, Kept, Line
from holdfast.client.feed.places import Place, mark_of
from holdfast.errors import ConfigError, StorageError
from support import today


def opened(directory: Path) -> Journal:
    return Journal(directory, "p", "q")


def crashed(journal: Journal) -> None:
    """As a kill leaves it."""
    os.close(journal._lock)
    if journal._descriptor >= 0:
        os.close(journal._descriptor)


def place(inode: int, offset: int) -> Place:
    return Place(1, inode, offset, mark_of(b"%d" % offset))


def read_all(journal: Journal) -> list[Kept]:
    found = []
    while some := journal.read():
        found += some
    return found


def test_what_was_appended_is_numbered_and_there_again(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    assert journal.is_new and journal.read() == []
    journal.begin(5)
    journal.append([Line(b"a", place(1, 2)), Line(None, place(2, 9)), Line(b"b", None), Line(None, None)])
    assert (journal.next_number, journal.held_bytes) == (7, 2)
    assert read_all(journal) == [Kept(5, b"a"), Kept(6, b"b")] and read_all(journal) == []
    crashed(journal)
    journal = opened(tmp_path / "j")
    assert (journal.next_number, journal.held_bytes, journal.is_new) == (7, 2, False)
    assert journal.places == {(1, 1): place(1, 2), (1, 2): place(2, 9)}
    assert read_all(journal) == [Kept(5, b"a"), Kept(6, b"b")]
    journal.ended([6])
    assert journal.ended_below == 5
    journal.ended([5, 5])
    assert journal.ended_below == 7 and journal.held_bytes == 0
    journal.close()
    journal = opened(tmp_path / "j")
    assert read_all(journal) == [] and journal.ended_below == 7
    journal.append([Line(b"c", None)])
    assert read_all(journal) == [Kept(7, b"c")]
    journal.close()


def test_what_had_ended_by_the_next_batch_is_not_sent_again_after_a_crash(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.begin(1)
    journal.append([Line(b"a", None), Line(b"b", None), Line(b"c", None)])
    journal.ended([1, 3])
    journal.append([Line(b"d", None)])
    crashed(journal)
    journal = opened(tmp_path)
    assert read_all(journal) == [Kept(2, b"b"), Kept(3, b"c"), Kept(4, b"d")] and journal.held_bytes == 3
    journal.close()


def test_segments_go_once_all_of_theirs_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 300)
    journal = opened(tmp_path)
    journal.begin(1)
    for number in range(1, 21):
        journal.append([Line(b"x" * 100, place(number, number))])
    assert len(list(tmp_path.glob("*.journal"))) > 3
    journal.ended(range(2, 21))
    files = sorted(tmp_path.glob("*.journal"))
    assert len(files) > 3
    crashed(journal)
    journal = opened(tmp_path)
    assert [kept.number for kept in read_all(journal)] == list(range(1, 21))  # of the others nothing was noted
    journal.ended(range(1, 21))
    assert list(tmp_path.glob("*.journal")) == [files[-1]]
    crashed(journal)
    journal = opened(tmp_path)
    assert len(journal.places) == 20 and journal.next_number == 21
    assert [kept.number for kept in read_all(journal)] in ([], [19, 20], [20])
    journal.append([Line(b"y", None)])
    assert read_all(journal)[-1] == Kept(21, b"y")
    journal.close()


def test_places_alone_roll_segments_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 300)
    journal = opened(tmp_path)
    journal.begin(1)
    journal.append([Line(b"first", place(1, 1))])
    for offset in range(2, 30):
        journal.append([Line(None, place(1, offset))])
    crashed(journal)
    journal = opened(tmp_path)
    assert journal.places == {(1, 1): place(1, 29)} and read_all(journal) == [Kept(1, b"first")]
    journal.close()


def test_the_oldest_places_are_forgotten(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.begin(1)
    journal.append([Line(None, place(inode, 1)) for inode in range(PLACES_MAX)])
    journal.append([Line(None, place(0, 2)), Line(None, place(PLACES_MAX, 1))])
    assert len(journal.places) == PLACES_MAX
    assert (1, 0) in journal.places and (1, 1) not in journal.places
    journal.close()


def test_a_journal_is_one_feeds(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    with pytest.raises(ConfigError, match="is in use by another feed"):
        opened(tmp_path)
    journal.begin(1)
    journal.close()
    with pytest.raises(ConfigError, match="belongs to producer 'p', not to 'other'"):
        Journal(tmp_path, "other", "q")
    with pytest.raises(ConfigError, match="belongs to address 'q', not to 'r'"):
        Journal(tmp_path, "p", "r")
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "under"):
        with pytest.raises(ConfigError, match="for --journal; expected a directory"):
            opened(place)


def test_a_batch_that_the_disk_refuses_was_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path)
    journal.begin(1)
    journal.append([Line(b"a", place(1, 1))])

    def full(descriptor: int, data: bytes) -> int:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "write_all", full)
        with pytest.raises(OSError, match="No space"):
            journal.append([Line(b"b", place(1, 2))])
    assert journal.next_number == 2 and journal.places[1, 1].offset == 1
    journal.append([Line(b"c", place(1, 3))])
    crashed(journal)
    journal = opened(tmp_path)
    assert read_all(journal) == [Kept(1, b"a"), Kept(2, b"c")]
    journal.close()


def test_a_sync_that_fails_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(tmp_path)
    journal.begin(1)

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        with pytest.raises(StorageError, match="cannot be synced"):
            journal.append([Line(b"b", None)])
    journal.close()


def test_damage_before_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 100)
    journal = opened(tmp_path)
    journal.begin(1)
    for _ in range(3):
        journal.append([Line(b"x" * 100, None)])
    journal.close()
    first = min(tmp_path.glob("*.journal"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(bytes(data))
    with pytest.raises(StorageError, match="is damaged at byte"):
        opened(tmp_path)


LINES = st.lists(
    st.builds(
        Line,
        st.none() | st.binary(max_size=60),
        st.none() | st.builds(place, st.integers(1, 3), st.integers(0, 99)),
    ),
    min_size=1,
    max_size=4,
)


@given(steps=st.lists(LINES | st.integers(1, 30), min_size=1, max_size=12), data=st.data())
@settings(max_examples=today.drawn(20))
def test_a_crash_at_any_byte_keeps_what_was_synced_and_no_half(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], data: st.DataObject
) -> None:
    """Numbers end meanwhile; then the last segment is cut anywhere behind what had been synced before the last step."""
    directory = tmp_path_factory.mktemp("j")
    before = journal_module.SEGMENT_BYTES
    journal_module.SEGMENT_BYTES = 400
    try:
        journal = opened(directory)
        journal.begin(1)
        kept: dict[int, bytes] = {}
        ended: set[int] = set()
        places: dict[tuple[int, int], Place] = {}
        snapshots = []
        for step in steps:
            sizes = {path.name: path.stat().st_size for path in directory.glob("*.journal")}
            snapshots.append((sizes, dict(kept), dict(places)))
            if isinstance(step, int):
                if step in kept:
                    journal.ended([step])
                    ended.add(step)
                continue
            number = journal.next_number
            journal.append(step)
            for message, its_place in step:
                if message is not None:
                    kept[number] = message
                    number += 1
                if its_place is not None:
                    places[its_place.file] = its_place
        crashed(journal)
        sizes, kept_before, places_before = snapshots[-1]
        last = max(directory.glob("*.journal"))
        synced = sizes.get(last.name, 0)
        cut = data.draw(st.integers(synced, last.stat().st_size))
        whole = cut == last.stat().st_size
        os.truncate(last, cut)
        journal = opened(directory)
        found = {item.number: item.message for item in read_all(journal)}
        assert all(kept[number] == message for number, message in found.items())
        missing = (kept if whole else kept_before).keys() - found.keys()
        assert missing <= ended
        if whole:
            assert journal.places == places and journal.next_number == len(kept) + 1
        else:
            assert all(journal.places[file].offset >= 0 for file in places_before)
            assert len(kept_before) < journal.next_number <= len(kept) + 1
        journal.append([Line(b"after", None)])
        assert read_all(journal) == [Kept(journal.next_number - 1, b"after")]
        journal.close()
    finally:
        journal_module.SEGMENT_BYTES = before
