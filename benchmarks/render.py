"""Writes the tables of docs/BENCHMARKS.md from the JSON of benchmarks: `python benchmarks/render.py FILE.json …`.

Rules of this file: every figure comes from a file that a benchmark wrote, none from here. A benchmark's tables lie
between `<!-- NAME -->` and `<!-- end NAME -->`, its command and machine with them; what is outside stays as it is.
A file whose commit had changes is refused unless --changed says that it is meant.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "BENCHMARKS.md"
Report = dict[str, Any]
Lines = list[str]
PEERS = {
    "rabbitmq_amqp10": "RabbitMQ, AMQP 1.0",
    "rabbitmq_native": "RabbitMQ, native 0-9-1 with confirms",
    "bare": "bare Python loop",
}
NOTHING = "not measured"


class Refused(Exception):
    """A file that cannot be rendered; the text says why."""


def number(value: float, digits: int = 2) -> str:
    """As few digits as tell something: thousands whole, small figures with `digits`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def span(found: Report | None, digits: int = 2) -> str:
    """`median (least–most), n` of what `_report.spread` made."""
    if not found:
        return NOTHING
    median, least, most = (number(found[key], digits) for key in ("median", "min", "max"))
    return f"{median} ({least}–{most}), {found['n']}"


def middle(found: Report | float | None, digits: int = 2) -> str:
    if found is None:
        return NOTHING
    return number(found["median"] if isinstance(found, dict) else found, digits)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]


def origin(report: Report) -> Lines:
    """What made it, and on what."""
    machine = report["machine"]
    lines = [
        f"`{report['command']}`",
        "",
        f"Commit {report['commit'][:12]}{'+changes' if report['commit'].endswith('+changes') else ''}, "
        f"{report['started'][:10]}; {machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}, Python "
        f"{machine['python']}, {machine['file_system']}; load average before {machine['load_average_before']:.2f}.",
    ]
    absent = report.get("absent") or {}
    return lines + [line for name, why in absent.items() for line in ("", f"Left out: {name} ({why}).")]


def throughput(report: Report) -> Lines:
    rows = []
    for case in report["cases"].values():
        own = case["figure"]
        what = f"{case['size']:,} B, {case['pairs']} and {case['pairs']}, {case['queues']}"
        for peer, ratio in case["ratio"].items():
            goal, found = ratio["goal"], case["results"][peer]["messages_per_s"]
            told = "" if goal is None else f"{'>' if goal == 1 else '≥'} {goal:g}"
            rows.append([what, PEERS[peer], told, span(ratio), middle(own), middle(found)])
    heads = ["body; senders and receivers; queues", "against", "goal, Holdfast ÷ peer", "ratio: median (least–most), n",
             "Holdfast, msg/s", "peer, msg/s"]  # fmt: skip
    lines = table(heads, rows)
    syncs = {name: found for name, found in report["syncs"].items() if isinstance(found, dict) and "messages" in found}
    if syncs:
        names = {"holdfast": "Holdfast", **PEERS}
        told = [f"{names[name]} {middle(found['messages_per_sync'], 0)}" for name, found in syncs.items()]
        lines += ["", f"Messages for each sync (1,024 B, one pair): {', '.join(told)}."]
    return lines


def latency(report: Report) -> Lines:
    names = {"holdfast": "Holdfast", **PEERS, "file_commit": "bare commit: a write and fdatasync",
             "store_commit": "bare commit: LMDB, as the node's store"}  # fmt: skip
    rows = []
    for name, found in report["results"].items():
        quantiles = [middle(found[key]) for key in ("p50_ms", "p999_ms", "max_ms")]
        rows.append([names[name], quantiles[0], span(found["p99_ms"]), *quantiles[1:]])
    lines = table(["", "p50, ms", "p99, ms: median (least–most), n", "p99.9, ms", "most, ms"], rows)
    ratio = report["ratio"]
    ways = [
        ["2 × the bare commit's p99 (a write and fdatasync) + 2 ms", "limit"],
        *[[text, name] for name, text in PEERS.items()],
    ]
    compared = [
        [text, "" if ratio[name]["goal_below"] is None else f"< {ratio[name]['goal_below']:g}", span(ratio[name])]
        for text, name in ways
        if name in ratio
    ]
    return [*lines, "", *table(["Holdfast's p99 ÷", "goal", "median (least–most), n"], compared)]


