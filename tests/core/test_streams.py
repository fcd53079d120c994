"""Messages above `stream_bytes`: written as they come, sent as they are taken, whole once or not at all (ADR 0014)."""

from dataclasses import replace

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Modified, Properties, Rejected, Released, Source, Target
from holdfast.engine.port import PIECE_BYTES
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.state import blobs
from holdfast.units import KIB, MIB
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, begun, body, is_clean, pieces, sending, start


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --------------------------------------------------------------------------------------------------- through a node


@pytest.mark.parametrize(
    "size",
    [
        100 * KIB - 200,
        100 * KIB,
        100 * KIB + 1,
        2 * PIECE_BYTES - 8,
        2 * PIECE_BYTES - 5,
        3 * PIECE_BYTES,
        LARGE,
        2 * MIB + 17,
    ],
)
def test_a_message_of_any_size_comes_out_as_it_went_in(rig: Rig, size: int) -> None:
    node = start(rig, limits=Limits(stream_bytes=100 * KIB))
    client, link = sending(rig, node)
    client.send(link, body(size))
    rig.settle()
    assert [type(state) for _, state in client.outcomes] == [Accepted]
    assert node.queue("work").bytes_held >= size
    assert (pieces(node) > 0) == (size > 130_000)  # two frames, and more to come
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == [body(size)]
    rig.run(1)
    assert node.queue("work").bytes_held == 0
    assert is_clean(node)


