"""The verb `send`.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import (
    COUNT,
    POSITIVE_S,
    RATE,
    SIZE,
    TTL_S,
    Verbs,
    add_client_options,
    add_verb,
    message_arguments,
    some_path,
    some_text,
)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "send",
        "sends a message for each line, row or JSON line of a file, or generated ones",
        "holdfast send flights flights.csv --format csv --subject-from origin --url amqp://127.0.0.1:5672\n"
        "holdfast send flights --count 100000 --size 1024\n"
        "holdfast send pictures --file ./map.tiff --producer jfk",
    )
    parser.add_argument("address", type=some_text, metavar="ADDRESS", help="queue, or queue@node")
    parser.add_argument(
        "file", nargs="?", type=some_path, metavar="FILE", help="the file to send (default: standard input, also -)"
    )
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        default=[],
        type=some_path,
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
    parser.add_argument("--rate", type=RATE, metavar="PER_SECOND", help="send at most this many messages a second")
    message_arguments(parser)
    parser.add_argument(
        "--delay", type=TTL_S, metavar="S", help="the node delivers each message S seconds after it took it"
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
        type=POSITIVE_S,
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


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_send(args: argparse.Namespace) -> int:
    if args.files:
        from holdfast.client.verbs.files import send_files

        return send_files(args)
    from holdfast.client.verbs.send import send

    return send(args)
