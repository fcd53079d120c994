"""Fixtures of the interop tests: a node that most of them share, and nodes of their own for those that restart it.

The clients block (Proton's reactor) or are processes (rhea), so nodes are kept by `interop.nodes`.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from interop.native_peer import Lacking, Workshop
from interop.nodes import Nodes
from interop.peer_process import STARTED, PeerProcess
from interop.rhea_peer import Rhea, why_no_rhea
from support.process import NodeProcess

if TYPE_CHECKING:
    from interop.proton_peer import Client

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.close()


@pytest.fixture(scope="session")
def shared_hub(shared_nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    return shared_nodes.start(tmp_path_factory.mktemp("interop") / "hub.holdfast", name="hub")


def unharmed(node: NodeProcess) -> Iterator[NodeProcess]:
    """A node that is up before the test and must be after it, and has logged no defect."""
    said = len(node.stderr)
    yield node
    assert node.returncode is None, node.stderr
    assert "Traceback" not in node.stderr[said:]


@pytest.fixture
def hub(shared_hub: NodeProcess) -> Iterator[NodeProcess]:
    """A node that makes a queue of any address."""
    yield from unharmed(shared_hub)


@pytest.fixture
def client(hub: NodeProcess) -> Iterator["Client"]:
    """Proton's, connected to `hub`."""
    from interop.proton_peer import Client  # the tests of other peers run where there is no Proton

    with Client(hub.port) as client:
        yield client


STRICT = """
[node]
name = "strict"
data = "{folder}/strict.holdfast"
listen = ["127.0.0.1:0"]
create_queues = false

[limits]
message_bytes_max = 100_000

[[queue]]
name = "known"

[[queue]]
name = "known-barrier"

[[queue]]
name = "one-alone"
messages_max = 1
when_full = "refuse"

[[queue]]
name = "three-alone"
messages_max = 3
when_full = "block"
"""


@pytest.fixture(scope="session")
def shared_strict(shared_nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    folder = tmp_path_factory.mktemp("strict")
    config = folder / "strict.toml"
    config.write_text(STRICT.format(folder=folder))
    return shared_nodes.start(None, config=config, listen=None)


@pytest.fixture
def strict(shared_strict: NodeProcess) -> Iterator[NodeProcess]:
    """A node that makes no queue for clients and takes messages of 100,000 bytes; whoever fills a queue empties it."""
    yield from unharmed(shared_strict)


GUARDED = """
[node]
name = "guarded"
data = "{folder}/guarded.holdfast"
listen = ["127.0.0.1:0"]
create_queues = true

[[user]]
name = "alice"
password_file = "{folder}/alice.password"
"""


@pytest.fixture(scope="session")
def shared_guarded(shared_nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "alice.password").write_text("pass word\n")
    config = folder / "guarded.toml"
    config.write_text(GUARDED.format(folder=folder))
    return shared_nodes.start(None, config=config, listen=None)


@pytest.fixture
def guarded(shared_guarded: NodeProcess) -> Iterator[NodeProcess]:
    """A node that lets alice in, with `pass word`, and nobody else."""
    yield from unharmed(shared_guarded)


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


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Compiles clients in C and C++, each once for all processes of the run."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    (folder / "programs").mkdir(exist_ok=True)
    return Workshop(folder / "programs")


@pytest.fixture
def peers() -> Iterator[None]:
    """Whatever process of a client the test starts ends with it."""
    STARTED.clear()
    yield
    for peer in STARTED:
        peer.close()


@pytest.fixture
def rhea(peers: None) -> type[Rhea]:
    """Starts scenarios of `rhea_peer.js`; skips where rhea is not to be had."""
    reason = why_no_rhea()
    if reason is not None:
        pytest.skip(reason)
    return Rhea


@pytest.fixture
def compiled(workshop: Workshop, peers: None) -> Callable[[str], object]:
    """As `Workshop.build`, for where somebody else would wait for it meanwhile; skips as `native` does."""

    def build(name: str) -> object:
        try:
            return workshop.build(name)
        except Lacking as lacking:
            pytest.skip(str(lacking))

    return build


@pytest.fixture
def native(workshop: Workshop, peers: None) -> Callable[..., PeerProcess]:
    """As `Workshop.start`; skips where the program cannot be built here."""

    def start(name: str, *arguments: object) -> PeerProcess:
        try:
            return workshop.start(name, *arguments)
        except Lacking as lacking:
            pytest.skip(str(lacking))

    return start
