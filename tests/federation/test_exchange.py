"""Two and three nodes that exchange sets, without a network: repairs, bounds, refusals, answers, hostile neighbours."""

from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.federation.confirming import UNLISTED_S
from holdfast.federation.federation import CREDIT_KEPT, RETRY_S, Federation
from holdfast.federation.parents import Routes
from holdfast.federation.rows import VERSION_HIGH, VOID, Row, Stamp
from holdfast.federation.sets import Key, make, stamped
from holdfast.federation.settings import Bounds, Entry
from support.exchange import Fields, T, Together, rows


def test_a_large_change_is_several_versions_that_fit_a_message() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["b"].bind(T, rows(1_700), two.now)
    two.settle()
    assert two.rows("a", "b") == set(rows(1_700))
    sizes = [len(fields["add"]) for _, _, fields in two.seen if fields["kind"] == "change"]
    assert max(sizes) <= 500
    assert sum(sizes) == 1_700


def passing_on_many() -> Together:
    """Three nodes: b has many changes of c, which it has neither stored nor passed on to a."""
    three = Together("abc", Bounds(keys_max=50_000))
    three.nodes["c"].bind(T, rows(9_000), three.now)
    three.settle()
    three.slow = {"b"}
    three.nodes["c"].bind(T, rows(12_000, 900), three.now)
    three.settle()
    return three


def test_versions_that_were_stored_together_are_passed_on_one_by_one() -> None:
    three = passing_on_many()
    three.seen.clear()
    three.slow.clear()
    three.settle()
    assert three.rows("a", "c") == three.rows("b", "c") == set(rows(12_000, 900))
    passed = [fields for start, end, fields in three.seen if (start, end) == ("b", "a")]
    assert {fields["kind"] for fields in passed} == {"change"}, "no parts are compared"
    assert max(len(fields["add"]) for fields in passed) <= 500
    versions = [tuple(fields["to"]) for fields in passed]
    assert versions == sorted(set(versions))


def test_versions_that_are_passed_on_one_by_one_wait_for_no_answer() -> None:
    three = passing_on_many()
    passes = three.nodes["b"]
    assert passes.records(three.now)
    passes.committed(three.now)
    said = [message for message in passes.take("a", 200, three.now) if message["kind"] == "change"]
    held = passes.sets.committed(Key("c", T))
    assert held is not None and len(said) > 2
    assert tuple(said[-1]["to"]) == (*held.stamp, held.digest)


def test_additions_come_first_and_removals_last() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["b"].bind(T, rows(900), two.now)
    two.settle()
    wanted: list[bool] = []

    def watched(start: str, end: str, fields: Fields) -> Fields:
        if fields["kind"] == "change":
            wanted.append(not fields["remove"])
        return fields

    two.change = watched
    two.nodes["b"].bind(T, rows(900, 900), two.now)
    two.settle()
    assert two.rows("a", "b") == set(rows(900, 900))
    assert wanted == sorted(wanted, reverse=True)
    assert wanted[0] and not wanted[-1]


def test_what_differs_is_found_by_parts() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["b"].bind(T, rows(3_000), two.now)
    two.settle()
    two.part("a", "b")
    two.nodes["b"].bind(T, rows(3_000, 5), two.now)
    two.settle()
    two.seen.clear()
    two.join("a", "b")
    two.settle()
    assert two.rows("a", "b") == set(rows(3_000, 5))
    sent = sum(len(fields["rows"]) for _, _, fields in two.seen if fields["kind"] == "rows")
    assert "parts" in two.kinds()
    assert 0 < sent < 700  # of 3,000, where ten differ
    edition = two.nodes["b"].sets.committed(Key("b", T))
    mine = two.nodes["a"].sets.committed(Key("b", T))
    assert edition is not None
    assert mine is not None
    assert edition.edition == mine.edition


def test_parts_are_compared_to_the_end_while_the_set_goes_on_changing() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["b"].bind(T, rows(3_000), two.now)
    two.settle()
    two.part("a", "b")
    two.nodes["b"].bind(T, rows(3_000, 700), two.now)
    two.settle()
    two.seen.clear()
    two.join("a", "b")
    for number in range(14):  # a message takes as long as a new binding
        two.nodes["b"].rebind(T, [Row(f"new.{number}")], [], two.now)
        two.step()
    assert set(rows(3_000, 700)) <= two.rows("a", "b")
    two.settle()
    assert two.rows("a", "b") == two.rows("b", "b")
    assert sum(fields["kind"] == "parts" and "edges" in fields for _, _, fields in two.seen) == 1, "only once"


def test_credit_is_kept_free() -> None:
    two = Together("ab")
    two.nodes["b"].bind(T, rows(1), two.now)
    two.nodes["b"].records(two.now)
    two.nodes["b"].committed(two.now)
    assert two.nodes["b"].take("a", CREDIT_KEPT, two.now) == []
    assert len(two.nodes["b"].take("a", CREDIT_KEPT + 1, two.now)) == 1


