"""Pacing in nodes: what clients send to a root keeps to the rates that it gives (docs/pacing.md)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Ulong
from holdfast.custody.hop import paced_sender
from holdfast.custody.hop.blocked import Blocked
from holdfast.errors import ConfigError
from holdfast.pacing.messages import NODES_MAX, Pace, Report
from holdfast.pacing.pacer import FIRST_S
from holdfast.pacing.settings import ROOTS_MAX, SHARES_MAX, PacingConfig
from holdfast.peering import rate_control
from holdfast.peering.root_rates import RootRates
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from support.hops import apart, is_empty, send
from support.rig import Node, Rig

ROOT = PacingConfig(rate=10_000, policy="fixed")
CLIENT = PacingConfig(roots=("hub",))
BODY = "x" * 500


def star(*, root: PacingConfig = ROOT, client: PacingConfig = CLIENT, clients: int = 2) -> tuple[Rig, Node, list[Node]]:
    """Clients of the hub, each its neighbour."""
    rig = Rig()
    names = [f"c{number}" for number in range(1, clients + 1)]
    hub = rig.node("hub", pacing=root, neighbours=tuple(NeighbourConfig(name=name) for name in names))
    to_hub = (NeighbourConfig(name="hub", remote="127.0.0.1:1"),)
    return rig, hub, [rig.node(name, pacing=client, neighbours=to_hub) for name in names]


def row(root: PacingConfig = ROOT) -> tuple[Rig, Node, Node, Node]:
    """A client, a node on the way, which has clients of its own, and the root."""
    rig = Rig()
    fields: dict[str, dict[str, Any]] = {"c": {"pacing": CLIENT}, "hub": {"pacing": root}}
    c, mid, hub = rig.line("c", "mid", "hub", **fields)
    return rig, c, mid, hub


def rows(node: Node, part: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.rig.client(node).manage("STATUS", "node")[1][part]
    return found


def control(node: Node) -> rate_control.RateControl:
    assert node.core is not None
    return node.core.rates


def root_of(node: Node) -> RootRates:
    found = control(node).root
    assert found is not None
    return found


def arrived(hub: Node, name: str = "work") -> int:
    return sum(len(body) for body in hub.bodies(name))


def test_each_client_gets_its_rate() -> None:
    rig, hub, clients = star()
    rig.run(3)
    for client in clients:
        send(rig, client, *[BODY] * 300, to="hub")
    rig.run(2)
    before = arrived(hub)
    rig.run(10)
    assert arrived(hub) - before == pytest.approx(100_000, rel=0.1)
    assert [row["rate"] for row in rows(hub, "paces")] == [5_000, 5_000]
    assert rows(clients[0], "paced")[0]["rate"] == 5_000
    told = [fields for kind, fields in hub.records if kind == "pacing"][-1]
    assert (told["rate"], told["given"], told["clients"], told["ignoring"]) == (10_000, 10_000, 2, 0)
    rig.run(60)
    assert is_empty(*clients)
    assert arrived(hub) == 300_000


def test_weights_and_shares_count() -> None:
    """By the fill of the queues: one is full, the other a third full."""
    rig, hub, clients = star(
        root=PacingConfig(rate=10_000, policy="weights"), client=PacingConfig(roots=("hub",), capacity_bytes=150_000)
    )
    for client, count in zip(clients, (400, 150), strict=True):
        send(rig, client, *[BODY] * count, to="hub")
    rig.run(4)
    first, second = (int(row["rate"]) for row in rows(hub, "paces"))
    assert (first, second) == (6_923, 3_076)  # 9 and 4 of 13
    rig, hub, clients = star(root=PacingConfig(rate=9_000, policy="fixed", shares=(("c1", 2.0),)))
    rig.run(4)
    assert [row["rate"] for row in rows(hub, "paces")] == [6_000, 3_000]


def test_status_and_telemetry_tell_weights_rates_and_time_to_overflow() -> None:
    """At the root of each client, and at the client of its own queue: the same figures."""
    rig, hub, clients = star(
        root=PacingConfig(rate=10_000, policy="weights"), client=PacingConfig(roots=("hub",), capacity_bytes=150_000)
    )
    rig.run(3)
    for _ in range(30):
        send(rig, clients[0], *[BODY] * 30, to="hub")  # 30,000 bytes a second, of which 9,950 leave
        rig.run(0.5)
        if rows(clients[0], "paced")[0]["used"] > 80_000:
            break
    first, second = rows(hub, "paces")
    assert (first["weight"], second["weight"]) == (first["used"] * 10 // 150_000, 0)
    assert 5 <= first["weight"] <= 6
    assert first["rate"] == 9_950
    needed = (150_000 - first["used"]) / (first["arrivals"] - first["rate"])
    assert first["overflow_s"] == pytest.approx(needed, abs=0.001)
    assert 2 < needed < 6
    assert second["overflow_s"] == 300
    [own] = rows(clients[0], "paced")
    assert (own["weight"], own["capacity"], own["arrivals"]) == (first["weight"], 150_000, first["arrivals"])
    assert own["overflow_s"] == pytest.approx(needed, rel=0.2)
    [shared] = rows(hub, "pacing")
    assert (shared["policy"], shared["rate"], shared["clients"]) == ("weights", 10_000, 2)
    assert 2 < shared["overflow_s"] < 6  # of the last computation
    told = [fields for kind, fields in hub.records if kind == "pace"][-2:]
    assert [fields["client"] for fields in told] == ["c1", "c2"]
    assert 1 <= told[0]["weight"] <= 9
    assert told[0]["rate"] in (5_000, 9_950)
    [of_client] = [fields for kind, fields in clients[0].records if kind == "paced"][-1:]
    assert of_client["root"] == "hub"
    assert of_client["weight"] == of_client["used"] * 10 // 150_000


def test_a_root_lends_what_is_free_in_its_fullest_queue() -> None:
    """And no more than its store takes; queues of virtual hosts and in memory are none of it."""
    queues = (
        QueueConfig(name="work", bytes_max=100_000),
        QueueConfig(name="full", bytes_max=60_000),
        QueueConfig(name="memory", bytes_max=10, durable=False),
    )
    rig = Rig()
    hub = rig.node(
        "hub", queues=queues, pacing=PacingConfig(rate=10_000, lend=1.0), neighbours=(NeighbourConfig(name="c1"),)
    )
    c1 = rig.node("c1", pacing=CLIENT, neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))
    send(rig, hub, *[BODY] * 100, to="hub", queue="full")
    used = hub.queue("full").bytes_held
    assert root_of(hub).rooms()[""] == (used + 60_000 - used, used)
    send(rig, c1, *[BODY] * 150, to="hub")
    rig.run(30)
    assert is_empty(c1)
    assert root_of(hub).groups.tables[""].budget > 10_000


def test_a_root_on_another_path_is_reached_and_the_way_is_not_paced() -> None:
    rig, c, mid, hub = row()
    rig.run(3)
    send(rig, c, *[BODY] * 300, to="hub", queue="paced")
    send(rig, mid, *[BODY] * 300, to="hub", queue="free")
    rig.run(1)
    assert arrived(hub, "free") == 150_000
    before = arrived(hub, "paced")
    rig.run(5)
    assert arrived(hub, "paced") - before == pytest.approx(50_000, rel=0.1)
    rig.run(30)
    assert is_empty(c, mid)


def test_messages_of_others_pass_own_ones_that_wait() -> None:
    """The node on the way is a client, too."""
    rig = Rig()
    c, mid, hub = rig.line("c", "mid", "hub", mid={"pacing": CLIENT}, hub={"pacing": ROOT})
    rig.run(3)
    send(rig, mid, *[BODY] * 300, to="hub", queue="paced")
    send(rig, c, *[BODY] * 300, to="hub", queue="free")
    rig.run(2)
    assert arrived(hub, "free") == 150_000
    assert arrived(hub, "paced") < 60_000
    rig.run(30)
    assert is_empty(c, mid)
    assert arrived(hub, "paced") == 150_000


def test_so_many_wait_in_hand_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind more of them others' messages wait, too; all arrive."""
    monkeypatch.setattr(paced_sender, "WAITING_MAX", 30)
    rig = Rig()
    c, mid, hub = rig.line("c", "mid", "hub", mid={"pacing": CLIENT}, hub={"pacing": ROOT})
    rig.run(3)
    send(rig, mid, *[BODY] * 200, to="hub", queue="paced")
    send(rig, c, *[BODY] * 10, to="hub", queue="free")
    assert mid.core is not None
    sender = mid.core.next_hops["hub"].senders["hub"]
    assert isinstance(sender, paced_sender.PacedSender)
    assert len(sender.waiting) == 30
    assert hub.core is not None
    assert "free" not in hub.core.catalog.queues
    rig.run(15)
    assert arrived(hub, "free") == 5_000
    assert is_empty(c, mid)
    assert arrived(hub, "paced") == 100_000


