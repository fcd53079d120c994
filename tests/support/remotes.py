"""A node with a remote, a plain broker, in memory.

Rules of this file: those of support/rig.py.
"""

from typing import Any, Final

from holdfast.settings.remotes import RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker
from support.rig import Client, Node, Rig

REMOTE: Final = RemoteConfig(name="mq", remote="127.0.0.1:1")


def world(
    remote: RemoteConfig = REMOTE, broker: PlainBroker | None = None, **fields: Any
) -> tuple[Rig, Node, Client, PlainBroker]:
    rig = Rig()
    found = rig.brokers["mq"] = broker or PlainBroker()
    node = rig.node("hub", remotes=(remote,), **fields)
    return rig, node, rig.client(node), found


def only(node: Node) -> dict[str, Any]:
    """The row of its remote in `status`."""
    assert node.core is not None
    (row,) = node.core.report.status("")["remotes"]
    return dict(row)
