"""The two control messages of pacing, `load` and `pace`: their fields, and what is accepted of them.

Rules of this file: whatever a peer wrote is read as one of these values within its bounds, or as None; nothing is
raised. Numbers are whole: bytes, bytes a second, milliseconds. Rates are rounded down, so that their sum holds. The
form is that of all control messages (docs/CUSTODY.md, "The session").
"""

from typing import Any, Final, NamedTuple

from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.names import check_name
from holdfast.pacing.policy import Thresholds
from holdfast.schema import is_whole_within

LOAD: Final = "load"
PACE: Final = "pace"

NUMBER_END: Final = 2**63
"""Versions and processes are below."""

BYTES_MAX: Final = 2**53
"""Of a capacity, a rate and an estimate: what a float holds exactly."""

GROUP_CHARACTERS_MAX: Final = 255

VALID_MS_MAX: Final = 120_000
"""The longest lease of a rate."""

NODES_MAX: Final = 64
"""Nodes that a report or a rate passes on its way: more is a loop of the tables."""


class Report(NamedTuple):
    """`load`: what an origin says of its queue to one root. `arrivals` None: not known yet, it was just started.

    `version` is higher in each report of one `process`; `applied` is the version of the last pace that it obeyed, of
    the root's process `root_process`, 0 for none, and `held_ms` how long ago it came: what is left of the time since it
    was sent is a round trip. `passed`: nodes that it came through.
    """

    root: str
    origin: str
    group: str
    process: int
    version: int
    weight: int
    capacity: int
    used: int
    arrivals: int | None
    spread: int
    root_process: int = 0
    applied: int = 0
    held_ms: int = 0
    leaving: bool = False
    passed: int = 0

    def fields(self) -> dict[str, Any]:
        return {
            "kind": LOAD,
            "root": self.root,
            "origin": self.origin,
            "group": self.group,
            "process": Ulong(self.process),
            "version": Ulong(self.version),
            "weight": Ulong(self.weight),
            "capacity": Ulong(self.capacity),
            "used": Ulong(self.used),
            "arrivals": None if self.arrivals is None else Ulong(self.arrivals),
            "spread": Ulong(self.spread),
            "root_process": Ulong(self.root_process),
            "applied": Ulong(self.applied),
            "held": Ulong(self.held_ms),
            "leaving": self.leaving,
            "passed": Ulong(self.passed),
        }


class Pace(NamedTuple):
    """`pace`: the rate that a root gives to one origin. It holds for `valid_ms` from when the origin sent the report
    `heard` of its process `of`; then `base` does. `version` is higher in each pace of one `process` of the root.
    """

    root: str
    to: str
    group: str
    process: int
    version: int
    of: int
    heard: int
    rate: int
    base: int
    valid_ms: int
    passed: int = 0

    def fields(self) -> dict[str, Any]:
        return {
            "kind": PACE,
            "root": self.root,
            "to": self.to,
            "group": self.group,
            "process": Ulong(self.process),
            "version": Ulong(self.version),
            "of": Ulong(self.of),
            "heard": Ulong(self.heard),
            "rate": Ulong(self.rate),
            "base": Ulong(self.base),
            "valid": Ulong(self.valid_ms),
            "passed": Ulong(self.passed),
        }


_REPORT_NUMBERS: Final = (
    ("process", 0, NUMBER_END),
    ("version", 1, NUMBER_END),
    ("weight", 0, Thresholds.WEIGHT_MAX + 1),
    ("capacity", 1, BYTES_MAX + 1),
    ("used", 0, BYTES_MAX + 1),
    ("spread", 0, BYTES_MAX + 1),
    ("root_process", 0, NUMBER_END),
    ("applied", 0, NUMBER_END),
    ("held", 0, NUMBER_END),
    ("passed", 0, NODES_MAX),
)
_PACE_NUMBERS: Final = (
    ("process", 0, NUMBER_END),
    ("version", 1, NUMBER_END),
    ("of", 0, NUMBER_END),
    ("heard", 1, NUMBER_END),
    ("rate", 1, BYTES_MAX + 1),
    ("base", 1, BYTES_MAX + 1),
    ("valid", 1, VALID_MS_MAX + 1),
    ("passed", 0, NODES_MAX),
)
"""Field, lowest value, and the first that is too high."""


def read_report(fields: dict[Any, Any]) -> Report | None:
    """None where a field is missing or out of its bounds; unknown fields, of a newer version, are passed over."""
    numbers = _numbers(fields, _REPORT_NUMBERS)
    root, origin, group = _name(fields.get("root")), _name(fields.get("origin")), _group(fields.get("group"))
    arrivals, leaving = fields.get("arrivals"), fields.get("leaving")
    if numbers is None or root is None or origin is None or group is None or not isinstance(leaving, bool):
        return None
    if arrivals is not None and not is_whole_within(arrivals, 0, BYTES_MAX + 1):
        return None
    process, version, weight, capacity, used, spread, root_process, applied, held, passed = numbers
    if used > capacity:
        return None
    return Report(
        root, origin, group, process, version, weight, capacity, used,
        None if arrivals is None else int(arrivals), spread, root_process, applied, held, leaving, passed,
    )  # fmt: skip


def read_pace(fields: dict[Any, Any]) -> Pace | None:
    """As `read_report`."""
    numbers = _numbers(fields, _PACE_NUMBERS)
    root, to, group = _name(fields.get("root")), _name(fields.get("to")), _group(fields.get("group"))
    if numbers is None or root is None or to is None or group is None:
        return None
    return Pace(root, to, group, *numbers)


def relayed(message: Report | Pace) -> Report | Pace | None:
    """What a transit node passes on; None where it came through too many."""
    return message._replace(passed=message.passed + 1) if message.passed + 1 < NODES_MAX else None


def _numbers(fields: dict[Any, Any], bounds: tuple[tuple[str, int, int], ...]) -> list[int] | None:
    found = []
    for key, low, end in bounds:
        value = fields.get(key)
        if not is_whole_within(value, low, end):
            return None
        found.append(int(value))
    return found


def _name(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return check_name(str(value))
    except ConfigError:
        return None


def _group(value: object) -> str | None:
    """The name of a virtual host; empty for the node's own."""
    if not isinstance(value, str) or len(value) > GROUP_CHARACTERS_MAX or not str(value).isprintable():
        return None
    return str(value)
