"""The enrolment service: TLS, one line of JSON from a site, and one to it (`holdfast fleet serve`).

Rules of this file: connections, times and bytes are bounded; one site's mistake ends its own connection. A request for
changes is answered when there is a change, so that a push reaches a site at once although nobody can connect to it.
"""

import asyncio
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.engine.allowance import Allowance
from holdfast.errors import ConfigError, HoldfastError
from holdfast.fleet import authority as ca
from holdfast.fleet import private_files
from holdfast.fleet.authority import Authority
from holdfast.fleet.directory import Busy, FleetDirectory
from holdfast.fleet.enrolment import FAILED, Answered, Enrolment
from holdfast.fleet.wire import REQUEST_BYTES_MAX, WAIT_S_MAX, line
from holdfast.names import HostPort

CONNECTIONS_MAX: Final = 900
"""Each site that waits for changes has one connection. The usual limit of open files of a process is 1,024."""
ADDRESS_CONNECTIONS_MAX: Final = 100
REQUEST_S: Final = 60.0
"""The maximum time from a connection to the end of its request, including TLS; a satellite link is slow."""
ANSWER_S: Final = 600.0
LOOK_S: Final = 0.5
"""How often the service looks whether another command has changed the fleet."""
BUSY_S_MAX: Final = 20.0
"""How long a request waits while another command changes the fleet; one that was suspended does so for ever."""
BUSY_RETRY_S: Final = 0.1
LINES_PER_MINUTE: Final = 60
"""Of refusals in the log."""
CERTIFICATE_S: Final = 86_400.0
CERTIFICATE_RETRY_S: Final = 3_600.0
NONCE_BYTES: Final = 18
STOP_S: Final = 2.0
BACKLOG: Final = 128
ACCEPT_RETRY_S: Final = 1.0


