"""What stands between two nodes of the tests and counts the bytes that pass."""

import asyncio
from typing import Self

from holdfast_lab.real.large_client import BLOCK, LIMIT_S


class Relay:
    """Stands before a port of 127.0.0.1, passes on what comes, and tells how much that was."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._bytes = 0
        self._moved = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def passed(self, size: int) -> None:
        """Waits until so many bytes have gone to the target."""
        async with asyncio.timeout(LIMIT_S), self._moved:
            await self._moved.wait_for(lambda: self._bytes >= size)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = await asyncio.open_connection("127.0.0.1", self._target)
        except ConnectionError:
            writer.transport.abort()
            return
        for pipe in (self._pipe(reader, onward[1], counts=True), self._pipe(onward[0], writer, counts=False)):
            task = asyncio.get_running_loop().create_task(pipe)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        try:
            while data := await reader.read(BLOCK):
                writer.write(data)
                await writer.drain()
                if counts:
                    async with self._moved:
                        self._bytes += len(data)
                        self._moved.notify_all()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
