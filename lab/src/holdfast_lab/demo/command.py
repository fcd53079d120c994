"""`holdfast demo`: real flights from three airports over a network of sixteen nodes to a hub, while links are cut and
the acting super node is lost, into a table (docs/demo.md).

Rules of this file: nodes, senders and the pipeline run as a user would start them, by the command line;
faults come from the links' proxies and from SIGKILL alone. What it claims at the end is computed from the table
against the data, and it fails where they differ. Times `at_s` are seconds since the sites began to send.
"""

import argparse
import asyncio
import importlib.resources
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError, HoldfastError, missing_package
from holdfast.lines import say
from holdfast.routing.topology import Topology, topology_of
from holdfast.text_files import toml_of
from holdfast_lab.base.processes import Child, Children, cancel_on_signals, first_of, holdfast_command
from holdfast_lab.base.progress import Progress
from holdfast_lab.demo import departures as data
from holdfast_lab.demo import flight_paths, site_burst
from holdfast_lab.demo.flight_paths import Arrival, Event
from holdfast_lab.demo.hub_watch import HubWatch, View
from holdfast_lab.demo.late_flights import Late, LateFlights
from holdfast_lab.demo.picture import draw
from holdfast_lab.demo.report import Results, check, report_lines
from holdfast_lab.demo.tag_reads import SITE, Reads, TagReads
from holdfast_lab.judge.table import read_columns
from holdfast_lab.real import fleet_state
from holdfast_lab.real.fleet_supervisor import Fleet

HUB: Final = "hub"
SITES: Final = ("ewr", "jfk", "lga")
QUEUE: Final = "flights"
TOPOLOGY: Final = "sixteen.toml"
MARKER: Final = ".holdfast-demo"
"""Only a work directory that holds it is ever deleted."""

PER_S: Final = 50
"""Flights a second, all airports together, that two cores carry over five hops beside Spark without a thought."""
PER_S_MAX: Final = 300
FLIGHTS: Final = 336_776
"""Of the data, all together."""
TURN_FLIGHTS: Final = 300
"""So many are under way at any time of the course; of fewer none may happen to take a path that was open shortly."""
SEND_S: Final = (24.0, 60.0)
"""The shortest course, in which every fault is still noticed; and the longest at PER_S: more flights come faster."""
COURSE_S: Final = 36.0
"""How long the faults take at the most."""

PROBE_S: Final = 0.2
"""Between two probes of an idle link. As often as on a LAN, 26 links would take half of a core from Spark."""
LOOK_S: Final = 0.5
"""Between two questions to the hub."""
WAITING_STEP_S: Final = 0.25
WHOLE_LIMIT_S: Final = 60.0
"""How long the nodes may take to know each other."""
SPARK_LIMIT_S: Final = 120.0
DRAIN_LIMIT_S: Final = 180.0
"""How long the last flight may take to the table after the last sender is done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`send_s`: from the first flight to the last. `events`, by their time: what is done meanwhile."""

    send_s: float
    events: tuple[Event, ...]

    @classmethod
    def of(cls, flights: int) -> "Plan":
        """1,800 flights in 36 s. The link in the middle of ewr's way, then the acting super node and a second link;
        they come back one by one, the super node last.
        """
        send_s = max(SEND_S[0], min(flights / PER_S, SEND_S[1]), flights / PER_S_MAX)
        course_s = min(send_s, COURSE_S)
        course = (
            (0.16, "cut", ("pit", "cmh")),
            (0.36, "kill", ("buf",)),
            (0.46, "cut", ("det", "mke")),
            (0.60, "heal", ("pit", "cmh")),
            (0.70, "heal", ("det", "mke")),
            (0.80, "start", ("buf",)),
        )
        return cls(send_s, tuple(Event(round(part * course_s, 1), kind, nodes) for part, kind, nodes in course))


PACKAGES: Final = ("pyspark", "pyarrow", "matplotlib", "pyspark_holdfast")


def run_demo(args: argparse.Namespace) -> int:
    """`args`: flights, all, out, keep (docs/demo.md). 0 where all that was claimed holds, else 1.

    Where it fails, stores, table and logs are kept.
    """
    out = Path(args.out)
    for package in PACKAGES:  # the last of them is needed when all else is over
        if importlib.util.find_spec(package) is None:
            raise missing_package(package, "./spark './lab[demo]'")
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
            say(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    return code


def _fresh_work(out: Path) -> Path:
    """An empty work directory in `out`; ConfigError where one is there that is not ours."""
    work = out / "work"
    if work.exists() and not (work / MARKER).exists():
        raise ConfigError(f"no demo made {work}; give --out a directory without work/")
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / MARKER).touch()
    except OSError as error:
        raise ConfigError(f"--out: cannot write {work} ({error.strerror})") from None
    return work.resolve()


