"""Virtual time: one heap ordered by time and sequence, and what happened, as a digest and as a log.

Rules of this file: knows nothing of nodes. Two events of one moment run in the order in which they were planned.
"""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any, Final

from holdfast_lab.base.notes import Note
from holdfast_lab.base.seed_tree import SeedTree

START_S: Final = 1_000.0
"""Where virtual time begins: a zero would hide a forgotten `now`."""

NOTES_MAX: Final = 2_000_000
EVENTS_MAX: Final = 20_000_000
"""More than the longest run needs; a deadline that stays in the past would otherwise never end."""


class Timer:
    """What `World.at` planned; `cancel` may come at any time."""

    __slots__ = ("args", "call", "when")

    def __init__(self, when: float, call: Callable[..., Any] | None, args: tuple[Any, ...]) -> None:
        self.when = when
        self.call = call
        self.args = args

    def cancel(self) -> None:
        self.call = None
        self.args = ()


class World:
    """The clock and the plan. `keep_notes` False keeps the digest alone, which is what a swarm wants."""

    def __init__(self, seed: int, *, keep_notes: bool = False) -> None:
        self.seeds = SeedTree(seed)
        self.now = START_S
        self.keep_notes = keep_notes
        self.notes: list[Note] = []
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._digest = blake2b(digest_size=16)
        self.events = 0
        self.failure: BaseException | None = None

    @property
    def elapsed_s(self) -> float:
        return self.now - START_S

    # ------------------------------------------------------------------------------------------------ the plan

    def at(self, when: float, call: Callable[..., Any], *args: Any) -> Timer:
        """Plans `call(*args)` for `when`, or for now where that has passed."""
        timer = Timer(when if when > self.now else self.now, call, args)
        self._sequence += 1
        heappush(self._heap, (timer.when, self._sequence, timer))
        return timer

    def after(self, seconds: float, call: Callable[..., Any], *args: Any) -> Timer:
        return self.at(self.now + seconds, call, *args)

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Runs what is planned up to `until`, or until `done()`; returns whether it is done.

        The first exception of anything that ran ends the run, and is raised; so does a run that only spins.
        """
        heap = self._heap
        while heap:
            if done is not None and done():
                return True
            when, _, timer = heap[0]
            if when > until:
                break
            heappop(heap)
            call = timer.call
            if call is None:
                continue
            self.now = when
            self.events += 1
            if self.events > EVENTS_MAX:
                raise RuntimeError(f"{EVENTS_MAX} events and no end: something spins at {self.elapsed_s:.3f} s")
            call(*timer.args)
            if self.failure is not None:
                raise self.failure
        if done is not None and done():
            return True
        self.now = max(self.now, until)
        return False

    def fail(self, error: BaseException) -> None:
        """The run ends with it once the event that runs now is over; the first such error is the one that is raised."""
        if self.failure is None:
            self.failure = error

    def judge(self, check: Callable[..., None], *args: Any) -> None:
        """Runs a check from within a node's own code: the run fails by what it raises, and the node never meets it.

        A node contains exceptions and answers for them, so that a finding about it would pass for a failure of its own.
        """
        try:
            check(*args)
        except Exception as error:
            self.fail(error)

    # ------------------------------------------------------------------------------------------------ what happened

    def note(self, place: str, kind: str, text: str = "") -> None:
        """Adds to the digest, and to the log where one is kept."""
        self._digest.update(f"{self.now!r} {place} {kind} {text}\n".encode())
        self.remark(place, kind, text)

    def remark(self, place: str, kind: str, text: str = "") -> None:
        """Adds to the log alone, where one is kept: a run has the same digest with and without its log."""
        if self.keep_notes and len(self.notes) < NOTES_MAX:
            self.notes.append(Note(self.elapsed_s, place, kind, text))

    def count(self, place: str, data: bytes) -> None:
        """Adds to the digest alone: what happens too often for the log."""
        self._digest.update(b"%r %b" % (self.now, place.encode()))
        self._digest.update(data)

    @property
    def digest(self) -> str:
        """Of all that was noted so far: equal for equal histories."""
        return self._digest.copy().hexdigest()
