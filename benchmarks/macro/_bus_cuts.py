"""Cuts a link of a running fleet, and measures when the routes of each node were right again.

Rules of this file: when a next hop changed is taken from the node itself (`routing.changed_s` of its status), asked
for afterwards, one node after the other: sixteen nodes that are asked all the time are another load than the one
measured. Every bound is the late one, so no figure is too short.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from _bus_figures import distribution
from _bus_fleet import Disagreement, Fleet, agree
from _bus_load import Traffic
from _bus_network import Edge, Expected, Network, table_of, way_round

FLOW = "flow"
FLOW_PER_S = 50.0
FLOW_S = 0.3
"""How long messages pass over a link before it is cut."""
QUIET_S = 0.5
"""After a cut nobody is asked anything for so long."""
ARRIVE_S_MAX = 10.0
GOAL_S = 0.25
"""From a cut until all nodes route right."""
ASKS = 3
"""How often each node is asked for one moment: each answer narrows it."""


@dataclass(frozen=True, slots=True)
class Change:
    """When a node's next hops last changed, on time.monotonic's scale: not before `least`, not after `most`."""

    least: float
    most: float


def change_of(told: dict[str, Any], asked_at: float, answered_at: float) -> Change:
    """The node's moment of answering lies between the two."""
    since_s = float(told["routing"]["changed_s"])
    return Change(asked_at - since_s, answered_at - since_s)


def wrong_in(told: dict[str, Any], expected: Expected, name: str) -> str | None:
    """What of a node's table is not as it should be; None: all of it is right."""
    table, right = table_of(told), expected.tables[name]
    if table == right:
        return None
    off = sorted(end for end in table.keys() | right.keys() if table.get(end) != right.get(end))
    return f"{off[0]} by {table.get(off[0])}, not {right.get(off[0])}; {len(off)} such"


def narrowed(one: Change, other: Change) -> Change:
    """Two answers about one moment; the later one's where they speak of different moments."""
    least, most = max(one.least, other.least), min(one.most, other.most)
    return Change(least, most) if least <= most else other


async def changes(fleet: Fleet, names: Iterable[str], expected: Expected, asks: int = 1) -> dict[str, Change]:
    """Each node's last change of a next hop, once all are right. Raises Disagreement."""
    names = list(names)
    await agree(fleet.nodes, names, lambda name, told: wrong_in(told, expected, name), time.monotonic())
    found: dict[str, Change] = {}
    for name in names * asks:
        asked_at = time.monotonic()
        told = await fleet.nodes.status(name)
        if told is None:
            raise Disagreement(f"{name}: no answer")
        change = change_of(told, asked_at, time.monotonic())
        found[name] = narrowed(found[name], change) if name in found else change
    return found


def summed_up(cut_at: float, ends: Edge, found: dict[str, Change]) -> dict[str, float]:
    """Seconds since the cut: until the first and the second end of the link went another way, until the last node did,
    and how uncertain the last is. A node whose way did not change was right all along.
    """
    after = {name: change for name, change in found.items() if change.least >= cut_at}
    noticed = sorted(after[end].most - cut_at for end in ends if end in after)
    last = max(after.values(), key=lambda change: change.most, default=Change(cut_at, cut_at))
    return {
        "noticed_s": noticed[0] if noticed else 0.0,
        "both_noticed_s": noticed[-1] if noticed else 0.0,
        "right_s": last.most - cut_at,
        "uncertain_s": last.most - last.least,
        "changed_nodes": len(after),
    }


async def lost_sessions(fleet: Fleet, names: Iterable[str]) -> dict[tuple[str, str], dict[str, int]]:
    """By node and neighbour: sessions lost, probes missed, alarms that the neighbour itself called false."""
    told = await fleet.nodes.all(names)
    return {
        (name, session["neighbour"]): {
            "lost": int(session["lost"]),
            **{k: int(v) for k, v in session["probes"].items()},
        }
        for name, one in told.items()
        if one is not None
        for session in one["sessions"]
    }


def lan_links(network: Network) -> list[Edge]:
    """Those with a way of LAN links round them, where a cut is to be got round within a LAN's times."""
    links = [link.ends for link in network.topology.links if link.kind != "serial"]
    return [(start, end) for start, end in links if way_round(network.topology, start, end, (start, end))]


class Cuts:
    """Cuts one link after the other, with messages on their way over it, and heals it."""

    def __init__(self, fleet: Fleet, network: Network, traffic: Traffic) -> None:
        self.fleet, self.network, self.traffic = fleet, network, traffic
        self.whole = network.expected()

    async def one(self, ends: Edge, *, silent: bool) -> dict[str, Any]:
        """One cut and its healing. Raises Disagreement where the nodes do not come to agree."""
        source, target = ends
        fleet, network, names = self.fleet, self.network, self.network.up
        network.cut = {frozenset(ends)}
        expected = network.expected()
        network.cut = set()
        flow = {FLOW: [[ends]]}
        await self.traffic.start(flow, FLOW_PER_S)
        await asyncio.sleep(FLOW_S)
        cut_at, asked_for = await fleet.request("cut", a=source, b=target, silent=silent)
        arrived = await self.traffic.first_after(FLOW, ends, asked_for, ARRIVE_S_MAX)  # by then it was cut
        await asyncio.sleep(max(0.0, cut_at + QUIET_S - time.monotonic()))
        found = summed_up(cut_at, ends, await changes(fleet, names, expected, ASKS))
        heal_at, _ = await fleet.request("heal", a=source, b=target)
        await asyncio.sleep(QUIET_S)
        healed = summed_up(heal_at, ends, await changes(fleet, names, self.whole))
        await self.traffic.pause()
        return {
            "link": list(ends), **found, "request_s": asked_for - cut_at,
            "arrived_s": None if arrived is None else arrived - cut_at, "healed_s": healed["right_s"],
        }  # fmt: skip

    async def many(self, links: list[Edge], count: int, *, silent: bool, say: Any) -> dict[str, Any]:
        """`count` cuts, the links in turn."""
        runs = []
        for turn in range(count):
            run = await self.one(links[turn % len(links)], silent=silent)
            runs.append(run)
            kind = "silent" if silent else "loud"
            say(f"{kind} cut {turn + 1}: right after {run['right_s'] * 1000:.0f} ms, healed {run['healed_s']:.2f} s")
        return summary(runs)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads in milliseconds, over cuts; and how many were within the goal."""
    keys = ("noticed_s", "both_noticed_s", "right_s", "arrived_s", "healed_s", "request_s", "uncertain_s")
    found = {
        f"{key.removesuffix('_s')}_ms": distribution([run[key] * 1000 for run in runs if run[key] is not None], 1)
        for key in keys
    }
    spreading = distribution([(run["right_s"] - run["noticed_s"]) * 1000 for run in runs], 1)
    within = sum(run["right_s"] < GOAL_S for run in runs)
    return {"n": len(runs), "within_goal": within, **found, "spreading_ms": spreading,
            "links": [run["link"] for run in runs]}  # fmt: skip
