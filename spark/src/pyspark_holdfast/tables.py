"""Reading what an ingest wrote, and small reports on it: DataFrame → DataFrame functions with plain names.

Rules of this file: a table's directory is never listed for data: after a crash it may hold parts of files
that no batch owns. Spark follows `_spark_metadata` by itself; `read_arrow` does the same without Spark.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError
from pyspark_holdfast.checkpoint import SinkLog
from pyspark_holdfast.columns import FIELDS, NULLABLE_COLUMNS
from pyspark_holdfast.parquet_files import partition_of, read_file

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WHOLE: Final = ("bigint not null", "bigint", "int")
"""Types of the source's columns that a directory's name tells as they are; of the others it has a text."""


def check_table(out: Path) -> SinkLog:
    """The log of the table in `out`; ConfigError where an ingest has not written one."""
    log = SinkLog(out)
    if not log.batches():
        raise ConfigError(f"table {out} has no batch in its log; give a directory that `pipeline ingest` wrote")
    return log


def read_table(spark: "SparkSession", out: Path) -> "DataFrame":
    """The rows of the table in the directory `out`, in no order. Columns: docs/spark.md, "Reading the table".

    Raises ConfigError if no ingest has written a table there.
    """
    check_table(out)
    # Files of an earlier version have fewer columns, which then are null.
    return spark.read.schema(NULLABLE_COLUMNS).parquet(str(out))


def read_arrow(out: Path, columns: list[str] | None = None) -> Any:
    """The rows of the table in the directory `out` as a pyarrow Table, without Spark, files in the order of writing.

    `columns` names those to read, None all that the table has. Columns that are in the names of directories (a job's
    `partition_by`) are read from there, whole numbers of the source as such, all else as text. A column of the source
    that a file of an earlier version lacks is null in its rows. Raises ConfigError if no query has written a table
    there, or it does not have such a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from pyspark_holdfast.columns import arrow_schema

    own = arrow_schema()
    files = check_table(out).files()
    parts = [partition_of(file) for file in files]
    there = dict.fromkeys(name for file in files for name in parquet.read_schema(str(file)).names)
    there |= dict.fromkeys(name for part in parts for name in part)
    known = there
    if not files or {"address", "sequence", "body"} <= there.keys():  # the source's rows
        known = dict.fromkeys((*own.names, *there))
    wanted = list(known) if columns is None else columns
    for name in wanted:
        if name not in known:
            raise ConfigError(f"table {out} has no column {name!r}; expected some of {', '.join(known)}")
    tables = [own.empty_table().select([name for name in wanted if name not in there])]
    for file, part in zip(files, parts, strict=True):
        found = read_file(file, wanted)
        for name in part.keys() & set(wanted):
            kind = own.field(name).type if FIELDS.get(name) in WHOLE else pa.string()
            value = pa.array([part[name]], pa.string()).cast(kind)[0]
            found = found.append_column(pa.field(name, kind), pa.repeat(value, found.num_rows))
        tables.append(found)
    # In one schema, with nulls for what a file has not.
    return pa.concat_tables(tables, promote_options="permissive").select(wanted)


def property_of(name: str) -> "Column":
    """The application property `name` as text. If a message lacks it: the field of that name in its JSON body, or in
    the map that is its body.
    """
    from pyspark.sql import functions as f

    own = f.col("application_properties").getItem(name)
    body = f.get_json_object(f.col("body").cast("string"), f"$.{name}")
    return f.coalesce(own, body, f.get_json_object("body_value", f"$.{name}"))


def variants(rows: "DataFrame") -> "DataFrame":
    """`rows` with a VARIANT column in place of each column that holds JSON with AMQP's types, in the same order:
    `body_variant` of `body_value`, and `…_variant` of `…_json`. Null stays null.
    """
    from pyspark.sql import functions as f

    names = {name: f"{name.removesuffix('_json')}_variant" for name in rows.columns if name.endswith("_json")}
    names |= {"body_value": "body_variant"}
    return rows.select(
        *(f.parse_json(name).alias(names[name]) if name in names else f.col(f"`{name}`") for name in rows.columns)
    )


def identities(rows: "DataFrame") -> "DataFrame":
    """One row that tells whether anything is there twice: the number of rows, and of different identities.

    Columns: `rows`; `sequences`, places in a queue; `message_ids`, without nulls; `bodies`, different contents; `first`
    and `last`, the lowest and the highest sequence. Where nothing is there twice, `sequences` equals `rows`.
    """
    from pyspark.sql import functions as f

    return rows.agg(
        f.count("*").alias("rows"),
        f.count_distinct(f.coalesce("node", f.lit("")), "address", "sequence").alias("sequences"),
        f.count_distinct("message_id").alias("message_ids"),
        f.count_distinct(f.sha2("body", 256), "body_kind", f.coalesce("body_value", f.lit(""))).alias("bodies"),
        f.min("sequence").alias("first"),
        f.max("sequence").alias("last"),
    )


def count_by(rows: "DataFrame", name: str) -> "DataFrame":
    """Counts rows by the property `name`. Columns: the property and `count`, sorted by the property."""
    from pyspark.sql import functions as f

    return rows.groupBy(property_of(name).alias(name)).agg(f.count("*").alias("count")).orderBy(name)


def path_of() -> "Column":
    """The names of the nodes that a message passed, with a space between two (docs/amqp.md, "Paths").

    Null if the message came from no other node, or its node did not tell the path.
    """
    from pyspark.sql import functions as f

    told = f.col("annotations").getItem("x-opt-holdfast-path")
    return f.array_join(f.from_json(told, "array<string>"), " ")


def count_by_path(rows: "DataFrame", name: str, *, window_s: int = 1) -> "DataFrame":
    """Counts rows by the property `name`, path, and the window of `window_s` seconds in which the node stored them.

    Columns: the property; `path`; `second`, the window's beginning in seconds since 1970, UTC; `count`. Sorted by the
    property, second and path.
    """
    from pyspark.sql import functions as f

    second = f.floor(f.unix_micros("enqueued") / (window_s * 1_000_000)) * window_s
    groups = (property_of(name).alias(name), path_of().alias("path"), second.alias("second"))
    return rows.groupBy(*groups).agg(f.count("*").alias("count")).orderBy(name, "second", "path")


def departure_delays(flights: "DataFrame") -> "DataFrame":
    """Delay at departure by carrier and scheduled hour, in minutes; cancelled flights have none and are
    counted.

    Columns: carrier, hour, flights, departed, mean_min, median_min, p90_min; by carrier and hour.
    """
    from pyspark.sql import functions as f

    delays = flights.select(
        property_of("carrier").alias("carrier"),
        property_of("hour").try_cast("int").alias("hour"),
        property_of("dep_delay").try_cast("double").alias("delay_min"),
    )
    return (
        delays.groupBy("carrier", "hour")
        .agg(
            f.count("*").alias("flights"),
            f.count("delay_min").alias("departed"),
            f.round(f.avg("delay_min"), 2).alias("mean_min"),
            f.percentile("delay_min", 0.5).alias("median_min"),
            f.percentile("delay_min", 0.9).alias("p90_min"),
        )
        .orderBy("carrier", "hour")
    )
