"""Messages of one origin with consecutive numbers that are shown together at their destination (docs/adr/0073).

Rules of this file: pure state, which follows from what waits; `Origin` changes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Waiting:
    """A message that waits: where it lies, for whom, and by which rule. `group`: the first and the last number of those
    that it is shown with; `since`: on the driver's scale; `size`: as its queue counts it; `stored_bytes`: on disk."""

    held_at: int
    queue: str
    order: str
    order_wait_s: float
    group: tuple[int, int] | None = None
    since: float = 0.0
    size: int = 0
    stored_bytes: int = 0


@dataclass(slots=True, eq=False)
class Group:
    """Those of it that wait are `members`. `since`: when the first of them came. `strict` and `order_wait_s`: the
    strictest rule of their queues."""

    first: int
    last: int
    since: float
    members: dict[int, None] = field(default_factory=dict)
    stored_bytes: int = 0
    strict: bool = False
    order_wait_s: float = 0.0

    def add(self, number: int, item: Waiting) -> None:
        self.members[number] = None
        self.since = min(self.since, item.since)
        self.stored_bytes += item.stored_bytes
        self.strict |= item.order == "strict"
        if item.order == "bounded":
            self.order_wait_s = max(self.order_wait_s, item.order_wait_s)

    def remove(self, number: int, item: Waiting) -> None:
        del self.members[number]
        self.stored_bytes -= item.stored_bytes


class Groups:
    """Those of one origin of which something waits, by their first number; `apart`: numbers that wait and need not: no
    order is promised to them, and their group is given up. `due`: whether one may be whole now, or may go."""

    __slots__ = ("apart", "by_first", "due", "stored_bytes")

    def __init__(self, waiting: Iterable[tuple[int, Waiting]] = ()) -> None:
        self.by_first: dict[int, Group] = {}
        self.apart: dict[int, None] = {}
        self.stored_bytes = 0
        for number, item in waiting:
            self.add(number, item)
        self.due = bool(self.by_first)

    @property
    def last(self) -> int:
        """The highest number that one of them is to have; 0 where there is none."""
        return max([group.last for group in self.by_first.values()], default=0)

    def add(self, number: int, item: Waiting) -> Group | None:
        """A message waits; its group, where it has one."""
        if item.group is None:
            if item.order == "none":
                self.apart[number] = None
            return None
        group = self.by_first.get(item.group[0])
        if group is None:
            group = self.by_first[item.group[0]] = Group(*item.group, item.since)
        group.add(number, item)
        self.stored_bytes += item.stored_bytes
        return group

    def remove(self, number: int, item: Waiting) -> None:
        """It waits no longer."""
        self.apart.pop(number, None)
        if item.group is not None:
            group = self.by_first[item.group[0]]
            group.remove(number, item)
            self.stored_bytes -= item.stored_bytes
            if not group.members:
                del self.by_first[item.group[0]]

    def give_up(self, group: Group, waiting: dict[int, Waiting]) -> list[Waiting]:
        """Each of it goes by itself from now on, as its queue's order says; those are returned."""
        items = []
        for number in list(group.members):
            item = waiting[number]
            self.remove(number, item)
            item.group = None
            self.add(number, item)
            items.append(item)
        return items
