"""The interface of a step, and its result for a message.

Rules of this file: types only. A row of a window begins with the time at which that window began, in 8 bytes.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from holdfast.steps.message import StepMessage

START_BYTES: Final = 8
NO_CHANGES: Final[Mapping[bytes, bytes | None]] = {}


class Rows(Protocol):
    """The rows of one step's windows, by key."""

    def get(self, key: bytes) -> bytes | None: ...


class Outcome(NamedTuple):
    """The resulting message, None for none, and the changes of the step's rows: by key the new row, or None to delete
    it."""

    message: StepMessage | None
    rows: Mapping[bytes, bytes | None] = NO_CHANGES


class Step(Protocol):
    """`kind`: its name in a link's `steps`; `within_ms`: the length of its windows, 0 if it has none; `windows_text`:
    equal for steps whose rows have the same meaning."""

    @property
    def kind(self) -> str: ...
    @property
    def within_ms(self) -> int: ...
    @property
    def windows_text(self) -> str: ...
    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        """Handles one message. After StepFailed nothing has changed."""

    def close(self, row: bytes) -> StepMessage | None:
        """The result of a window that is over; its row is deleted."""


class WithoutWindows:
    """A step that looks at one message at a time."""

    within_ms = 0
    windows_text = ""

    def close(self, row: bytes) -> StepMessage | None:
        return None


def start_of(row: bytes) -> int:
    """When the window began, in milliseconds of wall time."""
    return int.from_bytes(row[:START_BYTES], "big")


def is_within(row: bytes, time_ms: int, within_ms: int) -> bool:
    """Whether a message of that time belongs to the window. So do somewhat earlier ones, which a queue may have
    requeued; if they are much earlier, the clock was set back, and the window is over."""
    return abs(time_ms - start_of(row)) < within_ms


def is_over(row: bytes, known_ms: int, now_ms: int, within_ms: int) -> bool:
    """Whether the window is over, if all messages of the queue from before `known_ms` were seen. A window that began
    far ahead of the wall clock, `now_ms`, is over too, because the clock was set back. An old message alone does not
    end a window."""
    start = start_of(row)
    return known_ms - start >= within_ms or start - now_ms >= within_ms
