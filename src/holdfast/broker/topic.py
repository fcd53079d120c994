"""A topic: messages for subscriptions only, each stored once (amqp-illustrations, "Topics"; docs/adr/0064).

Rules of this file: a message is matched with all subscriptions when it is published. A durable one that does not match
has finished it once it is on disk, and a message that matches no durable one is not stored. Subscriptions that are not
durable have their own queues in memory, with references to the same bytes. Large messages are matched when they are
offered.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, cast

from holdfast.broker import backlogs, dropping
from holdfast.broker.bands import PRIORITY_MOST
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import SubjectSelector
from holdfast.broker.cursors.halting import FINISHED_MAX
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.entry_log import EntryLog
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX
from holdfast.broker.interests import Interests
from holdfast.broker.published import Published, finish_others
from holdfast.broker.queue import Queue
from holdfast.broker.stored.bounds import NO_BOUNDS, Bounds
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.stored.records import BindingRecord

LISTENER_MESSAGES_MAX: Final = 1_000
LISTENER_BYTES_MAX: Final = 1024 * 1024
"""Bytes that wait for a subscription that is not durable; beyond that the oldest unacquired messages are dropped."""

MARKED_MAX: Final = FINISHED_MAX // 2
"""Finished ranges of a subscription, beyond which messages are matched when the subscription reaches them."""

MARKED_MIN: Final = 16
"""The same if the node's memory for such ranges is used up."""

BETWEEN_MS: Final = 1_000
"""Milliseconds between two searches for messages that are finished by all, behind one that is not."""

RANGES_FEW: Final = 64
RANGES_MAX: Final = 20_000
"""Finished ranges of all subscriptions together: up to the first value they are searched whenever something is
finished; beyond the second, only messages below all floors leave."""

MARK_COUNT: Final = 256
"""Entries that one turn matches again after a start."""

EFFORT_ASKED: Final = 1_024
"""Selectors that take about as long as one pattern with a step for each character of a text."""


