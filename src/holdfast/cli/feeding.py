"""The verb `feed`.

Rules of this file: as those of the package.
"""

import argparse
from typing import Final

from holdfast.cli.arguments import (
    BYTES,
    POSITIVE_S,
    RATE,
    Verbs,
    add_client_options,
    add_verb,
    host_and_port,
    message_arguments,
    number_of,
    some_path,
    some_text,
)

LINE_BYTES: Final = number_of(1, 16 * 1024 * 1024, "a number of bytes")
CONNECTIONS: Final = number_of(1, 10_000, "a number of connections")
RETRY_S: Final = 86_400.0


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    parser = add_verb(
        verbs,
        "feed",
        "sends the lines of devices, each once: from TCP connections, a serial line or the files of a folder",
        "holdfast feed readings --producer mill-1 --journal ./mill-1.feed --listen 127.0.0.1:7000 --format json\n"
        "holdfast feed readings --producer mill-2 --journal ./mill-2.feed --folder ./out --pattern '*.csv*'"
        " --format csv\n"
        "holdfast feed readings --producer scale --journal ./scale.feed --serial /dev/ttyUSB0 --baud 9600",
    )
    parser.add_argument("address", type=some_text, metavar="ADDRESS", help="queue, or queue@node")
    parser.add_argument(
        "--producer",
        type=some_text,
        required=True,
        metavar="NAME",
        help="the producer name, which no other sender uses: lines are numbered under it, so that none is stored twice",
    )
    parser.add_argument(
        "--journal",
        type=some_path,
        required=True,
        metavar="DIR",
        help="the directory in which lines are kept until the node has them; created if needed",
    )
    parser.add_argument(
        "--listen",
        type=host_and_port,
        metavar="HOST:PORT",
        help="take lines from TCP connections to this address; port 0 chooses a free port",
    )
    parser.add_argument("--serial", type=some_path, metavar="DEVICE", help="take lines from this serial line")
    parser.add_argument(
        "--baud", type=number_of(50, 4_000_000, "bits a second"), default=9600, metavar="N",
        help="the speed of the serial line (default %(default)s), with 8 data bits, no parity and 1 stop bit",
    )  # fmt: skip
    parser.add_argument("--folder", type=some_path, metavar="DIR", help="take lines from the files in this directory")
    parser.add_argument(
        "--pattern",
        type=some_text,
        default="*",
        metavar="GLOB",
        help="which names of files are read, rotated ones too (default: all that do not begin with a dot)",
    )
    parser.add_argument(
        "--poll",
        type=POSITIVE_S,
        default=0.5,
        metavar="S",
        help="how often the folder is looked at, in seconds (default %(default)g)",
    )
    parser.add_argument(
        "--once", action="store_true", help="end when the node has all lines that are in the folder's files"
    )
    parser.add_argument(
        "--format",
        choices=("lines", "csv", "json"),
        default="lines",
        help="what a line is: text (default), a row of CSV, a value of JSON",
    )
    parser.add_argument(
        "--columns",
        type=_columns,
        metavar="A,B,…",
        help="with --format csv: the names of the columns; without it the first line of each file and connection is "
        "the header",
    )
    message_arguments(parser)
    parser.add_argument(
        "--backlog-bytes-max",
        type=BYTES,
        default=64 * 1024 * 1024,
        metavar="BYTES",
        help="when so many bytes wait for the node nothing more is read (default %(default)s)",
    )
    parser.add_argument(
        "--line-bytes-max",
        type=LINE_BYTES,
        default=64 * 1024,
        metavar="BYTES",
        help="the longest line (default %(default)s); a longer one is left out, and ends its connection",
    )
    parser.add_argument(
        "--connections-max", type=CONNECTIONS, default=100, metavar="N",
        help="most TCP connections at once (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--rate",
        type=RATE,
        metavar="PER_SECOND",
        help="read at most this many lines a second of each TCP connection (default: no limit)",
    )
    parser.add_argument(
        "--silence-timeout",
        type=POSITIVE_S,
        default=600.0,
        metavar="S",
        help="close a TCP connection on which nothing came for S seconds (default %(default)g)",
    )
    add_client_options(parser, retry_s=RETRY_S)
    parser.set_defaults(run=_run, check=_check)


def _columns(text: str) -> list[str]:
    names = text.split(",")
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected names with commas between, each once")
    return names


def _check(args: argparse.Namespace) -> str | None:
    if args.listen is None and args.serial is None and args.folder is None:
        return "no source; give --listen, --serial or --folder"
    if args.columns is not None and args.format != "csv":
        return "--columns needs --format csv; add it"
    if args.serial is not None and args.format == "csv" and args.columns is None:
        return "--serial with --format csv needs --columns; a serial line has no first line"
    if args.once and (args.folder is None or args.listen is not None or args.serial is not None):
        return "--once needs --folder, and no other source"
    if args.subject is not None and args.subject_from is not None:
        return "--subject and --subject-from exclude each other; give one of them"
    if args.subject_from is not None and args.format == "lines":
        return "--subject-from needs --format csv or json; give one of these"
    if args.columns is not None and args.subject_from is not None and args.subject_from not in args.columns:
        return f"invalid value {args.subject_from!r} for --subject-from; expected one of --columns"
    return None


def _run(args: argparse.Namespace) -> int:
    from holdfast.client.feed.feeding import feed

    return feed(args)
