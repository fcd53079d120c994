"""Cleaning of readings, windows and joins: DataFrame → DataFrame functions, the steps of a job (docs/spark.md).

Rules of this file: each takes rows of a batch or of a stream and arguments of plain types, and returns rows; it keeps
no state and knows no job. Event time is a column of the rows; in a stream a row that comes later than `late_s` after
the latest one may be left out, and Spark counts it (`queries.py` tells how many).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

TIME: Final = "enqueued"
"""When the node stored a message: the event time, unless the rows say another."""
NO_ORDER: Final = ("map", "array", "struct", "variant")
"""Types of columns that rows cannot be sorted by."""
ORDERED: Final = frozenset(
    ("string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "date",
     "timestamp", "timestamp_ntz")
)  # fmt: skip
"""Types of columns that decide between rows that are equal in those that they are sorted by."""


def with_fields(rows: "DataFrame", fields: dict[str, str]) -> "DataFrame":
    """Adds a column for each of `fields`, NAME to TYPE: the message's property of that name, or the field of its JSON
    body; null where it is not of the type."""
    from pyspark_holdfast.tables import property_of

    for name, kind in fields.items():
        rows = rows.withColumn(name, property_of(name).try_cast(kind))
    return rows


def where(rows: "DataFrame", condition: str) -> "DataFrame":
    """The rows for which a condition of SQL holds."""
    return rows.where(condition)


def columns(rows: "DataFrame", names: Sequence[str]) -> "DataFrame":
    """These columns alone; each may be an expression of SQL, as `body AS text`."""
    return rows.selectExpr(*names)


def without_repeats(
    rows: "DataFrame", key: Sequence[str], within_s: float, *, late_s: float = 0.0, time: str = TIME
) -> "DataFrame":
    """One row for each value of the columns `key`: those that follow within `within_s` seconds of it are repeats. In a
    stream one that follows later, by `late_s` and a little more, may be left out too, and so is one whose time is more
    than both together behind the latest; which of several is the first is the order in which they come."""
    _known(rows, [*key, time])
    if rows.isStreaming:
        return rows.withWatermark(time, _seconds(within_s + late_s)).dropDuplicatesWithinWatermark(list(key))
    from pyspark.sql import Column
    from pyspark.sql import functions as f

    def with_next(kept: Column, row: Column) -> Column:
        apart_us = f.unix_micros(row["_time"]) - f.unix_micros(f.element_at(kept, -1)["_time"])
        is_first = (f.size(kept) == 0) | (apart_us > round(within_s * 1_000_000))
        return f.when(is_first, f.concat(kept, f.array(row))).otherwise(kept)

    each = f.struct(f.col(time).alias("_time"), f.struct("*").alias("_row"))

    def compared(one: Column, other: Column) -> Column:  # a row may hold a map, which has no order of its own
        return f.signum(f.unix_micros(one["_time"]) - f.unix_micros(other["_time"])).cast("int")

    of_key = f.array_sort(f.collect_list(each), compared)
    found = rows.groupBy(*key).agg(of_key.alias("_all"))
    kept = f.aggregate("_all", f.slice("_all", 1, 0), with_next)
    return found.select(f.explode(kept).alias("_kept")).select("_kept._row.*")


def without_ghosts(
    rows: "DataFrame", key: Sequence[str], reads_min: int, window_s: float, *, late_s: float = 0.0, time: str = TIME
) -> "DataFrame":
    """One row for each value of the columns `key` and window of `window_s` seconds in which it was read at least
    `reads_min` times: fewer are a reader's mistake. Columns: the key; `begins`, `ends`; `first`, `last`; `reads`."""
    return counted(rows, key, window_s, late_s=late_s, time=time).where(f"reads >= {int(reads_min)}")


