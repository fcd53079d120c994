"""Waits for a state that nothing announces: it is looked at again and again, with a time limit.

Rules of this file: the one place of the tests that polls. What can be awaited (an answer, a line, the end of a process)
is awaited instead. A node's answer to one client says nothing of what another sees: a retirement is committed after
the message was settled, so a test awaits the state that it wants and never reads it once.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 30.0
STEP_S = 0.02


def _holds(found: object) -> bool:
    return bool(found)


def eventually(
    look: Callable[[], T], holds: Callable[[T], bool] = _holds, *, what: str = "", limit_s: float = LIMIT_S
) -> T:
    """Calls `look` until `holds` is true of what it returns, and returns that. AssertionError after `limit_s`."""
    ends = time.monotonic() + limit_s
    while not holds(found := look()):
        assert time.monotonic() < ends, _failure(what, limit_s, found)
        time.sleep(STEP_S)
    return found


async def eventually_async(
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], bool] = _holds,
    *,
    what: str = "",
    limit_s: float = LIMIT_S,
    step_s: float = STEP_S,
) -> T:
    """The same for what is awaited; `step_s` from one look to the next."""
    ends = time.monotonic() + limit_s
    while not holds(found := await look()):
        assert time.monotonic() < ends, _failure(what, limit_s, found)
        await asyncio.sleep(step_s)
    return found


async def eventually_true(
    holds: Callable[[], bool], *, what: str, limit_s: float = LIMIT_S, step_s: float = STEP_S
) -> None:
    """The same for a condition of files or processes, beside a running loop."""

    async def look() -> bool:
        return holds()

    await eventually_async(look, what=what, limit_s=limit_s, step_s=step_s)


def _failure(what: str, limit_s: float, found: object) -> str:
    return f"not within {limit_s:g} s: {what or 'the state awaited'}; found {found!r}"
