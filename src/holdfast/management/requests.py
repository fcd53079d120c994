"""The links of `$management`: requests come in, answers go out (AMQP Management, request and response).

Rules of this file: a request is carried out when its turn comes, not when it arrives, because it may cost more than ten
thousand frames. Connections take turns, and one that does not read its answers gets no more of them. An accepted
request is never dropped: waiting requests are bounded by the credit of their link, by `connection_request_bytes_max`,
by `output_bytes_max`, and by the node's memory (peers/limits/memory.py). A request counts from its arrival until it is
answered.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.access.actions import NODE
from holdfast.amqp.connection import Delivery, DeliveryPart, Receiver, Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error, Properties
from holdfast.amqp.wire.types import MISSING, Int, Symbol
from holdfast.broker.entries.host_names import shown
from holdfast.engine.effects import Effect
from holdfast.entity_types import MANAGEMENT
from holdfast.errors import RemoteProtocolError
from holdfast.links.ingress import ACCEPTED, NODE_MESSAGE_BYTES_MAX, Ingress, rejection
from holdfast.links.outgoing import Egress, too_large
from holdfast.management.operations.answers import Answer, Later
from holdfast.management.operations.dispatch import Management
from holdfast.names import NAME_BYTES_MAX
from holdfast.peers.limits.memory import REPLY_BYTES, REQUEST_BYTES, Memory
from holdfast.peers.link_tables import LinkTables
from holdfast.peers.peer import Peer, Requesting
from holdfast.peers.users import Users
from holdfast.settings.limits import Limits
from holdfast.state.turns import Turns

BACK_BYTES_MAX: Final = 4_096
"""What a request says of its answer, where to and which, encoded: it is kept until that is sent."""

NAMES: Final = ("type", "operation", "name", "identity")
NAMING: Final = (*NAMES, "locales", "securityToken")
"""Application properties of a request that are none of its arguments."""

FORBIDDEN: Final = 403
NOT_FOUND_OR_CONFLICT: Final = frozenset((404, 409))
"""These wait for changes that are not on disk yet; otherwise a client learns that a name is gone that is back after a
crash."""

COST_MAX: Final = 1_000
"""What requests may cost in one turn, in queues and links looked at; the last one of a turn may go beyond."""


@dataclass(frozen=True, slots=True)
class RequestParts:
    """What the links of `$management` share."""

    limits: Limits
    memory: Memory
    users: Users
    links: LinkTables
    turns: Turns
    management: Management


class ReplyLink(Egress):
    """A client's receiver on `$management`; its target address is the `reply-to` of requests."""

    def __init__(self, parts: RequestParts, peer: Peer, link: Sender, reply_to: str) -> None:
        super().__init__(peer, link)
        self.parts = parts
        self.reply_to = reply_to
        self.waiting: deque[bytes] = deque()
        parts.links.reply_links[peer, reply_to] = self

    def reply(self, payload: bytes) -> None:
        if self.link.detached:
            return
        self.parts.memory.requests.add(len(payload))
        self.peer.reply_bytes += len(payload)
        self.waiting.append(payload)
        self.credited()

    def credited(self) -> None:
        link, peer = self.link, self.peer
        while self.waiting and not link.detached and peer.writable and link.sendable:
            payload = self.waiting[0]
            self._count_off(len(payload))
            del self.waiting[0]
            if too_large(link, (payload,)):
                error = Error(Symbol(conditions.MESSAGE_SIZE_EXCEEDED), "the answer is larger than this link takes")
                link.detach(closed=True, error=error)
            else:
                link.send(payload, context=None, settled=True)
            peer.touch()
        if link.drain and not link.detached:
            link.drained()
            peer.touch()
        self._go_on()

    def _count_off(self, size: int) -> None:
        self.parts.memory.requests.refund(size)
        self.peer.reply_bytes -= size

    def _go_on(self) -> None:
        if self.peer.reply_bytes < self.parts.limits.output_bytes_max:
            self.parts.links.requests.update(self.peer.stalled)
            self.peer.stalled.clear()

    def gone(self, unsettled: list[Any]) -> None:
        self._count_off(sum(len(payload) for payload in self.waiting))
        self.waiting.clear()
        if self.parts.links.reply_links.get((self.peer, self.reply_to)) is self:
            del self.parts.links.reply_links[self.peer, self.reply_to]
        self._go_on()


