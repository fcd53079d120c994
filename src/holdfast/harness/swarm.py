"""Whole runs drawn from a seed, many of them: options, topology, workloads and faults (TigerBeetle's VOPR is the idea).

Rules of this file: everything a run does comes from its seed, so a seed is a reproduction; each seed runs in a worker
process whose death or hang is that seed's failure, never the swarm's. Every plan drawn can end well: what may be lost
for good (two disks, a strict queue behind a dead one) is never drawn together.
"""

import logging
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from multiprocessing.connection import Connection, wait
from random import Random
from typing import Any, Final

from holdfast.core.config import Limits, QueueConfig
from holdfast.harness.coverage import FATES, FAULTS, Coverage, watched
from holdfast.harness.faults import Fault, FaultBudget
from holdfast.harness.plan import Plan
from holdfast.harness.sim.network import SEGMENT_BYTES
from holdfast.harness.sim.run import execute
from holdfast.harness.sim.seeds import SeedTree
from holdfast.harness.topology import Link, LinkShape, Topology

NODE_NAMES: Final = ("ber", "fra", "jfk", "lhr", "nrt", "osl", "syd", "zrh")
NODES_MAX: Final = 6
BYTES_SHARE: Final = 0.1
"""Of all seeds, those that run at the depth of bytes."""
FRAME_BYTES: Final = 65_536
"""The largest frame that nodes send each other."""
SAFETY_S: Final = (4.0, 20.0)
TRANSFER_S: Final = 20.0
"""What the slowest link may need for all messages that a plan sends, in seconds of virtual time."""
WINDOWS_S: Final = 40.0
"""What full windows may need for all messages: round trips, each with two commits."""
COMMIT_S: Final = 0.05
WALL_LIMIT_S: Final = 120.0
"""A seed that takes longer hangs."""
LOOK_S: Final = 1.0
"""How often workers are asked how long they take."""
SUBSCRIPTION_SHARE: Final = 0.15
"""Of all queues, those that a subscription takes instead of consumers."""
FAULT_KINDS: Final = (
    "crash", "power", "stop", "replace-disk", "full-disk", "slow-disk", "failed-sync", "clock-step", "cut",
    "silent-cut", "partition", "one-way", "clog", "slow-link", "re-route",
)  # fmt: skip
"""All but a restored backup, whose residue (docs/GUARANTEES.md) is judged by histories of its own."""

Canary = Callable[[], None]
"""Called in the worker before a seed runs: plants a defect, to show that the swarm finds it."""


# ---------------------------------------------------------------------------------------------------- drawing


def depth_of(seed: int) -> str:
    """`frames` for most seeds, `bytes` for a tenth."""
    return "bytes" if SeedTree(seed).stream("swarm/depth").random() < BYTES_SHARE else "frames"


def draw_plan(seed: int) -> Plan:
    """The plan of that seed; the same on every machine."""
    seeds = SeedTree(seed).child("swarm")
    faults_on = _kinds(seeds.stream("kinds"))
    nodes, pairs = _graph(seeds.stream("graph"))
    shapes = seeds.stream("shapes")
    links = tuple(_link(shapes, one, other) for one, other in pairs)
    safety_s = seeds.stream("phases").uniform(*SAFETY_S)
    faults = FaultBudget(faults_max=seeds.stream("budget").choice((0, 4, 12, 24))).draw(
        seeds.stream("faults"), faults_on, list(nodes), _joined(links), safety_s
    )
    faults += _companions(seeds.stream("companions"), faults, faults_on)
    if "re-route" in faults_on and len(links) >= len(nodes):
        faults += _churn(seeds.stream("churn"), _joined(links), safety_s)
    faults.sort(key=lambda fault: fault.at)
    disk_lost = any(fault.kind == "replace-disk" for fault in faults)
    shapes_ = [shape for link in links for shape in (link.there, link.back) if shape is not None]
    trip_s = 2 * max(shape.delay_s + shape.jitter_s for shape in shapes_)
    queues, workloads = _work(
        seeds.stream("work"), seeds.stream("readers"), nodes, links, safety_s, trip_s, disk_lost=disk_lost
    )
    workloads = _variety(seeds.stream("variety"), nodes, workloads, disk_lost=disk_lost)
    window = _window(sum(int(told.get("messages", 0)) * int(told.get("producers", 0)) for told in workloads), trip_s)
    timing = seeds.stream("timing")
    # A frame comes whole or not at all in this world: the hold time outlasts the largest on the slowest link.
    unit = SEGMENT_BYTES + min(FRAME_BYTES, max([int(told["size"]) for told in workloads if "size" in told]))
    slowest_s = max(2 * shape.delay_s + unit / (shape.rate or 1e9) for shape in shapes_)
    keepalive_s = max(timing.choice((0.2, 0.5, 1.0, 3.0)), round(slowest_s, 3))
    topology = Topology(
        nodes=nodes,
        links=links,
        queues=queues,
        limits=_limits(seeds.stream("limits"), window, disk_lost=disk_lost),
        keepalive_s=keepalive_s,
        hold_time_s=round(keepalive_s * timing.uniform(2.5, 5.0), 3),
    )
    drifts = {name: round(timing.uniform(-0.02, 0.02), 6) for name in nodes if timing.random() < 0.3}
    return Plan(
        name="swarm",
        topology=topology,
        workloads=tuple(workloads),
        faults=tuple(faults),
        safety_s=round(safety_s, 3),
        turn_s=timing.choice((0.000_01, 0.000_1, 0.000_1, 0.001, 0.01)),
        drifts=drifts,
    )


