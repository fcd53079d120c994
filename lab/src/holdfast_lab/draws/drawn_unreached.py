"""What planted mistakes showed no seed to reach (docs/mutants.md), each in a share of the seeds.

Rules of this file: drawn after all else, each scene from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, is_guessed_at
from holdfast_lab.draws.drawn_scenes import (
    Scene,
    in_time,
    node_ends,
    poor_disk,
    renewed_in,
    takes_from,
    with_scenes,
)
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.moments import OF_TRANSACTIONS
from holdfast_lab.plan.plan import Plan


def in_bulk(random: Random, node: str, plan: Plan) -> Scene:
    """Transactions that each take many messages of a backlog, at a node whose disk refuses just what has them: a
    refusal lasts longer than the slow commit that may be under way before it."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    name, until_s = "in-bulk", min(8.0, plan.safety_s)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{node}", "name": name}
    sends |= {"messages": in_time(plan, 200), "producers": 2, "size": random.choice((12, 200))}
    moves = {
        "kind": "transact", "node": node, "queue": name, "address": f"{name}-on@{node}", "name": f"{name}-moves",
        "most": random.choice((8, 30)), "credit": 60, "aborts": random.choice((0.0, 0.2)),
    }  # fmt: skip
    faults = poor_disk(random, node, until_s)
    for when in (*OF_TRANSACTIONS, OF_TRANSACTIONS[-1], OF_TRANSACTIONS[-1]):
        at = round(random.uniform(0.1, until_s), 6)
        faults.append(Fault(kind="refusing-disk", at=at, node=node, seconds=random.choice((0.3, 1.0)), when=when))
    at = round(random.uniform(0.1, until_s), 6)
    faults.append(
        Fault(kind=random.choice(("crash", "power")), at=at, node=node, seconds=0.1, when=OF_TRANSACTIONS[-1])
    )
    queues = [(node, QueueConfig(name=each, order="none")) for each in (name, f"{name}-on")]
    return Scene([sends, moves, takes_from(node, f"{name}-on")], faults, queues)


def one_of_two_readers(random: Random, node: str, plan: Plan) -> Scene:
    """Transactions that take what others are still to have: their commits finish it for a durable subscription alone,
    on a disk that refuses some of them."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    name, until_s = "one-of-two-readers", min(8.0, plan.safety_s)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{node}", "name": name}
    sends |= {"messages": in_time(plan, 120), "producers": 1, "size": random.choice((12, 200))}
    moves = {
        "kind": "transact", "node": node, "queue": name, "address": f"{name}-on@{node}", "name": f"{name}-moves",
        "most": random.choice((4, 20)), "credit": 40, "aborts": random.choice((0.0, 0.3)), "subscription": "moves",
    }  # fmt: skip
    faults = poor_disk(random, node, until_s)
    for kind in ("refusing-disk", "refusing-disk", "cut-clients", random.choice(("crash", "power"))):
        at, seconds = round(random.uniform(0.1, until_s), 6), 0.1 if kind in ("crash", "power") else 0.5
        seconds = 0.0 if kind == "cut-clients" else seconds
        faults.append(Fault(kind=kind, at=at, node=node, seconds=seconds, when=random.choice(OF_TRANSACTIONS)))
    takes = takes_from(node, name, think_s=random.choice((0.0, 0.05)), credit=random.choice((2, 50)))
    bound = random.choice((None, 30))
    queues = [(node, QueueConfig(name=name, order="none", messages_max=bound, when_full="block"))]
    return Scene([sends, moves, takes, takes_from(node, f"{name}-on")], faults, queues)


def due_and_full(random: Random, node: str, plan: Plan) -> Scene:
    """Many messages that are due at once for a queue with little room, at a node whose disk refuses what it delivers of
    them while the rest waits for room."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    name, until_s = "due-and-full", min(8.0, plan.safety_s)
    sends: dict[str, Any] = {"kind": "delayed", "node": node, "address": f"{name}@{node}", "name": name}
    sends |= {"messages": in_time(plan, 80), "share": 1.0, "delays_s": [2.0], "by_clock": random.choice((0.0, 0.5))}
    sends |= {"size": random.choice((12, 200)), "credit": random.choice((1, 5))}
    faults = poor_disk(random, node, until_s)
    for _ in range(6):
        at = round(random.uniform(2.0, max(2.5, until_s)), 6)
        faults.append(Fault(kind="refusing-disk", at=at, node=node, seconds=random.choice((0.2, 0.6))))
    queue = QueueConfig(name=name, order="none", messages_max=random.choice((2, 8)), when_full="block")
    return Scene([sends], faults, [(node, queue)])


