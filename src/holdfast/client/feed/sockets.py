"""Lines over TCP: listens, and hands on what devices send. Nothing is answered.

Rules of this file: a device is hostile until its line is journaled: how many connect, how long a line is, how fast
lines come and how long nothing comes are bounded. Who breaks a bound loses its connection, or waits; the others go on.
"""

import asyncio
import errno
import time
from typing import Final

from holdfast.client.feed.cutting import Cutter
from holdfast.client.feed.intake import Given, Intake
from holdfast.errors import ConfigError
from holdfast.units import written

READ_BYTES: Final = 64 * 1024
BURST_S: Final = 1.0
"""A device that was quiet may send the lines of so many seconds at once."""


class Rate:
    """How long a device has to wait, which may send `per_s` lines a second."""

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._left = self._most = max(1.0, per_s * BURST_S)
        self._at = now

    def wait_s(self, lines: int, now: float) -> float:
        """After `lines` lines: for how many seconds nothing more is read."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s) - lines
        self._at = now
        return max(0.0, -self._left / self._per_s)


class Sockets:
    """The listening socket and its connections."""

    def __init__(
        self,
        intake: Intake,
        *,
        line_bytes_max: int,
        connections_max: int,
        rate: float | None,
        silence_s: float,
    ) -> None:
        self.refused = 0
        """Connections beyond `connections_max`."""
        self._intake = intake
        self._line_bytes_max = line_bytes_max
        self._connections_max = connections_max
        self._rate = rate
        self._silence_s = silence_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, address: str) -> str:
        """Listens on HOST:PORT; where it does, with the port that the system chose for 0. ConfigError."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._accepted, host.strip("[]"), int(port), limit=READ_BYTES, backlog=self._connections_max
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = f"--listen {address}: the port is in use already; choose another, or 0 for any"
                raise ConfigError(text) from None
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot listen on {address} ({reason}); choose another --listen") from None
        name = self._server.sockets[0].getsockname()
        return f"{host}:{name[1]}"

    async def close(self) -> None:
        """Ends all connections; data that they had sent and the feed had not read is lost."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername")
        source = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a device"
        if len(self._tasks) >= self._connections_max:
            self.refused += 1
            writer.transport.abort()
            text = f"refused; the limit is {self._connections_max} connections (--connections-max)"
            self._intake.complaints.tell(f"{source}: {text}")
            return
        self._tasks.add(task)
        try:
            await self._take(reader, source)
        except (OSError, TimeoutError):
            pass  # the device is gone; its whole lines were taken
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, source: str) -> None:
        cutter = Cutter(self._line_bytes_max)
        form, tell = self._intake.form, self._intake.complaints.tell
        rate = None if self._rate is None else Rate(self._rate, time.monotonic())
        names: list[str] | None = None
        while True:
            try:
                async with asyncio.timeout(self._silence_s):
                    data = await reader.read(READ_BYTES)
            except TimeoutError:
                tell(f"{source}: closed, as nothing came for {written(self._silence_s)} s (--silence-timeout)")
                return
            if not data:
                if cutter.pending:
                    tell(f"{source}: {cutter.pending} bytes without the end of a line are left out")
                return
            await self._intake.room()
            given = []
            lines = cutter.cut(data)
            for line, _ in lines:
                if not line or not line.strip():
                    continue
                if form.has_header and names is None:
                    try:
                        names = form.names(line)
                    except ValueError as error:
                        tell(f"{source}: closed: {error}")
                        return
                else:
                    given.append(Given(source, line, names))
            self._intake.add(given)
            if cutter.skips or any(line is None for line, _ in lines):
                tell(f"{source}: closed, as a line is too long; the limit is {self._line_bytes_max} bytes")
                return
            if rate is not None:
                await asyncio.sleep(rate.wait_s(len(lines), time.monotonic()))
