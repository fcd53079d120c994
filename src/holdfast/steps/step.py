"""What a step is, and what it gives for a message.

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
    """What goes on, None for nothing, and what becomes of the step's rows: by key the new one, or None where it
    goes."""

    message: StepMessage | None
    rows: Mapping[bytes, bytes | None] = NO_CHANGES


class Step(Protocol):
    """`kind`: its name in a link's `steps`; `within_ms`: how long its windows last, 0 where it has none;
    `windows_text`: equal for steps whose rows mean the same."""

    @property
    def kind(self) -> str: ...
    @property
    def within_ms(self) -> int: ...
    @property
    def windows_text(self) -> str: ...
    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        """What comes of one message. StepFailed where nothing can, and nothing has changed."""

    def close(self, row: bytes) -> StepMessage | None:
        """What a window gives that is over; its row goes."""


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
    """Whether a message of that time belongs to the window. Earlier ones do, too, as long as it may be that a queue
    gave them back; beyond that the clock was set back, and the window is over."""
    return abs(time_ms - start_of(row)) < within_ms


def is_over(row: bytes, known_ms: int, now_ms: int, within_ms: int) -> bool:
    """Whether the window is over, of a queue all of whose messages from before `known_ms` were seen. One that began
    far ahead of the wall clock, `now_ms`, is over too: the clock was set back. An old message alone ends none."""
    start = start_of(row)
    return known_ms - start >= within_ms or start - now_ms >= within_ms
