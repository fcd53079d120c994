"""`holdfast send`: a message for each line, row or generated body.

Rules of this file: the source is read in a thread, and whatever is waited for, the sender's end is heard; what the
node releases is offered again meanwhile, as long as `--retry` says.
"""

import argparse
import asyncio
import sys
import time
import uuid
from collections import deque
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import DELIVERY_DELAY
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Ulong
from holdfast.client.outcomes import Outcome, Rejected
from holdfast.client.send.sender import Sender
from holdfast.client.verbs.render import plain
from holdfast.client.verbs.rows import Generated, Row, Source
from holdfast.client.verbs.running import (
    HEAR_OUT_S,
    Progress,
    complain,
    connect_as,
    in_thread,
    place_of,
    run,
    telling_stalls,
)
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import json_line, say

T = TypeVar("T")

IN_DOUBT_MAX: Final = 8_192
"""Messages of `send` under way at once: what a node commits in some tens of milliseconds."""
AGAIN_S: Final = 0.2
"""About how long a message that the node released waits to be offered again; less while there is input."""
REASONS_MAX: Final = 5
"""Rejections that are shown; all are counted."""


def send(args: argparse.Namespace) -> int:
    """`holdfast send`: 0 if every message was accepted."""
    source: Source | Generated
    if args.count is not None:
        source = Generated(args.count, 1024 if args.size is None else args.size)
    else:
        source = Source(args.file or "-", args.format, args.subject_from)
    return run(_Send(args, source).run)


def header_of(args: argparse.Namespace) -> Header:
    """What the options say of every message."""
    return Header(
        durable=True,
        priority=4 if args.priority is None else args.priority,
        ttl=None if args.ttl is None else max(1, round(args.ttl * 1000)),
    )


def reason_of(outcome: Outcome) -> str:
    """Why a message was not accepted, for a person."""
    return f"{outcome.condition} {outcome.description}".rstrip() if isinstance(outcome, Rejected) else "not taken"


