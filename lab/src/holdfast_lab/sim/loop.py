"""An asyncio event loop on virtual time: the client library and the workloads run on the world's one heap.

Rules of this file: as much of a loop as coroutines, futures and client transports need, and no more: a method that
is not here would reach for the machine, and asyncio's base class refuses it.
"""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, TypeVarTuple

from holdfast_lab.sim.world import Timer, World

_Ts = TypeVarTuple("_Ts")

THREAD_S: Final = 0.002
"""What is given to a thread takes so long: a sync of a disk."""


class WorldHandle(asyncio.TimerHandle):
    """A callback in the world's plan."""

    timer: Timer

    def cancel(self) -> None:
        super().cancel()
        self.timer.cancel()


class WorldLoop(asyncio.AbstractEventLoop):
    """The running loop for as long as a `with` on it lasts: coroutines find it, callbacks run in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connector: Callable[[Callable[[], Any], str, int], Coroutine[Any, Any, Any]] | None = None
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def __enter__(self) -> "WorldLoop":
        events._set_running_loop(self)
        return self

    def __exit__(self, *_: object) -> None:
        events._set_running_loop(None)

    # ------------------------------------------------------------------------------------------------ time

    def time(self) -> float:
        return self.world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    # ------------------------------------------------------------------------------------------------ callbacks

    def call_soon(self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None) -> WorldHandle:
        return self.call_at(self.world.now, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> WorldHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> WorldHandle:
        handle = WorldHandle(when, callback, args, self, context)
        handle.timer = self.world.at(when, handle._run)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What asyncio would log fails the run."""
        error = context.get("exception")
        self.world.fail(error if error is not None else RuntimeError(str(context.get("message"))))

    # ------------------------------------------------------------------------------------------------ tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self.tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.pop(task, None)

    def run_in_executor(  # type: ignore[override]  # of one executor, which is none
        self, executor: None, func: Callable[[*_Ts], Any], *args: *_Ts
    ) -> "asyncio.Future[Any]":
        """Work for a thread is done at one later moment."""
        future = self.create_future()
        self.world.after(THREAD_S, self._ran, future, func, args)
        return future

    def _ran(self, future: "asyncio.Future[Any]", func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if future.cancelled():
            return
        try:
            found = func(*args)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    # ------------------------------------------------------------------------------------------------ network

    async def create_connection(  # type: ignore[override]  # of its options a simulated one has none
        self, protocol_factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> tuple[Any, Any]:
        """A client's connection to the simulated node `host`; raises OSError like a refused or lost SYN."""
        assert self.connector is not None
        return await self.connector(protocol_factory, host, port)  # type: ignore[no-any-return]  # what the factory made
