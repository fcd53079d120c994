"""Deaths of everything under a Spark job on a cluster, in one run, and the proof that its sink is exact.

    python -m holdfast_lab.real.spark_deaths --runs 200 --seed 1 --json

Rules of this file: all that a run does is drawn from its seed, so that one that failed is run again with
`--runs 1 --seed S`. A run has a node, a backlog in a queue, and `holdfast pipeline run` on a cluster of two executors
in processes of their own (Spark's `local-cluster`). An executor, a Python worker, the driver and the node die, one
after the other in an order that is drawn, each at a place of the checkpoint's life. Then the job runs to its end, and
table or queue must hold each message once.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast.client import connect
from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import (
    STOP_TIMEOUT_S,
    Child,
    ChildFailed,
    Children,
    cancel_on_signals,
    holdfast_command,
    session_members,
)
from holdfast_lab.base.progress import Progress
from holdfast_lab.judge.arrivals import Verdict, judge
from holdfast_lab.judge.table import read_columns
from holdfast_lab.real.campaign import JVM_OPTIONS, whole
from holdfast_lab.real.configs import NodeFile

MASTER: Final = "local-cluster[2,1,1024]"
DRAWN: Final = ("parquet", "holdfast", "delta")
SINKS: Final = (*DRAWN, "postgresql")
VICTIMS: Final = ("executor", "worker", "driver", "node")
NODE: Final = "hub"
SOURCE: Final = "in"
SINK: Final = "out"
SUBSCRIPTION: Final = "job"

MESSAGES: Final = 1_000
ROWS_MAX: Final = 50
ROWS_PER_TASK: Final = 20
"""So a batch has three tasks, for two executors, and a run has 20 batches, more than its deaths need."""
BATCHES_BETWEEN_MAX: Final = 2
PAUSE_S_MAX: Final = 0.4
LOOK_S: Final = 0.05
STARTS_MAX: Final = 8
"""Of the job in one run: after each death it may have to be started again, and Spark gives up now and then where a
Python process is not up within 10 s."""
RUN_LIMIT_S: Final = 900.0
"""A minute where the machine is quiet, four where ten others want it."""


@dataclass(slots=True)
class Run:
    """What one run did and what came of it."""

    seed: int
    sink: str
    deaths: list[str] = field(default_factory=list)
    starts: int = 0
    seconds: float = 0.0
    verdict: Verdict | None = None
    failure: str | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None and self.verdict is not None and self.verdict.ok


class Deaths:
    """One run over `work`, which is its own."""

    def __init__(
        self, children: Children, work: Path, seed: int, sink: str | None = None, postgresql: str = ""
    ) -> None:
        """`sink`: one of SINKS, or one of DRAWN is drawn. `postgresql`: the URL of a database, for that sink."""
        self._children = children
        self._work = work
        self._random = Random(f"spark-deaths/{seed}")
        drawn = self._random.choice(DRAWN)
        self.run = Run(seed, sink or drawn)
        self._postgresql = postgresql
        self._table_name = f"deaths_{seed}"
        self._node: Child | None = None
        self._address = ""
        self._job: Child | None = None
        self._sent = [str(number) for number in range(1, MESSAGES + 1)]

    async def play(self) -> Run:
        """The whole run. Never raises for what the system under test did."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(RUN_LIMIT_S):
                await self._play()
        except TimeoutError:
            self.run.failure = f"not over after {RUN_LIMIT_S:.0f} s"
        except (HoldfastError, OSError) as error:
            self.run.failure = str(error)
        self.run.seconds = round(time.monotonic() - began, 1)
        return self.run

    async def _play(self) -> None:
        hub = NodeFile(name=NODE, role=None, data=self._work / "hub.holdfast", queues=[SOURCE, SINK])
        self._node, self._address = await self._children.node(NODE, hub.write(self._work))
        lines = self._work / "lines"
        await asyncio.to_thread(lines.write_text, "\n".join(self._sent) + "\n")
        await (await self._verb("send", "send", SOURCE, lines, "--url", self._url)).success(RUN_LIMIT_S)
        self._write_job()
        victims = list(VICTIMS)
        self._random.shuffle(victims)
        for victim in victims:
            await self._reached(victim)
            await self._kill(victim)
        await self._until_done()
        assert self._job is not None
        self._job.signal(signal.SIGTERM)
        await self._job.success(RUN_LIMIT_S)
        self.run.verdict = judge(self._sent, sorted(await self._arrived(), key=int))

    # -------------------------------------------------------------------------------------------------- the job

    @property
    def _url(self) -> str:
        return f"amqp://{self._address}"

    @property
    def _checkpoint(self) -> Path:
        return self._work / "checkpoint"

    @property
    def _table(self) -> Path:
        return self._work / "table"

    def _write_job(self) -> None:
        sinks = {
            "parquet": {"path": str(self._table)},
            "holdfast": {"url": self._url, "address": SINK},
            "delta": {"path": str(self._table)},
            "postgresql": {"url": self._postgresql, "table": self._table_name},
        }
        sink = {"format": self.run.sink, **sinks[self.run.sink]}
        source = {
            "url": self._url,
            "address": SOURCE,
            "subscription": SUBSCRIPTION,
            "maxRowsPerTrigger": ROWS_MAX,
            "rowsPerPartition": ROWS_PER_TASK,
        }
        lines = [f"checkpoint = {json.dumps(str(self._checkpoint))}", "trigger_s = 0.1"]
        for part, table in (("source", source), ("sink", sink)):
            lines += ["", f"[{part}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        (self._work / "job.toml").write_text("\n".join(lines) + "\n")

    async def _verb(self, name: str, *arguments: str | Path | float) -> Child:
        return await self._children.start(name, holdfast_command(*arguments), cwd=self._work, more=JVM_OPTIONS)

    async def _running(self) -> Child:
        """The job, started where it does not run. Raises ChildFailed where it has ended too often."""
        if self._job is None or not self._job.running:
            if self._job is not None and self.run.starts >= STARTS_MAX:
                raise self._job.died(await self._job.wait(), f" in its start {self.run.starts}")
            self.run.starts += 1
            self._job = await self._verb("job", "pipeline", "run", self._work / "job.toml", "--master", MASTER)
        return self._job

    # --------------------------------------------------------------------------------------------------- deaths

    async def _reached(self, victim: str) -> None:
        """Waits until the job has come on by some batches, to the beginning or the end of one, and a moment more."""
        log = self._random.choice(("offsets", "commits"))
        wanted = self._newest(log) + self._random.randint(1, BATCHES_BETWEEN_MAX)
        pause_s = self._random.uniform(0.0, PAUSE_S_MAX)
        wanted = min(wanted, MESSAGES // ROWS_MAX - 1)
        while self._newest(log) < wanted or (victim != "node" and not self._found(victim)):
            await self._running()
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(pause_s)
        self.run.deaths.append(f"{victim} {pause_s:.2f} s after {log}/{wanted}")

    def _newest(self, log: str) -> int:
        try:
            names = os.listdir(self._checkpoint / log)
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _found(self, victim: str) -> list[int]:
        """The processes of the job that are such a victim; those of the driver are its own process and all others."""
        if self._job is None or not self._job.running:
            return []
        members = session_members(self._job.pid)
        if victim == "driver":
            return members
        words = {"executor": "CoarseGrainedExecutorBackend", "worker": "pyspark.daemon"}[victim]
        return [pid for pid in members if words in _command(pid)]

    async def _kill(self, victim: str) -> None:
        if victim == "node":
            assert self._node is not None
            await self._node.kill()
            command = holdfast_command("node", self._work / f"{NODE}.toml", "--listen", self._address)
            self._node, _ = await self._children.started_node(NODE, command)
        elif victim == "driver":
            if self._job is not None:
                await self._job.kill(whole_session=self._random.random() < 0.5)
        elif found := self._found(victim):
            os.kill(self._random.choice(found), signal.SIGKILL)

    # --------------------------------------------------------------------------------------------------- the end

    async def _until_done(self) -> None:
        """Until the job has all messages in its sink, and the node was told."""
        end = len(self._sent) + 1
        while True:
            await self._running()
            async with await connect(self._url, retry_s=STOP_TIMEOUT_S) as connection:
                told = await connection.manage("READ", "holdfast:subscription", SUBSCRIPTION, {"queue": SOURCE})
            if int(told["advanced"]) >= end:
                return
            await asyncio.sleep(0.5)

    async def _arrived(self) -> list[str]:
        if self.run.sink == "parquet":
            columns = await asyncio.to_thread(read_columns, self._table, ["body"])
            return [body.decode() for body in columns["body"]]
        if self.run.sink == "delta":
            return await asyncio.to_thread(self._in_delta)
        if self.run.sink == "postgresql":
            return await asyncio.to_thread(self._in_postgresql)
        async with await connect(self._url) as connection:
            tail = (await connection.manage("READ", "holdfast:queue", SINK))["next_sequence"]
            receiver = await connection.receiver(SINK, start_sequence=1, end_sequence=tail)
            return [delivery.message.body_bytes().decode() async for delivery in receiver]

    def _in_delta(self) -> list[str]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(self._table)).execute("SELECT body FROM t").read_all()
        return [body.decode() for body in pa.table(found).column("body").to_pylist()]

    def _in_postgresql(self) -> list[str]:
        import psycopg

        with psycopg.connect(self._postgresql) as connection:
            rows = connection.execute(f"SELECT body FROM {self._table_name}").fetchall()
            connection.execute(f"DROP TABLE {self._table_name}")
        return [bytes(body).decode() for (body,) in rows]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def report(runs: Sequence[Run], wall_s: float) -> dict[str, Any]:
    """All runs as JSON; those that failed whole."""
    verdicts = [run.verdict for run in runs if run.verdict is not None]
    return {
        "runs": len(runs),
        "ok": all(run.ok for run in runs) and bool(runs),
        "sinks": dict(sorted(Counter(run.sink for run in runs).items())),
        "deaths": dict(sorted(Counter(death.partition(" ")[0] for run in runs for death in run.deaths).items())),
        "starts": sum(run.starts for run in runs),
        "sent": sum(verdict.sent for verdict in verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "twice": sum(verdict.twice for verdict in verdicts),
        "failed": [asdict(run) for run in runs if not run.ok],
        "wall_s": round(wall_s, 1),
    }


async def run_deaths(
    runs: int, seed: int, work: Path, progress: Progress, sink: str | None, postgresql: str
) -> dict[str, Any]:
    """`runs` runs from `seed` on, until one fails. The report."""
    cancel_on_signals()
    began = time.monotonic()
    done: list[Run] = []
    for number in range(seed, seed + runs):
        place = work / f"run-{number}"
        place.mkdir(parents=True, exist_ok=True)
        async with Children(place / "logs") as children:
            run = await Deaths(children, place, number, sink, postgresql).play()
        done.append(run)
        state = "ok" if run.ok else f"FAILED ({place})"
        progress.say(f"seed {number}: {run.sink}, {'; '.join(run.deaths)}, {run.seconds} s, {state}")
        if not run.ok:
            break
        shutil.rmtree(place, ignore_errors=True)
    return report(done, time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 where every run was exact."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.real.spark_deaths", description="Deaths under Spark.")
    parser.add_argument("--runs", type=whole(1), default=10, help="default %(default)s")
    parser.add_argument("--seed", type=whole(0), default=1, help="of the first run; default %(default)s")
    parser.add_argument("--sink", choices=SINKS, help=f"default: drawn of {' and '.join(DRAWN)}")
    parser.add_argument("--postgresql", default="", metavar="URL", help="the database of the sink postgresql")
    parser.add_argument("--work", type=Path, help="where stores, tables and logs go")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    args = parser.parse_args(arguments)
    if (args.sink == "postgresql") != bool(args.postgresql):
        parser.error("--sink postgresql and --postgresql URL belong together; give both or neither")
    work = Path(tempfile.mkdtemp(prefix="holdfast-spark-deaths-")) if args.work is None else args.work.resolve()
    answer: dict[str, Any] = {"ok": False}
    try:
        with Progress(lines=sys.stderr) as progress:
            answer = asyncio.run(run_deaths(args.runs, args.seed, work, progress, args.sink, args.postgresql))
    except ChildFailed as error:
        print(f"spark deaths: {error}", file=sys.stderr)
    finally:
        if args.work is None and answer["ok"]:
            shutil.rmtree(work, ignore_errors=True)
        elif not answer["ok"]:
            print(f"spark deaths: stores and logs are in {work}", file=sys.stderr)
    if args.json:
        print(json.dumps(answer, indent=2))
    else:
        for key, value in answer.items():
            print(f"{key}: {value}")
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
