"""Two nodes with the same users and rules: one with queues, topics, subscriptions, links and messages, and one without.

Rules of this file: both are nodes in memory; who asks is a connection that says whatever bytes it is told to.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import Properties, SaslInit, Source, Target
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from support.raw import HELLO, Raw
from support.rig import Node, Rig

USERS: Final = tuple(UserConfig(name=name, password="x") for name in ("root", "ann", "bob"))
ACCESS: Final = AccessConfig(
    rules=(
        AccessRule(name="root", users=("root",), addresses=("*",), allow=("administer",)),
        AccessRule(name="ann", users=("ann",), addresses=("elsewhere",), allow=("send",)),
    )
)


def node_with_nothing(**told: Any) -> Node:
    neighbours = (NeighbourConfig(name="jfk"),)
    return Rig().node("hub", users=USERS, access=ACCESS, neighbours=neighbours, **told)


def full_node(**told: Any) -> Node:
    """With all that a stranger could ask about."""
    hub = node_with_nothing(**told)
    rig = hub.rig
    root = rig.client(hub, mechanism="PLAIN", user="root", password="x")
    rig.settle()
    for name in ("secret", "kept", "named", "raw", "clean", "topic/news"):
        assert root.manage("CREATE", "queue", name)[0] == 201
    assert root.manage("CREATE", "link", "link", **{"from": "raw", "to": "clean"})[0] == 201
    assert root.manage("OPEN", "subscription", "mine", queue="kept")[0] == 201
    for address in ("secret", "kept", "topic/news", "x@jfk"):
        link = root.sender(address)
        rig.settle()
        root.send(link, "1", properties=Properties(message_id="x"))
        root.send(link, "2", message_annotations={Symbol("x-opt-delivery-delay"): Ulong(60_000)})
    durable = {"durable": 2, "expiry_policy": Symbol("never")}
    shared = {**durable, "capabilities": (Symbol("shared"), Symbol("global"))}
    root.receiver("named", name="durable-mine", source=durable).detach(closed=False)
    root.receiver("topic/news", name="shared-mine", source=shared).detach(closed=False)
    for capabilities in (None, (Symbol("temporary-topic"),)):
        source = Source(dynamic=True, capabilities=capabilities)
        root.session.attach_receiver(f"dynamic {capabilities}", source, Target("here"))
    rejected = root.receiver("secret", credit=1)
    rig.settle()
    assert root.deliveries and rejected
    rig.run(1)
    return hub


def ask_login(node: Node, user: str) -> Raw:
    """A connection of that user, with a session."""
    peer = Raw(node.rig, node)
    said = SaslInit(Symbol("PLAIN"), f"\0{user}\0x".encode(), None)
    peer.say(SASL_HEADER + frame(0, encode(said), SASL_FRAME), HELLO)
    assert peer.alive
    return peer


def said_to(peer: Raw, say: Callable[[Raw], list[Any]]) -> str:
    """What the node answered; the connection is gone afterwards."""
    heard = repr(say(peer))
    if peer.end.alive:
        peer.end.wire.cut()
        peer.rig.settle()
    return heard
