"""Selectors on links: browsers and durable subscriptions are given what a selector selects (docs/selectors.md)."""

from typing import Any

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS

NAME = Symbol("apache.org:selector-filter:string")
CODE = Ulong(0x0000468C00000004)


def selector(text: Any, descriptor: Any = NAME, key: str = "jms-selector") -> dict[Any, Any]:
    return {Symbol(key): Described(descriptor, text)}


def fill(rig: Rig, node: Node, count: int, size: int = 10, **fields: Any) -> Sender:
    """Messages numbered from 0, of which every third has the subject `third`."""
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in range(count):
        properties = Properties(subject="third" if number % 3 == 0 else "other")
        text = f"{number}".ljust(size)
        client.send(link, text, properties=properties, header=Header(durable=True, priority=number % 10), **fields)
        if number % 100 == 99:
            rig.settle()
    rig.settle()
    return link


def attach(rig: Rig, client: Client, filters: Any, credit: int = 1_000, **fields: Any) -> Any:
    """A receiving link of that source, with credit."""
    name = "s" if fields.get("durable") else "b"
    link = client.session.attach_receiver(name, Source("work", filter=filters, **fields), Target("here"))
    rig.settle()
    if not link.detached:
        link.grant(credit)
        rig.settle()
    return link


def browse(rig: Rig, node: Node, filters: Any, **fields: Any) -> tuple[Client, Any]:
    client = rig.client(node)
    return client, attach(rig, client, filters, distribution_mode=Symbol("copy"), **fields)


def subscribe(rig: Rig, node: Node, filters: Any, **fields: Any) -> tuple[Client, Any]:
    client = rig.client(node)
    durable: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never"), **fields}
    return client, attach(rig, client, filters, **durable)


def bodies(client: Client) -> list[int]:
    return [int(message.body_bytes()) for message in client.messages()]


def error(link: Any) -> tuple[str, str]:
    return str(link.error.condition), str(link.error.description)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("descriptor", [NAME, CODE, Symbol(str(NAME))])
def test_a_browser_sees_what_its_selector_selects(rig: Rig, descriptor: Any) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 10)
    filters = selector("JMSType = 'third' AND JMSPriority > 0", descriptor)
    client, link = browse(rig, hub, filters)
    assert bodies(client) == [3, 6, 9] and hub.queue("work").messages == 10
    assert link.remote_attach.source.filter == filters
    fill(rig, hub, 4)
    assert bodies(client)[3:] == [3]


def test_a_reader_by_sequence_is_given_what_its_selector_selects_of_its_range(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 20)
    start, end = (
        {Symbol(name): Described(Symbol(name), Ulong(number))}
        for name, number in (("holdfast:start-sequence:ulong", 5), ("holdfast:end-sequence:ulong", 12))
    )
    client = rig.client(hub)
    link = attach(rig, client, {**start, **end, **selector("JMSType = 'third'")})
    assert bodies(client) == [6, 9] and link.detached  # sequences 7 and 10


@pytest.mark.parametrize("mode", [None, Symbol("copy"), Symbol("move")])
def test_a_durable_subscription_is_given_what_its_selector_selects(rig: Rig, mode: Any) -> None:
    """Whatever distribution mode it says: Qpid JMS's say `copy`."""
    hub = rig.node("hub")
    client, link = subscribe(rig, hub, selector("JMSType = 'third'"), distribution_mode=mode)
    assert not link.detached and list(hub.queue("work").named) == ["s"]
    fill(rig, hub, 10)
    assert bodies(client) == [0, 3, 6, 9]
    client.accept()
    rig.run(1)
    cursor = hub.queue("work").named["s"]
    assert cursor.floor == 11 and not cursor.finished


def test_what_a_subscription_left_out_stays_so_after_a_restart(rig: Rig) -> None:
    hub = rig.node("hub")
    client, _ = subscribe(rig, hub, selector("JMSType = 'third'"))
    fill(rig, hub, 10)
    client.accept(count=3)
    rig.run(1)
    hub.crash()
    hub.start()
    rig.settle()
    client, _ = subscribe(rig, hub, selector("JMSType = 'third'"))
    assert bodies(client) == [9]
    client.accept()
    rig.run(1)
    assert hub.queue("work").named["s"].floor == 11


