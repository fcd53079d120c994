"""Dialling, by itself, by a client and by a node: all addresses of a name, sources, refusals, what gives way."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client.fake_broker import FakeBroker, closed_port
from holdfast import dialling
from holdfast.client import Accepted, connect
from holdfast.dialling import DIAL_ATTEMPTS_MAX, dial
from holdfast.engine.events import Connect, ConnectFailed, ConnectionOpened, TurnEnded
from holdfast.errors import ConfigError
from holdfast.names import HostPort
from holdfast.settings.neighbours import NeighbourConfig
from node.fakes import FakeCore, Once, Running, neighbour, settings

LIMIT_S = 4.0


@pytest.fixture
def full() -> Iterator[int]:
    """A port whose queue of connects is full: what is sent there is dropped."""
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.fixture
def open_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """The name hub.test has an address for each of `ports`, in this order."""

    async def resolve(host: str, port: int, **_: object) -> list[Any]:
        assert host == "hub.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", way)) for way in ports]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)


async def test_the_next_address_is_tried_beside_one_that_does_not_answer(
    full: int, open_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, full, open_port)
    async with asyncio.timeout(LIMIT_S):
        with await dial("hub.test", 1, hedge_s=0.01) as own:
            assert own.getpeername()[1] == open_port


async def test_the_next_address_is_tried_at_once_after_a_refusal(
    open_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closed_port() as closed:
        resolve_to(monkeypatch, closed, open_port)
        async with asyncio.timeout(LIMIT_S):
            with await dial("hub.test", 1, hedge_s=60) as own:
                assert own.getpeername()[1] == open_port


async def test_refused_by_all_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as one, closed_port() as other:
        resolve_to(monkeypatch, one, other)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(ConnectionRefusedError):
                await dial("hub.test", 1, hedge_s=60)


async def test_no_answer_ends_in_time_and_leaves_no_attempt(full: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connects join while none has answered, so many at once and no more; all are given up in the end."""
    under_way, most = 0, 0
    connected = dialling._connect

    async def count(*arguments: Any) -> socket.socket:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await connected(*arguments)
        finally:
            under_way -= 1

    monkeypatch.setattr(dialling, "_connect", count)
    with pytest.raises(OSError, match=r"no answer in 0\.2 s") as caught:
        await dial("127.0.0.1", full, hedge_s=0.01, time_out_s=0.2)
    assert caught.value.errno == errno.ETIMEDOUT
    await asyncio.sleep(0)  # what was cancelled ends
    assert not under_way and DIAL_ATTEMPTS_MAX <= most <= DIAL_ATTEMPTS_MAX + 1


async def test_a_source_and_a_host_of_two_families_are_refused() -> None:
    with pytest.raises(OSError, match=r"::1 and 127\.0\.0\.1 are not of one family"):
        await dial("127.0.0.1", 1, source=HostPort("::1", 0))


# ------------------------------------------------------------------------------------------------ by a client


async def test_an_address_that_does_not_answer_does_not_hide_the_next_from_a_client(
    full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeBroker() as broker:
        resolve_to(monkeypatch, full, broker.port)
        async with await asyncio.wait_for(connect("amqp://hub.test", retry_s=0), LIMIT_S) as connection:
            assert await (await connection.sender("q")).send(b"x") == Accepted()


async def test_what_dials_without_tls_does_not_dial_amqps() -> None:
    with pytest.raises(ConfigError, match=r"amqps:.* needs dial"):
        await connect("amqps://127.0.0.1:1", dial=None)


# -------------------------------------------------------------------------------------------------- by a node


async def test_a_dial_goes_out_from_its_source(tmp_path: Path) -> None:
    there = FakeCore()
    async with Running(there, settings(tmp_path)) as hub:
        to_hub = NeighbourConfig(name="hub", remote=f"127.0.0.1:{hub.port}", local="127.0.0.9")
        here = FakeCore(Once(Connect(neighbour="hub"), TurnEnded))
        async with Running(here, settings(tmp_path, neighbours=(to_hub,))):
            assert (await there.until(ConnectionOpened)).peer.startswith("127.0.0.9:")


async def test_a_source_of_another_machine_is_one_clear_reason(tmp_path: Path) -> None:
    to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:9", local="192.0.2.1:0")
    core = FakeCore(Once(Connect(neighbour="hub"), TurnEnded))
    async with Running(core, settings(tmp_path, neighbours=(to_hub,))):
        failed = await core.until(ConnectFailed)
    assert failed.reason == "192.0.2.1:0 to 127.0.0.1:9: Cannot assign requested address"


async def test_a_refused_dial_is_reported_at_once(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        core = FakeCore(Once(Connect(neighbour="hub"), TurnEnded))
        async with Running(core, settings(tmp_path, neighbours=(neighbour(port),))):
            failed = await core.until(ConnectFailed)
    assert failed.neighbour == "hub"
    assert f"127.0.0.1:{port}" in failed.reason
    assert "refused" in failed.reason
