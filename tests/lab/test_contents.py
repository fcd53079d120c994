"""What is drawn of a message arrives as it was sent, and whatever does not is told."""

from collections.abc import Callable

import pytest

from holdfast.amqp.wire.types import Symbol
from holdfast.client import Header, Message, Properties
from holdfast_lab.base.client_history import key_in, make_key
from holdfast_lab.base.contents import ALIKE, NOTE, body_of, content_of, difference, message_of

KEYS = [make_key(producer, number) for producer in range(10) for number in range(1, 20 * ALIKE)]
MESSAGES = {key: message_of(key, 100, None) for key in KEYS}


def changed(message: Message, change: Callable[[Message], None]) -> str | None:
    """How it differs from what was sent, once it is read, changed and written by somebody."""
    arrived = Message.decode(message.encode())
    change(arrived)
    payload = arrived.encode()
    return difference(content_of(message), payload, Message.decode(payload))


def decorated() -> Message:
    """One that has something in each section."""
    return next(
        message
        for message in MESSAGES.values()
        if message.properties and message.message_annotations and message.header and message.header.priority != 4
    )


def test_a_key_is_one_content_for_ever() -> None:
    for key, message in MESSAGES.items():
        assert message_of(key, 100, None).encode() == message.encode()
    assert len({content_of(message).bare for message in MESSAGES.values()}) == len(KEYS)


@pytest.mark.parametrize("size", [0, 1, 12, 13, 20, 21, 1000])
def test_a_body_has_its_size_and_ends_with_its_key(size: int) -> None:
    key = make_key(7, 123)
    body = body_of(key, size)
    assert len(body) == max(size, len(key))
    assert key_in(body) == key


def test_every_kind_of_message_is_drawn() -> None:
    messages = MESSAGES.values()
    headers = [message.header for message in messages if message.header is not None]
    assert {header.priority for header in headers} == set(range(10))
    assert {header.durable for header in headers} == {True, False}
    assert any(message.properties for message in messages)
    assert any(message.message_annotations for message in messages)
    bare = [message for message in messages if not (message.header or message.properties)]
    assert len(bare) > len(KEYS) / 3


def test_what_arrives_as_it_was_sent_differs_in_nothing() -> None:
    for message in MESSAGES.values():
        assert changed(message, lambda arrived: None) is None


def test_a_time_to_live_that_is_given_is_kept_beside_what_is_drawn() -> None:
    assert all(message_of(key, 10, Header(ttl=77)).header.ttl == 77 for key in KEYS)  # type: ignore[union-attr]


def add(message: Message) -> None:
    """What nodes may change."""
    message.message_annotations = {**(message.message_annotations or {}), Symbol("x-opt-other"): 1}
    header = message.header or Header()
    message.header = Header(
        durable=header.durable, priority=header.priority, ttl=5, first_acquirer=True, delivery_count=3
    )


def test_what_nodes_may_change_is_no_difference() -> None:
    for message in MESSAGES.values():
        assert changed(message, add) is None


def lose_header(message: Message) -> None:
    message.header = None


def lose_notes(message: Message) -> None:
    message.message_annotations = None


def change_note(message: Message) -> None:
    message.message_annotations = {Symbol(NOTE): "another"}


def lose_properties(message: Message) -> None:
    message.properties = None


def change_subject(message: Message) -> None:
    assert message.properties is not None
    message.properties = Properties(message_id=message.properties.message_id, subject="another")


def change_number(message: Message) -> None:
    message.application_properties = {**(message.application_properties or {}), "number": -1}


def cut_body(message: Message) -> None:
    assert message.data is not None
    message.data = [message.data[0][1:]]


def take_anothers_body(message: Message) -> None:
    assert message.data is not None
    message.data = [body_of(make_key(999, 1), len(message.data[0]))]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lose_header, "durable|priority"),
        (lose_notes, NOTE),
        (change_note, NOTE),
        (lose_properties, "other properties or another body"),
        (change_subject, "other properties or another body"),
        (change_number, "other properties or another body"),
        (cut_body, "other properties or another body"),
        (take_anothers_body, "other properties or another body"),
    ],
)
def test_every_change_is_told(change: Callable[[Message], None], told: str) -> None:
    found = changed(decorated(), change)
    assert found is not None
    assert any(word in found for word in told.split("|"))
