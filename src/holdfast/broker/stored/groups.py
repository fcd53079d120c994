"""Messages of one origin with consecutive numbers that are shown together at their destination (docs/adr/0073).

Rules of this file: pure state, which follows from the waiting messages; `Origin` changes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Waiting:
    """A message that waits: its place, its queue and the rule by which it waits. `group`: the first and the last number
    of those that it is shown with; `since`: on the driver's scale; `size`: as its queue counts it; `stored_bytes`: on
    disk."""

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
    """A group; `members` are its messages that wait. `since`: when the first of them arrived. `strict` and
    `order_wait_s`: the strictest rule of their queues."""

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
    """The groups of one origin with waiting messages, by their first number; `apart`: waiting numbers that need not
    wait, because they have no order and their group was given up. `due`: whether a group may be complete, or may be
    shown."""

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
        """The highest number of all groups; 0 if there is none."""
        return max([group.last for group in self.by_first.values()], default=0)

    def add(self, number: int, item: Waiting) -> Group | None:
        """Adds a waiting message, and its group, if it has one."""
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
        """Removes a message that no longer waits."""
        self.apart.pop(number, None)
        if item.group is not None:
            group = self.by_first[item.group[0]]
            group.remove(number, item)
            self.stored_bytes -= item.stored_bytes
            if not group.members:
                del self.by_first[item.group[0]]

    def give_up(self, group: Group, waiting: dict[int, Waiting]) -> list[Waiting]:
        """Gives the group up: each of its messages, which are returned, is shown by itself, as its queue's order
        says."""
        items = []
        for number in list(group.members):
            item = waiting[number]
            self.remove(number, item)
            item.group = None
            self.add(number, item)
            items.append(item)
        return items
