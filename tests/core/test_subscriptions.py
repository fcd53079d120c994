"""Durable subscriptions of links: what deletes them and what does not (AMQP JMS mapping)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Source, Target
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.engine.log import Log
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


@pytest.mark.parametrize(("address", "all_messages"), [("topic/flights", ": all messages"), ("work", "")])
def test_the_log_says_when_a_link_creates_replaces_or_ends_a_durable_subscription(
    address: str, all_messages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warns once if messages that waited are dropped, with their number."""
    lines: list[tuple[str, str]] = []
    write_for = Log.write_for

    def kept(self: Log, caller: Any, level: str, about: str, text: str) -> None:
        lines.append((level, text.partition(f"subscription 's' of {address!r} ")[2]))
        write_for(self, caller, level, about, text)

    monkeypatch.setattr(Log, "write_for", kept)
    rig, node = hub()
    client = rig.client(node)

    def logged(subject: str = "", **source: Any) -> list[tuple[str, str]]:
        link = client.receiver(f"{address}{subject}", name="s", source=LASTING | source)
        rig.settle()
        link.detach(closed=False)
        rig.settle()
        told, lines[:] = [line for line in lines if line[1]], []
        return told

    assert logged() == [("INFO", f"is created{all_messages}")] and logged() == []
    if all_messages:
        selecting = {"filter": {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "x = 1")}}
        put = client.sender(address)
        rig.settle()
        for body in ("1", "2", "3"):
            client.send(put, body)
        rig.settle()
        replaced = "is replaced, and up to 3 messages that waited for it are dropped"
        assert logged("/aa.#", **selecting) == [
            ("WARNING", f"{replaced}: all messages before, pattern 'aa.#' and selector 'x = 1' now"),
            ("INFO", "is created: pattern 'aa.#' and selector 'x = 1'"),
        ]
        replaced = "is replaced: pattern 'aa.#' and selector 'x = 1' before, pattern 'a' now"
        assert logged("/a") == [("INFO", replaced), ("INFO", "is created: pattern 'a'")]
    asked(rig, client, "s").detach(closed=True)
    assert logged()[0] == ("INFO", "has ended: its peer closed it")
