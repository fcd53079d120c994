"""Many queues and nodes in one query, without Spark: exact rows of each, whatever dies and whoever is away."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from holdfast.errors import ConfigError
from pipeline.fake_bus import FakeBus, FakeDataSource, FakeNode, FakeQueue
from pipeline.mini_spark import Died, MiniSpark
from pipeline.settled import LIMIT_S, SettledFleet
from pyspark_holdfast import fleet, members, stream
from pyspark_holdfast.bus import Bus, Node, NodeUnreachable, Position, Start, Window
from pyspark_holdfast.checkpoint import SinkLog
from pyspark_holdfast.offsets import key_of, offset_of
from pyspark_holdfast.options import SourceOptions
from pyspark_holdfast.stream import HoldfastStreamReader
from support import today


def never(step: str) -> None:
    return


def die_at(step: str, found: str) -> None:
    if found == step:
        raise Died(step)


class Nodes(FakeDataSource):
    """Nodes `a`, `b`…, each with queues in a directory of its name, and those that are away at the moment."""

    root: Path
    away: set[str]

    def node(self, options: SourceOptions) -> Node:
        return AtRoot(options, self.root, self.away)


class AtRoot(FakeNode):
    """A node that may go away and come back between calls."""

    def __init__(self, options: SourceOptions, root: Path, away: set[str]) -> None:
        super().__init__(options)
        self.root = root / options.url.host
        self.is_away = away

    def check(self) -> None:
        if self.options.url.host in self.is_away:
            raise NodeUnreachable(f"{self.options.url}: connection refused")

    def name(self) -> str:
        self.check()
        return super().name()

    def queues(self) -> list[str]:
        self.check()
        return sorted(path.stem for path in self.root.glob("*.db"))

    def bus(self, address: str) -> "Bus":  # type: ignore[override]  # it is wrapped
        self.check()
        made = super().bus(str(self.root / f"{address}.db"))
        return Checked(made, self)  # type: ignore[return-value]  # it has all that `made` has


class Checked:
    """Asks before each call whether the node is there; a call and the node's `close` are one after the other."""

    def __init__(self, bus: Bus, node: AtRoot) -> None:
        self.bus = bus
        self.node = node

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            with self.node.lock:
                self.node.check()
                return getattr(self.bus, name)(*arguments)

        return call


class Query(MiniSpark):
    """A query of all queues of these nodes; its readers are of `Nodes`."""

    def __init__(self, root: Path, nodes: str, rows_max: int, at_step: Callable[[str], None] = never) -> None:
        super().__init__(root, Path("*"), rows_max, at_step)
        self.root = root
        self.away: set[str] = set()
        self.options["url"] = ",".join(f"amqp://{node}:1" for node in nodes)
        self.options["retryseconds"] = "0"

    def reader(self) -> HoldfastStreamReader:
        source = Nodes(self.options)
        source.root, source.away = self.root, self.away
        reader = source.streamReader(StructType())
        assert isinstance(reader, HoldfastStreamReader)
        return reader

    def row(self, row: dict[str, object]) -> object:
        return [row["node"], row["address"], row["sequence"]]


def queue(root: Path, node: str, name: str) -> FakeQueue:
    (root / node).mkdir(exist_ok=True)
    made = FakeQueue(root / node / f"{name}.db")
    made.make()
    return made


def written(query: Query) -> dict[str, list[int]]:
    """The sequences in the sink by `NODE/QUEUE`, in the order in which they were written."""
    rows: dict[str, list[int]] = {}
    for file in SinkLog(query.out).files():
        for node, address, sequence in json.loads(file.read_text()):
            rows.setdefault(key_of(node, address), []).append(sequence)
    return rows


