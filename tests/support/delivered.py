"""A message's bytes as a node delivers them: its two annotations are a long map in any case, unlike the codec's."""

from dataclasses import replace

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.types import Timestamp, Ulong
from holdfast.client.messages.payload import ENQUEUED, SEQUENCE


def delivered(message: Message, sequence: int, enqueued_ms: int) -> bytes:
    """With its annotations, if it has others: then the map has the form that the codec gives it."""
    if message.message_annotations:
        place = {SEQUENCE: Ulong(sequence), ENQUEUED: Timestamp(enqueued_ms)}
        return replace(message, message_annotations={**message.message_annotations, **place}).encode()
    head = Message(header=message.header, delivery_annotations=message.delivery_annotations).encode()
    bare = replace(message, header=None, delivery_annotations=None, message_annotations=None).encode()
    items = b"\xa3\x15x-opt-sequence-number\x80" + sequence.to_bytes(8, "big")
    items += b"\xa3\x13x-opt-enqueued-time\x83" + enqueued_ms.to_bytes(8, "big", signed=True)
    return head + b"\x00\x53\x72\xd1" + (len(items) + 4).to_bytes(4, "big") + (4).to_bytes(4, "big") + items + bare
