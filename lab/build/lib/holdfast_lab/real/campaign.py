"""Kill -9 cycles of sender, site node, hub and ingest under load, and the proof that nothing came of it.

    python -m holdfast_lab.real.campaign --cycles 1000 --lanes 2 --seed 1 --json

Rules of this file: all that a cycle does is drawn from (seed, cycle), so that one that failed is run again
with `--seed S --first CYCLE --cycles 1` and the same `--ingest-every`. Nodes die at named moments of their own
(`killed_node.py`), senders and the ingest at random ones. Stores live through the whole campaign;
only the load of a cycle is its own. Its load comes from two origins (the site, and a producer at the hub itself)
and is checked by identity, count and order once the cycle's faults are healed. Source of the moments:
docs/CUSTODY.md, "no accepted answer before a stored copy".
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast_lab.base.processes import (
    STOP_TIMEOUT_S,
    Child,
    ChildDied,
    ChildFailed,
    Children,
    cancel_on_signals,
    holdfast_command,
)
from holdfast_lab.base.progress import Progress
from holdfast_lab.judge.arrivals import Verdict, judge_all
from holdfast_lab.judge.table import read_columns
from holdfast_lab.real.configs import Neighbour, NodeFile
from holdfast_lab.real.killed_node import killed_node_command

HUB: Final = "hub"
SITE: Final = "ewr"
QUEUE: Final = "events"
TABLE_QUEUE: Final = "table"

POINTS: Final = {
    "before-append": "before append",
    "append": "append to commit",
    "committing": "append to commit",
    "committed": "commit to settle",
    "settled": "settle to retire",
    "retiring": "settle to retire",
    "retired": "after retire",
}
"""Each named moment and the span of a message's life that it lies in."""

