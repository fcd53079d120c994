"""Small files put together: the same rows, whatever dies and whoever reads or writes meanwhile."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as parquet

from holdfast.cli import main
from holdfast.client import Message
from holdfast.errors import ConfigError, StorageError
from holdfast.units import MIB
from pyspark_holdfast import compaction
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.checkpoint import SinkLog
from pyspark_holdfast.compaction import Compacted, compact
from pyspark_holdfast.rows import record_batch
from pyspark_holdfast.tables import read_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(first: int, last: int) -> pa.Table:
    entries = [Entry(number, number, Message(data=[b"%d" % number])) for number in range(first, last + 1)]
    return pa.Table.from_batches([record_batch("q", entries, node="n")])


class Table:
    """Written as Spark's file sink writes it, ten batches to a file of the log that has all before it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.log = out / "_spark_metadata"
        self.log.mkdir(parents=True)
        self.batches = 0
        self.written = 0

    def put(self, count: int, rows: pa.Table | None = None, *, part: str = "", **options: Any) -> Path:
        """One batch of one file; `part`: the directory that it is in."""
        file = self.out / part / f"part-{self.batches}.parquet"
        file.parent.mkdir(exist_ok=True)
        made = rows if rows is not None else rows_of(self.written + 1, self.written + count)
        parquet.write_table(made, str(file), **options)
        self.written += count
        line: dict[str, Any] = {"path": file.as_uri(), "size": file.stat().st_size, "isDir": False}
        line |= {"modificationTime": 1, "blockReplication": 1, "blockSize": 33_554_432, "action": "add"}
        lines = [line]
        log = self.log / str(self.batches)
        if (self.batches + 1) % 10 == 0:
            earlier = [path for batch, path in SinkLog(self.out).batches().items() if batch >= self.batches - 10]
            lines = [one for path in earlier for one in SinkLog.lines_of(path)] + lines
            log = log.with_suffix(".compact")
        log.write_text("\n".join(["v1", *map(json.dumps, lines)]))
        (log.with_name(f".{log.name}.crc")).write_text("checksum")
        self.batches += 1
        return file

    def check(self) -> None:
        assert read_arrow(self.out, ["sequence"])["sequence"].to_pylist() == list(range(1, self.written + 1))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "a table")


def test_files_of_batches_that_the_log_has_put_together_become_one(table: Table) -> None:
    for _ in range(25):
        table.put(3)
    assert compact(table.out) == Compacted(20, 1, 60, 0)
    assert len(SinkLog(table.out).files()) == 6
    assert not (table.log / ".19.compact.crc").exists(), "it would refuse the file that is there now"
    table.check()
    assert compact(table.out) == Compacted(1, 1, 0, 0), "nothing more to do"
    for _ in range(5):
        table.put(3)
    assert compact(table.out) == Compacted(11, 1, 90, 0)
    table.check()


def test_a_table_of_few_batches_stays(table: Table) -> None:
    for _ in range(9):
        table.put(1)
    assert compact(table.out) == Compacted(0, 0, 0, 0)
    table.check()


