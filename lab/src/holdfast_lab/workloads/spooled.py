"""`spooled`: programs with a spool that are killed, or lose the power of their machine, at any moment.

Rules of this file: what `submit` has returned for arrives, once, in whichever life; what was in its hands when the
program died may or may not. A life that ends leaves its file as the system has it then, cut after its last sync where
the power was lost. CUSTODY, "Producers"; docs/client.md.
"""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar, Final

from holdfast.client import Connection, Outcome, Sender, Spool, Spooled
from holdfast_lab.base.client_history import Violation
from holdfast_lab.base.contents import content_of, message_of
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import BREAKS, RETRY_S, attached, closed, full_address, spawn_each
from holdfast_lab.workloads.publish import ProducerLog

SYNC_OVER_S: Final = 0.1
"""By then a sync that was under way when its program died is over, and the file is closed."""
KILLED: Final = "its program died before its spool had it"


class _Disk:
    """What lies under one life's spool, and how much of it is synced. A file begins with what the life before left,
    whatever the library has written to it as that one ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.synced: int | None = None
        """None while nobody notes it: then all is."""

    def watch(self, sender: Sender) -> None:
        """Notes each sync of the sender's spool from now on; what it wrote to be attached is synced."""
        spool = sender._spool
        assert spool is not None
        datasync = spool._datasync
        self.synced = self.path.stat().st_size

        def noted() -> None:
            datasync()
            self.synced = self.path.stat().st_size

        setattr(spool, "_datasync", noted)  # noqa: B010  # this one object's

    def content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def after_power_loss(self, random: Random) -> bytes:
        """Cut anywhere behind what was synced."""
        content = self.content()
        synced = len(content) if self.synced is None else min(self.synced, len(content))
        return content[: random.randint(synced, len(content))]

    def put_back(self, content: bytes) -> None:
        self.path.write_bytes(content)


class _Log(ProducerLog):
    """As a producer's; that a message lies in the spool is not yet an outcome."""

    def _decided(self, number: int, future: "asyncio.Future[Outcome]") -> None:
        if future.cancelled() or future.exception() is not None or not isinstance(future.result(), Spooled):
            super()._decided(number, future)


@dataclass(kw_only=True)
class SpooledProducer:
    """As `publish`, each program with a spool, in `lives` lives of `life_s` on average; the last one finishes.

    Of the lives that end at their own time, the share `power` ends with a power loss.
    """

    kind: ClassVar[str] = "spooled"

    node: str
    address: str
    messages: int = 100
    producers: int = 1
    size: int = 200
    rate: float = 50.0
    in_doubt: int = 20
    lives: int = 5
    life_s: float = 0.5
    power: float = 0.4
    name: str = "spooled"
    logs: list[_Log] = field(default_factory=list, init=False)
    lived: int = field(default=0, init=False)
    cut_bytes: int = field(default=0, init=False)
    """What power losses took of the files."""

    async def setup(self, bed: Bed) -> None:
        return

    def start(self, bed: Bed) -> None:
        spawn_each(bed, self.producers, f"{self.name}-{self.node}", self._produce)

    async def _produce(self, bed: Bed, name: str) -> None:
        log = _Log(bed.history, name, full_address(self.address, self.node), self.size, named=False)
        self.logs.append(log)
        random = bed.stream(name)
        with tempfile.TemporaryDirectory(prefix="holdfast-spool-") as made:
            path = Path(made) / "spool"
            life = 1
            while not await self._live(bed, name, life, path, log, random):
                life += 1

    async def _live(self, bed: Bed, name: str, life: int, path: Path, log: _Log, random: Random) -> bool:
        """True once all is stored; False where this life ended before, and left its file."""
        self.lived += 1
        seconds = random.expovariate(1.0 / self.life_s) if life < self.lives else None
        connection = await bed.connect(self.node, f"{name}-{life}")
        disk = _Disk(path)
        died = False
        try:
            async with asyncio.timeout(seconds):
                sender = await attached(lambda: self._sender(connection, name, life, path))
                disk.watch(sender)
                while log.given_out < self.messages:
                    await self._submit(bed, sender, log)
                    if self.rate:
                        await asyncio.sleep(random.expovariate(self.rate))
                await sender.drain()
        except TimeoutError:
            died = True
        except BREAKS:
            pass
        else:
            for number in list(log.open):
                del log.open[number]
                log.accepted += 1
                bed.history.accept(log.key(number))
            await closed(connection)
            return True
        left = disk.content()
        if died and random.random() < self.power:
            left = disk.after_power_loss(random)
            self.cut_bytes += len(disk.content()) - len(left)
        await connection.abort()
        await asyncio.sleep(SYNC_OVER_S + random.uniform(0.0, RETRY_S))
        disk.put_back(left)
        return False

    async def _sender(self, connection: Connection, name: str, life: int, path: Path) -> Sender:
        spool = Spool(path, fsync_interval_s=0.0)
        return await connection.sender(
            self.address, producer=name, in_doubt_max=self.in_doubt, when_full=spool, name=f"{name}-{life}"
        )

    async def _submit(self, bed: Bed, sender: Sender, log: _Log) -> None:
        """One message; where this is cancelled nobody knows whether the spool has it."""
        number = log.take()
        key = log.key(number)
        message = message_of(key, self.size, None)
        bed.history.sent[key] = content_of(message)
        try:
            future = await sender.submit(message)
        except (asyncio.CancelledError, *BREAKS):
            del log.open[number]
            bed.history.excuse(key, KILLED)
            raise
        future.add_done_callback(lambda done: log._decided(number, done))

    def check(self, bed: Bed) -> None:
        for log in self.logs:
            if log.refused:
                raise Violation(f"{bed.history.producers[log.me]} had {log.refused} messages of its spool refused")

    def metrics(self) -> dict[str, float]:
        return {
            "accepted": sum(log.accepted for log in self.logs),
            "lives": self.lived,
            "cut bytes": self.cut_bytes,
        }
