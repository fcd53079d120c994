"""Transactions against full queues and disks, over crashes, with named producers, other nodes and large messages
(docs/adr/0060)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import LAST_NUMBER, PRODUCER
from holdfast.amqp.wire.performatives import (
    Accepted,
    Discharge,
    Modified,
    Rejected,
    Released,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.core.undo import take_back_gathered
from holdfast.endpoints.transactions.discharge import Commits, Spread
from holdfast.endpoints.transactions.work import Transaction
from holdfast.links import large_receives
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import MIB
from support.one_node import done, fill
from support.rig import Client, Rig
from support.standing import core_of
from support.transactions import (
    FULL,
    ROLLBACK,
    Controller,
    bound_for,
    condition,
    quiet,
    request,
    started,
    within,
)  # fmt: skip

# ------------------------------------------------------------------------------------------------ full queues


def test_a_transaction_has_its_own_room_in_a_full_queue() -> None:
    """Take one, send one: the queue is as full as before."""
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=2))
    fill(rig, client, 2)
    link = client.sender("work")
    client.receiver("work", credit=1)
    rig.settle()
    mine = controller.begin()
    controller.take(mine)
    assert controller.send(mine, link, "3") == Accepted()
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["2", "3"] and quiet(node)


def test_reserved_room_is_nobody_elses() -> None:
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=2, when_full="refuse"))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "1")
    client.send(link, "2")
    client.send(link, "3")
    rig.settle()
    told = {context: type(state) for context, state in client.outcomes if context in ("2", "3")}
    assert told == {"2": Accepted, "3": Rejected}
    other = controller.begin()
    assert condition(controller.send(other, link, "4")) == FULL
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["2", "1"]
    controller.abort(other)
    assert quiet(node)


def test_bytes_are_reserved_too() -> None:
    rig, node, client, controller = started(QueueConfig(name="work", bytes_max=1_000, when_full="refuse"))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "x" * 600) == Accepted()
    client.send(link, "y" * 600)
    rig.settle()
    assert isinstance(client.outcomes[-1][1], Rejected)
    assert controller.abort(mine) == Accepted()
    client.send(link, "z" * 600)
    rig.settle()
    assert client.outcomes[-1][1] == Accepted() and quiet(node)


def test_a_delivery_that_leaves_the_transaction_takes_its_room_along() -> None:
    rig, node, client, controller = started(QueueConfig(name="work", messages_max=2))
    fill(rig, client, 2)
    link = client.sender("work")
    client.receiver("work", credit=2)
    rig.settle()
    mine = controller.begin()
    controller.take(mine, settled=False)
    assert controller.send(mine, link, "3") == Accepted()
    controller.say(client.deliveries[0], Released(), settled=True)
    rig.settle()
    assert condition(controller.commit(mine)) == FULL
    assert node.bodies("work") == ["1", "2"] and quiet(node)


# ------------------------------------------------------------------------------------------------ full disks


@pytest.mark.parametrize("durable_other", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_a_refused_commit_changes_nothing(settled: bool, durable_other: bool) -> None:
    rig, node, client, controller = started(QueueConfig(name="other", durable=durable_other))
    node.unwatched |= set() if durable_other else {"other"}
    fill(rig, client, 3)
    fill(rig, client, 1, "other")
    link, other = client.sender("work"), client.sender("other")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "4")
    controller.send(mine, other, "x")
    for outcome in (Accepted(), Rejected(), Modified(message_annotations={Symbol("a"): 1})):
        controller.take(mine, outcome, settled=settled)
        if not settled:
            client.deliveries.append(client.deliveries.pop(0))
    node.refuse = 1
    assert condition(controller.commit(mine)) == FULL
    rig.run(2)
    assert node.bodies("work") == ["1", "2", "3"] and len(node.bodies("other")) == 1 and quiet(node)
    if settled:
        assert sorted(client.bodies()) == ["1", "2", "3"]
    else:
        assert len(client.session.unsettled_in) == 3
    client.accept()
    rig.run(1)
    assert node.bodies("work") == []
    again = controller.begin()
    assert controller.send(again, link, "5") == Accepted()
    assert controller.commit(again) == Accepted()
    assert node.bodies("work") == ["5"] and quiet(node)


def test_a_refused_commit_takes_nothing_from_subscriptions() -> None:
    rig, node, client, controller = started()
    receiver = client.receiver("work", name="sub", source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    fill(rig, client, 3)
    rig.settle()
    assert receiver.attached and client.bodies() == ["1", "2", "3"]
    mine = controller.begin()
    controller.take(mine, count=2, settled=False)
    link = client.sender("other")
    rig.settle()
    controller.send(mine, link, "x")
    node.refuse = 1
    assert condition(controller.commit(mine)) == FULL
    assert len(client.session.unsettled_in) == 3
    again = controller.begin()
    controller.take(again, count=2, settled=False)
    assert controller.commit(again) == Accepted()
    rig.run(1)
    (cursor,) = node.queue("work").named.values()
    assert cursor.floor == 3 and quiet(node)
    node.crash()
    node.start()
    (cursor,) = node.queue("work").named.values()
    assert cursor.floor == 3


@pytest.mark.parametrize("refused", [True, False])
def test_who_listens_to_a_topic_hears_of_what_is_stored_alone(refused: bool) -> None:
    rig, node, client, controller = started()
    other = rig.client(node, container_id="other")
    other.receiver("topic/news")
    other.receiver("topic/news", name="kept", source={"durable": 2, "expiry_policy": Symbol("never")})
    link = client.sender("topic/news")
    rig.settle()
    mine = controller.begin()
    assert controller.send(mine, link, "1") == Accepted()
    rig.run(1)
    assert other.bodies() == []
    node.refuse = int(refused)
    committed = controller.commit(mine)
    rig.run(1)
    assert (committed == Accepted()) is not refused
    assert other.bodies() == ([] if refused else ["1", "1"]) and quiet(node)


@pytest.mark.parametrize("stored", [True, False])
def test_a_crash_at_the_commit_is_all_or_nothing(stored: bool) -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    link = client.sender("other")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine)
    node.hold_commits = True
    assert controller.commit(mine) is None
    assert node.pending is not None
    if stored:
        node.store.commit(node.pending.batch)
        node.remember(node.pending.batch)
    node.crash()
    node.hold_commits = False
    node.start()
    rig.settle()
    assert node.bodies("work") == (["2"] if stored else ["1", "2"])
    assert [node.bodies(name) for name in node.core.catalog.queues if name == "other"] == [["x"] if stored else []]  # type: ignore[union-attr]


@pytest.mark.parametrize("what", ["coordinator", "consumer", "wire"])
@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("settled", [True, False])
def test_links_that_end_while_the_disk_decides(what: str, refused: bool, settled: bool) -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    link = client.sender("other")
    receiver = client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine, settled=settled)
    node.hold_commits = True
    controller.commit(mine)
    if what == "coordinator":
        controller.link.detach(closed=True)
    elif what == "consumer":
        receiver.detach(closed=True)
    else:
        client.close_transport()
    rig.settle()
    node.hold_commits = False
    node.refuse = int(refused)
    rig.run(1)
    assert node.bodies("work") == (["1", "2"] if refused else ["2"])
    assert node.bodies("other") == ([] if refused else ["x"]) and quiet(node)
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    if what != "coordinator":
        assert sorted(other.bodies()) == node.bodies("work")


@pytest.mark.parametrize("settled", [True, False])
def test_a_failure_rolls_back_what_it_concerned(settled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another's failure undoes the turn in which a commit is gathered: the transaction is rolled back, and says so."""
    rig, node, client, controller = started()
    fill(rig, client, 2)
    link = client.sender("other")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine, settled=settled)
    assert node.core is not None
    original, core = Commits._store, node.core

    def stores(commits: Commits, transaction: Transaction, spread: Spread) -> None:
        original(commits, transaction, spread)
        take_back_gathered(core, ())

    monkeypatch.setattr(Commits, "_store", stores)
    assert condition(controller.commit(mine)) == ROLLBACK
    monkeypatch.undo()
    rig.run(1)
    assert node.bodies("work") == ["1", "2"] and node.bodies("other") == [] and quiet(node)
    client.accept()
    rig.run(1)
    assert node.bodies("work") == []


