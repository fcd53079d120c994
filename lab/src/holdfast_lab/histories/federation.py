"""Histories of federated topics: what is bound at one node is known at the others, whatever dies, parts or is spoilt.

Rules of this file: one function a history. A topic goes round a ring in both directions, and no node has a topology
file. What is spoilt holds all invariants, so that only others show that it is wrong. Source: docs/federation.md;
docs/adr/0081.
"""

from dataclasses import replace
from random import Random
from typing import Final

from holdfast.engine import events
from holdfast.federation.federation import Federation
from holdfast.federation.rows import Row, Stamp
from holdfast.federation.sets import Held, Key, make, stamped
from holdfast.federation.settings import Entry
from holdfast_lab.histories.programs import Consumer
from holdfast_lab.histories.stage import History, Stage, sites
from holdfast_lab.plan.networks import Topology

TOPIC: Final = "prices"
RING: Final = ("a-b", "b-c", "c-d", "d-a")
PATTERNS: Final = ("us.#", "eu.*", "#.ibm", "asia.tokyo")

HEALED_S: Final = 150.0
"""Some exchanges of 30 s: two, and two more where a stamp must be reset."""


def federation(stage: Stage, name: str) -> Federation | None:
    return stage.core(name).bindings.federation


def known(stage: Stage, node: str, origin: str) -> set[str]:
    """The patterns that a node has on disk of what another wants."""
    found = federation(stage, node)
    held = None if found is None else found.sets.committed(Key(origin, TOPIC))
    return set() if held is None else {row.pattern for row in held.rows}


def agreed(stage: Stage, wanted: dict[str, set[str]]) -> bool:
    """Whether every node has what each wants, and chooses by it."""
    for node in stage.nodes:
        if not stage.up(node) or federation(stage, node) is None:
            return False
        for origin in stage.nodes:
            if known(stage, node, origin) != wanted.get(origin, set()):
                return False
        branches = stage.core(node).bindings.choose(TOPIC, "us.ibm").branches
        if set(branches) != {name for name, patterns in wanted.items() if name != node and "us.#" in patterns}:
            return False
    return True


def subscriber(stage: Stage, node: str, *patterns: str) -> list[Consumer]:
    return [stage.consumer(node, f"topic/{TOPIC}/{pattern}") for pattern in patterns]


async def bindings_spread(stage: Stage) -> None:
    """Nodes die and links part while clients come and go: in the end all nodes have what the clients want."""
    await stage.together()
    clients = subscriber(stage, "c", "us.#", "eu.*")
    await stage.until("all know of c's", lambda: agreed(stage, {"c": {"us.#", "eu.*"}}))
    for _ in range(stage.some(1, 3)):
        victim = stage.random.choice("abd")
        stage.crash(victim, power=stage.chance())
        if stage.chance():
            stage.part("b", "c")
        more = subscriber(stage, "c", "#.ibm")
        await stage.moment(3.0)
        stage.start(victim)
        await stage.moment(2.0)
        stage.join("b", "c")
        await stage.until("all know of the new one", lambda: agreed(stage, {"c": {"us.#", "eu.*", "#.ibm"}}))
        await more[0].leave()
        await stage.until("it is withdrawn", lambda: agreed(stage, {"c": {"us.#", "eu.*"}}))
    for client in clients:
        await client.leave()
    await stage.until("nobody wants anything", lambda: agreed(stage, {}))


async def bindings_away(stage: Stage) -> None:
    """Who is down withdraws nothing: it is known to want what it wanted, also to a node that starts meanwhile."""
    await stage.together()
    subscriber(stage, "c", "us.#")
    await stage.until("all know of c's", lambda: agreed(stage, {"c": {"us.#"}}))
    stage.part("b", "c")
    stage.part("c", "d")
    await stage.until("c is away", lambda: not stage.joined("b", "c") and not stage.joined("c", "d"))
    await stage.moment(5.0)
    other = stage.random.choice("abd")
    stage.crash(other, power=stage.chance())
    stage.start(other)
    await stage.holds(
        "the others know what c wants",
        lambda: all(known(stage, node, "c") == {"us.#"} for node in "abd"),
        stage.random.uniform(1.0, 60.0),
    )
    chosen = {node: stage.core(node).bindings.choose(TOPIC, "us.ibm").branches for node in "abd"}
    stage.equal("where messages go", chosen, dict.fromkeys("abd", ("c",)))
    stage.join("b", "c")
    stage.join("c", "d")
    await stage.until("all agree again", lambda: agreed(stage, {"c": {"us.#"}}))


async def bindings_spoilt(stage: Stage) -> None:
    """What nodes hold in memory is spoilt, stamps, rows and edges: it becomes right by itself."""
    await stage.together()
    wanted = {"a": {"eu.*"}, "c": {"us.#", "asia.tokyo"}}
    for node, patterns in wanted.items():
        subscriber(stage, node, *sorted(patterns))
    await stage.until("all know of all", lambda: agreed(stage, wanted))
    spoilt = sum(spoil(stage, node) for node in stage.nodes)
    stage.happened(spoilt, "something was spoilt")
    for node in stage.nodes:
        stage.nodes[node].post(events.TimerFired())
    await stage.until("all is right again", lambda: agreed(stage, wanted), HEALED_S)


def spoil(stage: Stage, node: str) -> int:
    """Spoils some of the sets that are on the node's disk, as they are in memory, where they may be larger or smaller
    than before. How many."""
    found, core = federation(stage, node), stage.bed.sim_nodes[node].core
    assert found is not None and core is not None
    random, count = stage.random, 0
    for key, held in list(found.sets.stored.items()):
        if random.random() < 0.5 and found.sets.is_settled(key):
            ways = STAMPS if key.origin == node else (*STAMPS, _other_rows, _no_edges)
            found.sets.stored[key] = random.choice(ways)(random, held)
            count += 1
    found.sets.rebuild()
    core.memory.sets.hold(found.sets.bytes)
    return count


def _other_rows(random: Random, held: Held) -> Held:
    return make(held.stamp, [Row(random.choice(PATTERNS))], held.edges)


def _other_stamp(random: Random, held: Held) -> Held:
    return stamped(held, Stamp(held.stamp.life + random.randrange(1, 10**6), random.randrange(1, 100)))


def _highest_stamp(random: Random, held: Held) -> Held:
    return stamped(held, Stamp(2**63 - 1, 2**63 - 1))


def _no_edges(random: Random, held: Held) -> Held:
    return make(held.stamp, held.rows, ())


STAMPS: Final = (_other_stamp, _highest_stamp)


def _ring(random: Random) -> Topology:
    """Each node forwards the topic to both neighbours."""
    topology = sites(*RING)(random)
    entries = {node: tuple(Entry(TOPIC, name) for name in topology.neighbours(node)) for node in topology.nodes}
    return replace(topology, federation=entries)


HISTORIES = (
    History("bindings-spread", "Clients come and go while nodes die and links part: all nodes know what is wanted.",
            _ring, bindings_spread),
    History("bindings-away", "A node that is away withdraws nothing, also for a node that starts meanwhile.",
            _ring, bindings_away),
    History("bindings-spoilt", "What nodes hold of each other's bindings is spoilt in memory, and becomes right.",
            _ring, bindings_spoilt),
)  # fmt: skip
