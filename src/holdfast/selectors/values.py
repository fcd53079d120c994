"""Comparison and arithmetic of values as messages have them. JMS 2.0 §3.8.1.2.

Rules of this file: None is UNKNOWN, for results as for operands; UNDECODABLE as operand is UNKNOWN too. Comparisons of
different types are FALSE. Numbers are promoted as in Java: to double if one of them is a double, otherwise to 32 bits
if one is a float; otherwise they are exact and results have 64 bits. Nothing raises.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import (
    Byte,
    Char,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from holdfast.selectors.sections import COMPOUND, UNDECODABLE
from holdfast.selectors.spelling import EXACT_MAX, single

ABSENT: Final = 0
OTHER: Final = 1
TEXT: Final = 2
TRUTH: Final = 3
EXACT: Final = 4
SINGLE: Final = 5
DOUBLE: Final = 6
"""Kinds of values. From EXACT on they are numbers, and the greater of two kinds is what both are promoted to."""

KINDS: Final[dict[type, int]] = {
    type(None): ABSENT, type(UNDECODABLE): ABSENT, type(COMPOUND): OTHER, bytes: OTHER, UUID: OTHER,
    str: TEXT, Symbol: TEXT, Char: TEXT, bool: TRUTH, float: DOUBLE, Float: SINGLE,
} | dict.fromkeys((int, Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Long, Timestamp), EXACT)  # fmt: skip
"""Type of the decoded value → kind. Types that are not listed (decimals) are OTHER."""

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
"""Each operator's function."""


def kind_of(value: Any) -> int:
    """One of the kinds above."""
    return KINDS.get(type(value), OTHER)


def _promoted(value: Any, kind: int) -> Any:
    """A number converted to the greater of two kinds."""
    if kind == DOUBLE:
        return float(value)
    return single(float(value)) if kind == SINGLE else value


def compare(compared: Callable[[Any, Any], bool], left: Any, right: Any) -> bool | None:
    """The result of one of COMPARISONS."""
    kind, other = KINDS.get(type(left), OTHER), KINDS.get(type(right), OTHER)
    if kind == ABSENT or other == ABSENT:
        return None
    if kind >= EXACT and other >= EXACT:
        if kind == other:
            return compared(left, right)
        top = max(kind, other)
        return compared(_promoted(left, top), _promoted(right, top))
    if kind == other and kind != OTHER and (compared is operator.eq or compared is operator.ne):
        return compared(left, right)
    return False


def calculate(sign: str, left: Any, right: Any) -> Any:
    """`left sign right`, for + - * /; None if an operand is not a number, for `/ 0`, and if the result is out of
    range."""
    kind, other = KINDS.get(type(left), OTHER), KINDS.get(type(right), OTHER)
    if kind < EXACT or other < EXACT:
        return None
    top = max(kind, other)
    left, right = _promoted(left, top), _promoted(right, top)
    if sign == "+":
        result = left + right
    elif sign == "-":
        result = left - right
    elif sign == "*":
        result = left * right
    elif right == 0:
        return None
    elif top == EXACT:
        result = abs(left) // abs(right)  # towards zero, as in Java
        if (left < 0) != (right < 0):
            result = -result
    else:
        result = left / right
    return _in_range(result, top)


def signed(sign: str, value: Any) -> Any:
    """The value of a number with a sign; None for anything else."""
    kind = KINDS.get(type(value), OTHER)
    if kind < EXACT:
        return None
    if sign == "+":
        return value
    return Float(-value) if kind == SINGLE else _in_range(-value, kind)


def _in_range(result: Any, kind: int) -> Any:
    if kind == EXACT:
        return result if -EXACT_MAX - 1 <= result <= EXACT_MAX else None
    if kind == SINGLE:
        result = single(result)
    return result if math.isfinite(result) else None