def test_a_refused_commit_is_made_up_for() -> None:
    three = Together("abc")
    three.refusing = {"b"}
    before = dict(three.nodes["b"].sets.stored)
    three.nodes["c"].bind(T, rows(3), three.now)
    token = three.nodes["c"].confirm(T, Row("k.1"), three.now, 20.0)
    three.settle()
    assert three.nodes["b"].sets.stored == before
    assert not three.nodes["b"].choose(T, "k.1").branches
    assert three.nodes["b"].records(three.now) == []
    three.wait(RETRY_S / 2)
    assert three.nodes["c"].answers() == []
    three.refusing = set()
    three.wait(2 * RETRY_S)
    assert three.rows("a", "c") == three.rows("b", "c") == set(rows(3))
    (answer,) = three.nodes["c"].answers()
    assert answer.token == token
    assert answer.complete
    assert answer.confirmed == ("a", "b")


def test_what_confirmed_rows_cover_is_confirmed_at_once() -> None:
    three = Together("abc")
    three.nodes["c"].bind(T, [Row("k.*")], three.now)
    three.settle()
    node = three.nodes["c"]
    node.bind(T, [Row("k.*"), Row("k.7")], three.now)
    node.confirm(T, Row("k.7"), three.now, 10.0)
    (answer,) = node.answers()
    assert answer.complete
    assert answer.confirmed == ("a", "b")
    node.confirm(T, Row("j.7"), three.now, 10.0)
    assert node.answers() == []


@pytest.mark.parametrize("bound", ["k.1", "k.*"])
def test_what_is_being_withdrawn_confirms_nothing_that_is_bound_now(bound: str) -> None:
    """Neither another row that covers it nor the row itself, which comes back with the next version."""
    two = Together("ab")
    node = two.nodes["b"]
    node.bind(T, [Row("k.*")], two.now)
    two.settle()
    node.bind(T, [], two.now)
    assert node.records(two.now), "the version without it is on its way to the disk"
    node.bind(T, [Row(bound)], two.now)
    node.confirm(T, Row(bound), two.now, 20.0)
    assert node.answers() == []
    node.committed(two.now)
    assert node.answers() == []
    two.settle()
    (answer,) = node.answers()
    assert answer.complete and two.rows("a", "b") == {Row(bound)}


def test_binds_are_answered_while_others_keep_coming() -> None:
    """In a line in which a message takes as long as a bind comes after another, no moment has all of them stored."""
    line = Together("abcd")
    node = line.nodes["a"]
    asked: dict[int, int] = {}
    waited = []
    for number in range(80):
        row = Row(f"k.{number}")
        node.rebind(T, [row], [], line.now)
        asked[node.confirm(T, row, line.now, 60.0)] = number
        line.now += 0.2
        for each in line.nodes.values():
            each.tick(line.now)
        line.step()
        for answer in node.answers():
            assert answer.complete and answer.confirmed == ("b", "c", "d") and not answer.waiting
            waited.append(number - asked[answer.token])
    assert len(waited) > 60 and max(waited) < 16, "each is answered once its own version is stored"


def test_nodes_that_have_not_stored_a_bind_are_waited_for_and_not_who_passes_it_on() -> None:
    line = Together("abcd")
    line.nodes["a"].bind(T, [Row("x")], line.now)
    line.settle()
    line.wait(2.0)
    line.slow = {"d"}
    line.nodes["a"].bind(T, [Row("x"), Row("y")], line.now)
    line.nodes["a"].confirm(T, Row("y"), line.now, 5.0)
    line.settle()
    line.wait(6.0)
    (answer,) = line.nodes["a"].answers()
    assert (answer.confirmed, answer.waiting, answer.complete) == (("b", "c"), ("d",), False)


def test_a_bind_is_answered_when_its_time_is_over() -> None:
    three = Together("abc")
    three.refusing = {"a"}
    three.nodes["c"].bind(T, [Row("x")], three.now)
    three.nodes["c"].confirm(T, Row("x"), three.now, 3.0)
    three.settle()
    three.wait(4.0)
    (answer,) = three.nodes["c"].answers()
    assert not answer.complete
    assert answer.confirmed == ("b",)
    assert answer.waiting == ("a",)  # b has it, and waits for a


def test_a_row_that_is_not_covered_is_not_confirmed_by_another() -> None:
    two = Together("ab")
    node = two.nodes["b"]
    node.bind(T, [Row("k.*", "x = 1")], two.now)
    two.settle()
    node.bind(T, [Row("k.*", "x = 1"), Row("k.7")], two.now)
    node.confirm(T, Row("k.7"), two.now, 10.0)
    assert node.answers() == []  # the other asks for less


