"""What consumers reject, on its way to the dead letters: a bounded share with each batch.

Rules of this file: what waits here is in no consumer's hands, whatever becomes of the link; it ends in the order in
which it was rejected; a receiver that settles second is answered once all of its disposition is on disk.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.amqp.connection import Sender
from holdfast.amqp.performatives import Rejected
from holdfast.broker.cursor import Cursor
from holdfast.broker.taker import Shown
from holdfast.core.endings import end_rejected
from holdfast.units import MIB

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore

REJECTED_BYTES_MAX: Final = 4 * MIB
"""Of what was rejected, in one batch, and one message more; as much is read in one step."""

BESIDE_BYTES: Final = 1_024
"""What each counts beside its own bytes, so that their number is bounded too."""


@dataclass(eq=False, slots=True)
class Rejection:
    """Of one disposition: what is left of it. `answer`: what the link is told at the end."""

    cursor: Cursor
    sequences: deque[int]
    reason: str
    answer: tuple[Sender, int, int, object] | None


class Rejections:
    """Of one node."""

    def __init__(self, core: "NodeCore") -> None:
        self.core = core
        self.waiting: deque[Rejection] = deque()
        self.cursors: dict[Cursor, int] = {}
        """How many wait of each cursor. It offers nothing meanwhile: else what waits could grow without a bound."""

    def add(
        self, cursor: Cursor, sequences: list[int], state: Rejected, answer: tuple[Sender, int, int, object] | None
    ) -> None:
        """Takes the entries out of their consumer's hands, and ends as many as may go with this batch."""
        said = state.error
        reason = f"rejected: {said.condition} {said.description or ''}".strip() if said is not None else "rejected"
        shown = cursor.shown
        rejection = Rejection(cursor, deque(item for item in sequences if item in shown), reason, answer)
        for sequence in rejection.sequences:
            shown[sequence] = Shown(rejection, shown[sequence].size)
        self.waiting.append(rejection)
        self.cursors[cursor] = self.cursors.get(cursor, 0) + 1
        if len(self.waiting) == 1:
            self.step()

    def step(self) -> None:
        """This batch's share."""
        left_bytes = REJECTED_BYTES_MAX
        while self.waiting:
            rejection = self.waiting[0]
            left_bytes = self._end_some(rejection, left_bytes)
            if rejection.sequences:
                return
            self.waiting.popleft()
            self._over(rejection)

    def _end_some(self, rejection: Rejection, left_bytes: int) -> int:
        """Ends what may end now; what is left of `left_bytes`."""
        core, cursor = self.core, rejection.cursor
        if self._is_moot(cursor):
            rejection.sequences.clear()
        while rejection.sequences and left_bytes > 0 and core.turn.rejected_bytes < REJECTED_BYTES_MAX:
            sequence = rejection.sequences.popleft()
            shown = cursor.shown.get(sequence)
            if shown is None or shown.taker is not rejection:
                continue
            try:
                size, moved = end_rejected(core, cursor, sequence, rejection.reason)
            except Exception:
                cursor.give_back([sequence], failed=True)
                raise
            left_bytes -= size + BESIDE_BYTES
            if moved:
                core.turn.rejected_bytes += size + BESIDE_BYTES
        return left_bytes

    def _over(self, rejection: Rejection) -> None:
        cursor = rejection.cursor
        self.cursors[cursor] -= 1
        if not self.cursors[cursor]:
            del self.cursors[cursor]
        if rejection.answer is not None:
            self.core.turn.answers.append(rejection.answer)
        if not self._is_moot(cursor):
            cursor.queue.touch()

    def _is_moot(self, cursor: Cursor) -> bool:
        """Whether the queue or the subscription was deleted, with all that was in it."""
        queue = cursor.queue
        gone = self.core.catalog.by_id.get(queue.queue_id) is not queue
        return gone or (cursor is not queue.shared and queue.named.get(cursor.name) is not cursor)

    def stop(self) -> None:
        """The node stops: what waits is back in its place, and is given out again later."""
        for rejection in self.waiting:
            rejection.cursor.give_back(list(rejection.sequences), failed=True)
        self.waiting.clear()
        self.cursors.clear()