def all_of(*counts: tuple[str, int]) -> dict[str, list[int]]:
    return {key: list(range(1, count + 1)) for key, count in counts if count}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waiting for what the tests bring about themselves."""
    monkeypatch.setattr(fleet, "AGAIN_S", 0.0)
    monkeypatch.setattr(members, "LISTED_AGAIN_S", 0.0)
    yield


def settle(reader: HoldfastStreamReader, start: dict[str, object], what: Callable[[], bool]) -> dict[str, object]:
    """Plans until `what` holds: a node that comes back is not waited for."""
    end = start
    for _ in range(2_000):
        end = reader.latestOffset(start, ReadMaxRows(1_000))
        if what():
            return end
        threading.Event().wait(0.005)
    raise AssertionError("it did not come to that")


def test_every_queue_of_every_node_once_in_order_and_released(tmp_path: Path) -> None:
    queues = {key: queue(tmp_path, *key.split("/")) for key in ("a/x", "a/y", "b/x", "b/z")}
    for number, one in enumerate(queues.values()):
        one.put(5 * number)
    query = Query(tmp_path, "ab", 7)
    query.run()
    assert written(query) == all_of(("a/y", 5), ("b/x", 10), ("b/z", 15))
    assert [one.advanced() for one in queues.values()] == [1, 6, 11, 16]
    queues["a/x"].put(2)
    query.run()
    assert written(query)["a/x"] == [1, 2]


@pytest.mark.parametrize("seed", today.some(range(20), 5))
def test_deaths_at_any_step(tmp_path: Path, seed: int) -> None:
    """A run between dies, or finds a node away; all nodes are there for the last one."""
    random = Random(seed)
    queues = {key: queue(tmp_path, *key.split("/")) for key in ("a/x", "a/y", "b/x", "c/x")}
    for one in queues.values():
        one.put(random.randint(0, 20))
    left = 25

    def die(step: str) -> None:
        nonlocal left
        if random.random() < 0.1 and left > 0:
            left -= 1
            raise Died(step)

    query = Query(tmp_path, "abc", random.randint(1, 12), die)
    while True:
        try:
            query.run()
            if left == 0 and not query.away:
                break
            left = 0 if random.random() < 0.3 else left
        except (Died, NodeUnreachable):
            pass
        for one in queues.values():
            if random.random() < 0.2:
                one.put(random.randint(1, 4))
        query.away.clear()
        if left > 0 and random.random() < 0.5:
            query.away.add(random.choice("abc"))
    totals = {key: one.advanced() - 1 for key, one in queues.items()}
    assert written(query) == all_of(*totals.items())


def test_a_backlog_of_one_queue_keeps_no_other_waiting(tmp_path: Path) -> None:
    queue(tmp_path, "a", "long").put(1_000)
    queue(tmp_path, "b", "short").put(3)
    reader = Query(tmp_path, "ab", 100).reader()
    end = offset_of(reader.latestOffset(reader.initialOffset(), ReadMaxRows(100)))
    assert end is not None
    assert {key: place.seq for key, place in end.places.items()} == {"a/long": 98, "b/short": 4}


def test_where_few_rows_fit_each_queue_has_its_turn(tmp_path: Path) -> None:
    for name in "xyz":
        queue(tmp_path, "a", name).put(9)
    reader = Query(tmp_path, "a", 1).reader()
    start = reader.initialOffset()
    ends = [reader.latestOffset(start, ReadMaxRows(1))["at"] for _ in range(3)]
    assert sorted(key for end in ends for key, seq in end.items() if seq > 1) == ["a/x", "a/y", "a/z"]


def test_a_node_that_is_away_holds_up_its_own_part_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue(tmp_path, "a", "x").put(4)
    other = queue(tmp_path, "b", "x")
    other.put(3)
    query = Query(tmp_path, "ab", 100)
    query.away.add("b")
    query.run()
    assert written(query) == all_of(("a/x", 4))
    assert "amqp://b:1 is away, and its part of the query waits" in caplog.text
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 3))
    assert other.advanced() == 4


def test_a_node_goes_and_comes_back_while_the_query_runs(tmp_path: Path) -> None:
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    query = Query(tmp_path, "ab", 100)
    reader = query.reader()
    start = reader.initialOffset()
    one.put(2)
    other.put(2)
    query.away.add("b")
    end = reader.latestOffset(start, ReadMaxRows(100))
    assert end["at"] == {"a/x": 3, "b/x": 1}
    query.away.clear()
    end = settle(reader, start, lambda: not reader._reach().away)
    assert settle(reader, start, lambda: True)["at"] == {"a/x": 3, "b/x": 3}


def test_on_node_away_fail_ends_the_query(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(4)
    queue(tmp_path, "b", "x")
    query = Query(tmp_path, "ab", 100)
    query.options["onNodeAway"] = "fail"
    query.away.add("b")
    with pytest.raises(NodeUnreachable, match="amqp://b:1: connection refused"):
        query.run()
    assert written(query) == {}


def test_where_all_nodes_are_away_the_query_ends(tmp_path: Path) -> None:
    query = Query(tmp_path, "ab", 100)
    query.away |= {"a", "b"}
    with pytest.raises(NodeUnreachable, match="amqp://a:1: connection refused; amqp://b:1: connection refused"):
        query.run()


def test_a_batch_that_was_begun_waits_for_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are planned: another batch of that number would be another table."""
    queue(tmp_path, "a", "x").put(4)
    queue(tmp_path, "b", "x").put(4)

    def die(step: str) -> None:
        if step == "read":
            raise Died(step)

    query = Query(tmp_path, "ab", 100, die)
    with pytest.raises(Died):
        query.run()
    query.at_step = never
    query.away.add("b")
    with pytest.raises(NodeUnreachable, match="batch that was begun reads queue 'x' of node 'b', and nodes are away"):
        query.run()
    query.options["retryseconds"] = str(LIMIT_S)
    monkeypatch.setattr(stream, "LOOK_AGAIN_S", 0.01)
    threading.Timer(0.2, query.away.clear).start()
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 4))


