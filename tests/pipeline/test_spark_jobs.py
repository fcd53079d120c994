"""`holdfast pipeline run` and the verbs of the simulator's table, with real nodes: what they write, and their ends."""

import asyncio
import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from holdfast.cli import main
from holdfast.client import connect
from pipeline.test_spark_many import rows
from pipeline.test_spark_node import LIMIT_S, StartNode, command_of, gone, kill_session, members
from support.eventually import eventually_true
from support.postgresql import postgresql

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def job_file(tmp_path: Path, url: str, sink: str) -> Path:
    file = tmp_path / "job.toml"
    file.write_text(
        f'checkpoint = "{tmp_path / "checkpoint"}"\ntrigger_s = 0.1\n\n'
        f'[source]\nurl = "{url}"\naddress = "in-*"\nsubscription = "job"\nmaxRowsPerTrigger = 50\n\n[sink]\n{sink}\n'
    )
    return file


async def send(url: str, queue: str, count: int) -> None:
    async with await connect(url) as connection:
        sender = await connection.sender(queue)
        for number in range(1, count + 1):
            await sender.submit(f"{queue} {number}")
        await sender.close()


@pytest.mark.usefixtures("our_session")
async def test_a_job_writes_a_table_by_its_columns_and_another_writes_queues(
    tmp_path: Path, start_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_node("hub")
    await send(node.url, "in-1", 120)
    await send(node.url, "in-2", 30)
    table = tmp_path / "table"
    file = job_file(tmp_path, node.url, f'format = "parquet"\npath = "{table}"\npartition_by = ["node", "address"]')
    # In this thread: in another one Spark does not find a sink that is written in Python.
    assert main(["pipeline", "run", str(file), "--available-now"]) == 0
    told = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert told["rows"] == 150 and told["at"] == {"hub/in-1": 121, "hub/in-2": 31}
    assert {path.name for path in table.glob("node=hub/address=*")} == {"address=in-1", "address=in-2"}
    shutil.rmtree(tmp_path / "checkpoint")
    file = job_file(tmp_path, node.url, f'format = "holdfast"\nurl = "{node.url}"\naddress = "out"')
    file.write_text(file.read_text().replace('"job"', '"again"\nmode = "copy"'))
    await send(node.url, "in-1", 10)
    assert main(["pipeline", "run", str(file), "--available-now"]) == 0
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("out", start_sequence=1, end_sequence=11)
        found = [delivery.message.body_bytes().decode() async for delivery in receiver]
    assert sorted(found) == sorted(f"in-1 {number}" for number in range(1, 11))


@pytest.mark.usefixtures("our_session")
async def test_a_job_fills_a_table_of_postgresql_once_though_its_rows_are_written_again(
    tmp_path: Path, start_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with postgresql() as url:
        import psycopg

        node = await start_node("hub")
        await send(node.url, "in-1", 120)
        file = job_file(tmp_path, node.url, f'format = "postgresql"\nurl = "{url}"\ntable = "flights"')
        file.write_text(file.read_text().replace('"job"', '"job"\nmode = "copy"'))
        # In this thread: in another one Spark does not find a sink that is written in Python.
        assert main(["pipeline", "run", str(file), "--available-now"]) == 0
        # Another query, which knows nothing of the first, writes all of it again, and what is new.
        file.write_text(file.read_text().replace('"job"', '"again"').replace('checkpoint"\n', 'again"\n'))
        await send(node.url, "in-1", 30)
        assert main(["pipeline", "run", str(file), "--available-now"]) == 0
        with psycopg.connect(url) as connection:
            count = connection.execute("SELECT count(*), max(sequence), min(sequence) FROM flights").fetchone()
        assert count == (150, 150, 1)
        assert json.loads(capsys.readouterr().err.splitlines()[-1])["at"] == {"hub/in-1": 151}


def in_delta(table: Path, query: str) -> "pa.Table":
    """What `query` finds in the table, which it calls t."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    import pyarrow as pa

    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table)).execute(query).read_all()
    return pa.table(found)


@pytest.mark.usefixtures("our_session")
async def test_a_job_fills_a_table_of_delta(
    tmp_path: Path, start_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    node = await start_node("hub")
    table = tmp_path / "flights"
    file = job_file(tmp_path, node.url, f'format = "delta"\npath = "{table}"')
    for count in (120, 30):
        await send(node.url, "in-1", count)
        # In this thread: in another one Spark does not find a sink that is written in Python.
        assert main(["pipeline", "run", str(file), "--available-now"]) == 0
    rows_there = in_delta(table, "SELECT sequence, body FROM t ORDER BY sequence")
    assert rows_there.column("sequence").to_pylist() == list(range(1, 151))
    assert rows_there.column("body")[149].as_py() == b"in-1 30"
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["at"] == {"hub/in-1": 151}


def test_a_batch_of_delta_that_is_computed_again_is_there_once(spark: "SparkSession", tmp_path: Path) -> None:
    """As after a kill between the table's commit and Spark's."""
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    (tmp_path / "in").mkdir()
    commits = tmp_path / "checkpoint" / "commits"
    for number in range(3):
        (tmp_path / "in" / str(number)).write_text(f"{number}\n")
        rows_of = spark.readStream.format("text").load(str(tmp_path / "in"))
        writer = rows_of.writeStream.format("holdfast-delta").option("path", str(tmp_path / "table"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
        for name in (str(number), f".{number}.crc") if number < 2 else ():
            (commits / name).unlink(missing_ok=True)
    assert in_delta(tmp_path / "table", "SELECT value FROM t ORDER BY value").column("value").to_pylist() == list("012")


async def start_verb(tmp_path: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "pipeline", *arguments, "--master", "local[2]",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        start_new_session=True, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip


async def test_ctrl_c_ends_a_job_with_a_line_that_says_where_it_stands(tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, "in-1", 500)
    table = tmp_path / "table"
    process = await start_verb(
        tmp_path, "run", str(job_file(tmp_path, node.url, f'format = "parquet"\npath = "{table}"'))
    )

    def written() -> bool:
        return process.returncode is not None or (tmp_path / "checkpoint" / "commits" / "1").exists()

    try:
        await eventually_true(written, what="two batches", limit_s=LIMIT_S)
        process.send_signal(signal.SIGINT)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
        said = stderr.decode()
        assert process.returncode == 130 and said.count("\n") == 1, said
        at = json.loads(said)["at"]["hub/in-1"]
        assert rows(table)["hub", "in-1"][: at - 1] == [f"in-1 {number}" for number in range(1, at)]
        await eventually_true(partial(gone, process.pid), what="nothing left of the driver", limit_s=LIMIT_S)
    finally:
        kill_session(process.pid)
        await process.wait()


async def test_ctrl_c_ends_a_swarm_within_seconds(tmp_path: Path) -> None:
    """Its runs of the simulator, which take minutes, end too."""
    process = await start_verb(tmp_path, "swarm", "--seeds", "2000", "--out", str(tmp_path / "verdicts"))

    def simulating() -> bool:
        return process.returncode is not None or any(b"sim\0run" in command_of(pid) for pid in members(process.pid))

    try:
        await eventually_true(simulating, what="a run of the simulator", limit_s=LIMIT_S)
        process.send_signal(signal.SIGINT)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
        assert process.returncode == 130, stderr.decode()
        text = "holdfast pipeline swarm: stopped before all 2000 seeds had run; nothing was written\n"
        assert stderr.decode() == text
        assert not (tmp_path / "verdicts").exists(), "the same command can be given again"
        await eventually_true(partial(gone, process.pid), what="nothing left of it", limit_s=LIMIT_S)
    finally:
        kill_session(process.pid)
        await process.wait()
