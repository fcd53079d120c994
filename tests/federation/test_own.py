"""A node's own set: in which order its versions change it, and who counts as having stored one."""

from holdfast.federation.own import Own
from holdfast.federation.rows import Row, Stamp
from holdfast.federation.sets import Held, Key, make
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


def test_who_tells_of_a_life_that_this_node_has_not_begun_has_stored_nothing() -> None:
    key = Key("a", "t")
    names = {"b": Stamp(9, 1), "c": Stamp(5, 3), "d": Stamp(5, 2), "e": Stamp(4, 7)}
    found = Standing(key, names, [], ["b", "c", "x"], {"b", "c"}).of(Stamp(5, 3))
    assert found.done == ("c",) and found.waiting == {"b"}