def _kinds(random: Random) -> list[str]:
    """Features off at random: a run without cuts finds what cuts would hide (Groce and others, Swarm Testing)."""
    share = random.choice((0.2, 0.5, 1.0))
    found = [kind for kind in FAULT_KINDS if random.random() < share]
    return found or ["cut"]


def _companions(random: Random, faults: list[Fault], kinds: list[str]) -> list[Fault]:
    """What comes together elsewhere too: routes that change when a link goes, a slow disk before a crash."""
    found = []
    routes, slow = "re-route" in kinds, "slow-disk" in kinds
    for fault in faults:
        if routes and fault.kind in ("partition", "one-way", "clog", "silent-cut", "cut") and random.random() < 0.6:
            at = max(0.0, fault.at + random.uniform(-0.1, 0.5))
            seconds = fault.seconds * random.uniform(0.5, 1.5) + random.choice((0.0, 0.3, 2.0))
            found.append(Fault(kind="re-route", at=round(at, 6), link=fault.link, seconds=round(seconds, 6)))
        if slow and fault.kind in ("crash", "power", "failed-sync") and random.random() < 0.7:
            at = max(0.0, fault.at - random.uniform(0.0, 0.5))
            found.append(Fault(kind="slow-disk", at=round(at, 6), node=fault.node, seconds=1.0, amount=100.0))
    return found


def _churn(random: Random, links: list[tuple[str, str]], span_s: float) -> list[Fault]:
    """Where there are two ways: routes that change often, so that later messages overtake earlier ones."""
    if random.random() < 0.4:
        return []
    found = []
    for _ in range(random.randint(4, 16)):
        link, at = random.choice(links), round(random.uniform(0.0, span_s), 6)
        found.append(Fault(kind="re-route", at=at, link=link, seconds=round(random.uniform(0.05, 2.0), 6)))
        if random.random() < 0.3:
            found.append(Fault(kind="slow-link", at=at, link=link, seconds=1.0, amount=random.choice((10.0, 100.0))))
    return found