class Service:
    """Serves `fleet` until `stop`. `log` takes a line for the operator."""

    def __init__(self, fleet: FleetDirectory, authority: Authority, software: str, log: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._authority = authority
        self._enrolment = Enrolment(fleet, authority, software)
        self._log = log
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._addresses: Counter[str] = Counter()
        """Connections by address."""
        self._changed = asyncio.Event()
        """Set, and replaced, when there are changes for sites."""
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals = Allowance(time.monotonic(), per_s=LINES_PER_MINUTE / 60, burst=LINES_PER_MINUTE)
        self._left_out = 0

    async def run(self, where: HostPort, on_ready: Callable[[str], None]) -> None:
        """Serves; calls `on_ready` with HOST:PORT. Raises HoldfastError if it cannot listen there."""
        self._certify()
        with _listener(where) as listener:
            listener.setblocking(False)
            on_ready(str(where._replace(port=listener.getsockname()[1])))
            working = {
                asyncio.ensure_future(each)
                for each in (self._accept(listener), self._watch(), self._certify_daily(), self._stopped.wait())
            }
            try:
                done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in (*working, *self._tasks):
                    task.cancel()
                await asyncio.gather(*working, *self._tasks, return_exceptions=True)

    def stop(self) -> None:
        self._stopped.set()

    def _certify(self) -> None:
        """Makes a new certificate for new connections."""
        key = ca.new_key()
        made = self._authority.certify_service(key.public_key(), time.time())
        file = self._fleet.path / "service.pem"
        private_files.write(
            file, ca.key_pem(key) + made.pem.encode() + self._authority.pem.encode(), private_files.PRIVATE
        )
        self._context.load_cert_chain(file)

    async def _certify_daily(self) -> None:
        wait_s = CERTIFICATE_S
        while True:
            await asyncio.sleep(wait_s)
            try:
                self._certify()
                wait_s = CERTIFICATE_S
            except (OSError, HoldfastError) as error:  # the certificate in force is good for weeks
                wait_s = CERTIFICATE_RETRY_S
                self._log(f"cannot renew the service's certificate ({error}); trying again in {wait_s / 3600:g} h")

    async def _watch(self) -> None:
        seen, register = _stamp(self._fleet.register_file), self._fleet.register()
        while True:
            await asyncio.sleep(LOOK_S)
            stamp = _stamp(self._fleet.register_file)
            if stamp == seen:
                continue
            seen = stamp
            try:
                before, register = register, self._fleet.register()
            except ConfigError as error:  # somebody is putting back a copy
                self._log(str(error))
                continue
            if (before.version, before.crl_number) != (register.version, register.crl_number):
                self._changed.set()
                self._changed = asyncio.Event()

    async def _accept(self, listener: socket.socket) -> None:
        """Counts each connection from here on, before the first byte of TLS."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, whence = await loop.sock_accept(listener)
            except OSError as error:
                self._log(f"cannot accept connections ({error.strerror}); trying again in {ACCEPT_RETRY_S:g} s")
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            address = str(whence[0])
            if self._addresses[address] >= ADDRESS_CONNECTIONS_MAX or len(self._tasks) >= CONNECTIONS_MAX:
                accepted.close()
                continue
            self._addresses[address] += 1
            task = loop.create_task(self._connected(accepted, address))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, address))

    def _ended(self, address: str, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]

    async def _connected(self, accepted: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=REQUEST_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._context, ssl_handshake_timeout=REQUEST_S,
                ssl_shutdown_timeout=STOP_S,
            )  # fmt: skip
        except OSError:
            return  # no TLS, or too slow
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._serve(reader, writer, address)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the site is gone, or says no line: it asks again
        except Exception as error:  # of one request: the service goes on
            self._log(f"a request from {address} failed: {error!r}")
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        async with asyncio.timeout(REQUEST_S):
            writer.write(line({"nonce": nonce}))
            request = await reader.readuntil(b"\n")
        changed = self._changed
        answered = await self._answer(request, nonce, address)
        if answered.waits:
            if not await _is_set(changed, reader):
                return
            answered = await self._answer(request, nonce, address)
        if answered.log:
            self._tell(answered.log, is_refused="refused" in answered.answer)
        async with asyncio.timeout(ANSWER_S):
            writer.write(line(answered.answer))
            await writer.drain()
            await reader.read(1)  # until the site has closed it

    async def _answer(self, request: bytes, nonce: str, address: str) -> Answered:
        """The answer to a request, once no other command changes the fleet; the others are served meanwhile."""
        ends = time.monotonic() + BUSY_S_MAX
        while True:
            try:
                return self._enrolment.answer(request, nonce, address, time.time(), time.monotonic())
            except Busy as error:
                if time.monotonic() >= ends:
                    text = f"cannot answer a request: {error} for {BUSY_S_MAX:g} s (from {address})"
                    return Answered({"refused": FAILED}, text)
            await asyncio.sleep(BUSY_RETRY_S)

    def _tell(self, text: str, *, is_refused: bool) -> None:
        """Strangers may ask as often as they like, so of refusals only so many lines are logged."""
        if is_refused and not self._refusals.count(time.monotonic()):
            self._left_out += 1
            return
        more = f"; {self._left_out} refusals before it are left out" if self._left_out else ""
        self._left_out = 0
        self._log(f"{text}{more}")


def _listener(where: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        return socket.create_server((where.host, where.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise HoldfastError(f"cannot listen on {where} ({error.strerror or error}); give another --listen") from None


async def _is_set(changed: asyncio.Event, reader: asyncio.StreamReader) -> bool:
    """Waits for the event, at most WAIT_S_MAX. False if the site has disconnected meanwhile, or sends more than one
    request."""
    waiting = asyncio.ensure_future(changed.wait())
    going = asyncio.ensure_future(reader.read(1))
    try:
        done, _ = await asyncio.wait([waiting, going], timeout=WAIT_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        return going not in done
    finally:
        for task in (waiting, going):
            task.cancel()
        await asyncio.gather(waiting, going, return_exceptions=True)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns
