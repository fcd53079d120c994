"""The options of the Delta sink, and the schema of its table (docs/spark.md, "Into Delta").

Rules of this file: pure but for the file of an object store's settings, which is read once, on the driver. What it
says is in no plan, log or page of Spark's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast.errors import ConfigError
from pyspark_holdfast.option_hints import check_known
from pyspark_holdfast.options import local_path, text_of

NAMES: Final = ("path", "storageFile", "txnAppId", "checkpointLocation")
HINTS: Final = {
    "mergeSchema": "a table keeps its columns; leave it out",
    "overwriteSchema": "a table keeps its columns; leave it out",
    "txnVersion": "it is the batch's number; leave it out",
    "url": "give 'path', the directory of the table or s3://bucket/table",
}
OBJECT_STORES: Final = ("s3://", "s3a://")
PLAIN: Final = (
    StringType, BinaryType, BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType,
    DecimalType, TimestampType, DateType,
)  # fmt: skip
"""Types of columns that Delta has, and that need no later version of its protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions:
    """`path`: of a table on this machine; None in an object store, whose settings are in `storage`. `query`: the name
    under which the table knows its batches; None: made of the query's id."""

    uri: str
    path: Path | None = None
    query: str | None = None
    checkpoint: Path | None = None
    storage: dict[str, str] | None = field(default=None, repr=False)


def parse_delta_options(options: Mapping[str, str]) -> DeltaOptions:
    """`options` as Spark gives them, in any case. Raises ConfigError at the first wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    check_known(given, NAMES, HINTS)
    uri = given.get("path")
    if not uri:
        raise ConfigError("option 'path' is missing; expected the directory of the table, or s3://bucket/table")
    place = given.get("checkpointlocation")
    checkpoint = local_path("checkpointLocation", place) if place else None
    query = given.get("txnappid") or None
    if uri.lower().startswith(OBJECT_STORES):
        storage = _settings("storageFile", given["storagefile"]) if "storagefile" in given else None
        return DeltaOptions(uri=uri, query=query, checkpoint=checkpoint, storage=storage)
    if "storagefile" in given:
        raise ConfigError("option 'storageFile' belongs to an object store; expected 'path' s3://bucket/table with it")
    path = local_path("path", uri)
    if checkpoint is not None and (checkpoint == path or path in checkpoint.parents):
        raise ConfigError(f"{checkpoint} is inside the table {path}; give the checkpoint a place outside it")
    return DeltaOptions(uri=str(path), path=path, query=query, checkpoint=checkpoint)


def _settings(name: str, file: str) -> dict[str, str]:
    """Lines NAME=value; empty ones and those that begin with # are none."""
    found: dict[str, str] = {}
    for number, line in enumerate(text_of(name, file).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():  # the line is not shown: it may have a secret
            raise ConfigError(f"{file} of option {name!r}: line {number}: expected NAME=value")
        found[key.strip()] = value.strip()
    return found


def delta_schema(schema: StructType) -> str:
    """Delta's JSON of the columns, which all take nulls. Raises ConfigError where Delta has no such type."""
    for column in schema.fields:
        kind = _foreign(column.dataType)
        if kind is not None:
            raise ConfigError(
                f"column {column.name!r} has type {kind.simpleString()}, which the Delta sink does not write; cast it"
            )
    if not schema.fields:
        raise ConfigError("the rows have no column; expected at least one")
    return json.dumps(_nullable(schema.jsonValue()))


def _foreign(kind: DataType) -> DataType | None:
    """The type within `kind`, or itself, that Delta does not have."""
    if isinstance(kind, StructType):
        return next((found for column in kind.fields if (found := _foreign(column.dataType))), None)
    if isinstance(kind, ArrayType):
        return _foreign(kind.elementType)
    if isinstance(kind, MapType):
        return _foreign(kind.keyType) or _foreign(kind.valueType)
    return None if type(kind) in PLAIN else kind


def _nullable(value: Any) -> Any:
    """Spark's JSON of a type, in which nothing is promised not to be null, and columns have no metadata."""
    if isinstance(value, list):
        return [_nullable(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _nullable(one) for key, one in value.items()}
    for key in ("nullable", "containsNull", "valueContainsNull"):
        if key in found:
            found[key] = True
    return found | {"metadata": {}} if "metadata" in found else found
