"""The source's protocol with Spark, without Spark: exact rows through deaths of the driver at any step."""

import contextlib
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import pyspark_holdfast
from holdfast.errors import ConfigError, HoldfastError
from pipeline.fake_bus import FakeBus, FakeDataSource, FakeQueue
from pyspark_holdfast.bus import Entry, QueueMadeAnew, ReaderFenced
from pyspark_holdfast.checkpoint import SinkLog, batches_in
from pyspark_holdfast.gaps import GAPS_MAX, Gaps
from pyspark_holdfast.offsets import offset_of
from pyspark_holdfast.ranges import PARTITIONS_MAX, QueueRange, tasks_of
from pyspark_holdfast.source import HoldfastDataSource
from pyspark_holdfast.stream import HoldfastStreamReader

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from pyspark.sql.worker import lookup_data_sources

from pipeline.mini_spark import Died, MiniSpark
from support import today


def never(step: str) -> None:
    return


def at(value: object) -> int:
    """The sequence in an offset of one queue."""
    offset = offset_of(value)
    assert offset is not None
    (place,) = offset.places.values()
    return place.seq


def written(query: MiniSpark) -> list[int]:
    """All sequences in the sink, by its log."""
    rows: list[int] = []
    for file in SinkLog(query.out).files():
        rows += json.loads(file.read_text())
    return rows


def test_spark_finds_the_source_by_itself() -> None:
    """By the look-up that its Python worker makes, whose answer is names and pickled classes."""
    found = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), found)
    assert b"holdfast" in found.getvalue() and b"HoldfastDataSource" in found.getvalue()
    assert pyspark_holdfast.DefaultSource is HoldfastDataSource