def test_where_says_that_it_waits_for_its_rate() -> None:
    rig, _, clients = star()
    rig.run(3)
    client = rig.client(clients[0])
    link = client.sender("work@hub")
    rig.settle()
    for number in range(20):
        link.send(Message(properties=Properties(message_id=f"m{number}"), data=[bytes(2_000)]).encode(), context=number)
    rig.settle()
    told = client.manage("WHERE", "node", message_id="m19")[1]
    assert told["waits_for"] == "its rate: 'hub' paces this node"
    rig.run(10)
    assert client.manage("WHERE", "node", message_id="m19")[1]["custody"] == "hub"


def test_what_was_kept_waits_for_the_first_rate() -> None:
    """Else all that a node had kept while the link was down would leave at once."""
    rig, hub, clients = star()
    hub.crash()
    rig.run(3)
    send(rig, clients[0], *[BODY] * 300, to="hub")
    hub.start()
    rig.run(6)
    assert arrived(hub) < 65_000


def test_a_root_that_gives_no_rate_holds_nobody_up() -> None:
    rig, hub, clients = star(root=PacingConfig())
    send(rig, clients[0], *[BODY] * 300, to="hub")
    rig.run(FIRST_S + 1)
    assert arrived(hub) == 150_000
    assert rows(clients[0], "paced")[0]["rate"] is None


