"""A node's own set: in which order its versions change it, and who counts as having stored one."""

import pytest

from holdfast.federation import own as own_module
from holdfast.federation.own import COVERING_MAX, Own
from holdfast.federation.rows import WIDE, Row, Stamp
from holdfast.federation.sets import Held, Key, changed, make
from holdfast.federation.standing import Standing


def versions(own: Own, held: Held) -> list[Held]:
    found = [held]
    while (made := own.next(found[-1], 0.0, 50_000, 50_000, 2_000.0)) is not None:
        found.append(made)
    return found


def test_an_edge_that_comes_comes_first_and_one_that_leaves_leaves_last() -> None:
    """What was bound behind it is to be known, or not asked for, as long as rows change."""
    before = make(Stamp(1, 1), [Row("old")], "ab")
    own = Own(frozenset("bc"))
    own.want(Row(f"k.{number}") for number in range(900))
    _, first, *_, last = found = versions(own, before)
    assert first.edges == set("abc") and last.edges == set("bc") and last.rows == own.rows
    edges = [len(one.edges) for one in found[1:]]
    assert edges == sorted(edges, reverse=True)


def test_a_version_that_was_taken_back_is_announced_again() -> None:
    before = make(Stamp(1, 1), [Row("old")], "")
    own = Own()
    own.want([Row("new")])
    *_, last = versions(own, before)
    assert last.rows == {Row("new")} and own.next(last, 0.0, 50_000, 50_000, 2_000.0) is None
    again = own.next(before, 0.0, 50_000, 50_000, 2_000.0)
    assert again is not None and again.rows == {Row("new")}


def test_a_row_that_a_fault_in_memory_hid_is_announced_after_the_refresh() -> None:
    own, held = Own(), make(Stamp(1, 1), [Row("a")], "")
    own.want([Row("a")])
    assert own.next(held, 0.0, 50_000, 50_000, 2_000.0) is None
    own._wanted.rows.add(Row("b"))  # not by way of what counts changes
    assert own.next(held, 0.0, 50_000, 50_000, 2_000.0) is None
    own.recount(held)
    healed = own.next(held, 0.0, 50_000, 50_000, 2_000.0)
    assert healed is not None and healed.rows == {Row("a"), Row("b")}


def test_a_row_that_is_bound_after_a_summary_has_ended_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact rows are there: nothing follows a summary any more."""
    monkeypatch.setattr(own_module, "ROWS_MAX", 4)
    own, held, now, summed = Own(), make(Stamp(1, 1), (), ()), 0.0, False
    own.want(Row(f"a.{number}") for number in range(9))
    while held.rows != own.rows:
        now += 1.0
        held = own.next(held, now, 3, 50, 2_000.0) or held
        summed = summed or any(row.bits & WIDE for row in held.rows)
    assert summed and not own.is_summed(50)
    own.change([Row("b.1")], ())
    made = own.next(held, now, 3, 50, 2_000.0)
    assert made is not None and made.rows - held.rows == {Row("b.1")}


def test_rows_with_wildcards_that_have_gone_are_not_in_the_way_of_others() -> None:
    """Only so many are looked at to find one that covers a binding."""
    own, held = Own(), make(Stamp(1, 1), (), ())
    own.committed(None, held)
    gone = [Row(f"k{number}.*") for number in range(COVERING_MAX)]
    for version, (add, remove) in enumerate([(gone, []), ([], gone), ([Row("a.*")], [])], 2):
        made = changed(held, Stamp(1, version), add=add, remove=remove, edges=frozenset())
        own.committed(held, made)
        held = made
    assert own.since_of(Row("a.b"), held.rows) == (Row("a.*"), Stamp(1, 4))


def test_who_tells_of_a_life_that_this_node_has_not_begun_has_stored_nothing() -> None:
    key = Key("a", "t")
    names = {"b": Stamp(9, 1), "c": Stamp(5, 3), "d": Stamp(5, 2), "e": Stamp(4, 7)}
    found = Standing(key, names, [], ["b", "c", "x"], {"b", "c"}).of(Stamp(5, 3))
    assert found.done == ("c",) and found.waiting == {"b"}
