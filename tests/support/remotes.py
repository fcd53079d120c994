"""A node with a remote, a plain broker, in memory.

Rules of this file: those of support/rig.py.
"""

from collections import deque
from typing import Any, Final

from holdfast.endpoints.remotes.link_slots import LOOK_S, TURN_S
from holdfast.endpoints.remotes.remote import BEGINS_S
from holdfast.settings.remotes import Fetch, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker
from support.rig import Client, Node, Rig

REMOTE: Final = RemoteConfig(name="mq", remote="127.0.0.1:1")

CHANGE_S: Final = TURN_S + 4 * LOOK_S
"""The most that a slot takes to change hands."""


def world(
    remote: RemoteConfig = REMOTE, broker: PlainBroker | None = None, **fields: Any
) -> tuple[Rig, Node, Client, PlainBroker]:
    rig = Rig()
    found = rig.brokers["mq"] = broker or PlainBroker()
    node = rig.node("hub", remotes=(remote,), **fields)
    return rig, node, rig.client(node), found


def few(
    handles: int, channels: int, remote: RemoteConfig = REMOTE, broker: PlainBroker | None = None, **fields: Any
) -> tuple[Rig, Node, Client, PlainBroker]:
    """A remote that takes so many links in a session, and so many sessions."""
    rig, node, client, broker = world(remote, broker, **fields)
    rig.plain_settings = {"handle_max": handles - 1, "channel_max": channels - 1}
    rig.run(2 * BEGINS_S)
    return rig, node, client, broker


def only(node: Node) -> dict[str, Any]:
    """The row of its remote in `status`."""
    assert node.core is not None
    (row,) = node.core.report.status("")["remotes"]
    return dict(row)


def leaving(node: Node) -> list[str]:
    """Its links that are to leave their slots."""
    assert node.core is not None
    return [link.name for link in node.core.remotes.by_name["mq"].links if link.leaving]


def settling(*names: str) -> tuple[RemoteConfig, PlainBroker]:
    """A remote with these addresses, which settles every second message that it sends."""
    fetch = tuple(Fetch(name, name) for name in names)
    broker = PlainBroker(offers={name: deque() for name in names}, settles=True)
    return RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=fetch), broker
