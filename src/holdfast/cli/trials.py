"""The verbs that try and show the house: pipeline, sim, demo.

Rules of this file: as those of the package.
"""

import argparse

from holdfast.cli.arguments import (
    COUNT,
    SECONDS,
    SEED,
    Verbs,
    add_client_options,
    add_json_option,
    add_verb,
    number_of,
    some_text,
)


def add(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    """In the order that help shows."""
    _add_pipeline(verbs)
    _add_sim(verbs)
    _add_demo(verbs)


def _add_pipeline(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "pipeline",
        "runs the Spark jobs: a queue into a table, the simulator on a cluster",
        "holdfast pipeline ingest flights --out ./flights.parquet --available-now",
    )
    actions = group.add_subparsers(dest="action", metavar="ACTION", required=True)
    parser = add_verb(
        actions,
        "ingest",
        "writes the messages of a queue to Parquet, each once",
        "holdfast pipeline ingest flights --url amqp://127.0.0.1:5672 --out ./table --available-now",
    )
    parser.add_argument("address", type=some_text, metavar="ADDRESS", help="the queue")
    parser.add_argument("--out", required=True, metavar="DIR", help="the table's directory")
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="write the messages that are in the queue now, then end (default: run until Ctrl-C)",
    )
    parser.add_argument(
        "--subscription",
        type=some_text,
        metavar="NAME",
        help="the subscription that keeps the position in the queue (default: pipeline-TABLE, after --out)",
    )
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="Spark's checkpoint (default: DIR.checkpoint beside the table)"
    )
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    parser.add_argument(
        "--max-rows", type=COUNT, metavar="N", help="the maximum number of rows in one batch (default 100000)"
    )
    parser.add_argument(
        "--trigger-s", type=SECONDS, metavar="S", help="seconds between the starts of two batches (default 1)"
    )
    parser.add_argument(
        "--start",
        choices=("first", "next"),
        default="first",
        help="where a new subscription starts: at the first message in the queue (default) or the next to arrive",
    )
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_ingest)
    parser = add_verb(
        actions,
        "swarm",
        "runs the simulator from many seeds on a Spark cluster, and writes a row of a table for each",
        "holdfast pipeline swarm --seeds 1000 --out ./verdicts --master 'local[2]'",
    )
    parser.add_argument(
        "--scenario", default="swarm", metavar="NAME", help="a scenario of `holdfast sim list` (default %(default)s)"
    )
    parser.add_argument(
        "--seeds", type=COUNT, default=100, metavar="N", help="the number of seeds (default %(default)s)"
    )
    parser.add_argument("--first-seed", type=SEED, default=1, metavar="S", help="the first seed (default %(default)s)")
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
    parser.add_argument(
        "--seed", type=SEED, default=1, metavar="S", help="the seed of all random choices (default %(default)s)"
    )
    _run_options(parser)
    parser = add_verb(
        actions,
        "swarm",
        "runs many seeds, each of which draws its topology, workloads and faults",
        "holdfast sim swarm --seeds 200 --first-seed 1000 --jobs 2 --out ./failures",
    )
    parser.add_argument(
        "--seeds", type=COUNT, default=100, metavar="N", help="the number of seeds (default %(default)s)"
    )
    parser.add_argument("--first-seed", type=SEED, default=1, metavar="S", help="the first seed (default %(default)s)")
    parser.add_argument(
        "--jobs",
        type=number_of(1, 1_024, "a number of processes"),
        metavar="J",
        help="run in J processes (default: one for each core)",
    )
    parser.add_argument(
        "--routing", action="store_true", help="only networks whose nodes compute their own routes (default: all kinds)"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="directory for the report, and plan, events and picture of each seed that failed"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="also search for a smaller plan that fails in the same way"
    )
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
    parser.add_argument("--seed", type=SEED, metavar="S", help="the seed (default: the one in the file)")
    _run_options(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", help="directory for result, event log, timeline and plan")
    # For the tests that plant a defect on purpose, to see it found.
    parser.add_argument("--canary", metavar="NAME", help=argparse.SUPPRESS)
    add_json_option(parser)
    parser.set_defaults(run=_run_sim)


def _add_demo(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    parser = add_verb(
        verbs,
        "demo",
        "runs sixteen nodes with failing links on this machine, real flights through them, and Spark at their end",
        "holdfast demo --flights 1000 --out ./demo --keep",
    )
    parser.add_argument("--all", action="store_true", help="send every flight of the data set")
    parser.add_argument(
        "--flights", type=COUNT, default=1_800, metavar="N", help="the number of flights (default %(default)s)"
    )
    parser.add_argument(
        "--out", default="demo-out", metavar="DIR", help="directory for numbers and picture (default %(default)s)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the nodes' stores and the table")
    parser.set_defaults(run=_run_demo)


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_ingest(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import ingest

    return ingest(args)


def _run_pipeline_swarm(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import swarm

    return swarm(args)


def _run_sim(args: argparse.Namespace) -> int:
    from holdfast_lab.sim_commands import sim

    return sim(args)


def _run_demo(args: argparse.Namespace) -> int:
    from holdfast_lab.demo.command import run_demo

    return run_demo(args)
