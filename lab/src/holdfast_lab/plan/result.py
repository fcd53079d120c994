"""The result of a run, on either bed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast_lab.base.notes import Note


@dataclass(slots=True)
class Result:
    """`failure` is one line, empty where the run ended as it must."""

    name: str
    seed: int
    ok: bool
    failure: str
    digest: str
    virtual_s: float
    wall_s: float
    hops: int
    metrics: dict[str, Any]
    coverage: dict[str, Counter[str]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    series: Mapping[str, list[float]] = field(default_factory=dict)
    """What was asked for by the second, of scenarios that have such; by name."""