def test_where_it_cannot_be_imported_spark_finds_all_other_sources(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with an earlier Spark, or on an executor that lacks a package."""
    monkeypatch.setitem(sys.modules, "pyspark_holdfast.source", None)
    found = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), found)
    assert b"HoldfastDataSource" not in found.getvalue()
    assert (
        "the source holdfast is not registered: it needs pyspark 4.2 or 4.3, pyarrow and holdfast (import of"
        in caplog.text
    )


def test_the_grammar_of_the_command_line_loads_no_spark() -> None:
    program = "import sys, pyspark_holdfast.verbs; print('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_everything_once_in_order_and_released(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(20)
    query = MiniSpark(tmp_path, queue.path, 7, never)
    query.run()
    assert written(query) == list(range(1, 21))
    assert queue.advanced() == 21
    queue.put(3)
    query.run()
    assert written(query) == list(range(1, 24))
    assert queue.calls("advance") == [8, 15, 21, 24]


def test_available_now_leaves_what_comes_later(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(5)

    def more(step: str) -> None:
        if step == "read":
            queue.put(1)

    query = MiniSpark(tmp_path, queue.path, 100, more)
    query.run()
    assert written(query) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", today.some(range(40), 8))
def test_deaths_at_any_step(tmp_path: Path, queue: FakeQueue, seed: int) -> None:
    random = Random(seed)
    queue.put(30)
    deaths = 0

    def die(step: str) -> None:
        nonlocal deaths
        if random.random() < 0.15 and deaths < 30:
            deaths += 1
            raise Died(step)

    query = MiniSpark(tmp_path, queue.path, random.randint(1, 9), die)
    while True:
        try:
            query.run()
            break
        except Died:
            done = batches_in(query.checkpoint / "commits")
            proven = at(query._end_of(done[-1])) if done else 1
            assert queue.advanced() <= proven
            if random.random() < 0.3:
                queue.put(random.randint(1, 5))
    total = queue.advanced() - 1
    assert total >= 30
    assert written(query) == list(range(1, total + 1))


def test_a_predecessor_is_fenced(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)
    old, new = query.reader(), query.reader()
    start = old.initialOffset()
    assert new.initialOffset() == start
    with pytest.raises(ReaderFenced):
        old.latestOffset(start, ReadMaxRows(2))
    assert at(new.latestOffset(start, ReadMaxRows(2))) == 3


def test_a_fenced_range_is_not_read(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)

    def take_over(step: str) -> None:
        if step == "read":
            query.reader().initialOffset()

    query.at_step = take_over
    with pytest.raises(ReaderFenced):
        query.run()
    assert written(query) == []


def test_an_older_checkpoint_is_refused(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)
    query.run()
    for log in ("offsets", "commits"):
        (query.checkpoint / log / "1").unlink()
    with pytest.raises(ConfigError, match="checkpoint older than the subscription"):
        query.run()


def test_a_queue_made_anew_is_refused(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)
    query.run()
    queue.make()
    queue.put(9)
    with pytest.raises(ConfigError, match="deleted and created again"):
        query.run()


def test_without_fail_on_data_loss_a_query_goes_on_behind_what_is_gone(
    tmp_path: Path, queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)
    query.options["failOnDataLoss"] = "false"
    query.run()
    for log in ("offsets", "commits"):
        (query.checkpoint / log / "1").unlink()
    (query.out / "_spark_metadata" / "1").unlink()
    queue.put(3)
    query.run()
    assert written(query) == [1, 2, 5, 6, 7]
    assert queue.advanced() == 8
    assert "and what lies between may be gone; the query goes on" in caplog.text


@pytest.mark.parametrize("step", ["offsets", "read", "commits", None])
def test_without_fail_on_data_loss_a_query_reads_the_queue_made_anew(
    tmp_path: Path, queue: FakeQueue, step: str | None
) -> None:
    """Also where a batch of the old one was planned, read, or the last."""
    deaths = [step]

    def at_step(found: str) -> None:
        if found == deaths[0]:
            deaths[0] = None
            raise Died(found)

    query = MiniSpark(tmp_path, queue.path, 2, at_step)
    query.options["failOnDataLoss"] = "false"
    queue.put(3)
    if step is not None:
        with pytest.raises(Died):
            query.run()
    else:
        query.run()
    before = written(query)
    queue.make()
    queue.put(9)
    query.run()
    assert written(query) == before + list(range(1, 10))
    assert queue.advanced() == 10


def test_what_was_dropped_before_it_was_read_ends_the_query(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(9)
    query = MiniSpark(tmp_path, queue.path, 9, never)
    query.options["rowsPerPartition"] = "9"
    queue.lose("dropped", 3, 4)
    queue.lose("expired", 7)
    with pytest.raises(HoldfastError) as caught:
        query.run()
    assert "of the messages from 3 to 7 3 are missing: 1 expired, 2 dropped to make room" in str(caught.value)
    assert "\n" not in str(caught.value) and written(query) == []


def test_without_fail_on_data_loss_it_is_told_and_the_query_goes_on(
    tmp_path: Path, queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(9)
    query = MiniSpark(tmp_path, queue.path, 9, never)
    query.options |= {"failOnDataLoss": "false", "rowsPerPartition": "9"}
    queue.lose("dropped", 2)
    queue.lose("unknown", 8, 9)
    query.run()
    assert written(query) == [1, 3, 4, 5, 6, 7]
    told = "from 2 to 9 3 are missing: 1 dropped to make room for later ones, 2 for reasons that are not known"
    assert told in caplog.text


def test_one_message_that_is_missing_at_an_end_is_told(
    tmp_path: Path, queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(9)
    query = MiniSpark(tmp_path, queue.path, 9, never)
    query.options["rowsPerPartition"] = "3"
    queue.lose("expired", 4, 9)
    query.run()
    assert "from 4 to 4 1 are missing: 1 expired" in caplog.text
    assert "from 9 to 9 1 are missing: 1 expired" in caplog.text


def test_a_checkpoint_that_is_one_message_older_is_refused(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 4, never)
    query.run()
    start = query._end_of(0)
    queue.put(1)
    with contextlib.closing(queue.connect()) as connection:
        connection.execute("update subscription set advanced = 6")
    with pytest.raises(ConfigError, match=r"older than the subscription: it is at 5, 's' of .* has advanced to 6"):
        query.reader().latestOffset(start, ReadMaxRows(4))


def test_what_expired_is_told_and_ends_nothing(
    tmp_path: Path, queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(5)
    queue.lose("expired", 2)
    query = MiniSpark(tmp_path, queue.path, 9, never)
    query.run()
    assert written(query) == [1, 3, 4, 5]
    assert "of the messages from 2 to 2 1 are missing: 1 expired" in caplog.text


def test_a_bounded_number_of_gaps_is_told_apart() -> None:
    wanted = QueueRange("q", 1, 2_001, None, "u")
    gaps = Gaps(wanted, "hub")
    entries = [Entry(sequence, None, None) for sequence in range(2, 2_000, 2)]
    assert list(gaps.through(iter(entries))) == entries
    assert len(gaps.found) == GAPS_MAX
    assert gaps.found[:2] == [(1, 2), (3, 4)] and gaps.found[-1] == (511, 2_001)
    gaps.tell(FakeBus.__new__(FakeBus), fail_on_data_loss=True)  # nobody to ask without a subscription


@pytest.mark.parametrize("more", [1, 3])
def test_a_store_put_back_is_refused(tmp_path: Path, queue: FakeQueue, more: int) -> None:
    queue.put(4)
    kept = queue.path.read_bytes()
    query = MiniSpark(tmp_path, queue.path, 2, never)
    queue.put(more)
    query.run()
    queue.path.write_bytes(kept)
    with pytest.raises(ConfigError, match=f"it is at {5 + more}, .* ends at 5: the node's store was put back"):
        query.run()


def test_a_checkpoint_that_is_not_the_querys_is_refused(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)
    query.options["checkpoint"] = str(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="'checkpoint'"):
        query.run()
    assert queue.calls("advance") == []


def test_a_sink_that_is_not_the_querys_releases_nothing(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(4)
    query = MiniSpark(tmp_path, queue.path, 2, never)
    query.options["sinkpath"] = str(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="holds no batch 0"):
        query.run()
    assert queue.calls("advance") == []


def test_limits(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(10)
    reader = MiniSpark(tmp_path, queue.path, 4, never).reader()
    start = reader.initialOffset()
    assert at(reader.latestOffset(start, reader.getDefaultReadLimit())) == 5
    assert at(reader.latestOffset(start, ReadMaxRows(10))) == 11
    assert at(reader.latestOffset(start, ReadAllAvailable())) == 11
    assert at(reader.reportLatestOffset()) == 11


def test_starting_from_next_skips_what_is_there(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(10)
    query = MiniSpark(tmp_path, queue.path, 4, never)
    query.options["startingfrom"] = "next"
    assert at(query.reader().initialOffset()) == 11


@pytest.mark.parametrize("missing", ["subscription", "checkpoint"])
def test_a_stream_needs_its_place(tmp_path: Path, missing: str) -> None:
    options = {"url": "amqp://h:1", "address": "q", "subscription": "s", "checkpoint": str(tmp_path)}
    del options[missing]
    with pytest.raises(ConfigError, match=missing):
        HoldfastStreamReader(FakeDataSource(options), options)


def test_a_reader_is_pickled_without_its_connection(tmp_path: Path, queue: FakeQueue) -> None:
    reader = MiniSpark(tmp_path, queue.path, 4, never).reader()
    reader.initialOffset()
    assert pickle.loads(pickle.dumps(reader))._parts == []


def test_the_batch_reader_takes_what_is_there(tmp_path: Path, queue: FakeQueue) -> None:
    queue.put(7)
    options = {"url": "amqp://h:1", "address": str(queue.path), "rowsperpartition": "3"}
    reader = FakeDataSource(options).reader(StructType())
    ranges = reader.partitions()
    name = queue.path
    assert [repr(part) for part in ranges] == [
        f"NodeTask(h: {name}[1, 4))", f"NodeTask(h: {name}[4, 7))", f"NodeTask(h: {name}[7, 8))",
    ]  # fmt: skip
    rows = [n for part in ranges for batch in reader.read(part) for n in batch.column("sequence").to_pylist()]
    assert rows == list(range(1, 8))


def sequences(queue: FakeQueue, **options: str) -> list[int]:
    reader = FakeDataSource({"url": "amqp://h:1", "address": str(queue.path), **options}).reader(StructType())
    found = (batch for part in reader.partitions() for batch in reader.read(part))
    return [number for batch in found for number in batch.column("sequence").to_pylist()]


def test_a_message_that_is_too_large_for_the_query_ends_it_where_asked(queue: FakeQueue) -> None:
    queue.put(2)
    options = {"onUnreadable": "fail", "maxMessageBytes": "1"}
    with pytest.raises(HoldfastError, match=r"sequence 1: no row can tell it: .* more than maxMessageBytes, 1$"):
        sequences(queue, **options)
    assert sequences(queue, **options | {"maxMessageBytes": "1000"}) == [1, 2]


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingFrom": "3"}, 3, 7),
        ({"startingFrom": "9"}, 8, 7),
        ({"startingFrom": "next"}, 8, 7),
        ({"endingAt": "4"}, 1, 3),
        ({"endingAt": "9"}, 1, 7),
        ({"endingAt": "next"}, 1, 7),
        ({"startingFrom": "5", "endingAt": "3"}, 1, 0),
        ({"startingFrom": "2023-11-14T22:13:23.123Z"}, 3, 7),
        ({"endingAt": "2023-11-14T22:13:23.123Z"}, 1, 2),
        ({"startingTimestamp": "1700000002124", "endingTimestamp": "1700000005123"}, 3, 4),
    ],
)
def test_a_batch_query_begins_and_ends_where_it_is_told(
    queue: FakeQueue, options: dict[str, str], first: int, last: int
) -> None:
    queue.put(7)
    assert sequences(queue, **options) == list(range(first, last + 1))


def test_a_batch_query_begins_at_its_subscription_or_where_it_is_told_and_reads_no_node_twice(
    tmp_path: Path, queue: FakeQueue
) -> None:
    queue.put(2)
    with pytest.raises(ConfigError, match="'subscription' and 'startingFrom' exclude each other in a batch query"):
        sequences(queue, subscription="s", startingFrom="2")
    with pytest.raises(ConfigError, match="amqp://h:1 and amqp://h:2 both reach node 'h'; give one"):
        sequences(queue, url="amqp://h:1,amqp://h:2")
    options = {"url": "amqp://h:1", "address": "q", "subscription": "s", "checkpoint": str(tmp_path), "endingAt": "3"}
    with pytest.raises(ConfigError, match="option 'endingAt' belongs to a batch query"):
        HoldfastStreamReader(FakeDataSource(options), options)


def test_the_batch_reader_of_an_empty_queue(tmp_path: Path, queue: FakeQueue) -> None:
    reader = FakeDataSource({"url": "amqp://h:1", "address": str(queue.path)}).reader(StructType())
    (only,) = reader.partitions()
    assert list(reader.read(only)) == []


def cut(start: int, end: int, rows: int) -> list[tuple[int, int]]:
    tasks = tasks_of({(0, "a"): [QueueRange("q", start, end, None, "u")]}, rows)
    return [(one.start, one.end) for task in tasks for one in task.ranges]


def test_a_long_range_is_cut() -> None:
    assert cut(5, 5, 10) == []
    assert cut(5, 15, 10) == [(5, 15)]
    assert cut(5, 16, 10) == [(5, 15), (15, 16)]
    assert len(cut(0, (PARTITIONS_MAX - 1) * 10, 10)) == PARTITIONS_MAX - 1
    assert len(cut(0, PARTITIONS_MAX * 10 + 1, 10)) <= PARTITIONS_MAX


def test_short_ranges_of_a_node_are_one_task_and_nodes_alternate() -> None:
    def ranges(*sizes: int) -> list[QueueRange]:
        return [QueueRange(f"q{number}", 1, 1 + size, None, "u") for number, size in enumerate(sizes)]

    tasks = tasks_of({(1, "b"): ranges(25), (0, "a"): ranges(4, 0, 4, 4)}, 10)
    assert [repr(task) for task in tasks] == [
        "NodeTask(a: q0[1, 5), q2[1, 5), q3[1, 3))",
        "NodeTask(b: q0[1, 11))",
        "NodeTask(a: q3[3, 5))",
        "NodeTask(b: q0[11, 21))",
        "NodeTask(b: q0[21, 26))",
    ]
    many = tasks_of({(0, "a"): ranges(*[10] * 700), (1, "b"): ranges(*[10] * 700)}, 10)
    assert len(many) <= PARTITIONS_MAX
    assert sum(one.end - one.start for task in many for one in task.ranges) == 14_000


def test_a_queue_made_anew_is_not_read_as_the_one_that_was_planned(queue: FakeQueue) -> None:
    """Without a subscription no lease says so."""
    queue.put(5)
    reader = FakeDataSource({"url": "amqp://h:1", "address": str(queue.path)}).reader(StructType())
    (task,) = reader.partitions()
    queue.make()
    queue.put(9)
    with pytest.raises(QueueMadeAnew, match="was deleted and created again while it was read"):
        list(reader.read(task))
