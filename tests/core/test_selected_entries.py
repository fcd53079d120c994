"""What a selector says of an entry does not depend on how it was found: at its usual place, by a layout, or by a walk
(docs/adr/0063, item 11)."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Int, Symbol, Ulong
from holdfast.broker.entries import entry
from holdfast.broker.subjects import Pattern
from holdfast.endpoints.attaching.filters import Decoded, EntrySelector
from holdfast.endpoints.entry_sections import sections_of, usual_properties
from holdfast.selectors.layouts import MAP_BYTES_MAX
from holdfast.selectors.predicate import compile_selector
from holdfast.storage.memory import MemoryStore

STORE = MemoryStore()
SELECTORS = ("a = 'x'", "b > 3 AND a <> 'y'", "a IS NULL OR b = 1", "JMSType = 's' AND a = 'x'", "JMSPriority > 4")
UNUSUAL = b"\x00\x53\x74\xd1\x00\x00\x00\x0c\x00\x00\x00\x02\xa1\x01a\xb1\x00\x00\x00\x01x" + b"\x00\x53\x77\x40"
"""A map with a size of four bytes, whose value has a length of four."""
SHORT = b"\x00\x53\x74\xc1\x08\x02\xa1\x01a\xa1\x01x"
"""A map whose size is more than there is."""

maps = st.dictionaries(
    st.sampled_from("ab"), st.sampled_from(["x", "y", "", None, True, 1, 5, Int(300), Ulong(7), 0.5, Symbol("x")])
)
messages = st.builds(
    lambda pairs, properties: Message(application_properties=pairs, properties=properties, value=1).encode(),
    st.none() | maps,
    st.none() | st.builds(Properties, subject=st.sampled_from(["s", "t" * 300]), message_id=st.none() | st.just("m")),
) | st.sampled_from([UNUSUAL, SHORT])


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """Plain ones, with annotations, on their way to another node, cut or with a byte that is wrong."""
    bare = draw(messages)
    wrong = draw(st.sampled_from(["", "", "cut", "byte"]))
    at = draw(st.integers(0, max(0, len(bare) - 1)))
    if wrong == "cut":
        bare = bare[:at]
    elif wrong == "byte" and bare:
        bare = bare[:at] + bytes((bare[at] ^ draw(st.integers(1, 255)),)) + bare[at + 1 :]
    passed = entry.Identity(UUID(int=1), 1) if draw(st.booleans()) else None
    notes = draw(st.sampled_from([b"", b"\xa1\x01n\xa1\x01x"]))
    return entry.pack(
        flags=1, enqueued_ms=1, bare=bare, priority=draw(st.integers(0, 9)), annotation_count=2 if notes else 0,
        annotations=notes, identity=passed, to="work@hub" if passed else "",
    )  # fmt: skip


@given(st.lists(entries(), max_size=6), st.sampled_from(SELECTORS))
def test_one_by_one_and_in_a_row_the_answers_are_those_of_a_walk(found: list[bytes], text: str) -> None:
    predicate, decoded = compile_selector(text), Decoded()
    alone, beside = (
        EntrySelector(predicate, None, STORE, decoded),
        EntrySelector(predicate, Pattern("s"), STORE, decoded),
    )
    asked = [*found, *found, *reversed(found)]  # what was learnt of one is there for the next
    expected = [predicate.matches(sections_of(value, STORE)) for value in asked]
    assert [alone.matches(value) for value in asked] == expected
    assert [*alone.each(asked)] == expected
    of_the_subject = [sections_of(value, STORE).property_field(3) == "s" for value in asked]
    both = [one and other for one, other in zip(expected, of_the_subject, strict=True)]
    assert [beside.matches(value) for value in asked] == both
    assert [*beside.each(asked)] == both


def test_the_usual_place_is_found_up_to_a_bound() -> None:
    def found(pairs: dict[str, Any], **properties: Any) -> bytes:
        told = Properties(**properties) if properties else None
        bare = Message(application_properties=pairs, properties=told, data=[b"x"]).encode()
        return usual_properties(entry.pack(flags=1, enqueued_ms=1, bare=bare))

    assert found({"a": "x"}) == found({"a": "x"}, subject="s") == b"\xc1\x07\x02\xa1\x01a\xa1\x01x"
    assert not found({"a": "x"}, subject="s" * 300)  # the properties are a long list
    text = "x" * (MAP_BYTES_MAX - 17)
    assert len(found({"a": text})) == MAP_BYTES_MAX and not found({"a": text + "x"})


def test_a_map_that_is_shorter_than_it_says_is_unknown() -> None:
    value, predicate = entry.pack(flags=1, enqueued_ms=1, bare=SHORT), compile_selector("a = 'x'")
    assert not predicate.matches(sections_of(value, STORE))
    assert not EntrySelector(predicate, None, STORE, Decoded()).matches(value)


def test_what_is_laid_out_alike_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [
        entry.pack(flags=1, enqueued_ms=1, bare=Message(application_properties={"a": "x", "n": number}).encode())
        for number in range(100)
    ]
    selector = EntrySelector(compile_selector("a = 'x' AND n < 50"), None, STORE, Decoded())
    assert selector.matches(values[0])
    monkeypatch.setattr("holdfast.endpoints.attaching.filters.sections_of", None)
    assert sum(selector.matches(value) for value in values) == 50
    assert sum(selector.each(values)) == 50
