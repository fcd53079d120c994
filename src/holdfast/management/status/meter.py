"""Telemetry: the records that a node writes in each interval (docs/telemetry.md).

Rules of this file: reads, never changes; names of fields are a contract (docs/telemetry.md). A turn writes a bounded
share.
"""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.broker.entries.host_names import HostedName
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.duplicates import Duplicates
from holdfast.custody.hop.next_hop import NextHop
from holdfast.engine.clock import Clock
from holdfast.engine.outbox import Outbox
from holdfast.settings.node import NodeConfig
from holdfast.state.catalog import Catalog

QUEUES_A_TURN: Final = 100
"""Records of queues that one turn makes: each reads the oldest entry, all together a millisecond or two."""

LOOKS_A_TURN: Final = 2_000
"""Queues without anything to say that one turn looks at."""

QUEUES_MAX: Final = 1_000
"""Records of queues in one interval."""


class Meter:
    """The records of each interval: those of queues with contents or changes, and of the parts registered by
    `each_interval`. If there are many queues, each turn writes some; an interval has at most QUEUES_MAX, and the next
    one begins with the others. Without a telemetry file there are no records.
    """

    def __init__(self, config: NodeConfig, clock: Clock, outbox: Outbox, catalog: Catalog) -> None:
        self._config = config
        self._clock = clock
        self._outbox = outbox
        self._catalog = catalog
        self._each_interval: list[Callable[[], None]] = []
        self.totals: dict[HostedName, tuple[int, int, int, float]] = {}
        """By queue, as last recorded: in, out, messages, and when."""
        self.pending: list[Queue] = []
        """Still to be looked at in this interval, the next one last."""
        self.due_at = clock.now
        self._begin_at = clock.now
        self._left = 0
        self._next = 0

    def each_interval(self, tell: Callable[[], None]) -> None:
        """`tell` is called at the beginning of each interval, to record the last one."""
        self._each_interval.append(tell)

    def tick(self, now: float) -> bool:
        """Writes this turn's share; returns whether a new interval began."""
        begins = now >= self._begin_at
        if begins:
            self._begin_at = now + self._config.telemetry_interval_s
            if not self.pending and self._config.telemetry:
                self._begin()
        if self.pending:
            self._some()
        self.due_at = now if self.pending else self._begin_at
        return begins

    def _begin(self) -> None:
        queues = list(self._catalog.queues.values())
        start = self._next if self._next < len(queues) else 0
        self.pending = [*queues[start:], *queues[:start]][::-1]
        self._next = start
        self._left = QUEUES_MAX
        for tell in self._each_interval:
            tell()

    def _some(self) -> None:
        told = 0
        for _ in range(min(LOOKS_A_TURN, len(self.pending))):
            told += self._tell(self.pending.pop())
            self._next += 1
            if told >= QUEUES_A_TURN:
                break
        self._left -= told
        if self._left <= 0:
            self.pending.clear()
        count = len(self._catalog.queues)
        self._next = self._next % count if count else 0

    def _tell(self, queue: Queue) -> bool:
        interval_s = self._config.telemetry_interval_s
        if not self._catalog.has(queue):  # deleted since the interval began
            return False
        before_in, before_out, messages, at = self.totals.get(queue.key, (0, 0, 0, self._clock.now - interval_s))
        self.totals[queue.key] = (queue.in_total, queue.out_total, queue.messages, self._clock.now)
        if (queue.in_total, queue.out_total, queue.messages) == (before_in, before_out, messages) and not messages:
            return False
        passed_s = max(interval_s, self._clock.now - at)
        oldest = queue.oldest_wall_ms()
        self._outbox.record(
            "queue",
            {
                "name": queue.name,
                "vhost": queue.host or None,
                "messages": queue.messages - queue.tombstones,
                "bytes": queue.bytes_held,
                "oldest_s": None if oldest is None else max(0, self._clock.wall_ms - oldest) / 1000,
                "in_total": queue.in_total,
                "out_total": queue.out_total,
                "in_per_s": round(max(0, queue.in_total - before_in) / passed_s, 3),  # a refused turn reverts some
                "out_per_s": round((queue.out_total - before_out) / passed_s, 3),
                "next_sequence": queue.next_sequence,
            },
        )
        return True


class SenderMeter:
    """A record of every custody sender."""

    def __init__(self, outbox: Outbox, catalog: Catalog, hops: Mapping[str, NextHop], duplicates: Duplicates) -> None:
        self._outbox = outbox
        self._catalog = catalog
        self._hops = hops
        self._duplicates = duplicates

    def tell(self) -> None:
        origins = list(self._catalog.ledger.all_origins())
        late, gaps = sum(origin.late for origin in origins), sum(len(origin.finished) for origin in origins)
        for hop in self._hops.values():
            for destination, sender in hop.senders.items():
                self._outbox.record(
                    "custody",
                    {
                        "destination": destination,
                        "waiting": sender.queue.messages - sender.queue.tombstones,
                        "in_doubt": len(sender.in_doubt),
                        "receipt": self._catalog.ledger.receipts.get(destination, 0),
                        "duplicates_suppressed": self._duplicates.suppressed,
                        "late": late,
                        "gaps": gaps,
                    },
                )