def test_what_a_neighbour_may_not_say() -> None:
    two = Together("ab")
    node = two.nodes["a"]
    text = node.receive("b", {"kind": "follow", "rows": [["a", "news", 0, 0, 0]], "stop": [], "whole": False}, 0.0)
    assert text is not None
    assert "news" in text
    assert node.receive("nobody", {"kind": "follow"}, 0.0) is None


def test_a_parent_that_never_gives_what_it_says_is_asked_once_a_refresh() -> None:
    two = Together("ab")

    def lying(start: str, end: str, fields: Fields) -> Fields:
        if fields["kind"] in ("change", "rows") and start == "b":
            life, version, digest = fields["to"]
            return fields | {"to": [life, version, digest ^ 1]}
        return fields

    two.change = lying
    two.seen.clear()
    two.nodes["b"].bind(T, rows(5), two.now)
    two.settle()
    assert len(two.seen) < 10
    assert two.rows("a", "b") == set()
    assert two.nodes["a"].sets.committed(Key("b", T)) is not None
    two.change = lambda start, end, fields: fields
    two.wait(35.0)
    assert two.rows("a", "b") == set(rows(5))


def test_a_topic_that_comes_back_goes_on_behind_its_last_version() -> None:
    """Who still has the set of before has not stored what a new subscription wants."""
    node, key = Federation("a", 1_000, 0.0), Key("a", T)
    follow: dict[str, Any] = {"kind": "follow", "rows": [["a", T, 0, 0, 0]], "stop": [], "whole": False}
    node.up("b", 0.0)

    def forwarded(*topics: str) -> Stamp | None:
        federate = {"kind": "federate", "rows": [[topic, "dynamic"] for topic in topics]}
        assert node.receive("b", federate, 0.0) is None
        assert not topics or node.receive("b", follow, 0.0) is None
        node.records(0.0)
        node.committed(0.0)
        held = node.sets.committed(key)
        return None if held is None else held.stamp

    assert forwarded(T) == Stamp(1_000, 1)
    for row in "xyz":
        node.bind(T, [Row(row)], 0.0)
        node.records(0.0)
        node.committed(0.0)
    node.bind(T, [], 0.0)
    last = forwarded()
    while node.next_deadline(60.0) <= 60.0:
        node.tick(60.0)
        if node.records(60.0):
            node.committed(60.0)
    assert T not in node.own and node.sets.committed(key) is None
    back = forwarded(T)
    assert last is not None and back is not None and back > last == Stamp(1_000, 5)


def test_a_life_is_above_all_that_was_stored() -> None:
    node = Federation("a", 5_000, 0.0)
    node.bind(T, [Row("x")], 0.0)
    disk = {one.key: one.value for one in node.records(0.0) if hasattr(one, "value")}
    again = Federation("a", 1_000, 0.0, rows=disk)
    held = again.sets.current(Key("a", T))
    assert held is not None
    assert held.stamp == Stamp(5_001, 1)
    assert held.rows == {Row("x")}


def test_a_set_leaves_a_day_after_its_origin_was_lost() -> None:
    three = Together("abc", Bounds(keep_s=100.0))
    node = three.nodes["a"]
    node.route(Routes({"a": {"b": 1}, "b": {"a": 1}}), three.now)
    three.wait(90.0)
    assert Key("c", T) in node.sets.stored
    three.wait(60.0)
    assert Key("c", T) not in node.sets.stored


def test_a_node_that_left_for_good_is_forgotten() -> None:
    three = Together("abc")
    node = three.nodes["a"]
    node.route(Routes({"a": {"b": 1}, "b": {"a": 1}}), three.now)
    node.forget("c", three.now)
    three.settle()
    assert Key("c", T) not in node.sets.stored


@pytest.mark.parametrize(
    "entries",
    [
        [Entry(T, "a")],
        [Entry(T, "b"), Entry(T, "b")],
        [Entry(T, "b", "other")],
        [Entry(T, "b", "static")],
        [Entry(T, "b", "dynamic", ("x",))],
        [Entry(T, "b", "static", ("x..y",))],
        [Entry("$t", "b")],
        [Entry(T, f"n{number}") for number in range(251)],
        [Entry(f"t{number}", "b") for number in range(257)],
    ],
)
def test_entries_that_cannot_be(entries: list[Entry]) -> None:
    with pytest.raises(ConfigError):
        Federation("a", 1, 0.0).configure(entries, 0.0)


def test_a_version_at_its_end_begins_a_new_life() -> None:
    two = Together("ab")
    node = two.nodes["b"]
    key = Key("b", T)
    node.sets.stored[key] = stamped(node.sets.stored[key], Stamp(1_000, VERSION_HIGH))
    node.bind(T, [Row("x")], two.now)
    two.settle()
    two.settle()
    mine, theirs = node.sets.committed(key), two.nodes["a"].sets.committed(key)
    assert mine is not None
    assert mine == theirs
    assert mine.stamp == Stamp(1_001, 2)
    assert mine.rows == {Row("x")}


