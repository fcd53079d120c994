"""How the parts of a node take part in turns, and in what follows a failure: each for the state that it owns.

Rules of this file: protocols alone. A part is listed, in the order in which the parts need each other, in
`core/parts.py`; what must hold of its state is in the module `validation` of its package (docs/adr/0020).
"""

from typing import Protocol

from holdfast.state.turns import Turn, Undone


class Storing(Protocol):
    """Has something to add to a batch."""

    def before_commit(self, turn: Turn) -> None:
        """Adds its rows to the gathered turn, which is about to be handed over. Called again where that fails."""


class Following(Protocol):
    """Keeps in memory what is on disk."""

    def committed(self, turn: Turn) -> None:
        """That turn is on disk. What fails here ends the node: memory would contradict the disk."""


class Undoing(Protocol):
    """Changes what a turn that is undone must not have changed."""

    def undo(self, undone: Undone) -> None:
        """Those turns never were. What stays of them goes into the gathered turn, which is a fresh one."""


class Recovering(Protocol):
    """Keeps counts, or has something for peers that may be gone."""

    def recover(self) -> None:
        """After a failure: counts anew what peers share, from who holds it, for the failure may lie between a change
        and its count; and does what the failure may have kept from being done."""


class Waking(Protocol):
    """Has somebody wait for a step."""

    def wake(self) -> None:
        """After a failure, which may have cut a step short: whoever may wait for one is asked again."""
