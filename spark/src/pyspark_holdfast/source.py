"""The Spark source `holdfast`: a named subscription read by sequence, exactly once (docs/spark.md, ADR 0007).

Rules of this file: a batch is a range of sequences and nothing else, so that Spark may plan and read it any
number of times. Reading acknowledges nothing. The node is told to let entries go only for what the query's
checkpoint proves, after that proof is on disk. No sockets or locks before first use: readers are pickled.
Imports that the workers need are inside `read`, and the sink's where it is asked for: Spark gives a worker 10 s to
start.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.errors import ConfigError
from pyspark_holdfast.bus import Bus, Lease, Position, QueueMadeAnew
from pyspark_holdfast.checkpoint import Checkpoint, Offset, SinkLog, offset_of
from pyspark_holdfast.columns import COLUMNS
from pyspark_holdfast.options import SourceOptions, parse_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 512
"""Tasks of one batch; beyond it each reads more sequences than `rowsPerPartition` says."""


@dataclass(frozen=True)
class SequenceRange(InputPartition):
    """The entries [`start`, `end`) of the queue `queue_uuid`; `lease` is shown to the node, None for a read without
    subscription.
    """

    start: int
    end: int
    lease: Lease | None
    queue_uuid: str

    def __repr__(self) -> str:
        return f"SequenceRange({self.start}, {self.end})"


def split(start: int, end: int, rows: int) -> list[tuple[int, int]]:
    """[`start`, `end`) in pieces of `rows` sequences, more where that would be over PARTITIONS_MAX pieces."""
    step = max(rows, -(-(end - start) // PARTITIONS_MAX), 1)
    return [(first, min(first + step, end)) for first in range(start, end, step)]


class HoldfastDataSource(DataSource):
    """The source and sink `holdfast` of Spark: the format of `readStream`, `read`, `writeStream` and `write`.

    `spark.dataSource.register(HoldfastDataSource)` makes it known to a session; `start_session` has done that.
    """

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        return COLUMNS

    def bus(self, options: SourceOptions) -> Bus:
        """The way to the node, for one process; called where it is first needed."""
        from pyspark_holdfast.node_bus import NodeBus

        return NodeBus(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HoldfastStreamReader(self, self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return HoldfastBatchReader(self, self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_holdfast.sink import HoldfastStreamWriter
        from pyspark_holdfast.sink_options import parse_sink_options

        return HoldfastStreamWriter(schema, parse_sink_options(self.options), overwrite=overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_holdfast.sink import HoldfastWriter
        from pyspark_holdfast.sink_options import parse_sink_options

        return HoldfastWriter(schema, parse_sink_options(self.options), overwrite=overwrite)


class _Reader:
    """What both readers share: the options, and the bus of this process."""

    def __init__(self, source: HoldfastDataSource, options: Mapping[str, str]) -> None:
        self._source = source
        self.options = parse_options(options)
        self._bus: Bus | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bus": None}

    def bus(self) -> Bus:
        if self._bus is None:
            self._bus = self._source.bus(self.options)
        return self._bus

    def close(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()

    def rows(self, partition: SequenceRange) -> Iterator["RecordBatch"]:
        """Runs in a worker, with a connection of its own that ends with the range."""
        from pyspark_holdfast.dead_letters import DeadLetterTable
        from pyspark_holdfast.rows import Unreadable, batches

        options = self.options
        table = None
        if options.dead_letter_path is not None:
            table = DeadLetterTable(options.dead_letter_path, options.address, partition.queue_uuid)
        unreadable = Unreadable(options.on_unreadable, table)
        bus = self._source.bus(self.options)
        try:
            # A task may end before its range does (limit): the link goes before its connection.
            with closing(bus.entries(partition.start, partition.end, partition.lease)) as entries:
                yield from batches(options.address, entries, options.rows_per_batch, unreadable)
        finally:
            bus.close()


class HoldfastStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader: one object in one process plans a run of a query; copies of it read in the
    workers.
    """

    def __init__(self, source: HoldfastDataSource, options: Mapping[str, str]) -> None:
        super().__init__(source, options)
        if self.options.subscription is None:
            raise ConfigError("option 'subscription' is missing; expected the name of this query's place")
        if self.options.checkpoint is None:
            raise ConfigError("option 'checkpoint' is missing; expected the same path as checkpointLocation")
        sink = SinkLog(self.options.sink_path) if self.options.sink_path is not None else None
        self._subscription = self.options.subscription
        self._checkpoint = Checkpoint(self.options.checkpoint, self._subscription, sink)
        self._place: Position | None = None
        self._advanced = 0
        self._target: int | None = None
        self._begun = False
        self._warned: set[str] = set()

    # ----------------------------------------------------------------------------------------------- planning

    def initialOffset(self) -> dict[str, Any]:
        """The subscription's place: it stays the same until the first batch is proven."""
        place = self._opened()
        return self._offset(place.advanced).json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; moves nothing but what the checkpoint proves."""
        self._release()
        first = self._checked(start).seq
        rows_max: int | None = self.options.rows_max
        bytes_max: int | None = self.options.bytes_aim
        if isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            rows_max = bytes_max = None
        end = self.bus().peek(self._lease(), first, rows_max, bytes_max)
        if self._target is not None:
            end = min(end, self._target)
        return self._offset(max(first, end)).json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.rows_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Only for Spark's own progress report, where it shows how far behind the query is."""
        return self._offset(self._target if self._target is not None else self.bus().place().tail).json()

    def prepareForTriggerAvailableNow(self) -> None:
        """What lies in the queue now is what this run reads; what comes later waits for the next run."""
        self._opened()
        self._target = self.bus().place().tail

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Ranges that depend on `start` and `end` alone: after a crash the same batch is the same ranges."""
        first, last = self._checked(start), offset_of(end)
        if last is None or not self._checkpoint.holds(last):
            at = end if last is None else last.seq
            raise ConfigError(
                f"option 'checkpoint': {self._checkpoint.path} does not hold the batch that ends at {at}; give "
                "this query's own checkpointLocation"
            )
        self._checked(end)
        lease = self._lease()
        if last.queue != lease.queue_uuid or last.seq <= first.seq:  # gone, and the query is to go on all the same
            return [SequenceRange(first.seq, first.seq, lease, lease.queue_uuid)]
        return [
            SequenceRange(begin, stop, lease, lease.queue_uuid)
            for begin, stop in split(first.seq, last.seq, self.options.rows_per_partition)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """A chance to release; what may be released is read from the checkpoint, never taken from `end`."""
        self._release()

    def stop(self) -> None:
        """Closes the connection. Spark does not always call it: the next run fences this one."""
        self.close()

    # ------------------------------------------------------------------------------------------------ reading

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        assert isinstance(partition, SequenceRange)
        return self.rows(partition)

    # ---------------------------------------------------------------------------------------------- releasing

    def _release(self) -> None:
        """What the checkpoint has proven beyond the node's place: synced, then released."""
        place = self._opened()
        proven = self._checkpoint.proven()
        if proven is None:
            return
        if not self._is_of(proven.offset, place) or proven.offset.seq <= self._advanced:
            return
        self._checkpoint.make_durable(proven, self._advanced)
        self._advanced = self.bus().advance(self._lease(), proven.offset.seq)

    # ---------------------------------------------------------------------------------------------- the place

    def _opened(self) -> Position:
        """The lease, taken at the first call of a run: it fences the run before."""
        if self._place is None:
            options = self.options
            self._place = self.bus().open(options.starting_from, options.mode)
            self._advanced = self._place.advanced
            self._checkpoint.queue = self._place.queue_uuid
        return self._place

    def _lease(self) -> Lease:
        place = self._opened()
        return Lease(self._subscription, place.queue_uuid, place.lease_epoch)

    def _offset(self, sequence: int) -> Offset:
        return Offset(self._subscription, self._opened().queue_uuid, sequence)

    def _checked(self, value: dict[str, Any]) -> Offset:
        """The Offset in `value`. Raises ConfigError where checkpoint, subscription and queue do not belong together; of
        what is gone from the queue the end, where `failOnDataLoss` is false.
        """
        place = self._opened()
        offset = offset_of(value)
        if offset is None or offset.sub != self._subscription:
            raise ConfigError(
                f"checkpoint {self._checkpoint.path}: invalid place {value}; expected one of subscription "
                f"{self._subscription!r}"
            )
        if not self._is_of(offset, place):
            return self._offset(place.advanced)
        if offset.seq < place.advanced and not self.options.fail_on_data_loss:
            self._warn(f"what lay from {offset.seq} to {place.advanced - 1} may be gone")
            return self._offset(place.advanced)
        if offset.seq < place.advanced:
            raise ConfigError(
                f"checkpoint {self._checkpoint.path}: checkpoint older than the subscription: it is at "
                f"{offset.seq}, "
                f"{self._subscription!r} of queue {self.options.address!r} has advanced to "
                f"{place.advanced}, and what "
                "lies between may be gone; give the checkpoint that advanced it"
            )
        if not self._begun and offset.seq > place.tail:
            raise ConfigError(
                f"checkpoint {self._checkpoint.path}: it is at {offset.seq}, queue {self.options.address!r} ends at "
                f"{place.tail}: the node's store was put back to an older state; use a new checkpoint with a new "
                "output"
            )
        self._begun = True
        return offset

    def _is_of(self, offset: Offset, place: Position) -> bool:
        """Whether it is of this queue. Raises QueueMadeAnew where not, unless `failOnDataLoss` is false."""
        if offset.queue == place.queue_uuid:
            return True
        text = f"queue {self.options.address!r} was deleted and created again"
        if self.options.fail_on_data_loss:
            raise QueueMadeAnew(
                f"{text}: checkpoint {self._checkpoint.path} has read queue {offset.queue}, and now it is "
                f"{place.queue_uuid}; use a new checkpoint with a new output"
            )
        self._warn(text)
        return False

    def _warn(self, text: str) -> None:
        """Of data that is lost, once for each text."""
        if text not in self._warned:
            self._warned.add(text)
            log.warning(
                "subscription %r of queue %r: %s; the query goes on (failOnDataLoss is false)",
                self._subscription,
                self.options.address,
                text,
            )


class HoldfastBatchReader(_Reader, DataSourceReader):
    """What lies in the queue now, from the subscription's place if one is named; advances nothing."""

    def partitions(self) -> list[InputPartition]:
        try:
            place = self.bus().bounds() if self.options.subscription is None else self.bus().place()
        finally:
            self.close()
        lease = None
        if self.options.subscription is not None:
            lease = Lease(self.options.subscription, place.queue_uuid, place.lease_epoch)
        first = max(place.advanced, place.head)
        # Spark takes an empty list for one task that reads everything.
        ranges = split(first, place.tail, self.options.rows_per_partition) or [(first, first)]
        return [SequenceRange(start, end, lease, place.queue_uuid) for start, end in ranges]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        assert isinstance(partition, SequenceRange)
        return iter(()) if partition.start >= partition.end else self.rows(partition)
