"""Rows into PostgreSQL: options and types, each once though written again, and a mistake as a line."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import (
    ByteType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.columns import COLUMNS, arrow_schema
from pyspark_holdfast.postgresql import (
    KEY,
    LIMITS,
    PostgresqlOptions,
    _plain,
    _values,
    columns_of,
    make_table,
    parse_postgresql_options,
    reach_table,
    write_partition,
)
from support.postgresql import postgresql

URL = "postgresql://ann@host/db"
SIMPLE = {"id": "bigint", "text": "text", "more": "jsonb"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


def asked(url: str, query: str) -> list[Any]:
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()  # type: ignore[arg-type]  # of this file alone


def test_options(tmp_path: Path) -> None:
    found = parse_postgresql_options({"url": URL, "Table": "s.flights", "checkpointLocation": "c"})
    assert (found.url, found.table, found.key, found.password) == (URL, ("s", "flights"), KEY, None)
    (tmp_path / "password").write_text("secret\n")
    more = {"key": "id, day", "passwordFile": str(tmp_path / "password")}
    found = parse_postgresql_options({"url": URL, "table": "t"} | more)
    assert found.key == ("id", "day") and found.password == "secret" and "secret" not in repr(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "t"}, "option 'url' is missing"),
        ({"url": URL}, "option 'table' is missing"),
        ({"url": URL, "dbTable": "t"}, "option 'dbtable': it is that of Spark's JDBC source; give 'table'"),
        ({"url": "mysql://x", "table": "t"}, "expected postgresql://user@host:port/database"),
        ({"url": "postgresql://u:a/b@h/db", "table": "t"}, "of the PostgreSQL sink: expected postgresql://"),
        ({"url": "postgresql://u:a@b@h/db", "table": "t"}, "are written %XX; @ as %40, / as %2F"),
        ({"url": URL, "table": "a.b.c"}, "invalid value 'a.b.c' for option 'table'"),
        ({"url": URL, "table": "s." + 64 * "x"}, "for option 'table'; expected names of at most 63 bytes"),
        ({"url": URL, "table": "t", "key": "id,id"}, "invalid value 'id,id' for option 'key'; expected names"),
        ({"url": URL, "table": "t", "key": "a,,b"}, "invalid value 'a,,b' for option 'key'"),
        ({"url": URL, "table": "t", "drive": "x"}, "unknown option 'drive'; expected one of url"),
        ({"url": URL, "table": "t", "passwordFile": "/none"}, "/none of option 'passwordFile' cannot be read"),
    ],
)
def test_a_wrong_option_is_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_postgresql_options(options)
    assert said in str(caught.value)


def test_every_column_of_the_source_has_a_type() -> None:
    from pyspark.sql.types import _parse_datatype_string  # type: ignore[attr-defined]

    try:
        schema = _parse_datatype_string(COLUMNS)
    except (AssertionError, RuntimeError):  # it asks a session, which another test may have
        schema = StructType([StructField("node", StringType()), StructField("sequence", LongType())])
        schema = schema.add("address", StringType()).add("annotations", MapType(StringType(), StringType()))
    found = columns_of(schema, KEY)
    assert (found["node"], found["sequence"], found["annotations"]) == ("text", "bigint", "jsonb")


def test_a_column_without_a_type_or_a_key_that_is_none_is_told() -> None:
    schema = StructType([StructField("id", IntegerType()), StructField("nothing", NullType())])
    with pytest.raises(ConfigError, match="column 'nothing' is of type void, which has no type of PostgreSQL"):
        columns_of(schema, ("id",))
    with pytest.raises(ConfigError, match="option 'key' names column 'day'; expected some of id"):
        columns_of(StructType([StructField("id", IntegerType())]), ("day",))


def test_maps_structs_and_lists_are_json() -> None:
    assert _plain([float("nan"), float("-inf")]) == ["nan", "-inf"]
    assert _plain({"a": [b"\x01", True, 1.5]}) == {"a": ["01", True, 1.5]}
    assert _plain([]) == [] and _plain([["x"]]) == [["x"]] and _plain(datetime(2026, 1, 1, tzinfo=UTC))[:4] == "2026"


def rows(*numbers: int) -> pa.RecordBatch:
    maps = [[("n", str(number))] if number < 4 else [] for number in numbers]
    more = pa.array(maps, pa.map_(pa.string(), pa.string()))
    texts = [None if number % 2 else f"text\t{number}\\" for number in numbers]
    return pa.record_batch({"id": pa.array(numbers, pa.int64()), "text": texts, "more": more})


def test_a_row_that_is_there_is_not_inserted_again(server: str) -> None:
    options = PostgresqlOptions(url=server, table=("public", "Flights of a day"), key=("id",))
    for _ in range(2):
        make_table(options, SIMPLE)
    write_partition(options, SIMPLE, iter([rows(1, 2), rows(3)]))
    write_partition(options, SIMPLE, iter([rows(2, 3, 4)]))
    write_partition(options, SIMPLE, iter([]))
    found = asked(server, 'SELECT id, text, more FROM "Flights of a day" ORDER BY id')
    assert found == [(n, None if n % 2 else f"text\t{n}\\", {"n": str(n)} if n < 4 else {}) for n in range(1, 5)]


def test_a_partition_is_there_whole_or_not_at_all(server: str) -> None:
    options = PostgresqlOptions(url=server, table=("parts",), key=("id",))
    make_table(options, SIMPLE)
    wrong = pa.record_batch({"id": pa.array([3], pa.int64()), "text": ["a\0b"], "more": pa.array([None], pa.string())})
    with pytest.raises(HoldfastError, match="table parts of PostgreSQL: "):
        write_partition(options, SIMPLE, iter([rows(1, 2), wrong]))
    assert asked(server, "SELECT count(*) FROM parts") == [(0,)]


def test_a_table_without_the_key_and_a_server_that_is_away_are_told(server: str) -> None:
    import psycopg

    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE other (id bigint, text text, more jsonb)")
    options = PostgresqlOptions(url=server, table=("other",), key=("id",))
    make_table(options, SIMPLE)
    with pytest.raises(HoldfastError, match="no unique or exclusion constraint matching") as caught:
        write_partition(options, SIMPLE, iter([rows(1)]))
    assert "\n" not in str(caught.value)
    away = PostgresqlOptions(url="postgresql://ann@127.0.0.1:1/db", table=("t",), key=("id",))
    with pytest.raises(HoldfastError, match="table t of PostgreSQL: connection failed"):
        make_table(away, SIMPLE)


def test_a_user_who_may_make_no_tables_writes_into_one_that_is_there(server: str) -> None:
    import psycopg

    make_table(PostgresqlOptions(url=server, table=("granted",), key=("id",)), SIMPLE)
    with psycopg.connect(server) as connection:
        connection.execute("CREATE ROLE writer LOGIN")
        connection.execute("GRANT SELECT, INSERT ON granted TO writer")
        connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    writer = server.replace("ann@", "writer@")
    options = PostgresqlOptions(url=writer, table=("granted",), key=("id",))
    make_table(options, SIMPLE)
    write_partition(options, SIMPLE, iter([rows(1, 2)]))
    assert asked(server, "SELECT count(*) FROM granted") == [(2,)]
    with pytest.raises(HoldfastError, match="table another of PostgreSQL: permission denied for schema public"):
        make_table(PostgresqlOptions(url=writer, table=("another",), key=("id",)), SIMPLE)


def test_rows_are_synced_though_the_user_s_transactions_are_not(server: str) -> None:
    """The node lets messages go once Spark has the batch for done."""
    import psycopg

    options = PostgresqlOptions(url=server, table=("synced",), key=("id",))
    make_table(options, SIMPLE)
    with psycopg.connect(server) as connection:
        connection.execute("ALTER ROLE ann SET synchronous_commit = off")
        connection.execute("CREATE TABLE seen (setting text)")
        connection.execute(
            "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
        )
        connection.execute("CREATE TRIGGER see AFTER INSERT ON synced EXECUTE FUNCTION see()")
    assert asked(server, "SELECT current_setting('synchronous_commit')") == [("off",)]
    write_partition(options, SIMPLE, iter([rows(1)]))
    assert asked(server, "SELECT setting FROM seen") == [("on",)]


def test_numbers_and_times_keep_their_types(server: str) -> None:
    schema = StructType([StructField("id", ByteType()), StructField("price", DecimalType(20, 3))])
    columns = columns_of(schema.add("at", TimestampNTZType()), ("id",))
    options = PostgresqlOptions(url=server, table=("typed",), key=("id",))
    make_table(options, columns)
    at, price = datetime(2026, 11, 29, 17), Decimal("12345678901234567.891")
    batch = pa.record_batch({"id": pa.array([5], pa.int8()), "price": pa.array([price]), "at": pa.array([at])})
    write_partition(options, columns, iter([batch]))
    assert asked(server, "SELECT id, price, at, pg_typeof(at)::text FROM typed") == [
        (5, price, at, "timestamp without time zone")
    ]


def test_rows_of_the_source_fit(server: str) -> None:
    schema = arrow_schema()
    columns = {field.name: "jsonb" if pa.types.is_nested(field.type) else "text" for field in schema}
    columns |= {"sequence": "bigint", "body": "bytea", "enqueued": "timestamptz"}
    options = PostgresqlOptions(url=server, table=("whole",))
    make_table(options, columns)
    values: dict[str, Any] = dict.fromkeys(schema.names)
    at = datetime(2026, 11, 29, 17, tzinfo=UTC)
    values |= {"node": "hub", "address": "in", "sequence": 7, "body": b"\0\xff", "enqueued": at, "path": ["a", "b"]}
    for _ in range(2):
        batch = pa.RecordBatch.from_pylist([values], schema=schema)
        write_partition(options, columns, iter([batch]))
    found = asked(server, "SELECT node, address, sequence, body, enqueued, path FROM whole")
    assert found == [("hub", "in", 7, b"\0\xff", at, ["a", "b"])]


def test_a_database_that_cannot_be_reached_is_one_line_without_the_password() -> None:
    for url in (
        "postgresql://ann:secret@[::1/db", "postgresql://ann:secret@127.0.0.1:1/db", "postgresql://ann:%zzsecret@h/db",
        "postgresql://ann:my secret@h/db", "postgresql://h/db?password=secret%00", "postgresql://ann:secret@h/d%z",
    ):  # fmt: skip
        options = parse_postgresql_options({"url": url, "table": "t"})
        with pytest.raises(HoldfastError, match=r"^table t of PostgreSQL: ") as caught:
            reach_table(options)
        assert "secret" not in str(caught.value) + repr(options) and "\n" not in str(caught.value)
        assert caught.value.__cause__ is None, "nor is it in what a traceback would show"


def test_a_server_that_is_silent_ends_a_task_in_a_minute_unless_the_url_says_otherwise(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel alone would wait for two hours for one that has lost its power."""
    import psycopg

    settings: list[dict[str, str]] = []
    connect = psycopg.connect

    def seen(*arguments: Any, **more: Any) -> Any:
        connection = connect(*arguments, **more)
        settings.append(connection.info.get_parameters())
        return connection

    monkeypatch.setattr(psycopg, "connect", seen)
    for url in (server, f"{server}?keepalives_idle=5&tcp_user_timeout=0"):
        reach_table(PostgresqlOptions(url=url, table=("t",)))
    ours = {name: str(value) for name, value in LIMITS.items()}
    assert ours.items() <= settings[0].items()
    assert (ours | {"keepalives_idle": "5", "tcp_user_timeout": "0"}).items() <= settings[1].items()


def test_a_time_that_python_has_not_is_one_line() -> None:
    times = pa.array([2**62], pa.timestamp("us", tz="UTC"))
    with pytest.raises(HoldfastError, match=r"^column 'at': .*; expected times of the years 1 to 9999$"):
        _values(pa.RecordBatch.from_arrays([times], names=["at"]), "at")
