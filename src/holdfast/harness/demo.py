"""`holdfast demo`: real flights from three sites to a hub, through a cut and a crash, into a table
(docs/demo.md).

Rules of this file: nodes, senders and the pipeline run as a user would start them, by the command line;
faults come from the proxy and from SIGKILL alone. What it claims at the end is computed from the table
against the data, and it fails where they differ. Times `at_s` are seconds since the sites began to send.
"""

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from holdfast.errors import ConfigError, HoldfastError
from holdfast.harness import flights as data
from holdfast.harness.configs import Neighbour, NodeFile
from holdfast.harness.picture import Fault, Sample, draw, with_catch_up
from holdfast.harness.processes import Child, Children, cancel_on_signals, holdfast_command
from holdfast.harness.progress import Progress
from holdfast.harness.proxy import Proxy
from holdfast.harness.report import Results, check, report_lines
from holdfast.harness.table import read_columns
from holdfast.harness.watch import NodeWatch, Tail

HUB: Final = "hub"
SITES: Final = ("ewr", "jfk", "lga")
QUEUE: Final = "flights"
OUT_DEFAULT: Final = "demo-out"
MARKER: Final = ".holdfast-demo"
"""Only a work directory that holds it is ever deleted."""
SAMPLE_S: Final = 0.25
ASK_S: Final = 0.5
"""Between two questions to the hub whether the table has all."""
DRAIN_LIMIT_S: Final = 180.0
"""How long the last flight may take to the table after the last sender is done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """When things happen, in seconds since the sites began to send; one timetable for all three."""

    send_s: float
    cut_s: float
    heal_s: float
    kill_s: float
    restart_s: float

    @classmethod
    def of(cls, flights: int) -> "Plan":
        """60,000 flights in 30 s; all 336,776 in 100 s; the least is 16 s, so that both faults fit."""
        send_s = max(16.0, min(flights / 2_000, 30 + (flights - 60_000) / 4_000))
        cut_s = send_s * 0.2
        kill_s = send_s * 0.62
        return cls(send_s, cut_s, cut_s + max(4.0, send_s * 0.2), kill_s, kill_s + max(2.0, send_s * 0.08))


def run_demo(args: argparse.Namespace) -> int:
    """`args`: flights, all, out, keep (docs/demo.md). 0 where all that was claimed holds, else 1.

    Where it fails, stores, table and logs are kept.
    """
    out = Path(args.out if args.out is not None else OUT_DEFAULT)
    data.data_path()
    work = _fresh_work(out)
    keep = bool(args.keep)
    try:
        code = asyncio.run(_run(out, work, None if args.all else int(args.flights)))
        keep = keep or code != 0
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except HoldfastError:
        keep = True
        raise
    finally:
        if keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    return code


def _fresh_work(out: Path) -> Path:
    """An empty work directory in `out`; ConfigError where one is there that is not ours."""
    work = out / "work"
    if work.exists() and not (work / MARKER).exists():
        raise ConfigError(f"--out: found {work} that no demo made, accepted is a directory without work/")
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / MARKER).touch()
    except OSError as error:
        raise ConfigError(f"--out: cannot write {work} ({error.strerror})") from None
    return work.resolve()


async def _run(out: Path, work: Path, limit: int | None) -> int:
    cancel_on_signals()
    with Progress() as progress:
        async with Children(work / "logs") as children:
            results, demo = await Demo(children, work, progress).run(limit)
    return _finish(out, results, demo)


def _finish(out: Path, results: Results, demo: "Demo") -> int:
    """Writes numbers and picture, prints the numbers; the exit code."""
    counts = results.sent
    picture = out / "backlog.png"
    title = f"{sum(counts.values()):,} flights from {', '.join(SITES)} to {HUB}: what waits at each site"
    draw(picture, demo.samples, demo.faults, title=title, end_s=demo.end_s)
    numbers = out / "numbers.json"
    document = {
        "ok": results.ok,
        **asdict(results),
        "faults": [asdict(fault) for fault in demo.faults],
        "timings_s": demo.timings_s,
    }
    numbers.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print("\n".join(report_lines(results)))
    for fault in demo.faults:
        what = "connection cut silently" if fault.kind == "cut" else "node killed with -9"
        caught_up = fault.caught_up_s
        after = "never caught up" if caught_up is None else f"caught up {caught_up - fault.end_s:.1f} s after"
        lasted_s = fault.end_s - fault.start_s
        print(f"{fault.site}: {what} at {fault.start_s:.1f} s for {lasted_s:.1f} s, {after}")
    print(f"picture: {picture}\nnumbers: {numbers}")
    return 0 if results.ok else 1


def _arrived(table: Path) -> dict[str, list[str]]:
    """The flights' identities by airport, in the order of the hub's queue."""
    arrived: dict[str, list[str]] = {}
    for properties in read_columns(table, ["application_properties"])["application_properties"]:
        fields = dict(properties)
        arrived.setdefault(fields["origin"], []).append(fields[data.ID_COLUMN])
    return arrived


class Demo:
    """One run. `samples` by site and `faults` are filled while it runs."""

    def __init__(self, children: Children, work: Path, progress: Progress) -> None:
        self.children = children
        self.work = work
        self.progress = progress
        self.samples: dict[str, list[Sample]] = {site: [] for site in SITES}
        self.faults: list[Fault] = []
        self.timings_s: dict[str, float] = {}
        self.end_s = 0.0
        self._watches = {name: NodeWatch(Tail(work / f"{name}.ndjson")) for name in (HUB, *SITES)}
        self._counts: dict[str, int] = dict.fromkeys(SITES, 0)
        self._nodes: dict[str, Child] = {}
        self._addresses: dict[str, str] = {}
        self._began = time.monotonic()
        self._table = work / "table"
        self._sending_since: dict[str, float] = {}

    # ------------------------------------------------------------------------------------------------ the run

    async def run(self, limit: int | None) -> tuple[Results, "Demo"]:
        """The whole demo up to the results. Raises HoldfastError where a part of it fails."""
        self.progress.say("starting hub, ewr, jfk, lga and Spark; reading the flights")
        started = time.monotonic()
        loading = asyncio.create_task(asyncio.to_thread(data.load, limit))
        await self._start_node(HUB, role="root", neighbours=[Neighbour(name=site) for site in SITES])
        host, port = self._addresses[HUB].rsplit(":", 1)
        async with Proxy(host, int(port)) as proxy:
            remotes = dict.fromkeys(SITES, self._addresses[HUB]) | {"jfk": proxy.address}
            await asyncio.gather(
                *(
                    self._start_node(site, role="client", neighbours=[Neighbour(name=HUB, remote=remotes[site])])
                    for site in SITES
                )
            )
            ingest = await self._start_ingest()
            flights = await loading
            plan = Plan.of(len(flights.rows))
            for site in SITES:
                rows = flights.of(site.upper())
                self._counts[site] = len(rows)
                data.write_csv(self.work / f"{site}.csv", flights.header, rows)
            self.timings_s["start"] = round(time.monotonic() - started, 1)
            await self._transfer(plan, proxy, ingest)
            self.timings_s["transfer"] = round(time.monotonic() - self._began, 1)
            await ingest.stop()
            await asyncio.gather(*(node.stop() for node in self._nodes.values()))
        self.progress.say("counting what the table holds")
        arrived, answer = await asyncio.gather(asyncio.to_thread(_arrived, self._table), self._analyse())
        results = check(flights, arrived, answer)
        self.timings_s["all"] = round(time.monotonic() - started, 1)
        return results, self

    async def _transfer(self, plan: Plan, proxy: Proxy, ingest: Child) -> None:
        """From the first flight sent to the last one in the table."""
        self.progress.say(f"sending {sum(self._counts.values()):,} flights over {plan.send_s:.0f} s")
        senders = [await self._start_sender(site, plan) for site in SITES]
        self._began = time.monotonic()
        sampling = asyncio.create_task(self._sample(plan))
        work: list[Awaitable[None]] = [
            self._cut(plan, proxy),
            self._crash(plan),
            *(self._sent(sender) for sender in senders),
        ]
        tasks = [asyncio.ensure_future(part) for part in work]
        drained = asyncio.create_task(self._drained(tasks))
        watched = {drained, *(asyncio.create_task(self._lives(child)) for child in self._lasting(ingest))}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in watched:
                if task.done():
                    task.result()
        finally:
            everything = (*tasks, *watched, sampling)
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
        self.end_s = max(1.15 * plan.send_s, self._quiet_s())
        self.faults = [with_catch_up(fault, self.samples[fault.site], self._usual(fault.site)) for fault in self.faults]

    def _lasting(self, ingest: Child) -> list[Child]:
        """What must not end by itself: all but the senders, and lga's node, which is killed on purpose."""
        return [ingest, *(node for name, node in self._nodes.items() if name != "lga")]

    async def _lives(self, child: Child) -> None:
        raise child.died(await child.wait(), " before the demo was over")

    async def _drained(self, parts: Sequence["asyncio.Future[None]"]) -> None:
        """All sent, all faults over, and nothing left anywhere but in the table."""
        await asyncio.gather(*parts)
        self.progress.say("all sent; waiting for the last flights to reach the table")
        wanted = sum(self._counts.values())
        taken = messages = 0
        try:
            async with asyncio.timeout(DRAIN_LIMIT_S):
                while taken < wanted or messages:
                    await asyncio.sleep(ASK_S)
                    taken, messages = await self._ask_hub()
        except TimeoutError:
            raise HoldfastError(
                f"{DRAIN_LIMIT_S:.0f} s after the last sender was done the hub's queue {QUEUE} has taken "
                f"{taken:,} of {wanted:,} flights and holds {messages:,}; logs: {self.children.logs}"
            ) from None

    async def _ask_hub(self) -> tuple[int, int]:
        """Flights that the hub's queue ever took, and those that it still holds: not yet known to be in the
        table.

        Asked of the node itself: telemetry is silent about a queue in which nothing happens.
        """
        url = f"amqp://{self._addresses[HUB]}"
        child = await self.children.start(
            "queues", holdfast_command("queue", "list", "--json", "--url", url, "--retry", 10)
        )
        await child.success(30.0)
        queue = next(queue for queue in json.loads("\n".join(child.lines)) if queue["name"] == QUEUE)
        return int(queue["next_sequence"]) - 1, int(queue["messages"])

    # ------------------------------------------------------------------------------------------------- faults

    async def _cut(self, plan: Plan, proxy: Proxy) -> None:
        await self._until(plan.cut_s)
        proxy.cut_silently()
        start_s = self._at_s()
        self.progress.say(f"jfk: connection cut, silently, for {plan.heal_s - plan.cut_s:.0f} s")
        await self._until(plan.heal_s)
        proxy.heal()
        self.progress.say("jfk: the link is back")
        self.faults.append(Fault("jfk", "cut", start_s, self._at_s()))

    async def _crash(self, plan: Plan) -> None:
        await self._until(plan.kill_s)
        await self._nodes["lga"].kill()
        start_s = self._at_s()
        self.progress.say(f"lga: node killed with -9; started again in {plan.restart_s - plan.kill_s:.0f} s")
        await self._until(plan.restart_s)
        await self._start_again("lga")
        self.progress.say("lga: started again")
        self.faults.append(Fault("lga", "crash", start_s, self._at_s()))

    # ---------------------------------------------------------------------------------------------- processes

    async def _start_node(self, name: str, *, role: str, neighbours: list[Neighbour]) -> None:
        file = NodeFile(
            name=name,
            role=role,
            data=self.work / f"{name}.holdfast",
            neighbours=neighbours,
            queues=[QUEUE] if name == HUB else [],
            telemetry=self._watches[name].tail.path,
            telemetry_interval_s=SAMPLE_S,
        )
        path = file.write(self.work)
        self._nodes[name], self._addresses[name] = await self.children.node(name, path)

    async def _start_again(self, name: str) -> None:
        """The same store and the same port, so that its sender finds it."""
        path = self.work / f"{name}.toml"
        self._nodes[name], _ = await self.children.node(name, path, "--listen", self._addresses[name])

    async def _start_ingest(self) -> Child:
        url = f"amqp://{self._addresses[HUB]}"
        command = holdfast_command("pipeline", "ingest", QUEUE, "--url", url, "--out", self._table, "--trigger-s", "1")
        return await self.children.start("ingest", command, cwd=self.work)

    async def _start_sender(self, site: str, plan: Plan) -> Child:
        rate = f"{max(1.0, self._counts[site] / plan.send_s):.1f}"
        command = holdfast_command(
            "send", f"{QUEUE}@{HUB}", self.work / f"{site}.csv", "--format", "csv", "--rate", rate,
            "--producer", site, "--resume", "--subject-from", "origin",
            "--url", f"amqp://{self._addresses[site]}",
        )  # fmt: skip
        return await self.children.start(f"send-{site}", command)

    async def _sent(self, sender: Child) -> None:
        await sender.success()

    async def _analyse(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "holdfast.pipeline.flights", str(self._table), "--json"]
        child = await self.children.start("analyse", command, cwd=self.work)
        await child.success(120.0)
        for line in reversed(child.lines):
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise child.failure(f"no JSON in {child.out_path}")

    # --------------------------------------------------------------------------------------------- measuring

    def _at_s(self) -> float:
        return time.monotonic() - self._began

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._at_s()))

    async def _sample(self, plan: Plan) -> None:
        """Every SAMPLE_S: the backlogs into `samples`, the state into the progress line."""
        while True:
            for watch in self._watches.values():
                watch.refresh()
            at_s = self._at_s()
            for site in SITES:
                queue = self._watches[site].queue(f"@{HUB}")
                due = self._due(site, at_s, queue.taken, plan)
                self.samples[site].append(Sample(at_s, max(0, due - queue.taken), queue.messages))
            hub = self._watches[HUB].queue(QUEUE)
            waiting = "  ".join(f"{site} {self.samples[site][-1].total:,}" for site in SITES)
            self.progress.show(
                hub.taken - hub.messages,
                sum(self._counts.values()),
                f"hub {hub.taken:,}  table {hub.taken - hub.messages:,}  waiting: {waiting}",
            )
            await asyncio.sleep(SAMPLE_S)

    def _due(self, site: str, at_s: float, taken: int, plan: Plan) -> int:
        """Flights that the site should have sent by now; its timetable runs from its first flight."""
        per_s = self._counts[site] / plan.send_s
        if taken and site not in self._sending_since:
            self._sending_since[site] = at_s - taken / per_s
        return min(self._counts[site], int((at_s - self._sending_since.get(site, at_s)) * per_s))

    def _usual(self, site: str) -> int:
        """The backlog that a healthy site shows at most: twice the median before the first fault, and a
        little.
        """
        first_s = min(fault.start_s for fault in self.faults)
        totals = [sample.total for sample in self.samples[site] if sample.at_s < first_s]
        return 2 * int(median(totals)) + 50 if totals else 50

    def _quiet_s(self) -> float:
        """When the last site was as quiet as it usually is, and a tenth more for the picture."""
        busy = [
            sample.at_s
            for site, samples in self.samples.items()
            for sample in samples
            if sample.total > self._usual(site)
        ]
        return 1.1 * max(busy, default=1.0)
