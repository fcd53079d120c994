"""`holdfast sim burst`: one of six sites sends twenty times as much for a while, over two regions to a hub, without
pacing, with equal rates, and with rates by need (docs/pacing.md).

Rules of this file: the nodes are those of the simulator, in virtual time, from a seed. What is shown is computed from
the runs' event logs alone. Each run is a process of its own.
"""

import argparse
import logging
import multiprocessing
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from holdfast.errors import HoldfastError, missing_package
from holdfast.lines import say
from holdfast.pacing.settings import PacingConfig
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.notes import Note
from holdfast_lab.demo.burst_picture import draw
from holdfast_lab.plan.networks import Link, LinkShape, Topology
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute

ROOT: Final = "hub"
REGIONS: Final = ("north", "south")
SITES: Final = ("north-1", "north-2", "north-3", "south-1", "south-2", "south-3")
BURSTS: Final = "south-1"
QUEUE: Final = "readings"

SIZE_BYTES: Final = 4_900
COUNTED_BYTES: Final = 5_000
"""What a reading counts in a queue, about."""
ROOT_PER_S: Final = 5
"""Readings that the hub's application takes in a second."""
ROOT_HOLDS: Final = 60
SITE_HOLDS: Final = 150
"""Readings for which the hub, and each site, has room."""
QUIET_PER_S: Final = 0.5
QUIET_MESSAGES: Final = 60
BURST_PER_S: Final = 10.0
BURST_MESSAGES: Final = 200

KEEPALIVE_S: Final = 3.0
"""No link fails here: more keepalives would only take time."""

SITE_LINK: Final = LinkShape(rate=100_000, delay_s=0.02)
REGION_LINK: Final = LinkShape(rate=200_000, delay_s=0.02)

WAYS: Final = {"without pacing": None, "equal rates": "fixed", "rates by need": "level"}
"""The runs, and the policy of each; None: no pacing."""


@dataclass(slots=True)
class Measured:
    """What one run showed. `waiting`: by node, (second, readings there) at each change. `ages`: by site, how many
    seconds each reading took from the site's disk to the application."""

    ok: bool
    failure: str
    waiting: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    ages: dict[str, list[float]] = field(default_factory=dict)
    done_s: float = 0.0

    def most(self, nodes: Iterable[str]) -> int:
        """The most that one of them held at once."""
        return max(count for node in nodes for _, count in self.waiting.get(node, [(0.0, 0)]))

    def quiet(self) -> list[float]:
        return [age for site, ages in self.ages.items() if site != BURSTS for age in ages]


def plan_of(policy: str | None) -> Plan:
    """The run with that policy of pacing, or without pacing."""
    links = (
        *(Link(one=site, other=site.partition("-")[0], there=SITE_LINK) for site in SITES),
        *(Link(one=region, other=ROOT, there=REGION_LINK) for region in REGIONS),
    )
    pacing = {}
    if policy is not None:
        client = PacingConfig(roots=(ROOT,), capacity_bytes=SITE_HOLDS * COUNTED_BYTES)
        pacing = dict.fromkeys(SITES, client) | {ROOT: PacingConfig(rate=ROOT_PER_S * COUNTED_BYTES, policy=policy)}
    queue = QueueConfig(name=QUEUE, bytes_max=ROOT_HOLDS * COUNTED_BYTES, order="none")
    sends = [_sends(site, QUIET_MESSAGES, QUIET_PER_S, f"quiet-{site}") for site in SITES]
    takes = {
        "kind": "consume", "node": ROOT, "queue": QUEUE, "credit": 1, "think_s": 1 / ROOT_PER_S, "name": "application",
    }  # fmt: skip
    topology = Topology(
        nodes=(ROOT, *REGIONS, *SITES), links=links, queues={ROOT: (queue,)}, pacing=pacing,
        keepalive_s=KEEPALIVE_S, hold_time_s=3 * KEEPALIVE_S,
    )  # fmt: skip
    return Plan(
        name="burst", topology=topology, workloads=(*sends, _sends(BURSTS, BURST_MESSAGES, BURST_PER_S, "burst"), takes)
    )


