"""Predicates: whether a message matches a selector. JMS 2.0 §3.8.1.

Rules of this file: it is the package's surface, with `Sections` and `SelectorError`. A predicate depends only on the
bytes of a message, so it always gives the same answer for it.
"""

from typing import Final

from holdfast.amqp.effort import STEP_WEIGHT
from holdfast.selectors import tree
from holdfast.selectors.compiling import Condition, LaidNames, condition
from holdfast.selectors.layouts import COST, Layout
from holdfast.selectors.names import APPLICATION_PROPERTIES
from holdfast.selectors.parsing import CANONICAL_BYTES_MAX, SELECTOR_BYTES_MAX, parse
from holdfast.selectors.sections import Sections

NODES_FREE: Final = 32
"""Up to this many nodes a selector costs little compared with reading the message."""

DEAR_NODE_WEIGHT: Final = 5
"""An operation of arithmetic, or a LIKE, takes the time of so many other nodes more; a node takes about as long as 64
bytes of a message that are read, and a small message has no more."""


COMPILED_MAX: Final = 4
"""Layouts for which one selector is compiled at a time."""


class Predicate:
    """A compiled selector.

    `text`: canonical, equal for selectors that differ in blanks, the case of keywords, the spelling of numbers and
    redundant parentheses; it may be longer than what was compiled. `sections`: which of "header", "properties",
    "application-properties" and "message-annotations" it names. `weight`: as how many bytes each byte of a message
    counts that it is asked about, where a turn's work is counted by bytes.
    """

    __slots__ = ("_passed", "_root", "by_layout", "sections", "text", "value", "weight")

    def __init__(self, root: tree.Node) -> None:
        self.text = tree.canonical(root)
        self.sections = frozenset([node.property.section for node in tree.walk(root) if isinstance(node, tree.Name)])
        self.weight = _weight(root)
        self.value = condition(root)
        """Of a message: True, False, or None for UNKNOWN."""
        is_short = self.weight == 1 and self.sections == {APPLICATION_PROPERTIES}
        self._root = root if is_short else None
        self.by_layout: dict[Layout, Condition] = {}
        """As `value`, of the bytes of a map of application properties; see `of_layout`."""
        self._passed = 0
        """Messages since it was compiled for a layout, of layouts for which it is not."""

    @property
    def has_layouts(self) -> bool:
        """Whether it may be compiled for layouts: it is short, and application properties are all that it names."""
        return self._root is not None

    def of_layout(self, layout: Layout) -> Condition | None:
        """As `value`, of the bytes of a map that is laid out so. None where it is not compiled for that: it is
        compiled for COMPILED_MAX of them, and for others once COST messages have come of those."""
        found = self.by_layout.get(layout)
        if found is not None or self._root is None:
            return found
        self._passed += 1
        if len(self.by_layout) >= COMPILED_MAX:
            if self._passed < COST:
                return None
            self.by_layout.clear()
        self._passed = 0
        found = self.by_layout[layout] = condition(self._root, LaidNames(layout))
        return found

    def matches(self, message: Sections) -> bool:
        """Whether the value is TRUE; UNKNOWN does not match."""
        return self.value(message) is True

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


def _weight(root: tree.Node) -> int:
    nodes = steps = 0
    for node in tree.walk(root):
        nodes += 1
        if isinstance(node, tree.Arithmetic):
            nodes += DEAR_NODE_WEIGHT * len(node.rest)
        elif isinstance(node, tree.Like):
            nodes += DEAR_NODE_WEIGHT
            steps += node.matcher.stepwise
    return 1 + max(0, nodes - NODES_FREE) + STEP_WEIGHT * steps


def compile_selector(text: str, *, is_canonical: bool = False) -> Predicate:
    """The predicate of a selector of at most 4,096 bytes and 64 levels. Raises SelectorError. `is_canonical`: it is the
    `text` of a predicate, which may be longer.

    The first call loads the parser (`parsing.load_parser`).
    """
    return Predicate(parse(text, CANONICAL_BYTES_MAX if is_canonical else SELECTOR_BYTES_MAX))
