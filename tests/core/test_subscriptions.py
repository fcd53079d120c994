"""Durable subscriptions of links: what deletes them and what does not (AMQP JMS mapping)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Source, Target
from holdfast.amqp.wire.types import Symbol
from support.rig import Client, Node, Rig

LASTING: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}


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


@pytest.mark.parametrize("end", ["closed", "detach", "session", "connection", "lost", "stolen", "error", "stop"])
def test_nothing_else_deletes_it(end: str) -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    if end in ("closed", "detach"):
        link.detach(closed=end == "closed")
    elif end == "session":
        link.session.end()
    elif end == "connection":
        client.amqp.close()
    elif end == "lost":
        client.close_transport()
    elif end == "stolen":
        client.amqp.begin().attach_receiver("sub", Source("work", **LASTING), Target())
    elif end == "error":
        from holdfast.amqp.wire.performatives import Error

        link.detach(closed=True, error=Error(Symbol("amqp:internal-error"), "the program crashed"))
    else:
        node.crash()
        node.start()
    rig.settle()
    assert subscriptions(node) == ["sub"]


def test_unsubscribed_by_an_attach_without_a_source() -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    link.detach(closed=False)
    rig.settle()
    looked = asked(rig, client)
    assert looked.remote_attach.source.address == "work" and not looked.detached
    looked.detach(closed=False)
    rig.settle()
    assert subscriptions(node) == ["sub"]  # it has only looked
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


def test_of_several_queues_the_first_by_name_is_told_and_all_are_unsubscribed() -> None:
    rig, node = hub()
    client = rig.client(node)
    for queue in ("second", "third", "first"):
        link = client.receiver(queue, name="sub", source=LASTING)
        rig.settle()
        link.detach(closed=False)
        rig.settle()
    looked = asked(rig, client)
    assert looked.remote_attach.source.address == "first"
    looked.detach(closed=True)
    rig.settle()
    assert [subscriptions(node, queue) for queue in ("first", "second", "third")] == [[], [], []]


def test_one_that_is_read_is_not_unsubscribed() -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    looked = asked(rig, client)
    assert looked.detached and client.detached[-1].error.condition == "amqp:resource-locked"
    assert not link.detached and subscriptions(node) == ["sub"]
    link.detach(closed=False)
    rig.settle()
    looked = asked(rig, client)
    again = client.receiver("work", name="other", source=LASTING)
    rig.settle()
    looked.detach(closed=True)
    rig.settle()
    assert subscriptions(node) == ["other"] and not again.detached


def test_whatever_the_container_it_is_one_subscription_of_its_queue() -> None:
    rig, node = hub()
    one, first = subscribed(rig, node, "one")
    _, second = subscribed(rig, node, "two")
    assert subscriptions(node) == ["sub"]
    assert first.detached and one.detached[0].error.condition == "amqp:link:stolen" and not second.detached


def test_unsubscribed_it_stays_so_and_what_it_kept_goes() -> None:
    rig, node = hub()
    client, link = subscribed(rig, node)
    link.detach(closed=True)
    rig.settle()
    asked(rig, client).detach(closed=True)
    rig.settle()
    node.crash()
    node.start()
    assert subscriptions(node) == []
