"""What one neighbour takes: which message it is sent about a set, and how a comparison of parts ends."""

from holdfast.federation.messages import Change, Follow, PartsOf, Stored
from holdfast.federation.rows import Row, Stamp
from holdfast.federation.serving import PartsCache, Serving
from holdfast.federation.sets import Edition, Held, Key, changed, make
from support.exchange import T, rows

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


def test_a_comparison_that_was_not_ended_begins_again_at_a_refresh() -> None:
    first = make(Stamp(1, 3), rows(100), ())
    second = later(first, "x")
    serving = taking(UNKNOWN)
    assert isinstance(serving.next(KEY, first, PartsCache()), PartsOf)
    serving.send_again()
    message = serving.next(KEY, second, PartsCache())
    assert isinstance(message, PartsOf) and message.new == second.edition
