"""What `await` makes a thing of, and `async with` also ends: `async with connection.sender("q") as sender`.

Rules of this file: nothing begins before it is awaited. It is a coroutine, so that it can be made a task.
"""

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar


class Ended(Protocol):
    """What `async with` ends."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=Ended)


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that can be awaited, or entered with `async with`, once."""

    def __init__(self, making: Coroutine[Any, Any, T]) -> None:
        self._making = making
        self._made: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._making.__await__()

    def send(self, value: Any) -> Any:
        return self._making.send(value)

    def throw(self, *args: Any) -> Any:
        return self._making.throw(*args)

    def close(self) -> None:
        self._making.close()

    async def __aenter__(self) -> T:
        self._made = await self._making
        return await self._made.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)
