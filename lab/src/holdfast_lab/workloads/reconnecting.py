"""`reconnecting-producer`: programs that die at random moments and start again with the numbers of their own log.

Rules of this file: a life that ends does not know what became of its last messages; the next one sends again what
the log has not seen accepted, under the same numbers. Two lives at once: the older is fenced. CUSTODY, "Producers".
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Final

from holdfast.client import Accepted, Connection, LinkStolen, Outcome, Sender
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, closed, ended, full_address, spawn_each
from holdfast_lab.workloads.publish import ProducerLog

FENCED_TRIES: Final = 3
FENCED_WITHIN_S: Final = 2.0


@dataclass(frozen=True)
class _Life:
    """A connection and its sender."""

    connection: Connection
    sender: Sender


@dataclass(kw_only=True)
class ReconnectingProducer:
    """As `publish`, in up to `lives` lives of `life_s` on average; the last one finishes.

    The share `rivals` of lives begins while the one before still believes that it holds the name.
    """

    kind: ClassVar[str] = "reconnecting-producer"

    node: str
    address: str
    messages: int = 100
    producers: int = 1
    size: int = 200
    rate: float = 50.0
    in_doubt: int = 50
    lives: int = 8
    life_s: float = 0.5
    rivals: float = 0.3
    name: str = "reconnecting"
    logs: list[ProducerLog] = field(default_factory=list, init=False)
    lived: int = field(default=0, init=False)
    stolen: int = field(default=0, init=False)

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        spawn_each(bed, self.producers, f"{self.name}-{self.node}", self._produce)

    async def _produce(self, bed: Bed, name: str) -> None:
        log = ProducerLog(bed.history, name, full_address(self.address, self.node), self.size)
        self.logs.append(log)
        random = bed.stream(name)
        older: _Life | None = None
        for number in range(1, self.lives + 1):
            life = await self._begin(bed, name, number)
            if older is not None:
                await self._fence(older, life.sender.epoch, log)
                await older.connection.abort()
                older = None
            last = number == self.lives
            if await self._live(life, log, None if last else random.expovariate(1.0 / self.life_s), random):
                await closed(life.connection)
                return
            if last or random.random() >= self.rivals:
                await life.connection.abort()
                await asyncio.sleep(random.uniform(0.0, RETRY_S))
            else:
                older = life

    async def _begin(self, bed: Bed, name: str, number: int) -> _Life:
        self.lived += 1
        connection = await bed.connect(self.node, f"{name}-{number}")
        return _Life(connection, await self._sender(connection, name, number))

    async def _sender(self, connection: Connection, name: str, number: int) -> Sender:
        return await attached(
            lambda: connection.sender(self.address, producer=name, in_doubt_max=self.in_doubt, name=f"{name}-{number}")
        )

    async def _live(self, life: _Life, log: ProducerLog, seconds: float | None, random: Random) -> bool:
        """True when all is stored; False where the life ended before. The last life (None) takes new links."""
        sender = life.sender
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await log.send_all(sender, self.messages, self.rate, random)
                return True
            except TimeoutError:
                return False
            except BREAKS:
                if seconds is not None:
                    return False
                await ended(sender)
                await asyncio.sleep(RETRY_S)
                sender = await self._sender(life.connection, str(sender.producer), self.lives)

    async def _fence(self, older: _Life, epoch: int, log: ProducerLog) -> None:
        """The older life goes on sending over its own connection: none of that may be accepted from it, but where its
        link broke too and came back after the newer one's, which had `epoch`."""
        reconnects = older.connection.reconnects
        tries: list[tuple[int, asyncio.Future[Outcome]]] = []
        while len(tries) < FENCED_TRIES and log.given_out < self.messages:
            try:
                async with asyncio.timeout(FENCED_WITHIN_S):
                    number = log.take()
                    tries.append((number, await log.send(older.sender, number)))
            except LinkStolen:
                self.stolen += 1
                return
            except (TimeoutError, *BREAKS):
                break
        if tries:
            await asyncio.wait([future for _, future in tries], timeout=FENCED_WITHIN_S)
        for number, future in tries:
            if not future.done():
                continue
            if isinstance(future.exception(), LinkStolen):
                self.stolen += 1
                return
            if (
                future.exception() is None
                and isinstance(future.result(), Accepted)
                and older.connection.reconnects == reconnects
                and older.sender.epoch < epoch
            ):
                raise Violation(f"{log.key(number).decode()} was accepted from a producer that a newer one has fenced")

    def check(self, bed: Bed) -> None:
        for log in self.logs:
            missing = [number for number in range(1, self.messages + 1) if log.key(number) not in bed.history.accepted]
            if missing:
                raise Violation(f"producer {bed.history.producers[log.me]} ended without number {missing[0]} stored")

    def metrics(self) -> dict[str, float]:
        return {
            "accepted": sum(log.accepted for log in self.logs),
            "refused": sum(log.refused for log in self.logs),
            "lives": self.lived,
            "stolen": self.stolen,
        }
