"""Scenes: a few clients and faults of their own, for a share of the seeds, that bring about what chance hardly does.

Rules of this file: a scene uses queues of its own, for a state of one node. Those in SCENES draw from a stream each,
those in OF_MOMENTS, for moments that need clients of a kind, from the stream of `drawn_aims.py`. A scene's faults
strike the whole node, and shift what `drawn_aims.py` draws for the faults after them; those in LATER, from a stream
each too, come after it and shift nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.contents import PATTERNS, SELECTORS
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_wire import on_lmdb
from holdfast_lab.plan.faults import PUT_BACK, Fault
from holdfast_lab.plan.moments import OF_TRANSACTIONS
from holdfast_lab.plan.networks import joined
from holdfast_lab.plan.plan import Plan

RENEWED: Final = "messages get new numbers"
"""A moment."""
LITTLE_WAITS_BYTES: Final = 1_000
"""With such a `parked_bytes_max` a single message waits for room in a queue, or two."""
RESUMED: Final = "resumed-in"
"""The name of the workload whose producer, which has none, resumes its link again and again."""


@dataclass(slots=True)
class Scene:
    """What it adds to a plan; each of `queues` with its node. `paged`: LMDB lies under the nodes. `limits` and `knobs`
    hold for all nodes of the run."""

    workloads: list[dict[str, Any]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    queues: list[tuple[str, QueueConfig]] = field(default_factory=list)
    paged: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, int] = field(default_factory=dict)

    def queues_with(self, queues: Mapping[str, tuple[QueueConfig, ...]]) -> dict[str, tuple[QueueConfig, ...]]:
        """Those of a topology, by node, and its own."""
        found = dict(queues)
        for node, queue in self.queues:
            found[node] = (*found.get(node, ()), queue)
        return found


def draw_scenes(seeds: SeedTree, nodes: Sequence[str]) -> Scene:
    """All of a seed's SCENES as one."""
    return _draw(SCENES, seeds, nodes)


def _draw(
    scenes: Mapping[str, tuple[float, Callable[..., Scene]]], seeds: SeedTree, nodes: Sequence[str], *given: Any
) -> Scene:
    """`given`: what they are told besides the stream and the node."""
    found = Scene()
    for name, (share, draw) in scenes.items():
        random = seeds.stream(name)
        if random.random() < share:
            scene = draw(random, random.choice(nodes), *given)
            found.workloads += scene.workloads
            found.faults += scene.faults
            found.queues += scene.queues
            found.paged |= scene.paged
            found.limits |= scene.limits
            found.knobs |= scene.knobs
    return found


def _sends(node: str, queue: str, messages: int, **told: Any) -> dict[str, Any]:
    """A producer of short messages, as fast as they are taken."""
    usual = {"producers": 1, "size": 12, "rate": 0.0, "in_doubt": 200, "name": f"{queue}-in"}
    return {"kind": "publish", "node": node, "address": f"{queue}@{node}", "messages": messages, **usual, **told}


def takes_from(node: str, queue: str, **told: Any) -> dict[str, Any]:
    return {"kind": "consume", "node": node, "queue": queue, "credit": 100, "name": f"{queue}-out", **told}


def _slow_disk(node: str) -> Fault:
    """Each commit takes a tenth of a second or two."""
    return Fault(kind="slow-disk", at=0.0, node=node, seconds=8.0, amount=50.0)


def poor_disk(random: Random, node: str, until_s: float) -> list[Fault]:
    """A slow one, which refuses commits now and then."""
    faults = [_slow_disk(node)]
    for _ in range(random.choice((3, 8))):
        at = round(random.uniform(0.05, until_s), 6)
        faults.append(Fault(kind="refusing-disk", at=at, node=node, seconds=random.choice((0.05, 0.2, 1.0))))
    return faults


def node_ends(random: Random, node: str, plan: Plan, count: int) -> list[Fault]:
    """So many times the node is killed or stopped, or loses its clients."""
    found = []
    for _ in range(count):
        at = round(random.uniform(0.2, plan.safety_s), 6)
        kind = random.choice(("crash", "power", "cut-clients", "stop"))
        found.append(Fault(kind=kind, at=at, node=node, seconds=0.2 if kind != "cut-clients" else 0.0))
    return found


