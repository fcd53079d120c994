"""Messages whose time to live is over leave within seconds also on their way to another node, and while they wait for
an earlier number; nobody waits for theirs (ADR 0023)."""

from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Header
from holdfast.broker.entries import entry
from holdfast.broker.stored import records
from holdfast.core import undo
from holdfast.settings.queues import QueueConfig
from holdfast.state.catalog import WAITING
from support.rig import Node, Rig
from support.streams import LARGE, LIMITS, body

WITHIN_S = 3.0
STRICT = {"queues": (QueueConfig(name="work", order="strict"),)}


def pair(**hub: Any) -> tuple[Rig, Node, Node]:
    """jfk, which cannot reach the hub, whose queue is strict; a message came before."""
    rig = Rig()
    jfk, hub_node = rig.pair(**{**STRICT, **hub})
    rig.run(3)
    send(rig, jfk, ["first"])
    rig.run(2)
    assert hub_node.bodies("work") == ["first"]
    hub_node.crash()
    rig.settle()
    return rig, jfk, hub_node


def send(rig: Rig, node: Node, bodies: list[str], ttl_s: float | None = None) -> None:
    client = rig.client(node)
    link = client.sender("work@hub")
    rig.settle()
    for text in bodies:
        client.send(link, text, header=None if ttl_s is None else Header(ttl=int(ttl_s * 1000)))
    rig.settle()
    client.close_transport()
    rig.settle()


def stones(node: Node, name: str = "@hub") -> list[bool]:
    """Of what is stored in the queue, by sequence: whether it is a tombstone."""
    found = node.queue(name).read(0, count_max=10**6, bytes_max=2**40)
    return [bool(value[1] & entry.TOMBSTONE) for _, value in found]


def depth(node: Node, name: str = "@hub") -> int:
    queue = node.queue(name)
    return int(queue.messages - queue.tombstones)


def has(node: Node, text: str, name: str = "@hub") -> bool:
    found = node.queue(name).read(0, count_max=10**6, bytes_max=2**40)
    return any(text.encode() in value for _, value in found)


@pytest.mark.parametrize("restart", [False, True])
def test_what_expires_on_its_way_leaves_a_tombstone_in_its_place(restart: bool) -> None:
    rig, jfk, hub = pair()
    send(rig, jfk, ["a"])
    send(rig, jfk, ["x" * 5_000] * 3, ttl_s=1.0)
    send(rig, jfk, ["b"])
    before = jfk.queue("@hub").bytes_held
    if restart:
        jfk.crash()
        jfk.start()
    rig.run(1 + WITHIN_S)
    assert stones(jfk) == [False, True, True, True, False] and not has(jfk, "xxxx")
    assert depth(jfk) == 2 and jfk.queue("@hub").bytes_held < before - 14_000
    assert jfk.queue("@hub").expired_total == 3
    hub.start()
    rig.run(10)
    assert hub.bodies("work") == ["first", "a", "b"]
    assert jfk.queue("@hub").messages == jfk.queue("@hub").bytes_held == jfk.queue("@hub").tombstones == 0


def test_a_deep_backlog_on_its_way_ends_in_bounded_steps() -> None:
    rig, jfk, hub = pair()
    send(rig, jfk, [str(number) for number in range(3_000)], ttl_s=1.0)
    assert depth(jfk) == 3_000
    turns = jfk.turns
    rig.run(1 + WITHIN_S)
    assert depth(jfk) == 0 and jfk.turns - turns >= 3
    hub.start()
    rig.run(15)
    assert hub.bodies("work") == ["first"] and jfk.queue("@hub").messages == 0


def test_what_is_in_doubt_ends_once_the_session_is_lost_in_which_it_was_sent() -> None:
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(3)
    send(rig, jfk, ["first"])
    rig.run(2)
    hub.hold_commits = True
    send(rig, jfk, ["x"], ttl_s=1.0)
    assert jfk.queue("@hub").shared.acquired
    rig.run(1 + WITHIN_S)
    assert stones(jfk) == [False]
    hub.crash()
    hub.hold_commits = False
    rig.run(WITHIN_S)
    assert stones(jfk) == [True]
    hub.start()
    send(rig, jfk, ["after"])
    rig.run(10)
    assert hub.bodies("work") == ["first", "after"]
    assert jfk.queue("@hub").messages == jfk.queue("@hub").bytes_held == jfk.queue("@hub").tombstones == 0


