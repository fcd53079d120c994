"""Which selectors travel with a row, so that the publisher's node need not send messages that nobody there wants.

Rules of this file: a selector that is too long to travel stays behind: the row is wider then, and the destination
evaluates it in any case.
"""

from typing import Final

from holdfast.federation.messages import PREDICATE_BYTES_MAX
from holdfast.selectors import tree
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.parsing import parse

TERMS_MAX: Final = 64
"""The maximum number of names and constants in a selector that travels."""


def travelling(text: str) -> str | None:
    """The selector in its canonical form, if it may travel."""
    try:
        root = parse(text, PREDICATE_BYTES_MAX)
    except SelectorError:
        return None
    if sum(isinstance(node, (tree.Name, tree.Literal)) for node in tree.walk(root)) > TERMS_MAX:
        return None
    canonical = tree.canonical(root)
    return canonical if len(canonical.encode()) <= PREDICATE_BYTES_MAX else None
