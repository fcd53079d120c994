"""A client's side of a simulated connection: asyncio's transport and protocol over `End`.

Rules of this file: the client library and its loop see what they would
see on a socket: a read for each arrival, a pause when too much is unsent, one `connection_lost`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from holdfast_lab.sim.loop import WorldLoop
from holdfast_lab.sim.network import End, SimNetwork, Waiting


class SimTransport(asyncio.Transport):
    """Made by `Connector`; also the holder of the client's end."""

    def __init__(self, loop: WorldLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._end: End | None = None
        self._closing = False

    # ------------------------------------------------------------------------------------------------ the network

    def opened(self, end: End, *, dialled: bool) -> None:
        self._end = end
        end.holder = self
        self._protocol.connection_made(self)

    def received(self, end: End, data: bytes) -> None:
        if not self._closing:
            self._protocol.data_received(data)

    def lost(self, end: End, reason: str) -> None:
        self._lost(ConnectionResetError(reason))

    def writing(self, end: End, *, paused: bool) -> None:
        if paused:
            self._protocol.pause_writing()
        else:
            self._protocol.resume_writing()

    def _lost(self, error: Exception | None) -> None:
        if self._end is not None:
            self._end = None
            self._closing = True
            self._protocol.connection_lost(error)

    # ------------------------------------------------------------------------------------------------ asyncio

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._end is not None and not self._closing:
            self._end.send(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._close(abort=False)

    def abort(self) -> None:
        self._close(abort=True)

    def _close(self, *, abort: bool) -> None:
        if self._end is not None and not self._closing:
            self._closing = True
            self._end.close(abort=abort)
            self._loop.call_soon(self._lost, None)

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The network's own marks hold."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Connector:
    """Answers the loop's `create_connection`: the host of a URL is `node` or `client.node`, a place of its own.

    `opened` is told of each protocol and its node in the moment in which they are joined.
    """

    def __init__(self, loop: WorldLoop, network: SimNetwork, opened: Callable[[asyncio.Protocol, str], None]) -> None:
        self._loop = loop
        self._network = network
        self._opened = opened

    async def __call__(self, protocol_factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        protocol = protocol_factory()
        transport = SimTransport(self._loop, protocol)
        place, _, node = host.rpartition(".")
        answered: asyncio.Future[None] = self._loop.create_future()
        waiting = _Dial(transport, answered, lambda: self._opened(protocol, node))

        def failed(reason: str) -> None:
            if not answered.done():
                error = TimeoutError(reason) if reason == "timed out" else ConnectionRefusedError(111, reason)
                answered.set_exception(error)

        self._network.dial(waiting, place or f"client.{node}", node, neighbour=None, failed=failed)
        try:
            await answered
        except asyncio.CancelledError:
            waiting.wanted = False
            raise
        return transport, protocol


class _Dial(Waiting):
    """Holds a dialled end until whoever asked takes it, or hangs up where nobody waits any more."""

    def __init__(self, transport: SimTransport, answered: "asyncio.Future[None]", taken: Callable[[], None]) -> None:
        self.transport = transport
        self.answered = answered
        self.taken = taken
        self.wanted = True

    def opened(self, end: End, *, dialled: bool) -> None:
        if self.wanted and not self.answered.done():
            self.answered.set_result(None)
            self.taken()
            self.transport.opened(end, dialled=dialled)
        else:
            end.close(abort=True)
