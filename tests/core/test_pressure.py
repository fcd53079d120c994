"""What came and is not on disk yet is bounded, whatever credit and windows allow (links/pressure.py)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Rejected, Released
from holdfast.custody.transfers import carried
from holdfast.links import large_receives as streams
from holdfast.peers.limits.memory import PARKED_BYTES
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.rig import Client, Node, Rig
from support.transactions import Controller, within


@pytest.fixture
def rig() -> Rig:
    return Rig()


def paused(node: Node) -> int:
    return sum(end.paused for end in node.ends.values())


def sending(rig: Rig, node: Node, address: str = "work", **settings: Any) -> tuple[Client, Any]:
    client = rig.client(node, **settings)
    link = client.sender(address)
    rig.settle()
    return client, link


def payload(size: int) -> bytes:
    """A message that is `size` bytes long."""
    return b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4, "big") + bytes(size - 8)


def test_a_connection_is_not_read_from_past_its_bound_until_a_commit(rig: Rig) -> None:
    node = rig.node("hub", limits=Limits(connection_unstored_bytes_max=MIB))
    client, link = sending(rig, node)
    other, beside = sending(rig, node)
    node.hold_commits = True
    for number in range(40):
        link.send(payload(50 * KIB), context=number)
    client.flush()
    assert client.end is not None
    wire = client.end.wire
    for end in wire.ends:  # as a socket reads: 64 KiB at a time
        while end.alive and end.inbox and not end.paused and end.node is not None:
            before = len(end.inbox)
            rig._deliver(end, 64 * KIB)
            assert len(end.inbox) < before
            node.end_turn()
    heard = 40 * 50 * KIB - sum(len(end.inbox) for end in wire.ends)
    assert paused(node) == 1
    assert MIB < heard <= MIB + 70 * KIB
    beside.send(payload(1000), context="other")
    rig.settle()
    node.hold_commits = False
    rig.settle()
    assert paused(node) == 0
    assert len(client.outcomes) == 40 and len(other.outcomes) == 1


def test_below_its_bound_it_is_read_on(rig: Rig) -> None:
    node = rig.node("hub", limits=Limits(connection_unstored_bytes_max=MIB))
    client, link = sending(rig, node)
    node.hold_commits = True
    for number in range(20):
        link.send(payload(50 * KIB), context=number)
    rig.settle()
    assert paused(node) == 0
    node.hold_commits = False
    rig.settle()
    assert len(client.outcomes) == 20


def test_what_came_of_a_large_message_and_has_no_batch_yet_counts_for_its_connection(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing goes to the disk, so that nothing that was heard waits for it."""
    node = rig.node("hub", limits=Limits(stream_bytes=100 * KIB, connection_unstored_bytes_max=MIB))
    client, link = sending(rig, node)
    with monkeypatch.context() as patch:
        patch.setattr(streams, "COMMIT_BYTES", 0)
        link.send(payload(3 * MIB), context="large")
        rig.settle()
        assert node.core is not None and node.core.pressure.ahead_bytes > MIB
        assert not node.core.turns.gathered.heard_bytes and paused(node) == 1
    rig.run(1)
    assert paused(node) == 0 and isinstance(dict(client.outcomes)["large"], Accepted)


def test_past_the_nodes_bound_no_connection_is_read_from(rig: Rig) -> None:
    node = rig.node("hub", limits=Limits(unstored_bytes_max=MIB))
    pairs = [sending(rig, node) for _ in range(4)]
    node.hold_commits = True
    for _, link in pairs[:3]:
        for number in range(7):
            link.send(payload(60 * KIB), context=number)
    rig.settle()
    assert paused(node) == 4
    node.hold_commits = False
    rig.settle()
    assert paused(node) == 0
    assert [len(client.outcomes) for client, _ in pairs] == [7, 7, 7, 0]


def test_a_pause_longer_than_the_hold_time_costs_no_session(rig: Rig) -> None:
    _, hub = rig.pair(limits=Limits(unstored_bytes_max=100 * KIB))
    rig.run(3)
    client, link = sending(rig, hub)
    hub.hold_commits = True
    link.send(payload(200 * KIB), context=1)
    rig.settle()
    assert paused(hub) == 1, "the client"
    assert hub.core is not None
    rig.run(20)
    assert paused(hub) == 1
    assert hub.core.neighbours["jfk"].established and not hub.core.neighbours["jfk"].flaps
    hub.hold_commits = False
    rig.run(3)
    assert paused(hub) == 0
    assert len(client.outcomes) == 1


