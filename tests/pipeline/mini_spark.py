"""The order of Spark's micro-batches, without Spark: a driver that may die between any two steps.

Rules of this file: writes a checkpoint and a sink's log as Spark does (docs/spark.md, "What the source relies on");
the sink keeps a batch once, by its number. One `Run` is one process of the driver: a fresh reader, and death is an
exception raised at a step of the test's choice.
"""

import json
import uuid
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.types import StructType

from pipeline.fake_bus import FakeDataSource
from pyspark_holdfast.checkpoint import batches_in
from pyspark_holdfast.stream import HoldfastStreamReader


class Died(Exception):
    """The driver was killed."""


class MiniSpark:
    """A query: its directories live on while runs come and go."""

    def __init__(self, root: Path, queue: Path, rows_max: int, at_step: Callable[[str], None]) -> None:
        self.checkpoint = root / "checkpoint"
        self.out = root / "out"
        self.at_step = at_step
        for directory in (self.checkpoint / "offsets", self.checkpoint / "commits", self.out / "_spark_metadata"):
            directory.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text("{}")
        self.options = {
            "url": "amqp://fake:1",
            "address": str(queue),
            "subscription": "s",
            "checkpoint": str(self.checkpoint),
            "sinkpath": str(self.out),
            "maxrowspertrigger": str(rows_max),
            "rowsperpartition": "3",
        }

    def reader(self) -> HoldfastStreamReader:
        reader = FakeDataSource(self.options).streamReader(StructType())
        assert isinstance(reader, HoldfastStreamReader)
        return reader

    def row(self, row: dict[str, object]) -> object:
        """What the sink keeps of a row."""
        return row["sequence"]

    def _write(self, path: Path, *lines: str) -> None:
        part = path.with_name(f".{path.name}.tmp")
        part.write_text("\n".join(lines))
        part.rename(path)

    def _end_of(self, batch: int) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
        return found

    def run(self, *, available_now: bool = True) -> None:
        """Batches until nothing is left. Raises what the source raises, and `Died` where `at_step` says so."""
        reader = self.reader()
        try:
            self._run(reader, available_now)
        finally:
            reader.stop()

    def _run(self, reader: HoldfastStreamReader, available_now: bool) -> None:
        if available_now:
            reader.prepareForTriggerAvailableNow()
        planned = batches_in(self.checkpoint / "offsets")
        done = batches_in(self.checkpoint / "commits")
        batch = planned[-1] if planned else -1
        if batch >= 0 and batch not in done:
            start = self._end_of(batch - 1) if batch > 0 else reader.initialOffset()
            self._execute(reader, batch, start, self._end_of(batch))
        while True:
            start = self._end_of(batch) if batch >= 0 else reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return
            batch += 1
            self.at_step("before offsets")
            self._write(self.checkpoint / "offsets" / str(batch), "v1", "{}", json.dumps(end))
            self.at_step("offsets")
            if batch > 0:
                reader.commit(start)
            self._execute(reader, batch, start, end)

    def _execute(
        self, reader: HoldfastStreamReader, batch: int, start: dict[str, object], end: dict[str, object]
    ) -> None:
        files = []
        for number, partition in enumerate(reader.partitions(start, end)):
            self.at_step("read")
            rows = [self.row(row) for rows in reader.read(partition) for row in rows.to_pylist()]
            path = self.out / f"part-{batch}-{number}-{uuid.uuid4()}.json"  # as Spark's: a replay writes others
            path.write_text(json.dumps(rows))
            files.append(path)
        self.at_step("written")
        log = self.out / "_spark_metadata" / str(batch)
        if not log.exists():
            told = [{"path": path.as_uri(), "size": path.stat().st_size, "action": "add"} for path in files]
            lines = [json.dumps(line) for line in told]
            self._write(log, "v1", *lines)
        self.at_step("sink")
        self._write(self.checkpoint / "commits" / str(batch), "v1", "{}")
        self.at_step("commits")