def many(report: Report) -> Lines:
    parts, settings, goals = report["parts"], report["settings"], report["goals"]
    lines: Lines = []
    if "connections" in parts:
        found = parts["connections"]["results"]
        keys = [("messages a second", "messages_per_s", 0), ("longest wait, ms", "wait_max_ms", 1),
                ("p99, ms", "wait_p99_ms", 1), ("all attached in, s", "attach_s", 1), ("MB before", "before_mb", 1),
                ("MB attached", "attached_mb", 1), ("MB at the end", "after_mb", 1)]  # fmt: skip
        names = {"holdfast": "Holdfast", **PEERS}
        rows = [[names[name], *[span(row[key], digits) for _, key, digits in keys]] for name, row in found.items()]
        lines.append(
            f"{settings['connections']:,} connections, half senders, half receivers, {settings['rate']:g} messages of "
            f"{settings['size']:,} B a second over all:"
        )
        lines += ["", *table(["", *[text for text, _, _ in keys]], rows), ""]
    rows = []
    if "queues" in parts:
        row = parts["queues"]["results"]["holdfast"]
        what = f"{settings['queues']:,} queues"
        rows += [
            [f"{what}: made, one message to each, s", "", middle(row["make_s"])],
            [f"{what}: `status`, s", "", middle(row["status_s"])],
            [f"{what}: start until `ready`, s", "", span(row["start_s"])],
            [f"{what}: anonymous MB empty, made, restarted", "",
             ", ".join(middle(row[f"{at}_anonymous_mb"], 1) for at in ("empty", "made", "restarted"))],
        ]  # fmt: skip
    if "backlog" in parts:
        part = parts["backlog"]
        row = part["results"]["holdfast"]
        what = f"backlog of {settings['backlog']:,} messages of {settings['size']:,} B"
        rate, start = f"≥ {goals['backlog_ratio_at_least']:g}", f"< {goals['backlog_start_s_below']:g}"
        stages = ("empty", "tenth", "filled", "after", "restarted")
        rows += [
            [f"{what}: rate ÷ an empty queue's", rate, span(part["ratio"]["empty"])],
            [f"{what}: messages a second, in and out", "", span(row["deep_messages_per_s"])],
            [f"{what}: start until `ready`, s", start, span(row["start_s"])],
            [f"{what}: the same, nothing of the store cached, s", start, span(row["cold_start_s"])],
            [f"{what}: anonymous MB empty, a tenth filled, filled, after the load, restarted", "flat",
             ", ".join(middle(row[f"{at}_anonymous_mb"], 1) for at in stages)],
            [f"{what}: filled, messages a second", "", middle(row["fill_messages_per_s"])],
            [f"{what}: bytes on disk for each", "", middle(row["store_bytes_per_message"], 0)],
        ]  # fmt: skip
    return [*lines, *table(["what", "goal", "Holdfast: median (least–most), n"], rows)] if rows else lines[:-1]


def footprint(report: Report) -> Lines:
    peers = list(report["results"])
    goals = report["goals_at_most"]
    settings = report["settings"]
    rate = f"at {settings['rate']:g} msg/s"
    keys = [
        ("idle, resident less the store's mapping, MB", "idle_mb"),
        (f"after {settings['burst']:,} messages, MB", "after_burst_mb"),
        (f"{rate}, MB", "paced_mb"),
        (f"CPU {rate}, % of a core", "paced_cpu_percent"),
        (f"bytes written for each stored byte, {rate}", "paced_written_per_stored_byte"),
        ("bytes written for each stored byte, at full speed", "full_written_per_stored_byte"),
    ]
    names = {"holdfast": "Holdfast", **PEERS}
    rows = [
        [text, f"≤ {goals[key]:g}" if key in goals else "reported",
         *[span(report["results"][peer].get(key)) for peer in peers]]
        for text, key in keys
    ]  # fmt: skip
    return table(["what", "goal", *[f"{names[peer]}: median (least–most), n" for peer in peers]], rows)


def simulator(report: Report) -> Lines:
    goals = {"frames": f"≥ {report['least_hops_per_s']:,}, better {report['goal_hops_per_s']:,}", "bytes": ""}
    rows = [[depth, goal, span(report[depth]["hops_per_s"])] for depth, goal in goals.items()]
    return table(["depth", "goal", "hops a second: median (least–most), n"], rows)


def tables(report: Report) -> Lines:
    goals = report["goals"]
    rows = []
    for case in report["cases"].values():
        aimed = case["nodes"] == goals["nodes"]
        told = [f" (goal < {goals[key]:g})" if aimed else "" for key in ("table_ms_below", "all_pairs_ms_below")]
        rows.append([str(case["nodes"]), case["costs"], span(case["table_ms"]) + told[0],
                     span(case["all_pairs_ms"]) + told[1], span(case["ratio"])])  # fmt: skip
    heads = ["nodes", "costs", "one node's table, ms: median (least–most), n", "all nodes' tables, ms",
             "all, Holdfast ÷ networkx"]  # fmt: skip
    return table(heads, rows)


def trace_bytes(report: Report) -> Lines:
    keys = ("full_bytes", "aliased_bytes", "beside_the_message_full", "beside_the_message_aliased")
    rows = [[str(row["passed"]), *[number(row[key], 1) for key in keys], f"{row['saved_percent']:g} %"]
            for row in report["results"]]  # fmt: skip
    heads = ["nodes passed", "in full, B a message", "by aliases", "beside the message in full", "by aliases", "saved"]
    return table(heads, rows)


RENDERERS: dict[str, Callable[[Report], Lines]] = {
    "throughput": throughput,
    "latency": latency,
    "many": many,
    "footprint": footprint,
    "simulator": simulator,
    "tables": tables,
    "trace_bytes": trace_bytes,
}


def render(text: str, report: Report) -> str:
    """`text` with the tables of the report's benchmark made anew; Refused."""
    name = report.get("benchmark", "")
    if name not in RENDERERS:
        raise Refused(f"benchmark {name!r}: {', '.join(RENDERERS)} are accepted")
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if len(block.findall(text)) != 1:
        raise Refused(f"the document needs one `<!-- {name} -->` with its `<!-- end {name} -->`")
    body = "\n".join([*RENDERERS[name](report), "", *origin(report)])
    return block.sub(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", text)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="what --json-out wrote")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="(default: docs/BENCHMARKS.md)")
    parser.add_argument("--changed", action="store_true", help="take figures of sources that differ from their commit")
    options = parser.parse_args(arguments)
    text = options.document.read_text(encoding="utf-8")
    try:
        for file in options.files:
            report = json.loads(file.read_text(encoding="utf-8"))
            if report.get("commit", "").endswith("+changes") and not options.changed:
                raise Refused(f"{file}: commit {report['commit'][:12]} had changes; --changed takes it all the same")
            text = render(text, report)
    except (Refused, OSError, ValueError) as error:
        print(f"render: {error}", file=sys.stderr)
        return 2
    options.document.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
