"""What a change costs where there are many rows: no more than what changes, and what a bind may look at is bounded."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.federation import index as index_module
from holdfast.federation import own as own_module
from holdfast.federation.confirming import REGULARS_MAX, Confirming
from holdfast.federation.federation import Federation
from holdfast.federation.keeping import Sets
from holdfast.federation.own import COVERING_MAX, Own
from holdfast.federation.rows import EVERYTHING, RELAY, WIDE, Row, Stamp
from holdfast.federation.sets import Key, make
from holdfast.federation.settings import Entry
from holdfast.federation.summaries import summary

T = "t"
KEY = Key("ewr", T)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """How often that function is called: the length of the list."""
    calls: list[int] = []
    told = getattr(module, name)

    def called(*given: Any, **more: Any) -> Any:
        calls.append(1)
        return told(*given, **more)

    monkeypatch.setattr(module, name, called)
    return calls


def stored(node: Federation) -> None:
    while node.records(0.0):
        node.committed(0.0)


def test_a_summary_stays_while_it_covers_what_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Federation("a", 1, 0.0)
    node.configure([Entry(T, "b")], 0.0)
    rows = {Row(f"k.{number}") for number in range(2_000)}
    node.bind(T, rows, 0.0)
    stored(node)
    made = counted(monkeypatch, own_module, "summary")
    for number in range(50):
        rows = rows | {Row(f"k.new.{number}")} if number == 25 else rows | {Row(f"k.{9_000 + number}")}
        node.bind(T, rows, 0.0)
        stored(node)
    assert len(made) <= 2, "made anew for the one that it did not cover"
    held = node.sets.committed(Key("a", T))
    assert held is not None and {row.pattern for row in held.rows if row.bits & WIDE} == {"k.#"}


def test_what_changes_of_many_rows_is_announced_without_a_look_at_the_others() -> None:
    node = Federation("a", 1, 0.0)
    node.configure([Entry(T, "b")], 0.0)
    node.bind(T, [Row(f"k.{number}") for number in range(900)], 0.0)
    stored(node)
    looked: list[Row] = []

    class Watched(set[Row]):
        def __iter__(self) -> Iterator[Row]:
            for row in super().__iter__():
                looked.append(row)
                yield row

    node.bindings[T] = Watched(node.bindings[T])
    node.own[T]._wanted.rows = Watched(node.own[T].rows)
    node.rebind(T, [Row("k.new")], [Row("k.7")], 0.0)
    writes = node.records(0.0)
    assert len(writes) == 3, "the head of the set, the row that comes and the one that goes"
    node.committed(0.0)
    held = node.sets.committed(Key("a", T))
    assert held is not None and len(held.rows) == 900 and Row("k.new") in held.rows and Row("k.7") not in held.rows
    assert not looked and held.steps[-1][3:] == ({Row("k.new")}, {Row("k.7")})


def test_rows_of_static_entries_stay_while_those_of_clients_change() -> None:
    node = Federation("a", 1, 0.0)
    node.configure([Entry(T, "b"), Entry(T, "c", "static", ("k.1",))], 0.0)
    node.rebind(T, [Row("k.1"), Row("k.2")], [], 0.0)
    node.rebind(T, [], [Row("k.1")], 0.0)
    assert node.own[T].rows == {Row("k.1", None, RELAY), Row("k.2")} and node.bindings[T] == {Row("k.2")}
    node.rebind("other", [Row("x")], [], 0.0)
    assert node.own["other"].rows == {Row("x")}


def test_what_is_announced_is_not_compared_again_before_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Federation("a", 1, 0.0)
    node.configure([Entry(T, "b")], 0.0)
    node.bind(T, {Row(f"k.{number}") for number in range(900)}, 0.0)
    stored(node)
    compared = counted(monkeypatch, Own, "_difference")
    for _ in range(100):
        node.settle(0.0)
    assert len(compared) <= 1


def test_a_bind_looks_at_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own()
    rows = [Row(f"k.{number}.*") for number in range(5_000)]
    held = make(Stamp(1, 1), [*rows, Row("q.#")], "")
    own.committed(None, held)
    asked = counted(monkeypatch, own_module, "covers")
    own.since_of(Row("z.z"), held.rows)
    assert len(asked) <= COVERING_MAX + 8
    assert own.since_of(Row("k.7.*"), held.rows) == (Row("k.7.*"), Stamp(1, 1))
    assert own.since_of(Row("k.7.*", "x = 1"), held.rows) == (Row("k.7.*"), Stamp(1, 1)), (
        "without a selector it is wider"
    )


def test_the_first_version_that_covers_a_bind_counts() -> None:
    own = Own()
    first = make(Stamp(1, 1), [Row("a.#")], "")
    own.committed(None, first)
    second = make(Stamp(1, 2), [Row("a.#"), Row("a.b")], "")
    own.committed(first, second)
    assert own.since_of(Row("a.b"), second.rows) == (Row("a.#"), Stamp(1, 1))
    assert own.since_of(Row("a.b"), second.rows, all_of_them=False) == (Row("a.b"), Stamp(1, 2))
    assert own.since_of(Row("a.b"), frozenset([Row("a.b")])) == (Row("a.b"), Stamp(1, 2)), "the other is withdrawn"
    assert own.since_of(Row("a.b"), frozenset()) is None


def test_a_summary_covers_each_row_by_its_own_group() -> None:
    rows = [Row(f"a.{number % 40}.{number}") for number in range(2_000)]
    found = summary([*rows, Row("b")])
    assert len(found) <= 64 and EVERYTHING not in found and Row("b", None, WIDE) in found


def test_an_index_is_changed_and_not_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = Sets()
    sets.put(KEY, make(Stamp(1, 1), [Row(f"k.{number}.*") for number in range(100)], ""))
    index = sets.index(T, "me")
    assert list(index.wanting("k.7.x", lambda text: None)) == ["ewr"]
    trees = counted(monkeypatch, index_module, "PatternTree")
    sets.put(KEY, make(Stamp(1, 2), [Row(f"k.{number}.*") for number in range(1, 101)], ""))
    assert list(sets.index(T, "me").wanting("k.100.x", lambda text: None)) == ["ewr"]
    assert not list(sets.index(T, "me").wanting("k.0.x", lambda text: None)) and not trees


def test_a_selector_of_many_origins_is_asked_once() -> None:
    sets = Sets()
    for number in range(20):
        sets.put(Key(f"n{number}", T), make(Stamp(1, 1), [Row("a", "x = 1")], ""))
    asked: list[str] = []
    assert len(list(sets.index(T, "me").wanting("a", lambda text: bool(asked.append(text)) or True))) == 20
    assert asked == ["x = 1"]


def test_an_index_that_is_false_is_made_anew_at_a_refresh() -> None:
    sets = Sets()
    sets.put(KEY, make(Stamp(1, 1), [Row("a")], ""))
    right = sets.index(T, "me")
    sets.compare(KEY)
    sets.recount()
    assert sets.index(T, "me") is right
    right.change("ewr", [Row("b")], [])
    sets.compare(KEY)
    assert list(sets.index(T, "me").wanting("b", lambda text: None)) == []
    sets.index(T, "me").change("ghost", [Row("a")], [])
    sets.recount()
    assert list(sets.index(T, "me").wanting("a", lambda text: None)) == ["ewr"]


def test_nodes_that_a_neighbour_names_one_after_another_are_not_all_waited_for() -> None:
    waiting = Confirming()
    for turn in range(10):
        waiting.listed(T, {f"n{turn}.{number}": Stamp(1, 1) for number in range(5_000)}, 0.0)
    assert len(waiting.regulars[T]) <= REGULARS_MAX


def test_a_topic_that_is_asked_for_stays_though_nobody_wants_anything_yet() -> None:
    node = Federation("a", 1, 0.0)
    node.configure([Entry(T, "b", direction="from")], 0.0)
    assert not node.entries and not node.own[T].edges
    stored(node)
    for turn in range(1, 4):
        node.tick(31.0 * turn)
        while node.records(31.0 * turn):
            node.committed(31.0 * turn)
    assert T in node.own and node.spread() == {T}
    node.configure([], 100.0)
    node.tick(200.0)
    assert T not in node.spread()
