"""A selector as a tree, and its canonical text.

Rules of this file: nodes are values without behaviour. Parentheses have no node; `canonical` writes those that are
needed. Chains of one operator are one node, so a tree is never deeper than its selector is nested.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.amqp.wire.types import Float
from holdfast.selectors.like import Pattern
from holdfast.selectors.names import Property
from holdfast.selectors.spelling import is_plain_name


@dataclass(frozen=True, slots=True)
class Literal:
    """A str, bool, int (exact), float (double) or Float (single)."""

    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """The value that a message has under a name."""

    text: str
    property: Property


@dataclass(frozen=True, slots=True)
class Signed:
    """A sign before an operand that is not a literal."""

    sign: str
    operand: "Node"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`first`, then operators of one precedence with their operands, from left to right."""

    first: "Node"
    rest: tuple[tuple[str, "Node"], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator` is one of = <> < <= > >=."""

    operator: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True, slots=True)
class Between:
    """Both ends are included."""

    value: "Node"
    low: "Node"
    high: "Node"
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """The strings in the order in which they were written."""

    name: Name
    strings: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`escape` is one character, or empty if there is none. `matcher` is the compiled pattern, `column` its position in
    the text."""

    name: Name
    pattern: str
    escape: str
    negated: bool
    matcher: Pattern = field(compare=False, repr=False)
    column: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a message has no value under a name."""

    name: Name
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"


@dataclass(frozen=True, slots=True)
class All:
    """AND of two or more, none of them an All."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Any:
    """OR of two or more, none of them an Any."""

    parts: tuple["Node", ...]


Node = Literal | Name | Signed | Arithmetic | Comparison | Between | In | Like | IsNull | Not | All | Any

_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_TEST: Final = 4
_SUM: Final = 5
_PRODUCT: Final = 6
_SIGN: Final = 7


def walk(root: Node) -> Iterator[Node]:
    """Each node of a tree, in no order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _below(node)


def _below(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    match node:
        case All(parts) | Any(parts):
            return parts
        case Not(operand) | Signed(_, operand):
            return (operand,)
        case Comparison(_, left, right):
            return (left, right)
        case Between(value, low, high, _):
            return (value, low, high)
        case In(name) | Like(name) | IsNull(name):
            return (name,)
        case Arithmetic(first, rest):
            return (first, *(operand for _, operand in rest))
        case Literal() | Name():
            return ()


def canonical(node: Node) -> str:
    """The text of a tree: keywords in upper case, single blanks, the fewest parentheses, numbers in decimal.

    It may be longer than the text that it came from.
    """
    return _write(node)[0]


def _within(node: Node, precedence: int) -> str:
    """The text, in parentheses if the node has a lower precedence than required."""
    text, own = _write(node)
    return text if own >= precedence else f"({text})"


def _write(node: Node) -> tuple[str, int]:
    """The text, and its precedence."""
    match node:
        case Literal(value):
            return _literal(value), _SIGN
        case Name(text):
            return _name(text), _SIGN
        case Signed(sign, operand):
            inner = _within(operand, _SIGN)
            return sign + (" " if inner[0] in "+-" else "") + inner, _SIGN  # in SQL `--` begins a comment
        case Arithmetic(first, rest):
            precedence = _SUM if rest[0][0] in "+-" else _PRODUCT
            words = [_within(first, precedence)]
            for operator, operand in rest:
                words += (operator, _within(operand, precedence + 1))
            return " ".join(words), precedence
        case Comparison(operator, left, right):
            return f"{_within(left, _SUM)} {operator} {_within(right, _SUM)}", _TEST
        case Between(value, low, high, negated):
            word = "NOT BETWEEN" if negated else "BETWEEN"
            return f"{_within(value, _SUM)} {word} {_within(low, _SUM)} AND {_within(high, _SUM)}", _TEST
        case In(name, strings, negated):
            listed = ", ".join(map(_string, strings))
            return f"{_name(name.text)} {'NOT IN' if negated else 'IN'} ({listed})", _TEST
        case Like(name, pattern, escape, negated):
            ending = f" ESCAPE {_string(escape)}" if escape else ""
            word = "NOT LIKE" if negated else "LIKE"
            return f"{_name(name.text)} {word} {_string(pattern)}{ending}", _TEST
        case IsNull(name, negated):
            return f"{_name(name.text)} IS {'NOT NULL' if negated else 'NULL'}", _TEST
        case Not(operand):
            return f"NOT {_within(operand, _NOT)}", _NOT
        case All(parts):
            return " AND ".join([_within(part, _NOT) for part in parts]), _AND
        case Any(parts):
            return " OR ".join([_within(part, _AND) for part in parts]), _OR


def _literal(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Float):
        return f"{float(value)!r}f"
    assert not isinstance(value, float) or math.isfinite(value), value
    return repr(value)


def _string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    """The name, quoted if necessary."""
    if is_plain_name(text):
        return text
    return '"' + text.replace('"', '""') + '"'
