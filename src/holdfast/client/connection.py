"""The client's connection, as a program uses it: senders, receivers and requests to the node, and its proper end.

Rules of this file: arguments are checked here, links made and waited for; how they get to the node and back to it after
a break is `Reconnecting`'s (reconnecting.py).
"""

from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from holdfast.client.management import Management
from holdfast.client.parts_receiver import PartsReceiver
from holdfast.client.receiver import Receiver
from holdfast.client.reconnecting import Reconnecting
from holdfast.client.sender import WHEN_FULL, Sender, WhenFull
from holdfast.client.spool import Spool
from holdfast.client.terms import Lease, Terms
from holdfast.client.transport import Dial
from holdfast.client.url import Url
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import ssl

R = TypeVar("R", bound=Receiver)

MANAGE_LIMIT_S: Final = 60.0


class Connection(Reconnecting):
    """Made by `connect` (opening.py). `reconnects` counts connections after the first.

    Senders, receivers and requests outlive breaks of the transport. Not safe between threads: `blocking.py` is.
    """

    def __init__(
        self,
        url: Url,
        *,
        retry_s: float,
        container_id: str,
        idle_time_out_s: float,
        tls: "ssl.SSLContext | None",
        rng: Random,
        dial: Dial | None,
    ) -> None:
        super().__init__(
            url,
            retry_s=retry_s,
            container_id=container_id,
            idle_time_out_s=idle_time_out_s,
            tls=tls,
            rng=rng,
            dial=dial,
        )
        self._management: Management | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    async def sender(
        self,
        address: str,
        *,
        producer: str | None = None,
        in_doubt_max: int = 1000,
        when_full: WhenFull = "wait",
        name: str | None = None,
        wait: bool = True,
    ) -> Sender:
        """A sender to `address`, attached when this returns (with a Spool at once, so that it takes messages
        while the node cannot be reached). docs/client.md tells what `producer` and `when_full` promise.

        `wait=False` returns before the node has answered; `await sender.ready()` waits for it, and comes before the
        first message of a producer without a Spool.

        Raises ConfigError, LinkError if the node refuses it, ConnectionFailed.
        """
        if in_doubt_max < 1:
            raise ConfigError(f"in_doubt_max: found {in_doubt_max}, accepted is at least 1")
        if not isinstance(when_full, Spool) and when_full not in WHEN_FULL:
            raise ConfigError(f"when_full: found {when_full!r}, accepted is one of {', '.join(WHEN_FULL)} or a Spool")
        if isinstance(when_full, Spool) and not producer:
            raise ConfigError("when_full: found a Spool without a producer name, accepted is with one")
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

    async def receiver(
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
    ) -> Receiver:
        """A receiver from `address`, attached when this returns.

        `credit`: messages that may come ahead. `count_max`: no more than so many are ever taken. `browse` looks
        only. `subscription`: a durable one with its own cursor, by name. `start_sequence` (inclusive) and
        `end_sequence` (exclusive) read by sequence, and look only; with an end the node closes the link after
        the last. `lease`: read a range of a taken subscription. `resume_s`: seconds that the node keeps what this
        receiver holds for it after a break, and from everybody else. Raises as `sender` does.
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
        )
        return await self._attached(Receiver(self, address, terms))

    async def parts_receiver(
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
    ) -> PartsReceiver:
        """As `receiver`, for messages of any size: each is handed out when its body begins, which is read in parts."""
        terms = Terms(
            credit=credit,
            count_max=count_max,
            browse=browse,
            subscription=subscription,
            start_sequence=start_sequence,
            end_sequence=end_sequence,
            lease=lease,
            name=name or self._fresh_name(),
        )
        return await self._attached(PartsReceiver(self, address, terms))

    async def _attached(self, receiver: R) -> R:
        self._check()
        self._add(receiver)
        await self._ready(receiver)
        return receiver

    async def manage(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: dict[str, Any] | None = None,
        *,
        limit_s: float = MANAGE_LIMIT_S,
    ) -> dict[str, Any]:
        """Asks the node's `$management` and returns the body of its answer, a map.

        A request whose answer a break of the connection cost is sent again. Raises ManagementError for every
        status other than 2xx, and where no answer came within `limit_s` seconds ConnectionFailed.
        """
        self._check()
        if self._management is None or self._management.failure is not None:
            self._management = Management(self, f"{self._fresh_name()}-management")
            self._add(self._management)
        return await self._management.request(operation, type, name, arguments or {}, limit_s=limit_s)

    async def close(self) -> None:
        """Waits for what is in doubt, settles what was decided, and tells the node; no link survives, nor if this is
        cancelled. Raises what a sender failed with while messages of it were in doubt: nobody knows where they are.
        """
        failure = self._abandoned
        polite = False
        try:
            for link in list(self._links):
                if isinstance(link, Sender | Receiver):
                    try:
                        await link.close()
                    except Exception as error:
                        failure = failure or error
            polite = True
        finally:
            await self._end(polite=polite)
        if failure is not None:
            raise failure
