"""Canaries in what subscriptions leave behind, and in what is stored of them.

Rules of this file: as in `hop_defects.py`.
"""

from collections.abc import Callable
from typing import Any

from holdfast.broker.stored import records
from holdfast_lab.canaries.hop_defects import MANY
from holdfast_lab.canaries.planting import Canary

Function = Callable[..., Any]


def _kept_by_nobody(original: Function) -> Function:
    """Where a consumer of a long queue holds messages as the last subscription goes, the last that this alone kept
    stays."""

    def sweep(self: Any, ranges: list[tuple[int, int]]) -> None:
        original(self, ranges)
        if self.sweeping and self.shared.acquired and self.next_sequence > MANY:
            self.keep_unswept(self.sweeping[0][1])

    return sweep


def _one_reader_stored(original: Function) -> Function:
    """Of the subscriptions of a long queue that finish something in one turn, the last is not stored."""

    def _put_cursors(self: Any, queue: Any) -> Any:
        told = original(self, queue)
        names = [name for name in queue.dirty_cursors if name]
        if len(names) > 1 and queue.next_sequence > MANY:
            self._work.batch.puts.pop(("subscriptions", records.cursor_key(queue.queue_id, names[-1])), None)
        return told

    return _put_cursors


READER_CANARIES = (
    Canary(
        name="kept-by-nobody",
        sentence="Of what a deleted subscription alone kept, the last stays, if a consumer held messages just then.",
        target="broker.queue:Queue.sweep",
        signature="(self, ranges: list[tuple[int, int]]) -> None",
        broken=_kept_by_nobody,
        expected="in nobody's hands",
    ),
    Canary(
        name="one-reader-stored",
        sentence="Of two subscriptions of a long queue that finish messages in one turn, one forgets it at a restart.",
        target="state.queue_rows:QueueRows._put_cursors",
        signature="(self, queue: holdfast.broker.queue.Queue) -> "
        "list[tuple[holdfast.broker.cursors.cursor.Cursor, int]]",
        broken=_one_reader_stored,
        expected="would forget at a restart",
    ),
)
