"""All at once: what clients of a root do when more is sent than it takes (docs/adr/0077)."""

from typing import Any

import pytest

from core.test_paced import BODY, CLIENT, ROOT, arrived, control, root_of, row, rows, star
from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.performatives import Header, Rejected
from holdfast.custody.hop.links import hop_key
from holdfast.errors import ConfigError
from holdfast.pacing.obedience import CUT_PERIODS, PERIODS
from holdfast.pacing.settings import PacingConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from support.hops import is_empty, send
from support.rig import Client, Node, Rig

BURST = PacingConfig(roots=("hub",), capacity_bytes=50_000, when_full="refuse")
SIZE = 505
"""Bytes of a message with BODY, as queues count them."""


def offer(rig: Rig, client: Client, link: Sender, priority: int, count: int) -> None:
    for _ in range(count):
        if not link.sendable:
            rig.settle()
        client.send(link, BODY, header=Header(durable=True, priority=priority))
    rig.settle()


def producer(rig: Rig, node: Node) -> tuple[Client, Sender]:
    client = rig.client(node)
    link = client.sender("work@hub")
    rig.settle()
    return client, link


def credit(root: Node, neighbour: str) -> int:
    assert root.core is not None
    return int(root.core.links.custody_receivers[hop_key(neighbour, root.core.config.name)].link.credit)


# ---------------------------------------------------------------------------------------- the queue to a root


def test_what_waits_for_a_root_is_bounded_by_priority() -> None:
    rig, _, (c1, _) = star(client=BURST)
    rig.run(3)
    client, link = producer(rig, c1)
    held = c1.queue("@hub")
    for priority, part in ((0, 0.9), (4, 0.95), (9, 1.0)):
        offer(rig, client, link, priority, 200)
        assert held.bytes_held == pytest.approx(50_000 * part, abs=2 * SIZE)
    refused = [state for _, state in client.outcomes if isinstance(state, Rejected)]
    assert held.refused_total == len(refused) > 400
    rig.run(30)
    assert is_empty(c1)


def test_without_when_full_nothing_is_bounded() -> None:
    rig, _, (c1, _) = star(client=PacingConfig(roots=("hub",), capacity_bytes=50_000))
    rig.run(3)
    client, link = producer(rig, c1)
    offer(rig, client, link, 0, 300)
    assert c1.queue("@hub").in_total == 300


def test_the_bound_follows_the_configuration_over_a_restart() -> None:
    rig, _, (c1, _) = star(client=BURST)
    rig.run(3)
    send(rig, c1, BODY, to="hub")
    assert c1.queue("@hub").config.bytes_max == 50_000
    assert c1.core is not None
    c1.crash()
    c1.config = NodeConfig(name="c1", pacing=CLIENT, neighbours=c1.config.neighbours)
    c1.start()
    assert c1.queue("@hub").config == QueueConfig(name="@hub")


def test_a_report_tells_the_lowest_band_as_capacity_and_counts_what_is_refused() -> None:
    rig, hub, (c1, c2) = star(client=BURST)
    rig.run(3)
    client, link = producer(rig, c1)
    for _ in range(40):
        offer(rig, client, link, 0, 20)  # 40 a second
        rig.run(0.5)
    told = {line["client"]: line for line in rows(hub, "paces")}
    assert told["c1"]["capacity"] == 45_000 and told["c1"]["used"] == pytest.approx(45_000, abs=3_000)
    assert int(told["c1"]["arrivals"]) == pytest.approx(40 * SIZE, rel=0.25), "with what is refused"
    assert client.outcomes
    for _ in range(620):
        rig.run(1)
    assert control(c1).pacers["hub"].origin.capacity == 50_000, "no higher priority came for ten minutes"
    assert is_empty(c1, c2)


