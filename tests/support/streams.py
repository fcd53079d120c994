"""Messages above `stream_bytes`: what the tests of them share.

Rules of this file: bodies are unlike anywhere, and what a store holds is counted there, not asked of the node.
"""

from typing import Any

from holdfast.settings.limits import Limits
from holdfast.units import KIB
from support.rig import Client, Node, Rig

LIMITS = Limits(stream_bytes=100 * KIB)
LARGE = 300 * KIB


def body(size: int, name: str = "a") -> str:
    """Text of that many bytes, unlike anywhere, so that a piece lost, doubled or moved shows."""
    assert "%" not in name
    return "".join(map(f"{name}%07d".__mod__, range(size // (7 + len(name)) + 1)))[:size]


def pieces(node: Node) -> int:
    """How many pieces of blobs the node's store holds."""
    return sum(len(found) for found in node.store._blobs.values())


def is_clean(*nodes: Node) -> bool:
    """Whether no blob is left, on disk or in memory."""
    return all(
        not node.store._blobs
        and not list(node.store.table("blobs"))
        and (
            node.core is None or not (node.core.blobs.by_number or node.core.streams or node.core.pressure.ahead_bytes)
        )
        for node in nodes
    )


def start(rig: Rig, name: str = "hub", **fields: Any) -> Node:
    return rig.node(name, limits=fields.pop("limits", LIMITS), **fields)


def sending(rig: Rig, node: Node, address: str = "work", **parts: Any) -> tuple[Client, Any]:
    client = rig.client(node)
    link = client.sender(address, **parts)
    rig.settle()
    return client, link


def begun(client: Client, link: Any, payload: bytes, upto: int) -> Any:
    """A delivery of which the first bytes are on the way."""
    outgoing = link.begin(payload[:10], len(payload), context="large")
    outgoing.feed(payload[10:upto])
    outgoing.flush(len(payload))
    return outgoing
