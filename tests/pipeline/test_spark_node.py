"""From a real node into a table: exact rows through kills of the driver and of the node, and every refusal.

Kills come at places of a seeded choice in the checkpoint's life, to the driver alone or with its JVM and workers.
"""

import asyncio
import json
import os
import random
import runpy
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from holdfast.cli import main
from holdfast.client import Message, Properties, connect
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast.bus import Lease, Position
from pyspark_holdfast.checkpoint import batches_in
from pyspark_holdfast.ingest import IngestJob, default_checkpoint, run_ingest
from pyspark_holdfast.node_bus import NodeBus
from pyspark_holdfast.options import parse_options
from pyspark_holdfast.queries import Progress
from pyspark_holdfast.tables import property_of, read_arrow, read_table
from support.documents import python_in
from support.eventually import eventually_true
from support.process import NodeProcess, run_holdfast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

StartNode = Callable[..., Awaitable[NodeProcess]]
LIMIT_S = 150.0
QUEUE = "flights"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


async def send(url: str, first: int, last: int) -> None:
    """Messages `first` to `last`; each is its number, in the id, a property and the body."""
    async with await connect(url, retry_s=LIMIT_S) as connection:
        sender = await connection.sender(QUEUE)
        for number in range(first, last + 1):
            message = Message(
                properties=Properties(message_id=f"m-{number}", subject="EWR", content_type="text/plain"),
                application_properties={"number": number, "late": number % 2 == 0},
                data=[str(number).encode()],
            )
            await sender.submit(message)
        await sender.close()


def job(tmp_path: Path, url: str, *, rows_max: int = 1_000, available_now: bool = True) -> IngestJob:
    out = tmp_path / "table"
    options = {
        "url": url,
        "address": QUEUE,
        "subscription": "s",
        "maxRowsPerTrigger": str(rows_max),
        "rowsPerPartition": "400",
        "retrySeconds": str(LIMIT_S),
    }
    return IngestJob(
        options=options,
        out=out,
        checkpoint=default_checkpoint(out),
        available_now=available_now,
        trigger_s=0.1,
    )


