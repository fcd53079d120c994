"""A large message that is given up on its way, because the route changed, and changed again (custody/hop/sender.py)."""

from typing import Any

import pytest

from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from support.hops import STRICT, names, send
from support.rig import Rig

LIMITS = Limits(stream_bytes=1_000, frame_bytes_max=512)


def test_routes_that_change_twice_while_it_is_given_up_lose_nothing() -> None:
    """Each change took its number back; the next message had one that the neighbour had heard, and was dropped as a
    copy of what it never was."""
    rig = Rig()
    jfk, hub = rig.pair(jfk={"limits": LIMITS}, queues=(QueueConfig(name="work"),), limits=LIMITS)
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    neighbour: Any = jfk.core.neighbours["hub"]  # type: ignore[union-attr]
    client.send(link, "x" * 200_000)
    while not (sender := neighbour.hop.senders.get("hub")) or sender.large is None:
        assert rig.move()
    for _ in range(2):
        sender.stop()
        sender.go(neighbour.peer)
    assert sender.number == 0
    jfk.due = True
    rig.run(5)
    send(rig, jfk, *names(1, 3), to="hub")
    rig.run(5)
    reader = rig.client(hub)
    reader.receiver("work")
    rig.settle()
    assert sorted(map(len, reader.bodies())) == [1, 1, 1, 200_000]


def test_nothing_is_sent_before_its_end_is_told() -> None:
    rig = Rig()
    jfk, _ = rig.pair(jfk={"limits": LIMITS}, **STRICT, limits=LIMITS)
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    neighbour: Any = jfk.core.neighbours["hub"]  # type: ignore[union-attr]
    client.send(link, "x" * 200_000)
    while not (sender := neighbour.hop.senders.get("hub")) or sender.large is None:
        assert rig.move()
    sender.stop()
    sender.go(neighbour.peer)
    assert sender.large is not None and sender.wants() == 0


@pytest.mark.parametrize("before", [0, 1])
def test_who_gave_up_its_only_message_waits_for_no_answer(before: int) -> None:
    """Nor would the neighbour ever give one; of what went before it an answer is still awaited."""
    rig = Rig()
    jfk, hub = rig.pair(jfk={"limits": LIMITS}, **STRICT, limits=LIMITS)
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    neighbour: Any = jfk.core.neighbours["hub"]  # type: ignore[union-attr]
    hub.hold_commits = True
    for _ in range(before):
        client.send(link, "small")
    client.send(link, "x" * 200_000)
    while not (sender := neighbour.hop.senders.get("hub")) or sender.large is None:
        assert rig.move()
    sender.stop()
    assert len(sender.in_doubt) == before
    assert [*neighbour.hop.unanswered] == before * [sender]
