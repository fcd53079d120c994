"""`holdfast reload`: makes a node reload its configuration.

Rules of this file: as of `manage.py`.
"""

import argparse
import sys
from functools import partial

from holdfast.client.connection import Connection
from holdfast.client.verbs.manage import asked, print_json
from holdfast.client.verbs.running import run
from holdfast.lines import say


def reload(args: argparse.Namespace) -> int:
    """`holdfast reload`."""
    return run(partial(asked, args, _reload))


async def _reload(connection: Connection, args: argparse.Namespace) -> None:
    answer = await connection.admin.reload()
    if args.json:
        print_json(answer)
        return
    say(*map(str, answer["changed"]))
    if not answer["changed"]:
        say("nothing has changed", file=sys.stderr)
    for text in answer["restart"]:
        say(f"from the next start on: {text}", file=sys.stderr)
