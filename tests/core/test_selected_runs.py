"""A selection's runs: they go past what does not match, and what waits for a watermark is collected where it is rare
(docs/adr/0063, item 7)."""

from typing import Any

import pytest

from holdfast.amqp.wire.types import Described, Symbol
from holdfast.broker.cursors.selections import Selections
from holdfast.core import offering
from support.one_node import world
from support.rig import Client, Node, Rig

COUNT = 1_000


def filled(**fields: Any) -> tuple[Rig, Node]:
    """Messages that are numbered, of which the last digits are a property."""
    rig, node, client = world(**fields)
    link = client.sender("work")
    rig.settle()
    for number in range(COUNT):
        client.send(link, str(number), application_properties={"n": number % 100})
        if number % 200 == 199:
            rig.settle()
    return rig, node


def consumer(rig: Rig, node: Node, text: str) -> Client:
    client = rig.client(node)
    selector = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), text)}
    client.receiver("work", credit=COUNT, source={"filter": selector})
    rig.settle()
    return client


@pytest.mark.parametrize(("text", "collected"), [("n <> 50", 1), ("n = 50", COUNT // 100)])
def test_what_waits_for_a_watermark_is_collected_where_it_is_rare(text: str, collected: int) -> None:
    """It is read again when that is stored. Where much matches, one watermark covers enough of it."""
    rig, node = filled()
    node.hold_commits = True
    client = consumer(rig, node, text)
    (selection,) = node.queue("work").shared.selections
    assert len(selection.hits) == collected and not client.bodies()
    node.hold_commits = False
    rig.run(1)
    expected = [number for number in range(COUNT) if (number % 100 == 50) is (collected != 1)]
    assert client.bodies() == [str(number) for number in expected]


def test_a_run_goes_past_what_is_beyond_the_watermark_and_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[int] = []
    original = Selections._look_at

    def look_at(self: Selections, sequence: int, value: bytes, here: Any) -> int | None:
        alone.append(sequence)
        return original(self, sequence, value, here)

    monkeypatch.setattr(Selections, "_look_at", look_at)
    rig, node = filled()
    client = consumer(rig, node, "n = 50")
    rig.run(1)
    assert client.bodies() == [str(number) for number in range(50, COUNT, 100)]
    assert len(alone) < COUNT // 10, len(alone)


@pytest.mark.parametrize("limit", [1, offering.PUMP_LIMIT])
def test_what_a_link_does_not_take_as_a_run_comes_one_by_one(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With records of each message no link does, and a run may be all that one pump looks at."""
    monkeypatch.setattr(offering, "PUMP_LIMIT", limit)
    rig, node = filled(telemetry_messages=True)
    client = consumer(rig, node, "TRUE")
    rig.run(1)
    assert client.bodies() == [str(number) for number in range(COUNT)]
