"""The fault proxy between two plain sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast_lab.real.proxy import Direction, Manner, Proxy

LIMIT_S = 30.0
QUIET_S = 0.15
"""How long nothing must arrive to call it silence; the one wait here that no event can end."""


class Echo:
    """A server that keeps what it got and sends it back."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.resets = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.received += data
                writer.write(data)
                await writer.drain()
        except ConnectionResetError:
            self.resets += 1
        finally:
            self.ended.set()
            writer.close()


@asynccontextmanager
async def echo_behind_proxy() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Proxy(host, port) as proxy:
        yield echo, proxy
    server.close()
    await server.wait_closed()


async def dial(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = proxy.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def test_forwards_both_ways_and_counts() -> None:
    async with echo_behind_proxy() as (_, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        payload = bytes(range(256)) * 4096
        writer.write(payload)
        assert await reader.readexactly(len(payload)) == payload
        assert proxy.counters.connections == 1
        assert proxy.counters.bytes_forwarded[Direction.FROM_CLIENT] == len(payload)
        writer.close()


async def test_an_orderly_end_goes_through() -> None:
    async with echo_behind_proxy() as (echo, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        writer.write(b"bye")
        writer.write_eof()
        assert await reader.read() == b"bye"
        await echo.ended.wait()
        assert echo.resets == 0
        writer.close()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 65_536, 65_537, 200_000])
async def test_a_loud_cut_lets_exactly_that_many_bytes_pass(count: int) -> None:
    async with echo_behind_proxy() as (echo, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        writer.write(b"x" * 10)
        await reader.readexactly(10)
        proxy.cut_after(Manner.LOUD, Direction.FROM_CLIENT, count)
        writer.write(b"y" * 300_000)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while await reader.read(65536):
                pass
            raise AssertionError("an orderly end where a reset was due")
        await proxy.cut_happened()
        await echo.ended.wait()
        assert len(echo.received) <= 10 + count
        assert proxy.counters.bytes_forwarded[Direction.FROM_CLIENT] == 10 + count
        assert proxy.counters.cuts_loud == 1
        writer.close()


async def test_after_a_loud_cut_new_connections_flow_at_once() -> None:
    async with echo_behind_proxy() as (_, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        writer.write(b"a")
        await reader.readexactly(1)
        proxy.cut_loudly()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()
        reader, writer = await dial(proxy)
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"
        writer.close()


@pytest.mark.parametrize("count", [1, 8, 100])
async def test_a_silent_cut_ends_nothing_and_forwards_nothing(count: int) -> None:
    async with echo_behind_proxy() as (echo, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        proxy.cut_after(Manner.SILENT, Direction.FROM_SERVER, count)
        writer.write(b"z" * 1_000)
        assert await reader.readexactly(count) == b"z" * count
        await proxy.cut_happened()
        seen = len(echo.received)
        writer.write(b"z" * 1_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), QUIET_S)
        assert len(echo.received) == seen and not echo.ended.is_set()
        writer.close()


async def test_connections_made_while_silent_lead_nowhere_and_stay_dead_after_heal() -> None:
    async with echo_behind_proxy() as (echo, proxy), asyncio.timeout(LIMIT_S):
        proxy.cut_silently()
        reader, writer = await dial(proxy)
        writer.write(b"lost")
        proxy.heal()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), QUIET_S)
        fresh_reader, fresh_writer = await dial(proxy)
        fresh_writer.write(b"found")
        assert await fresh_reader.readexactly(5) == b"found"
        assert bytes(echo.received) == b"found"
        writer.close()
        fresh_writer.close()


async def test_a_server_that_is_not_there_is_a_reset() -> None:
    async with Proxy("127.0.0.1", 1) as proxy, asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        assert proxy.counters.refused == 1
        writer.close()


async def test_retarget_moves_new_connections() -> None:
    async with (
        echo_behind_proxy() as (echo, proxy),
        echo_behind_proxy() as (other, _),
        asyncio.timeout(LIMIT_S),
    ):
        server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        proxy.retarget(f"{host}:{port}")
        reader, writer = await dial(proxy)
        writer.write(b"moved")
        assert await reader.readexactly(5) == b"moved"
        assert bytes(other.received) == b"moved" and not echo.received
        writer.close()
        server.close()


async def test_what_is_held_back_passes_later_and_one_way_alone() -> None:
    async with echo_behind_proxy() as (echo, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        proxy.hold(Direction.FROM_SERVER)
        writer.write(b"one way")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), QUIET_S)
        assert echo.received == b"one way"
        proxy.hold()
        proxy.let_go(Direction.FROM_SERVER)
        assert await reader.readexactly(7) == b"one way"
        writer.write(b", and back")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), QUIET_S)
        assert echo.received == b"one way"
        proxy.let_go()
        assert await reader.readexactly(10) == b", and back"


async def test_a_slow_link_takes_its_time() -> None:
    async with echo_behind_proxy() as (_, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        proxy.delay_s, proxy.rate = 0.05, 1_000.0
        began = asyncio.get_running_loop().time()
        writer.write(b"x" * 100)
        assert await reader.readexactly(100) == b"x" * 100
        assert asyncio.get_running_loop().time() - began >= 2 * (0.05 + 0.1)


async def test_refusing_resets_what_is_there_and_what_comes_until_healed() -> None:
    async with echo_behind_proxy() as (echo, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        await echo.ended.wait()
        refused, late = await dial(proxy)
        try:
            assert await refused.read(1) == b""
        except ConnectionResetError:
            pass  # as the reset comes before or after the connection is in use
        late.close()
        assert proxy.counters.refused == 1 and len(echo.received) == 1
        proxy.heal()
        reader, writer = await dial(proxy)
        writer.write(b"y")
        assert await reader.readexactly(1) == b"y"
        writer.close()


async def test_healing_may_tell_silent_connections_that_they_are_dead() -> None:
    async with echo_behind_proxy() as (_, proxy), asyncio.timeout(LIMIT_S):
        reader, writer = await dial(proxy)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        proxy.cut_silently()
        proxy.heal(reset=True)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
