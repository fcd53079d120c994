"""Dear tests that take turns in `make test`: those of tests/turns.txt, each case once in DAYS days.

Rules of this file: what runs follows from the day and the file alone. The file is written by tools/turns.py.
"""

from pathlib import Path
from typing import Final

from support import today

FILE: Final = Path(__file__).resolve().parents[1] / "turns.txt"
DAYS: Final = 7


def places() -> dict[str, int]:
    """The place of each test that takes turns, by `tests/FILE.py::NAME`. The dearest stand first; each gets the place
    that has the least so far, so that all days take about the same.
    """
    loads, found = [0.0] * DAYS, {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            took_s, test = line.split()
            found[test] = place = loads.index(min(loads))
            loads[place] += float(took_s)
    return found


def name_of(node_id: str) -> str:
    """As the file has it: neither its class nor its case."""
    path, _, rest = node_id.partition("[")[0].partition("::")
    return f"{path}::{rest.rpartition('::')[2]}"


def stays(place: int, at: int) -> bool:
    """Whether it is the turn of the case at this place of the test at that place."""
    return today.has_turn(place + at, DAYS)
