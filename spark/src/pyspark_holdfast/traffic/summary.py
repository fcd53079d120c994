"""What a report says of many runs: the acceptance table, the comparison of policies, and what they are sensitive to.

Rules of this file: rows of the table to one JSON object, whose parts are empty where the table had no such runs. Grids
are known by name (benchmarks/sweeps/traffic.toml).
"""

from collections.abc import Sequence
from statistics import mean
from typing import Any, Final

from holdfast.errors import ConfigError
from pyspark_holdfast.traffic import acceptance, priorities
from pyspark_holdfast.traffic.runs import Run, grouped, in_grid, spread

BURST_S: Final = (2_400, 4_200)
"""The paper's (§4.3)."""

SETTLED_MESSAGES: Final = 10
"""How near its mean a queue must stay to count as settled."""

SETTLING_RUNS: Final = 10

Part = list[dict[str, Any]]


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """All of the report. Raises ConfigError where no run is of a grid that it knows, or a run lacks a metric."""
    try:
        return _summary(runs)
    except KeyError as error:
        raise ConfigError(f"the table has a run without {error}; sweep it again with this version") from None


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    paper, together, sizes = (in_grid(runs, grid) for grid in ("paper", "together", "sizes"))
    of_priorities = in_grid(runs, "priorities")
    checks = _checks(paper, together, sizes) + priorities.checks(of_priorities)
    found: dict[str, Any] = {
        "checks": [check.as_json() for check in checks],
        "paper": _compared(paper),
        "statements": _statements(paper),
        "together": [
            {"policy": policy, **_spread(of, "overflowed_total")}
            for policy, of in grouped(together, lambda run: run.policy).items()
        ],
        "priorities": priorities.rows(of_priorities),
        "bursts": _bursts(sizes),
        "limits": _limits(sizes),
        "varied": _varied(in_grid(runs, "varied")),
        "thresholds": _thresholds(in_grid(runs, "thresholds")),
        "network": _network(paper, in_grid(runs, "network")),
        "network_sizes": _network_sizes(sizes, in_grid(runs, "network-sizes")),
        "network_varied": _varied(in_grid(runs, "network-varied")),
        "failures": _failures(in_grid(runs, "failures")),
    }
    if not any(found.values()):
        raise ConfigError("the table has no grid of the traffic paper's; expected benchmarks/sweeps/traffic.toml's")
    of_table = [run.seed for run in paper or runs]
    return found | {
        "seeds": [min(of_table), max(of_table)],
        "n": len(set(of_table)),
        "runs": len(runs),
        "run_s": sum(run.wall_s for run in runs),
        "holds": all(check.holds for check in checks),
    }


def _checks(paper: Sequence[Run], together: Sequence[Run], sizes: Sequence[Run]) -> list[acceptance.Check]:
    by, all_of = grouped(paper, lambda run: run.policy), grouped(together, lambda run: run.policy)
    checks = acceptance.of_fixed(by["fixed"]) if "fixed" in by else []
    checks += acceptance.of_weights(by["weights"]) if "weights" in by else []
    checks += [acceptance.of_all(all_of[policy]) for policy in ("fixed", "weights") if policy in all_of]
    return checks + acceptance.of_bursts(sizes)


def _spread(runs: Sequence[Run], metric: str) -> dict[str, float]:
    return spread([run.metrics[metric] for run in runs])


def _peaks(runs: Sequence[Run]) -> list[dict[str, float]]:
    return [spread(values) for values in zip(*(run.by_client("peak_messages") for run in runs), strict=True)]


def _comparison(policy: str, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "policy": policy,
        "overflow": _spread(runs, "overflowed_total"),
        "peaks": _peaks(runs),
        "root": _spread(runs, "root_peak_messages"),
        "fairness": _spread(runs, "jain"),
        "settles_s": settling_s(runs),
        "changes_per_min": _spread(runs, "rate_changes_per_min"),
        "loads_per_s": _spread(runs, "loads_per_s"),
        "paces_per_s": _spread(runs, "paces_per_s"),
        "n": len(runs),
    }


def _compared(paper: Sequence[Run]) -> Part:
    return [_comparison(policy, of) for policy, of in grouped(paper, lambda run: run.policy).items()]


