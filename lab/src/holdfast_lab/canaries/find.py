"""Finds the seeds that catch the canaries: the swarm, from seed 1, with the defect planted in its workers.

Rules of this file: a seed counts only if the run fails with the defect, as the canary says, and ends well without.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast_lab.canaries import Canary, plant, plant_to_stay
from holdfast_lab.canaries.seeds import WITHIN_MAX
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from holdfast_lab.runs.swarm import SWARM, draw_plan, run_seeds

CHUNK: Final = 24
"""Seeds that the swarm is given at once, so that it ends soon after the first that fails."""
CANDIDATES: Final = 4
"""Of the seeds that catch it in one chunk, so many are compared for the quickest."""
HANG_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Caught:
    """`seed` is the first that fails with the canary and not without, `quickest` of the first few; 0 for none."""

    seed: int
    quickest: int
    failure: str

    @property
    def within(self) -> int:
        """A bound to promise: twice the first seed, so that small changes of the drawing do not break it."""
        return min(WITHIN_MAX, -(-self.seed * 2 // 50) * 50)


def run(seed: int, swarm: str = SWARM) -> Result:
    """Runs that seed of the swarm in this process."""
    logging.disable(logging.CRITICAL)  # the client library's warnings; a failure has its line
    try:
        return execute(draw_plan(seed, swarm), seed)
    finally:
        logging.disable(logging.NOTSET)


def catches(canary: Canary, seed: int) -> str:
    """The line with which that seed fails while the canary is planted; empty if it does not fail."""
    with plant(canary.name):
        return run(seed, canary.swarm).failure


def hunt(canary: Canary, *, last_seed: int, jobs: int | None = None) -> Caught:
    """Seeds from 1 up to `last_seed` until one catches it."""
    for chunk in _chunks(last_seed):
        report = run_seeds(
            chunk, which=canary.swarm, jobs=jobs, canary=partial(plant_to_stay, canary.name), limit_s=HANG_S
        )
        failed = [failure for failure in report.failed if failure.ended and canary.expected in failure.failure]
        without = {failure.seed: run(failure.seed, canary.swarm) for failure in failed[:CANDIDATES]}
        good = [failure for failure in failed if failure.seed in without and without[failure.seed].ok]
        if good:
            quickest = min(good, key=lambda failure: without[failure.seed].wall_s)
            return Caught(good[0].seed, quickest.seed, quickest.failure)
    return Caught(0, 0, "")


def _chunks(last: int) -> Iterator[range]:
    for first in range(1, last + 1, CHUNK):
        yield range(first, min(first + CHUNK, last + 1))
