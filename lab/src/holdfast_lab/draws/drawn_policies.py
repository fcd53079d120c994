"""What a message, a transaction or an operator asks of the node that holds it, in a share of the seeds: an end at a
wall time, another queue, to be shown together.

Rules of this file: drawn after all else, each scene from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, peers
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
from holdfast_lab.plan.plan import Plan

INCOMPLETE: Final = "a group is incomplete"
"""A moment."""


def by_the_clock(random: Random, node: str, plan: Plan) -> Scene:
    """Messages that expire at a wall time or after a while, here or at the next node, where somebody sets the clock."""
    if fails(plan, node):
        return Scene()
    where = random.choice([node, *peers(plan, node)])
    messages = in_time(plan, 80)
    told: dict[str, Any] = {"messages": messages, "producers": 2, "rate": round(messages / plan.safety_s, 3)}
    told |= {"share": 0.7, "by_clock": 0.6, "ttl_max_s": random.choice((0.5, 5.0)), "size": random.choice((12, 200))}
    sends = {"kind": "expiring", "node": node, "address": f"by-the-clock@{where}", "name": "by-the-clock", **told}
    takes = takes_from(where, "by-the-clock", think_s=random.choice((0.0, 0.2)), credit=random.choice((1, 50)))
    faults = poor_disk(random, where, min(8.0, plan.safety_s)) if random.random() < 0.5 else []
    for _ in range(random.choice((0, 1, 2))):
        at = round(random.uniform(0.2, plan.safety_s), 6)
        faults.append(Fault(kind="clock-step", at=at, node=where, amount=random.choice((-3_600.0, -2.0, 1.0, 3_600.0))))
    return Scene([sends, takes], faults)


def by_hand(random: Random, node: str, plan: Plan) -> Scene:
    """An operator who moves what comes to a queue to another one, on a poor disk, beside a consumer or none."""
    if fails(plan, node):
        return Scene()
    messages = in_time(plan, 60)
    rate = round(messages / plan.safety_s, 3)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"by-hand@{node}", "messages": messages}
    sends |= {"rate": rate}
    sends |= {"producers": 2, "size": random.choice((12, 200, 3_000)), "name": "by-hand"}
    moves: dict[str, Any] = {
        "kind": "by-hand",
        "node": node,
        "queue": "by-hand",
        "to": "by-hand-moved",
        "name": "by-hand",
    }
    moves |= {"together": random.choice((1, 4)), "pause_s": random.choice((0.05, 0.3))}
    takes = [takes_from(node, "by-hand-moved", think_s=random.choice((0.0, 0.01)))]
    if random.random() < 0.3:
        takes.append(takes_from(node, "by-hand", think_s=0.1, credit=2))
    return Scene([sends, moves, *takes], poor_disk(random, node, min(8.0, plan.safety_s)))


def poison(random: Random, node: str, plan: Plan) -> Scene:
    """Messages that nobody can process, at a node that is killed, whose clients are cut off, and whose disk is poor."""
    if fails(plan, node) or node in renewed_in(plan):
        return Scene()
    messages, most = in_time(plan, 60), random.choice((1, 2, 5))
    name = "poison"
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{node}", "messages": messages}
    sends |= {"rate": random.choice((0.0, round(messages / plan.safety_s, 3))), "producers": 1, "name": f"{name}-in"}
    takes: dict[str, Any] = {"kind": "poisoned", "node": node, "queue": name, "most": most, "messages": messages}
    takes |= {"consumers": random.choice((1, 3)), "credit": random.choice((1, 5, 50)), "name": name}
    takes |= {"think_s": random.choice((0.0, 0.05)), "leave": random.choice((0.1, 0.5))}
    if random.random() < 0.3:
        takes["selectors"] = ["", "JMSPriority >= 0"]
    faults = poor_disk(random, node, min(8.0, plan.safety_s)) if random.random() < 0.6 else []
    faults += node_ends(random, node, plan, random.choice((1, 3, 6)))
    queue = QueueConfig(name=name, deliveries_max=most, order="none")
    return Scene([sends, takes], faults, [(node, queue)])


def not_yet(random: Random, node: str, plan: Plan) -> Scene:
    """Messages that are to be delivered later, many of them at once, here or at the next node, whose disk is poor and
    whose clock somebody sets."""
    if fails(plan, node):
        return Scene()
    where = random.choice([node, node, *peers(plan, node)])
    if where in renewed_in(plan):
        return Scene()
    told: dict[str, Any] = {"messages": in_time(plan, 80), "rate": random.choice((0.0, 0.0, 20.0))}
    told |= {"delays_s": random.choice(([0.5, 3.0], [2.0])), "by_clock": random.choice((0.0, 0.5, 1.0))}
    told |= {"size": random.choice((12, 200)), "credit": random.choice((5, 100))}
    sends = {"kind": "delayed", "node": node, "address": f"not-yet@{where}", "name": "not-yet", **told}
    faults = poor_disk(random, where, min(8.0, plan.safety_s))
    for _ in range(random.choice((0, 1, 2))):
        at = round(random.uniform(0.2, plan.safety_s), 6)
        faults.append(random.choice((
            Fault(kind="clock-step", at=at, node=where, amount=random.choice((-60.0, -2.0, 2.0, 3_600.0))),
            Fault(kind=random.choice(("crash", "power", "stop")), at=at, node=where, seconds=0.2),
        )))  # fmt: skip
    return Scene([sends], faults)


def sorted_out(random: Random, node: str, plan: Plan) -> Scene:
    """Messages of all priorities for a queue that sorts, here or at the next node, whose consumers are slow, give some
    back and break; its disk is poor, and it is killed now and then."""
    if fails(plan, node):
        return Scene()
    where = random.choice([node, node, *peers(plan, node)])
    if where in renewed_in(plan):
        return Scene()
    name, messages = "sorted-out", in_time(plan, 80)
    sends: dict[str, Any] = {"kind": "publish", "node": node, "address": f"{name}@{where}", "messages": messages}
    sends |= {"rate": random.choice((0.0, round(messages / min(5.0, plan.safety_s), 3))), "producers": 2, "name": name}
    sends |= {"size": random.choice((12, 200))}
    takes = takes_from(
        where, name, sorts=True, consumers=random.choice((1, 1, 3)), credit=random.choice((1, 3, 20)),
        think_s=random.choice((0.02, 0.1)), release=random.choice((0.0, 0.2)), modify=random.choice((0.0, 0.2)),
        elsewhere=random.choice((0.0, 0.3)), stays=random.choice((0, 0, 5)),
    )  # fmt: skip
    if takes["elsewhere"] and not takes["stays"]:
        takes["stays"] = 5  # whoever calls messages undeliverable makes room for another
    if random.random() < 0.2:
        takes["selectors"] = ["", "JMSPriority > 4 OR even"]
    faults = poor_disk(random, where, min(8.0, plan.safety_s)) if random.random() < 0.5 else []
    faults += node_ends(random, where, plan, random.choice((0, 1, 3)))
    bound = random.choice((None, None, 5, 30))
    most = random.choice((None, None, 50))
    return Scene(
        [sends, takes], faults, [(where, QueueConfig(name=name, priorities=True, order="none", messages_max=bound,
                                                     deliveries_max=most))],
    )  # fmt: skip


def together(random: Random, node: str, plan: Plan) -> Scene:
    """Transactions for a queue of the next node, over lines that are cut again and again, with disks that are slow and
    refuse commits while some of one have come and others not."""
    others = [name for name in peers(plan, node) if name not in renewed_in(plan)]
    if fails(plan, node) or not others or renewed_in(plan):
        return Scene()
    where = random.choice(others)
    if any(fault.kind == "full-disk" and where in fault.places for fault in plan.faults):
        return Scene()  # without room for all of it at once, a part is shown
    most, until_s = random.choice((8, 30)), min(8.0, plan.safety_s)
    count = max(2, 2 * in_time(plan, 150) // (2 + most))
    told: dict[str, Any] = {"transactions": count, "most": most, "size": random.choice((12, 200, 3_000))}
    told |= {"rate": round(count / plan.safety_s, 3), "between": 200, "between_rate": round(200 / plan.safety_s, 3)}
    sends = {"kind": "together", "node": node, "address": f"together@{where}", "name": "together", **told}
    sends |= {"credit": random.choice((5, 100))}
    queue = QueueConfig(
        name="together", order=random.choice(("strict", "bounded", "none")), when_full="block",
        messages_max=random.choice((None, None, 40)),
    )  # fmt: skip
    faults = poor_disk(random, where, until_s)
    for _ in range(random.choice((2, 6))):
        at = round(random.uniform(0.2, until_s), 6)
        faults.append(random.choice((
            Fault(kind="cut", at=at, link=(node, where), amount=random.random()),
            Fault(kind="partition", at=at, link=(node, where), seconds=random.choice((0.3, 3.0))),
            Fault(kind=random.choice(("crash", "power")), at=at, node=random.choice((node, where)), seconds=0.2),
        )))  # fmt: skip
    for kind in (*["refusing-disk"] * 6, random.choice(("crash", "power"))):
        at = round(random.uniform(0.1, until_s), 6)
        faults.append(Fault(kind=kind, at=at, node=where, seconds=0.3, when=INCOMPLETE))
    for kind in ("cut", "partition", "partition"):
        at = round(random.uniform(0.1, until_s), 6)
        faults.append(Fault(kind=kind, at=at, link=(node, where), seconds=1.0, amount=0.5, when=INCOMPLETE))
    return Scene([sends], faults, [(where, queue)])


def temporary_topics(random: Random, node: str, plan: Plan) -> Scene:
    """Temporary topics, whose clients are cut off now and then."""
    if fails(plan, node):
        return Scene()
    until_s = min(8.0, plan.safety_s)
    told: dict[str, Any] = {"rounds": 8, "messages": random.choice((5, 30)), "subscriptions": random.choice((3, 6))}
    told |= {"size": random.choice((12, 200, 6_000)), "credit": random.choice((2, 50))}
    uses = {"kind": "temporary-topic", "node": node, "name": "temporary-topics", **told}
    faults = [
        Fault(kind="cut-clients", at=round(random.uniform(0.2, until_s), 6), node=node)
        for _ in range(random.choice((0, 1, 3)))
    ]
    return Scene([uses], faults)


POLICIES: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "by the clock": (0.08, by_the_clock),
    "by hand": (0.08, by_hand),
    "poison": (0.08, poison),
    "not yet": (0.08, not_yet),
    "sorted out": (0.1, sorted_out),
    "together": (0.15, together),
    "temporary topics": (0.08, temporary_topics),
}
"""As LATER of `drawn_scenes.py`."""


def with_policies(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, POLICIES, SeedTree(seed).child("swarm").child("policies"))
