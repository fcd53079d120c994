"""The provider's network: labels, VPNs, shortest paths, fast reroute, and what stops when one thing is taken away."""

import json
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from holdfast import cli
from holdfast_lab.mpls.clock import Clock
from holdfast_lab.mpls.links import HOPS_MAX, Link, Packet
from holdfast_lab.mpls.network_file import read_network
from holdfast_lab.mpls.paths import shortest, two_way
from holdfast_lab.mpls.provider import Provider

CLIENTS = ("client1", "client2", "client3")
OTHERS = ("client4", "client5", "client6")


@pytest.fixture
def paper() -> Provider:
    return Provider(Clock(), read_network("paper"))


@pytest.fixture
def slow() -> Provider:
    """Without fast reroute."""
    return Provider(Clock(), read_network("paper"), fast_reroute=False)


def reached(provider: Provider, source: str, destination: str) -> bool:
    return provider.trace(source, destination, seconds=0.2)[-1] == f"{destination}: arrived"


def which(provider: Provider) -> set[str]:
    """The clients that reach their root."""
    found = {client for client in CLIENTS if reached(provider, client, "root1")}
    return found | {client for client in OTHERS if reached(provider, client, "root2")}


# ------------------------------------------------------------------------------------------------ labels


def test_the_papers_network_is_that_of_figure_7() -> None:
    file = read_network("paper")
    assert (len(file.p), len(file.pe), len(file.sites), len(file.hosts)) == (5, 4, 4, 8)
    assert (file.root, file.clients) == ("root1", CLIENTS)


def test_a_packet_has_two_labels_and_the_outer_one_is_swapped(paper: Provider) -> None:
    way = paper.trace("client1", "root1")
    assert [line.split(":")[0] for line in way] == [
        "client1", "ce1", "pe1", "pe1", "p1", "p4", "pe4", "pe4", "ce4", "root1"
    ]  # fmt: skip
    vpn = paper.edges["pe4"].vrfs["one"].label
    outer = [paper.routers[name].labels.bindings["pe4"] for name in ("p1", "p4", "pe4")]
    assert way[2:8] == [
        f"pe1: VPN one, push {vpn}", f"pe1: push {outer[0]}", f"p1: swap {outer[0]} to {outer[1]}",
        f"p4: swap {outer[1]} to {outer[2]}", f"pe4: pop {outer[2]}", f"pe4: pop {vpn}, VPN one",
    ]  # fmt: skip


def test_labels_are_paid_for_on_the_way_and_gone_at_the_end(paper: Provider) -> None:
    sizes: list[int] = []
    link = paper.links["p1", "p4"]
    packet = Packet(paper.hosts["client1"].address, paper.hosts["root1"].address, 100)
    paper.hosts["root1"].take = lambda one: sizes.append(one.size)
    paper.hosts["client1"].send(packet)
    while not link.packets:
        paper.clock.run(paper.clock.now + 0.001)
    sizes.append(packet.size)
    paper.clock.run(1)
    assert sizes == [108, 100]


def test_paths_between_edge_routers_are_a_full_mesh(paper: Provider) -> None:
    for edge in paper.edges.values():
        assert set(edge.labels.pushes) == set(paper.edges) - {edge.name}


def test_all_clients_reach_their_own_root(paper: Provider) -> None:
    assert which(paper) == {*CLIENTS, *OTHERS}


# ------------------------------------------------------------------------------------------------ one thing taken away


def test_without_one_path_its_messages_stop_and_the_others_go_on(paper: Provider) -> None:
    del paper.edges["pe1"].labels.pushes["pe4"]
    assert which(paper) == {"client2", "client3", *OTHERS}
    assert paper.edges["pe1"].discarded == {"no path to pe4": 1}


def test_without_one_import_that_vpn_stops_at_that_router(paper: Provider) -> None:
    vrf = paper.edges["pe2"].vrfs["one"]
    vrf.imports.clear()
    vrf.learned.clear()
    vrf.forget_lookups()
    assert which(paper) == {"client1", "client3", *OTHERS}
    assert paper.edges["pe2"].discarded == {"VPN one has no route to 10.0.4.1": 1}


def test_without_one_label_entry_what_uses_it_stops(paper: Provider) -> None:
    p1 = paper.routers["p1"]
    label = p1.labels.bindings["pe4"]
    del p1.labels.swaps[label]
    stopped = {*CLIENTS, *OTHERS} - which(paper)
    assert "client1" in stopped and not stopped & {"client3", *OTHERS}
    assert set(p1.discarded) == {f"label {label} is not known"}


def test_without_the_vpns_label_at_its_root_that_vpn_stops(paper: Provider) -> None:
    pe4 = paper.edges["pe4"]
    del pe4.labels.vpns[pe4.vrfs["one"].label]
    assert which(paper) == set(OTHERS)


