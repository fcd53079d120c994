"""Messages fetched from an address at a remote: a producer whose link the node itself attaches.

Rules of this file: a message is accepted once it is on disk here. What finds no room is released, not rejected: the
remote keeps it. Settled messages of a remote that was asked for unsettled ones wait here, also where a full queue
refuses. They keep their link until they are stored, and until none can be under way.
"""

from typing import Any, Final

from holdfast.access.actions import SEND
from holdfast.amqp.connection import Deliveries, Delivery, DeliveryPart, Receiver, Sender
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import TRY_LATER
from holdfast.amqp.wire.performatives import Accepted, Rejected, Released, Source, Target
from holdfast.broker.entries.host_names import DEFAULT_HOST
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.addresses.resolver import ResolvedAddress
from holdfast.endpoints.producer import ProducerLink, ProducerParts
from holdfast.endpoints.remotes.kept_link import LEAVE_S, KeptLink, spelt_out
from holdfast.links.incoming import Intake
from holdfast.links.large_receives import Stream
from holdfast.peers.peer import Peer
from holdfast.settings.remotes import Fetch

SETTLED: Final = 1
"""The settle mode of a sender that does not wait for outcomes (AMQP 1.0 §2.8.2)."""

IDLE_S: Final = 5.0
"""A link on which nothing has come for so long is idle."""

NO_ROOM: Final = "there is no room here for what it sends"
"""Why a link rests."""

UNANSWERED_S: Final = 3.0
"""How long a link that is to leave its slot waits for the answer to a drain where the last one had none within LEAVE_S,
as at some brokers. Then it leaves, unless the remote has settled a message on it: an unsettled one that arrives too
late is sent again."""

UNDRAINED: Final = "it keeps its slot: the remote settles messages, and has not answered the last drain"
"""Why a link does not leave."""


class RemoteReceiver(ProducerLink):
    """The link from one address, while it is attached."""

    def __init__(
        self, parts: ProducerParts, peer: Peer, link: Receiver, found: ResolvedAddress, kept: "FetchingLink"
    ) -> None:
        super().__init__(
            parts, peer, link, found.queue, destination=found.destination, to=found.to, unknown=found.unknown,
            subject=found.subject,
        )  # fmt: skip
        self._kept = kept
        self._answered = False
        """The delivery that is being taken got its outcome at once, and is not stored."""
        self._is_drained = False
        """The remote has answered the drain, and sends nothing more."""
        self._left_at = 0.0
        """When it was last to leave its slot."""

    def refill(self) -> None:
        if not self._kept.rests:
            super().refill()
        elif not self._kept.leaving:
            self.stop()
        elif self._kept.due_at is None:  # what has come before it leaves its slot is stored if there is room
            self.take_parked()

    def delivered(self, delivery: Delivery) -> None:
        self._kept.settles |= delivery.settled
        super().delivered(delivery)

    def part(self, part: DeliveryPart) -> None:
        self._kept.settles |= part.settled
        super().part(part)

    def delivered_all(self, run: Deliveries) -> None:
        if run.settled:
            self._kept.settles = True
            Intake.delivered_all(self, run)  # one by one, because each that is taken counts
        else:
            super().delivered_all(run)

    def take(self, delivery: Delivery, *, large: Stream | None) -> bool:
        self._answered = False
        taken = super().take(delivery, large=large)
        if taken and delivery.settled and not self._answered:
            self._kept.passed(1)
        return taken

    def _answer(self, delivery: Delivery, outcome: object) -> bool:
        if delivery.settled and _tries_later(outcome):
            self._kept.wait(NO_ROOM)
            return False  # it waits here, because the remote does not send it again
        self._answered = True
        return super()._answer(delivery, outcome)

    def settle_one(self, delivery_id: int, settled: bool, outcome: object) -> None:
        if settled and isinstance(outcome, Rejected):
            if _tries_later(outcome):
                self._kept.wait(NO_ROOM)
            why = "it is refused" if outcome.error is None else outcome.error.text
            text = f"a settled message is lost: {why}; the remote should not settle it"
            self.peer.log("WARNING", f"link {self.link.name}: {text}")
        super().settle_one(delivery_id, settled, outcome)

    def settle(self, deliveries: list[int], outcome: object) -> None:
        if _tries_later(outcome):
            self._kept.wait(NO_ROOM)
            outcome = Released()
        elif isinstance(outcome, Accepted):
            self._kept.passed(len(deliveries))
        super().settle(deliveries, outcome)

    @property
    def must_stay(self) -> bool:
        return self._is_busy or (self._kept.leaving and self._may_come)

    @property
    def is_undrained(self) -> bool:
        """Whether it must stay only because the remote has not answered the drain."""
        return not self._is_busy and self._may_come

    @property
    def _may_come(self) -> bool:
        """Whether a message may be under way that would be lost with the link: the remote has not answered the drain
        yet, and may have sent something with the credit that it had."""
        if self._is_drained or not self.link.allowance:
            return False
        wait_s = LEAVE_S if self._kept.answers_drains else UNANSWERED_S
        return self._kept.settles or self.parts.clock.now < self._left_at + wait_s

    @property
    def _is_busy(self) -> bool:
        link = self.link
        if self.growing is not None or link.partial is not None or self.parked_settled:
            return True  # what the remote has settled it does not send again
        return sum(owner is link for owner in link.session.unsettled_in.values()) > len(self.parked)

    def hand_back(self) -> None:
        self._kept.answers_drains = self._is_drained or not self.link.allowance
        self.settle(self.clear_parked(), Released())

    def leave(self) -> None:
        """Has the remote use up or return the credit that it has: once it has answered, nothing more is under way."""
        self._is_drained = False
        self._left_at = self.parts.clock.now
        if self.link.attached and self.link.allowance:
            self.link.grant(self.link.credit, drain=True)
            self.peer.touch()
        self.go_on()

    def drained(self) -> None:
        self._is_drained = True
        self._kept.drained()
        self.go_on()

    def go_on(self) -> None:
        self.parts.links.refills[self] = None

    def forget(self) -> None:
        self.link.context = None
        self.gone()

    def gone(self) -> None:
        super().gone()
        self._kept.ended()


