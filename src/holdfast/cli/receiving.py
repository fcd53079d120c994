"""The verb `receive`.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    COUNT,
    POSITIVE_S,
    SEQUENCE,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    some,
    some_path,
    some_text,
)

RECEIVE_TAKES: Final = """\
Without --count it takes every message, and waits for more. `| head -1` does not take one
message: all that head reads is off the queue, which may be everything. Use --count 1,
or --browse --count 1 to look at one and leave it there."""


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
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
        type=POSITIVE_S,
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
        "after those that are in the queue now. Of a topic: with another pattern or --selector than before it is "
        "another subscription, and what waited for the old one is dropped. Of a queue: what --selector leaves out is "
        "passed for good",
    )
    parser.add_argument(
        "--selector",
        type=some("a selector"),
        metavar="EXPRESSION",
        help='only messages for which this is true, such as "delay > 30 AND JMSPriority >= 7"',
    )
    parser.add_argument(
        "--confirm",
        type=POSITIVE_S,
        metavar="S",
        help="of a topic: wait up to S seconds until the other nodes know what is wanted here, and tell which do",
    )
    parser.add_argument(
        "--to",
        type=some_path,
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


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_receive(args: argparse.Namespace) -> int:
    if args.to is not None:
        from holdfast.client.verbs.files import receive_files

        return receive_files(args)
    from holdfast.client.verbs.receive import receive

    return receive(args)
