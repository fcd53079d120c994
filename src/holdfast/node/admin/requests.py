"""Requests of HTTP at the admin port: a server as small as can be.

Rules of this file: everything from a client is hostile. Connections, the size of a request and the time of each step
are bounded; a request has no body, a connection carries one request, and what is wrong with one ends that connection
alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from holdfast.names import HostPort
from holdfast.node.socket_errors import cannot_listen

CONNECTIONS_MAX: Final = 16
"""At once; a further one is dropped without an answer."""
REQUEST_BYTES_MAX: Final = 8_192
"""Of the request's line and headers."""
REQUEST_S: Final = 5.0
"""Until a request is there."""
ANSWER_S: Final = 10.0
"""Until an answer is made, and again until the client has taken it."""
TEXT: Final = "text/plain; charset=utf-8"

_log = logging.getLogger(__name__)


class Answered(NamedTuple):
    """An answer of HTTP."""

    status: int
    body: bytes
    kind: str = TEXT


REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    431: "Request Header Fields Too Large", 503: "Service Unavailable",
}  # fmt: skip

FIRST_BYTES: Final = 4
_OTHERS: Final = (b"AMQP", b"\x16\x03")
"""How AMQP and TLS begin: such a client waits for an answer, and would send no more."""

Page = Callable[[], Awaitable[Answered]]


class AdminServer:
    """Answers GET and HEAD of `pages`, by path. Created and called on the loop's thread."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.AbstractServer | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, where: HostPort) -> str:
        """Listens there; returns HOST:PORT. ConfigError or HoldfastError if it cannot."""
        try:
            self._server = await asyncio.start_server(
                self._serve, where.host, where.port, limit=REQUEST_BYTES_MAX, backlog=CONNECTIONS_MAX
            )
        except OSError as error:
            raise cannot_listen("admin listen", where, error) from None
        port = self._server.sockets[0].getsockname()[1]
        return str(where._replace(port=port))

    def close(self) -> None:
        """Takes and answers nothing more. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            method, answer = await self._answer(reader)
            async with asyncio.timeout(ANSWER_S):
                writer.write(_encoded(answer, with_body=method != "HEAD"))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass  # the client is slow, or gone
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[str, Answered]:
        try:
            async with asyncio.timeout(REQUEST_S):
                first = await reader.readexactly(FIRST_BYTES)
                if first.startswith(_OTHERS):
                    return "GET", _told(400, "expected a request of HTTP/1.1")
                head = first + await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return "GET", _told(408, "the request took too long")
        except asyncio.LimitOverrunError:
            return "GET", _told(431, f"the request has more than {REQUEST_BYTES_MAX} bytes")
        except asyncio.IncompleteReadError:
            return "GET", _told(400, "the request is not complete")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return "GET", _told(400, "expected a request of HTTP/1.1")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, _told(405, "expected GET or HEAD")
        page = self._pages.get(path)
        if page is None:
            return method, _told(404, f"expected one of {', '.join(self._pages)}")
        try:
            async with asyncio.timeout(ANSWER_S):
                return method, await page()
        except TimeoutError:
            return method, _told(503, "the node did not answer in time")
        except Exception:
            _log.exception("admin %s", path)
            return method, _told(503, "a failure of the node, see its log")


def _told(status: int, text: str) -> Answered:
    return Answered(status, f"{text}\n".encode())


def _encoded(answer: Answered, *, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {REASONS[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
