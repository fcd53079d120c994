"""A row of a set of bindings, the stamp of a set, and the sums by which two nodes compare what they have.

Rules of this file: values alone. A digest is the sum of the hashes of rows and edges, modulo 2^64: to add or remove one
costs the same however many there are.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from holdfast.broker.subjects import ANY, ONE

WIDE: Final = 1
RELAY: Final = 2
"""The row stands for rows of other nodes: the node forwards matching messages by a static entry."""

BITS_END: Final = 256
"""The end of the bits that may be set. Bits of a newer version are kept, because they are part of the digest."""

DIGEST_END: Final = 2**64
STAMP_END: Final = 2**63

LIFE_HIGH: Final = STAMP_END - 2**20
"""A life at or above this is corrupt, and is reset: lives are a wall clock in milliseconds."""

VERSION_HIGH: Final = STAMP_END - 2**20
"""The same for a version: a new life begins."""

HASH_DIGITS: Final = 16


class Stamp(NamedTuple):
    """Which version of a set: a life of its origin, and a number in that life."""

    life: int
    version: int


VOID: Final = Stamp(0, 0)
"""The stamp of a set whose stamp was lost: any stamp of the parent is accepted."""

ROW_BYTES: Final = 900
"""The estimated memory of a row beside its text, with what the index of its topic has of it (`index`)."""


class Row(NamedTuple):
    """A binding: messages whose subject matches the pattern and that match the selector, if there is one."""

    pattern: str
    predicate: str | None = None
    bits: int = 0

    @property
    def size(self) -> int:
        """Its approximate size on the wire, in bytes."""
        return 8 + len(self.pattern.encode()) + len((self.predicate or "").encode())

    @property
    def held_bytes(self) -> int:
        """Its estimated memory."""
        return ROW_BYTES + self.size


EVERYTHING: Final = Row(ANY, None, WIDE)


@lru_cache(maxsize=65_536)
def row_hash(row: Row) -> int:
    return _hash(repr(("row", row.pattern, row.predicate, row.bits)))


@lru_cache(maxsize=4_096)
def edge_hash(name: str) -> int:
    return _hash(repr(("edge", name)))


@lru_cache(maxsize=65_536)
def name_hash(name: str, stamp: Stamp) -> int:
    return _hash(f"name {stamp.life} {stamp.version} {name}")


def text_hash(*parts: object) -> int:
    """The hash of a text that two nodes compare, other than sets."""
    return _hash(repr(parts))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def digest_of(rows: Iterable[Row], edges: Iterable[str]) -> int:
    return (sum(map(row_hash, rows)) + sum(map(edge_hash, edges))) % DIGEST_END


def covers(wider: str, narrower: str) -> bool:
    """Whether every subject that `narrower` matches is matched by `wider`. False if in doubt: `*.#` and `#.*` match the
    same subjects, and neither is found to cover the other."""
    first, second = wider.split("."), narrower.split(".")
    reach = [False] * len(second) + [True]
    # reach[at]: whether the rest of `first` covers second[at:]; worked out from the end.
    for word in reversed(first):
        before = reach
        reach = [False] * (len(second) + 1)
        if word == ANY:
            any_later = False
            for at in range(len(second), -1, -1):
                any_later = any_later or before[at]
                reach[at] = any_later
        else:
            for at, other in enumerate(second):
                fits = other == word if word != ONE else other != ANY
                reach[at] = fits and other != ANY and before[at + 1]
    return reach[0]
