"""The log: lines in order, soon, and nobody waits for whoever should take them."""

import logging
import os
import re
import select
import threading
from collections.abc import Iterator

import pytest

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
        if left_out := re.fullmatch(r"(\d+) log lines dropped: standard error did not accept them", line):
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
        (-100_000.75, r"1969-12-3\d \d\d:\d\d:\d\d,250"),
        (-0.25, r"19(69|70)-\d\d-\d\d \d\d:\d\d:59,750"),
        (253_500_000_000.0, r"10003-\d\d-\d\d \d\d:\d\d:\d\d,000"),
        (1e30, r"1\d{30} s,000"),
    ],
)
def test_a_line_has_a_time_whatever_the_clock_says(pipe: tuple[int, int], created: float, wanted: str) -> None:
    reading, writing = pipe
    handler = LogHandler(writing)
    line = record("here")
    line.created, line.msecs = created, (created % -1) * 1000
    handler.emit(line)
    handler.flush()
    assert re.fullmatch(f"{wanted} INFO here\n", os.read(reading, 65_536).decode())


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
