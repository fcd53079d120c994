"""Cleaning, windows and joins: each function over rows of a batch, and as steps of a stream."""

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from holdfast.errors import ConfigError
from pyspark_holdfast import cleaning
from pyspark_holdfast.queries import Progress as Counts
from pyspark_holdfast.queries import _Listener
from pyspark_holdfast.steps import OWN, Step, check_steps, through

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 11, 29, 17, tzinfo=UTC)
SCHEMA = "tag string, at timestamp, place string"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def reads(spark: "SparkSession", *rows: tuple[str, float, str]) -> "DataFrame":
    return spark.createDataFrame([(tag, at(seconds), place) for tag, seconds, place in rows], SCHEMA)


def seconds_of(time: Any) -> float:
    return (time.replace(tzinfo=UTC) - BEGIN).total_seconds()


def told(rows: "DataFrame") -> list[tuple[str, float]]:
    return sorted((row["tag"], seconds_of(row["at"])) for row in rows.collect())


def test_repeats_count_from_the_row_that_is_kept(spark: "SparkSession") -> None:
    rows = reads(spark, ("a", 0, "x"), ("a", 4, "x"), ("a", 8, "x"), ("a", 12.5, "x"), ("b", 4, "x"), ("a", 0, "y"))
    found = told(cleaning.without_repeats(rows, ["tag", "place"], 5, time="at"))
    assert found == [("a", 0), ("a", 0), ("a", 8), ("b", 4)]
    assert told(cleaning.without_repeats(rows, ["tag"], 60, time="at")) == [("a", 0), ("b", 4)]
    assert cleaning.without_repeats(rows, ["tag"], 60, time="at").columns == rows.columns


def test_what_was_read_once_in_a_window_is_a_ghost(spark: "SparkSession") -> None:
    rows = reads(spark, ("a", 1, "x"), ("a", 3, "x"), ("ghost", 2, "x"), ("a", 11, "x"))
    (row,) = cleaning.without_ghosts(rows, ["tag"], 2, 10, time="at").collect()
    assert (row["tag"], row["reads"]) == ("a", 2)
    assert [seconds_of(row[name]) for name in ("begins", "ends", "first", "last")] == [0, 10, 1, 3]
    assert cleaning.counted(rows, ["tag"], 10, time="at").count() == 3


def test_in_order_and_columns_and_conditions(spark: "SparkSession") -> None:
    rows = reads(spark, ("b", 1, "x"), ("a", 3, "y"), ("a", 2, "x"))
    found = through(
        rows,
        [
            Step("where", {"condition": "place = 'x'"}),
            Step("in_order", {"by": ["tag", "at"]}),
            Step("columns", {"names": ["upper(tag) AS tag", "at"]}),
        ],
    )
    assert [(row["tag"], seconds_of(row["at"])) for row in found.collect()] == [("A", 2), ("B", 1)]


def test_references_are_added_and_a_key_that_is_there_twice_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    rows = reads(spark, ("a", 0, "x"), ("c", 0, "x"))
    (tmp_path / "good.csv").write_text("tag,pallet\na,7\nb,8\n")
    (tmp_path / "twice.csv").write_text("tag,pallet\na,7\na,8\n")
    found = cleaning.with_reference(rows, str(tmp_path / "good.csv"), ["tag"], format="csv")
    assert sorted((row["tag"], row["pallet"]) for row in found.collect()) == [("a", "7"), ("c", None)]
    with pytest.raises(ConfigError, match="has 2 rows for tag a; expected one for each key"):
        cleaning.with_reference(rows, str(tmp_path / "twice.csv"), ["tag"], format="csv")
    with pytest.raises(ConfigError, match="step 1, in_order: no column 'size'; expected some of tag, at, place"):
        through(rows, [Step("in_order", {"by": ["size"]})])
    with pytest.raises(ConfigError, match="in_order: column 'm' is of type map, which has no order"):
        through(rows.selectExpr("map(tag, at) AS m"), [Step("in_order", {"by": ["m"]})])


def test_fields_of_messages_become_columns(spark: "SparkSession") -> None:
    made = spark.createDataFrame(
        [({"tag": "a"}, b'{"rssi": -60.5}', None), ({}, b'{"tag": "b", "rssi": "strong"}', None)],
        "application_properties map<string,string>, body binary, body_value string",
    )
    found = cleaning.with_fields(made, {"tag": "string", "rssi": "double"}).select("tag", "rssi").collect()
    assert [(row["tag"], row["rssi"]) for row in found] == [("a", -60.5), ("b", None)]


def test_what_an_order_leaves_open_the_other_columns_decide(spark: "SparkSession") -> None:
    """Else it would be that of a shuffle, which is another one each time."""
    rows = reads(spark, ("a", 3, "y"), ("a", 2, "x"), ("b", 1, "x"), ("a", 2, "w")).selectExpr("*", "array(tag) AS no")
    found = cleaning.in_order(rows, ["tag"]).collect()
    assert [(row["tag"], seconds_of(row["at"]), row["place"]) for row in found] == [
        ("a", 2, "w"), ("a", 2, "x"), ("a", 3, "y"), ("b", 1, "x"),
    ]  # fmt: skip


def stream_of(spark: "SparkSession", directory: Path, files: Sequence[Sequence[tuple[str, float]]]) -> "DataFrame":
    """A file of reads a batch."""
    directory.mkdir()
    for number, rows in enumerate(files):
        put(directory, number, rows)
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(directory))


