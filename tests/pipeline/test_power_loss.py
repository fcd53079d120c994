"""What a power loss leaves of a checkpoint and a table is never taken for more than it is, and nothing is lost by it.

A power loss is played by hand: files that nobody has synced go, or are cut (docs/powerloss.md, "What is assumed").
"""

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from holdfast.errors import ConfigError
from pipeline.fake_bus import FakeQueue
from pipeline.mini_spark import Died, MiniSpark
from pipeline.test_checkpoint import above, batch, ends, sink_batch, sums_of
from pipeline.test_left_out import die_once, leaving
from pipeline.test_many import Query, all_of, never, quick, written
from pipeline.test_many import queue as queue_of
from pyspark_holdfast.checkpoint import Checkpoint, Proven, SinkLog, sync_plan
from pyspark_holdfast.damage import damage_of, is_torn
from pyspark_holdfast.ingest import IngestJob, check_pair, default_checkpoint, run_ingest
from pyspark_holdfast.leftovers import DIRECTORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

assert quick  # without waiting for what the tests bring about themselves


Inode = tuple[int, int]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Inode]]:
    """The files that have been synced."""
    found: set[Inode] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        place = os.fstat(descriptor)
        found.add((place.st_dev, place.st_ino))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    yield found


def lose_unsynced(query: MiniSpark, synced: set[Inode]) -> None:
    """The power fails: of the checkpoint and the table remains what is on disk."""
    for root in (query.checkpoint, query.out):
        for file in [file for file in root.rglob("*") if file.is_file()]:
            place = file.stat()
            if (place.st_dev, place.st_ino) not in synced:
                file.unlink()
    (query.checkpoint / "metadata").touch()


def die_at(query: MiniSpark, step: str) -> None:
    """Once."""

    def die(at: str) -> None:
        if at == step:
            query.at_step = never
            raise Died(at)

    query.at_step = die


def sequences(query: MiniSpark) -> list[int]:
    return sorted(row for file in SinkLog(query.out).files() for row in json.loads(file.read_text()))


@pytest.mark.parametrize("step", ["before offsets", "offsets", "read", "written", "sink", "commits"])
def test_a_power_loss_at_any_step_loses_no_row_and_doubles_none(
    queue: FakeQueue, tmp_path: Path, synced: set[Inode], step: str
) -> None:
    """The batch before is on disk when the next is planned, and a plan before anything is done for it."""
    query = MiniSpark(tmp_path, queue.path, 4, never)
    queue.put(4)
    query.run()
    queue.put(4)
    die_at(query, step)
    with pytest.raises(Died):
        query.run()
    assert ((query.checkpoint / "offsets" / "1").exists()) == (step != "before offsets")
    lose_unsynced(query, synced)
    assert ((query.checkpoint / "offsets" / "1").exists()) == ("offsets" not in step), "the plan comes first"
    queue.put(3)
    query.run()
    assert sequences(query) == list(range(1, 12))


def test_what_a_batch_leaves_out_is_not_on_disk_before_its_plan(tmp_path: Path, synced: set[Inode]) -> None:
    one, other = queue_of(tmp_path, "a", "x"), queue_of(tmp_path, "b", "x")
    query = leaving(tmp_path, "ab", 100)
    for some in (one, other):
        some.put(2)
    query.run()
    for some in (one, other):
        some.put(3)
    die_once(query, "offsets", "b")
    with pytest.raises(Died):
        query.run()
    die_once(query, "read")
    with pytest.raises(Died):
        query.run()
    assert list((query.checkpoint / DIRECTORY).iterdir())
    lose_unsynced(query, synced)
    query.away.clear()
    other.put(7)
    query.run()
    assert written(query) == all_of(("a/x", 5), ("b/x", 12))


@pytest.mark.parametrize("more", [0, 7])
def test_what_another_plan_of_a_batch_left_out_is_not_left_out(tmp_path: Path, more: int) -> None:
    """The plan was removed by hand, as a checkpoint is put back."""
    one, other = queue_of(tmp_path, "a", "x"), queue_of(tmp_path, "b", "x")
    query = leaving(tmp_path, "ab", 4)
    for some in (one, other):
        some.put(2)
    query.run()
    other.put(3)
    die_once(query, "offsets", "b")
    with pytest.raises(Died):
        query.run()
    die_once(query, "read")
    with pytest.raises(Died):
        query.run()
    (query.checkpoint / "offsets" / "1").unlink()
    one.put(8)
    if more:
        query.away.clear()
        other.put(more)
    query.run()
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 10), ("b/x", 5 + more))


