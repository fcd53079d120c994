"""How a topic goes from one node to the next, and what a node asks its neighbour to forward to it.

Rules of this file: values, and their checks; whatever a neighbour wrote becomes one of these within its bounds, or is
Malformed. Source: docs/adr/0113.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from holdfast.broker.subjects import Pattern
from holdfast.errors import ConfigError
from holdfast.federation.aliases import Heard, Malformed, Said

DYNAMIC: Final = "dynamic"
STATIC: Final = "static"
PUSH: Final = "push"
MODES: Final = (DYNAMIC, STATIC, PUSH)

TO: Final = "to"
FROM: Final = "from"
BOTH: Final = "both"
DIRECTIONS: Final = (TO, FROM, BOTH)
"""Whether messages go to the neighbour, come from there, or both."""

TOPICS_MAX: Final = 256
PATTERNS_MAX: Final = 1_000
"""The maximum number of patterns in one static entry."""

ASK_BYTES_MAX: Final = 16_384
"""The maximum size of all patterns that one neighbour is asked for: all are in one message, which is sent again at each
refresh."""


class Ask(NamedTuple):
    """The neighbour is to forward the topic to the node that asks. `patterns`: of mode `static` alone."""

    topic: str
    mode: str
    patterns: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Of its patterns, in bytes."""
        return sum(len(pattern.encode()) for pattern in self.patterns)


def write_asks(asks: Iterable[Ask], said: Said) -> list[Any]:
    return [[said.write(ask.topic), ask.mode, list(ask.patterns)] for ask in asks]


def read_asks(value: object, heard: Heard) -> tuple[Ask, ...]:
    """None: a node of an earlier version, which asks for nothing. Raises Malformed."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > TOPICS_MAX:
        raise Malformed(f"invalid asks of federate; expected a list of at most {TOPICS_MAX}")
    asks = {ask.topic: ask for ask in (_read_ask(row, heard) for row in value)}
    size = sum(ask.size for ask in asks.values())
    if size > ASK_BYTES_MAX:
        raise Malformed(f"{size} bytes of patterns in asks of federate; expected at most {ASK_BYTES_MAX}")
    return tuple(asks.values())


def _read_ask(row: object, heard: Heard) -> Ask:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[1], str) or row[1] not in MODES:
        raise Malformed(f"invalid ask of federate; expected a topic, one of {', '.join(MODES)}, and patterns")
    topic, mode, patterns = heard.read("a topic", row[0]), str(row[1]), row[2]
    if not isinstance(patterns, list) or len(patterns) > PATTERNS_MAX or (mode == STATIC) != bool(patterns):
        text = f"expected 1 to {PATTERNS_MAX} with mode static, and none with another"
        raise Malformed(f"invalid patterns in an ask of federate; {text}")
    return Ask(topic, mode, tuple(map(_read_pattern, patterns)))


def _read_pattern(value: object) -> str:
    try:
        return Pattern(str(value) if isinstance(value, str) else "").text
    except (ConfigError, UnicodeError):
        raise Malformed("invalid pattern in an ask of federate; expected words joined by dots") from None
