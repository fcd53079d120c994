"""From a tree to functions that evaluate it. JMS 2.0 §3.8.1.2, three-valued: True, False, None for UNKNOWN.

Rules of this file: everything that the text decides is decided here, once; a function that is called for each message
looks only at the message. Functions are nested as the selector is, 64 levels of two or three, never as it is long.
"""

import operator
from collections.abc import Callable
from typing import Any, Final

from holdfast.selectors import tree
from holdfast.selectors.layouts import Layout
from holdfast.selectors.sections import UNDECODABLE
from holdfast.selectors.tree import Node
from holdfast.selectors.values import ABSENT, COMPARISONS, calculate, compare, kind_of, signed

Reader = Callable[[Any], Any]
"""Of a message, or of what stands for it: the value that a name or an operand has."""
Condition = Callable[[Any], bool | None]


class Names:
    """What the names of a selector read: by default the sections of a message."""

    def reader(self, name: tree.Name) -> Reader:
        """The value of the name."""
        return name.property.read

    def text_is(self, name: tree.Name, text: str, equal: bool) -> Condition:
        """`name = 'text'`, or `<>`: the usual comparison, without detours."""
        return _text_comparison(equal, self.reader(name), text)


class LaidNames(Names):
    """The same of a selector that asks for application properties alone: they read maps of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def reader(self, name: tree.Name) -> Reader:
        return self._layout.value(name.text)

    def text_is(self, name: tree.Name, text: str, equal: bool) -> Condition:
        place = self._layout.texts.get(name.text)
        if place is None:
            return super().text_is(name, text, equal)
        first, end = place
        wanted = text.encode()
        return lambda content: (content[first:end] == wanted) is equal


STORED: Final = Names()

_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def condition(node: Node, names: Names = STORED) -> Condition:
    """The function of a condition."""
    match node:
        case tree.All(parts):
            return _all([condition(part, names) for part in parts])
        case tree.Any(parts):
            return _any([condition(part, names) for part in parts])
        case tree.Not(operand):
            return _not(condition(operand, names))
        case tree.Comparison(sign, left, right):
            return _comparison(sign, left, right, names)
        case tree.Between(value, low, high, negated):
            return _between(_value(value, names), _value(low, names), _value(high, names), negated)
        case tree.In(name, strings, negated):
            return _in(names.reader(name), frozenset(strings), negated)
        case tree.Like(name, _, _, negated, matcher, _):
            return _like(names.reader(name), matcher.matches, negated)
        case tree.IsNull(name, negated):
            return _is_null(names.reader(name), negated)
        case tree.Literal(value):
            assert isinstance(value, bool)
            return _constant(value)
        case tree.Name():
            return _truth(names.reader(node))
    raise AssertionError(f"{node} is no condition")


def _value(node: Node, names: Names) -> Reader:
    """The function of an operand."""
    match node:
        case tree.Literal(value):
            return _constant(value)
        case tree.Name():
            return names.reader(node)
        case tree.Signed(sign, operand):
            return _signed(sign, _value(operand, names))
        case tree.Arithmetic(first, rest):
            return _arithmetic(_value(first, names), [(sign, _value(operand, names)) for sign, operand in rest])
    raise AssertionError(f"{node} is no value")


def _constant(value: Any) -> Reader:
    return lambda message: value


def _all(parts: list[Condition]) -> Condition:
    def conjunction(message: Any) -> bool | None:
        result: bool | None = True
        for part in parts:
            found = part(message)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return conjunction


def _any(parts: list[Condition]) -> Condition:
    def disjunction(message: Any) -> bool | None:
        result: bool | None = False
        for part in parts:
            found = part(message)
            if found:
                return True
            if found is None:
                result = None
        return result

    return disjunction


def _not(operand: Condition) -> Condition:
    def negation(message: Any) -> bool | None:
        found = operand(message)
        return None if found is None else not found

    return negation


def _comparison(sign: str, left: Node, right: Node, names: Names) -> Condition:
    if isinstance(left, tree.Literal) and not isinstance(right, tree.Literal):
        sign, left, right = _MIRRORED[sign], right, left
    if isinstance(right, tree.Literal):
        if isinstance(right.value, str):
            if isinstance(left, tree.Name):
                return names.text_is(left, right.value, sign == "=")
            return _text_comparison(sign == "=", _value(left, names), right.value)
        if type(right.value) is int:
            return _exact_comparison(sign, _value(left, names), right.value)
    compared, first, second = COMPARISONS[sign], _value(left, names), _value(right, names)
    return lambda message: compare(compared, first(message), second(message))


def _text_comparison(equal: bool, read: Reader, text: str) -> Condition:
    def comparison(message: Any) -> bool | None:
        value = read(message)
        if value is None or value is UNDECODABLE:
            return None
        return isinstance(value, str) and (value == text) is equal

    return comparison


def _exact_comparison(sign: str, read: Reader, number: int) -> Condition:
    """A fast form of the comparison of a name with an exact number."""
    compared = COMPARISONS[sign]

    def comparison(message: Any) -> bool | None:
        value = read(message)
        if type(value) is int:
            return compared(value, number)
        if value is None or value is UNDECODABLE:
            return None
        return compare(compared, value, number)

    return comparison


def _between(value: Reader, low: Reader, high: Reader, negated: bool) -> Condition:
    """`>= AND <=`, or `< OR >`. For different types the second is not the negation of the first."""
    first, second = (operator.lt, operator.gt) if negated else (operator.ge, operator.le)

    def between(message: Any) -> bool | None:
        found = value(message)
        one = compare(first, found, low(message))
        if one is negated:
            return negated
        other = compare(second, found, high(message))
        if other is negated:
            return negated
        return None if one is None or other is None else not negated

    return between


def _in(read: Reader, strings: frozenset[str], negated: bool) -> Condition:
    def among(message: Any) -> bool | None:
        value = read(message)
        if value is None or value is UNDECODABLE:
            return None
        return (isinstance(value, str) and value in strings) is not negated

    return among


def _like(read: Reader, matches: Callable[[str], bool | None], negated: bool) -> Condition:
    def like(message: Any) -> bool | None:
        value = read(message)
        if value is None or value is UNDECODABLE:
            return None
        found = matches(value) if isinstance(value, str) else False
        return None if found is None else found is not negated

    return like


def _is_null(read: Reader, negated: bool) -> Condition:
    def is_null(message: Any) -> bool | None:
        value = read(message)
        return None if value is UNDECODABLE else (value is None) is not negated

    return is_null


def _truth(read: Reader) -> Condition:
    """A name as a condition is `name = TRUE`."""

    def truth(message: Any) -> bool | None:
        value = read(message)
        return None if kind_of(value) == ABSENT else value is True

    return truth


def _signed(sign: str, operand: Reader) -> Reader:
    return lambda message: signed(sign, operand(message))


def _arithmetic(first: Reader, rest: list[tuple[str, Reader]]) -> Reader:
    def arithmetic(message: Any) -> Any:
        result = first(message)
        for sign, operand in rest:
            result = calculate(sign, result, operand(message))
            if result is None:
                return None
        return result

    return arithmetic
