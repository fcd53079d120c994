"""Pacing by virtual host: each has its share of a root's rate, and knows nothing of the others (docs/pacing.md)."""

from typing import Any

import pytest

from core.test_paced import BODY, control, report, root_of, rows
from core.test_paced_bursts import deaf, offer
from holdfast.broker.entries.host_names import destination_of
from holdfast.custody.hop.links import hop_key
from holdfast.errors import ConfigError
from holdfast.pacing import table as tables
from holdfast.pacing.groups import Groups
from holdfast.pacing.messages import Report
from holdfast.pacing.policies import Fixed
from holdfast.pacing.settings import HOSTS_MAX, ROOTS_MAX, PacingConfig
from holdfast.settings.hosts import VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from support.crossing import HOSTS, bodies, client_of, crossing, say
from support.hops import is_empty
from support.rig import Node, Rig

PACED = ("acme", "globex")
SHARES = (("acme", 2.0),)
ROOT = PacingConfig(rate=12_000, policy="fixed", hosts=PACED, host_shares=SHARES)
CLIENT = PacingConfig(roots=("hub",), hosts=PACED)
RATES = {"": 3_000, "acme": 6_000, "globex": 3_000}


def path(*names: str, root: PacingConfig = ROOT, client: PacingConfig = CLIENT) -> tuple[Rig, list[Node]]:
    """Nodes in a row, the first a client of the last; messages of both hosts may cross everywhere."""
    rig = Rig()
    fields: dict[str, dict[str, Any]] = {names[0]: {"pacing": client}, names[-1]: {"pacing": root}}
    nodes = rig.line(*names, start=False, **fields)
    for node in nodes:
        node.config = crossing(node.config, *PACED)
        node.start()
    rig.run(4)
    return rig, nodes


def burst(node: Node, host: str, count: int = 150) -> None:
    say(node, host, *[BODY] * count, to="work@hub")


def arrived(hub: Node, host: str) -> int:
    return sum(len(body) for body in bodies(hub, host))


@pytest.mark.parametrize("names", [("jfk", "hub"), ("jfk", "via", "hub")])
def test_each_host_has_its_share_of_the_rate(names: tuple[str, ...]) -> None:
    rig, nodes = path(*names)
    jfk, hub = nodes[0], nodes[-1]
    for host in HOSTS:
        burst(jfk, host)
    rig.run(1)
    before = {host: arrived(hub, host) for host in HOSTS}
    rig.run(10)
    for host in HOSTS:
        assert arrived(hub, host) - before[host] == pytest.approx(10 * RATES[host], rel=0.15), host
    assert {str(row["vhost"]): row["rate"] for row in rows(hub, "paces")} == RATES
    assert {str(row["vhost"]): row["rate"] for row in rows(jfk, "paced")} == RATES
    told = [fields for kind, fields in hub.records if kind == "pacing"][-1]
    assert (told["rate"], told["given"], told["clients"]) == (12_000, 12_000, 3)
    rig.run(60)
    assert is_empty(*nodes)


def test_what_one_host_leaves_unused_is_not_given_to_another() -> None:
    """Else it could tell from its rate what the others send."""
    rig, (jfk, hub) = path("jfk", "hub", root=PacingConfig(rate=12_000, policy="level", hosts=PACED))
    burst(jfk, "acme")
    rig.run(5)
    assert {str(row["vhost"]): row["rate"] for row in rows(hub, "paces")} == dict.fromkeys(HOSTS, 4_000)
    before = arrived(hub, "acme")
    rig.run(5)
    assert arrived(hub, "acme") - before == pytest.approx(20_000, rel=0.15)


def test_a_host_that_is_not_listed_is_neither_paced_nor_counted() -> None:
    only = ("acme",)
    rig, (jfk, hub) = path(
        "jfk", "hub", root=PacingConfig(rate=8_000, policy="fixed", hosts=only),
        client=PacingConfig(roots=("hub",), hosts=only),
    )  # fmt: skip
    burst(jfk, "globex")
    rig.run(1)
    assert arrived(hub, "globex") == 150 * len(BODY)
    assert [(row["client"], row["vhost"], row["rate"]) for row in rows(hub, "paces")] == [
        ("jfk", "", 4_000), ("jfk", "acme", 4_000),
    ]  # fmt: skip
    assert sum(int(row["received"]) for row in rows(hub, "paces")) == 0