class FetchingLink(KeptLink):
    """The link from one address to one address here."""

    def __init__(self, parts: ProducerParts, fetch: Fetch, resting: dict[KeptLink, None]) -> None:
        super().__init__(parts.clock, f"{fetch.source} to {fetch.target}", resting)
        self._parts = parts
        self._fetch = fetch
        self.settles = False
        """The remote has settled a message that it sent."""
        self.answers_drains = True
        """Whether it has answered the last one, as far as there was one."""

    @property
    def wants(self) -> bool:
        return True  # only the remote knows

    @property
    def is_idle(self) -> bool:
        return not self.must_stay and self.clock.now >= max(self.turn_since, self.passed_at) + IDLE_S

    def could_not_leave(self) -> None:
        if isinstance(self.serving, RemoteReceiver) and self.serving.is_undrained:
            self._report(UNDRAINED)

    def drained(self) -> None:
        """The remote has answered a drain."""
        if self.reason == UNDRAINED:
            self.reason = ""

    def begin(self, session: Session, name: str) -> Sender | Receiver:
        source, target = Source(address=self._fetch.source), Target(address=spelt_out(self._fetch.target))
        return session.attach_receiver(name, source, target, snd_settle_mode=0)

    def serve(self, peer: Peer) -> RemoteReceiver:
        assert isinstance(self.link, Receiver) and self.link.remote_attach is not None
        if self.link.remote_attach.snd_settle_mode == SETTLED:
            text = "the remote only sends settled messages, which would be lost where there is no room for them"
            raise Refusal(conditions.NOT_IMPLEMENTED, text)
        resolver = self._parts.resolver
        meant = resolver.target_of(self._fetch.target, DEFAULT_HOST)
        resolver.permit(peer, SEND, meant)
        found = resolver.resolve(meant)
        resolver.admit(found.queue, found.destination)
        self.link.context = receiver = RemoteReceiver(self._parts, peer, self.link, found, self)
        receiver.refill()
        return receiver


def _tries_later(outcome: Any) -> bool:
    """Whether the same message may be accepted later."""
    error = outcome.error if isinstance(outcome, Rejected) else None
    return error is not None and bool((error.info or {}).get(TRY_LATER))
