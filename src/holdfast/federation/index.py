"""Which origins want a message of a topic, found without a look at each row.

Rules of this file: derived from the sets that are held; made anew at each refresh, so that a fault in memory does no
lasting harm.
"""

from collections.abc import Callable, Iterable, Iterator

from holdfast.broker.interests import PatternTree
from holdfast.broker.subjects import Pattern
from holdfast.federation.rows import Row

Asks = Callable[[str], bool | None]
"""Whether a message matches a selector; None: not known, which sends it."""


def unasked(selector: str) -> None:
    """Nothing is known of the message."""


class Index:
    """The rows of all origins of one topic, by pattern."""

    __slots__ = ("_tree", "_wanting")

    def __init__(self, sets: Iterable[tuple[str, Iterable[Row]]] = ()) -> None:
        self._wanting: dict[str, dict[str, set[str | None]]] = {}
        """Pattern, origin, its selectors."""
        self._tree: PatternTree | None = None
        for origin, rows in sets:
            self.change(origin, rows, ())

    def change(self, origin: str, add: Iterable[Row], remove: Iterable[Row]) -> None:
        """`add` and `remove` differ, and a row that goes was there; two rows that differ in bits alone count as one
        where both came with `add`, so who removes one of them gives the other again (`Sets`)."""
        for row in remove:
            origins = self._wanting.get(row.pattern, {})
            selectors = origins.get(origin, set())
            selectors.discard(row.predicate)
            if not selectors:
                origins.pop(origin, None)
            if not origins and self._wanting.pop(row.pattern, None) is not None:
                self._tree = None
        for row in add:
            if row.pattern not in self._wanting:
                self._tree = None
            self._wanting.setdefault(row.pattern, {}).setdefault(origin, set()).add(row.predicate)

    def everyone(self) -> Iterator[str]:
        """All origins that want anything, as `wanting` gives them."""
        for origins in self._wanting.values():
            yield from origins

    def wanting(self, subject: str, asks: Asks) -> Iterator[str]:
        """Origins, in no order, each perhaps several times."""
        if self._tree is None:
            self._tree = PatternTree(map(Pattern, self._wanting))
        asked: dict[str, bool] = {}
        for pattern in self._tree.matching(subject):
            for origin, selectors in self._wanting[pattern].items():
                for selector in selectors:
                    if selector is None or asked.setdefault(selector, asks(selector) is not False):
                        yield origin
                        break
