"""Messages above `stream_bytes`: written as they come, sent as they are taken, whole once or not at all (ADR 0014)."""

from typing import Any

import pytest

from holdfast.amqp.message import Message
from holdfast.amqp.performatives import Accepted, Modified, Properties, Rejected, Released, Source, Target
from holdfast.broker.port import PIECE_BYTES
from holdfast.core import blobs
from holdfast.core.config import Limits, QueueConfig
from holdfast.units import KIB, MIB
from support.rig import Client, Node, Rig

LIMITS = Limits(stream_bytes=100 * KIB)
LARGE = 300 * KIB


@pytest.fixture
def rig() -> Rig:
    return Rig()


def body(size: int, name: str = "a") -> str:
    """Text of that many bytes, unlike anywhere, so that a piece lost, doubled or moved shows."""
    text = "".join(f"{name}{number:07d}" for number in range(size // (7 + len(name)) + 1))
    return text[:size]


def pieces(node: Node) -> int:
    """How many pieces of blobs the node's store holds."""
    return sum(len(found) for found in node.store._blobs.values())


def is_clean(*nodes: Node) -> bool:
    """Whether no blob is left, on disk or in memory."""
    return all(
        not node.store._blobs
        and not list(node.store.table("blobs"))
        and (
            node.core is None or not (node.core.blobs.by_number or node.core.streams or node.core.pressure.ahead_bytes)
        )
        for node in nodes
    )


def start(rig: Rig, name: str = "hub", **fields: Any) -> Node:
    return rig.node(name, limits=fields.pop("limits", LIMITS), **fields)


def sending(rig: Rig, node: Node, address: str = "work", **parts: Any) -> tuple[Client, Any]:
    client = rig.client(node)
    link = client.sender(address, **parts)
    rig.settle()
    return client, link


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
    node = start(rig)
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
    from holdfast.amqp.performatives import Header
    from holdfast.amqp.types import Symbol

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
    from holdfast.amqp.performatives import Header

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


# --------------------------------------------------------------------------------------------------- what goes wrong


def begun(client: Client, link: Any, payload: bytes, upto: int) -> Any:
    """A delivery of which the first bytes are on the way."""
    outgoing = link.begin(payload[:10], len(payload), context="large")
    outgoing.feed(payload[10:upto])
    outgoing.flush(len(payload))
    return outgoing


@pytest.mark.parametrize("upto", [10, 150 * KIB, 290 * KIB])
def test_an_aborted_delivery_never_was(rig: Rig, upto: int) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    payload = Message(data=[body(LARGE).encode()]).encode()
    outgoing = begun(client, link, payload, upto)
    rig.settle()
    outgoing.abort()
    client.send(link, "next")
    rig.run(1)
    assert node.bodies("work") == ["next"]
    assert [context for context, _ in client.outcomes] == ["next"]
    assert is_clean(node)


@pytest.mark.parametrize("crash", [False, True])
def test_a_sender_lost_in_the_middle_leaves_nothing(rig: Rig, crash: bool) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    payload = Message(data=[body(MIB).encode()]).encode()
    begun(client, link, payload, 900 * KIB)
    rig.settle()
    assert pieces(node)
    if crash:
        node.crash()
        assert pieces(node)
        node.start()
    else:
        client.close_transport()
    rig.run(1)
    assert node.core is not None and not node.core.catalog.queues["work"].messages
    assert is_clean(node)


def test_it_is_accepted_only_with_its_last_byte_on_disk(rig: Rig) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    node.hold_commits = True
    client.send(link, body(LARGE))
    rig.settle()
    assert client.outcomes == []
    node.hold_commits = False
    rig.settle()
    assert [type(state) for _, state in client.outcomes] == [Accepted]


@pytest.mark.parametrize("refused", range(1, 8))
def test_a_disk_that_is_full_in_the_middle_rejects_it_and_keeps_the_rest(rig: Rig, refused: int) -> None:
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, "before")
    rig.settle()
    payload = Message(data=[body(MIB).encode()]).encode()
    outgoing = begun(client, link, payload, 64 * KIB)
    at = 64 * KIB
    step = commits = 0
    while not outgoing.over:
        step += 1
        node.refuse = int(step == refused)
        outgoing.feed(payload[at : at + 150 * KIB])
        at += 150 * KIB
        outgoing.flush(len(payload))
        rig.settle()
        commits += step == refused and not node.refuse
    node.refuse = 0
    client.send(link, "after")
    rig.run(1)
    states = dict(client.outcomes)
    assert commits or refused not in (2, 3, 5)  # parts came just then
    assert isinstance(states["after"], Accepted)
    if isinstance(states["large"], Rejected):
        assert node.bodies("work") == ["before", "after"]
        client.receiver("work")
        rig.settle()
        client.accept()
        rig.run(1)
        assert is_clean(node)
    else:
        assert node.bodies("work") == ["before", body(MIB), "after"]
        assert not commits


def test_a_message_that_the_store_has_no_room_for_is_rejected_and_leaves_room_for_others(rig: Rig) -> None:
    from holdfast.storage.memory import MemoryStore

    node = start(rig, start=False)
    node.store = MemoryStore(bytes_max=20 * MIB, mint_from=rig.uuid)
    node.start()
    client, link = sending(rig, node)
    client.send(link, body(30 * MIB))
    rig.settle()
    ((_, state),) = client.outcomes
    assert isinstance(state, Rejected) and state.error is not None
    assert str(state.error.condition) == "amqp:resource-limit-exceeded"
    client.send(link, "small")
    rig.run(1)
    assert node.bodies("work") == ["small"]
    client.receiver("work")
    rig.settle()
    client.accept()
    rig.run(1)
    assert is_clean(node)


def test_one_past_message_bytes_max_ends_its_link(rig: Rig) -> None:
    node = start(rig, limits=Limits(stream_bytes=100 * KIB, message_bytes_max=200 * KIB))
    client, link = sending(rig, node)
    payload = Message(data=[body(190 * KIB).encode()]).encode()
    link.send(payload + b"\x00\x53\x78\xc1\x01\x00", context="fits")
    rig.settle()
    assert [type(state) for _, state in client.outcomes] == [Accepted]
    link.remote_attach.max_message_size = None
    with_more = Message(data=[body(200 * KIB).encode()]).encode()
    link.send(with_more, context="too large")
    rig.run(1)
    (gone,) = client.detached
    assert gone.error is not None and str(gone.error.condition) == "amqp:link:message-size-exceeded"
    client.receiver("work")
    rig.settle()
    client.accept()
    rig.run(1)
    assert is_clean(node)


def test_a_head_that_is_too_long_is_rejected(rig: Rig) -> None:
    node = start(rig, limits=Limits(stream_bytes=600 * KIB))
    client, link = sending(rig, node)
    long = {f"x-opt-{number}": "v" * 1000 for number in range(300)}
    client.send(link, body(MIB), message_annotations=long)
    rig.run(1)
    ((_, state),) = client.outcomes
    assert isinstance(state, Rejected)
    assert is_clean(node)


def test_a_head_in_several_parts_is_put_together(rig: Rig) -> None:
    node = start(rig, limits=Limits(stream_bytes=1, annotation_bytes_max=MIB))
    client = rig.client(node, max_frame_size=512)
    link = client.sender("work")
    rig.settle()
    told = {f"x-opt-{number:03}": "v" * 1000 for number in range(200)}
    client.send(link, body(LARGE), message_annotations=told)
    rig.settle()
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    (found,) = consumer.messages()
    kept = {str(key): value for key, value in (found.message_annotations or {}).items()}
    assert {key: value for key, value in kept.items() if key in told} == told
    assert consumer.accept() == [body(LARGE)]
    rig.run(1)
    assert is_clean(node)


def test_a_full_queue_lets_it_wait_on_disk(rig: Rig) -> None:
    node = start(rig, queues=(QueueConfig(name="work", bytes_max=200 * KIB),))
    client, link = sending(rig, node)
    client.send(link, "first")
    client.send(link, body(LARGE))
    rig.run(1)
    assert [context for context, _ in client.outcomes] == ["first"]
    assert pieces(node) and node.core is not None and not node.core.pressure.ahead_bytes
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == ["first"]
    rig.run(1)
    assert consumer.accept() == [body(LARGE)]
    assert len(client.outcomes) == 2
    rig.run(1)
    assert is_clean(node)


def test_a_queue_that_refuses_rejects_it(rig: Rig) -> None:
    node = start(rig, queues=(QueueConfig(name="work", messages_max=1, when_full="refuse"),))
    client, link = sending(rig, node)
    client.send(link, "first")
    client.send(link, body(LARGE))
    rig.run(1)
    assert {context[:5]: type(state) for context, state in client.outcomes} == {"first": Accepted, "a0000": Rejected}
    assert is_clean(node)


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
    from holdfast.amqp.performatives import Header

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


# --------------------------------------------------------------------------------------------------- any cut, any crash


@pytest.mark.parametrize("seed", range(12))
def test_whole_once_or_not_at_all_whatever_breaks(seed: int) -> None:
    """A line of nodes, cut and killed at random: what was accepted comes once and whole, in order."""
    rig = Rig(seed)
    limits = {"limits": LIMITS}
    strict = limits | {"queues": (QueueConfig(name="work", order="strict"),)}
    nodes = rig.line("jfk", "hub", "ewr", jfk=limits, hub=limits, ewr=strict)
    rig.run(3)
    sent = [body(LARGE + 1000 * number, chr(98 + number)) if number % 3 else str(number) for number in range(6)]
    client: Client | None = None
    link: Any = None
    asked = -1
    for turn in range(60):
        origin = nodes[0]
        if origin.core is not None and (client is None or client.over or link.detached):
            client = rig.client(origin)
            link = client.sender("work@ewr", properties={"holdfast:producer": "p"})
            asked = -1
        if client is not None and link.attached and asked < 0:
            told = {str(key): value for key, value in (link.remote_attach.properties or {}).items()}
            missing = told["holdfast:missing"]
            asked = missing[0][0] - 1 if missing else told["holdfast:last-number"]
        while client is not None and 0 <= asked < len(sent) and link.attached and link.sendable:
            asked += 1
            client.send(link, sent[asked - 1], number=asked)
        for _ in range(rig.random.randint(1, 120)):
            rig.step()
        fate = rig.random.random()
        if turn < 40 and fate < 0.3:
            node = rig.random.choice(nodes)
            node.crash() if node.core is not None else node.start()
        elif turn < 40 and fate < 0.6:
            alive = [wire for wire in rig.wires if not wire.dead]
            if alive:
                rig.random.choice(alive).cut(silent=False)
        elif turn < 40 and fate < 0.7:
            rig.random.choice(nodes).refuse = 1
        if turn >= 40:
            for node in nodes:
                if node.core is None:
                    node.start()
            if client is not None and any(not isinstance(state, Accepted) for _, state in client.outcomes):
                client.close_transport()
            rig.run(2)
    assert nodes[2].bodies("work") == sent
    rig.run(30)
    assert is_clean(*nodes[:2])
    assert nodes[2].core is not None and len(nodes[2].core.blobs.by_number) == sum(len(item) > KIB for item in sent)
