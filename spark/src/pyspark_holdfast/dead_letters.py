"""The dead-letter table: messages that cannot be told as rows, each in a Parquet file of its own.

Rules of this file: a file's name is the entry's place in its queue, so that a range that is read again writes nothing
twice. It is on disk, whole and under its name, before the task that read the message ends: only then may the query's
checkpoint prove the batch, and the node let the message go.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.durable import sync_directories, whole_file
from holdfast.errors import StorageError
from pyspark_holdfast.bus import LARGE_BYTES, Entry

COLUMNS: Final = "address string, queue_uuid string, sequence bigint, enqueued timestamp, reason string, payload binary"
"""The table's schema in Spark's own words. `payload` is the whole message, as it came; null of one that is in a file of
its own."""
PAYLOAD_BYTES_MAX: Final = LARGE_BYTES
"""A larger message is a file, whose name Spark passes over: it was never in memory as a whole."""


class DeadLetterTable:
    """Those of one queue, in the directory `path`; `spark.read.parquet` reads it."""

    def __init__(self, path: Path, address: str, queue_uuid: str) -> None:
        self._path = path
        self._address = address
        self._queue_uuid = queue_uuid
        self._has_synced_names = False

    def put(self, entry: Entry, payload: bytes | Iterator[bytes], reason: str) -> None:
        """Writes and syncs it; one that is there stays as it is. Raises StorageError, and what `payload` raises."""
        file = self._path / f"{self._queue_uuid}-{entry.sequence}.parquet"
        try:
            if not file.exists():
                self._path.mkdir(parents=True, exist_ok=True)
                told = payload if isinstance(payload, bytes) and len(payload) <= PAYLOAD_BYTES_MAX else None
                if told is None:
                    whole = self._path / f"_{file.stem}.message"
                    with whole_file(whole) as out:
                        out.writelines([payload] if isinstance(payload, bytes) else payload)
                    reason = f"{reason}; the message is the file {whole.name}"
                with whole_file(file) as out:
                    self._write(out, entry, told, reason)
            # The names too, of all directories that may be new: whoever wrote them may have died before.
            sync_directories(self._path, 1 if self._has_synced_names else None)
            self._has_synced_names = True
        except OSError as error:
            raise StorageError(
                f"dead-letter table {self._path}: sequence {entry.sequence} of queue {self._address!r} cannot be "
                f"written ({error.strerror or error})"
            ) from error

    def _write(self, out: BinaryIO, entry: Entry, payload: bytes | None, reason: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        enqueued = None if entry.enqueued_ms is None else entry.enqueued_ms * 1000
        row = {
            "address": pa.array([self._address], pa.string()),
            "queue_uuid": pa.array([self._queue_uuid], pa.string()),
            "sequence": pa.array([entry.sequence], pa.int64()),
            "enqueued": pa.array([enqueued], pa.timestamp("us", tz="UTC")),
            "reason": pa.array([reason], pa.string()),
            "payload": pa.array([payload], pa.binary()),
        }
        parquet.write_table(pa.table(row), out)