@pytest.mark.parametrize("streams", [2, 3])
def test_at_streams_max_one_more_large_message_is_rejected(rig: Rig, streams: int) -> None:
    node = rig.node("hub", limits=Limits(stream_bytes=100 * KIB, streams_max=2))
    client = rig.client(node)
    links = [client.sender(f"q{number}") for number in range(streams)]
    rig.settle()
    begun = [link.begin(payload(MIB)[: 200 * KIB], MIB, context=number) for number, link in enumerate(links)]
    for outgoing in begun:
        outgoing.flush(MIB)
    rig.settle()
    for outgoing in begun:
        outgoing.feed(payload(MIB)[200 * KIB :])
        outgoing.flush(MIB)
    rig.run(1)
    assert [type(state) for _, state in sorted(client.outcomes, key=lambda item: item[0])] == [
        Accepted, Accepted, Rejected
    ][:streams]  # fmt: skip
    assert node.core is not None and not node.core.streams
    refused = streams - 2
    _, status, _ = client.manage("STATUS", "node")
    assert status["large_messages"] == {"under_way": 0, "max": 2, "refused": refused}
    rig.run(25)
    said = [line for line in status["warnings"] if "large messages" in line]
    assert len(said) == refused and all("streams_max" in line for line in said)
    assert len([line for line in node.logs if "raise streams_max" in str(line)]) == refused
    sender = client.sender("again")
    rig.settle()
    sender.send(payload(MIB), context="again")
    rig.settle()
    assert isinstance(dict(client.outcomes)["again"], Accepted)


def test_large_messages_that_wait_at_one_full_queue_keep_no_other_connection_s_out(rig: Rig) -> None:
    limits = Limits(stream_bytes=100 * KIB, streams_max=4)
    queues = (QueueConfig(name="work", messages_max=1), QueueConfig(name="other"))
    jfk, hub = rig.pair(jfk={"limits": Limits(stream_bytes=100 * KIB)}, queues=queues, limits=limits)
    rig.run(3)
    client, link = sending(rig, jfk, "work@hub")
    for number in range(10):
        link.send(payload(200 * KIB), context=number)
    rig.settle()
    other, beside = sending(rig, hub, "other")
    for number in range(10):
        beside.send(payload(200 * KIB), context=number)
        rig.settle()
    assert [type(state) for _, state in other.outcomes] == [Accepted] * 10
    consumer = rig.client(hub)
    consumer.receiver("work")
    taken = 0
    for _ in range(20):
        taken += len(consumer.accept())
        rig.run(0.5)
    assert [type(state) for _, state in client.outcomes] == [Accepted] * 10
    assert taken == 10


def test_large_messages_that_wait_for_room_in_a_queue_keep_their_places(rig: Rig) -> None:
    """Also where all of each has arrived."""
    queues = (QueueConfig(name="work", messages_max=1), QueueConfig(name="other"))
    node = rig.node("hub", limits=Limits(stream_bytes=100 * KIB, streams_max=2), queues=queues)
    client, link = sending(rig, node, "work")
    waiting = [sending(rig, node, "work") for _ in range(2)]
    link.send(payload(KIB), context="fills")
    rig.settle()
    for _, each in waiting:
        each.send(payload(200 * KIB), context="waits")
        rig.settle()
    beside, other = sending(rig, node, "other")
    other.send(payload(200 * KIB), context="refused")
    rig.settle()
    ((_, refused),) = beside.outcomes
    assert isinstance(refused, Rejected) and "2 large messages are under way" in str(refused)
    for _ in waiting:
        client.manage("PURGE", "queue", "work")
        rig.run(1)
    assert [len(each.outcomes) for each, _ in waiting] == [1, 1]
    other.send(payload(200 * KIB), context="taken")
    rig.settle()
    assert isinstance(dict(beside.outcomes)["taken"], Accepted)


