"""Files of a folder that do not behave: written anew in place, under an inode that was another's, without a header,
growing for ever (docs/feed.md, "A folder")."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.feed import folder as folder_module
from holdfast.client.feed import journal as journal_module
from support.feeds import Rig


async def look(rig: Rig, times: int = 2) -> list[bytes]:
    for _ in range(times):
        await rig.read()
    rig.deliver()
    return rig.lines


def write(path: Path, text: str, *, at: int | None = None) -> None:
    """In place; `at`: the time of the change, if it is not now."""
    path.write_text(text)
    if at is not None:
        os.utime(path, (at, at))


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("old", [False, True])
async def test_as_many_bytes_as_before_are_read_all_the_same(tmp_path: Path, killed: bool, old: bool) -> None:
    rig = Rig(tmp_path)
    path = rig.files / "a.log"
    for number in range(4):
        write(path, f"T={number}\n", at=1_000 + number if old else None)
        await look(rig)
        if killed and not number:
            rig.killed()
            await look(rig)
    assert rig.lines == [b"T=0", b"T=1", b"T=2", b"T=3"]
    rig.close()


async def test_a_file_that_does_not_change_is_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    write(rig.files / "a.log", "1\n", at=1_000)
    await look(rig)
    rig.killed()
    await look(rig)
    opened: list[object] = []
    monkeypatch.setattr(rig.folder, "_opened", opened.append)
    await look(rig, 5)
    assert opened == [] and rig.lines == [b"1"]
    rig.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_another_file_of_that_inode_is_not_read_under_a_name_that_does_not_match(
    tmp_path: Path, killed: bool
) -> None:
    """As `gzip` makes it of what was rotated, or a program for a while."""
    rig = Rig(tmp_path)
    path, other = rig.files / "a.log", rig.files / "b.gz"
    write(path, "1\n")
    await look(rig)
    if killed:
        rig.killed()
    path.rename(other)
    write(other, "garbage\nmore of it\n")
    assert await look(rig, 4) == [b"1"]
    other.rename(path)
    assert await look(rig) == [b"1", b"garbage", b"more of it"]
    rig.close()


async def test_a_file_that_was_renamed_before_its_first_line_ended_is_read_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    write(rig.files / "a.log", "1")
    await look(rig)
    (rig.files / "a.log").rename(rig.files / "a.1")
    write(rig.files / "a.1", "1\n2\n")
    assert await look(rig) == [b"1", b"2"]
    rig.close()


async def test_a_header_behind_an_empty_line_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "READ_BYTES", 10)
    rig = Rig(tmp_path, form="csv")
    path = rig.files / "a.log"
    write(path, "\n" * 90)
    await look(rig)
    rig.folder.close()
    with path.open("a") as file:
        file.write("x,y\n1,2\n")
    await look(rig)
    for number in (3, 5):
        rig.killed()
        with path.open("a") as file:
            file.write(f"{number},{number + 1}\n")
        await look(rig)
    assert rig.lines == [b'{"x":"1","y":"2"}', b'{"x":"3","y":"4"}', b'{"x":"5","y":"6"}'] and not rig.intake.invalid
    rig.close()


@pytest.mark.parametrize("old", [False, True])
async def test_a_header_that_is_none_counts_once_and_another_one_is_read(
    tmp_path: Path, old: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = Rig(tmp_path, form="csv")
    path = rig.files / "a.log"
    write(path, "x,x\n1,2\n", at=1_000 if old else None)
    assert await look(rig, 4) == [] and rig.intake.invalid == 1
    write(path, "x,x\n1,2\n3,4\n", at=1_001 if old else None)
    assert await look(rig, 4) == [] and rig.intake.invalid == 1
    assert capsys.readouterr().err.count("not read: invalid header") == 1
    write(path, "x,y\n1,2\n3,4\n", at=1_002 if old else None)
    assert await look(rig) == [b'{"x":"1","y":"2"}', b'{"x":"3","y":"4"}'] and rig.intake.invalid == 1
    rig.close()


async def test_a_file_that_cannot_be_read_is_tried_again_and_counts_where_it_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    write(rig.files / "a.log", "1\n")
    with monkeypatch.context() as patch:

        def fail(file: Any) -> bool:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(rig.folder, "_opened", fail)
        assert await look(rig) == []
        await rig.folder.run(1, once=True)
        assert rig.intake.invalid == 1
    assert await look(rig) == [b"1"] and rig.intake.invalid == 1
    await rig.folder.run(1, once=True)
    assert rig.intake.invalid == 1
    rig.close()


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_file_that_grows_for_ever_holds_up_no_other(
    tmp_path: Path, deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    busy, before = rig.files / "a.log", folder_module.Folder._read
    write(busy, "x\n")
    await look(rig)
    with busy.open("a") as growing:
        if deleted:
            busy.unlink()

        def read(self: Any, file: Any) -> Any:
            if file.path == busy:
                growing.write("x\n")
                growing.flush()
            return before(self, file)

        monkeypatch.setattr(folder_module.Folder, "_read", read)
        write(rig.files / "b.log", "quiet\n")
        writing = asyncio.create_task(rig.intake.run())
        for _ in range(2):
            assert await asyncio.wait_for(rig.folder.look(), 30)
        await rig.intake.stored()
        writing.cancel()
    rig.deliver()
    assert b"quiet" in rig.lines and 30 < rig.lines.count(b"x") < 40
    rig.close()


async def test_the_place_of_a_file_that_is_there_outlives_any_number_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "PLACES_MAX", 5)
    rig = Rig(tmp_path)
    write(rig.files / "old.log", "old\n")
    await look(rig)
    for number in range(8):
        path = rig.files / f"{number}.log"
        write(path, f"{number}\n")
        await look(rig)
        path.rename(tmp_path / f"taken{number}")
        await look(rig, folder_module.MISSED_MAX + 2)
        if number == 6:
            rig.killed()
    assert len(rig.journal.places) == 5
    for _ in range(2):
        rig.killed()
        await look(rig)
    assert rig.lines == [b"old", *(str(number).encode() for number in range(8))]
    rig.close()
