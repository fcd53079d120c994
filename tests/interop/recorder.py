"""A TCP relay between a client and a node that keeps every frame, and can cut the line as a dying host does.

Rules of this file: knows of AMQP no more than the frame header (§2.3) and the descriptor's code, so that what it
says of sizes and of empty frames does not depend on the codec under test.
"""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Self

PREAMBLES: Final = (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00")
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)


class Frame(NamedTuple):
    """`code`: the performative's descriptor; None for an empty frame; -1 for a protocol header. `size` in bytes."""

    from_client: bool
    code: int | None
    sasl: bool
    size: int
    at: float
    raw: bytes


class Recorder:
    """Listens on a free port of 127.0.0.1 and relays to `port`; `with Recorder(port) as recorder:`."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.frames: list[Frame] = []
        self.connections = 0
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def count(self, *, from_client: bool, code: int | None) -> int:
        """Frames of that kind and side so far."""
        with self._changed:
            return sum(frame.from_client == from_client and frame.code == code for frame in self.frames)

    def sizes(self, *, from_client: bool) -> list[int]:
        """Sizes of all AMQP frames of a side, in bytes."""
        with self._changed:
            return [frame.size for frame in self.frames if frame.from_client == from_client and frame.code != -1]

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Whether `condition` came true within `limit_s`; looked at whenever a frame has passed."""
        deadline = time.monotonic() + limit_s
        with self._changed:
            return self._changed.wait_for(condition, deadline - time.monotonic())

    def cut(self) -> None:
        """Resets every connection on both sides: no close, no end of the stream."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(10)

    async def _cut(self) -> None:
        for writer in list(self._writers):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, there_writer}
        for source, sink, from_client in ((reader, there_writer, True), (there_reader, writer, False)):
            task = asyncio.create_task(self._relay(source, sink, from_client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, from_client: bool) -> None:
        held = bytearray()
        try:
            while data := await source.read(65536):
                held += data
                self._parse(held, from_client)
                sink.write(data)
                await sink.drain()
            sink.close()
        except OSError:
            sink.transport.abort()

    def _parse(self, held: bytearray, from_client: bool) -> None:
        with self._changed:
            while len(held) >= 8:
                if bytes(held[:8]) in PREAMBLES:
                    size, code, sasl = 8, -1, held[4] == 3
                else:
                    size = int.from_bytes(held[:4], "big")
                    if len(held) < size:
                        break
                    start = 4 * held[4]
                    sasl = held[5] == 1
                    code = None if start == size else held[start + 2]
                frame = Frame(from_client, code, sasl, size, time.monotonic(), bytes(held[:size]))
                self.frames.append(frame)
                del held[:size]
            self._changed.notify_all()
