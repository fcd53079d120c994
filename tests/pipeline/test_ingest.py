"""What pairs of table and checkpoint an ingest accepts, and how Spark's failures are told."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import QueryTerminatedEvent

from holdfast.cli import main
from holdfast.client import connect
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast import commands, ingest
from pyspark_holdfast.commands import check_writable
from pyspark_holdfast.ingest import (
    IngestJob,
    check_pair,
    default_checkpoint,
    run_ingest,
    summary,
)
from pyspark_holdfast.node_bus import NodeBus
from pyspark_holdfast.options import parse_options
from pyspark_holdfast.queries import FAILED_STARTS_MAX, NO_WORKER, Progress, failure
from pyspark_holdfast.running import Ran, on_signals, write
from pyspark_holdfast.session import first_line
from support.process import NodeProcess

StartNode = Callable[..., Awaitable[NodeProcess]]


def made(root: Path, *, written: int = -1, planned: int = -1, done: int = -1) -> tuple[Path, Path]:
    out, checkpoint = root / "table", root / "table.checkpoint"
    for directory, newest in (
        (out / "_spark_metadata", written),
        (checkpoint / "offsets", planned),
        (checkpoint / "commits", done),
    ):
        for number in range(newest + 1):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / str(number)).write_text("v1\n{}")
    return out, checkpoint


@pytest.mark.parametrize(
    ("written", "planned", "done"),
    [(-1, -1, -1), (-1, 0, -1), (0, 0, -1), (0, 0, 0), (4, 5, 4), (5, 5, 4), (5, 5, 5)],
)
def test_what_a_kill_can_leave_is_accepted(tmp_path: Path, written: int, planned: int, done: int) -> None:
    check_pair(*made(tmp_path, written=written, planned=planned, done=done))


@pytest.mark.parametrize(("written", "planned", "done"), [(0, -1, -1), (5, 4, 4), (3, 4, 4), (-1, 2, 1)])
def test_what_no_run_can_leave_is_refused(tmp_path: Path, written: int, planned: int, done: int) -> None:
    with pytest.raises(ConfigError) as caught:
        check_pair(*made(tmp_path, written=written, planned=planned, done=done))
    assert str(tmp_path / "table") in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        check_pair(*made(tmp_path, written=written, planned=planned, done=done), "sink.path")
    assert "sink.path" in str(caught.value) and "--out" not in str(caught.value)


def test_files_that_no_ingest_wrote_are_refused(tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "table", tmp_path / "c"
    out.mkdir()
    check_pair(out, checkpoint)
    (out / "_spark_metadata").mkdir()
    check_pair(out, checkpoint)  # what a first start leaves that was killed before its first batch
    (out / "mine.parquet").write_text("")
    with pytest.raises(ConfigError, match=r"that no query wrote; give --out an empty"):
        check_pair(out, checkpoint)
    with pytest.raises(ConfigError, match=r"that no query wrote; give sink.path an empty"):
        check_pair(out, checkpoint, "sink.path")


def test_a_checkpoint_inside_the_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="outside"):
        check_pair(tmp_path / "table", tmp_path / "table" / "checkpoint")
    assert default_checkpoint(tmp_path / "table") == tmp_path / "table.checkpoint"


def test_our_own_line_is_found_inside_sparks() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: \nTraceback (most recent call last):\n  File x\n"
        "holdfast.errors.ConfigError: checkpoint /c: checkpoint older than the subscription\n SQLSTATE: 38000"
    )
    assert first_line(RuntimeError(text)) == "checkpoint /c: checkpoint older than the subscription"
    assert type(failure(RuntimeError(text), "x")) is ConfigError
    assert type(failure(RuntimeError("[X] y\nz"), "x")) is HoldfastError
    assert first_line(RuntimeError("[X] y\nz")) == "[X] y"


class Queries:
    """Stands for a session whose queries end as `ends` says, one after the other: with that text, or well (None). Each
    that ends with a text of two lines, or well, has written a batch before."""

    def __init__(self, ends: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends = ends
        self.begun = 0
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append, removeListener=self.listeners.remove)
        self.sparkContext = SimpleNamespace(_gateway=None)
        monkeypatch.setattr(ingest, "start_query", lambda *_: self.start())

    def start(self) -> Any:
        end = self.ends[self.begun]
        self.begun += 1

        def await_termination(_seconds: int) -> bool:
            threading.Thread(target=self.last_events, args=(self.listeners[0], "\n" in (end or "\n"))).start()
            if end is not None:
                raise StreamingQueryException(end)
            return True

        return SimpleNamespace(awaitTermination=await_termination, stop=lambda: None)

    @staticmethod
    def last_events(listener: Any, wrote: bool) -> None:
        """They come on a thread of their own, when the query has ended already."""
        time.sleep(0.05)
        listener.progress.batches += wrote
        listener.onQueryTerminated(QueryTerminatedEvent("1", "2", None, None))

    def run(self, tmp_path: Path) -> Progress:
        job = IngestJob(options={}, out=tmp_path / "t", checkpoint=tmp_path / "c")
        return run_ingest(self, job, threading.Event(), lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", [0, 1])
def test_a_query_for_which_no_worker_came_up_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    again = FAILED_STARTS_MAX - 1 if not batches else 2 * FAILED_STARTS_MAX
    queries = Queries([f"[STREAM_FAILED] {NO_WORKER}" + batches * "\n."] * again + [None], monkeypatch)
    assert queries.run(tmp_path).batches == batches * again + 1
    assert queries.begun == again + 1 and not queries.listeners


def test_a_query_that_fails_otherwise_or_too_often_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = [NO_WORKER] * FAILED_STARTS_MAX
    for ends, text, begun in (
        ([*last, None], NO_WORKER, FAILED_STARTS_MAX),
        ([f"{NO_WORKER}\n.", *last, None], NO_WORKER, FAILED_STARTS_MAX),
        (["the source is gone", None], "the source is gone", 1),
    ):
        queries = Queries(ends, monkeypatch)
        with pytest.raises(HoldfastError, match=text):
            queries.run(tmp_path)
        assert queries.begun == begun


def test_summary() -> None:
    assert summary(Progress(rows=3, batches=1), 1.23456, 4) == {
        "rows": 3, "batches": 1, "seconds": 1.235, "advanced": 4,
    }  # fmt: skip


@pytest.mark.parametrize("action", [("ingest", "q", "--available-now", "--retry", "0"), ("swarm", "--seeds", "1")])
def test_a_place_that_cannot_be_written_is_said_before_anything_starts(
    action: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for out in ("/proc/nowhere", "/proc", str(tmp_path / "file" / "table")):
        assert main(["pipeline", *action, "--out", out]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "--out" in said and out in said
    if action[0] == "ingest":
        out = str(tmp_path / "new" / "table")
        assert main(["pipeline", *action, "--out", out, "--checkpoint", "/proc/nowhere"]) == 2
        assert "invalid value /proc/nowhere for --checkpoint" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()


def test_two_that_try_a_place_under_one_new_directory_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other makes its directory as soon as there is one above it."""
    kept = Path.mkdir

    def mkdir(path: Path, *given: Any, **named: Any) -> None:
        kept(path, *given, **named)
        if path == tmp_path / "new":
            kept(path / "other")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    check_writable("--out", tmp_path / "new" / "table")
    assert not list(tmp_path.iterdir())


