"""The traffic paper's experiment: its arrivals, its network, the limit, and what is measured."""

import json
from dataclasses import replace
from statistics import mean

import pytest

from holdfast import cli
from holdfast.errors import ConfigError
from holdfast.pacing import validation
from holdfast_lab.vpn.arriving import times
from holdfast_lab.vpn.bound import limit
from holdfast_lab.vpn.measures import burst_size, fairness, run, settling_s
from holdfast_lab.vpn.model import Network
from holdfast_lab.vpn.parameters import CLIENT_MESSAGES, RATE, Experiment, sizing
from holdfast_lab.vpn.pictures import moving_average

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
    assert 0 <= generated - kept - overflowed <= RATE * network.now, "the rest left the root"
    validation.table(network.table, network.now)
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
        found = burst_size(Experiment(policy=name, seed=seed), 100.0)
        assert 0.5 < found.share <= 1.0


# ------------------------------------------------------------------------------------------------ measures


def test_fairness_is_jains_index() -> None:
    assert fairness([5, 5, 5]) == pytest.approx(1)
    assert fairness([0, 9, 0]) == pytest.approx(1 / 3)
    assert fairness([1, 2, 3]) == pytest.approx(36 / (3 * 14))
    assert fairness([0, 0]) == 1


def test_a_path_settles_when_it_stays_near_its_mean() -> None:
    path = [0] * 30 + [50] * 170
    assert settling_s([path, path]) == 30
    assert settling_s([[5] * 100]) == 0


def test_a_moving_average_is_of_the_last_seconds() -> None:
    assert moving_average([1, 2, 3, 4], 2) == pytest.approx([1, 1.5, 2.5, 3.5])


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


# ------------------------------------------------------------------------------------------------ the verb


def test_a_simulation_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pacing", "simulate", "--policy", "level", "--span", "60", "--seeds", "2", "--jobs", "1"]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "policy level 0, 3 clients, T = 2 s"
    assert [line.split()[0] for line in lines[1:]] == ["seed", "1", "2"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"] == "level 0"
    assert [one["seed"] for one in found["runs"]] == [1, 2]
    assert found["runs"][0]["overflowed"] == [0, 0, 0]


def test_the_size_of_a_burst_is_printed_beside_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pacing", "simulate", "--policy", "fixed", "--size", "--burst", "100", "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["runs"]
    assert one["share"] == one["size"] / one["limit"] < 1


def test_a_policy_that_there_is_not_is_a_mistake_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pacing", "simulate", "--policy", "fair"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "expected one of fixed, weights, backlog, overflow, level" in told
