"""What the tasks of a batch read: ranges of queues, some of them together (docs/spark.md, "Tasks").

Rules of this file: pure, and the same for the same input: a batch that is planned again has the same tasks. A task has
one node, so that it needs one connection.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from pyspark.sql.datasource import InputPartition

from pyspark_holdfast.bus import Lease

PARTITIONS_MAX: Final = 512
"""Tasks of one batch; beyond it each reads more sequences than `rowsPerPartition` says."""


@dataclass(frozen=True)
class QueueRange:
    """The entries [`start`, `end`) of a queue; `lease` is shown to the node, None for a read without subscription."""

    address: str
    start: int
    end: int
    lease: Lease | None
    queue_uuid: str

    def __repr__(self) -> str:
        return f"{self.address}[{self.start}, {self.end})"


@dataclass(frozen=True)
class NodeTask(InputPartition):
    """What one task reads, all of it from `node`, which the URL of that number reaches."""

    url: int
    node: str
    ranges: tuple[QueueRange, ...]

    def __repr__(self) -> str:
        return f"NodeTask({self.node}: {', '.join(map(repr, self.ranges))})"


def tasks_of(ranges: Mapping[tuple[int, str], Iterable[QueueRange]], rows: int) -> list[NodeTask]:
    """Tasks of `rows` sequences, more where there would be over PARTITIONS_MAX. `ranges`: by number of the URL and name
    of the node. Long ranges are cut, short ones of a node are put together. Nodes alternate,
    so that tasks that run at the same time read from several.
    """
    whole = {node: [one for one in some if one.end > one.start] for node, some in sorted(ranges.items())}
    total = sum(one.end - one.start for some in whole.values() for one in some)
    nodes = sum(1 for some in whole.values() if some)
    step = max(rows, -(-total // max(1, PARTITIONS_MAX - nodes)), 1)
    by_node = [_tasks_of_node(url, node, some, step) for (url, node), some in whole.items()]
    return [task for row in zip_longest(*by_node) for task in row if task is not None]


def _tasks_of_node(url: int, node: str, ranges: Iterable[QueueRange], step: int) -> list[NodeTask]:
    tasks: list[NodeTask] = []
    gathered: list[QueueRange] = []
    room = step
    for one in sorted(ranges, key=lambda one: one.address):
        start = one.start
        while start < one.end:
            end = min(one.end, start + room)
            gathered.append(QueueRange(one.address, start, end, one.lease, one.queue_uuid))
            room -= end - start
            start = end
            if not room:
                tasks.append(NodeTask(url, node, tuple(gathered)))
                gathered, room = [], step
    if gathered:
        tasks.append(NodeTask(url, node, tuple(gathered)))
    return tasks
