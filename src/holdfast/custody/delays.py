"""Delayed messages wait in `$delayed`, in each virtual host separately (docs/adr/0067).

Rules of this file: a message is put into `$delayed` instead of being appended to its queue. One batch retires it there
and appends it to its queue; if the turn is refused, it is moved again. Memory holds a time and a sequence for each, and
for at most as many more that have left. A turn moves a bounded number. A queue gets due messages in the order of their
times.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final

from holdfast.broker.dropping import make_room
from holdfast.broker.entries import delays, entry, packed
from holdfast.broker.entries.host_names import hosted
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.custody.dead_lettering import DeadLettering
from holdfast.engine.clock import Clock
from holdfast.engine.effects import Effect
from holdfast.peers.limits.memory import Memory
from holdfast.state.catalog import DELAYED, Catalog
from holdfast.state.room import Room
from holdfast.state.turns import Turns

SCAN_COUNT: Final = 1_000
"""Entries that one turn looks at after a start."""

LOOKS_MAX: Final = 500
"""Entries that are due, or queues that had no room, that one turn looks at."""

AGAIN_S: Final = 1.0
"""Seconds until messages that found no room are tried again."""

DELAY_BYTES: Final = 128
"""Bytes of memory that each counts: its time and its sequence, in a heap."""

PAUSE_S: Final = 0.02
"""Seconds between two turns if there is more to do."""

WALL_S: Final = 10.0
"""How often the wall clock is checked while a message waits for it, because it may be set forward."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivered(Effect):
    """Due messages are in the turn: the handler learns whether the turn was stored."""

    host: str
    moved: list[tuple[int, int]] = field(repr=False)


class Delays:
    """The delayed messages of a node. `by_host`: one object for each virtual host with delayed messages."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        room: Room,
        dead_lettering: DeadLettering,
        memory: Memory,
    ) -> None:
        self._make = partial(HostDelays, clock, catalog, turns, room, dead_lettering)
        self.by_host = {
            queue.host: self._make(queue.host) for queue in catalog.queues.values() if queue.kind is QueueKind.DELAYED
        }
        self._account = memory.delays
        memory.held_in(self._account, self._held_bytes)
        work.hold = self.hold
        turns.effects.on_decided(Delivered, self._decided)

    def hold(self, queue: Queue, value: bytes) -> int | None:
        """Puts a message for `queue` into its host's `$delayed` and returns its sequence there; None if it is not
        delayed."""
        found = self.by_host.get(queue.host)
        if found is None:
            found = self.by_host[queue.host] = self._make(queue.host)
        sequence = found.hold(queue, value)
        if sequence is not None:
            self._account.hold(self._held_bytes())
        return sequence

    def _held_bytes(self) -> int:
        return sum(DELAY_BYTES * each.known for each in self.by_host.values())

    def next_deadline(self) -> float | None:
        found = [at for each in self.by_host.values() if (at := each.next_deadline()) is not None]
        return min(found, default=None)

    def tick(self, now: float) -> None:
        """Does one turn's share for each host."""
        try:
            for each in self.by_host.values():
                each.tick(now)
        finally:
            self._account.hold(self._held_bytes())

    def _decided(self, effect: Delivered, stored: bool) -> None:
        self.by_host[effect.host].decided(effect, stored)
        self._account.hold(self._held_bytes())