def _across(links: Sequence[tuple[str, str]], node: str) -> list[str]:
    """The nodes at the other ends of a node's links."""
    return [name for link in links for name in link if name != node]


# ---------------------------------------------------------------------------------------------------- by chance


def backlog(random: Random, node: str) -> Scene:
    """A backlog, and the crash of its node: what lies there is in no cache then, and is read ahead from the disk while
    some of it comes back. What others send mostly goes on as it comes."""
    sends = _sends(node, "backlog", random.choice((100, 200)), size=random.choice((12, 200)))
    takes = takes_from(node, "backlog", credit=random.choice((1, 5)), think_s=0.02, release=0.1, modify=0.1)
    crash = Fault(kind="crash", at=round(random.uniform(0.2, 1.0), 6), node=node, seconds=0.2)
    return Scene([sends, takes], [crash])


def crowd(random: Random, node: str) -> Scene:
    """Producers that share commits, and crashes of their node while a slow one is under way: each asks the new life
    what it has of it."""
    sends = _sends(node, "crowd", 300, producers=random.choice((3, 5)), in_doubt=5)
    faults = [_slow_disk(node)]
    for _ in range(4):
        at, kind = round(random.uniform(0.5, 5.0), 6), random.choice(("crash", "power"))
        faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1, when="a commit waits behind another"))
    return Scene([sends, takes_from(node, "crowd")], faults)


def resumed(random: Random, node: str) -> Scene:
    """A producer without a name whose link breaks while what it sent is on its way to the disk: what its node has
    stored of it, the node must know by the tags."""
    sends = _sends(node, "resumed", 200, in_doubt=random.choice((5, 50, 50)), named=False, name=RESUMED)
    faults = [_slow_disk(node)]
    for _ in range(4):
        at = round(random.uniform(0.0, 1.0), 6)
        faults.append(Fault(kind="cut-clients", at=at, node=node, when="a commit is under way"))
    return Scene([sends, takes_from(node, "resumed")], faults)


def spooled(random: Random, node: str) -> Scene:
    """Programs with spools that die, some of them with their machine."""
    sends = _sends(node, "spooled", random.choice((40, 100)), producers=random.choice((1, 2)), rate=50.0)
    sends |= {"kind": "spooled", "in_doubt": random.choice((1, 20)), "lives": random.choice((3, 8))}
    return Scene([sends, takes_from(node, "spooled")])


def selected(random: Random, node: str) -> Scene:
    """A subscription with a selector, whose node dies while much of what it leaves out is not stored as such."""
    sends = _sends(node, "selected", random.choice((40, 100)), producers=4, rate=random.choice((0.0, 50.0)))
    reads = {"kind": "copy", "node": node, "queue": "selected", "subscriptions": 2, "name": "selects"}
    reads |= {"selector": random.choice([*SELECTORS][:2]), "credit": random.choice((1, 50))}
    faults = []
    for _ in range(3):
        at, kind = round(random.uniform(0.0, 3.0), 6), random.choice(("crash", "power"))
        faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1, when="a commit is under way"))
    return Scene([sends, reads], faults)


def competing(random: Random, node: str) -> Scene:
    """Consumers with selectors that compete with one that takes all, and give back much of what they are handed, while
    their connections and their node break."""
    sends = _sends(node, "competing", random.choice((60, 150)), producers=4, rate=random.choice((0.0, 50.0)))
    shares = {"release": 0.2, "modify": 0.2, "notes": random.choice((0.0, 0.5)), "elsewhere": random.choice((0.0, 0.3))}
    picks = takes_from(
        node, "competing", consumers=random.choice((2, 3, 5)), credit=random.choice((1, 4, 50)), **shares
    )
    picks |= {"selectors": random.sample([*SELECTORS], random.choice((1, 2, 3))), "name": "picks"}
    picks |= {
        "stays": random.choice((3, 20) if picks["elsewhere"] else (0, 3, 20)),
        "resume_s": random.choice((0.0, 5.0)),
        "think_s": 0.01,
    }
    rest = takes_from(node, "competing", credit=random.choice((1, 20)), think_s=random.choice((0.0, 0.02, 0.2)))
    faults = []
    for _ in range(random.choice((0, 2, 4))):
        at, kind = round(random.uniform(0.0, 3.0), 6), random.choice(("crash", "power", "cut-clients", "cut-clients"))
        faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1))
    return Scene([sends, picks, rest], faults)


