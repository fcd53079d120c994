"""Maps that are laid out alike are read at once, and as they are by a walk."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire import encoding
from holdfast.amqp.wire.types import (
    Byte,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from holdfast.selectors.layouts import COST, LAYOUTS_MAX, MAP_BYTES_MAX, SAVED_MAX, Layouts, layout_of
from holdfast.selectors.predicate import COMPILED_MAX, compile_selector
from holdfast.selectors.sections import Sections

SECTION = b"\0\x53\x74"

texts = st.text(alphabet=st.sampled_from("abz\0\x7f\x80é\n.{"), max_size=6)
values = st.one_of(
    st.none(), st.booleans(), texts, st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200), st.binary(max_size=3),
    st.floats(allow_nan=False), st.builds(Int, st.integers(-(2**31), 2**31 - 1)), st.builds(Int, st.integers(-9, 9)),
    st.builds(Ulong, st.integers(0, 2**64 - 1)), st.just(Symbol("s")), st.builds(Uint, st.integers(0, 2**32 - 1)),
    st.sampled_from([Ubyte(200), Byte(-3), Ushort(60_000), Short(-5), Float(0.5), Timestamp(-1), Uint(0), Ulong(7)]),
)  # fmt: skip
maps = st.dictionaries(texts, values, max_size=5)


def wide(items: bytes, count: int) -> bytes:
    """A map with a size and a count of four bytes, as many clients write each."""
    return b"\xd1" + (len(items) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items


def encoded(pairs: dict[str, Any], *, is_wide: bool) -> bytes:
    items = b"".join(encoding.encode(item) for pair in pairs.items() for item in pair)
    if is_wide or len(items) > 254:
        return wide(items, 2 * len(pairs))
    return b"\xc1" + bytes((len(items) + 1, 2 * len(pairs))) + items


def answers(payload: bytes, names: list[str], layouts: Layouts | None) -> list[str]:
    """With their types, so that 1, 1.0 and True are not the same."""
    message = Sections(payload, layouts=layouts)
    return [repr(message.application_property(name)) for name in names]


@given(maps, st.booleans(), st.data())
def test_a_layout_gives_the_answers_of_a_walk(pairs: dict[str, Any], is_wide: bool, data: st.DataObject) -> None:
    """Of the map that it was learnt from, of one with other values, and of one with a byte that is wrong."""
    layouts, names = Layouts(), [*pairs, "not there"]
    of_the_same_types = {
        name: data.draw(values.filter(lambda other, one=value: type(other) is type(one)))
        for name, value in pairs.items()
    }
    one, other = encoded(pairs, is_wide=is_wide), encoded(of_the_same_types, is_wide=is_wide)
    at = data.draw(st.integers(0, len(one) - 1))
    broken = one[:at] + bytes((one[at] ^ data.draw(st.integers(1, 255)),)) + one[at + 1 :]
    for content in (one, one, other, broken, one):
        payload = SECTION + content
        assert answers(payload, names, layouts) == answers(payload, names, None)


@given(
    st.dictionaries(
        st.text("abc", min_size=1), st.one_of(st.booleans(), st.text("xy"), st.integers(-99, 99)), max_size=6
    )
)
def test_a_map_of_usual_values_has_a_layout(pairs: dict[str, Any]) -> None:
    for is_wide in (False, True):
        content, layouts = encoded(pairs, is_wide=is_wide), Layouts()
        layouts.learn(content)
        assert layouts.find(content) is not None


def test_a_booleans_place_may_have_the_other_and_null() -> None:
    layout = layout_of(encoded({"a": True}, is_wide=False))
    assert layout is not None
    for value in (True, False, None):
        content = encoded({"a": value}, is_wide=False)
        assert layout.fits(content) and layout.value("a")(content) is value


conditions = st.sampled_from([
    "a = 'a'", "a <> 'a'", "'b' = a", "a = 'é'", "b > 3", "3 >= b", "b = 0.5", "a = b", "a <> b", "a IS NULL",
    "z IS NULL", "b IS NOT NULL", "a IN ('a', 'zz')", "a NOT IN ('a')", "a LIKE 'a%'", "a NOT LIKE '_'",
    "b BETWEEN -9 AND 9", "b NOT BETWEEN a AND 3", "a", "b = TRUE", "b + 1 > a * 2", "- b < 0", "z = 'a'",
])  # fmt: skip
selectors = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@given(selectors, st.dictionaries(st.sampled_from("abc"), values, max_size=3), st.booleans())
def test_a_selector_that_is_compiled_for_a_layout_says_what_it_says_of_the_message(
    text: str, pairs: dict[str, Any], is_wide: bool
) -> None:
    content, predicate = encoded(pairs, is_wide=is_wide), compile_selector(text)
    layout = layout_of(content)
    condition = None if layout is None else predicate.of_layout(layout)
    assert predicate.has_layouts and (condition is None) is (layout is None)
    if condition is not None:
        assert condition(content) is predicate.value(Sections(SECTION + content))


def test_a_selector_is_compiled_for_few_layouts_at_a_time_and_for_others_by_and_by() -> None:
    layouts = [layout_of(encoded({"a": "x" * length}, is_wide=False)) for length in range(COMPILED_MAX + 1)]
    predicate = compile_selector("a = 'x'")
    for layout in layouts[:-1]:
        assert layout is not None and predicate.of_layout(layout) is not None
    last = layouts[-1]
    assert last is not None
    for _ in range(COST - 1):
        assert predicate.of_layout(last) is None
    assert predicate.of_layout(last) is not None
    assert list(predicate.by_layout) == [last]


@pytest.mark.parametrize(
    "text", ["a = 'x' AND JMSPriority = 4", "TRUE", " OR ".join(f"a = '{one}'" for one in range(20))]
)
def test_a_selector_that_asks_for_more_or_is_long_is_compiled_for_no_layout(text: str) -> None:
    predicate, layout = compile_selector(text), layout_of(encoded({"a": "x"}, is_wide=False))
    assert layout is not None and not predicate.has_layouts
    assert predicate.of_layout(layout) is None and not predicate.by_layout


def test_what_has_no_layout() -> None:
    for pairs in ({"a": Symbol("s")}, {"é": 1}, {"a": "é"}, {"a": b"x"}):
        assert layout_of(encoded(pairs, is_wide=False)) is None
    layouts, content = Layouts(), encoded({f"key {number}": "x" * 40 for number in range(30)}, is_wide=True)
    assert len(content) > MAP_BYTES_MAX
    assert Sections(SECTION + content, layouts=layouts).application_property("key 0") == "x" * 40
    assert layouts.find(content) is None  # it is too large


def test_what_is_learnt_and_how_often_is_bounded() -> None:
    """Maps that are never alike stop being learnt, and those that come later are learnt again."""
    layouts = Layouts()
    learnt = []
    for number in range(SAVED_MAX):
        content = encoded({"x" * (number % 200): str(number), "y" * (number // 200): True}, is_wide=False)
        if layouts.find(content) is None:
            layouts.learn(content)
            if layouts.find(content) is not None:
                learnt.append(content)
    assert SAVED_MAX // COST <= len(learnt) <= 4 * SAVED_MAX // COST
    for number in range(LAYOUTS_MAX * COST):
        content = encoded({"z" * (number // COST + 1): "x"}, is_wide=False)
        if layouts.find(content) is None:
            layouts.learn(content)
    assert layouts.find(content) is not None
    assert layouts.find(learnt[0]) is None  # the oldest went
