"""`$dead-letters` is bounded by messages, bytes and age: the oldest go first, and are counted."""

from typing import Any

import pytest

from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.queue import RECLAIM_COUNT, Queue
from holdfast.core import undo
from holdfast.endpoints.settlements import BESIDE_BYTES, SETTLED_BYTES_MAX
from holdfast.engine import events
from holdfast.names import DEAD_LETTERS
from holdfast.settings.queues import DeadLettersConfig
from holdfast.state.dead_letter_bounds import LOOK_S
from holdfast.units import MIB
from support.hops import names
from support.rig import Client, Node, Rig

SLACK_S = 0.3
"""What the commit that retires takes, and a step of the test's own clock."""


def wall_s(rig: Rig) -> float:
    return rig.wall_ms / 1000


def world(**bounds: Any) -> tuple[Rig, Node, Client]:
    rig = Rig()
    hub = rig.node("hub", dead_letters=DeadLettersConfig(**bounds))
    return rig, hub, rig.client(hub)


def make_dead_letters(rig: Rig, client: Client, *bodies: str) -> None:
    """Rejected one by one."""
    link, reader = client.sender("work"), client.receiver("work")
    rig.settle()
    for body in bodies:
        client.send(link, body)
    rig.settle()
    for _ in bodies:
        client.accept(Rejected(), count=1, link=reader)
        rig.settle()
    link.detach(closed=True)
    reader.detach(closed=True)
    rig.settle()


