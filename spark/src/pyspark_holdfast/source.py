"""The Spark source `holdfast`: named subscriptions read by sequence, exactly once (docs/spark.md, ADRs 0007, 0083).

Rules of this file: the data source itself, and the reader of a batch query; `stream.py` is that of a streaming query.
Imports that the workers need are inside functions, and the sink's where it is asked for: Spark gives a worker 10 s to
start.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from holdfast.client.network.url import Url
from holdfast.errors import ConfigError
from pyspark_holdfast.bus import Entry, Lease, Node, Start
from pyspark_holdfast.columns import COLUMNS
from pyspark_holdfast.members import named_at
from pyspark_holdfast.options import SourceOptions
from pyspark_holdfast.ranges import NodeTask, QueueRange, tasks_of
from pyspark_holdfast.reading import Reading, Source
from pyspark_holdfast.stream import HoldfastStreamReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class HoldfastDataSource(DataSource):
    """The source and sink `holdfast` of Spark: the format of `readStream`, `read`, `writeStream` and `write`.

    `spark.dataSource.register(HoldfastDataSource)` makes it known to a session; `start_session` has done that.
    """

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        return COLUMNS

    def node(self, options: SourceOptions) -> Node:
        """The way to the node of `options`' only URL, for one process; called where it is first needed."""
        from pyspark_holdfast.node_bus import NodeLink

        return NodeLink(options)

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


class HoldfastBatchReader(Reading, DataSourceReader):
    """What lies in the queues now, from `startingFrom` or the subscription's place to `endingAt`; advances nothing. All
    nodes are needed."""

    def __init__(self, source: Source, options: Mapping[str, str]) -> None:
        super().__init__(source, options)
        if self.options.begins and self.options.subscription is not None:
            raise ConfigError("options 'subscription' and 'startingFrom' exclude each other in a batch query; give one")

    def partitions(self) -> list[InputPartition]:
        options = self.options
        ranges: dict[tuple[int, str], list[QueueRange]] = {}
        reached: dict[str, Url] = {}
        for number, url in enumerate(options.urls):
            node = self._source.node(options.at(url))
            try:
                name = node.name()
                if reached.setdefault(name, url) is not url:
                    raise ConfigError(f"option 'url': {reached[name]} and {url} both reach node {name!r}; give one")
                ranges[number, name] = [self._range(node, queue) for queue in named_at(node, options.addresses)]
            finally:
                node.close()
        # Spark takes an empty list for one task that reads everything.
        return [*tasks_of(ranges, options.rows_per_partition)] or [NodeTask(0, "", ())]

    def _range(self, node: Node, queue: str) -> QueueRange:
        bus, subscription = node.bus(queue), self.options.subscription
        place = bus.bounds() if subscription is None else bus.place()
        lease = None if subscription is None else Lease(subscription, place.queue_uuid, place.lease_epoch)
        first, end = max(place.advanced, place.head), place.tail
        if isinstance(self.options.starting_from, int):
            first = max(first, self.options.starting_from)
        elif self.options.starting_from == "next":
            first = end
        if isinstance(self.options.ending_at, int):
            end = max(first, min(end, self.options.ending_at))
        return QueueRange(queue, first, end, lease, place.queue_uuid)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        return self.rows(partition, _within(self.options.starting_from, self.options.ending_at))


def _within(first: Start, end: Start | None) -> Callable[[Entry], bool] | None:
    """Whether an entry was stored at such a time; None where no time is asked for."""
    first_ms = first.timestamp() * 1000 if isinstance(first, datetime) else None
    end_ms = end.timestamp() * 1000 if isinstance(end, datetime) else None
    if first_ms is None and end_ms is None:
        return None

    def is_within(entry: Entry) -> bool:
        stored = entry.enqueued_ms
        if stored is None:
            return False
        return (first_ms is None or stored >= first_ms) and (end_ms is None or stored < end_ms)

    return is_within
