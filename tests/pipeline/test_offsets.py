"""What a query's offsets hold: the places of this version and of the one before."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_holdfast.offsets import FORMER, Offset, Place, key_of, offset_of, places_in, shown

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="@"), min_size=1, max_size=8)
PLACES = st.builds(Place, st.text(max_size=4), st.integers(0, 2**62))


@pytest.mark.parametrize(
    "value",
    [
        None, 3, {}, {"sub": "s", "queue": "u"}, {"sub": 1, "queue": "u", "seq": 1}, {"sub": "s", "queue": 1, "seq": 1},
        {"sub": "s", "at": {"a/q": 1}, "queues": {}}, {"sub": "s", "at": [1], "queues": ["u"]},
        {"sub": "s", "at": {"a/q": True}, "queues": {"a/q": "u"}}, {"sub": "s", "at": {"a/q": 1}, "queues": {"a/q": 2}},
    ],
)  # fmt: skip
def test_what_is_no_offset(value: object) -> None:
    assert offset_of(value) is None


@given(places=st.dictionaries(st.builds(key_of, NAMES, NAMES), PLACES, max_size=4))
def test_it_is_the_same_out_of_json_and_one_text(places: dict[str, Place]) -> None:
    offset = Offset("s", places)
    text = json.dumps(offset.json())
    assert offset_of(json.loads(text)) == offset
    assert json.dumps(Offset("s", dict(reversed(places.items()))).json()) == text


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_two_queues_have_one_key(node: str, queue: str, other: str, third: str) -> None:
    assert (key_of(node, queue) == key_of(other, third)) == ((node, queue) == (other, third))
    assert shown(key_of(node, queue)) == f"queue {queue!r} of node {node!r}"


def test_a_place_of_an_earlier_version_is_found_by_the_queue_s_uuid() -> None:
    offset = offset_of({"sub": "s", "queue": "u", "seq": 7})
    assert offset == Offset("s", {FORMER: Place("u", 7)})
    assert offset.named({"u": "hub/q"}) == Offset("s", {"hub/q": Place("u", 7)})
    assert offset.named({"other": "hub/q"}) is offset
    assert places_in([offset], "hub/q", "u") == [Place("u", 7)]
    assert places_in([offset], "hub/q", "made anew") == []
