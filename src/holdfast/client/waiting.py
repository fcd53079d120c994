"""Callers that wait at a sender: for room for another message, or until nothing is in doubt.

Rules of this file: a caller that is woken checks itself what it waited for, and whether the sender has ended.
"""

import asyncio
from collections import OrderedDict


class Waiting:
    """Of one sender; callers that wait for room are woken in their order, as many as there is room for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._for_room: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._for_end: dict[asyncio.Future[None], None] = {}

    async def for_room(self) -> None:
        """Returns once there may be room. A caller that is cancelled meanwhile has to call `wake` for the others."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._for_room[waiter] = None
        try:
            await waiter
        finally:
            self._for_room.pop(waiter, None)

    async def for_end(self) -> None:
        """Returns once nothing may be in doubt."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._for_end[waiter] = None
        try:
            await waiter
        finally:
            self._for_end.pop(waiter, None)

    def wake(self, room: int, *, is_empty: bool) -> None:
        """There is room for so many; `is_empty`: nothing is in doubt."""
        while room > 0 and self._for_room:
            waiter, _ = self._for_room.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                room -= 1
        if is_empty and self._for_end:
            for waiter in self._for_end:
                if not waiter.done():
                    waiter.set_result(None)
            self._for_end.clear()

    def wake_all(self) -> None:
        """The sender has ended."""
        self.wake(len(self._for_room), is_empty=True)
