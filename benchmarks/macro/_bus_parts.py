"""The parts of bus_routing.py that need no cut to be timed to the millisecond: the paper's own steps, load and alarms;
and the part that does.

Rules of this file: each part has a fleet of its own and ends it; it returns what goes into the report.
"""

import argparse
import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import _process as process
from _bus_cuts import GOAL_S, Cuts, changes, lan_links, lost_sessions, summed_up, wrong_in
from _bus_figures import (
    carrying,
    delays_s,
    disorder,
    distribution,
    first_synchronisation_s,
    in_time,
    loss_by_node,
    outside,
    packet_loss,
)
from _bus_fleet import Disagreement, Fleet, agree, running
from _bus_load import Classes, Traffic, classes_of
from _bus_network import Network, independent, table_of
from _figures import quantile
from _report import progress

PAPER: Final = {"first_synchronisation_s": 8.0, "convergence_s": 1.0, "cpu_percent": 10.0, "memory_mb": 80.0}
"""esb-dynamic-routing, table 1: less than these."""
GOALS: Final = {"convergence_s": GOAL_S, "after_ready_s": 1.0, "false_alarms": 0}
UNICASTS: Final = {
    "unicast, one link": ("hub", "standby"),
    "unicast, five links": ("n1", "s1"),
    "unicast, narrow": ("e2", "mast"),
}
BROADCASTER: Final = "hub"
SETTLE_S: Final = 2.0
"""§4.4: around a change messages are not counted for so long; and what a bus that drops would have waited."""
SYNCHRONISE_S_MAX: Final = 30.0
LOOK_S: Final = 0.1
DRAIN_S_MAX: Final = 20.0
ALARM_RATE: Final = 40.0
BUSY: Final = "while True: pass"
MB: Final = 1_000_000


class Use:
    """CPU by node between the start and `end`, and memory at the end."""

    def __init__(self, fleet: Fleet) -> None:
        self.pids = dict(fleet.pids)
        self.began = time.monotonic()
        self._before = {name: process.cpu_s(pid) for name, pid in self.pids.items()}
        self._own = time.process_time()

    def end(self) -> dict[str, Any]:
        seconds = time.monotonic() - self.began
        cpu = {name: 100 * (process.cpu_s(pid) - self._before[name]) / seconds for name, pid in self.pids.items()}
        memory = {name: process.anonymous_bytes(pid) / MB for name, pid in self.pids.items()}
        return {
            "cpu_percent": distribution(list(cpu.values()), 1), "cpu_percent_by_node": _rounded(cpu),
            "cpu_percent_all_nodes": round(sum(cpu.values()), 1),
            "cpu_percent_of_load": round(100 * (time.process_time() - self._own) / seconds, 1),
            "memory_mb": distribution(list(memory.values()), 1), "memory_mb_by_node": _rounded(memory),
        }  # fmt: skip


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in values.items()}


async def settled(fleet: Fleet, network: Network) -> None:
    """Returns when every node's table is that of the network as it is. Raises Disagreement."""
    expected = network.expected()
    await agree(fleet.nodes, network.up, lambda name, told: wrong_in(told, expected, name), time.monotonic())


# ---------------------------------------------------------------------------------------------------- the paper's steps