def told(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.manage("STATUS", "node")[1]["dead_letters"]
    return {str(key): value for key, value in found.items()}


def test_messages_max() -> None:
    rig, hub, client = world(messages_max=3)
    make_dead_letters(rig, client, *names(1, 3))
    assert hub.bodies(DEAD_LETTERS) == names(1, 3) and told(client)["dropped"] == 0
    make_dead_letters(rig, client, "4", "5")
    assert hub.bodies(DEAD_LETTERS) == names(3, 5)
    status = told(client)
    assert (status["messages"], status["dropped"], status["messages_max"]) == (3, 2, 3)
    assert [line for line in hub.logs if "of the oldest were dropped" in line] != []
    hub.crash()
    hub.start()
    rig.settle()
    assert hub.bodies(DEAD_LETTERS) == names(3, 5) and hub.queue(DEAD_LETTERS).messages == 3


def test_bytes_max() -> None:
    rig, hub, client = world(bytes_max=5_000)
    make_dead_letters(rig, client, *[f"{number}".ljust(1_000) for number in range(1, 9)])
    left = [body.strip() for body in hub.bodies(DEAD_LETTERS)]
    queue = hub.queue(DEAD_LETTERS)
    assert left == names(9 - len(left), 8) and 3 <= len(left) <= 4 and queue.bytes_held <= 5_000
    assert told(client)["dropped_bytes"] >= 4_000


def test_keep_s() -> None:
    rig, hub, client = world(keep_s=600)
    make_dead_letters(rig, client, "1", "2")
    rig.run(300)
    make_dead_letters(rig, rig.client(hub), "3")
    assert hub.bodies(DEAD_LETTERS) == names(1, 3)
    rig.run(400)
    assert hub.bodies(DEAD_LETTERS) == ["3"] and told(rig.client(hub))["dropped"] == 2
    rig.run(400)
    assert hub.bodies(DEAD_LETTERS) == []


@pytest.mark.parametrize("keep_s", [1, 5, 120, 1_000])
def test_they_leave_when_their_time_is_over_and_not_at_the_next_minute(keep_s: float) -> None:
    rig, hub, _ = world(keep_s=keep_s)
    step_s = min(60.0, max(LOOK_S, keep_s / 64))
    buried: dict[str, float] = {}
    for body in ("1", "2", "3"):  # the last in another life of the node
        if body == "3":
            rig.run(2 * keep_s)
            assert hub.bodies(DEAD_LETTERS) == []
        make_dead_letters(rig, rig.client(hub), body)
        buried[body] = wall_s(rig)
        rig.run(keep_s / 3)
    hub.crash()
    hub.start()
    while hub.bodies(DEAD_LETTERS):
        assert wall_s(rig) <= buried["3"] + keep_s + step_s + SLACK_S
        rig.run(0.1)
    assert wall_s(rig) >= buried["3"] + keep_s


@pytest.mark.parametrize("keep_s", [5, 120])
def test_those_that_end_one_after_the_other_leave_one_after_the_other(keep_s: float) -> None:
    rig, hub, _ = world(keep_s=keep_s)
    buried = []
    for number in range(3):
        make_dead_letters(rig, rig.client(hub), f"{number}")
        buried.append(wall_s(rig))
        rig.run(keep_s / 4)
    for number, at in enumerate(buried):
        while f"{number}" in hub.bodies(DEAD_LETTERS):
            rig.run(0.1)
        assert keep_s <= wall_s(rig) - at <= keep_s + max(LOOK_S, keep_s / 64) + SLACK_S


def test_one_that_a_consumer_held_leaves_soon_after_it_came_back() -> None:
    rig, hub, client = world(keep_s=5)
    make_dead_letters(rig, client, "1", "2")
    other = rig.client(hub)
    other.receiver(DEAD_LETTERS, credit=1)
    rig.run(8)
    assert hub.bodies(DEAD_LETTERS) == ["1"]
    other.close_transport()
    rig.run(LOOK_S + 0.1)
    assert hub.bodies(DEAD_LETTERS) == []


def test_how_often_the_age_is_looked_at_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters that end one after the other."""
    rig, hub, client = world(keep_s=320)
    for number in range(60):
        make_dead_letters(rig, client, f"{number}")
        rig.run(1)
    looks = count_reads(monkeypatch)
    rig.run(320 - 60)
    assert hub.queue(DEAD_LETTERS).messages >= 59 and len(looks) <= 6
    rig.run(60)
    assert hub.queue(DEAD_LETTERS).messages <= 6 and len(looks) <= 6 + 3 * 60 / (320 / 64)


def test_what_a_consumer_holds_stays_and_is_counted_once() -> None:
    rig, hub, client = world(messages_max=3)
    make_dead_letters(rig, client, "1")
    other = rig.client(hub)
    reader = other.receiver(DEAD_LETTERS, credit=1)
    rig.settle()
    make_dead_letters(rig, client, *names(2, 6))
    assert hub.bodies(DEAD_LETTERS) == ["1", "5", "6"] and hub.queue(DEAD_LETTERS).messages == 3
    assert other.accept(link=reader) == ["1"]
    reader.grant(10)
    rig.settle()
    assert other.bodies(reader) == ["5", "6"]
    other.close_transport()
    rig.run(2)
    make_dead_letters(rig, client, "7", "8")  # what was given back goes like all others
    rig.run(2)
    assert hub.bodies(DEAD_LETTERS) == ["6", "7", "8"] and hub.queue(DEAD_LETTERS).messages == 3


@pytest.mark.parametrize("with_consumer", [False, True])
def test_a_subscription_keeps_none_of_them(with_consumer: bool) -> None:
    rig, hub, client = world(messages_max=3)
    reader = rig.client(hub)
    source = {"durable": 2, "expiry_policy": Symbol("never")}
    link = reader.receiver(DEAD_LETTERS, name="sub", credit=0, source=source)
    other = rig.client(hub)
    if with_consumer:
        other.receiver(DEAD_LETTERS)
    rig.settle()
    make_dead_letters(rig, client, *names(1, 6))
    rig.run(1)
    kept = names(1, 3) if with_consumer else names(4, 6)  # what is in a consumer's hands stays, and what comes goes
    assert hub.bodies(DEAD_LETTERS) == kept and hub.queue(DEAD_LETTERS).messages == 3
    other.accept()
    link.grant(10)
    rig.settle()
    assert reader.accept(link=link) == kept
    rig.run(2)
    assert hub.queue(DEAD_LETTERS).messages == (0 if with_consumer else 3)


def test_messages_for_a_queue_that_is_not_there_fill_no_disk() -> None:
    rig = Rig()
    jfk, hub = rig.pair(create_queues=False, dead_letters=DeadLettersConfig(messages_max=5))
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("nosuch@hub")
    rig.settle()
    for number in range(30):
        client.send(link, str(number))
        rig.settle()
    rig.run(1)
    assert hub.bodies(DEAD_LETTERS) == names(25, 29)
    assert all(state == Accepted() for _, state in client.outcomes)


def test_many_at_once_leave_over_turns_and_the_node_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.state.dead_letter_bounds.RECLAIM_COUNT", 4)
    rig, hub, client = world()
    make_dead_letters(rig, client, *names(0, 59))
    hub.crash()
    hub.config = type(hub.config)(name="hub", create_queues=True, dead_letters=DeadLettersConfig(messages_max=3))
    hub.start()
    rig.run(1)
    assert hub.bodies(DEAD_LETTERS) == names(57, 59) and hub.queue(DEAD_LETTERS).messages == 3


def test_a_refused_batch_drops_them_once() -> None:
    rig, hub, client = world(messages_max=2)
    make_dead_letters(rig, client, "1", "2")
    hub.refuse = 1
    make_dead_letters(rig, client, "3", "4")
    rig.run(2)
    queue = hub.queue(DEAD_LETTERS)
    assert len(hub.bodies(DEAD_LETTERS)) == queue.messages <= 2


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the first sequence of each read of the dead letters, but for the oldest one's age alone."""
    reads: list[int] = []
    read = Queue.read

    def counted(queue: Queue, first: int, **bounds: int) -> list[tuple[int, bytes]]:
        if queue.name == DEAD_LETTERS and bounds["count_max"] > 1:
            reads.append(first)
        return read(queue, first, **bounds)

    monkeypatch.setattr(Queue, "read", counted)
    return reads


def test_with_the_last_too_old_gone_nothing_is_read_for_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, hub, client = world(keep_s=600)
    make_dead_letters(rig, client, "1")
    rig.run(800)
    assert hub.bodies(DEAD_LETTERS) == []
    reads = count_reads(monkeypatch)
    rig.client(hub)
    rig.run(LOOK_S / 2)
    assert reads == []


MESSAGE_BYTES = 900_000


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_many_that_are_rejected_at_once_leave_over_batches_in_order(settled: bool, lost: bool) -> None:
    """Also where their consumer's connection is lost meanwhile: none of them is offered again."""
    rig, hub, client = world()
    link = client.sender("work")
    rig.settle()
    count = 20
    for number in range(count):
        client.send(link, f"{number}".ljust(MESSAGE_BYTES))
        rig.settle()
    client = rig.client(hub)
    reader = client.receiver("work", credit=count, rcv_settle_mode=0 if settled else 1)
    rig.run(1)
    ids = [item.delivery_id for item in client.deliveries]
    assert len(ids) == count
    client.deliveries.clear()
    hub.hold_commits = True
    reader.settle(ids[0], ids[-1], Rejected())
    client.flush()
    rig.settle()
    assert hub.pending is not None
    batch = hub.pending.batch
    assert 4 <= len(batch.appends) <= 6 and batch.bytes_appended < 6 * MIB
    if lost:
        client.close_transport()
    rig.settle()
    other = rig.client(hub)
    other.receiver("work", credit=count)
    hub.hold_commits = False
    rig.run(1)
    assert [body.strip() for body in hub.bodies(DEAD_LETTERS)] == [str(number) for number in range(count)]
    assert other.deliveries == [] and hub.queue("work").messages == 0


def rejecting(rig: Rig, hub: Node, client: Client, count: int) -> Client:
    """A consumer that has rejected so many large messages at once, while no commit ends."""
    link = client.sender("work")
    rig.settle()
    for number in range(count):
        client.send(link, f"{number}".ljust(MESSAGE_BYTES))
        rig.settle()
    consumer = rig.client(hub)
    reader = consumer.receiver("work", credit=count)
    rig.run(1)
    ids = [item.delivery_id for item in consumer.deliveries]
    consumer.deliveries.clear()
    hub.hold_commits = True
    reader.settle(ids[0], ids[-1], Rejected())
    consumer.flush()
    rig.settle()
    return consumer


def test_what_waits_outlives_a_turn_that_is_undone() -> None:
    """What was in the turn is offered again; what waited goes to the dead letters, once."""
    rig, hub, client = world()
    rejecting(rig, hub, client, 12)
    rig.client(hub)
    rig.settle()  # a turn after the one that is under way has its share too
    core = hub.core
    assert core is not None and core.jobs.settlements.waiting and core.turns.gathered.moves
    undone = len(core.turns.gathered.moves)
    undo.take_back_gathered(core, ())
    hub.hold_commits = False
    rig.run(1)
    queue = hub.queue("work")
    assert queue.messages == undone and hub.queue(DEAD_LETTERS).messages == 12 - undone
    assert not core.jobs.settlements.waiting and not core.jobs.settlements.counts


def test_a_drain_is_answered_while_it_waits() -> None:
    rig, hub, client = world()
    consumer = rejecting(rig, hub, client, 12)
    other = rig.client(hub)
    reader = other.receiver("work", credit=0)
    link = client.sender("work")
    rig.settle()
    client.send(link, "after")
    reader.grant(5, drain=True)
    rig.settle()
    assert other.deliveries == [] and consumer.deliveries == []
    hub.hold_commits = False
    rig.run(1)
    assert len(other.deliveries) + len(consumer.deliveries) <= 1 and reader.credit == 0
    assert hub.queue(DEAD_LETTERS).messages == 12


def test_a_node_that_stops_meanwhile_offers_what_waited_again_as_delivered_before() -> None:
    rig, hub, client = world()
    rejecting(rig, hub, client, 12)
    hub.handle(events.Stopping())
    hub.hold_commits = False
    rig.settle()
    assert hub.stopped
    hub.crash()
    hub.start()
    rig.settle()
    dead = hub.queue(DEAD_LETTERS).messages
    assert 0 < dead < 12
    consumer = rig.client(hub)
    consumer.receiver("work")
    rig.run(1)
    messages = consumer.messages()
    assert len(messages) == 12 - dead
    assert all(message.header is not None and message.header.delivery_count for message in messages)


@pytest.mark.parametrize("policy", ["link-detach", "never"])
def test_a_subscription_that_ends_meanwhile_takes_with_it_what_waited(policy: str) -> None:
    rig, hub, client = world()
    fields: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol(policy)}
    reader = client.receiver("work", name="mine", source=fields, credit=12)
    link = client.sender("work")
    rig.settle()
    for number in range(12):
        client.send(link, f"{number}".ljust(MESSAGE_BYTES))
        rig.run(1)
    ids = [item.delivery_id for item in client.deliveries]
    assert len(ids) == 12
    hub.hold_commits = True
    reader.settle(ids[0], ids[-1], Rejected())
    client.flush()
    rig.settle()
    core = hub.core
    assert core is not None and core.jobs.settlements.waiting
    reader.detach(closed=True)
    rig.settle()
    hub.hold_commits = False
    rig.run(5)
    assert not core.jobs.settlements.waiting and not core.jobs.settlements.counts
    assert ("mine" in hub.queue("work").named) == (policy == "never") and 4 <= hub.queue(DEAD_LETTERS).messages <= 12


