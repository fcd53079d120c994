"""The settings of federation: the neighbours over which a topic is spread, and bounds on what is kept of other nodes.

Rules of this file: data and its checks.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final

from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.broker.subjects import Pattern
from holdfast.errors import ConfigError
from holdfast.federation.messages import EDGES_MAX, Federate
from holdfast.federation.modes import (
    ASK_BYTES_MAX,
    DIRECTIONS,
    DYNAMIC,
    FROM,
    MODES,
    PATTERNS_MAX,
    STATIC,
    TO,
    TOPICS_MAX,
    Ask,
)
from holdfast.names import check_name


@dataclass(frozen=True, slots=True)
class Entry:
    """`[[federation]]`: a topic spread over a neighbour. `patterns`: of mode `static` alone. `asked`: the neighbour
    asks for it."""

    topic: str
    neighbour: str
    mode: str = DYNAMIC
    patterns: tuple[str, ...] = ()
    direction: str = TO
    asked: bool = False

    @property
    def goes(self) -> bool:
        """Whether messages go to the neighbour."""
        return self.direction != FROM

    @property
    def comes(self) -> bool:
        """Whether the neighbour is asked to send messages here."""
        return self.direction != TO

    @property
    def ask(self) -> Ask:
        """What the neighbour is asked for."""
        return Ask(self.topic, self.mode, self.patterns)

    def validate(self) -> None:
        """Raises ConfigError for the first invalid key."""
        check_name(self.topic)
        check_name(self.neighbour)
        where = f"federation of {self.topic!r} over {self.neighbour!r}"
        if self.mode not in MODES:
            raise ConfigError(f"invalid mode {self.mode[:60]!r} in {where}; expected one of {', '.join(MODES)}")
        if self.direction not in DIRECTIONS:
            expected = f"expected one of {', '.join(DIRECTIONS)}"
            raise ConfigError(f"invalid direction {self.direction[:60]!r} in {where}; {expected}")
        if (self.mode == STATIC) != bool(self.patterns):
            raise ConfigError(f"invalid patterns in {where}; expected some with mode static, and none with another")
        if len(self.patterns) > PATTERNS_MAX:
            raise ConfigError(f"{len(self.patterns)} patterns in {where}; expected at most {PATTERNS_MAX}")
        for pattern in self.patterns:
            Pattern(pattern)


def check_federated_topic(topic: str) -> str:
    """Returns `topic`, if a topic may have that name; ConfigError otherwise. For entries that are written from now on:
    one of an earlier version, or of a neighbour, has no effect."""
    if topic.startswith(TOPIC_PREFIX):
        raise ConfigError(f"invalid topic {topic[:60]!r} in federation; leave out {TOPIC_PREFIX}")
    if "/" in topic:  # behind it an address has the subject
        raise ConfigError(f"invalid topic {topic[:60]!r} in federation; expected a topic's name, which has no /")
    return check_name(topic)


def check_entries(
    entries: Iterable[Entry], node: str, neighbours: Set[str] | None = None, remotes: Set[str] = frozenset()
) -> None:
    """Raises ConfigError for an invalid entry. `neighbours`: the existing ones; None if unknown. `remotes`: brokers
    that are no nodes, and so have no bindings."""
    tally = Tally()
    for entry in entries:
        entry.validate()
        where = f"federation of {entry.topic!r}"
        known = neighbours is None or entry.neighbour in neighbours or entry.neighbour in remotes
        if entry.neighbour == node or not known:
            expected = "expected the name of a [[neighbour]] or a [[remote]]"
            raise ConfigError(f"invalid neighbour {entry.neighbour!r} in {where}; {expected}")
        if not entry.asked and tally.has(entry):
            raise ConfigError(f"{where} over {entry.neighbour!r} is written twice; write it once")
        fault = fault_with_remote(entry, remotes) or tally.fault(entry)
        if fault is not None:
            raise ConfigError(fault)
        tally.add(entry)


def fault_with_remote(entry: Entry, remotes: Set[str]) -> str | None:
    """Why that cannot be an entry, if its neighbour is one of the remotes; None if it can."""
    if entry.neighbour not in remotes:
        return None
    where = f"in federation of {entry.topic!r} over {entry.neighbour!r}, a [[remote]]"
    if entry.mode == DYNAMIC:
        text = f"invalid mode {DYNAMIC!r} {where}, which has no bindings"
        return f"{text}; expected static with patterns, or push"
    if entry.comes:
        return f"invalid direction {entry.direction!r} {where}; expected {TO!r}, and fetch in the [[remote]]"
    return None


class Tally:
    """What entries take of the bounds on all entries together."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._neighbours: dict[str, set[str]] = {}
        """By topic."""
        self._asked: dict[str, int] = {}
        """By neighbour: the size of the patterns that it is asked for."""
        for entry in entries:
            self.add(entry)

    def has(self, entry: Entry) -> bool:
        """Whether there is an entry of this topic and neighbour."""
        return entry.neighbour in self._neighbours.get(entry.topic, ())

    def fault(self, entry: Entry) -> str | None:
        """Why there is no room for the entry; None if there is."""
        neighbours = self._neighbours.get(entry.topic)
        if neighbours is None and len(self._neighbours) >= TOPICS_MAX:
            return f"{TOPICS_MAX + 1} topics in federation; expected at most {TOPICS_MAX}"
        if neighbours is not None and len(neighbours) >= EDGES_MAX and entry.neighbour not in neighbours:
            where = f"federation of {entry.topic!r} over more than {EDGES_MAX} neighbours"
            return f"{where}; expected at most {EDGES_MAX}"
        size = self._asked.get(entry.neighbour, 0) + entry.ask.size if entry.comes else 0
        if size > ASK_BYTES_MAX:
            text = f"patterns that {entry.neighbour!r} is asked for have {size} bytes"
            return f"{text} in federation; expected at most {ASK_BYTES_MAX}"
        return None

    def add(self, entry: Entry) -> None:
        self._neighbours.setdefault(entry.topic, set()).add(entry.neighbour)
        if entry.comes:
            self._asked[entry.neighbour] = self._asked.get(entry.neighbour, 0) + entry.ask.size


def federates(entries: Iterable[Entry]) -> dict[str, Federate]:
    """By neighbour: what is forwarded to it, and what it is asked for."""
    found: dict[str, Federate] = {}
    for entry in entries:
        rows, asks = found.get(entry.neighbour, Federate(()))
        rows = (*rows, (entry.topic, entry.mode)) if entry.goes else rows
        found[entry.neighbour] = Federate(rows, (*asks, entry.ask) if entry.comes else asks)
    return found


KEYS_MAX: Final = 1_000
"""Default of `Bounds.keys_max`: rows of a set above which a summary is announced first. A constant, so that the lab can
lower it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of others' sets a node holds, and how often it compares. Seconds and bytes.

    Above `keys_max` rows of its own a node announces a summary first; the exact rows follow at `summary_bytes_s`, a
    quarter of a line of 64 kbit/s. Its own set never has more than `rows_max` rows. Another's set that exceeds
    `rows_max` by itself, or `bytes_max` of memory together with the others, is replaced by `#`.
    """

    keys_max: int = KEYS_MAX
    origins_max: int = 1_000
    rows_max: int = 50_000
    bytes_max: int = 128 * 1024 * 1024
    refresh_s: float = 30.0
    keep_s: float = 86_400.0
    summary_bytes_s: float = 2_000.0
