"""Fixtures of the interop tests: a node that most of them share, and nodes of their own for those that restart it.

The clients block (Proton's reactor) or are processes (rhea), so nodes run on a loop in a thread of their own.
"""

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from interop.rhea_peer import RHEA, Rhea, why_no_rhea
from support.process import NodeProcess

T = TypeVar("T")
LIMIT_S = 40.0

_numbers = itertools.count(1)


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


@pytest.fixture(scope="session")
def shared_nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture(scope="session")
def shared_hub(shared_nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    return shared_nodes.start(tmp_path_factory.mktemp("interop") / "hub.holdfast", name="hub")


@pytest.fixture
def hub(shared_hub: NodeProcess) -> Iterator[NodeProcess]:
    """A node that is up before the test and must be after it, and has logged no defect."""
    said = len(shared_hub.stderr)
    yield shared_hub
    assert shared_hub.returncode is None, shared_hub.stderr
    assert "Traceback" not in shared_hub.stderr[said:]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Nodes of the test's own."""
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture
def address() -> str:
    """A queue that no other test uses."""
    return f"interop-{next(_numbers)}"


@pytest.fixture
def rhea() -> Iterator[type[Rhea]]:
    """Starts scenarios of `rhea_peer.js`; skips where rhea is not to be had."""
    reason = why_no_rhea()
    if reason is not None:
        pytest.skip(reason)
    RHEA.clear()
    yield Rhea
    for peer in RHEA:
        peer.close()
