"""Nodes for tests that block: started, restarted and ended on a loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from support.process import NodeProcess

T = TypeVar("T")
LIMIT_S = 100.0


class Nodes:
    """Starts, restarts and ends nodes from code that blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.started: list[NodeProcess] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def start(self, data: Path | None, *arguments: str, **options: Any) -> NodeProcess:
        """As `NodeProcess.start`."""
        node = self.run(NodeProcess.start(data, *arguments, **options))
        self.started.append(node)
        return node

    def kill(self, node: NodeProcess) -> None:
        self.run(node.kill())

    def stop(self, node: NodeProcess) -> int:
        return self.run(node.stop())

    def restart(self, node: NodeProcess) -> None:
        """The same data and the same port."""
        self.run(node.restart(same_port=True))

    def close(self) -> None:
        for node in self.started:
            self.run(node.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()