# ------------------------------------------------------------------------------------------------ VPNs


def test_two_vpns_use_the_same_addresses_and_do_not_meet(paper: Provider) -> None:
    assert paper.hosts["root1"].address == paper.hosts["root2"].address
    assert reached(paper, "client1", "root1") and reached(paper, "client4", "root2")
    assert paper.lost() == dict.fromkeys(("in_failures", "at_full_buffers", "discarded", "misdelivered"), 0)


def test_a_root_of_an_extranet_is_in_several_vpns_and_nothing_leaks_between_them() -> None:
    provider = Provider(Clock(), read_network("extranet"))
    hosts = ("acme1", "acme2", "blue1", "blue2")
    for host in hosts:
        assert reached(provider, host, "root") and reached(provider, "root", host)
    for source in hosts:
        for destination in hosts:
            if source != destination:
                assert reached(provider, source, destination) == (source[:4] == destination[:4])
    known = {route.rd for route in provider.edges["pe1"].vrfs["acme"].learned.values()}
    assert known == {"65000:1", "65000:9"}, "what the shared VPN imported, it exports to nobody"


def test_the_longest_prefix_wins_and_routes_are_of_their_distinguisher(paper: Provider) -> None:
    vrf = paper.edges["pe1"].vrfs["one"]
    vrf.sites[IPv4Network("10.0.4.0/25")] = own = paper.links["pe1", "ce1"]
    vrf.forget_lookups()
    assert vrf.lookup("10.0.4.1") is own
    far = vrf.lookup("10.0.4.200")
    assert not isinstance(far, Link) and far is not None
    assert (far.rd, far.next_hop) == ("65000:1", "pe4")


def test_a_site_that_is_gone_is_withdrawn_and_announced_again(paper: Provider) -> None:
    def known() -> bool:
        return paper.edges["pe1"].vrfs["one"].lookup("10.0.4.1") is not None

    paper.fail("pe4-ce4")
    paper.clock.run(1.0)
    assert known(), "it takes bgp_s after it was noticed"
    paper.clock.run(1.1)
    assert not known() and reached(paper, "client4", "root2")
    paper.repair("pe4-ce4")
    paper.clock.run(13)
    assert known() and reached(paper, "client1", "root1")


def test_an_edge_router_that_comes_back_learns_all_routes_again(paper: Provider) -> None:
    paper.fail("pe1")
    paper.edges["pe1"].vrfs["one"].learned.clear()
    paper.clock.run(20)
    assert which(paper) == {"client2", "client3", "client5", "client6"}
    paper.repair("pe1")
    paper.clock.run(50)
    assert which(paper) == {*CLIENTS, *OTHERS}


# ------------------------------------------------------------------------------------------------ failures


def test_with_fast_reroute_a_lost_router_is_gone_around_as_soon_as_it_is_noticed(paper: Provider) -> None:
    paper.fail("p4")
    assert not reached(paper, "client1", "root1"), "it is not noticed yet"
    paper.clock.run(0.3)
    way = paper.trace("client2", "root1", seconds=0.2)
    assert way[-1] == "root1: arrived" and "goes around p4" in str(way)
    assert set(CLIENTS) <= which(paper)


def test_without_fast_reroute_messages_stop_until_paths_are_computed(slow: Provider) -> None:
    slow.fail("p4")
    slow.clock.run(3.5)
    assert not {"client1", "client3"} & which(slow)
    slow.clock.run(8)
    assert which(slow) == {*CLIENTS, *OTHERS}
    slow.repair("p4")
    slow.clock.run(60)
    assert "p4: swap" in str(slow.trace("client1", "root1"))


def test_a_bypass_is_not_needed_any_more_once_paths_are_computed(paper: Provider) -> None:
    paper.fail("p4")
    paper.clock.run(8)
    for client in CLIENTS:
        assert "goes around" not in str(paper.trace(client, "root1", seconds=0.2))


def test_a_lost_link_is_gone_around(paper: Provider) -> None:
    paper.fail("p1-p4")
    paper.clock.run(0.1)
    way = paper.trace("client1", "root1", seconds=0.2)
    assert way[-1] == "root1: arrived" and "goes around" in str(way)


def test_each_router_that_can_be_lost_is_gone_around(paper: Provider) -> None:
    """Whatever P router fails, all messages go on before any path was computed anew."""
    for name in paper.file.p:
        provider = Provider(Clock(), paper.file)
        provider.fail(name)
        provider.clock.run(0.1)
        assert which(provider) == {*CLIENTS, *OTHERS}, name


