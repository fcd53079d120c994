"""Combines the runs of a benchmark into one figure: pure functions, the same rule in every report."""

import math
import statistics
from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """By nearest rank: the least that at least `share` of them do not pass; at least one value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> dict[str, object]:
    """Median, least, most, n and the runs in order; at least one value."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
        "runs": [round(value, digits) for value in values],
    }
