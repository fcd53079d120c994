"""`holdfast where`: asks a node's `$management` where a message is (docs/where.md).

Rules of this file: exit 0 where something is known of the message, 1 where nothing is; a table for a person, a line of
JSON for a program.
"""

import argparse
from functools import partial
from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.types import Ulong
from holdfast.client.connection import Connection
from holdfast.client.errors import ManagementError
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import connect_as, place_of, refused, run
from holdfast.columns import table
from holdfast.entity_types import NODE
from holdfast.errors import ConfigError
from holdfast.lines import json_line, say

COLUMNS: Final = ("node", "state", "since", "at", "queue", "sequence", "next", "waits_for", "note")
ANSWER_S: Final = 5.0
"""Beyond the nodes' own time, how long the answer may take."""

ULONG_DIGITS_MAX: Final = 20
"""Of 2^64 - 1. Python refuses to read a number of some thousands."""


def where(args: argparse.Namespace) -> int:
    """`holdfast where`: 1 if nothing is known of the message."""
    ids = ids_of(args.message_id, args.kind)
    return run(partial(_where, args, ids))


async def _where(args: argparse.Namespace, ids: list[Any]) -> int:
    async with await connect_as(args, place_of(args)) as connection:
        try:
            answer = plain(await _ask(connection, ids, args.limit))
        except ManagementError as error:
            return refused(args, error)
    answer["message_id"] = args.message_id
    say(*([json_line(answer)] if args.json else lines_of(answer)))
    return 0 if answer["found"] else 1


async def _ask(connection: Connection, ids: list[Any], limit_s: float) -> dict[str, Any]:
    arguments = {"message_id": ids, "limit_s": limit_s}
    return await connection.manage("WHERE", NODE, None, arguments, limit_s=limit_s + ANSWER_S)


def ids_of(text: str, kind: str | None) -> list[Any]:
    """The message-ids that `text` may mean, of that type or of any; ConfigError where it is none of that type."""
    found: dict[str, Any] = {"text": text}
    if text.isascii() and text.isdigit() and len(text) <= ULONG_DIGITS_MAX and int(text) < 2**64:
        found["ulong"] = Ulong(int(text))
    try:
        found["uuid"] = UUID(text)
    except ValueError:
        pass
    if text.startswith("0x") or kind == "binary":
        try:
            found["binary"] = bytes.fromhex(text.removeprefix("0x"))
        except ValueError:
            pass
    if kind is None:
        return list(found.values())
    if kind not in found:
        expected = {"ulong": "0 to 2^64 - 1", "uuid": "a UUID", "binary": "hexadecimal digits"}[kind]
        raise ConfigError(f"invalid value {text[:60]!r} for MESSAGE-ID, of type {kind}; expected {expected}")
    return [found[kind]]


def lines_of(answer: dict[str, Any]) -> list[str]:
    """What a person reads: one line that says it, then each node's word."""
    steps = answer["steps"]
    last = next((step for step in reversed(steps) if step["state"] == answer["state"]), steps[-1])
    if not answer["found"]:
        said = f"{answer['message_id']}: nothing is known of it at {last['node']}"
    else:
        said = f"{answer['message_id']}: {last['state']} at {last['node']}"
        if last.get("queue"):
            said += f", queue {last['queue']}"
        if answer.get("waits_for"):
            said += f"; waits for {answer['waits_for']}"
        if last.get("reason"):
            said += f"; {last['reason']}"
    path = " -> ".join(hop["node"] for hop in answer["path"])
    columns = [key for key in COLUMNS if any(step.get(key) is not None for step in steps)]
    rows = [[step.get(key) for key in columns] for step in steps]
    return [said, *([f"path so far: {path}"] if path else []), "", *table(columns, rows)]
