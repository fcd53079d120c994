"""`holdfast receive`: bodies, or whole messages as JSON, to standard output.

Rules of this file: a batch is with the operating system before it is accepted: what is printed and not accepted comes
twice, what is accepted was printed.
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.client.connection import Connection
from holdfast.client.delivery import Delivery
from holdfast.client.disk import write_all
from holdfast.client.receiver import Receiver
from holdfast.client.render import as_json, body_bytes
from holdfast.client.verbs.receiving import Receiving
from holdfast.client.verbs.running import HEAR_OUT_S, in_thread, run
from holdfast.errors import HoldfastError

BATCH_MAX: Final = 500
"""Messages of `receive` between a write and its accepts."""


def receive(args: argparse.Namespace) -> int:
    """`holdfast receive`: 1 if `--count` was not reached."""
    return run(_Receive(args).run)


class _Receive(Receiving[Receiver]):
    """Into standard output."""

    credit = 2_000

    def _open(self, connection: Connection) -> Callable[..., Coroutine[Any, Any, Receiver]]:
        return connection.receiver

    async def _take_all(self, receiver: Receiver) -> None:
        form = self._as_json if self._args.json else self._as_body
        while True:
            batch = await receiver.batch(count_max=BATCH_MAX, timeout_s=self._args.idle_timeout)
            if not batch:
                return
            lines = b"".join([form(delivery) for delivery in batch])
            write = asyncio.ensure_future(in_thread(write_out, lines))
            try:
                await asyncio.shield(write)
            except asyncio.CancelledError:
                await asyncio.wait([write], timeout=HEAR_OUT_S)  # printed but not accepted comes twice
                if not write.done() or write.exception() is not None:
                    raise
                self._accept(batch)
                raise
            self._accept(batch)

    def _accept(self, batch: list[Delivery]) -> None:
        for delivery in batch:
            delivery.accept()
        self._received += len(batch)

    @staticmethod
    def _as_json(delivery: Delivery) -> bytes:
        return as_json(delivery).encode() + b"\n"

    @staticmethod
    def _as_body(delivery: Delivery) -> bytes:
        return body_bytes(delivery.message) + b"\n"


def write_out(data: bytes) -> None:
    """All of `data` to standard output; past this the operating system has it. HoldfastError where it takes no more,
    BrokenPipeError where its reader is gone."""
    try:
        write_all(1, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise HoldfastError(f"standard output: {error.strerror}: what was not printed stays in the queue") from None
