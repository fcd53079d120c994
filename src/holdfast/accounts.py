"""Accounts of memory: how many bytes are held for each purpose, and for all purposes together, each within a bound.

Rules of this file: it only counts. Holders report their bytes, including what Python adds to each object.
"""

from holdfast.errors import LocalProtocolError


class Account:
    """Bytes held for one purpose, at most `held_max` of them; a parent counts them too, within its own bound.

    `spared`: bytes of the parent's bound that must stay free after a charge, so that less important purposes stop
    first.
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
        """The number of charges that were refused."""

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
        """Counts `size` more bytes. False if they exceed a bound; then nothing has changed."""
        if size > self.room:
            self.refused += 1
            return False
        self.add(size)
        return True

    def add(self, size: int) -> None:
        """As `charge`, for bytes that are held already: it may exceed the bound."""
        account: Account | None = self
        while account is not None:
            held = account.held = account.held + size
            if held > account.most:
                account.most = held
            account = account.parent

    def refund(self, size: int) -> None:
        """Counts `size` bytes less. Raises LocalProtocolError for more than were counted."""
        if size > self.held:
            raise LocalProtocolError(f"account {self.name}: {size} bytes given back of {self.held}")
        self.held -= size
        if self.parent is not None:
            self.parent.refund(size)

    def recount(self, before: int, after: int) -> None:
        """A holder that was counted with `before` bytes now holds `after`."""
        if after != before:
            self.hold(self.held + after - before)

    def hold(self, size: int) -> None:
        """Sets the number of bytes that are held."""
        if size != self.held:
            self.add(size - self.held)
