"""Virtual hosts, in a share of the seeds: of one node, with clients of each that use the same names for all things;
and of all, with messages of each that cross between two.

Rules of this file: drawn after all else, from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails
from holdfast_lab.draws.drawn_scenes import Scene, in_time, node_ends, poor_disk, renewed_in, takes_from, with_scenes
from holdfast_lab.plan.faults import PUT_BACK, Fault
from holdfast_lab.plan.plan import Plan

NAMES: Final = ("", "acme", "globex")
QUEUE: Final = "shared"


def apart(random: Random, node: str, plan: Plan) -> Scene:
    """Two hosts or three whose clients send to queues of one name, reject, give back and delay, and look at all that
    they may see, while the node is killed and its disk is poor."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    hosts = NAMES[: random.choice((2, 3))]
    scene = Scene()
    for host in hosts:
        mine = host or "default"
        scene.queues.append((node, QueueConfig(name=QUEUE, vhost=host, order="none")))
        sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{QUEUE}@{node}", "vhost": host}
        sends |= {"messages": in_time(plan, random.choice((20, 60))), "producers": random.choice((1, 2))}
        sends |= {"rate": random.choice((0.0, 10.0)), "size": random.choice((12, 200)), "name": f"{mine}-sends"}
        later: dict[str, Any] = {"kind": "delayed", "node": node, "address": f"later@{node}", "vhost": host}
        later |= {"messages": in_time(plan, 20), "delays_s": [0.5, 2.0], "by_clock": 0.0, "name": f"{mine}-later"}
        takes = takes_from(node, QUEUE, vhost=host, credit=random.choice((1, 20)), think_s=random.choice((0.0, 0.05)))
        takes |= {"reject": random.choice((0.0, 0.3)), "release": 0.1, "modify": 0.1, "name": f"{mine}-takes"}
        others = [other for other in hosts if other != host]
        looks: dict[str, Any] = {"kind": "apart", "node": node, "vhost": host, "others": others, "queue": QUEUE}
        looks |= {"looks": 15, "pause_s": 0.4, "name": f"{mine}-looks"}
        scene.workloads += [sends, takes, looks, *([later] if random.random() < 0.6 else [])]
    if random.random() < 0.5:
        scene.faults += poor_disk(random, node, min(8.0, plan.safety_s))
    scene.faults += node_ends(random, node, plan, random.choice((0, 1, 3)))
    return scene


CROSSING_SHARE: Final = 0.12
CROSSED: Final = "crossed"


def with_crossing(plan: Plan, seed: int) -> Plan:
    """The plan, in a share of the seeds with messages of several virtual hosts between two nodes: a queue of one of
    them may be full, lines break, and nodes run as an earlier version for a while."""
    random = SeedTree(seed).child("swarm").stream("crossing hosts")
    topology = plan.topology
    if random.random() >= CROSSING_SHARE or topology.takes:
        return plan
    nodes = [name for name in topology.nodes if not fails(plan, name) and name not in renewed_in(plan)]
    if len(nodes) < 2:
        return plan
    one, other = random.sample(nodes, 2)
    hosts = NAMES[: random.choice((2, 3, 3))]
    queues = {node: topology.queues.get(node, ()) for node in (one, other)}
    told: list[dict[str, Any]] = []
    for source, target in ((one, other), (other, one))[: random.choice((1, 2))]:
        for host in hosts:
            queue, takes = _crossed(random, host)
            if renewed_in(plan):  # what a disk had that is lost on the way, a strict queue waits for for ever
                queue = replace(queue, order="bounded")
            queues[target] = (*queues[target], queue)
            name = f"{CROSSED}-{host or 'default'}-{target}"
            sends: dict[str, Any] = {"kind": "publish", "node": source, "address": f"{CROSSED}@{target}"}
            sends |= {"messages": in_time(plan, random.choice((20, 60))), "producers": random.choice((1, 2))}
            sends |= {"rate": random.choice((0.0, 10.0)), "size": random.choice((12, 200)), "in_doubt": 200}
            told.append(sends | {"vhost": host, "name": f"{name}-in"})
            told.append(takes_from(target, CROSSED, vhost=host, **takes) | {"name": f"{name}-out"})
    faults = sorted((*plan.faults, *_on_the_way(random, plan, (one, other))), key=lambda fault: fault.at)
    crossed = replace(topology, crossing=NAMES[1:], queues={**topology.queues, **queues})
    return replace(plan, topology=crossed, workloads=(*plan.workloads, *told), faults=tuple(faults))


def _crossed(random: Random, host: str) -> tuple[QueueConfig, dict[str, Any]]:
    """A queue of that host, and how it is emptied: some are small, and slow to empty."""
    is_full = random.random() < 0.3
    queue = QueueConfig(
        name=CROSSED, vhost=host, order=random.choice(("strict", "bounded")), messages_max=3 if is_full else None
    )
    return queue, {"credit": 1 if is_full else 100, "think_s": 0.02 if is_full else 0.0}


def _on_the_way(random: Random, plan: Plan, ends: tuple[str, str]) -> list[Fault]:
    goes_back = {fault.node for fault in plan.faults if fault.kind in PUT_BACK}
    found = []
    for _ in range(random.choice((0, 2, 4))):
        at = round(random.uniform(0.2, plan.safety_s), 6)
        node = random.choice((*ends, random.choice(plan.topology.nodes)))
        link = (node, random.choice(plan.topology.neighbours(node)))
        kind = random.choice(("earlier-version", "earlier-version", "crash", "cut", "partition"))
        if kind in ("cut", "partition"):
            found.append(Fault(kind=kind, at=at, link=link, seconds=random.choice((0.5, 4.0))))
        elif node not in goes_back and not fails(plan, node):
            found.append(Fault(kind=kind, at=at, node=node, seconds=random.choice((0.3, 3.0))))
    return found


HOSTS: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {"apart": (0.12, apart)}
"""As LATER of `drawn_scenes.py`."""


def with_hosts(plan: Plan, seed: int) -> Plan:
    """The plan with the virtual hosts that the seed has."""
    return with_scenes(plan, HOSTS, SeedTree(seed).child("swarm").child("hosts"))