def test_a_host_that_its_root_does_not_pace_waits_for_no_rate() -> None:
    rig, (jfk, hub) = path("jfk", "hub", root=PacingConfig(rate=8_000, policy="fixed"))
    burst(jfk, "acme")
    rig.run(2)
    assert arrived(hub, "acme") == 150 * len(BODY)
    assert {str(row["vhost"]) for row in rows(hub, "paces")} == {""}


def test_each_host_has_a_bounded_queue_of_its_own_to_a_root() -> None:
    told = PacingConfig(roots=("hub",), hosts=PACED, capacity_bytes=20_000, when_full="refuse")
    rig, (jfk, _) = path("jfk", "hub", client=told)
    client = client_of(jfk, "acme")
    link = client.sender("work@hub")
    rig.settle()
    offer(rig, client, link, 0, 200)
    assert jfk.core is not None
    queues = {host: jfk.core.catalog.transmission(destination_of(host, "hub")) for host in HOSTS}
    assert queues["acme"].bytes_held == pytest.approx(18_000, abs=1_100)
    assert all(queue.config.bytes_max == 20_000 for queue in queues.values())
    refused = client_of(jfk, "acme").manage("STATUS", "node")[1]["refused"]
    assert int(refused[0]["messages"]) > 100  # type: ignore[index]
    assert not rows(jfk, "refused"), "the default host knows nothing of it"
    say(jfk, "globex", *[BODY] * 20, to="work@hub")
    assert queues["globex"].refused_total == 0, "a full queue of one host stops no other"
    rig.run(60)
    assert is_empty(jfk)


def test_who_ignores_its_rate_in_one_host_is_cut_there_alone() -> None:
    rig, (jfk, hub) = path("jfk", "hub")
    deaf(jfk, "acme@hub")
    for _ in range(40):
        say(jfk, "acme", *[BODY] * 15, to="work@hub")
        rig.run(0.5)
    assert list(root_of(hub).credits["acme"].cut) == ["jfk"]
    assert not root_of(hub).credits[""].cut and not root_of(hub).credits["globex"].cut
    assert hub.core is not None
    say(jfk, "globex", BODY, to="work@hub")
    links = {host: hub.core.links.custody_receivers[hop_key("jfk", destination_of(host, "hub"))] for host in PACED}
    assert links["acme"].link.credit <= 3 < links["globex"].link.credit
    rig.run(120)
    assert is_empty(jfk)


def test_of_a_host_that_may_not_cross_nothing_is_heard_or_told() -> None:
    """Whether the file of the one or of the other does not list it."""
    rig, nodes = path("jfk", "via", "hub")
    jfk, via, hub = nodes
    via.crash()
    via.config = crossing(via.config, "globex")
    via.start()
    rig.run(6)
    assert {str(row["vhost"]) for row in rows(hub, "paces") if float(row["reported_s"]) < 5} == {"", "globex"}
    assert jfk.core is not None and via.core is not None
    dropped = control(via).dropped
    told = report(origin="jfk", group="acme", process=2**62, weight=1_000)
    assert jfk.core.neighbours["via"].send(told)
    jfk.end_turn()
    rig.run(0.1)
    assert control(via).dropped > dropped
    assert all(row.process < 2**62 for row in root_of(hub).groups.tables["acme"].rows.values())
    burst(jfk, "globex", 20)
    rig.run(5)
    assert arrived(hub, "globex") == 20 * len(BODY)


