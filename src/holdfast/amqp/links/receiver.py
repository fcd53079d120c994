"""Receiver half of a link: the peer's deliveries, our credit. AMQP 1.0 §2.6.7, §2.6.12, §2.6.14.

Rules of this file: credit and settlement. amqp/session/transfers.py handles the peer's transfers, and
amqp/session/runs.py handles runs of similar ones; both count in the receiver what they handle.
"""

from typing import Any

from holdfast.amqp.effort import STEPS_FOR_ONE
from holdfast.amqp.links.frame_template import FrameTemplate
from holdfast.amqp.links.link import Link
from holdfast.amqp.links.partial import Partial
from holdfast.amqp.links.ports import IncomingPort
from holdfast.amqp.wire.performatives import Attach
from holdfast.errors import LocalProtocolError

_SERIAL = 0xFFFFFFFF


class Receiver(Link):
    """Our end receives. `credit`: granted deliveries that have not arrived yet. `stream_bytes`: a delivery with more
    bytes becomes DeliveryPart events instead of one Delivery, and so does any delivery of several frames while the
    connection's `partials` are at their bound. None: every delivery is one event.
    """

    __slots__ = (
        "_draining", "_lost_id", "allowance", "credit", "delivery_count", "lost_settled", "partial", "resumes_left",
        "size_max", "stream_bytes",
        "tells_begin", "template", "template_growing", "template_misses", "vital",
    )  # fmt: skip

    role = True
    session: IncomingPort

    def __init__(self, session: IncomingPort, name: str) -> None:
        super().__init__(session, name)
        self.credit = 0
        self.allowance = 0
        """Deliveries up to the highest limit ever granted: credit taken back may have been used already."""
        self.resumes_left = 0
        """The same of resumed deliveries where no others are allowed; then `allowance` is 0."""
        self.delivery_count: int | None = None
        self.partial: Partial | None = None
        """The delivery of which the last frame is still to come."""
        self._draining = False
        self._lost_id: int | None = None
        """The last of them."""
        self.lost_settled = 0
        """Deliveries that the peer had settled, and that arrived after our detach."""
        self.size_max = 0
        self.template: FrameTemplate | None = None
        """What its plain deliveries have in common on the wire (amqp/session/runs.py)."""
        self.template_growing: FrameTemplate | None = None
        """The same of a delivery of which further frames are to come."""
        self.template_misses = 0
        self.stream_bytes: int | None = None
        self.tells_begin = False
        """Whether `DeliveryBegun` events are produced."""
        self.vital = False
        """An unfinished delivery on this link is kept whatever the connection's other links hold: only `size_max`
        bounds it."""

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the link's credit, in deliveries from now on; 0 stops the peer, `drain` makes it use or return it."""
        if self.detach_sent or self.detached or not self.session.usable:
            return
        if not self.attach_sent:
            raise LocalProtocolError(f"link {self.name!r} is not accepted yet")
        self.credit = credit
        if self.local_attach is not None and self.local_attach.incomplete_unsettled:
            self.resumes_left = max(self.resumes_left, credit)
        elif credit > self.allowance:
            self.allowance = credit
        self._draining = drain
        self._flow()

    def settle(self, first: int, last: int, outcome: Any) -> None:
        """Settles this link's deliveries first..last with `outcome` (None: the source's default). Ids in the range that
        belong to other links, or are settled already, are ignored.
        """
        session = self.session
        owners = session.unsettled_in
        count = last - first + 1
        if 0 < count <= len(owners):
            numbers = range(first, last + 1)
            if list(map(owners.get, numbers)).count(self) == count:  # as most ranges are: all of them, and this link's
                if count == len(owners):
                    owners.clear()
                else:
                    for number in numbers:
                        del owners[number]
                session.write_disposition(True, first, last, True, outcome)
                return
        start = -1
        end = -1
        for delivery_id in session.ids_between(first, last, owners):
            owner = owners.get(delivery_id)
            if owner is self:
                del owners[delivery_id]
                if start < 0:
                    start = delivery_id
                end = delivery_id
            elif owner is not None and start >= 0:
                session.write_disposition(True, start, end, True, outcome)
                start = -1
        if start >= 0:
            session.write_disposition(True, start, end, True, outcome)

    def settle_unfinished(self, delivery_id: int, outcome: Any) -> None:
        """Settles a delivery whose last frame has not arrived, so that its sender may abort it. Does nothing if that
        frame has arrived. Later frames of the delivery are ignored, and there is no event at its end."""
        partial = self.partial
        if partial is None or partial.delivery_id != delivery_id or partial.passed_over or self.detach_sent:
            return
        self.session.connection.release_parts(partial.kept_bytes, partial.held_bytes)
        partial.held_bytes = 0
        partial.parts.clear()
        partial.kept_bytes = 0
        partial.passed_over = True
        if not partial.settled:
            self.session.write_disposition(True, partial.delivery_id, partial.delivery_id, True, outcome)

    # ------------------------------------------------------------------------------------- for the session

    def _flow(self) -> None:
        self.session.write_flow(self.handle, self.delivery_count, self.credit, self._draining)

    def on_flow(self, delivery_count: int | None, link_credit: int | None, drain: bool, echo: bool) -> bool:
        """The peer's flow as sender, which may have used up its credit (drain). True: all credit is used up, as we
        asked, and the event Drained follows."""
        if self.detach_sent:
            return False
        if delivery_count is not None and self.delivery_count is not None:
            ahead = (delivery_count - self.delivery_count) & _SERIAL
            if 0 < ahead <= max(self.allowance, self.resumes_left):
                self.delivery_count = delivery_count
                self.allowance = max(0, self.allowance - ahead)
                self.resumes_left = max(0, self.resumes_left - ahead)
                self.credit = max(0, self.credit - ahead)
        drained = self._draining and drain and self.credit == 0
        if drained:
            self._draining = False
        if echo and self.attach_sent:
            self._flow()
        return drained

    def took(self, count: int) -> None:
        """So many deliveries arrived within the credit."""
        self.allowance -= count
        self.credit = max(0, self.credit - count)
        if self.delivery_count is not None:
            self.delivery_count = (self.delivery_count + count) & _SERIAL

    def passed_over(self, delivery_id: int | None, *, settled: bool) -> None:
        """A transfer frame arrived after our detach."""
        if settled and delivery_id is not None and delivery_id != self._lost_id:
            self._lost_id = delivery_id
            self.lost_settled += 1

    def _attached(self, attach: Attach) -> None:
        self.size_max = attach.max_message_size or self.session.connection.settings.max_message_size

    def on_attach(self, attach: Attach) -> None:
        """The peer's attach, new or in answer to ours; a sender's initial count may be anything."""
        self.remote_attach = attach
        self.delivery_count = attach.initial_delivery_count or 0
        self.refused = self.attach_sent and attach.source is None

    def forget_partial(self) -> None:
        """The unfinished delivery is complete, or was aborted."""
        partial = self.partial
        if partial is not None:
            self.session.connection.release_parts(partial.kept_bytes, partial.held_bytes)
            self.partial = None

    def stop(self) -> None:
        self.credit = 0
        self.forget_partial()

    def _take_unsettled(self) -> list[Any]:
        owners = self.session.unsettled_in
        if owners:  # it may own few of many
            self.session.connection.charge(len(owners) // STEPS_FOR_ONE)
            for delivery_id in [number for number, owner in owners.items() if owner is self]:
                del owners[delivery_id]
        return []