def _graph(random: Random) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Names and the pairs that are joined; the first of a pair dials."""
    count = random.choice((2, 2, 3, 3, 3, 4, 4, 4, 5, NODES_MAX))
    names = tuple(random.sample(NODE_NAMES, count))
    shape = random.choice(("line", "star", "ring", "ring", "tree"))
    pairs = []
    for index in range(1, count):
        before = {"line": index - 1, "ring": index - 1, "star": 0, "tree": random.randrange(index)}[shape]
        pairs.append((names[before], names[index]))
    if shape == "ring" and count > 2:
        pairs.append((names[-1], names[0]))
    elif count > 2 and random.random() < 0.5:
        one, other = random.sample(names, 2)
        if (one, other) not in pairs and (other, one) not in pairs:
            pairs.append((one, other))
    pairs = [pair if random.random() < 0.5 else pair[::-1] for pair in pairs]
    # Both sides dial: connections that cross.
    pairs += [pair[::-1] for pair in list(pairs) if random.random() < 0.2]
    return names, pairs


def _shape(random: Random) -> LinkShape:
    kind = random.choice(("lan", "lan", "wan", "radio", "satellite", "thin"))
    if kind == "lan":
        return LinkShape(delay_s=random.choice((0.000_1, 0.001)))
    if kind == "wan":
        return LinkShape(
            delay_s=random.choice((0.02, 0.08)),
            jitter_s=random.choice((0.0, 0.02)),
            rate=random.choice((None, 1e6, 1e7)),
            loss=random.choice((0.0, 0.001)),
        )
    if kind == "radio":
        return LinkShape(
            delay_s=0.03, jitter_s=0.05, rate=random.choice((50e3, 250e3)), loss=random.choice((0.005, 0.03))
        )
    if kind == "satellite":
        return LinkShape(delay_s=0.28, jitter_s=random.choice((0.0, 0.01)), rate=random.choice((50e3, 500e3)))
    return LinkShape(delay_s=0.05, rate=random.choice((8e3, 20e3)), queue_bytes=random.choice((8, 64)) * 1024)


def _link(random: Random, one: str, other: str) -> Link:
    there = _shape(random)
    back = _shape(random) if random.random() < 0.2 else None
    return Link(one=one, other=other, there=there, back=back)


def _joined(links: tuple[Link, ...]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for link in links:
        if (link.other, link.one) not in found:
            found[link.one, link.other] = None
    return list(found)


def _window(messages: int, trip_s: float) -> int:
    """The least that may be under way so that `messages`, a window for each round trip, are through in time."""
    return ceil(messages * (trip_s + COMMIT_S) / WINDOWS_S)


def _limits(random: Random, window: int, *, disk_lost: bool) -> Limits:
    """Many ranges where a disk is lost: its gaps never close by themselves, and at the bound an operator must skip."""
    return Limits(
        credit=max(window, random.choice((1, 7, 100, 1_000, 1_000))),
        hop_in_doubt_max=max(window, random.choice((1, 5, 50, 500, 2_000, 2_000))),
        unsettled_max=random.choice((1, 20, 5_000, 5_000)),
        ranges_max=max(1_024 if disk_lost else 0, random.choice((2, 16, 1_024, 1_024, 1_024))),
        cache_bytes=random.choice((0, 4_096, 8 * 1024 * 1024)),
    )


def _work(
    random: Random,
    readers: Random,
    nodes: tuple[str, ...],
    links: tuple[Link, ...],
    span_s: float,
    trip_s: float,
    *,
    disk_lost: bool,
) -> tuple[dict[str, tuple[QueueConfig, ...]], list[dict[str, Any]]]:
    """Queues by node, and what sends to them and takes from them: each queue has a consumer that can keep up."""
    rates = [shape.rate for link in links for shape in (link.there, link.back) if shape is not None and shape.rate]
    bytes_max = min([*rates, 1e9]) * TRANSFER_S
    queues: dict[str, tuple[QueueConfig, ...]] = {}
    workloads: list[dict[str, Any]] = []
    for index in range(random.choice((1, 1, 2, 2, 3))):
        node = random.choice(nodes)
        queue = _queue(random, f"work-{index}", disk_lost=disk_lost)
        queues[node] = (*queues.get(node, ()), queue)
        total = 0
        for number in range(random.choice((1, 1, 2, 3))):
            told, bytes_max = _publisher(random, nodes, f"{queue.name}@{node}", span_s, bytes_max)
            workloads.append({**told, "name": f"p{index}{number}"})
            total += int(told["messages"]) * int(told["producers"])
        # A refused message is tried again each second: few seconds, not hundreds.
        by_sequence = readers.random() < SUBSCRIPTION_SHARE
        # Room is made by the range, and some readers crash after theirs.
        by_range = by_sequence or queue.when_full == "refuse"
        least = total // 10 + 1 if by_range else _window(total, trip_s)
        if queue.messages_max is not None and queue.messages_max < least:
            queues[node] = (*queues[node][:-1], replace(queue, messages_max=least))
        taker = _consumer(random, total)
        if by_sequence:
            taker = {"kind": "subscription", "range_max": readers.choice((5, 10, 40))}
        workloads.append({**taker, "node": node, "queue": queue.name, "name": f"c{index}"})
    return queues, workloads


def _variety(
    random: Random, nodes: tuple[str, ...], workloads: list[dict[str, Any]], *, disk_lost: bool
) -> list[dict[str, Any]]:
    """Some producers live several lives or send what expires; some queues have copying readers or lookers-on."""
    found: list[dict[str, Any]] = []
    expires = set()
    for told in workloads:
        draw = random.random()
        if told["kind"] == "publish" and draw < 0.1 and told["rate"] and not disk_lost:
            # A new life asks the node what it had stored, which a new disk cannot say.
            lives = random.choice((2, 5, 8))
            told = {**told, "kind": "reconnecting-producer", "lives": lives, "life_s": random.choice((0.2, 1.0, 3.0))}
        elif told["kind"] == "publish" and draw < 0.2:
            ttl_max_s = random.choice((0.2, 2.0, 20.0))
            told = {**told, "kind": "expiring", "ttl_max_s": ttl_max_s, "share": random.choice((0.2, 1.0))}
            expires.add(told["address"])
        elif (
            told["kind"] == "consume"
            and draw < 0.1
            and not set(told) & {"release", "modify", "reject"}
            and f"{told['queue']}@{told['node']}" not in expires  # what expires, not every reader is shown
        ):
            keep = {key: told[key] for key in ("node", "queue", "name", "credit", "think_s")}
            told = {**keep, "kind": "copy", "subscriptions": random.choice((1, 2)), "consumers": told["consumers"]}
        if told["kind"] == "consume" and random.random() < 0.1:
            found.append({"kind": "browse", "node": told["node"], "queue": told["queue"], "name": f"b{len(found)}"})
        found.append(told)
    if random.random() < 0.1:
        found.append({"kind": "manage", "node": random.choice(nodes), "name": "scratch"})
    return found


def _queue(random: Random, name: str, *, disk_lost: bool) -> QueueConfig:
    orders = ("bounded", "none") if disk_lost else ("strict", "strict", "bounded", "none")
    return QueueConfig(
        name=name,
        order=random.choice(orders),
        order_wait_s=random.choice((0.0, 0.0, 0.5, 5.0, 30.0)),
        messages_max=random.choice((None, None, None, 1, 10, 100)),
        when_full=random.choice(("block", "block", "refuse")),
    )


def _publisher(
    random: Random, nodes: tuple[str, ...], address: str, span_s: float, bytes_max: float
) -> tuple[dict[str, Any], float]:
    """The workload, and how many bytes are left for the others."""
    size = random.choice((12, 100, 200, 200, 1_000, 5_000, 100_000))
    most = random.choice((5, 50, 150, 400))
    if size > 10_000:
        most = min(most, 12)
    producers = random.choice((1, 1, 1, 2, 4))
    messages = max(1, int(min(most, bytes_max / 3 / (size + 150))) // producers)
    if messages * producers * size > bytes_max:
        size = 100
    # Mostly as long as faults strike: what is through in a moment meets none of them.
    rate = 0.0 if random.random() < 0.25 else round(messages / span_s * random.uniform(0.8, 2.0), 3)
    told = {
        "kind": "publish",
        "node": random.choice(nodes),
        "address": address,
        "messages": messages,
        "producers": producers,
        "size": size,
        "rate": rate,
        "in_doubt": random.choice((1, 10, 200, 1_000)),
    }
    return told, bytes_max - messages * producers * (size + 150)


def _consumer(random: Random, total: int) -> dict[str, Any]:
    consumers = random.choice((1, 1, 1, 2, 3))
    think_s = 0.0 if random.random() < 0.6 else min(0.2, random.uniform(1.0, 20.0) / max(1, total))
    told: dict[str, Any] = {
        "kind": "consume",
        "consumers": consumers,
        "credit": random.choice((1, 10, 100, 1_000)),
        "think_s": round(think_s, 6),
    }
    if random.random() < 0.3:
        told |= {share: round(random.uniform(0.0, 0.2), 3) for share in ("release", "modify", "reject")}
    return told


# ---------------------------------------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that did not end well. `failure` is one line, `replay_command` makes it again; `ended` False: its
    process hung or died, and so would whoever runs it again."""

    seed: int
    failure: str
    replay_command: str
    ended: bool = True


