"""The faults of a plan on real nodes: kill -9 and restarts, connections cut, links held back or slow.

Rules of this file: the same Fault records as in the simulator; what a process and a proxy cannot do is refused before
anything starts. `heal` ends every fault at once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast_lab.plan.faults import KINDS, Fault
from holdfast_lab.real.proxy import Direction
from holdfast_lab.real.testbed import TestBed

KINDS_HERE: Final = ("crash", "stop", "cut", "silent-cut", "partition", "one-way", "clog", "slow-link")
SLOW_DELAY_S: Final = 0.002
"""What a slow link's delay is a multiple of where its shape has none."""


def check_faults(faults: Sequence[Fault], bed: TestBed) -> None:
    """Raises ConfigError at the first fault that real nodes cannot have, or that strikes what is not there."""
    for fault in faults:
        if fault.kind not in KINDS_HERE:
            raise ConfigError(
                f"invalid fault {fault.kind!r} in a run on real nodes; expected one of {', '.join(KINDS_HERE)}"
            )
        if fault.when:
            raise ConfigError(f"invalid value {fault.when!r} for fault {fault.kind} when; expected none on real nodes")
        if KINDS[fault.kind] == "link":
            bed.link(*fault.link)
        elif fault.node not in bed.nodes:
            raise ConfigError(f"invalid value {fault.node!r} for fault {fault.kind} node; expected a node's name")


class TestbedFaults:
    """Strikes from now on, each fault in a program of its own that the run waits for. `hits` counts by kind."""

    __test__ = False

    def __init__(self, bed: TestBed, faults: Sequence[Fault]) -> None:
        self.bed = bed
        self.hits: Counter[str] = Counter()
        self._over = asyncio.Event()
        self._down: Counter[str] = Counter()
        self._held: Counter[tuple[str, str]] = Counter()
        strikes: dict[str, Callable[[Fault], Coroutine[Any, Any, None]]] = {
            "crash": self._end,
            "stop": self._end,
            "cut": self._cut,
            "silent-cut": self._cut,
            "partition": self._partition,
            "one-way": self._partition,
            "clog": self._partition,
            "slow-link": self._slow_link,
        }
        for fault in faults:
            bed.spawn(self._strike(fault, strikes[fault.kind]), f"fault {fault.kind}")

    def heal(self) -> None:
        """Cancels faults that have not struck and ends those that last."""
        self._over.set()
        self.bed.note("fault", "heal")

    async def _pass(self, seconds: float) -> bool:
        """Lets time pass; False where all was healed meanwhile."""
        try:
            await asyncio.wait_for(self._over.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _strike(self, fault: Fault, strike: Callable[[Fault], Coroutine[Any, Any, None]]) -> None:
        if await self._pass(fault.at):
            self.hits[fault.kind] += 1
            self.bed.note("fault", fault.kind, fault.describe())
            await strike(fault)

    async def _end(self, fault: Fault) -> None:
        node = self.bed.real_nodes[fault.node]
        self._down[fault.node] += 1
        await (node.kill() if fault.kind == "crash" else node.stop())
        await self._pass(fault.seconds)
        self._down[fault.node] -= 1
        if not self._down[fault.node]:
            await self.bed.start_node(fault.node)

    async def _cut(self, fault: Fault) -> None:
        """The present connections die, with a reset or silently; new ones work at once."""
        proxy = self.bed.proxy(*fault.link)
        if fault.kind == "cut":
            proxy.cut_loudly()
        else:
            proxy.cut_silently()
            proxy.heal()

    async def _partition(self, fault: Fault) -> None:
        """Nothing passes, and all does afterwards: a connection whose ends were patient lives on."""
        one, other = fault.link
        ways = [(one, other)] if fault.kind == "one-way" else [(one, other), (other, one)]
        for way in ways:
            self._held[way] += 1
            self._set(way)
        await self._pass(fault.seconds)
        for way in ways:
            self._held[way] -= 1
            self._set(way)

    def _set(self, way: tuple[str, str]) -> None:
        proxy = self.bed.proxy(*way)
        direction = Direction.FROM_CLIENT if self.bed.link(*way).one == way[0] else Direction.FROM_SERVER
        if self._held[way]:
            proxy.hold(direction)
        else:
            proxy.let_go(direction)

    async def _slow_link(self, fault: Fault) -> None:
        link, proxy = self.bed.link(*fault.link), self.bed.proxy(*fault.link)
        factor = max(1.0, fault.amount)
        proxy.delay_s = (link.there.delay_s or SLOW_DELAY_S) * factor
        proxy.rate = None if link.there.rate is None else link.there.rate / factor
        await self._pass(fault.seconds)
        proxy.delay_s, proxy.rate = link.there.delay_s, link.there.rate