class RequestLink(Ingress, Requesting):
    """A client's sender to `$management`."""

    def __init__(self, parts: RequestParts, peer: Peer, link: Receiver, *, grants: bool = True) -> None:
        """`grants`: the link only has requests, and its credit bounds them; otherwise too many are rejected."""
        super().__init__(peer, link)
        self.parts = parts
        if grants:
            link.stream_bytes = max(parts.limits.stream_bytes, NODE_MESSAGE_BYTES_MAX)
        self.waiting: deque[Delivery] = deque()
        self.serving: Asked | None = None
        """What is being answered now."""
        self.grants = grants

    def delivered(self, delivery: Delivery) -> None:
        if (delivery.state is not None or not delivery.payload) and self.refuse_unusable(delivery):
            self._renew()
            return
        limits = self.parts.limits
        size = REQUEST_BYTES + len(delivery.payload)
        text = None
        if len(self.waiting) >= limits.requests_max or len(delivery.payload) > limits.request_bytes_max:
            text = (
                f"too many or too large requests; the limit is {limits.requests_max} at a time (requests_max), of "
                f"{limits.request_bytes_max} bytes each (request_bytes_max)"
            )
        elif self.peer.request_bytes + size > limits.connection_request_bytes_max:
            most = f"{limits.connection_request_bytes_max} bytes together (connection_request_bytes_max)"
            text = f"too many unanswered requests; the limit is {most}"
        elif not self.parts.memory.admits(self.peer, size):
            text = "the node's memory is used up; try again later"
        if text is not None:
            if not delivery.settled:
                self.settle([delivery.delivery_id], rejection(conditions.RESOURCE_LIMIT_EXCEEDED, text))
            self._renew()
            return
        self.count(size)
        self.waiting.append(delivery)
        if self not in self.parts.users.waiting and self not in self.peer.stalled:
            self.parts.links.requests[self] = None

    def part(self, part: DeliveryPart) -> None:
        super().part(part)
        if part.last:
            self._renew()

    def aborted(self) -> None:
        self._renew()

    def count(self, size: int) -> None:
        requests = self.parts.memory.requests
        requests.hold(requests.held + size)
        self.peer.request_bytes += size

    def gone(self) -> None:
        self.count(-sum([REQUEST_BYTES + len(delivery.payload) for delivery in self.waiting]))
        self.waiting.clear()
        if self.serving is not None:
            self.serving.counts(0)
        self.parts.links.requests.pop(self, None)
        self.parts.users.forget(self)
        self.peer.stalled.pop(self, None)

    def serve_one(self) -> int:
        """Carries out the oldest request; returns the cost."""
        delivery = self.waiting[0]  # it waits, and counts, until it is answered or continues later
        size = REQUEST_BYTES + len(delivery.payload)
        outcome: object = ACCEPTED
        cost = 1
        try:
            cost = self._request(delivery, Message.decode(delivery.payload), size) + size // 4096
        except RemoteProtocolError as error:
            outcome = rejection(error.condition, error.description)
            if self.waiting and self.waiting[0] is delivery:
                self.count(-size)
                del self.waiting[0]
        if not delivery.settled:
            self.settle([delivery.delivery_id], outcome)
        self._renew()
        return cost

    def _renew(self) -> None:
        limit = self.parts.limits.requests_max
        if self.grants and len(self.waiting) <= limit // 2:
            self.top_up(limit - len(self.waiting))

    def _request(self, delivery: Delivery, message: Message, size: int) -> int:
        """Carries it out and answers it, perhaps in a later turn: `size` is counted until then. Returns the cost."""
        reply_to, back = _way_back(message.properties or Properties())
        if reply_to is not None and (self.peer, reply_to) not in self.parts.links.reply_links:
            text = f"no receiver of this connection has source $management and target {reply_to[:NAME_BYTES_MAX]!r}"
            raise RemoteProtocolError(conditions.NOT_FOUND, f"{text}, for the answer; attach one first")
        asked = Asked(self, reply_to, back, size)
        told = {str(key): value for key, value in (message.application_properties or {}).items()}
        body = message.value
        arguments = {str(key): value for key, value in body.items()} if isinstance(body, dict) else {}
        kind, operation, name, identity = (str(told.get(key) or "") for key in NAMES)
        name = name or identity
        if kind == MANAGEMENT:  # requests to the node itself have their arguments outside the body
            arguments = {key: value for key, value in told.items() if key not in NAMING} | arguments
        management = self.parts.management
        asked.in_memory = management.is_in_memory(kind, operation)
        cost = management.cost_of(self.peer.host, kind, operation, name, arguments)
        who = self.peer.who
        malformed = _malformed(told, message)
        answer = malformed or management.carry_out(who, self.peer.host, kind, operation, name, arguments)
        if self.peer.audit is not None and isinstance(answer, Answer) and answer.status == FORBIDDEN:
            self.peer.audit.refused(self.peer, f"{kind} {operation}", name or NODE)
        asked.log_line = management.log_line(kind, operation, name, arguments)
        if self.waiting and self.waiting[0] is delivery:
            self.serving = asked
            del self.waiting[0]
        else:  # the link has ended, and waiting requests are not counted any more
            asked.size = 0
        if isinstance(answer, Later):
            answer.asked = asked
        else:
            asked.answer(answer)
        self.serving = None
        return cost


