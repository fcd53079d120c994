"""The Spark sink `holdfast`: rows as messages, each stored once whatever is computed again (docs/spark.md, ADR 0080).

Rules of this file: Spark's side alone. Spark makes a writer for each batch, on the driver, and again to commit it;
copies of it write in the workers. So what is decided here is read from the checkpoint, and the same each time.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from holdfast.errors import ConfigError
from pyspark_holdfast.outgoing import check_columns
from pyspark_holdfast.sink_options import SinkOptions
from pyspark_holdfast.sink_state import Plan, Sent, SinkState

if TYPE_CHECKING:
    from pyarrow import RecordBatch

BATCH_ID: Final = "streaming.sql.batchId"
"""The property of a task that has the number of its batch."""


@dataclass(frozen=True)
class TaskDone(WriterCommitMessage):
    """What one task has sent."""

    partition: int
    rows: dict[str, int] = field(default_factory=dict)


def check_rows(schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
    """Raises ConfigError where no messages can be made of such rows, or they have no address."""
    if overwrite:
        raise ConfigError("invalid mode overwrite; expected append: a queue's messages stay")
    check_columns(schema)
    if options.address is None and "address" not in schema.names:
        raise ConfigError("option 'address' is missing, and there is no column 'address'; give one of them")


class HoldfastStreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch of a query."""

    def __init__(self, schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
        check_rows(schema, options, overwrite=overwrite)
        if options.checkpoint is None:
            raise ConfigError("option 'checkpointLocation' is missing; expected it among the writer's options")
        self._options = options
        self._plan = _planned(options, SinkState(options.checkpoint, options.producer))

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """In a worker: sends the rows of one partition."""
        from pyspark_holdfast.sending import send_partition

        context, plan = TaskContext.get(), self._plan
        assert context is not None
        batch = context.getLocalProperty(BATCH_ID)
        if batch != str(plan.batch):
            raise ConfigError(
                f"the checkpoint has planned batch {plan.batch}, and Spark writes batch {batch}: only micro-batches "
                "can be written, and without asynchronous progress tracking"
            )
        partition = context.partitionId()
        first = {address: of[partition] for address, of in plan.numbers.items() if partition in of}
        knows = not plan.fresh
        return TaskDone(
            partition, send_partition(self._options, plan.producer, partition, first, iterator, knows=knows)
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks have sent their rows: the next batch's numbers begin behind them."""
        if batchId != self._plan.batch:
            raise ConfigError(f"batch {batchId} ends, and the checkpoint has planned batch {self._plan.batch} last")
        assert self._options.checkpoint is not None
        state = SinkState(self._options.checkpoint, self._options.producer)
        state.end(self._plan, [Sent(done.partition, done.rows) for done in messages if isinstance(done, TaskDone)])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was sent stays, and is not sent again when the batch is computed again."""


def _planned(options: SinkOptions, state: SinkState) -> Plan:
    plan = state.plan()
    if plan.fresh:
        from pyspark_holdfast.sending import check_numbers

        check_numbers(options, plan.producer, plan.numbers)
        state.begin(plan.batch)
    return plan


class HoldfastWriter(DataSourceArrowWriter):
    """Writes a DataFrame once: `df.write`."""

    def __init__(self, schema: StructType, options: SinkOptions, *, overwrite: bool) -> None:
        check_rows(schema, options, overwrite=overwrite)
        self._options = options
        self._producer = options.producer or f"spark-{uuid.uuid4()}"

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """In a worker: sends the rows of one partition."""
        from pyspark_holdfast.sending import send_partition

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        return TaskDone(partition, send_partition(self._options, self._producer, partition, {}, iterator, knows=False))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every row is stored by now."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was sent stays."""
