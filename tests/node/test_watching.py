"""Files are looked at in a thread (node/watching.py)."""

import asyncio
import threading

import pytest

from holdfast.node.watching import Watch

LIMIT_S = 10.0


async def test_a_look_that_hangs_does_not_hold_the_loop_up() -> None:
    """And there is one at a time."""
    loop = asyncio.get_running_loop()
    goes_on, looks = threading.Event(), list[int]()
    found: asyncio.Future[int] = loop.create_future()

    def look() -> int | None:
        looks.append(len(looks))
        assert goes_on.wait(LIMIT_S)
        return 7 if len(looks) == 2 else None

    watch = Watch(loop, "a watch", 0.001, look, found.set_result)
    watch.start()
    for _ in range(10):
        await asyncio.sleep(0.005)  # the loop turns meanwhile
    assert len(looks) == 1 and not found.done()
    goes_on.set()
    async with asyncio.timeout(LIMIT_S):
        assert await found == 7
    watch.close()


async def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[int] = loop.create_future()
    looks = iter([ValueError("a defect"), 7])

    def look() -> int | None:
        result = next(looks, None)
        if isinstance(result, Exception):
            raise result
        return result

    watch = Watch(loop, "a watch", 0.001, look, found.set_result)
    watch.start()
    async with asyncio.timeout(LIMIT_S):
        assert await found == 7
    watch.close()
    assert "a defect" in caplog.text


async def test_nothing_is_handed_over_once_it_is_closed() -> None:
    loop = asyncio.get_running_loop()
    found, looked = list[int](), threading.Event()

    def look() -> int:
        looked.set()
        return 7

    watch = Watch(loop, "a watch", 0.001, look, found.append)
    watch.start()
    assert looked.wait(LIMIT_S)
    watch.close()
    await asyncio.sleep(0)
    assert found == []