def test_a_flood_of_rejections_is_above_the_bound_by_a_batch_at_most() -> None:
    """However much is rejected at once, and by however many: what a batch adds leaves in the next turn."""
    assert SETTLED_BYTES_MAX // BESIDE_BYTES < RECLAIM_COUNT
    rig, hub, client = world(messages_max=100)
    link = client.sender("work")
    rig.settle()
    for _ in range(10):
        for _ in range(900):
            client.send(link, "x")
        rig.settle()
    consumers = [rig.client(hub) for _ in range(2)]
    readers = [consumer.receiver("work", credit=5_000) for consumer in consumers]
    rig.run(1)
    for consumer, reader in zip(consumers, readers, strict=True):
        first, last = consumer.deliveries[0], consumer.deliveries[-1]
        reader.settle(first.delivery_id, last.delivery_id, Rejected())
    most = 0
    for _ in range(2_000):
        queue = hub.core.catalog.queues.get(DEAD_LETTERS)
        most = max(most, 0 if queue is None else queue.messages)
        if not rig.move():
            rig.pass_time(0.01)
    assert hub.queue("work").messages == 0 and hub.queue(DEAD_LETTERS).messages == 100
    assert 100 < most <= 100 + RECLAIM_COUNT


ALIASES = ("$dead-letters", "/queues/%24dead-letters", "amqp://h/$dead-letters", "$dead-letters@", "$dead-letters@hub",
           "$dead-letters@localhost", "$dead-letters@jfk", "$dead-letters@nowhere")  # fmt: skip
