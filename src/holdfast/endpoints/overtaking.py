"""Urgent messages of a client's link overtake less urgent ones of the same link that wait for room
(docs/adr/0086-urgent-messages-pass.md).

Rules of this file: only at a queue with room by priority that blocks. Within a band the order stays; a lower message
never overtakes a higher one; if OVERTAKEN_MAX messages of a link wait, no further message overtakes them.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.amqp.connection import Delivery, Receiver
from holdfast.amqp.effort import MESSAGE
from holdfast.amqp.message.message import split
from holdfast.broker.entries.entry import PRIORITY_DEFAULT
from holdfast.broker.queue import Queue
from holdfast.broker.stored.producers import Producer
from holdfast.errors import RemoteProtocolError
from holdfast.links.incoming import IncomingParts, Intake
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer

OVERTAKEN_MAX: Final = 256
"""Messages of one link that wait, beyond which it is given no credit for urgent ones."""


def band_of(priority: int) -> int:
    """0 for low priorities, 1 for the default one, 2 above."""
    return (priority >= PRIORITY_DEFAULT) + (priority > PRIORITY_DEFAULT)


def priority_of(delivery: Delivery, told_max: int) -> int:
    """The priority from its header; the lowest if that cannot be read, which its link finds later."""
    try:
        header = split(delivery.payload, told_max).header
    except RemoteProtocolError:
        return 0
    return PRIORITY_DEFAULT if header is None else header.priority


class Lanes:
    """The waiting messages of one link, by band. Its owner adds messages that it parks, and removes those that it
    stores."""

    __slots__ = ("_bands", "_counts")

    def __init__(self) -> None:
        self._bands: dict[int, int] = {}
        self._counts = [0, 0, 0]

    def add(self, delivery: Delivery, priority: int) -> None:
        band = self._bands[delivery.delivery_id] = band_of(priority)
        self._counts[band] += 1

    def remove(self, delivery: Delivery) -> None:
        band = self._bands.pop(delivery.delivery_id, None)
        if band is not None:
            self._counts[band] -= 1

    @property
    def highest(self) -> int:
        """The highest band with waiting messages; -1 if there are none."""
        return max((band for band, count in enumerate(self._counts) if count), default=-1)

    def knows(self, delivery: Delivery) -> bool:
        return delivery.delivery_id in self._bands

    def in_order(self, waiting: Iterable[Delivery]) -> list[Delivery]:
        """The messages, the highest band first, each band in the order of arrival."""
        return sorted(waiting, key=lambda delivery: -self._bands[delivery.delivery_id])


class OvertakingIntake(Intake):
    """A client's link into `queue`."""

    may_wait = True
    """Whether a message waits at a full queue that blocks; a link to many queues rejects it (relay.py)."""

    queue: Queue
    producer: Producer | None

    def __init__(self, parts: IncomingParts, peer: Peer, link: Receiver) -> None:
        super().__init__(parts, peer, link)
        self.lanes = Lanes()

    @property
    def may_pass(self) -> bool:
        """Whether a message of this link may be stored before another one that waits. A large one keeps its place, and
        so do all if their numbers would leave too many gaps."""
        producer, parts = self.producer, self.parts
        if self.queue.bands is None or not self.may_wait or len(self.parked) >= OVERTAKEN_MAX:
            return False
        if producer is not None:
            room = parts.limits.ranges_max if parts.memory.ranges.room else 1
            if len(producer.stored) + OVERTAKEN_MAX > room:
                return False
        return all(isinstance(item, Delivery) and self.lanes.knows(item) for item in self.parked)

    def _is_higher(self, delivery: Delivery) -> bool:
        return band_of(priority_of(delivery, self.parts.limits.annotation_bytes_max)) > self.lanes.highest

    def park(self, delivery: Delivery) -> None:
        before = len(self.parked)
        super().park(delivery)
        if self.queue.bands is not None and len(self.parked) > before:
            self.lanes.add(delivery, priority_of(delivery, self.parts.limits.annotation_bytes_max))

    def _waits_no_more(self, item: Delivery | Stream) -> None:
        if isinstance(item, Delivery):
            self.lanes.remove(item)
        super()._waits_no_more(item)

    def delivered(self, delivery: Delivery) -> None:
        """Handles a delivery; one of a higher band overtakes all that wait."""
        if self.parked and not self.unchecked and self.may_pass and self._is_higher(delivery):
            self.peer.amqp.took(MESSAGE)
            if not self._refuse(delivery) and not self.take(delivery, large=None):
                self.park(delivery)
            self.parts.links.refills[self] = None
        else:
            super().delivered(delivery)

    def take_parked(self) -> None:
        """Stores parked messages as far as possible, the highest band first; if none may overtake another, in the order
        of arrival."""
        super().take_parked()
        if len(self.parked) < 2 or self.unchecked or not self.may_pass:
            return
        waiting = self.lanes.in_order(item for item in self.parked if isinstance(item, Delivery))
        for delivery in waiting:
            if self._is_spent() or delivery not in self.parked:
                break
            self.peer.amqp.took(MESSAGE)
            if not self.take(delivery, large=None):
                break  # lower ones have no more room than this one
            if delivery in self.parked:
                self.parked.remove(delivery)
                self._waits_no_more(delivery)
