"""Progress of the verbs that may take long: a line on a terminal, and nothing in a pipe."""

import asyncio
import os
import pty
import sys
from pathlib import Path

import pytest

from support.process import NodeProcess, killed_at_the_end, run_holdfast

LIMIT_S = 60.0
CLEAR = b"\r\x1b[K"


async def on_terminal(node: NodeProcess, *words: str) -> tuple[bytes, bytes]:
    """What a command prints, and what it writes on the terminal that its standard error is."""
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", *words, "--url", node.url,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=theirs,
        )  # fmt: skip
        async with killed_at_the_end(process), asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
        os.close(theirs)
        drawn = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
    assert process.returncode == 0, drawn
    return said, drawn


@pytest.fixture
async def filled(node: NodeProcess, tmp_path: Path) -> NodeProcess:
    (tmp_path / "picture").write_bytes(b"x" * 3_000)
    assert (await run_holdfast("send", "flights", "--count", "20", "--url", node.url)).code == 0
    return node


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("messages export flights", b"0 exported"),
        ("messages export flights {place}/out", b"0 exported"),
        ("receive flights --count 20", b" of 20 received, "),
        ("receive flights --count 20 --to {place}", b" of 20 received, "),
        ("send flights --file {place}/picture", b"1 of 1 files: picture, 0 B of 2.9 KiB sent"),
    ],
)
async def test_a_line_is_drawn_and_cleared(filled: NodeProcess, tmp_path: Path, line: str, wanted: bytes) -> None:
    said, drawn = await on_terminal(filled, *line.format(place=tmp_path).split())
    assert drawn.startswith(CLEAR) and wanted in drawn
    summary = drawn.rpartition(CLEAR)[2]
    assert summary.startswith(b"{") and summary.endswith(b"}\r\n"), "it stands alone"
    assert CLEAR not in said


async def test_nothing_is_drawn_in_a_pipe(filled: NodeProcess) -> None:
    for line in ("messages export flights", "receive flights --count 20"):
        ended = await run_holdfast(*line.split(), "--url", filled.url)
        assert ended.code == 0 and ended.stderr.count("\n") == 1 and "\x1b" not in ended.stderr
