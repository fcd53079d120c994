"""What the streaming reader and the batch reader share: options, and the work of a task.

Rules of this file: no sockets or locks before first use: readers are pickled. Imports that the workers need are inside
`rows`: Spark gives a worker 10 s to start.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import InputPartition

from holdfast.collecting import collecting_rarely
from pyspark_holdfast.bus import Bus, Entry, Node, QueueMadeAnew
from pyspark_holdfast.options import SourceOptions, parse_options
from pyspark_holdfast.ranges import NodeTask, QueueRange

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class Source(Protocol):
    """Knows the way to nodes."""

    def node(self, options: SourceOptions) -> Node:
        """The way to the node of `options`' only URL, for one process."""


class Reading:
    """Base of both readers."""

    def __init__(self, source: Source, options: Mapping[str, str]) -> None:
        self._source = source
        self.options = parse_options(options)

    def rows(self, task: InputPartition, wants: Callable[[Entry], bool] | None = None) -> Iterator["RecordBatch"]:
        """Runs in a worker, with a connection of its own that ends with the task. `wants`: which entries are rows."""
        from pyspark_holdfast.dead_letters import DeadLetterTable
        from pyspark_holdfast.gaps import Gaps
        from pyspark_holdfast.rows import Unreadable, batches

        assert isinstance(task, NodeTask)
        if not task.ranges:
            return
        options = self.options
        with collecting_rarely(), closing(self._source.node(options.at(options.urls[task.url]))) as node:
            for wanted in task.ranges:
                table = None
                if options.dead_letter_path is not None:
                    table = DeadLetterTable(options.dead_letter_path, wanted.address, wanted.queue_uuid)
                unreadable = Unreadable(options.on_unreadable, table, options.message_bytes_max)
                bus = node.bus(wanted.address)
                gaps = Gaps(wanted, task.node)
                # A task may end before its range does (limit): the link goes before its connection.
                with closing(bus.entries(wanted.start, wanted.end, wanted.lease)) as entries:
                    found = gaps.through(entries)
                    if wants is not None:
                        found = filter(wants, found)
                    yield from batches(wanted.address, found, options.rows_per_batch, unreadable, node=task.node)
                if wanted.lease is None:
                    _check_same(bus, wanted)
                gaps.tell(bus, fail_on_data_loss=options.fail_on_data_loss)


def _check_same(bus: Bus, read: QueueRange) -> None:
    """Raises QueueMadeAnew where the queue of that name is not the one that was planned: a lease would have said so."""
    found = bus.bounds().queue_uuid
    if found != read.queue_uuid:
        raise QueueMadeAnew(
            f"queue {read.address!r} was deleted and created again while it was read: it was {read.queue_uuid}, and "
            f"now it is {found}; read it again"
        )
