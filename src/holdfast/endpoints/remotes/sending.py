"""Messages for an address at a remote: a consumer of the address's queue that the node itself attaches.

Rules of this file: what the remote does not take is tried again after a wait, so that a remote that returns all of it
causes no endless traffic.
"""

from collections.abc import Sequence
from typing import Any, Final

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire.performatives import Accepted, Error, Modified, Rejected, Released, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.entries import annotate
from holdfast.broker.queue import Queue
from holdfast.endpoints.consumer import ConsumerLink, ConsumerParts
from holdfast.endpoints.remotes.kept_link import KeptLink, spelt_out
from holdfast.peers.peer import Peer

UNDELIVERABLE: Final = Symbol("holdfast:undeliverable-here")
"""The condition in the reason of a message that its remote declared undeliverable."""


class RemoteSender(ConsumerLink):
    """The link to one address, while it is attached."""

    def __init__(self, parts: ConsumerParts, peer: Peer, link: Sender, queue: Queue, kept: KeptLink) -> None:
        super().__init__(parts, peer, link, queue.shared, presettled=False)
        self._kept = kept

    @property
    def links_ended_max(self) -> int:
        return 0  # there is no other consumer that may take a larger message

    def delivery_of(self, sequence: int, value: bytes, delivery_count: int | None) -> tuple[Any, ...]:
        return annotate.for_remote(value, delivery_count, self.parts.clock.steady_ms)

    def will_want(self) -> int:
        return 0 if self._kept.rests else super().will_want()

    def take_all(self, sequences: Sequence[int], values: Sequence[bytes]) -> int:
        return 0  # each is examined for annotations

    def drain_if_idle(self) -> bool:
        if self._kept.rests and self.large is None and self.link.drain and not self.link.detached:
            self.link.drained()
            self.peer.touch()
            return True
        return super().drain_if_idle()

    def outcomes(self, contexts: list[Any], state: object, settled: bool, first: int, last: int) -> None:
        if isinstance(state, Modified) and state.undeliverable_here:  # and nobody else is there
            state = Rejected(Error(UNDELIVERABLE, "the remote says that it cannot deliver the message"))
        super().outcomes(contexts, state, settled, first, last)
        if isinstance(state, Accepted):
            self._kept.passed(len(contexts))
        elif isinstance(state, (Released, Modified)) or (settled and not isinstance(state, Rejected)):
            self._kept.wait("it returns messages")

    @property
    def must_stay(self) -> bool:
        return self.large is not None or self.parts.too_large.holds_any(self)

    def hand_back(self) -> None:
        return

    def leave(self) -> None:
        self.credited()

    def go_on(self) -> None:
        self.credited()

    def gone(self, unsettled: list[Any]) -> None:
        super().gone(unsettled)
        self._kept.ended()


class SendingLink(KeptLink):
    """The link to one address, which is called `far` there."""

    def __init__(self, parts: ConsumerParts, queue: Queue, far: str, resting: dict[KeptLink, None]) -> None:
        super().__init__(parts.clock, queue.name, resting)
        self._parts = parts
        self.queue = queue
        self._far = far

    @property
    def wants(self) -> bool:
        return self.queue.messages > 0

    @property
    def is_idle(self) -> bool:
        return not self.wants and not self.must_stay

    def begin(self, session: Session, name: str) -> Sender | Receiver:
        source, target = Source(address=spelt_out(self.name)), Target(address=self._far)
        return session.attach_sender(name, source, target, snd_settle_mode=0)

    def serve(self, peer: Peer) -> RemoteSender:
        assert isinstance(self.link, Sender)
        self.link.context = sender = RemoteSender(self._parts, peer, self.link, self.queue, self)
        sender.credited()
        return sender
