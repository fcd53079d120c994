"""Bus → Parquet by one Spark query over 1, 2 and 4 nodes, and by 1 and 2 executors: how reading scales.

Each run starts so many node processes with an equal share of `--messages` durable messages, the same in all, and one
streaming query reads them with a fresh subscription into a fresh table. Numbers of nodes take turns in one session of
`--master`; each number of executors has a session of its own, of executors in processes with a core each
(`local-cluster`), and reads from `--from` nodes. Nodes, Spark and its workers share the machine, so reading scales only
as far as its cores go: the report has their number. Prints one JSON object; progress on standard error.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _figures import spread
from _report import begin, emit, progress
from _spark_bus import bodies, fill, from_bus, node
from pyspark.sql import SparkSession

from pyspark_holdfast import session
from pyspark_holdfast.tables import read_arrow

QUEUE = "rows"
Rates = dict[int, list[float]]


def counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=200_000, help="rows of all nodes (default %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a trigger (default %(default)s)")
    parser.add_argument("--partition", type=int, default=25_000, help="rows of a task (default %(default)s)")
    parser.add_argument("--nodes", type=counts, default=(1, 2, 4), help="numbers of nodes (default 1,2,4)")
    parser.add_argument("--executors", type=counts, default=(1, 2), help="numbers of executors (default 1,2)")
    parser.add_argument("--from", dest="sources", type=int, default=2, help="nodes of these (default %(default)s)")
    parser.add_argument("--master", default="local[*]", help="Spark master of the nodes' part (default %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default %(default)s)")
    parser.add_argument("--data", type=Path, help="directory on a real disk (default: the temporary one)")
    parser.add_argument("--json-out", type=Path, help="write the report to this file as well")
    return parser.parse_args(arguments)


@contextmanager
def started(directory: Path, master: str) -> Iterator[SparkSession]:
    spark = session.start_session("spark_nodes", logs=directory / "logs", master=master)
    try:
        yield spark
    finally:
        session.stop_session(spark)


def measured(spark: SparkSession, base: Path, nodes: int, options: argparse.Namespace) -> float:
    """Rows a second with so many nodes."""
    share = options.messages // nodes
    with tempfile.TemporaryDirectory(dir=base) as name, ExitStack() as stack:
        directory = Path(name)
        urls = [stack.enter_context(node(directory, f"n{number}")) for number in range(nodes)]
        for url in urls:
            fill(url, QUEUE, bodies(share, options.size))
        read = {
            "url": ",".join(urls), "address": QUEUE, "subscription": "bench", "onNodeAway": "fail",
            "maxRowsPerTrigger": str(options.rows), "rowsPerPartition": str(options.partition),
        }  # fmt: skip
        took = from_bus(spark, read, directory / "table")
        rows = read_arrow(directory / "table", ["node", "sequence"]).num_rows
    assert rows == share * nodes, f"{rows} rows of {share * nodes}"
    return rows / took


def by_nodes(directory: Path, options: argparse.Namespace) -> Rates:
    rates: Rates = {nodes: [] for nodes in options.nodes}
    with started(directory, options.master) as spark:
        progress("a first run, which warms up")
        measured(spark, directory, 1, options)
        for number in range(options.repeat):
            for nodes in options.nodes if number % 2 == 0 else options.nodes[::-1]:
                rates[nodes].append(measured(spark, directory, nodes, options))
                progress(f"{number + 1}/{options.repeat} nodes {nodes}: {rates[nodes][-1]:,.0f} rows/s")
    return rates


def by_executors(directory: Path, options: argparse.Namespace) -> Rates:
    rates: Rates = {}
    for executors in options.executors:
        with started(directory / f"executors-{executors}", f"local-cluster[{executors},1,1024]") as spark:
            progress("a first run, which warms up")
            measured(spark, directory, options.sources, options)
            rates[executors] = [measured(spark, directory, options.sources, options) for _ in range(options.repeat)]
        progress(f"executors {executors}: " + ", ".join(f"{rate:,.0f}" for rate in rates[executors]) + " rows/s")
    return rates


def told(rates: Rates) -> dict[str, object]:
    """Each number's rates, and how often they are those of the first."""
    first = next(iter(rates.values()), [])
    return {
        "results": {str(count): spread(found) for count, found in rates.items()},
        "scaling": {
            str(count): spread([many / one for many, one in zip(found, first, strict=True)], 3)
            for count, found in rates.items()
        },
    }


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    base, report = begin("spark_nodes", options)
    report["figure"] = "rows_per_s"
    with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as name:
        report["nodes"] = told(by_nodes(Path(name), options))
        report["executors"] = told(by_executors(Path(name), options))
    emit(report, options.json_out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
