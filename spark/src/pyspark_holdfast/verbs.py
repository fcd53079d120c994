"""The verb `holdfast pipeline` (entry point, `holdfast.verbs`).

Rules of this file: as those of `holdfast.cli`: parsing only, the verb's work is imported when it runs.
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
    some_path,
    some_text,
)


def add_pipeline(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    group = add_verb(
        verbs,
        "pipeline",
        "runs the Spark jobs: queues into tables, the simulator on a cluster; reports of such tables",
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
    parser.add_argument("--out", required=True, type=some_path, metavar="DIR", help="the table's directory")
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
        "--checkpoint",
        type=some_path,
        metavar="DIR",
        help="Spark's checkpoint (default: DIR.checkpoint beside the table)",
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
    _add_batch_log(parser)
    add_client_options(parser, retry_s=60.0)
    parser.set_defaults(run=_run_ingest)
    parser = add_verb(
        actions,
        "run",
        "runs the job that a file describes: queues into a table or into other queues, each message once",
        "holdfast pipeline run job.toml --available-now",
    )
    parser.add_argument("file", type=some_path, metavar="JOB.toml", help="the job (docs/spark.md)")
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="take the messages that are in the queues now, then end (default: run until Ctrl-C)",
    )
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    _add_batch_log(parser)
    parser.set_defaults(run=_run_job)
    parser = add_verb(
        actions,
        "compact",
        "makes large files out of the small ones of a table that a query wrote; the query may go on",
        "holdfast pipeline compact ./table",
    )
    parser.add_argument("table", type=some_path, metavar="TABLE", help="the table's directory")
    parser.add_argument(
        "--file-mib",
        type=COUNT,
        default=128,
        metavar="N",
        help="the size of a large file, in MiB (default %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=SECONDS,
        default=604_800.0,
        metavar="S",
        help="how long replaced files stay for those who read them still; a later compaction deletes them "
        "(default %(default)g, a week)",
    )
    parser.set_defaults(run=_run_compact)
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
    parser.add_argument(
        "--out", required=True, type=some_path, metavar="DIR", help="the table's directory, new or empty"
    )
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    parser.set_defaults(run=_run_pipeline_swarm)
    parser = add_verb(
        actions,
        "sweep",
        "runs a grid of scenarios, settings and seeds on a Spark cluster, and writes a row of a table for each run",
        "holdfast pipeline sweep benchmarks/sweeps/traffic.toml --out ./traffic --master 'local[2]'",
    )
    parser.add_argument("file", type=some_path, metavar="FILE.toml", help="the grids")
    parser.add_argument(
        "--out", required=True, type=some_path, metavar="DIR", help="the table's directory, new or empty"
    )
    parser.add_argument("--master", default="local[*]", metavar="MASTER", help="Spark master (default %(default)s)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the table of a sweep of this file that was ended or failed"
    )
    parser.set_defaults(run=_run_pipeline_sweep)
    group = add_verb(
        actions,
        "report",
        "makes documents of tables that the other verbs wrote",
        "holdfast pipeline report traffic ./traffic",
    )
    reports = group.add_subparsers(dest="report", metavar="REPORT", required=True)
    parser = add_verb(
        reports,
        "traffic",
        "makes the traffic paper's acceptance table, comparison of policies and figures from a sweep's table",
        "holdfast pipeline report traffic ./traffic --page docs/results/traffic-control.md "
        "--picture docs/results/traffic-control.png",
    )
    parser.add_argument("tables", type=some_path, metavar="DIR", nargs="+", help="the tables of one sweep or more")
    parser.add_argument("--page", type=some_path, metavar="FILE", help="document whose marked part gets the tables")
    parser.add_argument("--picture", type=some_path, metavar="FILE.png", help="draw the figures (needs matplotlib)")
    add_json_option(parser, "the report as JSON")
    parser.set_defaults(run=_run_pipeline_report)


def _add_batch_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batch-log", type=some_path, metavar="FILE", help="write a line of JSON for each batch to the end of FILE"
    )


# ----------------------------------------------------------------------------------- run, lazily imported


def _run_ingest(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import ingest

    return ingest(args)


def _run_job(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import run

    return run(args)


def _run_compact(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import compact_table

    return compact_table(args)


def _run_pipeline_swarm(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import swarm

    return swarm(args)


def _run_pipeline_sweep(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import sweep

    return sweep(args)


def _run_pipeline_report(args: argparse.Namespace) -> int:
    from pyspark_holdfast.commands import report

    return report(args)
