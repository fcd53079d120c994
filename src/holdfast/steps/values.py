"""Names in steps, and their values as keys, numbers or texts.

Rules of this file: names are those of selectors (selectors/names.py), and `body.NAME` for a field of a body that is a
JSON object or a map. An unreadable value raises StepFailed.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.encoding import encode
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.selectors import names
from holdfast.selectors.sections import COMPOUND, UNDECODABLE
from holdfast.steps.failure import StepFailed
from holdfast.steps.message import StepMessage

BODY: Final = "body."
KEY_BYTES_MAX: Final = 256
"""A key, encoded."""
WHOLE_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")

Reader = Callable[[StepMessage], Any]
"""The value, None where it is missing or null."""


def reader_of(name: str, where: str) -> Reader:
    """A function that reads the value of `name`. ConfigError if the name is invalid; `where` names the key."""
    if name.startswith(BODY) and name != BODY:
        field = name[len(BODY) :]
        return lambda message: message.content.get(field)
    try:
        found = names.lookup(name)
    except ValueError as error:
        raise ConfigError(f"invalid value {name!r} for {where}: {error}") from error

    def read(message: StepMessage) -> Any:
        value = found.read(message.sections)
        if value is UNDECODABLE:
            raise StepFailed(f"{name} of the message cannot be read")
        return value

    return read


def own_name(name: str) -> str:
    """The name of such a value in an aggregate."""
    return name.removeprefix(BODY)


def key_of(value: Any, name: str) -> bytes:
    """The value as a key: equal for equal values of one type."""
    if value is COMPOUND or isinstance(value, (list, dict)):
        raise StepFailed(f"{name} is a list or a map, and no key")
    try:
        key = encode(value)
    except LocalProtocolError as error:
        raise StepFailed(f"{name} is no key: {error}") from error
    if len(key) > KEY_BYTES_MAX:
        raise StepFailed(f"{name} has {len(key)} bytes as a key; the limit is {KEY_BYTES_MAX}")
    return key


def number_of(value: Any, name: str) -> int | float:
    """The value as a number, also if it is text."""
    number = value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = float(value) if any(sign in value for sign in ".eE") else int(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise StepFailed(f"{name} is not a number")
    if isinstance(number, int):
        if abs(number) > WHOLE_MAX:
            raise StepFailed(f"{name} is beyond {WHOLE_MAX}")
        return int(number)
    if not math.isfinite(number):
        raise StepFailed(f"{name} is no finite number")
    return float(number)


def text_of(value: Any, name: str) -> str:
    """The value as it is written in a table."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(int(value) if isinstance(value, int) else float(value))
    if isinstance(value, UUID):
        return str(value)
    raise StepFailed(f"{name} is neither text nor a number")
