"""`holdfast service`: requests about names of services to the node's `$management`.

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
from holdfast.entity_types import SERVICE
from holdfast.lines import say

COLUMNS = ("name", "address")


def service(args: argparse.Namespace) -> int:
    """`holdfast service ACTION`."""
    return run(partial(asked, args, _service))


async def _service(connection: Connection, args: argparse.Namespace) -> None:
    if args.action == "list":
        services = await connection.admin.services()
        if args.json:
            print_json(services)
        elif services:
            say(*table(COLUMNS, [[plain(row.get(key)) for key in COLUMNS] for row in services]))
        else:
            say("no services", file=sys.stderr)
        return
    if args.action == "register":
        answer = await connection.admin.register_service(args.name, args.address, replace=args.replace)
    else:
        answer = await connection.manage("READ" if args.action == "find" else "DELETE", SERVICE, args.name)
    if args.json:
        print_json(answer or {"removed": args.name})
    elif args.action == "find":
        say(plain(answer["address"]))
    elif args.action == "register":
        is_new = answer.get("created") or answer.get("changed")
        say(f"{args.name} registered" if is_new else f"{args.name} is registered already, for this address")
    else:
        say(f"{args.name} removed")
