"""Two and three nodes that exchange sets, without a network: repairs, bounds, refusals, answers, hostile neighbours."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.federation import confirming, following, serving, taking
from holdfast.federation.federation import CREDIT_KEPT, RETRY_S, Federation
from holdfast.federation.idle import LOOKED_MIN
from holdfast.federation.messages import LIST_MAX, TOPICS_MAX, PartsOf
from holdfast.federation.parents import Routes
from holdfast.federation.rows import EVERYTHING, VERSION_HIGH, Row, Stamp, row_hash
from holdfast.federation.sets import BRANCHING, Key, stamped
from holdfast.federation.settings import Bounds, Entry
from holdfast.federation.validation import validate

T = "t"
Fields = dict[str, Any]


class Together:
    """Nodes in a line, whose messages go at once. `seen`: what went, newest last."""

    def __init__(self, names: str, bounds: Bounds = Bounds()) -> None:
        self.now = 0.0
        self.names = names
        self.up = {
            name: {names[other]: 1_000 for other in (at - 1, at + 1) if 0 <= other < len(names)}
            for at, name in enumerate(names)
        }
        self.nodes = {name: Federation(name, 1_000, 0.0, bounds=bounds) for name in names}
        self.seen: list[tuple[str, str, Fields]] = []
        self.refusing: set[str] = set()
        self.change: Callable[[str, str, Fields], Fields] = lambda start, end, fields: fields
        routes = Routes(self.up)
        for name, node in self.nodes.items():
            node.configure([Entry(T, other) for other in self.up[name]], 0.0)
            node.route(routes, 0.0)
        for name, node in self.nodes.items():
            for other in self.up[name]:
                node.up(other, 0.0)
        self.settle()

    def settle(self) -> None:
        busy = True
        while busy:
            busy = False
            for name, node in self.nodes.items():
                if node.records(self.now):
                    busy = True
                    (node.refused if name in self.refusing else node.committed)(self.now)
                for other in list(node.neighbours):
                    for message in node.take(other, 200, self.now):
                        busy = True
                        fields, _ = decode(encode(message))
                        assert isinstance(fields, dict)
                        fields = self.change(name, other, fields)
                        self.seen.append((name, other, fields))
                        assert self.nodes[other].receive(name, fields, self.now) is None
                validate(node)

    def wait(self, for_s: float, step_s: float = 0.5) -> None:
        end = self.now + for_s
        while self.now < end:
            self.now += step_s
            for node in self.nodes.values():
                while node.next_deadline(self.now) <= self.now:
                    before = node.next_deadline(self.now)
                    node.tick(self.now)
                    if node.next_deadline(self.now) == before:
                        break
            self.settle()

    def rows(self, name: str, origin: str) -> frozenset[Row]:
        held = self.nodes[name].sets.committed(Key(origin, T))
        assert held is not None
        return held.rows

    def kinds(self) -> list[str]:
        return [fields["kind"] for _, _, fields in self.seen]


def rows(count: int, first: int = 0) -> list[Row]:
    return [Row(f"k.{number}") for number in range(first, first + count)]


def test_a_large_change_is_several_versions_that_fit_a_message() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["b"].bind(T, rows(1_700), two.now)
    two.settle()
    assert two.rows("a", "b") == set(rows(1_700))
    sizes = [len(fields["add"]) for _, _, fields in two.seen if fields["kind"] == "change"]
    assert max(sizes) <= 500
    assert sum(sizes) == 1_700


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
    assert False in wanted


def test_what_differs_is_found_by_parts() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["b"].bind(T, rows(3_000), two.now)
    two.settle()
    two.nodes["a"].down("b", two.now)
    two.nodes["b"].down("a", two.now)
    two.nodes["b"].bind(T, rows(3_000, 5), two.now)
    two.settle()
    two.seen.clear()
    two.nodes["a"].up("b", two.now)
    two.nodes["b"].up("a", two.now)
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


@pytest.mark.parametrize("count", [50, 51])
def test_rows_of_one_set_are_bounded(count: int) -> None:
    """At the bound the rows are held; one past it `#` stands for them, also further on, and is not asked for again."""
    three = Together("abc", Bounds(keys_max=5_000))
    three.nodes["b"].bounds = Bounds(rows_max=50)
    for neighbour in three.nodes["b"].neighbours.values():
        neighbour.taking.rows_max = 50
    three.nodes["c"].bind(T, rows(count), three.now)
    three.settle()
    expected = set(rows(count)) if count == 50 else {EVERYTHING}
    assert three.rows("b", "c") == three.rows("a", "c") == expected
    assert three.nodes["a"].choose(T, "k.7").branches == ("c",)
    three.wait(1.0)  # names are told
    three.seen.clear()
    three.wait(65.0)
    assert set(three.kinds()) == {"federate", "compare"}
    three.nodes["c"].bind(T, rows(3), three.now)
    three.settle()
    assert three.nodes["a"].choose(T, "k.1").branches == ("c",)


def test_bytes_of_all_sets_are_bounded() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    two.nodes["a"].bounds = Bounds(bytes_max=300)
    two.nodes["b"].bind(T, rows(100), two.now)
    two.settle()
    assert two.rows("a", "b") == {EVERYTHING}
    assert two.nodes["a"].sets.bytes <= 300


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


def test_binds_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.federation.federation.WAITING_MAX", 2)
    monkeypatch.setattr(confirming, "WAITING_MAX", 2)
    node = Together("ab").nodes["a"]
    node.bind(T, [Row("x")], 0.0)
    tokens = [node.confirm(T, Row("x"), 0.0, 60.0) for _ in range(3)]
    (answer,) = node.answers()
    assert answer.token == tokens[-1]
    assert not answer.complete


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


def test_sets_that_a_neighbour_follows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FOLLOWED_MAX", 20)
    node = Together("ab").nodes["a"]

    def followed(first: int, count: int) -> str | None:
        asked = [[f"n{number}", T, 0, 0, 0] for number in range(first, first + count)]
        return node.receive("b", {"kind": "follow", "rows": asked, "stop": [], "whole": True}, 0.0)

    assert followed(0, 20) is None
    assert followed(0, 21) is not None


def test_names_and_parts_of_a_neighbour_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "NAMES_MAX", 3)
    monkeypatch.setattr(serving, "REPLIES_MAX", 40)
    two = Together("ab")
    two.nodes["a"].bind(T, rows(400), two.now)
    two.settle()
    node = two.nodes["a"]
    held = node.sets.committed(Key("a", T))
    assert held is not None
    has = [*held.stamp, held.digest]

    def stored(count: int) -> str | None:
        names = [[f"n{number}", 1, 1] for number in range(count)]
        fields = {"kind": "stored", "origin": "a", "topic": T, "has": has, "whole": False, "names": names}
        return node.receive("b", fields, two.now)

    assert stored(3) is None
    assert stored(4) is not None
    monkeypatch.setattr(serving, "NAMES_MAX", 10)
    monkeypatch.setattr(serving, "NAMES_ALL_MAX", 3)
    assert stored(3) is None
    assert stored(4) is not None
    asked = {"kind": "parts", "origin": "a", "topic": T, "to": has, "prefix": "0", "digests": [1] * 16}
    for _ in range(3):
        assert node.receive("b", asked, two.now) is None
    assert len(node.neighbours["b"].serving.replies) == 40


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
    assert two.nodes["a"].sets.committed(Key("b", T)) is not None
    two.change = lambda start, end, fields: fields
    two.wait(35.0)
    assert two.rows("a", "b") == set(rows(5))


def test_topics_that_a_neighbour_names_one_after_another_take_no_place_from_others() -> None:
    node = Federation("a", 1, 0.0)
    for name in ("hostile", "b"):
        node.up(name, 0.0)
    for turn in range(40):
        topics = [f"no.{turn}.{number}" for number in range(TOPICS_MAX)]
        rows_of = [["a", topic, Ulong(0), Ulong(0), Ulong(0)] for topic in topics[:LIST_MAX]]
        federate = {"kind": "federate", "rows": [[topic, "dynamic"] for topic in topics]}
        follow: dict[str, Any] = {"kind": "follow", "rows": rows_of, "stop": [], "whole": False}
        assert node.receive("hostile", federate, 0.0) is None
        assert node.receive("hostile", follow, 0.0) is None
        while node.records(0.0):
            node.committed(0.0)
        validate(node)
        assert len(node.own) < LOOKED_MIN + TOPICS_MAX
    assert node.receive("b", {"kind": "federate", "rows": [[T, "dynamic"]]}, 0.0) is None
    assert T in node.spread()
    node.bind(T, [Row("x")], 0.0)
    held = node.sets.current(Key("a", T))
    assert held is not None and held.rows == {Row("x")}
    node.down("hostile", 0.0)
    while node.next_deadline(60.0) <= 60.0:
        node.tick(60.0)
        if node.records(60.0):
            node.committed(60.0)
    assert node.own.keys() == {T}, "what nobody needs goes"


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


def test_a_large_set_is_taken_by_a_bounded_number_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that joins asks for no more at once than the other keeps answers for, and is answered all the same."""
    monkeypatch.setattr(serving, "PART_ROWS", 1)
    monkeypatch.setattr(taking, "OPEN_MAX", 5)
    two = Together("ab", Bounds(keys_max=50_000))
    for one, other in ("ab", "ba"):
        two.nodes[one].down(other, two.now)
    two.nodes["b"].bind(T, rows(500), two.now)
    two.settle()
    most = 0

    def watched(start: str, end: str, fields: Fields) -> Fields:
        nonlocal most
        most = max(most, len(two.nodes["b"].neighbours["a"].serving.replies))
        return fields

    two.change = watched
    for one, other in ("ab", "ba"):
        two.nodes[one].up(other, two.now)
    two.settle()
    assert two.rows("a", "b") == set(rows(500))
    assert 5 < most <= 2 * 5 * BRANCHING
    assert not two.nodes["a"].neighbours["b"].taking.open