def topic(random: Random, node: str) -> Scene:
    """A topic with subscriptions that overlap, while its node and what they have with it break."""
    sends = _sends(node, "topic/news", random.choice((60, 200)), producers=4, rate=random.choice((0.0, 50.0)))
    reads: dict[str, Any] = {"kind": "topic", "node": node, "queue": "topic/news", "name": "news"}
    reads |= {"subscriptions": random.choice((1, 2, 5)), "listeners": random.choice((0, 1, 3))}
    reads |= {"patterns": random.sample([*PATTERNS], random.choice((1, 2, 4))), "credit": random.choice((1, 5, 50))}
    reads |= {"think_s": random.choice((0.0, 0.02)), "selector": random.choice(("", *SELECTORS))}
    faults = []
    for _ in range(random.choice((0, 2, 5))):
        at, kind = round(random.uniform(0.0, 3.0), 6), random.choice(("crash", "power", "cut-clients"))
        when = random.choice(("", "a commit is under way"))
        faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1, when=when))
    return Scene([sends, reads], faults)


SCENES: Final[dict[str, tuple[float, Callable[[Random, str], Scene]]]] = {
    "backlog": (0.08, backlog),
    "competing": (0.1, competing),
    "crowd": (0.06, crowd),
    "resumed producer": (0.06, resumed),
    "selected": (0.08, selected),
    "spooled": (0.08, spooled),
    "topic": (0.1, topic),
}
"""By the name of its stream: the share of the seeds that have it."""


# ---------------------------------------------------------------------------------------------------- for a moment


def deleted(random: Random, node: str, plan: Plan, others: Sequence[str]) -> Scene:
    """Queues that are deleted with what they hold."""
    told = {"rounds": 8, "messages": random.choice((20, 100)), "purge": 0.2, "name": "deleted"}
    return Scene([{"kind": "manage", "node": node, "pause_s": plan.safety_s / 8, **told}])


def drained(random: Random, node: str, plan: Plan, others: Sequence[str]) -> Scene:
    """Strangers that keep to the protocol: no honest client drains a link that has credit. Beside computed routes they
    are drawn by `drawn_hostile.py` alone."""
    if plan.topology.routing is not None:
        return Scene()
    told = {"clients": 3, "acts": 300, "seconds": 0.9 * plan.safety_s, "pause_s": 0.01, "rude": 0.0, "name": "drained"}
    return Scene([{"kind": "hostile", "node": node, **told}])


def narrow(random: Random, node: str, plan: Plan, others: Sequence[str]) -> Scene:
    """A queue that is always full, with producers near and far."""
    queue = QueueConfig(name="narrow", order="none", messages_max=random.choice((1, 5)), when_full="block")
    sends = [_sends(node, "narrow", 50, in_doubt=random.choice((5, 50)))]
    if others:
        sends.append({**sends[0], "node": random.choice(others), "messages": 100, "name": f"narrow-of-{node}"})
    takes = takes_from(node, "narrow", think_s=round(plan.safety_s / 150, 3))
    return Scene([*sends, takes], queues=[(node, queue)])


def overtaken(random: Random, node: str, plan: Plan, others: Sequence[str]) -> Scene:
    """A full queue in strict order whose messages overtake each other, where there are two ways to it."""
    links, nodes = joined(plan.topology.links), plan.topology.nodes
    kept = len(others) == len(nodes) - 1  # a strict queue waits for ever for what a lost disk had
    if not (others and kept) or plan.topology.routing is not None or len(links) < len(nodes):
        return Scene()
    near = [link for link in links if node in link]
    queue = QueueConfig(name="overtaken", order="strict", messages_max=random.choice((1, 5)), when_full="block")
    sends = _sends(random.choice(_across(near, node)), "overtaken", 200)
    sends |= {"address": f"overtaken@{node}", "name": f"overtaken-of-{node}", "rate": round(200 / plan.safety_s, 3)}
    takes = takes_from(node, "overtaken", think_s=round(plan.safety_s / 180, 3))
    return Scene([sends, takes], _overtaking(random, near, plan.safety_s), [(node, queue)])


