"""Runs of a named producer's messages: what is taken at once is what is taken one by one (CUSTODY, "Producers")."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.connection import Delivery
from holdfast.amqp.message.message import SECTIONS_MAX, Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected
from holdfast.amqp.wire.types import Symbol, Timestamp, Ulong
from holdfast.broker.entries.annotate import VIEWED_BYTES
from holdfast.broker.stored.producers import Producer
from holdfast.broker.stored.ranges import RangeSet
from holdfast.client.messages import payload
from holdfast.endpoints.numbered_runs import RUN_BYTES_MAX, NumberedRuns
from holdfast.endpoints.producer import ProducerLink
from holdfast.links.incoming import Intake
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.one_node import world
from support.rig import Client, Rig
from support.today import examples

PRODUCER = {Symbol("holdfast:producer"): "p"}
NUMBER = Symbol("x-opt-holdfast-number")
LAST = 2**63 - 1

PLAIN = ("plain", "plain", "plain", "plain", "plain", "plain", "plain", "plain", "large", "priority", "no header")
ODD = (
    "properties", "ttl", "expiring", "annotated", "short number", "sent as delivery annotation", "unnumbered",
    "header behind", "annotations twice", "cut", "no bare message", "proton",
)  # fmt: skip


def numbered(body: str, number: int, kind: str = "plain") -> bytes:
    """That body as the message of that number, as the client sends it or otherwise."""
    message = Message(header=Header(durable=True), data=[body.encode()])
    section = payload.number_section(number) if 0 <= number < 2**64 else b""
    match kind:
        case "large":
            message.data = [body.encode(), b"x" * VIEWED_BYTES]
        case "priority":
            message.header = Header(durable=number % 2 == 0, priority=number % 10)
        case "no header":
            message.header = None
        case "properties":
            message.properties = Properties(subject="s")
        case "ttl":
            message.header = Header(durable=True, ttl=3_600_000)
        case "expiring":
            message.properties = Properties(absolute_expiry_time=Timestamp(2**41))
        case "annotated":
            message.message_annotations = {Symbol("mine"): "note"}
        case "short number":
            return replace(message, message_annotations={NUMBER: Ulong(number)}).encode()
        case "sent as delivery annotation":
            return replace(message, delivery_annotations={NUMBER: Ulong(number)}).encode()
        case "unnumbered":
            return message.encode()
        case "header behind":
            return section + message.encode()
        case "annotations twice":
            return section + section + replace(message, header=None).encode()
        case "no bare message":
            return Message(header=Header(durable=True)).encode() + section
        case "proton":  # its maps have sizes of four bytes
            items = section[6:]
            size = (4 + len(items)).to_bytes(4, "big")
            whole = payload.cut(message)
            return whole.head + section[:3] + b"\xd1" + size + b"\0\0\0\2" + items + whole.bare
    found = b"".join(payload.cut(message).parts(number))
    return found[:-1] if kind == "cut" else found


def attached(rig: Rig, client: Client) -> Any:
    link = client.sender("work", properties=PRODUCER)
    rig.settle()
    return link


# ------------------------------------------------------------------------------------------------ any history

HOW = st.sampled_from(["next"] * 16 + ["again", "behind a gap", "earlier", "zero", "beyond the last"])
MESSAGES = st.lists(st.tuples(HOW, st.sampled_from(PLAIN * 6 + ODD)), max_size=24)
ACTS = st.one_of(
    MESSAGES, MESSAGES, MESSAGES, st.sampled_from(["refuse", "settled", "accept", "attach again", "crash", "hold"])
)
QUEUES = st.builds(
    QueueConfig,
    name=st.just("work"),
    messages_max=st.sampled_from([None, None, 40]),
    bytes_max=st.sampled_from([None, None, 2_000]),
    when_full=st.sampled_from(["block", "refuse", "drop-oldest", "dead-letter"]),
    durable=st.sampled_from([True, True, True, False]),
    priorities=st.booleans(),
)
BANDS = st.sampled_from([{}, {}, {}, {"room_low": 0.5, "room_normal": 0.8}])


def rows(node: Any) -> object:
    """All that is stored."""
    store = node.store
    return store._tables, {queue_id: queue.values for queue_id, queue in store._queues.items() if queue.values}


class History:
    """Plays acts at a node; `seen` is what can be seen of it after each."""

    def __init__(self, queue: QueueConfig, ranges_max: int) -> None:
        self.rig, self.node, self.client = world(queue, limits=Limits(ranges_max=ranges_max))
        self.node.unwatched.add("work")  # a repeat here has another body than the message that is stored
        self.link = attached(self.rig, self.client)
        self.consumer = self.rig.client(self.node)
        self.consumer.receiver("work", credit=5)
        self.rig.settle()
        self.number = self.sent = 0
        self.settled = False
        self.seen: list[object] = []

    def play(self, acts: list[Any]) -> list[object]:
        for act in acts:
            if isinstance(act, list):
                self._send(act)
            elif act == "settled":
                self.settled = not self.settled
            elif act == "refuse":
                self.node.refuse = 1
            elif act == "hold":
                self.node.hold_commits = not self.node.hold_commits
            elif act == "accept":
                self.consumer.accept()
            else:
                self._begin_again(crashes=act == "crash")
            self.rig.settle()
            self._look()
        self.node.hold_commits = False
        self.rig.run(1)
        self._look()
        return self.seen

    def _send(self, messages: list[tuple[str, str]]) -> None:
        for how, kind in messages:
            number = {
                "again": self.number, "behind a gap": self.number + 2, "earlier": max(1, self.number // 2), "zero": 0,
                "beyond the last": LAST + 1,
            }.get(how, self.number + 1)  # fmt: skip
            if not self.link.sendable:
                return
            self.sent += 1
            self.number = max(self.number, number) if number <= LAST else self.number
            self.link.send(numbered(f"{self.sent}", number, kind), context=self.sent, settled=self.settled)

    def _begin_again(self, *, crashes: bool) -> None:
        self.node.hold_commits = False
        self.rig.settle()
        if crashes:
            self.node.crash()
            self.node.start()
            self.consumer = self.rig.client(self.node)
            self.consumer.receiver("work", credit=5)
        else:
            self.client.close_transport()
        self.seen.append(self.client.outcomes)
        self.client = self.rig.client(self.node)
        self.link = attached(self.rig, self.client)
        self.seen.append(self.link.remote_attach.properties)

    def _look(self) -> None:
        (producer,) = self.node.core.catalog.producers.values()
        queue = self.node.queue("work")
        held = queue.read(0, count_max=10**6, bytes_max=2**40)
        self.seen += [
            [(context, repr(state)) for context, state in self.client.outcomes],
            self.link.credit, list(producer.stored), held, queue.messages, queue.bytes_held, self.consumer.bodies(),
            repr(rows(self.node)), repr(self.link.detached),
        ]  # fmt: skip


@examples(60)
@given(QUEUES, BANDS, st.sampled_from([2, 1_024]), st.lists(ACTS, min_size=1, max_size=10))
def test_any_history_is_the_same_in_runs_and_one_by_one(
    queue: QueueConfig, bands: dict[str, float], ranges_max: int, acts: list[Any]
) -> None:
    if bands and queue.when_full != "drop-oldest" and queue.messages_max is not None:
        queue = replace(queue, **bands)
    in_runs = History(queue, ranges_max).play(acts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProducerLink, "delivered_all", Intake.delivered_all)
        one_by_one = History(queue, ranges_max).play(acts)
    assert in_runs == one_by_one


# ------------------------------------------------------------------------------------------------ examples


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each run had; 1 for each message that was taken alone."""
    found: list[int] = []
    stored, take = NumberedRuns.stored, ProducerLink.take

    def run(self: NumberedRuns, turn: Any, count: int) -> None:
        found.append(count)
        stored(self, turn, count)

    def alone(self: ProducerLink, delivery: Delivery, *, large: Any) -> bool:
        found.append(1)
        return take(self, delivery, large=large)

    monkeypatch.setattr(NumberedRuns, "stored", run)
    monkeypatch.setattr(ProducerLink, "take", alone)
    return found


