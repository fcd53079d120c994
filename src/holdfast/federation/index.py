"""Which origins want a message of a topic, found without a look at each row.

Rules of this file: derived from the sets that are held; compared with them at each refresh, so that a fault in memory
does no lasting harm. A change costs what it changes, however many rows there are.
"""

from collections.abc import Callable, Iterable, Iterator, Set

from holdfast.broker.interests import PatternTree
from holdfast.broker.subjects import Pattern
from holdfast.federation.rows import Row

Asks = Callable[[str], bool | None]
"""Whether a message matches a selector; None if unknown, and then it is sent."""


def unasked(selector: str) -> None:
    """The answer for a message of which nothing is known."""


class Index:
    """The rows of all origins of one topic, by pattern."""

    __slots__ = ("_counts", "_tree", "_wanting")

    def __init__(self, sets: Iterable[tuple[str, Iterable[Row]]] = ()) -> None:
        self._wanting: dict[str, dict[str, set[str | None]]] = {}
        """Pattern → origin → selectors."""
        self._counts: dict[str, int] = {}
        """By origin: the number of pairs of pattern and selector in the index."""
        self._tree: PatternTree | None = None
        """Built at the first query."""
        for origin, rows in sets:
            self.change(origin, rows, ())

    def change(self, origin: str, add: Iterable[Row], remove: Iterable[Row]) -> None:
        """`add` and `remove` are disjoint, and each removed row is in the index. Rows that differ only in `bits` share
        one index entry: a caller that removes one of them passes the other in `add`."""
        count = self._counts.get(origin, 0)
        for row in remove:
            origins = self._wanting.get(row.pattern, {})
            selectors = origins.get(origin, set())
            count -= row.predicate in selectors
            selectors.discard(row.predicate)
            if not selectors:
                origins.pop(origin, None)
            if not origins and self._wanting.pop(row.pattern, None) is not None and self._tree is not None:
                self._tree.remove(row.pattern)
        for row in add:
            if row.pattern not in self._wanting and self._tree is not None:
                self._tree.add(Pattern(row.pattern))
            selectors = self._wanting.setdefault(row.pattern, {}).setdefault(origin, set())
            count += row.predicate not in selectors
            selectors.add(row.predicate)
        if count:
            self._counts[origin] = count
        else:
            self._counts.pop(origin, None)

    def has(self, origin: str, rows: Iterable[Row]) -> bool:
        """Whether the index has exactly these rows of an origin."""
        wanted = {(row.pattern, row.predicate) for row in rows}
        return self._counts.get(origin, 0) == len(wanted) and all(
            predicate in self._wanting.get(pattern, {}).get(origin, ()) for pattern, predicate in wanted
        )

    def origins(self) -> Set[str]:
        """The origins that want any message."""
        return self._counts.keys()

    def everyone(self) -> Iterator[str]:
        """As `origins`, in the form of `wanting`."""
        yield from self._counts

    def wanting(self, subject: str, asks: Asks) -> Iterator[str]:
        """The origins that want the message, in no order and possibly repeated."""
        if self._tree is None:
            self._tree = PatternTree(map(Pattern, self._wanting))
        asked: dict[str, bool] = {}
        for pattern in self._tree.matching(subject):
            for origin, selectors in self._wanting.get(pattern, {}).items():
                for selector in selectors:
                    if selector is not None and selector not in asked:
                        asked[selector] = asks(selector) is not False
                    if selector is None or asked[selector]:
                        yield origin
                        break
