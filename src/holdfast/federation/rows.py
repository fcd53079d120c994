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
"""A summary stands for rows that are not here; the node sends what matches on by a static route."""

BITS_END: Final = 256
"""Bits of a newer version are kept, since they are in the digest."""

DIGEST_END: Final = 2**64
STAMP_END: Final = 2**63

LIFE_HIGH: Final = STAMP_END - 2**20
"""A life at or above this is corrupt, and is reset: lives are a wall clock in milliseconds."""

VERSION_HIGH: Final = STAMP_END - 2**20
"""The same of a version: a new life begins."""

HASH_DIGITS: Final = 16


class Stamp(NamedTuple):
    """Which version of a set: a life of its origin, and a number in that life."""

    life: int
    version: int


VOID: Final = Stamp(0, 0)
"""Of a set whose stamp is not known any more: whatever the parent has is taken."""


class Row(NamedTuple):
    """What is wanted: subjects that a pattern matches, and of these what a selector matches, if there is one."""

    pattern: str
    predicate: str | None = None
    bits: int = 0

    @property
    def size(self) -> int:
        """About how many bytes it takes on the wire."""
        return 8 + len(self.pattern.encode()) + len((self.predicate or "").encode())


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
    """Of what two nodes compare, beside sets."""
    return _hash(repr(parts))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")


def digest_of(rows: Iterable[Row], edges: Iterable[str]) -> int:
    return (sum(map(row_hash, rows)) + sum(map(edge_hash, edges))) % DIGEST_END


def covers(wider: str, narrower: str) -> bool:
    """Whether every subject that `narrower` matches is matched by `wider`. In doubt False: of `*.#` and `#.*`, which
    match the same, neither is found to cover the other."""
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