def send(link: Any, first: int, last: int, kind: str = "plain") -> None:
    for number in range(first, last + 1):
        link.send(numbered(str(number), number, kind), context=number)


@pytest.mark.parametrize("kind", ["plain", "large", "priority", "no header", "properties", "proton"])
def test_a_run_is_taken_as_one(kind: str, taken: list[int]) -> None:
    rig, node, client = world()
    link = attached(rig, client)
    send(link, 1, 1, kind)  # the form of its frames is learned
    rig.settle()
    send(link, 2, 30, kind)
    rig.settle()
    assert max(taken) > 5 and sum(taken) == 30
    assert [state for _, state in client.outcomes] == [Accepted()] * 30
    (producer,) = node.core.catalog.producers.values()
    assert list(producer.stored) == [(1, 30)]
    again = attached(rig, rig.client(node))
    assert again.remote_attach.properties["holdfast:last-number"] == 30


def test_a_repeat_and_a_gap_within_a_run_are_what_they_are(taken: list[int]) -> None:
    rig, node, client = world()
    link = attached(rig, client)
    for number in (1, 2, 3, 4, 4, 3, 5, 8, 9, 6):
        send(link, number, number)
    rig.settle()
    assert len(client.outcomes) == 10 and all(isinstance(state, Accepted) for _, state in client.outcomes)
    assert node.bodies("work") == ["1", "2", "3", "4", "5", "8", "9", "6"]
    assert max(taken) >= 2
    (producer,) = node.core.catalog.producers.values()
    assert list(producer.stored) == [(1, 6), (8, 9)]


