"""The verbs of the command line that are clients: send, receive, status, queue, subscription.

Rules of this file: each takes what `cli.py` parsed and returns an exit code; every one ends in one summary or one
answer. Output is with the operating system before a message is accepted. What may wait (a pipe, a terminal) is
read and written in threads, so that the connection stays alive.
"""

import argparse
import asyncio
import getpass
import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Header, Properties
from holdfast.client.connection import Connection, connect
from holdfast.client.errors import ManagementError
from holdfast.client.outcomes import Outcome, Rejected
from holdfast.client.receiver import Delivery, Receiver
from holdfast.client.render import as_json, body_bytes, plain, size, table
from holdfast.client.rows import Generated, Row, Source
from holdfast.client.sender import Sender
from holdfast.client.url import Url, parse_url
from holdfast.errors import ConfigError, HoldfastError

T = TypeVar("T")

IN_DOUBT_MAX: Final = 8_192
"""Messages of `send` under way at once: what a node commits in some tens of milliseconds."""
CREDIT: Final = 2_000
BATCH_MAX: Final = 500
"""Messages of `receive` between a write and its accepts."""
AGAIN_S: Final = 0.2
"""How long after the node released a message it is offered again."""
HEAR_OUT_S: Final = 2.0
"""How long a verb that is stopped waits for what is under way: answers, or a write."""
REASONS_MAX: Final = 5
"""Rejections that are shown; all are counted."""
PROGRESS_S: Final = 0.2

STOP_SIGNALS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}


# ------------------------------------------------------------------------------------------------- entry points


def send(args: argparse.Namespace) -> int:
    """`holdfast send`: 0 if every message was accepted."""
    source: Source | Generated
    if args.count is not None:
        source = Generated(args.count, 1024 if args.size is None else args.size)
    else:
        source = Source(args.file or "-", args.format, args.subject_from)
    return _run(partial(_Send(args, source).run))


def receive(args: argparse.Namespace) -> int:
    """`holdfast receive`: 1 if `--count` was not reached."""
    return _run(partial(_Receive(args).run))


def status(args: argparse.Namespace) -> int:
    """`holdfast status`."""
    return _run(partial(_asked, args, _status))


def queue(args: argparse.Namespace) -> int:
    """`holdfast queue ACTION`."""
    return _run(partial(_asked, args, _queue))


def subscription(args: argparse.Namespace) -> int:
    """`holdfast subscription ACTION`."""
    return _run(partial(_asked, args, _subscription))


# ------------------------------------------------------------------------------------------------------ running


def _run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    try:
        import uvloop
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_stoppable(main))