def test_another_selector_holds_for_what_lies_ahead(rig: Rig) -> None:
    hub = rig.node("hub")
    client, link = subscribe(rig, hub, selector("JMSType = 'third'"))
    fill(rig, hub, 5)
    client.accept()
    link.detach(closed=False)
    rig.settle()
    fill(rig, hub, 5)
    client, _ = subscribe(rig, hub, None)
    assert bodies(client) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [LARGE, 3 * LARGE])
def test_of_a_large_message_its_first_piece_is_looked_at(rig: Rig, size: int) -> None:
    hub = rig.node("hub", limits=LIMITS)
    fill(rig, hub, 4, size)
    client, _ = browse(rig, hub, selector("JMSType = 'other'"), credit=10)
    for _ in range(20):
        rig.run(0.2)
    assert [int(item.body_bytes()) for item in client.messages()] == [1, 2]


def test_a_long_stretch_that_is_left_out_takes_several_turns_and_holds_up_nobody(rig: Rig) -> None:
    hub = rig.node("hub", queues=(QueueConfig(name="work"),))
    client, _ = subscribe(rig, hub, selector("JMSPriority = 9 AND JMSType = 'third'"))
    browser, _ = browse(rig, hub, selector("JMSPriority = 9 AND JMSType = 'third'"))
    fill(rig, hub, 2_000)
    rig.run(1)
    expected = [number for number in range(2_000) if number % 10 == 9 and number % 3 == 0]
    assert bodies(client) == bodies(browser) == expected


def test_a_drain_is_answered_once_all_is_looked_at(rig: Rig) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 700)
    for client, link in (browse(rig, hub, selector("JMSType = 'none'")), subscribe(rig, hub, selector("FALSE"))):
        link.grant(10, drain=True)
        rig.run(1)
        assert link.credit == 0 and not client.deliveries


def test_a_drain_gives_what_came_after_one_that_found_nothing(rig: Rig) -> None:
    """Though what matches has to wait for its watermark first."""
    hub = rig.node("hub")
    client = rig.client(hub)
    link = attach(rig, client, selector("JMSType = 'third'"), credit=0)
    for wanted in ([], [0, 3]):
        link.grant(10, drain=True)
        rig.run(1)
        assert link.credit == 0 and bodies(client) == wanted
        if not wanted:
            fill(rig, hub, 4)


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        (selector("JMSType = "), "invalid selector"),
        (selector("a =' b'' AND"), "invalid selector"),
        (selector(5), "expected a string"),
        (selector(b"a = 1"), "expected a string"),
        (selector("(" * 100 + "a" + ")" * 100), "invalid selector"),
        (selector("a = '" + "x" * 5_000 + "'"), "invalid selector"),
        (selector("a = 1") | selector("b = 1", CODE, "other"), "second selector"),
    ],
)
def test_a_selector_that_is_none_refuses_the_attach_and_says_where(rig: Rig, filters: Any, text: str) -> None:
    hub = rig.node("hub")
    fill(rig, hub, 1)
    for _, link in (browse(rig, hub, filters), subscribe(rig, hub, filters)):
        condition, told = error(link)
        assert condition == "amqp:invalid-field" and text in told and "\n" not in told
    assert not hub.queue("work").named


def test_what_it_took_back_it_is_given_again(rig: Rig) -> None:
    """A message that the selector selects comes again after a release, marked; the others never come."""
    from holdfast.amqp.wire.performatives import Released

    hub = rig.node("hub")
    client, _ = subscribe(rig, hub, selector("JMSType = 'third'"))
    fill(rig, hub, 4)
    assert client.accept(Released(), count=1) and bodies(client)[:1] == [3]
    rig.settle()
    assert bodies(client) == [3, 0]
    client.accept(Accepted())
    rig.run(1)
    assert hub.queue("work").named["s"].floor == 5
