"""`holdfast messages export FILE`: the file is whole, or as it was."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from holdfast import durable
from holdfast.client import connect
from holdfast.client.verbs import export
from holdfast.errors import HoldfastError
from support.process import NodeProcess, killed_at_the_end, run_holdfast


def files_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.is_file()]


async def test_an_export_that_cannot_be_is_said_in_a_line_and_leaves_no_file(node: NodeProcess, tmp_path: Path) -> None:
    ended = await run_holdfast("messages", "export", "none", str(tmp_path / "f"), "--url", node.url)
    assert ended.code == 1 and ended.stderr.startswith("holdfast messages export: ") and not (tmp_path / "f").exists()
    ended = await run_holdfast("messages", "export", "none", str(tmp_path / "no" / "f"), "--url", node.url)
    assert ended.code == 1 and "f cannot be written (No such file or directory)" in ended.stderr
    async with await connect(node.url) as connection:
        await (await connection.sender("q")).send(b"x")
    ended = await run_holdfast("messages", "export", "q", str(tmp_path / "f"), "--selector", "a >", "--url", node.url)
    assert ended.code == 1 and files_in(tmp_path) == []
    os.mkfifo(tmp_path / "pipe")
    ended = await run_holdfast("messages", "export", "q", str(tmp_path / "pipe"), "--url", node.url)
    assert ended.code == 1 and "pipe cannot be written (not a regular file); give another FILE" in ended.stderr
    assert (tmp_path / "pipe").is_fifo() and files_in(tmp_path) == []


async def test_an_export_replaces_a_file_that_is_there_if_it_succeeds(node: NodeProcess, tmp_path: Path) -> None:
    async with await connect(node.url) as connection:
        await (await connection.sender("q")).send(b"x")
    file, link = tmp_path / "f", tmp_path / "link"
    file.write_text("before")
    link.symlink_to(file)
    run = ("messages", "export", "q", str(link), "--url", node.url)
    assert (await run_holdfast(*run, "--selector", "a >")).code == 1 and file.read_text() == "before"
    assert (await run_holdfast(*run)).code == 0
    assert json.loads(file.read_text())["body"] == "x"
    assert link.is_symlink() and sorted(files_in(tmp_path)) == ["f", "link"]


async def test_an_export_to_what_stands_for_the_output_leaves_the_file_behind_it(
    node: NodeProcess, tmp_path: Path
) -> None:
    """`/dev/stdout >> FILE` would replace FILE, and what it had."""
    async with await connect(node.url) as connection:
        await (await connection.sender("q")).send(b"x")
    (tmp_path / "out").write_text("before\n")
    with (tmp_path / "out").open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "messages", "export", "q", "/dev/stdout", "--url", node.url,
            stdout=out, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with killed_at_the_end(process), asyncio.timeout(60):
            _, said = await process.communicate()
    assert process.returncode == 1 and (tmp_path / "out").read_text() == "before\n"
    assert said.decode().splitlines()[0] == (
        "holdfast messages export: /dev/stdout cannot be written (it stands for an open file, and has no name); "
        "give another FILE, or - for standard output"
    )
    (tmp_path / "loop").symlink_to("loop")
    ended = await run_holdfast("messages", "export", "q", str(tmp_path / "loop"), "--url", node.url)
    assert ended.code == 1 and "loop cannot be written (Too many levels of symbolic links); give" in ended.stderr


async def test_an_export_keeps_the_mode_of_the_file_that_it_replaces(node: NodeProcess, tmp_path: Path) -> None:
    """Messages would be for others to read."""
    async with await connect(node.url) as connection:
        await (await connection.sender("q")).send(b"x")
    file = tmp_path / "f"
    file.write_text("before")
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 1000, 1001)
    before = file.stat()
    ended = await run_holdfast("messages", "export", "q", str(file), "--url", node.url)
    assert ended.code == 0, ended.stderr
    after = file.stat()
    assert json.loads(file.read_text())["body"] == "x" and after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_an_export_whose_name_may_not_last_says_that_the_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(place: Path, directory: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durable, "sync_file", fails)
    with (
        pytest.raises(HoldfastError, match=r"f is replaced, and a power loss may undo that \(Input/output error\)"),
        export.replaced(tmp_path / "f") as file,
    ):
        file.write(b"after")
    assert (tmp_path / "f").read_text() == "after"


SLOW = """
import os, sys, time
def slow(descriptor, sync=os.fsync):
    os.write(2, b"syncing\\n")
    time.sleep(600)
os.fsync = slow
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


async def test_an_export_that_is_stopped_while_it_syncs_leaves_no_file(node: NodeProcess, tmp_path: Path) -> None:
    """Its hidden part is a full copy of the queue."""
    async with await connect(node.url) as connection:
        await (await connection.sender("q")).send(b"x")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SLOW, "messages", "export", "q", str(tmp_path / "f"), "--url", node.url,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with killed_at_the_end(process), asyncio.timeout(60):
        assert process.stderr is not None
        while b"syncing" not in await process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert files_in(tmp_path) == []
