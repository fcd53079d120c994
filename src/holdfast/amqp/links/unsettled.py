"""The deliveries that a link has sent and that have no outcome yet: their ids, tags and contexts.

Rules of this file: a delivery gets the session's next delivery-id, and its tag follows from that; resumed deliveries
keep their tags. Counts are 32-bit serial numbers (RFC 1982). AMQP 1.0 §2.6.12, §2.6.13.
"""

from typing import Any, Final

from holdfast.amqp.links.link import Link
from holdfast.amqp.links.ports import OutgoingPort

SERIAL: Final = 0xFFFFFFFF


class UnsettledDeliveries(Link):
    """Base of Sender."""

    __slots__ = ("_counters", "_delivery_count", "_owners", "_resumed", "_tag_offset", "suspended", "unsettled")

    session: OutgoingPort

    def __init__(self, session: OutgoingPort, name: str) -> None:
        super().__init__(session, name)
        self.unsettled: dict[int, Any] = {}
        """delivery-id → context, in the order sent."""
        self.suspended: dict[bytes, Any] = {}
        """What `unsettled_tags` was when the link ended, if its tags may be resumed (`Sender.use_tags`)."""
        self._tag_offset = -1
        self._resumed: dict[int, bytes] = {}
        self._delivery_count = 0
        # The session's own objects, one step nearer to the hot path.
        self._counters = session.outgoing
        self._owners = session.unsettled_out

    def take_run(self, first: int, last: int) -> list[Any]:
        """Removes first..last and returns their contexts, if all of them are this link's; otherwise does nothing."""
        unsettled = self.unsettled
        if last - first >= len(unsettled):
            return []
        numbers = range(first, last + 1)
        try:
            contexts = [unsettled[number] for number in numbers]
        except KeyError:
            return []
        owners = self._owners
        for number in numbers:
            del unsettled[number], owners[number]
        return contexts

    @property
    def next_tag(self) -> int:
        """A tag that this link has not used, nor any above it (serial)."""
        return (self._counters.next_delivery_id + max(0, self._tag_offset)) & SERIAL

    def tag_of(self, delivery_id: int) -> bytes:
        """The tag of a delivery of this session."""
        resumed = self._resumed.get(delivery_id)
        return resumed if resumed is not None else ((delivery_id + max(0, self._tag_offset)) & SERIAL).to_bytes(4)

    def unsettled_tags(self) -> dict[bytes, Any]:
        """Tag → context of the deliveries without an outcome, in the order in which they were sent."""
        return {self.tag_of(number): context for number, context in self.unsettled.items() if number >= 0}

    def settle(self, first: int, last: int, state: Any) -> None:
        """Settle first..last from our side (rcv-settle-mode second), as `Outcomes` named them."""
        if self.detach_sent or self.over:
            return
        unsettled, owners = self.unsettled, self._owners
        for delivery_id in self.session.ids_between(first, last, unsettled):
            if unsettled.pop(delivery_id, self) is not self:
                del owners[delivery_id]
        self.session.write_disposition(False, first, last, True, state)

    # ------------------------------------------------------------------------------------- for the session

    def forget_delivery(self, delivery_id: int) -> None:
        """Forgets a delivery that was settled, so that no outcome will arrive. Does nothing if the outcome has
        arrived."""
        if self.unsettled.pop(delivery_id, self) is not self:
            del self._owners[delivery_id]

    def renumber(self, old: int, new: int) -> None:
        """A delivery of the backlog gets a lower id, because others before it were dropped."""
        if old in self.unsettled:
            self.unsettled[new] = self.unsettled.pop(old)
            del self._owners[old]
            self._owners[new] = self
        if old in self._resumed:
            self._resumed[new] = self._resumed.pop(old)

    def unnumber(self, delivery_id: int) -> None:
        """A delivery of the backlog is dropped: its context keeps its place in the order, under a key that no delivery
        has."""
        self._owners.pop(delivery_id, None)
        if delivery_id in self.unsettled:
            self.unsettled[-1 - delivery_id] = self.unsettled.pop(delivery_id)

    def _number(self, context: Any, settled: bool) -> int:
        """The delivery-id of a new delivery, whose outcome comes back with `context` unless it is settled."""
        self._delivery_count = (self._delivery_count + 1) & SERIAL
        counters = self._counters
        delivery_id = counters.next_delivery_id
        counters.next_delivery_id = (delivery_id + 1) & SERIAL
        if not settled:
            self.unsettled[delivery_id] = context
            self._owners[delivery_id] = self
        return delivery_id

    def _take_unsettled(self) -> list[Any]:
        if self._tag_offset >= 0:
            self.suspended = self.unsettled_tags()
        contexts = list(self.unsettled.values())
        owners = self._owners
        if owners:
            for delivery_id in self.unsettled:
                owners.pop(delivery_id, None)
        self.unsettled.clear()
        return contexts
