"""What one neighbour takes: which message it is sent about a set, and how a comparison of parts ends."""

from typing import Any

import pytest

from holdfast.federation import serving as serving_module
from holdfast.federation.federation import Federation
from holdfast.federation.messages import Change, Follow, PartsOf, Stored
from holdfast.federation.rows import Row, Stamp
from holdfast.federation.serving import PARTS_KEPT, PartsCache, Serving
from holdfast.federation.sets import Edition, Held, Key, changed, make
from holdfast.federation.settings import Bounds
from holdfast.federation.taking import voided
from support.exchange import T, Together, compare_parts, rows

KEY = Key("o", T)
UNKNOWN = Edition(Stamp(1, 1), 7)


def taking(has: Edition) -> Serving:
    """A neighbour that takes the set and has this edition."""
    serving = Serving("a")
    serving.federate(frozenset([T]))
    serving.follow(Follow(((KEY, has),), (), False))
    return serving


def later(held: Held, word: str) -> Held:
    stamp = Stamp(1, held.stamp.version + 1)
    return changed(held, stamp, add=[Row(word)], remove=[], edges=frozenset())


def test_what_a_follower_has_from_elsewhere_is_not_compared() -> None:
    """It may have stored a version, and said so, before it was stored here."""
    held = make(Stamp(1, 3), rows(100), ())
    serving = taking(UNKNOWN)
    serving.stored(Stored(KEY, held.edition, True, ()), None)
    assert serving.next(KEY, held, PartsCache()) is None
    message = serving.next(KEY, later(held, "x"), PartsCache())
    assert isinstance(message, Change) and message.add == (Row("x"),)


def test_a_comparison_ends_when_the_follower_has_a_later_version_from_elsewhere() -> None:
    first = make(Stamp(1, 3), rows(100), ())
    second = later(first, "x")
    third = later(second, "y")
    cache = PartsCache()
    serving = taking(UNKNOWN)
    message = serving.next(KEY, first, cache)
    assert isinstance(message, PartsOf) and message.new == first.edition
    assert serving.next(KEY, second, cache) is None, "it compares"
    serving.stored(Stored(KEY, second.edition, True, ()), first)
    assert serving.compared(KEY, first.edition) is None
    message = serving.next(KEY, third, cache)
    assert isinstance(message, PartsOf) and message.new == third.edition


def test_a_comparison_ends_when_the_follower_keeps_something_else_in_place_of_the_rows() -> None:
    """They do not fit there: it has that version, with other contents, and asks for no more parts."""
    first = make(Stamp(1, 3), rows(100), ())
    serving = taking(UNKNOWN)
    assert isinstance(serving.next(KEY, first, PartsCache()), PartsOf)
    serving.stored(Stored(KEY, Edition(first.stamp, 7), True, ()), first)
    assert serving.compared(KEY, first.edition) is None
    assert serving.next(KEY, later(first, "x"), PartsCache()) is not None


