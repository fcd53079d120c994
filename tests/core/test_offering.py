"""What a turn offers: what changed in it, and no more."""

from typing import Any

import pytest

from holdfast.broker.cursor import Cursor
from holdfast.core.config import Limits, QueueConfig
from holdfast.core.hops import CustodyReceiver
from holdfast.core.ingress import ProducerLink
from holdfast.units import KIB
from support.hops import send
from support.rig import Rig


@pytest.mark.parametrize("bound", [{}, {"messages_max": 100}])
def test_a_turn_that_only_settles_asks_no_cursor_and_gives_credit_only_where_room_came_back(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any]
) -> None:
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work", **bound),))
    client, taker = rig.client(node), rig.client(node)
    link = client.sender("work")
    taker.receiver("work", credit=10)
    rig.settle()
    client.send(link, "1")
    rig.settle()
    asked: list[str] = []
    pump, refill = Cursor.pump, ProducerLink.refill
    monkeypatch.setattr(Cursor, "pump", lambda self, limit: (asked.append("pump"), pump(self, limit))[1])
    monkeypatch.setattr(ProducerLink, "refill", lambda self: (asked.append("refill"), refill(self))[1])
    taker.accept()
    rig.settle()
    assert node.queue("work").messages == 0
    assert asked == (["refill"] if bound else [])
    client.send(link, "2")
    rig.settle()
    assert asked.count("pump") == 1
    assert taker.accept() == ["2"]


@pytest.mark.parametrize("size", [1, 200 * KIB], ids=["whole", "in parts"])
def test_of_what_neighbours_bring_only_what_waits_is_asked_again(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    rig = Rig()
    terms: dict[str, Any] = {
        "queues": (QueueConfig(name="work", messages_max=1),), "limits": Limits(stream_bytes=100 * KIB),
    }  # fmt: skip
    hub, waits, _ = rig.graph("hub-waits", "hub-other", hub=terms, waits=terms)
    rig.run(3)
    bodies = [digit * size for digit in "123"]
    send(rig, waits, *bodies, to="hub")
    rig.run(3)
    parked = hub.core.parked_receivers
    assert [receiver.neighbour for receiver in parked] == ["waits"]
    client = rig.client(hub)
    link = client.sender("elsewhere")
    rig.settle()
    asked: list[str] = []
    refill = CustodyReceiver.refill
    monkeypatch.setattr(CustodyReceiver, "refill", lambda self: (asked.append(self.neighbour), refill(self))[1])
    client.send(link, "x")
    rig.settle()
    assert set(asked) == {"waits"}
    taker = rig.client(hub)
    taker.receiver("work")
    taken: list[str] = []
    for _ in range(6):
        rig.run(0.5)
        taken += taker.accept()
    assert taken == bodies
    client.send(link, "y")
    rig.settle()
    assert parked == {}
