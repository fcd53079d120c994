"""What a cursor calls of its queue.

Rules of this file: only the protocol.
"""

from typing import Protocol, TypeVar

CursorT_contra = TypeVar("CursorT_contra", contravariant=True)


class Owner(Protocol[CursorT_contra]):
    """What a cursor calls of its queue."""

    def dirty(self, cursor: CursorT_contra) -> None:
        """The cursor's record is to be stored with this turn's batch."""

    def reclaim(self) -> None:
        """The cursor has passed more entries: those that every reader has passed may leave."""