@pytest.mark.parametrize("bound", ["TOLD_MAX", "TOLD_ALL_MAX"])
def test_a_follower_at_the_bound_of_names_may_have_left_some_out(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the set, or of all sets together."""
    monkeypatch.setattr(serving_module, bound, 2)
    serving = taking(UNKNOWN)
    for count in (1, 2):
        serving.stored(Stored(KEY, UNKNOWN, False, ((f"n{count}", Stamp(1, 1)),)), None)
        assert serving.followers[KEY].lists_all == (count < 2)


def test_what_a_follower_compared_to_the_end_is_the_base_of_the_next_change() -> None:
    first = make(Stamp(1, 3), rows(100), ())
    second = later(first, "x")
    serving = taking(UNKNOWN)
    assert isinstance(serving.next(KEY, first, PartsCache()), PartsOf)
    serving.stored(Stored(KEY, UNKNOWN, False, (("n", Stamp(1, 1)),)), second)
    assert serving.next(KEY, second, PartsCache()) is None, "only names moved: it still compares"
    serving.stored(Stored(KEY, first.edition, True, ()), second)
    message = serving.next(KEY, second, PartsCache())
    assert isinstance(message, Change) and (message.old, message.new) == (first.edition, second.edition)


def test_neighbours_compare_one_form_of_a_set_that_goes_on_changing() -> None:
    """Its parts are made once, and from there each goes on by the changes."""
    cache = PartsCache()
    held = make(Stamp(1, 3), rows(100), ())
    first, *others = (taking(UNKNOWN) for _ in range(2 * PARTS_KEPT))
    begun = first.next(KEY, held, cache)
    assert isinstance(begun, PartsOf)
    for number, serving in enumerate(others):
        held = later(held, f"x.{number}")
        assert serving.next(KEY, held, cache) == begun
    held = later(held, "y")
    ahead = taking(Edition(Stamp(1, 4), 7))
    message = ahead.next(KEY, held, cache)
    assert isinstance(message, PartsOf) and message.new == held.edition, "it has a later one than that"
    others[0].stored(Stored(KEY, begun.new, True, ()), held)
    message = others[0].next(KEY, held, cache)
    assert isinstance(message, Change) and len(message.add) == len(others) + 1


def test_nothing_is_told_of_the_parts_of_a_set_that_became_void() -> None:
    two = Together("ab")
    node = two.nodes["a"]
    node.bind(T, rows(100), two.now)
    two.settle()
    compare_parts(node, "b", two.now)
    serving, key = node.neighbours["b"].serving, Key("a", T)
    held = node.sets.committed(key)
    assert held is not None and serving.compared(key, held.edition) is held
    node.sets.put(key, voided(held))
    node.records(two.now)
    node.committed(two.now)
    assert serving.compared(key, held.edition) is None


def test_a_comparison_that_was_not_ended_begins_again_at_a_refresh() -> None:
    first = make(Stamp(1, 3), rows(100), ())
    second = later(first, "x")
    serving = taking(UNKNOWN)
    assert isinstance(serving.next(KEY, first, PartsCache()), PartsOf)
    serving.send_again()
    message = serving.next(KEY, second, PartsCache())
    assert isinstance(message, PartsOf) and message.new == second.edition


def commit(node: Federation) -> None:
    while node.records(0.0):
        node.committed(0.0)


@pytest.mark.parametrize("ends", ["session", "follow", "comparison"])
def test_what_nobody_compares_any_more_takes_no_memory(ends: str) -> None:
    """Of a set all of whose rows are withdrawn; while it is compared, it is counted."""
    node = Together("ab", Bounds(keys_max=5_000)).nodes["a"]
    node.bind(T, rows(400), 0.0)
    commit(node)
    compare_parts(node, "b", 0.0)
    key = Key("a", T)
    held = node.sets.committed(key)
    assert held is not None and node.cache.has(held)
    assert node.sets.bytes < node.held_bytes < 1.5 * node.sets.bytes
    node.bind(T, [], 0.0)
    commit(node)
    assert node.cache.has(held) and node.held_bytes > node.sets.bytes + held.bytes
    if ends == "session":
        node.down("b", 0.0)
    elif ends == "follow":
        stop: dict[str, Any] = {"kind": "follow", "rows": [], "stop": [["a", T]], "whole": False}
        assert node.receive("b", stop, 0.0) is None
    else:
        has = [*held.stamp, held.digest]
        stored = {"kind": "stored", "origin": "a", "topic": T, "has": has, "whole": False, "names": []}
        assert node.receive("b", stored, 0.0) is None
    node.take("b", 200, 0.0)
    while node.next_deadline(60.0) <= 60.0:
        node.tick(60.0)
        commit(node)
    assert not node.cache.has(held) and node.held_bytes == node.sets.bytes


def test_parts_stay_for_the_next_neighbour_while_the_set_is_the_same() -> None:
    node = Together("abc", Bounds(keys_max=5_000)).nodes["b"]
    node.bind(T, rows(400), 0.0)
    commit(node)
    held = node.sets.committed(Key("b", T))
    assert held is not None
    compare_parts(node, "a", 0.0)
    node.down("a", 0.0)
    node.tick(60.0)
    assert node.cache.has(held)
    node.bind(T, rows(399), 0.0)
    commit(node)
    assert not node.cache.has(held)
