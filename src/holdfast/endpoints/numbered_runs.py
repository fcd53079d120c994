"""The hot path of a named producer's messages: a run of them without their numbers, as far as these go on.

Rules of this file: a message without its number is stored as that of a producer without a name. A number is read here
only where it is the one annotation of its message, encoded as clients usually do; what differs ends the run, and is
examined alone (`producer.py`). So does a number that is not the next one: a repeat, or one behind a gap.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.amqp.message.message import BARE_STARTS, SECTIONS_MAX
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import NUMBER
from holdfast.broker.entries.annotate import VIEWED_BYTES
from holdfast.broker.stored.producers import Producer
from holdfast.endpoints.plain_runs import header_of
from holdfast.state.turns import Turn

NUMBER_BYTES: Final = 8
NUMBERS_END: Final = 2**63
"""One past the last number."""

RUN_BYTES_MAX: Final = 4 * SECTIONS_MAX
"""A shorter message cannot have too many sections, with and without that of its number."""

_KEY: Final = encode(NUMBER) + b"\x80"
_HEADS: Final = (
    b"\x00\x53\x72\xc1" + bytes((1 + len(_KEY) + NUMBER_BYTES, 2)) + _KEY,
    b"\x00\x53\x72\xd1" + (4 + len(_KEY) + NUMBER_BYTES).to_bytes(4, "big") + b"\0\0\0\2" + _KEY,
)
"""Message annotations up to the number, if that is the only one: as a map with sizes of one byte and of four."""


def _begin_of(payload: bytes) -> tuple[bytes, int]:
    """How a payload begins before its number: its header, whose length is the second value, and the section's head."""
    header = header_of(payload) or b""
    for head in _HEADS:
        if payload.startswith(head, len(header)):
            return header + head, len(header)
    return header + _HEADS[0], len(header)


class NumberedRuns:
    """Of one link of `producer`."""

    __slots__ = ("_begin", "_header_bytes", "_producer")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._begin, self._header_bytes = _HEADS[0], 0
        """As `_begin_of`, of the last message."""

    def unnumbered(self, payloads: Sequence[bytes]) -> list[bytes]:
        """These messages without their numbers, up to the first that is not plain or does not have the next number."""
        first = self._producer.stored.last + 1
        begin, header_bytes = self._begin, self._header_bytes
        bare_at = len(begin) + NUMBER_BYTES
        found = []
        for number, payload in enumerate(payloads[: NUMBERS_END - first], first):
            told = number.to_bytes(NUMBER_BYTES, "big")
            if not payload.startswith(begin + told):
                begin, header_bytes = _begin_of(payload)
                bare_at = len(begin) + NUMBER_BYTES
                if not payload.startswith(begin + told):
                    break
            if not payload.startswith(BARE_STARTS, bare_at) or len(payload) >= RUN_BYTES_MAX:
                break
            # A slice of a large one would be one more copy of it.
            bare = payload[bare_at:] if len(payload) < VIEWED_BYTES else memoryview(payload)[bare_at:]
            found.append(payload[:header_bytes] + bare)
        self._begin, self._header_bytes = begin, header_bytes
        return found

    def stored(self, turn: Turn, count: int) -> None:
        """The first `count` of the run are stored with that turn."""
        first = self._producer.stored.last + 1
        turn.keep_producer(self._producer)
        self._producer.stored.add(first, first + count - 1)