def test_what_ended_in_doubt_and_was_stored_there_leaves_as_it_is_told() -> None:
    """Its tombstone takes nothing from what the neighbour has."""
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(3)
    hub.hold_commits = True
    send(rig, jfk, ["x"], ttl_s=1.0)
    for wire in rig.between("jfk", "hub"):
        wire.silent = True  # what the hub stores it cannot tell
    hub.hold_commits = False
    rig.settle()
    assert hub.bodies("work") == ["x"]
    rig.refuse_dials = True
    for wire in rig.between("jfk", "hub"):
        wire.cut()
    rig.run(1 + WITHIN_S)
    assert stones(jfk) == [True]
    rig.refuse_dials = False
    send(rig, jfk, ["after"])
    rig.run(30)
    assert hub.bodies("work") == ["after"] and hub.queue("work").expired_total == 1
    assert jfk.queue("@hub").messages == jfk.queue("@hub").bytes_held == jfk.queue("@hub").tombstones == 0


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_full_disk_undoes_an_end_on_the_way_and_it_comes_again(refusals: int) -> None:
    rig, jfk, hub = pair()
    send(rig, jfk, ["x"] * 5, ttl_s=1.0)
    before = jfk.queue("@hub").bytes_held
    jfk.refuse = refusals
    core = jfk.core
    assert core is not None
    for _ in range(refusals):
        while jfk.refuse == refusals:
            rig.run(0.5)
        assert (depth(jfk), jfk.queue("@hub").bytes_held, jfk.queue("@hub").expired_total) == (5, before, 0)
        refusals = jfk.refuse
        core.room.bytes = 10**9
    rig.run(2 * WITHIN_S)
    assert depth(jfk) == 0 and jfk.queue("@hub").expired_total == 5 and stones(jfk) == [True] * 5
    core.validate()
    hub.start()
    send(rig, jfk, ["after"])
    rig.run(10)
    assert hub.bodies("work") == ["first", "after"]


def test_a_turn_that_is_undone_has_them_as_they_were() -> None:
    rig, jfk, _ = pair()
    send(rig, jfk, ["x"] * 5, ttl_s=1.0)
    jfk.hold_commits = True
    send(rig, jfk, ["y"])
    rig.run(1 + WITHIN_S)
    core = jfk.core
    assert core is not None and core.turns.gathered.rewritten and depth(jfk) == 1
    undo.take_back_gathered(core, ())
    assert depth(jfk) == 6
    jfk.hold_commits = False
    rig.run(WITHIN_S)
    assert depth(jfk) == 1 and jfk.queue("@hub").expired_total == 5


def test_what_is_undone_in_a_queue_that_is_deleted_is_looked_for_no_more() -> None:
    """By nobody: neither in this life nor, by the row that says where to look, in the next."""
    rig, jfk, _ = pair()
    send(rig, jfk, ["x"] * 5, ttl_s=1.0)
    jfk.hold_commits = True
    send(rig, jfk, ["y"])
    rig.run(1 + WITHIN_S)
    core, queue = jfk.core, jfk.queue("@hub")
    assert core is not None and core.turns.gathered.rewritten and core.turns.gathered.decided
    core.catalog.delete(queue)
    core.expiry.forget(queue)
    undo.take_back_gathered(core, ())
    row = ("node", records.timed_key(queue.queue_id))
    assert row not in core.work.batch.puts and row in core.work.batch.deletes
    assert core.work.wheel.first_s() is None


def test_without_room_for_a_tombstone_it_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, jfk, _ = pair()
    send(rig, jfk, ["x"], ttl_s=1.0)
    core = jfk.core
    assert core is not None
    with monkeypatch.context() as patch:
        patch.setattr(type(core.room), "has", lambda *_, **__: False)
        rig.run(1 + WITHIN_S)
    assert stones(jfk) == [False] and not core.turns.gathered.rewritten
    rig.run(WITHIN_S)
    assert stones(jfk) == [True]


def test_a_large_message_that_expires_on_its_way_gives_its_bytes_back() -> None:
    rig = Rig()
    jfk, hub = rig.pair(jfk={"limits": LIMITS}, **STRICT)
    rig.run(3)
    hub.crash()
    rig.settle()
    send(rig, jfk, [body(LARGE)], ttl_s=1.0)
    core = jfk.core
    assert core is not None and core.blobs.by_number and depth(jfk) == 1
    rig.run(1 + WITHIN_S)
    assert stones(jfk) == [True] and not core.blobs.by_number and not core.blobs.by_place
    core.validate()
    hub.start()
    send(rig, jfk, ["after"])
    rig.run(10)
    assert hub.bodies("work") == ["after"]


