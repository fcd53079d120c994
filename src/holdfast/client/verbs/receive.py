"""`holdfast receive`: bodies, or whole messages as JSON, to standard output.

Rules of this file: what is printed and not accepted comes twice, what is accepted was printed (printing.py).
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.client.connection import Connection
from holdfast.client.errors import UndecodableMessage
from holdfast.client.receive.delivery import Delivery
from holdfast.client.receive.receiver import Receiver
from holdfast.client.verbs.printing import Output, Printing
from holdfast.client.verbs.receiving import Receiving
from holdfast.client.verbs.render import as_json, body_bytes
from holdfast.client.verbs.running import run
from holdfast.lines import say

BATCH_MAX: Final = 500
"""Messages of `receive` in one write."""


def receive(args: argparse.Namespace) -> int:
    """`holdfast receive`: 1 if `--count` was not reached or a message could not be read."""
    return run(_Receive(args).run)


class _Receive(Receiving[Receiver]):
    """Into standard output."""

    credit = 2_000

    def _open(self, connection: Connection) -> Callable[..., Coroutine[Any, Any, Receiver]]:
        return connection.receiver

    async def _take_all(self, receiver: Receiver) -> None:
        printing = Printing(Output())
        async with self._progress.shown(lambda: self._line(printing.accepted)):
            await self._take(receiver, printing)

    async def _take(self, receiver: Receiver, printing: Printing) -> None:
        is_broken = False
        tasks = [asyncio.create_task(self._print_all(receiver, printing)), asyncio.create_task(printing.watch())]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        except BrokenPipeError:
            is_broken = True
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await printing.end()
            self._received = printing.accepted
            if is_broken:
                self._tell_what_a_reader_took()

    def _tell_what_a_reader_took(self) -> None:
        """Who ends reads more than it shows, as `head` does, and that does not come again."""
        if self._args.browse or self._args.from_sequence is not None:
            return
        are = "message that was read is" if self._received == 1 else "messages that were read are"
        text = f"the reader of the output ended; {self._received} {are} off the queue"
        say(f"holdfast receive: {self._args.address}: {text}", file=sys.stderr)

    async def _print_all(self, receiver: Receiver, printing: Printing) -> None:
        form = self._as_json if self._args.json else self._as_body
        while True:
            batch = await receiver.batch(count_max=BATCH_MAX, timeout_s=self._args.idle_timeout)
            if not batch:
                return
            printed, lines = [], []
            for delivery in batch:
                try:
                    line = form(delivery)
                except UndecodableMessage as error:
                    self._pass_over(delivery, error)
                else:
                    printed.append(delivery)
                    lines.append(line)
            if printed:
                await printing.write(printed, lines)

    @staticmethod
    def _as_json(delivery: Delivery) -> bytes:
        return as_json(delivery).encode() + b"\n"

    @staticmethod
    def _as_body(delivery: Delivery) -> bytes:
        return body_bytes(delivery.message) + b"\n"
