"""`delayed`: delayed messages, and a consumer that must not be given any of them too early.

Rules of this file: a time counts from the first time that a message is sent, by any clock of its nodes, the fastest one
if it is to be early; earlier by as much as somebody has set clocks forward. Where somebody has set one back, what waits
for a wall time need not arrive in the run.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final

from holdfast.amqp.wire.extensions import DELIVERY_DELAY, DELIVERY_TIME
from holdfast.amqp.wire.types import Timestamp, Ulong
from holdfast.client import Delivery
from holdfast_lab.base.client_history import Violation
from holdfast_lab.workloads.bed import Bed
from holdfast_lab.workloads.common import key_shown, marked, place_of, queue_and_node, receive_each
from holdfast_lab.workloads.expiring import CLOCKS_APART, ROUNDING_S
from holdfast_lab.workloads.publish import ProducerLog, Publish

SET_BACK_MS: Final = 1_000


@dataclass(kw_only=True)
class Delayed(Publish):
    """As `publish`, to the `address`, from which it consumes too. The share `share` is delayed by one of `delays_s`,
    the share `by_clock` of these by a wall time."""

    kind: ClassVar[str] = "delayed"

    share: float = 0.8
    delays_s: tuple[float, ...] = (0.5, 3.0)
    by_clock: float = 0.5
    credit: int = 100
    name: str = "delayed"
    _told: dict[bytes, dict[Any, Any]] = field(default_factory=dict, init=False)
    _due: dict[bytes, float] = field(default_factory=dict, init=False)
    """By key: no sooner than this in the run's time, less what clocks were set forward."""
    _waits: dict[bytes, int] = field(default_factory=dict, init=False)
    """Wall times that keys wait for which nobody was shown yet."""

    @property
    def queue(self) -> str:
        return queue_and_node(self.address, self.node)[0]

    @property
    def at(self) -> str:
        """The node of the queue."""
        return queue_and_node(self.address, self.node)[1]

    def start(self, bed: Bed) -> None:
        bed.history.on_clock.append(lambda: self._clock_set(bed))
        bed.spawn(self._consume(bed, f"{self.name}-out"), f"{self.name}-out", background=True)
        super().start(bed)

    def new_log(self, bed: Bed, name: str) -> ProducerLog:
        random = bed.stream(f"{name}/delays")
        log = super().new_log(bed, name)
        log.annotations = lambda number: self._annotations(bed, log.key(number), random)
        return log

    def _annotations(self, bed: Bed, key: bytes, random: Random) -> dict[Any, Any] | None:
        """Drawn once."""
        if key not in self._told:
            self._told[key] = {}
            if random.random() < self.share:
                delay_s = random.choice(self.delays_s)
                due = bed.now() + delay_s * (1.0 - CLOCKS_APART) - ROUNDING_S
                if random.random() < self.by_clock:
                    at_ms = max(map(bed.wall_ms, bed.nodes)) + int(delay_s * 1000)
                    self._told[key] = {DELIVERY_TIME: Timestamp(at_ms)}
                    self._waits[key] = at_ms
                    self._clock_set(bed)
                else:
                    self._told[key] = {DELIVERY_DELAY: Ulong(int(delay_s * 1000))}
                self._due[key] = due + self._ahead_s(bed, key)
        return self._told[key] or None

    def _ahead_s(self, bed: Bed, key: bytes) -> float:
        """By how much clocks were set forward: a delay is counted by one that only a start may set."""
        history = bed.history
        return history.clock_ahead_s if DELIVERY_TIME in self._told[key] else history.counted_ahead_s

    def _clock_set(self, bed: Bed) -> None:
        """What waits for a clock that was set back is not awaited."""
        most = max(self.delays_s) * 1000 + SET_BACK_MS
        for key, at_ms in list(self._waits.items()):
            if at_ms - bed.wall_ms(self.at) > most:
                bed.history.excuse(key, "it waits for a clock that was set back")
                del self._waits[key]

    async def _consume(self, bed: Bed, name: str) -> None:
        connection = await bed.connect(self.at, name, vhost=self.vhost)
        place = place_of(self.queue, self.at, self.vhost)

        async def take(delivery: Delivery) -> None:
            key = key_shown(bed.history, delivery, place)
            if key is not None:
                disk = bed.disk_of(self.at, delivery)
                bed.history.receive(key, place, marked=marked(delivery), sequence=delivery.sequence, disk=disk)
                self._waits.pop(key, None)
                left_s = self._due[key] - bed.now() - self._ahead_s(bed, key) if key in self._due else 0.0
                if left_s > 0:
                    raise Violation(f"{key.decode()} was shown at {place} {left_s:.3f} s before its time")
            delivery.accept()

        await receive_each(lambda: connection.receiver(self.queue, credit=self.credit, name=name), take)

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), "delayed": len(self._due)}