def _overtaking(random: Random, near: Sequence[tuple[str, str]], span_s: float) -> list[Fault]:
    """A node's links become slow, and routes change while something is on its way over them."""
    faults = []
    for _ in range(8):
        link, at, slow = random.choice(near), random.uniform(0.0, span_s), random.choice((10.0, 100.0, 300.0))
        faults.append(Fault(kind="slow-link", at=round(at, 6), link=link, seconds=1.0, amount=slow))
        at += random.uniform(0.1, 0.6)
        faults.append(Fault(kind="re-route", at=round(at, 6), link=link, seconds=round(random.uniform(0.2, 1.0), 6)))
    return faults


OF_MOMENTS: Final[dict[str, Callable[[Random, str, Plan, Sequence[str]], Scene]]] = {
    "a consumer drains": drained,
    "a deleted queue leaves": deleted,
    "messages are parked": narrow,
    "messages that waited are moved": overtaken,
    "messages that waited find their queue full": overtaken,
    "messages wait for an earlier one": overtaken,
    "producers wait for room": narrow,
}
"""By moment: the scene at a node of a plan in which it comes about, with others of its nodes, those whose disks stay
what they are. It lasts for about as long as faults strike; where the plan has no place for it, it is empty."""


# ---------------------------------------------------------------------------------------------------- after all else


def rejected(random: Random, node: str, plan: Plan) -> Scene:
    """Messages that become dead letters many at a time, on a disk that is slow, and refuses a commit now and then: what
    such a commit would have moved is where it was."""
    sends = _sends(node, "rejected", random.choice((100, 300)), size=random.choice((12, 200)))
    takes = takes_from(node, "rejected", reject=random.choice((0.3, 0.9)))
    return Scene([sends, takes], poor_disk(random, node, 3.0))


def returned(random: Random, node: str, plan: Plan) -> Scene:
    """Messages that leave many at a time, and among them some that came back and were taken later than those behind
    them: one commit has them out of order, and LMDB's store has to find each."""
    sends = _sends(node, "returned", 300)
    takes = takes_from(node, "returned", consumers=3, release=random.choice((0.02, 0.05)), credit=20)
    return Scene([sends, takes], [_slow_disk(node)], paged=True)


def taken_again(random: Random, node: str, plan: Plan) -> Scene:
    """A consumer whose links are resumed, and break again and again while it holds messages: some it has decided on,
    without an answer yet, the others are to be sent again."""
    sends = _sends(node, "taken-again", 300)
    takes = takes_from(node, "taken-again", credit=random.choice((20, 50)), think_s=0.01, resume_s=300.0)
    faults = [_slow_disk(node)]
    for _ in range(6):
        faults.append(Fault(kind="cut-clients", at=round(random.uniform(0.5, 4.0), 6), node=node))
    return Scene([sends, takes], faults)


def too_large(random: Random, node: str, plan: Plan) -> Scene:
    """Dozens of messages that a next hop does not take, in seeds with such a node: they wait to be dead letters. None
    come from a node whose store goes back: until they have ended, its neighbour has no mark beyond them, and so nothing
    that tells the store (docs/GUARANTEES.md, *What is left*)."""
    takes = list(plan.topology.takes)
    if not takes or plan.topology.routing is not None:
        return Scene()
    senders = [name for name in plan.topology.neighbours(takes[0]) if name not in gone_back(plan)]
    if not senders:
        return Scene()
    sends = _sends(random.choice(senders), "too-large", random.choice((30, 100)), size=6_000)
    return Scene([{**sends, "address": f"too-large@{takes[0]}"}])


def renumbered(random: Random, node: str, plan: Plan) -> Scene:
    """In seeds with a store that goes back: a producer there that sends all the while, so that much gets new numbers,
    and a disk that refuses commits then."""
    scene = Scene()
    for leaf in (fault.node for fault in plan.faults if fault.kind == "restore-backup"):
        (hub,) = plan.topology.neighbours(leaf)
        sends = _sends(leaf, "renumbered", 600, rate=round(600 / plan.safety_s, 3))
        scene.workloads += [{**sends, "address": f"renumbered@{hub}"}, takes_from(hub, "renumbered")]
        for apart in (fault for fault in plan.faults if fault.kind == "partition" and leaf in fault.link):
            at, seconds = round(apart.at + apart.seconds, 6), random.choice((0.2, 1.0, 3.0))
            scene.faults.append(Fault(kind="refusing-disk", at=at, node=leaf, seconds=seconds, when=RENEWED))
    return scene


