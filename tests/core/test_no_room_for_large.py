"""A large message that the next hop has no room for: known before it has come, told, and tried again."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Rejected
from holdfast.core.node import NodeCore
from holdfast.settings.limits import Limits
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.memory import MemoryStore
from holdfast.units import KIB, MIB
from support import today
from support.rig import Client, Node, Rig
from support.streams import body

LIMITS = Limits(stream_bytes=100 * KIB)
LARGE = body(3 * MIB)


def joined(bytes_max: int) -> tuple[Rig, Node, Node, Node]:
    """a, b and c in a row, of which b's store has so many bytes. Who hears is before who goes on saying it."""
    rig = Rig()
    c, b, a = rig.line("c", "b", "a", **{name: {"limits": LIMITS} for name in "abc"}, start=False)
    b.store = MemoryStore(bytes_max=bytes_max, mint_from=rig.uuid)
    for node in (a, b, c):
        node.start()
    rig.run(8)
    return rig, a, b, c


@contextmanager
def on_lmdb(tmp_path: Path, size: int, **fields: Any) -> Iterator[tuple[Rig, Node, NodeCore, LmdbStore]]:
    """A node alone, on a store of LMDB's of so many bytes."""
    rig = Rig()
    node = rig.node("hub", start=False, **fields)
    store = LmdbStore(tmp_path / "store", bytes_max=size)
    node.store = store  # type: ignore[assignment]
    try:
        node.start()
        assert node.core is not None
        yield rig, node, node.core, store
    finally:
        store.close()


def put(rig: Rig, node: Node, *texts: str, address: str = "work@c") -> Client:
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    for text in texts:
        client.send(link, text, context=text[:8], properties=Properties(message_id=text[:8]))
        rig.settle()
    return client


def crossing(rig: Rig, node: Node) -> list[int]:
    """Bytes that come to a node from a neighbour, each time."""
    sizes: list[int] = []
    receive = node.handle

    def handle(event: Any) -> None:
        if hasattr(event, "data"):
            sizes.append(len(event.data))
        receive(event)

    node.handle = handle  # type: ignore[method-assign]
    return sizes


def warnings(rig: Rig, node: Node) -> list[str]:
    return [str(line) for line in rig.client(node).manage("STATUS", "node")[1]["warnings"]]


def test_it_waits_where_it_is_until_there_is_room() -> None:
    """Each try costs a frame; both ends say what waits; what is behind it goes when it goes."""
    rig, a, b, c = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    sizes = crossing(rig, b)
    put(rig, a, "before", LARGE, "behind")
    rig.run(200)
    assert c.bodies("work") == ["before"] and a.queue("@c").messages == 2
    assert sum(sizes) < MIB, "it came again and again"
    (told,) = [line for line in warnings(rig, b) if "neighbour a" in line]
    assert re.search(
        "a message of 31457.. bytes or more for 'c' waits there for room, and so do all messages behind it", told
    )
    (told,) = [line for line in warnings(rig, a) if "neighbour b" in line]
    assert "it has no place for number 2 of a for 'c'" in told
    where = rig.client(a).manage("WHERE", "node", message_id=LARGE[:8])[1]
    assert where["waits_for"] == "a place at 'b', which has had none for it yet"
    consumer = rig.client(b)
    consumer.receiver("kept")
    rig.settle()
    while consumer.accept():
        rig.run(1)
    rig.run(60)
    assert c.bodies("work") == ["before", LARGE, "behind"] and a.queue("@c").messages == 0
    rig.run(130)
    assert not warnings(rig, a) and not warnings(rig, b)


def test_what_a_store_can_never_hold_is_larger_than_it_takes() -> None:
    rig, a, b, c = joined(4 * MIB)
    assert b.core is not None and b.core.large_receives.bytes_most() < len(LARGE)
    put(rig, a, "before", LARGE, "behind")
    rig.run(10)
    assert c.bodies("work") == ["before", "behind"] and a.queue("@c").messages == 0
    assert a.bodies("$dead-letters") == [LARGE]


def test_a_client_hears_the_difference() -> None:
    """`holdfast:try-later` is said of what may fit another time, and of nothing else."""
    rig, _, b, _ = joined(4 * MIB)
    client = put(rig, b, LARGE, address="work")
    ((_, state),) = client.outcomes
    assert isinstance(state, Rejected) and state.error is not None and not state.error.info
    assert "larger than this node's store can hold; the limit is about" in str(state.error.description)
    rig, _, b, _ = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    ((_, state),) = put(rig, b, LARGE, address="work").outcomes
    assert isinstance(state, Rejected) and state.error is not None and state.error.info