async def table(network: Network, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """§5.3's steps, and equation (1) over the start."""
    fleet = Fleet(network.file, place / "fleet")
    synchronised: dict[str, float] = {}

    async def watch(name: str) -> None:
        while True:
            told = await fleet.nodes.status(name)
            if (
                told is not None
                and told["routing"]["synchronised"]
                and told["routing"]["records"] == len(network.names)
            ):
                synchronised[name] = time.monotonic()
                return
            await asyncio.sleep(LOOK_S)

    watches: list[asyncio.Task[None]] = []
    try:
        await fleet.up(network.names, lambda name: watches.append(asyncio.create_task(watch(name))))
        done, waiting = await asyncio.wait(watches, timeout=SYNCHRONISE_S_MAX)
        for task in waiting:
            task.cancel()
        if waiting:
            raise Disagreement(f"{len(waiting)} of {len(network.names)} nodes are not synchronised")
        for task in done:
            task.result()
        started_at = fleet.started_at(network.supers()[0])
        steps = [await _step(fleet, network, "start", time.monotonic())]
        link, node, leaver = ("north", "east"), "e1", "w2"
        network.cut = {frozenset(link)}
        begun, _ = await fleet.request("cut", a=link[0], b=link[1])
        steps.append(await _step(fleet, network, f"link {link[0]} to {link[1]} disconnected", begun))
        network.cut = set()
        begun, _ = await fleet.request("heal", a=link[0], b=link[1])
        steps.append(await _step(fleet, network, f"link {link[0]} to {link[1]} reconnected", begun))
        for who, what, kill in ((node, "killed", True), (leaver, "stopped", False)):
            network.down = {who}
            begun, _ = await fleet.request("stop", node=who, kill=kill)
            steps.append(await _step(fleet, network, f"node {who} {what}", begun))
            network.down = set()
            _, ready = await fleet.request("start", node=who)
            steps.append(await _step(fleet, network, f"node {who} started again", ready))
        idle = Use(fleet)
        await asyncio.sleep(options.step)
        used = idle.end()
        acting = await fleet.nodes.status(network.supers()[0])
        beats = [] if acting is None else acting["routing"]["heartbeats"]
    finally:
        for task in watches:
            task.cancel()
        await fleet.down()
    return {
        "first_synchronisation_s": round(first_synchronisation_s(started_at, synchronised), 2),
        "after_last_ready_s": round(max(synchronised.values()) - max(fleet.ready_at.values()), 2),
        "start_until_all_ready_s": round(max(fleet.ready_at.values()) - started_at, 2),
        "steps": steps,
        "heartbeats": len(beats),
        "heartbeats_by_shortest_path": sum(bool(beat["shortest"]) for beat in beats),
        "idle": used,
    }


async def _step(fleet: Fleet, network: Network, what: str, begun: float) -> dict[str, Any]:
    """What is to be seen after a step: every table, every link's colour, the super node's view."""
    expected = network.expected()
    found = summed_up(begun, ("", ""), await changes(fleet, network.up, expected))
    told = await fleet.nodes.all(network.up)
    tables = {name: table_of(one) for name, one in told.items() if one is not None}
    shown = await _colours(fleet, network)
    view = told[network.supers()[0]]
    assert view is not None
    try:
        same = independent(network.left(), tables)
    except ImportError:
        same = "not compared: networkx is not installed"
    progress(f"{what}: right after {found['right_s'] * 1000:.0f} ms")
    return {
        "step": what,
        "right_ms": round(found["right_s"] * 1000, 1),
        "paths": sum(map(len, tables.values())),
        "networkx": same,
        "links_shown_right": shown,
        "super_sees_links": carrying(view["routing"]["nodes"]) == expected.links,
    }


async def _colours(fleet: Fleet, network: Network) -> bool:
    """Whether `holdfast fleet status` comes to show green what is there and black what is not."""
    here = {frozenset(link.ends) for link in network.left().links}
    until = time.monotonic() + SYNCHRONISE_S_MAX
    while time.monotonic() < until:
        states = await fleet.link_states()
        if {ends for ends, state in states.items() if state == "up"} == here:
            return True
    return False


# ---------------------------------------------------------------------------------------------------- convergence


async def convergence(network: Network, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Links cut loudly and silently, each healed again, while messages pass over them."""
    links = lan_links(network)
    async with running(network.file, place / "fleet", network.names) as fleet:
        await settled(fleet, network)
        before = await lost_sessions(fleet, network.names)
        async with Traffic(fleet.nodes.addresses, network.names) as traffic:
            cuts = Cuts(fleet, network, traffic)
            loud = await cuts.many(links, options.cuts, silent=False, say=progress)
            silent = await cuts.many(links[::-1], options.cuts, silent=True, say=progress)
            all_came = await traffic.all_came(DRAIN_S_MAX)
            messages = traffic.messages()
            doubles = traffic.doubles
        after = await lost_sessions(fleet, network.names)
    cut = {frozenset(link) for one in (loud, silent) for link in one["links"]}
    return {
        "loud": loud,
        "silent": silent,
        "others_lost": _lost(before, after, cut),
        "messages": {"sent": len(messages), "all_came": all_came, "twice": doubles, "disorder": disorder(messages)},
    }


def _lost(
    before: dict[tuple[str, str], dict[str, int]],
    after: dict[tuple[str, str], dict[str, int]],
    cut: set[frozenset[str]] | None = None,
) -> int:
    """Sessions lost between the two, each end counted, but for those between nodes whose link was cut."""
    return sum(
        one["lost"] - before[key]["lost"]
        for key, one in after.items()
        if frozenset(key) not in (cut or ()) and key in before
    )


# ---------------------------------------------------------------------------------------------------- load


async def load(network: Network, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Steps of rising load in all classes at once, without and with a link cut in each."""
    classes = classes_of(network.names, UNICASTS, BROADCASTER)
    found: dict[str, Any] = {"classes": list(classes), "settle_s": SETTLE_S}
    async with running(network.file, place / "fleet", network.names) as fleet:
        await settled(fleet, network)
        async with Traffic(fleet.nodes.addresses, network.names) as traffic:
            await traffic.attach(classes)
            for name, faults in (("undisturbed", False), ("with cuts", True)):
                found[name] = await _steps(fleet, network, traffic, classes, options, faults=faults)
    return found


async def _steps(
    fleet: Fleet, network: Network, traffic: Traffic, classes: Classes, options: argparse.Namespace, *, faults: bool
) -> list[dict[str, Any]]:
    """Until the last, or the first that does not come to its end."""
    links = [("standby", "south"), ("n2", "east"), ("hub", "north")]
    rows: list[dict[str, Any]] = []
    for turn, rate in enumerate(options.rates):
        before = await lost_sessions(fleet, network.names)
        link, silent = links[turn % len(links)], turn % 2 == 1
        use = Use(fleet)
        await traffic.start(classes, rate)
        moments: list[float] = []
        if faults:
            await asyncio.sleep(options.step / 6)
            moments.append((await fleet.request("cut", a=link[0], b=link[1], silent=silent))[0])
            await asyncio.sleep(options.step / 3)
            moments.append((await fleet.request("heal", a=link[0], b=link[1]))[0])
        await asyncio.sleep(max(0.0, use.began + options.step - time.monotonic()))
        await traffic.pause()
        row = {"rate": rate, "seconds": round(time.monotonic() - use.began, 2), **use.end()}
        ended = time.monotonic()
        row["drained"] = await traffic.all_came(DRAIN_S_MAX)
        row["drain_s"] = round(time.monotonic() - ended, 2)
        messages = traffic.messages(use.began, ended)
        after = await lost_sessions(fleet, network.names)
        row |= {
            "cut": None if not faults else {"link": list(link), "silent": silent},
            "false_alarms": _lost(before, after, {frozenset(link)} if faults else set()),
            "messages": len(messages),
            "delay_ms": {
                kind: _quantiles([one for one in messages if one.kind == kind]) for kind in classes
            },
            "disorder": disorder(messages),
            "loss": _loss(messages, moments, use.began, ended),
        }  # fmt: skip
        rows.append(row)
        progress(
            f"{rate:g} a second{', with a cut' if faults else ''}: nodes {row['cpu_percent_all_nodes']:.0f} %, "
            f"all came: {row['drained']}"
        )
        if not row["drained"]:
            break
    return rows


def _quantiles(messages: Sequence[Any]) -> dict[str, float]:
    taken = delays_s(messages)
    if not taken:
        return {"n": 0}
    marks = {"p50": quantile(taken, 0.5), "p95": quantile(taken, 0.95), "max": max(taken)}
    return {"n": len(taken), **{name: round(seconds * 1000, 1) for name, seconds in marks.items()}}


def _loss(messages: Sequence[Any], moments: Sequence[float], first: float, last: float) -> dict[str, Any]:
    """Equations (2) and (3): of all; of those away from changes, and late ones counted as lost, as §4.4 has it; and
    with late ones lost, changes or not.
    """
    late = in_time(messages, SETTLE_S)
    ways: dict[str, tuple[Sequence[Any], list[tuple[float, float]] | None]] = {
        "never_came": (messages, None),
        "as_paper": (late, outside(moments, SETTLE_S, first, last)),
        "late_is_lost": (late, None),
    }
    found = {}
    for name, (counted, windows) in ways.items():
        shares = list(loss_by_node(counted, windows).values())
        found[name] = round(packet_loss(shares), 5) if shares else None
    return found


# ---------------------------------------------------------------------------------------------------- false alarms


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    running_ = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for one in running_:
            one.terminate()
            one.wait()


async def alarms(network: Network, place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """No link is cut: every session that is lost is a false alarm."""
    classes = classes_of(network.names, UNICASTS, BROADCASTER)
    found: dict[str, Any] = {}
    async with running(network.file, place / "fleet", network.names) as fleet:
        await settled(fleet, network)
        async with Traffic(fleet.nodes.addresses, network.names) as traffic:
            await traffic.attach(classes)
            for name, loaded, spinning in (("idle", False, 0), ("loaded", True, 0), ("loaded, no core free", True, 4)):
                with busy(spinning):
                    before = await lost_sessions(fleet, network.names)
                    use = Use(fleet)
                    if loaded:
                        await traffic.start(classes, ALARM_RATE)
                    await asyncio.sleep(options.alarm)
                    row = {"seconds": options.alarm, "busy_loops": spinning, **use.end()}
                    await traffic.pause()
                    row["all_came"] = await traffic.all_came(DRAIN_S_MAX)
                    after = await lost_sessions(fleet, network.names)
                row["false_alarms"] = _lost(before, after)
                for key in ("sent", "missed", "not_counted"):
                    row[f"probes_{key}"] = sum(one[key] - before[at][key] for at, one in after.items() if at in before)
                found[name] = row
                progress(f"{name}: {row['false_alarms']} sessions lost, {row['probes_missed']} probes missed")
    return found
