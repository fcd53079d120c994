"""Links that are resumed at a node: only what is in doubt goes again, and who does not resume does not wait
(AMQP 1.0 §2.6.13; ADR 0012).
"""

from typing import Any

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Attach, Received, Rejected, Released
from holdfast.amqp.wire.types import Symbol
from holdfast.endpoints.resumption.consumer import ResumableConsumer
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.resuming import HOLD_S, Producer
from support.rig import Node, Rig


def world(**fields: Any) -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node("hub", queues=(QueueConfig(name="work"),), **fields)


def test_what_was_stored_is_told_and_what_never_came_is_not() -> None:
    rig, node = world()
    producer = Producer(rig, node)
    node.hold_commits = True
    producer.send("a", "b")
    rig.settle()
    producer.send("c")  # it does not leave before the cut
    node.hold_commits = False
    producer.lose()
    rig.settle()
    assert producer.come_back() == {bytes(4): Accepted(), b"\0\0\0\1": Accepted()}
    assert node.bodies("work") == ["a", "b"]
    assert list(producer.doubt.values()) == ["a", "b", "c"]


def test_what_is_being_stored_is_decided_before_the_answer() -> None:
    rig, node = world()
    producer = Producer(rig, node)
    node.hold_commits = True
    producer.send("a")
    rig.settle()
    producer.lose()
    producer.client = rig.client(node)
    producer.attach(dict.fromkeys(producer.doubt))
    assert producer.link.remote_attach is None  # no answer: the disk has not answered either
    node.hold_commits = False
    rig.settle()
    assert producer.told == {bytes(4): Accepted()}


@pytest.mark.parametrize("sends", [True, False])
def test_a_link_that_its_peer_ends_before_the_answer_is_answered_all_the_same(sends: bool) -> None:
    """Its peer waits for both answers, and keeps the handle until then."""
    rig, node = world()
    busy, other = Producer(rig, node), Producer(rig, node, "other")

    def attach() -> Any:
        if sends:
            return other.attach({})
        return other.client.receiver("work", name="one", source={"timeout": HOLD_S}, unsettled={}, credit=0)

    if not sends:
        attach()
    rig.settle()
    other.lose()
    other.client = rig.client(node)
    rig.settle()
    node.hold_commits = True
    busy.send("a")
    rig.settle()
    link = attach()
    rig.settle()
    assert not link.attached
    link.detach(closed=True)
    rig.settle()
    node.hold_commits = False
    rig.settle()
    assert link.over


def test_a_full_disk_is_told_as_it_was() -> None:
    rig, node = world()
    producer = Producer(rig, node)
    node.hold_commits = True
    producer.send("a")
    rig.settle()
    producer.lose()
    node.refuse = 1
    node.hold_commits = False
    assert producer.come_back() == {}
    assert node.bodies("work") == []


def test_what_was_rejected_is_told_so() -> None:
    rig, node = world()
    producer = Producer(rig, node)
    producer.link.send(b"no message", context="bad")
    producer.say(producer.client, producer.flush())
    producer.lose()
    told = producer.come_back()
    assert told is not None and isinstance(told[bytes(4)], Rejected)


def test_a_half_dead_connection_is_fenced() -> None:
    rig, node = world()
    producer = Producer(rig, node)
    old = producer.client
    producer.send("a")
    rig.settle()
    producer.send("b")
    late = producer.flush()
    producer.doubt, producer.next_tag = producer.link.unsettled_tags(), producer.link.next_tag
    assert producer.come_back() == {}
    producer.say(old, late)
    rig.settle()
    assert node.bodies("work") == ["a"]


@pytest.mark.parametrize("durable", [0, 2])
def test_tags_are_known_after_a_kill_where_the_terminus_is_durable(durable: int) -> None:
    rig, node = world()
    producer = Producer(rig, node, durable=durable)
    producer.send("a", "b")
    rig.settle()
    node.hold_commits = True
    producer.send("c")
    rig.settle()
    node.finish_commit()  # stored, and the node dies before its word is heard
    producer.lose()
    node.hold_commits = False
    node.crash()
    node.start()
    rig.settle()
    assert producer.come_back() == ({b"\0\0\0\2": Accepted()} if durable else None)
    assert producer.link.remote_attach is not None and producer.link.remote_attach.target.durable == durable
    assert node.bodies("work") == ["a", "b", "c"]


