"""Accounts of memory: how many bytes are held for each purpose, within a bound, and for all of them together.

Rules of this file: counts alone. Bytes are what their holders say; what Python adds to each object is a part of that.
"""

from holdfast.errors import LocalProtocolError


class Account:
    """Bytes held for one purpose, at most `held_max` of them; a parent counts them too, within its own bound.

    `spared`: what must be left of the parent's bound after a charge, so that what can be done without goes first.
    """

    __slots__ = ("held", "held_max", "most", "name", "parent", "refused", "spared")

    def __init__(self, name: str, held_max: int, parent: "Account | None" = None, *, spared: int = 0) -> None:
        self.name = name
        self.held_max = held_max
        self.parent = parent
        self.spared = spared
        self.held = 0
        self.most = 0
        """The highest `held` so far."""
        self.refused = 0
        """Charges that found no room."""

    @property
    def room(self) -> int:
        """Bytes that may still be charged, 0 or more."""
        left = self.held_max - self.held
        if self.parent is not None:
            left = min(left, self.parent.held_max - self.parent.held - self.spared)
        return max(0, left)

    def fits(self, size: int) -> bool:
        """Whether `charge` would find room for so many bytes."""
        return size <= self.room

    def charge(self, size: int) -> bool:
        """Count `size` more bytes; False where they are beyond a bound, and nothing changed."""
        if size > self.room:
            self.refused += 1
            return False
        self.add(size)
        return True

    def add(self, size: int) -> None:
        """As `charge`, for what is held already: past the bound, too."""
        account: Account | None = self
        while account is not None:
            held = account.held = account.held + size
            if held > account.most:
                account.most = held
            account = account.parent

    def refund(self, size: int) -> None:
        """So many bytes are held no more. LocalProtocolError for more than were counted."""
        if size > self.held:
            raise LocalProtocolError(f"account {self.name}: {size} bytes given back of {self.held}")
        self.held -= size
        if self.parent is not None:
            self.parent.refund(size)

    def recount(self, before: int, after: int) -> None:
        """One of the holders counted `before` bytes here, and holds `after` now."""
        if after != before:
            self.hold(self.held + after - before)

    def hold(self, size: int) -> None:
        """From now on `size` bytes are held, however many were."""
        if size != self.held:
            self.add(size - self.held)
