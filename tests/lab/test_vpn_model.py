"""The traffic paper's experiment: its arrivals, its network, the limit, and what is measured."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from holdfast import cli
from holdfast.errors import ConfigError
from holdfast.pacing import validation
from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.bound import limit
from holdfast_lab.vpn.measures import fairness, run
from holdfast_lab.vpn.model import Network
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, RATE, Experiment, sizing
from holdfast_lab.vpn.settings import SCENARIOS, experiment

SHORT = Experiment(policy="level", span_s=300.0, burst_s=(100.0, 200.0), burst=60.0)

# ------------------------------------------------------------------------------------------------ arrivals


def counted(experiment: Experiment, client: int, begin: float, end: float) -> int:
    count = 0
    for at in times(experiment, client):
        if at >= end:
            return count
        count += at >= begin
    raise AssertionError("they have an end")


def test_intervals_have_the_papers_means() -> None:
    experiments = [Experiment(seed=seed) for seed in range(8)]
    for client, (calm, burst) in enumerate([(0.24, 0.24), (0.24, 0.075), (0.2, 0.2)]):
        outside = mean(counted(one, client, 0, 2_400) for one in experiments)
        within = mean(counted(one, client, 2_400, 4_200) for one in experiments)
        after = mean(counted(one, client, 4_200, 6_000) for one in experiments)
        assert outside == pytest.approx(2_400 / calm, rel=0.02)
        assert within == pytest.approx(1_800 / burst, rel=0.02)
        assert after == pytest.approx(1_800 / calm, rel=0.02)


def test_all_policies_meet_the_same_messages() -> None:
    one, other = (Experiment(policy=policy, seed=3) for policy in ("fixed", "level"))
    assert all(first == second for first, second, _ in zip(times(one, 1), times(other, 1), range(1_000), strict=False))
    assert next(times(Experiment(seed=4), 1)) != next(times(one, 1))


# ------------------------------------------------------------------------------------------------ the network


def test_one_experiment_gives_one_history() -> None:
    first, second = run(replace(SHORT, loss=0.2)), run(replace(SHORT, loss=0.2))
    assert first == second
    assert run(replace(SHORT, loss=0.2, seed=2)) != first


@pytest.mark.parametrize("lend", [0.0, 1.0])
def test_no_message_is_lost_but_at_a_full_queue_and_the_root_never_overflows(lend: float) -> None:
    network = Network(replace(SHORT, burst=200.0, lend=lend, loss=0.1))
    network.run()
    assert network.root_peak <= network.root_messages
    assert max(client.peak for client in network.clients) <= CLIENT_MESSAGES
    generated = sum(client.generated for client in network.clients)
    kept = sum(client.queue for client in network.clients) + network.root_queue
    overflowed = sum(client.overflowed for client in network.clients)
    assert overflowed == len(network.overflow_times) > 0
    assert 0 <= generated - kept - overflowed <= RATE * network.clock.now, "the rest left the root"
    validation.table(network.table, network.clock.now)
    for client in network.clients:
        validation.origin(client.origin)


def test_where_all_control_is_lost_clients_go_on_unpaced() -> None:
    network = Network(replace(SHORT, loss=0.99, burst=20.0))
    network.run()
    assert network.root_peak > 200, "nothing holds them but the root's space"


def test_a_root_that_is_full_takes_no_more_and_forgets_nobody() -> None:
    network = Network(replace(SHORT, lend=1.0, burst=200.0))
    network.run()
    assert network.root_peak == network.root_messages
    assert all(client.queue < 50 for client in network.clients), "after the burst all is sent"


# ------------------------------------------------------------------------------------------------ the limit


@pytest.mark.parametrize("burst", [20.0, 50.0])
def test_the_limit_is_that_of_the_inequality(burst: float) -> None:
    # Sum of max(0, A_i(s) - F) <= R s, where queues are empty when the burst begins (docs/results, "The limit").
    experiment = sizing(Experiment(seed=5), burst)
    begins = experiment.burst_s[0]
    arrivals = []
    for client in range(3):
        for at in times(experiment, client):
            if at > begins + 400:
                break
            if at >= begins:
                arrivals.append((at, client))
    counts = [0, 0, 0]
    for at, client in sorted(arrivals):
        counts[client] += 1
        if sum(max(0, count - CLIENT_MESSAGES) for count in counts) > RATE * (at - begins):
            break
    assert limit(experiment, whole=False) == pytest.approx(counts[1], rel=0.05)


def test_the_roots_space_makes_the_limit_larger() -> None:
    for burst in (18.0, 100.0):
        experiment = sizing(Experiment(seed=2), burst)
        assert limit(experiment, whole=True) > 2 * limit(experiment, whole=False)


@pytest.mark.parametrize("name", ["fixed", "weights", "backlog", "overflow", "level"])
def test_no_policy_passes_the_limit(name: str) -> None:
    for seed in (11, 12):
        sought = sizing(Experiment(policy=name, seed=seed), 100.0)
        assert 0.5 < run(sought)[0].in_burst / limit(sought, whole=False) <= 1.0


# ------------------------------------------------------------------------------------------------ measures


def test_fairness_is_jains_index() -> None:
    assert fairness([5, 5, 5]) == pytest.approx(1)
    assert fairness([0, 9, 0]) == pytest.approx(1 / 3)
    assert fairness([1, 2, 3]) == pytest.approx(36 / (3 * 14))
    assert fairness([0, 0]) == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"policy": "fair"}, "invalid policy"),
        ({"lend": 0.5}, "invalid value 0.5 for lend"),
        ({"clients": 0}, "invalid value 0 for clients; expected 1 to 3000"),
        ({"period_s": 0.0}, "invalid value 0 for period"),
        ({"loss": 1.0}, "invalid value 1 for loss"),
        ({"bursting": (4,)}, "invalid value"),
        ({"bursting": ()}, "invalid value"),
    ],
)
def test_an_experiment_that_cannot_be_is_one_line(given: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Experiment(**given)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ the scenarios


def told(capsys: pytest.CaptureFixture[str], name: str, *words: str) -> dict[str, Any]:
    assert cli.main(["sim", "run", name, "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def setting(**settings: object) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def test_metrics_have_the_names_that_other_programs_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    burst = setting(burst_from_s=60, burst_to_s=180, span_s=240, burst=60)
    found = told(capsys, "traffic-fixed", "--seed", "7", *burst)
    assert (found["scenario"], found["seed"], found["ok"], found["virtual_s"]) == ("traffic-fixed", 7, True, 240.0)
    metrics = found["metrics"]
    names = ["client1", "client2", "client3"]
    for key in ("overflowed", "peak_messages", "generated"):
        assert list(metrics[key]) == names
    assert metrics["overflowed"]["client2"] > 100 and metrics["overflowed"]["client1"] == 0
    assert metrics["peak_messages"]["client2"] == 200
    assert metrics["generated"]["client2"] > 60 * 100
    assert 0 < metrics["root_peak_messages"] < 100
    weights = told(capsys, "traffic-weights", "--seed", "7", *burst)["metrics"]
    assert weights["generated"] == metrics["generated"], "all policies meet the same messages"
    assert weights["overflowed"]["client2"] < metrics["overflowed"]["client2"]


def test_a_seed_gives_one_digest_and_settings_another(capsys: pytest.CaptureFixture[str]) -> None:
    short = setting(span_s=60)
    first = told(capsys, "traffic-weights", *short)
    assert told(capsys, "traffic-weights", *short)["digest"] == first["digest"]
    assert told(capsys, "traffic-weights", "--seed", "2", *short)["digest"] != first["digest"]
    assert told(capsys, "traffic-weights", *short, *setting(period_s=10))["digest"] != first["digest"]


def test_the_size_of_a_burst_is_told_beside_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = told(capsys, "traffic-fixed", *setting(size="true", burst=100))["metrics"]
    assert metrics["share_of_limit"] == metrics["burst_messages"] / metrics["limit_messages"] < 1
    assert metrics["limit_whole_messages"] > metrics["limit_messages"]


def test_series_are_told_at_the_intervals_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "traffic-level", *setting(span_s=60, series_s=20))
    series: Mapping[str, list[float]] = found["series"]
    assert {len(values) for values in series.values()} == {3}
    assert series["generated1"][-1] == found["metrics"]["generated"]["client1"]
    assert {"queue1", "rate2", "generated3", "root", "overflowed"} <= set(series)
    assert "series" not in told(capsys, "traffic-level", *setting(span_s=60))


def test_the_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert set(SCENARIOS) <= set(names)


def test_what_is_kept_of_a_run_says_how_it_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = setting(burst_from_s=10, burst_to_s=40, span_s=60, burst=100, bursting="1,2")
    told(capsys, "traffic-fixed", "--out", str(tmp_path / "out"), *words)
    kept = json.loads((tmp_path / "out" / "result.json").read_text())
    assert kept["replay"].endswith("--set burst=100 --set bursting=1,2")
    kinds = {json.loads(line)["kind"] for line in (tmp_path / "out" / "events.ndjson").read_text().splitlines()}
    assert kinds == {"burst", "overflow"}


def test_thresholds_are_given_as_utilisation_and_weight() -> None:
    found = experiment("traffic-weights", 1, {"thresholds": "0.1:1,0.5:9"}).thresholds
    assert [found.weight(used, 200) for used in (0, 20, 99, 100)] == [0, 1, 1, 9]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rate": "5"}, "invalid key 'rate' to set; expected one of lend, clients"),
        ({"period_s": "soon"}, "invalid value 'soon' for period_s; expected a number"),
        ({"period_s": "nan"}, "invalid value nan for period_s; expected 0.1 to 59"),
        ({"clients": "3.5"}, "invalid value '3.5' for clients; expected a whole number"),
        ({"clients": "4000"}, "invalid value 4000 for clients; expected 1 to 3000"),
        ({"size": "yes"}, "invalid value 'yes' for size; expected true or false"),
        ({"size": "true", "span_s": "5"}, "span_s cannot be set with size=true"),
        ({"thresholds": "0.1"}, "expected UTILISATION:WEIGHT"),
        ({"thresholds": "0.5:1,0.1:2"}, "thresholds: invalid threshold 0.1 after 0.5; expected them ascending"),
        ({"burst_from_s": "100", "burst_to_s": "50"}, "invalid value 50 for burst_to_s"),
        ({"fail": "p1"}, "fail and fast_reroute need a network"),
        ({"lend": "1"}, "invalid value 1.0 for lend; expected 0, since 'weights' does not lend"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(
    settings: dict[str, str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sim", "run", "traffic-weights", *setting(**settings)]) == 2
    said = capsys.readouterr().err
    assert text in said and said.count("\n") == 1


def test_other_scenarios_have_nothing_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "run", "line-cut", "--set", "span_s=5"]) == 2
    assert "scenario 'line-cut' has nothing to --set" in capsys.readouterr().err
    assert cli.main(["sim", "run", "traffic-fixed", "--set", "lend=0", "--set", "lend=1"]) == 2
    assert "--set names a key twice" in capsys.readouterr().err