NOBODY_SENDS = "clients cannot send to $dead-letters; only the node does, and clients receive from it"


@pytest.mark.parametrize("address", ALIASES)
def test_nobody_sends_to_the_dead_letters(address: str) -> None:
    """What is there came from a queue, and says from which and why."""
    rig = Rig()
    _, hub = rig.pair()
    rig.run(1)
    client = rig.client(hub)
    link = client.sender(address)
    named = client.sender(address, properties={PRODUCER: "p"})
    lasting = client.sender(address, target={"durable": 2, "expiry_policy": Symbol("never"), "timeout": 60})
    rig.settle()
    errors = {item.link: item.error for item in client.detached}
    for each in (link, named, lasting):
        error = errors[each]
        assert error is not None
        assert (str(error.condition), error.description) == ("amqp:not-allowed", NOBODY_SENDS)
    assert "$dead-letters" not in hub.core.catalog.queues


@pytest.mark.parametrize("address", ALIASES)
def test_nobody_sends_there_by_a_messages_own_address(address: str) -> None:
    """It costs that message alone."""
    rig = Rig()
    _, hub = rig.pair()
    rig.run(1)
    client = rig.client(hub)
    link = client.session.attach_sender("relay", Source(), Target(address=None))
    rig.settle()
    client.send(link, "1", properties=Properties(to=address))
    client.send(link, "2", properties=Properties(to="work"))
    rig.settle()
    (first, state), (second, accepted) = client.outcomes
    assert (first, second) == ("1", "2") and isinstance(state, Rejected) and isinstance(accepted, Accepted)
    assert state.error is not None
    assert (str(state.error.condition), state.error.description) == ("amqp:not-allowed", NOBODY_SENDS)
    assert "$dead-letters" not in hub.core.catalog.queues and hub.bodies("work") == ["2"]