def test_a_row_leaves_the_store_with_its_link() -> None:
    rig, node = world()
    producer = Producer(rig, node, durable=2)
    producer.send("a")
    rig.settle()
    rows = [key for key, _ in node.store.table("custody") if key[:1] == b"l"]
    assert len(rows) == 1
    producer.link.detach()
    rig.settle()
    filler = rig.client(node)
    link = filler.sender("work")
    rig.settle()
    filler.send(link, "later")
    rig.settle()
    assert not [key for key, _ in node.store.table("custody") if key[:1] == b"l"]


def test_without_a_way_to_count_tags_nothing_is_remembered() -> None:
    rig, node = world()
    client = rig.client(node)
    link = client.sender("work", name="p", target={"timeout": HOLD_S})
    rig.settle()
    client.send(link, "a")
    rig.settle()
    client.close_transport()
    rig.settle()
    link = rig.client(node).sender("work", name="p", target={"timeout": HOLD_S}, unsettled={bytes(4): None})
    rig.settle()
    assert link.remote_attach is not None and link.remote_attach.unsettled is None


@pytest.mark.parametrize(("asked", "held"), [(10, 10), (20, 20), (21, 20)])
def test_a_producers_tags_are_kept_as_long_as_asked_within_the_bound(asked: int, held: int) -> None:
    for seconds, known in ((held - 1, True), (held + 1, False)):
        rig, node = world(limits=Limits(resume_s_max=20))
        producer = Producer(rig, node, timeout=asked)
        assert producer.link.remote_attach is not None and producer.link.remote_attach.target.timeout == held
        producer.lose()
        rig.run(seconds)
        assert (producer.come_back() is not None) is known


def test_links_that_may_be_resumed_are_bounded() -> None:
    rig, node = world(limits=Limits(resume_links_max=2))
    first, second = Producer(rig, node), Producer(rig, node, "other")
    third = Producer(rig, node, "third")
    timeouts = [
        link.remote_attach.target.timeout for link in (first.link, second.link, third.link) if link.remote_attach
    ]
    assert timeouts == [HOLD_S, HOLD_S, 0]
    first.lose()
    assert first.come_back() == {}  # at the bound too, who is known comes back
    second.link.detach(closed=True)
    rig.settle()
    third.lose()
    assert third.come_back() is None
    assert third.link.remote_attach is not None and third.link.remote_attach.target.timeout == HOLD_S


def test_tags_are_bounded() -> None:
    rig, node = world(limits=Limits(resume_tags_max=3))
    producer = Producer(rig, node)
    producer.send(*"abcd")
    rig.settle()
    producer.doubt = {number.to_bytes(4): "?" for number in range(4)}
    producer.lose()
    assert producer.come_back() == {number.to_bytes(4): Accepted() for number in (1, 2, 3)}


# ------------------------------------------------------------------------------------------------ consumers


class Consumer:
    """A receiving peer that keeps its unsettled map: delivery by tag."""

    def __init__(self, rig: Rig, node: Node, *, credit: int = 10, **source: Any) -> None:
        self.rig, self.node = rig, node
        self.source = source or {"timeout": HOLD_S}
        self.client = rig.client(node)
        self.link = self.attach(None, credit)

    def attach(self, unsettled: dict[bytes, Any] | None, credit: int = 10) -> Receiver:
        self.link = self.client.receiver("work", name="c", source=dict(self.source), unsettled=unsettled, credit=credit)
        self.rig.settle()
        return self.link

    @property
    def told(self) -> Attach:
        assert self.link.remote_attach is not None
        return self.link.remote_attach

    def lose(self) -> None:
        assert self.client.end is not None
        self.client.end.wire.cut()
        self.rig.settle()

    def come_back(self, unsettled: dict[bytes, Any] | None, credit: int = 10) -> None:
        self.client = self.rig.client(self.node)
        self.attach(unsettled, credit)


def fill(rig: Rig, node: Node, *bodies: str) -> None:
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for body in bodies:
        client.send(link, body)
    rig.settle()
    client.close_transport()
    rig.settle()


def tag(number: int) -> bytes:
    return number.to_bytes(4)


