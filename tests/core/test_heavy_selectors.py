"""Selectors that take long are asked about few messages in one turn, whoever has them, and what they select still comes
(docs/adr/0063)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Released
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors import matches, priorities, selections
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.core import offering
from holdfast.endpoints.attaching import filters
from holdfast.selectors.predicate import compile_selector
from holdfast.settings.queues import QueueConfig
from support import selecting
from support.one_node import world
from support.rig import Client, Node, Rig
from support.selecting import NAME, consume

TERMS = 400
TERMS_MAX = 40_000
"""Comparisons of one turn: about 10 ms."""
LINKS = 150
EACH = 15
"""Of one client."""


def heavy(number: int) -> dict[str, Any]:
    text = "n = 1 OR " * (TERMS - 1) + f"n = {number}"
    return {"filter": {Symbol("s"): Described(NAME, text)}}


class Asked:
    """How often selectors were asked in each event, of one node."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self.now = self.all = 0
        assert node.core is not None
        original, handle = filters.EntrySelector.matches, node.core.handle

        def matches(selector: Any, value: bytes) -> bool:
            self.now += 1
            return original(selector, value)

        def handled(event: Any, now: float) -> Any:
            self.now = 0
            commands = handle(event, now)
            self.most = max(self.most, self.now)
            self.all += self.now
            return commands

        monkeypatch.setattr(filters.EntrySelector, "matches", matches)
        monkeypatch.setattr(node.core, "handle", handled)


def send(rig: Rig, client: Client, *numbers: int) -> None:
    link = client.sender("work")
    rig.settle()
    for number in numbers:
        client.send(link, str(number), application_properties={"n": number})
    rig.run(1)


