"""The verb `connection`: who is connected to a node.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import Verbs, add_client_options, add_json_option, add_verb

DIGITS_MAX: Final = 19
"""Of a number in an identity."""


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "connection",
        "lists connections of clients and neighbours, their sessions and links, and closes them",
        "holdfast connection list\nholdfast connection close 17",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists the connections: user, address, container, sessions and links", "holdfast connection list"),
        ("sessions", "lists the sessions of all connections, or of one", "holdfast connection sessions 17 --json"),
        ("links", "lists the links that peers have attached, with address and credit", "holdfast connection links 17"),
        (
            "close",
            "closes a connection, or one session or link of it; clients of Holdfast connect, or attach, again",
            "holdfast connection close 17\nholdfast connection close 17/0/2",
        ),
    ):
        parser = add_verb(actions, name, does, example)
        if name in ("sessions", "links"):
            parser.add_argument("connection", type=_number, nargs="?", metavar="NUMBER", help="of this connection only")
        elif name == "close":
            parser.add_argument(
                "identity", type=_identity, metavar="NUMBER[/CHANNEL[/HANDLE]]",
                help="which: the identity, as `list`, `sessions` and `links` print it first",
            )  # fmt: skip
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_connection)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def _number(text: str) -> str:
    if not _is_number(text):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected the number of a connection, such as 17")
    return str(int(text))


def _identity(text: str) -> str:
    parts = text.split("/", 3)
    if len(parts) > 3 or not all(map(_is_number, parts)):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected an identity, such as 17, 17/0 or 17/0/2")
    return "/".join(str(int(part)) for part in parts)


def _run_connection(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.connections import connection

    return connection(args)