def purged(random: Random, node: str, plan: Plan) -> Scene:
    """What waits for a strict queue at the next node is purged again and again, beside commits that are under way."""
    others = [name for name in plan.topology.neighbours(node) if name not in renewed_in(plan)]
    if not others or node in renewed_in(plan) or plan.topology.takes or plan.topology.routing is not None:
        return Scene()
    other = random.choice(others)
    sends = _sends(node, "purged", 300, rate=round(300 / plan.safety_s, 3))
    faults = [Fault(kind="slow-disk", at=0.0, node=node, seconds=plan.safety_s, amount=50.0)]
    for _ in range(4):
        at = round(random.uniform(0.5, plan.safety_s), 6)
        faults.append(Fault(kind="partition", at=round(at - 0.4, 6), link=(node, other), seconds=0.8))
        faults.append(Fault(kind="purge", at=at, node=node, when="a commit is under way"))
    queue = QueueConfig(name="purged", order="strict")
    return Scene([{**sends, "address": f"purged@{other}"}, takes_from(other, "purged")], faults, [(other, queue)])


def in_time(plan: Plan, wanted: int) -> int:
    """So many of the messages wanted as come in time where each takes a round trip over the longest link."""
    longest_s = max(shape.delay_s + shape.jitter_s for link in plan.topology.links for shape in link.shapes)
    return min(wanted, int(plan.liveness_s / 5 / longest_s)) if longest_s else wanted


def renewed_in(plan: Plan) -> set[str]:
    """Nodes whose disks do not stay what they are: a strict queue waits for ever for what a lost one had."""
    return {fault.node for fault in plan.faults if fault.kind in PUT_BACK or fault.kind == "replace-disk"}


def gone_back(plan: Plan) -> set[str]:
    """Nodes whose stores go back to an older state and do not know it until a neighbour tells them."""
    return {fault.node for fault in plan.faults if fault.kind == "restore-backup"}


def by_two_ways(random: Random, node: str, plan: Plan) -> Scene:
    """A strict queue whose messages overtake each other while no fault is aimed at that. A share of its seeds has no
    place for it: it takes a network with a circle."""
    renewed = renewed_in(plan)
    there = any(told["name"].startswith("overtaken") for told in plan.workloads)
    if there or node in renewed or plan.topology.takes:
        return Scene()
    return overtaken(random, node, plan, [name for name in plan.topology.nodes if name not in (node, *renewed)])


def crammed(random: Random, node: str, plan: Plan) -> Scene:
    """In seeds whose nodes let little wait: a queue of one message that is emptied fast, and fills from the next node
    as fast as it can. That is one message for each round trip at worst, and they all come in time."""
    topology = plan.topology
    others = topology.neighbours(node)
    if not others or topology.limits.parked_bytes_max > LITTLE_WAITS_BYTES or topology.limits.credit < 10:
        return Scene()
    messages = in_time(plan, 600)
    queue = QueueConfig(name="crammed", order="none", messages_max=1, when_full="block")
    sends = _sends(random.choice(others), "crammed", messages, size=random.choice((12, 200, 1_200)))
    sends |= {"address": f"crammed@{node}"}
    return Scene([sends, takes_from(node, "crammed")], queues=[(node, queue)])


def given_up(random: Random, node: str, plan: Plan) -> Scene:
    """A strict queue whose operator does not wait: for what overtakes each other on two ways, or for what a sender had
    whose disk is lost. Where neither can be there is nothing to give up."""
    topology, renewed = plan.topology, renewed_in(plan)
    links = joined(topology.links)
    near = [link for link in links if node in link]
    lost = [fault.node for fault in plan.faults if fault.kind == "replace-disk" and fault.node != node]
    if node in renewed or topology.takes or topology.routing is not None:
        return Scene()
    if not near or (len(links) < len(topology.nodes) and not lost):
        return Scene()
    sender = random.choice(lost or _across(near, node))
    queue = QueueConfig(name="given-up", order="strict")
    messages = in_time(plan, 600)
    sends = _sends(sender, "given-up", messages, rate=round(messages / plan.safety_s, 3))
    skip = {"kind": "skip", "node": node, "queue": "given-up", "pause_s": random.choice((0.05, 0.5)), "name": "skip"}
    workloads = [{**sends, "address": f"given-up@{node}"}, takes_from(node, "given-up"), skip]
    faults = _overtaking(random, near, plan.safety_s) + _overtaking(random, near, plan.safety_s)
    return Scene(workloads, faults, [(node, queue)])


