"""What the sink keeps in a query's checkpoint: where the numbers of each batch begin (docs/spark.md, "Writing").

Rules of this file: `holdfast-sink/N` says which number each producer gives next once batch N is sent; it is written
when all tasks of N have ended, before Spark writes `commits/N`. `holdfast-sink/N.begun` says that rows of N may have
been sent; it is written before any is. Both are on disk when the call returns. What Spark writes is read alone.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.durable import sync_file, whole_file
from holdfast.errors import ConfigError, StorageError
from pyspark_holdfast.checkpoint import batches_in, query_id, sync_plan

DIRECTORY: Final = "holdfast-sink"
ID_CHARS: Final = 8
"""Of the query's id, which follow a name that the user gave: a new checkpoint, or another query of the name, would have
its rows dropped for those that the node knows by their numbers."""
KEPT: Final = 2
"""Files of so many batches are kept: the newest, which may be sent again, and where its numbers begin."""

Numbers = dict[str, dict[int, int]]
"""The number that comes next, by address and partition; 1 of those that are not there. The addresses that were used
last come last."""


class Sent(NamedTuple):
    """What one task has sent: how many rows to each address."""

    partition: int
    rows: dict[str, int]


class Plan(NamedTuple):
    """How a batch is sent. `fresh`: no row of it can have been sent before."""

    batch: int
    producer: str
    numbers: Numbers
    fresh: bool


class SinkState:
    """Of the query whose checkpointLocation is `checkpoint`."""

    def __init__(self, checkpoint: Path, producer: str | None) -> None:
        self._checkpoint = checkpoint
        self._directory = checkpoint / DIRECTORY
        self._producer = producer

    def plan(self) -> Plan:
        """The batch that Spark has planned last. Raises ConfigError where the checkpoint is not one of this sink."""
        planned = batches_in(self._checkpoint / "offsets")
        if not planned:
            raise ConfigError(
                f"checkpoint {self._checkpoint} has no planned batch: set checkpointLocation as an option of the "
                "writer, and leave asynchronous progress tracking off"
            )
        batch = planned[-1]
        query = query_id(self._checkpoint)
        producer = f"{self._producer}-{query[:ID_CHARS]}" if self._producer else f"spark-{query}"
        numbers: Numbers = {}
        if batch > 0:
            before = self._read(batch - 1)
            if before is None:
                raise ConfigError(
                    f"checkpoint {self._checkpoint}: batch {batch - 1} was not written by this sink, or its file in "
                    f"{DIRECTORY} is gone; use a new checkpoint"
                )
            was, numbers = before
            if was not in (producer, self._producer):  # or in an earlier version, which had the name alone
                raise ConfigError(
                    f"option 'producer': checkpoint {self._checkpoint} was written as {was!r}, and this is "
                    f"{producer!r}; give the same, or a new checkpoint"
                )
            producer = was
        return Plan(batch, producer, numbers, not self._begun(batch).exists())

    def begin(self, batch: int) -> None:
        """From now on rows of `batch` may have been sent. Raises StorageError."""
        # One that is planned anew after a power loss may have other rows, and would have the same numbers.
        sync_plan(self._checkpoint, batch)
        self._write(self._begun(batch), {"batch": batch})

    def end(self, plan: Plan, sent: Iterable[Sent]) -> None:
        """All rows of the batch are sent. Again is no error, with as many rows of each partition; ConfigError with
        others, which the node has twice. Raises StorageError."""
        numbers = {address: dict(of) for address, of in plan.numbers.items()}
        for partition, rows in sent:
            for address, count in rows.items():
                of = numbers[address] = numbers.pop(address, {})  # what was used last comes last
                of[partition] = of.get(partition, 1) + count
        if self._read(plan.batch) not in (None, (plan.producer, numbers)):
            raise ConfigError(
                f"checkpoint {self._checkpoint}: batch {plan.batch} was computed again with other rows in its "
                "partitions, so that some were sent twice; rows must be in the same partitions each time"
            )
        self._write(self._directory / str(plan.batch), {"producer": plan.producer, "next": numbers})
        for batch in batches_in(self._directory):
            if batch <= plan.batch - KEPT:
                (self._directory / str(batch)).unlink(missing_ok=True)
                self._begun(batch).unlink(missing_ok=True)

    def _begun(self, batch: int) -> Path:
        return self._directory / f"{batch}.begun"

    def _read(self, batch: int) -> tuple[str, Numbers] | None:
        file = self._directory / str(batch)
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            numbers = {
                str(address): {int(partition): int(number) for partition, number in of.items()}
                for address, of in told["next"].items()
            }
            return str(told["producer"]), numbers
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{file} cannot be read ({error}); use a new checkpoint") from None

    def _write(self, file: Path, told: dict[str, Any]) -> None:
        """Whole or not at all."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with whole_file(file) as out:
                out.write(json.dumps(told).encode())
            sync_file(self._directory)
            sync_file(self._checkpoint)
        except OSError as error:
            raise StorageError(f"{file} cannot be written ({error.strerror or error})") from error
