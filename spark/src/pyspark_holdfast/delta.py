"""The Spark sink `holdfast-delta`: rows into a Delta table, each batch once whatever is computed again (ADR 0111).

Rules of this file: a task writes a Parquet file of a name that nobody else has, and the driver adds the files of all
tasks by one commit of the table's log, which holds the batch's number under the query's id. A batch whose number is
there is not added again. What a commit needs is on disk before it, and the commit before Spark takes the batch for
done. deltalake is imported where it is needed.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from holdfast.durable import sync_directories, sync_file
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.checkpoint import query_id, sync_plan
from pyspark_holdfast.delta_options import DeltaOptions, delta_schema, parse_delta_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FORMAT: Final = "holdfast-delta"
LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
WRITER_VERSION_MAX: Final = 2
"""Of a table's protocol: later ones may have conditions on rows, or other names of columns in files."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
GROUP_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of rows that a task gathers for a group of its file."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The file of a task, below the table. `name` is None where it had no rows."""

    name: str | None = None
    size: int = 0
    rows: int = 0


class DeltaDataSource(DataSource):
    """The format of `writeStream` and `write`; `start_session` registers it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return DeltaStreamWriter(schema, self.options, overwrite=overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DeltaWriter(schema, self.options, overwrite=overwrite)


class _Writing:
    """Made on the driver, which makes the table where it is missing; copies of it write in the workers."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("invalid mode overwrite; expected append: a table's rows stay")
        self._options = parse_delta_options(options)
        self._schema = delta_schema(schema)
        opened(self._options, self._schema)

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        return write_file(self._options, iterator)


class DeltaStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes one batch of a query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch's files are the table's from here on, unless an earlier attempt's are."""
        checkpoint = self._options.checkpoint
        if checkpoint is None:
            raise ConfigError("option 'checkpointLocation' is missing; expected it among the writer's options")
        # A batch that is planned anew under a number that the table has would be left out.
        sync_plan(checkpoint, batchId)
        add_files(self._options, self._schema, _of(messages), (f"spark-{query_id(checkpoint)}", batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Files that no commit names are none of the table's; VACUUM deletes them."""


class DeltaWriter(_Writing, DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        add_files(self._options, self._schema, _of(messages), None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """As of a stream."""


def _of(messages: list[WriterCommitMessage | None]) -> list[Written]:
    return [one for one in messages if isinstance(one, Written)]


def opened(options: DeltaOptions, schema: str) -> Any:
    """The table, made where there is none. Raises HoldfastError; ConfigError where rows of `schema`, Delta's JSON,
    cannot be added to it."""
    delta = _deltalake()
    try:
        wanted = delta.Schema.from_json(schema)
        if not delta.DeltaTable.is_deltatable(options.uri, options.storage):
            if options.path is not None:
                options.path.mkdir(parents=True, exist_ok=True)
            delta.DeltaTable.create(options.uri, wanted, mode="ignore", storage_options=options.storage)
            _sync_log(options)
        table = delta.DeltaTable(options.uri, storage_options=options.storage)
        _check(options, table, wanted)
    except (OSError, delta.exceptions.DeltaError) as error:
        raise _told(options, error) from None
    return table


def reach_delta(options: DeltaOptions) -> None:
    """Returns once the table's directory or object store has answered. Raises HoldfastError."""
    delta = _deltalake()
    try:
        delta.DeltaTable.is_deltatable(options.uri, options.storage)
    except (OSError, delta.exceptions.DeltaError) as error:
        raise _told(options, error) from None


def _check(options: DeltaOptions, table: Any, wanted: Any) -> None:
    where = f"Delta table {options.uri}"
    there = {field.name: field for field in table.schema().fields}
    if table.metadata().partition_columns:
        columns = ", ".join(table.metadata().partition_columns)
        raise ConfigError(f"{where} is partitioned by {columns}; expected a table without partitions")
    if table.protocol().min_writer_version > WRITER_VERSION_MAX:
        raise ConfigError(
            f"{where} asks for writer version {table.protocol().min_writer_version} of Delta's protocol; expected at "
            f"most {WRITER_VERSION_MAX}"
        )
    for field in wanted.fields:
        own = there.get(field.name)
        if own is None:
            raise ConfigError(f"{where} has no column {field.name!r}; expected some of {', '.join(there)}")
        if own.type != field.type:
            raise ConfigError(f"{where}: column {field.name!r} is {own.type}, and the rows have {field.type}; cast it")
    for name, own in there.items():
        if not own.nullable or own.metadata:
            raise ConfigError(f"{where}: column {name!r} has a condition; expected columns that take any value")


def write_file(options: DeltaOptions, batches: Iterator["RecordBatch"]) -> Written:
    """In a worker: the rows as one file, on disk. Raises HoldfastError, in one line."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    name, rows, writer = f"part-{uuid.uuid4()}.parquet", 0, None
    try:
        for table in _groups(batches):
            if writer is None:
                # Delta's columns take nulls; what Spark knows of a query's rows is no promise of the table's.
                schema = pa.schema([field.with_nullable(True) for field in table.schema])
                place, files = _place(options, name)
                writer = parquet.ParquetWriter(place, schema, filesystem=files)
            writer.write_table(table.cast(schema))
            rows += table.num_rows
        if writer is None:
            return Written()
        writer.close()
        if options.path is None:
            return Written(name, files.get_file_info(name).size, rows)
        sync_file(options.path / name)
        sync_directories(options.path, 1)
        return Written(name, (options.path / name).stat().st_size, rows)
    except OSError as error:
        raise _told(options, error) from None


def _groups(batches: Iterator["RecordBatch"]) -> Iterator[Any]:
    """The rows as tables of some size, none of them empty."""
    import pyarrow as pa

    held: list[RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GROUP_BYTES_MAX:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _place(options: DeltaOptions, name: str) -> tuple[str, Any]:
    """Where a file of the table is, and pyarrow's file system for it; None for that of this machine."""
    if options.path is not None:
        return str(options.path / name), None
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return name, PyFileSystem(DeltaStorageHandler(options.uri, options.storage))


def add_files(options: DeltaOptions, schema: str, files: list[Written], batch: tuple[str, int] | None) -> bool:
    """Adds the files by one commit, on disk when it returns; `batch`: the query's id and the batch's number, whose
    files are added once. Returns whether they were added now. Raises HoldfastError."""
    delta = _deltalake()
    from deltalake.transaction import AddAction

    table = opened(options, schema)
    try:
        if batch is not None and _has(options, table, *batch):
            _sync_log(options)  # whoever added them may have died before
            return False
        before = table.version()
        now_ms = int(time.time() * 1000)
        actions = [
            AddAction(file.name, file.size, {}, now_ms, True, json.dumps({"numRecords": file.rows}))
            for file in files
            if file.name is not None
        ]
        transactions = (
            None if batch is None else [delta.Transaction(name, batch[1]) for name in _names(options, batch[0])]
        )
        table.create_write_transaction(
            actions,
            "append",
            delta.Schema.from_json(schema),
            commit_properties=delta.CommitProperties(app_transactions=transactions),
        )
        _sync_log(options, before + 1)
    except (OSError, delta.exceptions.DeltaError) as error:
        raise _told(options, error) from None
    return True


def _names(options: DeltaOptions, query: str) -> list[str]:
    """What the table knows the query by: its id, and the name that it was given."""
    return [query] if options.query is None else [query, options.query]


def _has(options: DeltaOptions, table: Any, query: str, batch: int) -> bool:
    """Whether the batch is there. A query computes its last batch again and no other, and an id is that of one
    checkpoint: what is there otherwise is another's. Raises ConfigError: the batch would be left out for good."""
    if table.transaction_version(query) == batch:
        return True
    for name in _names(options, query):
        newest = table.transaction_version(name)
        if newest is not None and newest >= batch:
            raise ConfigError(
                f"Delta table {options.uri} has batch {newest} of {name!r}, and the checkpoint gives {batch} next: it "
                "is an older copy, or another query uses the name; use a new checkpoint, and another 'txnAppId' if "
                "you name one"
            )
    return False


def _sync_log(options: DeltaOptions, since: int = 0) -> None:
    """The commits of a table on this machine from version `since` on, with what comes beside them, on disk: ours may be
    any of them. An object store has it there once it has answered."""
    if options.path is None:
        return
    log = options.path / LOG
    for file in sorted(log.iterdir()):
        number = file.name.partition(".")[0]
        if file.name == LAST_CHECKPOINT or (number.isdecimal() and int(number) >= since):
            sync_file(file)
    sync_directories(log, 3)


def _deltalake() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise ConfigError("the Delta sink needs deltalake; run: pip install 'deltalake<2'") from None
    return deltalake


def _told(options: DeltaOptions, error: Exception) -> HoldfastError:
    """What delta-rs says, in a line and without its colours."""
    return HoldfastError(f"Delta table {options.uri}: {' '.join(_COLOUR.sub('', str(error)).split())}")
