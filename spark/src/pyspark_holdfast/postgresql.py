"""The Spark sink `holdfast-postgresql`: rows into a table of PostgreSQL, each once whatever is computed again.

Rules of this file: a row is known by the columns of the table's key, and one that is there is not inserted again. So
what is replayed needs no memory of batches, and a batch's partitions may be committed one by one. A partition is one
transaction. psycopg is imported where rows are written, and where the table is made.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
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
    TimestampNTZType,
    TimestampType,
)

from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.option_hints import check_known
from pyspark_holdfast.options import text_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch

FORMAT: Final = "holdfast-postgresql"
NAMES: Final = ("url", "passwordFile", "table", "key", "checkpointLocation")
HINTS: Final = {
    "dbtable": "it is that of Spark's JDBC source; give 'table'",
    "user": "give it in 'url', postgresql://USER@host/database",
    "password": "give 'passwordFile', a file with it in the first line",
    "driver": "there is none; leave it out",
    "path": "start() and save() take none; give 'table'",
}
KEY: Final = ("node", "address", "sequence")
"""What a row of the source is known by."""
LIMITS: Final[Mapping[str, int]] = {
    "connect_timeout": 30, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}  # fmt: skip
"""libpq's, unless the URL has others: a host that has lost its power ends a task in a minute."""
URL_FORM: Final = "expected postgresql://user@host:port/database, in which other characters than these are written %XX"
NAME_BYTES_MAX: Final = 63
ROWS_AT_ONCE: Final = 1_000

