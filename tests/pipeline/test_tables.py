"""The reports on a table of flights, against numbers counted by hand."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as parquet

from holdfast.amqp.wire.types import Timestamp
from holdfast.client import Message, Properties
from holdfast.errors import ConfigError
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.checkpoint import SINK_LOG
from pyspark_holdfast.columns import COLUMNS, FIELDS
from pyspark_holdfast.flights import flights_report
from pyspark_holdfast.parquet_files import partition_of
from pyspark_holdfast.rows import record_batch
from pyspark_holdfast.tables import check_table, count_by_path, property_of, read_arrow, read_table, variants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = [
    ("1", "EWR", "UA", "5", "2"),
    ("2", "EWR", "UA", "5", "4"),
    ("3", "JFK", "B6", "6", "NA"),
    ("4", "JFK", "B6", "6", "-3"),
    ("5", "LGA", "DL", "6", "30"),
]
LATE = Message(properties=Properties(creation_time=Timestamp(253_370_764_800_000)), data=[b"x"])
"""Made in the year 9999, which nanoseconds since 1970 do not reach."""
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def table(spark: "SparkSession") -> "DataFrame":
    """The last flight twice, under a sequence of its own; odd ones with their properties in the body alone.

    Stored one each half a second from 12:00 on; all but the first by a path, the fourth by another one.
    """
    rows = []
    for sequence, flight in enumerate([*FLIGHTS, FLIGHTS[-1]], start=1):
        names = ("id", "origin", "carrier", "hour", "dep_delay")
        properties = dict(zip(names, flight, strict=True))
        stored = NOON + timedelta(seconds=0.5 * (sequence - 1))
        path = json.dumps([flight[1].lower(), "x" if sequence == 4 else "phl", "hub"])
        annotations = {"x-opt-sequence-number": str(sequence)} | ({"x-opt-holdfast-path": path} if sequence > 1 else {})
        rows.append(
            (
                "flights", sequence, f"m-{flight[0]}", None, None, None, None, stored,
                properties if sequence % 2 == 0 else {}, annotations, bytearray(json.dumps(properties).encode()),
                "data", None, *[None] * (len(FIELDS) - 13),
            )
        )  # fmt: skip
    return spark.createDataFrame(rows, COLUMNS)


@pytest.mark.spark
def test_a_table_of_an_earlier_version_is_read_with_the_columns_of_this_one(
    spark: "SparkSession", tmp_path: Path
) -> None:
    import pyarrow.parquet as parquet

    (tmp_path / "_spark_metadata").mkdir()
    made = [
        record_batch("q", [Entry(number, None, message)])
        for number, message in enumerate((Message(data=[b"old"]), Message(value=[1])), 1)
    ]
    for number, batch in enumerate((made[0].drop_columns(["body_kind", "body_value"]), made[1])):
        file = tmp_path / f"part-{number}.parquet"
        parquet.write_table(pa.Table.from_batches([batch]), file)
        entry = {"path": file.as_uri(), "size": file.stat().st_size, "isDir": False, "modificationTime": 1}
        line = json.dumps({**entry, "blockReplication": 1, "blockSize": 1, "action": "add"})
        (tmp_path / "_spark_metadata" / str(number)).write_text(f"v1\n{line}")
    rows = read_table(spark, tmp_path).orderBy("sequence").collect()
    assert [(bytes(row.body), row.body_kind, row.body_value) for row in rows] == [
        (b"old", None, None),
        (b"", "value", "[1]"),
    ]
    assert read_arrow(tmp_path, ["body_value"]).column("body_value").to_pylist() == [None, "[1]"]


@pytest.mark.spark
def test_a_table_by_columns_is_read_without_spark_as_by_spark(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream's table, whose log says which files it has, by columns of the source and of its own."""
    made = [
        pa.Table.from_batches([record_batch(queue, [Entry(number, None, LATE)], node="007")])
        for number, queue in enumerate(("a/b 1=%", "plain"), 1)
    ]
    (tmp_path / "in").mkdir()
    parquet.write_table(pa.concat_tables(made), str(tmp_path / "in" / "rows.parquet"))
    rows = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))
    rows = rows.selectExpr("*", "CASE WHEN sequence = 1 THEN 'é#?' END AS own", "sequence * 2 AS twice")
    out = tmp_path / "out=dir"
    query = (
        rows.writeStream.format("parquet").partitionBy("node", "address", "own")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start(str(out))
    )  # fmt: skip
    query.awaitTermination()
    found = read_arrow(out).sort_by("sequence")
    assert found.column_names[: len(FIELDS)] == list(FIELDS)
    assert [time.year for time in found.column("created").to_pylist()] == [9999, 9999]
    wanted = ["node", "address", "sequence", "own", "twice", "body"]
    assert read_arrow(out, wanted).sort_by("sequence").to_pylist() == found.select(wanted).to_pylist()
    assert [tuple(row.values()) for row in found.select(wanted).to_pylist()] == [
        ("007", "a/b 1=%", 1, "é#?", 2, b"x"), ("007", "plain", 2, None, 4, b"x"),
    ]  # fmt: skip
    by_spark = spark.read.schema(f"{COLUMNS}, own string, twice bigint").parquet(str(out)).orderBy("sequence")
    assert [(row.node, row.address, row.own) for row in by_spark.collect()] == [
        ("007", "a/b 1=%", "é#?"), ("007", "plain", None),
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert read_arrow(Path("out=dir"), ["own"]).num_rows == 2
    with pytest.raises(ConfigError, match="has no column 'nothing'; expected some of address, sequence"):
        read_arrow(out, ["nothing"])


@pytest.mark.spark
def test_flights_report(spark: "SparkSession") -> None:
    report = flights_report(table(spark))
    assert report["rows"] == 6
    assert report["by_origin"] == {"EWR": 2, "JFK": 2, "LGA": 2}
    assert report["identities"] == {
        "rows": 6, "sequences": 6, "message_ids": 5, "bodies": 5, "first": 1, "last": 6, "ids": 5,
    }  # fmt: skip
    assert report["delays"] == [
        {"carrier": "B6", "hour": 6, "flights": 2, "departed": 1, "mean_min": -3.0, "median_min": -3.0,
         "p90_min": -3.0},
        {"carrier": "DL", "hour": 6, "flights": 2, "departed": 2, "mean_min": 30.0, "median_min": 30.0,
         "p90_min": 30.0},
        {"carrier": "UA", "hour": 5, "flights": 2, "departed": 2, "mean_min": 3.0, "median_min": 3.0,
         "p90_min": 3.8},
    ]  # fmt: skip


@pytest.mark.spark
def test_paths_are_counted_by_second(spark: "SparkSession") -> None:
    noon = int(NOON.timestamp())
    counted = [tuple(row) for row in count_by_path(table(spark), "origin").collect()]
    assert counted == [
        ("EWR", None, noon, 1),
        ("EWR", "ewr phl hub", noon, 1),
        ("JFK", "jfk phl hub", noon + 1, 1),
        ("JFK", "jfk x hub", noon + 1, 1),
        ("LGA", "lga phl hub", noon + 2, 2),
    ]
    wide = count_by_path(table(spark), "origin", window_s=60).collect()
    assert {row["second"] for row in wide} == {noon} and sum(row["count"] for row in wide) == 6
    assert [row["count"] for row in flights_report(table(spark))["by_path"]] == [1, 1, 1, 1, 2]


@pytest.mark.spark
def test_a_property_comes_from_the_body_where_there_is_none(spark: "SparkSession") -> None:
    found = table(spark).orderBy("sequence").select(property_of("origin").alias("origin")).collect()
    assert [row["origin"] for row in found] == ["EWR", "EWR", "JFK", "JFK", "LGA", "LGA"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pipeline ingest"):
        check_table(tmp_path)


@pytest.mark.spark
def test_json_columns_as_variants(spark: "SparkSession", tmp_path: Path) -> None:
    message = Message(application_properties={"delay": 5, "late": True}, value={"t": [1, 2.5], "u": None})
    rows = record_batch("q", [Entry(1, None, message), Entry(2, None, Message(data=[b"x"]))])
    parquet.write_table(pa.Table.from_batches([rows]), str(tmp_path / "rows.parquet"))
    table = variants(spark.read.parquet(str(tmp_path / "rows.parquet"))).orderBy("sequence")
    kinds = dict(table.dtypes)
    assert [name for name, kind in kinds.items() if kind == "variant"] == [
        "body_variant", "application_properties_variant", "annotations_variant", "delivery_annotations_variant",
        "footer_variant",
    ]  # fmt: skip
    found = table.selectExpr(
        "variant_get(application_properties_variant, '$.delay', 'int')",
        "variant_get(body_variant, '$.t[1]', 'double')",
        "footer_variant IS NULL",
    ).collect()
    assert [tuple(row) for row in found] == [(5, 2.5, True), (None, None, True)]


def test_a_table_whose_own_name_looks_like_a_partition_has_no_column_of_it(tmp_path: Path) -> None:
    table = tmp_path / "day=1"
    (table / SINK_LOG).mkdir(parents=True)
    assert partition_of(table / "node=jfk" / "part.parquet") == {"node": "jfk"}
    assert partition_of(table / "part.parquet") == {}
