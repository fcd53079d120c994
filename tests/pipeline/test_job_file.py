"""Jobs as files: what they mean, and each mistake as a line that names file and key."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from holdfast.cli import main
from holdfast.client import connect
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.bus import NodeUnreachable
from pyspark_holdfast.job_file import Job, read_job
from pyspark_holdfast.jobs import check_job, places_of, reach, sink_options, source_options, summary
from pyspark_holdfast.leftovers import Leftovers
from pyspark_holdfast.offsets import Offset, Part, Place
from pyspark_holdfast.options import SourceOptions
from pyspark_holdfast.queries import Progress
from support.process import NodeProcess

StartNode = Callable[..., Awaitable[NodeProcess]]

SOURCE = '[source]\nurl = ["amqp://a:1", "amqp://b:2"]\naddress = "in"\nsubscription = "s"\nfailOnDataLoss = false\n'
PARQUET = '[sink]\nformat = "parquet"\npath = "table"\npartition_by = ["node"]\n'
PG = '[sink]\nformat = "postgresql"\nurl = "postgresql://ann@db/x"\n'
BUS = '[sink]\nformat = "holdfast"\nurl = "amqp://a:1"\naddress = "out"\nstallSeconds = 5\n'


def read(tmp_path: Path, text: str) -> Job:
    file = tmp_path / "job.toml"
    file.write_text(text)
    return read_job(str(file))


def test_what_a_file_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = read(tmp_path, 'checkpoint = "place"\ntrigger_s = 2\n' + SOURCE + PARQUET)
    assert (job.checkpoint, job.trigger_s, job.sink.partition_by) == (tmp_path / "place", 2.0, ("node",))
    assert source_options(job) == {
        "url": "amqp://a:1,amqp://b:2",
        "address": "in",
        "subscription": "s",
        "failOnDataLoss": "false",
        "checkpoint": str(tmp_path / "place"),
        "sinkPath": str(tmp_path / "table"),
    }
    assert sink_options(job) == {"path": str(tmp_path / "table"), "checkpointLocation": str(tmp_path / "place")}
    assert len(check_job(job).urls) == 2
    job = read(tmp_path, 'checkpoint = "place"\n' + SOURCE + "startingFrom = 2026-11-29T18:00:00+01:00\n" + BUS)
    assert check_job(job).starting_from == datetime(2026, 11, 29, 17, tzinfo=UTC)
    job = read(tmp_path, 'checkpoint = "place"\n' + SOURCE + BUS)
    assert sink_options(job) == {
        "url": "amqp://a:1", "address": "out", "stallSeconds": "5", "checkpointLocation": str(tmp_path / "place"),
    }  # fmt: skip
    assert "sinkPath" not in source_options(job) and check_job(job).subscription == "s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("checkpoint = ", "the file is not TOML"),
        ("[source]\n" + PARQUET, "checkpoint is missing; expected"),
        ('checkpoint = "c"\n' + PARQUET, "no [source]; expected one"),
        ('checkpoint = "c"\n' + SOURCE, "no [sink]; expected one"),
        ('checkpoint = ""\n' + SOURCE + PARQUET, "invalid value '' for checkpoint; expected a directory"),
        ('checkpoint = "c"\ntrigger_s = 0\n' + SOURCE + PARQUET, "invalid value 0 for trigger_s; expected"),
        ('checkpoint = "c"\nname = "x"\n' + SOURCE + PARQUET, "unknown key 'name' in the file; expected one of"),
        ('checkpoint = "c"\n' + SOURCE + '[sink]\nformat = "csv"\n', "invalid value 'csv' for sink.format; expected"),
        ('checkpoint = "c"\n' + SOURCE + '[sink]\nformat = "parquet"\n', "sink.path is missing; expected"),
        ('checkpoint = "c"\n' + SOURCE + PARQUET + "mode = 1\n", "unknown key 'mode' in [sink]; expected one of"),
        ('checkpoint = "c"\n' + SOURCE + 'checkpoint = "d"\n' + PARQUET, "source.checkpoint is set by the job"),
        ('checkpoint = "c"\n' + SOURCE + 'SinkPath = "d"\n' + PARQUET, "source.SinkPath is set by the job"),
        ('checkpoint = "c"\n' + SOURCE + BUS + 'checkpointLocation = "d"\n', "sink.checkpointLocation is set by"),
        ('checkpoint = "c"\nstep = 1\n' + SOURCE + PARQUET, "invalid value for step; expected at most 100 tables"),
        ('checkpoint = "c"\n' + SOURCE + PARQUET + "[[step]]\nby = 1\n", "step 1: invalid value None for function"),
        ('checkpoint = "c"\n' + SOURCE + "mode = {}\n" + PARQUET, "invalid value {} for source.mode; expected text"),
        (
            'checkpoint = "s3a://b/c"\n' + SOURCE + PARQUET,
            "invalid value 's3a://b/c' for option 'checkpoint'; expected",
        ),
        (
            'checkpoint = "c"\n' + SOURCE + PARQUET.replace('"table"', '"hdfs:/t"'),
            "invalid value 'hdfs:/t' for option 'sink.path'; expected a directory",
        ),
        (
            'checkpoint = "c"\n' + SOURCE + PARQUET.replace('["node"]', '["node", "node"]'),
            "for sink.partition_by; expected a list of columns, each once",
        ),
    ],
)
def test_a_mistake_names_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'job.toml'}: ") and said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SOURCE.replace('subscription = "s"\n', "") + PARQUET, "source.subscription is missing; expected"),
        (SOURCE + "max = 1\n" + PARQUET, "unknown option 'max'; expected one of url"),
        (SOURCE + BUS.replace('"out"', '"in"'), "the sink writes into queue 'in' at amqp://a:1, which the source"),
        (SOURCE + BUS.replace('"out"', '"in@localhost"'), "the sink writes into queue 'in@localhost' at amqp://a:1"),
        (SOURCE + BUS.replace('address = "out"\n', ""), "the sink writes into queue 'in' at amqp://a:1, which the"),
        (
            SOURCE + BUS + '[[step]]\nfunction = "counted"\nkey = ["address"]\nwindow_s = 5\n',
            "step 1, counted: the sink of messages knows a row by its place, and Spark gives them another order",
        ),
        (SOURCE + PARQUET + '[[step]]\nfunction = "wash"\n', "step 1: no function 'wash'; expected module:name, or"),
        (SOURCE + PARQUET + '[[step]]\nfunction = "os:none"\n', "step 1: no function 'os:none' (module 'os' has no"),
        (SOURCE + PARQUET + '[[step]]\nfunction = "os:sep"\n', "step 1: 'os:sep' is no function"),
        (SOURCE + PARQUET + '[[step]]\nfunction = "no_such:f"\n', "step 1: no function 'no_such:f' (No module named"),
        (SOURCE + PARQUET + '[[step]]\nfunction = "in_order"\n', "step 1, in_order: missing a required argument: 'by'"),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "where"\ncondition = "x"\ny = 1\n',
            "step 1, where: got",
        ),
        (SOURCE + PG + 'table = ""\n', "option 'table' is missing"),
        (SOURCE + BUS + 'x = "y"\n', "sink: unknown option 'x'; expected one of url"),
        (SOURCE + BUS.replace("url", "urlfile"), "sink: amqp://a:1 of option 'urlFile' cannot be read"),
        (
            SOURCE.replace('"in"', '"i*"') + BUS.replace('"out"', '"in"'),
            "the sink writes into queue 'in' at amqp://a:1",
        ),
        (SOURCE + 'Address = "x"\n' + PARQUET, "source.Address is there twice, in another case; give it once"),
        (SOURCE + 'format = "x"\n' + PARQUET, "source: unknown option 'format'"),
        (SOURCE + "endingAt = 5\n" + PARQUET, "source.endingAt belongs to a batch query of a program; leave it out"),
        (
            SOURCE + PARQUET.replace('["node"]', '["nod"]'),
            "sink.partition_by names no column 'nod'; expected some of addr",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "columns"\nnames = "body"\n',
            "step 1, columns: invalid value 'body' for names; expected a list of texts",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "columns"\nnames = []\n',
            "step 1, columns: invalid value [] for names; expected a list of texts, one at least",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "counted"\nkey = ["a"]\nwindow_s = 0\n',
            "step 1, counted: invalid value 0 for window_s; expected 0.001 to 1,000,000,000",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "counted"\nkey = ["a"]\nwindow_s = 5\nlate_s = -1\n',
            "step 1, counted: invalid value -1 for late_s; expected 0 to 1,000,000,000",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "counted"\nkey = ["a"]\nwindow_s = nan\n',
            "step 1, counted: invalid value nan for window_s; expected 0.001 to 1,000,000,000",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "with_reference"\npath = "x"\non = ["a"]\nformat = "xml"\n',
            "step 1, with_reference: invalid value 'xml' for format; expected one of parquet, json, csv",
        ),
        (SOURCE + "startingFrom = 2026-11-29\n" + PARQUET, "invalid value '2026-11-29' for option 'startingFrom'"),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "without_repeats"\nkey = ["a"]\nwithin_s = "10"\n',
            "step 1, without_repeats: invalid value '10' for within_s; expected a number",
        ),
        (
            SOURCE + PARQUET + '[[step]]\nfunction = "with_fields"\nfields = { a = 1 }\n',
            "step 1, with_fields: invalid value {'a': 1} for fields; expected a table of texts",
        ),
    ],
)
def test_a_mistake_in_an_option_is_said_before_spark_starts(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'checkpoint = "{tmp_path / "c"}"\n' + text.replace('"table"', f'"{tmp_path / "table"}"'))
    assert main(["pipeline", "run", str(file)]) == 2
    found = capsys.readouterr().err
    assert found.count("\n") == 1 and said in found and str(file) in found
    assert [path.name for path in tmp_path.iterdir()] == ["job.toml"], "nothing was begun"


def test_a_job_may_have_file_uris_and_columns_of_its_steps(tmp_path: Path) -> None:
    text = 'checkpoint = "file:///c d"\n' + SOURCE + PARQUET.replace('["node"]', '["own"]')
    job = read(tmp_path, text + '[[step]]\nfunction = "columns"\nnames = ["body own"]\n')
    assert job.checkpoint == Path("/c d")
    check_job(job)


def test_where_a_job_stands(tmp_path: Path) -> None:
    job = read(tmp_path, f'checkpoint = "{tmp_path / "c"}"\n' + SOURCE + BUS)
    options = check_job(job)
    assert places_of(options) == {}
    for log in ("offsets", "commits"):
        (tmp_path / "c" / log).mkdir(parents=True)
    offset = '{"sub": "s", "at": {"b/in": 7, "a/in": 5}, "queues": {"b/in": "x", "a/in": "y"}}'
    (tmp_path / "c" / "offsets" / "0").write_text(f"v1\n{{}}\n{offset}")
    assert places_of(options) == {}, "batch 0 was planned, and is not done"
    (tmp_path / "c" / "commits" / "0").write_text("v1\n{}")
    assert summary(Progress(rows=3, batches=1), 1.23456, places_of(options)) == {
        "rows": 3, "batches": 1, "seconds": 1.235, "late": 0, "at": {"a/in": 5, "b/in": 7},
    }  # fmt: skip


def test_what_a_batch_left_out_is_not_told_as_being_in_the_sink(tmp_path: Path) -> None:
    options = check_job(read(tmp_path, f'checkpoint = "{tmp_path / "c"}"\n' + SOURCE + BUS))
    for log in ("offsets", "commits"):
        (tmp_path / "c" / log).mkdir(parents=True)
    places = {"a/in": Place("y", 5), "b/in": Place("x", 9), "c/in": Place("z", 4)}
    offset = Offset("s", places, {}, {"c/in": Part("z", ((2, 4),))})
    (tmp_path / "c" / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset.json())}")
    (tmp_path / "c" / "commits" / "0").write_text("v1\n{}")
    Leftovers(tmp_path / "c", "s").leave(0, {"b/in": Part("x", ((6, 9),))})
    assert places_of(options) == {"a/in": 5, "b/in": 6, "c/in": 2}


def at_node(tmp_path: Path, urls: str, sink: str) -> tuple[Job, SourceOptions]:
    source = f'[source]\nurl = "{urls}"\naddress = "in"\nsubscription = "s"\nretrySeconds = 0\n'
    job = read(tmp_path, f'checkpoint = "{tmp_path / "c"}"\n{source}[sink]\n{sink}\n')
    return job, check_job(job)


async def test_what_a_job_reads_and_writes_must_answer_before_spark_starts(
    tmp_path: Path, start_node: StartNode
) -> None:
    node = await start_node("hub")
    other = node.url.replace("127.0.0.1", "localhost")

    async def ask(sink: str, urls: str = node.url) -> None:
        await asyncio.to_thread(reach, *at_node(tmp_path, urls, sink))

    bus = 'format = "holdfast"\nretrySeconds = 0\n'
    await ask(f'{bus}url = "{other}"\naddress = "out"')
    with pytest.raises(ConfigError, match=f"^the sink writes into queue 'in' at {other}, which the source reads"):
        await ask(f'{bus}url = "{other}"\naddress = "in"')
    with pytest.raises(NodeUnreachable, match=r"^sink: amqp://127.0.0.1:1: .*refused"):
        await ask(f'{bus}url = "amqp://127.0.0.1:1"\naddress = "out"')
    with pytest.raises(HoldfastError, match=r"^table t of PostgreSQL: .*refused"):
        await ask('format = "postgresql"\nurl = "postgresql://ann@127.0.0.1:1/x"\ntable = "t"')
    # By its name, and where the source has more nodes, one of which is away.
    for address, urls in (("in@hub", node.url), ("in@localhost", node.url), ("in", f"amqp://127.0.0.1:1,{node.url}")):
        with pytest.raises(ConfigError, match=f"^the sink writes into queue '{address}' at {other}, which the source"):
            await ask(f'{bus}url = "{other}"\naddress = "{address}"', urls)
    await ask(f'{bus}url = "{other}"\naddress = "in@far"')
    await ask(f'{bus}url = "{other}"\naddress = "out@hub"', f"amqp://127.0.0.1:1,{node.url}")
    async with await connect(node.url) as connection:
        await connection.manage("OPEN", "holdfast:subscription", "other", {"queue": "in"})
    for urls in (node.url, f"amqp://127.0.0.1:1,{node.url}"):
        with pytest.raises(
            ConfigError, match=r"^source: queue 'in' at .*: queue 'in' is taken by subscription 'other'"
        ):
            await ask(f'format = "parquet"\npath = "{tmp_path / "table"}"', urls)
    await node.stop()
    with pytest.raises(NodeUnreachable, match=r"^source: amqp://127.0.0.1:"):
        await ask(f'format = "parquet"\npath = "{tmp_path / "table"}"')


def test_a_checkpoint_of_another_job_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'checkpoint = "{tmp_path / "c"}"\n{SOURCE}{BUS}')
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "0").write_text('v1\n{}\n{"sub": "other", "at": {}, "queues": {}}')
    assert main(["pipeline", "run", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "offsets/0 holds no place of subscription 's'; give the checkpointLocation" in said
