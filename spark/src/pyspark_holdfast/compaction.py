"""Small files of a table put together (docs/spark.md, "Small files"; ADR 0088).

Rules of this file: the table's log decides what is in it, so one rename changes files for files that have the same
rows. Before that the new files are on disk, and a record names them and those that they replace. A file that a record
names is deleted once it is in no log, and not before readers that began earlier have had time to end. So a query may
go on meanwhile: if Spark writes its log again with the old files, nothing is lost, and the new ones go.
"""

import fcntl
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.durable import sync_file, whole_file
from holdfast.errors import ConfigError, StorageError
from holdfast.units import MIB
from pyspark_holdfast.checkpoint import SinkLog
from pyspark_holdfast.parquet_files import int96_columns, opened

RECORDS: Final = "_holdfast_compacted"
"""The directory inside a table where records are."""
FILE_BYTES: Final = 128 * MIB
KEEP_S: Final = 7 * 86_400.0
ROW_META: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Where a file says the types that Spark knows."""


class Compacted(NamedTuple):
    """What came of it: files of the log's put-together part before and after, and old ones that were deleted."""

    files_before: int
    files_after: int
    rows: int
    deleted: int


@dataclass(slots=True)
class _Group:
    """Files of one directory and schema that become one; as the log has them."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0


def compact(out: Path, *, file_bytes: int = FILE_BYTES, keep_s: float = KEEP_S) -> Compacted:
    """Makes files of about `file_bytes` out of smaller ones, of all batches up to the last that Spark's log has put
    together, and deletes what was replaced `keep_s` ago. Raises ConfigError, or StorageError."""
    from pyarrow import ArrowException

    sink = SinkLog(out)
    if not sink.batches():
        raise ConfigError(f"table {out} has no batch in its log; give a directory that a query wrote")
    try:
        with _alone(out):
            deleted = _delete_replaced(out, sink, keep_s)
            logs = [log for log in sink.batches().values() if log.suffix]
            if not logs:
                return Compacted(0, 0, 0, deleted)
            before = sink.lines_of(logs[-1])
            after, rows = _replaced(out, logs[-1], before, file_bytes)
            return Compacted(len(before), len(after), rows, deleted)
    except (OSError, ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"table {out} cannot be compacted ({reason})") from error


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """One at a time, on this machine."""
    directory = out / RECORDS
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"table {out} is being compacted by another command; wait until it has ended") from None
        yield


def _replaced(out: Path, log: Path, before: list[dict[str, Any]], file_bytes: int) -> tuple[list[dict[str, Any]], int]:
    """The log's lines with new files in place of groups of small ones, and how many rows those have."""
    groups = _groups(before, file_bytes)
    news = [_new_entry(group) for group in groups]
    if all(entry is group.entries[0] for entry, group in zip(news, groups, strict=True)):
        return before, 0
    old = [entry["path"] for entry, group in zip(news, groups, strict=True) if len(group.entries) > 1
           for entry in group.entries]  # fmt: skip
    new = [entry["path"] for entry, group in zip(news, groups, strict=True) if len(group.entries) > 1]
    _write(out / RECORDS / f"{uuid.uuid4()}.json", json.dumps({"at": time.time(), "files": old + new}))
    rows = 0
    for entry, group in zip(news, groups, strict=True):
        if len(group.entries) > 1:
            rows += _merge(group, entry)
    # A checksum that Hadoop keeps beside the old file would refuse the new one.
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    sync_file(log.parent)
    _write(log, "\n".join(["v1", *(json.dumps(entry, separators=(",", ":")) for entry in news)]))
    return news, rows


def _groups(entries: list[dict[str, Any]], file_bytes: int) -> list[_Group]:
    """All entries, those that become one file together."""
    groups: list[_Group] = []
    growing: dict[tuple[Path, Any], _Group] = {}
    for entry in entries:
        group = _Group([entry], entry["size"])
        file = SinkLog.path_of(entry["path"])
        if entry["size"] < file_bytes:
            key = file.parent, _kind(file)
            last = growing.get(key)
            if last is not None and last.size + entry["size"] <= file_bytes:
                last.entries.append(entry)
                last.size += entry["size"]
                continue
            growing[key] = group
        groups.append(group)
    return groups


def _kind(file: Path) -> Any:
    """What files must have in common to become one. Raises ConfigError where pyarrow would change a type."""
    with opened(file) as source:
        told = (source.schema_arrow.metadata or {}).get(ROW_META, b"")
        int96 = bool(int96_columns(source))
        if b'"variant"' in told or (int96 and b'"timestamp_ntz"' in told):
            raise ConfigError(f"{file} has columns of type variant or timestamp_ntz, which compaction cannot keep")
        return int96, told or source.schema_arrow.to_string(show_field_metadata=False, show_schema_metadata=False)


def _new_entry(group: _Group) -> dict[str, Any]:
    """The line of the file that the group becomes; of one file it stays."""
    first = group.entries[0]
    if len(group.entries) == 1:
        return first
    directory = first["path"].rpartition("/")[0]
    return {**first, "path": f"{directory}/part-holdfast-{uuid.uuid4()}.snappy.parquet"}


def _merge(group: _Group, entry: dict[str, Any]) -> int:
    """Writes the new file, on disk when this returns, and completes its line; returns its rows."""
    from pyarrow.parquet import ParquetWriter

    new, writer, rows = SinkLog.path_of(entry["path"]), None, 0
    try:
        for one in group.entries:
            with opened(SinkLog.path_of(one["path"])) as source:
                if writer is None:
                    writer = ParquetWriter(
                        str(new), source.schema_arrow, use_deprecated_int96_timestamps=bool(int96_columns(source)),
                        store_schema=False,
                    )  # fmt: skip
                    writer.add_key_value_metadata(source.schema_arrow.metadata or {})
                for number in range(source.num_row_groups):
                    rows += source.metadata.row_group(number).num_rows
                    # Arrow's and Spark's names inside maps and lists differ.
                    writer.write_table(source.read_row_group(number).cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()
    with opened(new) as written:
        assert written.metadata.num_rows == rows, "a compacted file has other rows"
    sync_file(new)
    sync_file(new.parent)
    found = new.stat()
    entry |= {"size": found.st_size, "modificationTime": found.st_mtime_ns // 1_000_000}
    return rows


def _delete_replaced(out: Path, sink: SinkLog, keep_s: float) -> int:
    """Deletes what records name that are that old, but for what the log has."""
    there = set(sink.files())
    deleted = 0
    for record in sorted((out / RECORDS).glob("*.json")):
        try:
            told = json.loads(record.read_text(encoding="utf-8"))
            at, paths = float(told["at"]), [SinkLog.path_of(str(path)) for path in told["files"]]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{record} cannot be read; delete it: the files that it names will stay") from None
        if time.time() - at < keep_s:
            continue
        for file in paths:
            if file not in there:
                deleted += file.exists()
                file.unlink(missing_ok=True)
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        record.unlink()  # what the log has still is in the record of the compaction that replaces it
    return deleted


def _write(file: Path, text: str) -> None:
    """Whole or not at all, and on disk with its name."""
    with whole_file(file) as out:
        out.write(text.encode())
    sync_file(file.parent)
