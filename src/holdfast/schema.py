"""Which keys a table of a TOML document has, and what each accepts; every mistake is a ConfigError of one line. It also
defines whole numbers, for TOML and for peers: true and false are not whole numbers.

Rules of this file: pure; it checks values of TOML (text, whole number, float, bool, list, dict), and its errors have
the key, the value and what is expected. Relations between values are checked by their owners.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time
from itertools import islice
from typing import Any, Final, NamedTuple, TypeGuard

from holdfast.errors import ConfigError


class Kind(NamedTuple):
    """What a key accepts: in words, and as a test of the value. `is_unbounded`: numbers whose
    words name no maximum. `fault_in`: what is wrong within a value, for a person; empty if that is not known."""

    expected: str
    fits: Callable[[Any], bool]
    is_unbounded: bool = False
    fault_in: Callable[[Any], str] | None = None

    def wanted(self, value: object) -> str:
        """What is expected in place of `value`: with the maximum, where it is beyond every number, and where a number
        or a flag stands in quotes, without them."""
        if self.is_unbounded and is_whole(value) and value > WHOLE_MAX:
            return f"{self.expected}, at most {WHOLE_MAX}"
        if isinstance(value, str) and any(self.fits(meant) for meant in _unquoted(value)):
            return f"{self.expected}, without quotes"
        fault = "" if self.fault_in is None else self.fault_in(value)
        return f"{self.expected}; {fault}" if fault else self.expected


Keys = Mapping[str, Kind]
WHOLE_MAX: Final = 2**63 - 1
FOUND_MAX: Final = 60
"""The maximum number of characters of a wrong value in an error."""
_SHOWN_END: Final = 10**FOUND_MAX
_FLAGS: Final = {"true": True, "false": False}
_BARE: Final = re.compile("[A-Za-z0-9_-]+")
"""A key that TOML has without quotes."""


def _unquoted(text: str) -> Iterator[Any]:
    """What the text would be without its quotes, other than text."""
    if text in _FLAGS:
        yield _FLAGS[text]
    for number in (int, float):
        with suppress(ValueError):
            yield number(text[:FOUND_MAX])


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def is_whole_within(value: object, low: int, end: int) -> TypeGuard[int]:
    """Whether it is a whole number from `low` up to, and without, `end`."""
    return is_whole(value) and low <= value < end


def is_number(value: object) -> bool:
    """Whether it is a finite number within the range of a float, because whole numbers of TOML have no limit here."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= WHOLE_MAX
    return isinstance(value, float) and math.isfinite(value)


def whole_within(low: int, high: int) -> Kind:
    return Kind(f"a whole number, {low:,} to {high:,}", lambda value: is_whole_within(value, low, high + 1))


def one_of(*choices: str) -> Kind:
    return Kind(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _nul_in(value: object) -> str:
    """No name, address or argument of a command has one."""
    texts = value if isinstance(value, list) else [value]
    return "it has a NUL" if any(isinstance(text, str) and "\0" in text for text in texts) else ""


TEXT: Final = Kind("text in quotes, not empty", lambda value: _is_text(value) and value != "", fault_in=_nul_in)
TEXTS: Final = Kind(
    "a list of texts in quotes", lambda value: isinstance(value, list) and all(map(_is_text, value)), fault_in=_nul_in
)
FLAG: Final = Kind("true or false", lambda value: isinstance(value, bool))
COUNT: Final = Kind("a whole number above 0", lambda value: is_whole_within(value, 1, WHOLE_MAX + 1), is_unbounded=True)
NUMBER: Final = Kind("a number", is_number, is_unbounded=True)
SECONDS: Final = Kind("a number of seconds above 0", lambda value: is_number(value) and value > 0, is_unbounded=True)


NEAR: Final = 0.85
"""How similar a key has to be to be meant rather than the same key of another table."""
KEYS_SHOWN_MAX: Final = 12
"""The maximum number of known keys in the error for an unknown key."""


def found(value: object) -> str:
    """`value` as TOML would write it, cut to fit a line, for any value; what it is like, where it cannot be written."""
    if isinstance(value, int) and abs(value) >= _SHOWN_END:
        return f"of more than {FOUND_MAX} digits"  # Python refuses to write out the largest
    text = _as_toml(value)
    return text if len(text) <= FOUND_MAX else text[: FOUND_MAX - 3] + "..."


def _as_toml(value: object, depth: int = 0) -> str:
    if depth > FOUND_MAX:  # that deep nothing is shown any more
        return "..."
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < _SHOWN_END else "..."
    if isinstance(value, Mapping):
        items = [f"{_key(key)} = {_as_toml(item, depth + 1)}" for key, item in islice(value.items(), FOUND_MAX)]
        return f"{{ {', '.join(items)} }}" if items else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_as_toml(item, depth + 1) for item in value[:FOUND_MAX])}]"
    return value.isoformat() if isinstance(value, (date, time)) else repr(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) and _BARE.fullmatch(key) else repr(key)


