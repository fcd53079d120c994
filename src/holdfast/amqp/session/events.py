"""The events of a connection.

Rules of this file: events are in the past tense, complete when created, and in the order of the wire. Those of the hot
path (Delivery, Outcomes) are named tuples, because one is made for each delivery; the rest are frozen.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.amqp.links.link import Link
from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire.performatives import Error, Open


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer's open arrived; ours was sent."""

    open: Open


@dataclass(frozen=True, slots=True)
class SessionBegun:
    """Both sides have sent begin. `remote_initiated`: the peer was first."""

    session: Session
    remote_initiated: bool


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session has ended; a LinkDetached for each of its links came before."""

    session: Session
    error: Error | None


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer's attach came. `remote_initiated`: answer it with accept() or refuse(). Otherwise it answers our attach;
    see `Link.refused`."""

    link: Link
    remote_initiated: bool


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The link has ended; comes once for each link. `error` is the peer's, or ours if we detached it for a fault.

    `unsettled`: contexts of our deliveries without an outcome, in the order in which they were sent.
    """

    link: Link
    closed: bool
    error: Error | None
    unsettled: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The credit of our sending end changed, or it has to drain."""

    link: Sender


@dataclass(frozen=True, slots=True)
class Drained:
    """The peer has used up or returned the credit, as our drain asked."""

    link: Receiver


class Delivery(NamedTuple):
    """A complete delivery; `payload` is all its frames', joined. Settle it unless `settled`.

    `resume`: it goes on with what `tag` named on this link before (§2.6.13); `state` says where `payload` begins,
    or, where it is empty, what became of it.
    """

    link: Receiver
    delivery_id: int
    tag: bytes
    message_format: int
    settled: bool
    payload: bytes
    state: Any
    rcv_settle_mode: int | None
    resume: bool = False


@dataclass(frozen=True, slots=True)
class ResumeAborted:
    """The peer cannot resume the delivery `tag` of an earlier session: it counts as settled and not delivered."""

    link: Receiver
    tag: bytes


class Deliveries(NamedTuple):
    """Complete deliveries with consecutive ids from `first_id` on, one for each of `payloads`, instead of as many
    Delivery events; only with Settings.runs. It has no tags and states.
    """

    link: Receiver
    first_id: int
    payloads: list[bytes]
    message_format: int
    settled: bool


class DeliveryBegun(NamedTuple):
    """The first frame of a delivery of several frames arrived, with `payload`; only on links with `tells_begin`, as the
    first event of the delivery. `Receiver.settle_unfinished` refuses the delivery."""

    link: Receiver
    delivery_id: int
    payload: bytes


class DeliveryPart(NamedTuple):
    """A part of a delivery that grew past its link's `stream_bytes`; parts of one link come in order, uninterrupted.

    `first` and `last` mark the first and the last part; `settled` is valid with the last. Settle it, unless `settled`,
    after the last part.
    """

    link: Receiver
    delivery_id: int
    message_format: int
    settled: bool
    payload: bytes
    first: bool
    last: bool
    tag: bytes = b""
    resume: bool = False
    """As in Delivery."""
    state: Any = None
    """As in Delivery; set in the last part."""


@dataclass(frozen=True, slots=True)
class DeliveryAborted:
    """The peer aborted a delivery of which it had sent some frames, perhaps before any part was handed on. It counts as
    settled and not delivered, but it has used credit (§2.6.14)."""

    link: Receiver
    delivery_id: int


class Outcomes(NamedTuple):
    """The peer's state for our deliveries first..last, all of one link; `contexts` in order.

    `settled` False: the peer waits for `link.settle(first, last, state)` (rcv-settle-mode second).
    """

    link: Sender
    contexts: list[Any]
    state: Any
    settled: bool
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ReceiverSettled:
    """The peer settled deliveries that it had sent us."""

    link: Receiver
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection was closed by both sides, or was lost; a SessionEnded for every session came before."""

    error: Error | None


@dataclass(frozen=True, slots=True)
class ProtocolFailed:
    """We closed because of an error of the peer; a SessionEnded for every session came before."""

    error: Error


ConnEvent = (
    Opened | SessionBegun | SessionEnded | LinkAttached | LinkDetached | CreditChanged | Drained | Delivery | Deliveries
    | DeliveryBegun | DeliveryPart | DeliveryAborted | Outcomes | ReceiverSettled | ResumeAborted | ConnectionClosed
    | ProtocolFailed
)  # fmt: skip
