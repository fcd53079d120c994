"""Windows between nodes that let all that a plan sends come in time.

Rules of this file: drawn after all else, whatever scenes the seed has. `drawn_static.py` makes windows for what it
draws itself, and most scenes send what comes in time where they alone have the way; several may share a link, a
destination and a window of one message. Only windows change, and only where they are too small (docs/adr/0053). Plans
with computed routes are left alone: few scenes have a place there, and which way their messages go is not in the plan.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from holdfast_lab.draws.drawn_static import window_of
from holdfast_lab.plan.networks import Topology
from holdfast_lab.plan.plan import Plan

WITHIN: Final = 2 / 3
"""Of `liveness_s`, what full windows may need; the rest is for links that come back and for what waits its time."""


def with_windows(plan: Plan, seed: int) -> Plan:
    """The plan with larger windows, where those that it has are too small for what it sends."""
    topology, limits = plan.topology, plan.topology.limits
    window = 0 if topology.routing is not None else window_needed(plan)
    if min(limits.credit, limits.hop_in_doubt_max) >= window:
        return plan
    limits = replace(limits, credit=max(window, limits.credit), hop_in_doubt_max=max(window, limits.hop_in_doubt_max))
    return replace(plan, topology=replace(topology, limits=limits))


def window_needed(plan: Plan) -> int:
    """The least window in which all comes in time: each link has one for each destination, whoever sends there."""
    topology = plan.topology
    over: Counter[tuple[str, str, str]] = Counter()
    for node, destination, messages in _sent(plan):
        for one, other in _way(topology, node, destination):
            over[one, other, destination] += messages
    within_s = WITHIN * plan.liveness_s
    return max(
        (
            window_of(messages, _round_trip_s(topology, one, other), within_s)
            for (one, other, _), messages in over.items()
        ),
        default=0,
    )


def _sent(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """From which node, to which, and how many messages at most. Tombstones of those that end on their way go on."""
    comes: Counter[str] = Counter()
    for told in plan.workloads:
        messages = _messages(told)
        for address in (told.get("address"), *told.get("addresses", ())):
            if address is not None and messages:
                comes[address] += messages
                yield told["node"], _node_of(address), messages
        for node in told.get("publishers", ()):  # of a topic that goes to other nodes
            for other in sorted({each["node"] for each in told["subscriptions"]}):
                yield node, other, messages
    for told in plan.workloads:  # those that pass on what others send to a queue
        if told["kind"] == "transact":
            yield told["node"], _node_of(told["address"]), comes[f"{told['queue']}@{told['node']}"]
        elif told["kind"] == "linked":
            moved = sum(comes[address] for address in {f"{queue}@{node}" for node, queue, _, _ in told["links"]})
            rounds = max(told.get("rounds", {}).values(), default=1)
            for node, _, target, _ in told["links"]:
                yield node, _node_of(target), moved * rounds


def _messages(told: dict[str, Any]) -> int:
    in_transactions = int(told.get("transactions", 0)) * int(told.get("most", 0))
    return int(told.get("messages", 0)) * int(told.get("producers", 1)) + in_transactions


def _node_of(address: str) -> str:
    """Empty for the node's own."""
    return address.partition("@")[2]


def _way(topology: Topology, node: str, destination: str) -> Iterator[tuple[str, str]]:
    """The links that the tables lead over; none where the destination is no other node of the network."""
    passed: set[str] = set()
    while destination in topology.nodes and node != destination and node not in passed:
        passed.add(node)
        other = topology.table(node).get(destination)
        if other is None:
            return
        yield node, other
        node = other


def _round_trip_s(topology: Topology, one: str, other: str) -> float:
    """Of the longest link, where several join them."""
    return max(
        sum(shape.delay_s + shape.jitter_s for shape in link.shapes)
        for link in topology.links
        if {link.one, link.other} == {one, other}
    )