async def run(
    spark: "SparkSession",
    job: IngestJob,
    stop: threading.Event | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    return await asyncio.wait_for(asyncio.to_thread(run_ingest, spark, job, stop or threading.Event(), tell), LIMIT_S)


def place(job: IngestJob) -> Position:
    bus = NodeBus(parse_options(job.options))
    try:
        return bus.place()
    finally:
        bus.close()


def bodies(out: Path) -> list[int]:
    """The numbers in the table by sequence, as the bodies tell them."""
    table = read_arrow(out, ["sequence", "body"]).sort_by("sequence")
    sequences = table.column("sequence").to_pylist()
    assert len(sequences) == len(set(sequences)), "an entry is there twice"
    return [int(body) for body in table.column("body").to_pylist()]


async def test_every_message_with_all_its_columns(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 2_500)
    ingest = job(tmp_path, node.url)
    progress = await run(spark, ingest)
    assert progress.rows == 2_500
    rows = read_arrow(ingest.out).sort_by("sequence").to_pylist()
    assert [row["sequence"] for row in rows] == list(range(1, 2_501))
    for number, row in enumerate(rows, start=1):
        assert row["body"] == str(number).encode()
        assert (row["message_id"], row["subject"]) == (f"m-{number}", "EWR")
        assert (row["address"], row["content_type"]) == (QUEUE, "text/plain")
        late = "true" if number % 2 == 0 else "false"
        assert dict(row["application_properties"]) == {"number": str(number), "late": late}
        assert dict(row["annotations"])["x-opt-sequence-number"] == str(number)
        assert row["enqueued"] is not None
    assert place(ingest)[1:4] == (2_501, 2_501, 2_501)
    await send(node.url, 2_501, 2_600)
    await run(spark, ingest)
    assert bodies(ingest.out) == list(range(1, 2_601))


async def test_the_examples_write_a_table_and_query_it(
    our_session: "SparkSession",
    tmp_path: Path,
    start_node: StartNode,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The program in examples/, the one in docs/spark.md, and the report of README.md, in the tests' session."""
    monkeypatch.chdir(tmp_path)
    node = await start_node("hub")
    async with await connect(node.url) as connection:
        for queue in ("flights", "others"):
            sender = await connection.sender(queue)
            for carrier, delay in (("UA", "4"), ("DL", "7"), ("UA", "0")):
                row = {"carrier": carrier, "delay": delay}
                await sender.post(Message(application_properties=row, data=[b""]))
            await sender.drain()
    example = runpy.run_path(str(EXAMPLES / "spark_stream.py"))
    await asyncio.wait_for(asyncio.to_thread(example["main"], node.url, tmp_path), LIMIT_S)
    counted = capsys.readouterr().out
    assert [line.split("|")[1:3] for line in counted.splitlines() if "A|" in line or "DL" in line] == [
        ["     DL", "    1"],
        ["     UA", "    2"],
    ]
    program = python_in("docs/spark.md", "start_session").replace("amqp://127.0.0.1:5672", node.url)
    program = program.replace('"flights"', '"others"').replace("/data/mine", str(tmp_path / "mine"))
    names: dict[str, Any] = {}
    exec(program, names)
    await asyncio.wait_for(asyncio.to_thread(names["query"].awaitTermination), LIMIT_S)
    report = python_in("README.md", "start_session").replace('"table"', repr(str(tmp_path / "mine")))
    await asyncio.wait_for(asyncio.to_thread(exec, report, {}), LIMIT_S)
    shown = [line.split("|")[1:4] for line in capsys.readouterr().out.splitlines() if line.count("|") == 4]
    assert [[cell.strip() for cell in row] for row in shown[1:]] == [["DL", "1", "7.0"], ["UA", "2", "2.0"]]


async def test_every_kind_of_body_is_in_the_table(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    messages = [
        Message(value={"carrier": "UA", "delay": 2.5, "gate": None}),
        Message(value=[1, "two", b"\x03"]),
        Message(value=42),
        Message(sequences=[[1, 2], [3]]),
        Message(data=[b"a", b"bc"]),
        Message(value="text"),
        Message(properties=Properties(subject="no body")),
    ]
    async with await connect(node.url) as connection:
        sender = await connection.sender(QUEUE)
        for message in messages:
            await sender.post(message)
    ingest = job(tmp_path, node.url)
    await run(spark, ingest)
    rows = read_arrow(ingest.out).sort_by("sequence").to_pylist()
    assert [(row["body_kind"], row["body"], row["body_value"]) for row in rows] == [
        ("value", b"", '{"carrier":"UA","delay":2.5,"gate":null}'),
        ("value", b"", '[1,"two",{"amqp:binary":"Aw=="}]'),
        ("value", b"", "42"),
        ("sequence", b"", "[[1,2],[3]]"),
        ("data", b"abc", "[1,2]"),
        ("string", b"text", None),
        ("none", b"", None),
    ]
    carriers = await asyncio.to_thread(
        lambda: read_table(spark, ingest.out).select(property_of("carrier")).orderBy("sequence").collect()
    )
    assert [row[0] for row in carriers] == ["UA", *[None] * 6]


async def test_the_batch_reader_leaves_everything(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 900)
    reader = spark.read.format("holdfast").option("url", node.url).option("address", QUEUE)
    rows = reader.option("rowsPerPartition", "400").load()
    assert await asyncio.to_thread(rows.count) == 900
    bus = NodeBus(parse_options({"url": node.url, "address": QUEUE}))
    assert bus.bounds()[1:4] == (1, 1, 901)
    bus.close()


async def test_through_a_crash_of_the_node(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 1_500)
    ingest = job(tmp_path, node.url, rows_max=300, available_now=False)
    stop, begun = threading.Event(), threading.Event()
    running = asyncio.create_task(run(spark, ingest, stop, lambda progress: begun.set()))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    await node.kill()
    await node.restart(same_port=True)
    await send(node.url, 1_501, 2_000)
    await eventually_true(
        lambda: running.done() or place(ingest).advanced == 2_001, what="everything released", limit_s=LIMIT_S
    )
    stop.set()
    await running
    assert bodies(ingest.out) == list(range(1, 2_001))


async def test_a_successor_fences_the_query(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 500)
    ingest = job(tmp_path, node.url, available_now=False)
    begun = threading.Event()
    running = asyncio.create_task(run(spark, ingest, tell=lambda progress: begun.set()))
    await asyncio.to_thread(begun.wait, LIMIT_S)
    bus = NodeBus(parse_options(ingest.options))
    await asyncio.to_thread(bus.open, "first", "take")
    with pytest.raises(HoldfastError, match="taken over") as caught:
        await running
    assert "\n" not in str(caught.value)
    bus.close()


def test_errors_of_the_node_name_the_queue(tmp_path: Path) -> None:
    bus = NodeBus(parse_options({**job(tmp_path, "amqp://127.0.0.1:1").options, "retrySeconds": "0"}))
    with pytest.raises(HoldfastError, match=QUEUE):
        bus.place()
    bus.close()


async def test_a_fenced_lease_reads_and_advances_nothing(tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 10)
    bus = NodeBus(parse_options(job(tmp_path, node.url).options))
    old = await asyncio.to_thread(bus.open, "first", "take")
    lease = Lease("s", old.queue_uuid, old.lease_epoch)
    assert [entry.sequence for entry in bus.entries(3, 6, lease)] == [3, 4, 5]
    bus.open("first", "take")
    for call in (lambda: list(bus.entries(3, 6, lease)), lambda: bus.advance(lease, 5)):
        with pytest.raises(HoldfastError, match="taken over"):
            call()
    assert bus.place().advanced == 1
    bus.close()


async def test_a_queue_made_anew_is_refused(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 100)
    ingest = job(tmp_path, node.url)
    await run(spark, ingest)
    async with await connect(node.url) as connection:
        await connection.manage("DELETE", "holdfast:subscription", "s", {"queue": QUEUE})
        await connection.manage("DELETE", "holdfast:queue", QUEUE)
    await send(node.url, 1, 100)
    with pytest.raises(ConfigError, match="deleted and created again"):
        await run(spark, ingest)


async def test_an_older_checkpoint_is_refused(spark: "SparkSession", tmp_path: Path, start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(node.url, 1, 100)
    ingest = job(tmp_path, node.url)
    await run(spark, ingest)
    shutil.copytree(ingest.checkpoint, tmp_path / "old checkpoint")
    shutil.copytree(ingest.out, tmp_path / "old table")
    await send(node.url, 101, 200)
    await run(spark, ingest)
    for directory, old in ((ingest.checkpoint, "old checkpoint"), (ingest.out, "old table")):
        shutil.rmtree(directory)
        shutil.move(tmp_path / old, directory)
    with pytest.raises(ConfigError, match="older than the subscription"):
        await run(spark, ingest)


# ------------------------------------------------------------------------------------------- the command


def members(session: int) -> list[int]:
    """Live processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def jvm_of(session: int) -> int:
    (found,) = [pid for pid in members(session) if Path("/proc", str(pid), "comm").read_text() == "java\n"]
    return found


def command_of(pid: int) -> bytes:
    """Empty for a process that has ended meanwhile."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def runs_in_java(pid: int) -> str:
    """The class of Spark's that this JVM runs; empty for any other process."""
    program, *arguments = command_of(pid).decode().split("\0")
    found = [argument for argument in arguments if argument.startswith("org.apache.spark.")]
    return found[0] if program.endswith("/java") and found else ""


async def start_ingest(tmp_path: Path, url: str, *more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "pipeline", "ingest", QUEUE, "--url", url, "--out",
        str(tmp_path / "table"), "--master", "local[2]", "--max-rows", "200", "--trigger-s", "0.1", *more,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        start_new_session=True, env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip


def reached(process: asyncio.subprocess.Process, log: Path, batch: int) -> bool:
    return max(batches_in(log), default=-1) >= batch or process.returncode is not None


def gone(session: int) -> bool:
    return not members(session)


def kill_session(session: int) -> None:
    for pid in members(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.mark.usefixtures("our_session")  # which goes on with what the command's own left
async def test_killed_or_stopped_at_random_moments_the_table_is_exact(
    tmp_path: Path, start_node: StartNode, day: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of four ends, drawn by the day as its moment is; the kill campaign has thousands."""
    node = await start_node("hub")
    out = tmp_path / "table"
    checkpoint = default_checkpoint(out)
    choose = random.Random(day)
    how = ("kill the JVM", "kill all", "kill the driver", "stop")[day % 4]
    sent = 2_000
    await send(node.url, 1, sent)
    process = await start_ingest(tmp_path, node.url)
    try:
        log = choose.choice([checkpoint / "offsets", checkpoint / "commits", out / "_spark_metadata"])
        target = choose.randint(0, 5)
        await eventually_true(partial(reached, process, log, target), what=f"batch {target} in {log}", limit_s=LIMIT_S)
        assert process.returncode is None, await process.communicate()
        if how == "kill the JVM":
            os.kill(jvm_of(process.pid), signal.SIGKILL)
        elif how == "kill all":
            kill_session(process.pid)
        elif how == "kill the driver":
            process.kill()  # its JVM may still commit
        else:
            process.send_signal(signal.SIGTERM)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
        if how == "kill the JVM":
            said = stderr.decode()
            assert process.returncode == 1 and said.count("\n") == 1, said
            assert said.startswith("holdfast pipeline ingest: Spark's JVM ended (signal 9) (Spark's log: ")
        elif how == "stop":
            assert process.returncode == 0, stderr.decode()
            told = json.loads(stderr.decode().splitlines()[-1])
            assert set(told) == {"rows", "batches", "seconds", "advanced"}
        await eventually_true(partial(gone, process.pid), what="nothing left of the driver", limit_s=LIMIT_S)
    finally:
        kill_session(process.pid)
        await process.wait()
    if (out / "_spark_metadata").exists():
        numbers = bodies(out)
        assert numbers == list(range(1, len(numbers) + 1))
    again = ["--url", node.url, "--out", str(out), "--master", "local[2]", "--available-now"]
    assert main(["pipeline", "ingest", QUEUE, *again]) == 0
    told = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert told["advanced"] == sent + 1
    assert bodies(out) == list(range(1, sent + 1))


@pytest.mark.parametrize("node_hangs", [False, True])
async def test_ctrl_c_ends_it_with_a_line_also_where_the_node_hangs(
    tmp_path: Path, start_node: StartNode, node_hangs: bool
) -> None:
    """Which it would wait for, at 1,000 s each time."""
    node = await start_node("hub")
    await send(node.url, 1, 500)
    log = default_checkpoint(tmp_path / "table") / "commits"
    process = await start_ingest(tmp_path, node.url, "--retry", "1000")
    try:
        await eventually_true(partial(reached, process, log, 0), what="a batch written", limit_s=LIMIT_S)
        if node_hangs:
            os.kill(node.pid, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
        said = stderr.decode()
        assert process.returncode == 130, said
        told = json.loads(said.splitlines()[-1])
        assert set(told) == {"rows", "batches", "seconds", "advanced"}
        assert said.count("\n") == (2 if node_hangs else 1), said  # the place reached is not known
        await eventually_true(partial(gone, process.pid), what="nothing left of the driver", limit_s=LIMIT_S)
    finally:
        if node_hangs:
            os.kill(node.pid, signal.SIGCONT)
        kill_session(process.pid)
        await process.wait()
    numbers = bodies(tmp_path / "table")
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= 200


@pytest.mark.parametrize("phase", ["launcher.Main", "deploy.SparkSubmit"])
async def test_ctrl_c_while_spark_starts_ends_it_at_once(tmp_path: Path, start_node: StartNode, phase: str) -> None:
    """Whether spark-submit looks for its classes yet, or is the JVM that has not written its port."""
    node = await start_node("hub")
    process = await start_ingest(tmp_path, node.url)

    def begun() -> bool:
        return any(runs_in_java(pid) == f"org.apache.spark.{phase}" for pid in members(process.pid))

    try:
        await eventually_true(begun, what="a JVM", limit_s=LIMIT_S)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = await asyncio.wait_for(process.communicate(), LIMIT_S)
        assert process.returncode == 130, stderr.decode()
        assert stderr == b"holdfast pipeline ingest: stopped before Spark was up; nothing was written\n"
        await eventually_true(partial(gone, process.pid), what="nothing left of Spark", limit_s=LIMIT_S)
    finally:
        kill_session(process.pid)
        await process.wait()


async def test_a_table_without_its_checkpoint_is_refused_before_spark(tmp_path: Path) -> None:
    (tmp_path / "table" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "table" / "_spark_metadata" / "0").write_text("v1\n")
    ended = await run_holdfast(
        "pipeline", "ingest", QUEUE, "--out", str(tmp_path / "table"), "--available-now", limit_s=LIMIT_S
    )
    assert ended.code == 2
    assert ended.stderr.count("\n") == 1
    assert "Spark would skip" in ended.stderr
