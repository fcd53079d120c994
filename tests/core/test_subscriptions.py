"""Durable subscriptions of links: whose they are, what deletes them and what does not (AMQP JMS mapping)."""

from typing import Any

import pytest

from holdfast.amqp.performatives import Source, Target
from holdfast.amqp.types import Symbol
from support.rig import Client, Node, Rig

LASTING: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
GLOBAL: dict[str, Any] = {**LASTING, "capabilities": (Symbol("global"),)}


def hub() -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node("hub")


def subscriptions(node: Node, queue: str = "work") -> list[str]:
    return sorted(node.core.catalog.queues[queue].named)


def subscribed(rig: Rig, node: Node, container: str = "app", **source: Any) -> tuple[Client, Any]:
    client = rig.client(node, container_id=container)
    link = client.receiver("work", name="sub", source=source or LASTING)
    rig.settle()
    return client, link


def asked(rig: Rig, client: Client, name: str = "sub", **options: Any) -> Any:
    """An attach with a null source, answered."""
    link = client.amqp.begin().attach_receiver(name, None, Target(), **options)  # type: ignore[arg-type]  # §3.5.3: null
    rig.settle()
    return link


def test_two_containers_have_each_their_own() -> None:
    rig, node = hub()
    one, first = subscribed(rig, node, "one")
    two, second = subscribed(rig, node, "two/@%")
    sender = one.sender("work")
    rig.settle()
    one.send(sender, "x")
    rig.settle()
    assert one.bodies(first) == two.bodies(second) == ["x"]
    assert subscriptions(node) == ["one/sub", "two%2F%40%25/sub"]
    assert not one.detached and not two.detached


def test_a_global_one_is_its_queues() -> None:
    rig, node = hub()
    one, first = subscribed(rig, node, "one", **GLOBAL)
    subscribed(rig, node, "two", **GLOBAL)
    assert subscriptions(node) == ["sub"]
    assert first.detached and one.detached[0].error.condition == "amqp:link:stolen"


def test_closed_it_is_deleted_and_what_it_kept_goes() -> None:
    rig, node = hub()
    _, link = subscribed(rig, node)
    link.detach(closed=True)
    rig.settle()
    assert subscriptions(node) == []
    node.crash()
    node.start()
    assert subscriptions(node) == []


@pytest.mark.parametrize("end", ["detach", "session", "connection", "lost", "stolen", "error", "stop"])
def test_nothing_else_deletes_it(end: str) -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    if end == "detach":
        link.detach(closed=False)
    elif end == "session":
        link.session.end()
    elif end == "connection":
        client.amqp.close()
    elif end == "lost":
        client.close_transport()
    elif end == "stolen":
        client.amqp.begin().attach_receiver("sub", Source("work", **LASTING), Target())
    elif end == "error":
        from holdfast.amqp.performatives import Error

        link.detach(closed=True, error=Error(Symbol("amqp:internal-error"), "the program crashed"))
    else:
        node.crash()
        node.start()
    rig.settle()
    assert subscriptions(node) == ["app/sub"]


def test_unsubscribed_by_an_attach_without_a_source() -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    link.detach(closed=False)
    rig.settle()
    looked = asked(rig, client)
    assert looked.remote_attach.source.address == "work" and not looked.detached
    looked.detach(closed=False)
    rig.settle()
    assert subscriptions(node) == ["app/sub"]  # it has only looked
    looked = asked(rig, client)
    looked.grant(5, drain=True)
    rig.settle()
    assert looked.credit == 0
    looked.detach(closed=True)
    rig.settle()
    assert subscriptions(node) == []
    gone = asked(rig, client)
    assert gone.remote_attach.source is None and gone.detached
    assert client.detached[-1].error.condition == "amqp:not-found"


def test_a_global_one_is_asked_for_by_the_capability() -> None:
    rig, node = hub()
    client, link = subscribed(rig, node, **GLOBAL)
    link.detach(closed=False)
    rig.settle()
    assert asked(rig, client).detached
    looked = asked(rig, client, desired_capabilities=(Symbol("shared"), Symbol("global")))
    looked.detach(closed=True)
    rig.settle()
    assert subscriptions(node) == []


def test_one_that_is_read_is_not_unsubscribed() -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    looked = asked(rig, client)
    assert looked.detached and client.detached[-1].error.condition == "amqp:resource-locked"
    assert not link.detached and subscriptions(node) == ["app/sub"]
    link.detach(closed=False)
    rig.settle()
    looked = asked(rig, client)
    again = client.receiver("work", name="other", source=LASTING)
    rig.settle()
    looked.detach(closed=True)
    rig.settle()
    assert subscriptions(node) == ["app/other"] and not again.detached


def test_a_name_that_is_none_is_refused() -> None:
    rig, node = hub()
    client = rig.client(node, container_id="c" * 190)
    client.receiver("work", name="sub", source=LASTING)
    rig.settle()
    assert not client.detached and len(subscriptions(node)[0]) == 194
    client.receiver("work", name="s" * 10, source=LASTING)  # one byte past a name's bound
    rig.settle()
    assert client.detached[-1].error.condition == "amqp:invalid-field"
