"""The system's word that its network changed."""

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from holdfast.node.network import netlink
from holdfast.node.network.netlink import READS_MAX, NetworkWatch

LIMIT_S = 30.0


class Later:
    """Stands in for the loop's `call_later`: the calls wait until the test makes them."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, delay_s: float, call: Callable[[], None]) -> "Later":
        self.calls.append((delay_s, call))
        return self

    def cancel(self) -> None:
        self.calls.clear()

    def pass_time(self, seconds: float) -> None:
        calls, self.calls = self.calls, []
        for delay_s, call in calls:
            assert delay_s == seconds
            call()


async def test_a_burst_is_told_at_once_and_once_more_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    later = Later()
    told: asyncio.Queue[None] = asyncio.Queue()
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    watch = NetworkWatch(lambda: told.put_nowait(None), interval_s=0.1, own=ours)
    standing_in = SimpleNamespace(call_later=later, remove_reader=asyncio.get_running_loop().remove_reader)
    monkeypatch.setattr(watch, "_loop", standing_in)  # the loop's own call_later serves uvloop's timers too
    try:
        async with asyncio.timeout(LIMIT_S):
            theirs.send(b"x")
            await told.get()
            for _ in range(2 * READS_MAX):
                theirs.send(b"x")
                await asyncio.sleep(0)
            watch._read()  # what the loop did not come to
        assert told.empty()
        later.pass_time(0.1)
        assert told.qsize() == 1
        later.pass_time(0.1)
        assert told.qsize() == 1 and not later.calls
        theirs.send(b"x")
        async with asyncio.timeout(LIMIT_S):
            await told.get()
            await told.get()
        assert later.calls
    finally:
        watch.close()
        watch.close()
        theirs.close()
    assert ours.fileno() == -1 and not later.calls


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
