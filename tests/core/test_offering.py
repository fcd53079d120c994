"""What a turn offers: what changed in it, and no more."""

from typing import Any

import pytest

from holdfast.broker.cursor import Cursor
from holdfast.core.config import QueueConfig
from holdfast.core.ingress import ProducerLink
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
