"""`holdfast network status`, `holdfast drain` and `resume`: the whole network at a look, and a node that is emptied.

Rules of this file: a table for a person, one line of JSON for a program; a person's table is at most 100 columns wide
where the names are short.
"""

import argparse
import asyncio
import sys
import time
from functools import partial
from typing import Any, Final

from holdfast.client.connection import Connection
from holdfast.client.verbs.manage import asked, print_json
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import Progress, run
from holdfast.columns import counted, size, table
from holdfast.errors import HoldfastError
from holdfast.lines import RED, YELLOW, painted, say

COLUMNS: Final = ("node", "state", "version", "messages", "in transit", "oldest", "dead", "sessions", "links", "room")
COLOURS: Final = {"unreachable": RED, "drained": YELLOW}
"""Of rows, by state."""
OLD_S: Final = 10.0
"""Seconds after which a row is marked as old."""
LOOK_S: Final = 1.0
"""Between two looks at a node that is drained."""
EMPTY_S: Final = 3.0
"""For so long a node is to be empty: the others have to learn first that they are asked about it."""
CLEAR: Final = "\x1b[H\x1b[J"
"""The cursor goes to the top of a terminal, and all below it is erased."""

Row = dict[str, Any]


def status(args: argparse.Namespace) -> int:
    """`holdfast network status`."""
    return run(partial(asked, args, _status))


def drain(args: argparse.Namespace) -> int:
    """`holdfast drain`."""
    return run(partial(asked, args, _drain))


def resume(args: argparse.Namespace) -> int:
    """`holdfast resume`."""
    return run(partial(asked, args, _resume))


async def _status(connection: Connection, args: argparse.Namespace) -> None:
    while True:
        began = time.monotonic()
        rows = plain(await connection.admin.network(limit_s=args.limit))
        if args.json:
            print_json(rows)
        else:
            if args.watch is not None:
                _erase()
            say(*network_lines(rows), flush=args.watch is not None)
        if args.watch is None:
            return
        await asyncio.sleep(max(0.0, began + args.watch - time.monotonic()))


def _erase() -> None:
    if sys.stdout.isatty():
        print(CLEAR, end="")


def network_lines(rows: list[Row]) -> list[str]:
    """The table, and a line for each node of which something else is to be known."""
    cells = [_cells(row) for row in rows]
    head, *lines = table(COLUMNS, cells)
    states = [row[1] for row in cells]
    lines = [
        painted(line, COLOURS[state]) if state in COLOURS else line for line, state in zip(lines, states, strict=True)
    ]
    notes = [painted(f"{row['node']}: {note}", YELLOW) for row in rows for note in _notes(row)]
    return [head, *lines, *(["", *notes] if notes else [])]


def _cells(row: Row) -> list[Any]:
    if row.get("version") is None:
        return [row["node"], row["state"], *[None] * (len(COLUMNS) - 2)]
    state = "drained" if row["state"] == "up" and row["drained"] else row["state"]
    return [
        row["node"], state, row["version"], row["messages"], row["in_transmission"], duration(row["oldest_s"]),
        row["dead_letters"], f"{row['sessions_up']} of {row['sessions']}", row["links"], size(row["room_bytes"]),
    ]  # fmt: skip


def _notes(row: Row) -> list[str]:
    age_s = row["age_s"]
    if age_s is None:
        return ["no answer; its version may know no such question"] if row["state"] == "up" else []
    notes = [f"as of {duration(age_s)} ago"] if age_s >= OLD_S or row["state"] != "up" else []
    if row["disk_fails"]:
        notes.append("its disk takes nothing")
    if row["warnings"]:
        notes.append(f"{counted(row['warnings'], 'warning')}; run `holdfast status` there")
    notes += [
        f"{counted(count, 'message')} for {name}, which is drained or gone" for name, count in row["owed"].items()
    ]
    return notes


def duration(seconds: float | None) -> str | None:
    """Seconds for people: 12 s, 3 min, 5 h, 2 d."""
    if seconds is None:
        return None
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


async def _drain(connection: Connection, args: argparse.Namespace) -> None:
    answer = plain(await connection.admin.drain())
    own = answer["node"]
    if not args.json and not answer["changed"]:
        say(f"{own} was being drained already, since {answer['drain']['since']}", file=sys.stderr)
    progress = Progress()
    try:
        told, left = await _until_empty(connection, args, own, progress)
    except (asyncio.CancelledError, HoldfastError) as error:
        progress.clear()
        stays = f"{own} stays drained until `holdfast resume`"
        if isinstance(error, HoldfastError):
            say(f"holdfast drain: {stays}", file=sys.stderr)
        else:
            error.add_note(stays)
        raise
    finally:
        progress.clear()
    if args.json:
        print_json({"node": own, **left})
    else:
        say(f"{told}; it takes no new messages until `holdfast resume`")


async def _until_empty(
    connection: Connection, args: argparse.Namespace, own: str, progress: Progress
) -> tuple[str, dict[str, Any]]:
    """What the node held when it was last asked, as text and as counts: nothing, unless `args.no_wait`."""
    told, held_at = "", time.monotonic()
    while True:
        began = time.monotonic()
        rows = plain(await connection.admin.network(limit_s=args.limit))
        left = _left(rows, own)
        text = _left_text(own, left)
        progress.show(lambda text=text: text)  # type: ignore[misc]
        if not args.json and not args.no_wait and _is_held(left) and text != told and not progress.is_shown:
            say(text, file=sys.stderr)  # the last one is said on standard output
        told = text
        if _is_held(left):
            held_at = time.monotonic()
        if args.no_wait or began >= held_at + EMPTY_S:
            return text, left
        await asyncio.sleep(LOOK_S)


def _is_held(left: dict[str, Any]) -> bool:
    return bool(left["messages"] or left["in_transmission"] or left["owed"])


def _left(rows: list[Row], own: str) -> dict[str, Any]:
    """What the node holds, what others hold for it, and which could not be asked about that."""
    here = next(row for row in rows if row["node"] == own)
    others = [row for row in rows if row["node"] != own]
    return {
        "messages": here["messages"],
        "in_transmission": here["in_transmission"],
        "dead_letters": here["dead_letters"],
        "owed": sum(row["owed"].get(own, 0) for row in others if row["age_s"] is not None),
        "unknown": [row["node"] for row in others if row["state"] != "up" or not _is_new(row["age_s"])],
    }


def _is_new(age_s: float | None) -> bool:
    return age_s is not None and age_s < OLD_S


def _left_text(own: str, left: dict[str, Any]) -> str:
    unknown = f"; not asked: {', '.join(left['unknown'])}" if left["unknown"] else ""
    dead = f"; it keeps {counted(left['dead_letters'], 'dead letter')}" if left["dead_letters"] else ""
    if not _is_held(left):
        return f"{own} is empty{dead}{unknown}"
    here = counted(left["messages"], "message")
    there = f"{left['in_transmission']} for other nodes; others hold {left['owed']} for it"
    return f"{own} holds {here}, {there}{dead}{unknown}"


async def _resume(connection: Connection, args: argparse.Namespace) -> None:
    answer = await connection.admin.resume()
    if args.json:
        print_json(answer)
    else:
        again = "again" if answer["changed"] else "already"
        say(f"{answer['node']} takes new messages {again}")
