"""What a view of a message decodes, and when. AMQP 1.0 §3.2."""

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.entries import entry, packed
from holdfast.selectors import sections
from holdfast.selectors.predicate import compile_selector
from holdfast.selectors.sections import COMPOUND, UNDECODABLE, Sections

WHOLE = Message(
    header=Header(durable=True, priority=6),
    message_annotations={"x": 1},
    properties=Properties(subject="s"),
    application_properties={"a": 1},
    data=[b"body"],
)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the readers of sections are called, in order."""
    calls: list[str] = []
    for name in ("_read_fields", "_read_map"):
        read = getattr(sections, name)

        def noted(*place: Any, read: Any = read, name: str = name) -> Any:
            calls.append(name)
            return read(*place)

        monkeypatch.setattr(sections, name, noted)
    return calls


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("TRUE", []),
        ("a = 1", ["_read_map"]),
        ("a = 1 AND a = 1 AND b IS NULL", ["_read_map"]),
        ("JMSType = 's' AND amqp.to IS NULL", ["_read_fields"]),
        ("a = 1 AND JMSType = 's'", ["_read_map", "_read_fields"]),
        ("a = 2 AND JMSType = 's'", ["_read_map"]),
    ],
)
def test_only_what_is_asked_for_is_decoded_and_once(text: str, wanted: list[str], decoded: list[str]) -> None:
    bare = Message(properties=WHOLE.properties, application_properties={"a": 1}, data=[b"body"]).encode()
    message = Sections(bare)
    predicate = compile_selector(text)
    predicate.value(message)
    predicate.value(message)
    assert decoded == wanted


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("TRUE", set()),
        ("a = 1", {"application-properties"}),
        ("JMSType = 'x' OR amqp.to LIKE '%'", {"properties"}),
        ("JMSPriority > 4 AND amqp.durable", {"header"}),
        ("amqp.annotation.x IN ('y')", {"message-annotations"}),
        (
            "NOT (-a BETWEEN amqp.priority AND amqp.annotation.x + 1) OR JMSXGroupID IS NULL",
            {"header", "properties", "application-properties", "message-annotations"},
        ),
    ],
)
def test_a_predicate_tells_which_sections_it_names(text: str, named: set[str]) -> None:
    assert compile_selector(text).sections == named


def test_the_header_of_the_payload_counts_more_than_what_is_told() -> None:
    payload = WHOLE.encode()
    assert (Sections(payload).durable, Sections(payload, priority=1).priority) == (True, 6)
    bare = Message(value=1).encode()
    assert (Sections(bare).durable, Sections(bare).priority) == (False, 4)
    assert (Sections(bare, durable=True).durable, Sections(bare, priority=0).priority) == (True, 0)
    empty = Message(header=Header(), value=1).encode()
    assert (Sections(empty, durable=True, priority=7).durable, Sections(empty, priority=7).priority) == (False, 4)


@pytest.mark.parametrize("fields", [["yes", "high"], [1, "high"]])
def test_a_header_of_the_wrong_types_is_there_and_matches_nothing(fields: list[Any]) -> None:
    payload = encode(Described(Ulong(0x70), fields))
    assert Sections(payload).durable is UNDECODABLE
    assert compile_selector("JMSDeliveryMode = 'PERSISTENT'").value(Sections(payload)) is None
    assert compile_selector("JMSPriority > 0").value(Sections(payload)) is False


def test_annotations_may_be_told_apart_as_an_entry_keeps_them() -> None:
    items = encode(Symbol("x")) + encode(5)
    bare = Message(value=1).encode()
    value = entry.pack(flags=0, enqueued_ms=1, bare=bare, annotation_count=2, annotations=items)
    item = entry.unpack(value)
    message = Sections(item.bare, annotations=packed.annotations_of(value))
    assert compile_selector("amqp.annotation.x = 5").matches(message)
    assert Sections(WHOLE.encode(), annotations=(2, items)).annotation("x") == 1
    assert Sections(item.bare, annotations=(4, items)).annotation("x") is UNDECODABLE


def test_a_section_that_did_not_come_is_missing_or_undecodable() -> None:
    payload = Message(properties=Properties(subject="s")).encode()
    assert Sections(payload).application_property("a") is None
    assert Sections(payload, whole=False).application_property("a") is UNDECODABLE
    assert Sections(payload, whole=False).property_field(3) == "s"
    complete = payload + b"\x00\x53\x75\xa0\x01x"
    assert Sections(complete, whole=False).application_property("a") is None


def test_other_encodings_of_a_descriptor_are_read() -> None:
    value = encode({"a": 1})
    for descriptor in (
        b"\x80" + bytes(7) + b"\x74",
        b"\xa3\x1famqp:application-properties:map",
        b"\xb3\x00\x00\x00\x1famqp:application-properties:map",
    ):
        message = Sections(b"\x00" + descriptor + value)
        assert message.application_property("a") == 1
    assert Sections(b"\x00\xa3\x03abc" + value).application_property("a") is UNDECODABLE
    assert Sections(b"\x00" + b"\xa1\x03abc" + value).application_property("a") is UNDECODABLE


def test_sections_out_of_order_hide_what_follows() -> None:
    first = Message(application_properties={"a": 1}).encode()
    second = Message(properties=Properties(subject="s")).encode()
    message = Sections(first + second)
    assert message.application_property("a") == 1
    assert message.property_field(3) is UNDECODABLE


def test_small_and_large_forms_are_read(messages: Mapping[str, Sections]) -> None:
    large = {f"name-{number}": "x" * 100 for number in range(100)}
    message = Sections(Message(application_properties=large | {"a": [1]}, data=[b""]).encode())
    assert message.application_property("name-99") == "x" * 100
    assert message.application_property("a") is COMPOUND
    assert messages["flight"].application_property("listed") is COMPOUND
    assert Sections(b"\x00\x53\x73\x45").property_field(0) is None
    assert Sections(b"\x00\x53\x73\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40").property_field(0) is None
    assert Sections(b"\x00\x53\x73\xc0\x0f\x0e" + b"\x40" * 14).property_field(0) is UNDECODABLE
    assert Sections(b"\x00\x53\x74\x45").application_property("a") is UNDECODABLE