@dataclass(slots=True)
class Asked:
    """A request that was carried out, and will be answered; `size`: the bytes that it counts until then. `back`: the
    answer's properties, encoded. `log_line`: what was changed. It may wait long, so nothing of the decoded request is
    kept, which may be much larger than its bytes."""

    link: RequestLink
    reply_to: str | None
    back: bytes
    size: int
    log_line: Callable[[Answer], str | None] = lambda answer: None
    in_memory: bool = False
    """Whether what it is about has no stored state: it can be closed while the disk does not answer."""

    @property
    def peer(self) -> Peer:
        return self.link.peer

    def answer(self, answer: Answer) -> None:
        parts, peer = self.link.parts, self.link.peer
        reply = (
            self.back
            + Message(
                application_properties={"statusCode": Int(answer.status), "statusDescription": answer.description}
                | ({} if answer.rows is None else {"count": Int(answer.rows)}),
                value=answer.body,
            ).encode()
        )
        link = None if self.reply_to is None else parts.links.reply_links.get((peer, self.reply_to))
        says_what_is_there = answer.status in NOT_FOUND_OR_CONFLICT and not self.in_memory
        waits = answer.stored or (says_what_is_there and parts.turns.has_changes)
        changed = self.log_line(answer)
        if changed is not None and answer.stored:
            parts.turns.gathered.then.append(LogChange(parts.turns.event, peer.number, changed, peer))
        elif changed is not None:
            _log(peer, changed)
        if link is None or not waits:
            self.counts(0)
            if link is not None:
                link.reply(reply)
            return

        self.counts(len(reply))
        effect = SendAnswer(parts.turns.event, peer.number, link.reply_to, answer.status, link, self, reply)
        parts.turns.gathered.then.append(effect)

    def counts(self, size: int) -> None:
        self.link.count(size - self.size)
        self.size = size


@dataclass(frozen=True, slots=True, eq=False)
class LogChange(Effect):
    """Logs what a request changed."""

    connection: int
    changed: str
    peer: Peer = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class SendAnswer(Effect):
    """Sends the answer to a request. `reply`: the message, encoded."""

    connection: int
    reply_to: str
    status: int
    link: ReplyLink = field(repr=False)
    asked: Asked = field(repr=False)
    reply: bytes = field(repr=False)


