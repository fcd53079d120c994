"""The results of the traffic paper's experiment as text: the tables of docs/results/traffic-control.md.

Rules of this file: every figure comes from a report of report.py; a cell says n where it is not the table's. What is
outside the markers of a document stays as it is.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.marked_pages import table

BEGIN: Final = "<!-- traffic control -->"
END: Final = "<!-- end traffic control -->"
LINE: Final = 118

Report = dict[str, Any]


def number(value: float, digits: int = 2) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}" if value % 1 else f"{value:.0f}"


def spread(found: Mapping[str, float], digits: int = 1) -> str:
    """The mean, and the deviation of one run where there are several."""
    middle = number(found["mean"], digits)
    return middle if found["n"] < 2 else f"{middle} ± {number(found['deviation'], digits)}"


def page(report: Report) -> list[str]:
    """All of it; a part for which the table had no runs is left out."""
    told = (
        f"n = {report['n']} runs of each, seeds {report['seeds'][0]} to {report['seeds'][1]}, unless a table says "
        "otherwise; means, and ± the standard deviation of one run. "
        f"{report['runs']:,} runs in all, {report['run_s'] / 3_600:.1f} hours of one core."
    )
    lines = ["", *textwrap.wrap(told, LINE), ""]
    for title, made, parts in (
        ("The paper's statements", _statements, ("statements",)),
        ("Acceptance", _checks, ("checks",)),
        ("The paper's burst", _paper, ("paper",)),
        ("Sizes of bursts", _sizes, ("bursts",)),
        ("All at once", _together, ("together",)),
        ("All at once, with priorities", _priorities, ("priorities",)),
        ("What it is sensitive to", lambda report: _varied(report["varied"]), ("varied",)),
        ("Weights and thresholds", _thresholds, ("thresholds",)),
        ("Through the VPN", _network, ("network",)),
        ("Sizes of bursts through the VPN", _network_sizes, ("network_sizes",)),
        (
            "What it is sensitive to, through the VPN",
            lambda report: _varied(report["network_varied"]),
            ("network_varied",),
        ),
        ("Loss of a P router", _failures, ("failures",)),
    ):
        if all(report.get(part) for part in parts):
            lines += [f"### {title}", "", *made(report), ""]
    return lines[1:-1]


def _of(report: Report, name: str) -> Report:
    found: Report = next(row for row in report["paper"] if row["policy"] == name)
    return found


def _checked(report: Report, what: str) -> str:
    [found] = [check for check in report["checks"] if check["what"] == what]
    spread = f"{number(found['mean'], 1)} ± {number(found['deviation'], 1)}"
    return f"{spread} ({number(found['least'])} to {number(found['most'])})"


def _statements(report: Report) -> list[str]:
    fixed, weights, said = _of(report, "fixed"), _of(report, "weights"), report["statements"]
    rows = [
        ["9", "without control an overflow occurred in client 2 in the burst",
         f"{_checked(report, 'fixed, overflow of client 2')} messages; clients 1 and 3: "
         f"{_checked(report, 'fixed, overflow of clients 1 and 3')}"],
        ["9", "with control no overflow occurred", f"{_checked(report, 'weights, overflow')} messages"],
        ["10", "without control client 2's queue was full, with control it was smaller",
         f"peak {spread(fixed['peaks'][1])} of 200 without, {_checked(report, 'weights, peak of client 2')} with"],
        ["11", "more was sent from client 2 in the burst than outside it",
         f"{spread(said['within'], 2)} against {spread(said['outside'], 2)} messages a second"],
        ["12", "the root's queue grew with control",
         f"mean in the burst {spread(said['root_fixed'])} without, {spread(said['root_weights'])} with; "
         f"peak {spread(weights['root'])} of 800"],
    ]  # fmt: skip
    return table(["figure", "the paper says (§4.4)", "here"], rows)


def _checks(report: Report) -> list[str]:
    rows = []
    for check in report["checks"]:
        low, high = (number(bound) for bound in check["of_mean"])
        least, most = (number(bound) for bound in check["of_each"])
        rows.append([
            check["what"], check["expected"], f"{low} to {high}", f"{least} to {most}", str(check["n"]),
            f"{number(check['mean'])} ± {number(check['deviation'])}",
            f"{number(check['least'])} to {number(check['most'])}", "yes" if check["holds"] else "**no**",
        ])  # fmt: skip
    heads = ["scenario", "expected", "mean allowed", "each run allowed", "n", "mean ± deviation", "runs", "holds"]
    return table(heads, rows)


PAPER_HEADS: Final = (
    "policy", "n", "overflow", "peaks 1 / 2 / 3 of 200", "root of 800", "Jain", "settles, s",
    "rate changes a minute in the burst, a client", "`load` a second", "`pace` a second",
)  # fmt: skip


def _paper_row(row: Report) -> list[str]:
    settles = "–" if row["policy"] == "fixed" or row["settles_s"] is None else number(row["settles_s"], 0)
    return [
        row["policy"], str(row["n"]), spread(row["overflow"], 0), _peaks(row), spread(row["root"], 0),
        spread(row["fairness"], 2), settles, spread(row["changes_per_min"], 0), spread(row["loads_per_s"]),
        spread(row["paces_per_s"]),
    ]  # fmt: skip


def _peaks(row: Report) -> str:
    return " / ".join(spread(peak, 0) for peak in row["peaks"])


def _paper(report: Report) -> list[str]:
    return table(PAPER_HEADS, [_paper_row(row) for row in report["paper"]])


def _sizes(report: Report) -> list[str]:
    found = report["limits"]
    bursts = [row["burst"] for row in found]
    rows = [
        ["limit, sum of rates at most R", *(f"{spread(row['rate'], 0)}; n = {row['rate']['n']}" for row in found)],
        ["limit, with the root's space", *(f"{spread(row['whole'], 0)}; n = {row['whole']['n']}" for row in found)],
    ]
    by = {(row["policy"], row["burst"]): row for row in report["bursts"]}
    for name in dict.fromkeys(row["policy"] for row in report["bursts"]):
        cells = []
        for burst in bursts:
            row = by[name, burst]
            times = row["size"]["mean"] / by["weights", burst]["size"]["mean"]
            cells.append(f"{spread(row['size'], 0)} ({spread(row['share'], 2)}, {times:.1f} ×; n = {row['n']})")
        rows.append([name, *cells])
    return table(["messages a second in the burst", *(f"{burst:g}" for burst in bursts)], rows)


def _together(report: Report) -> list[str]:
    rows = [
        [row["policy"], str(row["n"]), f"{spread(row, 0)} ({number(row['least'])} to {number(row['most'])})"]
        for row in report["together"]
    ]  # fmt: skip
    return table(["policy", "n", "messages that overflowed, of 72,000 in the burst"], rows)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}" if share >= 0.1 or not share else f"{100 * share:.2g}"


def _share(found: Mapping[str, float]) -> str:
    """In percent, with the deviation of one run."""
    middle = _percent(found["mean"])
    return f"{middle} %" if found["n"] < 2 else f"{middle} ± {100 * found['deviation']:.2g} %"


def _priorities(report: Report) -> list[str]:
    found = report["priorities"]
    rows = [
        [row["offered"], row["policy"], str(row["n"]), *(_share(share) for share in row["classes"]),
         " / ".join(_share(share) for share in row["clients"]), number(row["root"], 0)]
        for row in found
    ]  # fmt: skip
    heads = ["messages a second 1 / 2 / 3", "policy", "n", "low refused", "normal", "high", "clients 1 / 2 / 3 refused",
             "root's highest peak of 800"]  # fmt: skip
    told = "Priorities 1, 4 and 8 are drawn for 60, 30 and 10 % of the messages."
    return [told, "", *table(heads, rows)]


VARIED: Final = {
    "period_s": lambda value: f"T {value}", "loss": lambda value: f"loss {float(value):.0%}",
    "delay_s": lambda value: f"delay {value} s", "clients": lambda value: f"n {value}",
}  # fmt: skip
"""What differs from the paper, in the order of the table's columns."""


