"""`holdfast connection`: requests about the peers of a node to its `$management`.

Rules of this file: as of `manage.py`.
"""

import argparse
import sys
from functools import partial

from holdfast.client.connection import Connection
from holdfast.client.errors import ManagementError
from holdfast.client.verbs.manage import asked, print_json
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.running import run
from holdfast.columns import table
from holdfast.lines import say

COLUMNS = {
    "list": ("identity", "kind", "user", "address", "container_id", "tls", "links", "paused"),
    "sessions": ("identity", "links"),
    "links": ("identity", "direction", "address", "credit", "name"),
}


def connection(args: argparse.Namespace) -> int:
    """`holdfast connection ACTION`."""
    return run(partial(asked, args, _connection))


async def _connection(connection: Connection, args: argparse.Namespace) -> None:
    admin = connection.admin
    if args.action == "close":
        await admin.close_connection(args.identity)
        if args.json:
            print_json({"closed": args.identity})
        else:
            say(f"{args.identity} closed")
        return
    ask = {"list": admin.connections, "sessions": admin.sessions, "links": admin.attachments}[args.action]
    only = None if args.action == "list" else args.connection
    rows = [row for row in await ask() if only is None or row["connection"] == only]
    if only is not None and not rows and only not in [row["identity"] for row in await admin.connections()]:
        raise ManagementError(f"{args.action} of connection {only!r}", 404, f"no connection {only!r}")
    if args.json:
        print_json(rows)
    elif rows:
        columns = COLUMNS[args.action]
        say(*table(columns, [[plain(row.get(key)) for key in columns] for row in rows]))
    else:
        say("no connections" if only is None else f"no {args.action} of connection {only}", file=sys.stderr)
