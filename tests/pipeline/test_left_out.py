"""A batch that was begun leaves out the part of a node that is away, and a later one has it: exact whatever dies."""

import json
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.errors import ConfigError
from pipeline.mini_spark import Died
from pipeline.test_many import Query, all_of, never, queue, quick, written
from pyspark_holdfast.bus import NodeUnreachable
from pyspark_holdfast.checkpoint import batches_in
from pyspark_holdfast.leftovers import DIRECTORY, Leftovers
from pyspark_holdfast.offsets import Offset, Part, Place, offset_of
from pyspark_holdfast.options import parse_options
from pyspark_holdfast.stream import HoldfastStreamReader
from support import today

assert quick  # without waiting for what the tests bring about themselves


def leaving(root: Path, nodes: str, rows_max: int) -> Query:
    query = Query(root, nodes, rows_max)
    query.options["onNodeAway"] = "leaveOut"
    return query


def die_once(query: Query, at: str, away: str = "") -> None:
    """At that step, and then these nodes are away."""

    def die(step: str) -> None:
        if step == at:
            query.at_step = never
            query.away |= set(away)
            raise Died(step)

    query.at_step = die


def test_a_batch_that_was_begun_does_without_a_node_and_a_later_one_has_its_rows(tmp_path: Path) -> None:
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    one.put(1)
    other.put(1)
    query = leaving(tmp_path, "ab", 100)
    query.run()
    one.put(4)
    other.put(4)
    die_once(query, "read", "b")
    with pytest.raises(Died):
        query.run()
    query.run()
    assert written(query) == all_of(("a/x", 5), ("b/x", 1))
    assert (one.advanced(), other.advanced()) == (6, 2), "nothing is released that the table has not"
    one.put(2)
    query.run()
    assert written(query) == all_of(("a/x", 7), ("b/x", 1)), "it goes on without the node"
    other.put(2)
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 7), ("b/x", 7))
    assert (one.advanced(), other.advanced()) == (8, 8)
    assert not list((query.checkpoint / DIRECTORY).iterdir()), "what is over is forgotten"
    assert offset_of(query._end_of(batches_in(query.checkpoint / "offsets")[-1])) is not None


def test_what_was_left_of_a_queue_that_was_made_anew_is_not_read_of_the_new_one(tmp_path: Path) -> None:
    """The batch that has it was planned while the old one was there."""
    queue(tmp_path, "a", "x").put(1)
    other = queue(tmp_path, "b", "x")
    other.put(1)
    query = leaving(tmp_path, "ab", 100)
    query.options["failOnDataLoss"] = "false"
    query.run()
    other.put(4)
    for away in ("b", ""):  # it leaves out the part of b; the next batch has it
        die_once(query, "read", away)
        with pytest.raises(Died):
            query.run()
        if away:
            query.run()
            query.away.clear()
    queue(tmp_path, "b", "x").put(9)
    query.run()
    assert written(query)["b/x"] == [1, *range(1, 10)]


def test_what_is_left_comes_though_nothing_new_does(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(1)
    other = queue(tmp_path, "b", "x")
    other.put(1)
    query = leaving(tmp_path, "ab", 100)
    query.run()
    other.put(3)
    die_once(query, "read", "b")
    with pytest.raises(Died):
        query.run()
    query.run()
    assert written(query)["b/x"] == [1]
    query.away.clear()
    query.run()
    assert written(query)["b/x"] == [1, 2, 3, 4] and other.advanced() == 5


def test_a_node_that_goes_while_its_rows_are_read_is_left_out_by_the_next_attempt(tmp_path: Path) -> None:
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    query = leaving(tmp_path, "ab", 100)
    one.put(2)
    other.put(2)
    query.run()
    one.put(2)
    other.put(2)

    def go(step: str) -> None:
        if step == "read":
            query.away.add("b")

    query.at_step = go
    with pytest.raises(NodeUnreachable):
        query.run()
    query.at_step = never
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 2))
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 4))


