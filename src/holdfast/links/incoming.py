"""Links whose messages are stored.

Rules of this file: messages that wait for room are bounded in bytes: large ones are on disk meanwhile; beyond the bound
a message is released, or rejected if the disk is full.
"""

from collections import deque
from dataclasses import dataclass

from holdfast.amqp.connection import Deliveries, Delivery, DeliveryPart, Receiver
from holdfast.amqp.effort import MESSAGE, REFUSED
from holdfast.amqp.message.framing import check
from holdfast.amqp.session.bounds import ALONE_BYTES, EVENTS_MAX
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Released, TransactionalState
from holdfast.amqp.wire.types import Symbol
from holdfast.engine.clock import Clock
from holdfast.errors import RemoteProtocolError
from holdfast.links.ingress import Ingress, rejection, unknown_text
from holdfast.links.large_receives import HEAD_BYTES_MAX, HEAD_SECTIONS, LargeReceives, Stream
from holdfast.peers.limits.guard import Guard
from holdfast.peers.limits.memory import PARKED_BYTES, Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer
from holdfast.settings.limits import Limits


@dataclass(frozen=True, slots=True)
class IncomingParts:
    """What all links use whose messages are stored."""

    limits: Limits
    clock: Clock
    links: LinkTables
    memory: Memory
    guard: Guard
    large_receives: LargeReceives