def test_a_batch_has_no_more_bytes_than_its_limit(tmp_path: Path) -> None:
    """A body is its sequence as text, and so is its size; the average would not do."""
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    one.put(200)
    other.put(30)
    query = Query(tmp_path, "ab", 1_000)
    query.options["maxBytesPerTrigger"] = "50"
    query.run()
    assert written(query) == all_of(("a/x", 200), ("b/x", 30))
    for log in SinkLog(query.out).batches().values():
        rows = [row for file in SinkLog(query.out).files_of(log) for row in json.loads(file.read_text())]
        assert 0 < sum(len(str(sequence)) for _, _, sequence in rows) <= 50


def test_a_node_that_goes_while_bytes_are_counted_is_left_to_a_later_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two rounds, in which what one queue leaves of its share goes to the others."""
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    one.put(50)
    other.put(50)
    query = Query(tmp_path, "ab", 1_000)
    query.options["maxBytesPerTrigger"] = "61"
    real, asked = FakeBus.measure, 0

    def measure(bus: FakeBus, *arguments: Any) -> Window:
        nonlocal asked
        asked += 1
        if asked == 2:
            query.away.add("b")
        return real(bus, *arguments)

    monkeypatch.setattr(FakeBus, "measure", measure)
    query.run()
    assert asked > 2 and set(written(query)) == {"a/x"}
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 50), ("b/x", 50))


def test_with_too_little_for_a_batch_it_waits_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = queue(tmp_path, "a", "x")
    query = Query(tmp_path, "a", 100)
    query.options["minRowsPerTrigger"] = "10"
    query.options["maxDelaySeconds"] = "60"
    now = 0.0
    monkeypatch.setattr(stream.time, "monotonic", lambda: now)
    reader = query.reader()
    one.put(1)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    assert start["at"] == {"a/x": 2}, "the first batch does not wait"
    one.put(9)
    now = 59.0
    assert reader.latestOffset(start, ReadMaxRows(100)) == start
    now = 60.0
    start = reader.latestOffset(start, ReadMaxRows(100))
    assert start["at"] == {"a/x": 11}
    one.put(10)
    assert reader.latestOffset(start, ReadMaxRows(100))["at"] == {"a/x": 21}, "enough"


def test_what_is_there_now_does_not_wait(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(5)
    query = Query(tmp_path, "a", 2)
    query.options["maxRowsPerTrigger"] = "2"
    query.options["minRowsPerTrigger"] = "2"
    query.run()
    assert written(query) == all_of(("a/x", 5))


def test_a_subscription_begins_at_a_sequence_in_each_queue(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(5)
    queue(tmp_path, "b", "x").put(4)
    query = Query(tmp_path, "ab", 100)
    query.options["startingFrom"] = "4"
    query.run()
    assert written(query) == {"a/x": [4, 5], "b/x": [4]}


def test_a_queue_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(2)
    query = Query(tmp_path, "a", 100)
    query.run()
    queue(tmp_path, "a", "y").put(3)
    query.run()
    assert written(query) == all_of(("a/x", 2), ("a/y", 3))


def test_a_queue_that_grows_while_it_is_opened_later_is_no_store_that_was_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may come between the call that opens it and the one that plans."""
    queue(tmp_path, "a", "x").put(2)
    query = Query(tmp_path, "a", 100)
    query.run()
    late, real = queue(tmp_path, "a", "y"), FakeBus.open

    def opened(bus: FakeBus, start: Start, mode: str) -> Position:
        place = real(bus, start, mode)
        late.put(3)
        return place

    monkeypatch.setattr(FakeBus, "open", opened)
    query.run(available_now=False)
    assert written(query)["a/y"][:3] == [1, 2, 3]


