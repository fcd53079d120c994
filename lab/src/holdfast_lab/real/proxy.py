"""A TCP proxy that breaks connections on purpose: loudly, silently, at any byte.

Loudly: both sides get RST (SO_LINGER 0). Silently: nothing is forwarded in either direction, no FIN and no RST; the
sockets stay open, as behind a link that drops every packet. Connections made while silent are taken and lead nowhere.
Refusing: as loudly, and every new connection gets RST too, as where nobody listens. After `heal` new connections flow;
those that were cut stay dead. Source of the distinction: amqp-on-unstable-networks, hand-off: a peer learns of an
outage by its own time-outs alone. Held back (`hold`): nothing passes in a direction, and all of it does after `let_go`,
as TCP sends again what a partition kept. Slow: each chunk waits `delay_s`, and as long as its bytes take at `rate`
bytes a second.

Rules of this file: bytes are forwarded in order and never changed; a cut "after N bytes" forwards exactly N
bytes of that direction, counted over all connections since the cut was armed.
"""

import asyncio
import enum
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

CHUNK_BYTES: Final = 64 * 1024
CONNECTIONS_MAX: Final = 256
"""Connections held, dead ones included; the oldest dead one is closed for a new one above it."""


class Direction(enum.Enum):
    """Whose bytes: the side that connects to the proxy is the client."""

    FROM_CLIENT = "from client"
    FROM_SERVER = "from server"


class Manner(enum.Enum):
    LOUD = "loud"
    SILENT = "silent"


@dataclass(slots=True)
class Counters:
    """Since the proxy's start."""

    connections: int = 0
    bytes_forwarded: dict[Direction, int] = field(default_factory=lambda: dict.fromkeys(Direction, 0))
    cuts_loud: int = 0
    cuts_silent: int = 0
    refused: int = 0
    """Connections reset because the server was not to be reached, or was not to be."""


@dataclass(slots=True)
class _Armed:
    manner: Manner
    direction: Direction
    bytes_left: int