def test_a_name_that_can_be_none_is_no_place_towrite(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for out in (tmp_path / ("x" * 300), tmp_path / ("x" * 300) / "table", tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="expected a directory that can be written"):
            check_writable("--out", out)


def test_the_node_is_tried_before_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "amqp://127.0.0.1:1"
    command = ["pipeline", "ingest", "q", "--url", url, "--out", str(tmp_path / "table"), "--retry", "0"]
    assert main(command) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Connection refused" in said and url in said
    assert not list(tmp_path.iterdir()), "nothing was begun"


async def opened(url: str, subscription: str, mode: str = "take") -> None:
    async with await connect(url) as connection:
        await connection.manage("OPEN", "holdfast:subscription", subscription, {"queue": "q", "mode": mode})


def open_in_spark(url: str, subscription: str) -> str:
    """How the node refuses what the query would do once Spark is up."""
    bus = NodeBus(parse_options({"url": url, "address": "q", "subscription": subscription}))
    try:
        with pytest.raises(ConfigError) as caught:
            bus.open("first", "take")
    finally:
        bus.close()
    return str(caught.value)


@pytest.mark.parametrize("subscription", ["pipeline-tab9", "copies"])
async def test_a_queue_that_another_takes_is_told_before_spark_starts(
    tmp_path: Path, start_node: StartNode, capsys: pytest.CaptureFixture[str], subscription: str
) -> None:
    """And a subscription that reads in another way."""
    node = await start_node("hub")
    await opened(node.url, "pipeline-tab")
    await opened(node.url, "copies", "copy")
    command = ["pipeline", "ingest", "q", "--url", node.url, "--out", str(tmp_path / "tab9"), "--available-now"]
    assert await asyncio.to_thread(main, [*command, "--subscription", subscription, "--master", "none[1]"]) == 2
    refused = await asyncio.to_thread(open_in_spark, node.url, subscription)
    assert capsys.readouterr().err == f"holdfast pipeline ingest: {refused}\n"


@pytest.mark.parametrize(("opens", "advanced"), [(False, None), (True, 1)])
async def test_who_is_stopped_before_the_query_begins_is_told_no_failure(
    tmp_path: Path,
    start_node: StartNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    opens: bool,
    advanced: int | None,
) -> None:
    node = await start_node("hub")
    if opens:
        await opened(node.url, "pipeline-tab")
    monkeypatch.setattr(commands, "on_spark", lambda verb, master, work, nothing: Ran(nothing, 0.0, signal.SIGTERM))
    command = ["pipeline", "ingest", "q", "--url", node.url, "--out", str(tmp_path / "tab")]
    assert await asyncio.to_thread(main, command) == 0
    assert json.loads(capsys.readouterr().err) == {"rows": 0, "batches": 0, "seconds": 0.0, "advanced": advanced}


@pytest.mark.parametrize("terminal", [False, True])
def test_a_url_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)
    assert main(["pipeline", "ingest", "q", "--url", "amqp://jane@[::1:5672", "--out", str(tmp_path / "table")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "invalid URL '[::1:5672', without a valid host or port; expected amqp://" in said


def test_who_may_have_signed_is_asked_for_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pipeline", "ingest", "q", "--out", str(tmp_path / "table"), "--ca-file", str(tmp_path / "none.pem")]
    assert main([*command, "--url", "amqp://127.0.0.1:1"]) == 2
    assert "connect to amqps://" in capsys.readouterr().err
    assert main([*command, "--url", "amqps://127.0.0.1:1"]) == 2
    assert "none.pem cannot be read (No such file" in capsys.readouterr().err


def test_who_ends_it_while_spark_starts_hears_at_once_that_it_stops() -> None:
    """Once, however often it is told; the handlers that were there come back."""
    stop, told = threading.Event(), []
    before = on_signals(stop, lambda: told.append(stop.is_set()))
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stop.is_set() and told == [False]


def test_a_line_of_a_handler_goes_where_standard_error_was(tmp_path: Path) -> None:
    path = tmp_path / "screen"
    with path.open("wb") as file:
        write(file.fileno(), "it stops")
    assert path.read_text() == "it stops\n"
    read_end, write_end = os.pipe()
    os.close(read_end)
    write(write_end, "nobody reads")
    os.close(write_end)