def test_small_and_large_ones_of_a_link_keep_their_order(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    sent = ["1", body(LARGE, "b"), "2", body(LARGE, "c"), body(LARGE, "d"), "3"]
    for text in sent:
        client.send(link, text)
    rig.settle()
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == sent
    rig.run(1)
    assert is_clean(node)


def test_header_and_annotations_are_told_and_the_bare_message_is_untouched(rig: Rig) -> None:
    from holdfast.amqp.wire.performatives import Header
    from holdfast.amqp.wire.types import Symbol

    node = start(rig)
    _, link = sending(rig, node)
    message = Message(
        header=Header(durable=True, priority=7),
        message_annotations={"x-opt-mine": "yes", Symbol("x-opt-holdfast-origin"): "forged"},
        properties=Properties(message_id="m1"),
        data=[body(LARGE // 2).encode(), b"", body(LARGE // 2, "z").encode()],
        footer={"sum": 1},
    )
    link.send(message.encode(), context=1)
    rig.settle()
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    (found,) = consumer.messages()
    assert found.data == message.data
    assert found.footer == {"sum": 1}
    assert found.header is not None and found.header.priority == 7
    assert found.properties is not None and found.properties.message_id == "m1"
    told = {str(key): value for key, value in (found.message_annotations or {}).items()}
    assert told["x-opt-mine"] == "yes"
    assert told["x-opt-sequence-number"] == 1
    assert "x-opt-holdfast-origin" not in told


def test_a_restart_keeps_it_and_another_ends_with_it(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, body(LARGE))
    rig.settle()
    node.crash()
    node.start()
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == [body(LARGE)]
    rig.run(1)
    node.crash()
    node.start()
    rig.run(1)
    assert node.bodies("work") == []
    assert is_clean(node)


def test_a_queue_in_memory_takes_it_and_a_restart_takes_it_away(rig: Rig) -> None:
    node = start(rig, queues=(QueueConfig(name="work", durable=False),))
    node.unwatched.add("work")
    client, link = sending(rig, node)
    for name in "bcd":
        client.send(link, body(LARGE, name))
    rig.settle()
    consumer = rig.client(node)
    consumer.receiver("work", credit=1)
    rig.settle()
    assert consumer.accept() == [body(LARGE, "b")]
    rig.run(1)
    assert len(node.store._blobs) == 2
    node.crash()
    node.start()
    rig.run(1)
    assert is_clean(node)


# --------------------------------------------------------------------------------------------------- how it leaves


def test_released_and_failed_it_comes_again_from_its_beginning(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, body(LARGE))
    rig.settle()
    consumer = rig.client(node)
    consumer.receiver("work", credit=3)
    rig.settle()
    assert consumer.accept(Released()) == [body(LARGE)]
    rig.settle()
    assert consumer.accept(Modified(delivery_failed=True)) == [body(LARGE)]
    rig.settle()
    (again,) = consumer.messages()
    assert again.header is not None and again.header.delivery_count == 1
    assert consumer.accept() == [body(LARGE)]
    rig.run(1)
    assert is_clean(node)


def test_a_consumer_lost_in_the_middle_costs_another_start(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, body(MIB))
    rig.settle()
    lost = rig.client(node, incoming_window=4)
    receiver = lost.receiver("work", credit=1)
    for _ in range(12):
        rig.step()
    assert receiver.partial is not None and not lost.deliveries
    lost.close_transport()
    rig.settle()
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    (again,) = consumer.messages()
    assert again.header is not None and not again.header.first_acquirer
    assert consumer.accept() == [body(MIB)]
    rig.run(1)
    assert is_clean(node)


def test_rejected_it_moves_to_the_dead_letters_without_being_copied(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, body(LARGE))
    rig.settle()
    stored = pieces(node)
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    consumer.accept(Rejected())
    rig.run(1)
    assert pieces(node) == stored
    assert node.queue("work").bytes_held == 0 and node.queue("$dead-letters").bytes_held > LARGE
    node.crash()
    node.start()
    reader = rig.client(node)
    reader.receiver("$dead-letters")
    rig.settle()
    assert reader.accept() == [body(LARGE)]
    rig.run(1)
    assert is_clean(node)


def test_every_copying_subscription_gets_it_and_then_it_goes(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    lasting = {"durable": 2, "expiry_policy": "never"}
    clients = [rig.client(node) for _ in range(2)]
    for number, one in enumerate(clients):
        one.receiver("work", name=f"sub{number}", source=lasting)
    rig.settle()
    client.send(link, body(LARGE))
    rig.settle()
    shared = rig.client(node)
    shared.receiver("work")
    rig.settle()
    for one in (*clients, shared):
        assert pieces(node)
        assert one.bodies() == [body(LARGE)]
        one.accept()
        rig.run(1)
    assert is_clean(node)


def test_rejected_by_one_subscription_it_stays_for_the_other(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    lasting = {"durable": 2, "expiry_policy": "never"}
    clients = [rig.client(node) for _ in range(2)]
    for number, one in enumerate(clients):
        one.receiver("work", name=f"sub{number}", source=lasting)
    rig.settle()
    client.send(link, body(LARGE))
    rig.settle()
    clients[0].accept(Rejected())
    rig.run(1)
    dead = rig.client(node)
    dead.receiver("$dead-letters")
    rig.settle()
    assert dead.accept() == [body(LARGE)]
    rig.run(1)
    assert pieces(node)
    assert clients[1].accept() == [body(LARGE)]
    shared = rig.client(node)
    shared.receiver("work")
    rig.settle()
    assert shared.accept() == [body(LARGE)]
    rig.run(1)
    assert is_clean(node)


@pytest.mark.parametrize("way", ["purge", "delete", "expire"])
def test_it_goes_with_its_entry(rig: Rig, way: str) -> None:
    from holdfast.amqp.wire.performatives import Header

    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, body(LARGE), header=Header(ttl=5_000) if way == "expire" else None)
    rig.settle()
    link.detach()
    rig.settle()
    if way == "expire":
        rig.run(6)
        client.receiver("work")
        rig.settle()
        assert client.deliveries == []
    else:
        assert client.manage(way.upper(), "queue", "work")[0] == 200
    rig.run(1)
    assert is_clean(node)


def test_a_reader_keeps_what_it_reads_though_its_entry_left(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, body(MIB))
    rig.settle()
    reader = rig.client(node, incoming_window=2)
    reader.reader("work", 1, 2)
    for _ in range(12):
        rig.step()
    consumer = rig.client(node)
    consumer.receiver("work")
    while not consumer.deliveries:
        assert rig.step()
    assert not reader.deliveries
    consumer.accept()
    rig.settle()
    assert reader.bodies() == [body(MIB)]
    rig.run(1)
    assert is_clean(node)


def test_large_blobs_leave_some_pieces_a_commit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "DROP_PIECES", 4)
    node = start(rig)
    client, link = sending(rig, node)
    for name in "bcd":
        client.send(link, body(10 * PIECE_BYTES, name))
    rig.settle()
    dropped = []
    commit = node.store.commit
    node.store.commit = lambda batch: (dropped.append(batch.drops), commit(batch))  # type: ignore[method-assign,assignment]
    assert client.manage("PURGE", "queue", "work")[0] == 200
    for _ in range(3):
        node.crash()
        node.start()
        for _ in range(10):
            rig.step()
    rig.run(1)
    assert is_clean(node)
    assert max(sum(end - first for _, first, end in drops) for drops in dropped) == 4


# --------------------------------------------------------------------------------------------------- by its own address


def relayed(rig: Rig, node: Node, to: str | None, size: int = LARGE) -> Client:
    """A client that sends one large message on a link without an address."""
    client = rig.client(node)
    link = client.sender(None)  # type: ignore[arg-type]  # that is the anonymous terminus
    rig.settle()
    properties = None if to is None else Properties(to=to)
    client.send(link, body(size), properties=properties, context="large")
    client.send(link, "small", properties=Properties(to="work"))
    rig.run(1)
    return client


def test_on_a_link_without_an_address_its_to_says_where_it_goes(rig: Rig) -> None:
    node = start(rig)
    client = relayed(rig, node, "other")
    assert {context: type(state) for context, state in client.outcomes} == {"large": Accepted, "small": Accepted}
    assert node.bodies("other") == [body(LARGE)] and node.bodies("work") == ["small"]
    client.receiver("other")
    rig.settle()
    assert client.accept() == [body(LARGE)]
    rig.run(1)
    assert is_clean(node)


@pytest.mark.parametrize("to", [None, "$management", "queue@nowhere"])
def test_where_it_cannot_go_it_is_rejected_and_the_link_lives(rig: Rig, to: str | None) -> None:
    node = start(rig)
    client = relayed(rig, node, to)
    assert {context: type(state) for context, state in client.outcomes} == {"large": Rejected, "small": Accepted}
    assert is_clean(node)


def test_a_relay_that_is_lost_in_the_middle_leaves_nothing(rig: Rig) -> None:
    node = start(rig)
    client = rig.client(node)
    link = client.sender(None)  # type: ignore[arg-type]  # that is the anonymous terminus
    rig.settle()
    payload = Message(properties=Properties(to="work"), data=[body(MIB).encode()]).encode()
    begun(client, link, payload, 500 * KIB)
    rig.settle()
    assert pieces(node)
    client.close_transport()
    rig.run(1)
    assert is_clean(node)


def test_a_dynamic_node_takes_one_and_its_end_gives_it_back(rig: Rig) -> None:
    node = start(rig)
    client = rig.client(node)
    receiver = client.session.attach_receiver("dynamic", Source(dynamic=True), Target())
    rig.settle()
    address = receiver.source.address
    node.unwatched.add(address)
    other, link = sending(rig, node, address)
    other.send(link, body(LARGE))
    rig.settle()
    assert [type(state) for _, state in other.outcomes] == [Accepted]
    assert pieces(node)
    receiver.detach()
    rig.run(1)
    assert is_clean(node)


def test_what_a_dynamic_node_held_is_not_of_the_queue_that_gets_its_id_after_a_crash(rig: Rig) -> None:
    node = start(rig)
    client = rig.client(node)
    receiver = client.session.attach_receiver("dynamic", Source(dynamic=True), Target())
    rig.settle()
    address = receiver.source.address
    node.unwatched.add(address)
    queue_id = node.queue(address).queue_id
    other, link = sending(rig, node, address)
    for _ in range(3):
        other.send(link, body(LARGE))
    rig.settle()
    assert pieces(node)
    node.crash()
    node.config = replace(node.config, queues=(*node.config.queues, QueueConfig(name="new")))
    node.start()
    assert node.queue("new").queue_id == queue_id
    other, link = sending(rig, node, "new")
    other.send(link, body(LARGE, "b"))
    rig.run(1)
    assert len(node.store._blobs) == 1 and node.bodies("new") == [body(LARGE, "b")]


# --------------------------------------------------------------------------------------------------- between nodes


def test_over_two_hops_it_comes_whole_and_leaves_nothing_behind(rig: Rig) -> None:
    limits = {"limits": LIMITS}
    nodes = rig.line("jfk", "hub", "ewr", jfk=limits, hub=limits, ewr=limits)
    rig.run(3)
    client, link = sending(rig, nodes[0], "work@ewr")
    sent = ["1", body(LARGE, "b"), body(LARGE, "c"), "2"]
    for text in sent:
        client.send(link, text)
    rig.run(3)
    assert nodes[2].bodies("work") == sent
    assert is_clean(*nodes[:2])
    consumer = rig.client(nodes[2])
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == sent
    rig.run(1)
    assert is_clean(*nodes)


def test_a_cut_between_nodes_begins_it_anew(rig: Rig) -> None:
    limits = {"limits": LIMITS}
    jfk, hub = rig.pair(jfk=limits, **limits)
    rig.run(3)
    client, link = sending(rig, jfk, "work@hub")
    client.send(link, body(4 * MIB))
    while not pieces(hub):
        assert rig.step()
    for wire in rig.between("jfk", "hub"):
        wire.cut()
    rig.run(10)
    assert hub.bodies("work") == [body(4 * MIB)]
    assert is_clean(jfk)
    assert hub.core is not None and len(hub.core.blobs.by_number) == 1


def test_expired_on_its_way_it_leaves_a_tombstone(rig: Rig) -> None:
    from holdfast.amqp.wire.performatives import Header

    limits = {"limits": LIMITS}
    jfk, hub = rig.pair(jfk=limits, **limits)
    rig.run(3)
    hub.crash()
    client, link = sending(rig, jfk, "work@hub")
    client.send(link, body(LARGE), header=Header(ttl=2_000))
    client.send(link, "next")
    rig.run(5)
    hub.start()
    rig.run(40)
    assert hub.bodies("work") == ["next"]
    assert is_clean(jfk, hub)


def test_larger_than_the_neighbour_takes_it_is_a_dead_letter(rig: Rig) -> None:
    jfk, hub = rig.pair(jfk={"limits": LIMITS}, limits=Limits(message_bytes_max=200 * KIB))
    rig.run(3)
    client, link = sending(rig, jfk, "work@hub")
    client.send(link, body(LARGE))
    client.send(link, "next")
    rig.run(5)
    assert hub.bodies("work") == ["next"]
    reader = rig.client(jfk)
    reader.receiver("$dead-letters")
    rig.settle()
    assert reader.accept() == [body(LARGE)]
    rig.run(1)
    assert is_clean(jfk, hub)


def test_the_largest_that_a_node_takes_of_a_client_its_neighbour_takes_too(rig: Rig) -> None:
    """What custody says beside it is not counted against the same limit there."""
    limits = {"limits": Limits(message_bytes_max=200 * KIB)}
    jfk, hub = rig.pair(jfk=limits, **limits)
    rig.run(3)
    client, link = sending(rig, jfk, "work@hub")
    head = len(Message(data=[b"x" * 1_000]).encode()) - 1_000
    whole = "x" * (200 * KIB - head)
    client.send(link, whole)
    rig.run(5)
    assert hub.bodies("work") == [whole]


def test_what_waits_for_an_earlier_one_keeps_its_blob(rig: Rig) -> None:
    """It lies in `$waiting` first, and moves to its queue without being copied."""
    limits = {"limits": LIMITS}
    queue = {"queues": (QueueConfig(name="work", order="strict"),)}
    routes = {"a": {"d": "b"}, "d": {"a": "b"}}
    a, b, c, d = rig.graph("a-b", "a-c", "b-d", "c-d", routes=routes, a=limits, b=limits, c=limits, d=limits | queue)
    rig.run(3)
    client, link = sending(rig, a, "work@d")
    for wire in rig.between("b", "d"):
        wire.cut(silent=True)
    client.send(link, body(LARGE, "b"))
    rig.run(0.5)
    from support.hops import reroute

    reroute(rig, a, d="c")
    client.send(link, body(LARGE, "c"))
    rig.run(2)
    rig.run(60)
    assert d.bodies("work") == [body(LARGE, "b"), body(LARGE, "c")]
    assert is_clean(a, b, c)


# --------------------------------------------------------------------------------------------------- fairness


def test_two_large_deliveries_share_a_connection_and_small_ones_pass(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    for queue, name in (("one", "b"), ("two", "c")):
        sender = client.sender(queue)
        rig.settle()
        client.send(sender, body(2 * MIB, name))
    rig.settle()
    consumer = rig.client(node)
    links = [consumer.receiver(name) for name in ("one", "two")]
    small = consumer.receiver("work")
    while not all(item.partial is not None for item in links):
        assert rig.step()
    client.send(link, "small")
    while not consumer.bodies(small):
        assert rig.step()
    assert consumer.bodies() == ["small"]
    progress = [item.partial.size for item in links if item.partial is not None]
    assert len(progress) == 2 and max(progress) < 2 * min(progress) + 300 * KIB
    rig.settle()
    assert sorted(consumer.accept()) == sorted([body(2 * MIB, "b"), body(2 * MIB, "c"), "small"])
    rig.run(1)
    assert is_clean(node)


def test_one_that_is_given_up_behind_what_nobody_looked_at_leaves_nothing_unlooked_at(rig: Rig) -> None:
    """What comes next is taken at once; it would wait for a turn that nobody wakes."""
    node = start(rig)
    client, link = sending(rig, node)
    outgoing = begun(client, link, Message(data=[b"x" * LARGE]).encode(), 200_000)
    rig.settle()
    assert node.core is not None
    (intake,) = [found for links in node.core.links.producers.values() for found in links]
    assert len(intake.parked) == 1 and intake.growing
    intake.unchecked = 1  # as where the turn's share ended right before it
    outgoing.abort()
    outgoing.flush(1)
    rig.settle()
    client.send(link, "small")
    rig.run(3)
    assert node.bodies("work") == ["small"]
