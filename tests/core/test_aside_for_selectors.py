"""Messages that are set aside because only consumers with selectors accept them (docs/amqp.md, docs/adr/0063)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.wire.performatives import Modified
from holdfast.broker.cursors import exclusions
from holdfast.broker.cursors.exclusions import Exclusions
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import send, world
from support.rig import Client, Rig
from support.selecting import consume

NOT_HERE = Modified(undeliverable_here=True)
SMALL = 300
BIG = "x" * 1_000
TOO_LARGE = "amqp:link:message-size-exceeded"


class Asked:
    """How often it was asked who can have an entry."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        choose = Exclusions.choose

        def counting(*arguments: Any) -> Any:
            self.count += 1
            return choose(*arguments)

        patch.setattr(Exclusions, "choose", counting)


def conditions(client: Client) -> list[str]:
    """Why links were detached."""
    return [str(event.error.condition) for event in client.detached if event.error]


def beside(rig: Rig, client: Client, *selectors: str, credit: int = 0, **options: Any) -> list[Receiver]:
    """Consumers with selectors, and one that takes small messages."""
    client.receiver("work", max_message_size=SMALL)
    return [consume(rig, client, selector, credit, **options) for selector in selectors]


@pytest.mark.parametrize("durable", [True, False])
def test_no_more_is_set_aside_for_consumers_with_selectors_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """The others wait behind it; nothing of it counts as given, and all of it goes to who takes it, in order."""
    monkeypatch.setattr(exclusions, "ASIDE_MAX", 20)
    rig, node, client = world(QueueConfig(name="work", durable=durable))
    node.unwatched.add("work")
    assert node.core is not None
    before = node.core.memory.withheld.aside.held
    (large,) = beside(rig, client, "TRUE")
    send(rig, client, *[BIG + str(number) for number in range(100)], "1")
    queue = node.queue("work")
    assert len(queue.shared.exclusions.aside) == 20 and queue.out_total == 0 and client.deliveries == []
    assert before + 20 * 100 <= node.core.memory.withheld.aside.held <= before + 20 * 300
    other = rig.client(node)
    small = other.receiver("work", credit=0, max_message_size=SMALL)
    small.grant(10, drain=True)
    rig.settle()
    assert small.credit == 0
    got: list[str] = []
    for _ in range(20):
        large.grant(7)
        rig.settle()
        got += client.accept(link=large)
    assert got == [BIG + str(number) for number in range(100)] and queue.out_total == 101
    assert client.accept() == ["1"] and client.detached == []
    rig.run(1)
    assert not queue.shared.exclusions.counted_aside
    assert node.core.memory.withheld.aside.held == before


def test_where_memory_is_used_up_little_is_set_aside_for_consumers_with_selectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until there is memory again."""
    monkeypatch.setattr(exclusions, "ASIDE_MIN", 3)
    rig, node, client = world()
    assert node.core is not None
    beside(rig, client, "TRUE")
    account = node.core.memory.withheld.aside
    with monkeypatch.context() as patch:
        patch.setattr(account, "held_max", account.held)
        send(rig, client, *[BIG] * 10, "1")
        assert len(node.queue("work").shared.exclusions.aside) == 3 and client.deliveries == []
    rig.run(1)
    assert len(node.queue("work").shared.exclusions.aside) == 10 and client.accept() == ["1"]


@pytest.mark.parametrize("credit", [0, 1])
def test_one_that_takes_nothing_of_what_is_set_aside_leaves_it_there(
    credit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is asked about again, and what comes behind it is not held up."""
    rig, _, client = world()
    beside(rig, client, "TRUE")
    send(rig, client, *[BIG] * 50)
    asked = Asked(monkeypatch)
    for text in ("1", "2", "3"):
        link = consume(rig, client, "JMSType = 'none'", credit)
        link.detach(closed=True)
        send(rig, client, text)
        assert client.accept() == [text]
    assert asked.count <= 3 and conditions(client) == []


OTHERS_LEFT = [("TRUE", {}, 0), ("TRUE", {"max_message_size": 2 * len(BIG)}, 0), ("1 = 1", {}, 50), (None, {}, 0)]


@pytest.mark.parametrize(("selector", "options", "asked_again"), OTHERS_LEFT)
def test_what_is_set_aside_waits_for_another_that_accepts_it(
    selector: str | None, options: dict[str, Any], asked_again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where that has another selector is it asked about again."""
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    (link,) = beside(rig, client, "TRUE")
    other = consume(rig, client, selector, 0, **options)
    send(rig, client, *[BIG] * 50, "1")
    aside = node.queue("work").shared.exclusions.aside
    assert client.accept() == ["1"] and len(aside) == 50
    asked = Asked(monkeypatch)
    link.detach(closed=True)
    rig.settle()
    assert len(aside) == 50 and conditions(client) == []
    assert asked.count == asked_again
    other.grant(60)
    rig.settle()
    assert client.accept(link=other) == [BIG] * 50


@pytest.mark.parametrize(
    ("selector", "options"),
    [("JMSType = 'none'", {}), ("TRUE", {"max_message_size": SMALL}), ("TRUE", {}), (None, {})],
)
def test_what_is_set_aside_is_offered_again_once_nobody_accepts_it(
    selector: str | None, options: dict[str, Any]
) -> None:
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    (link,) = beside(rig, client, "TRUE")
    other = consume(rig, client, selector, 1, **options)
    send(rig, client, BIG)
    if client.deliveries:
        client.accept(NOT_HERE, link=other)
        rig.settle()
    assert conditions(client) == [] and len(node.queue("work").shared.exclusions.aside) == 1
    link.detach(closed=True)
    rig.settle()
    assert conditions(client) == [TOO_LARGE]


def test_what_nobody_accepts_is_set_aside_within_the_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In `$dead-letters`; past the bound it ends links."""
    monkeypatch.setattr(exclusions, "ASIDE_MAX", 2)
    rig, node, client = world(limits=Limits(too_large_links_max=1))
    send(rig, client, *[BIG + str(number) for number in range(4)])
    for _ in range(5):
        client.receiver("work", max_message_size=SMALL)
        rig.settle()
    large = [BIG + str(number) for number in range(4)]
    assert node.bodies("$dead-letters") == large
    for _ in range(8):
        link = client.receiver("$dead-letters", max_message_size=SMALL)
        rig.settle()
    assert conditions(client)[-1] == TOO_LARGE and link.detached
    assert len(node.queue("$dead-letters").shared.exclusions.aside) <= 2
    other = rig.client(node)
    other.receiver("$dead-letters")
    rig.settle()
    assert other.bodies() == large
