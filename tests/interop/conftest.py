"""Fixtures of the interop tests: a node that most of them share, and nodes of their own for those that restart it.

The clients block (Proton's reactor) or are processes (rhea), so nodes are kept by `interop.nodes`.
"""

import itertools
from collections.abc import Iterator

import pytest

from interop.nodes import Nodes
from interop.rhea_peer import RHEA, Rhea, why_no_rhea
from support.process import NodeProcess

_numbers = itertools.count(1)


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