@pytest.mark.parametrize("restart", [False, True])
def test_what_expires_while_it_waits_for_an_earlier_one_leaves(restart: bool) -> None:
    """The number of the message that expired is done with: when the earlier one comes, the later ones follow."""
    rig, jfk, hub, gap = waiting([None, 1.0, 1.0, None])
    if restart:
        hub.crash()
        hub.start()
    rig.run(1 + WITHIN_S)
    assert hub.bodies(WAITING) == ["0", "3"] and hub.queue(WAITING).expired_total == 2
    assert hub.bodies("work") == ["first"]
    gap()
    rig.run(10)
    assert hub.bodies("work") == ["first", "gap", "0", "3"] and hub.queue(WAITING).messages == 0
    send(rig, jfk, ["after"])
    rig.run(5)
    assert hub.bodies("work")[-1] == "after"


def test_a_full_disk_undoes_the_end_of_what_waits_and_it_comes_again() -> None:
    rig, _, hub, gap = waiting([1.0, None])
    core = hub.core
    assert core is not None
    hub.hold_commits = True
    send(rig, hub, ["busy"])  # a commit under way, for the turn behind it to be undone
    rig.run(1 + WITHIN_S)
    assert core.turns.gathered.moves
    undo.take_back_gathered(core, ())
    assert hub.queue(WAITING).messages == 2 and hub.queue(WAITING).expired_total == 0
    hub.hold_commits = False
    rig.run(WITHIN_S)
    assert hub.bodies(WAITING) == ["1"] and hub.queue(WAITING).expired_total == 1
    core.validate()
    gap()
    rig.run(10)
    assert [text for text in hub.bodies("work") if text != "busy"] == ["first", "gap", "1"]


def waiting(ttls_s: list[float | None]) -> tuple[Rig, Node, Node, Any]:
    """Messages with these times to live wait at the hub for one before them; what brings that."""
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(3)
    send(rig, jfk, ["first"])
    rig.run(2)
    hub.crash()
    rig.settle()
    send(rig, jfk, ["gap"])
    queue = jfk.queue("@hub")
    ((sequence, value),) = queue.read(0, count_max=10, bytes_max=10**6)
    stopped, queue.stopped = queue.stopped, True
    jfk.checks = False
    shared = queue.shared
    shared.position = sequence + 1  # it is nowhere, as if another node had it
    for number, ttl_s in enumerate(ttls_s):
        send(rig, jfk, [str(number)], ttl_s=ttl_s)
    queue.stopped = stopped
    hub.start()
    rig.run(0.5)
    assert hub.queue(WAITING).messages == len(ttls_s)

    def gap() -> None:
        shared.requeued.append(sequence)
        queue.touch()

    assert value
    return rig, jfk, hub, gap


def test_a_store_of_an_earlier_version_is_looked_through_once() -> None:
    """It kept no row for transmission queues."""
    rig, jfk, _ = pair()
    send(rig, jfk, ["x"], ttl_s=1.0)
    jfk.crash()
    tables = jfk.store._tables
    for key, value in dict(jfk.store.table("queues")).items():
        tables["queues", key] = records.pack_map({**records.unpack_map(value), "timed": True})
    for table, key in [key for key in tables if key[0] == "node" and key[1][:1] == records.TIMED]:
        del tables[table, key]
    jfk.start()
    rig.run(1 + WITHIN_S)
    assert stones(jfk) == [True]


def test_time_to_live_goes_on_while_a_message_of_a_neighbour_waits_for_room() -> None:
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=1, when_full="block"),))
    rig.run(8)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    for number, ttl in enumerate((None, 5_000, 1_200_000)):
        client.send(link, f"{number}", header=Header(durable=True, ttl=ttl))
        rig.settle()
    rig.run(600)
    reader = rig.client(hub)
    reader.receiver("work")
    seen = []
    for _ in range(8):
        seen += [(message.body_bytes(), message.header.ttl) for message in reader.messages()]
        reader.accept()
        rig.run(0.5)
    assert [number for number, _ in seen] == [b"0", b"2"] and seen[1][1] < 610_000
    assert jfk.queue("@hub").messages == 0