def test_the_base_holds_once_no_more_rates_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease ends, whatever the root thinks; its share of what all share equally is left, and nobody starves."""
    rig, hub, clients = star(root=PacingConfig(rate=10_000, policy="level", period_s=0.5))
    send(rig, clients[0], *[BODY] * 1_000, to="hub")
    rig.run(5)
    assert int(rows(clients[0], "paced")[0]["rate"]) > 6_000
    monkeypatch.setattr(control(hub), "_send", lambda via, message: None)  # it says nothing more
    rig.run(8)
    assert int(rows(clients[0], "paced")[0]["rate"]) == 5_000
    before = arrived(hub)
    rig.run(10)
    assert arrived(hub) - before == pytest.approx(50_000, rel=0.1)


@pytest.mark.parametrize("who", ["root", "client", "link"])
def test_all_arrives_over_restarts_and_breaks(who: str) -> None:
    rig, hub, clients = star()
    for client in clients:
        send(rig, client, *[BODY] * 200, to="hub")
    for _ in range(5):
        rig.run(3)
        if who == "link":
            apart(rig, "c1", "hub", silent=True)
            continue
        victim = hub if who == "root" else clients[0]
        victim.crash()
        rig.run(1)
        victim.start()
    rig.run(60)
    assert is_empty(*clients)
    assert arrived(hub) == 200_000


def test_a_client_that_stops_leaves_its_part_to_the_others() -> None:
    rig, hub, clients = star()
    rig.run(4)
    assert len(rows(hub, "paces")) == 2
    control(clients[0]).leave()
    rig.run(1)
    assert [row["client"] for row in rows(hub, "paces")][:1] == ["c2"]


def test_without_configuration_nothing_is_said() -> None:
    rig, hub, clients = star(root=PacingConfig(), client=PacingConfig())
    rig.run(3)
    for client in clients:
        send(rig, client, *[BODY] * 300, to="hub")
    rig.run(1)
    assert arrived(hub) == 300_000
    for node in (hub, *clients):
        assert not control(node).active
        assert control(node).next_deadline() is None
        told = rig.client(node).manage("STATUS", "node")[1]
        assert "paces" not in told
        assert "paced" not in told
        assert node.core is not None
        assert type(node.core.destination).__name__ == "Destination"
        assert all(
            type(sender).__name__ == "CustodySender"
            for hop in node.core.next_hops.values()
            for sender in hop.senders.values()
        )


# ---------------------------------------------------------------------------------------------- hostile neighbours


def test_a_higher_rate_holds_at_once_for_what_waits() -> None:
    rig, _, (c1, _) = star(root=PacingConfig(rate=20, policy="fixed"))
    rig.run(3)
    send(rig, c1, *[BODY] * 3, to="hub")
    assert c1.core is not None
    sender: Any = c1.core.next_hops["hub"].senders["hub"]
    assert len(sender.waiting) == 2 and sender.due > rig.now + 2
    pace = sender.pacer.origin.pace
    higher = pace._replace(version=pace.version + 1, rate=10_000)
    control(c1)._on_pace(c1.core.neighbours["hub"], higher.fields())
    assert sender.due < rig.now + 0.1


def test_own_messages_that_the_next_hop_blocks_are_tried_when_the_rate_allows_it() -> None:
    """Else all of them would join those that wait for the rate, however many these may be."""
    rig, _, (c1, _) = star()
    rig.run(3)
    send(rig, c1, *[BODY] * 40, to="hub")
    assert c1.core is not None
    sender: Any = c1.core.next_hops["hub"].senders["hub"]
    own, sequence = c1.core.identities.store_uuid, list(sender.waiting)[-1]
    del sender.waiting[sequence]
    blocked = sender.blocked[own] = Blocked(rig.now, 40, rig.now)
    blocked.aside[sequence] = 40
    assert not sender.pacer.ready(rig.now)
    sender._try_blocked(rig.now)
    assert sequence in blocked.aside and sequence not in sender.waiting
    assert blocked.due > rig.now


def report(**fields: Any) -> dict[str, Any]:
    return Report("hub", "c1", "", 1, 1, 0, 1_000, 0, None, 0)._replace(**fields).fields()


def pace(**fields: Any) -> dict[str, Any]:
    return Pace("hub", "c1", "", 1, 1, 1, 1, 1, 1, 1_000)._replace(**fields).fields()


@pytest.mark.parametrize(
    "fields",
    [
        report() | {"used": Ulong(2_000)},
        report() | {"capacity": Ulong(2**60)},
        report() | {"origin": 7},
        report() | {"origin": "x" * 1_000},
        {"kind": "load"},
        {"kind": "pace"},
        pace() | {"rate": Ulong(0)},
        pace() | {"valid": Ulong(10**9)},
        pace() | {"to": None},
        pace() | {"passed": Ulong(NODES_MAX)},
    ],
)
def test_what_is_no_message_of_pacing_ends_the_session(fields: dict[str, Any]) -> None:
    rig, hub, clients = star()
    rig.run(3)
    assert clients[0].core is not None
    assert hub.core is not None
    flaps = hub.core.neighbours["c1"].flaps
    assert clients[0].core.neighbours["hub"].send(fields)
    clients[0].end_turn()
    rig.run(3)
    assert hub.core.neighbours["c1"].flaps == flaps + 1
    assert hub.core.neighbours["c1"].established
    assert hub.core.neighbours["c2"].flaps == 0


def test_a_neighbour_speaks_for_those_alone_that_are_behind_it() -> None:
    rig, hub, clients = star()
    rig.run(3)
    assert clients[0].core is not None
    for origin in ("c2", "hub", "nobody"):
        assert clients[0].core.neighbours["hub"].send(report(origin=origin, process=2**62, weight=1_000))
    clients[0].end_turn()
    dropped = control(hub).dropped
    rig.run(2)
    assert control(hub).dropped == dropped + 3
    assert {row["client"] for row in rows(hub, "paces")} == {"c1", "c2"}
    assert root_of(hub).groups.tables[""].rows["c2"].process < 2**62


class Behind:
    """A session whose control link has as much credit as it is given."""

    name = "hub"
    established = True
    features = frozenset({"holdfast:pacing", "holdfast:hosts"})

    def __init__(self) -> None:
        self.credit = 0
        self.told: list[dict[str, Any]] = []

    def send(self, fields: dict[str, Any]) -> bool:
        if self.credit <= 0:
            return False
        self.credit -= 1
        self.told.append(fields)
        return True


def test_of_what_waits_for_credit_the_newest_of_each_pair_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, c, mid, _ = row()
    rig.run(3)
    behind: Any = Behind()
    rates = control(mid)
    rates._neighbours = rates._neighbours | {"hub": behind}  # type: ignore[operator]
    mid.checks = False
    assert mid.core is not None
    came: Any = mid.core.neighbours["c"]
    for hop in mid.core.next_hops.values():
        hop.hosts = frozenset({"", "a", "b", "d", "more"})
    monkeypatch.setattr(rate_control, "WAITING_MAX", 3)
    for version in (1, 2, 3):
        for group in ("a", "b", "d"):
            rates._on_load(came, report(origin="c", group=group, version=version))
    dropped = rates.dropped
    rates._on_load(came, report(origin="c", group="more"))
    assert rates.dropped == dropped + 1
    assert rates.waiting_count == 3
    behind.credit = 2
    rates.credited(behind)
    behind.credit = 5
    rates.credited(behind)
    assert [(told["group"], told["version"], told["passed"]) for told in behind.told] == [
        ("a", 3, 1), ("b", 3, 1), ("d", 3, 1),
    ]  # fmt: skip
    assert not rates.waiting
    assert c.core is not None


def test_what_waited_for_a_neighbour_that_is_gone_takes_no_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, c, mid, hub = row()
    rig.run(3)
    assert mid.core is not None
    rates = control(mid)
    monkeypatch.setattr(type(mid.core.neighbours["hub"]), "send", lambda *args, **kwargs: False)  # no credit
    monkeypatch.setattr(rate_control, "WAITING_MAX", 1)
    rates._on_load(mid.core.neighbours["c"], report(origin="c"))
    assert rates.waiting_count == 1
    monkeypatch.undo()
    hub.crash()
    apart(rig, "mid", "hub")
    rig.run(20)
    assert not mid.core.neighbours["hub"].established
    assert not rates.waiting, "although nothing more was to be sent there"
    assert c.core is not None


def test_more_than_a_neighbour_may_say_is_passed_over() -> None:
    rig, hub, _ = star()
    rig.run(3)
    assert hub.core is not None
    rates, session = control(hub), hub.core.neighbours["c1"]
    dropped = rates.dropped
    for version in range(int(rate_control.HEARD_PER_S) + 10):
        rates._on_load(session, report(version=version + 1))
    assert rates.dropped >= dropped + 10
    rig.run(2)
    assert hub.core.neighbours["c1"].established


def test_an_older_neighbour_is_sent_nothing() -> None:
    rig, hub, clients = star()
    rig.run(3)
    assert clients[0].core is not None
    peer = clients[0].core.neighbours["hub"].peer
    assert peer is not None
    peer.features = peer.features - {"holdfast:pacing"}
    rates = control(clients[0])
    before = rates.dropped
    rig.run(20)
    assert rates.dropped >= before + 19
    assert "c1" in {row["client"] for row in rows(hub, "paces") if float(row["reported_s"]) > 15}


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"rate": 2**53 + 1}, "pacing rate"),
        ({"period_s": 0.09}, "pacing period_s"),
        ({"period_s": 59.1}, "pacing period_s"),
        ({"policy": "fair"}, "invalid policy 'fair'"),
        ({"lend": 1.1}, "for lend"),
        ({"policy": "fixed", "lend": 0.5}, "for lend"),
        ({"period_s": 5.0}, "policy or lend without a rate"),
        ({"policy": "weights", "roots": ("hub",)}, "policy or lend without a rate"),
        ({"lend": 0.5}, "policy or lend without a rate"),
        ({"shares": (("hub", 1.0),)}, "shares without a rate"),
        ({"rate": 1, "shares": (("me", 1.0),)}, "'me' in pacing shares; expected another node's name"),
        ({"rate": 1, "shares": (("hub", 0.0009),)}, "pacing shares of 'hub'"),
        ({"rate": 1, "shares": (("hub", 1_000.1),)}, "pacing shares of 'hub'"),
        ({"rate": 1, "shares": tuple((f"c{at}", 1.0) for at in range(SHARES_MAX + 1))}, "in pacing shares"),
        ({"roots": ("hub", "hub")}, "listed twice"),
        ({"roots": ("me",)}, "pacing roots"),
        ({"roots": ("nobody",)}, "pacing roots; expected the name of a"),
        ({"roots": tuple(f"c{at}" for at in range(ROOTS_MAX + 1))}, "in pacing roots"),
        ({"capacity_bytes": 1}, "capacity_bytes without roots"),
        ({"roots": ("hub",), "capacity_bytes": 2**53 + 1}, "pacing capacity_bytes"),
    ],
)
def test_what_is_out_of_bounds_is_one_line(told: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        NodeConfig(name="me", neighbours=(NeighbourConfig(name="hub"),), pacing=PacingConfig(**told)).validate()
    assert "\n" not in str(error.value)


def test_the_bounds_themselves_are_taken() -> None:
    shares = (("a", 0.001), ("b", 1_000.0))
    for told in (
        PacingConfig(rate=2**53, period_s=59.0, policy="level", lend=1.0, shares=shares),
        PacingConfig(rate=1, period_s=0.1, roots=("c1",), capacity_bytes=2**53),
        PacingConfig(roots=tuple(f"c{at}" for at in range(ROOTS_MAX))),
        PacingConfig(rate=1, shares=tuple((f"c{at}", 1.0) for at in range(SHARES_MAX))),
    ):
        routes = tuple((root, "mid") for root in told.roots)
        NodeConfig(name="me", neighbours=(NeighbourConfig(name="mid"),), forwarding=routes, pacing=told).validate()