def sixteen(directory: Path) -> Topology:
    """The demo's topology, whose file is put into `directory` for the nodes."""
    text = importlib.resources.files("holdfast_lab.demo").joinpath(TOPOLOGY).read_text(encoding="utf-8")
    directory.mkdir(parents=True)
    (directory / fleet_state.TOPOLOGY).write_text(text, encoding="utf-8")
    return topology_of(toml_of(text))


async def _run(out: Path, work: Path, limit: int | None) -> int:
    cancel_on_signals()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def node_ended(error: BaseException) -> None:
        if not ended.done():
            ended.set_exception(error)

    fleet_home = work / "fleet"
    topology = sixteen(fleet_home)
    flights = FLIGHTS if limit is None else limit
    rate = site_burst.rate_of(flights, Plan.of(flights).send_s)
    more = site_burst.configs(work, HUB, SITES, rate)
    try:
        with Progress() as progress:
            async with (
                Children(work / "logs") as children,
                Fleet(topology, fleet_home, ended=node_ended, probe_s=PROBE_S, more=more) as fleet,
            ):
                demo = Demo(children, fleet, work, progress, ended, rate)
                results = await demo.run(limit)
    finally:
        ended.cancel()
    return _finish(out, results, demo)


def _finish(out: Path, results: Results, demo: "Demo") -> int:
    """Writes numbers and picture, prints the numbers; the exit code."""
    arrivals, events = demo.arrivals, demo.events
    uses = flight_paths.uses(arrivals)
    same = flight_paths.counts(arrivals) == demo.by_path
    several = all(len([use for use in uses if use.airport == site.upper()]) > 1 for site in SITES)
    total = sum(results.sent.values())
    beside = demo.reads.ok and demo.late.ok and demo.absorbed.ok
    ok = results.ok and same and (several or total < TURN_FLIGHTS) and beside
    after = [flight_paths.turned(arrivals, event) for event in events]
    picture = out / "paths.png"
    title = f"{total:,} flights from {', '.join(SITES)} to {HUB} over sixteen nodes: by which path they came"
    end_s = max((arrival.stored_s for arrival in arrivals), default=0.0) + 1.0
    waiting = flight_paths.waiting(arrivals, WAITING_STEP_S, end_s)
    paced = (demo.burst.rates, demo.burst.waits)
    draw(picture, demo.bars(), waiting, events, title=title, end_s=end_s, paced=paced)
    numbers = out / "numbers.json"
    document = {
        "ok": ok,
        **{key: value for key, value in asdict(results).items() if key != "ok"},
        "tag_reads": asdict(demo.reads),
        "late_flights": asdict(demo.late),
        "burst": asdict(demo.absorbed) | {"ok": demo.absorbed.ok},
        "paths": [asdict(use) for use in uses],
        "events": [asdict(event) | {"by_another_path_s": found} for event, found in zip(events, after, strict=True)],
        "acting_super": [{"at_s": at_s, "node": name} for at_s, name in demo.acting],
        "waiting_max": {airport: max(count for _, count in samples) for airport, samples in waiting.items()},
        "timings_s": demo.timings_s,
    }
    numbers.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    say(*report_lines(results), *flight_paths.use_lines(uses))
    say(demo.reads.line(), demo.late.line(), demo.absorbed.line())
    say("counted so by Spark, by second" if same else "Spark counts the paths differently")
    if not several:
        say("the flights of one airport came by one path alone")
    say("", *(flight_paths.event_line(event, found) for event, found in zip(events, after, strict=True)))
    most = ", ".join(f"{airport} {count}" for airport, count in document["waiting_max"].items())
    say(f"on the way at once, at the most: {most}")
    say(f"picture: {picture}", f"numbers: {numbers}")
    return 0 if ok else 1


