"""What docs/mutants.md listed as never drawn: links between queues that move large messages with little room, or into a
queue in memory; a listener of a topic at its bound; links that are resumed in rounds; a spool whose link breaks while
it sends again; turns that are refused while messages that waited find their queue full. Beside these, what lost
connections held of several queues at once, or more of one than the node has memory for.

Rules of this file: drawn after all else, each scene from a stream of its own, so that nothing else of a seed changes
(docs/adr/0053).
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.contents import EVERYTHING, SELECTORS
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_clients import fails, is_guessed_at, peers
from holdfast_lab.draws.drawn_congestion import QUIET
from holdfast_lab.draws.drawn_scenes import Scene, in_time, node_ends, poor_disk, renewed_in, takes_from, with_scenes
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.knobs import BOUNDS
from holdfast_lab.plan.plan import Plan

LISTENERS_BOUND: Final = "broker.topic:LISTENER_MESSAGES_MAX"
GIVEN_BACK: Final = "custody.returns:GIVEN_BACK_MAX"
HITS: Final = "broker.cursors.matches:HITS_MAX"
MEMORY_BACK: Final = ("broker.cursors.exclusions:GIVEN_BACK_BYTES", "broker.cursors.halting:GIVEN_BACK_MIN")
"""What one message that came back takes of the memory for them, and how many halt a queue where that is used up."""
FULL: Final = "messages that waited find their queue full"
"""A moment."""
SMALL_BYTES: Final = 1_600
"""What comes over any line in time, and is large where it takes more than two frames."""


def _has_no_place(node: str, plan: Plan) -> bool:
    timed = any(str(told.get("name", "")).startswith(QUIET) for told in plan.workloads)  # more load would delay it
    return timed or is_guessed_at(plan, node) or fails(plan, node) or node in renewed_in(plan)


def _sends(node: str, queue: str, messages: int, **told: Any) -> dict[str, Any]:
    sends = {"kind": "publish", "node": node, "address": f"{queue}@{node}", "messages": messages, "name": f"{queue}-in"}
    return {**sends, "producers": 1, **told}


def pressed(random: Random, node: str, plan: Plan) -> Scene:
    """Links that move and copy large messages through queues with little room, at a node whose disk is slow, refuses
    commits and fills up."""
    if _has_no_place(node, plan):
        return Scene()
    there = random.choice([node, node, *(name for name in peers(plan, node) if name not in renewed_in(plan))])
    size = random.choice((SMALL_BYTES, 3_000, 6_000)) if there == node else SMALL_BYTES
    messages, name = in_time(plan, 50 if there == node else 20), "pressed"
    links = [[node, name, f"{name}-on", "move"], [node, f"{name}-on", f"{name}-to@{there}", "move"]]
    told: dict[str, Any] = {"kind": "linked", "node": node, "name": name, "ends": [[there, f"{name}-to"]]}
    told |= {"think_s": random.choice((0.0, 0.05)), "credit": random.choice((1, 20))}
    if random.random() < 0.5:
        links.append([node, name, f"{name}-copy", "copy"])
        told |= {"copies": [[node, f"{name}-copy", f"{name}@{node}"]]}
    room = random.choice((1, 4))
    bounds: dict[str, Any] = random.choice(({"messages_max": room}, {"bytes_max": 2 * room * size}))
    queues = [(node, QueueConfig(name=f"{name}-on", order="none", **bounds))]
    queues.append((there, QueueConfig(name=f"{name}-to", order="none", **bounds)))
    until_s = min(8.0, plan.safety_s)
    faults = poor_disk(random, node, until_s) + node_ends(random, node, plan, random.choice((0, 2)))
    for _ in range(random.choice((0, 3))):
        at, amount = round(random.uniform(0.1, until_s), 6), random.choice((0.0, 4_096.0))
        faults.append(Fault(kind="full-disk", at=at, node=node, seconds=random.choice((0.5, 2.0)), amount=amount))
    sends, limits = _sends(node, name, messages, size=size), {"stream_bytes": 500, "frame_bytes_max": 512}
    return Scene([sends, {**told, "links": links}], faults, queues, limits=limits)


def into_memory(random: Random, node: str, plan: Plan) -> Scene:
    """A link that moves messages from one queue in memory into another with little room, at a node that is killed or
    whose disk refuses the commits that the moves wait for."""
    if _has_no_place(node, plan):
        return Scene()
    name, messages = "into-memory", random.choice((60, 200))
    rooms = {f"{name}-from": random.choice((10, 1_000)), name: random.choice((2, 10, 1_000))}
    queues = [
        (node, QueueConfig(name=each, durable=False, messages_max=room, when_full="block", order="none"))
        for each, room in rooms.items()
    ]
    told: dict[str, Any] = {"kind": "in-memory", "node": node, "queue": name, "through": f"{name}-from", "name": name}
    told |= {"messages": messages, "size": random.choice((12, 200, 3_000)), "credit": random.choice((1, 20))}
    told |= {"in_doubt": 5}
    told |= {"rate": round(messages / plan.safety_s * random.choice((1.0, 4.0)), 3)}
    faults = poor_disk(random, node, min(8.0, plan.safety_s)) + node_ends(random, node, plan, random.choice((0, 1)))
    return Scene([told], faults, queues)


def lagging(random: Random, node: str, plan: Plan) -> Scene:
    """A listener of a topic that is given more than may wait for it."""
    if _has_no_place(node, plan) or any(told["kind"] == "temporary-topic" for told in plan.workloads):
        return Scene()
    told: dict[str, Any] = {"kind": "lagging", "node": node, "queue": "topic/lagging", "name": "lagging"}
    told |= {"messages": in_time(plan, 30), "rounds": random.choice((2, 4)), "credit": random.choice((1, 3, 20))}
    faults = random.choice(([], node_ends(random, node, plan, 2), poor_disk(random, node, 5.0)))
    return Scene([told], faults, knobs={LISTENERS_BOUND: random.choice(BOUNDS[LISTENERS_BOUND])})


def in_rounds(random: Random, node: str, plan: Plan) -> Scene:
    """A producer and a consumer whose links break while they hold so much that no frame has room for all of it: they
    are resumed in rounds."""
    if _has_no_place(node, plan):
        return Scene()
    name, until_s = "in-rounds", min(6.0, plan.safety_s)
    sends = _sends(node, name, 300, size=12, named=random.random() < 0.5, in_doubt=100)
    takes = takes_from(node, name, credit=random.choice((50, 100)), think_s=0.01, resume_s=300.0)
    faults = [Fault(kind="slow-disk", at=0.0, node=node, seconds=until_s, amount=50.0)]
    for when in ("a commit is under way", "a commit is under way", "", "", ""):
        at = round(random.uniform(0.2, until_s), 6)
        faults.append(Fault(kind="cut-clients", at=at, node=node, when=when))
        if random.random() < 0.5:  # the link that is resumed breaks too
            faults.append(Fault(kind="cut-clients", at=round(at + random.uniform(0.3, 1.5), 6), node=node))
    return Scene([sends, takes], faults, limits={"frame_bytes_max": 512})


def sent_again(random: Random, node: str, plan: Plan) -> Scene:
    """A spool whose messages find their queue full, so that it sends them again; meanwhile its links break, and are
    refused."""
    if _has_no_place(node, plan):
        return Scene()
    name, until_s = "sent-again", min(8.0, plan.safety_s)
    sends = _sends(node, name, in_time(plan, 60), size=12, rate=random.choice((0.0, 20.0)))
    sends |= {"kind": "spooled", "in_doubt": random.choice((5, 20)), "lives": random.choice((1, 3))}
    takes = takes_from(node, name, credit=1, think_s=random.choice((0.02, 0.1)))
    faults = poor_disk(random, node, until_s) if random.random() < 0.5 else []
    for _ in range(random.choice((4, 8))):
        at = round(random.uniform(0.2, until_s), 6)
        faults.append(Fault(kind="cut-clients", at=at, node=node))
        if random.random() < 0.3:
            faults.append(Fault(kind="refusing-links", at=at, node=node, seconds=random.choice((0.3, 1.0))))
    queue = QueueConfig(name=name, order="none", messages_max=random.choice((1, 4)), when_full="refuse")
    return Scene([sends, takes], faults, [(node, queue)])


def blocked(random: Random, node: str, plan: Plan) -> Scene:
    """Transactions for a queue of the next node that has room for one of them, and that messages of that node fill
    meanwhile; its disk refuses commits just then."""
    others = [] if _has_no_place(node, plan) or renewed_in(plan) else peers(plan, node)
    if not others:
        return Scene()
    where = random.choice(others)
    if is_guessed_at(plan, where) or any(f.kind == "full-disk" and where in f.places for f in plan.faults):
        return Scene()  # without room for all of it at once, a part is shown
    most, until_s, name = random.choice((3, 8)), min(8.0, plan.safety_s), "blocked"
    count = max(2, 2 * in_time(plan, 100) // (2 + most))
    told: dict[str, Any] = {"kind": "together", "node": node, "address": f"{name}@{where}", "name": name}
    told |= {"transactions": count, "most": most, "size": 12, "credit": 1, "think_s": random.choice((0.02, 0.1))}
    told |= {"between": in_time(plan, 60), "between_rate": 0.0}
    faults = [Fault(kind="slow-disk", at=0.0, node=where, seconds=until_s, amount=50.0)]
    for _ in range(random.choice((10, 20))):
        at, seconds = round(random.uniform(0.1, until_s), 6), random.choice((0.02, 0.2))
        faults.append(Fault(kind="refusing-disk", at=at, node=where, seconds=seconds, when=FULL))
    queue = QueueConfig(name=name, order=random.choice(("strict", "none")), when_full="block", messages_max=most)
    return Scene([told], faults, [(where, queue)])


def in_lanes(random: Random, node: str, plan: Plan) -> Scene:
    """Consumers of several queues that hold dozens of messages each when their connections are lost, again and again:
    these go back over many turns, those of one queue beside those of another."""
    if _has_no_place(node, plan):
        return Scene()
    until_s, scene = min(6.0, plan.safety_s), Scene(knobs={GIVEN_BACK: random.choice((1, 2, 10))})
    for number in range(random.choice((2, 4))):
        name = f"in-lanes-{number}" if number else "in-lanes"
        sends = _sends(node, name, in_time(plan, 100), size=12, rate=random.choice((0.0, 30.0)))
        takes = takes_from(node, name, credit=random.choice((5, 50)), think_s=random.choice((0.02, 0.05)))
        scene.workloads += [sends, {**takes, "consumers": random.choice((1, 3))}]
    for _ in range(random.choice((2, 4))):
        scene.faults.append(Fault(kind="cut-clients", at=round(random.uniform(0.2, until_s), 6), node=node))
    return scene


def halted(random: Random, node: str, plan: Plan) -> Scene:
    """Consumers with selectors that hold all there is when their connections are lost, again and again, at a node that
    has no memory for so much: it offers nothing new before some of it is settled."""
    stay = any(told.get("stays") and told.get("node") == node for told in plan.workloads)
    if _has_no_place(node, plan) or stay:  # these count what they hold as shown only as they come to it
        return Scene()
    name, until_s = "halted", min(6.0, plan.safety_s)
    sends = _sends(node, name, in_time(plan, 150), size=12)
    takes = takes_from(node, name, consumers=3, credit=random.choice((50, 100)), think_s=random.choice((0.02, 0.05)))
    takes |= {"selectors": random.choice(([EVERYTHING], [EVERYTHING, *random.sample([*SELECTORS], 2)]))}
    knobs = {knob: random.choice(BOUNDS[knob]) for knob in MEMORY_BACK} | {HITS: random.choice((1, 20))}
    moments = [round(random.uniform(0.1, until_s), 6) for _ in range(random.choice((2, 4)))]
    return Scene([sends, takes], [Fault(kind="cut-clients", at=at, node=node) for at in moments], knobs=knobs)


CORNERS: Final[dict[str, tuple[float, Callable[[Random, str, Plan], Scene]]]] = {
    "pressed": (0.06, pressed),
    "into memory": (0.06, into_memory),
    "lagging": (0.06, lagging),
    "in rounds": (0.05, in_rounds),
    "sent again": (0.05, sent_again),
    "blocked": (0.06, blocked),
    "in lanes": (0.1, in_lanes),
    "halted": (0.06, halted),
}
"""As LATER of `drawn_scenes.py`."""


def with_corners(plan: Plan, seed: int) -> Plan:
    """The plan with those scenes that the seed has."""
    return with_scenes(plan, CORNERS, SeedTree(seed).child("swarm").child("corners"))
