"""Faults that wait for a moment of a node's work, and the small bounds that make moments last."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.draws.drawn_aims import AIMED, CAUSES, LASTS_S, PROLONGS, with_aims
from holdfast_lab.draws.drawn_knobs import with_small_bounds
from holdfast_lab.draws.drawn_scenes import OF_MOMENTS, overtaken
from holdfast_lab.plan.faults import KINDS, Fault, make_fault, meeting_name
from holdfast_lab.plan.knobs import BOUNDS, KNOBS, place_of, turned
from holdfast_lab.plan.moments import AIM_S, AT_REST, DOWN, MOMENTS, met
from holdfast_lab.plan.networks import Link, Topology
from holdfast_lab.plan.phases import last_fault_s
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.coverage import MEETINGS, everything
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import draw_plan
from support.one_node import fill, world

UNDER_WAY = "a commit is under way"


def plan_of(*faults: Fault, size: int = 100, limits: Limits | None = None, **knobs: int) -> Plan:
    """Two nodes; messages from one to a queue of the other's."""
    return Plan(
        name="aims",
        topology=Topology(
            nodes=("ber", "fra"),
            links=(Link(one="ber", other="fra"),),
            queues={"fra": (QueueConfig(name="work"),)},
            limits=limits or Limits(),
        ),
        workloads=(
            {"kind": "publish", "node": "ber", "address": "work@fra", "messages": 60, "size": size, "rate": 20.0},
            {"kind": "consume", "node": "fra", "queue": "work"},
        ),
        faults=faults,
        safety_s=10.0,
        knobs={name.replace("__", ":").replace("_of_", "."): value for name, value in knobs.items()},
    )


def struck_at(result: Result) -> list[float]:
    return [note.at for note in result.notes if note.place == "fault" and note.kind != "heal"]


def run(plan: Plan) -> Result:
    result = execute(plan, 3, keep_notes=True)
    assert result.ok, result.failure
    return result


def test_a_fault_waits_for_its_moment() -> None:
    result = run(plan_of(Fault(kind="crash", at=1.0, node="ber", seconds=0.5, when=UNDER_WAY)))
    (at,) = struck_at(result)
    assert 1.0 < at < 1.5
    assert result.coverage[MEETINGS][meeting_name("crash", UNDER_WAY)] == 1
    assert result.coverage["commits met by a crash"].total() == 1


def test_a_fault_of_a_link_waits_for_either_node() -> None:
    result = run(plan_of(Fault(kind="cut", at=1.0, link=("ber", "fra"), when="consumers hold messages")))
    (at,) = struck_at(result)
    assert 1.0 < at < 1.5
    assert result.coverage[MEETINGS][meeting_name("cut", "consumers hold messages")] == 1


def test_it_strikes_at_last_where_the_moment_does_not_come() -> None:
    fault = Fault(kind="crash", at=1.0, node="ber", seconds=0.5, when="messages get new numbers")
    plan = plan_of(fault)
    (at,) = struck_at(run(plan))
    assert at == pytest.approx(1.0 + AIM_S, abs=0.001)
    assert last_fault_s(plan) == 1.0 + AIM_S + 0.5


def test_it_strikes_once() -> None:
    """Though both its nodes come into the moment again and again."""
    result = run(plan_of(Fault(kind="cut", at=0.5, link=("ber", "fra"), when=UNDER_WAY)))
    assert len(struck_at(result)) == 1 and result.metrics["faults"] == {"cut": 1}


def test_what_is_met_where_a_node_is_down_or_at_rest() -> None:
    assert met(None) == [DOWN]
    rig, node, client = world()
    rig.settle()
    assert met(node.core) == [AT_REST]
    sender = client.sender("work")
    rig.settle()
    node.hold_commits = True
    client.send(sender, "one")
    rig.settle()
    assert met(node.core) == [UNDER_WAY]
    client.send(sender, "two")
    rig.settle()
    assert met(node.core) == [UNDER_WAY, "a commit waits behind another"]


def test_consumers_that_hold_messages_are_a_moment() -> None:
    rig, node, client = world()
    fill(rig, client, 3)
    assert node.core is not None and "consumers hold messages" not in met(node.core)
    client.receiver("work")
    rig.settle()
    assert met(node.core) == ["consumers hold messages"]


def test_an_unknown_moment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"invalid value 'never' for .* when; expected one of a commit is under"):
        make_fault({"kind": "crash", "node": "ber", "when": "never"}, "plan")


# ---------------------------------------------------------------------------------------------------- knobs


@pytest.mark.parametrize("knob", KNOBS)
def test_a_knob_is_a_bound_of_the_nodes_own(knob: str) -> None:
    """And what it may be turned to is less, but for where numbers begin."""
    place, name = place_of(knob)
    own = getattr(place, name)
    begins = name.startswith("FIRST_")
    assert isinstance(own, int) and all(own == 0 if begins else 0 < value < own for value in KNOBS[knob])
    with turned({knob: KNOBS[knob][0]}):
        assert getattr(place, name) == KNOBS[knob][0]
    assert getattr(place, name) == own


def test_an_unknown_knob_turns_none() -> None:
    first = next(iter(KNOBS))
    place, name = place_of(first)
    own = getattr(place, name)
    with (
        pytest.raises(ConfigError, match=r"invalid value 'core\.node:NO' for knobs; expected one of"),
        turned({first: 1, "core.node:NO": 1}),
    ):
        raise AssertionError("nothing runs with it")
    assert getattr(place, name) == own