def test_with_block_credit_follows_the_room_and_all_arrives() -> None:
    rig, hub, (c1, _) = star(client=PacingConfig(roots=("hub",), capacity_bytes=50_000, when_full="block"))
    rig.run(3)
    low, high = producer(rig, c1), producer(rig, c1)
    sent = 0
    for _ in range(40):
        for (client, link), priority in ((low, 1), (high, 7)):
            while link.sendable and link.credit > 0:
                client.send(link, BODY, header=Header(durable=True, priority=priority))
                sent += 1
                if sent % 20 == 0:
                    rig.settle()
        rig.run(0.3)
        assert c1.queue("@hub").bytes_held <= 50_000 + SIZE
    assert low[1].credit == 0
    rig.run(25)
    assert is_empty(c1) and low[1].credit > 0
    assert arrived(hub) == sent * 500


def test_messages_of_others_pass_a_full_queue() -> None:
    """What another node has accepted is not held to the bound."""
    rig = Rig()
    c, mid, hub = rig.line("c", "mid", "hub", mid={"pacing": BURST}, hub={"pacing": ROOT})
    rig.run(3)
    client, link = producer(rig, mid)
    offer(rig, client, link, 9, 200)
    assert mid.queue("@hub").refused_total > 50
    send(rig, c, *["other"] * 50, to="hub", queue="others")
    rig.run(1)
    assert len(hub.bodies("others")) == 50


# ---------------------------------------------------------------------------------------- weights of a node's own


def test_a_client_reports_the_weights_that_it_is_told() -> None:
    told = PacingConfig(roots=("hub",), capacity_bytes=150_000, weights=((0.2, 3), (0.9, 6)))
    rig, hub, clients = star(root=PacingConfig(rate=10_000, policy="weights"), client=told)
    for client, count in zip(clients, (400, 150), strict=True):
        send(rig, client, *[BODY] * count, to="hub")
    rig.run(4)
    first, second = (int(line["rate"]) for line in rows(hub, "paces"))
    assert (first, second) == (6_666, 3_333)


# ---------------------------------------------------------------------------------------- who ignores its rate


def deaf(client: Node, destination: str = "hub") -> None:
    """It sends as if there were no rate."""
    pacer: Any = control(client).pacers[destination]
    pacer.ready = lambda now: True
    pacer.bounds = lambda now: False
    pacer.ready_at = lambda now: now


def test_a_neighbour_that_ignores_its_rate_is_cut_to_it() -> None:
    rig, hub, (c1, c2) = star()
    rig.run(3)
    deaf(c1)
    send(rig, c2, *[BODY] * 400, to="hub", queue="quiet")
    send(rig, c1, BODY, to="hub")
    rig.run(1)
    before = arrived(hub)
    for _ in range(80):  # 40 a second, four times its rate
        send(rig, c1, *[BODY] * 20, to="hub")
        rig.run(0.5)
    told = {line["client"]: line for line in rows(hub, "paces")}
    root_credit = root_of(hub).credits[""]
    assert list(root_credit.cut) == ["c1"]
    assert told["c1"]["cut_to_rate"] and not told["c2"]["cut_to_rate"]
    assert credit(hub, "c1") <= 2 and credit(hub, "c2") > 100
    assert arrived(hub) - before < 80 * 20 * 500 * 0.6
    before = arrived(hub)
    rig.run(30)
    assert (arrived(hub) - before) / 30 == pytest.approx(5_000, rel=0.15), "its rate"
    assert told["c1"]["rate"] == told["c2"]["rate"] == 5_000
    rig.run(200)
    assert is_empty(c1, c2), "what was cut starves nobody"
    rig.run(2 * (CUT_PERIODS + PERIODS) + 2)
    assert not root_credit.cut


def test_what_is_ignored_is_not_given_to_others_and_shown() -> None:
    rig, hub, (c1, c2) = star(root=PacingConfig(rate=10_000, policy="level"))
    rig.run(3)
    deaf(c1)
    shown, rates = False, []
    for _ in range(20):
        send(rig, c1, *[BODY] * 15, to="hub")
        rig.run(0.5)
        told = {line["client"]: line for line in rows(hub, "paces")}
        if told["c1"]["ignores_rate"]:
            shown = True
            rates.append(int(told["c1"]["rate"]) + int(told["c2"]["rate"]))
    assert shown and min(rates) < 9_000
    assert hub.core is not None and is_empty(c2)