def test_news_is_flooded_and_the_computation_is_held_down(slow: Provider) -> None:
    slow.fail("p1-p4")
    slow.clock.run(0.2)
    versions = {state.known["p1"].version for state in slow._states.values()}
    assert versions == {2}, "all routers know"
    slow.clock.run(5.5)
    assert slow.routers["p1"].labels.pushes.get("pe4") is None
    assert reached(slow, "client1", "root1")
    computed = slow._states["p1"]._computed_at
    slow.fail("p2-p5")
    slow.clock.run(computed + 9.9)
    assert slow._states["p1"]._computed_at == computed, "no sooner than spf_hold_s after the last"
    slow.clock.run(computed + 20)
    assert slow._states["p1"]._computed_at >= computed + 10


def test_a_link_that_fails_again_is_held_down_from_its_last_repair(slow: Provider) -> None:
    for at in (0.0, 8.0):
        slow.clock.run(at)
        slow.fail("p1-p4")
        slow.clock.run(at + 1)
        slow.repair("p1-p4")
    slow.clock.run(18.9)
    assert slow._states["p1"].down == {"p4"}
    slow.clock.run(19.1)
    assert slow._states["p1"].down == set()


def test_a_link_counts_where_both_ends_announce_it() -> None:
    known = {"a": {"b": 1.0, "c": 1.0}, "b": {"a": 1.0, "c": 1.0}, "c": {"b": 1.0}}
    assert shortest(two_way(known), "a")["c"] == ("a", "b", "c")


def test_of_equal_paths_the_fewest_hops_and_then_the_lowest_names() -> None:
    graph = {"a": {"b": 1.0, "c": 1.0, "d": 2.0}, "b": {"d": 1.0}, "c": {"d": 1.0}, "d": {}}
    assert shortest(graph, "a")["d"] == ("a", "d")
    del graph["a"]["d"]
    assert shortest(graph, "a")["d"] == ("a", "b", "d")
    assert shortest(graph, "a", without=("b",))["d"] == ("a", "c", "d")


def test_a_packet_in_a_loop_has_an_end(slow: Provider) -> None:
    p1, p4 = (slow.routers[name] for name in ("p1", "p4"))
    swap = p4.labels.swaps[p4.labels.bindings["pe4"]]
    swap.link, swap.out = p4.links["p1"], p1.labels.bindings["pe4"]
    way = slow.trace("client1", "root1")
    assert way[-1].endswith("discarded, in a loop")
    assert len(way) < 2 * HOPS_MAX


# ------------------------------------------------------------------------------------------------ links


class Sink:
    name = "sink"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.came: list[float] = []

    def receive(self, packet: Packet, link: Link) -> None:
        self.came.append(self.clock.now)


@pytest.fixture
def line() -> Iterator[tuple[Clock, Link, Sink]]:
    clock = Clock()
    sink = Sink(clock)
    yield clock, Link(clock, "a", sink, bits_per_s=8_000, delay_s=0.5, buffer_bytes=1_000), sink


def test_a_link_takes_its_time_and_drops_what_its_buffer_cannot_hold(line: tuple[Clock, Link, Sink]) -> None:
    clock, link, sink = line
    for _ in range(4):
        link.send(Packet("a", "b", 400))
    assert link.waiting_bytes() == pytest.approx(800) and link.dropped == 2
    clock.run(10)
    assert sink.came == pytest.approx([0.9, 1.3])
    link.send(Packet("a", "b", 1_000))
    assert link.dropped == 2, "one that finds the link free is never too large"


def test_what_is_on_a_link_that_fails_is_lost(line: tuple[Clock, Link, Sink]) -> None:
    clock, link, sink = line
    link.send(Packet("a", "b", 400))
    clock.run(0.1)
    link.fail()
    link.send(Packet("a", "b", 400))
    link.repair()
    link.send(Packet("a", "b", 400))
    clock.run(10)
    assert link.lost == 2 and sink.came == pytest.approx([1.0])


# ------------------------------------------------------------------------------------------------ the verb


def test_the_way_of_a_packet_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "network", "paper", "--path", "client1", "root1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "client1: sends to 10.0.4.1" and lines[-1] == "root1: arrived"
    words = ["sim", "network", "paper", "--fail", "p4", "--after", "0.1", "--path", "client1", "root1", "--json"]
    assert cli.main(words) == 0
    assert "goes around" in str(json.loads(capsys.readouterr().out)["path"])
    assert cli.main(["sim", "network", "extranet"]) == 0
    assert "VPN blue     blue1, blue2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["none"], "invalid network 'none'; expected a path or one of paper, extranet"),
        (["./none.toml"], "cannot be read"),
        (["paper", "--path", "client1", "pe1"], "invalid host 'pe1'; expected one of client1"),
        (["paper", "--fail", "p9"], "invalid value 'p9' for fail; expected a router"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "network", *words]) == 2
    said = capsys.readouterr().err
    assert text in said and said.count("\n") == 1
