"""The verbs about single messages of a queue: messages, dead-letters.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    COUNT,
    SEQUENCE,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    some,
    some_path,
    some_text,
)

DEAD_LETTERS: Final = "$dead-letters"
"""As in holdfast.names, which is imported only when a verb runs."""
ROWS_DEFAULT: Final = 50
EXPORTS: Final = (
    "writes messages as lines of JSON, which `holdfast send --format json` sends again, and leaves them there"
)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_messages(verbs)
    _add_dead_letters(verbs)


def _add_messages(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "messages",
        "lists, shows, exports, moves, copies and deletes single messages of a queue",
        "holdfast messages list flights\nholdfast messages move flights 17 --to late-flights",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists messages of a queue, and leaves them there", "holdfast messages list flights --after 100"),
        ("show", "shows one message, and leaves it there", "holdfast messages show flights 17"),
        (
            "export",
            EXPORTS,
            "holdfast messages export flights flights.ndjson --selector cancelled\n"
            "holdfast send flights@hub flights.ndjson --format json",
        ),
        (
            "delete",
            "deletes messages that no consumer holds",
            "holdfast messages delete flights 17 18\nholdfast messages delete flights --selector 'delay > 30'",
        ),
        (
            "move",
            "moves messages that no consumer holds to another queue, here or at another node",
            "holdfast messages move flights 17 --to late-flights",
        ),
        ("copy", "copies messages to another queue", "holdfast messages copy flights 17 --to flights@hub"),
    ):
        parser = add_verb(actions, name, does, example)
        parser.add_argument("queue", type=some_text, metavar="QUEUE", help="the queue's name")
        if name in ("move", "copy"):
            parser.add_argument("--to", type=some_text, required=True, metavar="ADDRESS", help="queue, or queue@node")
        _add_action(parser, name)


def _add_dead_letters(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "dead-letters",
        "lists, shows, exports, requeues and deletes a node's dead letters",
        "holdfast dead-letters list\nholdfast dead-letters requeue 3",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists dead letters: where each came from, and why", "holdfast dead-letters list --json"),
        ("show", "shows one dead letter", "holdfast dead-letters show 3"),
        ("export", EXPORTS, "holdfast dead-letters export dead.ndjson"),
        (
            "requeue",
            "puts dead letters back into the queues that they came from",
            "holdfast dead-letters requeue 3 4\nholdfast dead-letters requeue --selector \"JMSType = 'order'\"",
        ),
        ("delete", "deletes dead letters", "holdfast dead-letters delete 3"),
    ):
        parser = add_verb(actions, name, does, example)
        parser.set_defaults(queue=DEAD_LETTERS)
        _add_action(parser, name)


def _add_action(parser: argparse.ArgumentParser, name: str) -> None:
    if name == "list":
        _add_choice(parser, "only messages for which this is true", ROWS_DEFAULT)
    elif name == "export":
        parser.add_argument(
            "file",
            nargs="?",
            type=some_path,
            metavar="FILE",
            help="the file to write or to replace (default, or -: standard output)",
        )
        _add_choice(parser, "only messages for which this is true")
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_export)
        return
    elif name == "show":
        parser.add_argument("sequence", type=SEQUENCE, metavar="SEQUENCE", help="the message's sequence number")
    else:
        parser.add_argument("sequences", type=SEQUENCE, nargs="*", metavar="SEQUENCE", help="sequence numbers")
        _add_choice(parser, "instead of sequence numbers: all messages that are there now and for which this is true")
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_entries)


def _add_choice(parser: argparse.ArgumentParser, selector: str, count: int | None = None) -> None:
    """`count`: the default of the option, None for no bound."""
    parser.add_argument(
        "--selector", type=some("a selector"), metavar="EXPRESSION",
        help=f'{selector}, such as "delay > 30 AND JMSPriority >= 7"',
    )  # fmt: skip
    parser.add_argument("--after", type=SEQUENCE, metavar="SEQUENCE", help="begin behind this sequence number")
    most = "default: all that are there" if count is None else f"default {count}"
    parser.add_argument("--count", type=COUNT, default=count, metavar="N", help=f"at most N messages ({most})")


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_export(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.export import export

    return export(args)


def _run_entries(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.entries import entries

    return entries(args)
