"""Nodes that refuse links for a while, as the swarm draws them."""

from dataclasses import replace

import pytest

from holdfast.client.send.transmission import Transmission
from holdfast.peers.users import Users
from holdfast_lab.draws import drawn_links
from holdfast_lab.draws.drawn_links import with_refused_links
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.drawing import draw_up_to

SEEDS = range(1, 200)
KIND = "refusing-links"
SEED = 2
"""One in which a producer without a name is refused while messages of its own are in doubt."""


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    with pytest.MonkeyPatch.context() as patched:
        draw_up_to(patched, with_refused_links)
        return [draw_plan(seed) for seed in SEEDS]


def strikes(plan: Plan) -> list[Fault]:
    return [fault for fault in plan.faults if fault.kind == KIND]


def test_a_share_of_the_seeds_has_such_a_node(plans: list[Plan]) -> None:
    """Its clients lose their links just then, and where any are without a name, they are among them."""
    drawn = [plan for plan in plans if strikes(plan)]
    assert 0.1 < len(drawn) / len(plans) < 0.25
    assert any(cut.when for plan in drawn for cut in plan.faults if cut.kind == "cut-clients")
    for plan in drawn:
        assert from_json(plan.to_json()) == plan
        nameless = {told["node"] for told in plan.workloads if not told.get("named", True)}
        cuts = [(cut.node, cut.at) for cut in plan.faults if cut.kind == "cut-clients"]
        for fault in strikes(plan):
            assert (fault.node, round(fault.at + drawn_links.CUT_S, 6)) in cuts
            assert fault.node in (nameless or {told.get("node") for told in plan.workloads})


def test_nothing_else_of_a_seed_changes(plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    draw_up_to(monkeypatch, with_refused_links)
    monkeypatch.setattr(drawn_links, "SHARE", 0.0)
    for seed, plan in list(zip(SEEDS, plans, strict=True))[:40]:
        without = draw_plan(seed)
        assert not strikes(without)
        assert replace(plan, faults=()) == replace(without, faults=())
        assert set(without.faults) <= set(plan.faults) and with_refused_links(without, seed) == without


def test_links_are_refused_and_taken_again(plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Among them links with something in doubt: else the share proves nothing."""
    refused: list[str] = []
    in_doubt: list[int] = []
    ask, detached = Users.too_many_links, Transmission.detached

    def asked(self: Users, peer: object) -> str | None:
        reason = ask(self, peer)  # type: ignore[arg-type]
        if reason is not None:
            refused.append(reason)
        return reason

    def counted(self: Transmission, *, closed: bool) -> None:
        if self.link is not None and self.link.refused:
            in_doubt.append(0 if self._resume is None else len(self._resume.kept()))
        detached(self, closed=closed)

    monkeypatch.setattr(Users, "too_many_links", asked)
    monkeypatch.setattr(Transmission, "detached", counted)
    result = execute(plans[SEED - 1], SEED)
    assert result.failure == ""
    assert refused and all("links, the most" in reason for reason in refused)
    assert any(in_doubt)


def test_at_the_end_every_bound_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a node refuses twice at once, and where it still does as all is healed."""
    bounds: list[int] = []
    left = Users.left

    def seen(self: Users, peer: object) -> None:
        bounds.append(self.anonymous.links_max)
        left(self, peer)  # type: ignore[arg-type]

    monkeypatch.setattr(Users, "left", seen)
    plan = draw_plan(SEED)
    node = strikes(plan)[0].node
    twice = [
        Fault(kind=KIND, at=at, node=node, seconds=seconds) for at, seconds in ((0.5, 1.0), (0.6, 0.3), (0.9, 1e6))
    ]
    made = replace(plan, faults=tuple(sorted((*plan.faults, *twice), key=lambda fault: fault.at)))
    assert execute(made, SEED).failure == ""
    assert set(bounds) == {0, 65_536} and bounds[-1] == 65_536
