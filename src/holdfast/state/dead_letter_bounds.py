"""The bounds of `$dead-letters`: messages, bytes and age; the oldest messages are deleted first
(docs/configuration.md).

Rules of this file: no message waits for room among the dead letters, and no subscription keeps them: at a bound the
oldest are dropped. Messages that a consumer holds stay, and count. A turn drops a bounded share; each dropped message
is counted.
"""

from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries import packed
from holdfast.broker.entries.host_names import hosted
from holdfast.broker.entries.read_ahead import READ_BYTES
from holdfast.broker.entries.work import RETIRES_MAX, Work
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.names import DEAD_LETTERS
from holdfast.settings.queues import DeadLettersConfig
from holdfast.state.catalog import Catalog
from holdfast.state.losses import Losses
from holdfast.state.turns import Turns

LOOK_S: Final = 1.0
"""How often the bounds are checked without a turn: a consumer may have returned messages."""
AGE_LOOK_S: Final = 60.0
"""How often the age of the oldest is looked at at the least: the wall clock may be set."""
AGE_SHARE: Final = 64
"""One that is due leaves within that part of `keep_s`, at least LOOK_S and at most AGE_LOOK_S: those that end one after
the other are looked at so often and no more."""
TIMER_MS: Final = 2
"""A look comes so much behind its moment, because the clocks count whole milliseconds."""
LOOK_COUNT: Final = 16
"""Of a look that may find none that is due."""
WARN_S: Final = 3_600.0
"""Between two lines in the log about dead letters that are dropped."""


class DeadLetters:
    """Drops the oldest dead letters at each bound, separately in each virtual host. `by_host`: one object for each
    host."""

    def __init__(
        self,
        bounds: DeadLettersConfig,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        log: Log,
        losses: Losses,
    ) -> None:
        self.by_host = {
            host: HostDeadLetters(bounds, clock, catalog, turns, work, log, losses, host) for host in catalog.hosts
        }

    @property
    def pending(self) -> bool:
        """Whether `step` has anything to do."""
        return any(each.pending for each in self.by_host.values())

    def step(self) -> None:
        """Drops this turn's share of dead letters beyond a bound."""
        for each in self.by_host.values():
            if each.pending:
                each.step()

    def tick(self, now: float) -> None:
        """Begins again at the oldest."""
        for each in self.by_host.values():
            each.tick(now)

    def next_deadline(self) -> float | None:
        return min((at for each in self.by_host.values() if (at := each.next_deadline()) is not None), default=None)

    def status(self, host: str) -> dict[str, Any]:
        """The number of dead letters in that host, and how many were dropped since the node's start."""
        return self.by_host[host].status()


