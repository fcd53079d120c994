"""`holdfast federation` and `holdfast topology tree`: requests about federated topics to the node's `$management`.

Rules of this file: as of `manage.py`.
"""

import argparse
import sys
from functools import partial

from holdfast.client.connection import Connection
from holdfast.client.verbs.manage import asked, print_json
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import run
from holdfast.columns import table
from holdfast.entity_types import FEDERATION
from holdfast.lines import say

COLUMNS = (
    "topic", "neighbour", "direction", "mode", "patterns", "state", "configured", "asked", "origins", "rows",
)  # fmt: skip
TREE = ("destination", "next_hop", "path")


def federation(args: argparse.Namespace) -> int:
    """`holdfast federation ACTION`."""
    return run(partial(asked, args, _federation))


def tree(args: argparse.Namespace) -> int:
    """`holdfast topology tree`."""
    return run(partial(asked, args, _tree))


async def _federation(connection: Connection, args: argparse.Namespace) -> None:
    if args.action == "list":
        answer = await connection.manage("QUERY", FEDERATION)
        rows = plain(answer["federation"])
        if args.json:
            print_json(rows)
        elif rows:
            say(*table(COLUMNS, [[_cell(row.get(key)) for key in COLUMNS] for row in rows]))
        else:
            say("no topic goes to a neighbour, or is asked for there", file=sys.stderr)
        return
    name = f"{args.topic}@{args.neighbour}"
    if args.action == "add":
        asked = {"mode": args.mode, "patterns": args.patterns, "direction": args.direction}
        answer = await connection.manage("CREATE", FEDERATION, name, asked)
    else:
        answer = await connection.manage("DELETE", FEDERATION, name)
    if args.json:
        print_json(answer if args.action == "add" else {"removed": name, **answer})
    elif args.action == "add":
        say(f"{name} added" if answer.get("created") else f"{name} is there already")
    else:
        again = f"; {args.neighbour} asks for it, so it comes back until it is removed there"
        say(f"{name} removed{again if answer.get('asked') else ''}")  # an older node does not say


async def _tree(connection: Connection, args: argparse.Namespace) -> None:
    answer = await connection.manage("TREE", FEDERATION, args.topic, {"subject": args.subject})
    rows = plain(answer["tree"])
    if args.json:
        print_json(rows)
    elif rows:
        say(*table(TREE, [[_cell(row.get(key)) for key in TREE] for row in rows]))
    else:
        say("no other node wants it", file=sys.stderr)


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value
