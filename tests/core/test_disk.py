"""A full disk and one that does not answer: what clients and neighbours are told, and that nothing is lost."""

from typing import Any

import pytest

from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Rejected
from holdfast.broker import purge
from holdfast.core import turn_end
from holdfast.engine import events
from holdfast.links.disk import RETRY_S, ROOM_BYTES, ROOMY_S
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.storage.memory import MemoryStore
from support import streams
from support.hops import STRICT, is_empty, names, send
from support.rig import Client, Node, Rig
from support.routing import agree, network, path

SLOW_S = 6.0
"""Longer than the default of commit_stall_s."""


def small_disk(*queues: QueueConfig, **limits: Any) -> tuple[Rig, Node, Client]:
    """A node whose store takes somewhat more than two messages of 100 kB before its room is down to ROOM_BYTES."""
    rig = Rig()
    node = rig.node("hub", start=False, queues=queues, limits=Limits(**limits))
    node.store = MemoryStore(bytes_max=(ROOM_BYTES + 250_000) * 16 // 7, mint_from=rig.uuid)
    node.start()
    return rig, node, rig.client(node)


def body(number: int) -> str:
    return f"{number}".ljust(100_000)


def numbers(bodies: list[str]) -> list[str]:
    return [each.strip() for each in bodies]


def state(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.manage("STATUS", "node")[1]["disk"]
    return {str(key): value for key, value in found.items()}


def test_a_full_disk_gives_no_credit_and_answers_when_there_is_room() -> None:
    rig, node, client = small_disk()
    link = client.sender("work")
    rig.settle()
    for number in range(1, 31):
        client.send(link, body(number))
    rig.settle()
    stored = len(client.outcomes)
    assert 2 <= stored < 20 and all(outcome == Accepted() for _, outcome in client.outcomes)
    assert len(node.bodies("work")) == stored
    rig.run(3)
    assert len(client.outcomes) == stored and state(rig.client(node))["state"] == "full"
    idle = rig.client(node)
    late = idle.sender("work")
    rig.settle()
    assert late.attached and late.credit == 0
    consumer = rig.client(node)
    reader = consumer.receiver("work")
    seen: list[str] = []
    for _ in range(60):
        seen += consumer.accept(link=reader)
        rig.run(0.5)
    assert numbers(seen) == names(1, 30)
    assert len(client.outcomes) == 30 and all(outcome == Accepted() for _, outcome in client.outcomes)
    assert late.credit > 0 and link.credit > 0 and state(rig.client(node))["state"] == "ok"


def test_a_link_that_was_taken_over_waits_for_no_room() -> None:
    """Its connection may be gone long before there is any."""
    rig, node, client = small_disk()
    link = client.sender("work", properties={PRODUCER: "me"})
    rig.settle()
    for number in range(1, 11):
        client.send(link, body(number), number=number)
    rig.settle()
    assert node.core is not None and state(rig.client(node))["state"] == "full"
    newer = rig.client(node).sender("work", properties={PRODUCER: "me"})
    rig.settle()
    assert newer.attached and link.detached
    node.ends[min(node.core.connections)].lose("gone")
    rig.run(2)
    node.core.validate()


def test_what_is_under_way_beyond_parked_bytes_max_is_rejected_and_never_released() -> None:
    rig, node, client = small_disk(parked_bytes_max=300_000)
    link = client.sender("work")
    rig.settle()
    for number in range(1, 31):
        client.send(link, body(number))
    rig.settle()
    refused = [outcome for _, outcome in client.outcomes if outcome != Accepted()]
    assert refused and all(isinstance(outcome, Rejected) for outcome in refused)
    assert {outcome.error.condition for outcome in refused} == {"amqp:resource-limit-exceeded"}
    assert len(node.bodies("work")) + len(refused) == len(client.outcomes)


@pytest.mark.parametrize("room_bytes", [-5_000, 0, 10**9])
def test_after_a_refusal_there_is_no_room_until_a_commit_says_so(room_bytes: int) -> None:
    """Whatever the store says with the refusal: it took less than it had said before."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(link, "1")
    rig.settle()
    core, commit = node.core, node.pending
    assert core is not None and commit is not None
    node.pending = None
    node.handle(events.CommitRefused(number=commit.number, room_bytes=room_bytes))
    assert core.room.bytes == min(0, room_bytes) and core.disk.full
    assert not core.disk.gives_credit(node.queue("work"))
    node.hold_commits = False
    rig.run(5.0)
    assert core.room.bytes > ROOM_BYTES and not core.disk.full
    client.send(link, "2")
    rig.settle()
    assert node.bodies("work") == ["2"] and [type(state) for _, state in client.outcomes] == [Rejected, Accepted]


def test_a_queue_that_refuses_rejects_on_a_full_disk() -> None:
    rig, _, client = small_disk(QueueConfig(name="work", when_full="refuse"))
    link = client.sender("work")
    rig.settle()
    for number in range(1, 31):
        client.send(link, body(number))
    rig.settle()
    assert len(client.outcomes) == 30 and link.credit > 0
    assert {type(outcome) for _, outcome in client.outcomes} == {Accepted, Rejected}


def test_a_queue_in_memory_heeds_no_full_disk() -> None:
    rig, node, client = small_disk(QueueConfig(name="quick", durable=False))
    node.unwatched.add("quick")
    full, link = client.sender("work"), client.sender("quick")
    rig.settle()
    for number in range(1, 31):
        client.send(full, body(number))
    rig.settle()
    done = len(client.outcomes)
    client.send(link, body(1))
    rig.settle()
    assert client.outcomes[done:] == [(body(1), Accepted())] and link.credit > 0


# ------------------------------------------------------------------------------------------------ a disk that stalls


def test_commit_stall_s() -> None:
    rig = Rig()
    node = rig.node("hub", limits=Limits(commit_stall_s=2.0))
    client, other = rig.client(node), rig.client(node)
    link, idle = client.sender("work"), other.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(link, "1")
    rig.run(1.9)
    assert state(other)["state"] == "ok" and link.credit > 0 and idle.credit > 0
    rig.run(0.2)
    told = state(other)
    assert (told["state"], told["stalls"]) == ("stalled", 1) and told["commit_s"] >= 2.0
    assert link.credit == idle.credit == 0 and not client.outcomes
    assert sum("the disk has not answered a commit for 2 s" in line for line in node.logs) == 1
    node.hold_commits = False
    rig.settle()
    assert client.outcomes == [("1", Accepted())] and link.credit > 0 and idle.credit > 0
    assert state(other)["state"] == "ok" and any("the disk answers again, after 2.1 s" in line for line in node.logs)


def test_a_link_with_messages_that_wait_has_no_credit_left_in_a_stall_either() -> None:
    rig = Rig()
    full = QueueConfig(name="full", messages_max=1)
    node = rig.node("hub", limits=Limits(commit_stall_s=2.0), queues=(full,))
    client, other = rig.client(node), rig.client(node)
    link, twin, work = client.sender("full"), client.sender("full"), other.sender("work")
    rig.settle()
    for number, each in enumerate((link, twin)):
        client.send(each, str(number))
    rig.settle()
    (waiting,) = [each for each in node.core.links.producers_of(node.queue("full")) if each.parked]
    waiting.link.grant(5)
    waiting.peer.touch()
    rig.settle()
    node.hold_commits = True
    other.send(work, "1")
    rig.run(2.1)
    assert link.credit == twin.credit == 0


def test_a_stalled_disk_that_turns_out_full_is_over_too() -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    node.hold_commits, node.refuse = True, 1
    client.send(link, "1")
    rig.run(SLOW_S)
    node.hold_commits = False
    rig.run(2)
    assert isinstance(client.outcomes[0][1], Rejected) and state(client)["state"] == "ok" and link.credit > 0


def test_neighbours_hear_of_it_and_keep_the_session_and_their_messages() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    hub.hold_commits = True
    client.send(link, "1")
    rig.run(SLOW_S)
    neighbour = jfk.core.neighbours["hub"]
    assert neighbour.established and jfk.core.disk.stalled_at(neighbour)
    assert any("neighbour hub: its disk does not answer" in line for line in jfk.logs)
    assert neighbour.hop.senders["hub"].link.credit == 0
    for number in range(2, 9):
        client.send(link, str(number))
    rig.run(60)
    assert neighbour.established and neighbour.flaps == 0
    assert rig.client(jfk).manage("STATUS", "node")[1]["sessions"][0]["disk_stalled"] is True
    hub.hold_commits = False
    rig.run(2)
    assert hub.bodies("work") == names(1, 8) and not jfk.core.disk.stalled_at(neighbour)


def test_a_failure_in_telling_one_neighbour_leaves_the_others_told() -> None:
    rig = Rig()
    hub, *others = rig.graph("hub-a", "hub-b", "hub-c")
    rig.run(3)
    hub.hold_commits = True
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    client.send(link, "1")
    rig.settle()
    rig.run(hub.core.config.limits.commit_stall_s + 1)

    def told() -> list[bool]:
        return [node.core.disk.stalled_at(node.core.neighbours["hub"]) for node in others]

    assert hub.core.disk.stalled and told() == [True, True, True]
    hub.core.neighbours["a"].send = fails
    hub.hold_commits = False
    rig.run(0.5)
    assert not hub.core.disk.stalled and told()[1:] == [False, False]


def fails(*_: object, **__: object) -> bool:
    raise RuntimeError("planted")


def test_the_end_of_a_stall_reaches_a_neighbour_whose_credit_was_used_up() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    ours, theirs = hub.core.neighbours["jfk"], jfk.core.neighbours["hub"]
    rig.client(jfk).sender("work@hub")
    client = rig.client(hub)
    link = client.sender("here")
    rig.settle()
    hub.hold_commits = True
    client.send(link, "1")
    rig.run(SLOW_S)
    assert jfk.core.disk.stalled_at(theirs)
    control = ours.control.link
    credit, control.credit = control.credit, 0
    hub.hold_commits = False
    rig.settle()
    assert not hub.core.disk.stalled and jfk.core.disk.stalled_at(theirs)
    control.credit = credit
    ours.control.credited()
    hub.due = True
    rig.settle()
    assert not jfk.core.disk.stalled_at(theirs)


def test_a_session_that_begins_meanwhile_hears_of_it() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    client = rig.client(hub)
    link = client.sender("own")
    rig.settle()
    hub.hold_commits = True
    client.send(link, "1")
    rig.run(SLOW_S)
    for wire in rig.between("jfk", "hub"):
        wire.cut()
    rig.run(8)
    neighbour = jfk.core.neighbours["hub"]
    assert neighbour.established and jfk.core.disk.stalled_at(neighbour)
    hub.crash()
    rig.run(1)
    assert not jfk.core.disk.stalled_at(neighbour)


@pytest.mark.parametrize("said", [None, 1, "yes", [True]])
def test_another_word_for_stalled_is_none(said: Any) -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    hub.core.neighbours["jfk"].send({"kind": "disk", "stalled": said})
    rig.run(1)
    assert not jfk.core.disk.stalled_at(jfk.core.neighbours["hub"])


def test_a_proper_stop_waits_for_no_stalled_disk_in_the_core() -> None:
    """The driver ends without it (tests/node/test_runtime.py); here the core says that it is not done."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(link, "1")
    rig.run(SLOW_S)
    node.handle(events.Stopping())
    rig.run(3)
    assert not node.stopped and not client.outcomes
    node.hold_commits = False
    rig.run(1)
    assert node.stopped


def test_no_way_leads_through_a_node_whose_disk_stalls() -> None:
    rig = Rig()
    a, b, d, _ = nodes = network(rig, "a-b", "b-d", "a-c", "c-d", supers=("a",), costs={"a-c": 2.0}, d=STRICT)
    rig.run(3)
    assert path(a, "d") == "abd"
    client = rig.client(b)
    link = client.sender("work@d")
    rig.settle()
    b.hold_commits = True
    client.send(link, "0")
    rig.run(SLOW_S)
    assert path(a, "d") == "acd" and path(d, "a") == "dca" and agree(*nodes)
    send(rig, a, *names(1, 5))
    rig.run(2)
    assert d.bodies("work") == names(1, 5)
    rig.run(30)  # heartbeats go on: nobody calls it lost
    assert agree(*nodes) and not any("node b is lost" in line for node in nodes for line in node.logs)
    b.hold_commits = False
    rig.run(10)
    assert path(a, "d") == "abd" and agree(*nodes)
    assert d.bodies("work") == [*names(1, 5), "0"] and is_empty(*nodes)
    assert all(neighbour.flaps == 0 for node in nodes for neighbour in node.core.neighbours.values())


def test_a_session_with_a_stalled_node_that_begins_anew_is_no_way() -> None:
    rig = Rig()
    a, b, *_ = nodes = network(rig, "a-b", "b-d", "a-c", "c-d", supers=("a",), costs={"a-c": 2.0})
    rig.run(3)
    client = rig.client(b)
    link = client.sender("work")
    rig.settle()
    b.hold_commits = True
    client.send(link, "0")
    rig.run(SLOW_S)
    for wire in rig.between("a", "b"):
        wire.cut()
    rig.run(8)
    assert a.core.neighbours["b"].established and path(a, "d") == "acd"
    b.hold_commits = False
    rig.run(10)
    assert path(a, "d") == "abd" and agree(*nodes)


# ------------------------------------------------------------------------------------------------ the next try


def at_rest(rig: Rig, node: Node) -> float:
    """When the next try is due; until then nothing moves, whatever there is to do."""
    rig.settle(500)
    core = node.core
    assert core is not None and core.disk.rests and core.turns.in_flight is None
    at, wanted = core.disk.next_deadline(), core.next_deadline()
    assert at is not None and wanted is not None and rig.now < wanted <= at <= rig.now + RETRY_S
    return at


def test_what_is_refused_twice_is_tried_once_a_second_whoever_is_there() -> None:
    """The first time it is tried at once, without what was appended; then nobody but the timer asks for it."""
    rig = Rig()
    node = rig.node("hub")
    client, consumer = rig.client(node), rig.client(node)
    link = client.sender("work")
    consumer.receiver("work")
    rig.settle()
    for number in range(3):
        client.send(link, str(number))
    rig.settle()
    node.refuse, node.refuse_all, tries = 5, True, node.tries
    consumer.accept()
    client.send(link, "no room")
    rig.settle()
    assert at_rest(rig, node) == rig.now + RETRY_S
    assert node.tries - tries == 2 and isinstance(client.outcomes[-1][1], Rejected)
    for party in (client, consumer):
        party.close_transport()
    rig.refuse_dials = True
    for tried in range(3, 6):
        at = at_rest(rig, node)
        rig.run(at - rig.now - 0.001)
        assert node.tries - tries == tried - 1
        rig.run(0.001)
        assert node.tries - tries == tried
    assert at_rest(rig, node) == rig.now + RETRY_S and not node.refuse
    rig.run(RETRY_S)
    assert node.tries - tries == 6
    assert node.core is not None and not node.core.disk.rests and node.bodies("work") == []


def test_what_is_appended_to_the_next_try_and_refused_too_rests_and_is_told_once() -> None:
    """A message comes between the refusal and the turn that tries again: it is no reason to ask the disk at once."""
    rig = Rig()
    node = rig.node("hub")
    core = node.core
    assert core is not None
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(link, "a")
    rig.settle()
    node.refuse = 2
    node.finish_commit()
    core.room.bytes = node.store.room_bytes()
    client.send(link, "b")
    client.flush()
    assert client.end is not None
    rig._deliver(client.end.wire.other(client.end))
    node.hold_commits = False
    rig.settle(500)
    assert not node.refuse and [type(state) for _, state in client.outcomes] == [Rejected, Rejected]
    at, tries = at_rest(rig, node), node.tries
    core.room.bytes = node.store.room_bytes()
    client.send(link, "c")
    rig.run(at - rig.now - 0.001)
    assert node.tries == tries and len(client.outcomes) == 2
    rig.run(0.002)
    assert client.outcomes[-1] == ("c", Accepted()) and node.bodies("work") == ["c"]
    assert len([line for line in node.logs if "the disk is full" in line]) == 1


def test_a_disk_that_refuses_the_retry_too_is_tried_once_a_second_and_told_once() -> None:
    """The retry appends nothing: it is no new word that it is refused."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    node.refuse, node.refuse_all = 4, True
    client.send(link, "1")
    rig.settle()
    left = [node.refuse]
    for _ in range(3):
        rig.run(RETRY_S)
        left.append(node.refuse)
    assert left == [2, 1, 0, 0]
    assert sum("the disk is full" in line for line in node.logs) == 1


@pytest.mark.parametrize("work", ["large", "leaving"])
def test_what_a_turn_would_go_on_with_wakes_nobody_while_the_disk_rests(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Without a commit nothing of it comes to an end: turn would follow turn until the next try."""
    monkeypatch.setattr(purge, "RECLAIM_COUNT", 2)
    monkeypatch.setattr(purge, "RETIRES_MAX", 1)
    monkeypatch.setattr(turn_end, "RETIRE_COUNT", 1)
    rig = Rig()
    node = streams.start(rig)
    client, link = streams.sending(rig, node)
    for number in range(9):
        client.send(link, str(number))
    client.send(link, streams.body(streams.LARGE))
    rig.settle()
    if work == "large":
        client.receiver("work")
        rig.settle()
        node.hold_commits = True
        client.accept()
        rig.run(0.1)
        node.finish_commit()
        node.hold_commits = False
    else:
        client.close_transport()
        rig.settle()
        assert node.core is not None
        node.core.catalog.delete(node.queue("work"))
        node.due = True
    node.refuse, node.refuse_all, tries = 3, True, node.tries
    for tried in range(1, 4):
        at = at_rest(rig, node)
        assert node.tries - tries == tried
        rig.pass_time(at - rig.now)
    rig.run(1)
    assert not node.refuse and streams.is_clean(node)


def lines(node: Node) -> list[str]:
    """What the log says of the disk's room, without what lasts (warnings.py)."""
    told = [line for line in node.logs if line.startswith("the disk ")]
    return [line for line in told if "new messages wait or are refused; " not in line]


def test_a_disk_that_fills_up_is_logged_as_taking_stops_and_as_it_goes_on() -> None:
    """GUARANTEES: at once, though no commit was refused; a line each for a spell, however often its last bytes are
    freed and taken."""
    rig, node, client = small_disk()
    link = client.sender("work")
    rig.settle()
    for number in range(1, 31):
        client.send(link, body(number))
    rig.settle()
    assert len(client.outcomes) < 30
    (full,) = lines(node)
    assert full.startswith("the disk is full: new messages wait or are refused until there is room; ")
    consumer = rig.client(node)
    reader = consumer.receiver("work", credit=1)
    rig.settle()
    seen: list[str] = []
    for _ in range(20):  # each frees what the next one takes
        seen += consumer.accept(link=reader)
        reader.grant(1)
        rig.run(0.3)
    assert len(client.outcomes) >= 20 and lines(node) == [full]
    while found := consumer.accept(link=reader):
        seen += found
        reader.grant(1)
        rig.run(0.3)
    assert numbers(seen) == names(1, 30)
    rig.run(ROOMY_S + 1)
    assert len(lines(node)) == 2 and lines(node)[1].startswith("the disk has room again, after ")
    for number in range(31, 61):
        client.send(link, body(number))
    rig.settle()
    assert len(lines(node)) == 3


def test_a_node_that_starts_on_a_full_disk_says_so() -> None:
    rig, node, client = small_disk()
    link = client.sender("work")
    rig.settle()
    for number in range(1, 31):
        client.send(link, body(number))
    rig.settle()
    node.crash()
    node.logs.clear()
    node.start()
    rig.run(1)
    assert len(lines(node)) == 1


def test_room_that_is_gone_again_soon_ends_no_spell_however_long_ago_it_was() -> None:
    """Only room that lasts does, counted from when it came."""
    rig, node, client = small_disk()
    link = client.sender("work")
    rig.settle()
    for number in range(1, 11):
        client.send(link, body(number))
    rig.settle()
    (full,) = lines(node)
    consumer = rig.client(node)
    reader = consumer.receiver("work", credit=10)
    rig.settle()
    core = node.core
    assert core is not None
    number = 10
    for _ in range(3):
        while consumer.accept(link=reader):
            reader.grant(10)
            rig.run(0.1)
        assert core.room.bytes >= ROOM_BYTES and lines(node) == [full]
        while core.room.bytes >= ROOM_BYTES:
            number += 1
            client.send(link, body(number))
            rig.settle()
        turns = node.turns
        rig.run(2 * ROOMY_S)
        assert lines(node) == [full] and node.turns < turns + 100
    while consumer.accept(link=reader):
        reader.grant(10)
        rig.run(0.1)
    rig.run(ROOMY_S - 1)
    assert lines(node) == [full]
    rig.run(2)
    assert len(lines(node)) == 2 and lines(node)[1].startswith("the disk has room again, after 6")
