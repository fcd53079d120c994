"""A node's record, what others add to it, and what each neighbour was sent.

Rules of this file: only values. Only a node itself makes its record, and the version says which record is newer; of two
with the same version all nodes choose the same. Source: esb-dynamic-routing §3.2; docs/adr/0015-routing.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.routing.topology import DRAINED_MICRO

VERSION_END: Final = 2**63

VERSION_HIGH: Final = VERSION_END - 2**20
"""A version at or above this is corrupt and is reset: versions begin at a wall clock in milliseconds."""
VERSION_VOID: Final = VERSION_HIGH - 2**10
"""A reset makes versions from here on void, and so the last ones that the node originated before the reset."""

LEFT: Final = 1
STAMPED: Final = 2
LOST: Final = 4
SUPER: Final = 8
BITS_KNOWN: Final = LEFT | STAMPED | LOST | SUPER
"""Bits of a row: the node left; a super node stamped the record; a super node declared the node lost; the node is a
super node. Unknown bits, of a newer version, are dropped."""

DIGEST_END: Final = 2**63
"""Fingerprints and digests are below."""


class Edition(NamedTuple):
    """Identifies one form of a record."""

    version: int
    fingerprint: int
    bits: int

    def covers(self, other: "Edition") -> bool:
        """Whether this edition is as new as `other` and has all of its bits."""
        if self[:2] != other[:2]:
            return self[:2] > other[:2]
        return not other.bits & ~self.bits


@dataclass(frozen=True, slots=True)
class Record:
    """A node's record. `links`: (neighbour, cost in millionths, None: down), by name, each once. Version 0 is the
    topology file's links of a node without a record; it is never passed on.
    """

    name: str
    version: int
    links: tuple[tuple[str, int | None], ...]
    store: UUID | None = None
    left: bool = False
    is_super: bool = False
    fingerprint: int = field(init=False, compare=False)

    @property
    def drained(self) -> bool:
        """Whether the node takes no new messages: all its links that are up have the cost that says so."""
        costs = [cost for _, cost in self.links if cost is not None]
        return bool(costs) and min(costs) >= DRAINED_MICRO

    def __post_init__(self) -> None:
        text = repr((self.name, self.version, self.links, self.store and self.store.hex, self.left, self.is_super))
        digest = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big")
        object.__setattr__(self, "fingerprint", digest % DIGEST_END)


@dataclass(slots=True)
class Known:
    """A node's record with additions of super nodes: `stamp` is (super node, its count), `lost_by` a super node."""

    record: Record
    stamp: tuple[str, int] | None = None
    lost_by: str | None = None

    @property
    def edition(self) -> Edition:
        bits = (STAMPED if self.stamp else 0) | (LOST if self.lost_by else 0)
        return Edition(self.record.version, self.record.fingerprint, bits)

    @property
    def gone(self) -> bool:
        """Whether no link to or from the node is usable."""
        return self.record.left or self.lost_by is not None

    @property
    def digest(self) -> int:
        """Its part in the table's digest; a stamp decides nothing and has none."""
        if not self.record.version:
            return 0
        return self.record.fingerprint * (3 if self.lost_by else 1) % DIGEST_END


def silent(links: Mapping[str, Mapping[str, int]], supers: Iterable[str]) -> dict[str, Known]:
    """The records of nodes that have said nothing yet, by name: version 0, with the links of the topology file."""
    first = set(supers)
    return {
        node: Known(Record(node, 0, tuple(sorted(costs.items())), is_super=node in first))
        for node, costs in links.items()
    }


@dataclass(slots=True)
class Told:
    """One neighbour, while its session is up."""

    editions: dict[str, Edition] = field(default_factory=dict)
    """What it has, by node: from its summary, its rows, and what was sent to it."""
    pending: dict[str, None] = field(default_factory=dict)
    """Nodes whose record may have to be sent."""
    summary: dict[str, Edition] | None = None
    """Rows of its summary, of which the end has not come."""
    summarised: bool = False