def settling_s(runs: Sequence[Run]) -> float | None:
    """When the mean of all runs' queues of client 2 stays within SETTLED_MESSAGES of the mean of the burst's second
    half, in seconds from its beginning. None where it never does, or where fewer than SETTLING_RUNS have series: one
    run's queue is never so still."""
    paths = []
    for run in runs:
        path = run.series.get("queue2", ())
        begin, end = (at // run.step_s for at in BURST_S)
        if len(path) >= end:
            paths.append(path[begin - 1 : end - 1])  # a step's value is of its end
    if len(paths) < SETTLING_RUNS:
        return None
    middle = [mean(values) for values in zip(*paths, strict=True)]
    level = mean(middle[len(middle) // 2 :])
    far = [place for place, value in enumerate(middle) if abs(value - level) > SETTLED_MESSAGES]
    if far and far[-1] == len(middle) - 1:
        return None
    return float((far[-1] + 1) * runs[0].step_s) if far else 0.0


def _statements(paper: Sequence[Run]) -> dict[str, Any]:
    by = grouped(paper, lambda run: run.policy)
    if not {"fixed", "weights"} <= set(by):
        return {}
    return {
        "within": _spread(by["weights"], "rate_in_burst.client2"),
        "outside": _spread(by["weights"], "rate_outside_burst.client2"),
        "root_fixed": _spread(by["fixed"], "root_mean_messages_in_burst"),
        "root_weights": _spread(by["weights"], "root_mean_messages_in_burst"),
    }


def _bursts(sizes: Sequence[Run]) -> Part:
    return [
        {
            "policy": policy, "burst": burst, "share": _spread(of, "share_of_limit"),
            "size": _spread(of, "burst_messages"), "n": len(of),
        }
        for (policy, burst), of in grouped(sizes, lambda run: (run.policy, run.burst)).items()
    ]  # fmt: skip


def _limits(sizes: Sequence[Run]) -> Part:
    return [
        {"burst": burst, "rate": _spread(of, "limit_messages"), "whole": _spread(of, "limit_whole_messages")}
        for burst, every in sorted(grouped(sizes, lambda run: run.burst).items())
        for of in [list({run.seed: run for run in every}.values())]  # of all policies it is the same
    ]


def _varied(runs: Sequence[Run]) -> Part:
    """Shares of the limit where one thing differs from the paper's experiment, by what differs."""
    return [
        {
            "varied": dict(varied),
            "n": sorted({len(one) for one in grouped(of, lambda run: run.policy).values()}),
            "shares": {
                policy: _spread(one, "share_of_limit") for policy, one in grouped(of, lambda run: run.policy).items()
            },
        }
        for varied, of in grouped(runs, lambda run: run.varied).items()
    ]


def _thresholds(runs: Sequence[Run]) -> Part:
    """`weights` with other thresholds and weights: the paper's burst, and the size of bursts."""
    found = []
    for steps, of in grouped(runs, lambda run: run.settings.get("thresholds", "")).items():
        row: dict[str, Any] = {"thresholds": steps, "n": 0}
        whole = [run for run in of if run.settings.get("size") != "true"]
        if whole:
            row |= {
                "n": len(whole),
                "overflow": _spread(whole, "overflowed_total"),
                "peak": _spread(whole, "peak_messages.client2"),
            }
            row |= {"changes_per_min": _spread(whole, "rate_changes_per_min"), "fairness": _spread(whole, "jain")}
        sized = [run for run in of if run.settings.get("size") == "true"]
        row["shares"] = {
            f"{burst:g}": _spread(one, "share_of_limit")
            for burst, one in sorted(grouped(sized, lambda run: run.burst).items())
        }
        found.append(row)
    return found


NETWORK_METRICS: Final = (
    "message_delay_mean_s", "message_delay_max_s", "control_delay_mean_s", "packets_lost", "segments_resent"
)  # fmt: skip


def _network(paper: Sequence[Run], runs: Sequence[Run]) -> Part:
    """Each policy through the VPN, beside the same seeds on direct links."""
    found: Part = []
    direct = grouped(paper, lambda run: run.policy)
    for policy, of in grouped(runs, lambda run: run.policy).items():
        seeds = {run.seed for run in of}
        beside = [run for run in direct.get(policy, []) if run.seed in seeds]
        if beside:
            found.append(_comparison(policy, beside) | {"links": "direct"})
        counted = {name: _spread(of, f"network.{name}") for name in NETWORK_METRICS}
        found.append(_comparison(policy, of) | {"links": "VPN"} | counted)
    return found


def _network_sizes(sizes: Sequence[Run], runs: Sequence[Run]) -> Part:
    found: Part = []
    for (policy, burst), of in grouped(runs, lambda run: (run.policy, run.burst)).items():
        seeds = {run.seed for run in of}
        beside = [run for run in sizes if (run.policy, run.burst) == (policy, burst) and run.seed in seeds]
        row = {"policy": policy, "burst": burst, "vpn": _spread(of, "share_of_limit")}
        found.append(row | ({"direct": _spread(beside, "share_of_limit")} if beside else {}))
    return found


def _failures(runs: Sequence[Run]) -> Part:
    found = []
    for (policy, failed, rerouted), of in grouped(
        runs, lambda run: (run.policy, run.settings.get("fail", ""), run.settings.get("fast_reroute", ""))
    ).items():
        found.append(
            {
                "policy": policy, "fail": failed, "fast_reroute": rerouted == "true",
                "delay": _spread(of, "network.message_delay_max_s"), "lost": _spread(of, "network.packets_lost"),
                "resent": _spread(of, "network.segments_resent"), "overflow": _spread(of, "overflowed_total"),
                "peaks": _peaks(of),
                "n": len(of),
            }
        )  # fmt: skip
    return found
