"""One node's process over its lives: started, killed, stopped and started again on its port and its store.

Rules of this file: the node runs as a user would start it, by the command line.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from holdfast_lab.base.processes import Child, Children


class RealNode:
    """One node's process over its lives: one port, one store."""

    def __init__(self, name: str, children: Children, config: Path, told: Callable[[BaseException], None]) -> None:
        self.name = name
        self.lives = 0
        self.address = ""
        self._children = children
        self._config = config
        self._told = told
        self._child: Child | None = None
        self._mourner: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def up(self) -> bool:
        return self._child is not None

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Starts it, ready, unless it runs. Raises ChildFailed."""
        async with self._lock:
            if self._child is None:
                listen = ["--listen", self.address] if self.address else []
                self.lives += 1
                self._child, self.address = await self._children.node(self.name, self._config, *listen)
                self._mourner = asyncio.create_task(self._mourn(self._child), name=f"{self.name} ended")

    async def _mourn(self, child: Child) -> None:
        code = await child.wait()
        if self._child is child:
            self._child = None
        self._told(child.died(code, " and nobody had told it to"))

    async def kill(self) -> None:
        """kill -9."""
        await self._end(lambda child: child.kill())

    async def stop(self) -> None:
        """SIGTERM, and -9 where that does not help in time."""
        await self._end(lambda child: child.stop())

    async def _end(self, way: Callable[[Child], Coroutine[Any, Any, Any]]) -> None:
        async with self._lock:
            child, self._child = self._child, None
            if child is not None:
                if self._mourner is not None:
                    self._mourner.cancel()
                await way(child)

    def forget(self) -> None:
        """The run is over: the end of the process is not reported any more."""
        if self._mourner is not None:
            self._mourner.cancel()