def test_what_a_lost_consumer_has_is_resumed_and_what_it_has_not_goes_again() -> None:
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, *"abcdef")
    assert [item.tag for item in consumer.client.deliveries] == [tag(number) for number in range(6)]
    consumer.lose()
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.deliveries == []  # they are held for who may come back
    has = Received(3, 0)  # header, annotations and data: all of a message
    consumer.come_back({tag(0): Accepted(), tag(1): has, tag(2): None, tag(3): Released(), tag(9): has})
    assert consumer.told.unsettled == {tag(number): None for number in (0, 1, 2, 3)}
    resumed = {item.tag: item for item in consumer.client.deliveries if item.resume}
    assert {name: (item.settled, item.state) for name, item in resumed.items()} == {
        tag(0): (True, Accepted()), tag(1): (False, has), tag(2): (False, Received(0, 0)), tag(3): (True, Released()),
    }  # fmt: skip
    assert [len(resumed[tag(number)].payload) > 0 for number in (0, 1, 2, 3)] == [False, False, True, False]
    resumed[tag(1)].link.settle(resumed[tag(1)].delivery_id, resumed[tag(2)].delivery_id, Accepted())
    rig.settle()
    new = [item for item in consumer.client.deliveries if not item.resume] + other.deliveries
    assert sorted(item.payload[-1:] for item in new) == [b"d", b"e", b"f"]
    assert node.queue("work").messages == 3


def test_no_tag_is_used_twice_over_resumed_links() -> None:
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, *"abc")
    consumer.lose()
    consumer.come_back({tag(0): None})
    used = {item.tag for item in consumer.client.deliveries if not item.resume}
    assert len(used) == 2 and not used & {tag(number) for number in range(3)}


@pytest.mark.parametrize(
    "source",
    [{"timeout": HOLD_S}, {"expiry_policy": "never"}, {"expiry_policy": "connection-close", "timeout": HOLD_S}],
)
def test_who_comes_back_without_a_map_has_all_at_once(source: dict[str, Any]) -> None:
    rig, node = world()
    consumer = Consumer(rig, node, **source)
    fill(rig, node, *"ab")
    consumer.lose()
    assert node.queue("work").shared.acquired
    consumer.come_back(None)
    assert consumer.told.unsettled is None
    assert consumer.client.bodies() == ["a", "b"]
    headers = [message.header for message in consumer.client.messages()]
    assert [(header.first_acquirer, header.delivery_count) for header in headers if header] == [(False, 1)] * 2


@pytest.mark.parametrize("source", [{"timeout": 0}, {"expiry_policy": "connection-close"}, {"durable": 2}])
@pytest.mark.parametrize("how", ["lost", "detached"])
def test_nothing_is_held_for_who_did_not_ask(how: str, source: dict[str, Any]) -> None:
    rig, node = world()
    consumer = Consumer(rig, node, **source)
    fill(rig, node, *"ab")
    if how == "lost":
        consumer.lose()
    else:
        consumer.link.detach(closed=False)
    rig.settle()
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.bodies() == ["a", "b"]


def test_a_link_that_was_closed_holds_nothing() -> None:
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, *"ab")
    consumer.link.detach(closed=True)
    rig.settle()
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.bodies() == ["a", "b"]


@pytest.mark.parametrize(("asked", "held"), [(10, 10), (20, 20), (21, 20)])
def test_what_is_not_resumed_in_time_goes_to_others_in_its_old_place(asked: int, held: int) -> None:
    rig, node = world(limits=Limits(resume_s_max=20))
    consumer = Consumer(rig, node, timeout=asked)
    assert consumer.told.source.timeout == held
    fill(rig, node, *"ab")
    consumer.lose()
    fill(rig, node, "c")
    rig.run(held - 0.5)
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert other.bodies() == ["c"]
    rig.run(1)
    assert other.bodies() == ["c", "a", "b"]
    assert [message.header.delivery_count for message in other.messages() if message.header] == [0, 1, 1]
    consumer.come_back({tag(0): None})
    assert consumer.told.unsettled is None


def test_a_subscription_s_next_reader_does_not_wait_for_the_last() -> None:
    rig, node = world()
    source = {"durable": 2, "expiry_policy": "never", "capabilities": (Symbol("global"),)}
    consumer = Consumer(rig, node, **source)
    fill(rig, node, *"ab")
    consumer.lose()
    other = rig.client(node, container_id="another")
    other.receiver("work", name="c", source=source)
    rig.settle()
    assert other.bodies() == ["a", "b"]


