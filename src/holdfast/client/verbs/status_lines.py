"""`holdfast status` for a person: what needs attention first, then a table for each part (docs/management.md).

Rules of this file: pure, from the status as `render.plain` makes it. Fields that an older node does not have are left
out. A table is at most WIDTH_MAX wide: the columns that matter most are shown first, and `--json` has all.
"""

from typing import Any, Final

from holdfast.client.verbs.storage_lines import storage_lines
from holdfast.columns import counted, fitting, size, table
from holdfast.lines import RED, YELLOW, painted

WIDTH_MAX: Final = 100
COLUMNS: Final = {
    "queues": (
        "name", "messages", "bytes", "oldest_s", "consumers", "unsettled", "in_total", "out_total", "dropped_total",
        "refused_total", "messages_max", "bytes_max", "when_full",
    ),
    "sessions": (
        "neighbour", "state", "version", "since_s", "round_trip_s", "messages_in", "messages_out", "lost", "attempts",
        "reason",
    ),
    "remotes": ("remote", "state", "since_s", "messages", "messages_out", "messages_in", "addresses", "lost", "reason"),
    "users": ("user", "kind", "connections", "links", "unsettled_bytes", "refused", "requests"),
}  # fmt: skip
"""By part: what stands first. What the node tells besides comes behind it."""
PARTS: Final = (
    "queues", "refused", "links", "federation", "users", "sessions", "remotes", "routes", "pacing", "paces", "paced",
)  # fmt: skip
"""The tables, in their order."""
ROWS_MAX: Final = 50
"""Origins and losses of one table; how many more there are is said."""
GAPS_MAX: Final = 3
GOOD: Final = {"sessions": "Established", "remotes": "up"}
"""By part: the state of a row that needs no attention."""
UNKNOWN: Final = "(unknown)"
"""A user that the node does not have."""


def status_lines(told: dict[str, Any]) -> list[str]:
    """All lines of it."""
    lines = [_node(told)]
    lines += _drain(told.get("drain"))
    lines += [painted(f"warning: {line}", YELLOW) for line in told.get("warnings") or ()]
    lines += [*storage_lines(told), *_logins(told), *_measures(told)]
    for name in PARTS:
        lines += _part(name, told.get(name))
    failed = [row | {"user": row.get("user") or UNKNOWN} for row in _logins_of(told).get("latest") or ()]
    lines += _part("failed logins, the latest first", failed)
    origins = [_origin(origin) for origin in told.get("origins") or () if _says_something(origin)]
    return [*lines, *_part("origins", origins), *_part("losses", told.get("losses"), last=True)]


def _node(told: dict[str, Any]) -> str:
    """The node; of one that tells of a virtual host alone, which one."""
    line = f"node {told.get('node')}"
    if told.get("vhost"):
        line += f", virtual host {told['vhost']}"
    if told.get("uptime_s") is not None:
        line += f", up {told['uptime_s']:.0f} s, {size(told.get('resident_bytes'))} resident"
    return f"{line}, store {told['store']}" if told.get("store") else line


def _drain(told: object) -> tuple[str, ...]:
    """A line while the node is drained."""
    if not isinstance(told, dict):
        return ()
    left = f"{counted(told['messages'], 'message')} left, {told['in_transmission']} for other nodes"
    return (painted(f"being drained since {told['since']}: {left}", YELLOW),)


def _logins_of(told: dict[str, Any]) -> dict[str, Any]:
    logins = told.get("logins")
    return logins if isinstance(logins, dict) else {}


def _logins(told: dict[str, Any]) -> list[str]:
    """A line where a login failed; a table of them stands below."""
    logins = _logins_of(told)
    if not logins.get("failed"):
        return []
    unread = f", {logins['refused']} more refused unread" if logins.get("refused") else ""
    return [f"failed logins: {logins['failed']} since the node's start{unread}"]


def _measures(told: dict[str, Any]) -> list[str]:
    """A line for failures, where there were any, one for the memory held for peers, one for the turns."""
    lines: list[str] = []
    failures = told.get("failures")
    if isinstance(failures, dict) and any(failures.values()):
        ended = counted(failures.get("peers_ended", 0), "connection")
        parts = counted(failures.get("parts", 0), "part")
        lines.append(painted(f"failures: {ended} ended, {parts} failed; see the log", RED))
    memory, turns = told.get("memory"), told.get("turns")
    if isinstance(memory, dict):
        line = f"memory {size(memory.get('bytes'))} of {size(memory.get('bytes_max'))} for peers"
        line += f", at most {size(memory.get('bytes_most'))} so far"
        if memory.get("connections_dropped"):
            line += f", {memory['connections_dropped']} connections dropped for it"
        lines.append(line)
    if isinstance(turns, dict) and turns.get("turns"):
        longest_ms = 1000 * turns.get("longest_s", 0)
        line = f"turns {turns['turns']}, longest {longest_ms:.1f} ms ({turns.get('longest_kinds')})"
        lines.append(f"{line}, {turns.get('above_20_ms')} above 20 ms")
    return lines


def _says_something(origin: dict[str, Any]) -> bool:
    return any(origin.get(key) for key in ("gaps", "waiting", "late"))


def _origin(origin: dict[str, Any]) -> dict[str, Any]:
    gaps = origin.get("gaps") or []
    spelt = ", ".join(f"{first} to {last}" if first != last else f"{first}" for first, last in gaps[:GAPS_MAX])
    more = f", and {len(gaps) - GAPS_MAX} more" if len(gaps) > GAPS_MAX else ""
    return {**{key: value for key, value in origin.items() if key != "gaps"}, "missing": spelt + more}


def _part(name: str, rows: object, *, last: bool = False) -> list[str]:
    """A table under its name; of many rows of a part without pages the first, or the last, of them."""
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        return []
    shown = rows
    if name in ("origins", "losses") and len(rows) > ROWS_MAX:
        shown = rows[-ROWS_MAX:] if last else rows[:ROWS_MAX]
    columns = _columns(name, shown)
    left_out = len(rows) - len(shown)
    heading = f"{name} ({left_out} more, see --json)" if left_out else name
    head, *lines = table(columns, [[row.get(key) for key in columns] for row in shown])
    return ["", heading, head, *(_coloured(name, row, line) for row, line in zip(shown, lines, strict=True))]


def _columns(name: str, rows: list[dict[str, Any]]) -> list[str]:
    told = [key for key, value in rows[0].items() if not isinstance(value, dict | list)]
    said = [key for key in told if any(row.get(key) not in (None, "") for row in rows)] or told
    first = [key for key in COLUMNS.get(name, ()) if key in said]
    columns = [*first, *(key for key in said if key not in first)]
    return columns[: fitting(columns, [[row.get(key) for key in columns] for row in rows], WIDTH_MAX)]


def _coloured(name: str, row: dict[str, Any], line: str) -> str:
    return painted(line, RED) if name in GOOD and row.get("state") != GOOD[name] else line