def test_a_node_that_goes_between_a_plan_and_its_tasks_is_left_out_at_once(tmp_path: Path) -> None:
    """In the same run, which had its queues open."""
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    query = leaving(tmp_path, "ab", 100)
    one.put(2)
    other.put(2)
    query.run()
    one.put(2)
    other.put(2)

    def go(step: str) -> None:
        if step == "offsets":
            query.away.add("b")

    query.at_step = go
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 2))
    query.at_step = never
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 4))


def test_what_another_source_of_the_query_left_out_is_not_ours(tmp_path: Path) -> None:
    """Both are of one subscription; ours would keep it for ever, and read it if the queue were its own one day."""
    one = queue(tmp_path, "a", "x")
    one.put(2)
    query = leaving(tmp_path, "a", 100)
    query.run()
    Leftovers(query.checkpoint, "s").leave(0, {"b/x": Part("u", ((1, 3),))})
    one.put(1)
    end = query.reader().latestOffset(query._end_of(0), ReadMaxRows(100))
    assert end["at"] == {"a/x": 4} and "left" not in end


@pytest.mark.parametrize("rows_min", ["1", "5"])
def test_what_one_source_left_out_outlives_batches_that_have_rows_of_another_alone(
    tmp_path: Path, rows_min: str
) -> None:
    queues = {name: queue(tmp_path, name, name) for name in "abc"}
    query = leaving(tmp_path, "a", 100)
    query.options["minRowsPerTrigger"] = rows_min

    def reader(nodes: str) -> HoldfastStreamReader:
        urls = ",".join(f"amqp://{node}:1" for node in nodes)
        query.options |= {"url": urls, "address": "*", "subscription": f"of {nodes}"}
        return query.reader()

    def batch(number: int, *planned: dict[str, object]) -> None:
        query._write(query.checkpoint / "offsets" / str(number), "v1", "{}", *map(json.dumps, planned))

    def done(number: int) -> None:
        query._write(query.out / "_spark_metadata" / str(number), "v1")
        query._write(query.checkpoint / "commits" / str(number), "v1", "{}")

    ours, theirs = reader("a"), reader("bc")
    starts = [ours.initialOffset(), theirs.initialOffset()]
    for number in (0, 1):
        for one in queues.values():
            one.put(5)
        ends = [one.latestOffset(start, ReadMaxRows(100)) for one, start in zip((ours, theirs), starts, strict=True)]
        batch(number, *ends)
        if number == 1:
            theirs = reader("bc")  # begun again, and its node is away
            query.away.add("b")
        for one, start, end in zip((ours, theirs), starts, ends, strict=True):
            one.partitions(start, end)
        done(number)
        starts = ends
    for number in (2, 3):
        queues["a"].put(5)
        starts[1] = theirs.latestOffset(starts[1], ReadMaxRows(100))
        starts[0] = ours.latestOffset(starts[0], ReadMaxRows(100))
        batch(number, *starts)
        done(number)
        ours.commit({})
    query.away.clear()
    theirs = reader("bc")
    found = theirs.latestOffset(starts[1], ReadMaxRows(100))
    assert found["again"]["b/b"][1] == [[6, 11]]
    assert queues["b"].advanced("of bc") <= 6


def test_an_attempt_after_the_first_leaves_out_the_same_though_the_node_is_back(tmp_path: Path) -> None:
    one, other = queue(tmp_path, "a", "x"), queue(tmp_path, "b", "x")
    query = leaving(tmp_path, "ab", 100)
    one.put(2)
    other.put(2)
    query.run()
    one.put(2)
    other.put(2)
    die_once(query, "read", "b")
    with pytest.raises(Died):
        query.run()
    die_once(query, "sink")
    with pytest.raises(Died):
        query.run()
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 4), ("b/x", 4))


def test_a_batch_that_the_table_has_already_needs_no_node(tmp_path: Path) -> None:
    queue(tmp_path, "a", "x").put(2)
    other = queue(tmp_path, "b", "x")
    other.put(2)
    query = leaving(tmp_path, "ab", 100)
    query.run()
    other.put(2)
    die_once(query, "sink", "b")
    with pytest.raises(Died):
        query.run()
    query.run()
    assert not (query.checkpoint / DIRECTORY).exists(), "nothing is left out of what is written"
    query.away.clear()
    query.run()
    assert written(query) == all_of(("a/x", 2), ("b/x", 4)) and other.advanced() == 5


