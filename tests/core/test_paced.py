"""Pacing in nodes: what clients send to a root keeps to the rates that it gives (docs/pacing.md)."""

from typing import Any

import pytest

from holdfast.pacing.settings import PacingConfig
from holdfast.settings import NeighbourConfig
from support.hops import is_empty, send
from support.rig import Node, Rig

ROOT = PacingConfig(rate=10_000, policy="fixed")
CLIENT = PacingConfig(roots=("hub",))


def star(*, root: PacingConfig = ROOT, client: PacingConfig = CLIENT, clients: int = 2) -> tuple[Rig, Node, list[Node]]:
    """Clients of the hub, each its neighbour."""
    rig = Rig()
    names = [f"c{number}" for number in range(1, clients + 1)]
    hub = rig.node("hub", pacing=root, neighbours=tuple(NeighbourConfig(name=name) for name in names))
    to_hub = (NeighbourConfig(name="hub", remote="127.0.0.1:1"),)
    return rig, hub, [rig.node(name, pacing=client, neighbours=to_hub) for name in names]


def rows(node: Node, part: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.rig.client(node).manage("STATUS", "node")[1][part]
    return found


def arrived(hub: Node, name: str = "work") -> int:
    return sum(len(body) for body in hub.bodies(name))


def test_each_client_gets_its_rate() -> None:
    rig, hub, clients = star()
    rig.run(3)
    for client in clients:
        send(rig, client, *["x" * 500] * 300, to="hub")
    rig.run(2)
    before = arrived(hub)
    rig.run(10)
    assert arrived(hub) - before == pytest.approx(100_000, rel=0.1)
    assert [row["rate"] for row in rows(hub, "paces")] == [5_000, 5_000]
    assert rows(clients[0], "paced")[0]["rate"] == 5_000
    rig.run(60)
    assert is_empty(*clients)
    assert arrived(hub) == 300_000


def test_without_configuration_nothing_is_said() -> None:
    rig, hub, clients = star(root=PacingConfig(), client=PacingConfig())
    rig.run(3)
    for client in clients:
        send(rig, client, *["x" * 500] * 300, to="hub")
    rig.run(1)
    assert arrived(hub) == 300_000
    for node in (hub, *clients):
        assert node.core is not None
        assert not node.core.rates.active
        assert node.core.rates.next_deadline() is None
        assert "paces" not in node.rig.client(node).manage("STATUS", "node")[1]