def _place(row: Report) -> tuple[int, float]:
    [(key, value)] = list(row["varied"].items())[:1]
    return list(VARIED).index(key), float(value)


def _varied(given: Sequence[Report]) -> list[str]:
    found = sorted((row for row in given if row["varied"] and set(row["varied"]) <= set(VARIED)), key=_place)
    heads = [" ".join(VARIED[key](value) for key, value in row["varied"].items()) for row in found]
    policies = dict.fromkeys(policy for row in found for policy in row["shares"])
    rows = [
        [policy, *(spread(row["shares"][policy], 2) if policy in row["shares"] else "" for row in found)]
        for policy in policies
    ]
    heads = [f"{head}; n = {' to '.join(str(n) for n in row['n'])}" for head, row in zip(heads, found, strict=True)]
    return table(["share of its limit at 50/s", *heads], rows)


def _thresholds(report: Report) -> list[str]:
    bursts = dict.fromkeys(burst for row in report["thresholds"] for burst in row["shares"])
    rows = []
    for row in report["thresholds"]:
        sized = min((found["n"] for found in row["shares"].values()), default=0)
        cells = [row["thresholds"] or "the paper's, X from X · 10 %", f"{row['n']}; {sized}"]
        if "overflow" in row:
            cells += [spread(row["overflow"], 0), spread(row["peak"], 0), spread(row["fairness"], 2)]
            cells.append(spread(row["changes_per_min"], 0))
        else:
            cells += [""] * 4
        cells += [spread(row["shares"][burst], 2) if burst in row["shares"] else "" for burst in bursts]
        rows.append(cells)
    heads = ["UTILISATION:WEIGHT", "n; of the sizes", "overflow", "peak of client 2", "Jain", "rate changes a minute"]
    return table([*heads, *(f"share of its limit at {burst}/s" for burst in bursts)], rows)


