"""Lists of URLs and queues as options give them, and patterns over the names of a node's queues.

Rules of this file: pure. Commas separate; a backslash takes the meaning from a comma, an asterisk, a backslash or a
blank at an end, since names of queues may have all of them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.errors import ConfigError

LISTED_MAX: Final = 1_000
"""URLs or addresses that one option may give."""

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TOKENS: Final = re.compile(r"\\.|[^\\]|\\", re.DOTALL)


def listed(option: str, text: str, separators: str = ",") -> list[str]:
    """The parts of a list, still escaped, without blanks around them that are not escaped. Raises ConfigError."""
    parts: list[list[str]] = [[]]
    for token in _TOKENS.findall(text):
        if token in separators:
            parts.append([])
        elif parts[-1] or not token.isspace():
            parts[-1].append(token)
    for part in parts:
        while part and part[-1].isspace():
            del part[-1]
    found = ["".join(part) for part in parts]
    if "\n" in separators:
        found = [part for part in found if part]
    if not found or "" in found:
        raise ConfigError(f"option {option!r}: invalid list {text[:60]!r}; expected names with one comma between them")
    if len(found) > LISTED_MAX:
        raise ConfigError(f"option {option!r} has {len(found)} parts; expected at most {LISTED_MAX}")
    return found


def escaped(name: str) -> str:
    """A queue's name as an address that means this queue and no other."""
    return re.sub(r"([\\,*]|^\s|\s$)", r"\\\1", name)


@dataclass(frozen=True, slots=True)
class Address:
    """One part of the option `address`: a queue's name, or a pattern in which `*` is any text."""

    text: str

    @property
    def is_pattern(self) -> bool:
        return any(token == "*" for token in _TOKENS.findall(self.text))

    @property
    def name(self) -> str:
        """Of the queue, where it is no pattern."""
        return _ESCAPED.sub(r"\1", self.text)

    def matching(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that it means, in their order."""
        parts: list[str] = []
        for token in _TOKENS.findall(self.text):
            if token == "*" and parts[-1:] == [".*"]:
                continue
            parts.append(".*" if token == "*" else re.escape(_ESCAPED.sub(r"\1", token)))
        pattern = re.compile("".join(parts), re.DOTALL)
        return [name for name in names if pattern.fullmatch(name)]


def addresses_of(text: str) -> tuple[Address, ...]:
    """The option `address`. Raises ConfigError, also for a queue that is there twice."""
    found = tuple(Address(part) for part in listed("address", text))
    names = [address.name for address in found if not address.is_pattern]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"option 'address' names queue {name!r} more than once; give it once")
    return found