class Demo:
    """One run. `events`, `acting` (when which super node acted, as the hub saw it), `arrivals` and `by_path` (Spark's)
    are filled by it.
    """

    def __init__(
        self, children: Children, fleet: Fleet, work: Path, progress: Progress, ended: "asyncio.Future[None]", rate: int
    ) -> None:
        """`rate`: bytes a second that the hub takes of the airports."""
        self.children = children
        self.fleet = fleet
        self.work = work
        self.progress = progress
        self.events: list[Event] = []
        self.acting: list[tuple[float, str | None]] = []
        self.arrivals: list[Arrival] = []
        self.by_path: dict[tuple[str, str, int], int] = {}
        self.timings_s: dict[str, float] = {}
        self.reads = Reads(0, 0, ok=False)
        self._tag_reads = TagReads(children, work, self._url, HUB)
        self.late = Late(0, 0, ok=False)
        self._late_flights = LateFlights(children, lambda: self._url(HUB), QUEUE)
        self.burst = site_burst.SiteBurst(children, work, self._url, HUB, SITES, rate)
        self.absorbed = site_burst.Absorbed(0, 0, 0, 0, 0)
        self.view = View()
        self._ended = ended
        self._counts: dict[str, int] = dict.fromkeys(SITES, 0)
        self._began = time.monotonic()
        self._began_wall = 0.0
        self._table = work / "table"

    # ------------------------------------------------------------------------------------------------ the run

    async def run(self, limit: int | None) -> Results:
        """The whole demo up to the results. Raises HoldfastError where a part of it fails."""
        topology = self.fleet.topology
        self.progress.say(f"starting {len(topology.nodes)} nodes, {len(topology.links)} links between them, and Spark")
        started = time.monotonic()
        loading = asyncio.create_task(asyncio.to_thread(data.load, limit))
        ready: list[str] = []

        def node_ready(name: str) -> None:
            ready.append(name)
            self.progress.show(len(ready), len(topology.nodes), f"{len(ready)} of {len(topology.nodes)} nodes ready")

        await self.fleet.start(node_ready)
        hub = self._url(HUB)
        make = holdfast_command("queue", "create", QUEUE, "--order", "strict", "--url", hub)
        await (await self.children.start("queue", make)).success(30.0)
        ingest = await self.children.start(
            "ingest",
            holdfast_command("pipeline", "ingest", QUEUE, "--url", hub, "--out", self._table, "--trigger-s", "1"),
            cwd=self.work,
        )
        flights = await loading
        plan = Plan.of(len(flights.rows))
        for site in SITES:
            rows = flights.of(site.upper())
            self._counts[site] = len(rows)
            data.write_csv(self.work / f"{site}.csv", flights.header, rows)
        async with HubWatch(self.fleet.nodes[HUB].address, QUEUE) as watch:
            await self._guarded(ingest, self._until_ready(watch))
            await self._tag_reads.prepare([row[0] for row in flights.of(SITE.upper())])
            await self._late_flights.prepare()
            await self.burst.prepare()
            self.timings_s["start"] = round(time.monotonic() - started, 1)
            await self._transfer(plan, watch, ingest)
            self.reads = await self._tag_reads.result()
            self.late = await self._late_flights.result(flights.header, flights.rows)
            self.absorbed = await self.burst.result()
            self.timings_s["transfer"] = round(self._at_s(), 1)
        self.progress.say("everything has arrived; stopping all, and counting what the table holds")
        columns = ["application_properties", "annotations", "created", "enqueued"]
        # The hub has let everything go, so the table is complete, whatever still runs.
        found, answer, *_ = await asyncio.gather(
            asyncio.to_thread(read_columns, self._table, columns), self._analyse(), ingest.stop(), self.fleet.stop()
        )
        self.arrivals = flight_paths.arrivals_of(found, self._began_wall)
        self.by_path = flight_paths.answered_counts(answer["by_path"])
        self.absorbed = self.burst.told(self.absorbed, self._began_wall)
        results = check(flights, flight_paths.identities(self.arrivals), answer)
        self.timings_s["all"] = round(time.monotonic() - started, 1)
        return results

    async def _until_ready(self, watch: HubWatch) -> None:
        """All nodes know each other, and Spark reads."""
        await self._until(watch, WHOLE_LIMIT_S, "the nodes know each other", lambda view: view.whole)
        self.progress.say(f"all nodes know each other; {self.view.acting_super} is the acting super node")
        await self._until(watch, SPARK_LIMIT_S, "Spark reads", lambda view: bool(view.readers))

    async def _until(self, watch: HubWatch, limit_s: float, what: str, holds: Callable[[View], bool]) -> None:
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    self.view = await watch.look()
                    if holds(self.view):
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise HoldfastError(f"after {limit_s:.0f} s it is not so that {what}; logs: {self.work}") from None

    async def _transfer(self, plan: Plan, watch: HubWatch, ingest: Child) -> None:
        """From the first flight sent to the last one in the table."""
        self.progress.say(f"sending {sum(self._counts.values()):,} flights over {plan.send_s:.0f} s")
        self._began, self._began_wall = time.monotonic(), time.time()
        self.acting = [(0.0, self.view.acting_super)]
        senders = [await self._start_sender(site, plan) for site in SITES]
        reads = await self._tag_reads.send(plan.send_s)
        burst = await self.burst.send()
        await self._guarded(
            ingest,
            self._drained(watch, plan, [*(sender.success for sender in senders), reads, burst]),
        )

    async def _guarded(self, ingest: Child, work: Coroutine[Any, Any, None]) -> None:
        """`work`, unless something ends before it that must not: Spark, or a node that nobody told to."""

        async def lives() -> None:
            raise ingest.died(await ingest.wait(), " before the demo was over")

        task, watched = asyncio.create_task(work), asyncio.create_task(lives())
        try:
            await asyncio.wait({task, watched, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            for part in (self._ended, watched, task):
                if part.done():
                    part.result()
        finally:
            task.cancel()
            watched.cancel()
            await asyncio.gather(task, watched, return_exceptions=True)

    async def _drained(self, watch: HubWatch, plan: Plan, sent: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """All sent, all faults over, and nothing left anywhere but in the table."""
        looking = asyncio.create_task(self._keep_looking(watch))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._course(plan))
                for each in sent:
                    group.create_task(each())
            self.progress.say("all sent, all healed; waiting for the last flights to reach the table")
            wanted = sum(self._counts.values())
            try:
                async with asyncio.timeout(DRAIN_LIMIT_S):
                    while self.view.taken < wanted or self.view.messages:
                        if looking.done():
                            looking.result()
                        await asyncio.sleep(LOOK_S)
            except TimeoutError:
                raise HoldfastError(
                    f"{DRAIN_LIMIT_S:.0f} s after the last sender was done the hub's queue {QUEUE} has taken "
                    f"{self.view.taken:,} of {wanted:,} flights and holds {self.view.messages:,}; logs: {self.work}"
                ) from None
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ the course

    async def _course(self, plan: Plan) -> None:
        """Does what the plan says, when it says so."""
        for planned in plan.events:
            await asyncio.sleep(max(0.0, planned.at_s - self._at_s()))
            event = Event(round(self._at_s(), 3), planned.kind, planned.nodes)
            name = "-".join(event.nodes)
            if event.kind in ("cut", "heal"):
                one, other = event.nodes
                self.fleet.change_link(event.kind, one, other, silent=True)
                self._say(f"link {name} is cut, silently" if event.breaks else f"link {name} is healed")
            elif event.kind == "kill":
                await self.fleet.change_node("stop", name, kill=True)
                self._say(f"{name}, the acting super node, is killed with -9")
            else:
                await self.fleet.change_node("start", name)
                self._say(f"{name} is started again, on its store")
            self.events.append(event)

    async def _keep_looking(self, watch: HubWatch) -> None:
        """Updates `view`, and reports the acting super node."""
        wanted = sum(self._counts.values())
        while True:
            self.view = view = await watch.look()
            if view.acting_super != self.acting[-1][1]:
                self.acting.append((round(self._at_s(), 2), view.acting_super))
                self._say(f"{view.acting_super or 'no super node'} acts now")
            table = view.taken - view.messages
            self.progress.show(table, wanted, f"hub {view.taken:,}  table {table:,}")
            await asyncio.sleep(LOOK_S)

    # ---------------------------------------------------------------------------------------------- processes

    def _url(self, node: str) -> str:
        return f"amqp://{self.fleet.nodes[node].address}"

    async def _start_sender(self, site: str, plan: Plan) -> Child:
        rate = f"{max(0.1, self._counts[site] / plan.send_s):.2f}"
        command = holdfast_command(
            "send", f"{QUEUE}@{HUB}", self.work / f"{site}.csv", "--format", "csv", "--rate", rate,
            "--producer", site, "--resume", "--subject-from", "origin", "--url", self._url(site),
        )  # fmt: skip
        return await self.children.start(f"send-{site}", command)

    async def _analyse(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "pyspark_holdfast.flights", str(self._table), "--json"]
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

    def _say(self, what: str) -> None:
        self.progress.say(f"{self._at_s():5.1f} s  {what}")

    def bars(self) -> dict[str, dict[str, dict[float, int]]]:
        """Spark's counts for the picture: by airport and path, paths in the order of their first flight."""
        found: dict[str, dict[str, dict[float, int]]] = {site.upper(): {} for site in SITES}
        for (airport, path, second), count in sorted(self.by_path.items(), key=lambda item: item[0][2]):
            found.setdefault(airport, {}).setdefault(path, {})[second - self._began_wall] = count
        return found
