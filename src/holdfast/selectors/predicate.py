"""Predicates: whether a message matches a selector. JMS 2.0 §3.8.1.

Rules of this file: it is the package's surface, with `Sections` and `SelectorError`. A predicate depends only on the
bytes of a message, so it always gives the same answer for it.
"""

from typing import Final

from holdfast.amqp.effort import STEP_WEIGHT
from holdfast.selectors import tree
from holdfast.selectors.compiling import condition
from holdfast.selectors.parsing import CANONICAL_BYTES_MAX, SELECTOR_BYTES_MAX, parse
from holdfast.selectors.sections import Sections

NODES_FREE: Final = 32
"""Up to this many nodes a selector costs little compared with reading the message."""

DEAR_NODE_WEIGHT: Final = 5
"""An operation of arithmetic, or a LIKE, takes the time of so many other nodes more; a node takes about as long as 64
bytes of a message that are read, and a small message has no more."""


class Predicate:
    """A compiled selector.

    `text`: canonical, equal for selectors that differ in blanks, the case of keywords, the spelling of numbers and
    redundant parentheses; it may be longer than what was compiled. `sections`: which of "header", "properties",
    "application-properties" and "message-annotations" it names. `weight`: as how many bytes each byte of a message
    counts that it is asked about, where a turn's work is counted by bytes.
    """

    __slots__ = ("sections", "text", "value", "weight")

    def __init__(self, root: tree.Node) -> None:
        self.text = tree.canonical(root)
        self.sections = frozenset([node.property.section for node in tree.walk(root) if isinstance(node, tree.Name)])
        self.weight = _weight(root)
        self.value = condition(root)
        """The value for a message: True, False, or None for UNKNOWN."""

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