def test_a_defect_in_a_commit_ends_its_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client, controller = started()
    fill(rig, client, 2)
    link = client.sender("other")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine)

    def breaks(*given: Any) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(Commits, "_retire", breaks)
    controller.link.send(request(Discharge(mine, False)), context=None)
    rig.run(1)
    assert client.over and quiet(node)
    assert node.bodies("work") == ["1", "2"] and node.bodies("other") == []
    other = rig.client(node)
    other.receiver("work")
    rig.run(1)
    assert other.bodies() == ["1", "2"]


def test_a_word_while_the_disk_decides_changes_nothing() -> None:
    rig, node, client, controller = started()
    fill(rig, client, 1)
    link = client.sender("other")
    client.receiver("work")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    controller.take(mine, settled=False)
    node.hold_commits = True
    controller.commit(mine)
    (item,) = client.deliveries
    controller.say(item, Released(), settled=True)
    rig.settle()
    node.hold_commits = False
    rig.run(1)
    assert node.bodies("work") == [] and node.bodies("other") == ["x"] and quiet(node)
    assert client.bodies() == ["1"]


def test_a_queue_that_is_deleted_takes_the_transaction_along() -> None:
    rig, node, client, controller = started()
    fill(rig, client, 1)
    link = client.sender("gone")
    receiver = client.receiver("work", credit=1)
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "x")
    link.detach(closed=True)
    rig.settle()
    done(client, "DELETE", "queue", "gone")
    assert condition(controller.commit(mine)) == "amqp:resource-deleted"
    assert receiver.attached and quiet(node)