def test_a_lower_stamp_is_not_taken_and_its_origin_is_asked() -> None:
    """A node on the way that is behind does not take back what this one has."""
    three = Together("abc")
    three.nodes["c"].bind(T, rows(2), three.now)
    three.settle()
    node, key = three.nodes["a"], Key("c", T)
    held = node.sets.committed(key)
    assert held is not None
    life, version = held.stamp
    older = make(Stamp(life, version - 1), rows(1), held.edges)
    fields = {"kind": "rows", "origin": "c", "topic": T, "prefix": "", "rows": ["k.0"], "edges": sorted(held.edges)}
    assert node.receive("b", {**fields, "to": [*older.stamp, older.digest]}, three.now) is None
    assert node.sets.current(key) == held
    (claim,) = node.take("b", CREDIT_KEPT + 1, three.now)
    has = claim["has"]
    assert claim["kind"] == "claim" and has == [life, version, held.digest]


def test_a_reset_counts_once_however_many_bring_it() -> None:
    """Round a circle it would void what came since, for ever."""
    three = Together("abc")
    three.nodes["c"].bind(T, rows(2), three.now)
    three.settle()
    node, key = three.nodes["a"], Key("c", T)
    fields = {"kind": "void", "origin": "c", "topic": T, "nonce": 5}
    assert node.receive("b", fields, three.now) is None
    voided = node.sets.current(key)
    assert voided is not None and voided.stamp == VOID and voided.rows == set(rows(2))
    three.settle()
    back = node.sets.current(key)
    assert back is not None and back.stamp != VOID
    assert node.receive("b", fields, three.now) is None
    assert node.sets.current(key) == back
    assert node.receive("b", fields | {"nonce": 6}, three.now) is None
    again = node.sets.current(key)
    assert again is not None and again.stamp == VOID


def test_who_is_gone_is_told_to_the_origin_and_not_waited_for() -> None:
    three = Together("abc")
    three.refusing = {"c"}
    node = three.nodes["a"]
    node.bind(T, [Row("x")], three.now)
    node.confirm(T, Row("x"), three.now, 60.0)
    three.settle()
    three.wait(1.0)
    follower = node.neighbours["b"].serving.followers[Key("a", T)]
    assert "c" in follower.names and not node.answers()
    three.nodes["b"].down("c", three.now)
    three.nodes["c"].down("b", three.now)
    three.settle()
    three.wait(1.0)
    assert "c" not in follower.names
    three.wait(UNLISTED_S)
    (answer,) = node.answers()
    assert answer.complete and answer.confirmed == ("b",)


def test_a_neighbour_that_goes_has_its_waiting_binds_answered() -> None:
    two = Together("ab")
    two.refusing = {"b"}
    node = two.nodes["a"]
    node.bind(T, [Row("x")], two.now)
    node.confirm(T, Row("x"), two.now, 60.0)
    two.settle()
    node.down("b", two.now)
    two.nodes["b"].down("a", two.now)
    two.wait(UNLISTED_S + 1.0)
    (answer,) = node.answers()
    assert answer.complete and answer.confirmed == ()


def test_a_node_keeps_its_own_set_whoever_is_forgotten() -> None:
    node = Together("ab").nodes["a"]
    node.forget("a", 0.0)
    assert node.sets.current(Key("a", T)) is not None and node.sets.current(Key("b", T)) is not None
    node.forget("b", 0.0)
    assert node.sets.current(Key("b", T)) is None


def test_a_set_that_was_lost_is_asked_for_at_the_next_refresh() -> None:
    """Its parent takes it for had, and both have the same sum of what was said."""
    two = Together("ab")
    two.nodes["b"].bind(T, rows(3), two.now)
    two.settle()
    node, key = two.nodes["a"], Key("b", T)
    node.sets.drop(key)
    node.settle(two.now)
    two.settle()
    assert node.sets.committed(key) is None
    two.wait(35.0)
    assert two.rows("a", "b") == set(rows(3))


def test_what_is_not_on_disk_is_not_said_to_be_had() -> None:
    two = Together("ab")
    two.nodes["b"].bind(T, rows(1), two.now)
    two.settle()
    node, key = two.nodes["a"], Key("b", T)
    stored = node.sets.committed(key)
    assert stored is not None
    node.sets.put(key, make(Stamp(stored.stamp.life, 99), rows(2), stored.edges))
    node.neighbours["b"].say_again()
    (follow,) = node.take("b", CREDIT_KEPT + 1, two.now)
    assert follow["kind"] == "follow" and [row[2:] for row in follow["rows"]] == [[*stored.stamp, stored.digest]]
