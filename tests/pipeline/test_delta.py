"""Rows into Delta: options and types, each batch once though committed again, here and in an object store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from holdfast.errors import ConfigError, HoldfastError, StorageError
from pyspark_holdfast import checkpoint, delta
from pyspark_holdfast.delta import DeltaStreamWriter, DeltaWriter, Written, add_files, opened, reach_delta, write_file
from pyspark_holdfast.delta_options import DeltaOptions, delta_schema, parse_delta_options
from support.object_store import BUCKET, object_store

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

COLUMNS = StructType(
    [
        StructField("id", LongType(), nullable=False),
        StructField("text", StringType()),
        StructField("at", TimestampType()),
        StructField("more", MapType(StringType(), StringType())),
        StructField("parts", ArrayType(StringType(), containsNull=False)),
    ]
)
SCHEMA = delta_schema(COLUMNS)


def rows(*numbers: int) -> pa.RecordBatch:
    """As Spark hands them to a sink."""
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "text": pa.array([None if number % 2 else f"t{number}" for number in numbers], pa.string()),
            "at": pa.array([number * 1_000_000 for number in numbers], pa.timestamp("us", tz="UTC")),
            "more": pa.array([[("n", str(number))] for number in numbers], pa.map_(pa.string(), pa.string())),
            "parts": pa.array([["a"] for _ in numbers], pa.list_(pa.field("element", pa.string(), nullable=False))),
        },
    )


def there(options: DeltaOptions) -> list[int]:
    """What a reader of the table finds, by its log alone."""
    table = deltalake.DeltaTable(options.uri, storage_options=options.storage)
    found = deltalake.QueryBuilder().register("t", table).execute("SELECT id FROM t").read_all()
    return sorted(pa.table(found).column("id").to_pylist())


@pytest.fixture
def local(tmp_path: Path) -> DeltaOptions:
    return parse_delta_options({"path": str(tmp_path / "table")})


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with object_store() as settings:
        yield settings


# ---------------------------------------------------------------------------------------------------- options


def test_options(tmp_path: Path) -> None:
    found = parse_delta_options({"Path": f"file:{tmp_path}/t", "checkpointLocation": str(tmp_path / "c")})
    assert (found.uri, found.path, found.checkpoint) == (f"{tmp_path}/t", tmp_path / "t", tmp_path / "c")
    assert (found.query, found.storage) == (None, None)
    (tmp_path / "s3").write_text("# ours\nAWS_REGION = eu\n\nAWS_SECRET_ACCESS_KEY=a=b\n")
    found = parse_delta_options({"path": "s3://b/t", "storageFile": str(tmp_path / "s3"), "txnAppId": "q"})
    assert (found.uri, found.path, found.query) == ("s3://b/t", None, "q")
    assert found.storage == {"AWS_REGION": "eu", "AWS_SECRET_ACCESS_KEY": "a=b"} and "a=b" not in repr(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option 'path' is missing; expected the directory of the table, or s3://bucket/table"),
        ({"path": "hdfs://h/t"}, "invalid value 'hdfs://h/t' for option 'path'"),
        ({"path": "/t", "mergeSchema": "true"}, "option 'mergeSchema': a table keeps its columns"),
        ({"path": "/t", "pat": "x"}, "unknown option 'pat'; expected one of path"),
        ({"path": "/t", "storageFile": "/none"}, "option 'storageFile' belongs to an object store"),
        ({"path": "s3://b/t", "storageFile": "/none"}, "/none of option 'storageFile' cannot be read"),
        ({"path": "/t", "checkpointLocation": "/t/c"}, "/t/c is inside the table /t"),
        ({"path": "/t", "checkpointLocation": "s3://b/c"}, "expected a directory that this machine can sync"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_delta_options(options)
    assert said in str(caught.value)


def test_a_line_of_an_object_stores_settings_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "s3").write_text("AWS_REGION=eu\nsecret\n")
    with pytest.raises(ConfigError, match="line 2: expected NAME=value") as caught:
        parse_delta_options({"path": "s3://b/t", "storageFile": str(tmp_path / "s3")})
    assert "secret" not in str(caught.value)


def test_types() -> None:
    told = json.loads(SCHEMA)
    assert [field["nullable"] for field in told["fields"]] == [True] * 5
    assert told["fields"][4]["type"]["containsNull"] is True
    assert json.loads(delta_schema(StructType([StructField("d", DecimalType(9, 2), metadata={"x": 1})]))) == {
        "type": "struct",
        "fields": [{"name": "d", "type": "decimal(9,2)", "nullable": True, "metadata": {}}],
    }
    inner = StructType([StructField("when", TimestampNTZType())])
    for kind in (VariantType(), ArrayType(inner), MapType(StringType(), inner)):
        with pytest.raises(ConfigError, match=r"column 'c' has type (variant|timestamp_ntz), which the Delta sink"):
            delta_schema(StructType([StructField("c", kind)]))
    with pytest.raises(ConfigError, match="no column"):
        delta_schema(StructType([]))


# ------------------------------------------------------------------------------------------------------- rows


def test_a_batch_is_added_once_though_it_is_computed_again(local: DeltaOptions) -> None:
    opened(local, SCHEMA)
    for attempt in range(2):
        files = [write_file(local, iter([rows(1, 2), rows(3)])), write_file(local, iter([rows(4)]))]
        assert add_files(local, SCHEMA, files, ("q", 0)) is (attempt == 0)
    assert [one.rows for one in files] == [3, 1] and there(local) == [1, 2, 3, 4]
    assert add_files(local, SCHEMA, [write_file(local, iter([rows(5)]))], ("q", 1))
    with pytest.raises(ConfigError, match="has batch 1 of 'q', and the checkpoint gives 0 next: it is an older copy"):
        add_files(local, SCHEMA, [write_file(local, iter([rows(1)]))], ("q", 0))
    assert add_files(local, SCHEMA, [write_file(local, iter([rows(6)]))], ("other", 0))
    assert there(local) == [1, 2, 3, 4, 5, 6]


def test_a_new_checkpoint_s_batches_are_not_taken_for_those_of_another_of_its_name(tmp_path: Path) -> None:
    """They would be left out, and their messages released."""
    named = parse_delta_options({"path": str(tmp_path / "table"), "txnAppId": "x"})
    opened(named, SCHEMA)
    for batch in (0, 1):
        for attempt in range(2):
            files = [write_file(named, iter([rows(batch)]))]
            assert add_files(named, SCHEMA, files, ("one", batch)) is (attempt == 0)
    for batch in (0, 1):
        with pytest.raises(ConfigError, match=f"has batch 1 of 'x', and the checkpoint gives {batch} next: .*'txnApp"):
            add_files(named, SCHEMA, [write_file(named, iter([rows(7)]))], ("other", batch))
    other = parse_delta_options({"path": str(tmp_path / "table"), "txnAppId": "y"})
    assert add_files(other, SCHEMA, [write_file(other, iter([rows(7)]))], ("other", 0))
    assert there(named) == [0, 1, 7]


def test_our_commit_is_synced_though_others_came_behind_it(
    local: DeltaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(local, SCHEMA)
    synced: list[str] = []
    sync_log = delta._sync_log

    def late(*arguments: Any) -> None:  # another program, as OPTIMIZE
        deltalake.DeltaTable(local.uri).create_write_transaction([], "append", deltalake.Schema.from_json(SCHEMA))
        sync_log(*arguments)

    monkeypatch.setattr(delta, "_sync_log", late)
    monkeypatch.setattr(delta, "sync_file", lambda place: synced.append(place.stem))
    for batch, versions in ((0, [1, 2]), (0, [0, 1, 2, 3]), (1, [4, 5])):
        file = write_file(local, iter([rows(batch)]))
        synced.clear()
        add_files(local, SCHEMA, [file], ("q", batch))
        assert synced == [f"{version:020}" for version in versions]


def test_of_two_attempts_that_commit_at_the_same_time_one_adds(
    local: DeltaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that the batch is not there."""
    opened(local, SCHEMA)
    add_files(local, SCHEMA, [write_file(local, iter([rows(1)]))], ("q", 0))
    for number in (2, 3):
        seen = deltalake.DeltaTable(local.uri, version=1)
        monkeypatch.setattr(delta, "opened", lambda options, schema, seen=seen: seen)
        files = [write_file(local, iter([rows(number)]))]
        if number == 2:
            assert add_files(local, SCHEMA, files, ("q", 1))
        else:
            with pytest.raises(HoldfastError, match="Concurrent transaction"):
                add_files(local, SCHEMA, files, ("q", 1))
    assert there(local) == [1, 2]


