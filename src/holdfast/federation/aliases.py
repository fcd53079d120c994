"""Names that two nodes say often, as small numbers of one session.

Rules of this file: a number means one name for as long as the session lasts; a peer that gives it another ends the
session. A name is written beside its number the first time.
"""

from typing import Any, Final

from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.schema import is_whole_within

ALIASES_MAX: Final = 20_000
"""The maximum for each side of one session: as many as there may be nodes and topics."""


class Malformed(Exception):
    """A neighbour sent something invalid. The text is one line; the session ends."""


class Said:
    """The names that we have sent in a session."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def write(self, name: str) -> Any:
        """The number; a pair of number and name the first time; past the bound the name itself."""
        number = self._numbers.get(name)
        if number is not None:
            return Ulong(number)
        if len(self._numbers) >= ALIASES_MAX:
            return name
        number = self._numbers[name] = len(self._numbers)
        return [Ulong(number), name]


class Heard:
    """The names that a neighbour has sent."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def read(self, what: str, value: object) -> str:
        """Raises Malformed."""
        if isinstance(value, str):
            return name_of(what, value)
        if isinstance(value, list) and len(value) == 2:
            number, text = value
            if not is_whole_within(number, 0, ALIASES_MAX):
                raise Malformed(f"invalid alias for {what}; expected a number below {ALIASES_MAX}")
            name = name_of(what, text)
            if self._names.setdefault(int(number), name) != name:
                raise Malformed(f"alias {number} for {what} given to another name; expected {self._names[number]!r}")
            return name
        if not is_whole_within(value, 0, ALIASES_MAX) or int(value) not in self._names:
            raise Malformed(f"unknown alias for {what}; expected a name, or a number that was given one")
        return self._names[int(value)]


def name_of(what: str, value: object) -> str:
    """A node's or a topic's name. Raises Malformed."""
    if not isinstance(value, str):
        raise Malformed(f"invalid {what}; expected a name")
    try:
        return check_name(str(value))
    except ConfigError:
        raise Malformed(f"invalid {what} {str(value)[:60]!r}; expected a name") from None