def test_a_store_that_was_put_back_is_seen_where_a_queue_joined_with_the_batch(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(2)
    query = Query(tmp_path, "a", 100)
    query.run()
    late = queue(tmp_path, "a", "y")
    kept = late.path.read_bytes()
    late.put(3)
    query.at_step = partial(die_at, "read")
    with pytest.raises(Died):
        query.run()
    late.path.write_bytes(kept)
    query.at_step = never
    with pytest.raises(ConfigError, match="queue 'y' of node 'a' ends at 1: the node's store was put back"):
        query.run()


@pytest.mark.parametrize("again", [False, True])
def test_of_a_queue_that_is_found_later_nothing_is_skipped(tmp_path: Path, again: bool) -> None:
    """Though the query began with what comes next; in the same run, or in another."""
    one = queue(tmp_path, "a", "x")
    one.put(3)
    query = Query(tmp_path, "a", 100)
    query.options["startingFrom"] = "next"
    reader = query.reader()
    start = reader.initialOffset()
    assert start["at"] == {"a/x": 4}
    if again:
        one.put(1)
        query.run()
        start = query._end_of(0)
        reader = query.reader()
    queue(tmp_path, "a", "y").put(2)
    found = reader.latestOffset(start, ReadMaxRows(100))
    assert found["at"] == {"a/x": 5 if again else 4, "a/y": 3}
    query._write(query.checkpoint / "offsets" / "1", "v1", "{}", json.dumps(found))
    (task,) = reader.partitions(start, found)
    assert [row["sequence"] for rows in reader.read(task) for row in rows.to_pylist()] == [1, 2]


def test_a_queue_that_is_left_out_keeps_its_place(tmp_path: Path) -> None:
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "a", "y")
    one.put(2)
    other.put(2)
    query = Query(tmp_path, "a", 100)
    query.run()
    query.options["address"] = "x"
    one.put(1)
    other.put(1)
    query.run()
    assert other.advanced() == 3
    query.options["address"] = "x,y"
    query.run()
    assert written(query) == all_of(("a/x", 3), ("a/y", 3))