@pytest.mark.parametrize("seed", today.some(range(200), 5))
def test_deaths_and_nodes_away_at_any_step(tmp_path: Path, seed: int) -> None:
    """A node goes or comes back at any step, too; all are there for the last run."""
    random = Random(seed)
    queues = {key: queue(tmp_path, *key.split("/")) for key in ("a/x", "a/y", "b/x", "c/x")}
    for one in queues.values():
        one.put(random.randint(0, 20))
    query = leaving(tmp_path, "abc", random.randint(1, 12))
    left = 40

    def die(step: str) -> None:
        nonlocal left
        if left == 0:
            return
        if random.random() < 0.1:
            query.away ^= {random.choice("abc")}
        if random.random() < 0.1:
            left -= 1
            raise Died(step)

    query.at_step = die
    while True:
        try:
            query.run()
            if left == 0 and not query.away:
                break
            left = 0 if random.random() < 0.2 else left
        except (Died, NodeUnreachable):
            pass
        for one in queues.values():
            if random.random() < 0.2:
                one.put(random.randint(1, 4))
        if left == 0 or random.random() < 0.3:
            query.away.clear()
        elif random.random() < 0.5:
            query.away.add(random.choice("abc"))
    totals = {key: one.advanced() - 1 for key, one in queues.items()}
    found = {key: sorted(sequences) for key, sequences in written(query).items()}
    assert found == all_of(*totals.items())
    assert min(totals.values()) >= 0 and sum(totals.values()) > 0


def test_a_table_of_files_is_needed(tmp_path: Path) -> None:
    options = {"url": "amqp://a:1", "address": "x", "onNodeAway": "leaveOut"}
    with pytest.raises(ConfigError, match="option 'onNodeAway' is leaveOut; expected 'sinkPath' too"):
        parse_options(options)
    assert parse_options(options | {"sinkPath": str(tmp_path)}).on_node_away == "leaveOut"


def test_offsets_with_what_is_left(tmp_path: Path) -> None:
    part = Part("u", ((1, 3), (7, 9)))
    offset = Offset("s", {"a/x": Place("u", 9)}, {"a/x": part}, {"b/x": Part("v", ((2, 4),))})
    assert offset_of(offset.json()) == offset
    assert "again" not in Offset("s", {}).json() and "left" not in Offset("s", {}).json()
    for wrong in ([], {"a/x": ["u"]}, {"a/x": ["u", [[1]]]}, {"a/x": ["u", [["1", 2]]]}, {"a/x": [1, [[1, 2]]]}):
        assert offset_of(offset.json() | {"left": wrong}) is None


def test_files_of_two_subscriptions_and_batches_are_told_apart(tmp_path: Path) -> None:
    mine, theirs = Leftovers(tmp_path, "s"), Leftovers(tmp_path, "t")
    mine.leave(3, {"a/x": Part("u", ((1, 3),)), "a/y": Part("w", ((5, 6),))})
    theirs.leave(3, {"a/x": Part("u", ((8, 9),))})
    assert mine.of(3) == {"a/x": Part("u", ((1, 3),)), "a/y": Part("w", ((5, 6),))} and mine.of(2) == {}
    assert theirs.of(3) == {"a/x": Part("u", ((8, 9),))}
    line = Offset("s", {}, {}, {"a/x": Part("u", ((7, 8),)), "a/y": Part("former", ((1, 2),))})
    assert mine.after(3, [line]) == {"a/x": Part("u", ((1, 3), (7, 8))), "a/y": Part("w", ((5, 6),))}
    mine.forget(3)
    assert mine.of(3) != {}
    mine.forget(4)
    assert mine.of(3) == {} and theirs.of(3) == {}
    mine.leave(5, {"a/x": Part("u", ())})
    (file,) = (tmp_path / DIRECTORY).iterdir()
    file.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read; use a new checkpoint"):
        mine.of(5)