def _sends(site: str, messages: int, per_s: float, name: str) -> dict[str, Any]:
    return {
        "kind": "publish", "node": site, "address": f"{QUEUE}@{ROOT}", "messages": messages, "size": SIZE_BYTES,
        "rate": per_s, "in_doubt": 2_000, "name": name,
    }  # fmt: skip


def measured(notes: Iterable[Note], *, ok: bool = True, failure: str = "") -> Measured:
    """What the event log says. The hub's queue is first in, first out: so many came before a reading, so many leave
    before it."""
    found = Measured(ok, failure)
    stored: dict[str, tuple[str, float]] = {}
    came: list[str] = []
    held = new = left = 0
    for note in notes:
        if note.kind == "append":
            key = note.text.split()[0]
            if note.place == ROOT:
                came.append(key)
                new += 1
            elif note.place in SITES:
                stored.setdefault(key, (note.place, note.at))
        elif note.kind == "holds":
            count = int(note.text.split()[0])
            found.waiting.setdefault(note.place, []).append((note.at, count))
            if note.place == ROOT:
                gone, held, new = held + new - count, count, 0
                for key in came[left : left + gone]:
                    site, at = stored[key]
                    found.ages.setdefault(site, []).append(note.at - at)
                left += gone
                found.done_s = note.at if gone else found.done_s
    return found


def _run(job: tuple[str | None, int]) -> Measured:
    """In a process of its own."""
    logging.disable(logging.CRITICAL)  # the client library's warnings
    policy, seed = job
    result = execute(plan_of(policy), seed, keep_notes=True)
    return measured(result.notes, ok=result.ok, failure=result.failure)


def run_all(seed: int) -> dict[str, Measured]:
    """Each of WAYS; as many at once as there are cores."""
    jobs = [(policy, seed) for policy in WAYS.values()]
    cores = min(len(jobs), len(os.sched_getaffinity(0)))
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        return dict(zip(WAYS, pool.map(_run, jobs, chunksize=1), strict=True))


def rows_of(found: Mapping[str, Measured]) -> list[tuple[str, list[str]]]:
    """The six lines: what, and a value for each run."""
    runs = list(found.values())
    others = [site for site in SITES if site != BURSTS]
    return [
        (f"most readings at {BURSTS}, which has room for {SITE_HOLDS}", [_full(run.most([BURSTS])) for run in runs]),
        ("most readings at one of the other sites", [str(run.most(others)) for run in runs]),
        ("most readings at one of the regions", [str(run.most(REGIONS)) for run in runs]),
        (f"most readings at the hub, which has room for {ROOT_HOLDS}", [str(run.most([ROOT])) for run in runs]),
        (
            "seconds that a reading of the other sites took, median and most",
            [f"{median(run.quiet()):.1f}, {max(run.quiet()):.1f}" for run in runs],
        ),
        ("seconds until the application had all", [f"{run.done_s:.0f}" for run in runs]),
    ]


def _full(most: int) -> str:
    return f"{most} (too many)" if most > SITE_HOLDS else str(most)


def lines_of(found: Mapping[str, Measured]) -> list[str]:
    """A table for a person."""
    rows = [("", list(found)), *rows_of(found)]
    first = max(len(what) for what, _ in rows)
    widths = [max(len(values[at]) for _, values in rows) for at in range(len(found))]
    return [
        f"{what:{first}}  " + "  ".join(f"{value:>{width}}" for value, width in zip(values, widths, strict=True))
        for what, values in rows
    ]


def burst(args: argparse.Namespace) -> int:
    """`holdfast sim burst`: six lines and the picture; exit code 1 where a run does not end well."""
    picture = Path(args.picture)
    found = run_all(args.seed)
    for way, run in found.items():
        if not run.ok:
            raise HoldfastError(f"the run {way!r} with seed {args.seed} failed: {run.failure}")
    for line in lines_of(found):
        say(line)
    places = {"site that bursts": [BURSTS], "regions": list(REGIONS), "hub": [ROOT]}
    holds = {"site that bursts": SITE_HOLDS, "hub": ROOT_HOLDS}
    try:
        draw(picture, {way: run.waiting for way, run in found.items()}, places, holds=holds)
    except ImportError as error:
        raise missing_package(error.name, "'./lab[demo]'") from None
    say(f"picture: {picture}")
    return 0
