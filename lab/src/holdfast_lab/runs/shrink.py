"""Shrinks a failed plan as long as it fails in the same way (Zeller's delta debugging, on the parts of a plan).

Rules of this file: a step is kept when the smaller plan fails with the same kind of failure; tries and time are
bounded, and what is returned has failed. The seed stays.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute

TRIES_MAX: Final = 400
SECONDS_MAX: Final = 120.0
_VARYING: Final = re.compile(r"\d+|'[^']*'|\b[a-z]{3}\b(?= |$|,)|\bwork-\S*|\bat \S+|\bby \S+|still at work: .*")


def kind_of(failure: str) -> str:
    """The text of a failure without numbers and names: two failures with the same text count as the same."""
    return _VARYING.sub("*", failure)


def shrink(
    plan: Plan,
    seed: int,
    failure: str,
    *,
    tries_max: int = TRIES_MAX,
    fails: Callable[[Plan], str] | None = None,
) -> Plan:
    """The smallest plan found that still fails as `failure` did; `plan` itself where none is smaller.

    `fails` runs a plan and returns its failure, for tests.
    """
    wanted = kind_of(failure)
    run = fails or (lambda smaller: execute(smaller, seed).failure)
    ends_at = time.monotonic() + SECONDS_MAX
    tries = 0
    step, idle = 0, 0
    while idle < len(STEPS):
        taken = False
        for smaller in STEPS[step](plan):
            if tries >= tries_max or time.monotonic() > ends_at:
                return plan
            tries += 1
            try:
                taken = kind_of(run(smaller)) == wanted
            except ConfigError:  # the part that went was needed: no plan any more
                continue
            if taken:
                plan = smaller
                break
        if taken:  # asked anew of the smaller plan
            idle = 0
        else:
            idle += 1
            step = (step + 1) % len(STEPS)
    return plan


Step = Callable[[Plan], Iterator[Plan]]


def _parts(parts: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Halves first, then smaller runs, then single parts: each time what is left without them."""
    size = len(parts)
    while size:
        for first in range(0, len(parts), size):
            if size <= len(parts):
                yield parts[:first] + parts[first + size :]
        size //= 2


def _without_faults(plan: Plan) -> Iterator[Plan]:
    for faults in _parts(plan.faults):
        yield plan.shrunk(faults=faults)


def _takes(told: dict[str, Any]) -> bool:
    """Whether that workload takes from a queue and sends nothing."""
    return "queue" in told and "address" not in told


def _without_workloads(plan: Plan) -> Iterator[Plan]:
    """Consumers stay while somebody sends to their queue: else nothing would ever be done."""
    publishers = tuple(told for told in plan.workloads if not _takes(told))
    for left in _parts(publishers):
        if left:
            addresses = {str(told.get("address")) for told in left}
            workloads = tuple(
                told
                for told in plan.workloads
                if told in left or (_takes(told) and f"{told['queue']}@{told['node']}" in addresses)
            )
            yield plan.shrunk(workloads=workloads)


def _without_nodes(plan: Plan) -> Iterator[Plan]:
    """Without nodes that have neither queues nor workloads, and without their links."""
    topology = plan.topology
    at_work = {told["node"] for told in plan.workloads} | {
        str(told.get("address", "")).rpartition("@")[2] for told in plan.workloads
    }
    for name in topology.nodes:
        if name in at_work:
            continue
        links = tuple(link for link in topology.links if name not in (link.one, link.other))
        kept = [fault for fault in plan.faults if fault.node != name and name not in fault.link]
        yield plan.shrunk(
            topology=replace(
                topology,
                nodes=tuple(node for node in topology.nodes if node != name),
                links=links,
                queues={node: found for node, found in topology.queues.items() if node != name},
                supers=tuple(node for node in topology.supers if node != name),
                joins=tuple(node for node in topology.joins if node != name),
            ),
            faults=tuple(fault for fault in kept if fault.link == ("", "") or _linked(fault, links)),
            drifts={node: drift for node, drift in plan.drifts.items() if node != name},
        )


def _without_links(plan: Plan) -> Iterator[Plan]:
    topology = plan.topology
    for links in _parts(topology.links):
        if links:
            faults = tuple(fault for fault in plan.faults if fault.link == ("", "") or _linked(fault, links))
            yield plan.shrunk(topology=replace(topology, links=links), faults=faults)


def _linked(fault: Fault, links: tuple[Any, ...]) -> bool:
    return any({link.one, link.other} == set(fault.link) for link in links)


def _without_queues(plan: Plan) -> Iterator[Plan]:
    used = {f"{told['queue']}@{told['node']}" for told in plan.workloads if "queue" in told}
    queues = {
        node: tuple(queue for queue in found if f"{queue.name}@{node}" in used)
        for node, found in plan.topology.queues.items()
    }
    if queues != plan.topology.queues:
        yield plan.shrunk(topology=replace(plan.topology, queues=queues))


SMALLEST: Final[dict[str, float]] = {
    "producers": 1, "consumers": 1, "messages": 1, "size": 12, "think_s": 0.0, "release": 0.0, "modify": 0.0,
    "reject": 0.0, "rate": 0.0,
}  # fmt: skip


def _smaller_workloads(plan: Plan) -> Iterator[Plan]:
    """Each number at its smallest, whole ones also halved."""
    for index, told in enumerate(plan.workloads):
        for key, least in SMALLEST.items():
            value = told.get(key)
            if value is None or value <= least:
                continue
            values = [least] if isinstance(value, float) else list(dict.fromkeys((least, max(int(least), value // 2))))
            for smaller in values:
                changed = {**told, key: smaller}
                yield plan.shrunk(workloads=(*plan.workloads[:index], changed, *plan.workloads[index + 1 :]))


def _plainer(plan: Plan) -> Iterator[Plan]:
    """No drift; links and limits as they are by default; faults at their own time; writes that come whole, and disks in
    memory alone."""
    topology = plan.topology
    if plan.piece_bytes:
        yield plan.shrunk(piece_bytes=0)
    if plan.paged:
        yield plan.shrunk(paged=False)
    if plan.drifts:
        yield plan.shrunk(drifts={})
    if plan.knobs:
        yield plan.shrunk(knobs={})
    for name in plan.knobs:
        yield plan.shrunk(knobs={knob: value for knob, value in plan.knobs.items() if knob != name})
    plain = type(topology.limits)()
    if topology.limits != plain:
        yield plan.shrunk(topology=replace(topology, limits=plain))
        for item in fields(plain):
            if getattr(topology.limits, item.name) != getattr(plain, item.name):
                limits = replace(topology.limits, **{item.name: getattr(plain, item.name)})
                yield plan.shrunk(topology=replace(topology, limits=limits))
    for index, fault in enumerate(plan.faults):
        if fault.when:
            yield plan.shrunk(faults=(*plan.faults[:index], replace(fault, when=""), *plan.faults[index + 1 :]))
    for index, link in enumerate(topology.links):
        shape = type(link.there)()
        if link.there != shape or link.back is not None:
            links = (*topology.links[:index], replace(link, there=shape, back=None), *topology.links[index + 1 :])
            yield plan.shrunk(topology=replace(topology, links=links))


STEPS: Final[tuple[Step, ...]] = (
    _without_faults, _without_workloads, _without_queues, _without_nodes, _without_links, _smaller_workloads, _plainer,
)  # fmt: skip
