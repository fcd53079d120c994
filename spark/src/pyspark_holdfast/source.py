"""The Spark source `holdfast`: named subscriptions read by sequence, exactly once (docs/spark.md, ADRs 0007, 0083).

Rules of this file: the data source itself, and the reader of a batch query; `stream.py` is that of a streaming query.
Imports that the workers need are inside functions, and the sink's where it is asked for: Spark gives a worker 10 s to
start.
"""

from collections.abc import Iterator
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

from pyspark_holdfast.bus import Lease, Node
from pyspark_holdfast.columns import COLUMNS
from pyspark_holdfast.members import named_at
from pyspark_holdfast.options import SourceOptions
from pyspark_holdfast.ranges import NodeTask, QueueRange, tasks_of
from pyspark_holdfast.reading import Reading
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
    """What lies in the queues now, from the subscription's place if one is named; advances nothing. All nodes are
    needed."""

    def partitions(self) -> list[InputPartition]:
        options = self.options
        ranges: dict[tuple[int, str], list[QueueRange]] = {}
        for number, url in enumerate(options.urls):
            node = self._source.node(options.at(url))
            try:
                ranges[number, node.name()] = [self._range(node, name) for name in named_at(node, options.addresses)]
            finally:
                node.close()
        # Spark takes an empty list for one task that reads everything.
        return [*tasks_of(ranges, options.rows_per_partition)] or [NodeTask(0, "", ())]

    def _range(self, node: Node, queue: str) -> QueueRange:
        bus, subscription = node.bus(queue), self.options.subscription
        place = bus.bounds() if subscription is None else bus.place()
        lease = None if subscription is None else Lease(subscription, place.queue_uuid, place.lease_epoch)
        return QueueRange(queue, max(place.advanced, place.head), place.tail, lease, place.queue_uuid)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        return self.rows(partition)
