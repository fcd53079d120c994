"""Losses: ranges of numbers whose messages will never arrive, and dead letters that were dropped at a bound.

Rules of this file: a loss is stored with the batch that decides it, reported in the log and in telemetry once that is
on disk, and listed over restarts: the last LISTED_MAX, and the number of all. A turn that is undone has lost nothing:
it is decided again. Source: docs/GUARANTEES.md; docs/management.md, `losses`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import loss_records
from holdfast.broker.stored.loss_records import LossRecord, LossTotals
from holdfast.engine.clock import Clock
from holdfast.engine.log import Log
from holdfast.engine.outbox import Outbox
from holdfast.state.turns import Turn, Turns, Undone
from holdfast.units import iso8601

LISTED_MAX: Final = 1_000
"""Ranges that are kept; of more the oldest are counted alone."""
LOSSES_TOLD: Final = 100
"""The latest of them in one `status`."""

TABLE: Final = "losses"


class Stored(Protocol):
    """A store that is open."""

    def table(self, name: str) -> Iterator[tuple[bytes, bytes]]: ...


class Losses:
    """The list of what was lost, stored over restarts."""

    def __init__(self, store: Stored, clock: Clock, turns: Turns, work: Work[Queue], outbox: Outbox, log: Log) -> None:
        self._clock = clock
        self._turns = turns
        self._work = work
        self._outbox = outbox
        self._log = log
        self.totals = LossTotals()
        self._listed: deque[tuple[int, LossRecord]] = deque()
        """With their numbers in the table, ascending; what the gathered turn lost is among them."""
        self._following = 1
        for key, value in store.table(TABLE):
            if key == loss_records.LOSS_TOTALS:
                self.totals = loss_records.unpack_loss_totals(value)
            else:
                self._listed.append((loss_records.split_loss_key(key), loss_records.unpack_loss(value)))
        if self._listed:
            self._following = self._listed[-1][0] + 1

    def __len__(self) -> int:
        return len(self._listed)

    def __iter__(self) -> Iterator[LossRecord]:
        return (loss for _, loss in self._listed)

    def add(self, origin: UUID, ranges: Iterable[tuple[int, int]], reason: str) -> None:
        """Adds lost numbers of that origin, as inclusive ranges."""
        at_ms = self._clock.wall_ms
        self._take([LossRecord(origin, first, last, at_ms, reason) for first, last in ranges])

    def _take(self, lost: list[LossRecord]) -> None:
        if not lost:
            return
        batch, turn = self._work.batch, self._turns.gathered
        totals = self.totals
        for loss in lost:
            turn.losses.append(loss)
            totals = totals.with_one(loss)
            self._listed.append((self._following, loss))
            batch.puts[TABLE, loss_records.loss_key(self._following)] = loss_records.pack_loss(loss)
            self._following += 1
        while len(self._listed) > LISTED_MAX:
            key = loss_records.loss_key(self._listed.popleft()[0])
            if batch.puts.pop((TABLE, key), None) is None:
                batch.deletes.append((TABLE, key))
        self._put(totals)

    def dropped(self, count: int, size: int) -> None:
        """Counts dropped dead letters that leave with this turn's batch, of `size` bytes together."""
        totals = self.totals
        self._put(totals._replace(dropped=totals.dropped + count, dropped_bytes=totals.dropped_bytes + size))

    def _put(self, totals: LossTotals) -> None:
        self.totals = totals
        self._work.batch.puts[TABLE, loss_records.LOSS_TOTALS] = loss_records.pack_loss_totals(totals)

    # ------------------------------------------------------------------------------------------------ turns

    def committed(self, turn: Turn) -> None:
        """The losses of that turn are on disk: reports them."""
        for loss in turn.losses:
            fields = {"origin": str(loss.origin), "first": loss.first, "last": loss.last, "reason": loss.reason}
            self._outbox.record("loss", fields)
            self._log.write("ERROR", f"lost: origin {loss.origin} numbers {loss.first} to {loss.last}: {loss.reason}")

    def undo(self, undone: Undone) -> None:
        """Those turns were undone. Losses of an origin whose state was reverted are decided again; the others are
        stored with the gathered batch, and so are the counts of dead letters that leave all the same."""
        stays: list[LossRecord] = []
        for turn in undone.turns:
            origins = {origin.origin for origin in turn.origins}
            stays[:0] = [loss for loss in turn.losses if loss.origin not in origins]
            for loss in turn.losses:
                self.totals = self.totals.without(loss)
            gone = len(turn.losses)
            while gone and self._listed:
                self._listed.pop()
                gone -= 1
            if turn.batch.puts.get((TABLE, loss_records.LOSS_TOTALS)) is not None:
                self._put(self.totals)
        self._take(stays)

    # ------------------------------------------------------------------------------------------------ reports

    def status(self, count: int) -> list[dict[str, Any]]:
        """The last `count` losses, the latest last."""
        latest = list(self._listed)[-count:]
        return [
            {
                "at": iso8601(loss.at_ms),
                "origin": str(loss.origin),
                "first": Ulong(loss.first),
                "last": Ulong(loss.last),
                "reason": loss.reason,
            }
            for _, loss in latest
        ]

    def fields(self) -> dict[str, Any]:
        """The fields of `status`: the latest LOSSES_TOLD, and the number of all."""
        totals = self.totals
        return {
            "losses": self.status(LOSSES_TOLD),
            "losses_total": {
                "ranges": Ulong(totals.ranges),
                "numbers": Ulong(totals.numbers),
                "since": iso8601(totals.since_ms) if totals.since_ms else None,
            },
        }
