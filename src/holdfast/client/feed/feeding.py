"""`holdfast feed`: the sources, the journal and the sender, from the start to the end of the process.

Rules of this file: nothing is read before the journal has its numbers. At a stop each part passes on what it has read,
and waits a moment for outcomes; what is left stays in the journal.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.client.connection import Connection
from holdfast.client.feed import serial_line
from holdfast.client.feed.delivering import Delivering
from holdfast.client.feed.folder import Folder
from holdfast.client.feed.forms import Form
from holdfast.client.feed.intake import Complaints, Intake
from holdfast.client.feed.journal import Journal
from holdfast.client.feed.sockets import Sockets
from holdfast.client.opening import connect
from holdfast.client.verbs.running import HEAR_OUT_S, complain, place_of, run, tls_arguments
from holdfast.client.verbs.send import header_of
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import json_line, say


def feed(args: argparse.Namespace) -> int:
    """1 if the node refused, for good, what was to be sent, or a line was no message."""
    return run(partial(_feed, args))


async def _feed(args: argparse.Namespace) -> int:
    place = place_of(args)
    if args.serial is not None:
        serial_line.check(args.serial, args.baud)
    journal = Journal(Path(args.journal), args.producer, args.address)
    try:
        connection = await connect(place, retry_s=args.retry, **tls_arguments(args), wait=False)
        try:
            return await _Feed(args, journal, connection).run()
        finally:
            with suppress(HoldfastError):  # what is in doubt stays in the journal
                await connection.abort()
    finally:
        journal.close()


class _Feed:
    """One run."""

    def __init__(self, args: argparse.Namespace, journal: Journal, connection: Connection) -> None:
        self._args = args
        self._journal = journal
        self._connection = connection
        complaints = Complaints(args.verb)
        form = Form(
            args.format,
            columns=args.columns,
            subject=args.subject,
            subject_from=args.subject_from,
            properties=dict(args.property),
            header=header_of(args),
        )
        self._intake = Intake(
            journal,
            form,
            args.producer,
            held_bytes_max=args.backlog_bytes_max,
            line_bytes_max=args.line_bytes_max,
            complaints=complaints,
        )
        self._sockets = Sockets(
            self._intake,
            line_bytes_max=args.line_bytes_max,
            connections_max=args.connections_max,
            rate=args.rate,
            silence_s=args.silence_timeout,
        )
        self._started = time.monotonic()
        self._delivering: Delivering | None = None

    async def run(self) -> int:
        code = 0
        try:
            sender = await self._connection.sender(self._args.address, producer=self._args.producer, wait=False)
            self._delivering = Delivering(self._journal, self._intake, sender)
            await self._until_over(self._delivering.begin(), [])
            await self._hand_in(self._delivering)
        except HoldfastError as error:
            complain(self._args, error)
            code = 2 if isinstance(error, ConfigError) else 1
        finally:
            told = self._summary()
        return code or (1 if told["rejected"] or told["invalid"] else 0)

    async def _hand_in(self, delivering: Delivering) -> None:
        args = self._args
        beside = [asyncio.create_task(work) for work in (self._intake.run(), *delivering.works())]
        sources: list[Coroutine[Any, Any, None]] = []
        ready = f"ready feed={args.producer}"
        try:
            if args.listen is not None:
                ready += f" listen={await self._sockets.listen(args.listen)}"
            if args.folder is not None:
                folder = Folder(self._intake, Path(args.folder), args.pattern, args.line_bytes_max)
                sources.append(folder.run(args.poll, once=args.once))
            if args.serial is not None:
                sources.append(serial_line.take(self._intake, args.serial, args.baud, args.line_bytes_max))
            say(ready, flush=True)
            works = [asyncio.create_task(source) for source in sources]
            try:
                await self._until_over(self._read_all(works), [*beside, *works])
                if args.once:
                    await self._until_over(self._finish(delivering), beside)
            finally:
                for work in works:
                    work.cancel()
                await asyncio.gather(*works, return_exceptions=True)
                await self._sockets.close()
                with suppress(TimeoutError, HoldfastError):
                    async with asyncio.timeout(HEAR_OUT_S):
                        await self._until_over(self._finish(delivering), beside)
        finally:
            for source in sources:
                source.close()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await delivering.note()

    async def _read_all(self, works: list["asyncio.Task[None]"]) -> None:
        """Until all sources end, which only files that are read once do."""
        if self._args.once:
            await asyncio.gather(*works)
        else:
            await asyncio.Event().wait()

    async def _finish(self, delivering: Delivering) -> None:
        await self._intake.stored()
        await delivering.ended()

    async def _until_over(self, work: Coroutine[Any, Any, None], beside: list["asyncio.Task[None]"]) -> None:
        """Waits for `work`; raises what ended one of `beside` before it."""
        task = asyncio.ensure_future(work)
        pending: set[asyncio.Future[None]] = {task, *beside}
        try:
            while not task.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    ended.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _summary(self) -> dict[str, Any]:
        delivering, intake = self._delivering, self._intake
        told: dict[str, Any] = {
            "read": intake.read,
            "invalid": intake.invalid,
            "journaled": intake.journaled,
            "accepted": 0 if delivering is None else delivering.accepted,
            "rejected": 0 if delivering is None else delivering.rejected,
            "left": self._journal.next_number - self._journal.ended_below if not self._journal.is_new else 0,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        say(json_line(told), file=sys.stderr)
        return told