def _ms(found: Mapping[str, float]) -> str:
    return spread({**found, "mean": 1_000 * found["mean"], "deviation": 1_000 * found["deviation"]}, 1)


def _network(report: Report) -> list[str]:
    rows = []
    for row in report["network"]:
        policy, n, *cells = _paper_row(row)
        more = [""] * 4
        if row["links"] == "VPN":
            more = [
                f"{_ms(row['message_delay_mean_s'])} ({_ms(row['message_delay_max_s'])})",
                _ms(row["control_delay_mean_s"]), spread(row["packets_lost"], 0), spread(row["segments_resent"], 0),
            ]  # fmt: skip
        rows.append([policy, row["links"], n, *cells, *more])
    heads = [PAPER_HEADS[0], "links", *PAPER_HEADS[1:], "message, ms: mean (most)", "control, ms",
             "packets lost", "segments sent again"]  # fmt: skip
    return table(heads, rows)


def _network_sizes(report: Report) -> list[str]:
    rows = [
        [row["policy"], f"{row['burst']:g}", str(row["vpn"]["n"]),
         spread(row["direct"], 2) if "direct" in row else "", spread(row["vpn"], 2)]
        for row in report["network_sizes"]
    ]  # fmt: skip
    heads = ["policy", "messages a second", "n", "share of its limit, direct links", "through the VPN"]
    return table(heads, rows)


def _failures(report: Report) -> list[str]:
    rows = [
        [row["fail"] or "nothing", "yes" if row["fast_reroute"] else "no", row["policy"], str(row["n"]),
         spread(row["delay"], 2), spread(row["lost"], 0), spread(row["resent"], 0), spread(row["overflow"], 0),
         _peaks(row)]
        for row in report["failures"]
    ]  # fmt: skip
    heads = ["fails", "fast reroute", "policy", "n", "longest delay of a message, s", "packets lost",
             "segments sent again", "overflow", "peaks 1 / 2 / 3 of 200"]  # fmt: skip
    return table(heads, rows)
