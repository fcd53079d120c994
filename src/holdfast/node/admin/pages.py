"""The pages of the admin port: /metrics, /healthz and /readyz.

Rules of this file: an answer is at most KEPT_S old, so that the core measures at most once in that time, however many
clients ask. The page of metrics is made in a thread, for it may be a megabyte.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.node.admin.commits import CommitTimes
from holdfast.node.admin.metrics import rendered
from holdfast.node.admin.requests import Answered, Page

KEPT_S: Final = 1.0
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"

Fields = dict[str, Any]


class Pages:
    """`ask` requests the core's measurements; `why_not` says why the node is not ready, whatever its disk does; "" if
    it is."""

    def __init__(self, ask: Callable[[], Awaitable[Fields]], why_not: Callable[[], str], commits: CommitTimes) -> None:
        self._ask = ask
        self._why_not = why_not
        self._commits = commits
        self._lock = asyncio.Lock()
        self._told: tuple[float, Fields] | None = None
        self._metrics: tuple[Fields, bytes] | None = None

    def by_path(self) -> dict[str, Page]:
        """The pages."""
        return {"/metrics": self.metrics, "/healthz": self.healthz, "/readyz": self.readyz}

    async def metrics(self) -> Answered:
        """What the node measures."""
        async with self._lock:
            fields = await self._fields()
            if self._metrics is None or self._metrics[0] is not fields:
                self._metrics = fields, await asyncio.to_thread(rendered, fields, self._commits)
            return Answered(200, self._metrics[1], METRICS)

    async def healthz(self) -> Answered:
        """Whether the process lives: the loop answers."""
        return Answered(200, b"ok\n")

    async def readyz(self) -> Answered:
        """Whether the node takes messages now."""
        reason = self._why_not()
        if not reason:
            async with self._lock:
                fields = await self._fields()
            disk = fields["disk"]
            if disk["state"] != "ok":
                reason = f"the store takes nothing: {disk['reason'] or disk['state']}"
            elif fields["drain"] is not None:
                reason = f"the node is drained since {fields['drain']['since']}"
        return Answered(503, f"{reason}\n".encode()) if reason else Answered(200, b"ready\n")

    async def _fields(self) -> Fields:
        now = time.monotonic()
        if self._told is None or now - self._told[0] > KEPT_S:
            self._told = now, await self._ask()
        return self._told[1]
