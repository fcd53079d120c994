"""Histories of computed routes: messages that are on their way while links, nodes and super nodes come and go.

Rules of this file: one function a history. No node is given a table: the nodes have the topology, and what they
advertise to each other. Source: docs/routing.md; esb-dynamic-routing §4.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from holdfast.peering.routes import Routes
from holdfast_lab.histories.stage import History, Stage, sites
from holdfast_lab.plan.networks import Topology

RING: Final = ("a-b", "b-c", "c-d", "d-e", "e-f", "f-a")
HALVES: Final = ("a-b", "c-d", "b-c")


def routes(stage: Stage, name: str) -> Routes:
    found = stage.core(name).routing
    assert found is not None
    return found


def way(stage: Stage, one: str, other: str) -> str:
    """The nodes from one to the other as the first one's table has them; empty where there is no way."""
    path = routes(stage, one).paths.get(other)
    return "" if path is None else "".join(path.nodes)


def agreed(stage: Stage, *names: str) -> bool:
    """Whether these, or all, hold the same records and lack none."""
    found = [routes(stage, name) for name in names or tuple(stage.nodes) if stage.up(name)]
    return len({one.states.digest for one in found}) == 1 and all(one.synchronised for one in found)


async def ready(stage: Stage) -> None:
    await stage.together()
    await stage.until("all tables agree", lambda: agreed(stage))


async def delivered(stage: Stage, keys: list[bytes]) -> None:
    """All that a sent is at d, once and in order."""
    await stage.until("all is at d", lambda: stage.holds_all("d", "work", keys), 90.0)
    stage.equal("d's queue", stage.keys("d", "work"), keys)
    stage.equal("what is told as lost", stage.losses("d"), [])
    consumer = stage.consumer("d", "work")
    await stage.all_shown()
    stage.equal("what the consumer was shown", consumer.keys, keys)
    stage.equal("what came as late", consumer.late, [])


async def cut_in_the_ring(stage: Stage) -> None:
    """Messages lie at b and c, three hops from where they turn, when c loses d: they go back round the ring."""
    await ready(stage)
    stage.equal("the way at first", way(stage, "a", "d"), "abcd")
    keys = await stage.send("a", "work@d", stage.some(1, 10))
    stage.part("c", "d")
    more = await stage.send("a", "work@d", stage.some(5, 60))
    await stage.arises("they lie at c, which does not know yet", lambda: stage.keys("c", "@d"))
    await stage.until("c knows", lambda: way(stage, "c", "d") == "cbafed")
    await stage.until("and all others", lambda: way(stage, "a", "d") == "afed" and way(stage, "b", "d") == "bafed")
    more += await stage.send("a", "work@d", stage.some(1, 10))
    if stage.chance():
        stage.cut("a", "f", silent=stage.chance())
    await delivered(stage, keys + more)
    stage.join("c", "d")
    await stage.until("the ring is whole again", lambda: way(stage, "a", "d") == "abcd" and agreed(stage))


async def late_news(stage: Stage) -> None:
    """The super node is a slow link away: meanwhile b sends back to a what a still sends by b."""
    await ready(stage)
    stage.equal("the way at first", way(stage, "a", "d"), "abd")
    stage.part("b", "d")
    await stage.until("b knows", lambda: way(stage, "b", "d") == "bacd")
    stage.happened(way(stage, "a", "d") == "abd", "a does not")
    keys = await stage.send("a", "work@d", stage.some(1, 40))
    await stage.arises("some came back to a", lambda: stage.core("a").forwarding.sent_back.held("d"), 5.0)
    await stage.until("a has heard of it", lambda: way(stage, "a", "d") == "acd", 10.0)
    await delivered(stage, keys)


async def super_lost(stage: Stage) -> None:
    """The super node dies with the news of a cut in its hands, stamped or not, told to none or some."""
    await ready(stage)
    stage.part("b", "d")
    await stage.until("b knows", lambda: way(stage, "b", "d") != "bd")
    await stage.moment(0.1)
    stage.crash("s", power=stage.chance())
    keys = await stage.send("a", "work@d", stage.some(5, 40))
    await stage.until("a knows both", lambda: way(stage, "a", "d") == "acd" and not way(stage, "a", "s"), 30.0)
    await delivered(stage, keys)
    await stage.until("nobody acts now", lambda: not any(routes(stage, name).acting for name in "abcd"), 30.0)
    if stage.chance():
        stage.join("b", "d")
    stage.start("s")
    await stage.until("all agree again", lambda: agreed(stage) and routes(stage, "a").acting == "s")


async def split_and_heal(stage: Stage) -> None:
    """Two halves, each with a super node, work on; what is for the other half waits, and passes when they heal."""
    await ready(stage)
    keys = await stage.send("a", "work@d", stage.some(1, 10))
    stage.part("b", "c")
    await stage.until("both halves know", lambda: not way(stage, "a", "d") and not way(stage, "d", "a"))
    stage.equal("who acts", [routes(stage, name).acting for name in "abcd"], ["a", "a", "d", "d"])
    waits = await stage.send("a", "work@d", stage.some(1, 30))
    inside = await stage.send("a", "work@b", stage.some(1, 10))
    await stage.until("each half works on", lambda: stage.holds_all("b", "work", inside))
    stage.consumer("b", "work")
    if stage.chance():
        stage.crash("c")
        stage.nodes["c"].clock.step(-3_600.0)
        stage.start("c")
    await stage.moment(20.0)
    stage.check(not stage.holds_all("d", "work", waits), "nothing passes while they are apart")
    stage.join("b", "c")
    await stage.until("all agree", lambda: agreed(stage) and routes(stage, "d").acting == "a")
    await delivered(stage, keys + waits)


def _far(node: str, *, links: tuple[str, ...], supers: tuple[str, ...]) -> Callable[[Random], Topology]:
    """As `sites`, with one node of which each link takes 0.6 s each way."""
    drawn = sites(*links, supers=supers)

    def made(random: Random) -> Topology:
        topology = drawn(random)
        shape = replace(topology.links[0].there, delay_s=0.6)
        alike = replace(topology.links[0].there, delay_s=0.005)
        slowed = [replace(link, there=shape if node in (link.one, link.other) else alike) for link in topology.links]
        return replace(topology, links=tuple(slowed), hold_time_s=4.0)

    return made


def _alike(*links: str, supers: tuple[str, ...]) -> Callable[[Random], Topology]:
    """As `sites`, all links of one delay: the fewest hops count."""
    drawn = sites(*links, supers=supers)

    def made(random: Random) -> Topology:
        topology = drawn(random)
        shape = topology.links[0].there
        return replace(topology, links=tuple(replace(link, there=shape) for link in topology.links))

    return made


SQUARE: Final = ("a-b", "a-c", "b-d", "c-d", "b-s")

HISTORIES = (
    History("cut-in-the-ring", "What is queued three hops on when a link is cut goes back and round the other way.",
            _alike(*RING, supers=("a",)), cut_in_the_ring),
    History("late-news", "The super node is far: what comes back meanwhile rests, and goes once the news is here.",
            _far("s", links=(*SQUARE, "s-d"), supers=("s",)), late_news),
    History("super-lost", "The super node dies with the news of a cut in its hands: the others tell each other.",
            _alike(*SQUARE, supers=("s",)), super_lost),
    History("split-and-heal", "Two halves, each with a super node, work on; what waited passes when they heal.",
            _alike(*HALVES, supers=("a", "d")), split_and_heal),
)  # fmt: skip
