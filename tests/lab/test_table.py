"""The table's committed files, by the sink's log alone."""

import json
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast_lab.judge.table import committed_files, read_columns


def log(table: Path, name: str, files: list[str], version: str = "v1") -> None:
    (table / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file:///elsewhere/{table.name}/{file}", "action": "add"}) for file in files]
    (table / "_spark_metadata" / name).write_text("\n".join([version, *lines]))


def names(table: Path) -> list[str]:
    return [str(path.relative_to(table)) for path in committed_files(table)]


def test_no_log_is_no_rows(tmp_path: Path) -> None:
    (tmp_path / "stray.parquet").touch()
    assert committed_files(tmp_path) == []
    assert read_columns(tmp_path, ["body"]) == {"sequence": [], "body": []}


def test_batches_in_order_and_partition_directories(tmp_path: Path) -> None:
    log(tmp_path, "2", ["c.parquet"])
    log(tmp_path, "10", ["day=1/d%20x.parquet"])
    log(tmp_path, "0", ["a.parquet", "b.parquet"])
    log(tmp_path, ".11.tmp", ["never.parquet"])
    assert names(tmp_path) == ["a.parquet", "b.parquet", "c.parquet", "day=1/d x.parquet"]


def test_a_compacted_log_stands_for_all_before_it(tmp_path: Path) -> None:
    log(tmp_path, "8", ["old.parquet"])
    log(tmp_path, "9.compact", ["old.parquet", "x.parquet"])
    log(tmp_path, "9", ["x.parquet"])
    log(tmp_path, "10", ["y.parquet"])
    assert names(tmp_path) == ["old.parquet", "x.parquet", "y.parquet"]


def test_another_version_is_refused(tmp_path: Path) -> None:
    log(tmp_path, "0", [], version="v2")
    with pytest.raises(StorageError, match="expected 'v1'"):
        committed_files(tmp_path)


def test_rows_come_by_sequence(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, sequences in (("a", [3, 1]), ("b", [2]), ("stray", [9])):
        parquet.write_table(
            pa.table({"sequence": sequences, "body": [str(n) for n in sequences]}),
            tmp_path / f"{name}.parquet",
        )
    log(tmp_path, "0", ["a.parquet"])
    log(tmp_path, "1", ["b.parquet"])
    assert read_columns(tmp_path, ["body"]) == {"sequence": [1, 2, 3], "body": ["1", "2", "3"]}
