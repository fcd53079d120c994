"""The log: lines in order, soon, and nobody waits for whoever should take them."""

import json
import logging
import os
import re
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.node.process import log
from holdfast.node.process.behind import WriteBehind
from holdfast.node.process.log import LogHandler


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """What is read from, what is written to."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("holdfast", logging.INFO, __file__, 1, text, None, None)


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    for number in range(10):
        handler.emit(record(f"line {number} é \ud800"))
    handler.flush()
    lines = os.read(reading, 65_536).decode().splitlines()
    assert [line.partition(" INFO ")[2] for line in lines] == [f"line {number} é \\ud800" for number in range(10)]


def test_a_pipe_that_nobody_reads_holds_nobody_up_and_what_is_left_out_is_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "WAITING_BYTES_MAX", 100_000)
    monkeypatch.setattr(log, "END_S", 0.02)
    reading, writing = pipe
    handler = LogHandler(writing)
    for number in range(1_000):
        handler.emit(record(f"{number} " + 500 * "x"))
    handler.flush()  # it does not wait for ever
    found = b""
    while found.count(b"\n") < 100 or not handler._behind.flush(0.0):
        if select.select([reading], [], [], 0.01)[0]:  # its last write may be done and not yet counted
            found += os.read(reading, 65_536)
    handler.emit(record("at last"))
    monkeypatch.setattr(log, "END_S", 10.0)
    handler.flush()
    found += os.read(reading, 1 << 20)
    *lines, last = found.decode().splitlines()
    seen = dropped = 0  # a hole may be anywhere: it depends on when the writing thread makes room
    for line in lines:
        if left_out := re.search(r" WARNING (\d+) log lines dropped: what they are written to did not accept", line):
            dropped += int(left_out[1])
        else:
            assert line.partition(" INFO ")[2] == f"{seen + dropped} " + 500 * "x"
            seen += 1
    assert last.endswith("INFO at last") and seen + dropped == 1_000 and seen > 100 and dropped > 0


def test_a_pipe_that_is_full_and_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    handler = LogHandler(writing)
    for number in range(300):
        handler.emit(record(f"{number} " + 500 * "x"))
    found = b""
    while found.count(b"\n") < 300:
        found += os.read(reading, 65_536)
    assert [line.split(" INFO ")[1].split()[0] for line in found.decode().splitlines()] == [str(n) for n in range(300)]


def test_a_reader_that_is_gone_costs_its_lines_alone(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    os.dup2(os.open(os.devnull, os.O_RDONLY), reading)  # closes the pipe's end
    handler.emit(record("nobody reads this"))
    handler.flush()
    again, other = os.pipe()
    os.dup2(other, writing)
    handler.emit(record("but this"))
    handler.flush()
    assert os.read(again, 4_096).endswith(b"INFO but this\n")
    os.close(again)
    os.close(other)


@pytest.mark.parametrize(
    ("created", "wanted"),
    [
        (-100_000.75, r"1969-12-30T20:13:19\.250Z"),
        (-0.25, r"1969-12-31T23:59:59\.750Z"),
        (1_700_000_000.5, r"2023-11-14T22:13:20\.500Z"),
        (253_500_000_000.0, r"10003-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z"),
        (1e30, r"1\d{30} s"),
    ],
)
def test_a_line_has_a_time_whatever_the_clock_says(pipe: tuple[int, int], created: float, wanted: str) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    line = record("here")
    line.created, line.msecs = created, (created % -1) * 1000
    handler.emit(line)
    handler.flush()
    assert re.fullmatch(f"{wanted} - INFO here\n", os.read(reading, 65_536).decode())


def test_as_much_as_may_wait_is_taken_and_a_byte_more_is_not() -> None:
    go = threading.Event()
    found: list[bytes] = []

    def write(block: bytes) -> None:
        assert go.wait(10)
        found.append(block)

    behind = WriteBehind("test", write, bytes_max=10)
    assert not behind.put(11 * b"a") and behind.put(4 * b"b") and behind.put(6 * b"c") and not behind.put(b"d")
    go.set()
    assert behind.flush(10.0) and behind.put(10 * b"e") and behind.close(10.0)
    assert b"".join(found) == b"bbbbcccccc" + 10 * b"e"


def test_lines_have_the_nodes_name_and_a_defect_is_bounded(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    handler.shape("ewr\n", as_json=False)
    handler.emit(record("here"))
    handler.emit(record("x" * 2 * log.LINE_CHARACTERS_MAX))
    handler.flush()
    first, second = os.read(reading, 65_536).decode().splitlines()
    assert first.endswith("Z ewr\\n INFO here") and len(second) < log.LINE_CHARACTERS_MAX + 100


def test_control_characters_of_a_message_are_escaped(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    handler.shape("ewr", as_json=False)
    handler.emit(record("store a\nb, \x1b[31m"))
    handler.flush()
    (line,) = os.read(reading, 65_536).decode().splitlines()
    assert line.endswith("store a\\nb, \\u001b[31m")


def test_as_json_each_line_is_an_object_whatever_is_in_it(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    handler.shape("ewr", as_json=True)
    for text in ("a 'quoted' \n line", "\ud800 é", ""):
        handler.emit(record(text))
    handler.flush()
    found = [json.loads(line) for line in os.read(reading, 65_536).splitlines()]
    assert [line["text"] for line in found] == ["a 'quoted' \n line", "\ud800 é", ""]
    assert all(line["node"] == "ewr" and line["level"] == "INFO" and line["t"].endswith("Z") for line in found)


def test_lines_go_to_a_file_to_another_and_back(pipe: tuple[int, int], tmp_path: Path) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    for name in ("a", "b", None, "a"):
        handler.use(None if name is None else handler.reopen(tmp_path / name))
        handler.emit(record(f"to {name}"))
        handler.flush()
    texts = [(tmp_path / name).read_text().split(" INFO ")[1:] for name in ("a", "b")]
    assert [[line.split("\n")[0] for line in each] for each in texts] == [["to a", "to a"], ["to b"]]
    assert os.read(reading, 65_536).endswith(b"INFO to None\n")
    with pytest.raises(ConfigError, match=r"log file '.*none/x' cannot be opened"):
        handler.reopen(tmp_path / "none" / "x")