def check_keys(where: str, table: Mapping[str, Any], kinds: Keys, others: Mapping[str, Keys] | None = None) -> None:
    """Raises ConfigError at the first unknown key or wrong type in one table. `others`: the document's tables, by how
    they are written; where one of them has that key, the error says so."""
    for key, value in table.items():
        kind = kinds.get(key)
        if kind is None:
            raise ConfigError(f"unknown key {key!r} in {where}; {_expected(key, list(kinds), others or {})}")
        if not kind.fits(value):
            raise ConfigError(f"invalid value {found(value)} for {where} {key}; expected {kind.wanted(value)}")


def _expected(key: str, known: list[str], others: Mapping[str, Keys]) -> str:
    """The accepted keys, the most similar first if there are many, and the tables that have such a key."""
    import difflib  # a document without a mistake does not load it

    near = difflib.get_close_matches(key, known, n=3)
    homes = [table for table, kinds in others.items() if key in kinds]
    meant = ""
    if homes and difflib.get_close_matches(key, known, n=1, cutoff=NEAR):
        meant = f"; did you mean {near[0]}, or the table {' or '.join(homes)}?"
    elif homes:
        meant = f"; it is a key of {' and '.join(homes)}"
    elif near:
        meant = f"; did you mean {near[0]}?"
    if len(known) <= KEYS_SHOWN_MAX:
        return f"expected {'one of ' if len(known) > 1 else ''}{', '.join(known)}{meant}"
    shown = [*near, *(name for name in known if name not in near)][:KEYS_SHOWN_MAX]
    return f"expected one of {', '.join(shown)} and {len(known) - len(shown)} more{meant}"


def check_document(
    document: Mapping[str, Any],
    *,
    tables: Mapping[str, Keys],
    lists: Mapping[str, Keys],
    named_by: Mapping[str, str],
) -> None:
    """Unknown keys and wrong types of a whole document of `[tables]` and `[[lists]]`; ConfigError at the first.

    `named_by`: the key that identifies an entry of a list, and that it must have; `name` for lists without one.
    """
    written = {f"[{name}]": kinds for name, kinds in tables.items()}
    written |= {f"[[{name}]]": kinds for name, kinds in lists.items()}
    for name, value in document.items():
        if name in tables:
            if not isinstance(value, dict):
                raise ConfigError(f"invalid value {found(value)} for {name}; expected a table, [{name}]")
            check_keys(name, value, tables[name], written)
        elif name in lists:
            if not (isinstance(value, list) and all(isinstance(entry, dict) for entry in value)):
                raise ConfigError(f"invalid value {found(value)} for {name}; expected a list of tables, [[{name}]]")
            for number, entry in enumerate(value, 1):
                key = named_by.get(name, "name")
                given = entry.get(key)
                where = f"{name} {found(given)}" if isinstance(given, str) else f"{name} number {number}"
                check_keys(where, entry, lists[name], written)
                if given is None:
                    raise ConfigError(f"{where} has no {key}; expected {TEXT.expected}")
        else:
            raise ConfigError(f"unknown key {name!r}; {_expected(name, list(written), written)}")