@pytest.mark.parametrize("committed", [True, False])
def test_a_batch_of_which_a_file_was_torn_is_not_released_and_can_be_written_anew(
    queue: FakeQueue, tmp_path: Path, committed: bool
) -> None:
    """What Spark wrote last is on disk in any order: the log and the commit, and not the rows."""
    query = MiniSpark(tmp_path, queue.path, 4, never)
    queue.put(4)
    query.run()
    queue.put(4)
    die_at(query, "commits" if committed else "sink")
    with pytest.raises(Died):
        query.run()
    log, commit = query.out / "_spark_metadata" / "1", query.checkpoint / "commits" / "1"
    (torn, *_) = SinkLog(query.out).files_of(log)
    torn.write_bytes(b"[")
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"of batch 1 is not whole, .* it has 1 bytes .* remove .*/1 and .*/1, ea"
        ):
            query.run()
        assert queue.advanced() == 5
    log.unlink()
    commit.unlink()
    query.run()
    assert sequences(query) == list(range(1, 9)) and queue.advanced() == 9


def test_of_a_batch_that_was_released_a_file_may_be_gone(queue: FakeQueue, tmp_path: Path) -> None:
    """As where old files of a table are deleted: the nodes have let its entries go, so it was on disk."""
    query = MiniSpark(tmp_path, queue.path, 4, never)
    queue.put(4)
    query.run()
    for file in SinkLog(query.out).files():
        file.unlink()
    queue.put(4)
    query.run()
    assert queue.advanced() == 9


@pytest.mark.spark
@pytest.mark.parametrize("harm", ["cut", "zeros", "gone"])
def test_what_spark_wrote_is_known_to_be_whole_or_not(
    spark: "SparkSession", queue: FakeQueue, tmp_path: Path, harm: str
) -> None:
    out = tmp_path / "table"
    options = {"url": "amqp://fake:1", "address": str(queue.path), "subscription": "s"}
    job = IngestJob(options=options, out=out, checkpoint=default_checkpoint(out), available_now=True)

    def run() -> None:
        run_ingest(spark, job, threading.Event(), lambda progress: None, source="fakebus")

    def hold_back() -> None:
        """As if the power had failed before the release."""
        with contextlib.closing(queue.connect()) as connection:
            connection.execute("update subscription set advanced = 1")

    queue.put(50)
    run()
    hold_back()
    run()
    assert queue.advanced() == 51, "all of it is whole"
    hold_back()
    (file,) = SinkLog(out).files()
    data = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-1] if harm == "cut" else data[:600] + bytes(100) + data[700:])
    with pytest.raises(ConfigError, match=r"of batch 0 is not whole, as after a power loss: (it|its) "):
        run()
    assert queue.advanced() == 1


def test_a_batch_of_a_node_that_went_away_is_on_disk_before_later_ones(tmp_path: Path, synced: set[Inode]) -> None:
    one, other = queue_of(tmp_path, "a", "x"), queue_of(tmp_path, "b", "x")
    query = Query(tmp_path, "ab", 100)
    for some in (one, other):
        some.put(2)
    query.run()
    other.put(3)

    def go(step: str) -> None:
        if step == "commits":
            query.away.add("b")

    query.at_step = go
    query.run()
    one.put(3)
    query.at_step = never
    query.run()
    assert (one.advanced(), other.advanced()) == (6, 3)
    lose_unsynced(query, synced)
    query.away.clear()
    other.put(1)
    query.run()
    assert written(query) == all_of(("a/x", 5), ("b/x", 6))
    assert (one.advanced(), other.advanced()) == (6, 7)


def test_files_that_are_not_whole_are_seen(tmp_path: Path) -> None:
    file, sums = tmp_path / "part", tmp_path / ".part.crc"
    data = bytes(range(256)) * 5
    assert damage_of(file, None) == "it is not there"
    file.write_bytes(data)
    assert damage_of(file, 1280) is None and damage_of(file, None) is None
    assert damage_of(file, 1281) == "it has 1280 bytes instead of 1281"
    sums.write_bytes(sums_of(data))
    assert damage_of(file, 1280) is None
    file.write_bytes(data[:600] + bytes(300) + data[900:])
    assert damage_of(file, 1280) == "its checksum is wrong behind byte 512"
    file.write_bytes(data)
    for told in (b"", b"crc\0", sums_of(data)[:-4], sums_of(data) + b"1234", bytes(20)):
        sums.write_bytes(told)
        assert damage_of(file, 1280) == "its file of checksums is not whole"


