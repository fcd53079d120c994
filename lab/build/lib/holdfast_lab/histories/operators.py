"""Histories of what an operator does to messages on their way: purges them, and ends what is for a node that left.

Rules of this file: one function a history; an operation is handed to the core as a request would hand it, and what it
takes away is excused. Source: docs/CUSTODY.md, "End to end" 3, "Transit" 6; docs/adr/0024-nodes-that-left.md.
"""

from collections.abc import Callable

from holdfast.broker.entries.host_names import DEFAULT_HOST, hosted
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast_lab.histories.stage import History, Stage, sites


async def _operate(stage: Stage, node: str, queue: str, begin: Callable[[NodeCore, Callable[..., None]], None]) -> None:
    """Begins the operation, and waits for its answer."""
    answered: list[tuple[int, ...]] = []
    begin(stage.core(node), lambda *told: answered.append(told))
    stage.nodes[node].post(events.TimerFired())
    await stage.until(f"{node} has answered for {queue}", lambda: answered)


async def _purge(stage: Stage, node: str, queue: str) -> list[bytes]:
    """Empties it, but for what is under way; the keys that may have gone."""
    before = stage.keys(node, queue)
    stage.excuse(before, "purged")
    found = stage.core(node).catalog.queues[hosted(DEFAULT_HOST, queue)]
    await _operate(stage, node, queue, lambda core, told: core.jobs.purge(found, told))
    return before


async def purged_twice(stage: Stage) -> None:
    """At the origin and at b, each more than once: the numbers of all of them are ended at d, and nobody waits."""
    await stage.together()
    first = await stage.send("a", "work@d", stage.some(0, 5)) if stage.chance() else []
    await stage.until("the first are at d", lambda: stage.keys("d", "work") == first)
    await stage.until("and nowhere else", lambda: not stage.keys("a", "@d") and not stage.keys("b", "@d"))
    stage.part("b", "d")
    if stage.chance():
        stage.part("a", "b")
        await stage.until("the line is known to be dead", lambda: not stage.joined("a", "b"))
    gone: list[bytes] = []
    for _ in range(stage.some(2, 4)):
        await stage.send("a", "work@d", stage.some(1, 10))
        await stage.moment(2.0)
        for node in ("a", "b"):
            if "@d" in stage.core(node).catalog.queues:
                gone += await _purge(stage, node, "@d")
        if stage.chance():
            stage.crash("b", power=stage.chance())
            stage.start("b")
    stage.happened(gone, "something was purged")
    stage.join("a", "b")
    await stage.moment(3.0)
    for node in ("a", "b"):
        if "@d" in stage.core(node).catalog.queues:
            gone += await _purge(stage, node, "@d")
    stage.join("b", "d")
    await stage.together()
    last = await stage.send("a", "work@d", stage.some(1, 10))
    await _in_order(stage, "d", first, gone, last)
    stage.equal("what is told as lost", stage.losses("d"), [])


async def _in_order(stage: Stage, node: str, first: list[bytes], gone: list[bytes], last: list[bytes]) -> None:
    await stage.until(f"the last are at {node}", lambda: stage.holds_all(node, "work", last), 120.0)
    there = [key for key in stage.keys(node, "work") if key not in gone]  # some may have got away before the purge
    stage.equal(f"the queue at {node}", there, first + last)
    stage.consumer(node, "work")
    await stage.all_shown()


async def departed_node(stage: Stage) -> None:
    """d leaves the tables; what is queued for it becomes dead letters; then it is back with the store that it had."""
    await stage.together()
    first = await stage.send("a", "work@d", stage.some(1, 5))
    await stage.until("the first are at d", lambda: stage.keys("d", "work") == first)
    stage.part("a", "b")
    await stage.until("the line is known to be dead", lambda: not stage.joined("a", "b"))
    gone = await stage.send("a", "work@d", stage.some(1, 20))
    stage.nodes["a"].post(events.ForwardingChanged(table={}))
    await stage.until("a knows of no d", lambda: not stage.core("a").forwarding.knows("d"))
    if stage.chance():
        stage.crash("a", power=stage.chance())
        stage.start("a")
        stage.nodes["a"].post(events.ForwardingChanged(table={}))
        await stage.until("a knows of no d", lambda: not stage.core("a").forwarding.knows("d"))
    stage.excuse(gone, "its node left, and it is a dead letter")
    queue = stage.core("a").catalog.queues[hosted(DEFAULT_HOST, "@d")]
    await _operate(stage, "a", "@d", lambda core, told: core.departures.begin(queue, told, with_tombstones=False))
    await stage.until("all are dead letters", lambda: stage.keys("a", "$dead-letters") == gone)
    stage.equal("what is queued for d", stage.keys("a", "@d"), [])
    stage.join("a", "b")
    stage.reroute("a")
    await stage.together()
    last = await stage.send("a", "work@d", stage.some(1, 10))
    await _in_order(stage, "d", first, [], last)
    stage.equal("what is told as lost", stage.losses("d"), [])


HISTORIES = (
    History("purged-twice", "What is purged on its way, again and again and in between, keeps nobody waiting.",
            sites("a-b", "b-d", forwarding={"a": {"d": "b"}, "d": {"a": "b"}}), purged_twice),
    History("departed-node", "A node leaves, what is queued for it becomes dead letters, and it comes back after all.",
            sites("a-b", "b-d", forwarding={"a": {"d": "b"}, "d": {"a": "b"}}), departed_node),
)  # fmt: skip