class _Send:
    """One `holdfast send`."""

    def __init__(self, args: argparse.Namespace, source: Source | Generated) -> None:
        self._args = args
        self._source = source
        self._is_reading = False
        self._sent = 0
        self._skipped = 0
        self._place = 0
        self._ids: tuple[str, str] | None = None
        """The message-ids of the first and the last message that was sent."""
        self._run_id = uuid.uuid4().hex[:12]
        self._header = header_of(args)
        delay_ms = 0 if args.delay is None else max(1, round(args.delay * 1000))
        self._notes = {DELIVERY_DELAY: Ulong(delay_ms)} if delay_ms else {}
        self._properties: dict[str, Any] = dict(args.property)
        self._again: deque[tuple[int | None, Message, float]] = deque()
        self._refused = 0
        self._progress = Progress()
        self._started = time.monotonic()

    async def run(self) -> int:
        place = place_of(self._args)
        sender: Sender | None = None
        code = 0
        self._started = time.monotonic()
        try:
            connection = await connect_as(self._args, place)
            async with connection:
                sender = await connection.sender(
                    self._args.address, producer=self._args.producer, in_doubt_max=IN_DOUBT_MAX, wait=False
                )
                async with telling_stalls(self._args, sender, self._progress, lambda: bool(self._again)):
                    await sender.ready()
                    try:
                        await self._send_all(sender)
                    except asyncio.CancelledError:
                        await self._hear_out(sender)
                        raise
        except HoldfastError as error:
            self._progress.clear()
            complain(self._args, error)
            code = 2 if isinstance(error, ConfigError) else 1
        except asyncio.CancelledError:
            self._summary(sender)
            raise
        unaccepted = self._summary(sender)
        return code or (1 if unaccepted else 0)

    @staticmethod
    async def _hear_out(sender: Sender) -> None:
        try:
            async with asyncio.timeout(HEAR_OUT_S):
                await sender.drain()
        except (TimeoutError, HoldfastError):
            pass  # the summary tells how many were accepted

    async def _send_all(self, sender: Sender) -> None:
        mistake: ConfigError | None = None
        try:
            while (rows := await self._batch(sender)) is not None:
                await self._offer_again(sender)
                await self._send_rows(sender, rows)
                self._progress.show(partial(self._line, sender))
        except ConfigError as error:
            mistake = error  # a row that is none; what went before it counts
        await self._meanwhile(sender, sender.drain())
        while self._again:
            await asyncio.sleep(AGAIN_S)
            await self._offer_again(sender)
            await self._meanwhile(sender, sender.drain())
        if mistake is not None:
            raise mistake

    async def _batch(self, sender: Sender) -> list[Row] | None:
        if isinstance(self._source, Generated):
            return self._source.batch()
        self._is_reading = True
        return await self._meanwhile(sender, in_thread(self._read))

    def _read(self) -> list[Row] | None:
        """In a thread."""
        try:
            return self._source.batch()
        finally:
            self._is_reading = False

    async def _meanwhile(self, sender: Sender, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns. While it takes its time what the node gave back is offered again; raises what ended the
        sender before it.
        """
        task = asyncio.ensure_future(work)
        try:
            while True:
                # Only what is in doubt can be given back.
                look_s = AGAIN_S if self._again or sender.in_doubt else None
                await asyncio.wait((task, sender.over), timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                sender.check()
                await self._offer_again(sender)
        finally:
            task.cancel()

    async def _send_rows(self, sender: Sender, rows: list[Row]) -> None:
        rate, resume = self._args.rate, self._args.resume
        created = int(time.time() * 1000)
        for row in rows:
            self._place += 1
            number = None
            if resume:
                number = self._place
                if number <= sender.last_number and number not in sender.missing:
                    self._skipped += 1
                    continue
            if rate is not None:
                wait_s = self._started + self._sent / rate - time.monotonic()
                if wait_s > 0:
                    self._progress.show(partial(self._line, sender))
                    await self._meanwhile(sender, asyncio.sleep(wait_s))
                    created = int(time.time() * 1000)
            run_id, place = (self._run_id, self._place) if number is None else (self._args.producer, number)
            message = self._message(row, created, f"{run_id}-{place}")
            self._sent += 1
            if message.properties is not None and message.properties.message_id is not None:
                message_id = plain(message.properties.message_id)
                self._ids = (message_id if self._ids is None else self._ids[0], message_id)
            await sender.post(message, number=number, on_outcome=partial(self._not_accepted, message, 0.0))

    def _message(self, row: Row, created_ms: int, message_id: str) -> Message:
        if row.message is not None:
            return self._whole(row.message, row.subject)
        told = self._properties if not row.properties else {**row.properties, **self._properties}
        return Message(
            header=self._header,
            message_annotations=dict(self._notes) or None,
            properties=Properties(
                message_id=message_id,
                subject=row.subject if row.subject is not None else self._args.subject,
                content_type=row.content_type,
                creation_time=created_ms,
            ),
            application_properties=told or None,
            data=[row.body],
        )

    def _whole(self, message: Message, subject: str | None) -> Message:
        """The message of the line, with the options that apply to every message."""
        args = self._args
        if self._properties:
            message.application_properties = {**(message.application_properties or {}), **self._properties}
        subject = subject if subject is not None else args.subject
        if subject is not None:
            message.properties = replace(message.properties or Properties(), subject=subject)
        header = message.header or Header()
        message.header = replace(
            header,
            priority=header.priority if args.priority is None else args.priority,
            ttl=header.ttl if args.ttl is None else self._header.ttl,
        )
        return message

    def _not_accepted(self, message: Message, since: float, number: int | None, outcome: Outcome) -> None:
        now = time.monotonic()
        since = since or now
        if not isinstance(outcome, Rejected) and now - since < self._args.retry:
            self._again.append((number, message, since))
            return
        self._refused += 1
        if self._refused <= REASONS_MAX:
            self._progress.clear()
            say(f"holdfast send: rejected: {reason_of(outcome)}", file=sys.stderr)

    async def _offer_again(self, sender: Sender) -> None:
        for _ in range(len(self._again)):
            number, message, since = self._again.popleft()
            number = number if self._args.producer is not None else None
            await sender.post(message, number=number, on_outcome=partial(self._not_accepted, message, since))

    def _line(self, sender: Sender) -> str:
        seconds = time.monotonic() - self._started
        done = f"{100 * self._source.bytes_read // self._source.size:3d} %  " if self._source.size else ""
        return f"{done}{self._sent} sent, {sender.accepted} accepted, {sender.accepted / max(seconds, 1e-3):.0f}/s"

    def _summary(self, sender: Sender | None) -> int:
        """Prints the summary; the messages that the node did not accept."""
        if not self._is_reading:  # a thread that still waits for input keeps it, to the end of the process
            self._source.close()
        self._progress.clear()
        if self._refused > REASONS_MAX:
            say(f"holdfast send: rejected: {self._refused - REASONS_MAX} more", file=sys.stderr)
        told: dict[str, Any] = {
            "sent": self._sent,
            "accepted": 0 if sender is None else sender.accepted,
            "rejected": self._refused,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        if self._args.resume:
            told["skipped"] = self._skipped
        if self._ids is not None:
            told["ids"] = list(self._ids)
        say(json_line(told), file=sys.stderr)
        return self._sent - int(told["accepted"])