def test_logs_that_are_not_whole_are_seen(tmp_path: Path) -> None:
    log = tmp_path / "0"
    assert not is_torn(log)
    for text in ("v1", "v1\n{}", 'v1\n{}\n-\n{"a": 1}\n'):
        log.write_text(text)
        assert not is_torn(log)
    assert is_torn(log, 5)
    for data in (b"", bytes(20), b"v1\n{", b"v1\n{}\n\xff", b"{}"):
        log.write_bytes(data)
        assert is_torn(log)


def test_a_plan_that_was_torn_is_removed_and_nothing_else(queue: FakeQueue, tmp_path: Path) -> None:
    query = MiniSpark(tmp_path, queue.path, 4, never)
    checkpoint = Checkpoint(query.checkpoint, "s")
    for batch_number, log, step in ((0, "offsets", "offsets"), (1, "commits", "commits")):
        queue.put(4)
        die_at(query, step)
        with pytest.raises(Died):
            query.run()
        torn = query.checkpoint / log / str(batch_number)
        torn.write_bytes(b"")
        told = rf"{log}/{batch_number} is not whole, as after a power loss; remove it and \.{batch_number}\.crc beside"
        with pytest.raises(ConfigError, match=told):
            checkpoint.check()
        torn.unlink()
        query.run()
        checkpoint.check()
    assert sequences(query) == list(range(1, 9))
    (query.checkpoint / "offsets" / "1").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"offsets/1 is not whole, as after a power loss; use a new checkpoint with"):
        checkpoint.check()


def test_a_table_s_log_that_was_torn_is_named(tmp_path: Path) -> None:
    root, out = tmp_path / "c", tmp_path / "out"
    batch(root, 0, 5)
    sink_batch(out, 0, "a")
    check_pair(out, root)
    (out / "_spark_metadata" / "0").write_bytes(b"")
    with pytest.raises(
        ConfigError, match=r"_spark_metadata/0 is not whole, .* remove it and .*/commits/0, each with its"
    ):
        check_pair(out, root)


def test_all_that_the_next_plan_stands_on_is_synced(tmp_path: Path, synced: set[Inode]) -> None:
    root, out = tmp_path / "c", tmp_path / "out"

    def is_synced(place: Path) -> bool:
        found = place.stat()
        return (found.st_dev, found.st_ino) in synced

    def done(number: int) -> None:
        batch(root, number, 5 + number)
        sink_batch(out, number, f"node=a/address={number}/part")

    checkpoint = Checkpoint(root, "s", SinkLog(out))
    done(0)
    checkpoint.make_durable(Proven(0, [ends(5)]), above(9))
    for place in ("out/node=a/address=0/part", "out/node=a/address=0", "out/node=a", "out", "c", "."):
        assert is_synced(tmp_path / place), place
    synced.clear()
    done(1)
    done(2)
    checkpoint.make_durable(Proven(2, [ends(7)]), above(9))
    for place in (
        "out/node=a/address=1/part",
        "out/node=a/address=2/part",
        "out/node=a/address=2",
        "out/node=a",
        "out",
    ):
        assert is_synced(tmp_path / place), place
    batch(root, 3, 8)
    sync_plan(root, 3)
    assert is_synced(root / "offsets" / "2") and is_synced(root / "offsets" / "3")


def test_the_first_plan_is_synced_with_all_directories_that_are_new_with_it(tmp_path: Path, synced: set[Inode]) -> None:
    root = tmp_path / "jobs" / "new" / "c"
    batch(root, 0, 5)
    sync_plan(root, 0)
    for place in (root / "offsets" / "0", root / "offsets", root, *root.parents[:3]):
        found = place.stat()
        assert (found.st_dev, found.st_ino) in synced, place


def test_a_batch_that_is_done_and_of_which_the_table_knows_nothing_ends_the_query(tmp_path: Path) -> None:
    root, out = tmp_path / "c", tmp_path / "out"
    for number in range(3):
        batch(root, number, 5 + number)
        if number != 1:
            sink_batch(out, number, f"part {number}")
    with pytest.raises(ConfigError, match="its log holds no batch 1, which checkpoint"):
        Checkpoint(root, "s", SinkLog(out)).make_durable(Proven(2, [ends(7)]), above(4))
