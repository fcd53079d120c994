"""The client's connection, as a program uses it: senders, receivers and requests to the node, and its proper end.

Rules of this file: arguments are checked here, links made and waited for; how they get to the node and back to it after
a break is `Reconnecting`'s (reconnecting.py).
"""

import asyncio
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.amqp.message.message import Message
from holdfast.client.administration import MANAGE_LIMIT_S, Administration
from holdfast.client.awaited import Awaited
from holdfast.client.conversation import REQUEST_LIMIT_S, Conversation
from holdfast.client.link import LinkHost
from holdfast.client.listing import Listed, hidden
from holdfast.client.management import Management
from holdfast.client.network.tls import Tls
from holdfast.client.network.transport import Dial
from holdfast.client.network.url import Url
from holdfast.client.network.wire import WireOwner
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.parts_receiver import PartsReceiver, WholeReceiver
from holdfast.client.receive.receiver import Receiver
from holdfast.client.receive.terms import Lease, Terms
from holdfast.client.reconnecting import Reconnecting
from holdfast.client.replies import Replies
from holdfast.client.send.sender import WHEN_FULL, Sender, WhenFull
from holdfast.client.spool.spool import Spool
from holdfast.client.transactions import Controller, Transaction
from holdfast.errors import ConfigError

R = TypeVar("R", bound=Receiver)


