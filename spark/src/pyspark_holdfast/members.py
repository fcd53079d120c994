"""The queues that a source reads at one node: found by name or pattern, each opened once in a run.

Rules of this file: one thread at a time calls a `NodePart`; what others may see of it meanwhile is replaced, never
changed. A queue that only a pattern names and that cannot be opened is left alone, with a warning.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.errors import ConfigError
from pyspark_holdfast.addresses import Address
from pyspark_holdfast.bus import Bus, Lease, Node, Position
from pyspark_holdfast.offsets import key_of, shown
from pyspark_holdfast.options import SourceOptions

log = logging.getLogger(__name__)

LISTED_AGAIN_S: Final = 10.0
"""How often the node's queues are looked through for those that a pattern means."""
QUEUES_MAX: Final = 1_000
"""Queues that a source reads at one node."""
QUEUES_IN_ALL_MAX: Final = 10_000
"""Queues that a source reads: each takes about 150 bytes in an offset, of which Spark keeps many in memory."""


@dataclass(slots=True, eq=False)
class Member:
    """A queue that is read. `place`: where the subscription was when this run opened it; `advanced`: where it is;
    `tail`: the furthest end of the queue that this run has seen, beyond which it has planned nothing."""

    key: str
    address: str
    bus: Bus
    subscription: str
    place: Position
    advanced: int = field(init=False)
    tail: int = field(init=False)

    def __post_init__(self) -> None:
        self.advanced = self.place.advanced
        self.tail = self.place.tail

    @property
    def uuid(self) -> str:
        return self.place.queue_uuid

    @property
    def lease(self) -> Lease:
        return Lease(self.subscription, self.place.queue_uuid, self.place.lease_epoch)


def named_at(node: Node, addresses: tuple[Address, ...]) -> list[str]:
    """The names of the queues that `addresses` mean at a node, each once."""
    patterns = [address for address in addresses if address.is_pattern]
    names = {address.name: None for address in addresses if not address.is_pattern}
    if patterns:
        names |= {name: None for name in node.queues() if any(pattern.matching([name]) for pattern in patterns)}
    return list(names)


class NodePart:
    """One node of a source. `options`: those of the source, with this node's URL alone, which is its `number`th."""

    def __init__(self, options: SourceOptions, node: Node, number: int) -> None:
        self.options = options
        self.number = number
        self.node = node
        self.name: str | None = None
        """None before it was reached."""
        self.members: dict[str, Member] = {}
        """By key; those that were opened."""
        self.has_begun = False
        """Whether the query had begun before: what is found from then on, it has missed nothing of."""
        self._listed_at: float | None = None
        self._warned: set[str] = set()

    def opened(self) -> dict[str, Member]:
        """All queues that are there now; the first call for a queue takes its lease, which fences the run before."""
        options = self.options
        if self.name is None:
            self.name = self.node.name()
        wanted = {address.name: False for address in options.addresses if not address.is_pattern}
        patterns = tuple(address for address in options.addresses if address.is_pattern)
        now = time.monotonic()
        if patterns and (self._listed_at is None or now - self._listed_at >= LISTED_AGAIN_S):
            for name in named_at(self.node, patterns):
                wanted.setdefault(name, True)
            self._listed_at = now
        if len(wanted) > QUEUES_MAX:
            raise ConfigError(
                f"option 'address' means {len(wanted)} queues at {options.url}; expected at most {QUEUES_MAX}"
            )
        for name, only_matches in wanted.items():
            key = key_of(self.name, name)
            if key not in self.members:
                member = self._open(key, name, only_matches)
                if member is not None:
                    self.members = {**self.members, key: member}
        self.has_begun = True
        return self.members

    def _open(self, key: str, name: str, only_matches: bool) -> Member | None:
        options = self.options
        assert options.subscription is not None
        bus = self.node.bus(name)
        start = "first" if self.has_begun and options.starting_from == "next" else options.starting_from
        try:
            place = bus.open(start, options.mode)
        except ConfigError as error:
            if not only_matches:
                raise
            if name not in self._warned:
                self._warned.add(name)
                log.warning("%s; a pattern means this queue, which is left out until it can be read", error)
            return None
        return Member(key, name, bus, options.subscription, place)


def placed(parts: Iterable[NodePart]) -> dict[str, tuple[int, Member]]:
    """The queues of these nodes by key, each with its node's number. ConfigError where two URLs reach one, or there are
    too many."""
    found: dict[str, tuple[NodePart, Member]] = {}
    for part in parts:
        for key, member in part.members.items():
            if key in found:
                raise ConfigError(
                    f"option 'url': {found[key][0].options.url} and {part.options.url} both reach {shown(key)}; give "
                    "one of them, or name their virtual hosts"
                )
            found[key] = part, member
    if len(found) > QUEUES_IN_ALL_MAX:
        raise ConfigError(
            f"options 'url' and 'address' mean {len(found)} queues; expected at most {QUEUES_IN_ALL_MAX} in all"
        )
    return {key: (part.number, member) for key, (part, member) in found.items()}