class Intake(Ingress):
    """What links share whose messages are stored: waiting messages, whole or in parts."""

    keeps_faulty = False
    """Whether a large message with malformed sections is accepted (docs/adr/0048)."""

    def __init__(self, parts: IncomingParts, peer: Peer, link: Receiver) -> None:
        super().__init__(peer, link)
        self.parts = parts
        link.stream_bytes = parts.limits.stream_bytes
        self.head_bytes_max = max(HEAD_BYTES_MAX, HEAD_SECTIONS * parts.limits.annotation_bytes_max)
        self.ends = False
        """Whether it ends once what it has brought is answered (state/producer_ends.py)."""
        self.parked: deque[Delivery | Stream] = deque()
        self.unchecked = 0
        """How many of the parked deliveries, the last ones, have not been checked yet."""
        self.growing: Stream | None = None
        """The large message that is still arriving."""
        self.came_ms: dict[int, int] = {}
        """By delivery-id: when what is parked came, or began to, on the node's steady clock."""

    def refill(self) -> None:
        """Called when there may be room again, and once a turn while messages arrive."""
        raise AssertionError("each kind of link gives its own credit")

    def stop(self) -> None:
        """Takes back the link's credit."""
        if self.link.attached and self.link.credit:
            self.link.grant(0)
            self.peer.touch()

    def refuse_malformed(self, delivery: Delivery) -> bool:
        """Rejects a delivery with malformed sections; False for any other."""
        try:
            check(delivery.payload)
        except RemoteProtocolError as error:
            self.peer.amqp.took(REFUSED)
            return self._answer(delivery, rejection(error.condition, error.description))
        return False

    def take(self, delivery: Delivery, *, large: Stream | None) -> bool:
        """True if the delivery was put into the turn, or settled. False if it must wait. `large`: the stream in which
        it came, if its bare message is a reference to a blob.
        """
        raise AssertionError("each kind of link takes its own")

    def settle_one(self, delivery_id: int, settled: bool, outcome: object) -> None:
        """Settles one delivery, unless its sender has settled it."""
        if not settled:
            self.settle([delivery_id], outcome)

    def _answer(self, delivery: Delivery, outcome: object) -> bool:
        self.settle_one(delivery.delivery_id, delivery.settled, outcome)
        return True

    # ------------------------------------------------------------------------------------------------ whole

    def delivered_all(self, run: Deliveries) -> None:
        """As `delivered`, for each of a run; deliveries beyond the connection's share of the turn continue in the next
        one, before any later bytes are parsed."""
        alone = len(run.payloads) > EVENTS_MAX or sum(map(len, run.payloads)) >= ALONE_BYTES
        for delivery in self._each(run):
            if self.unchecked or (alone and self._is_spent()):
                self._put_off(delivery)
            else:
                self.delivered(delivery)

    def _is_spent(self) -> bool:
        """Whether the connection's share of messages for this turn is used up; the next turn continues."""
        if not self.peer.amqp.is_spent or self.peer.neighbour is not None:
            return False
        self.peer.late[self] = None
        self.peer.amqp.wait(self.parts.clock.now)
        self.parts.guard.waits(self.peer)
        return True

    def _put_off(self, delivery: Delivery) -> None:
        """Parks the delivery unchecked."""
        before = len(self.parked)
        self.park(delivery)
        self.unchecked += len(self.parked) - before

    def _refuse_unchecked(self, item: Delivery | Stream) -> bool:
        """Checks the first parked delivery, if it was not checked yet; whether it was rejected as malformed."""
        if len(self.parked) > self.unchecked:
            return False
        self.unchecked = len(self.parked) - 1
        return isinstance(item, Delivery) and self._refuse(item)

    def delivered(self, delivery: Delivery) -> None:
        if self.unchecked:
            self._put_off(delivery)
            return
        self.peer.amqp.took(MESSAGE)
        if not self._refuse(delivery) and (self.parked or not self.take(delivery, large=None)):
            self.park(delivery)
        self.parts.links.refills[self] = None

    def _refuse(self, delivery: Delivery) -> bool:
        """Settles a delivery that cannot be accepted whatever room there is; False for any other."""
        odd = delivery.state is not None or not delivery.payload
        return (odd and self.refuse_unusable(delivery)) or self.refuse_malformed(delivery)

    def park(self, delivery: Delivery) -> None:
        """Keeps the delivery until there is room for it; if too many bytes wait already, it is released, or rejected if
        the disk is full. The node's first delivery is parked however large it is: if it were released, its sender could
        only find room by trying again."""
        parked = self.parts.memory.parked
        size = PARKED_BYTES + len(delivery.payload)
        if not parked.held:
            parked.add(size)
        elif not parked.charge(size):
            self.overflow(delivery)
            return
        self.peer.parked_bytes += size
        self.came_ms[delivery.delivery_id] = self.parts.clock.steady_ms
        self.parked.append(delivery)

    def waited_ms(self, delivery_id: int) -> int:
        """How long that delivery has waited here, which is subtracted from its time to live."""
        now = self.parts.clock.steady_ms
        return now - self.came_ms.get(delivery_id, now)

    def overflow(self, delivery: Delivery) -> None:
        """Called for a delivery for which there is no room to wait."""
        if delivery.settled:
            text = "a settled message is lost: its queue is full, and parked_bytes_max is used up by others that wait"
            self.peer.log("WARNING", f"link {self.link.name}: {text}; its sender should not settle it")
        self.settle_one(delivery.delivery_id, delivery.settled, Released())

    def take_parked(self) -> None:
        """Handles parked deliveries, in order, as far as possible."""
        if self.parked:
            for stream in [item for item in self.parked if isinstance(item, Stream)]:
                stream.advance()
                if stream.state is not None and (stream.ready or (stream.whole and stream.outcome is not None)):
                    self._leave_for_transaction(stream, stream.state)
        while self.parked:
            item = self.parked[0]
            if self._is_spent():
                break
            self.peer.amqp.took(MESSAGE)
            if not self._refuse_unchecked(item) and not (
                self._take_stream(item) if isinstance(item, Stream) else self.take(item, large=None)
            ):
                break
            if self.parked:  # a delivery that could not be accepted may have cleared all parked ones
                self._unpark()

    def _leave_for_transaction(self, stream: Stream, state: TransactionalState) -> None:
        """Handles a transaction's delivery, which waits for no room: deliveries parked before it may wait for messages
        that its transaction takes away."""
        self.take_in_transaction(stream, state)
        self.unpark_stream(stream)  # if it is still there: its end may have ended the link
        stream.close()

    def unpark_stream(self, stream: Stream) -> None:
        """Removes a large message from the waiting ones, wherever it is in the order."""
        if stream in self.parked:
            self.parked.remove(stream)
            self.unchecked = min(self.unchecked, len(self.parked))
            self._waits_no_more(stream)

    def _unpark(self) -> None:
        item = self.parked.popleft()
        self.unchecked = min(self.unchecked, len(self.parked))
        self._waits_no_more(item)

    def _waits_no_more(self, item: Delivery | Stream) -> None:
        """Updates the counts after a delivery was removed from `parked`."""
        if isinstance(item, Delivery):
            self.came_ms.pop(item.delivery_id, None)
            size = PARKED_BYTES + len(item.payload)
            self.parts.memory.parked.refund(size)
            self.peer.parked_bytes -= size
        else:
            self.came_ms.pop(item.first.delivery_id, None)

    def clear_parked(self) -> list[int]:
        """Forgets all parked deliveries; returns the ids of complete unsettled ones, which must be settled."""
        ids = []
        while self.parked:
            item = self.parked[0]
            if isinstance(item, Stream):
                if item is not self.growing:
                    item.close()
                    if not item.settled:
                        ids.append(item.first.delivery_id)
            elif not item.settled:
                ids.append(item.delivery_id)
            self._unpark()
        return ids

    @property
    def parked_settled(self) -> int:
        """How many complete deliveries are parked that their sender has settled, and will not send again."""
        return sum(item.settled for item in self.parked if item is not self.growing)

    # ------------------------------------------------------------------------------------------------ in parts

    def part(self, part: DeliveryPart) -> None:
        """Handles a part of a large message."""
        stream = self.growing
        if part.first:
            if not self.parts.large_receives.may_begin(self.peer):
                self.take_parked()  # one of this link that is complete still counts as arriving
            stream = self.growing = self.parts.large_receives.begin(self, part)
            if stream.outcome is not None:
                self.too_many_streams()
            self.parked.append(stream)
            self.came_ms[part.delivery_id] = self.parts.clock.steady_ms
            if self.unchecked:  # it waits behind unchecked deliveries
                self.unchecked += 1
        assert stream is not None
        if part.last and isinstance(part.state, TransactionalState):
            if self.large_in_transaction(stream, part.state):
                stream.state = part.state
            else:
                text = unknown_text(part.state)
                stream.fail(conditions.UNKNOWN_TRANSACTION, text)
                if part.settled:
                    self.link.detach(closed=True, error=Error(Symbol(conditions.UNKNOWN_TRANSACTION), text))
        stream.add(part)
        if part.last:
            self.growing = None
            if stream not in self.parked:  # it was cleared away meanwhile
                self.settle_one(part.delivery_id, part.settled, stream.outcome)
        self.parts.links.refills[self] = None

    def large_in_transaction(self, stream: Stream, state: TransactionalState) -> bool:
        """A large message of a transaction has arrived, and `take_in_transaction` adds it once it is on disk, before
        all parked ones; False if the transaction is unknown."""
        return False

    def take_in_transaction(self, stream: Stream, state: TransactionalState) -> None:
        """Adds a large message to its transaction, or refuses it there, and settles it."""
        raise AssertionError("a link that knows transactions takes them")

    def aborted(self) -> None:
        """The sender aborted the large message."""
        stream, self.growing = self.growing, None
        if stream is not None:
            stream.close()
            self.unpark_stream(stream)
        self.parts.links.refills[self] = None  # its credit is free, and deliveries parked behind it may continue

    def too_many_streams(self) -> None:
        """The maximum number of large messages is arriving: the one that begins is refused."""

    def stream_waits(self) -> None:
        self.wait_for_room()

    def wait_for_room(self) -> None:
        """Waits with what it has until the next commit reports the room."""
        self.parts.links.wait_for_room(self)

    def begins(self, stream: Stream, head: bytes) -> None:
        """A large message begins with these bytes, which include its header and annotations. RemoteProtocolError if
        more bytes are needed."""

    def gave_up(self) -> None:
        """A large message could not be accepted."""

    def refusal(self, condition: str, description: str, *, later: bool) -> object:
        """The outcome of a message that cannot be stored."""
        return rejection(condition, description, later=later)

    def _take_stream(self, stream: Stream) -> bool:
        if stream.outcome is not None:
            if not stream.whole:
                return False
            self.settle_one(stream.first.delivery_id, stream.settled, stream.outcome)
            self.gave_up()
            return True
        if not stream.ready or not self.take_whole(stream):
            return False
        stream.close()
        return True

    def take_whole(self, stream: Stream) -> bool:
        """As `take`, for a complete large message."""
        return self.take(stream.delivery(), large=stream)

    def gone(self) -> None:
        """Parked deliveries are dropped; their sender may send them again on another link, unless it has settled
        them."""
        if lost := self.parked_settled:
            text = f"settled messages that waited for room are lost with the link: {lost}"
            self.peer.log("WARNING", f"link {self.link.name}: {text}; their sender should not settle them")
        self.parts.links.refills.pop(self, None)
        self.parts.links.waiting_for_space.pop(self, None)
        self.peer.late.pop(self, None)
        self.clear_parked()
        if self.growing is not None:
            self.growing.close()
            self.growing = None