def test_what_no_commit_names_is_not_in_the_table(local: DeltaOptions) -> None:
    opened(local, SCHEMA)
    write_file(local, iter([rows(1)]))
    assert write_file(local, iter([rows()])) == Written() and there(local) == []


def planned(tmp_path: Path, batch: int) -> Path:
    """A checkpoint in which that batch is planned."""
    place = tmp_path / "checkpoint"
    (place / "offsets").mkdir(parents=True)
    (place / "metadata").write_text('{"id":"7f-1"}')
    (place / "offsets" / str(batch)).write_text("v1\n{}")
    return place


def test_the_order_of_what_is_synced(tmp_path: Path, local: DeltaOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows before the commit that names them, the batch's plan before it too, the commit before Spark goes on."""
    done: list[str] = []

    def sync(place: Path, count: int = 1) -> None:
        place.stat()
        done.append(str(place.relative_to(tmp_path)).replace(place.name, place.name.partition("-")[0]))

    for module in (delta, checkpoint):
        monkeypatch.setattr(module, "sync_file", sync)
        monkeypatch.setattr(module, "sync_directories", sync)
    place = planned(tmp_path, 0)
    writer = DeltaStreamWriter(COLUMNS, {"path": local.uri, "checkpointLocation": str(place)}, overwrite=False)
    done.clear()
    message = writer.write(iter([rows(1)]))
    assert done == ["table/part", "table"]
    plan = ["checkpoint/metadata", "checkpoint/offsets/0", "checkpoint/offsets"]
    log = [
        "table/_delta_log/00000000000000000000.json",
        "table/_delta_log/00000000000000000001.json",
        "table/_delta_log",
    ]
    for commit in (log[1:], log):  # again, since whoever committed it may have died before it was synced
        done.clear()
        writer.commit([message], 0)
        assert done == [*plan, *commit]


def test_the_name_of_a_query_is_that_of_its_checkpoint(tmp_path: Path, local: DeltaOptions) -> None:
    place = planned(tmp_path, 3)
    options = {"path": local.uri, "checkpointLocation": str(place)}
    (place / "offsets" / "4").write_text("v1\n{}")
    cases: list[tuple[dict[str, str], int, int | None]] = [({}, 3, None), ({"txnAppId": "mine"}, 4, 4)]
    for more, batch, named in cases:
        writer = DeltaStreamWriter(COLUMNS, options | more, overwrite=False)
        writer.commit([writer.write(iter([rows(1)])), None], batch)
        table = deltalake.DeltaTable(local.uri)
        assert (table.transaction_version("spark-7f-1"), table.transaction_version("mine")) == (batch, named)
    (place / "offsets" / "4").unlink()
    with pytest.raises(StorageError, match="cannot be synced"):
        writer.commit([], 4)
    writer = DeltaStreamWriter(COLUMNS, {"path": local.uri}, overwrite=False)
    with pytest.raises(ConfigError, match="option 'checkpointLocation' is missing"):
        writer.commit([], 3)


def test_a_dataframe_is_added_whole_each_time(local: DeltaOptions) -> None:
    for _ in range(2):
        writer = DeltaWriter(COLUMNS, {"path": local.uri}, overwrite=False)
        writer.commit([writer.write(iter([rows(1)])), writer.write(iter([rows(2)]))])
    assert there(local) == [1, 1, 2, 2]
    with pytest.raises(ConfigError, match="invalid mode overwrite"):
        DeltaWriter(COLUMNS, {"path": local.uri}, overwrite=True)


def test_many_small_batches_are_one_file_in_groups(local: DeltaOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as parquet

    opened(local, SCHEMA)
    monkeypatch.setattr(delta, "GROUP_BYTES_MAX", 2 * rows(1).nbytes)
    written = write_file(local, iter([rows(number) for number in (1, 3, 5, 7, 9)]))
    assert local.path is not None and written.name is not None
    found = parquet.ParquetFile(local.path / written.name)
    assert [found.metadata.row_group(number).num_rows for number in range(found.num_row_groups)] == [2, 2, 1]
    assert (written.rows, written.size) == (5, (local.path / written.name).stat().st_size)


# -------------------------------------------------------------------------------------------- tables of others


def test_a_table_that_does_not_fit_is_told(local: DeltaOptions, tmp_path: Path) -> None:
    opened(local, SCHEMA)
    with pytest.raises(ConfigError, match="has no column 'z'; expected some of id, text"):
        opened(local, delta_schema(StructType([StructField("z", LongType())])))
    with pytest.raises(ConfigError, match=r"column 'id' is .*long.*, and the rows have .*integer.*; cast it"):
        opened(local, delta_schema(StructType([StructField("id", IntegerType())])))
    wanted = deltalake.Schema.from_json(SCHEMA)
    parted = parse_delta_options({"path": str(tmp_path / "parted")})
    deltalake.DeltaTable.create(parted.uri, wanted, partition_by=["text"])
    with pytest.raises(ConfigError, match="is partitioned by text; expected a table without partitions"):
        opened(parted, SCHEMA)
    later = parse_delta_options({"path": str(tmp_path / "later")})
    deltalake.DeltaTable.create(later.uri, wanted, configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(ConfigError, match=r"asks for writer version .* expected at most 2"):
        opened(later, SCHEMA)
    strict = parse_delta_options({"path": str(tmp_path / "strict")})
    fields = [deltalake.Field("id", "long", nullable=False)]
    deltalake.DeltaTable.create(strict.uri, deltalake.Schema(fields))
    with pytest.raises(ConfigError, match="column 'id' has a condition"):
        opened(strict, delta_schema(StructType([StructField("id", LongType())])))


def test_what_delta_rs_says_is_a_line_without_colours(local: DeltaOptions) -> None:
    found = delta._told(local, OSError("Generic error\n \x1b[31m-\x1b[0m more"))
    assert str(found) == f"Delta table {local.uri}: Generic error - more"


def test_rows_may_lack_columns_of_the_table(local: DeltaOptions) -> None:
    opened(local, SCHEMA)
    few = StructType([StructField("id", LongType())])
    writer = DeltaWriter(few, {"path": local.uri}, overwrite=False)
    writer.commit([writer.write(iter([rows(7).select(["id"])]))])
    assert there(local) == [7]


def test_without_deltalake_it_is_told(local: DeltaOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    with pytest.raises(ConfigError, match="the Delta sink needs deltalake; run: pip install 'deltalake<2'"):
        opened(local, SCHEMA)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match=r"Delta table .*file/table: ") as caught:
        opened(parse_delta_options({"path": str(tmp_path / "file" / "table")}), SCHEMA)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------ object store


def test_a_table_in_an_object_store(tmp_path: Path, store: dict[str, str]) -> None:
    (tmp_path / "s3").write_text("".join(f"{name}={value}\n" for name, value in store.items()))
    options: Any = {"path": f"s3://{BUCKET}/flights", "storageFile": str(tmp_path / "s3")}
    place = planned(tmp_path, 0)
    parsed = parse_delta_options(options)
    reach_delta(parsed)
    for _ in range(2):
        writer = DeltaStreamWriter(COLUMNS, options | {"checkpointLocation": str(place)}, overwrite=False)
        writer.commit([writer.write(iter([rows(1, 2)])), writer.write(iter([rows(3)]))], 0)
    assert there(parsed) == [1, 2, 3]
    before = deltalake.DeltaTable(parsed.uri, version=0, storage_options=parsed.storage)
    transaction = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("spark-7f-1", 0)])
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="Concurrent transaction"):
        before.create_write_transaction([], "append", deltalake.Schema.from_json(SCHEMA), commit_properties=transaction)
