"""What a query's offsets hold: by queue the sequence that was reached (docs/spark.md, ADR 0083).

Rules of this file: pure. A queue's key is `NODE/QUEUE`; its UUID is kept beside the sequence, since a queue of that
name may be another one later. Keys are sorted, because Spark compares offsets as text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

FORMER: Final = ""
"""The key of a place in a checkpoint of an earlier version, which has one queue, by its UUID alone."""


class Place(NamedTuple):
    """All entries of the queue with that UUID below `seq` belong to this batch or an earlier one."""

    queue: str
    seq: int

    def before(self, left: "Part | None") -> "Place":
        """The same without what was left out, and all behind it."""
        if left is None or left.queue != self.queue:
            return self
        return self._replace(seq=min([self.seq, *(first for first, _ in left.ranges)]))


class Part(NamedTuple):
    """Ranges of the queue with that UUID, half-open, that a batch left out."""

    queue: str
    ranges: tuple[tuple[int, int], ...]

    def json(self) -> list[Any]:
        return [self.queue, [list(one) for one in self.ranges]]

    def joined(self, other: "Part") -> "Part":
        return Part(self.queue, tuple(sorted({*self.ranges, *other.ranges})))


def part_of(value: object) -> Part | None:
    """The Part that a decoded JSON value is, or None."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        return None
    ranges = value[1]
    if not isinstance(ranges, list) or not all(isinstance(one, list) and len(one) == 2 for one in ranges):
        return None
    if not all(type(seq) is int for one in ranges for seq in one):
        return None
    return Part(value[0], tuple((first, end) for first, end in ranges))


def key_of(node: str, queue: str) -> str:
    """`NODE/QUEUE`; a slash in the node's name is written `%2F`, so that no two queues have one key."""
    return f"{node.replace('%', '%25').replace('/', '%2F')}/{queue}"


def shown(key: str) -> str:
    """The queue as a line for people names it."""
    node, _, queue = key.partition("/")
    name = node.replace("%2F", "/").replace("%25", "%")
    return f"queue {queue!r} of node {name!r}" if name else "the queue of an earlier version's checkpoint"


@dataclass(frozen=True, slots=True)
class Offset:
    """The places of subscription `sub` in all queues that a source reads, by key. `again`: what this batch reads of
    what earlier ones left out; `left`: what of that is still left."""

    sub: str
    places: Mapping[str, Place]
    again: Mapping[str, Part] = field(default_factory=dict)
    left: Mapping[str, Part] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        keys = sorted(self.places)
        told: dict[str, Any] = {
            "sub": self.sub,
            "at": {key: self.places[key].seq for key in keys},
            "queues": {key: self.places[key].queue for key in keys},
        }
        for name, parts in (("again", self.again), ("left", self.left)):
            if parts:
                told[name] = {key: parts[key].json() for key in sorted(parts)}
        return told

    def named(self, keys: Mapping[str, str]) -> "Offset":
        """With the place of an earlier version under its key, which `keys` may have by the queue's UUID."""
        place = self.places.get(FORMER)
        key = None if place is None else keys.get(place.queue)
        if place is None or key is None:
            return self
        return replace(self, places={key: place} | {name: at for name, at in self.places.items() if name != FORMER})

    def moved(self, places: Mapping[str, Place]) -> "Offset":
        """The end of a batch with other places for some queues, which leaves out nothing."""
        return Offset(self.sub, {**self.places, **places})


def part_between(first: Offset, last: Offset, key: str) -> Part | None:
    """All that a batch from `first` to `last` reads of a queue; None where nothing says where that begins."""
    start, end = first.places.get(key), last.places[key]
    if start is None or start.queue != end.queue:
        return None
    own = Part(end.queue, ((start.seq, end.seq),) if start.seq < end.seq else ())
    return own.joined(last.again[key]) if key in last.again else own


def offset_of(value: object) -> Offset | None:
    """The Offset that a decoded JSON value is, of this version or an earlier one; or None."""
    if not isinstance(value, dict) or not isinstance(value.get("sub"), str):
        return None
    sub, at, queues = value["sub"], value.get("at"), value.get("queues")
    if at is None and queues is None:
        at, queues = {FORMER: value.get("seq")}, {FORMER: value.get("queue")}
    if not isinstance(at, dict) or not isinstance(queues, dict) or at.keys() != queues.keys():
        return None
    if not all(type(seq) is int for seq in at.values()) or not all(isinstance(uuid, str) for uuid in queues.values()):
        return None
    parts: list[dict[str, Part]] = []
    for name in ("again", "left"):
        told = value.get(name, {})
        found = {str(key): part_of(part) for key, part in told.items()} if isinstance(told, dict) else {"": None}
        parts.append({key: part for key, part in found.items() if part is not None})
        if len(parts[-1]) != len(found):
            return None
    return Offset(sub, {key: Place(queues[key], at[key]) for key in at}, *parts)


def places_in(lines: Iterable[Offset], key: str, queue: str) -> list[Place]:
    """What these offsets say of one queue: of its key, or of its UUID in an offset of an earlier version."""
    found = [line.places[key] for line in lines if key in line.places]
    former = [line.places[FORMER] for line in lines if FORMER in line.places]
    return found + [place for place in former if place.queue == queue]
