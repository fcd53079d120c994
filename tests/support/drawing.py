"""Plans of the swarm's seeds without what is drawn later than what a test is about."""

import pytest

from holdfast_lab.runs import swarm
from holdfast_lab.runs.swarm import Draw


def draw_up_to(monkeypatch: pytest.MonkeyPatch, last: Draw) -> None:
    """From here on `draw_plan` draws nothing on top of a plan that comes after `last`: what is drawn later may look at
    what was drawn before, so that it would differ too where `last` is left out."""
    monkeypatch.setattr(swarm, "DRAWS", swarm.DRAWS[: swarm.DRAWS.index(last) + 1])
