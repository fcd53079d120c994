"""Patterns of addresses: an address in which `*` matches any characters, or none. A pattern without `@` is about the
addresses of this node, but for `*` alone, which is about all.

Rules of this file: pure, and linear in the length of the address: it may come from a stranger.
"""

from typing import Final

from holdfast.broker.entries.address import split_topic
from holdfast.errors import ConfigError
from holdfast.names import DESTINATION_BYTES_MAX, NAME_BYTES_MAX

PATTERN_BYTES_MAX: Final = NAME_BYTES_MAX + 1 + DESTINATION_BYTES_MAX
"""The maximum size of a pattern: that of QUEUE@NODE."""

Closeness = tuple[bool, int]
"""How close a pattern is to the addresses that it matches: an address itself is closest, then the pattern that says
more of them."""


class Pattern:
    """A pattern, read once."""

    __slots__ = ("_is_of_node", "_pieces", "closeness", "text")

    def __init__(self, text: str) -> None:
        """A valid `text` (`check`)."""
        self.text = text
        self._pieces = text.split("*")
        self._is_of_node = text != "*" and "@" not in text
        self.closeness: Closeness = (len(self._pieces) == 1, sum(map(len, self._pieces)))

    def matches(self, address: str) -> bool:
        if self._is_of_node and "@" in address:
            return False
        first, *rest = self._pieces
        if not rest:
            return address == first
        *middle, last = rest
        if len(address) < len(first) + len(last) or not (address.startswith(first) and address.endswith(last)):
            return False
        at, end = len(first), len(address) - len(last)
        for piece in middle:  # the first place of each leaves most room for the others
            found = address.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True


def check(where: str, text: str) -> None:
    """ConfigError where `text` is no pattern, or one that no address can match."""
    if not text or not text.isprintable() or len(text.encode()) > PATTERN_BYTES_MAX:
        expected = f"expected 1 to {PATTERN_BYTES_MAX} printable bytes, as orders, orders.*, *@hub or *"
        raise ConfigError(f"invalid address {text[:60]!r} in {where}; {expected}")
    topic = split_topic(text.partition("@")[0])
    if topic is not None and topic[1]:
        text = f"invalid address {text[:60]!r} in {where}; expected a whole topic, {topic[0]}"
        raise ConfigError(f"{text}: a permission is not for some of its subjects")