def _log_change(effect: LogChange) -> None:
    _log(effect.peer, effect.changed)


def _send_answer(effect: SendAnswer) -> None:
    effect.asked.counts(0)
    effect.link.reply(effect.reply)


def _malformed(told: dict[str, Any], message: Message) -> Answer | None:
    """The answer to a request whose names are no strings, or whose arguments are no map: to leave these out would carry
    out another request."""
    for key in NAMES:
        if not isinstance(told.get(key), str | None):
            return Answer(400, f"invalid {key} of a request; expected a string", {})
    body = None if message.value is MISSING else message.value
    if not isinstance(body, dict) and (body or message.sequences or any(message.data or ())):
        return Answer(400, "invalid body of a request; expected a map as amqp-value, or none", {})
    return None


def _way_back(properties: Properties) -> tuple[str | None, bytes]:
    """The address for the answer to a request with these properties, None for no answer, and the answer's properties,
    encoded. RemoteProtocolError if the address is not a string, or if both are too large."""
    reply_to = properties.reply_to
    back = properties.message_id if properties.correlation_id is None else properties.correlation_id
    if not isinstance(reply_to, str | None):
        raise RemoteProtocolError(conditions.INVALID_FIELD, "invalid reply-to of a request; expected a string")
    encoded = Message(properties=Properties(to=reply_to, correlation_id=back)).encode()
    if len(encoded) > BACK_BYTES_MAX:
        text = f"reply-to and correlation-id of a request have {len(encoded)} bytes; the limit is {BACK_BYTES_MAX}"
        raise RemoteProtocolError(conditions.INVALID_FIELD, text)
    return reply_to, encoded


def _log(peer: Peer, changed: str) -> None:
    user = peer.who
    by = "without a login" if user is None else f"by user {shown(peer.host, user)}"
    peer.log("INFO", f"{changed} ({by})")
    if peer.audit is not None:
        peer.audit.changed(peer, changed)


class Run(Protocol):
    """Runs work on behalf of no single connection: if it fails, that part of the node is paused. `gathers`: whether the
    work may add anything to the turn."""

    def __call__(self, part: object, work: Callable[[], None], *, gathers: bool) -> None: ...


class Requests:
    """Creates the links of `$management`, and carries out their requests."""

    def __init__(self, parts: RequestParts, run: Run) -> None:
        self._parts = parts
        self._run = run
        parts.turns.effects.on(LogChange, _log_change)
        parts.turns.effects.on(SendAnswer, _send_answer)

    def request_link(self, peer: Peer, link: Receiver, *, grants: bool = True) -> RequestLink:
        """Creates the handler of a link that has only requests (`grants`), or other messages too."""
        return RequestLink(self._parts, peer, link, grants=grants)

    def reply_link(self, peer: Peer, link: Sender, reply_to: str) -> ReplyLink:
        """Creates the handler of a link for answers to that `reply-to`."""
        return ReplyLink(self._parts, peer, link, reply_to)

    def serve(self) -> None:
        """Carries out one turn's share of the waiting requests: one of each link in turn, until `COST_MAX` is used
        up."""
        parts = self._parts
        memory, waiting = parts.memory, parts.links.requests
        # before any request that needs it, so that a failure here does not belong to its sender
        self._run(memory, memory.measure_changed, gathers=False)
        left = COST_MAX
        while waiting and left > 0:
            link = next(iter(waiting))
            del waiting[link]
            peer = link.peer
            if peer.reply_bytes >= parts.limits.output_bytes_max:
                peer.stalled[link] = None
            elif not memory.admits(peer, REPLY_BYTES):
                peer.stalled[link] = None
                memory.stalled[peer] = None
            elif parts.users.admit_request(link):
                left -= link.serve_one()
                if link.waiting:
                    waiting[link] = None
                continue
            left -= 1  # it waits elsewhere; looking at it has a cost, too
