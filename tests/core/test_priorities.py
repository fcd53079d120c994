"""Queues that sort: consumers are handed the highest priority first, and within one what came first (docs/adr/0072)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.extensions import SELECTOR_CODE
from holdfast.amqp.wire.performatives import Accepted, Header, Modified, Rejected, Released
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.settings.queues import QueueConfig
from support.one_node import world
from support.rig import Client, Node, Rig
from support.sorting import Watch


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def sorting(**fields: Any) -> tuple[Rig, Node, Client]:
    return world(QueueConfig(name="work", priorities=True, **fields))


def send(rig: Rig, client: Client, priorities: str, address: str = "work", **parts: Any) -> None:
    """One message for each digit, which is its priority; its body is the digit and its number from 1 on."""
    link = client.sender(address)
    rig.settle()
    for number, digit in enumerate(priorities, 1):
        client.send(link, f"{digit}{number}", header=Header(durable=True, priority=int(digit)), **parts)
    rig.settle()


def consume(rig: Rig, node: Node, credit: int = 100, address: str = "work", **options: Any) -> tuple[Client, Receiver]:
    client = rig.client(node)
    link = client.receiver(address, credit=credit, **options)
    rig.settle()
    return client, link


def selecting(text: str) -> dict[str, Any]:
    return {"source": {"filter": {Symbol("s"): Described(Ulong(SELECTOR_CODE), text)}}}


def test_the_highest_is_first_and_within_one_what_came_first() -> None:
    rig, node, client = sorting()
    send(rig, client, "0419419")
    taker, _ = consume(rig, node)
    assert taker.bodies() == ["94", "97", "42", "45", "13", "16", "01"]
    taker.accept()
    rig.run(1)
    assert node.queue("work").messages == 0


def test_by_default_a_queue_does_not_sort() -> None:
    rig, node, client = world(QueueConfig(name="work"))
    send(rig, client, "0419")
    assert consume(rig, node)[0].bodies() == ["01", "42", "13", "94"]


def test_priorities_above_nine_are_nine() -> None:
    rig, node, client = sorting()
    link = client.sender("work")
    rig.settle()
    for number, priority in enumerate((8, 9, 255, 10), 1):
        client.send(link, str(number), header=Header(durable=True, priority=priority))
    rig.settle()
    taker, _ = consume(rig, node)
    assert taker.bodies() == ["2", "3", "4", "1"]
    found = [message.header.priority for message in taker.messages() if message.header is not None]
    assert found == [9, 255, 10, 8], "the header is as it was sent"


def test_with_a_credit_of_one_what_comes_later_and_is_higher_is_next() -> None:
    rig, node, client = sorting()
    send(rig, client, "1234")
    taker, link = consume(rig, node, credit=1)
    send(rig, client, "59")
    for _ in range(5):
        link.grant(1)
        rig.settle()
    assert taker.bodies() == ["44", "92", "51", "33", "22", "11"]


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True), "ends"])
def test_what_is_given_back_has_its_place_again(outcome: Any) -> None:
    rig, node, client = sorting()
    send(rig, client, "55922")
    taker, _ = consume(rig, node, credit=3)
    assert taker.bodies() == ["93", "51", "52"]
    if outcome == "ends":
        taker.close_transport()
    else:
        taker.accept(outcome)
    rig.settle()
    send(rig, client, "5")
    other, _ = consume(rig, node)
    assert other.bodies() == ["93", "51", "52", "51", "24", "25"]


def test_several_consumers_share() -> None:
    rig, node, client = sorting()
    takers = [consume(rig, node, credit=10) for _ in range(3)]
    send(rig, client, "0123456789" * 3)
    got = [taker.bodies() for taker, _ in takers]
    assert [len(each) for each in got] == [10, 10, 10]
    assert all(each == sorted(each, key=lambda body: (-int(body[0]), int(body[1:]))) for each in got)


def test_many_in_runs_and_none_twice() -> None:
    rig, node, client = sorting()
    priorities = "".join(str(number * 7 % 10) for number in range(2_000))
    send(rig, client, priorities)
    taker, link = consume(rig, node, credit=700)
    seen: list[str] = []
    while taker.deliveries:
        seen += taker.accept()
        link.grant(700)
        rig.settle()
    expected = sorted(range(1, 2_001), key=lambda number: (-int(priorities[number - 1]), number))
    assert seen == [f"{priorities[number - 1]}{number}" for number in expected]
    rig.run(1)
    assert node.queue("work").messages == 0


def test_a_restart_finds_the_order_again() -> None:
    rig, node, client = sorting()
    send(rig, client, "31415926535897932384")
    taker, _ = consume(rig, node, credit=3)
    assert taker.bodies() == ["96", "913", "915"]
    node.crash()
    node.start()
    rig.settle()
    taker, _ = consume(rig, node)
    assert [body[0] for body in taker.bodies()] == sorted("31415926535897932384", reverse=True)
    assert taker.bodies()[:3] == ["96", "913", "915"]
    marked = [message.header is not None and message.header.delivery_count > 0 for message in taker.messages()]
    assert marked[:3] == [True] * 3


def test_selectors_choose_and_priorities_sort() -> None:
    rig, node, client = sorting()
    send(rig, client, "1948273650" * 2)
    low, _ = consume(rig, node, **selecting("JMSPriority < 5 AND JMSPriority <> 0"))
    assert low.bodies() == ["43", "413", "37", "317", "25", "215", "11", "111"]
    rest, _ = consume(rig, node)
    assert [body[0] for body in rest.bodies()] == list("998877665500")
    send(rig, client, "190")
    assert low.bodies()[8:] == ["11"] or rest.bodies()[12:] == ["92", "11", "03"]


def test_a_browser_sees_the_order_of_arrival() -> None:
    rig, node, client = sorting()
    send(rig, client, "0419")
    browser, _ = consume(rig, node, source={"distribution_mode": Symbol("copy")})
    assert browser.bodies() == ["01", "42", "13", "94"]


def test_a_purge_leaves_nothing_and_what_comes_then_is_sorted() -> None:
    rig, node, client = sorting()
    send(rig, client, "0419")
    taker, link = consume(rig, node, credit=1)
    code, _, text = client.manage("PURGE", "queue", "work")
    rig.run(1)
    assert code == 200, text
    send(rig, client, "27")
    link.grant(10)
    rig.settle()
    assert taker.bodies() == ["94", "72", "21"]


def test_rejected_is_a_dead_letter() -> None:
    rig, node, client = sorting()
    send(rig, client, "19")
    taker, _ = consume(rig, node, credit=1)
    taker.accept(Rejected())
    rig.run(1)
    assert [item[-2:] for item in node.bodies("$dead-letters")] == ["92"]


def test_drop_oldest_drops_of_the_lowest() -> None:
    rig, node, client = sorting(messages_max=4, when_full="drop-oldest")
    send(rig, client, "5392")
    send(rig, client, "4147")
    assert all(isinstance(state, Accepted) for _, state in client.outcomes)
    send(rig, client, "0")
    taker, _ = consume(rig, node)
    assert taker.bodies() == ["93", "74", "51", "01"], "the lowest went each time, the oldest of them first"
    assert node.queue("work").dropped_total == 5