async def _stoppable(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs `main`; a signal cancels it, so that it can end its connection properly."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(main())
    stopped: list[int] = []

    def stop(code: int) -> None:
        stopped.append(code)
        task.cancel()

    for number, code in STOP_SIGNALS.items():
        loop.add_signal_handler(number, stop, code)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            return stopped[0]
        raise


async def _in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """`function` in a thread that does not hold up the process's end, as one that waits for a pipe would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None is a T where the function returns None

    def work() -> None:
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as caught:
            error = caught
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, daemon=True).start()
    return await future


def _place(args: argparse.Namespace) -> Url:
    """Where to connect, with the password from the file or, on a terminal, from the prompt."""
    place = parse_url(args.url)
    if args.password_file is not None:
        if place.user is None:
            raise ConfigError("--password-file: found without a user in --url, accepted is amqp://user@host")
        try:
            text = Path(args.password_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise ConfigError(f"{args.password_file}: {reason}, accepted is a file with the password") from None
        return place.with_password(text.split("\n", 1)[0].rstrip("\r"))
    if place.user is not None and place.password is None:
        if not sys.stdin.isatty():
            raise ConfigError(f"{place}: found a user without a password, accepted is one in --url or --password-file")
        return place.with_password(getpass.getpass(f"password of {place.user} at {place}: "))
    return place


async def _connect(args: argparse.Namespace, place: Url) -> Connection:
    return await connect(place, retry_s=args.retry, ca_file=args.ca_file)


def _complain(args: argparse.Namespace, error: HoldfastError) -> None:
    print(f"holdfast {args.verb}: {error}", file=sys.stderr)


class _Progress:
    """One line on a terminal, redrawn a few times a second; nothing in a pipe."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def show(self, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + PROGRESS_S
            print(f"\r\x1b[K{text()}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown and self._next:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# --------------------------------------------------------------------------------------------------------- send


class _Send:
    """One `holdfast send`."""

    def __init__(self, args: argparse.Namespace, source: Source | Generated) -> None:
        self._args = args
        self._source = source
        self._sent = 0
        self._skipped = 0
        self._place = 0
        self._run_id = uuid.uuid4().hex[:12]
        self._ttl_ms = None if args.ttl is None else max(1, round(args.ttl * 1000))
        self._priority = 4 if args.priority is None else args.priority
        self._properties: dict[str, Any] = dict(args.property)
        self._again: deque[tuple[int | None, Message, float]] = deque()
        self._offered: dict[int, float] = {}
        self._reasons = 0
        self._refused = 0
        self._progress = _Progress()
        self._started = time.monotonic()

    async def run(self) -> int:
        place = _place(self._args)
        sender: Sender | None = None
        code = 0
        self._started = time.monotonic()
        try:
            connection = await _connect(self._args, place)
            async with connection:
                sender = await connection.sender(
                    self._args.address, producer=self._args.producer, in_doubt_max=IN_DOUBT_MAX
                )
                try:
                    await self._send_all(sender)
                except (asyncio.CancelledError, ConfigError):
                    await self._hear_out(sender)  # a signal, or a row that is none: what went before is sent
                    raise
        except HoldfastError as error:
            self._progress.clear()
            _complain(self._args, error)
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
        while (rows := await self._batch()) is not None:
            await self._offer_again(sender, wait=False)
            await self._send_rows(sender, rows)
            self._progress.show(partial(self._line, sender))
        await sender.drain()
        while self._again:
            await self._offer_again(sender, wait=True)
            await sender.drain()

    async def _batch(self) -> list[Row] | None:
        if isinstance(self._source, Generated):
            return self._source.batch()
        return await _in_thread(self._source.batch)

    async def _send_rows(self, sender: Sender, rows: list[Row]) -> None:
        rate, resume = self._args.rate, self._args.resume
        created = int(time.time() * 1000)
        header = Header(durable=True, priority=self._priority, ttl=self._ttl_ms)
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
                    await asyncio.sleep(wait_s)
                    created = int(time.time() * 1000)
            message = self._message(row, header, created, number)
            self._sent += 1
            await sender.post(message, number=number, on_outcome=partial(self._not_accepted, message, 0.0))

    def _message(self, row: Row, header: Header, created_ms: int, number: int | None) -> Message:
        told = self._properties if not row.properties else {**row.properties, **self._properties}
        message_id = f"{self._run_id}-{self._place}" if number is None else f"{self._args.producer}-{number}"
        return Message(
            header=header,
            properties=Properties(
                message_id=message_id,
                subject=row.subject if row.subject is not None else self._args.subject,
                content_type=row.content_type,
                creation_time=created_ms,
            ),
            application_properties=told or None,
            data=[row.body],
        )

    def _not_accepted(self, message: Message, since: float, number: int | None, outcome: Outcome) -> None:
        now = time.monotonic()
        since = since or now
        if not isinstance(outcome, Rejected) and now - since < self._args.retry:
            self._again.append((number, message, since))
            return
        self._refused += 1
        self._reasons += 1
        if self._reasons <= REASONS_MAX:
            self._progress.clear()
            reason = f"{outcome.condition} {outcome.description}" if isinstance(outcome, Rejected) else "not taken"
            print(f"holdfast send: rejected: {reason.rstrip()}", file=sys.stderr)

    async def _offer_again(self, sender: Sender, *, wait: bool) -> None:
        if not self._again:
            return
        if wait:
            await asyncio.sleep(AGAIN_S)
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
        self._source.close()
        self._progress.clear()
        told: dict[str, Any] = {
            "sent": self._sent,
            "accepted": 0 if sender is None else sender.accepted,
            "rejected": self._refused,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        if self._args.resume:
            told["skipped"] = self._skipped
        print(json.dumps(told), file=sys.stderr)
        return self._sent - int(told["accepted"])


# ------------------------------------------------------------------------------------------------------ receive


class _Receive:
    """One `holdfast receive`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._received = 0
        self._started = time.monotonic()

    async def run(self) -> int:
        place = _place(self._args)
        receiver: Receiver | None = None
        code = 0
        self._started = time.monotonic()
        try:
            connection = await _connect(self._args, place)
            try:
                receiver = await self._receiver(connection)
                await self._print_all(receiver)
            finally:
                # Politely also after Ctrl-C: what was accepted is told, what was not printed goes back at once.
                await connection.close()
        except ConfigError:
            raise
        except HoldfastError as error:
            _complain(self._args, error)
            code = 1
        finally:
            self._summary(receiver)
        if self._args.count is not None and self._received < self._args.count:
            code = 1
        return code

    async def _receiver(self, connection: Connection) -> Receiver:
        args = self._args
        return await connection.receiver(
            args.address,
            credit=CREDIT,
            count_max=args.count,
            browse=args.browse,
            start_sequence=args.from_sequence,
            subscription=args.subscription,
        )

    async def _print_all(self, receiver: Receiver) -> None:
        form = self._as_json if self._args.json else self._as_body
        while True:
            batch = await receiver.batch(count_max=BATCH_MAX, timeout_s=self._args.idle_timeout)
            if not batch:
                return
            lines = b"".join([form(delivery) for delivery in batch])
            write = asyncio.ensure_future(_in_thread(_write_out, lines))
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

    def _summary(self, receiver: Receiver | None) -> None:
        told = {
            "received": self._received,
            "duplicates_suppressed": 0 if receiver is None else receiver.duplicates_suppressed,
            "seconds": round(time.monotonic() - self._started, 3),
        }
        print(json.dumps(told), file=sys.stderr)


def _write_out(data: bytes) -> None:
    """All of `data` to standard output; past this the operating system has it."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


# --------------------------------------------------------------------------------------------------- management


async def _asked(
    args: argparse.Namespace, ask: Callable[[Connection, argparse.Namespace], Coroutine[Any, Any, None]]
) -> int:
    async with await _connect(args, _place(args)) as connection:
        await ask(connection, args)
    return 0


def _print_json(value: Any) -> None:
    print(json.dumps(plain(value), ensure_ascii=False))


async def _status(connection: Connection, args: argparse.Namespace) -> None:
    answer = await connection.manage("STATUS", "holdfast:node")
    if answer.pop("queues_more", False):
        answer["queues"] += await _queues(connection, answer["queues"][-1]["name"])
    if args.json:
        _print_json(answer)
        return
    told = plain(answer)
    resident = size(told.get("resident_bytes"))
    print(f"node {told.get('node')}, up {told.get('uptime_s', 0):.0f} s, {resident} resident")
    for name in ("queues", "sessions", "links", "routes"):
        rows = told.get(name)
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            columns = [key for key, value in rows[0].items() if not isinstance(value, dict | list)]
            print(f"\n{name}\n" + table(columns, [[row.get(key) for key in columns] for row in rows]))


async def _queue(connection: Connection, args: argparse.Namespace) -> None:
    kind = "holdfast:queue"
    if args.action == "list":
        queues = await _queues(connection)
        if args.json:
            _print_json(queues)
            return
        columns = ("name", "messages", "bytes", "oldest_s", "next_sequence")
        if queues:
            print(table(columns, [[plain(queue.get(key)) for key in columns] for queue in queues]))
        return
    arguments: dict[str, Any] = {}
    if args.action == "create":
        given = {
            "bytes_max": args.bytes_max,
            "messages_max": args.messages_max,
            "when_full": args.when_full,
            "order": args.order,
            "order_wait_s": args.order_wait,
            "durable": False if args.memory else None,
        }
        arguments = {key: value for key, value in given.items() if value is not None}
    elif args.action == "skip" and args.origin is not None:
        arguments = {"origin": args.origin}
    answer = await connection.manage(args.action.upper(), kind, args.name, arguments)
    if args.json:
        _print_json(answer)
    elif args.action == "create":
        print(f"{args.name} created")
    elif args.action == "skip":
        lost = answer.get("lost") or []
        for gap in lost:
            print(f"lost {gap['first']} to {gap['last']} of {plain(gap['origin'])}")
        if not lost:
            print(f"{args.name}: nothing is missing")
    else:
        print(f"{args.name}: {answer.get('purged', 0)} messages dropped")


async def _subscription(connection: Connection, args: argparse.Namespace) -> None:
    found = await _subscriptions(connection, args.queue)
    if args.action == "list":
        if args.json:
            _print_json(found)
        elif found:
            columns = list(dict.fromkeys(("queue", "name", *found[0])))
            print(table(columns, [[plain(row.get(key)) for key in columns] for row in found]))
        return
    queues = [row["queue"] for row in found if row.get("name") == args.name]
    if not queues:
        raise ManagementError(f"DELETE holdfast:subscription {args.name!r}", 404, "no such subscription")
    if len(queues) > 1:
        raise ConfigError(f"subscription {args.name!r}: found on {', '.join(queues)}, accepted is one with --queue")
    answer = await connection.manage("DELETE", "holdfast:subscription", args.name, {"queue": queues[0]})
    if args.json:
        _print_json(answer)
    else:
        print(f"{args.name} on {queues[0]} deleted")


async def _subscriptions(connection: Connection, queue: str | None) -> list[dict[str, Any]]:
    """Every subscription of the queue, or of all queues, as the node tells them, with the queue's name."""
    arguments = {} if queue is None else {"queue": queue}
    found: list[dict[str, Any]] = []
    while True:
        answer = await connection.manage("QUERY", "holdfast:subscription", None, arguments)
        rows = answer.get("subscriptions") or []
        found += rows
        if not rows or not answer.get("more"):
            return found
        arguments = {"after": str(rows[-1]["queue"])}


async def _queues(connection: Connection, after: str = "") -> list[dict[str, Any]]:
    """Every queue whose name comes after that, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await connection.manage("QUERY", "holdfast:queue", None, {"after": after} if after else {})
        rows = answer.get("queues") or []
        found += rows
        if not rows or not answer.get("more"):
            return found
        after = str(rows[-1]["name"])
