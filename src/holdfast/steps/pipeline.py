"""Messages through the steps of a link, one after the other.

Rules of this file: pure; a message that fails in any step has changed no window. If an aggregate fails in a later step,
its messages still count as handled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.steps.failure import StepFailed
from holdfast.steps.message import StepMessage
from holdfast.steps.step import Step
from holdfast.steps.windows import Changes, Gathered


@dataclass(slots=True)
class Passed:
    """`message`: the result, or the message that failed; None if it ended in a step. `failure`: in which step, and
    why."""

    message: StepMessage | None
    changes: Changes = field(default_factory=dict)
    failure: str = ""


class _OfStep:
    """One step's rows, with the changes of this message and of the turn before it."""

    __slots__ = ("_changes", "_gathered", "_number")

    def __init__(self, number: int, changes: Changes, gathered: Gathered) -> None:
        self._number = number
        self._changes = changes
        self._gathered = gathered

    def get(self, key: bytes) -> bytes | None:
        place = self._number, key
        return self._changes[place] if place in self._changes else self._gathered.get(place)


def run(steps: Sequence[Step], message: StepMessage, gathered: Gathered) -> Passed:
    """Passes a message through the steps; `gathered` is not changed."""
    return _run(steps, 0, message, {}, gathered)


def close(steps: Sequence[Step], number: int, key: bytes, row: bytes, gathered: Gathered) -> Passed:
    """Ends a window: its row is deleted, and its result passes through the later steps."""
    changes: Changes = {(number, key): None}
    message = steps[number].close(row)
    return Passed(None, changes) if message is None else _run(steps, number + 1, message, changes, gathered)


def _run(steps: Sequence[Step], first: int, message: StepMessage, changes: Changes, gathered: Gathered) -> Passed:
    for number in range(first, len(steps)):
        step = steps[number]
        try:
            outcome = step.apply(message, _OfStep(number, changes, gathered))
            for key, row in outcome.rows.items():
                place = number, key
                if row is not None and place not in changes and gathered.get(place) is None:
                    gathered.check(place)
        except StepFailed as error:
            failure = f"step {number + 1} ({step.kind}): {error}"
            return Passed(message, {} if message.is_input else changes, failure)
        changes.update({(number, key): row for key, row in outcome.rows.items()})
        if outcome.message is None:
            return Passed(None, changes)
        message = outcome.message
    return Passed(message, changes)