def test_behind_a_node_on_the_way_nobody_is_cut() -> None:
    rig, c, mid, hub = row()
    rig.run(3)
    deaf(c)
    for _ in range(40):
        send(rig, c, *[BODY] * 20, to="hub")
        rig.run(0.5)
    assert not root_of(hub).credits[""].cut
    rig.run(20)
    assert is_empty(c, mid)


def test_what_a_client_behind_a_node_on_the_way_sends_is_counted_as_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, c, _, hub = row()
    rig.run(3)
    assert c.core is not None
    root, names = root_of(hub), {c.core.identities.store_uuid: "c"}  # as a topology tells it
    monkeypatch.setattr(root, "_name_of", names.__getitem__)
    root._names.clear()
    root.took("", c.core.identities.store_uuid, "mid", 100)
    assert root.groups.tables[""].rows["c"].intake_bytes == 100


def test_scarce_room_of_a_root_follows_the_rates() -> None:
    queues = (QueueConfig(name="work", bytes_max=40_000),)
    rig = Rig()
    names = ("c1", "c2")
    hub = rig.node(
        "hub", queues=queues, neighbours=tuple(NeighbourConfig(name=name) for name in names),
        pacing=PacingConfig(rate=10_000, policy="fixed", shares=(("c1", 3.0),)),
    )  # fmt: skip
    to_hub = (NeighbourConfig(name="hub", remote="127.0.0.1:1"),)
    clients = [rig.node(name, pacing=CLIENT, neighbours=to_hub) for name in names]
    rig.run(3)
    for client in clients:
        send(rig, client, *[BODY] * 200, to="hub")
    rig.run(1)
    free = 40_000 - hub.queue("work").bytes_held
    fits = free // SIZE
    credits = [credit(hub, name) for name in names]
    assert 0 < sum(credits) <= fits + 2
    given = [root_of(hub).credit("", name, 4_000) for name in names]
    assert sum(given) <= fits and given[0] == pytest.approx(3 * given[1], abs=3)
    rig.run(10)
    assert hub.queue("work").bytes_held <= 40_000
    taker = rig.client(hub)
    taker.receiver("work", credit=10_000)
    for _ in range(200):
        rig.run(0.5)
        taker.accept()
    assert is_empty(*clients), "with room there is credit again"


# ---------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"weights": ((0.5, 1), (0.4, 2))}, "pacing weights: invalid threshold 0.4 after 0.5; expected them ascending"),
        ({"weights": ((0.5, 1_001),)}, "pacing weights: invalid weight 1001; expected 0 to 1000"),
        ({"weights": ((1.1, 1),)}, "pacing weights: invalid threshold 1.1; expected 0 to 1"),
        ({"weights": tuple((at / 200, 1) for at in range(101))}, "pacing weights: 101 thresholds"),
        ({"weights": ((0.5, 1),), "roots": ()}, "weights without roots"),
        ({"when_full": "drop-oldest"}, "pacing when_full; expected one of block, refuse"),
        ({"when_full": "refuse"}, "when_full without capacity_bytes"),
        ({"room_low": 0.5}, "without when_full"),
        ({"when_full": "refuse", "capacity_bytes": 9, "room_low": 0.96}, "room_low and room_normal"),
        ({"when_full": "refuse", "capacity_bytes": 9, "room_quiet_s": 0.0}, "pacing room_quiet_s"),
    ],
)
def test_what_means_nothing_is_one_line(told: dict[str, Any], what: str) -> None:
    config = PacingConfig(**{"roots": ("hub",), **told})
    with pytest.raises(ConfigError, match=what) as error:
        NodeConfig(name="me", neighbours=(NeighbourConfig(name="hub"),), pacing=config).validate()
    assert "\n" not in str(error.value)
