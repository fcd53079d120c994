"""`python -m pyspark_holdfast.flights OUT --json`: what a table of the demo's flights holds, by Spark.

Rules of this file: reads the table through its log alone, writes nothing beside it. The answer is one JSON
object on standard output: `rows`; `identities` (rows, sequences, message_ids, bodies, ids: all equal where
nothing came twice); `by_origin`; `by_path`, a list by origin, second and path; `delays`, a list by carrier and hour;
`seconds`.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, HoldfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def flights_report(rows: "DataFrame") -> dict[str, Any]:
    """The numbers of the table `rows`; delays in minutes. `ids` counts the flights' own numbers, property
    `id`.

    Whoever sent them knows how many there should be: fewer `ids` than sent were lost, more `rows` than `ids`
    came twice.
    """
    from pyspark.sql import functions as f

    from pyspark_holdfast.tables import count_by, count_by_path, departure_delays, identities, property_of

    rows = rows.cache()
    try:
        found = identities(rows).first()
        ids = rows.agg(f.count_distinct(property_of("id")).alias("ids")).first()
        assert found is not None and ids is not None
        counted = found.asDict() | ids.asDict()
        return {
            "rows": counted["rows"],
            "identities": counted,
            "by_origin": {row["origin"]: row["count"] for row in count_by(rows, "origin").collect()},
            "by_path": [row.asDict() for row in count_by_path(rows, "origin").collect()],
            "delays": [row.asDict() for row in departure_delays(rows).collect()],
        }
    finally:
        rows.unpersist()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 with the report, 1 where Spark fails, 2 where the table or Java is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_holdfast.flights",
        description="Counts what a table of flights holds.",
        epilog="example: python -m pyspark_holdfast.flights ./table --json",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="the table's directory")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--master", default="local[*]", help="Spark master (default %(default)s)")
    args = parser.parse_args(argv)
    logs = Path(tempfile.mkdtemp(prefix="holdfast-spark-"))
    try:
        report = _report(args.out.absolute(), args.master, logs)
    except ConfigError as error:
        sys.stderr.write(f"flights: {error}\n")
        return 2
    except HoldfastError as error:
        sys.stderr.write(f"flights: {error}\n")
        return 1
    finally:
        shutil.rmtree(logs, ignore_errors=True)
    sys.stdout.write((json.dumps(report) if args.json else "\n".join(_lines(report))) + "\n")
    return 0


def _report(out: Path, master: str, logs: Path) -> dict[str, Any]:
    from pyspark_holdfast.session import start_session, stop_session
    from pyspark_holdfast.tables import check_table, read_table

    check_table(out)
    started = time.monotonic()
    spark = start_session("holdfast flights", logs=logs, master=master)
    try:
        report = flights_report(read_table(spark, out))
    finally:
        stop_session(spark)
    return report | {"seconds": round(time.monotonic() - started, 3)}


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [f"{origin or '?'}: {count:,} flights" for origin, count in report["by_origin"].items()]
    by_path: Counter[tuple[str, str]] = Counter()
    for row in report["by_path"]:
        by_path[row["origin"] or "?", row["path"] or "no path"] += row["count"]
    lines += [f"{origin} by {path}: {count:,} flights" for (origin, path), count in sorted(by_path.items())]
    lines.append("carrier hour flights mean_min median_min p90_min")
    for row in report["delays"]:
        shown = [row[name] for name in ("carrier", "hour", "flights", "mean_min", "median_min", "p90_min")]
        lines.append(" ".join("-" if value is None else str(value) for value in shown))
    return lines


if __name__ == "__main__":
    sys.exit(main())
