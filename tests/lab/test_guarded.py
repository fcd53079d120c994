"""Clients whose rights come and go: what the workload finds, and what the fault does."""

from typing import Any

import pytest

from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.links.sender import Sender
from holdfast.amqp.wire import conditions
from holdfast.endpoints.addresses import attach
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.relay import RelayLink
from holdfast_lab.base.rights import FORBIDDEN, GUARDED, Rights
from holdfast_lab.canaries import plant
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.runs.run import execute

FORBIDS = tuple(Fault(kind="forbid", at=at, node="fra", seconds=0.5) for at in (0.5, 2.0, 2.2, 4.0))


def run(*faults: Fault, **told: Any) -> Any:
    workload = {"kind": "guarded", "node": "fra", "messages": 120, "rate": 20.0, **told}
    return execute(Plan(name="guarded", topology=line("ber fra"), workloads=(workload,), faults=faults), 1)


def count(result: Any, name: str) -> float:
    return float(result.metrics.get(f"guarded-1.{name}", 0))


def test_rights_change_at_a_node_and_for_guarded_queues_alone() -> None:
    rights = Rights()
    assert rights.why_not("fra", GUARDED) is None
    rights.forbid("fra", True)
    rights.forbid("fra", True)
    assert rights.changes["fra"] == 1 and rights.forbids("fra") and not rights.forbids("ber")
    assert rights.why_not("fra", f"{GUARDED}-2") == FORBIDDEN and rights.why_not("fra", "work") is None
    assert rights.why_not("ber", GUARDED) is None
    rights.forbid("fra", False)
    assert rights.changes["fra"] == 2 and rights.why_not("fra", GUARDED) is None


def test_who_may_is_served_and_who_may_not_is_refused_in_each_way() -> None:
    result = run(*FORBIDS, life_s=0.3, stays=1)
    assert result.ok, result.failure
    for what in ("a message", "a sender", "a receiver", "a question"):
        assert count(result, f"{what} allowed") > 2 and count(result, f"{what} refused") > 0, (what, result.metrics)
    assert result.metrics["faults"] == {"forbid": 4}


def test_nobody_is_refused_where_nothing_is_forbidden() -> None:
    result = run()
    assert result.ok and count(result, "a message allowed") == 120
    assert not [name for name in result.metrics if name.endswith("refused") and result.metrics[name]]


def test_rights_that_are_forbidden_at_the_end_come_back() -> None:
    result = run(Fault(kind="forbid", at=0.5, node="fra", seconds=1_000.0), messages=20)
    assert result.ok, result.failure


@pytest.mark.parametrize("what", ["a sender", "a receiver"])
def test_an_attach_that_is_not_asked_about_is_found(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    served = Receiver if what == "a sender" else Sender  # as the node sees it
    permit = attach.AttachTable._permit
    monkeypatch.setattr(
        attach.AttachTable,
        "_permit",
        lambda self, peer, link, *rest: None if isinstance(link, served) else permit(self, peer, link, *rest),
    )
    result = run(*FORBIDS, life_s=0.3, stays=1)
    assert not result.ok and f"{what} of guarded at fra: who may not was not refused" in result.failure


def test_who_is_refused_for_good_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right that is back must be had again."""
    route, refused = RelayLink._route, set[str]()

    def stubborn(self: RelayLink, address: str) -> Any:
        if address in refused:
            raise Refusal(conditions.UNAUTHORIZED_ACCESS, "never again")
        try:
            return route(self, address)
        except Refusal:
            refused.add(address)
            raise

    monkeypatch.setattr(RelayLink, "_route", stubborn)
    result = run(*FORBIDS)
    assert not result.ok and "a message of guarded at fra: who may was refused" in result.failure, result.failure


def test_the_canary_is_found() -> None:
    with plant("rights-remembered"):
        result = run(*FORBIDS)
    assert not result.ok and "a message of guarded at fra: who may not was not refused" in result.failure
