"""The demo's numbers: the table against the data, flight by flight and delay by delay.

Rules of this file: pure functions. Two witnesses speak for the table: its rows read without Spark
(`judge/table.py`) and Spark's own answer (`python -m pyspark_holdfast.flights`); both must agree with the data.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast_lab.demo.departures import AIRPORTS, ID_COLUMN, Flights
from holdfast_lab.judge.arrivals import Verdict, judge_all

MEAN_TOLERANCE_MIN: Final = 0.011
"""Spark's means are rounded to 0.01 minutes."""
BUSIEST: Final = 6
"""Carriers in the printed table, by their flights."""
BLOCKS: Final = ((5, 8), (9, 12), (13, 16), (17, 20), (21, 23))
"""Hours of scheduled departure, first and last, that the printed table puts together."""

Delays = Mapping[tuple[str, int], tuple[int, int, float | None]]
"""By carrier and scheduled hour: flights, those that departed, mean delay at departure in minutes."""


@dataclass(frozen=True, slots=True)
class Results:
    """`sent` and `arrived` by airport; `spark_counts` the same by Spark; `delays` as Spark answered."""

    ok: bool
    sent: dict[str, int]
    arrived: dict[str, int]
    spark_counts: dict[str, int]
    lost: int
    twice: int
    reordered: int
    verdicts: dict[str, Verdict]
    delays_differ: list[str]
    delays: list[dict[str, Any]]


def expected_delays(flights: Flights) -> Delays:
    """From the data itself; a cancelled flight (`NA`) has no delay."""
    carrier, hour, delay = (flights.header.index(name) for name in ("carrier", "hour", "dep_delay"))
    counts: dict[tuple[str, int], int] = defaultdict(int)
    delays: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in flights.rows:
        key = row[carrier], int(row[hour])
        counts[key] += 1
        if row[delay] != "NA":
            delays[key].append(float(row[delay]))
    return {
        key: (count, len(delays[key]), sum(delays[key]) / len(delays[key]) if delays[key] else None)
        for key, count in sorted(counts.items())
    }


def answered_delays(rows: Sequence[Mapping[str, Any]]) -> Delays:
    """From Spark's answer."""
    return {(row["carrier"], row["hour"]): (row["flights"], row["departed"], row["mean_min"]) for row in rows}


def differing(expected: Delays, answered: Delays) -> list[str]:
    """One line for each carrier and hour where they differ."""
    lines = []
    for key in sorted({*expected, *answered}):
        ours, theirs = expected.get(key), answered.get(key)
        same = ours is not None and theirs is not None and ours[:2] == theirs[:2]
        if same and ours is not None and theirs is not None:
            if ours[2] is None or theirs[2] is None:
                same = ours[2] == theirs[2]
            else:
                same = abs(ours[2] - theirs[2]) < MEAN_TOLERANCE_MIN
        if not same:
            lines.append(f"{key[0]} at {key[1]}: the data says {ours}, the table {theirs}")
    return lines


def check(flights: Flights, arrived: Mapping[str, Sequence[str]], answer: Mapping[str, Any]) -> Results:
    """`arrived`: identities by airport in the order of the hub's queue; `answer`: Spark's."""
    column = flights.header.index(ID_COLUMN)
    sent = {airport: [row[column] for row in flights.of(airport)] for airport in AIRPORTS}
    verdicts = judge_all(sent, arrived)
    spark_counts = {str(origin): int(count) for origin, count in answer["by_origin"].items()}
    differ = differing(expected_delays(flights), answered_delays(answer["delays"]))
    counts = {airport: len(identities) for airport, identities in sent.items()}
    return Results(
        ok=all(verdict.ok for verdict in verdicts.values()) and spark_counts == counts and not differ,
        sent=counts,
        arrived={airport: verdict.arrived for airport, verdict in verdicts.items()},
        spark_counts=spark_counts,
        lost=sum(verdict.lost for verdict in verdicts.values()),
        twice=sum(verdict.twice for verdict in verdicts.values()),
        reordered=sum(verdict.reordered for verdict in verdicts.values()),
        verdicts=verdicts,
        delays_differ=differ,
        delays=list(answer["delays"]),
    )


def report_lines(results: Results) -> list[str]:
    """What a person reads at the end."""
    lines = ["", "airport      sent     table     Spark"]
    for airport in sorted({*results.sent, *results.arrived}):
        figures = (results.sent, results.arrived, results.spark_counts)
        lines.append(f"{airport:<8}" + "".join(f"{counts.get(airport, 0):>10,}" for counts in figures))
    lines.append(
        f"{'all':<8}"
        + "".join(f"{sum(counts.values()):>10,}" for counts in (results.sent, results.arrived, results.spark_counts))
    )
    lines.append(f"lost {results.lost}, twice {results.twice}, out of order {results.reordered}")
    for verdict in results.verdicts.values():
        lines += [f"  {example}" for example in verdict.examples]
    lines += ["", *delay_lines(results.delays)]
    differ = results.delays_differ
    lines.append(
        f"{len(results.delays)} means by carrier and hour, "
        + (f"{len(differ)} differ from the data's" if differ else "all equal to the data's")
    )
    lines += [f"  {line}" for line in differ[:10]]
    return [*lines, ""]


def delay_lines(delays: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean delay at departure in minutes, the busiest carriers by blocks of hours."""
    flights: dict[str, int] = defaultdict(int)
    sums: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in delays:
        flights[row["carrier"]] += row["flights"]
        if row["mean_min"] is None:
            continue
        for number, (first, last) in enumerate(BLOCKS):
            if first <= row["hour"] <= last:
                total = sums[row["carrier"], number]
                total[0] += row["mean_min"] * row["departed"]
                total[1] += row["departed"]
    carriers = sorted(flights, key=lambda carrier: (-flights[carrier], carrier))[:BUSIEST]
    head = "".join(f"{f'{first}-{last}h':>9}" for first, last in BLOCKS)
    lines = ["departure delay, mean minutes", f"carrier  flights{head}"]
    for carrier in carriers:
        cells = []
        for number in range(len(BLOCKS)):
            minutes, departed = sums[carrier, number]
            cells.append(f"{minutes / departed:>9.1f}" if departed else f"{'-':>9}")
        lines.append(f"{carrier:<8}{flights[carrier]:>8,}{''.join(cells)}")
    return lines