def test_whole_messages_of_a_transaction_take_no_connection_the_reserved_places(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have none themselves: their connection may begin another one there."""
    monkeypatch.setattr(streams, "COMMIT_BYTES", 0)
    node = rig.node("hub", limits=Limits(stream_bytes=100 * KIB, streams_max=4))
    client, link = sending(rig, node)
    mine = Controller(client).begin()
    for _ in range(2):
        link.send(payload(200 * KIB), context="whole", state=within(mine))
    rig.settle()
    begun = [sending(rig, node)[1] for _ in range(3)]
    for each in (*begun, link):
        each.begin(payload(MIB)[: 200 * KIB], MIB, context="begun").flush(MIB)
        rig.settle()
    assert node.core is not None
    assert [stream.outcome for stream in node.core.streams] == [None] * 6


def test_one_that_came_whole_is_under_way_no_more_as_the_next_begins(rig: Rig) -> None:
    """Both in what is read at once."""
    limits = Limits(stream_bytes=100 * KIB, streams_max=1)
    jfk, hub = rig.pair(jfk={"limits": Limits(stream_bytes=100 * KIB)}, limits=limits)
    rig.run(3)
    for node, address in ((hub, "work"), (jfk, "work@hub")):
        client = rig.client(node)
        link = client.sender(address)
        rig.settle()
        for number in range(5):
            link.send(payload(200 * KIB), context=number)
        rig.settle()
        assert [type(state) for _, state in client.outcomes] == [Accepted] * 5
    assert len(hub.bodies("work")) == 10, "no custody link was given up in between"


def test_parked_bytes_are_bounded_and_one_more_is_released(rig: Rig) -> None:
    queues = (QueueConfig(name="work", messages_max=1),)
    node = rig.node("hub", limits=Limits(parked_bytes_max=2 * (50 * KIB + PARKED_BYTES)), queues=queues)
    senders = [sending(rig, node) for _ in range(4)]
    for client, link in senders:
        link.send(payload(50 * KIB), context=client)
    rig.settle()
    outcomes = [[type(state) for _, state in client.outcomes] for client, _ in senders]
    assert outcomes == [[Accepted], [], [], [Released]]
    assert node.core is not None and node.core.memory.parked.held == 2 * (50 * KIB + PARKED_BYTES)
    senders[1][0].close_transport()
    rig.settle()
    assert node.core.memory.parked.held == 50 * KIB + PARKED_BYTES
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    for _ in range(3):
        for item in consumer.deliveries:
            item.link.settle(item.delivery_id, item.delivery_id, Accepted())
        consumer.deliveries.clear()
        rig.run(1)
    assert node.core.memory.parked.held == 0
    assert [type(state) for _, state in senders[2][0].outcomes] == [Accepted]


def test_unfinished_deliveries_are_bounded_and_written_early(rig: Rig) -> None:
    node = rig.node("hub", limits=Limits(unfinished_bytes_max=100 * KIB))
    assert node.core is not None
    client = rig.client(node)
    links = [client.sender(f"q{number}") for number in range(5)]
    rig.settle()
    whole = payload(300 * KIB)
    begun = [link.begin(whole[: 50 * KIB], len(whole), context=number) for number, link in enumerate(links)]
    rig.settle()
    assert node.core.pressure.partials.held <= 150 * KIB
    assert len(node.core.streams) == 3  # the first two came below the bound
    for outgoing in begun:
        outgoing.feed(whole[50 * KIB :])
        outgoing.flush(MIB)
    rig.run(1)
    assert [type(state) for _, state in client.outcomes] == [Accepted] * 5
    assert node.core.pressure.partials.held == 0


def test_what_is_for_the_node_itself_is_never_large(rig: Rig) -> None:
    node = rig.node("hub")
    client, link = sending(rig, node, "$management")
    assert link.message_bytes_max == 64 * KIB
    link.remote_attach.max_message_size = None
    link.send(payload(64 * KIB + 1), context=1)
    rig.settle()
    (gone,) = client.detached
    assert gone.error is not None and str(gone.error.condition) == "amqp:link:message-size-exceeded"


def neighbours(rig: Rig, limits: Limits) -> tuple[Node, Node]:
    """jfk dials hub; both probe each other every 50 ms, as on a LAN, and give up after three misses."""
    return (
        rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", probe_s=0.05),)),
        rig.node("hub", neighbours=(NeighbourConfig(name="jfk", probe_s=0.05),), limits=limits),
    )


def test_a_neighbour_is_read_from_while_clients_wait_for_the_disk(rig: Rig) -> None:
    """Its probes are answered, whatever clients uploaded to a disk that is slow."""
    jfk, hub = neighbours(rig, Limits(unstored_bytes_max=100 * KIB))
    rig.run(1)
    uploads = [sending(rig, hub) for _ in range(3)]
    hub.hold_commits = True
    for _, link in uploads:
        link.send(payload(200 * KIB), context=1)
    rig.settle()
    assert paused(hub) == 3
    ours = jfk.core.neighbours["hub"]
    rig.run(10)
    assert ours.established and not ours.flaps and not ours.liveness.missed
    assert len(ours.liveness._sent_at) <= 1, "the hub reads what its neighbour says, and answers"
    assert hub.core.neighbours["jfk"].flaps == 0
    hub.hold_commits = False
    rig.run(3)
    assert [len(client.outcomes) for client, _ in uploads] == [1, 1, 1]


@pytest.mark.parametrize("limits", [
    Limits(connection_unstored_bytes_max=100 * KIB),
    Limits(unstored_bytes_max=50 * KIB, neighbours_unstored_bytes_max=50 * KIB),
])  # fmt: skip
def test_a_neighbour_that_is_not_read_from_is_told_that_the_node_lives(rig: Rig, limits: Limits) -> None:
    """What it brought itself waits for the disk: nothing more is read, and neither side gives the link up."""
    jfk, hub = neighbours(rig, limits)
    rig.run(1)
    client, link = sending(rig, jfk, "work@hub")
    hub.hold_commits = True
    for number in range(10):
        link.send(payload(50 * KIB), context=number)
    rig.run(0.05)
    assert paused(hub) == 1
    rig.run(20)
    assert paused(hub) == 1
    for node, far in ((jfk, "hub"), (hub, "jfk")):
        assert node.core.neighbours[far].established and not node.core.neighbours[far].flaps
    hub.hold_commits = False
    rig.run(5)
    assert hub.queue("work").messages == 10 and len(client.outcomes) == 10


def test_neighbours_unstored_bytes_max(rig: Rig) -> None:
    """At the bound a neighbour is read on, past it no longer; an idle one is, whatever the others brought."""
    for count, expected in ((2, 0), (4, 1)):
        rig = Rig()
        jfk, hub = neighbours(rig, Limits(unstored_bytes_max=50 * KIB, neighbours_unstored_bytes_max=100 * KIB))
        rig.run(1)
        _, link = sending(rig, jfk, "work@hub")
        hub.hold_commits = True
        for number in range(count):
            link.send(payload(50 * KIB), context=number)
        rig.run(0.1)
        assert paused(hub) == expected, count


def test_a_neighbour_is_read_on_while_clients_wait_for_half_of_the_bound(rig: Rig) -> None:
    """Its reserve counts on the way down as on the way up."""
    _, hub = rig.pair(limits=Limits(unstored_bytes_max=MIB, neighbours_unstored_bytes_max=MIB))
    rig.run(2)
    rig.client(hub)
    core = hub.core
    assert core is not None
    control = core.neighbours["jfk"].control
    assert control is not None
    neighbour = control.peer
    for peer in core.connections.values():
        core.pressure._pause(peer)
    core.pressure.put_off_bytes = MIB
    core.pressure.relieve()
    assert neighbour not in core.pressure.paused and len(core.pressure.paused) == len(core.connections) - 1 > 0
    core.pressure.put_off_bytes = MIB // 2
    core.pressure.relieve()
    assert not core.pressure.paused


def test_past_the_bound_all_connections_are_looked_at_once_a_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each read: there may be thousands of both."""
    node = rig.node("hub", limits=Limits(unstored_bytes_max=MIB))
    client, _ = sending(rig, node)
    node.hold_commits = True
    assert node.core is not None
    pressure, (peer, *_) = node.core.pressure, list(node.core.connections.values())
    looked: list[int] = []
    values = type(node.core.connections).values
    monkeypatch.setattr(
        type(node.core.connections), "values", lambda connections: (looked.append(1), values(connections))[1]
    )
    for _ in range(50):
        pressure.heard(peer, 100 * KIB)
    assert len(looked) == 1 and peer in pressure.paused
    client.flush()


def test_what_waits_at_a_full_queue_is_not_copied_in_each_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the node that it is for, and on its way there."""
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=1), QueueConfig(name="other")))
    rig.run(8)
    client, other = rig.client(jfk), rig.client(hub)
    link, beside = client.sender("work@hub"), other.sender("other")
    rig.settle()
    for number in range(3):
        client.send(link, f"{number}" * KIB)
    rig.run(3)
    copied: list[int] = []
    entry_of = carried.entry_of
    monkeypatch.setattr(carried, "entry_of", lambda *given, **how: (copied.append(1), entry_of(*given, **how))[1])
    for number in range(20):
        other.send(beside, f"{number}")
        rig.settle()
    assert hub.queue("work").messages == 1 and hub.queue("other").messages == 20 and not copied
    reader = rig.client(hub)
    reader.receiver("work")
    for _ in range(10):
        reader.accept()
        rig.run(1)
    assert len(copied) >= 2 and hub.queue("work").messages == 0
