"""Messages with properties, as the product reads them; and selectors of the load's attaches, as it evaluates them."""

import struct

import _wire as wire
import pytest
from _marked import KINDS_MAX, marked_batch

from holdfast.amqp.wire import decoding
from holdfast.amqp.wire.types import Described
from holdfast.selectors.predicate import compile_selector
from holdfast.selectors.sections import Sections


def messages_of(data: bytes) -> list[bytes]:
    """What follows the transfer performative of each frame."""
    found = []
    while data:
        size = struct.unpack_from(">I", data)[0]
        _, end = decoding.decode(data[8:size])
        found.append(data[8 + end : size])
        data = data[size:]
    return found


@pytest.mark.parametrize(("first", "kinds"), [(0, 1), (7, 3), (299, 100), (255, KINDS_MAX)])
def test_each_message_says_its_kind(first: int, kinds: int) -> None:
    batch = marked_batch(64, 256, kinds, "topic-1")
    for count in (256, 2):
        found = messages_of(bytes(batch.patch(first, first, count)))
        assert len(found) == count
        for number, message in enumerate(found, first):
            kind = number % kinds
            sections = Sections(message)
            assert sections.property_field(3) == f"topic-1.kind.{kind:03d}"
            assert compile_selector(f"a = 'x' AND d > 1 AND c AND b LIKE 'some%' AND e = {kind}").matches(sections)
            assert int.from_bytes(message[-64:-56], "big") == number


@pytest.mark.parametrize("kinds", [0, KINDS_MAX + 1])
def test_kinds_past_the_bounds_are_refused(kinds: int) -> None:
    with pytest.raises(ValueError, match="for kinds; expected 1 to 1000"):
        marked_batch(64, 1, kinds, "")


def test_an_attach_with_a_selector_is_read_by_the_product() -> None:
    filters = wire.selector_filter("a = 'x'")
    frame = wire.attach_frame("n", wire.RECEIVER, "queue", durable=False, expiry="never", filters=filters)
    value, _ = decoding.decode(frame[8:])
    assert isinstance(value, Described) and isinstance(value.value, list)
    source = value.value[5]
    assert isinstance(source, Described) and isinstance(source.value, list)
    address, durable, expiry, *_, found = source.value
    assert (address, durable, expiry) == ("queue", 0, "never")
    (key, told), *others = found.items()
    assert key == told.descriptor == "apache.org:selector-filter:string" and told.value == "a = 'x'" and not others
