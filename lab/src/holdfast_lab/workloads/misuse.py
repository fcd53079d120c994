"""`hostile`: clients that misuse the protocol at every layer, beside honest ones, which must not be affected.

Rules of this file: what they do is drawn by `holdfast_lab/hostile` from the bed's seed. They end before the faults do,
and take no message of others for good: what they hold comes back when they go. No judgment: the honest workloads
have it.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast_lab.hostile import ACTS, HostileClient, Places
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import RETRY_S, spawn_each

OWN_QUEUES: Final = 3
LIVES_ACTS: Final = 40
"""Acts of one connection, in the mean."""
DEAF_SHARE: Final = 0.15
"""Of its connections, those that take no notice of what the node says: credit, deliveries, errors."""


class _Wire(asyncio.Protocol):
    """A connection of a hostile client. `over`: the node, or the network, has ended it."""

    def __init__(self, client: HostileClient, *, deaf: bool) -> None:
        self.client = client
        self.deaf = deaf
        self.over = False

    def data_received(self, data: bytes) -> None:
        if not self.deaf:
            self.client.hear(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.over = True


@dataclass(kw_only=True)
class Hostile:
    """`clients` at `node` do `acts` each within `seconds`, `pause_s` apart; the share `rude` breaks the protocol.

    `shared`: a queue of honest clients that they look at and send to; `held`: one of whose messages they also take some
    and give them back. `far`: they name other nodes too.
    """

    kind: ClassVar[str] = "hostile"

    node: str
    clients: int = 1
    acts: int = 100
    seconds: float = 10.0
    pause_s: float = 0.02
    rude: float = 0.1
    shared: str = ""
    held: str = ""
    far: bool = False
    name: str = "hostile"
    done: Counter[str] = field(default_factory=Counter, init=False)
    """How often each act was done."""
    lives: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        spawn_each(bed, self.clients, f"{self.name}-{self.node}", self._misuse)

    async def _misuse(self, bed: Bed, name: str) -> None:
        random = bed.stream(name)
        ends_at, left = bed.now() + self.seconds, self.acts
        while left > 0 and bed.now() < ends_at:
            left = await self._live(bed, name, random, ends_at, left)
            await asyncio.sleep(random.expovariate(1.0 / RETRY_S))

    async def _live(self, bed: Bed, name: str, random: Random, ends_at: float, left: int) -> int:
        """One connection; returns how many acts are left for the next."""
        self.lives += 1
        client = HostileClient(random, self._places(bed), name=f"{name}-{self.lives}", acts=ACTS, rude_share=self.rude)
        wire = _Wire(client, deaf=random.random() < DEAF_SHARE)
        try:
            transport = await bed.dial(self.node, name, lambda: wire)
        except OSError:
            return left
        try:
            transport.write(client.opening())
            for _ in range(min(left, 1 + int(random.expovariate(1.0 / LIVES_ACTS)))):
                await asyncio.sleep(random.expovariate(1.0 / self.pause_s))
                if wire.over or client.over or bed.now() >= ends_at:
                    break
                act, data = client.act()
                self.done[act] += 1
                left -= 1
                transport.write(data)
        finally:
            if random.random() < 0.5:
                transport.abort()
            else:
                transport.close()
        return left

    def _places(self, bed: Bed) -> Places:
        return Places(
            own=tuple(f"{self.name}-queue-{number}" for number in range(OWN_QUEUES)),
            shared=(self.shared,) if self.shared else (),
            held=self.held,
            nodes=tuple(bed.nodes) if self.far else (),
        )

    def check(self, bed: Bed) -> None:
        return

    def metrics(self) -> dict[str, float]:
        return {"acts": self.done.total(), "lives": self.lives}