# ------------------------------------------------------------------------------------------------ producers


def named(client: Client, name: str = "p") -> Any:
    return client.sender("work", properties={PRODUCER: name})


def last_number(link: Any) -> int:
    return int(link.remote_attach.properties[LAST_NUMBER])


def test_a_named_producers_numbers_count_at_the_commit() -> None:
    rig, node, client, controller = started()
    link = named(client)
    rig.settle()
    mine = controller.begin()
    for number in (1, 2, 2, 3):
        assert controller.send(mine, link, str(number), number=number) == Accepted()
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == ["1", "2", "3"]
    again = controller.begin()
    for number in (3, 4):
        assert controller.send(again, link, str(number), number=number) == Accepted()
    assert controller.commit(again) == Accepted()
    assert node.bodies("work") == ["1", "2", "3", "4"]
    other = rig.client(node)
    newer = named(other)
    rig.settle()
    assert last_number(newer) == 4 and quiet(node)


def test_a_lost_answer_is_told_by_the_number() -> None:
    """All or none: after the break the producer's numbers say which."""
    for stored in (True, False):
        rig, node, client, controller = started()
        link = named(client)
        rig.settle()
        mine = controller.begin()
        for number in (1, 2):
            controller.send(mine, link, str(number), number=number)
        node.hold_commits = True
        controller.commit(mine)
        client.close_transport()
        node.hold_commits = False
        node.refuse = 0 if stored else 1
        rig.settle()
        newer = named(rig.client(node))
        rig.settle()
        assert last_number(newer) == (2 if stored else 0)
        assert node.bodies("work") == (["1", "2"] if stored else [])


def test_a_newer_link_of_a_producer_ends_what_the_older_had_in_transactions() -> None:
    rig, node, client, controller = started()
    link = named(client)
    rig.settle()
    mine = controller.begin()
    controller.send(mine, link, "1", number=1)
    other = rig.client(node)
    newer = named(other)
    rig.settle()
    assert last_number(newer) == 0
    other.send(newer, "1", number=1)
    rig.settle()
    assert condition(controller.commit(mine)) == "amqp:link:stolen"
    assert node.bodies("work") == ["1"] and quiet(node)


# ------------------------------------------------------------------------------------------------ to other nodes


def test_messages_for_another_node_are_numbered_at_the_commit() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    client = rig.client(jfk)
    controller = Controller(client)
    far, near = client.sender("q@hub"), client.sender("here")
    rig.settle()
    lost, mine = controller.begin(), controller.begin()
    controller.send(lost, far, "lost")
    controller.send(mine, far, "1")
    controller.send(mine, near, "x")
    client.send(far, "0")
    controller.send(mine, far, "2")
    rig.run(1)
    assert hub.bodies("q") == ["0"]
    assert controller.abort(lost) == Accepted()
    assert controller.commit(mine) == Accepted()
    rig.run(1)
    assert hub.bodies("q") == ["0", "1", "2"] and jfk.bodies("here") == ["x"]
    assert sorted(jfk.given) == [1, 2, 3] and quiet(jfk)


def test_a_refused_commit_gives_its_numbers_back() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    client = rig.client(jfk)
    controller = Controller(client)
    far = client.sender("q@hub")
    rig.settle()
    mine = controller.begin()
    controller.send(mine, far, "1")
    jfk.refuse = 1
    assert condition(controller.commit(mine)) == FULL
    client.send(far, "2")
    rig.run(2)
    assert hub.bodies("q") == ["2"] and sorted(jfk.given) == [1]


# ------------------------------------------------------------------------------------------------ large messages


@pytest.mark.parametrize("address", ["work", None])
@pytest.mark.parametrize("end", ["commit", "abort", "refused", "wire"])
def test_large_messages_take_part(address: Any, end: str) -> None:
    rig, node, client, controller = started(limits=Limits(stream_bytes=10_000))
    link = client.sender(address)
    rig.settle()
    mine = controller.begin()
    to = {} if address else {"properties": bound_for("work")}
    body = "x" * 200_000
    assert controller.send(mine, link, body, **to) == Accepted()
    assert controller.send(mine, link, "small", **to) == Accepted()
    assert "work" not in node.core.catalog.queues or node.bodies("work") == []  # type: ignore[union-attr]
    assert node.core is not None and node.core.blobs.by_number
    if end == "commit":
        assert controller.commit(mine) == Accepted()
        assert node.bodies("work") == [body, "small"]
    elif end == "abort":
        assert controller.abort(mine) == Accepted()
    elif end == "refused":
        node.refuse = 1
        assert condition(controller.commit(mine)) == FULL
    else:
        client.close_transport()
    rig.run(2)
    assert quiet(node) and bool(node.core.blobs.by_number) == (end == "commit")
    if end != "commit":
        assert node.bodies("work") == []


