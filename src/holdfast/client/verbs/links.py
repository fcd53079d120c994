"""`holdfast link`: requests about links between queues to the node's `$management`.

Rules of this file: as of `manage.py`.
"""

import argparse
import sys
from functools import partial

from holdfast.client.connection import Connection
from holdfast.client.verbs.manage import asked, pages, print_json
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import run
from holdfast.columns import table
from holdfast.lines import say

COLUMNS = ("name", "mode", "from", "to", "selector", "state", "moved_total", "dead_lettered_total")


def link(args: argparse.Namespace) -> int:
    """`holdfast link ACTION`."""
    return run(partial(asked, args, _link))


async def _link(connection: Connection, args: argparse.Namespace) -> None:
    if args.action == "list":
        links = await pages(connection, "link", "name", {})
        if args.json:
            print_json(links)
        elif links:
            say(*table(COLUMNS, [[plain(row.get(key)) for key in COLUMNS] for row in links]))
        else:
            say("no links", file=sys.stderr)
        return
    arguments = {}
    if args.action == "create":
        mode = "copy" if args.copy else "move"
        arguments = {"from": args.source, "to": args.target, "selector": args.selector, "mode": mode}
    answer = await connection.manage(args.action.upper(), "holdfast:link", args.name, arguments)
    if args.json:
        print_json(answer)
    elif args.action == "create":
        is_new = answer.get("created")
        say(f"{args.name} created" if is_new else f"{args.name} is there already, with these settings")
    else:
        say(f"{args.name} deleted")