def in_memory(random: Random, node: str, plan: Plan) -> Scene:
    """A queue that is not durable beside the others, on a disk that is slow, and refuses commits now and then: what
    such a commit had of it stays."""
    if any(fault.kind == "defect" and fault.node == node for fault in plan.faults):
        return Scene()  # what a turn had of it stays where a failure ends its producer, who sends it again
    queue = QueueConfig(
        name="in-memory", durable=False, messages_max=random.choice((5, 1_000)), when_full="block", order="none"
    )
    messages = random.choice((100, 300))
    rate = random.choice((0.0, round(messages / plan.safety_s, 3)))
    told = {"messages": messages, "rate": rate, "size": random.choice((12, 200, 6_000))}
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    sends = {"kind": "in-memory", "node": node, "queue": "in-memory", "name": "in-memory", **told}
    return Scene([sends], faults, [(node, queue)])


def transactions(random: Random, node: str, plan: Plan) -> Scene:
    """Messages that are moved in transactions, here or to the next node, on a disk that is slow and refuses commits,
    while connections break and the node dies with transactions open or half way to the disk."""
    if node in renewed_in(plan):
        return Scene()
    others = [name for name in plan.topology.neighbours(node) if name not in renewed_in(plan)]
    there = random.choice([node, node, *others])
    messages = in_time(plan, random.choice((60, 150)))
    sends = _sends(node, "transacted", messages, rate=random.choice((0.0, round(messages / plan.safety_s, 3))))
    moves = {
        "kind": "transact", "node": node, "queue": "transacted", "address": f"transacted-on@{there}",
        "most": random.choice((1, 5, 20)), "aborts": random.choice((0.0, 0.2)), "name": "transacts",
        "size": random.choice((12, 200, 6_000)), "think_s": random.choice((0.0, 0.005)),
    }  # fmt: skip
    queue = QueueConfig(name="transacted-on", order="none", messages_max=random.choice((None, 30)), when_full="block")
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    for when in OF_TRANSACTIONS:
        for kind in ("crash", "power", "cut-clients", "refusing-disk", "cut-clients"):
            at = round(random.uniform(0.1, min(8.0, plan.safety_s)), 6)
            faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1, when=when))
    takes = takes_from(there, "transacted-on")
    return Scene([sends, moves, takes], faults, [(there, queue)])


def links(random: Random, node: str, plan: Plan) -> Scene:
    """Links between queues, one behind the other, into one, in a ring, over two nodes or beside consumers, while their
    node's disk refuses commits and the node dies."""
    if node in renewed_in(plan):
        return Scene()
    others = [name for name in plan.topology.neighbours(node) if name not in renewed_in(plan)]
    there = random.choice([node, *others])
    messages, shape = in_time(plan, random.choice((60, 300))), random.choice(("chain", "fan-in", "ring", "far", "copy"))
    first, second, last = "linked", "linked-on", "linked-to"
    sends = [_sends(node, first, messages, rate=random.choice((0.0, round(messages / plan.safety_s, 3))))]
    told: dict[str, Any] = {"kind": "linked", "node": node, "name": "links", "think_s": random.choice((0.0, 0.005))}
    told |= {"credit": random.choice((1, 20, 100))}
    if shape == "chain":
        told |= {"links": [[node, first, second, "move"], [node, second, f"{last}@{there}", "move"]]}
        told |= {"ends": [[there, last]]}
    elif shape == "fan-in":
        sends.append(_sends(node, second, messages))
        told |= {"links": [[node, name, f"{last}@{there}", "move"] for name in (first, second)]}
        told |= {"ends": [[there, last]]}
    elif shape == "copy":
        told |= {"links": [[node, first, second, "copy"], [node, first, f"{last}@{there}", "move"]]}
        told |= {"copies": [[node, second, f"{first}@{node}"]], "ends": [[there, last]]}
    elif shape == "ring" or there == node:
        told |= {"links": [[node, first, second, "move"], [node, second, first, "move"]]}
        told |= {"ends": [[node, first]], "rounds": {f"{first}@{node}": 2}}
    else:
        told |= {"links": [[node, first, f"{second}@{there}", "move"], [there, second, f"{first}@{node}", "move"]]}
        told |= {"ends": [[node, first]], "rounds": {f"{first}@{node}": 2}}
    bound = random.choice((None, 5, 30))
    queues = [
        (at, QueueConfig(name=name, order="none", messages_max=bound)) for at, name in ((node, second), (there, last))
    ]
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    for kind in ("crash", "power", "cut-clients", "refusing-disk"):
        at = round(random.uniform(0.1, min(8.0, plan.safety_s)), 6)
        faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1, when="a commit is under way"))
    return Scene([*sends, told], faults, queues)