def test_a_commit_waits_for_its_large_messages() -> None:
    rig, node, client, controller = started(limits=Limits(stream_bytes=10_000))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    node.hold_commits = True
    fill_one = client.sender("other")
    rig.settle()
    client.send(fill_one, "busy")
    rig.settle()
    assert node.pending is not None
    body = "y" * 6_000_000
    controller.send(mine, link, body)
    assert controller.commit(mine) is None
    node.hold_commits = False
    rig.run(2)
    assert node.bodies("work") == [body] and quiet(node)


def test_pieces_that_found_no_space_fail_the_transaction() -> None:
    rig, node, client, controller = started(limits=Limits(stream_bytes=10_000))
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    node.refuse = 1
    controller.send(mine, link, "z" * 50_000)
    rig.run(2)
    assert condition(controller.commit(mine)) == FULL
    assert quiet(node) and not node.core.blobs.by_number  # type: ignore[union-attr]


@pytest.mark.parametrize("address", ["work", None])
def test_large_messages_of_a_transaction_do_not_refuse_each_other(
    address: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is whole before the next begins, and waits only for commits that have room for its pieces."""
    monkeypatch.setattr(large_receives, "COMMIT_BYTES", 1)
    rig, node, client, controller = started(limits=Limits(stream_bytes=10_000, streams_max=1))
    link = client.sender(address)
    rig.settle()
    mine = controller.begin()
    bodies = [str(number) * 200_000 for number in range(5)]
    for body in bodies:
        message = Message(data=[body.encode()], properties=None if address else bound_for("work"))
        link.send(message.encode(), context=body, state=within(mine))
    rig.run(2)
    assert controller.commit(mine) == Accepted()
    assert node.bodies("work") == bodies and quiet(node) and not node.core.streams  # type: ignore[union-attr]


def test_large_messages_of_a_transaction_that_wait_for_the_disk_take_no_place_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_receives, "COMMIT_BYTES", 0)
    rig, node, client, controller = started(limits=Limits(stream_bytes=10_000, streams_max=1))
    other = rig.client(node)
    link, beside = client.sender("work"), other.sender("work")
    rig.settle()
    mine = controller.begin()
    for _ in range(2):
        link.send(Message(data=[bytes(200_000)]).encode(), context="whole", state=within(mine))
    rig.settle()
    payload = Message(data=[bytes(200_000)]).encode()
    begun = link.begin(payload[:100_000], len(payload), context="begun")
    begun.flush(MIB)
    rig.settle()
    core = core_of(node)
    assert [stream.outcome for stream in core.streams] == [None] * 3, "the third has the only place"
    beside.send(Message(data=[bytes(200_000)]).encode(), context="beside")
    rig.settle()
    ((_, refused),) = other.outcomes
    assert condition(refused) == FULL and "1 large messages are under way" in str(refused)
    _, status, _ = other.manage("STATUS", "node")
    assert status["large_messages"] == {"under_way": 1, "max": 1, "refused": 1}
    assert "large messages are refused: 1 are on their way" in str(status["warnings"])
    client.close_transport()
    rig.settle()
    assert not core.streams and quiet(node)


def test_messages_of_a_transaction_that_are_written_early_have_places_though_they_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound on bytes that wait for the disk bounds how many large ones there are, but not how many small ones: up
    to `stream_bytes`."""
    monkeypatch.setattr(large_receives, "COMMIT_BYTES", 0)
    payload = Message(data=[bytes(200_000)]).encode()
    limits = Limits(stream_bytes=len(payload), streams_max=1, unfinished_bytes_max=1)
    rig, node, client, controller = started(limits=limits)
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    for _ in range(2):
        link.send(payload, context="small", state=within(mine))
    rig.settle()
    assert len(core_of(node).streams) == 1
    assert condition(controller.commit(mine)) == FULL


# ------------------------------------------------------------------------------------------------ many at once


def test_ten_thousand_operations_are_one_commit() -> None:
    rig, node, client, controller = started()
    link = client.sender("work")
    rig.settle()
    mine = controller.begin()
    for number in range(5_000):
        if not link.credit:
            rig.settle()
        link.send(Message(data=[str(number).encode()]).encode(), context=number, state=within(mine))
    rig.settle()
    assert controller.commit(mine) == Accepted()
    assert node.queue("work").messages == 5_000 and quiet(node)
    client.receiver("work", credit=5_000)
    rig.settle()
    mine = controller.begin()
    assert len(controller.take(mine, count=5_000)) == 5_000
    assert controller.commit(mine) == Accepted()
    assert node.queue("work").messages == 0 and quiet(node)
