"""Large messages on links that share something: a session's window, a queue's entries, delivery-ids (ADR 0014)."""

from collections import Counter
from dataclasses import replace

import pytest

from holdfast.amqp.connection import Receiver
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties, Released, Source, Target
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.links import large_sends as sending_out
from holdfast.peers.peer import Peer
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body, is_clean, sending, start


@pytest.fixture
def rig() -> Rig:
    return Rig()


def held(rig: Rig, node: Node, window: int = 2) -> Client:
    """A client whose only session takes `window` transfer frames, and no more before it says so."""
    client = rig.client(node, incoming_window=window)
    client.session.hold_window(True)
    return client


def go_on(rig: Rig, client: Client) -> None:
    """The session takes what comes."""
    client.session.hold_window(False)
    rig.settle()


def count_of(client: Client, link: Receiver) -> int:
    return len(client.bodies(link))


@pytest.mark.parametrize("window", [2, 3])
def test_receivers_of_one_session_share_its_window(rig: Rig, window: int) -> None:
    """Whoever's turn it is may find the window that it saw open used up by the link before it."""
    node = start(rig)
    sender, link = sending(rig, node)
    sent = [body(LARGE, name) for name in "bcde"]
    for text in sent:
        sender.send(link, text)
    rig.settle()
    client = held(rig, node, window)
    links = [client.receiver("work", credit=2) for _ in range(4)]
    rig.settle()
    assert node.core is not None and not client.over
    go_on(rig, client)
    assert sorted(client.bodies()) == sent
    assert all(count_of(client, link) for link in links)
    client.accept()
    rig.run(1)
    assert is_clean(node)


def test_a_large_one_behind_small_ones_waits_for_the_window(rig: Rig) -> None:
    node = start(rig)
    sender, link = sending(rig, node)
    for text in ("1", "2", body(LARGE, "b"), "3", body(LARGE, "c")):
        sender.send(link, text)
    rig.settle()
    client = held(rig, node)
    for _ in range(4):
        client.receiver("work", credit=2)
    rig.settle()
    assert client.bodies() == ["1", "2"]
    go_on(rig, client)
    assert sorted(map(len, client.bodies())) == [1, 1, 1, LARGE, LARGE]


@pytest.mark.parametrize("durable", [True, False])
def test_a_browser_reads_anew_behind_a_large_one(rig: Rig, durable: bool) -> None:
    """What it had read ahead may be gone by the time that the large one is sent."""
    node = start(rig, queues=(QueueConfig(name="work", durable=durable),))
    if not durable:
        node.unwatched.add("work")
    sender, link = sending(rig, node)
    texts = [body(LARGE, "b"), body(LARGE, "c"), "small"]
    for text in texts:
        sender.send(link, text)
    rig.settle()
    client = held(rig, node)
    client.receiver("work", source={"distribution_mode": Symbol("copy")})
    rig.settle()
    assert not client.deliveries  # the first of it is under way
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == texts
    rig.run(1)
    sender.send(link, "later")
    rig.settle()
    go_on(rig, client)
    assert client.bodies() == [texts[0], "later"]
    client.accept()
    rig.run(1)
    assert node.bodies("work") == ["later"] and len(node.store._blobs) == 0


def test_settled_deliveries_may_share_an_id_on_a_link_without_an_address(rig: Rig) -> None:
    """Two that wait for a commit, of one id, for two queues: each goes where it says."""
    bounds = replace(LIMITS, connection_unstored_bytes_max=64 * MIB, unstored_bytes_max=64 * MIB)
    node = start(rig, limits=bounds)
    client = rig.client(node)
    link = client.session.attach_sender("anonymous", Source(), Target())
    rig.settle()
    node.hold_commits = True
    texts = {"b": body(5 * MIB, "b"), "c": body(5 * MIB, "c")}
    for to, text in texts.items():
        client.session.outgoing.next_delivery_id = 7
        link.send(Message(properties=Properties(to=to), data=[text.encode()]).encode(), context=to, settled=True)
        rig.settle()
    node.hold_commits = False
    rig.settle()
    for to, text in texts.items():
        assert node.bodies(to) == [text]
    consumer = rig.client(node)
    for to in texts:
        consumer.receiver(to)
    rig.settle()
    consumer.accept()
    rig.run(1)
    assert is_clean(node)


def test_a_consumer_that_settles_a_large_one_before_its_end_is_sent_the_next_behind_it(rig: Rig) -> None:
    """One at a time is sent on a link: the end of the first is told before the second begins."""
    node = start(rig)
    sender, link = sending(rig, node)
    for name in "bcd":
        sender.send(link, body(LARGE, name))
    rig.settle()
    client = held(rig, node)
    client.receiver("work", credit=3)
    rig.settle()
    assert node.core is not None and not client.deliveries  # the first is under way
    client.session.write_disposition(True, 0, 0, True, Released())
    go_on(rig, client)
    assert client.accept() == [body(LARGE, name) for name in "bc"]  # the credit of what it released is used up
    rig.run(1)
    assert node.bodies("work") == [body(LARGE, "d")] and not node.core.connections.sending
    assert all(not blob.pins for blob in node.core.blobs.by_number.values())


def test_a_turn_writes_a_share_of_all_connections_together(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who had none in one turn is first in the next: all of them end about together."""
    monkeypatch.setattr(sending_out, "PUMP_BYTES", 300 * KIB)
    node = start(rig)
    sender, link = sending(rig, node)
    sender.send(link, body(8 * LARGE))
    rig.settle()
    core = node.core
    assert core is not None
    ended: list[int] = []
    turns: list[tuple[int, int]] = []
    original = sending_out._pump_one

    def counted(peer: Peer) -> int:
        size = original(peer)
        turns.append((core.work.turns, size))
        if not peer.sends:
            ended.append(core.work.turns)
        return size

    monkeypatch.setattr(sending_out, "_pump_one", counted)
    readers = [rig.client(node) for _ in range(10)]
    for reader in readers:
        reader.receiver("work", credit=1, source={"distribution_mode": Symbol("copy")})
    rig.settle()
    assert all(len(reader.bodies()[0]) == 8 * LARGE for reader in readers)
    by_turn = Counter[int]()
    for turn, size in turns:
        by_turn[turn] += size
    assert 0 < max(by_turn.values()) <= 300 * KIB + sending_out.TURN_BYTES + sending_out.STEP_BYTES
    assert len(ended) == 10 and max(ended) - min(ended) <= 12


def test_who_takes_nothing_now_keeps_nobody_else_from_large_messages(rig: Rig) -> None:
    node = start(rig)
    sender, link = sending(rig, node)
    sender.send(link, body(LARGE))
    rig.settle()
    first = held(rig, node)
    first.receiver("work", credit=1, source={"distribution_mode": Symbol("copy")})
    rig.settle()
    assert node.core is not None
    (peer,) = node.core.connections.sending
    node.handle(events.WritingPaused(connection=peer.number))
    assert not peer.writable and peer in node.core.connections.sending
    second = rig.client(node)
    second.receiver("work", credit=1, source={"distribution_mode": Symbol("copy")})
    rig.run(2)
    assert [len(text) for text in second.bodies()] == [LARGE]