def test_the_numbers_of_a_run_are_given_back_with_its_turn(taken: list[int]) -> None:
    rig, node, client = world()
    link = attached(rig, client)
    send(link, 1, 3)
    rig.settle()
    client.outcomes.clear()
    node.refuse = 1
    send(link, 4, 30)
    rig.settle()
    (producer,) = node.core.catalog.producers.values()
    assert all(isinstance(state, Rejected) for _, state in client.outcomes) and len(client.outcomes) == 27
    assert list(producer.stored) == [(1, 3)] and max(taken) == 27
    client.outcomes.clear()
    send(link, 4, 30)
    rig.settle()
    assert [state for _, state in client.outcomes] == [Accepted()] * 27
    assert node.bodies("work") == [str(number) for number in range(1, 31)]


def test_a_topic_stores_a_run_as_far_as_its_turn_goes(taken: list[int]) -> None:
    rig, node, client = world()
    reader = rig.client(node)
    reader.receiver("topic://t", name="mine", source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    link = client.sender("topic://t", properties=PRODUCER)
    rig.settle()
    send(link, 1, 30)
    rig.settle()
    assert reader.bodies() == [str(number) for number in range(1, 31)] and max(taken) > 5
    (producer,) = node.core.catalog.producers.values()
    assert list(producer.stored) == [(1, 30)]


def test_each_is_taken_alone_where_there_is_room_by_priority(taken: list[int]) -> None:
    """Whether one fits depends on the priorities of those before it."""
    rig, node, client = world(QueueConfig(name="work", messages_max=100, room_low=0.5, room_normal=0.8))
    link = attached(rig, client)
    send(link, 1, 20, "priority")
    rig.settle()
    assert node.queue("work").messages == 20 and taken == [1] * 20


def test_the_last_number_ends_a_run() -> None:
    runs = NumberedRuns(Producer("p", "q", stored=RangeSet([(1, LAST - 2)])))
    few = [numbered("x", LAST - 1), numbered("x", LAST), numbered("x", LAST + 1)]
    assert runs.unnumbered(few) == [payload.cut(Message(header=Header(durable=True), data=[b"x"])).head + bare
                                    for bare in [b"\x00\x53\x75\xa0\x01x"] * 2]  # fmt: skip
    assert NumberedRuns(Producer("p", "q", stored=RangeSet([(1, LAST)]))).unnumbered(few) == []


def test_what_may_have_too_many_sections_is_examined_alone() -> None:
    """Without that of its number a message would have one less than there may be."""
    head = payload.number_section(1)
    for size, found in ((RUN_BYTES_MAX - 1, 1), (RUN_BYTES_MAX, 0)):
        left = size - len(head) - 8
        message = head + b"\x00\x53\x75\xb0" + left.to_bytes(4, "big") + bytes(left)
        assert len(NumberedRuns(Producer("p", "q")).unnumbered([message])) == found
    assert RUN_BYTES_MAX >= 4 * SECTIONS_MAX
