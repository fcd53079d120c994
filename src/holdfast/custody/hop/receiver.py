"""The receiving end of a hop: a neighbour's messages for one destination (CUSTODY, "The hop").

Rules of this file: a receiver stores only (epoch, last stored), in the batch of the entries; numbers are decided in
order, and a failed one fails every later one of its epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from holdfast.amqp.connection import Delivery, DeliveryPart, Receiver
from holdfast.amqp.message.message import SECTION_BYTES_MAX
from holdfast.amqp.session.events import Deliveries, DeliveryBegun
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Released
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries.host_names import host_of, node_of
from holdfast.broker.queue import Queue
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.forwarding import Forwarding
from holdfast.custody.hop.links import hop_key
from holdfast.custody.hop.sender import BESIDE_BYTES, EPOCH, LAST_STORED
from holdfast.custody.hop.state import HopState
from holdfast.custody.transfers import carried, carried_runs
from holdfast.engine.incidents import Incidents
from holdfast.engine.log import Log
from holdfast.errors import RemoteProtocolError
from holdfast.links.disk import Disk
from holdfast.links.incoming import IncomingParts, Intake
from holdfast.links.large_receives import Stream
from holdfast.peers.neighbours.features import BODIES
from holdfast.peers.neighbours.trace_aliases import Taken
from holdfast.peers.peer import Peer
from holdfast.settings.node import NodeConfig
from holdfast.state.room import Room
from holdfast.state.turns import Turns


@dataclass(frozen=True, slots=True)
class ReceiverParts(IncomingParts):
    """What all receivers use. `hops`: by neighbour. `hop_stored`: by the key of a hop, (epoch, last stored) as it is on
    disk."""

    config: NodeConfig
    turns: Turns
    room: Room
    log: Log
    incidents: Incidents
    disk: Disk
    forwarding: Forwarding
    destination: Destination
    hops: Mapping[str, HopState]
    hop_stored: dict[bytes, tuple[bytes, int]]
    root_credit: Callable[[str, str, int], int] | None
    """At a root that gives rates: the credit of a neighbour's link to one of its virtual hosts, given the maximum for
    any link."""


class CustodyReceiver(Intake):
    """The receiver of a neighbour's hop for `destination`: this node, or one that it forwards to."""

    keeps_faulty = True
    parts: ReceiverParts

    def __init__(
        self, parts: ReceiverParts, peer: Peer, link: Receiver, *, neighbour: str, destination: str, epoch: UUID
    ) -> None:
        super().__init__(parts, peer, link)
        # What another node took may pass, whatever it allows its clients: if not, its origin would wait for good.
        self.head_bytes_max = SECTION_BYTES_MAX + BESIDE_BYTES
        self.neighbour = neighbour
        self.destination = destination
        self.key = hop_key(neighbour, destination)
        self.host = host_of(destination)
        self.in_transit = node_of(destination) != parts.config.name
        self.way: tuple[int, UUID] | None = None
        """The origin last recorded as arriving by this link, and when, as `Receipts.ways` counts."""
        self.onward: Queue | None = None
        """The transmission queue that it fills, in transit."""
        self.epoch = epoch
        self.epoch_bytes = epoch.bytes
        self.taken = 0
        self.aliases = Taken(peer.aliases_taken)
        link.tells_begin = True
        self.failed = False
        self.reduced = False
        """Whether its credit was reduced in this epoch, which happens once: the sender does not know yet, and
        continues."""
        self.fenced = False

    def answer(self, continues: object) -> None:
        """Answers the attach; called once everything from the older link is on disk or dropped (CUSTODY, hop 2)."""
        if self.fenced or self.link.detached:
            self.peer.refuse_detached(self.link)
            return
        stored = self.parts.hop_stored.get(self.key)
        properties: dict[Any, Any] = {EPOCH: self.epoch}
        if isinstance(continues, UUID) and stored is not None and stored[0] == continues.bytes:
            properties[LAST_STORED] = Ulong(stored[1])
        self.parts.hop_stored[self.key] = (self.epoch_bytes, 0)
        # What one node takes from a client passes all, but for those whose stores could never hold it.
        limit = min(self.parts.limits.message_bytes_max + BESIDE_BYTES, self.parts.large_receives.bytes_most())
        self.link.accept(properties=properties, max_message_size=limit)
        self.refill()
        self.peer.touch()

    def refill(self) -> None:
        if not self.failed:
            self.take_parked()
            self._look_at_growing()
        if self.parked or self.failed or not self.link.attached:
            return
        forwarding = self.parts.forwarding
        most = forwarding.credit(self.destination, in_transit=self.in_transit)
        credit = forwarding.hop_credits.credit(self.key, most)
        if self.parts.root_credit is not None and not self.in_transit:
            credit = self.parts.root_credit(self.host, self.neighbour, credit)
            if credit < self.link.credit:
                self.link.grant(credit)
                self.peer.touch()
        if credit:
            self.top_up(credit)
        else:  # full, or its disk stalls: credit is withheld, nothing is sent back and forth
            if self.parts.disk.takes_nothing:
                self.stop()
            self.parts.links.wait_for_room(self)

    def gone(self) -> None:
        self.fence()
        if self.parts.links.custody_receivers.get(self.key) is self:
            del self.parts.links.custody_receivers[self.key]

    def refused(self, deliveries: list[int], outcome: object = None) -> None:
        self.settle(deliveries, Released())  # first: the lowest that was not accepted is released first
        self.fail()

    def fence(self) -> None:
        """A newer link serves this hop, or this link has ended: accepts nothing more from it."""
        if not self.fenced:
            self.parts.hops[self.neighbour].messages_in += self.taken
        self.fenced = True
        self.aliases.forget()
        super().gone()

    def dismiss(self, error: Error) -> None:
        """Ends the link. Transfers without an answer stay at the sender, which sends them again once it may."""
        if not self.link.detached:
            self.link.detach(closed=True, error=error)
            self.peer.touch()
        self.fence()

    def fail(self) -> None:
        """A number cannot be stored: releases it and every later one of this epoch; the sender begins a new epoch."""
        self.failed = True
        self._fail_growing()
        self.settle(self.clear_parked(), Released())

    def _fail_growing(self) -> None:
        """Deliveries in progress are read to their ends, and then released."""
        growing = self.growing
        if growing is not None:
            growing.fail(conditions.ILLEGAL_STATE, "an earlier number was not taken")
            self.unpark_stream(growing)

    def gave_up(self) -> None:
        self.fail()

    def refusal(self, condition: str, description: str, *, later: bool) -> object:
        return Released()

    def overflow(self, delivery: Delivery) -> None:
        self._reduce_credit()  # before `fail` clears what waits
        super().overflow(delivery)
        self.fail()

    def too_many_streams(self) -> None:
        self._reduce_credit()

    def _reduce_credit(self) -> None:
        """A message found no place to wait: limits the hop's credit to the number that wait now. Once in an epoch,
        which it ends."""
        if not (self.reduced or self.failed):
            self.reduced = True
            self.parts.forwarding.hop_credits.overflowed(self.key, len(self.parked))

    def delivered_all(self, run: Deliveries) -> None:
        taken = self._take_run(run)
        if taken:
            run = run._replace(first_id=run.first_id + taken, payloads=run.payloads[taken:])
        super().delivered_all(run)

    def _take_run(self, run: Deliveries) -> int:
        """Accepts the first plain messages of `run` at once; returns how many. The others are handled singly."""
        forwarding = self.parts.forwarding
        if not self.in_transit or self.fenced or self.failed or self.parked or run.settled:
            return 0
        if forwarding.hop_credits.is_reduced(self.key):  # it counts them
            return 0
        arrived = carried_runs.read_run(run.payloads, self.taken + 1, self.aliases)
        if arrived is None or not forwarding.take_run(self, arrived, run.payloads, run.message_format):
            return 0
        count = len(arrived.sequences)
        self.taken += count
        self.parts.turns.gathered.arrived_all(self, run.first_id, count)
        self.parts.links.refills[self] = None
        return count

    def delivered(self, delivery: Delivery) -> None:
        if BODIES in self.peer.features:  # also where the link takes nothing more: other links may name its body
            try:
                delivery = delivery._replace(payload=carried.with_body(delivery.payload, self.peer.bodies_taken))
            except RemoteProtocolError as error:
                self._end_link(error)
                return
        if self.fenced:
            return
        if self.failed:
            self.settle([delivery.delivery_id], Released())
            return
        if self.parked or not self.take(delivery, large=None):
            if not self.parked or isinstance(self.parked[0], Delivery):  # else it waits for a large one's end alone
                self.parts.forwarding.hop_credits.waited(self.key)
            self.park(delivery)
        self.parts.links.refills[self] = None

    def park(self, delivery: Delivery) -> None:
        super().park(delivery)
        self.parts.links.parked_receivers[self] = None

    def part(self, part: DeliveryPart) -> None:
        if self.fenced:
            return
        super().part(part)
        self.parts.links.parked_receivers[self] = None
        if self.failed:
            self._fail_growing()
        else:
            self._look_at_growing()

    def begun(self, event: DeliveryBegun) -> None:
        """The first frame of a message has its length: a message without room is released before the rest arrives over
        a slow link. But not before earlier messages: the lowest number that was not accepted must be released first."""
        size = carried.length_of(event.payload)
        if self.failed:
            self._give_back_unfinished(event.delivery_id)
        elif size and not (self.fenced or self.parked) and not self.parts.large_receives.has_room(size):
            self.parts.incidents.found_no_room(self.neighbour, self.destination, size)
            self._give_back_unfinished(event.delivery_id)

    def _look_at_growing(self) -> None:
        """Releases a partly received message as soon as it is known that it cannot be accepted."""
        growing = self.growing
        if growing is not None and growing.outcome is not None and self.parked and self.parked[0] is growing:
            self.parts.incidents.found_no_room(self.neighbour, self.destination, growing.blob.length)
            self._give_back_unfinished(growing.first.delivery_id)

    def _give_back_unfinished(self, delivery_id: int) -> None:
        self.link.settle_unfinished(delivery_id, Released())
        self.peer.touch()
        self.fail()

    def take_whole(self, stream: Stream) -> bool:
        taken = self.take(stream.delivery(), large=stream)
        if not taken:
            self.parts.forwarding.hop_credits.waited(self.key)
        return taken

    def _end_link(self, error: RemoteProtocolError) -> None:
        """Ends the link for a transfer that no node sends, or that refers to a bare message that is not kept here."""
        if self.link.detached:
            return
        self.failed = True
        self.link.detach(closed=True, error=Error(Symbol(error.condition), error.description))
        self.peer.touch()
        text = f"a message of it for {self.destination!r} is refused and its link ended: {error.description}"
        self.parts.log.write("WARNING", f"neighbour {self.neighbour}: {text}", about=self.neighbour)

    def take(self, delivery: Delivery, *, large: Stream | None) -> bool:
        """True if handled, including failure; False if it waits."""
        try:
            arrival = carried.read(delivery.payload, self.aliases)
            if large is not None:
                arrival.large, arrival.fault = True, large.fault
            if arrival.ttl_ms is not None:
                arrival.ttl_ms -= self.waited_ms(delivery.delivery_id)
            number = arrival.number
            if number > self.taken + 1:
                text = f"invalid value {number} for the hop number; expected at most {self.taken + 1}"
                raise RemoteProtocolError(conditions.ILLEGAL_STATE, text)
        except RemoteProtocolError as error:
            self._end_link(error)
            return True
        if number <= self.taken:
            self.parts.turns.gathered.arrived(self, delivery.delivery_id)
            return True
        message_format = delivery.message_format or 0
        if self.in_transit:
            taken = self.parts.forwarding.take(self, arrival, message_format)
        else:  # asked first, whatever the trace says (CUSTODY, "Trace")
            self.parts.forwarding.receipts.arrived(arrival.identity.origin, self.destination, self.neighbour)
            taken = self.parts.destination.take(self.host, arrival, message_format=message_format, via=self.neighbour)
        if taken is None:
            if not self.parts.room.is_known:
                self.parts.links.wait_for_room(self)
            return False
        if not taken:
            self.settle([delivery.delivery_id], Released())
            self.fail()
            return True
        self.taken = number
        self.parts.forwarding.hop_credits.took(self.key)
        self.parts.turns.gathered.arrived(self, delivery.delivery_id)
        return True