def counted(
    rows: "DataFrame", key: Sequence[str], window_s: float, *, late_s: float = 0.0, time: str = TIME
) -> "DataFrame":
    """Counts rows by the columns `key` and the window of `window_s` seconds that their time lies in. In a stream a
    window comes once it is over by `late_s`, and once. Columns: as of `without_ghosts`."""
    from pyspark.sql import functions as f

    _known(rows, [*key, time])
    if rows.isStreaming:
        rows = rows.withWatermark(time, _seconds(late_s))
    groups = rows.groupBy(f.window(time, _seconds(window_s)).alias("_window"), *key)
    found = groups.agg(f.min(time).alias("first"), f.max(time).alias("last"), f.count("*").alias("reads"))
    return found.select(*key, "_window.start", "_window.end", "first", "last", "reads").withColumnsRenamed(
        {"start": "begins", "end": "ends"}
    )


def in_order(rows: "DataFrame", by: Sequence[str]) -> "DataFrame":
    """The rows in the order of these columns, nulls first, and of all others that have an order; in a stream those of
    each partition of a batch, which must fit into the memory of a worker: Spark itself sorts no stream."""
    _known(rows, by)
    for name in by:
        kind = rows.schema[name].dataType.typeName()
        if kind in NO_ORDER:
            raise ConfigError(f"column {name!r} is of type {kind}, which has no order; expected others")
    by = [*by, *(one.name for one in rows.schema if one.name not in by and one.dataType.typeName() in ORDERED)]
    if not rows.isStreaming:
        return rows.orderBy(*by)

    def ordered(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        from pyspark_holdfast.cleaning import sorted_batches

        return sorted_batches(batches, by)

    return _through_arrow(rows, ordered)


def _through_arrow(rows: "DataFrame", work: "Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]") -> "DataFrame":
    """What Spark's `mapInArrow` returns, which asks for pandas though it does without."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    function = UserDefinedFunction(work, returnType=rows.schema, evalType=kind)
    column: Any = function(*(rows[f"`{name}`"] for name in rows.columns))
    inner: Any = rows
    return DataFrame(inner._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def sorted_batches(batches: "Iterable[RecordBatch]", by: Sequence[str]) -> "Iterator[RecordBatch]":
    """All rows of these batches in the order of the columns `by`, nulls first; rows that are equal in them stay in
    their order."""
    import pyarrow as pa
    import pyarrow.compute as compute

    there = list(batches)
    if there:
        table = pa.Table.from_batches(there)
        keys = {}
        for number, name in enumerate(by):
            keys[f"there {number}"] = table.column(name).is_valid()  # false is the first
            keys[f"value {number}"] = table.column(name)
        yield from table.take(compute.sort_indices(pa.table(keys), [(key, "ascending") for key in keys])).to_batches()


def with_reference(rows: "DataFrame", path: str, on: Sequence[str], *, format: str = "parquet") -> "DataFrame":
    """Adds the columns of a table of references (parquet, json, or csv with a header) where the columns `on` are equal;
    null where it has none. It is read now, into the memory of the driver: Spark would read it again for each batch of a
    stream. A key that it has twice is refused, because rows would be doubled."""
    session = rows.sparkSession
    reader = session.read.format(format)
    found = (reader.option("header", "true") if format == "csv" else reader).load(path)
    _known(found, on)
    table = session.createDataFrame(found.toArrow(), found.schema)
    from pyspark.sql import functions as f

    twice = table.groupBy(*on).count().where("count > 1").first()
    if twice is not None:
        values = ", ".join(f"{name} {twice[name]}" for name in on)
        raise ConfigError(f"table {path} has {twice['count']} rows for {values}; expected one for each key")
    _known(rows, on)
    return rows.join(f.broadcast(table), list(on), "left")


def _seconds(seconds: float) -> str:
    return f"{round(seconds * 1_000)} milliseconds"


def _known(rows: "DataFrame", names: Sequence[str]) -> None:
    for name in names:
        if name not in rows.columns:
            raise ConfigError(f"no column {name!r}; expected some of {', '.join(rows.columns)}")
