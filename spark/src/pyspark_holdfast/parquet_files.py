"""Parquet files of a table, read and written without Spark, with the types that Spark knows.

Rules of this file: Spark writes a timestamp as INT96, which has no zone and in Arrow's own reading ends in the year
2262; here it is an instant in microseconds. pyarrow is imported inside functions, so that a driver can plan without it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark_holdfast.checkpoint import SINK_LOG

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value in a directory's name that stands for null, or for an empty text."""
INT96: Final = "INT96"


def opened(file: Path) -> "ParquetFile":
    """Close it, or use `with`."""
    from pyarrow.parquet import ParquetFile

    return ParquetFile(str(file), coerce_int96_timestamp_unit="us")


def int96_columns(file: "ParquetFile") -> set[str]:
    """The columns that are INT96, or have some within."""
    parts = (file.schema.column(number) for number in range(len(file.schema)))
    return {part.path.split(".")[0] for part in parts if part.physical_type == INT96}


def read_file(file: Path, columns: Iterable[str]) -> Any:
    """Those of the columns that the file has, as a pyarrow Table."""
    import pyarrow as pa

    with opened(file) as source:
        int96 = int96_columns(source)
        found = source.read(columns=[name for name in columns if name in source.schema_arrow.names])
    for number, field in enumerate(found.schema):
        if field.name in int96 and pa.types.is_timestamp(field.type):
            kind = pa.timestamp("us", tz="UTC")
            found = found.set_column(number, pa.field(field.name, kind), found.column(number).cast(kind))
    return found


def partition_of(file: Path) -> dict[str, str | None]:
    """The columns that the names of the directories between a table and its file say, as Hive has them."""
    found: list[tuple[str, str | None]] = []
    for directory in file.parents:
        name, equals, value = directory.name.partition("=")
        if not equals or (directory / SINK_LOG).is_dir():  # the table itself
            break
        found.append((unquote(name), None if value == NULL_PARTITION else unquote(value)))
    return dict(reversed(found))
