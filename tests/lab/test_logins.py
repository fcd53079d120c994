"""Neighbours that log in by SCRAM in simulated networks: sessions come up each time, and a mistake is found."""

from dataclasses import replace
from typing import Any

from holdfast_lab.canaries import plant
from holdfast_lab.draws.drawn_logins import LOGINS_SHARE
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan


def run(seed: int = 1) -> Any:
    publish = {"kind": "publish", "node": "ber", "address": "q@fra", "messages": 60, "size": 200, "producers": 1}
    workloads = ({**publish, "rate": 20.0}, {"kind": "consume", "node": "fra", "queue": "q"})
    cuts = tuple(Fault(kind="crash", at=at, node=node, seconds=0.3) for at, node in ((1.0, "fra"), (2.0, "ber")))
    topology = replace(line("ber muc fra"), logins=True)
    return execute(Plan(name="logins", topology=topology, workloads=workloads, faults=cuts), seed)


def test_neighbours_log_in_at_each_connect() -> None:
    result = run()
    assert result.ok, result.failure


def test_a_session_that_does_not_begin_is_found() -> None:
    with plant("no-header-after-login"):
        result = run()
    assert not result.ok and result.failure


def test_a_share_of_seeds_has_logins() -> None:
    drawn = [draw_plan(seed).topology.logins for seed in range(1, 301)]
    assert 0 < sum(drawn) < 300 * 2 * LOGINS_SHARE