def test_what_a_neighbour_of_an_earlier_version_brings_for_them_is_taken() -> None:
    """It is in custody: nobody could refuse it any more."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    producer = rig.client(jfk)
    link = producer.sender("work@hub")
    rig.settle()
    for earlier in jfk.core.links.producers_of(jfk.queue("@hub")):
        earlier.to = DEAD_LETTERS
    producer.send(link, "1")
    rig.run(2)
    assert hub.bodies(DEAD_LETTERS) == ["1"] and jfk.queue("@hub").messages == 0


def test_they_are_consumed_and_browsed() -> None:
    rig, hub, client = world()
    make_dead_letters(rig, client, "1", "2")
    browser = client.receiver(DEAD_LETTERS, source={"distribution_mode": Symbol("copy")})
    rig.settle()
    assert client.bodies(browser) == ["1", "2"] and client.accept(link=browser) == ["1", "2"]
    consumer = client.receiver(DEAD_LETTERS)
    rig.settle()
    assert client.accept(link=consumer) == ["1", "2"]
    rig.run(1)
    assert hub.bodies(DEAD_LETTERS) == []


def test_as_many_bytes_as_the_bound_says_are_kept() -> None:
    rig, hub, client = world()
    make_dead_letters(rig, client, "1")
    each = hub.queue(DEAD_LETTERS).bytes_held
    rig, hub, client = world(bytes_max=3 * each)
    make_dead_letters(rig, client, *names(1, 4))
    assert hub.bodies(DEAD_LETTERS) == names(2, 4) and hub.queue(DEAD_LETTERS).bytes_held == 3 * each
