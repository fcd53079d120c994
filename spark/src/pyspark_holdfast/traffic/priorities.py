"""All at once, with priorities: what is refused, of whom and of which priority (docs/adr/0077-room-by-priority.md).

Rules of this file: rows of the grid `priorities` to a part of the report and to lines of the acceptance table, whose
bounds were worked out beforehand.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark_holdfast.traffic.acceptance import Check
from pyspark_holdfast.traffic.runs import Run, grouped, spread

CLASSES: Final = ("low", "normal", "high")
CLIENTS: Final = ("client1", "client2", "client3")
CHECKED: Final = ("weights", "level 0")
EACH: Final = 2.0
"""How much further a run may be than the mean, in percent of what is offered."""

Shares = tuple[float, ...]


def _share(run: Run, clients: Sequence[str], classes: Sequence[str]) -> float:
    def total(what: str) -> float:
        return sum(run.metrics[f"priorities.{what}.{client}.{one}"] for client in clients for one in classes)

    return total("refused") / max(1.0, total("offered"))


def by_class(run: Run) -> Shares:
    """Refused share of each class."""
    return tuple(_share(run, CLIENTS, (one,)) for one in CLASSES)


def by_client(run: Run) -> Shares:
    """Refused share of each client."""
    return tuple(_share(run, (client,), CLASSES) for client in CLIENTS)


Expected = tuple[str, str, tuple[float, float], Callable[[Run], Shares], int]

EXPECTED: Final[dict[str, tuple[Expected, ...]]] = {
    "13.3 / 13.3 / 13.3": (
        ("low", "61 %", (59.0, 63.0), by_class, 0),
        ("normal", "less than 0.1 %", (0.0, 0.1), by_class, 1),
        ("high", "0", (0.0, 0.0), by_class, 2),
        *((f"client {at + 1}", "37 %", (35.0, 39.0), by_client, at) for at in range(3)),
    ),
    "4.2 / 30 / 15": (
        ("high", "0", (0.0, 0.0), by_class, 2),
        ("client 1", "0", (0.0, 0.5), by_client, 0),
        ("client 2", "64 %", (62.0, 67.0), by_client, 1),
        ("client 3", "30 %", (27.0, 33.0), by_client, 2),
    ),
}
"""By what is offered: what is checked, as it is told, the bounds of its mean, and where it is in a run."""


def offered(run: Run) -> str:
    """Messages a second in the burst, by client."""
    rates = [float(rate) for rate in run.settings["rates"].split(",")]
    return " / ".join(f"{rate:.3g}" if rate else "4.2" for rate in rates)


def named(run: Run) -> str:
    return f"{run.policy}, capacity told whole" if run.settings.get("whole_capacity") == "true" else run.policy


def rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Shares over the seeds: the mean, and how far one run is from it."""
    return [
        {
            "offered": what, "policy": name, "n": len(of),
            "classes": [spread(each) for each in zip(*(by_class(run) for run in of), strict=True)],
            "clients": [spread(each) for each in zip(*(by_client(run) for run in of), strict=True)],
            "root": max(run.metrics["root_peak_messages"] for run in of),
        }
        for (what, name), of in grouped(runs, lambda run: (offered(run), named(run))).items()
    ]  # fmt: skip


def checks(runs: Sequence[Run]) -> list[Check]:
    """In percent."""
    found = []
    for (what, name), of in grouped(runs, lambda run: (offered(run), named(run))).items():
        if name in CHECKED:
            for of_whom, told, (low, high), value, at in EXPECTED.get(what, ()):
                each = (max(0.0, low - EACH), high + EACH if high else 0.0)
                values = tuple(100 * value(run)[at] for run in of)
                found.append(Check(f"{what}/s, {name}, {of_whom} refused", told, (low, high), each, values))
    return found
