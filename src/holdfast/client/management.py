"""Requests to a node and its responses: AMQP Management over links to `$management`.

Rules of this file: one pair of links for a connection; a response names its request by correlation-id. A request that a
break left unanswered is sent again if a second one changes nothing more; any other one that was sent ends in doubt.
Source: AMQP Management 1.0 working draft 16, §3.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from holdfast.amqp.links.link import Link as EngineLink
from holdfast.amqp.links.receiver import Receiver as EngineReceiver
from holdfast.amqp.links.sender import Sender as EngineSender
from holdfast.amqp.message.message import Message
from holdfast.amqp.session.events import Delivery, LinkDetached, Outcomes
from holdfast.amqp.session.session import Session
from holdfast.amqp.wire.performatives import Accepted, Properties, Source, Target
from holdfast.client.errors import ConnectionFailed, ManagementError, RequestInDoubt
from holdfast.client.link import IGNORE, ClientLink, LinkHost
from holdfast.client.outcomes import Accepted as AcceptedOutcome
from holdfast.client.outcomes import Outcome, from_state, too_large
from holdfast.client.outcomes import Rejected as RejectedOutcome
from holdfast.errors import RemoteProtocolError
from holdfast.units import written

ADDRESS = "$management"
CREDIT = 100
"""Responses that may be outstanding; further requests wait here."""

OURS: Final = "holdfast:"
"""What Holdfast's own types begin with."""
READ: Final = frozenset(
    (
        "GAPS", "GET-ATTRIBUTES", "GET-MGMT-NODES", "GET-OPERATIONS", "GET-TYPES", "NETWORK", "PEEK", "QUERY", "READ",
        "STATUS", "TREE", "WHERE",
    )
)  # fmt: skip
"""Operations that change nothing."""
SET: Final = frozenset(("ADVANCE", "CREATE", "DRAIN", "OPEN", "RELOAD", "RESUME", "START", "STOP", "UPDATE"))
"""Operations of Holdfast's types that say how something is to be: a second one finds it so. All others do something
that a second one would do to something else, or not find any more."""

UNKNOWN: Final = "the node may have carried it out or not: look before you ask again"


def is_repeatable(operation: str, type: str) -> bool:
    """Whether a request of which nobody knows if it was carried out may be sent again."""
    return operation in READ or (operation in SET and type.startswith(OURS))


class _Request:
    """One request: its name for errors, its encoded message, the future of its response, and whether it may be sent
    again."""

    __slots__ = ("future", "is_repeatable", "payload", "what")

    def __init__(
        self, what: str, payload: bytes, future: "asyncio.Future[dict[str, Any]]", *, is_repeatable: bool
    ) -> None:
        self.what = what
        self.payload = payload
        self.future = future
        self.is_repeatable = is_repeatable


