"""Connects sockets: several attempts at once, over all addresses of a name; the first that succeeds is used.

Rules of this file: plain sockets, without any protocol; nodes and clients dial in the same way. Source:
docs/adr/0005-node-runtime.md.
"""

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Any, Final

from holdfast.names import HostPort

DIAL_HEDGE_S: Final = 0.25
"""After this time a second connect is tried beside the first, because the kernel repeats a lost SYN only after 1, 3 and
7 s."""
DIAL_ATTEMPTS_MAX: Final = 4
"""The maximum number of simultaneous connects; beyond it the oldest is cancelled."""
DIAL_TIME_OUT_S: Final = 3.0


async def dial(
    host: str,
    port: int,
    *,
    source: HostPort | None = None,
    hedge_s: float = DIAL_HEDGE_S,
    time_out_s: float = DIAL_TIME_OUT_S,
) -> socket.socket:
    """A connected socket to `host`; the first of several connects that opens wins, the others are dropped.

    A new connect begins every `hedge_s` while none has succeeded; if all were refused, OSError. `source`: the local
    address; with a port there is one connect at a time.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + time_out_s
    try:
        async with asyncio.timeout_at(give_up):
            infos = await _resolve(host, port)
            sources = {} if source is None else await _sources(source)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"no answer for the name in {time_out_s:g} s") from None
    if source is not None:
        infos = [info for info in infos if info[0] in sources]
        if not infos:
            raise OSError(errno.EAFNOSUPPORT, f"{source.host} and {host} are not of one family")
    hedged = source is None or not source.port
    attempts: list[asyncio.Task[socket.socket]] = []
    failure: BaseException = OSError(errno.ETIMEDOUT, f"no answer in {time_out_s:g} s")
    started = 0
    hedge = loop.time()
    try:
        while (now := loop.time()) < give_up:
            if (now >= hedge and hedged) or not attempts:
                family, _, _, _, address = infos[started % len(infos)]
                attempts.append(loop.create_task(_connect(loop, family, address, sources.get(family))))
                started += 1
                hedge = now + hedge_s
                if len(attempts) > DIAL_ATTEMPTS_MAX:
                    attempts.pop(0).cancel()
            wait_s = max(0.0, (min(hedge, give_up) if hedged else give_up) - now)
            done, _ = await asyncio.wait(attempts, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                error = attempt.exception()
                if error is None:
                    attempts.remove(attempt)
                    return attempt.result()
                failure = error
            attempts = [attempt for attempt in attempts if attempt not in done]
            if not attempts and started >= len(infos):
                break
        raise failure
    finally:
        _drop(attempts)


async def _resolve(host: str, port: int) -> list[Any]:
    """As `socket.getaddrinfo`, in a thread where `host` is a name."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _sources(source: HostPort) -> dict[int, Any]:
    """The address to bind, by family."""
    infos = await _resolve(source.host, source.port)
    return {family: address for family, _, _, _, address in reversed(infos)}


async def _connect(loop: asyncio.AbstractEventLoop, family: int, address: Any, source: Any = None) -> socket.socket:
    own = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY where it says so
    try:
        own.setblocking(False)
        if source is not None:
            if source[1]:  # otherwise the next dial must wait until the system has freed the port
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(source)
        await loop.sock_connect(own, address)
    except BaseException:
        own.close()
        raise
    return own


def _drop(attempts: Sequence[asyncio.Task[socket.socket]]) -> None:
    """Cancels running connects and closes sockets that connected too late."""

    def close(attempt: asyncio.Task[socket.socket]) -> None:
        if not attempt.cancelled() and attempt.exception() is None:
            attempt.result().close()

    for attempt in attempts:
        attempt.add_done_callback(close)
        attempt.cancel()


def is_local(host: str) -> bool:
    """Whether what listens at `host`, a name or a numeric address, can be reached from this machine alone."""
    return host == "localhost" or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether `host` is a numeric loopback address: 127.0.0.0/8, also mapped into IPv6, or ::1."""
    host = host.partition("%")[0].removeprefix("::ffff:")
    try:
        return socket.inet_pton(socket.AF_INET, host)[0] == 127
    except OSError:
        pass
    try:
        return socket.inet_pton(socket.AF_INET6, host) == bytes(15) + b"\x01"
    except OSError:
        return False
