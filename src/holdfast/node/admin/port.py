"""The admin port as the driver has it: questions go to the core as events, and its answers come back as commands.

Rules of this file: clients that ask while an answer is awaited get the same answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.names import HostPort
from holdfast.node.admin.commits import CommitTimes
from holdfast.node.admin.pages import Pages
from holdfast.node.admin.requests import AdminServer


class AdminPort:
    """`ask` requests the core's measurements, which arrive by `told`; `why_not`: why the node is not ready, "" if it
    is."""

    def __init__(self, ask: Callable[[], None], why_not: Callable[[], str]) -> None:
        self.commits = CommitTimes()
        self._ask = ask
        self._asked: asyncio.Future[dict[str, Any]] | None = None
        self._server = AdminServer(Pages(self._fields, why_not, self.commits).by_path())

    async def listen(self, where: HostPort) -> str:
        """Serves there; returns HOST:PORT. ConfigError or HoldfastError if it cannot."""
        return await self._server.listen(where)

    def told(self, fields: dict[str, Any]) -> None:
        """The core's measurements have arrived."""
        asked, self._asked = self._asked, None
        if asked is not None and not asked.done():
            asked.set_result(fields)

    def close(self) -> None:
        """Answers nothing more. Idempotent."""
        self._server.close()

    async def _fields(self) -> dict[str, Any]:
        asked = self._asked
        if asked is None:
            asked = self._asked = asyncio.get_running_loop().create_future()
            self._ask()  # which may have it told at once
        return await asyncio.shield(asked)
