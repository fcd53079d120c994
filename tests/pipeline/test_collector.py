"""Python's garbage collector in a worker of Spark's."""

import gc

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from holdfast.collecting import THRESHOLDS
from pipeline.fake_bus import FakeDataSource, FakeQueue


@pytest.mark.parametrize("whole", [True, False])
def test_a_task_leaves_python_s_collector_as_it_was(queue: FakeQueue, whole: bool) -> None:
    """Spark uses the worker again, also for functions of others; and a task may end before its range (limit)."""
    queue.put(7)
    reader = FakeDataSource({"url": "amqp://h:1", "address": str(queue.path)}).reader(StructType())
    (task,) = reader.partitions()
    before, own = gc.get_threshold(), (701, 11, 12)
    gc.set_threshold(*own)
    try:
        rows = reader.read(task)
        next(rows)
        assert gc.get_threshold() == THRESHOLDS
        if whole:
            assert list(rows) == []
        else:
            rows.close()
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)
