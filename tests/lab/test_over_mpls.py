"""The paper's experiment through the provider's network: what direct links leave out, and what must not change."""

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.pacing import validation
from holdfast_lab.mpls.network_file import read_network
from holdfast_lab.vpn.measures import run
from holdfast_lab.vpn.over_mpls import CREDIT, MplsNetwork, network_of
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, Experiment
from holdfast_lab.vpn.settings import experiment

BURST = {"burst_from_s": "20", "burst_to_s": "60", "span_s": "80", "network": "paper"}


def made(policy: str, **other: str) -> Experiment:
    return experiment(f"traffic-{policy}", 1, BURST | other)


def after(policy: str, **other: str) -> MplsNetwork:
    network = network_of(made(policy, **other))
    network.run()
    return network


def test_it_differs_from_direct_links_by_what_messages_take_on_the_way() -> None:
    through, _ = run(made("weights"))
    direct, _ = run(experiment("traffic-weights", 1, {key: BURST[key] for key in BURST if key != "network"}))
    assert through.generated == direct.generated
    assert through.overflowed == direct.overflowed == [0, 0, 0]
    for one, other in zip(through.peaks, direct.peaks, strict=True):
        assert other - 3 <= one <= other + 8, "a copy stays until the root has answered"
    assert 0.01 < through.counted["network"]["message_delay_mean_s"] < 0.05
    assert through.counted["network"]["packets_lost"] == 0
    assert through.counted["network"]["packets_misdelivered"] == 0


def test_one_experiment_gives_one_history() -> None:
    short = made("level", span_s="30", burst_to_s="25", fail="p4", fail_at_s="10", repair_at_s="15")
    assert run(short) == run(short)


@pytest.mark.parametrize("policy", ["fixed", "level"])
def test_no_message_is_lost_and_none_comes_twice(policy: str) -> None:
    network = after(policy, burst="100", loss="0.2", fail="p4", fast_reroute="false", fail_at_s="30", repair_at_s="45")
    generated = sum(client.generated for client in network.clients)
    overflowed = sum(client.overflowed for client in network.clients)
    kept = sum(client.queue for client in network.clients)
    answered_later = sum(client.on_the_way for client in network.clients)
    assert generated - overflowed - kept <= network.delivered <= generated - overflowed - kept + answered_later
    assert network.root_peak <= network.root_messages
    assert max(client.peak for client in network.clients) <= CLIENT_MESSAGES
    for far in network.far:
        assert 0 <= far.client.on_the_way <= CREDIT and far.received <= far.granted
    validation.table(network.table, network.clock.now)
    assert network.counted()["network"]["packets_in_failures"] > 0


def test_the_root_gives_no_more_credit_than_it_has_room() -> None:
    network = network_of(made("level", lend="1", burst="300"))
    network.root_messages = 60
    for far in network.far:
        far.credit = far.granted = 20
    network._promised = 60
    network.run()
    assert 50 <= network.root_peak <= 60
    assert network.delivered > 1_000
    assert network._promised == sum(far.granted - far.received for far in network.far)


def test_fast_reroute_shortens_what_a_lost_router_costs() -> None:
    lost = {"fail": "p4", "fail_at_s": "30", "repair_at_s": "45"}
    fast = after("level", **lost).counted()["network"]
    slow = after("level", **lost, fast_reroute="false").counted()["network"]
    assert fast["message_delay_max_s"] < 1.5 < 4 < slow["message_delay_max_s"]
    assert fast["packets_lost"] > 0


def test_more_clients_are_where_the_files_are_and_links_carry_as_many_times_more() -> None:
    network = network_of(made("level", clients="6", span_s="20", burst_to_s="25"))
    network.run()
    assert len(network.far) == 6 and all(client.generated > 50 for client in network.clients)
    assert [network.provider.hosts[f"more{number}"].address for number in (4, 5, 6)] == [
        "10.0.1.2", "10.0.2.2", "10.0.3.2"
    ]  # fmt: skip
    sent = sum(client.generated - client.queue for client in network.clients)
    assert 0 <= network.delivered - sent <= 6 * CREDIT
    twice, once = (
        next(link for link in file.links if link.one == "pe1")
        for file in (network.provider.file, read_network("paper"))
    )  # fmt: skip
    assert twice.bits_per_s == 2 * once.bits_per_s
    assert network.counted()["network"]["packets_lost"] == 0


def test_a_network_without_the_experiment_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="paper has 3 clients; expected as many or more, not 2"):
        network_of(made("fixed", clients="2"))
    with pytest.raises(ConfigError, match="client 'acme1' is a site by itself; expected one at a CE router"):
        network_of(made("fixed", network="extranet", clients="6"))
    with pytest.raises(ConfigError, match="'ce1' has no address for client 763"):
        network_of(made("fixed", clients="900"))
    with pytest.raises(ConfigError, match="invalid value 'p9' for fail"):
        network_of(made("fixed", fail="p9"))
    assert read_network("extranet").clients == ("acme1", "acme2", "blue1")
    assert network_of(made("fixed", network="extranet")).provider.file.name == "extranet"
    path = tmp_path / "mine.toml"
    path.write_text('[[pe]]\nname = "pe1"\n')
    with pytest.raises(ConfigError, match="no \\[traffic\\]; expected its root and clients"):
        network_of(made("fixed", network=str(path)))