class Management(ClientLink):
    """Made by `Connection.manage`."""

    def __init__(self, connection: LinkHost, name: str) -> None:
        super().__init__(connection, f"{ADDRESS} of {connection.url}", name)
        self._sender: EngineSender | None = None
        self._receiver: EngineReceiver | None = None
        self._requests: dict[str, _Request] = {}
        self._unsent: dict[str, None] = {}
        self._asked: set[str] = set()
        self._next_id = 0
        self._attaches = 0

    async def request(
        self, operation: str, type: str, name: str | None, arguments: dict[str, Any], *, limit_s: float
    ) -> dict[str, Any]:
        """Sends one request and returns its response; see `Connection.manage`."""
        self.check()
        self._next_id += 1
        message_id = f"{self._name}-{self._next_id}"
        told: dict[str, Any] = {"operation": operation, "type": type}
        if name is not None:
            told["name"] = name
        payload = Message(
            properties=Properties(message_id=message_id, to=ADDRESS, reply_to=self._name),
            application_properties=told,
            value=arguments,
        ).encode()
        what = f"{operation} {type}" + (f" {name!r}" if name is not None else "")
        request = _Request(what, payload, self._loop.create_future(), is_repeatable=is_repeatable(operation, type))
        self._requests[message_id] = request
        self._unsent[message_id] = None
        self.touch()
        try:
            async with asyncio.timeout(limit_s):
                return await request.future
        except TimeoutError:
            text = f"{what}: no answer from {self._connection.url} for {written(limit_s)} s"
            if message_id in self._asked and not request.is_repeatable:
                raise RequestInDoubt(f"{text}; {UNKNOWN}") from None
            raise ConnectionFailed(text) from None
        except asyncio.CancelledError as error:
            if message_id in self._asked and operation not in READ:
                error.add_note(f"{what}: given up before the answer came; {UNKNOWN}")
            raise
        finally:
            self._requests.pop(message_id, None)
            self._unsent.pop(message_id, None)
            self._asked.discard(message_id)  # its response may never come, or could not be decoded
            if self._unsent:
                self.touch()

    # ------------------------------------------------------------------------- what the connection calls

    def attach(self, session: Session) -> None:
        # Under new names: the node may not have answered the detach of the last two yet.
        self._attaches += 1
        self._receiver = session.attach_receiver(
            f"{self._name}-answers-{self._attaches}", Source(address=ADDRESS), Target(address=self._name)
        )
        self._receiver.context = self
        self._receiver.grant(CREDIT)
        self._sender = session.attach_sender(
            f"{self._name}-requests-{self._attaches}", Source(address=self._name), Target(address=ADDRESS)
        )
        self._sender.context = self
        self._unsent = {key: None for key, request in self._requests.items() if not request.future.done()}

    def attached(self, link: EngineLink) -> None:
        super().attached(link)
        self.touch()

    def lost(self) -> None:
        super().lost()
        self._sender = self._receiver = None
        asked, self._asked = self._asked, set()
        for request in (self._requests[message_id] for message_id in asked):
            if not request.is_repeatable and not request.future.done():
                text = f"{request.what}: the connection to {self._connection.url} broke before the answer came"
                request.future.set_exception(RequestInDoubt(f"{text}; {UNKNOWN}"))

    def detached(self, event: LinkDetached) -> None:
        if event.link is self._sender or event.link is self._receiver:
            for link in self._engine_links():
                if link is not event.link:
                    link.context = IGNORE
                    link.detach()
            self.lost()
            super().detached(event)

    def credit_changed(self, link: EngineLink) -> None:
        self.touch()

    def turn_ended(self, *, paused: bool) -> None:
        sender = self._sender
        if sender is None or paused or self._receiver is None or not self._receiver.attached:
            return
        # A response needs credit: no more requests than responses that may come.
        while self._unsent and sender.sendable and len(self._asked) < self._receiver.credit:
            message_id = next(iter(self._unsent))
            del self._unsent[message_id]
            request, bytes_max = self._requests[message_id], sender.message_bytes_max
            if bytes_max is not None and len(request.payload) > bytes_max:
                self._not_taken([message_id], too_large(bytes_max))
                continue
            self._asked.add(message_id)
            sender.send(request.payload, context=message_id)

    def outcomes(self, event: Outcomes) -> None:
        if not event.settled:
            event.link.settle(event.first, event.last, event.state)
        outcome = from_state(event.state if event.state is not None else Accepted())
        if not isinstance(outcome, AcceptedOutcome):
            self._not_taken(event.contexts, outcome)

    def _not_taken(self, message_ids: Iterable[str], outcome: Outcome) -> None:
        code, text = (
            (400, f"{outcome.condition} {outcome.description}")
            if isinstance(outcome, RejectedOutcome)
            else (503, "the node did not take the request")
        )
        for message_id in message_ids:
            self._asked.discard(message_id)
            request = self._requests.get(message_id)
            if request is not None and not request.future.done():
                request.future.set_exception(ManagementError(request.what, code, text.rstrip()))

    def delivery(self, event: Delivery) -> None:
        link = event.link
        if not event.settled:
            link.settle(event.delivery_id, event.delivery_id, Accepted())
        if link.credit * 2 <= CREDIT:
            link.grant(CREDIT)
        try:
            answer = Message.decode(event.payload)
        except RemoteProtocolError:
            return  # the request times out; nothing tells which one it was
        properties = answer.properties
        if properties is None:
            return
        self._asked.discard(str(properties.correlation_id))
        self.outage.gained = True
        if self._unsent:
            self.touch()
        request = self._requests.get(str(properties.correlation_id))
        if request is not None and not request.future.done():
            self._answered(request, answer)

    def fail(self, error: Exception) -> None:
        if self.failure is not None:
            return
        super().fail(error)
        for request in self._requests.values():
            if not request.future.done():
                request.future.set_exception(error)

    # ---------------------------------------------------------------------------------------- internals

    def _engine_links(self) -> list[EngineLink]:
        return [link for link in (self._sender, self._receiver) if link is not None]

    @staticmethod
    def _answered(request: _Request, answer: Message) -> None:
        told = answer.application_properties or {}
        code = told.get("statusCode")
        body = answer.value if isinstance(answer.value, dict) else {}
        if not isinstance(code, int):
            request.future.set_exception(ManagementError(request.what, 500, "the answer has no statusCode"))
        elif 200 <= code < 300:
            request.future.set_result(body)
        else:
            description = str(told.get("statusDescription") or "")
            request.future.set_exception(ManagementError(request.what, code, description, body))