@pytest.mark.parametrize("priorities", [False, True])
def test_one_turn_asks_heavy_selectors_about_few_messages(priorities: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world(QueueConfig(name="work", priorities=priorities))
    send(rig, client, *[5_000] * 150)
    asked = Asked(node, monkeypatch)
    rig.client(node).receiver("work", source=heavy(2))
    rig.run(5)
    assert asked.all >= 150
    assert asked.most * TERMS <= TERMS_MAX


def test_one_message_is_shown_to_many_heavy_selectors_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world(QueueConfig(name="work"))
    takers = [rig.client(node) for _ in range(LINKS // EACH)]
    for number, taker in enumerate(takers):
        for place in range(EACH):
            taker.receiver("work", source=heavy(100 + EACH * number + place))
    rig.run(5)
    asked = Asked(node, monkeypatch)
    send(rig, client, 5_000, 100, 249, 175)
    rig.run(5)
    assert [taker.bodies() for taker in (takers[0], takers[-1], takers[5])] == [["100"], ["249"], ["175"]]
    assert asked.all >= LINKS
    assert asked.most * TERMS <= TERMS_MAX
    asked.all = asked.most = 0
    holder = rig.client(node)
    holder.receiver("work", credit=1)
    rig.settle()
    assert holder.accept(Released()) == ["5000"]  # all are asked again about what was given back
    rig.run(5)
    assert asked.all >= LINKS
    assert asked.most * TERMS <= TERMS_MAX
    takers[-1].accept(Released())
    rig.run(5)
    assert takers[-1].bodies() == ["249"]


def test_a_heavy_selector_whose_matches_wait_for_credit_keeps_no_other_from_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have no more of them, and to ask it about the next one takes a whole turn's share."""
    monkeypatch.setattr(matches, "HITS_MAX", 3)
    rig, node, client = world(QueueConfig(name="work"))
    asleep, awake = rig.client(node), rig.client(node)
    link = asleep.receiver("work", source=heavy(2), credit=0)
    awake.receiver("work", source=heavy(3))
    sender = client.sender("work")
    rig.settle()
    for number in (2, 2, 2, 2, 3):
        client.send(sender, str(number), application_properties={"n": number, "filler": "x" * 10_000})
    rig.run(1)
    assert awake.bodies() == ["3"] and not asleep.bodies()
    link.grant(10)
    rig.run(1)
    assert asleep.bodies() == ["2"] * 4


@pytest.mark.parametrize(
    ("text", "count", "size"), [("n > 0", 300, 1), ("n = 0 OR " * (TERMS - 1) + "n > 0", 2, 12_000)]
)
def test_a_consumer_gets_what_its_selector_matches_of_a_node_that_keeps_records_of_messages(
    text: str, count: int, size: int
) -> None:
    """Each is handed out singly, and a turn's share is less than all of them."""
    rig, node, client = world(QueueConfig(name="work"), telemetry_messages=True)
    link = client.sender("work")
    rig.settle()
    for number in range(1, count + 1):
        client.send(link, str(number), application_properties={"n": number, "filler": "x" * size})
    rig.run(1)
    taker = rig.client(node)
    terms = Described(NAME, text)
    turns = node.turns
    taker.receiver("work", credit=count, source={"filter": {Symbol("s"): terms}})
    rig.run(1)
    assert taker.bodies() == [str(number) for number in range(1, count + 1)] and node.turns - turns < 10


def test_a_match_that_no_run_takes_is_handed_out_though_the_run_has_used_up_the_turns_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It needs more frames than the window of its session has, and waits in the session."""
    monkeypatch.setattr(selections, "SCAN_BYTES", 1)
    rig, node, client = world(QueueConfig(name="work"))
    taker = rig.client(node, incoming_window=2, max_frame_size=512)
    taker.receiver("work", credit=5, source={"filter": {Symbol("s"): Described(NAME, "n = 2")}})
    link = client.sender("work")
    rig.settle()
    for number in (1, 2):
        client.send(link, str(number).ljust(2_000), application_properties={"n": number})
    rig.run(1)
    assert [body.strip() for body in taker.bodies()] == ["2"]


LONG = (
    "n = 1 OR " * 400 + "n = 2",
    "1" + "+n" * 2_000 + " = 1",
    "s LIKE '%a%b' OR " * 200 + "n = 1",
    "a IS NULL AND " * 280 + "n = 1",
)


@pytest.mark.parametrize("text", LONG)
def test_a_long_selector_weighs_more(text: str) -> None:
    assert compile_selector(text).weight > 500


@pytest.mark.parametrize("text", ["n = 1 AND s LIKE 'a%' OR JMSPriority > 4", "s IN ('a', 'b') AND n BETWEEN 1 AND 5"])
def test_an_ordinary_selector_weighs_nothing_more(text: str) -> None:
    assert compile_selector(text).weight == 1


class Shared:
    """A queue with 0 and 1, which `holder` has, and three selectors, one of which is asked in a turn about what came
    back: `taker` takes both, and is asked first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selections, "SCAN_BYTES", 1)
        self.rig, self.node, client = world(QueueConfig(name="work"))
        self.holder, self.taker, *others = (self.rig.client(self.node) for _ in range(4))
        self.link = self.holder.receiver("work", credit=2)
        send(self.rig, client, 0, 1)
        for number, taker in enumerate((self.taker, *others)):
            terms = Described(NAME, f"n < {2 - 2 * number}")
            taker.receiver("work", source={"filter": {Symbol("s"): terms}})
        self.rig.run(1)
        assert self.holder.bodies() == ["0", "1"] and not self.taker.bodies()

    def give_back_last(self) -> None:
        last = self.holder.deliveries.pop()
        last.link.settle(last.delivery_id, last.delivery_id, Released())

    def give_last_back_to_first(self) -> None:
        """Until the first selector was asked about it and the others were not."""
        self.give_back_last()
        found = self.node.queue("work").shared.selections
        while found._asked_back is None:
            assert self.rig.move()


def test_all_are_asked_anew_about_what_another_took_and_gave_back_before_all_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared(monkeypatch)
    shared.give_last_back_to_first()
    shared.link.grant(1)
    shared.rig.run(1)
    assert shared.holder.bodies() == ["0", "1"] and not shared.taker.bodies()
    shared.give_back_last()
    shared.rig.run(1)
    assert shared.taker.bodies() == ["1"]


def test_all_are_asked_about_what_came_back_before_a_message_that_not_all_were_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared(monkeypatch)
    shared.give_last_back_to_first()
    shared.holder.accept(Released())
    shared.rig.run(1)
    assert sorted(shared.taker.bodies()) == ["0", "1"]


class ReadInPumps:
    """How many messages each pump read, one by one, and how many it counted for its turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pumps: list[tuple[int, int]] = []
        self.now = 0
        value, pump = Queue.value, Cursor.pump

        def counting(queue: Queue, sequence: int) -> bytes | None:
            self.now += 1
            return value(queue, sequence)

        def pumped(cursor: Cursor, limit: int) -> int:
            self.now, before = 0, cursor.queue.work.offered_count
            try:
                return pump(cursor, limit)
            finally:
                self.pumps.append((self.now, cursor.queue.work.offered_count - before))

        monkeypatch.setattr(Queue, "value", counting)
        monkeypatch.setattr(Cursor, "pump", pumped)


@pytest.mark.parametrize("priorities", [False, True])
def test_what_is_marked_as_shown_for_many_selectors_is_read_once_and_counts(
    priorities: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the consumers takes less than the others, so that it is asked for each message who can have it."""
    rig, node, client = world(QueueConfig(name="work", deliveries_max=5, priorities=priorities))
    for number in range(30):
        consume(rig, client, f"JMSPriority >= -{number}", credit=300, max_message_size=700 if not number else 100_000)
    read = ReadInPumps(monkeypatch)
    selecting.fill(rig, node, 90, size=1_000)
    rig.run(1)
    assert len(client.deliveries) == 90
    assert all(values <= counted + 3 * 30 for values, counted in read.pumps), read.pumps


def test_what_came_back_and_waits_for_its_mark_is_matched_once_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client = world(QueueConfig(name="work", deliveries_max=50))
    selecting.fill(rig, node, 400)
    consume(rig, client, "TRUE", credit=400)
    assert len(client.deliveries) == 400
    node.crash()
    node.start()
    assert node.core is not None
    node.core.memory.withheld.given_back.held_max = 0
    taker, others = rig.client(node), rig.client(node)
    consume(rig, taker, "TRUE", credit=100)
    assert len(taker.deliveries) == 100 and node.queue("work").shared.halted
    node.hold_commits = True
    read = ReadInPumps(monkeypatch)
    for number in range(10):
        consume(rig, others, f"JMSPriority >= -{number}", credit=200)
    assert not others.deliveries and all(values <= counted + 3 * 10 for values, counted in read.pumps), read.pumps
    node.hold_commits = False
    rig.run(1)
    assert len(others.deliveries) == 300


@pytest.mark.parametrize("sorts", [False, True])
def test_a_message_is_marked_though_asking_who_can_have_it_takes_the_whole_share(
    sorts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is too large for its consumer, and all selectors are asked whether another one takes it, in each pump."""
    monkeypatch.setattr(priorities if sorts else selections, "SCAN_BYTES", 2_000)
    rig, node, client = world(QueueConfig(name="work", deliveries_max=3, priorities=sorts))
    consume(rig, client, "FALSE")
    consume(rig, client, "TRUE", max_message_size=600)
    selecting.fill(rig, node, 1, size=1_500)
    rig.run(1)
    assert [str(event.error.condition) for event in client.detached if event.error] == [
        "amqp:link:message-size-exceeded"
    ]


def test_what_waits_for_credit_keeps_no_node_busy_whose_turns_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many messages match, where deliveries are counted, and nobody wants one of them."""
    monkeypatch.setattr(offering, "PUMP_LIMIT", 1)
    rig, node, client = world(QueueConfig(name="work", deliveries_max=3))
    waiting = consume(rig, client, "TRUE", credit=0)
    consume(rig, client, "FALSE", credit=3, max_message_size=600)
    selecting.fill(rig, node, 90)
    consume(rig, client, "FALSE", credit=3)
    assert not client.deliveries
    waiting.grant(90)
    rig.run(1)
    assert len(client.deliveries) == 90