def test_who_asks_faster_than_it_is_answered_has_all_after_refreshes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier version does, which knows no bound: what finds no place is left to the next refresh."""
    monkeypatch.setattr(serving, "PART_ROWS", 1)
    monkeypatch.setattr(serving, "REPLIES_MAX", 30)
    two = Together("ab", Bounds(keys_max=50_000))
    for one, other in ("ab", "ba"):
        two.nodes[one].down(other, two.now)
    two.nodes["b"].bind(T, rows(120), two.now)
    two.settle()
    for one, other in ("ab", "ba"):
        two.nodes[one].up(other, two.now)
    two.settle()
    assert two.rows("a", "b") != set(rows(120))
    two.wait(8 * 30.0, step_s=15.0)
    assert two.rows("a", "b") == set(rows(120))


def test_parts_that_were_not_asked_for_are_passed_over() -> None:
    two = Together("ab", Bounds(keys_max=5_000))
    node, asked = two.nodes["a"], two.nodes["a"].neighbours["b"].taking
    head = {"origin": "b", "topic": T, "to": [5_000, 7, 1]}
    start = {"kind": "parts", "prefix": "", "digests": [1] * BRANCHING, "edges": ["a"]}
    assert node.receive("b", {**head, **start}, two.now) is None
    assert len(asked.repairs[Key("b", T)].asked) == BRANCHING
    for number in range(100):
        assert node.receive("b", {**head, "kind": "rows", "prefix": f"{number:08x}", "rows": []}, two.now) is None
        parts = {"kind": "parts", "prefix": f"{number:06x}", "digests": [1] * BRANCHING}
        assert node.receive("b", {**head, **parts}, two.now) is None
    assert len(asked.repairs[Key("b", T)].received) == 0
    assert asked.questions == BRANCHING
    validate(node)


def test_what_a_repair_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a set that never comes out right count before it does; past the bound `#` stands for them."""
    two = Together("ab", Bounds(keys_max=5_000))
    node, taken = two.nodes["a"], two.nodes["a"].neighbours["b"].taking
    row = Row("a." + "x" * 100)
    taken.bytes_max = row.size - 1
    head = {"origin": "b", "topic": T, "to": [5_000, 7, 1]}
    start = {"kind": "parts", "prefix": "", "digests": [1] * BRANCHING, "edges": ["a"]}
    assert node.receive("b", {**head, **start}, two.now) is None
    prefix = f"{row_hash(row):016x}"[:2]
    assert node.receive("b", {**head, "kind": "rows", "prefix": prefix, "rows": [row.pattern]}, two.now) is None
    held = node.sets.current(Key("b", T))
    assert held is not None and held.rows == {EVERYTHING}
    assert not taken.repairs and taken.repair_bytes == 0
    validate(node)


