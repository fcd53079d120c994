"""One link between queues: a consumer of its source, whose credit is the room of its target.

Rules of this file: it takes a bounded number of entries in a turn, and no more before the commit with their results is
answered; so it holds at most one batch between turns.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import UNLIMITED
from holdfast.broker.entries import entry
from holdfast.broker.queue import Queue
from holdfast.queue_links.selecting import LinkSelector
from holdfast.settings.queues import LinkConfig
from holdfast.steps.windows import Gathered, Windows
from holdfast.units import MIB

TAKEN_COUNT: Final = 256
TAKEN_BYTES: Final = 1 * MIB
"""The bytes that a link takes in one turn; a single entry may exceed them. With more steps it takes fewer, because each
step costs as much again."""


@dataclass(slots=True, eq=False)
class Moving:
    """What a turn does for a link. `sequences`: the source's entries that it holds; `left`: those of them that leave;
    `posts`: (value, size) for a target in memory, once the turn is stored; `reserved_in`: that queue, which keeps room
    for them; `dead`: how many became dead letters; `passed`: how many were put into the target; `dropped`: how many
    ended in a step; `gathered`: changes of the windows of steps."""

    sequences: list[int]
    left: list[int] = field(default_factory=list)
    posts: deque[tuple[bytes, int]] = field(default_factory=deque)
    dead: int = 0
    reserved_in: Queue | None = None
    passed: int = 0
    dropped: int = 0
    gathered: Gathered | None = None


class QueueLink:
    """An `EntryConsumer`. `cursor`: the source's shared one if the link moves, its own if it copies. `node` and `to`
    are set if `target` is the transmission queue for another node; `target` is None while that node is unknown."""

    bytes_max = UNLIMITED
    run_bytes_max = UNLIMITED
    deferred = False

    def __init__(
        self,
        config: LinkConfig,
        link_id: bytes,
        cursor: Cursor,
        selector: LinkSelector,
        *,
        node: str | None,
        to: str,
        is_created: bool,
        windows: Windows,
        room: "Callable[[QueueLink], int]",
        took: "Callable[[QueueLink], None]",
    ) -> None:
        """`room` returns how many entries the target accepts now; `took` is called when some were taken."""
        self.config = config
        self.link_id = link_id
        self.cursor = cursor
        self.selector = selector
        self.node = node
        self.to = to
        self.is_created = is_created
        self.windows = windows
        """The windows of its steps."""
        self.count_max = max(1, TAKEN_COUNT // max(1, len(windows.steps)))
        self.taken_bytes_max = TAKEN_BYTES // max(1, len(windows.steps))
        self.unshown: tuple[int, int] | None = None
        """A sequence of the source, and the wall time at which nothing from there on had been given yet."""
        self.target: Queue | None = None
        self.excluded: set[int] = set()
        self.is_stopped = False
        self.ended = False
        """The link was deleted, and is removed when it holds nothing."""
        self.taken: list[tuple[int, bytes]] = []
        """The entries taken in this turn."""
        self.taken_bytes = 0
        self.moving: Moving | None = None
        self.needs = 0
        """The size of an entry for which there was no room."""
        self.disk_needs = 0
        """The bytes of it, and of its copies for other nodes, for which the disk had no room."""
        self.dead_needs = 0
        """The same for an entry that is to become a dead letter, whatever the target."""
        self.starved = False
        """The link waits for room in its target."""
        self.moved_total = self.dead_total = self.dropped_total = 0
        self._room = room
        self._took = took

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def source(self) -> str:
        return self.config.source

    @property
    def queue(self) -> Queue:
        """The queue where it waits for memory."""
        assert self.target is not None
        return self.target

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing."""
        return self.moving is None and not self.taken

    def refill(self) -> None:
        """There may be room in the store again."""
        self.cursor.queue.touch()

    # ------------------------------------------------------------------------------------------------ as a consumer

    def wants(self) -> int:
        if self.is_stopped or self.ended or self.moving is not None or self.taken_bytes >= self.taken_bytes_max:
            return 0
        if len(self.taken) >= self.count_max:
            return 0
        return max(0, min(self.count_max, self._room(self)) - len(self.taken))

    def will_want(self) -> int:
        return self.wants()

    @property
    def room_bytes(self) -> int:
        return max(0, self.taken_bytes_max - self.taken_bytes)

    def delivery_bytes(self, sequence: int, value: bytes) -> int:
        return len(value)

    def count_held(self, size: int) -> None:
        """Does nothing: the turn counts its entries."""

    def take(self, sequence: int, value: bytes, delivery_count: int | None) -> None:
        if not self.cursor.is_links:
            value = entry.with_earlier(value, delivery_count)
        self.taken.append((sequence, value))
        self.taken_bytes += len(value)
        self._took(self)

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        self.taken += zip(sequences, values, strict=True)
        self.taken_bytes += sum(map(len, values))
        self._took(self)
        return len(values)
