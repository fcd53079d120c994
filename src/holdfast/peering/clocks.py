"""Estimates the offset between a neighbour's wall clock and ours, for `status` only (RFC 5905 §8; `clock_offset_s`).

Rules of this file: no decision depends on it. Questions are rare and are control messages of their own, so that probes
stay unchanged; an older neighbour ignores them.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from holdfast.amqp.wire.types import Ulong
from holdfast.engine.clock import Clock
from holdfast.peers.neighbours.session_port import ControlHandlers, Session
from holdfast.schema import is_whole_within

SAMPLES: Final = 8
"""Samples among which the one with the shortest round trip counts (RFC 5905 §10)."""

EVERY_S: Final = (5.0, 30.0)
"""Seconds between two questions: until there are SAMPLES answers, and afterwards."""

ANSWER_S: Final = 10.0
"""A later answer measures queues rather than clocks, and is ignored."""

TIME_MS_MAX: Final = 2**53

WALL_MS_MAX: Final = 253_402_214_400_000
"""The last day of the year 9999 begins: where ISO 8601 and most calendars end."""

ASK: Final = "clock"
ANSWER: Final = "time"


def calendar_ms(wall_ms: int) -> int:
    """The moment nearest to `wall_ms`, from 1970 to 9999: a clock may show anything, an entry stores no sign."""
    return min(max(wall_ms, 0), WALL_MS_MAX)


@dataclass(slots=True)
class Offset:
    """The samples of one neighbour's clock."""

    due: float = 0.0
    number: int = 0
    asked: tuple[int, float] | None = None
    """The wall time in ms and `now` of the question that waits for its answer."""
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """(round trip, offset) in seconds."""

    @property
    def offset_s(self) -> float | None:
        """Theirs less ours, in seconds; None before the first answer."""
        return min(self.samples)[1] if self.samples else None


class Clocks:
    """Asks each neighbour for its wall clock, and keeps the offset from ours."""

    def __init__(self, clock: Clock, neighbours: Mapping[str, Session]) -> None:
        self._clock = clock
        self._neighbours = neighbours
        self.offsets: dict[str, Offset] = {}
        self.due_at: float | None = clock.now
        """When the next question is due; read in every turn, so it is computed only after a question."""
        self.hears: ControlHandlers = {ASK: self._on_ask, ANSWER: self._on_answer}

    def established(self) -> None:
        """A session is up: that neighbour may be asked."""
        self.due_at = self._clock.now

    def offset_s(self, neighbour: str) -> float | None:
        """How much later that neighbour's wall clock is than ours, in seconds; None where it is not known."""
        known = self.offsets.get(neighbour)
        found = known.offset_s if known is not None else None
        return None if found is None else round(found, 3)

    def tick(self, now: float) -> None:
        if self.due_at is None or now < self.due_at:
            return
        self.due_at = None
        for neighbour in self._neighbours.values():
            if not neighbour.established:
                continue
            known = self.offsets.setdefault(neighbour.name, Offset())
            if now >= known.due:
                known.due = now + EVERY_S[len(known.samples) == SAMPLES]
                known.number += 1
                sent_ms = self._clock.wall_ms
                known.asked = sent_ms, now
                neighbour.send({"kind": ASK, "number": Ulong(known.number), "sent": Ulong(sent_ms)})
            if self.due_at is None or known.due < self.due_at:
                self.due_at = known.due

    def next_deadline(self) -> float | None:
        return self.due_at

    def _on_ask(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        number, sent_ms = fields.get("number"), fields.get("sent")
        if _is_time(number) and _is_time(sent_ms):
            ours = Ulong(self._clock.wall_ms)  # one moment: the turn that hears also answers; others may wait
            neighbour.send({"kind": ANSWER, "number": number, "sent": sent_ms, "heard": ours, "answered": ours})

    def _on_answer(self, neighbour: Session, fields: dict[Any, Any]) -> None:
        known = self.offsets.get(neighbour.name)
        heard, answered = fields.get("heard"), fields.get("answered")
        number, sent = fields.get("number"), fields.get("sent")
        if known is None or known.asked is None or not (_is_time(number) and _is_time(sent)):
            return
        if not (_is_time(heard) and _is_time(answered)) or (number, sent) != (known.number, known.asked[0]):
            return
        sent_ms, asked_at = known.asked
        known.asked = None
        passed_s = self._clock.now - asked_at  # not by the wall clock, which may have jumped meanwhile
        if passed_s > ANSWER_S:
            return
        came_ms = sent_ms + passed_s * 1000
        round_trip_ms = max(0.0, came_ms - sent_ms - (answered - heard))
        offset_ms = ((heard - sent_ms) + (answered - came_ms)) / 2
        known.samples.append((round_trip_ms / 1000, offset_ms / 1000))


def _is_time(value: Any) -> TypeGuard[int]:
    return is_whole_within(value, 0, TIME_MS_MAX)