class _Pair:
    """One connection: the client's socket, ours to the server, and the two tasks that forward."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.dead = False
        """Silent for ever: forwards nothing, keeps its sockets."""
        self.half_closed = 0

    def freeze(self) -> None:
        self.dead = True
        self._cancel()

    def close(self, *, reset: bool) -> None:
        self.dead = True
        self._cancel()
        for sock in (self.client, self.server):
            if sock is not None:
                if reset:
                    try:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    except OSError:
                        pass
                sock.close()

    def _cancel(self) -> None:
        current = asyncio.current_task()
        for task in self.tasks:
            if task is not current:
                task.cancel()


class Proxy:
    """`async with Proxy("127.0.0.1", 5672) as proxy`: listens on a loopback port of the system's choice."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.counters = Counters()
        self.silent = False
        self.refusing = False
        self.delay_s = 0.0
        self.rate: float | None = None
        self._passing = {direction: asyncio.Event() for direction in Direction}
        for passing in self._passing.values():
            passing.set()
        self._armed: _Armed | None = None
        self._cut = asyncio.Event()
        self._pairs: list[_Pair] = []
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._accepting: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """HOST:PORT to connect to."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    async def __aenter__(self) -> "Proxy":
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(), name="proxy accept")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [task for pair in self._pairs for task in pair.tasks]
        if self._accepting is not None:
            self._accepting.cancel()
            tasks.append(self._accepting)
        for pair in self._pairs:
            pair.close(reset=True)
        self._pairs.clear()
        self._listener.close()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)

    # ------------------------------------------------------------------------------------------------- faults

    def cut_loudly(self) -> None:
        """RST to both sides of every live connection; new ones flow at once."""
        self._cut_now(Manner.LOUD)

    def cut_silently(self) -> None:
        """From now on nothing is forwarded, on no connection, old or new, until `heal`."""
        self._cut_now(Manner.SILENT)

    def refuse(self) -> None:
        """RST to both sides of every live connection, and to every new one until `heal`."""
        self.heal(reset=True)
        self.refusing = True
        self._cut_now(Manner.LOUD)

    def cut_after(self, manner: Manner, direction: Direction, count: int) -> None:
        """Arms a cut when `count` (≥ 0) more bytes of `direction` have been forwarded; replaces one armed
        before.
        """
        assert count >= 0, count
        self._cut.clear()
        self._armed = _Armed(manner, direction, count)
        if count == 0:
            self._cut_now(manner)

    async def cut_happened(self) -> None:
        """Waits until the armed cut has happened."""
        await self._cut.wait()

    def heal(self, *, reset: bool = False) -> None:
        """New connections flow again; old ones stay dead, or are told so with RST where `reset`. Disarms."""
        self._armed = None
        self.silent = False
        self.refusing = False
        if reset:
            for pair in [pair for pair in self._pairs if pair.dead]:
                pair.close(reset=True)
                self._pairs.remove(pair)

    def hold(self, *directions: Direction) -> None:
        """Stops forwarding in those directions, or in both; nothing is lost."""
        for direction in directions or Direction:
            self._passing[direction].clear()

    def let_go(self, *directions: Direction) -> None:
        """What was held back passes, and what comes."""
        for direction in directions or Direction:
            self._passing[direction].set()

    def retarget(self, address: str) -> None:
        """Where new connections go, HOST:PORT; for a server that came back elsewhere."""
        host, _, port = address.rpartition(":")
        self.target = (host, int(port))

    def _cut_now(self, manner: Manner) -> None:
        self._armed = None
        if manner is Manner.LOUD:
            self.counters.cuts_loud += 1
            for pair in [pair for pair in self._pairs if not pair.dead]:
                pair.close(reset=True)
                self._pairs.remove(pair)
        else:
            self.counters.cuts_silent += 1
            self.silent = True
            self.refusing = False
            for pair in self._pairs:
                pair.freeze()
        self._cut.set()

    # --------------------------------------------------------------------------------------------- forwarding

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(self._listener)
            client.setblocking(False)
            self.counters.connections += 1
            pair = _Pair(client)
            if self.refusing:
                self.counters.refused += 1
                pair.close(reset=True)
                continue
            self._make_room()
            self._pairs.append(pair)
            if self.silent:
                pair.dead = True
            else:
                pair.tasks.append(asyncio.create_task(self._open(pair), name="proxy connection"))

    def _make_room(self) -> None:
        if len(self._pairs) >= CONNECTIONS_MAX:
            oldest = next((pair for pair in self._pairs if pair.dead), self._pairs[0])
            oldest.close(reset=True)
            self._pairs.remove(oldest)

    async def _open(self, pair: _Pair) -> None:
        loop = asyncio.get_running_loop()
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setblocking(False)
        pair.server = server
        for sock in (pair.client, server):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_connect(server, self.target)
        except OSError:
            self.counters.refused += 1
            self._drop(pair)
            return
        for source, sink, direction in (
            (pair.client, server, Direction.FROM_CLIENT),
            (server, pair.client, Direction.FROM_SERVER),
        ):
            pair.tasks.append(
                asyncio.create_task(self._forward(pair, source, sink, direction), name=f"proxy {direction.value}")
            )

    async def _forward(self, pair: _Pair, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not pair.dead:
                data = await loop.sock_recv(source, CHUNK_BYTES)
                await self._pass(direction, len(data))
                if not data:
                    break
                armed = self._armed if self._armed and self._armed.direction is direction else None
                if armed is not None:
                    data = data[: armed.bytes_left]
                    armed.bytes_left -= len(data)
                await loop.sock_sendall(sink, data)
                self.counters.bytes_forwarded[direction] += len(data)
                if armed is not None and armed.bytes_left == 0 and self._armed is armed:
                    self._cut_now(armed.manner)
                    return
            self._half_close(pair, sink)
        except OSError:
            await self._passing[direction].wait()  # a reset is a packet too
            self._drop(pair)

    async def _pass(self, direction: Direction, size: int) -> None:
        """Waits for as long as so many bytes take."""
        wait_s = self.delay_s + (0.0 if self.rate is None else size / self.rate)
        if wait_s:
            await asyncio.sleep(wait_s)
        await self._passing[direction].wait()

    def _half_close(self, pair: _Pair, sink: socket.socket) -> None:
        """An orderly FIN of one side goes on to the other; after both the sockets are closed."""
        pair.half_closed += 1
        if pair.half_closed == 2:
            self._drop(pair, reset=False)
            return
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(pair)

    def _drop(self, pair: _Pair, *, reset: bool = True) -> None:
        if pair in self._pairs:
            self._pairs.remove(pair)
            pair.close(reset=reset)
