"""A checkpoint of an earlier version, which has one queue by its UUID alone: it goes on, also with more queues."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.errors import ConfigError
from pipeline.fake_bus import FakeQueue
from pipeline.mini_spark import Died
from pipeline.test_many import Query, all_of, never, queue, quick, written
from pyspark_holdfast.bus import NodeUnreachable
from pyspark_holdfast.offsets import FORMER, Offset, Place, offset_of

assert quick  # without waiting for what the tests bring about themselves


def made_former(query: Query) -> None:
    """The checkpoint as the version before wrote it, with one queue."""
    for file in (query.checkpoint / "offsets").iterdir():
        lines = file.read_text().splitlines()
        offset = offset_of(json.loads(lines[2]))
        assert offset is not None
        (place,) = offset.places.values()
        file.write_text("\n".join([*lines[:2], json.dumps({"sub": "s", "queue": place.queue, "seq": place.seq})]))


@pytest.mark.parametrize("step", ["offsets", "read", "sink", "commits", None])
def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path: Path, step: str | None) -> None:
    one = queue(tmp_path, "a", "x")
    one.put(5)
    deaths = [step]

    def die(found: str) -> None:
        if found == deaths[0]:
            deaths.clear()
            deaths.append(None)
            raise Died(found)

    query = Query(tmp_path, "a", 2, die)
    query.options["address"] = "x"
    try:
        query.run()
    except Died:
        pass
    made_former(query)
    before = sorted((query.checkpoint / "offsets").iterdir())
    query.run()
    if step is None:
        assert sorted((query.checkpoint / "offsets").iterdir()) == before, "no batch for the new form alone"
    queue(tmp_path, "b", "x").put(3)
    query.options["url"] = "amqp://a:1,amqp://b:1"
    one.put(2)
    query.run()
    assert written(query) == all_of(("a/x", 7), ("b/x", 3))
    assert one.advanced() == 8


def test_a_checkpoint_of_an_earlier_version_is_refused_if_its_queue_is_gone(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(5)
    query = Query(tmp_path, "a", 100)
    query.run()
    made_former(query)
    queue(tmp_path, "a", "x").put(5)
    with pytest.raises(ConfigError, match="is at none of these nodes"):
        query.run()
    query.options["address"] = "x"
    with pytest.raises(ConfigError, match="queue 'x' of node 'a' was deleted and created again"):
        query.run()


def test_a_batch_that_an_earlier_version_began_waits_for_its_node(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(5)

    def die(step: str) -> None:
        if step == "read":
            raise Died(step)

    query = Query(tmp_path, "a", 3)
    query.run()
    queue_of_a = FakeQueue(tmp_path / "a" / "x.db")
    queue_of_a.put(2)
    query.at_step = die
    with pytest.raises(Died):
        query.run()
    made_former(query)
    query.at_step = never
    queue(tmp_path, "b", "x").put(4)
    query.options["url"] = "amqp://a:1,amqp://b:1"
    query.away.add("a")
    with pytest.raises(NodeUnreachable, match="reads the queue of an earlier version's checkpoint, and nodes are away"):
        query.run()
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 7), ("b/x", 4))


def test_an_offset_of_an_earlier_version_is_kept_until_its_node_comes(tmp_path: Path) -> None:
    one = queue(tmp_path, "a", "x")
    one.put(5)
    queue(tmp_path, "b", "x").put(1)
    query = Query(tmp_path, "ab", 100)
    reader = query.reader()
    place = offset_of(reader.initialOffset())
    assert place is not None
    former = {"sub": "s", "queue": place.places["a/x"].queue, "seq": 3}
    query.away.add("a")
    end = offset_of(query.reader().latestOffset(former, ReadMaxRows(100)))
    assert end == Offset("s", {FORMER: Place(str(former["queue"]), 3), "b/x": Place(place.places["b/x"].queue, 2)})
    query.away.clear()
    later = query.reader().latestOffset(end.json(), ReadMaxRows(100))
    assert later["at"] == {"a/x": 6, "b/x": 2}