VICTIMS: Final = ("site", "hub", "sender", "site", "hub", "site", "hub", "sender", "hub")
"""Nine cycles; then again. Those of the ingest come between."""
INGEST_EVERY: Final = 50
"""One cycle of so many kills the ingest: it starts Spark twice or more, which takes as long as ten other cycles."""
LANES_MAX: Final = 16
JVM_OPTIONS: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Compiled once and not well: it halves what the start of a JVM costs that lives for seconds."""

MESSAGES: Final = 1_500
RATE: Final = 1_200
"""Of each of the two senders of a cycle: messages, and messages a second."""
COUNT_MAX: Final = 60
"""The passing of its moment at which a node dies is drawn from 1 to this."""
CYCLE_LIMIT_S: Final = 120.0
INGEST_LIMIT_S: Final = 200.0
"""Of a cycle that starts Spark: a minute where the machine is quiet, three where ten others want it."""
IDLE_S: Final = 15.0


@dataclass(slots=True)
class Cycle:
    """What one cycle did and what came of it. `hits` are moments at which a process really died."""

    cycle: int
    victim: str
    planned: list[str] = field(default_factory=list)
    hits: list[str] = field(default_factory=list)
    seconds: float = 0.0
    redelivered: int = 0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    failure: str | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None and all(verdict.ok for verdict in self.verdicts.values())


def victim_of(cycle: int, ingest_every: int = INGEST_EVERY) -> str:
    """Who dies in this cycle, from 0; the ingest in the middle of every so many cycles, never with 0."""
    if ingest_every and cycle % ingest_every == ingest_every // 2:
        return "ingest"
    return VICTIMS[cycle % len(VICTIMS)]


def report(cycles: Sequence[Cycle], seed: int, wall_s: float) -> dict[str, Any]:
    """The campaign as JSON: hits by moment of each node (those never hit too), by moment of both and by span of the
    message's life; cycles by victim; failures whole.
    """
    moments: Counter[str] = Counter(hit for cycle in cycles for hit in cycle.hits)
    spans: Counter[str] = Counter()
    points = Counter(dict.fromkeys(POINTS, 0))
    for moment, count in moments.items():
        point = moment.partition("@")[2]
        spans[POINTS.get(point, "at a random moment")] += count
        if point in POINTS:
            points[point] += count
    verdicts = [verdict for cycle in cycles for verdict in cycle.verdicts.values()]
    return {
        "seed": seed,
        "cycles": len(cycles),
        "ok": all(cycle.ok for cycle in cycles) and bool(cycles),
        "kills": sum(moments.values()),
        "victims": dict(sorted(Counter(cycle.victim for cycle in cycles).items())),
        "hits": dict(sorted(moments.items())),
        "points": dict(points),
        "spans": dict(sorted(spans.items())),
        "sent": sum(verdict.sent for verdict in verdicts),
        "lost": sum(verdict.lost for verdict in verdicts),
        "twice": sum(verdict.twice for verdict in verdicts),
        "redelivered": sum(cycle.redelivered for cycle in cycles),
        "reordered": sum(verdict.reordered for verdict in verdicts),
        "failed": [asdict(cycle) for cycle in cycles if not cycle.ok],
        "wall_s": round(wall_s, 1),
    }


class Campaign:
    """`site` and `hub`, killed and started again over one pair of stores."""

    def __init__(self, children: Children, work: Path, seed: int, ingest_every: int = INGEST_EVERY) -> None:
        self.children = children
        self.work = work
        self.seed = seed
        self.ingest_every = ingest_every
        self._nodes: dict[str, Child] = {}
        self._addresses: dict[str, str] = {}
        self._table_sent: dict[str, list[str]] = {}

    # ------------------------------------------------------------------------------------------------- nodes

    async def start(self) -> None:
        """Both nodes, on ports that they keep."""
        hub = NodeFile(
            name=HUB,
            role="root",
            data=self.work / "hub.holdfast",
            neighbours=[Neighbour(name=SITE)],
            queues=[QUEUE, TABLE_QUEUE],
        )
        self._nodes[HUB], self._addresses[HUB] = await self.children.node(HUB, hub.write(self.work))
        site = NodeFile(
            name=SITE,
            role="client",
            data=self.work / "ewr.holdfast",
            neighbours=[Neighbour(name=HUB, remote=self._addresses[HUB])],
        )
        self._nodes[SITE], self._addresses[SITE] = await self.children.node(SITE, site.write(self.work))

    async def _start_again(self, name: str, point: str = "") -> None:
        """`point`: NAME:COUNT, where it dies."""
        arguments = (str(self.work / f"{name}.toml"), "--listen", self._addresses[name])
        command = killed_node_command(point, *arguments) if point else holdfast_command("node", *arguments)
        self._nodes[name], _ = await self.children.started_node(name, command)

    def _url(self, name: str) -> str:
        return f"amqp://{self._addresses[name]}"

    # ------------------------------------------------------------------------------------------------ cycles

    async def cycle(self, number: int) -> Cycle:
        """One cycle, its check included. Never raises for what the system under test did."""
        random = Random(f"{self.seed}/{number}")
        cycle = Cycle(number, victim_of(number, self.ingest_every))
        began = time.monotonic()
        limit_s = INGEST_LIMIT_S if cycle.victim == "ingest" else CYCLE_LIMIT_S
        try:
            async with asyncio.timeout(limit_s):
                await self._run(cycle, random)
        except TimeoutError:
            cycle.failure = f"not over after {limit_s:.0f} s"
        except HoldfastError as error:
            cycle.failure = str(error)
        cycle.seconds = round(time.monotonic() - began, 1)
        return cycle

    async def _run(self, cycle: Cycle, random: Random) -> None:
        queue = TABLE_QUEUE if cycle.victim == "ingest" else QUEUE
        sent = {
            origin: [f"{origin}-{cycle.cycle}-{number}" for number in range(1, MESSAGES + 1)] for origin in (SITE, HUB)
        }
        node = {"site": SITE, "hub": HUB}.get(cycle.victim)
        if node is not None:
            await self._arm(cycle, node, random)
        parts = [self._send(cycle, random, origin, queue, sent[origin]) for origin in sent]
        if cycle.victim == "ingest":
            parts.append(self._ingest_killed(cycle, random))
        tasks = [asyncio.create_task(part) for part in parts]
        mourner = asyncio.create_task(self._mourn(cycle, node)) if node is not None else None
        receiver: Child | None = None
        if cycle.victim != "ingest":
            receiver = await self._receive(sum(len(lines) for lines in sent.values()), IDLE_S)
        try:
            await asyncio.gather(*tasks)
            if receiver is not None:
                await receiver.wait()
            if mourner is not None and node is not None:
                await self._disarm(cycle, node, mourner)
        finally:
            tasks += [] if mourner is None else [mourner]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if receiver is not None:
            cycle.verdicts = await self._check_queue(cycle, sent, receiver)
        else:
            cycle.verdicts = await self._check_table(sent)

    async def _send(self, cycle: Cycle, random: Random, origin: str, queue: str, lines: list[str]) -> None:
        """One sender's load; where senders are the victims it is killed once at a random moment and run
        again.
        """
        file = self.work / f"{origin}.lines"
        await asyncio.to_thread(file.write_text, "\n".join(lines) + "\n")
        address = f"{queue}@{HUB}" if origin == SITE else queue
        command = holdfast_command(
            "send", address, file, "--producer", f"{origin}-{cycle.cycle}", "--resume", "--rate", RATE,
            "--url", self._url(origin), "--retry", 60,
        )  # fmt: skip
        sender = await self.children.start(f"send-{origin}", command)
        if cycle.victim == "sender":
            after_s = random.uniform(0.1, MESSAGES / RATE + 0.5)
            cycle.planned.append(f"sender {origin} after {after_s:.2f} s")
            try:
                await sender.wait(after_s)
            except TimeoutError:
                await sender.kill()
                cycle.hits.append("sender")
                sender = await self.children.start(f"send-{origin}", command)
        await sender.success(CYCLE_LIMIT_S)

    async def _arm(self, cycle: Cycle, node: str, random: Random) -> None:
        """Starts the node again, to die at a moment that is drawn; it may do so while it starts."""
        moment, count = random.choice(list(POINTS)), random.randint(1, COUNT_MAX)
        cycle.planned.append(f"{cycle.victim}@{moment}:{count}")
        await self._stop(self._nodes[node])
        try:
            await self._start_again(node, f"{moment}:{count}")
        except ChildDied as death:
            if death.code != -signal.SIGKILL:
                raise
            self._hit(cycle)
            await self._start_again(node)

    def _hit(self, cycle: Cycle) -> None:
        cycle.hits.append(cycle.planned[-1].partition(":")[0])

    async def _mourn(self, cycle: Cycle, node: str) -> None:
        """Waits until the node dies at its moment, and starts it again without one."""
        code = await self._nodes[node].wait()
        if code != -signal.SIGKILL:
            raise self._nodes[node].died(code)
        self._hit(cycle)
        await self._start_again(node)

    async def _disarm(self, cycle: Cycle, node: str, mourner: "asyncio.Task[None]") -> None:
        """After the load: a node that has not died is stopped, which may yet bring it to its moment."""
        if cycle.hits:
            await mourner
            return
        mourner.cancel()
        await asyncio.wait({mourner})
        if not mourner.cancelled():
            mourner.result()
        if not cycle.hits and await self._stop(self._nodes[node]) == -signal.SIGKILL:
            self._hit(cycle)
        if not self._nodes[node].running:
            await self._start_again(node)

    async def _stop(self, child: Child) -> int:
        """SIGTERM; the exit code, 0 or -9 for a crash point met on the way. Raises ChildFailed for any
        other.
        """
        child.signal(signal.SIGTERM)
        try:
            code = await child.wait(STOP_TIMEOUT_S)
        except TimeoutError:
            raise child.failure(f"still runs {STOP_TIMEOUT_S:g} s after SIGTERM") from None
        if code not in (0, -signal.SIGKILL):
            raise child.died(code)
        return code

    async def _ingest_killed(self, cycle: Cycle, random: Random) -> None:
        """The ingest, killed at a random moment, with or without its JVM; then run again until nothing is
        left.
        """
        whole = random.random() < 0.5
        after_s = random.uniform(4.0, 12.0)
        cycle.planned.append(f"ingest{' and its JVM' if whole else ''} after {after_s:.1f} s")
        ingest = await self._ingest("--trigger-s", "0.2", "--max-rows", "400")
        try:
            code = await ingest.wait(after_s)
        except TimeoutError:
            await ingest.kill(whole_session=whole)
            cycle.hits.append("ingest and JVM" if whole else "ingest")
        else:
            raise ingest.failure(f"ended with {code}")

    async def _ingest(self, *more: str) -> Child:
        command = holdfast_command(
            "pipeline", "ingest", TABLE_QUEUE, "--url", self._url(HUB), "--out", self.work / "table", *more
        )
        return await self.children.start("ingest", command, cwd=self.work, more=JVM_OPTIONS)

    # ------------------------------------------------------------------------------------------------ checks

    async def _receive(self, count: int | None, idle_s: float) -> Child:
        more = [] if count is None else ["--count", str(count)]
        command = holdfast_command("receive", QUEUE, "--url", self._url(HUB), "--json", "--idle-timeout", idle_s, *more)
        return await self.children.start("receive", command)

    async def _check_queue(self, cycle: Cycle, sent: dict[str, list[str]], receiver: Child) -> dict[str, Verdict]:
        """What the cycle's receiver took, and whatever the queue still holds that should not be there.

        An entry whose accept was not committed comes again and says so: that is not twice
        (docs/GUARANTEES.md).
        """
        rest = await self._receive(None, 0.5)
        await rest.wait()
        lines: list[str] = []
        seen: set[str] = set()
        for child in (receiver, rest):
            for text in child.out_path.read_text().splitlines():
                message = json.loads(text)
                body = str(message["body"])
                if body in seen and int(message["delivery_count"] or 0) > 0:
                    cycle.redelivered += 1
                    continue
                seen.add(body)
                lines.append(body)
        return judge_all(sent, _by_origin(lines))

    async def _check_table(self, sent: dict[str, list[str]]) -> dict[str, Verdict]:
        """Lets the ingest finish, twice (the second finds nothing), and reads its table."""
        for origin, lines in sent.items():
            self._table_sent.setdefault(origin, []).extend(lines)
        wanted = sum(len(lines) for lines in self._table_sent.values())
        table = self.work / "table"
        bodies: list[str] = []
        # The last messages may still be on their way from the site when the first run plans its batch.
        for _ in range(3):
            ingest = await self._ingest("--available-now")
            await ingest.success(INGEST_LIMIT_S)
            columns = await asyncio.to_thread(read_columns, table, ["body"])
            bodies = [body.decode() for body in columns["body"]]
            if len(bodies) >= wanted:
                break
        return judge_all(self._table_sent, _by_origin(bodies))


def _by_origin(lines: Sequence[str]) -> dict[str, list[str]]:
    arrived: dict[str, list[str]] = {}
    for line in lines:
        arrived.setdefault(line.partition("-")[0], []).append(line)
    return arrived


async def run_campaign(
    *,
    cycles: int,
    first: int,
    seed: int,
    work: Path,
    progress: Progress,
    lanes: int = 1,
    ingest_every: int = INGEST_EVERY,
) -> dict[str, Any]:
    """`cycles` cycles from number `first`, in `lanes` side by side, each with a pair of nodes and stores of its own; no
    lane begins another once one has failed. The report.
    """
    cancel_on_signals()
    began = time.monotonic()
    done: list[Cycle] = []
    numbers = iter(range(first, first + cycles))

    async def lane(place: Path) -> None:
        async with Children(place / "logs") as children:
            campaign = Campaign(children, place, seed, ingest_every)
            await campaign.start()
            # Whichever lane is free takes the next: a cycle of the ingest holds up its own alone.
            for number in numbers:
                cycle = await campaign.cycle(number)
                done.append(cycle)
                hits, state = ", ".join(cycle.hits) or "not hit", "ok" if cycle.ok else f"FAILED ({place})"
                progress.say(f"cycle {number}: {cycle.victim}, {hits}, {cycle.seconds} s, {state}")
                if not all(cycle.ok for cycle in done):
                    break

    running = [asyncio.create_task(lane(work / f"lane-{number}")) for number in range(1, min(lanes, cycles) + 1)]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return report(sorted(done, key=lambda cycle: cycle.cycle), seed, time.monotonic() - began)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """For an argument: a whole number of at least `low`, and at most `high`."""

    def number(text: str) -> int:
        expected = f"a whole number from {low}" + ("" if high is None else f" to {high}")
        if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
            raise argparse.ArgumentTypeError(f"invalid value {text!r}; expected {expected}")
        return int(text)

    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 where every cycle was exact."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_lab.real.campaign", description="Kill -9 campaign.")
    parser.add_argument("--cycles", type=whole(1), default=10, help="default %(default)s")
    parser.add_argument("--first", type=whole(0), default=0, help="number of the first cycle; default %(default)s")
    parser.add_argument(
        "--ingest-every", type=whole(0), default=INGEST_EVERY, metavar="N",
        help="one cycle of N kills the ingest and starts Spark again, which takes as long as ten others; 0 for none; "
        "default %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--lanes", type=whole(1, LANES_MAX), default=1, metavar="N",
        help=f"cycles side by side, each lane with nodes and stores of its own, up to {LANES_MAX}; default %(default)s",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="where stores and logs go, and stay")
    parser.add_argument("--json", action="store_true", help="the report as JSON on standard output")
    args = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="holdfast-campaign-")) if args.work is None else args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    answer: dict[str, Any] = {"ok": False}
    try:
        with Progress(lines=sys.stderr) as progress:
            running = run_campaign(
                cycles=args.cycles, first=args.first, seed=args.seed, work=work, progress=progress, lanes=args.lanes,
                ingest_every=args.ingest_every,
            )  # fmt: skip
            answer = asyncio.run(running)
    except ChildFailed as error:
        print(f"campaign: {error}", file=sys.stderr)
    finally:
        if args.work is None and answer["ok"]:
            shutil.rmtree(work, ignore_errors=True)
        elif not answer["ok"]:
            print(f"campaign: stores and logs are in {work}", file=sys.stderr)
    if args.json:
        print(json.dumps(answer, indent=2))
    elif "hits" in answer:
        for key, value in answer.items():
            print(f"{key}: {value}")
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
