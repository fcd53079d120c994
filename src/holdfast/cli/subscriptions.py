"""The verb `subscription`.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    number_of,
    or_none,
    some_text,
)

BOUNDS: Final = {  # as MOST of holdfast/broker/stored/bounds.py
    "messages_max": or_none(number_of(1, 8_192, "a number of messages")),
    "bytes_max": or_none(number_of(1, 1 << 50, "a number of bytes")),
    "idle": or_none(number_of(1, 366 * 86_400, "a number of seconds")),
}
SUBSCRIPTION_COLUMNS: Final = """\
columns:
  mode         copy: reads the queue beside others; take: has the queue for itself
  advanced     sequence number below which it has finished everything
  head         the lowest that it has still to finish
  tail         the one that the queue's next message gets: head = tail means that all is read
  lease_epoch  grows each time a reader by sequence opens it; only the latest may read"""


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "subscription",
        "lists, bounds and deletes durable subscriptions",
        "holdfast subscription list --queue flights",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        (
            "list",
            "lists durable subscriptions: the queue of each, and the sequence numbers that show how far it has read",
            "holdfast subscription list --queue flights",
        ),
        (
            "update",
            "changes the bounds of a topic's durable subscription while it is in use",
            "holdfast subscription update audit --messages-max 1000 --when-full drop-oldest",
        ),
        (
            "delete",
            "deletes a durable subscription; messages that the queue kept only for it are deleted",
            "holdfast subscription delete audit",
        ),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("name", type=some_text, metavar="NAME", help="the subscription's name")
            which = "the queue that it reads; needed if several queues have a subscription of that name"
        else:
            parser.description = f"{parser.description}\n\n{SUBSCRIPTION_COLUMNS}"
            which = "only subscriptions of this queue (default: of all queues)"
        if name == "update":
            parser.add_argument(
                "--messages-max", type=BOUNDS["messages_max"], metavar="N",
                help="the maximum number of messages that it has not finished; none takes the limit away",
            )  # fmt: skip
            parser.add_argument(
                "--bytes-max", type=BOUNDS["bytes_max"], metavar="BYTES",
                help="their maximum size together; none takes the limit away",
            )  # fmt: skip
            parser.add_argument(
                "--when-full", choices=("drop-oldest", "dead-letter", "end"),
                help="at these limits, drop its oldest messages (drop-oldest), make dead letters of them (dead-letter) "
                "or delete the subscription (end)",
            )  # fmt: skip
            parser.add_argument(
                "--idle", type=BOUNDS["idle"], metavar="S",
                help="delete it once it has had no link for so many seconds; none takes the limit away",
            )  # fmt: skip
        parser.add_argument("--queue", metavar="QUEUE", help=which)
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_subscription)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_subscription(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import subscription

    return subscription(args)
