"""The verbs that ask a node: status, where.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import (
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    number_of,
    some,
)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_status(verbs)
    _add_where(verbs)


def _add_status(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "status",
        "shows a node's warnings, queues, users, sessions, routes and memory",
        "holdfast status --url amqp://127.0.0.1:5672 --json",
    )
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_status)


def _add_where(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "where",
        "shows where a message is: which node has it, its path so far, what it waits for",
        "holdfast where order-17 --url amqp://127.0.0.1:5672\nholdfast where 0x00ff --type binary --json",
    )
    parser.add_argument(
        "message_id", type=some("a message-id"), metavar="MESSAGE-ID", help="the message-id that the sender set"
    )
    parser.add_argument(
        "--type",
        choices=("text", "ulong", "uuid", "binary"),
        dest="kind",
        help="the AMQP type of the message-id (default: any that fits; binary is 0x and hexadecimal digits)",
    )
    parser.add_argument(
        "--limit",
        type=number_of(0.1, 60, "seconds", float),
        default=5.0,
        metavar="S",
        help="how long the nodes may search, in seconds (default %(default)g)",
    )
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_where)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_status(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import status

    return status(args)


def _run_where(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.where import where

    return where(args)
