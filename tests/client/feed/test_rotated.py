"""The history `file-rotated`: files grow and are rotated, the feed is killed anywhere, and each line is there once."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.client.feed import folder as folder_module
from holdfast.client.feed import journal as journal_module
from support import today
from support.feeds import Killed, Rig

STEPS = st.lists(
    st.sampled_from(["line", "lines", "part", "rotate", "other", "read", "deliver", "end"])
    | st.tuples(st.just("kill"), st.sampled_from(["before", "half", "unsynced", "after"])),
    max_size=25,
)


@given(steps=STEPS)
@settings(max_examples=today.drawn(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_line_is_there_once_though_the_feed_is_killed_anywhere(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    root = tmp_path_factory.mktemp("rotated")
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 500)
    monkeypatch.setattr(folder_module, "READ_BYTES", 30)
    asyncio.run(drive(Rig(root), steps, monkeypatch))


async def drive(rig: Rig, steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    count, rotated = 0, 0
    written: dict[str, list[bytes]] = {"a": [], "b": []}
    open_line = {"a": b"", "b": b""}
    ended: list[int] = []

    def write(name: str, *, whole: bool) -> None:
        nonlocal count
        count += 1
        text = open_line[name] + b"%s%d" % (name.encode(), count)
        with (rig.files / f"{name}.log").open("ab") as file:
            file.write(text[len(open_line[name]) :] + (b"\n" if whole else b""))
        if whole:
            written[name].append(text)
        open_line[name] = b"" if whole else text

    for step in steps:
        if step in ("line", "lines"):
            for _ in range(1 if step == "line" else 6):
                write("a", whole=True)
        elif step == "part":
            write("a", whole=len(open_line["a"]) > 20)
        elif step == "other":
            write("b", whole=True)
        elif step == "rotate" and not open_line["a"] and (rig.files / "a.log").exists():
            rotated += 1
            (rig.files / "a.log").rename(rig.files / f"a.{rotated}.old.log")
        elif step == "read":
            await rig.read()
        elif step == "deliver":
            rig.deliver()
        elif step == "end":
            ended = [number for number in rig.node if number not in ended]
            rig.journal.ended(ended)
        elif isinstance(step, tuple):
            await kill(rig, step[1], monkeypatch)
    for _ in range(2):
        await rig.read()
        rig.deliver()
    assert [line for line in rig.lines if line.startswith(b"b")] == written["b"]
    assert sorted(line for line in rig.lines if line.startswith(b"a")) == sorted(written["a"])
    rig.close()


async def kill(rig: Rig, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next write to the journal is the last: none of it, half of it, all but the sync, or all is there."""

    def write(descriptor: int, data: bytes) -> int:
        size = {"before": 0, "half": len(data) // 2}.get(where, len(data))
        os.write(descriptor, data[:size])
        if where != "after":
            raise Killed
        return size

    append = rig.journal.append

    def appended(lines: Any) -> None:
        append(lines)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "write_all", write)
        if where == "after":
            patched.setattr(rig.journal, "append", appended)
        try:
            await rig.read()
        except Killed:
            pass
    rig.killed()


async def test_a_file_that_left_the_pattern_is_read_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    (rig.files / "a.log").write_text("1\n2\n")
    (rig.files / ".hidden.log").write_text("no\n")
    (rig.files / "link.log").symlink_to(tmp_path / "elsewhere")
    (rig.files / "dir.log").mkdir()
    await rig.read()
    with (rig.files / "a.log").open("a") as file:
        file.write("3\n")
    (rig.files / "a.log").rename(rig.files / "a.1")
    (rig.files / "new.1").write_text("no\n")
    rig.killed()
    await rig.read()
    rig.deliver()
    assert rig.lines == [b"1", b"2", b"3"]
    rig.close()


async def test_a_deleted_file_is_read_to_its_end_and_its_inode_is_another_file_later(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    path = rig.files / "a.log"
    path.write_text("1\n")
    await rig.read()
    with path.open("a") as file:
        file.write("2\n")
    path.unlink()
    await rig.read()
    path.write_text("3\n4\n5\n")  # of the same inode, on most file systems
    await rig.read()
    rig.deliver()
    assert rig.lines == [b"1", b"2", b"3", b"4", b"5"]
    rig.close()


@pytest.mark.parametrize("killed", [False, True])
async def test_a_file_that_was_written_anew_is_read_from_its_beginning(tmp_path: Path, killed: bool) -> None:
    rig = Rig(tmp_path)
    path = rig.files / "a.log"
    path.write_text("1\n2\n3\n")
    await rig.read()
    if killed:
        rig.killed()
    path.write_text("4\n")
    await rig.read()
    if killed:
        rig.killed()
    path.write_text("5\n6\n7\n8\n")  # longer than what was read of the last one
    await rig.read()
    rig.deliver()
    assert rig.lines == [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]
    rig.close()


async def test_lines_that_are_too_long_or_empty_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "READ_BYTES", 10)
    rig = Rig(tmp_path)
    path = rig.files / "a.log"
    path.write_text("1\n\n" + "x" * 41 + "\n" + "y" * 40 + "\r\n" + "z" * 300)
    await rig.read()
    rig.killed()
    await rig.read()
    with path.open("a") as file:
        file.write("z\n  \n2\n")
    await rig.read()
    rig.deliver()
    assert rig.lines == [b"1", b"y" * 40, b"2"]
    assert (rig.intake.read, rig.intake.invalid) == (2, 1)
    rig.close()


async def test_each_csv_file_has_its_own_header_also_after_a_kill(tmp_path: Path) -> None:
    rig = Rig(tmp_path, form="csv")
    (rig.files / "a.log").write_text("x,y\n1,2\n")
    (rig.files / "b.log").write_text("z\n3\n4,5\n")
    (rig.files / "c.log").write_text("z,z\n3,3\n")
    await rig.read()
    rig.killed()
    with (rig.files / "a.log").open("a") as file:
        file.write("6,7\n")
    await rig.read()
    rig.deliver()
    assert sorted(rig.lines) == [b'{"x":"1","y":"2"}', b'{"x":"6","y":"7"}', b'{"z":"3"}']
    rig.close()


async def test_more_files_than_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "OPEN_MAX", 2)
    monkeypatch.setattr(folder_module, "FILES_MAX", 6)
    rig = Rig(tmp_path)
    for round_ in range(3):
        for number in range(7):
            with (rig.files / f"{number}.log").open("a") as file:
                file.write(f"{number} {round_}\n")
        await rig.read()
        assert sum(file.descriptor >= 0 for file in rig.folder._files.values()) <= 2
    rig.deliver()
    assert len(rig.lines) == len(set(rig.lines)) == 18
    rig.close()