def test_all_groups_together_have_as_many_rows_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_MAX", 3)
    monkeypatch.setattr(tables, "ROWS_PER_S", 10)
    groups = Groups("hub", 9_000, Fixed(), {"": 1.0, "acme": 1.0}, period_s=2.0, process=1, now=0.0)
    taken = [
        groups.receive(0.0, Report("hub", f"c{at}", group, 1, 1, 0, 1_000, 0, None, 0))
        for at in range(2) for group in ("", "acme")
    ]  # fmt: skip
    assert taken == [True, True, True, False]
    groups.tick(0.0, dict.fromkeys(groups.tables, (1_000, 0)))
    groups.receive(0.1, Report("hub", "c0", "", 2, 1, 0, 1_000, 0, None, 0))
    groups.take(0.1, 100)
    assert groups.tables[""].next_deadline() == pytest.approx(0.3), "3 rows, of which 10 are computed a second"


def config(**told: Any) -> NodeConfig:
    neighbours = (NeighbourConfig(name="hub", hosts=("acme",)),)
    vhosts = (VhostConfig(name="acme"), VhostConfig(name="globex"))
    return NodeConfig(name="me", neighbours=neighbours, vhosts=vhosts, pacing=PacingConfig(**told))


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"rate": 9, "hosts": ("initech",)}, "invalid value 'initech' in pacing hosts; expected the name of a"),
        ({"rate": 9, "hosts": ("acme", "acme")}, "'acme' is listed twice in pacing hosts"),
        ({"hosts": ("acme",)}, "pacing hosts without a rate or roots"),
        ({"rate": 9, "hosts": ("acme",), "host_shares": (("globex", 1.0),)}, "'globex' in pacing host_shares"),
        ({"rate": 9, "hosts": ("acme",), "host_shares": (("acme", 0.0001),)}, "for pacing host_shares of 'acme'"),
        ({"roots": ("hub",), "hosts": ("acme",), "host_shares": (("acme", 1.0),)}, "host_shares without a rate"),
        ({"rate": 1, "hosts": ("acme",)}, "less than 1 byte a second"),
    ],
)
def test_what_is_out_of_bounds_is_one_line(told: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        config(**told).validate()
    assert "\n" not in str(error.value)


def test_the_number_of_hosts_is_bounded() -> None:
    many = tuple(f"h{at}" for at in range(HOSTS_MAX + 1))
    roots = tuple(f"c{at}" for at in range(ROOTS_MAX // 2 + 1))
    for told, what in (
        ({"rate": 10**6, "hosts": many}, "in pacing hosts; expected at most"),
        ({"roots": roots, "hosts": ("acme",)}, "pacing roots of 2 virtual hosts"),
    ):
        with pytest.raises(ConfigError, match=what):
            PacingConfig(**told).validate("me", None)  # type: ignore[arg-type]
    PacingConfig(rate=10**6, hosts=many[:-1]).validate("me", None)
    PacingConfig(roots=roots[:-1], hosts=("acme",)).validate("me", None)


def test_the_room_of_a_host_is_that_of_its_own_queues() -> None:
    rig, (jfk, hub) = path("jfk", "hub")
    burst(jfk, "acme", 10)
    rig.run(5)
    root = root_of(hub)
    held = {host: root.rooms()[host][1] for host in HOSTS}
    assert held["acme"] > 10 * len(BODY) and held[""] == held["globex"] == 0
    assert root.rooms()["acme"][0] == root.rooms()[""][0] + held["acme"], "what is free is divided equally"


class Looks(dict[Any, Any]):
    """The queues of a node; counts how often all are looked at."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_the_queues_of_a_root_are_looked_at_once_however_many_hosts_it_paces(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, (jfk, hub) = path("jfk", "hub")
    for host in HOSTS:
        burst(jfk, host)
    rig.run(1)
    root = root_of(hub)
    queues = Looks(root._catalog.queues)
    monkeypatch.setattr(root, "_catalog", type("Catalog", (), {"queues": queues})())
    now = max(at for _, at in root._free.values()) + 1.0
    for table in root.groups.tables.values():
        table.tick(now - 1.0, 1, 0)
    rig.now = now
    root.tick(now + ROOT.period_s)
    assert queues.looks == 1
    root.shared()
    assert queues.looks == 2
    for host in HOSTS:
        root.credit(host, "jfk", 100)
    assert queues.looks <= 3