def test_a_question_costs_little_while_its_parts_are_at_hand() -> None:
    node = Together("ab", Bounds(keys_max=5_000)).nodes["b"]
    node.bind(T, rows(400), 0.0)
    node.records(0.0)
    node.committed(0.0)
    held = node.sets.committed(Key("b", T))
    assert held is not None
    question = PartsOf(Key("b", T), held.edition, "0", (0,) * BRANCHING)
    assert node.effort("a", question) == 5
    node.apply("a", question)
    assert node.effort("a", question) == 1


def test_a_node_takes_no_more_sets_of_a_neighbour_than_that_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps to the bound that it would end a session for; what is left out is counted."""
    monkeypatch.setattr(following, "FOLLOWED_MAX", 2)
    monkeypatch.setattr(serving, "FOLLOWED_MAX", 2)
    line = Together("abcde")
    for name, node in line.nodes.items():
        node.bind(T, [Row(name)], line.now)
    line.settle()
    line.wait(65.0)
    node = line.nodes["a"]
    assert len(node.sets.origins(T)) == 3 and node.following.left_out == 1
    assert node.choose(T, "b").branches == ("b",) and node.choose(T, "e").branches == ()
    line.nodes["c"].configure([], line.now)
    line.settle()
    assert node.following.left_out == 0


def test_of_more_nodes_than_are_taken_those_stay_that_were_there_first() -> None:
    line = Together("abcd", Bounds(origins_max=2))
    for name, node in line.nodes.items():
        node.bind(T, [Row(name)], line.now)
    line.settle()
    node = line.nodes["a"]
    first = set(node.parents)
    assert len(first) == 2 and node.following.left_out == 1
    line.wait(65.0)
    assert set(node.parents) == first and node.following.left_out == 1


def test_a_node_tells_no_more_names_than_its_neighbour_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is behind it and not named counts all the same: all of them are waited for."""
    monkeypatch.setattr(serving, "NAMES_MAX", 2)
    monkeypatch.setattr(taking, "TOLD_MAX", 2)
    line = Together("abcde")
    line.refusing = {"e"}
    node = line.nodes["a"]
    node.bind(T, [Row("x")], line.now)
    node.confirm(T, Row("x"), line.now, 60.0)
    line.settle()
    line.wait(1.0)
    assert not node.answers()
    line.refusing = set()
    line.wait(2.0)
    (answer,) = node.answers()
    assert answer.complete and len(answer.confirmed) == 3
    monkeypatch.setattr(serving, "NAMES_ALL_MAX", 3)
    monkeypatch.setattr(taking, "TOLD_ALL_MAX", 3)
    for name, each in line.nodes.items():
        each.bind(T, [Row(name)], line.now)
        for neighbour in each.neighbours.values():
            neighbour.say_again()
    line.settle()
    line.wait(35.0)
    assert max(one.taking.named for each in line.nodes.values() for one in each.neighbours.values()) == 3
