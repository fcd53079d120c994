"""The verbs about queues and single messages of a queue: queue, messages, dead-letters.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    BYTES,
    COUNT,
    PART,
    SEQUENCE,
    YEAR_S,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    or_none,
    some_text,
    uuid_text,
)
from holdfast.names import DEAD_LETTERS

BYTES_MAX_HELP: Final = (
    "most bytes of its messages together, their sections included (annotations, properties, body); an empty queue "
    "takes one message of any size"
)
ROWS_DEFAULT: Final = 50
EXPORTS: Final = (
    "writes messages as lines of JSON, which `holdfast send --format json` sends again, and leaves them there"
)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_queue(verbs)
    _add_messages(verbs)
    _add_dead_letters(verbs)


def _add_queue(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "queue",
        "lists, creates, changes, deletes and purges queues",
        "holdfast queue create flights --messages-max 100000\nholdfast queue list --json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists the queues", "holdfast queue list"),
        (
            "create",
            "creates a queue, durable unless --memory is given",
            "holdfast queue create flights --bytes-max 1000000 --when-full refuse",
        ),
        (
            "delete",
            "deletes a queue and all that is in it; of @NODE, a node that left, the messages become dead letters",
            "holdfast queue delete flights\nholdfast queue delete @jfk",
        ),
        (
            "update",
            "changes the limits of a queue while it is in use; a queue above its new limit keeps its messages, and "
            "accepts none until it is below",
            "holdfast queue update flights --messages-max 200000\nholdfast queue update flights --bytes-max none",
        ),
        ("purge", "deletes the messages of a queue that no consumer holds", "holdfast queue purge flights"),
        (
            "skip",
            "gives up missing messages from other nodes that a queue waits for, and counts them as lost",
            "holdfast queue skip flights",
        ),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("name", type=some_text, metavar="QUEUE", help="the queue's name")
        if name == "delete":
            parser.add_argument(
                "--tombstones", action="store_true",
                help="for @NODE: also delete tombstones; a strict queue at NODE would wait for them if NODE came back",
            )  # fmt: skip
        if name in ("create", "update"):
            none = "" if name == "create" else "; none takes the limit away"
            size, count = (BYTES, COUNT) if name == "create" else (or_none(BYTES), or_none(COUNT))
            parser.add_argument("--bytes-max", type=size, metavar="BYTES", help=BYTES_MAX_HELP + none)
            parser.add_argument("--messages-max", type=count, metavar="N", help=f"the maximum number of messages{none}")
            parser.add_argument(
                "--when-full",
                choices=("block", "refuse", "drop-oldest", "dead-letter"),
                help="at a limit, give producers no credit (block, the default), reject their messages (refuse), "
                "delete the oldest ones (drop-oldest), or make theirs dead letters (dead-letter)",
            )
            parser.add_argument(
                "--deliveries-max", type=count, metavar="N",
                help=f"how often a message's delivery may fail before it is a dead letter (default: no limit){none}",
            )  # fmt: skip
            for option, which in (("--room-low", "0 to 3"), ("--room-normal", "4")):
                parser.add_argument(
                    option, type=PART, metavar="PART",
                    help=f"how much of the limits clients' messages of priority {which} may fill, from 0 to 1 "
                    "(default: 1, all)",
                )  # fmt: skip
            parser.add_argument(
                "--room-quiet", type=YEAR_S, metavar="S",
                help="without a higher priority for so many seconds they may fill all (default: 600)",
            )  # fmt: skip
        if name == "create":
            parser.add_argument(
                "--order",
                choices=("strict", "bounded", "none"),
                help="if a message from another node arrives before an earlier one: wait for that (strict), wait "
                "--order-wait seconds (bounded, the default), or do not wait (none)",
            )
            parser.add_argument(
                "--order-wait", type=YEAR_S, metavar="S", help="how long --order bounded waits, in seconds (default 30)"
            )
            parser.add_argument(
                "--priorities",
                action="store_true",
                help="hand consumers the highest priority first (0 to 9; higher ones count as 9); within one priority, "
                "and without this option, in the order of arrival",
            )
            parser.add_argument(
                "--memory",
                action="store_true",
                help="keep its messages in memory only: they are lost when the node ends",
            )
        if name == "skip":
            parser.add_argument(
                "--origin",
                type=uuid_text,
                metavar="UUID",
                help="only messages of this origin, the UUID of a store (default: of all origins)",
            )
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_queue)


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
        parser.add_argument("--after", type=SEQUENCE, metavar="SEQUENCE", help="begin behind this sequence number")
        parser.add_argument(
            "--count", type=COUNT, default=ROWS_DEFAULT, metavar="N", help=f"at most N rows (default {ROWS_DEFAULT})"
        )
    elif name == "export":
        parser.add_argument("file", nargs="?", metavar="FILE", help="the file to write (default: standard output)")
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


def _add_choice(parser: argparse.ArgumentParser, selector: str) -> None:
    parser.add_argument(
        "--selector", type=some_text, metavar="EXPRESSION",
        help=f'{selector}, such as "delay > 30 AND JMSPriority >= 7"',
    )  # fmt: skip
    parser.add_argument("--after", type=SEQUENCE, metavar="SEQUENCE", help="begin behind this sequence number")
    parser.add_argument("--count", type=COUNT, metavar="N", help="at most N messages (default: all that are there)")


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_queue(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import queue

    return queue(args)


def _run_export(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.export import export

    return export(args)


def _run_entries(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.entries import entries

    return entries(args)