@dataclass(slots=True)
class SwarmReport:
    """`failed` by seed, ascending, whatever the order in which they ran."""

    seeds: int
    failed: list[Failure] = field(default_factory=list)
    wall_s: float = 0.0
    hops: int = 0
    virtual_s: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)

    def lines(self) -> list[str]:
        """For a person: what ran, what failed and how to see it again."""
        found = [
            f"{self.seeds} seeds, {len(self.failed)} failed, {self.hops:,} hops, {self.virtual_s / 3600:.1f} hours of "
            f"virtual time in {self.wall_s:.0f} s"
        ]
        for failure in self.failed:
            found += [f"seed {failure.seed}: {failure.failure}", f"  {failure.replay_command}"]
        return found


def replay_command(seed: int) -> str:
    """The one command that runs a seed again, with its log."""
    return f"holdfast sim run swarm --seed {seed}" + (" --depth bytes" if depth_of(seed) == "bytes" else "")


def run_seed(seed: int, coverage: Coverage) -> Any:
    """Draws and runs one seed in this process; returns its Result, and adds what it reached to `coverage`."""
    with watched(coverage):
        result = execute(draw_plan(seed), seed, depth=depth_of(seed))
    coverage.add(FAULTS, result.coverage.get("faults", {}))
    coverage.add(FATES, result.coverage.get("commits met by a crash", {}))
    return result


