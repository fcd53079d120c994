"""The demo's numbers against the data's."""

from typing import Any

from holdfast_lab.demo.departures import Flights
from holdfast_lab.demo.report import Results, check, expected_delays, report_lines

HEADER = ("id", "carrier", "hour", "dep_delay", "origin")
FLIGHTS = Flights(
    HEADER,
    [
        ["1", "UA", "5", "2", "EWR"],
        ["2", "UA", "5", "3", "EWR"],
        ["3", "AA", "6", "NA", "JFK"],
        ["4", "UA", "17", "-5", "LGA"],
    ],
)
ARRIVED = {"EWR": ["1", "2"], "JFK": ["3"], "LGA": ["4"]}


def answer() -> dict[str, Any]:
    def row(carrier: str, hour: int, flights: int, departed: int, mean: float | None) -> dict[str, Any]:
        return {"carrier": carrier, "hour": hour, "flights": flights, "departed": departed, "mean_min": mean}

    return {
        "by_origin": {"EWR": 2, "JFK": 1, "LGA": 1},
        "delays": [row("AA", 6, 1, 0, None), row("UA", 5, 2, 2, 2.5), row("UA", 17, 1, 1, -5.0)],
    }


def test_expected_delays_leave_out_the_cancelled() -> None:
    assert expected_delays(FLIGHTS) == {
        ("AA", 6): (1, 0, None),
        ("UA", 5): (2, 2, 2.5),
        ("UA", 17): (1, 1, -5.0),
    }


def test_all_equal_is_ok() -> None:
    results = check(FLIGHTS, ARRIVED, answer())
    assert results.ok and results.sent == results.arrived == results.spark_counts
    text = "\n".join(report_lines(results))
    assert "lost 0, twice 0, out of order 0" in text and "3 means by carrier and hour, all equal" in text


def failing(arrived: dict[str, list[str]], changed: dict[str, Any]) -> Results:
    results = check(FLIGHTS, arrived, changed)
    assert not results.ok
    assert report_lines(results)
    return results


def test_each_kind_of_difference_is_told() -> None:
    assert failing(ARRIVED | {"EWR": ["1"]}, answer()).lost == 1
    assert failing(ARRIVED | {"EWR": ["1", "2", "2"]}, answer()).twice == 1
    assert failing(ARRIVED | {"EWR": ["2", "1"]}, answer()).reordered == 1
    assert failing(ARRIVED, answer() | {"by_origin": {"EWR": 3, "JFK": 1, "LGA": 1}}).lost == 0
    wrong = answer()
    wrong["delays"][1]["mean_min"] = 2.6
    del wrong["delays"][2]
    assert len(failing(ARRIVED, wrong).delays_differ) == 2
