"""How the parts of a node take part in turns, and in the recovery from a failure: each for its own state.

Rules of this file: only protocols. `core/parts.py` lists the parts in the order of their dependencies; the invariants
of a part are in the module `validation` of its package (docs/adr/0020).
"""

from typing import Protocol

from holdfast.state.turns import Turn, Undone


class Storing(Protocol):
    """Adds something to a batch."""

    def before_commit(self, turn: Turn) -> None:
        """Adds its rows to the gathered turn, which is about to be handed over. Called again if that fails."""


class Following(Protocol):
    """Keeps memory in step with the disk."""

    def committed(self, turn: Turn) -> None:
        """That turn is on disk. An exception here ends the node, because memory would contradict the disk."""


class Undoing(Protocol):
    """Reverts changes of a turn that is undone."""

    def undo(self, undone: Undone) -> None:
        """Reverts those turns. What remains of them is added to the gathered turn, which is a fresh one."""


class Recovering(Protocol):
    """Keeps counts, or state of peers that may be gone."""

    def recover(self) -> None:
        """After a failure: counts shared state again from its holders, because the failure may have come between a
        change and its count; and does what the failure may have prevented."""


class Waking(Protocol):
    """Has callers that wait for a step."""

    def wake(self) -> None:
        """After a failure, which may have interrupted a step: wakes everything that may wait for one."""