class Connection(Reconnecting, Listed):
    """A connection to a node, made by `connect`. `async with` closes it at the end, and aborts it for an exception.

    Senders, receivers and requests outlive breaks of the transport: the connection is opened again, and all links are
    attached again. It belongs to one event loop; `holdfast.client.blocking` is for programs without one.
    """

    HIDDEN = hidden(LinkHost, WireOwner, "controller", shown=("url", "is_open", "reconnects"))

    def __init__(
        self,
        url: Url,
        *,
        retry_s: float,
        container_id: str,
        idle_time_out_s: float,
        tls: Tls | None,
        mechanism: str | None,
        rng: Random,
        dial: Dial | None,
    ) -> None:
        super().__init__(
            url,
            retry_s=retry_s,
            container_id=container_id,
            idle_time_out_s=idle_time_out_s,
            tls=tls,
            mechanism=mechanism,
            rng=rng,
            dial=dial,
        )
        self._management: Management | None = None
        self._controller: Controller | None = None
        self._replies: Replies | None = None
        self._conversation = Conversation(self, self._reply_link, self._fresh_name)
        self.admin = Administration(self)
        """Requests to the node: its status, queues, links and subscriptions."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    def sender(
        self,
        address: str,
        *,
        producer: str | None = None,
        in_doubt_max: int = 1000,
        when_full: WhenFull = "wait",
        name: str | None = None,
        wait: bool = True,
    ) -> Awaited[Sender]:
        """Attaches a sender to `address`, a queue or `queue@node`: `await` it, or use `async with`, which closes it.

        - `producer`: a name under which messages are numbered, so that the node stores each of them once, also when the
          program starts again (docs/client.md, "Producers").
        - `in_doubt_max`: most messages without an outcome.
        - `when_full`: at that bound `"wait"` waits, `"raise"` raises ClientFull, and a Spool writes messages to a file,
          which needs a `producer`.
        - `name`: the AMQP link name; made up if None.
        - `wait`: False returns before the node has answered; then `Sender.ready` comes before the first message of a
          producer. With a Spool it always returns at once, so that messages are taken while the node cannot be reached.

        Raises ConfigError, LinkError if the node refuses the link, ConnectionFailed.
        """
        if in_doubt_max < 1:
            raise ConfigError(f"invalid value {in_doubt_max} for in_doubt_max; expected at least 1")
        if not isinstance(when_full, Spool) and when_full not in WHEN_FULL:
            known = ", ".join(WHEN_FULL)
            raise ConfigError(f"invalid value {when_full!r} for when_full; expected one of {known} or a Spool")
        if isinstance(when_full, Spool) and not producer:
            raise ConfigError("a Spool as when_full needs a producer name; give one")

        async def attached() -> Sender:
            self._check()
            sender = Sender(
                self,
                address,
                producer=producer,
                in_doubt_max=in_doubt_max,
                when_full=when_full,
                name=name or self._fresh_name(),
            )
            self._add(sender)
            if wait and not isinstance(when_full, Spool):
                await self._ready(sender)
            return sender

        return Awaited(attached())

    def receiver(
        self,
        address: str,
        *,
        credit: int = 200,
        count_max: int | None = None,
        browse: bool = False,
        subscription: str | None = None,
        start_sequence: int | None = None,
        end_sequence: int | None = None,
        lease: Lease | None = None,
        name: str | None = None,
        resume_s: float = 0.0,
        selector: str | None = None,
        confirm_s: float | None = None,
        message_bytes_max: int | None = None,
    ) -> Awaited[Receiver]:
        """Attaches a receiver to the queue `address`: `await` it, or use `async with`, which closes it.

        - `credit`: messages that may arrive ahead of the program.
        - `count_max`: most messages that are ever taken.
        - `browse`: look at the messages and leave them in the queue.
        - `subscription`: the name of a durable subscription, which has a cursor of its own.
        - `start_sequence` (inclusive) and `end_sequence` (exclusive): read by sequence, and leave the messages in the
          queue; with an end the node closes the link after the last one.
        - `lease`: whose taken subscription a range is read of.
        - `name`: the AMQP link name; made up if None.
        - `resume_s`: for so many seconds after a break the node keeps this receiver's messages for it, and offers them
          to no other.
        - `selector`: a condition on the messages that are wanted (docs/selectors.md); what it leaves out stays for
          others.
        - `confirm_s`: of a topic; waits so long until the other nodes know what is wanted here. `confirmation` of the
          receiver says which do (docs/federation.md). It is asked for anew with each attach.
        - `message_bytes_max`: the size of the largest message that is taken, 64 MiB if None. Before a larger one the
          node closes the link, once all before it are settled: LinkError (`amqp:link:message-size-exceeded`).

        Raises as `sender` does.
        """
        terms = Terms(
            credit=credit,
            count_max=count_max,
            browse=browse,
            subscription=subscription,
            start_sequence=start_sequence,
            end_sequence=end_sequence,
            lease=lease,
            name=name or self._fresh_name(),
            resume_s=resume_s,
            selector=selector,
            confirm_s=confirm_s,
            message_bytes_max=message_bytes_max,
        )
        return Awaited(self._attached(Receiver, address, terms))

    def parts_receiver(
        self,
        address: str,
        *,
        credit: int = 200,
        count_max: int | None = None,
        browse: bool = False,
        subscription: str | None = None,
        start_sequence: int | None = None,
        end_sequence: int | None = None,
        lease: Lease | None = None,
        name: str | None = None,
        selector: str | None = None,
        whole: bool = False,
    ) -> Awaited[PartsReceiver]:
        """Attaches a receiver for messages of any size: each is handed out when its body begins, and read in parts.

        With `whole` the parts are those of the whole message as it came, not of its body. The other arguments, and the
        errors, are those of `receiver`.
        """
        terms = Terms(
            credit=credit,
            count_max=count_max,
            browse=browse,
            subscription=subscription,
            start_sequence=start_sequence,
            end_sequence=end_sequence,
            lease=lease,
            name=name or self._fresh_name(),
            selector=selector,
        )
        return Awaited(self._attached(WholeReceiver if whole else PartsReceiver, address, terms))

    async def _attached(self, kind: type[R], address: str, terms: Terms) -> R:
        self._check()
        receiver = kind(self, address, terms)
        self._add(receiver)
        await self._ready(receiver)
        return receiver

    def transaction(self) -> Transaction:
        """A transaction, to be used as `async with`: what is sent and settled within it is done together at the end of
        the block, or not at all if the block raises (docs/client.md, "Transactions").

        Raises TransactionRolledBack, TransactionInDoubt, and as `sender` does.
        """
        return Transaction(self)

    def controller(self) -> Controller:
        """The link to the node's coordinator; made where there is none."""
        self._check()
        if self._controller is None or self._controller.failure is not None:
            self._controller = Controller(self, f"{self._fresh_name()}-transactions")
            self._add(self._controller)
        return self._controller

    async def request(self, address: str, message: Message | object, *, limit_s: float = REQUEST_LIMIT_S) -> Delivery:
        """Sends a request to `address` and returns its reply, which needs not be settled.

        Replies come to a node of this connection's own; whoever answers with `reply`, or as AMQP says (to the request's
        reply-to, with its message-id as correlation-id), answers it. Raises NoReply if no reply came within `limit_s`
        seconds, or the connection broke: the request may have been carried out. NotAccepted if the request was not
        taken, and as `sender` does.
        """
        self._check()
        return await self._conversation.request(address, message, limit_s)

    async def reply(self, request: Delivery, message: Message | object) -> None:
        """Sends a reply to a request that was received, and waits until the node has it.

        Raises ConfigError for a message that asks for no reply, NotAccepted, and LinkError if the reply-to has no
        receiver left.
        """
        self._check()
        await self._conversation.reply(request, message)

    def _reply_link(self) -> Replies:
        if self._replies is None or self._replies.failure is not None:
            self._replies = Replies(self, f"{self._fresh_name()}-replies")
            self._add(self._replies)
        return self._replies

    async def manage(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: dict[str, Any] | None = None,
        *,
        limit_s: float = MANAGE_LIMIT_S,
    ) -> dict[str, Any]:
        """Sends a request to the node's `$management` and returns the body of its answer, a map.

        A request without an answer when the connection breaks is sent again if it reads, or says how something is to be
        (docs/client.md, "Administration"). Raises ManagementError for a status other than 2xx; RequestInDoubt where any
        other request was sent and no answer came, because the connection broke or `limit_s` seconds were over; and
        ConnectionFailed if no answer comes within `limit_s` seconds.
        """
        self._check()
        if self._management is None or self._management.failure is not None:
            self._management = Management(self, f"{self._fresh_name()}-management")
            self._add(self._management)
        return await self._management.request(operation, type, name, arguments or {}, limit_s=limit_s)

    async def close(self) -> None:
        """Waits for the outcomes of all messages, sends all settlements, and ends all links, also if it is cancelled.

        Senders end first, so that what an outcome makes the program settle is settled. Raises the error of a sender
        that failed while messages of it were in doubt: nobody knows where they are.
        """
        failure: BaseException | None = self._abandoned
        polite = False
        try:
            for kind in (Sender, Receiver):
                failed = await self._closed(kind)
                failure = failure or failed
            polite = True
        finally:
            await self._end(polite=polite)
        if failure is not None:
            raise failure

    async def _closed(self, kind: type[Sender | Receiver]) -> BaseException | None:
        """Closes all links of that kind at once, as each may need round trips; the first error of one of them."""
        closing = [link.close() for link in self._links if isinstance(link, kind)]
        ended = await asyncio.gather(*closing, return_exceptions=True)
        return next((error for error in ended if error is not None), None)
