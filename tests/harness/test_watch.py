"""Telemetry files read while they grow."""

from pathlib import Path

from holdfast.harness.watch import NodeWatch, QueueState, Tail
from holdfast.telemetry.writer import line


def queue_line(messages: int, next_sequence: int) -> bytes:
    fields = {
        "name": "@hub", "messages": messages, "bytes": 0, "oldest_s": None, "in_total": 0, "out_total": 0,
        "in_per_s": 0.0, "out_per_s": 0.0, "next_sequence": next_sequence,
    }  # fmt: skip
    return line("queue", fields, node="jfk", wall_ms=0, uptime_s=1.0)


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "t.ndjson")
    assert tail.read() == []
    with tail.path.open("ab", buffering=0) as file:
        file.write(b'{"a": 1}\n{"b"')
        assert tail.read() == [{"a": 1}]
        file.write(b": 2}\nnot json\n[3]\n")
        assert tail.read() == [{"b": 2}]
        assert tail.read() == []


def test_the_last_report_of_a_queue_counts(tmp_path: Path) -> None:
    watch = NodeWatch(Tail(tmp_path / "t.ndjson"))
    watch.refresh()
    assert watch.queue("@hub") == QueueState(0, 0)
    watch.tail.path.write_bytes(queue_line(7, 8) + queue_line(3, 12))
    watch.refresh()
    assert watch.queue("@hub") == QueueState(messages=3, taken=11)
