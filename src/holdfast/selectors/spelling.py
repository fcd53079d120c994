"""The syntax of literals and names. JMS 2.0 §3.8.1.1, and the Java syntax that it refers to.

Rules of this file: invalid text raises ValueError with the reason; the caller adds the position.
"""

import math
import re
import struct
from typing import Final

from holdfast.amqp.wire.types import Float
from holdfast.selectors.grammar import ANNOTATION_PATTERN, CURRENCY, NAME_PATTERN, is_keyword

EXACT_MAX: Final = 2**63 - 1
"""The end of the range of Java's long."""
_DIGITS_MAX: Final = 64
"""The maximum number of digits of an exact literal without leading zeros; the largest in range has 21, in octal."""
_SINGLE: Final = struct.Struct(">f")
_CURRENCY: Final = re.compile(f"[{CURRENCY}]")
_NAME: Final = re.compile(NAME_PATTERN)
_ANNOTATION: Final = re.compile(ANNOTATION_PATTERN)


def exact(text: str) -> int:
    """An exact literal, decimal, hexadecimal (0x1F) or octal (017), perhaps with L; from 0 to 2**63, one more than a
    long holds, because a minus may stand before it."""
    digits = text.rstrip("lL").lower()
    if digits.startswith("0x"):
        digits, base = digits[2:].lstrip("0"), 16
    elif len(digits) > 1 and digits[0] == "0":
        digits, base = digits.lstrip("0"), 8
    else:
        base = 10
    if base == 8 and not set(digits) <= set("01234567"):
        raise ValueError(f"{text:.40} is no octal number")
    value = int(digits or "0", base) if len(digits) <= _DIGITS_MAX else EXACT_MAX + 2
    if value > EXACT_MAX + 1:
        raise ValueError(f"{text:.40} does not fit into 64 bits")
    return value


def approximate(text: str) -> float:
    """An approximate literal: a double, or a Float if it ends in F. One that is too large, or that is not zero and
    becomes zero, is out of range (Java Language Specification §3.10.2)."""
    digits = text.rstrip("fFdD")
    value = float(digits)
    if text[-1] in "fF":
        value = single(value)
    is_zero = not digits.lower().partition("e")[0].strip("0.")
    if not math.isfinite(value) or (value == 0.0) != is_zero:
        raise ValueError(f"{text:.40} is out of range")
    return value


def single(value: float) -> Float:
    """The number rounded to 32 bits; infinite if it is too large."""
    try:
        return Float(_SINGLE.unpack(_SINGLE.pack(value))[0])
    except OverflowError:
        return Float(math.copysign(math.inf, value))


def unquote(text: str) -> str:
    """The text between quotes of one kind; two quotes in it mean one."""
    quote = text[0]
    return text[1:-1].replace(quote + quote, quote)


def is_plain_name(name: str) -> bool:
    """Whether it needs no quotes. Each part between dots is one of Java's identifiers, but digits may begin any part
    but the first; an annotation's key may hold more."""
    if _ANNOTATION.fullmatch(name):
        return True
    if is_keyword(name) or not _NAME.fullmatch(name):
        return False
    first, *others = _CURRENCY.sub("_", name).split(".")
    return first.isidentifier() and all(f"_{part}".isidentifier() for part in others)
