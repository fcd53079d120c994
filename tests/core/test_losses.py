"""What is lost stays listed over restarts, once each, within a bound; a turn that is undone has lost nothing."""

from pathlib import Path
from typing import Any
from uuid import UUID

from core.test_dead_letters import make_dead_letters
from holdfast.amqp.wire.performatives import Rejected
from holdfast.settings.queues import DeadLettersConfig
from holdfast.state.losses import LISTED_MAX
from holdfast.storage.upkeep.check import check
from support.hops import STRICT, names, replaced_disk, send
from support.rig import Node, Rig
from support.stores import LoneNode

ORIGIN = UUID(int=7)


def status(rig: Rig, node: Node) -> dict[str, Any]:
    found: dict[str, Any] = rig.client(node).manage("STATUS", "node")[1]
    return found


def listed(rig: Rig, node: Node) -> list[tuple[int, int]]:
    return [(loss["first"], loss["last"]) for loss in status(rig, node)["losses"]]


def told(node: Node) -> list[dict[str, Any]]:
    return [fields for kind, fields in node.records if kind == "loss"]


def lose(rig: Rig, node: Node, *ranges: tuple[int, int]) -> None:
    assert node.core is not None
    node.core.losses.add(ORIGIN, list(ranges), "for the test")
    rig.client(node)
    rig.settle()


def restart(rig: Rig, node: Node) -> None:
    node.crash()
    node.start()
    rig.settle()


def test_what_is_lost_is_listed_after_a_crash() -> None:
    rig, _, hub = replaced_disk()
    before = status(rig, hub)
    assert [(loss["first"], loss["last"]) for loss in before["losses"]] == [(1, 4)] and before["losses"][0]["at"]
    assert (before["losses_total"]["ranges"], before["losses_total"]["numbers"]) == (1, 4)
    restart(rig, hub)
    after = status(rig, hub)
    assert (after["losses"], after["losses_total"]) == (before["losses"], before["losses_total"])
    lose(rig, hub, (9, 9))
    restart(rig, hub)
    assert listed(rig, hub) == [(1, 4), (9, 9)] and len(told(hub)) == 2
    assert status(rig, hub)["losses_total"]["since"] == before["losses"][0]["at"]


def test_a_refused_turn_has_lost_nothing_and_what_is_decided_anew_is_told_once() -> None:
    rig = Rig()
    jfk, hub = rig.pair(**STRICT)
    rig.run(1)
    jfk.core.catalog.ledger.identities["hub"] = 3
    send(rig, jfk, "3", "4", to="hub")
    hub.refuse = 1
    client = rig.client(hub)
    code, _, text = client.manage("SKIP", "queue", "work")
    assert code == 503 and "nothing was given up" in text
    assert hub.refuse == 0 and hub.bodies("work") == []
    assert not hub.core.losses and hub.core.losses.totals.numbers == 0 and told(hub) == []
    code, body, _ = client.manage("SKIP", "queue", "work")
    assert code == 200 and [(gap["first"], gap["last"]) for gap in body["lost"]] == [(1, 2)]
    rig.run(1)
    for _ in range(2):
        assert listed(rig, hub) == [(1, 2)] and len(told(hub)) == 1 and hub.bodies("work") == ["3", "4"]
        assert hub.core.losses.totals.numbers == 2
        restart(rig, hub)


def test_at_the_bound_the_oldest_are_counted_alone() -> None:
    rig = Rig()
    hub = rig.node("hub")
    lose(rig, hub, *[(number, number) for number in range(1, LISTED_MAX)])
    assert len(hub.core.losses) == LISTED_MAX - 1
    lose(rig, hub, (5_000, 5_009))
    assert next(loss.first for loss in hub.core.losses) == 1 and len(hub.core.losses) == LISTED_MAX
    lose(rig, hub, (6_000, 6_000))
    assert next(loss.first for loss in hub.core.losses) == 2 and len(hub.core.losses) == LISTED_MAX
    lose(rig, hub, *[(10_000 + 2 * number, 10_000 + 2 * number) for number in range(LISTED_MAX + 500)])
    for _ in range(2):
        assert len(hub.core.losses) == LISTED_MAX == len(list(hub.store.table("losses"))) - 1
        assert next(loss.first for loss in hub.core.losses) == 11_000 and len(status(rig, hub)["losses"]) == 100
        assert hub.core.losses.totals.ranges == 2 * LISTED_MAX + 501
        assert hub.core.losses.totals.numbers == 2 * LISTED_MAX + 510
        restart(rig, hub)


def test_dropped_dead_letters_are_counted_over_restarts_and_refused_commits() -> None:
    rig = Rig()
    hub = rig.node("hub", dead_letters=DeadLettersConfig(messages_max=2))
    make_dead_letters(rig, rig.client(hub), *names(1, 5))
    assert status(rig, hub)["dead_letters"]["dropped_total"] == 3
    restart(rig, hub)
    letters = status(rig, hub)["dead_letters"]
    assert (letters["dropped"], letters["dropped_total"]) == (0, 3) and letters["dropped_bytes_total"] > 0
    client = rig.client(hub)
    sender, reader = client.sender("work"), client.receiver("work")
    rig.settle()
    for name in names(6, 9):
        client.send(sender, name)
    rig.settle()
    hub.refuse = 2  # the first batches that dead-letter one, and drop another for it
    for _ in range(6):
        client.accept(Rejected(), count=1, link=reader)
        rig.settle()
    assert not hub.refuse
    rig.run(3)
    letters = status(rig, hub)["dead_letters"]
    total = letters["dropped_total"]
    assert total == 3 + letters["dropped"] and letters["dropped"] >= 2
    restart(rig, hub)
    assert status(rig, hub)["dead_letters"]["dropped_total"] == total


def test_dead_letters_that_were_dropped_are_counted_though_nothing_else_is_stored_after_the_refusal() -> None:
    rig = Rig()
    hub = rig.node("hub", dead_letters=DeadLettersConfig(messages_max=2))
    make_dead_letters(rig, rig.client(hub), *names(1, 2))
    client = rig.client(hub)
    sender, reader = client.sender("work"), client.receiver("work")
    rig.settle()
    client.send(sender, "3")
    rig.settle()
    hub.refuse = 1
    client.accept(Rejected(), count=1, link=reader)
    rig.run(3)
    assert not hub.refuse
    for _ in range(2):
        assert status(rig, hub)["dead_letters"]["dropped_total"] == 1 and hub.bodies("$dead-letters") == ["2"]
        restart(rig, hub)


def test_a_store_with_losses_is_whole(tmp_path: Path) -> None:
    node = LoneNode(tmp_path / "store")
    node.core.losses.add(ORIGIN, [(1, 4), (6, 6)], "größer")
    node.core.losses.dropped(3, 100)
    node.settle()
    node.stop()
    assert check(tmp_path / "store").findings == []
    node = LoneNode(tmp_path / "store")
    assert [(loss.first, loss.last, loss.reason) for loss in node.core.losses] == [(1, 4, "größer"), (6, 6, "größer")]
    node.stop()
