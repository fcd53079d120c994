"""A message as it is sent: common ones are put together from ready parts, byte for byte as the encoder makes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import Header, Message, Properties
from holdfast.client.messages.payload import cut

HEADERS = st.one_of(st.none(), st.builds(Header, durable=st.booleans(), priority=st.sampled_from([4, 5])))
BODIES = st.lists(st.binary(max_size=300), max_size=2)
MAPS = st.one_of(st.none(), st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9), max_size=2))
MESSAGES = st.builds(
    Message,
    header=HEADERS,
    data=BODIES,
    properties=st.one_of(st.none(), st.builds(Properties, subject=st.text(max_size=3))),
    application_properties=MAPS,
    footer=MAPS,
)


@given(MESSAGES)
def test_a_cut_message_is_the_encoded_one(message: Message) -> None:
    assert b"".join(cut(message).parts(None)) == message.encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"value": None},
        {"data": [b"x"], "properties": Properties(subject="s")},
        {"data": [b"x"], "application_properties": {}},
        {"data": [b"x"], "footer": {"a": 1}},
        {"data": [b"x"], "header": Header(durable=True, ttl=5)},
        {"data": [b"x"], "header": Header(durable=True), "delivery_annotations": {"a": 1}},
        {"data": [b"x"], "message_annotations": {"a": 1}},
        {"sequences": [[1]]},
    ],
)
def test_what_is_not_common_is_encoded(fields: dict[str, Any]) -> None:
    message = Message(**fields)
    assert b"".join(cut(message).parts(None)) == message.encode()
