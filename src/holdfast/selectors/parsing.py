"""From the text of a selector to its tree.

Rules of this file: the grammar says which words may follow each other; here is what it does not say: which operands an
operator takes, what names and literals mean. Every error is a SelectorError. No function is recursive, so the nesting
of a text cannot exhaust the stack.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from holdfast.amqp.wire.types import Float
from holdfast.selectors import spelling
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.grammar import load
from holdfast.selectors.like import Pattern
from holdfast.selectors.names import lookup
from holdfast.selectors.tree import (
    All,
    Any,
    Arithmetic,
    Between,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Signed,
    walk,
)

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.exceptions import UnexpectedInput

SELECTOR_BYTES_MAX: Final = 4_096
"""The maximum size of a selector in UTF-8."""
CANONICAL_BYTES_MAX: Final = 8 * SELECTOR_BYTES_MAX
"""The maximum size of a canonical text: the worst case is `+9e15`, whose five bytes become twenty-one."""
STEPWISE_MAX: Final = 16
"""The maximum number of patterns in a selector with `_` between two `%`: each takes one step a character of the
text."""

_CONDITION: Final = "a condition"
_NUMBER: Final = "a number"
_STRING: Final = "a string"
_BOOLEAN: Final = "a boolean"
_NAME: Final = "a name"
_BEYOND: Final = "a number that does not fit into 64 bits"
"""What an operand is, as far as its text tells. The last is 2**63, which a minus before it makes a number."""

_CONDITIONS: Final = (_CONDITION, _BOOLEAN, _NAME)
_NUMBERS: Final = (_NUMBER, _NAME)
_VALUES: Final = (_NUMBER, _STRING, _BOOLEAN, _NAME)


@dataclass(slots=True)
class _Operand:
    """A part of the tree, its kind, the start of its text, and whether it has its own parentheses."""

    node: Node
    kind: str
    column: int
    grouped: bool = False


_Children = list["_Operand | Token"]


def _column(token: "Token") -> int:
    return (token.start_pos or 0) + 1


def _operand(child: "_Operand | Token", accepted: tuple[str, ...], operator: str) -> Node:
    """The node of an operand. SelectorError if its kind is not accepted."""
    assert isinstance(child, _Operand)
    if child.kind not in accepted:
        *others, last = accepted
        found = f"{operator} takes {', '.join(others)} or {last}, not {child.kind}"
        raise SelectorError(child.kind if child.kind == _BEYOND else found, child.column)
    return child.node


def _name_of(child: "_Operand | Token", operator: str) -> Name:
    """The name to the left of IN, LIKE or IS NULL."""
    assert isinstance(child, _Operand)
    if not isinstance(child.node, Name) or child.grouped:
        raise SelectorError(f"{operator} takes a name alone on its left", child.column)
    return child.node


def _token(child: "_Operand | Token") -> "Token":
    return cast("Token", child)


def _first_column(children: _Children) -> int:
    first = children[0]
    return first.column if isinstance(first, _Operand) else _column(first)


class _Builder:
    """Makes the tree: one method for each rule of the grammar, called when the rule's parts are complete."""

    def selector(self, children: _Children) -> Node:
        return _operand(children[0], _CONDITIONS, "a selector")

    def grouped(self, children: _Children) -> _Operand:
        left, inner = children
        assert isinstance(inner, _Operand)
        return _Operand(inner.node, inner.kind, _column(_token(left)), grouped=True)

    def disjunction(self, children: _Children) -> _Operand:
        parts: list[Node] = []
        for child in children:
            node = _operand(child, _CONDITIONS, "OR")
            parts += node.parts if isinstance(node, Any) else (node,)
        return _condition(Any(tuple(parts)), children)

    def conjunction(self, children: _Children) -> _Operand:
        parts: list[Node] = []
        for child in children:
            node = _operand(child, _CONDITIONS, "AND")
            parts += node.parts if isinstance(node, All) else (node,)
        return _condition(All(tuple(parts)), children)

    def negated(self, children: _Children) -> _Operand:
        return _condition(Not(_operand(children[1], _CONDITIONS, "NOT")), children)

    def compared(self, children: _Children) -> _Operand:
        left, middle, right = children
        operator = str(_token(middle))
        accepted = _VALUES if operator in ("=", "<>") else _NUMBERS
        node = Comparison(operator, _operand(left, accepted, operator), _operand(right, accepted, operator))
        return _condition(node, children)

    def between(self, children: _Children) -> _Operand:
        return self._between(children, children, False)

    def not_between(self, children: _Children) -> _Operand:
        return self._between(children, [children[0], *children[2:]], True)

    def _between(self, children: _Children, operands: _Children, negated: bool) -> _Operand:
        value, low, high = [_operand(child, _NUMBERS, "BETWEEN") for child in operands]
        return _condition(Between(value, low, high, negated), children)

    def among(self, children: _Children) -> _Operand:
        return self._among(children, children[1:], False)

    def not_among(self, children: _Children) -> _Operand:
        return self._among(children, children[2:], True)

    def _among(self, children: _Children, strings: _Children, negated: bool) -> _Operand:
        texts = tuple([spelling.unquote(_token(child)) for child in strings])
        return _condition(In(_name_of(children[0], "IN"), texts, negated), children)

    def like(self, children: _Children) -> _Operand:
        return self._like(children, children[1:], False)

    def not_like(self, children: _Children) -> _Operand:
        return self._like(children, children[2:], True)

    def _like(self, children: _Children, strings: _Children, negated: bool) -> _Operand:
        name = _name_of(children[0], "LIKE")
        pattern = spelling.unquote(_token(strings[0]))
        escape = ""
        if strings[1] is not None:
            escape = spelling.unquote(_token(strings[1]))
            if len(escape) != 1:
                raise SelectorError("ESCAPE takes a string of one character", _column(_token(strings[1])))
        try:
            matcher = Pattern(pattern, escape)
        except ValueError as error:
            raise SelectorError(str(error), _column(_token(strings[0]))) from None
        column = _column(_token(strings[0]))
        return _condition(Like(name, pattern, escape, negated, matcher, column), children)

    def null(self, children: _Children) -> _Operand:
        return _condition(IsNull(_name_of(children[0], "IS NULL"), False), children)

    def not_null(self, children: _Children) -> _Operand:
        return _condition(IsNull(_name_of(children[0], "IS NULL"), True), children)

    def arithmetic(self, children: _Children) -> _Operand:
        operators = [str(_token(child)) for child in children[1::2]]
        first = _operand(children[0], _NUMBERS, operators[0])
        others = zip(operators, children[2::2], strict=True)
        rest = tuple([(operator, _operand(child, _NUMBERS, operator)) for operator, child in others])
        node = Arithmetic(first, rest)
        if isinstance(first, Arithmetic) and (first.rest[0][0] in "+-") == (operators[0] in "+-"):
            node = Arithmetic(first.first, first.rest + rest)
        return _Operand(node, _NUMBER, _first_column(children))

    def signed(self, children: _Children) -> _Operand:
        token, child = children
        assert isinstance(child, _Operand)
        sign = str(_token(token))
        beyond = child.kind == _BEYOND and sign == "-" and not child.grouped
        node = child.node if beyond else _operand(child, _NUMBERS, sign)
        return _Operand(_with_sign(sign, node), _NUMBER, _column(_token(token)))

    def name(self, children: _Children) -> _Operand:
        token = _token(children[0])
        if not token.isascii() and not spelling.is_plain_name(token):
            raise SelectorError(f"{token:.40} is no name; put it between double quotes", _column(token))
        return _named(str(token), token)

    def quoted(self, children: _Children) -> _Operand:
        token = _token(children[0])
        name = spelling.unquote(token)
        if not name:
            raise SelectorError("a name is empty", _column(token))
        return _named(name, token)

    def string(self, children: _Children) -> _Operand:
        token = _token(children[0])
        return _Operand(Literal(spelling.unquote(token)), _STRING, _column(token))

    def exact(self, children: _Children) -> _Operand:
        token = _token(children[0])
        try:
            value = spelling.exact(token)
        except ValueError as error:
            raise SelectorError(str(error), _column(token)) from None
        kind = _BEYOND if value > spelling.EXACT_MAX else _NUMBER
        return _Operand(Literal(value), kind, _column(token))

    def approximate(self, children: _Children) -> _Operand:
        token = _token(children[0])
        try:
            value = spelling.approximate(token)
        except ValueError as error:
            raise SelectorError(str(error), _column(token)) from None
        return _Operand(Literal(value), _NUMBER, _column(token))

    def true(self, children: _Children) -> _Operand:
        return _Operand(Literal(True), _BOOLEAN, _column(_token(children[0])))

    def false(self, children: _Children) -> _Operand:
        return _Operand(Literal(False), _BOOLEAN, _column(_token(children[0])))