def test_files_grow_to_the_size_that_is_asked_for_and_large_ones_stay(table: Table) -> None:
    size = table.put(3).stat().st_size
    for _ in range(9):
        table.put(3)
    assert compact(table.out, file_bytes=size) == Compacted(10, 10, 0, 0)
    found = compact(table.out, file_bytes=4 * size + size // 2)
    assert (found.files_before, found.files_after, found.rows) == (10, 3, 30)
    table.check()


def test_what_was_replaced_goes_when_nobody_can_be_reading_it(table: Table) -> None:
    files = [table.put(2) for _ in range(10)]
    compact(table.out)
    assert all(file.exists() for file in files)
    assert compact(table.out, keep_s=1_000).deleted == 0
    assert compact(table.out, keep_s=0).deleted == 10
    assert not any(file.exists() for file in files)
    table.check()
    assert compact(table.out, keep_s=0).deleted == 0


def test_a_query_that_writes_the_log_again_with_the_old_files_loses_nothing(table: Table) -> None:
    """It had read the log before it was replaced."""
    files = [table.put(2) for _ in range(10)]
    before = (table.log / "9.compact").read_text()
    compact(table.out)
    (new,) = SinkLog(table.out).files()
    (table.log / "9.compact").write_text(before)
    assert compact(table.out, keep_s=0, file_bytes=1).deleted == 1
    assert not new.exists() and all(file.exists() for file in files)
    table.check()


def test_a_file_stays_in_its_directory(table: Table) -> None:
    for number in range(20):
        table.put(2, part=f"own={number % 2}")
    assert compact(table.out) == Compacted(20, 2, 40, 0)
    found = read_arrow(table.out, ["sequence", "own"]).sort_by("sequence")
    assert found["own"].to_pylist() == [str((number - 1) // 2 % 2) for number in range(1, 41)]


def test_files_of_another_schema_stay_apart(table: Table) -> None:
    """As those of an earlier version, with fewer columns."""
    table.put(2, rows_of(1, 2).drop_columns(["node"]))
    for _ in range(9):
        table.put(2)
    assert compact(table.out) == Compacted(10, 2, 18, 0)
    table.check()
    assert read_arrow(table.out, ["node"])["node"].to_pylist() == [None, None, *["n"] * 18]


@pytest.mark.parametrize("kinds", ['"variant"', '"timestamp_ntz"'])
def test_types_that_would_change_are_refused(table: Table, kinds: str) -> None:
    told = {b"org.apache.spark.sql.parquet.row.metadata": kinds.encode()}
    for _ in range(10):
        rows = rows_of(table.written + 1, table.written + 1).replace_schema_metadata(told)
        table.put(1, rows, use_deprecated_int96_timestamps=True)
    with pytest.raises(ConfigError, match="which compaction cannot keep"):
        compact(table.out)
    table.check()


def test_it_may_die_at_any_step(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        table.put(2, part=f"own={number % 3}")
    sync, steps = os.fsync, [0]
    replace: Callable[..., None] = os.replace

    def dying(at: int, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            steps[0] += 1
            if steps[0] == at:
                raise OSError(5, "dies here")
            return real(*arguments, **more)

        return step

    for at in range(1, 100):
        steps[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", dying(at, sync))
            patch.setattr(os, "replace", dying(at, replace))
            try:
                done = compact(table.out)
                break
            except StorageError as error:
                assert "cannot be compacted (dies here)" in str(error)
        assert read_arrow(table.out, ["sequence"]).num_rows == 40
    assert at > 10 and done.files_after == 3
    table.put(1)
    compact(table.out, keep_s=0)
    left = {str(path) for path in table.out.rglob("*.parquet")}
    assert left == {str(path) for path in SinkLog(table.out).files()}, "what the dead have left is gone too"


def test_a_file_that_is_gone_or_torn_is_told(table: Table) -> None:
    file = [table.put(1) for _ in range(10)][4]
    file.write_bytes(b"PAR1 torn")
    with pytest.raises(StorageError, match="cannot be compacted"):
        compact(table.out)
    file.unlink()
    with pytest.raises(StorageError, match=r"part-4\.parquet"):
        compact(table.out)


def test_files_and_their_record_are_on_disk_before_the_log_names_them(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = compaction.sync_file, os.replace

    def synced(place: Path) -> None:
        done.append(f"sync {place.relative_to(table.out)}")
        sync(place)

    def replaced(path: Path, target: Path, **more: Any) -> None:
        done.append(f"replace {target.relative_to(table.out)}")
        replace(path, target, **more)

    for number in range(20):
        table.put(1, part=f"own={number % 2}")
    monkeypatch.setattr(compaction, "sync_file", synced)
    monkeypatch.setattr(os, "replace", replaced)
    compact(table.out)
    log = done.index("replace _spark_metadata/19.compact")
    new = [str(file.relative_to(table.out)) for file in SinkLog(table.out).files()]
    assert len(new) == 2
    for place in (*new, "own=0", "own=1", compaction.RECORDS, "_spark_metadata"):
        assert done.index(f"sync {place}") < log
    record = next(number for number, step in enumerate(done) if step.startswith(f"replace {compaction.RECORDS}"))
    assert record < min(done.index(f"sync {place}") for place in new)
    assert done[log + 1 :] == ["sync _spark_metadata"]


def test_one_at_a_time_and_only_tables(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    table.put(1)
    with compaction._alone(table.out), pytest.raises(ConfigError, match="is being compacted by another command"):
        compact(table.out)
    with pytest.raises(ConfigError, match="has no batch in its log"):
        compact(table.out / "nowhere")
    (table.out / compaction.RECORDS / "x.json").write_text("{")
    with pytest.raises(ConfigError, match=r"x.json cannot be read; delete it"):
        compact(table.out)
    assert main(["pipeline", "compact", str(table.out / "nowhere")]) == 2
    assert "holdfast pipeline compact: table " in capsys.readouterr().err


def test_the_command(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(10):
        table.put(1)
    assert main(["pipeline", "compact", str(table.out), "--file-mib", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"files_before": 10, "files_after": 1, "rows": 10, "deleted": 0}


@pytest.mark.spark
def test_a_query_of_spark_goes_on_and_spark_reads_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    """With timestamps and maps, by directories, over several files of the log."""
    made, out = tmp_path / "in", tmp_path / "out"
    made.mkdir()
    kinds = "id bigint, at timestamp, more map<string,timestamp>, n decimal(20,2), place string"

    def write(first: int, count: int) -> None:
        """A file each, and so a batch each."""
        for number in range(first, first + count):
            at = f"timestamp'9999-01-01 00:00:00.{number:06}'"
            row = f"bigint({number}) id, {at} at, map('a', {at}) more, cast({number} as decimal(20,2)) n"
            spark.sql(f"select {row}, 'p{number % 2}' place").coalesce(1).write.mode("append").parquet(str(made))

    def run() -> None:
        rows = spark.readStream.schema(kinds).option("maxFilesPerTrigger", "1").parquet(str(made))
        writer = rows.writeStream.format("parquet").partitionBy("place").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(out)).awaitTermination()

    def read() -> list[Any]:
        return spark.read.parquet(str(out)).orderBy("id").collect()

    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    try:
        write(0, 5)
        run()
        before = read()
        kinds_before = spark.read.parquet(str(out)).dtypes
        assert compact(out, file_bytes=MIB)[:3] == (3, 2, 2)
        assert read() == before and spark.read.parquet(str(out)).dtypes == kinds_before
        write(5, 2)
        run()
        assert [row.id for row in read()] == list(range(7))
        assert compact(out, file_bytes=MIB, keep_s=0)[:2] == (5, 2)
        assert read()[:5] == before and len(read()) == 7
    finally:
        spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")
