"""When a hop's credit is reduced and when not, and that each of its attaches is answered (custody/hop/receiver.py)."""

from typing import Any

import pytest

from core.test_custody import cut, joined, send
from holdfast.custody.hop.links import hop_key
from holdfast.custody.transfers import carried
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.hops import names
from support.rig import Node, Rig

HOP = hop_key("jfk", "hub")
LARGE = "x" * 100_000


def pair(**hub: Any) -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, node = rig.pair(queues=(QueueConfig(name="work"), QueueConfig(name="other")), **hub)
    joined(rig)
    send(rig, jfk, "first")
    return rig, jfk, node


def credit(hub: Node) -> int:
    assert hub.core is not None
    return hub.core.forwarding.hop_credits.credit(HOP, 1_000)


def end_of(rig: Rig, hub: Node) -> Any:
    """The hub's end of the one wire between both."""
    [wire] = rig.between("jfk", "hub")
    return next(end for end in wire.ends if end.node is hub)


def holds_a_stream(rig: Rig, hub: Node) -> Any:
    """A client that has begun a large message, and does not end it."""
    client = rig.client(hub)
    link = client.sender("other")
    rig.settle()
    client.send(link, "y" * 300_000)
    client.flush()
    end = client.end.wire.other(client.end)
    rest = bytes(end.inbox[150_000:])
    del end.inbox[150_000:]
    rig.settle()
    assert len(hub.core.streams) == 1
    return end, rest


def test_a_large_message_that_finds_all_streams_used_by_others_reduces_its_hop_to_one() -> None:
    rig, jfk, hub = pair(limits=Limits(stream_bytes=20_000, streams_max=1))
    assert credit(hub) == 1_000
    end, rest = holds_a_stream(rig, hub)
    send(rig, jfk, "1" + LARGE)
    rig.run(0.1)
    assert credit(hub) == 1 and hub.bodies("work") == ["first"]
    end.inbox += rest
    rig.run(5)
    assert hub.bodies("work") == ["first", "1" + LARGE]


def test_what_comes_behind_a_number_that_the_disk_refused_reduces_no_credit() -> None:
    rig, jfk, hub = pair(limits=Limits(stream_bytes=20_000, streams_max=1))
    end, rest = holds_a_stream(rig, hub)
    hub.hold_commits = True
    send(rig, jfk, "1")
    theirs = end_of(rig, hub)
    theirs.paused = True
    send(rig, jfk, "2" + LARGE)
    assert len(theirs.inbox) > 20_000
    hub.refuse = 1
    while hub.pending is not None or hub.due:
        hub.end_turn() if hub.due else hub.finish_commit()
    assert not hub.refuse
    theirs.paused = hub.hold_commits = False
    rig.settle()
    assert credit(hub) == 1_000
    end.inbox += rest
    rig.run(5)
    assert hub.bodies("work") == ["first", "1", "2" + LARGE]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_large_message_that_the_disk_has_no_room_for_reduces_no_credit(parts: int) -> None:
    rig, jfk, hub = pair(limits=Limits(stream_bytes=20_000))
    theirs = end_of(rig, hub)
    theirs.paused = True
    send(rig, jfk, "1" + LARGE * 3)
    data = bytes(theirs.inbox)
    theirs.inbox.clear()
    theirs.inbox += data[: 40_000 * parts]
    rest = data[40_000 * parts :]
    theirs.paused = False
    if parts == 2:
        rig.settle()
        assert len(hub.core.streams) == 1
    hub.core.room.bytes = -(10**9)
    theirs.inbox += rest
    rig.settle()
    assert credit(hub) == 1_000
    rig.run(5)
    assert hub.bodies("work") == ["first", "1" + LARGE * 3]


def test_as_many_large_messages_as_may_be_under_way_reduce_no_credit() -> None:
    rig = Rig()
    limits = Limits(stream_bytes=20_000, streams_max=3)
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", messages_max=1),), limits=limits)
    joined(rig)
    send(rig, jfk, *[name + LARGE for name in names(1, 4)])
    rig.run(0.5)
    assert credit(hub) == 1_000 and len(hub.core.streams) == 3


def test_a_hop_whose_sender_ends_it_before_its_answer_is_answered() -> None:
    rig, jfk, hub = pair()
    cut(rig)
    rig.settle()
    hub.hold_commits = True
    send(rig, hub, "x", address="work")
    rig.run(0.3)
    for _ in range(40):
        found = [hop for hop in hub.core.links.custody_receivers.values() if not hop.link.attach_sent]
        if found:
            break
        rig.run(0.25)
    [hop] = found
    [(other, theirs)] = [
        (other, link)
        for other in jfk.core.connections.values()
        for session in other.amqp.sessions
        for link in session.links.values()
        if link.name == hop.link.name
    ]
    theirs.detach(closed=True)
    other.touch()
    jfk.end_turn()
    rig.settle()
    assert hop.link.detach_received and not theirs.over
    hub.hold_commits = False
    rig.settle()
    assert theirs.over and hop.link.detach_sent


def test_a_number_below_1_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes under it is refused with the link, and comes again: it is not taken for what is stored already."""
    rig, jfk, hub = pair()
    written = carried.parts_of

    def as_zero(value: bytes, number: int, **told: Any) -> Any:
        monkeypatch.setattr(carried, "parts_of", written)  # once
        return written(value, 0, **told)

    monkeypatch.setattr(carried, "parts_of", as_zero)
    send(rig, jfk, "second")
    rig.run(5)
    assert hub.bodies("work") == ["first", "second"] and jfk.queue("@hub").messages == 0
    assert any("a message of it for 'hub' is refused and its link ended" in line for line in hub.logs)
