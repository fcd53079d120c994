"""What a seed of the swarm draws: options, topology, workloads and faults of a small network with tables from outside.

Rules of this file: everything comes from the seed, each part from a stream of its own, so one more draw shifts nothing
elsewhere. Every plan drawn can end well: what may be lost for good (two disks, a strict queue behind a dead one) is
never drawn together. Networks that compute their routes: `drawn_routing.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any, Final

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.contents import SELECTORS
from holdfast_lab.base.seed_tree import SeedTree
from holdfast_lab.draws.drawn_scenes import draw_scenes
from holdfast_lab.plan.faults import Fault, FaultBudget
from holdfast_lab.plan.networks import Link, LinkShape, Topology, joined
from holdfast_lab.plan.plan import Plan
from holdfast_lab.sim.network import SEGMENT_BYTES

NODE_NAMES: Final = ("ber", "fra", "jfk", "lhr", "nrt", "osl", "syd", "zrh")
NODES_MAX: Final = 6
FRAME_BYTES: Final = 65_536
"""The largest frame that nodes send each other."""
SAFETY_S: Final = (4.0, 20.0)
TRANSFER_S: Final = 20.0
"""What the slowest link may need for all messages that a plan sends, in seconds of virtual time."""
WINDOWS_S: Final = 40.0
"""What full windows may need for all messages: round trips, each with two commits."""
COMMIT_S: Final = 0.05
SUBSCRIPTION_SHARE: Final = 0.15
"""Of all queues, those that a subscription takes instead of consumers."""
RANGES_LOST: Final = 1_024
"""Ranges, at least, where a store is lost or goes back: what it held leaves gaps in the numbers of producers and
origins that never close by themselves, and at the bound an operator must skip, a producer take another name."""
RESUMED_SHARE: Final = 0.2
"""Of the consumers, those whose links are resumed."""
ROUTE_CHANGES_SHARE: Final = 0.6
"""Of the seeds with re-routes whose network has a second way, those with many of them."""
DEFECTS_SHARE: Final = 0.15
"""Of all plans, those in which nodes have defects."""
MANNERS_SHARE: Final = 0.3
"""And those that leave, annotate what they give back, or call it undeliverable."""
NAMELESS_SHARE: Final = 0.15
"""Of the producers, those without a name, whose links are resumed."""
LARGE_SHARE: Final = 0.3
"""Of all plans, those in which some messages are larger than what a node keeps whole in memory."""
FAULT_KINDS: Final = (
    "crash", "power", "stop", "replace-disk", "full-disk", "slow-disk", "failed-sync", "clock-step", "cut",
    "silent-cut", "partition", "one-way", "clog", "slow-link", "re-route",
)  # fmt: skip
"""All but what `drawn_disks.py` draws: a restored backup has a residue (docs/GUARANTEES.md)."""


def plan_of(seed: int) -> Plan:
    """The plan of that seed; the same on every machine."""
    seeds = SeedTree(seed).child("swarm")
    faults_on = _kinds(seeds.stream("kinds"))
    nodes, pairs = _graph(seeds.stream("graph"))
    shapes = seeds.stream("shapes")
    links = tuple(_link(shapes, one, other) for one, other in pairs)
    safety_s = seeds.stream("phases").uniform(*SAFETY_S)
    faults = FaultBudget(faults_max=seeds.stream("budget").choice((0, 4, 12, 24))).draw(
        seeds.stream("faults"), faults_on, list(nodes), joined(links), safety_s
    )
    faults += _companions(seeds.stream("companions"), faults, faults_on)
    if "re-route" in faults_on and len(links) >= len(nodes):
        random = seeds.stream("churn")
        if random.random() >= 1.0 - ROUTE_CHANGES_SHARE:
            faults += _route_changes(random, joined(links), safety_s)
    faults += _defects(seeds.stream("defects"), nodes, safety_s)
    scenes = draw_scenes(seeds, nodes)
    faults += scenes.faults
    queues, workloads, limits, slowest_s = draw_load(seeds, nodes, links, faults, safety_s, hops=1)
    workloads += scenes.workloads
    _select(seeds.stream("selectors"), workloads)
    faults += _resumed(seeds.stream("resumed"), workloads, safety_s)
    faults.sort(key=lambda fault: fault.at)
    timing = seeds.stream("timing")
    keepalive_s = max(timing.choice((0.2, 0.5, 1.0, 3.0)), round(slowest_s, 3))
    topology = Topology(
        nodes=nodes,
        links=links,
        queues=queues,
        limits=limits,
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


def _route_changes(random: Random, links: Sequence[tuple[str, str]], span_s: float) -> list[Fault]:
    """Re-routes on links of a network that has a second way, so that later messages overtake earlier ones."""
    found = []
    for _ in range(random.randint(4, 16)):
        link, at = random.choice(links), round(random.uniform(0.0, span_s), 6)
        found.append(Fault(kind="re-route", at=at, link=link, seconds=round(random.uniform(0.05, 2.0), 6)))
        if random.random() < 0.3:
            found.append(Fault(kind="slow-link", at=at, link=link, seconds=1.0, amount=random.choice((10.0, 100.0))))
    return found


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


def _defects(random: Random, nodes: Sequence[str], span_s: float) -> list[Fault]:
    """Nodes with a defect in their own code: whoever meets it is disconnected, and nobody suffers else."""
    if random.random() >= DEFECTS_SHARE:
        return []
    return [
        Fault(
            kind="defect", at=round(random.uniform(0.0, span_s / 2), 6), node=random.choice(nodes),
            seconds=round(random.uniform(0.5, span_s / 2), 6), amount=random.choice((0.005, 0.05, 0.3)),
        )
        for _ in range(random.choice((1, 1, 2)))
    ]  # fmt: skip


def _select(random: Random, workloads: list[dict[str, Any]]) -> None:
    """Two thirds of the durable subscriptions get a selector; what expires not all of them are shown anyway."""
    for told in workloads:
        if told["kind"] == "copy":
            told["selector"] = random.choice(("", *SELECTORS)) if random.random() < 0.9 else ""


def _resumed(random: Random, workloads: list[dict[str, Any]], span_s: float) -> list[Fault]:
    """Consumers whose links are resumed after a break, for a while or for as long as it takes, and breaks of all that
    clients have with their nodes."""
    found = []
    for told in workloads:
        if told["kind"] == "consume" and random.random() < RESUMED_SHARE:
            told["resume_s"] = random.choice((0.5, 5.0, 300.0))
            for _ in range(random.choice((1, 2, 5))):
                at = round(random.uniform(0.0, span_s), 6)
                found.append(Fault(kind="cut-clients", at=at, node=told["node"]))
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


def draw_shape(random: Random) -> LinkShape:
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
    there = draw_shape(random)
    back = draw_shape(random) if random.random() < 0.2 else None
    return Link(one=one, other=other, there=there, back=back)


def _shapes(links: tuple[Link, ...]) -> list[LinkShape]:
    """Of each direction that has one of its own."""
    return [shape for link in links for shape in (link.there, link.back) if shape is not None]


def draw_load(
    seeds: SeedTree,
    nodes: tuple[str, ...],
    links: tuple[Link, ...],
    faults: Sequence[Fault],
    safety_s: float,
    hops: int,
) -> tuple[dict[str, tuple[QueueConfig, ...]], list[dict[str, Any]], Limits, float]:
    """Queues by node, workloads, the nodes' limits, and the seconds that the largest frame takes on the slowest link.

    Windows are wide enough for ways of `hops` links.
    """
    disk_lost = any(fault.kind == "replace-disk" for fault in faults)
    shapes = _shapes(links)
    trip_s = 2 * max(shape.delay_s + shape.jitter_s for shape in shapes) * hops
    queues, workloads = draw_work(
        seeds.stream("work"), seeds.stream("readers"), nodes, links, safety_s, trip_s, disk_lost=disk_lost
    )
    workloads = draw_variety(seeds.stream("variety"), nodes, workloads, disk_lost=disk_lost)
    workloads = draw_manners(seeds.stream("manners"), workloads)
    window = window_of(sum(int(told.get("messages", 0)) * int(told.get("producers", 0)) for told in workloads), trip_s)
    # A frame comes whole but in the seeds of drawn_wire.py: the hold time outlasts the largest on the slowest link.
    unit = SEGMENT_BYTES + min(FRAME_BYTES, max([int(told["size"]) for told in workloads if "size" in told]))
    slowest_s = max(2 * shape.delay_s + unit / (shape.rate or 1e9) for shape in shapes)
    limits = draw_limits(seeds.stream("limits"), window, disk_lost=disk_lost)
    return queues, workloads, replace(limits, **draw_sizes(seeds.stream("sizes"))), slowest_s


def window_of(messages: int, trip_s: float, within_s: float = WINDOWS_S) -> int:
    """The least that may be under way so that `messages`, a window for each round trip, are through in time."""
    return ceil(messages * (trip_s + COMMIT_S) / within_s)


def draw_limits(random: Random, window: int, *, disk_lost: bool) -> Limits:
    """RANGES_LOST ranges where a disk is lost."""
    return Limits(
        credit=max(window, random.choice((1, 7, 100, 1_000, 1_000))),
        hop_in_doubt_max=max(window, random.choice((1, 5, 50, 500, 2_000, 2_000))),
        unsettled_max=random.choice((1, 20, 5_000, 5_000)),
        ranges_max=max(RANGES_LOST if disk_lost else 0, random.choice((2, 16, 1_024, 1_024, 1_024))),
        cache_bytes=random.choice((0, 4_096, 8 * 1024 * 1024)),
    )


def draw_sizes(random: Random) -> dict[str, int]:
    """Limits by which in some seeds messages of a few kilobytes are large ones, and come in many frames."""
    if random.random() >= LARGE_SHARE:
        return {}
    return {
        "stream_bytes": random.choice((500, 4_000, 30_000)),
        "frame_bytes_max": random.choice((512, 2_048, 8_192, FRAME_BYTES)),
        "streams_max": random.choice((1, 3, 256, 256)),
    }


def draw_work(
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
    rates = [shape.rate for shape in _shapes(links) if shape.rate]
    bytes_max = min([*rates, 1e9]) * TRANSFER_S
    queues: dict[str, tuple[QueueConfig, ...]] = {}
    workloads: list[dict[str, Any]] = []
    for index in range(random.choice((1, 1, 2, 2, 3))):
        node = random.choice(nodes)
        queue = draw_queue(random, f"work-{index}", disk_lost=disk_lost)
        queues[node] = (*queues.get(node, ()), queue)
        total = 0
        for number in range(random.choice((1, 1, 2, 3))):
            told, bytes_max = draw_publisher(random, nodes, f"{queue.name}@{node}", span_s, bytes_max)
            workloads.append({**told, "name": f"p{index}{number}"})
            total += int(told["messages"]) * int(told["producers"])
        # A refused message is tried again each second: few seconds, not hundreds.
        by_sequence = readers.random() < SUBSCRIPTION_SHARE
        # Room is made by the range, and some readers crash after theirs.
        by_range = by_sequence or queue.when_full == "refuse"
        least = total // 10 + 1 if by_range else window_of(total, trip_s)
        if queue.messages_max is not None and queue.messages_max < least:
            queues[node] = (*queues[node][:-1], replace(queue, messages_max=least))
        consumer = draw_consumer(random, total)
        if by_sequence:
            consumer = {"kind": "subscription", "range_max": readers.choice((5, 10, 40))}
        workloads.append({**consumer, "node": node, "queue": queue.name, "name": f"c{index}"})
    return queues, workloads


def draw_variety(
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


def draw_manners(random: Random, workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some consumers leave and come again, and tell something of what they give back; some producers have no name."""
    found = []
    least = sum(told.get("messages", 0) * told.get("producers", 0) for told in workloads) // 40 + 1
    for told in workloads:
        if told["kind"] == "publish" and random.random() < NAMELESS_SHARE:
            told = {**told, "named": False}
        if told["kind"] == "consume" and random.random() < MANNERS_SHARE:
            share = round(random.uniform(0.05, 0.3), 3)
            told = {
                **told, "stays": random.choice((0, least, least, 5 * least)),
                "modify": max(share, told.get("modify", 0.0)),
                "notes": random.choice((0.0, 0.5, 1.0)), "elsewhere": random.choice((0.0, 0.0, 0.3)),
            }  # fmt: skip
            if not told["stays"]:  # what the only consumer there is calls undeliverable would fill its queue for ever
                told["elsewhere"] = 0.0
        found.append(told)
    return found


def draw_queue(random: Random, name: str, *, disk_lost: bool) -> QueueConfig:
    orders = ("bounded", "none") if disk_lost else ("strict", "strict", "bounded", "none")
    return QueueConfig(
        name=name,
        order=random.choice(orders),
        order_wait_s=random.choice((0.0, 0.0, 0.5, 5.0, 30.0)),
        messages_max=random.choice((None, None, None, 1, 10, 100)),
        when_full=random.choice(("block", "block", "refuse")),
    )


def draw_publisher(
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


def draw_consumer(random: Random, total: int) -> dict[str, Any]:
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
