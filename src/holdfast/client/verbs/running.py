"""What the client's verbs have in common: the loop, signals, threads, where to connect, a line of progress.

Rules of this file: it knows no verb.
"""

import argparse
import asyncio
import getpass
import logging
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.client.connection import Connection
from holdfast.client.errors import ManagementError
from holdfast.client.network.url import Url, parse_url
from holdfast.client.opening import connect
from holdfast.client.send.sender import Sender, Waits
from holdfast.errors import ConfigError, HoldfastError, Stopped
from holdfast.lines import CLEAR_LINE, one_line, say
from holdfast.regular_files import read_any
from holdfast.signals import MEANINGLESS, ending_in_order, ignore
from holdfast.units import KIB, written

T = TypeVar("T")

_log = logging.getLogger(__name__)

HEAR_OUT_S: Final = 2.0
"""How long a verb that is stopped waits for what is under way: answers, or a write."""
PROGRESS_S: Final = 0.2
STALLED_S: Final = 3.0
"""Seconds without an accepted message at a connected node before a line is printed."""
STALLS: Final[dict[Waits, str]] = {
    "attach": "the node has not answered the attach of the link: it is busy, or its disk fails (`holdfast status`)",
    "credit": "the node takes no more messages at the moment: the queue, or the transmission queue to it, is full, or "
    "its disk fails (`holdfast status`)",
    "window": "the node has closed the session's incoming window: it has no room, or its disk fails "
    "(`holdfast status`)",
    "socket": "the node reads nothing more at the moment: it is busy, or its disk fails (`holdfast status`)",
    "answers": "the node has not yet stored what was sent",
    "back": "the node gives every message back",
}

PASSWORD_BYTES_MAX: Final = 64 * KIB
"""A token that is used as a password may have some thousands."""
STOP_SIGNALS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


class _OneLine(logging.Formatter):
    """Puts warnings of the client library on one line each: they may have text of the other end."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))


def run(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    ignore(MEANINGLESS, _log.warning)
    try:
        import uvloop
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_stoppable(main))


async def _stoppable(main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Runs `main`; a signal cancels it, so that it can end its connection properly. Stopped if it leaves a request to
    the node in doubt (client/management.py), which the notes of the cancellation say."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(main())
    stopped: list[int] = []

    def stop(code: int) -> None:
        stopped.append(code)
        task.cancel()

    for number, code in STOP_SIGNALS.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, stop, code)
    try:
        return await task
    except asyncio.CancelledError as error:
        if not stopped:
            raise
        for note in getattr(error, "__notes__", ()):
            raise Stopped(note, stopped[0]) from None
        return stopped[0]


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
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


def place_of(args: argparse.Namespace) -> Url:
    """Where to connect, with the password from the file or, on a terminal, from the prompt."""
    place = parse_url(args.url)
    if args.vhost is not None:
        if place.vhost not in (None, args.vhost):
            raise ConfigError(f"--vhost {args.vhost} and {place} name two virtual hosts; give one")
        place = replace(place, vhost=args.vhost)
    if args.password_file is not None:
        if place.user is None:
            raise ConfigError("--password-file needs a user in --url; give amqp://user@host")
        return place.with_password(_password_in(args.password_file))
    if place.user is not None and place.password is None:
        if not sys.stdin.isatty():
            raise ConfigError(f"the user of {place} has no password; give one in --url or --password-file")
        with ending_in_order(STOP_SIGNALS):
            return place.with_password(getpass.getpass(f"password of {place.user} at {place}: "))
    return place


def _password_in(file: str) -> str:
    """The first line of that file, which may be a pipe (`<(COMMAND)`)."""
    advice = "give a file with the password"
    try:
        with ending_in_order(STOP_SIGNALS):  # the loop, which hears of signals, does not run while a pipe is read
            first = read_any(Path(file), PASSWORD_BYTES_MAX).split(b"\n", 1)[0].rstrip(b"\r")
        password = first.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{file} cannot be read ({reason}); {advice}") from None
    if len(first) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"{file} has more than {PASSWORD_BYTES_MAX} bytes in its first line; {advice}")
    if not password:
        raise ConfigError(f"{file} has no password in its first line; {advice}")
    return password


async def connect_as(args: argparse.Namespace, place: Url) -> Connection:
    return await connect(place, retry_s=args.retry, **tls_arguments(args))


def tls_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Those of `connect` that the options say, of TLS and the login."""
    return {
        "ca_file": args.ca_file,
        "certificate_file": args.certificate_file,
        "key_file": args.key_file,
        "server_name": args.server_name,
        "mechanism": args.sasl,
    }