@dataclass(slots=True, eq=False)
class Topic(Queue):
    """`named` are the durable subscriptions; the shared cursor has no consumers."""

    bindings: dict[str, BindingRecord] = field(default_factory=dict)
    """The stored records of those of `named` that links created."""
    limited: dict[Cursor, Bounds] = field(default_factory=dict)
    """Subscriptions with a bound of messages, and their bounds."""
    ended_total: int = 0
    """Subscriptions that ended at their bounds, since the node's start."""
    listeners: dict[Queue, SubjectSelector | None] = field(default_factory=dict)
    """The queues in memory of subscriptions that are not durable, and their selectors; None: everything."""
    listening: Interests[Queue] | None = None
    subscribed: Interests[Cursor] | None = None
    """The selectors of `listeners` and of the cursors of `named`; None until they are asked for."""
    unmarked: tuple[int, int] | None = None
    """Entries from before this start that must be matched again: [first, end)."""
    untold: deque[tuple[int, bytes, int]] = field(default_factory=deque)
    """Messages for the listeners once everything up to a sequence is on disk: the sequence, the entry, and its size."""
    telling: int = 0
    """How many messages the listeners get once the turn with them is stored (endpoints/listening.py)."""
    published: Published = field(default_factory=Published)
    looked_between_ms: int = 0
    swept: RangeSet = field(default_factory=RangeSet)
    """Entries that have left behind the first one that has not."""

    # `super()` does not work in a dataclass with slots.

    def fits_all(self, count: int, size: int, priority: int = PRIORITY_MOST) -> bool:
        return not self.named or Queue.fits_all(self, count, size, priority)

    def fits(self, size: int, priority: int = PRIORITY_MOST) -> bool:
        return not self.named or Queue.fits(self, size, priority)

    def room(self, at_most: int, priority: int = PRIORITY_MOST) -> int:
        return Queue.room(self, at_most, priority) if self.named else at_most

    @property
    def asked_most(self) -> int:
        """The cost of matching any message, in subscriptions; an expensive selector counts as many subscriptions."""
        efforts = self.interests_of_named().effort + self.interests_of_listeners().effort
        return len(self.named) + len(self.listeners) + EFFORT_ASKED * efforts

    @property
    def asked(self) -> int:
        """The same of the last message alone."""
        named, listening = self.interests_of_named(), self.interests_of_listeners()
        return named.asked + listening.asked + EFFORT_ASKED * (named.effort + listening.effort)

    @property
    def asks_publishers(self) -> bool:
        """Whether a subscription needs the publishers of messages."""
        return self.interests_of_named().asks_publishers or self.interests_of_listeners().asks_publishers

    # ------------------------------------------------------------------------------------------------ published

    def append(self, value: bytes, size: int) -> int:
        """As `EntryLog.append`; 0 if the message matches no durable subscription."""
        arrives = self.work.arrives
        if value[1] & entry.CUSTODY and arrives is not None and not arrives(self, value):
            return 0
        return self.append_now(value, size, is_kept=bool(value[1] & (entry.CUSTODY | entry.BLOB)))

    def append_now(self, value: bytes, size: int, *, is_kept: bool = True) -> int:
        """As `append`, for a message that does not arrive from another node."""
        held = self.hold(value)
        return self.deliver(value, size, is_kept=is_kept) if held is None else held

    def deliver(self, value: bytes, size: int, *, is_kept: bool = True) -> int:
        """As `append`, without a delay. `is_kept`: if the commit is refused, the message stays where it comes from, or
        it is large: listeners get it once the turn is stored, and what is published behind it too."""
        sequence = self.store(value, size)
        if self.listeners and (is_kept or self.telling) and self.config.durable and self.work.tells is not None:
            self.work.tells(self, value, size)
        elif self.listeners and (sequence or self.untold):
            self.untold.append((self.next_sequence - 1, value, size))
        else:
            self.tell(value, size)
        return sequence

    def undo(self, sequence: int, value: bytes) -> None:
        """Reverts the append, and all later ones."""
        Queue.undo(self, sequence, value)
        for cursor in self.limited:
            backlogs.never_came(cursor, sequence)
        self.untold = deque(item for item in self.untold if item[0] < sequence)

    def tell(self, value: bytes, size: int) -> None:
        """Gives the message to the matching listeners; `store` does the rest of `append`."""
        if self.listeners:
            is_large = value[1] & entry.BLOB
            for queue in [*self.listeners] if is_large else self.interests_of_listeners().wanting(value):
                bounds = LISTENER_MESSAGES_MAX, LISTENER_BYTES_MAX
                self.dropped_total += dropping.put_latest(queue, value, size, *bounds)

    def store(self, value: bytes, size: int) -> int:
        """Stores the message for the durable subscriptions; 0 if none matches."""
        is_large = bool(value[1] & entry.BLOB)
        if not (self.named or is_large):
            return 0
        wanting: Collection[Cursor] = self.named.values()
        if not is_large:  # its first piece may not be on disk yet
            wanting = self.interests_of_named().wanting(value)
        if not wanting and not (is_large and not self.listeners):
            return 0
        if is_large and self.named:
            self.published.came_large(self.next_sequence)
        elif not is_large:  # before it is appended: what is there and not noted is wanted by nobody
            self.published.came(self.next_sequence, wanting)
        sequence = EntryLog.append(self, value, size)
        if len(wanting) == 1 and not is_large:
            self._cache(sequence, value, *wanting)
        if self.limited:
            for cursor in wanting:
                if cursor in self.limited:
                    backlogs.comes(cursor, sequence, size)
        if not self.named:  # a large message that no subscription wants: its pieces are on disk
            self.sweeping.insert(0, (sequence, sequence))
        return sequence

    def _cache(self, sequence: int, value: bytes, cursor: Cursor) -> None:
        """A message for one subscription alone is cached until it is read, as messages of a queue are."""
        if cursor.consumers and self.config.durable and self.cached.charge(len(value)):
            self.cache[sequence] = value

    def show_up_to(self, sequence: int) -> None:
        """As that of logs; subscriptions have finished what they do not want of it."""
        if self.named and sequence > self.visible:
            self.published.show(self.visible, sequence, MARKED_MAX if self.ranges.room else MARKED_MIN)
        EntryLog.show_up_to(self, sequence)

    def showing(self) -> list[tuple[Cursor, int]]:
        """As that of queues, no further than what a subscription wants."""
        found = []
        for cursor in self.published.may_show(self.named.values(), self.visible):
            shown = cursor.shown_next()
            if cursor.selections is None and cursor.position >= self.visible and not cursor.takes_differ:
                shown = self.published.wanted_end(cursor, shown - cursor.position) or shown
            found.append((cursor, shown))
        return found

    def tell_behind(self, value: bytes, size: int) -> None:
        """As `tell`, for a message that was stored elsewhere: after the messages that wait for listeners."""
        if self.untold:
            self.untold.append((self.untold[-1][0], value, size))
        else:
            self.tell(value, size)

    def append_some(self, values: list[bytes], asked_max: int) -> tuple[int, int]:
        """Appends these until matching them has cost more than `asked_max`; how many, and the cost."""
        count = asked = 0
        while count < len(values) and asked <= asked_max:
            self.append(values[count], packed.size_of(values[count]))
            count, asked = count + 1, asked + self.asked
        return count, asked

    # ------------------------------------------------------------------------------------------------ subscriptions

    def interests_of_listeners(self) -> Interests[Queue]:
        """The selectors of subscriptions that are not durable."""
        if self.listening is None or self.listening.is_changing:
            self.listening = Interests(self.listeners.items())
        return self.listening

    def interests_of_named(self) -> Interests[Cursor]:
        """The selectors of durable subscriptions."""
        if self.subscribed is None or self.subscribed.is_changing:
            selectors = [cast("SubjectSelector | None", cursor.selector) for cursor in self.named.values()]
            self.subscribed = Interests(zip(self.named.values(), selectors, strict=True))
        return self.subscribed

    def listen(self, queue: Queue, selector: SubjectSelector | None) -> None:
        """Adds a subscription that is not durable, whose messages wait in `queue`."""
        self.listeners[queue] = selector
        if self.listening is not None:
            self.listening.add(queue, selector)
        self.work.rebind(self, queue)

    def unlisten(self, queue: Queue) -> None:
        """Removes that subscription, if there is one."""
        self.listeners.pop(queue, None)
        if self.listening is not None:
            self.listening.discard(queue)
        self.work.rebind(self, queue)

    def select(self, cursor: Cursor, selector: SubjectSelector | None) -> None:
        """Sets the selector of a durable subscription; None: everything."""
        if self.subscribed is not None:
            self.subscribed.add(cursor, selector)
        before, cursor.selector = cursor.selector, selector
        if selector is None:
            self.published.forget(cursor)
        elif before is None or before.text != selector.text:
            self.published.select(cursor, self.next_sequence)
        self.work.rebind(self, cursor)

    def bind(self, name: str, wants: BindingRecord) -> None:
        """Records that subscription and its bounds. If it gets a bound, its unfinished messages are counted again."""
        cursor, before = self.named[name], self.bindings.get(name)
        self.bindings[name] = wants
        had, bounds = NO_BOUNDS if before is None else before.bounds, wants.bounds
        if bounds.messages_max:
            self.limited[cursor] = bounds
            if not had.messages_max or (bounds.bytes_max and not had.bytes_max):
                self.unmarked = (min(each.floor for each in self.named.values()), self.next_sequence)
        else:
            self.limited.pop(cursor, None)
        backlogs.bound(cursor, bounds)
        if bounds.idle_s:
            self.work.awaiting[self] = None
        self.touch()

    def drop_expired_all(self, found: list[tuple[int, bytes]]) -> None:
        """As that of queues; subscriptions with a bound also finish such entries ahead of their position."""
        Queue.drop_expired_all(self, found)
        for cursor in self.limited:
            cursor.pass_over([sequence for sequence, _ in found])

    def add_cursor(self, name: str, mode: str, start: int) -> Cursor:
        """Adds a durable subscription at `start` that matches everything."""
        cursor = Cursor(self, self, name, mode=mode, floor=start)
        cursor.count_deliveries()
        if self.subscribed is not None:
            self.subscribed.add(cursor, None)
        self.named[name] = cursor
        self.work.rebind(self, cursor)
        if len(self.named) == 1 and not self.sweeping:
            self.reclaim_from = start
        self.dirty(cursor)
        self.reclaim()
        return cursor

    def remove_cursor(self, name: str) -> None:
        self.bindings.pop(name, None)
        cursor, subscribed = self.named[name], self.subscribed
        self.subscribed = None  # until the subscription is gone, and for good if this fails before
        self.limited.pop(cursor, None)
        self.published.forget(cursor)
        self.work.rebind(self, cursor)
        Queue.remove_cursor(self, name)
        if subscribed is not None:
            subscribed.discard(cursor)
            self.subscribed = subscribed

    def untrack(self) -> None:
        """The last durable subscription was deleted: everything stored for it leaves."""
        self.sweep(self.swept.gaps(self.reclaim_from, self.next_sequence - 1))
        self.swept = RangeSet()
        self.reclaim_from = self.next_sequence
        self.reclaiming = False
        self.unmarked = None
        self.touch()

    def look_again_at_stored(self) -> None:
        """After a start of the node: stored messages are matched again, some of them each turn."""
        if self.named and (self.messages or self.limited):
            self.unmarked = (min(cursor.floor for cursor in self.named.values()), self.next_sequence)
            self.touch()
        elif self.messages:  # the last subscription was deleted, and not all of its messages had left
            self.sweep([(0, self.next_sequence - 1)])
            self.reclaim_from = self.next_sequence
            self.touch()

    def reclaim(self) -> None:
        """Messages that every subscription has finished leave the disk, a bounded number each turn."""
        self.reclaiming = bool(self.named)
        self.touch()

    def reclaim_some(self) -> None:
        """One turn's share of `reclaim`, of matching again after a start, and of sweeping."""
        while self.untold and self.untold[0][0] < self.visible:
            _, value, size = self.untold.popleft()
            self.tell(value, size)
        if self.unmarked is not None:
            self._mark_some(*self.unmarked)
        for cursor, bounds in self.limited.items():
            self.dropped_total += backlogs.keep(cursor, bounds, self.unmarked)
            cursor.count_ranges()
        if self.work.is_full(RETIRES_MAX):
            self.work.request_commit()
            self.touch()
            return
        was_sweeping = self.sweeps_now
        if self.named and not was_sweeping:
            self._look_for_finished()
        if self.sweeping:
            self._sweep_some()
        if self.named and was_sweeping and not self.sweeps_now:
            self.touch()  # more may have been finished meanwhile

    def _mark_some(self, first: int, end: int) -> None:
        marked_max = MARKED_MAX if self.ranges.room else MARKED_MIN
        count = max(1, MARK_COUNT // (1 + self.interests_of_named().effort))
        limit = min(end, self.visible)
        found = [item for item in self.read(first, count_max=count, bytes_max=READ_BYTES) if item[0] < limit]
        last = found[-1][0] + 1 if found else limit
        wanted: dict[Cursor, list[int]] = {}
        for sequence, value in found:
            for cursor in self.interests_of_named().wanting(value):
                wanted.setdefault(cursor, []).append(sequence)
        for cursor in self.named.values():
            if cursor.selector is not None or cursor.is_bounded:
                finish_others(cursor, max(first, cursor.position), last, wanted.get(cursor, ()), marked_max)
        for cursor in self.limited:
            for sequence, value in found:
                backlogs.note(cursor, sequence, value)
        self.unmarked = (last, end) if last < end else None
        if self.unmarked is None or last < self.visible:  # else it goes on when the next ones are on disk
            self.touch()

    def _look_for_finished(self) -> None:
        """Messages that all have finished leave: below the lowest floor at once; behind an unfinished message now and
        then, so that a single message that is not fetched keeps no others."""
        low = min(cursor.floor for cursor in self.named.values())
        found = []
        if low > self.reclaim_from:
            found, self.reclaim_from = self.swept.gaps(self.reclaim_from, low - 1), low
            self.swept.drop_below(low)
        if low < self.visible and self._looks_between():
            self.looked_between_ms = self.clock.steady_ms
            for first, last in self._finished_between(low):
                found.append((first, last))
                self.swept.add(first, last)
        self.sweep(found)

    def _looks_between(self) -> bool:
        ranges = sum([len(cursor.finished) for cursor in self.named.values()])
        is_time = self.clock.steady_ms - self.looked_between_ms >= BETWEEN_MS
        return ranges <= RANGES_FEW or (ranges <= RANGES_MAX and is_time)

    def _finished_between(self, low: int) -> list[tuple[int, int]]:
        end = self.visible - 1
        kept = self.swept.copy()
        for cursor in self.named.values():
            if cursor.floor <= end:
                for first, last in cursor.finished.gaps(cursor.floor, end):
                    kept.add(first, last)
        return kept.gaps(low, end)
