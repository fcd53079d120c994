"""`holdfast link`: requests about links between queues to the node's `$management`.

Rules of this file: as of `manage.py`.
"""

import argparse
import sys
from functools import partial

from holdfast.amqp.wire.types import Ulong
from holdfast.broker.beginnings import FIRST
from holdfast.client.connection import Connection
from holdfast.client.verbs.manage import asked, print_json
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import run
from holdfast.columns import table
from holdfast.entity_types import LINK
from holdfast.lines import say
from holdfast.schema import Kind, check_keys
from holdfast.steps import parsing, tables
from holdfast.text_files import read_text, toml_of

COLUMNS = (
    "name", "mode", "from", "to", "selector", "steps", "state", "moved_total", "dropped_total", "dead_lettered_total"
)  # fmt: skip
DONE = {"delete": "deleted", "stop": "stopped", "start": "started"}


def link(args: argparse.Namespace) -> int:
    """`holdfast link ACTION`."""
    steps = _steps(args) if args.action == "create" and args.steps_file is not None else None
    return run(partial(asked, args, partial(_link, steps=steps)))


def _steps(args: argparse.Namespace) -> object:
    """What `--steps-file` has. ConfigError where it is none."""
    where = f"--steps-file {args.steps_file!r}"
    text = read_text("--steps-file", args.steps_file, tables.FILE_BYTES_MAX, allow_pipe=True)
    document = toml_of(text, where)
    check_keys(where, document, {"steps": Kind("a list of tables", lambda value: isinstance(value, list))})
    told = tables.with_tables(document.get("steps", []), where, read_text)
    parsing.steps_of(parsing.as_text(told, where), where)
    return told


async def _link(connection: Connection, args: argparse.Namespace, *, steps: object) -> None:
    if args.action == "list":
        links = await connection.admin.links()
        if args.json:
            print_json(links)
        elif links:
            say(*table(COLUMNS, [[plain(row.get(key)) for key in COLUMNS] for row in links]))
        else:
            say("no links", file=sys.stderr)
        return
    arguments: dict[str, object] = {}
    if args.action == "create":
        mode = "copy" if args.copy else "move"
        arguments = {"from": args.source, "to": args.target, "selector": args.selector, "mode": mode}
        if args.steps_file is not None:
            arguments["steps"] = steps
        if args.start != FIRST:  # nodes of an earlier version do not know the key
            arguments["start"] = args.start if isinstance(args.start, str) else Ulong(args.start)
    answer = await connection.manage(args.action.upper(), LINK, args.name, arguments)
    if args.json:
        print_json(answer or {"deleted": args.name})
    elif args.action == "create":
        is_new = answer.get("created")
        say(f"{args.name} created" if is_new else f"{args.name} is there already, with these settings")
    else:
        say(f"{args.name} {DONE[args.action]}")
