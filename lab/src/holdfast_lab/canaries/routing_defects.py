"""Canaries in computed routing: versions of records, which record wins, and how queued messages are rerouted.

Rules of this file: as in `hop_defects.py`. Each is wrong in networks larger than the ordinary tests' alone, so that the
swarm's own networks are what finds it; it is looked for by `swarm-routing`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from holdfast_lab.canaries.planting import Canary
from holdfast_lab.runs import swarm

Function = Callable[..., Any]

LARGER: Final = 7
"""More nodes than the ordinary tests' networks have."""
LARGEST: Final = 9
"""And more than those of the table's own tests."""
DEEP: Final = 4
"""So many messages wait for one destination."""


def _version_not_raised(original: Function) -> Function:
    """Records of an earlier life that others still have do not raise the version: a clock that went back is trusted."""

    def originate(self: Any, links: Any, **how: Any) -> None:
        if len(self.known) > LARGER:
            self.floor = 0
        original(self, links, **how)

    return originate


def _verdict_kept(original: Function) -> Function:
    """A node that was declared lost stays lost, whatever it announces."""

    def take(self: Any, neighbour: str, heard: Any) -> None:
        mine = self.known.get(heard.record.name)
        if mine is not None and mine.lost_by is not None and len(self.known) > LARGER:
            heard = replace(heard, lost_by=mine.lost_by)
        original(self, neighbour, heard)

    return take


def _queue_not_turned(original: Function) -> Function:
    """Messages for a destination whose route changed stay where they are if they are more than a few."""

    def steer(self: Any, destination: str) -> None:
        queue = self._catalog.queues.get(f"@{destination}")
        pumped = any(destination in hop.senders for hop in self._hops.values())
        if pumped and queue is not None and queue.messages > DEEP and len(self.table) >= LARGER:
            return
        original(self, destination)

    return steer


def _return_not_noticed(original: Function) -> Function:
    """A message that comes back is sent over the same route again at once."""

    def _would_return(self: Any, destination: str, went_by: bytes) -> bool:
        would: bool = original(self, destination, went_by)
        return would and len(self.table) < LARGER

    return _would_return


def _elder_believed(original: Function) -> Function:
    """Of two records of a node the one that comes last wins, whatever its version."""

    def take(self: Any, neighbour: str, heard: Any) -> None:
        mine = self.known.get(heard.record.name)
        known = mine is not None and heard.record.name != self.name and len(self.known) > LARGEST
        if known and heard.record.version < mine.record.version:
            self.put(heard)
        else:
            original(self, neighbour, heard)

    return take


def _never_reused(original: Function) -> Function:
    """A link that flapped once too often stays out of the routes for ever."""
    held: set[Any] = set()

    def _offer(self: Any) -> None:
        topology = self._parts.config.topology
        if self.damping.held and topology is not None and len(topology.nodes) > LARGER:
            held.add(self)
        if self not in held:
            original(self)

    return _offer


def _not_given_back(original: Function) -> Function:
    """A link that a new topology file gives back to a larger network is used no more."""

    def links_changed(costs: Any, measured: Any, before: Any, after: Any) -> None:
        new = [name for name in after.costs if name not in costs]
        original(costs, measured, before, after)
        for name in new if len(after.edges) > LARGER else ():
            costs.pop(name, None)

    return links_changed


ROUTING_CANARIES = (
    Canary(
        name="version-not-raised",
        sentence="A node whose clock went back says its links under a version that others take for old.",
        target="routing.linkstate:LinkStates.originate",
        signature="(self, links: collections.abc.Mapping[str, int | None], *, version: int, store: uuid.UUID | None = "
        "None, left: bool = False, is_super: bool = False) -> None",
        broken=_version_not_raised,
        expected="Violation",
        swarm=swarm.ROUTING,
    ),
    Canary(
        name="verdict-kept",
        sentence="The super node's verdict that a node is lost does not end with that node's next word.",
        target="routing.linkstate:LinkStates._take",
        signature="(self, neighbour: str, heard: holdfast.routing.records.Known) -> None",
        broken=_verdict_kept,
        expected="Violation",
        swarm=swarm.ROUTING,
    ),
    Canary(
        name="queue-not-turned",
        sentence="Messages that wait on a way that broke do not turn when the table changes.",
        target="custody.forwarding:Forwarding.steer",
        signature="(self, destination: str) -> None",
        broken=_queue_not_turned,
        expected="not done",
        swarm=swarm.ROUTING,
    ),
    Canary(
        name="return-not-noticed",
        sentence="A message that comes back to a node goes the same way again at once.",
        target="custody.forwarding:Forwarding._would_return",
        signature="(self, destination: str, went_by: bytes) -> bool",
        broken=_return_not_noticed,
        expected="in circles",
        swarm=swarm.ROUTING,
    ),
    Canary(
        name="elder-believed",
        sentence="A node's older word, come late, takes the place of its newer one.",
        target="routing.linkstate:LinkStates._take",
        signature="(self, neighbour: str, heard: holdfast.routing.records.Known) -> None",
        broken=_elder_believed,
        expected="Violation",
        swarm=swarm.ROUTING,
    ),
    Canary(
        name="never-reused",
        sentence="A link that is held down because it flaps is never used again.",
        target="peering.sessions:Neighbour._offer",
        signature="(self) -> None",
        broken=_never_reused,
        expected="Violation",
        swarm=swarm.ROUTING,
    ),
    Canary(
        name="not-given-back",
        sentence="A link that a topology file has again, after one without it, is not used.",
        target="peering.routes:links_changed",
        signature="(costs: dict[str, int], measured: dict[str, holdfast.routing.cost.MeasuredCost], "
        "before: holdfast.routing.configured.Configured, after: holdfast.routing.configured.Configured) -> None",
        broken=_not_given_back,
        expected="the shortest way is",
    ),
)