@pytest.mark.parametrize("source", [{}, {"durable": 2, "expiry_policy": "never"}])
def test_a_half_dead_consumer_is_fenced(source: dict[str, Any]) -> None:
    rig, node = world()
    consumer = Consumer(rig, node, **source)
    fill(rig, node, *"ab")
    old = consumer.client
    late = old.deliveries[0]
    consumer.come_back({tag(0): None, tag(1): Accepted()})
    assert consumer.told.unsettled == {tag(0): None, tag(1): None}
    late.link.settle(late.delivery_id, late.delivery_id, Accepted())
    rig.settle()
    assert [item.tag for item in consumer.client.deliveries if not item.settled] == [tag(0)]
    assert node.queue("work").messages == (2 if source else 1)  # of a subscription the queue keeps all


def test_a_stopped_node_holds_nothing_over_its_end() -> None:
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, *"ab")
    consumer.lose()
    node.handle(events.Stopping())
    rig.settle()
    assert node.stopped
    node.core = None
    node.start()
    other = rig.client(node)
    other.receiver("work")
    rig.settle()
    assert [message.header.delivery_count for message in other.messages() if message.header] == [1, 1]


def test_a_queue_is_deleted_and_a_subscription_advanced_over_a_suspended_link() -> None:
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, *"ab")
    consumer.lose()
    assert rig.client(node).manage("DELETE", "queue", "work")[0] == 200


def test_a_map_that_fits_no_frame_is_told_in_part() -> None:
    rig, node = world()
    consumer = Consumer(rig, node, credit=300)
    fill(rig, node, *(str(number) for number in range(300)))
    consumer.lose()
    consumer.client = rig.client(node, max_frame_size=1024)
    consumer.attach({tag(number): None for number in range(300)}, 400)
    first = len(consumer.told.unsettled or {})
    assert 0 < first < 300
    assert consumer.link.local_attach is not None and consumer.link.local_attach.incomplete_unsettled
    assert len(consumer.client.deliveries) == first and all(item.resume for item in consumer.client.deliveries)
    consumer.client.accept()
    consumer.link.detach(closed=False)
    rig.settle()
    consumer.attach({tag(number): None for number in range(first, 300)}, 400)
    assert consumer.told.unsettled is not None and node.queue("work").messages == 300 - first


def test_what_a_map_did_not_tell_is_free_once_the_link_is_closed() -> None:
    rig, node = world()
    consumer = Consumer(rig, node, credit=300)
    fill(rig, node, *(str(number) for number in range(300)))
    consumer.lose()
    consumer.client = rig.client(node, max_frame_size=1024)
    consumer.attach({tag(number): None for number in range(300)}, 400)
    first = len(consumer.told.unsettled or {})
    assert 0 < first < 300
    consumer.client.accept()
    consumer.link.detach(closed=True)
    rig.settle()
    other = rig.client(node)
    other.receiver("work", credit=400)
    rig.settle()
    assert len(other.deliveries) == 300 - first


def test_a_half_dead_consumer_s_entries_are_free_at_once_for_who_comes_back_without_a_map() -> None:
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, *"ab")
    consumer.come_back(None)
    assert consumer.client.bodies() == ["a", "b"]


def test_a_producer_that_resumes_what_was_not_told_is_refused() -> None:
    rig, node = world()
    producer = Producer(rig, node)
    producer.send("a")
    rig.settle()
    producer.doubt = {tag(0): "a", tag(1): "b"}
    producer.lose()
    assert producer.come_back() == {tag(0): Accepted()}
    producer.link.resume(tag(0), Message(data=[b"a"]).encode(), context="a", state=Received(0, 0))
    rig.settle()
    assert producer.client.outcomes[-1] == ("a", Accepted()) and node.bodies("work") == ["a"]
    producer.link.resume(tag(1), b"x", context="b", state=Received(0, 0))
    rig.settle()
    (gone,) = producer.client.detached
    assert gone.error is not None and gone.error.condition == "amqp:not-allowed"


