"""The paths of the demo's flights: counted, put into spans, and when they turned."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast_lab.demo.flight_paths import (
    NO_PATH,
    Arrival,
    Event,
    answered_counts,
    arrivals_of,
    counts,
    event_line,
    identities,
    turned,
    use_lines,
    uses,
    waiting,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STRAIGHT, ROUND = "ewr phl pit hub", "ewr alb hub"


def arrival(path: str, stored_s: float, airport: str = "EWR", took_s: float = 0.1) -> Arrival:
    return Arrival(airport, f"{stored_s}", path, stored_s - took_s, stored_s, int(NOON.timestamp() + stored_s))


def every_second(path: str, first: int, last: int, airport: str = "EWR") -> list[Arrival]:
    return [arrival(path, float(at_s), airport) for at_s in range(first, last + 1)]


def test_rows_become_arrivals() -> None:
    told = [("x-opt-sequence-number", "1"), ("x-opt-holdfast-path", '["ewr", "hub"]')]
    enqueued = NOON + timedelta(seconds=2.25)
    columns: dict[str, list[Any]] = {
        "application_properties": [[("id", "7"), ("origin", "EWR")], [("id", "8"), ("origin", "EWR")]],
        "annotations": [told, []],
        "created": [NOON + timedelta(seconds=1), NOON],
        "enqueued": [enqueued, enqueued.replace(tzinfo=None)],
    }
    found = arrivals_of(columns, NOON.timestamp())
    second = int(NOON.timestamp()) + 2
    assert found == [
        Arrival("EWR", "7", "ewr hub", 1.0, 2.25, second),
        Arrival("EWR", "8", NO_PATH, 0.0, 2.25, second),
    ]
    assert identities(found) == {"EWR": ["7", "8"]}
    rows: Sequence[dict[str, object]] = [
        {"origin": "EWR", "path": "ewr hub", "second": second, "count": 1},
        {"origin": "EWR", "path": None, "second": second, "count": 1},
    ]
    assert counts(found) == answered_counts(rows)
    assert counts(found) != answered_counts(rows[:1])


def test_a_path_that_was_left_and_taken_again_has_two_spans() -> None:
    found = uses([*every_second(STRAIGHT, 0, 5), *every_second(ROUND, 6, 9), *every_second(STRAIGHT, 10, 12)])
    assert [(use.path, use.flights, use.spans) for use in found] == [
        (STRAIGHT, 9, ((0.0, 5.0), (10.0, 12.0))),
        (ROUND, 4, ((6.0, 9.0),)),
    ]
    assert use_lines(found)[1:] == [
        "ewr phl pit hub        9  0.0-5.0, 10.0-12.0",
        "ewr alb hub            4  6.0-9.0",
    ]
    assert len(use_lines([])) == 1


@pytest.mark.parametrize(
    ("nodes", "path", "is_on"),
    [
        (("phl", "pit"), STRAIGHT, True),
        (("pit", "phl"), STRAIGHT, True),
        (("phl", "hub"), STRAIGHT, False),
        (("pit",), STRAIGHT, True),
        (("it",), STRAIGHT, False),
        (("pit",), ROUND, False),
    ],
)
def test_what_lies_on_a_path(nodes: tuple[str, ...], path: str, is_on: bool) -> None:
    assert Event(0.0, "cut", nodes).is_on(path) is is_on


def test_turned_is_the_first_that_avoids_what_was_broken() -> None:
    late = arrival(STRAIGHT, 6.0)  # it was past the link when that was cut
    arrivals = [*every_second(STRAIGHT, 0, 5), late, arrival(ROUND, 6.5), *every_second("lga hub", 0, 9, "LGA")]
    cut = Event(5.4, "cut", ("phl", "pit"))
    assert turned(arrivals, cut) == {"EWR": pytest.approx(1.1)}
    assert turned(arrivals, Event(5.4, "kill", ("alb",))) == {}
    assert turned(arrivals, Event(5.4, "heal", ("phl", "pit"))) == {}
    assert turned(arrivals[:-11], cut) == {"EWR": None}
    assert event_line(cut, {"EWR": 1.13, "JFK": None}).endswith("by another path: EWR after 1.1 s, JFK never")


def test_what_waits_on_the_way() -> None:
    arrivals = [arrival(STRAIGHT, 2.0, took_s=1.5), arrival(STRAIGHT, 2.2, took_s=0.2), arrival("lga hub", 0.5, "LGA")]
    found = waiting(arrivals, 0.5, 2.5)
    assert found["EWR"] == [(0.0, 0), (0.5, 1), (1.0, 1), (1.5, 1), (2.0, 1), (2.5, 0)]
    assert [count for _, count in found["LGA"]] == [0, 0, 0, 0, 0, 0]