def put(directory: Path, number: int, rows: Sequence[tuple[str, float]]) -> None:
    lines = [json.dumps({"tag": tag, "at": at(second).isoformat(), "place": "x"}) for tag, second in rows]
    file = directory / f"{number}.json"
    file.write_text("\n".join(lines))
    os.utime(file, (1_000 + number, 1_000 + number))  # the order in which Spark reads them


def run_to_end(spark: "SparkSession", rows: "DataFrame", place: Path) -> "DataFrame":
    """What the stream has written into a table."""
    writer = rows.writeStream.format("parquet").option("path", f"{place}-out")
    query = writer.option("checkpointLocation", f"{place}-c").trigger(availableNow=True).start()
    assert query.awaitTermination(150)
    return spark.read.parquet(f"{place}-out")


def test_rows_of_a_partition_are_sorted_nulls_first_and_else_stay_in_their_order() -> None:
    def batch(*rows: tuple[str | None, int]) -> "pa.RecordBatch":
        return pa.RecordBatch.from_pylist([{"a": a, "n": n} for a, n in rows], pa.schema({"a": "string", "n": "int64"}))

    given = [batch(("b", 2), (None, 1)), batch(), batch(("a", 3), ("b", 1), ("a", 0))]
    found = [tuple(row.values()) for part in cleaning.sorted_batches(iter(given), ["a"]) for row in part.to_pylist()]
    assert found == [(None, 1), ("a", 3), ("a", 0), ("b", 2), ("b", 1)]
    (both,) = cleaning.sorted_batches(iter(given[-1:]), ["a", "n"])
    assert both.column("n").to_pylist() == [0, 3, 1]
    assert list(cleaning.sorted_batches(iter([]), ["a"])) == []


def test_every_function_is_a_step() -> None:
    assert all(callable(getattr(cleaning, name)) for name in OWN)
    check_steps([Step("counted", {"key": ["tag"], "window_s": 10, "late_s": 5})])
    with pytest.raises(ConfigError, match="step 1, counted: missing a required argument: 'window_s'"):
        check_steps([Step("counted", {"key": ["tag"]})])


def test_a_stream_is_cleaned_counted_and_what_is_late_is_told(spark: "SparkSession", tmp_path: Path) -> None:
    """Each window once, when it is over; a row that comes behind the watermark is counted."""
    (tmp_path / "in").mkdir()
    files = ([("a", 1), ("a", 2), ("b", 3), ("a", 31)], [("a", 32), ("b", 33)], [("a", 4), ("c", 80)], [("c", 81)])
    for number, rows in enumerate(files):
        lines = [json.dumps({"tag": tag, "at": at(second).isoformat(), "place": "x"}) for tag, second in rows]
        file = tmp_path / "in" / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_000 + number, 1_000 + number))  # the order in which Spark reads them
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(tmp_path / "in"))
    steps = [Step("without_ghosts", {"key": ["tag"], "reads_min": 2, "window_s": 10, "late_s": 5, "time": "at"})]
    counts = Counts()
    listener = _Listener(counts, lambda progress: None)
    spark.streams.addListener(listener)
    try:
        writer = through(stream, steps).writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(150)
        assert listener.ended.acquire(timeout=30)
    finally:
        spark.streams.removeListener(listener)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row["tag"], seconds_of(row["begins"]), row["reads"]) for row in found) == [("a", 0, 2), ("a", 30, 2)]
    assert counts.late == 1


def test_repeats_of_a_stream(spark: "SparkSession", tmp_path: Path) -> None:
    stream = stream_of(spark, tmp_path / "in", ([("a", 0), ("b", 1)], [("a", 3), ("c", 4)]))
    rows = cleaning.without_repeats(stream, ["tag"], 10, time="at")
    assert len(told(run_to_end(spark, rows, tmp_path / "t"))) == 3


def test_rows_of_a_queue_that_is_behind_the_others_are_no_repeats(spark: "SparkSession", tmp_path: Path) -> None:
    """One queue has yesterday's backlog, the other is current."""
    files = ([("old 1", 0), ("now 1", 86_400)], [("old 2", 1), ("now 2", 86_401)], [("old 3", 2), ("now 3", 86_402)])
    stream = stream_of(spark, tmp_path / "in", files)
    rows = cleaning.without_repeats(stream, ["tag"], 10, late_s=90_000, time="at")
    assert [tag for tag, _ in told(run_to_end(spark, rows, tmp_path / "t"))] == [
        "now 1", "now 2", "now 3", "old 1", "old 2", "old 3",
    ]  # fmt: skip


def test_a_table_of_references_is_read_once_for_all_batches(spark: "SparkSession", tmp_path: Path) -> None:
    stream = stream_of(spark, tmp_path / "in", ([("a", 0)],))
    (tmp_path / "names.json").write_text('{"tag": "a", "name": "one", "since": {"year": 2020}}')
    rows = cleaning.with_reference(stream, str(tmp_path / "names.json"), ["tag"], format="json")
    run_to_end(spark, rows, tmp_path / "t")
    (tmp_path / "names.json").write_text('{"tag": "a", "name": "two"}\n{"tag": "a", "name": "three"}')
    put(tmp_path / "in", 1, [("a", 1)])
    found = run_to_end(spark, rows, tmp_path / "t").selectExpr("name", "since.year AS year").collect()
    assert [tuple(row) for row in found] == [("one", 2020)] * 2