def test_large_messages_of_a_run_have_pieces_of_its_size() -> None:
    """The ledger knows them by the end of their last piece, also where that is shorter than a key."""
    limits = Limits(stream_bytes=1_000, frame_bytes_max=512)
    for size in (2_005, 2_400):
        plan = plan_of(size=size, limits=limits, links_of_large_receives__PIECE_BYTES=200)
        assert plan.knobs == {"links.large_receives:PIECE_BYTES": 200}
        result = run(plan)
        assert result.hops == 60


# ---------------------------------------------------------------------------------------------------- what is drawn


def test_moments_and_what_goes_with_them_are_known() -> None:
    assert set(CAUSES) <= set(MOMENTS) and set(PROLONGS) <= set(MOMENTS)
    assert {knob for knobs in PROLONGS.values() for knob in knobs} <= set(KNOBS)
    assert set(AIMED) <= set(KINDS) and all(KINDS[kind] == "node" for kind in (*CAUSES.values(), *LASTS_S))
    assert len(everything()[MEETINGS]) == len(AIMED) * len(MOMENTS)


def test_aims_and_small_bounds_are_drawn_for_a_share_of_seeds() -> None:
    plans = [draw_plan(seed) for seed in range(1, 301)]
    aimed = [fault for plan in plans for fault in plan.faults if fault.when]
    assert {fault.when for fault in aimed} == set(MOMENTS)
    assert {fault.kind for fault in aimed} <= {*AIMED, "reload", "drain", "change-topology"}
    assert 100 < sum(bool(plan.knobs) for plan in plans) < 270
    turned_to = KNOBS | BOUNDS
    assert set(KNOBS) <= {knob for plan in plans for knob in plan.knobs} <= set(turned_to)
    for knob, value in [item for plan in plans for item in plan.knobs.items()]:  # a scene may choose others between
        assert min(turned_to[knob]) <= value <= max(turned_to[knob]), knob
    small = {name for plan in plans for name in _changed(plan.topology.limits)}
    assert {"stream_bytes", "frame_bytes_max", "unstored_bytes_max", "parked_bytes_max", "neighbour_links_max"} <= small


def _changed(limits: Limits) -> set[str]:
    own: Any = Limits()
    return {name for name in Limits.__slots__ if getattr(limits, name) != getattr(own, name)}


def test_what_is_drawn_is_the_seeds_alone_and_goes_through_json() -> None:
    plan = plan_of(*[Fault(kind="crash", at=float(number), node="ber", seconds=0.1) for number in range(9)])
    drawn = with_aims(with_small_bounds(plan, 7), 7)
    assert drawn == with_aims(with_small_bounds(plan, 7), 7)
    assert from_json(drawn.to_json()) == drawn
    assert drawn != with_aims(with_small_bounds(plan, 8), 8)


def test_a_fault_that_is_part_of_a_story_keeps_its_time() -> None:
    faults = [Fault(kind="crash", at=float(number), node="ber", seconds=0.1) for number in range(30)]
    dead = Fault(kind="replace-disk", at=5.0, node="ber", seconds=0.1)
    assert with_aims(plan_of(*faults, dead), 1).faults == plan_of(*faults[:6], dead, *faults[6:]).faults
    assert any(fault.when for fault in with_aims(plan_of(*faults), 1).faults)


def test_a_disk_fails_while_a_store_that_went_back_gets_new_numbers() -> None:
    disks = [Fault(kind="stalled-disk", at=float(number), node="ber", seconds=0.1) for number in range(30)]
    back = Fault(kind="restore-backup", at=0.0, node="ber", seconds=0.1, amount=1.0)
    aimed = [fault for fault in with_aims(plan_of(back, *disks), 1).faults if fault.when]
    assert {fault.when for fault in aimed} == {"messages get new numbers"} and len(aimed) > 3


def test_a_moment_that_needs_clients_of_a_kind_has_them() -> None:
    """Where the plan has a place for them: some scenes need two ways, or tables from outside."""
    plans = [draw_plan(seed) for seed in range(1, 301)]
    for moment, scene in OF_MOMENTS.items():
        aimed = [(plan, fault) for plan in plans for fault in plan.faults if fault.when == moment]
        there = 0
        for plan, fault in aimed:
            names = {
                told["name"]
                for told in scene(Random(1), plan.topology.nodes[0], plan, plan.topology.nodes[1:]).workloads
            }
            there += bool({told["node"] for told in plan.workloads if told.get("name") in names} & set(fault.places))
        assert there > (3 if scene is overtaken else len(aimed) / 3), moment
    for plan in plans:
        programs = [(told["kind"], told.get("node"), told.get("name")) for told in plan.workloads]
        assert len(set(programs)) == len(programs)


@pytest.mark.parametrize("moment", OF_MOMENTS)
def test_a_scene_brings_its_moment_about(moment: str) -> None:
    """One of some faults meets it within the five seconds that each waits."""
    aimed = [Fault(kind="cut-clients", at=float(at), node="fra", when=moment) for at in range(1, 6)]
    slow = Fault(kind="slow-disk", at=0.9, node="fra", seconds=4.0, amount=100.0)
    plan = replace(plan_of(slow, *aimed), knobs={knob: KNOBS[knob][0] for knob in PROLONGS.get(moment, ())})
    ring = tuple(Link(one=one, other=other) for one, other in (("ber", "fra"), ("fra", "jfk"), ("jfk", "ber")))
    plan = replace(plan, topology=replace(plan.topology, nodes=("ber", "fra", "jfk"), links=ring))
    scene = OF_MOMENTS[moment](Random(2), "fra", plan, ("ber", "jfk"))
    queues = scene.queues_with(plan.topology.queues)
    workloads, faults = (*plan.workloads, *scene.workloads), (*plan.faults, *scene.faults)
    result = run(replace(plan, topology=replace(plan.topology, queues=queues), workloads=workloads, faults=faults))
    assert result.coverage[MEETINGS][meeting_name("cut-clients", moment)] > 0