@pytest.mark.parametrize("knows", [True, False])
def test_a_neighbour_that_does_not_say_how_long_it_is_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    """An earlier version says nothing, and is answered as soon as there is no room for what came."""
    rig, a, b, c = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    if not knows:
        monkeypatch.setattr("holdfast.custody.transfers.carried.length_of", lambda payload: 0)
    put(rig, a, LARGE, "behind")
    rig.run(20)
    assert "work" not in c.core.catalog.queues
    consumer = rig.client(b)
    consumer.receiver("kept")
    rig.settle()
    while consumer.accept():
        rig.run(1)
    rig.run(60)
    assert c.bodies("work") == [LARGE, "behind"]
    rig.run(5)
    assert not any(len(node.store._blobs) for node in (a, b))


@pytest.mark.parametrize("size", today.some([8 * MIB, 32 * MIB], 1))
@pytest.mark.parametrize(("share", "fits"), [(0.97, True), (1.0, False)])
def test_what_an_empty_store_could_hold_it_holds(tmp_path: Path, size: int, share: float, fits: bool) -> None:
    with on_lmdb(tmp_path, size) as (rig, node, core, _):
        most = core.large_receives.bytes_most()
        assert size * 3 // 8 < most < size
        ((_, state),) = put(rig, node, body(int(most * share)), address="work").outcomes
        assert isinstance(state, Accepted) == fits


@pytest.mark.parametrize("size", [*today.some([8 * MIB, 16 * MIB], 1), pytest.param(64 * MIB, marks=pytest.mark.slow)])
def test_between_too_large_and_taken_there_is_nothing(tmp_path: Path, size: int) -> None:
    """Also once much was stored and has left: else what is no larger than it may be would wait for ever."""
    with on_lmdb(tmp_path, size, limits=Limits(connection_unstored_bytes_max=64 * MIB)) as (rig, node, core, store):
        most = core.large_receives.bytes_most()
        assert core.large_receives.has_room(most)
        for _ in range(3):
            client = put(rig, node, body(most - 4 * KIB), address="work")
            assert isinstance(client.outcomes[0][1], Accepted)
            consumer = rig.client(node)
            consumer.receiver("work")
            rig.settle()
            assert len(consumer.accept()) == 1
            rig.run(5)
            consumer.close_transport()
        rig.run(5)
        store._room._measure_at = 0.0  # what is free is counted now and then, by the machine's clock
        assert core.large_receives.has_room(most)


def test_on_a_busy_node_a_try_costs_a_frame_too() -> None:
    """Where a commit is always under way, nobody knows the room exactly; it is surely no more than without it."""
    rig, a, b, c = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    client = rig.client(b)
    link = client.sender("busy")
    client.receiver("busy")
    rig.settle()
    sizes = crossing(rig, b)
    put(rig, a, LARGE)
    for number in range(600):
        b.hold_commits = True
        client.send(link, f"{number}")
        client.accept()
        rig.run(0.05)
        b.hold_commits = False
        if b.pending is not None:
            b.finish_commit()
    assert sum(sizes) < MIB and "work" not in c.core.catalog.queues


def test_where_unfinished_messages_are_at_their_bound_a_try_costs_a_frame_too() -> None:
    rig, a, b, _ = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    assert b.core is not None
    b.core.pressure.partials.held_max = 0
    sizes = crossing(rig, b)
    put(rig, a, LARGE)
    rig.run(30)
    assert sum(sizes) < MIB and len(warnings(rig, b)) == 1


def test_of_an_earlier_version_s_messages_it_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.custody.transfers.carried.length_of", lambda payload: 0)
    rig, a, b, _ = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    put(rig, a, LARGE)
    rig.run(30)
    assert len([line for line in warnings(rig, b) if "neighbour a: a message of" in line]) == 1


def test_a_link_that_has_failed_takes_no_more_than_a_frame() -> None:
    """Its sender did not hear that it failed: it had given the message up in that moment."""
    rig, a, b, c = joined(8 * MIB)
    put(rig, a, "before")
    rig.run(1)
    assert b.core is not None
    (receiver,) = [found for found in b.core.links.custody_receivers.values() if found.destination == "c"]
    receiver.failed = True
    sizes = crossing(rig, b)
    put(rig, a, LARGE)
    rig.run(0.5)
    assert sum(sizes) < MIB
    rig.run(5)
    assert c.bodies("work") == ["before", LARGE]


def test_one_with_a_priority_says_its_length_too() -> None:
    """Whatever is unusual of it."""
    rig, a, b, _ = joined(8 * MIB)
    put(rig, b, *[body(90 * KIB, f"{number:03d}") for number in range(40)], address="kept")
    sizes = crossing(rig, b)
    client = rig.client(a)
    link = client.sender("work@c")
    rig.settle()
    client.send(link, LARGE, header=Header(priority=7, durable=True))
    rig.run(20)
    assert sum(sizes) < MIB // 2
