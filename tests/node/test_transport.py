"""Listening and dialling with real sockets."""

import asyncio
import errno
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import dialling
from holdfast.dialling import dial
from holdfast.errors import ConfigError
from holdfast.names import HostPort
from holdfast.node.network import transport
from holdfast.node.network.transport import listen
from support.eventually import eventually_true


def ports(listeners: list[socket.socket]) -> set[int]:
    found = {listener.getsockname()[1] for listener in listeners}
    for listener in listeners:
        listener.close()
    return found


def test_all_addresses_of_a_name_share_one_port() -> None:
    assert len(ports(listen(HostPort("localhost", 0), loopback_only=True))) == 1


def test_a_name_that_leads_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))
    monkeypatch.setattr(transport.socket, "getaddrinfo", lambda *_, **__: [info])
    with pytest.raises(ConfigError, match=r"localhost:0 without a \[\[user\]\]"):
        listen(HostPort("localhost", 0), loopback_only=True)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0 for node listen \(Cannot assign requested address\)"):
        listen(HostPort("192.0.2.1", 0), loopback_only=False)


def test_a_port_that_only_root_may_open_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(transport, "_bound", refuse)
    with pytest.raises(
        ConfigError, match=r"127\.0\.0\.1:80 for node listen \(Permission denied\); expected a port that this user may"
    ):
        listen(HostPort("127.0.0.1", 80), loopback_only=True)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.invalid:0"):
        listen(HostPort("no.such.invalid", 0), loopback_only=False)


Connect = Callable[[asyncio.AbstractEventLoop, int, Any], Any]


async def scripted(monkeypatch: pytest.MonkeyPatch, outcomes: list[float | OSError]) -> list[float]:
    """Connects that take the given seconds each, or fail; the list of when each began, in seconds."""
    began: list[float] = []
    start = time.monotonic()

    async def connect(loop: asyncio.AbstractEventLoop, family: int, address: Any, source: Any) -> socket.socket:
        outcome = outcomes[len(began)]
        began.append(time.monotonic() - start)
        if isinstance(outcome, OSError):
            raise outcome
        await asyncio.sleep(outcome)
        return socket.socket()

    monkeypatch.setattr(dialling, "_connect", connect)
    return began


async def test_a_lost_first_connect_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    began = await scripted(monkeypatch, [60.0, 60.0, 0.0])
    (await dial("127.0.0.1", 1, hedge_s=0.05, time_out_s=5.0)).close()
    assert len(began) == 3
    assert began[2] < 2.0


async def test_a_refusal_is_final_when_nothing_else_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    began = await scripted(monkeypatch, [ConnectionRefusedError(111, "no")])
    with pytest.raises(ConnectionRefusedError):
        await dial("127.0.0.1", 1, hedge_s=0.05, time_out_s=5.0)
    assert len(began) == 1


async def test_a_refusal_beside_another_connect_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    await scripted(monkeypatch, [0.05, ConnectionRefusedError(111, "no")])
    (await dial("127.0.0.1", 1, hedge_s=0.01, time_out_s=5.0)).close()


async def test_silence_ends_after_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    began = await scripted(monkeypatch, [60.0] * 100)
    with pytest.raises(OSError, match=r"no answer in 0\.2 s"):
        await dial("127.0.0.1", 1, hedge_s=0.05, time_out_s=0.2)
    assert 1 <= len(began) <= 5


async def test_connects_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = 0
    most = 0

    async def connect(loop: asyncio.AbstractEventLoop, family: int, address: Any, source: Any) -> socket.socket:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await asyncio.Event().wait()
        finally:
            under_way -= 1
        raise AssertionError

    monkeypatch.setattr(dialling, "_connect", connect)
    dialled = asyncio.create_task(dial("127.0.0.1", 1, hedge_s=0.005, time_out_s=60.0))
    await eventually_true(lambda: most >= dialling.DIAL_ATTEMPTS_MAX, what="as many as may be")
    await asyncio.sleep(0.1)  # in which more would begin
    assert most in (dialling.DIAL_ATTEMPTS_MAX, dialling.DIAL_ATTEMPTS_MAX + 1)
    dialled.cancel()
    await asyncio.wait([dialled])
    assert under_way == 0
    with pytest.raises(OSError, match="no answer"):
        await dial("127.0.0.1", 1, hedge_s=0.005, time_out_s=0.2)
    for _ in range(3):
        await asyncio.sleep(0)
    assert under_way == 0


async def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    async def resolve(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, 0, 0, "", (f"127.0.0.{n}", port)) for n in (1, 2)]

    async def connect(loop: asyncio.AbstractEventLoop, family: int, address: Any, source: Any) -> socket.socket:
        tried.append(address[0])
        if address[0] == "127.0.0.1":
            raise ConnectionRefusedError(111, "no")
        return socket.socket()

    monkeypatch.setattr(dialling, "_connect", connect)
    monkeypatch.setattr(dialling, "_resolve", resolve)
    (await dial("hub", 1)).close()
    assert tried == ["127.0.0.1", "127.0.0.2"]


async def test_a_source_of_another_family_is_refused() -> None:
    with pytest.raises(OSError, match=r"::1 and 127\.0\.0\.1 are not of one family"):
        await dial("127.0.0.1", 1, source=HostPort("::1", 0))


async def test_a_source_with_a_port_has_one_connect_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began = await scripted(monkeypatch, [60.0] * 100)
    with pytest.raises(OSError, match="no answer"):
        await dial("127.0.0.1", 1, source=HostPort("127.0.0.1", 7), hedge_s=0.01, time_out_s=0.2)
    assert len(began) == 1


async def test_a_source_with_a_port_is_used_again_and_again() -> None:
    with socket.socket() as free, socket.create_server(("127.0.0.1", 0)) as server:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.5", 0))
        port = free.getsockname()[1]
        free.close()
        for _ in range(3):
            own = await dial("127.0.0.1", server.getsockname()[1], source=HostPort("127.0.0.5", port))
            other, address = server.accept()
            assert address == ("127.0.0.5", port)
            other.close()  # the side that closes first has the pair in TIME-WAIT
            own.close()
