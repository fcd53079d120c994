"""The bounds of a durable subscription of a topic: their checks, and their stored form (docs/adr/0096). Rules of this
file: pure; a mistake is a ValueError of one line that names the key, for requests and for the node's file.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.schema import is_whole_within

DROP_OLDEST: Final = "drop-oldest"
DEAD_LETTER: Final = "dead-letter"
END: Final = "end"
AT_BOUND: Final = (DROP_OLDEST, DEAD_LETTER, END)

BOUND_MAX: Final = 8_192
"""The greatest bound of messages: between two finished ranges lies an unfinished message, so that these are bounded as
well (broker/backlogs.py)."""

BYTES_MOST: Final = 2**50
"""The greatest bound of bytes."""

IDLE_S_MAX: Final = 366 * 86_400
"""The greatest `idle_s`."""

MOST: Final = {"messages_max": BOUND_MAX, "bytes_max": BYTES_MOST, "idle_s": IDLE_S_MAX}
TEXT_MAX: Final = 60


class Bounds(NamedTuple):
    """How many unfinished matching messages a subscription may have, what happens beyond that, and after how many
    seconds without a link it ends. 0 and "" for none. With `bytes_max` there is always `messages_max`."""

    messages_max: int = 0
    bytes_max: int = 0
    when_full: str = ""
    idle_s: int = 0

    def most(self, what: str) -> str:
        """The bound of messages or bytes, in words."""
        return f"{self.bytes_max if what == 'bytes' else self.messages_max} {what}"

    def changed(self, given: Mapping[str, Any], *, none: str = "") -> "Bounds":
        """These bounds with the given changes; None removes a bound. `none`: how an error spells None. Raises
        ValueError."""
        for key, most in MOST.items():
            value = given.get(key)
            if value is not None and not is_whole_within(value, 1, most + 1):
                raise ValueError(f"invalid value {repr(value)[:TEXT_MAX]} for {key}; expected 1 to {most}{none}")
        when_full = given.get("when_full")
        if when_full is not None and when_full not in AT_BOUND:
            raise ValueError(f"invalid value {repr(when_full)[:TEXT_MAX]} for when_full; expected {_ANSWERS}")
        numbers = {key: given.get(key, getattr(self, key)) or 0 for key in MOST}
        kept = given.get("when_full", self.when_full) or ""
        if not (numbers["messages_max"] or numbers["bytes_max"]):
            if when_full is not None:
                raise ValueError("when_full needs messages_max or bytes_max")
            kept = ""
        elif not kept:
            key = "messages_max" if numbers["messages_max"] else "bytes_max"
            raise ValueError(f"{key} needs when_full: {_ANSWERS}")
        if numbers["bytes_max"] and not numbers["messages_max"]:
            numbers["messages_max"] = BOUND_MAX
        return Bounds(when_full=kept, **numbers)


_ANSWERS: Final = f"{', '.join(AT_BOUND[:-1])} or {AT_BOUND[-1]}"
NO_BOUNDS: Final = Bounds()
