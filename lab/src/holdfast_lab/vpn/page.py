"""The results of the traffic paper's experiment as text: the tables of docs/results/traffic-control.md.

Rules of this file: every figure comes from a report of campaign.py; a cell says n where it is not the table's. What is
outside the markers of a document stays as it is.
"""

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import ConfigError
from holdfast_lab.vpn import priorities

BEGIN: Final = "<!-- traffic control -->"
END: Final = "<!-- end traffic control -->"
LINE: Final = 118

Report = dict[str, Any]


def put_into(document: str, lines: Sequence[str]) -> str:
    """The document with these lines between the markers. Raises ConfigError where it has none."""
    before, found, rest = document.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ConfigError(f"the document has no {BEGIN} with {END} after it; write them where the tables are to be")
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]


def number(value: float, digits: int = 2) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}" if value % 1 else f"{value:.0f}"


def page(report: Report, command: str) -> list[str]:
    """All of it. `report`: `accept`'s, and `varied`, if there is one."""
    n = len(report["seeds"])
    told = f"n = {n} runs of each (seeds {report['seeds'][0]} to {report['seeds'][-1]}), {command}. Means, unless said."
    lines = ["", *textwrap.wrap(told, LINE), ""]
    for title, made in (
        ("The paper's statements", _statements(report)),
        ("Acceptance", _checks(report)),
        ("The paper's burst", _paper(report)),
        ("Sizes of bursts", _sizes(report)),
        ("All at once", _together(report)),
        ("All at once, with priorities", _priorities(report)),
        ("What it is sensitive to", _varied(report)),
    ):
        if made:
            lines += [f"### {title}", "", *made, ""]
    return lines[1:-1]


def _of(report: Report, name: str) -> Report:
    found: Report = next(row for row in report["paper"] if row["policy"] == name)
    return found


def _checked(report: Report, what: str) -> str:
    [found] = [check for check in report["checks"] if check["what"] == what]
    spread = f"{number(found['mean'], 1)} ± {number(found['deviation'], 1)}"
    return f"{spread} ({number(found['least'])} to {number(found['most'])})"


def _statements(report: Report) -> list[str]:
    fixed, weights = _of(report, "fixed"), _of(report, "weights")
    rows = [
        ["9", "without control an overflow occurred in client 2 in the burst",
         f"{_checked(report, 'fixed, overflow of client 2')} messages; clients 1 and 3: "
         f"{_checked(report, 'fixed, overflow of clients 1 and 3')}"],
        ["9", "with control no overflow occurred", f"{_checked(report, 'weights, overflow')} messages"],
        ["10", "without control client 2's queue was full, with control it was smaller",
         f"peak {number(fixed['peaks'][1])} of 200 without, {_checked(report, 'weights, peak of client 2')} with"],
        ["11", "more was sent from client 2 in the burst than outside it",
         f"{number(report['client_2']['within'])} against {number(report['client_2']['outside'])} messages a second"],
        ["12", "the root's queue grew with control",
         f"mean in the burst {number(report['root']['fixed'], 1)} without, "
         f"{number(report['root']['weights'], 1)} with; peak {number(weights['root'])} of 800"],
    ]  # fmt: skip
    return table(["figure", "the paper says (§4.4)", "here"], rows)


def _checks(report: Report) -> list[str]:
    rows = []
    for check in report["checks"]:
        low, high = (number(bound) for bound in check["of_mean"])
        least, most = (number(bound) for bound in check["of_each"])
        rows.append([
            check["what"], check["expected"], f"{low} to {high}", f"{least} to {most}",
            f"{number(check['mean'])} ± {number(check['deviation'])}",
            f"{number(check['least'])} to {number(check['most'])}", "yes" if check["holds"] else "**no**",
        ])  # fmt: skip
    heads = ["scenario", "expected", "mean allowed", "each run allowed", "mean ± deviation", "runs", "holds"]
    return table(heads, rows)


def _paper(report: Report) -> list[str]:
    rows = [
        [row["policy"], number(row["overflow"], 0), " / ".join(number(peak, 0) for peak in row["peaks"]),
         number(row["root"], 0), number(row["fairness"]),
         "–" if row["policy"] == "fixed" else number(row["settles_s"], 0), number(row["changes_per_min"], 0),
         number(row["loads_per_s"], 1), number(row["paces_per_s"], 1)]
        for row in report["paper"]
    ]  # fmt: skip
    heads = ["policy", "overflow", "peaks 1 / 2 / 3 of 200", "root of 800", "Jain", "settles, s",
             "rate changes a minute in the burst, a client", "`load` a second", "`pace` a second"]  # fmt: skip
    return table(heads, rows)


def _sizes(report: Report) -> list[str]:
    bursts = [row["burst"] for row in report["limits"]]
    rows = [
        ["limit, sum of rates at most R", *(number(row["rate"], 0) for row in report["limits"])],
        ["limit, with the root's space", *(number(row["whole"], 0) for row in report["limits"])],
    ]
    by = {(row["policy"], row["burst"]): row for row in report["bursts"]}
    for name in dict.fromkeys(row["policy"] for row in report["bursts"]):
        cells = []
        for burst in bursts:
            row = by[name, burst]
            times = row["size"] / by["weights", burst]["size"]
            cells.append(f"{number(row['size'], 0)} ({row['share']:.2f}, {times:.1f} ×)")
        rows.append([name, *cells])
    return table(["messages a second in the burst", *(f"{burst:g}" for burst in bursts)], rows)


def _together(report: Report) -> list[str]:
    rows = [
        [row["policy"], f"{number(row['overflow'])} ({number(row['least'])} to {number(row['most'])})"]
        for row in report["together"]
    ]  # fmt: skip
    return table(["policy", "messages that overflowed, of 72,000 in the burst"], rows)


def _priorities(report: Report) -> list[str]:
    found = report.get("priorities")
    if not found:
        return []
    told = f"Priorities 1, 4 and 8 are drawn for 60, 30 and 10 % of the messages; n = {found[0]['n']}."
    return [told, "", *table(priorities.HEADS, priorities.table_rows(found))]


def _varied(report: Report) -> list[str]:
    varied = report.get("varied", [])
    if not varied:
        return []
    names = [key for key in varied[0] if key not in ("varied", "n")]
    rows = [[name, *(f"{row[name]:.2f}" for row in varied)] for name in names]
    return table(["share of its limit at 50/s", *(f"{row['varied']}; n = {row['n']}" for row in varied)], rows)
