"""The system's word that its network changed."""

import asyncio
import errno
import socket
import sys
from types import SimpleNamespace

import pytest

from holdfast.node import netlink
from holdfast.node.netlink import READS_MAX, NetworkWatch

LIMIT_S = 5.0


async def test_a_burst_is_told_at_once_and_once_more_when_it_is_over() -> None:
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[float] = asyncio.Queue()
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    watch = NetworkWatch(lambda: told.put_nowait(loop.time()), interval_s=0.1, own=ours)
    try:
        began = loop.time()
        theirs.send(b"x")
        async with asyncio.timeout(LIMIT_S):
            first = await told.get()
        assert first - began < 0.1
        for _ in range(2 * READS_MAX):
            theirs.send(b"x")
            await asyncio.sleep(0)
        async with asyncio.timeout(LIMIT_S):
            assert await told.get() - first >= 0.09
    finally:
        watch.close()
        watch.close()
        theirs.close()
    assert ours.fileno() == -1
    assert told.empty()


class Denied:
    """A socket that the system does not give, or of which it lost messages."""

    def __init__(self, error: int) -> None:
        self.error = error
        self.closed = False

    def __call__(self, *_: object) -> "Denied":
        return self

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def bind(self, address: object) -> None:
        raise OSError(self.error, "denied")

    def close(self) -> None:
        self.closed = True


async def test_where_it_is_denied_there_is_no_word_and_no_noise(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    denied = Denied(errno.EPERM)
    monkeypatch.setattr(netlink, "socket", SimpleNamespace(socket=denied, AF_NETLINK=16, SOCK_RAW=3))
    NetworkWatch(lambda: None).close()
    assert denied.closed
    monkeypatch.setattr(netlink, "socket", SimpleNamespace(socket=denied))
    NetworkWatch(lambda: None).close()
    assert not caplog.records


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="rtnetlink is Linux's")
async def test_the_system_takes_the_subscription() -> None:
    own = netlink._subscribed()
    if own is None:
        pytest.skip("netlink is denied here")
    with own:
        assert own.getsockname()[1] == netlink.GROUPS
        with pytest.raises(BlockingIOError):
            own.recv(1)