class HostDeadLetters:
    """Drops the oldest of one virtual host's."""

    def __init__(
        self,
        bounds: DeadLettersConfig,
        clock: Clock,
        catalog: Catalog,
        turns: Turns,
        work: Work[Queue],
        log: Log,
        losses: Losses,
        host: str,
    ) -> None:
        self._host = host
        self._key = hosted(host, DEAD_LETTERS)
        self._bounds = bounds
        self._clock = clock
        self._catalog = catalog
        self._turns = turns
        self._work = work
        self._log = log
        self._losses = losses
        self.dropped = self.dropped_bytes = 0
        """Since the node's start."""
        self._place = 0
        """All below was looked at since the last tick: it left, or is held."""
        self._too_old = False
        """Whether the oldest are still to be compared with `keep_s`."""
        self._goes_on = False
        self._look_at = self._age_at = clock.now
        self._warn_at = clock.now
        self._unsaid = 0

    @property
    def _queue(self) -> Queue | None:
        return self._catalog.queues.get(self._key)

    def _over(self, queue: Queue) -> bool:
        bounds = self._bounds
        return queue.messages > bounds.messages_max or queue.bytes_held > bounds.bytes_max

    @property
    def pending(self) -> bool:
        """Whether `step` has anything to do."""
        queue = self._queue
        return queue is not None and (self._goes_on or self._too_old or self._over(queue))

    def step(self) -> None:
        """Drops this turn's share of dead letters beyond a bound."""
        queue = self._queue
        if queue is None or not (self._too_old or self._over(queue)):
            self._goes_on = False
            return
        if self._work.is_full(RETIRES_MAX):
            self._work.request_commit()
            self._goes_on = True
            return
        dropped = self._drop_some(queue)
        self._goes_on = dropped and (self._too_old or self._over(queue))

    def _drop_some(self, queue: Queue) -> bool:
        """Drops up to RECLAIM_COUNT from the oldest on; False where there was nothing to look at."""
        bounds, clock = self._bounds, self._clock
        count = RECLAIM_COUNT if self._goes_on or self._over(queue) else LOOK_COUNT
        found = queue.read(self._place, count_max=count, bytes_max=4 * READ_BYTES)
        held = [cursor.acquired for cursor in queue.cursors]
        leaving = queue.leaving() if found else frozenset()
        messages, size = queue.messages, queue.bytes_held
        before_ms = clock.wall_ms - int(bounds.keep_s * 1000)
        gone: list[int] = []
        for sequence, value in found:
            if sequence in leaving or any(sequence in acquired for acquired in held):
                self._place = sequence + 1
                self._look_again(LOOK_S)
                continue
            fits = messages <= bounds.messages_max and size <= bounds.bytes_max
            if fits and not (self._too_old and packed.enqueued_ms_of(value) <= before_ms):
                self._too_old = False
                self._look_again((packed.enqueued_ms_of(value) - before_ms + TIMER_MS) / 1000)
                break
            self._place = sequence + 1
            gone.append(sequence)
            messages -= 1
            size -= packed.size_of(queue.cache.get(sequence, value))
        if not found:
            self._too_old = False
            self._look_again(LOOK_S)  # what is there is held, or not on disk yet
            if not queue.messages:
                self._age_at = self._clock.now  # the next one that comes says when it ends
        if gone:
            self._count(len(gone), queue.bytes_held - size)
            queue.drop(gone, queue.bytes_held - size)
        return bool(found)

    def _look_again(self, due_s: float) -> None:
        """A message expires in so many seconds; the next look is at that time if it was due later."""
        step_s = max(LOOK_S, self._bounds.keep_s / AGE_SHARE)
        wait_s = max(due_s, step_s) if due_s < AGE_LOOK_S + step_s else AGE_LOOK_S
        self._age_at = min(self._age_at, self._clock.now + wait_s)

    def _count(self, count: int, size: int) -> None:
        self.dropped += count
        self.dropped_bytes += size
        self._unsaid += count
        self._losses.dropped(count, size)
        if self._clock.now >= self._warn_at:
            self._warn_at = self._clock.now + WARN_S
            whose = f" of virtual host {self._host!r}" if self._host else ""
            text = f"{DEAD_LETTERS}{whose}: at its bounds {self._unsaid} of the oldest were dropped"
            advice = "consume them in time, or raise messages_max, bytes_max or keep_s of [dead_letters]"
            self._log.write("WARNING", f"{text}; {advice}")
            self._unsaid = 0

    # ------------------------------------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Begins again at the oldest."""
        queue = self._queue
        ages = now >= self._age_at and queue is not None and queue.messages > 0
        if ages or now >= self._look_at:
            self._look_at = now + LOOK_S
            self._place = 0
            if ages:
                self._age_at = now + 2 * AGE_LOOK_S  # unless what is found has an earlier end
                self._too_old = True

    def next_deadline(self) -> float | None:
        queue = self._queue
        if queue is None or not queue.messages:
            return None
        if self._goes_on and self._turns.in_flight is None:
            return self._clock.now
        return min(self._look_at, self._age_at) if self._over(queue) else self._age_at

    # ------------------------------------------------------------------------------------------------ reports

    def status(self) -> dict[str, Any]:
        """The number of dead letters, and how many were dropped since the node's start."""
        queue, bounds = self._queue, self._bounds
        return {
            "messages": Ulong(0 if queue is None else queue.messages),
            "bytes": Ulong(0 if queue is None else queue.bytes_held),
            "dropped": Ulong(self.dropped),
            "dropped_bytes": Ulong(self.dropped_bytes),
            **self._totals(),
            "messages_max": Ulong(bounds.messages_max),
            "bytes_max": Ulong(bounds.bytes_max),
            "keep_s": bounds.keep_s,
        }

    def _totals(self) -> dict[str, Any]:
        """How many were dropped since the store was created, in all hosts together: only the default host reports
        this."""
        totals = self._losses.totals
        told = {"dropped_total": Ulong(totals.dropped), "dropped_bytes_total": Ulong(totals.dropped_bytes)}
        return {} if self._host else told
