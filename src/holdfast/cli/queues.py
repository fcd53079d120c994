"""The verb `queue`.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    BYTES,
    COUNT,
    PART,
    QUIET_S,
    YEAR_S,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    or_none,
    some_text,
    uuid_text,
)

BYTES_MAX_HELP: Final = (
    "most bytes of its messages together, their sections included (annotations, properties, body); an empty queue "
    "takes one message of any size"
)
WHEN_FULL: Final = ("block", "refuse", "drop-oldest", "dead-letter")
ORDERS: Final = ("strict", "bounded", "none")


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
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
                choices=WHEN_FULL,
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
                    help=f"how much of the limits clients' messages of priority {which} may fill, above 0 and "
                    "up to 1 (default: 1, all)",
                )  # fmt: skip
            parser.add_argument(
                "--room-quiet", type=QUIET_S, metavar="S",
                help="without a higher priority for so many seconds they may fill all (default: 600)",
            )  # fmt: skip
        if name == "create":
            parser.add_argument(
                "--order",
                choices=ORDERS,
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


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_queue(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import queue

    return queue(args)
