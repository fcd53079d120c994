"""The command `holdfast`: parsing only, each verb is imported when it runs (docs/client.md).

Rules of this file: no verb's work is done here; what is not built has no option, so argparse refuses it. Exit
0 done, 1 failed (HoldfastError, one line), 2 usage or configuration (ConfigError, one line), 130 for Ctrl-C.
A verb's function takes the Namespace that its parser below fills, and returns the exit code.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from holdfast import __version__
from holdfast.arguments import (
    BYTES,
    COUNT,
    SECONDS,
    SEED,
    SEQUENCE,
    SIZE,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    host_and_port,
    key_and_value,
    messages_a_second,
    number_of,
    positive_seconds,
)
from holdfast.errors import ConfigError, HoldfastError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

# ------------------------------------------------------------------------------------------------------ verbs


def _add_node(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "node",
        "runs a node in the foreground",
        "holdfast node --name ewr --listen 127.0.0.1:5672 --data ./ewr.holdfast\nholdfast node ewr.toml",
    )
    parser.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG.toml",
        help="configuration; without one any address that a client names becomes a durable queue",
    )
    parser.add_argument("--name", metavar="N", help="the node's name (default: the host's)")
    parser.add_argument(
        "--listen", type=host_and_port, metavar="HOST:PORT", help="default 127.0.0.1:5672; port 0 picks one"
    )
    parser.add_argument("--data", metavar="DIR", help="where messages are stored (default ./NAME.holdfast)")
    # For the kill tests alone: ends the process at the COUNT-th passing of a named moment; counts passings.
    parser.add_argument("--crash-point", metavar="NAME:COUNT", help=argparse.SUPPRESS)
    parser.add_argument("--points-file", metavar="PATH", help=argparse.SUPPRESS)
    parser.set_defaults(run=_run_node)


def _add_send(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "send",
        "sends a message for each line, row or JSON line of a file, or generated ones",
        "holdfast send flights flights.csv --format csv --subject-from origin --url amqp://127.0.0.1:5672\n"
        "holdfast send flights --count 100000 --size 1024\n"
        "holdfast send pictures --file ./map.tiff --producer jfk",
    )
    parser.add_argument("address", metavar="ADDRESS", help="queue, or queue@node")
    parser.add_argument("file", nargs="?", metavar="FILE", help="what to send; standard input if - or left out")
    parser.add_argument(
        "--file",
        dest="files",
        action="append",
        default=[],
        metavar="PATH",
        help="send this file as one message, however large; may be repeated",
    )
    parser.add_argument(
        "--format",
        choices=("lines", "csv", "json"),
        default="lines",
        help="a message for each line (default), CSV row or JSON line",
    )
    parser.add_argument("--count", type=COUNT, metavar="N", help="send N generated messages instead of a file")
    parser.add_argument("--size", type=SIZE, metavar="BYTES", help="body of each generated message (default 1024)")
    parser.add_argument(
        "--rate", type=messages_a_second, metavar="PER_SECOND", help="at most this many messages a second"
    )
    parser.add_argument("--subject", metavar="S", help="subject of every message")
    parser.add_argument("--subject-from", metavar="COLUMN", help="take the subject from this column or JSON key")
    parser.add_argument(
        "--property",
        type=key_and_value,
        action="append",
        default=[],
        metavar="K=V",
        help="application property of every message; may be repeated",
    )
    parser.add_argument("--ttl", type=positive_seconds, metavar="S", help="messages expire after S seconds")
    parser.add_argument(
        "--priority", type=number_of(0, 255, "a priority"), metavar="P", help="0 to 255, 4 if not given"
    )
    parser.add_argument(
        "--producer",
        metavar="NAME",
        help="number the messages under this name, so that none is stored twice whatever breaks on the way",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="with --producer: the place in FILE is the number, so "
        "what an earlier run of the same FILE stored is skipped",
    )
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_send, check=_check_send)


def _check_send(args: argparse.Namespace) -> str | None:
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
                return f"{option} and --file: found both, accepted is one"
    if args.count is not None and args.file is not None:
        return "FILE and --count: found both, accepted is one"
    if args.size is not None and args.count is None:
        return "--size: found without --count, accepted is with it"
    if args.count is not None and args.format != "lines":
        return "--format and --count: found both, accepted is one"
    if args.subject is not None and args.subject_from is not None:
        return "--subject and --subject-from: found both, accepted is one"
    if args.subject_from is not None and args.format == "lines":
        return "--subject-from: found with --format lines, accepted is csv or json"
    if args.resume and args.producer is None:
        return "--resume: found without --producer, accepted is with it"
    return None


def _add_receive(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "receive",
        "prints the bodies of messages and takes them off the queue",
        "holdfast receive flights --url amqp://127.0.0.1:5672 --count 10 --json\n"
        "holdfast receive flights --browse --from-sequence 1 --idle-timeout 1\n"
        "holdfast receive pictures --to ./pictures --count 1",
    )
    parser.add_argument("address", metavar="ADDRESS", help="the queue")
    parser.add_argument("--count", type=COUNT, metavar="N", help="end after N messages")
    parser.add_argument(
        "--idle-timeout",
        type=positive_seconds,
        metavar="S",
        help="end when nothing came for S seconds; with --count that is a failure",
    )
    parser.add_argument("--browse", action="store_true", help="look only: the messages stay")
    parser.add_argument("--from-sequence", type=SEQUENCE, metavar="N", help="start at this sequence; only looks")
    parser.add_argument(
        "--subscription",
        metavar="NAME",
        help="read through this durable subscription, which has a cursor of its own",
    )
    parser.add_argument(
        "--to",
        metavar="DIRECTORY",
        help="write each body to a file SEQUENCE-NAME there, however large, and print its path",
    )
    add_json_option(parser, "the whole message as one JSON line; with --to all but the body, and the file")
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_receive, check=_check_receive)


def _check_receive(args: argparse.Namespace) -> str | None:
    if args.subscription is not None and (args.browse or args.from_sequence is not None):
        return "--subscription: found with --browse or --from-sequence, accepted is alone"
    return None


def _add_status(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "status",
        "shows a node's queues, links, sessions and memory",
        "holdfast status --url amqp://127.0.0.1:5672 --json",
    )
    add_json_option(parser)
    add_client_options(parser, retry_s=0.0)
    parser.set_defaults(run=_run_status)


def _add_queue(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "queue",
        "lists, makes, deletes and empties queues",
        "holdfast queue create flights --messages-max 100000\nholdfast queue list --json",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        ("list", "lists the queues", "holdfast queue list"),
        (
            "create",
            "makes a durable queue",
            "holdfast queue create flights --bytes-max 1000000 --when-full refuse",
        ),
        ("delete", "deletes a queue and all that is in it", "holdfast queue delete flights"),
        ("purge", "drops all that is in a queue", "holdfast queue purge flights"),
        (
            "skip",
            "gives up waiting for what is missing, and counts it as lost",
            "holdfast queue skip flights",
        ),
    ):
        parser = add_verb(actions, name, does, example)
        if name != "list":
            parser.add_argument("name", metavar="QUEUE")
        if name == "create":
            parser.add_argument("--bytes-max", type=BYTES, metavar="BYTES", help="bound of the bodies' bytes")
            parser.add_argument("--messages-max", type=COUNT, metavar="N", help="bound of the messages")
            parser.add_argument("--when-full", choices=("block", "refuse"), help="withhold credit (default) or reject")
            parser.add_argument(
                "--order",
                choices=("strict", "bounded", "none"),
                help="of what comes from other nodes (default bounded)",
            )
            parser.add_argument("--order-wait", type=SECONDS, metavar="S", help="how long bounded waits (default 30)")
            parser.add_argument("--memory", action="store_true", help="keep messages in memory alone")
        if name == "skip":
            parser.add_argument("--origin", metavar="UUID", help="of this origin alone (default: all)")
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_queue)


def _add_subscription(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs, "subscription", "lists and deletes subscriptions", "holdfast subscription list --queue flights"
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, does, example in (
        (
            "list",
            "lists subscriptions and how far each has read",
            "holdfast subscription list --queue flights",
        ),
        ("delete", "deletes a subscription; what it kept may leave", "holdfast subscription delete audit"),
    ):
        parser = add_verb(actions, name, does, example)
        if name == "delete":
            parser.add_argument("name", metavar="NAME")
        parser.add_argument("--queue", metavar="QUEUE", help="of this queue (default: wherever it is)")
        add_json_option(parser)
        add_client_options(parser, retry_s=0.0)
        parser.set_defaults(run=_run_subscription)


def _add_store(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "store",
        "checks, compacts, backs up and restores a node's store",
        "holdfast store backup /var/lib/holdfast /backup/monday\nholdfast store check /backup/monday",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "check",
        "reads everything in a stopped node's store, or in a backup, and says what is wrong",
        "holdfast store check /var/lib/holdfast --json",
    )
    parser.add_argument("data", metavar="DIR", help="the store's directory")
    _store_options(parser)
    parser = add_verb(
        actions,
        "compact",
        "writes a stopped node's store anew, so that the disk gets back what is free in it",
        "holdfast store compact /var/lib/holdfast",
    )
    parser.add_argument("data", metavar="DIR", help="the store's directory")
    _store_options(parser)
    parser = add_verb(
        actions,
        "backup",
        "copies a store as it is at this moment, while the node runs or not",
        "holdfast store backup /var/lib/holdfast /backup/monday",
    )
    parser.add_argument("data", metavar="DIR", help="the store's directory")
    parser.add_argument("to", metavar="TO", help="the backup: a directory that is not there yet")
    _store_options(parser)
    parser = add_verb(
        actions,
        "restore",
        "makes a store of a backup; it is a new one, with a UUID of its own",
        "holdfast store restore /backup/monday /var/lib/holdfast",
    )
    parser.add_argument("source", metavar="FROM", help="a backup, or a stopped node's store")
    parser.add_argument("data", metavar="DIR", help="the new store's directory, which holds none yet")
    _store_options(parser)


def _store_options(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)
    parser.set_defaults(run=_run_store)


def _add_pipeline(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "pipeline",
        "runs the Spark jobs",
        "holdfast pipeline ingest flights --out ./flights.parquet --available-now",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "ingest",
        "writes what arrives in a queue to Parquet, each message once",
        "holdfast pipeline ingest flights --url amqp://127.0.0.1:5672 --out ./table --available-now",
    )
    parser.add_argument("address", metavar="ADDRESS", help="the queue")
    parser.add_argument("--out", required=True, metavar="DIR", help="the table's directory")
    parser.add_argument("--available-now", action="store_true", help="write what is there, then end")
    parser.add_argument("--subscription", metavar="NAME", help="name of the subscription that reads")
    parser.add_argument("--checkpoint", metavar="DIR", help="Spark's checkpoint (default: beside the table)")
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    parser.add_argument("--max-rows", type=COUNT, metavar="N", help="most rows of one trigger")
    parser.add_argument("--trigger-s", type=SECONDS, metavar="S", help="seconds between triggers")
    parser.add_argument(
        "--start",
        choices=("first", "next"),
        default="first",
        help="a new subscription starts at what is there (default) or at what comes next",
    )
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_ingest)
    parser = add_verb(
        actions,
        "swarm",
        "spreads seeds of the simulator over a Spark cluster, a row of a table each",
        "holdfast pipeline swarm --seeds 1000 --out ./verdicts --master 'local[2]'",
    )
    parser.add_argument(
        "--scenario", default="swarm", metavar="NAME", help="of `holdfast sim list` (default %(default)s)"
    )
    parser.add_argument("--seeds", type=COUNT, default=100, metavar="N", help="how many (default %(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="S", help="the first (default %(default)s)")
    parser.add_argument("--out", required=True, metavar="DIR", help="the table's directory, new or empty")
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    parser.set_defaults(run=_run_pipeline_swarm)


def _add_sim(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "sim",
        "runs whole topologies in virtual time, with faults, from a seed",
        "holdfast sim list\nholdfast sim run line-cut --seed 7 --out ./line-cut\nholdfast sim swarm --seeds 100",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "run",
        "runs a scenario, and says whether every promise held",
        "holdfast sim run satellite --seed 3 --json\nholdfast sim run ./mine.toml --seed 1 --out ./mine",
    )
    parser.add_argument("scenario", metavar="SCENARIO", help="a name from `holdfast sim list`, or a file.toml")
    parser.add_argument("--seed", type=SEED, default=1, metavar="S", help="default %(default)s")
    _run_options(parser)
    parser = add_verb(
        actions,
        "swarm",
        "runs many seeds, each of which draws its topology, workloads and faults",
        "holdfast sim swarm --seeds 200 --first-seed 1000 --jobs 2 --out ./failures",
    )
    parser.add_argument("--seeds", type=COUNT, default=100, metavar="N", help="how many (default %(default)s)")
    parser.add_argument("--first-seed", type=SEED, default=1, metavar="S", help="default %(default)s")
    parser.add_argument("--jobs", type=number_of(1, 1_024, "a number of processes"), metavar="J", help="at once")
    parser.add_argument("--out", metavar="DIR", help="report; plan, events and picture of each seed that failed")
    parser.add_argument("--shrink", action="store_true", help="also look for a smaller plan that fails alike")
    parser.add_argument("--canary", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)
    parser = add_verb(actions, "list", "lists what `sim run` knows by name", "holdfast sim list")
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)
    parser = add_verb(
        actions,
        "replay",
        "runs a kept plan again",
        "holdfast sim replay ./out/plan.json --seed 7",
    )
    parser.add_argument("file", metavar="FILE.json", help="plan.json of an earlier run's --out")
    parser.add_argument("--seed", type=SEED, metavar="S", help="default: the one in the file")
    _run_options(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--depth",
        choices=("frames", "bytes"),
        help="what nodes hand each other: decoded frames, or every byte (slower; the same history)",
    )
    parser.add_argument("--out", metavar="DIR", help="result, event log, timeline and plan go there")
    # For the tests that plant a defect on purpose, to see it found.
    parser.add_argument("--canary", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)


def _add_demo(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "demo",
        "shows the whole path on real data, on this machine",
        "holdfast demo --flights 20000 --out ./demo --keep",
    )
    parser.add_argument("--all", action="store_true", help="send every flight")
    parser.add_argument("--flights", type=COUNT, default=60_000, metavar="N", help="how many (default %(default)s)")
    parser.add_argument("--out", metavar="DIR", help="where numbers and picture go")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' stores and the table")
    parser.set_defaults(run=_run_demo)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_node(args: argparse.Namespace) -> int:
    from holdfast.node.command import run_node

    return run_node(args)


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


def _run_queue(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import queue

    return queue(args)


def _run_subscription(args: argparse.Namespace) -> int:
    from holdfast.client.verbs.manage import subscription

    return subscription(args)


def _run_store(args: argparse.Namespace) -> int:
    from holdfast.storage.commands import store

    return store(args)


def _run_ingest(args: argparse.Namespace) -> int:
    from holdfast.pipeline.commands import ingest

    return ingest(args)


def _run_pipeline_swarm(args: argparse.Namespace) -> int:
    from holdfast.pipeline.commands import swarm

    return swarm(args)


def _run_sim(args: argparse.Namespace) -> int:
    from holdfast.harness.sim_commands import sim

    return sim(args)


def _run_demo(args: argparse.Namespace) -> int:
    from holdfast.harness.demo import run_demo

    return run_demo(args)


def parser() -> argparse.ArgumentParser:
    """The whole grammar of the command line."""
    top = argparse.ArgumentParser(
        prog="holdfast",
        description="A store-and-forward message bus for sites joined by thin, breaking links.",
        epilog="example:\n  holdfast node --name ewr\n  holdfast VERB --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"holdfast {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for add in (
        _add_node,
        _add_send,
        _add_receive,
        _add_status,
        _add_queue,
        _add_subscription,
        _add_store,
        _add_pipeline,
        _add_sim,
        _add_demo,
    ):
        add(verbs)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and returns its exit code; argparse itself exits 2 for usage and 0 for help."""
    top = parser()
    args = top.parse_args(argv)
    check: Callable[[argparse.Namespace], str | None] | None = getattr(args, "check", None)
    complaint = check(args) if check is not None else None
    if complaint is not None:
        print(f"holdfast {args.verb}: {complaint}", file=sys.stderr)
        return EXIT_USAGE
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except ConfigError as error:
        print(f"holdfast {args.verb}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except HoldfastError as error:
        print(f"holdfast {args.verb}: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone: what was not printed was not accepted. Keep the interpreter's last
        # flush from a second complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