def test_a_queue_that_is_left_out_of_a_batch_that_was_begun_is_asked_for(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(2)
    queue(tmp_path, "a", "y").put(2)

    def die(step: str) -> None:
        if step == "read":
            raise Died(step)

    query = Query(tmp_path, "a", 100, die)
    with pytest.raises(Died):
        query.run()
    query.at_step = never
    query.options["address"] = "x"
    with pytest.raises(ConfigError, match="reads queue 'y' of node 'a', which the options url and address do not mean"):
        query.run()


def test_a_fenced_queue_ends_the_query_whatever_the_others_do(tmp_path: Path) -> None:
    from pyspark_holdfast.bus import ReaderFenced

    queue(tmp_path, "a", "x").put(2)
    queue(tmp_path, "b", "x").put(2)
    query = Query(tmp_path, "ab", 100)
    old = query.reader()
    start = old.initialOffset()
    query.options["url"] = "amqp://b:1"
    query.reader().initialOffset()
    with pytest.raises(ReaderFenced):
        old.latestOffset(start, ReadMaxRows(2))


def test_a_call_of_a_run_that_is_over_fences_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node was away, and its answer comes when the next run reads from it."""
    queue(tmp_path, "a", "x").put(2)
    queue(tmp_path, "b", "x").put(2)
    query = Query(tmp_path, "ab", 100)
    reached, go_on = threading.Event(), threading.Event()
    check, started = AtRoot.check, threading.current_thread()
    late: list[threading.Thread] = []

    def stuck(node: AtRoot) -> None:
        if node.options.url.host == "b" and not late and threading.current_thread() is not started:
            late.append(threading.current_thread())
            reached.set()
            assert go_on.wait(LIMIT_S)
        check(node)

    def stuck_now() -> int:
        return int(reached.is_set() and not go_on.is_set())

    monkeypatch.setattr(AtRoot, "check", stuck)
    monkeypatch.setattr(fleet, "ENDS_S", 0.05)
    monkeypatch.setattr(stream, "Fleet", partial(SettledFleet, patience_s=0.05, stuck=stuck_now))
    old = query.reader()
    old.initialOffset()
    assert reached.is_set()
    old.stop()
    new = query.reader()
    start = new.initialOffset()
    go_on.set()
    late[0].join(LIMIT_S)
    assert not late[0].is_alive()
    assert new.latestOffset(start, ReadMaxRows(100))["at"] == {"a/x": 3, "b/x": 3}


def test_one_queue_made_anew_is_named(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(2)
    queue(tmp_path, "b", "x").put(2)
    query = Query(tmp_path, "ab", 100)
    query.run()
    queue(tmp_path, "b", "x").put(2)
    with pytest.raises(ConfigError, match="queue 'x' of node 'b' was deleted and created again"):
        query.run()


def test_two_urls_of_one_node_are_refused(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x")
    query = Query(tmp_path, "a", 100)
    query.options["url"] = "amqp://a:1,amqp://a:2"
    with pytest.raises(ConfigError, match="amqp://a:1 and amqp://a:2 both reach queue 'x' of node 'a'"):
        query.run()


def test_so_many_queues_that_their_offsets_would_fill_the_driver_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "QUEUES_IN_ALL_MAX", 3)
    for node, name in ("ax", "ay", "bx", "by"):
        queue(tmp_path, node, name).put(1)
    query = Query(tmp_path, "ab", 100)
    with pytest.raises(ConfigError, match="options 'url' and 'address' mean 4 queues; expected at most 3 in all"):
        query.run()
    query.options["address"] = "x"
    query.run()
    assert written(query) == all_of(("a/x", 1), ("b/x", 1))


def test_sources_of_one_query_find_their_places_by_themselves(tmp_path: Path) -> None:
    """Two under one name, and one of another name, in any order; each releases its own."""
    queues = {name: queue(tmp_path, "a", name) for name in "xyz"}
    query = Query(tmp_path, "a", 100)
    readers = []
    for address, subscription in (("y", "s"), ("z", "other"), ("x", "s")):
        queues[address].put(5)
        query.options |= {"address": address, "subscription": subscription}
        readers.append(query.reader())
    starts = [reader.initialOffset() for reader in readers]
    for batch, ends in enumerate(((2, 4, 5), (6, 6, 6))):
        limits = [ReadMaxRows(end - 1) for end in ends]
        planned = [reader.latestOffset(*asked) for reader, *asked in zip(readers, starts, limits, strict=True)]
        query._write(query.checkpoint / "offsets" / str(batch), "v1", "{}", *map(json.dumps, planned))
        for reader, start, end in zip(readers, starts, planned, strict=True):
            assert reader.partitions(start, end)
        query._write(query.out / "_spark_metadata" / str(batch), "v1")
        query._write(query.checkpoint / "commits" / str(batch), "v1", "{}")
        starts = planned
        for reader in readers:
            reader.commit({})
        released = [queues[name].advanced(owner) for name, owner in (("y", "s"), ("z", "other"), ("x", "s"))]
        assert released == list(ends)


def test_two_sources_of_one_name_and_queue_are_refused(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(2)
    query = Query(tmp_path, "a", 100)
    reader = query.reader()
    end = json.dumps(reader.latestOffset(reader.initialOffset(), ReadMaxRows(100)))
    query._write(query.checkpoint / "offsets" / "0", "v1", "{}", end, end)
    query._write(query.checkpoint / "commits" / "0", "v1", "{}")
    with pytest.raises(ConfigError, match="several sources of this query are subscription 's' of queue 'x'"):
        reader.commit({})