def _condition(node: Node, children: _Children) -> _Operand:
    return _Operand(node, _CONDITION, _first_column(children))


def _named(name: str, token: "Token") -> _Operand:
    try:
        return _Operand(Name(name, lookup(name)), _NAME, _column(token))
    except ValueError as error:
        raise SelectorError(str(error), _column(token)) from None


def _with_sign(sign: str, node: Node) -> Node:
    """The sign becomes part of a literal, but where that has no negative: -(-2**63) is out of range when evaluated."""
    if not isinstance(node, Literal):
        return Signed(sign, node)
    value = node.value
    assert isinstance(value, int | float)
    if sign == "+":
        return node
    if value == -spelling.EXACT_MAX - 1 and isinstance(value, int):
        return Signed(sign, node)
    return Literal(Float(-value) if isinstance(value, Float) else -value)


_BUILDER: Final = _Builder()


def load_parser() -> "Lark":
    """Loads what `parse` needs, which takes tens of milliseconds the first time. Any thread may do it."""
    return load(_BUILDER)


def parse(text: str, bytes_max: int = SELECTOR_BYTES_MAX) -> Node:
    """The tree of a selector. Raises SelectorError."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SelectorError("a character is half of a pair of surrogates", error.start + 1) from None
    if size > bytes_max:
        raise SelectorError(f"the selector has {size} bytes; the limit is {bytes_max}", 1)
    parser = load_parser()
    from lark.exceptions import UnexpectedInput

    try:
        root = cast(Node, parser.parse(text))
    except UnexpectedInput as error:
        raise _explained(text, error) from None
    stepwise = sorted([node.column for node in walk(root) if isinstance(node, Like) and node.matcher.stepwise])
    if len(stepwise) > STEPWISE_MAX:
        problem = f"more than {STEPWISE_MAX} patterns with _ between two %"
        raise SelectorError(problem, stepwise[STEPWISE_MAX])
    return root


_STARTS: Final = {"'": "a string that begins here has no end", '"': "a name that begins here has no end"}

_WORDS: Final = {"STRING": "a string", "_RIGHT": "a closing parenthesis", "COMMA": "a comma", "LEFT": "a parenthesis"}
_LISTED_MAX: Final = 3


def _explained(text: str, error: "UnexpectedInput") -> SelectorError:
    """The error for words that the grammar does not accept."""
    token: Token | None = getattr(error, "token", None)
    if token is None:
        at = cast(int, error.pos_in_stream)
        return SelectorError(_STARTS.get(text[at], f"found {text[at]}, which begins no word"), at + 1)
    expected: set[str] = getattr(error, "expected", set())
    if "NAME" in expected:
        wanted = "a name, a literal or a parenthesis"
    elif len(expected) <= _LISTED_MAX:
        wanted = " or ".join(sorted([_WORDS.get(kind, kind.strip("_")) for kind in expected]))
    else:
        wanted = "an operator or the end"
    if token.type == "$END":
        return SelectorError(f"the selector ends where {wanted} is wanted", len(text) + 1)
    return SelectorError(f"found {token:.40}, expected {wanted}", _column(token))
