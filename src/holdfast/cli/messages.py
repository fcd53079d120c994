"""The verbs that speak to a node: send, receive, status, where, subscription.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    COUNT,
    SEQUENCE,
    SIZE,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    message_arguments,
    messages_a_second,
    number_of,
    or_none,
    positive_seconds,
    some_text,
    time_to_live,
)

RECEIVE_TAKES: Final = """\
Without --count it takes every message, and waits for more. `| head -1` does not take one
message: all that head reads is off the queue, which may be everything. Use --count 1,
or --browse --count 1 to look at one and leave it there."""
SUBSCRIPTION_COLUMNS: Final = """\
columns:
  mode         copy: reads the queue beside others; take: has the queue for itself
  advanced     sequence number below which it has finished everything
  head         the lowest that it has still to finish
  tail         the one that the queue's next message gets: head = tail means that all is read
  lease_epoch  grows each time a reader by sequence opens it; only the latest may read"""


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_send(verbs)
    _add_receive(verbs)
    _add_status(verbs)
    _add_where(verbs)
    _add_subscription(verbs)


def _add_send(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "send",
        "sends a message for each line, row or JSON line of a file, or generated ones",
        "holdfast send flights flights.csv --format csv --subject-from origin --url amqp://127.0.0.1:5672\n"
        "holdfast send flights --count 100000 --size 1024\n"
        "holdfast send pictures --file ./map.tiff --producer jfk",
    )
    parser.add_argument("address", type=some_text, metavar="ADDRESS", help="queue, or queue@node")
    parser.add_argument("file", nargs="?", metavar="FILE", help="the file to send (default: standard input, also -)")
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="PATH",
        help="send this file as one message of any size; may be repeated",
    )
    parser.add_argument(
        "--format",
        choices=("lines", "csv", "json"),
        default="lines",
        help="one message for each line (default), CSV row or JSON line",
    )
    parser.add_argument("--count", type=COUNT, metavar="N", help="send N generated messages instead of a file")
    parser.add_argument(
        "--size", type=SIZE, metavar="BYTES", help="bytes in the body of each generated message (default 1024)"
    )
    parser.add_argument(
        "--rate", type=messages_a_second, metavar="PER_SECOND", help="send at most this many messages a second"
    )
    message_arguments(parser)
    parser.add_argument(
        "--delay", type=time_to_live, metavar="S", help="the node delivers each message S seconds after it took it"
    )
    parser.add_argument(
        "--producer",
        type=some_text,
        metavar="NAME",
        help="the producer name: messages are numbered under it, so that none is stored twice if a connection breaks",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="with --producer: the position in FILE is the number, so that what an earlier run with the same "
        "FILE stored is not stored again",
    )
    parser.add_argument(
        "--stall-timeout",
        type=positive_seconds,
        metavar="S",
        help="give up if the node is connected but accepts nothing for S seconds, as when the queue is full "
        "(default: wait for ever; --retry does not limit this)",
    )
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_send, check=_check_send)


def _check_send(args: argparse.Namespace) -> str | None:
    if args.address == "$management":
        return "$management takes requests, not messages; give a queue, or use `holdfast queue` and the like"
    if args.files:
        taken = {
            "FILE": args.file is not None,
            "--count": args.count is not None,
            "--format": args.format != "lines",
            "--rate": args.rate is not None,
            "--subject-from": args.subject_from is not None,
        }
        for option, is_given in taken.items():
            if is_given:
                return f"{option} and --file exclude each other; give one of them"
    if args.count is not None and args.file is not None:
        return "FILE and --count exclude each other; give one of them"
    if args.size is not None and args.count is None:
        return "--size needs --count; add it"
    if args.count is not None and args.format != "lines":
        return "--format and --count exclude each other; give one of them"
    if args.subject is not None and args.subject_from is not None:
        return "--subject and --subject-from exclude each other; give one of them"
    if args.subject_from is not None and args.format == "lines":
        return "--subject-from needs --format csv or json; give one of these"
    if args.resume and args.producer is None:
        return "--resume needs --producer; add it"
    return None


def _add_receive(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "receive",
        "prints the bodies of messages, and takes the messages off the queue",
        "holdfast receive flights --url amqp://127.0.0.1:5672 --count 10 --json\n"
        "holdfast receive flights --browse --from-sequence 1 --idle-timeout 1\n"
        "holdfast receive flights --browse --selector cancelled --idle-timeout 1\n"
        "holdfast receive pictures --to ./pictures --count 1",
    )
    parser.description = f"{parser.description}\n\n{RECEIVE_TAKES}"
    parser.add_argument("address", type=some_text, metavar="ADDRESS", help="the queue")
    parser.add_argument("--count", type=COUNT, metavar="N", help="end after N messages")
    parser.add_argument(
        "--idle-timeout",
        type=positive_seconds,
        metavar="S",
        help="end when no message arrives for S seconds; with --count and fewer messages the exit code is 1",
    )
    parser.add_argument("--browse", action="store_true", help="only look: the messages stay in the queue")
    parser.add_argument(
        "--from-sequence",
        type=SEQUENCE,
        metavar="N",
        help="start at this sequence number and only look: the messages stay in the queue",
    )
    parser.add_argument(
        "--subscription",
        type=some_text,
        metavar="NAME",
        help="read through this durable subscription, which has its own cursor; a new one starts at the next message, "
        "after those that are in the queue now",
    )
    parser.add_argument(
        "--selector",
        type=some_text,
        metavar="EXPRESSION",
        help='only messages for which this is true, such as "delay > 30 AND JMSPriority >= 7"',
    )
    parser.add_argument(
        "--confirm",
        type=positive_seconds,
        metavar="S",
        help="of a topic: wait up to S seconds until the other nodes know what is wanted here, and tell which do",
    )
    parser.add_argument(
        "--to",
        metavar="DIRECTORY",
        help="write each body, of any size, to a file SEQUENCE-NAME in this directory, and print its path",
    )
    add_json_option(
        parser, "print the whole message as one JSON line; with --to, without the body and with the file's path"
    )
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_receive, check=_check_receive)


def _check_receive(args: argparse.Namespace) -> str | None:
    if args.subscription is not None and (args.browse or args.from_sequence is not None):
        return "--subscription excludes --browse and --from-sequence; remove them"
    if args.confirm is not None and (args.browse or args.from_sequence is not None or args.to is not None):
        return "--confirm excludes --browse, --from-sequence and --to; remove them"
    return None


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
    parser.add_argument("message_id", metavar="MESSAGE-ID", help="the message-id that the sender set")
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


def _add_subscription(verbs: "Verbs[argparse.ArgumentParser]") -> None:
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
                "--messages-max", type=or_none(COUNT), metavar="N",
                help="the maximum number of messages that it has not finished; none takes the limit away",
            )  # fmt: skip
            parser.add_argument(
                "--bytes-max", type=or_none(COUNT), metavar="BYTES",
                help="their maximum size together; none takes the limit away",
            )  # fmt: skip
            parser.add_argument(
                "--when-full", choices=("drop-oldest", "dead-letter", "end"),
                help="at these limits, drop its oldest messages (drop-oldest), make dead letters of them (dead-letter) "
                "or delete the subscription (end)",
            )  # fmt: skip
            parser.add_argument(
                "--idle", type=or_none(COUNT), metavar="S",
                help="delete it once it has had no link for so many seconds; none takes the limit away",
            )  # fmt: skip
        parser.add_argument("--queue", metavar="QUEUE", help=which)
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_subscription)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_send(args: argparse.Namespace) -> int:
    if args.files:
        from holdfast.client.verbs.files import send_files

        return send_files(args)
    from holdfast.client.verbs.send import send

    return send(args)


def _run_receive(args: argparse.Namespace) -> int:
    if args.to is not None:
        from holdfast.client.verbs.files import receive_files

        return receive_files(args)
    from holdfast.client.verbs.receive import receive

    return receive(args)


def _run_status(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import status

    return status(args)


def _run_where(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.where import where

    return where(args)


def _run_subscription(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import subscription

    return subscription(args)
