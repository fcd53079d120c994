"""A table that `holdfast pipeline ingest` wrote, read without Spark: an independent witness of what arrived.

Rules of this file: which Parquet files count is what the sink's log `_spark_metadata` says, never the
directory's listing (after a kill it holds files of batches that never were). pyarrow is imported when a table
is read.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.errors import StorageError

LOG: Final = "_spark_metadata"
VERSION_LINE: Final = "v1"
COMPACT: Final = ".compact"


def committed_files(table: Path) -> list[Path]:
    """The Parquet files of finished batches, in the order of the batches; empty where there is none yet.

    Raises StorageError where the log is not what Spark writes.
    """
    log = table / LOG
    batches: dict[int, Path] = {}
    start = -1
    for entry in sorted(log.iterdir()) if log.is_dir() else []:
        number = entry.name.removesuffix(COMPACT)
        if not number.isdigit():
            continue
        if entry.name.endswith(COMPACT):
            start = max(start, int(number))
            batches[int(number)] = entry
        else:
            batches.setdefault(int(number), entry)
    files: list[Path] = []
    for batch in sorted(batch for batch in batches if batch >= start):
        version, *lines = batches[batch].read_text(encoding="utf-8").splitlines()
        if version != VERSION_LINE:
            raise StorageError(f"{batches[batch]}: invalid version {version!r}; expected {VERSION_LINE!r}")
        for line in lines:
            record = json.loads(line)
            if record["action"] == "add":
                # Spark moves a table by its name in the path; ours lies where `table` says.
                files.append(table / _relative(record["path"], table))
    return files


def _relative(path: str, table: Path) -> Path:
    """The path below the table's directory, partition directories included."""
    parts = Path(unquote(urlsplit(path).path)).parts
    for index in range(len(parts) - 1, 0, -1):
        if parts[index - 1] == table.name:
            return Path(*parts[index:])
    return Path(parts[-1])


def read_columns(table: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """These columns of all rows, as Python values, by ascending sequence (`sequence` is always among
    them).
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    wanted = list(dict.fromkeys(["sequence", *columns]))
    parts = [parquet.ParquetFile(file).read(columns=wanted) for file in committed_files(table)]
    if not parts:
        return {column: [] for column in wanted}
    rows = pa.concat_tables(parts).sort_by("sequence")
    return {column: rows.column(column).to_pylist() for column in wanted}