def refused(args: argparse.Namespace, error: ManagementError) -> int:
    """Says why the node does not do what the verb asked for, in the node's words; the exit code."""
    say(f"holdfast {_verb(args)}: {error.description or error}", file=sys.stderr)
    return 1


def complain(args: argparse.Namespace, error: HoldfastError, advice: str = "") -> None:
    """Prints the error in one line. `advice`: what to do at the command line, as the error speaks of links."""
    say(f"holdfast {_verb(args)}: {error}{advice}", file=sys.stderr)


def _verb(args: argparse.Namespace) -> str:
    action = getattr(args, "action", None)
    return str(args.verb) if action is None else f"{args.verb} {action}"


@asynccontextmanager
async def telling_stalls(
    args: argparse.Namespace, sender: Sender, progress: "Progress", is_pending: Callable[[], bool] = lambda: False
) -> AsyncIterator[None]:
    """Says in a line, once for each time, that the node is there and takes nothing: who waits should know for what.

    After `--stall-timeout` of that (or `args.stall_option`, as others call it) the sender fails, and with it what waits
    for it. Not while bytes leave, unless they are of what was given back since the node last took anything.
    `is_pending`: such waits to be offered again. What ends the watching before its time ends the sender.
    """
    task = asyncio.create_task(_tell_stalls(args, sender, progress, is_pending))
    task.add_done_callback(partial(_stop_unwatched, sender))
    try:
        yield
    finally:
        task.cancel()


def _stop_unwatched(sender: Sender, watching: "asyncio.Task[None]") -> None:
    error = None if watching.cancelled() else watching.exception()
    if isinstance(error, Exception):
        sender.fail(error)


async def _tell_stalls(
    args: argparse.Namespace, sender: Sender, progress: "Progress", is_pending: Callable[[], bool]
) -> None:
    most, released, since, told = (-1, 0, 0), 0, 0.0, False
    limit_s: float | None = args.stall_timeout
    while True:
        now = time.monotonic()
        reason: Waits | None = "back" if is_pending() else sender.waits_for
        made = sender.progress
        if sender.released > released and made[0] == most[0]:
            made, reason = most, "back" if reason == "answers" else reason  # it may be offered again at this moment
        if reason is None or made > most:
            most, released, since, told = made, sender.released, now, False
        elif limit_s is not None and now - since >= limit_s:
            option = getattr(args, "stall_option", "--stall-timeout")
            text = f"{args.address}: {STALLS[reason]}; given up after {written(limit_s)} s ({option})"
            sender.fail(HoldfastError(text))
            return
        elif not told and now - since >= STALLED_S:
            told = True
            with suppress(OSError):  # whom nobody hears goes on all the same
                progress.clear()
                say(f"holdfast {args.verb}: {args.address}: {STALLS[reason]}; waiting", file=sys.stderr)
        await asyncio.sleep(min(STALLED_S, limit_s or STALLED_S) / 10)


class Progress:
    """One line on a terminal, redrawn a few times a second; nothing in a pipe. `prints`: of a verb whose output would
    stand between two of them, so nothing either where that goes to a terminal."""

    def __init__(self, *, prints: bool = False) -> None:
        self.is_shown = sys.stderr.isatty() and not (prints and sys.stdout.isatty())
        self._next = 0.0

    def show(self, text: Callable[[], str]) -> None:
        now = time.monotonic()
        if self.is_shown and now >= self._next:
            self._next = now + PROGRESS_S
            print(CLEAR_LINE + text(), end="", file=sys.stderr, flush=True)

    @asynccontextmanager
    async def shown(self, text: Callable[[], str]) -> AsyncIterator[None]:
        """Shows it again and again while the block runs, and clears it at the end."""
        task = asyncio.create_task(self._redraw(text)) if self.is_shown else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self.clear()

    async def _redraw(self, text: Callable[[], str]) -> None:
        while True:
            self.show(text)
            await asyncio.sleep(PROGRESS_S)

    def clear(self) -> None:
        if self.is_shown and self._next:
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)