def run_swarm(
    first_seed: int,
    seeds: int,
    *,
    jobs: int | None = None,
    tell: Callable[[int, str], None] | None = None,
    canary: Canary | None = None,
    wall_limit_s: float = WALL_LIMIT_S,
) -> SwarmReport:
    """Runs `seeds` seeds from `first_seed` in `jobs` processes (None: one for each core).

    `tell(done, failure)` hears of each seed that ended, `failure` empty or one line. `canary` is called once in each
    worker and must be a function at the top of a module.
    """
    return run_seeds(range(first_seed, first_seed + seeds), jobs=jobs, tell=tell, canary=canary, limit_s=wall_limit_s)


def run_seeds(
    wanted: Sequence[int],
    *,
    jobs: int | None = None,
    tell: Callable[[int, str], None] | None = None,
    canary: Canary | None = None,
    limit_s: float = WALL_LIMIT_S,
) -> SwarmReport:
    """As `run_swarm`, with those seeds."""
    began = time.perf_counter()
    report = SwarmReport(len(wanted))
    todo = deque(wanted)
    jobs = max(1, min(jobs or len(os.sched_getaffinity(0)), len(wanted)))
    workers = [_Worker(canary) for _ in range(jobs)] if wanted else []
    done = 0
    try:
        while todo or any(worker.seed is not None for worker in workers):
            for worker in workers:
                if worker.seed is None and todo:
                    worker.give(todo.popleft())
                elif worker.seed is not None and time.monotonic() - worker.given_at > limit_s:
                    worker.end()
            ready = wait([worker.pipe for worker in workers if worker.seed is not None], timeout=LOOK_S)
            for index, worker in enumerate(workers):
                if worker.pipe not in ready or worker.seed is None:
                    continue
                seed, told = worker.seed, worker.take()
                if told is None:  # it died, or was ended: its seed failed, the next ones get a new process
                    hung = time.monotonic() - worker.given_at > limit_s
                    failure = f"hung: no end within {limit_s:g} s" if hung else f"the worker {worker.died()}"
                    workers[index] = _Worker(canary)
                else:
                    failure, hops, virtual_s, coverage = told
                    report.hops += hops
                    report.virtual_s += virtual_s
                    report.coverage.merge(coverage)
                if failure:
                    report.failed.append(Failure(seed, failure, replay_command(seed), told is not None))
                done += 1
                if tell is not None:
                    tell(done, failure)
    finally:
        for worker in workers:
            worker.end()
    report.failed.sort(key=lambda item: item.seed)
    report.wall_s = time.perf_counter() - began
    return report


class _Worker:
    """A process that runs one seed after the other."""

    def __init__(self, canary: Canary | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work_seeds, args=(theirs, canary), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.given_at = 0.0

    def give(self, seed: int) -> None:
        self.seed = seed
        self.given_at = time.monotonic()
        try:
            self.pipe.send(seed)
        except OSError:  # it is dead: `take` finds that out
            pass

    def take(self) -> tuple[str, int, float, Coverage] | None:
        """(failure, hops, virtual seconds, coverage) of its seed; None where the process died."""
        self.seed = None
        try:
            told: tuple[str, int, float, Coverage] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return told

    def died(self) -> str:
        self.process.join(5.0)
        return f"died with exit code {self.process.exitcode}"

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def _work_seeds(pipe: "Connection[Any, Any]", canary: Canary | None) -> None:
    logging.disable(logging.CRITICAL)  # the client library's warnings; a failure has its line
    if canary is not None:
        canary()
    while True:
        try:
            seed = pipe.recv()
        except EOFError:
            return
        coverage = Coverage()
        try:
            result = run_seed(seed, coverage)
            pipe.send((result.failure, result.hops, result.virtual_s, coverage))
        except Exception as error:  # drawing failed: that seed's failure
            pipe.send((f"{type(error).__name__}: {error}", 0, 0.0, coverage))
