"""The stage of federated topics (support/failing.py): what clients do while a call of their node fails.

Rules of this file: as of `failure_stages.py`.
"""

from collections.abc import Callable

from holdfast.amqp.wire.types import Symbol
from holdfast.federation.sets import Key
from support.actors import Actor, World, in_order, names
from support.rig import Node

DURABLE = {"durable": 2, "expiry_policy": Symbol("never")}


def _subscribe(actor: Actor, address: str, name: str) -> None:
    def attach() -> None:
        link = actor.client.receiver(address, name=name, source=DURABLE, credit=0)
        actor.wait(lambda: link.attached, f"a subscription of {address}")
        link.detach(closed=False)
        actor.rig.settle()

    actor.stubborn(attach)


def _known(node: Node, origin: str) -> set[str] | None:
    """The patterns that a node has on disk of what another wants."""
    assert node.core is not None
    federation = node.core.bindings.federation
    held = None if federation is None else federation.sets.committed(Key(origin, "news"))
    return None if held is None else {row.pattern for row in held.rows}


def _until(world: World, goal: Callable[[], object], what: str) -> None:
    for _ in range(70):
        if goal():
            return
        world.rig.run(1)
    raise AssertionError(f"it did not come: {what}")


def federated(world: World, hub: Node, calm: Callable[[], None]) -> None:
    """A topic in both directions: entries made, a subscription at each end, one replaced, messages, a link lost."""
    boss, far = world.actor(hub, "boss"), world.actor(world.jfk, "far")
    near, sender = world.actor(hub, "near"), world.actor(hub, "sender")
    for actor, name in ((boss, "news@jfk"), (far, "news@hub")):
        assert actor.manage("CREATE", "federation", name)["statusCode"] in (200, 201)
    calm()
    _subscribe(far, "topic/news/a.#", "far")
    _subscribe(near, "topic/news/b.#", "near")
    _until(world, lambda: (_known(hub, "jfk"), _known(world.jfk, "hub")) == ({"a.#"}, {"b.#"}), "both are known")
    sender.produce("topic/news/a.x", names("m", 5))
    calm()
    _subscribe(near, "topic/news/c.#", "near")
    for wire in world.rig.between("jfk", "hub"):
        wire.cut()
    _until(world, lambda: _known(world.jfk, "hub") == {"c.#"}, "the new one is known, and the old one not")
    assert boss.manage("TREE", "federation", "news", subject="a.x")["tree"][0]["destination"] == "jfk"
    assert boss.manage("STATUS", "node")["statusCode"] == 200
    far.consume("topic/news/a.#", names("m", 5), name="far", source=DURABLE)
    in_order(far, "topic/news/a.#", names("m", 5))
    assert boss.manage("DELETE", "federation", "news@jfk")["statusCode"] in (200, 404)
    _until(world, lambda: not _known(hub, "jfk"), "what came by the entry is withdrawn")
    calm()