def unsubscribed(random: Random, node: str, plan: Plan) -> Scene:
    """Durable subscriptions that are deleted while messages flow and others read, at a node that is killed and whose
    disk refuses commits: what they alone kept leaves bit by bit."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    name = "unsubscribed"
    messages = in_time(plan, 150)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{node}", "name": name}
    sends |= {"messages": messages, "producers": 1, "size": random.choice((12, 200))}
    sends |= {"rate": random.choice((0.0, 20.0))}
    comes = {"kind": "leaving", "node": node, "queue": name, "messages": messages, "name": f"{name}-reads"}
    comes |= {"subscriptions": random.choice((1, 2)), "rounds": random.choice((2, 4))}
    comes |= {"stays": random.choice((5, 30)), "credit": random.choice((1, 10))}
    takes = takes_from(node, name, release=random.choice((0.0, 0.1)), think_s=random.choice((0.0, 0.02)))
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    faults += node_ends(random, node, plan, random.choice((0, 2)))
    return Scene([sends, comes, takes], faults, [(node, QueueConfig(name=name, order="none"))])


def thin(random: Random, node: str, plan: Plan) -> Scene:
    """Receivers with the smallest frames and a window of one transfer or a few, which answer for several links at once
    or settle second, at a node whose disk refuses commits."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    messages = in_time(plan, random.choice((30, 80)))
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"thin@{node}", "name": "thin"}
    sends |= {"messages": messages, "producers": 1, "size": random.choice((12, 700, 3_000))}
    takes: dict[str, Any] = {
        "kind": "thin",
        "node": node,
        "queue": "thin",
        "name": "thin-out",
        "links": random.choice((1, 2, 4)),
    }
    takes |= {"window": random.choice((2, 3, 8)), "credit": random.choice((1, 5, 20))}
    takes |= {"second": random.random() < 0.4, "life_s": random.choice((1.0, 20.0))}
    takes |= {"think_s": random.choice((0.0, 0.01))}
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    faults += node_ends(random, node, plan, random.choice((0, 1)))
    return Scene([sends, takes], faults, [(node, QueueConfig(name="thin", order="none"))])


UNREACHED: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "in bulk": (0.04, in_bulk),
    "due and full": (0.08, due_and_full),
    "one of two readers": (0.08, one_of_two_readers),
    "unsubscribed": (0.08, unsubscribed),
    "thin": (0.08, thin),
}
"""As LATER of `drawn_scenes.py`."""


def with_unreached(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, UNREACHED, SeedTree(seed).child("swarm").child("unreached"))


def into_a_full_queue(random: Random, node: str, plan: Plan) -> Scene:
    """Transactions whose messages fill their queue, so that many are declared while it is full; it has room by
    priority, so that its links' credit is taken back then."""
    if is_guessed_at(plan, node) or fails(plan, node) or node in renewed_in(plan):
        return Scene()
    name, most = "into-a-full-queue", random.choice((2, 6))
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{node}", "name": name}
    sends |= {"messages": in_time(plan, 60), "producers": 1, "size": random.choice((12, 200))}
    moves: dict[str, Any] = {"kind": "transact", "node": node, "queue": name, "address": f"{name}-on@{node}"}
    moves |= {"name": f"{name}-moves", "most": most, "aborts": random.choice((0.0, 0.2)), "size": sends["size"]}
    takes = takes_from(node, f"{name}-on", think_s=random.choice((0.02, 0.1)), credit=1)
    faults = random.choice(([], poor_disk(random, node, min(8.0, plan.safety_s)), node_ends(random, node, plan, 2)))
    full = QueueConfig(name=f"{name}-on", order="none", messages_max=most, when_full="block", room_low=0.5)
    return Scene([sends, moves, takes], faults, [(node, QueueConfig(name=name, order="none")), (node, full)])


FULL: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "into a full queue": (0.08, into_a_full_queue),
}
"""As UNREACHED."""


def with_full(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, FULL, SeedTree(seed).child("swarm").child("full"))
