"""Messages above `stream_bytes` that something befalls: aborted, cut, refused, too long; never in part (ADR 0014)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.broker.stored import records
from holdfast.engine.port import Batch
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.state import blobs
from holdfast.units import KIB, MIB
from support import today
from support.rig import Client, Rig
from support.streams import LARGE, LIMITS, begun, body, is_clean, pieces, sending, start


@pytest.fixture
def rig() -> Rig:
    return Rig()


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


@pytest.mark.parametrize("upto", [10, 150 * KIB])
def test_an_aborted_delivery_gives_its_credit_back(rig: Rig, upto: int) -> None:
    """It held the one place of a queue for one message: nothing else happens there that would refill the link."""
    node = start(rig, queues=(QueueConfig(name="work", messages_max=1),))
    client, link = sending(rig, node)
    assert link.credit == 1
    payload = Message(data=[body(LARGE).encode()]).encode()
    outgoing = begun(client, link, payload, upto)
    rig.settle()
    assert link.credit == 0
    outgoing.abort()
    client.flush()
    rig.settle()
    assert link.credit == 1
    client.send(link, "next")
    rig.run(1)
    assert node.bodies("work") == ["next"]


@pytest.mark.parametrize("aborts", [False, True])
def test_a_request_in_parts_gives_its_credit_back(rig: Rig, aborts: bool) -> None:
    node = start(rig, limits=Limits(stream_bytes=16 * KIB, requests_max=2))
    client, link = sending(rig, node, "$management")
    payload = Message(data=[body(60 * KIB).encode()]).encode()
    for _ in range(5):
        assert link.credit > 0
        outgoing = begun(client, link, payload, 50 * KIB)
        rig.settle()
        if aborts:
            outgoing.abort()
        else:
            outgoing.feed(payload[50 * KIB :])
            outgoing.end()
            outgoing.flush(len(payload))
        client.flush()
        rig.settle()


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


# --------------------------------------------------------------------------------------------------- any cut, any crash


@pytest.mark.parametrize("seed", today.some(range(12), 4))
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


class Defect(Exception):
    """Raised where nothing is wrong."""


def test_pieces_that_go_in_a_turn_whose_end_failed_go_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn is handed over anew: what the try that failed had reckoned is reckoned again, and counts once."""
    monkeypatch.setattr(blobs, "DROP_PIECES", 8)
    node = start(rig)
    client, link = sending(rig, node)
    for name in "ab":
        client.send(link, body(LARGE, name))  # five pieces each: the second goes in part
    rig.settle()
    taking = rig.client(node)
    taking.receiver("work")
    rig.settle()
    left = [Defect("of a record")]
    pack = records.pack_blob
    drops: list[tuple[int, int, int]] = []

    def fail(record: records.BlobRecord) -> bytes:
        if record.first and left:
            raise left.pop()
        return pack(record)

    def commit(batch: Batch) -> None:
        drops.extend(batch.drops)
        whole(batch)

    whole = node.store.commit
    monkeypatch.setattr(node.store, "commit", commit)
    monkeypatch.setattr(records, "pack_blob", fail)
    taking.accept()
    rig.run(2)
    assert node.core is not None and not left and node.core.commits_failed == 0
    assert len(drops) == len(set(drops)) and sum(end - first for _, first, end in drops) == 10
    assert is_clean(node)
