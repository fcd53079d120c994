"""What `holdfast receive` does whatever becomes of the messages: connects, takes the requested number of messages,
prints a summary.

Rules of this file: the connection ends politely also after Ctrl-C: accepted messages are counted, all others are
released at once.
"""

import argparse
import asyncio
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final, Generic, TypeVar
from urllib.parse import unquote

from holdfast.amqp.wire.conditions import MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED
from holdfast.broker.entries.address import TOPIC_PREFIX
from holdfast.client.connection import Connection
from holdfast.client.errors import UndecodableMessage
from holdfast.client.management import ADDRESS as MANAGEMENT
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.receiver import Receiver
from holdfast.client.verbs.running import Progress, complain, connect_as, place_of
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import json_line, say
from holdfast.names import DEAD_LETTERS
from holdfast.units import written

R = TypeVar("R", bound=Receiver)

UNREADABLE_SHOWN_MAX: Final = 100
"""Messages that cannot be read, of which each has a line of its own."""


def too_large_advice(address: str, error: HoldfastError) -> str:
    """How to receive a message that was too large for the link; empty for another error."""
    if getattr(error, "condition", None) != MESSAGE_SIZE_EXCEEDED:
        return ""
    return f"; `holdfast receive {address} --to DIRECTORY` takes messages of any size"


def advice_for(args: argparse.Namespace, error: HoldfastError) -> str:
    """What to give to `receive`, or to leave out, after that error; empty if nothing is known."""
    looks = args.browse or args.from_sequence is not None
    is_topic = TOPIC_PREFIX in unquote(args.address)
    if looks and is_topic and getattr(error, "condition", None) == NOT_IMPLEMENTED:
        return f"; leave out {'--browse' if args.browse else '--from-sequence'}"
    return too_large_advice(args.address, error)


class Receiving(ABC, Generic[R]):
    """One `holdfast receive`; `run` gives its exit code, 1 if `--count` was not reached or a message not read."""

    credit: ClassVar[int]
    """Messages that may come ahead."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._received = 0
        self._unreadable = 0
        self._progress = Progress(prints=True)
        self._started = time.monotonic()

    async def run(self) -> int:
        args = self._args
        place = place_of(args)
        if args.address == MANAGEMENT:
            raise ConfigError(f"ADDRESS: {MANAGEMENT} answers requests; it has no messages to receive")
        receiver: R | None = None
        code = 0
        self._started = time.monotonic()
        try:
            connection = await connect_as(args, place)
            try:
                receiver = await self._attached(connection)
                await self._take_all(receiver)
            finally:
                await connection.close()
        except ConfigError:
            raise
        except HoldfastError as error:
            complain(args, error, advice_for(args, error))
            code = 1
        else:
            if args.count is not None and self._received < args.count:
                code = 1
                silence = "" if args.idle_timeout is None else f", then none for {written(args.idle_timeout)} s"
                came = f"{self._received} of {args.count} messages came{silence}"
                say(f"holdfast {args.verb}: {args.address}: {came}", file=sys.stderr)
            if self._unreadable:
                code = 1
        finally:
            self._summary(receiver)
        return code

    async def _attached(self, connection: Connection) -> R:
        args = self._args
        more = {} if args.confirm is None else {"confirm_s": args.confirm}
        limit_s = None if args.idle_timeout is None else args.idle_timeout + (args.confirm or 0)
        try:
            async with asyncio.timeout(limit_s):
                receiver = await self._open(connection)(
                    args.address,
                    credit=self.credit,
                    count_max=args.count,
                    browse=args.browse,
                    start_sequence=args.from_sequence,
                    subscription=args.subscription,
                    selector=args.selector,
                    **more,
                )
        except TimeoutError:
            silence = f"the node has not answered the attach of the link for {limit_s:g} s (--idle-timeout)"
            raise HoldfastError(f"{args.address}: {silence}") from None
        if receiver.confirmation is not None:
            told = receiver.confirmation
            text = f"confirmed by {', '.join(told.confirmed) or 'no other node'}"
            if told.waiting:
                text += f"; waited in vain for {', '.join(told.waiting)}"
            say(f"holdfast {args.verb}: {args.address}: {text}", file=sys.stderr)
        return receiver

    def _pass_over(self, delivery: Delivery, error: Exception) -> None:
        """Ends a message that cannot be read, alone: rejected where it cannot be decoded and this takes messages away,
        else left where it is, for a reader that can make something of it."""
        args = self._args
        self._unreadable += 1
        is_dead_letter = unquote(args.address).endswith(DEAD_LETTERS)  # what is rejected from there is gone
        if args.browse or args.from_sequence is not None:
            delivery.release()
            ends = "passed over"
        elif isinstance(error, UndecodableMessage) and not is_dead_letter:
            delivery.reject(error.condition, error.description)
            ends = "rejected"
        else:
            delivery.modify(delivery_failed=False, undeliverable_here=True)
            ends = "left in the queue"
        if self._unreadable <= UNREADABLE_SHOWN_MAX:
            self._progress.clear()
            place = f"sequence {delivery.sequence}" if delivery.sequence else "a message"
            text = f"{args.address}: {place} cannot be read, {ends}: {error}"
            say(f"holdfast {args.verb}: {text}", file=sys.stderr)

    @abstractmethod
    def _open(self, connection: Connection) -> Callable[..., Coroutine[Any, Any, R]]:
        """The connection's method that makes the kind of receiver it needs."""

    @abstractmethod
    async def _take_all(self, receiver: R) -> None:
        """Takes messages, and counts them in `_received`, until there are none."""

    def _line(self, received: int) -> str:
        """Of progress."""
        seconds = time.monotonic() - self._started
        wanted = "" if self._args.count is None else f" of {self._args.count}"
        return f"{received}{wanted} received, {received / max(seconds, 1e-3):.0f}/s"

    def _summary(self, receiver: R | None) -> None:
        more = self._unreadable - UNREADABLE_SHOWN_MAX
        if more > 0:
            say(f"holdfast {self._args.verb}: {self._args.address}: {more} more cannot be read", file=sys.stderr)
        told = {
            "received": self._received,
            "unreadable": self._unreadable,
            "duplicates_suppressed": 0 if receiver is None else receiver.duplicates_suppressed,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        say(json_line(told), file=sys.stderr)
