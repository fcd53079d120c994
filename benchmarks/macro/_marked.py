"""Messages that selectors and patterns can tell apart: five application properties and a subject, encoded ahead.

Message n is of kind n modulo `kinds`. Its properties are a = 'x', b = a text, c = true, d = 2 and e = its kind; its
subject is the given words and the kind in three digits, `words.kind.007`. No sockets, no clocks.
"""

import _wire as wire
from _wire import Batch

KINDS_MAX = 1000
"""Three digits."""
SUBJECT_WORD = "kind"
_KIND = b"\x71\xff\xff\xff\xff"
"""A kind as an int, before it is patched in: four bytes that nothing else of a message has."""
_DIGITS = "???"


def subject(words: str, kind: str) -> str:
    """Of a message; `kind` may be a wildcard."""
    return f"{words}.{SUBJECT_WORD}.{kind}" if words else f"{SUBJECT_WORD}.{kind}"


def digits(kind: int) -> str:
    return f"{kind:03d}"


def sections(words: str) -> bytes:
    """Properties and application properties of a message whose kind is not patched in."""
    properties = wire.described_list(0x73, (*[wire.NULL] * 3, wire.string(subject(words, _DIGITS))))
    pairs = (
        ("a", wire.string("x")),
        ("b", wire.string("something that nobody asks for")),
        ("c", wire.TRUE),
        ("d", b"\x71\x00\x00\x00\x02"),
        ("e", _KIND),
    )
    return properties + b"\x00\x53\x74" + wire.mapping([(wire.string(key), value) for key, value in pairs])


class MarkedBatch:
    """As `Batch`; the kind of each message is patched in with its number, from planes made once for all batches."""

    def __init__(self, plain: Batch, count_max: int, kinds: int) -> None:
        self._plain, self._kinds = plain, kinds
        span = [number % kinds for number in range(kinds + count_max)]
        kind_at, digits_at = plain.one.index(_KIND) + 1, plain.one.index(_DIGITS.encode())
        numbers = b"".join(kind.to_bytes(4, "big") for kind in span)
        texts = "".join(map(digits, span)).encode()
        self._planes = [(kind_at + place, numbers[place::4]) for place in range(4)]
        self._planes += [(digits_at + place, texts[place::3]) for place in range(3)]

    def patch(self, delivery_id: int, number: int, count: int) -> memoryview:
        first = number % self._kinds
        for at, plane in self._planes:
            self._plain.put(at, plane[first : first + count])
        return self._plain.patch(delivery_id, number, count)


def marked_batch(size: int, count_max: int, kinds: int, words: str) -> MarkedBatch:
    """1 <= kinds <= KINDS_MAX."""
    if not 1 <= kinds <= KINDS_MAX:
        raise ValueError(f"invalid value {kinds} for kinds; expected 1 to {KINDS_MAX}")
    return MarkedBatch(wire.transfer_batch(size, count_max, sections(words)), count_max, kinds)