class HostDelays:
    """The delayed messages of one virtual host."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        room: Room,
        dead_lettering: DeadLettering,
        host: str,
    ) -> None:
        self.host = host
        self._clock = clock
        self._catalog = catalog
        self._turns = turns
        self._room = room
        self._dead_lettering = dead_lettering
        self.steady: list[tuple[int, int]] = []
        self.wall: list[tuple[int, int]] = []
        """(time, sequence) of each, by the clock that it waits for."""
        self.waiting: dict[str, deque[tuple[int, int]]] = {}
        """By queue without room: (time by the steady clock, sequence) of its due messages."""
        queue = catalog.find(host, DELAYED)
        self.unread: tuple[int, int] | None = None if queue is None else (0, queue.next_sequence)
        """Sequences still to be read, because it is not known when they are due: [first, end)."""
        self.moving: list[list[tuple[int, int]]] = []
        """Entries that are in a turn, until it is known whether the turn was stored."""
        self._leaving: set[int] = set()
        """Entries that are leaving `$delayed` while a turn moves some of them."""
        self._not_before = clock.now

    # ------------------------------------------------------------------------------------------------ held

    def hold(self, queue: Queue, value: bytes) -> int | None:
        """As `Delays.hold`."""
        clock = self._clock
        due = delays.due_of(value, clock.steady_ms, clock.wall_ms)
        if due is None:
            return None
        kept = delays.held(value, due, queue.name, clock.steady_ms, clock.wall_ms)
        sequence = self._catalog.own(self.host, DELAYED).append(kept, packed.size_of(kept))
        self._wait(due, sequence)
        return sequence

    def _wait(self, due: delays.Due, sequence: int) -> None:
        heappush(self.wall if due.is_wall else self.steady, (due.ms, sequence))
        if len(self.steady) + len(self.wall) > 2 * self._catalog.own(self.host, DELAYED).messages + SCAN_COUNT:
            self._read_anew()

    @property
    def known(self) -> int:
        """How many messages' times are in memory."""
        return len(self.steady) + len(self.wall) + sum(map(len, self.waiting.values()))

    def _read_anew(self) -> None:
        """Half of the known times or more are of entries that have left: reads `$delayed` again."""
        visible = self._catalog.own(self.host, DELAYED).visible
        for heap in (self.steady, self.wall):
            heap[:] = [item for item in heap if item[1] >= visible]
            heapify(heap)
        self.waiting.clear()
        self.unread = (0, visible)

    # ------------------------------------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        clock, found = self._clock, []
        if self.unread is not None:
            found.append(clock.now)
        if self.steady:
            found.append(clock.now + (self.steady[0][0] - clock.steady_ms) / 1000)
        if self.wall:
            found.append(clock.now + min(WALL_S, (self.wall[0][0] - clock.wall_ms) / 1000))
        if self.waiting:
            found.append(self._not_before)
        return max(self._not_before, min(found)) if found else None

    def tick(self, now: float) -> None:
        """One turn's share."""
        if now < self._not_before:
            return
        left = self._read_some() if self.unread is not None else LOOKS_MAX
        moved: list[tuple[int, int]] = []
        delayed = self._catalog.find(self.host, DELAYED)
        self._leaving = set() if delayed is None else delayed.leaving()
        more = False
        for name in list(self.waiting) if left else ():
            more |= self._go_on(name, moved)
        while (heap := self._due_first()) is not None:
            if left <= 0 or self._dead_lettering.has_moved_its_share():
                more = True
                break
            left -= 1
            item = self._steady(heap), heap[0][1]
            found = self._deliver(item, moved, is_first=False)
            if found is None:
                self._not_before = now + PAUSE_S
                return
            heappop(heap)
            if found:
                self.waiting.setdefault(found, deque()).append(item)
        self._not_before = now + (PAUSE_S if more or self.unread is not None else AGAIN_S if self.waiting else 0.0)

    def _steady(self, heap: list[tuple[int, int]]) -> int:
        """When the first of these is due, by the steady clock."""
        at = heap[0][0]
        return at if heap is self.steady else at - self._clock.wall_ms + self._clock.steady_ms

    def _due_first(self) -> list[tuple[int, int]] | None:
        """The one of the two heaps whose head was due first."""
        due = [heap for heap in (self.steady, self.wall) if heap and self._steady(heap) <= self._clock.steady_ms]
        return min(due, key=lambda heap: (self._steady(heap), heap[0][1]), default=None)

    def _read_some(self) -> int:
        """Reads some of the unread entries; returns how many looks are left."""
        assert self.unread is not None
        queue, (first, end) = self._catalog.own(self.host, DELAYED), self.unread
        clock = self._clock
        found = queue.read(first, count_max=SCAN_COUNT, bytes_max=READ_BYTES)
        for sequence, value in found:
            if sequence < end:
                due = delays.due_held(value, clock.steady_ms)
                heappush(self.wall if due.is_wall else self.steady, (due.ms, sequence))
        beyond = found[-1][0] + 1 if found else end
        self.unread = (beyond, end) if beyond < end else None
        return 0 if self.unread is not None else LOOKS_MAX

    def _go_on(self, name: str, moved: list[tuple[int, int]]) -> bool:
        """Moves messages that wait for room in that queue, as far as there is room; returns whether more may follow at
        once."""
        waiting = self.waiting[name]
        while waiting:
            if self._dead_lettering.has_moved_its_share() or len(moved) >= LOOKS_MAX:
                return True
            if self._deliver(waiting[0], moved, is_first=True) != "":
                return False
            waiting.popleft()
        del self.waiting[name]
        return False

    def _deliver(self, item: tuple[int, int], moved: list[tuple[int, int]], *, is_first: bool) -> str | None:
        """Moves a due message. Returns "" if it is done, its queue's name if that has no room, None if that is not
        known yet. `is_first`: whether no other message waits for room in its queue before it."""
        sequence, delayed = item[1], self._catalog.own(self.host, DELAYED)
        if sequence >= delayed.visible:
            return None
        value = delayed.value(sequence)
        if value is None or sequence in self._leaving:
            return ""  # it expired, or was deleted
        name = entry.unpack(value).to
        if name in self.waiting and not is_first:
            return name
        queue = self._target(name)
        kept = delays.delivered(value, self._clock.wall_ms)
        size = packed.size_of(kept)
        if not self._dead_lettering.has_room_for_dead_letter(len(kept)):
            return name
        when_full = "" if queue is None else queue.config.when_full
        fits = queue is not None and (queue.fits(size) or (when_full == "drop-oldest" and make_room(queue, size)))
        if not fits and when_full in ("block", "drop-oldest"):
            return name
        if not moved:
            effect = Delivered(self._turns.event, self.host, moved)
            self.moving.append(moved)
            self._turns.gathered.decided.append(effect)
        moved.append(item)
        self._leaving.add(sequence)
        self._dead_lettering.move_out(delayed, sequence, value)
        if queue is None or not queue.config.durable:
            why = "is in memory and takes nothing that was delayed" if queue is not None else "is gone"
            self._dead_lettering.dead_letter(self.host, kept, f"queue {name!r} {why}", name)
        elif not fits:
            self._dead_lettering.dead_letter(self.host, kept, f"queue {name!r} is full", name)
        else:
            queue.deliver(kept, size)
            queue.touch()
        return ""

    def _target(self, name: str) -> Queue | None:
        """The queue of that name, or of that address at a remote; None if it is gone."""
        queue = self._catalog.queues.get(hosted(self.host, name))
        if queue is not None and queue.kind is QueueKind.REMOTE:
            return queue
        return self._catalog.local_or_none(self.host, name)

    def decided(self, effect: Delivered, stored: bool) -> None:
        """Due messages were delivered and stored, or are back in `$delayed`."""
        self.moving = [moved for moved in self.moving if moved is not effect.moved]
        if not stored:  # they are where they were, and due, before all that waits
            self.steady += [*effect.moved, *(item for waiting in self.waiting.values() for item in waiting)]
            heapify(self.steady)
            self.waiting.clear()
            self._not_before = self._clock.now + AGAIN_S