def test_what_is_put_aside_by_an_incomplete_map_is_still_held_after_the_next_break() -> None:
    rig, node = world()
    consumer = Consumer(rig, node, credit=300)
    fill(rig, node, *(str(number) for number in range(300)))
    consumer.lose()
    for _ in range(2):
        consumer.client = rig.client(node, max_frame_size=1024)
        consumer.attach({tag(number): None for number in range(300)}, 400)
        consumer.lose()
    consumer.come_back({tag(number): None for number in range(300)}, 400)
    assert consumer.told.unsettled == {tag(number): None for number in range(300)}


def test_a_large_message_is_never_resumed_but_begins_anew() -> None:
    """What the consumer has of it counts for nothing, nor does what its map says of it."""
    rig, node = world(limits=Limits(stream_bytes=100_000))
    consumer = Consumer(rig, node)
    large = "".join(f"{number:07d}" for number in range(50_000))
    fill(rig, node, large, "next")
    assert [item.tag for item in consumer.client.deliveries] == [tag(0), tag(1)]
    consumer.lose()
    consumer.come_back({tag(0): Received(0, 1000), tag(1): Received(3, 0)})
    anew = [item for item in consumer.client.deliveries if not item.resume]
    assert [Message.decode(item.payload).body_bytes().decode() for item in anew] == [large]
    assert [item.tag for item in consumer.client.deliveries if item.resume] == [tag(1)]
    for item in consumer.client.deliveries:
        item.link.settle(item.delivery_id, item.delivery_id, Accepted())
    rig.run(1)
    assert not node.queue("work").messages and not node.store._blobs


def test_a_consumer_lost_in_the_middle_of_a_large_message_may_come_back() -> None:
    rig, node = world(limits=Limits(stream_bytes=100_000))
    rig_client = rig.client(node, incoming_window=3)
    link = rig_client.receiver("work", name="c", source={"timeout": HOLD_S}, unsettled=None)
    rig.settle()
    large = "".join(f"{number:07d}" for number in range(200_000))
    client = rig.client(node)
    sender = client.sender("work")
    rig.settle()
    client.send(sender, large)
    while link.partial is None:
        assert rig.step()
    rig_client.close_transport()
    rig.settle()
    assert node.core is not None and not node.core.connections.sending
    back = rig.client(node)
    back.receiver("work", name="c", source={"timeout": HOLD_S}, unsettled={})
    rig.settle()
    assert back.bodies() == [large]
    back.accept()
    rig.run(1)
    assert not node.queue("work").messages and not node.store._blobs


def test_who_comes_back_taking_less_is_not_counted_with_what_it_cannot_have() -> None:
    """Of what it held only what goes to it again is still in its hands; the rest waits for who takes so much."""
    rig, node = world()
    consumer = Consumer(rig, node)
    fill(rig, node, "x" * 1_000, "small")
    other = rig.client(node)
    other.receiver("work", credit=0)
    rig.settle()
    consumer.lose()
    consumer.client = rig.client(node)
    consumer.client.receiver(
        "work", name="c", source=dict(consumer.source), unsettled={tag(0): None, tag(1): None}, max_message_size=300
    )
    rig.settle()
    shared = node.queue("work").shared
    (link,) = [link for link in shared.consumers if link.bytes_max == 300]
    assert isinstance(link, ResumableConsumer)
    assert (link.held, link.held_bytes) == (1, shared.acquired[2].size) and list(shared.acquired) == [2]


@pytest.mark.parametrize("end", [Accepted(), Released()])
def test_outcomes_in_a_map_are_told_of_all_their_deliveries_at_once(end: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one they would be a long turn: a map may tell of thousands."""
    rig, node = world()
    consumer = Consumer(rig, node, credit=100)
    fill(rig, node, *[str(number) for number in range(60)])
    tags = [item.tag for item in consumer.client.deliveries]
    assert len(tags) == 60
    consumer.lose()
    told: list[int] = []
    outcomes = ResumableConsumer.outcomes

    def counted(self: ResumableConsumer, contexts: list[Any], *rest: Any) -> None:
        told.append(len(contexts))
        outcomes(self, contexts, *rest)

    monkeypatch.setattr(ResumableConsumer, "outcomes", counted)
    consumer.come_back({one: Rejected() if number % 3 == 2 else end for number, one in enumerate(tags)}, credit=0)
    assert sorted(told) == [20, 40]
    consumer.lose()
    rig.run(100)
    left = node.queue("work").messages
    assert (left, node.queue("$dead-letters").messages) == (0 if isinstance(end, Accepted) else 40, 20)