def steps(random: Random, node: str, plan: Plan) -> Scene:
    """Readings through a link with windows, whose node's disk refuses commits and which dies with windows open; now and
    then with little room in its target."""
    if node in renewed_in(plan):
        return Scene()
    messages, of = in_time(plan, random.choice((60, 200))), random.choice(("", "", "count", "mean", "most", "last"))
    told: dict[str, Any] = {
        "kind": "stepped", "node": node, "name": "steps", "source": "stepped", "target": "stepped-to", "of": of,
        "messages": messages, "tags": random.choice((1, 8, 40)), "within_s": random.choice((0.5, 2.0, 5.0)),
        "rate": random.choice((0.0, *(3 * [round(messages / min(8.0, plan.safety_s), 3)]))),
        "credit": random.choice((1, 20)),
    }  # fmt: skip
    queues = [
        (node, QueueConfig(name="stepped", order="none")),
        (node, QueueConfig(name="stepped-to", order="none", messages_max=random.choice((None, 3, 30)))),
    ]
    faults = poor_disk(random, node, min(8.0, plan.safety_s))
    for when in ("a commit is under way", "a commit is under way", ""):
        for kind in ("crash", "power", "refusing-disk"):
            at = round(random.uniform(0.1, min(8.0, plan.safety_s)), 6)
            faults.append(Fault(kind=kind, at=at, node=node, seconds=0.1, when=when))
    return Scene([told], faults, queues)


LATER: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "rejected": (0.08, rejected),
    "returned": (0.04, returned),
    "by two ways": (0.4, by_two_ways),
    "too large": (0.6, too_large),
    "renumbered": (1.0, renumbered),
    "purged": (0.06, purged),
    "taken again": (0.06, taken_again),
    "crammed": (1.0, crammed),
    "given up": (0.3, given_up),
    "in memory": (0.08, in_memory),
    "transactions": (0.1, transactions),
    "links": (0.1, links),
    "steps": (0.1, steps),
}
"""As SCENES; one that has no place in the plan is empty."""


def with_later_scenes(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes of LATER that the seed has."""
    return with_scenes(plan, LATER, SeedTree(seed).child("swarm").child("later scenes"))


def with_scenes(plan: Plan, scenes: Mapping[str, tuple[float, Callable[..., Scene]]], seeds: SeedTree) -> Plan:
    """The plan with those scenes that the seed has, at nodes that take messages of any size."""
    nodes = [node for node in plan.topology.nodes if node not in plan.topology.takes]
    scene = _draw(scenes, seeds, nodes, plan) if nodes else Scene()
    faults = sorted((*plan.faults, *scene.faults), key=lambda fault: fault.at)
    limits = replace(plan.topology.limits, **scene.limits)
    topology = replace(plan.topology, queues=scene.queues_with(plan.topology.queues), limits=limits)
    workloads, knobs = (*plan.workloads, *scene.workloads), {**plan.knobs, **scene.knobs}
    plan = replace(plan, topology=topology, workloads=workloads, faults=tuple(faults), knobs=knobs)
    return on_lmdb(plan) if scene.paged else plan
