"""Scenes of the simulator, each by itself at a short line of nodes."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute


def run_scene(scene: Callable[[Random, str, Plan], Any], seed: int, **limits: int) -> Result:
    """What comes of the scene, drawn by that seed, with these limits of the nodes."""
    plan = Plan(name=scene.__name__, topology=line("jfk hub"), workloads=(), faults=(), safety_s=8.0)
    drawn = scene(Random(seed), "jfk", plan)
    faults = tuple(sorted(drawn.faults, key=lambda fault: fault.at))
    bounds = replace(plan.topology.limits, **limits)
    topology = replace(plan.topology, queues=drawn.queues_with({}), limits=bounds)
    return execute(replace(plan, topology=topology, workloads=tuple(drawn.workloads), faults=faults), seed)