TYPES: Final[Mapping[type[DataType], str]] = {
    StringType: "text", BinaryType: "bytea", BooleanType: "boolean", ByteType: "smallint", ShortType: "smallint",
    IntegerType: "integer", LongType: "bigint", FloatType: "real", DoubleType: "double precision",
    DecimalType: "numeric", TimestampType: "timestamptz", TimestampNTZType: "timestamp", DateType: "date",
    MapType: "jsonb", ArrayType: "jsonb", StructType: "jsonb",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlOptions:
    """`url`: as libpq takes it, `postgresql://user@host/database`. `table`: its name, after a schema's and a dot if
    wanted. The password is in no text of it."""

    url: str = field(repr=False)
    table: tuple[str, ...]
    key: tuple[str, ...] = KEY
    password: str | None = field(default=None, repr=False)


def parse_postgresql_options(options: Mapping[str, str]) -> PostgresqlOptions:
    """`options` as Spark gives them, in any case. Raises ConfigError at the first wrong one."""
    given = {key.lower(): value for key, value in options.items()}
    check_known(given, NAMES, HINTS)
    for name in ("url", "table"):
        if not given.get(name):
            raise ConfigError(f"option {name!r} is missing; expected that of the PostgreSQL sink")
    if not given["url"].startswith(("postgresql://", "postgres://")):
        raise ConfigError(f"option 'url' of the PostgreSQL sink: {URL_FORM}")
    login = given["url"].partition("://")[2].rpartition("@")[0]
    if "@" in login or "/" in login:  # in the password, of which libpq would take a part for the host, and tell it
        raise ConfigError(f"option 'url' of the PostgreSQL sink: {URL_FORM}; @ as %40, / as %2F")
    table = tuple(given["table"].split("."))
    key = tuple(name.strip() for name in given["key"].split(",")) if "key" in given else KEY
    for option, names in (("table", table), ("key", key)):
        is_twice = option == "key" and len(set(names)) < len(names)
        if "" in names or is_twice or (option == "table" and len(names) > 2):
            raise ConfigError(f"invalid value {given[option]!r:.80} for option {option!r}; expected names")
        if any(len(name.encode()) > NAME_BYTES_MAX for name in names):
            raise ConfigError(
                f"invalid value {given[option]!r:.80} for option {option!r}; expected names of at most "
                f"{NAME_BYTES_MAX} bytes, of which PostgreSQL cuts longer ones"
            )
    password = None
    if "passwordfile" in given:
        password = text_of("passwordFile", given["passwordfile"]).partition("\n")[0].rstrip("\r")
    return PostgresqlOptions(url=given["url"], table=table, key=key, password=password)


class PostgresqlDataSource(DataSource):
    """The format of `writeStream` and `write`; `start_session` registers it."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return PostgresqlStreamWriter(schema, self.options, overwrite=overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return PostgresqlWriter(schema, self.options, overwrite=overwrite)


class _Writing:
    """Made on the driver, which makes the table where it is missing; copies of it write in the workers."""

    def __init__(self, schema: StructType, options: Mapping[str, str], *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("invalid mode overwrite; expected append: a table's rows stay")
        self._options = parse_postgresql_options(options)
        self._columns = columns_of(schema, self._options.key)
        make_table(self._options, self._columns)

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        write_partition(self._options, self._columns, iterator)
        return WriterCommitMessage()


class PostgresqlStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Writes one batch of a query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every partition is committed by now."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was committed stays, and is not inserted again."""


class PostgresqlWriter(_Writing, DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every partition is committed by now."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was committed stays."""


def columns_of(schema: StructType, key: tuple[str, ...]) -> dict[str, str]:
    """PostgreSQL's type of each column. Raises ConfigError where there is none, or a column of the key is missing."""
    found = {}
    for column in schema.fields:
        kind = TYPES.get(type(column.dataType))
        if kind is None:
            raise ConfigError(
                f"column {column.name!r} is of type {column.dataType.simpleString()}, which has no type of PostgreSQL; "
                "cast it"
            )
        found[column.name] = kind
    for name in key:
        if name not in found:
            raise ConfigError(f"option 'key' names column {name!r}; expected some of {', '.join(found)}")
    return found


def make_table(options: PostgresqlOptions, columns: Mapping[str, str]) -> None:
    """Makes the table where there is none. Raises HoldfastError."""

    def make(connection: Any, sql: Any) -> None:
        fields = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()]
        fields.append(sql.SQL("PRIMARY KEY ({})").format(_names(sql, options.key)))
        table = sql.Identifier(*options.table)
        there = connection.execute("SELECT to_regclass(%s)", (table.as_string(connection),)).fetchone()
        if there[0] is not None:  # a user who may insert into it need not be one who may make tables
            return
        text = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        connection.execute("SET client_min_messages = warning")
        # Two that make a table at the same time meet in the catalogue, where one fails.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast-postgresql'))")
        connection.execute(text.format(table, sql.SQL(", ").join(fields)))

    _in_transaction(options, make)


def reach_table(options: PostgresqlOptions) -> None:
    """Returns once the database has answered. Raises HoldfastError."""
    _in_transaction(options, lambda connection, sql: connection.execute("SELECT 1"))


def write_partition(options: PostgresqlOptions, columns: Mapping[str, str], batches: Iterator["RecordBatch"]) -> None:
    """Inserts the rows that are not there, all in one transaction. Raises HoldfastError, in one line."""

    def write(connection: Any, sql: Any) -> None:
        fields = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()]
        names = _names(sql, columns)
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE holdfast_rows ({}) ON COMMIT DROP").format(sql.SQL(", ").join(fields))
        )
        nested = [kind == "jsonb" for kind in columns.values()]
        with connection.cursor().copy(sql.SQL("COPY holdfast_rows ({}) FROM STDIN").format(names)) as copy:
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS_AT_ONCE):
                    part = batch.slice(start, ROWS_AT_ONCE)
                    values = [_values(part, name) for name in columns]
                    for row in zip(*values, strict=True):
                        copy.write_row(
                            [_json(one) if is_json else one for one, is_json in zip(row, nested, strict=True)]
                        )
        # In the order of the key: two attempts of a task wait for each other, and not in a circle.
        insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM holdfast_rows ORDER BY {} ON CONFLICT ({}) DO NOTHING")
        key = _names(sql, options.key)
        connection.execute(insert.format(sql.Identifier(*options.table), names, names, key, key))

    _in_transaction(options, write)


def _values(part: "RecordBatch", name: str) -> list[Any]:
    try:
        # Maps as dicts: as lists of pairs an empty one would be an empty list.
        found: list[Any] = part.column(name).to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError) as error:
        raise HoldfastError(f"column {name!r}: {error}; expected times of the years 1 to 9999") from None
    return found


def _in_transaction(options: PostgresqlOptions, work: Callable[[Any, Any], None]) -> None:
    try:
        import psycopg
        from psycopg import sql
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise ConfigError("the PostgreSQL sink needs psycopg; run: pip install 'psycopg[binary]'") from None
    where = f"table {'.'.join(options.table)} of PostgreSQL"
    try:
        given = conninfo_to_dict(options.url)
    except psycopg.Error:  # it tells the part that it cannot read, which may be the password
        raise ConfigError(f"{where}: option 'url' cannot be read; {URL_FORM}") from None
    more: dict[str, Any] = {} if options.password is None else {"password": options.password}
    try:
        with psycopg.connect(**{**LIMITS, **given, **more}) as connection:
            work(connection, sql)
    except psycopg.Error as error:
        raise HoldfastError(f"{where}: {' '.join(str(error).split())}") from None


def _names(sql: Any, names: Any) -> Any:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """What JSON does not have is text."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
