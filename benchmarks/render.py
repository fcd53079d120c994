"""Writes the tables of docs/BENCHMARKS.md from the JSON of benchmarks: `python benchmarks/render.py FILE.json …`.

Rules of this file: every figure comes from a file that a benchmark wrote, none from here. A benchmark's tables lie
between `<!-- NAME -->` and `<!-- end NAME -->`, its command and machine with them; what is outside stays as it is. One
that has a page of its own under docs/results has its full tables there, between `<!-- NAME in full -->` and its end.
A file whose commit had changes is refused unless --changed says that it is meant.
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "BENCHMARKS.md"
RESULTS = DOCUMENT.parent / "results"
Report = dict[str, Any]
Lines = list[str]
PEERS = {
    "rabbitmq_amqp10": "RabbitMQ, AMQP 1.0",
    "activemq_stomp": "ActiveMQ, STOMP",
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
    """`median (least–most), n` of what `_figures.spread` made."""
    if not found:
        return NOTHING
    median, least, most = (number(found[key], digits) for key in ("median", "min", "max"))
    return f"{median} ({least}–{most}), {found['n']}"


def middle(found: Report | float | None, digits: int = 2) -> str:
    if found is None:
        return NOTHING
    return number(found["median"] if isinstance(found, dict) else found, digits)


LINE_MAX = 118


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]


def origin(report: Report) -> Lines:
    """What made it, and on what."""
    machine = report["machine"]
    made = (
        f"Commit {report['commit'][:12]}{'+changes' if report['commit'].endswith('+changes') else ''}, "
        f"{report['started'][:10]}; {machine['cpu']}, {machine['cores']} cores, kernel {machine['kernel']}, Python "
        f"{machine['python']}, {machine['file_system']}; load average before {machine['load_average_before']:.2f}."
    )
    lines = [f"`{report['command']}`", "", *textwrap.wrap(made, LINE_MAX)]
    absent = report.get("absent") or {}
    return lines + [line for name, why in absent.items() for line in ("", f"Left out: {name} ({why}).")]


def throughput(report: Report) -> Lines:
    rows = []
    for name, case in report["cases"].items():
        own = case["figure"]
        what = f"{case['size']:,} B, {case['pairs']} and {case['pairs']}, {case['queues']}"
        what += "; priorities drawn" if name.endswith("p") else ""
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
        lines += ["", *textwrap.wrap(f"Messages for each sync (1,024 B, one pair): {', '.join(told)}.", LINE_MAX)]
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


def selecting(report: Report) -> Lines:
    rows = []
    for name, case in report["cases"].items():
        selector = "none" if case["example"] is None else f"`{case['example']}`"
        if case["selectors"] > 1:
            selector = f"{case['selectors']} like {selector}"
        if name.startswith("plain"):
            selector = "none; messages without properties"
        ratio = report["ratio"].get(name)
        rows.append([selector, str(case["consumers"]), span(case["messages_per_s"]),
                     "" if ratio is None else span(ratio), middle(case["deliveries_per_s"]),
                     "" if case["looked_at_per_s"] is None else middle(case["looked_at_per_s"])])  # fmt: skip
    heads = ["selector", "consumers", "messages passed a second: median (least–most), n",
             "÷ one consumer without a selector", "deliveries a second", "entries looked at a second"]  # fmt: skip
    return table(heads, rows)


def sorting(report: Report) -> Lines:
    names = {
        "uniform": "arrival; one priority",
        "drawn": "arrival; priorities drawn from 0 to 9",
        "sorts-uniform": "priority; one priority",
        "sorts-drawn": "priority; priorities drawn from 0 to 9",
    }
    rows = []
    for key, found in report["messages_per_s"].items():
        name, _, phase = key.partition(" ")
        ratio = report["ratio"].get(key)
        cpu = span(report["cpu_us_per_message"][key], 1)
        rows.append([names[name], phase, span(found), "" if ratio is None else span(ratio), cpu])
    heads = ["order of the queue; messages", "", "messages a second: median (least–most), n", "÷ the first, same phase",
             "processor time of the node for each, us"]  # fmt: skip
    return table(heads, rows)


def topics(report: Report) -> Lines:
    names = {"holdfast": "Holdfast", **PEERS}
    rows = []
    for case in report["cases"].values():
        kind = "durable" if case["durable"] else "not durable"
        share = case["wanted_by_each_percent"]
        wants = "all" if share == 100 else f"{share:g} %"
        for name, found in case["results"].items():
            ratio = case["ratio"].get(name)
            rows.append([f"{case['subscriptions']} {kind}, each wants {wants}", names[name],
                         span(found["deliveries_per_s"]), middle(found["messages_per_s"]),
                         middle(found["written_bytes_per_message"]), "" if ratio is None else span(ratio)])  # fmt: skip
    heads = ["subscriptions", "", "deliveries a second: median (least–most), n", "messages published a second",
             "bytes written for each message", "deliveries, Holdfast ÷ peer"]  # fmt: skip
    return table(heads, rows)


def simulator(report: Report) -> Lines:
    goal = f"≥ {report['least_hops_per_s']:,}, better {report['goal_hops_per_s']:,}"
    return table(["goal", "hops a second: median (least–most), n"], [[goal, span(report["hops_per_s"])]])


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


# ---------------------------------------------------------------------------------------------------- bus_routing


def marks(found: Report, digits: int = 0) -> str:
    """`median, p95, most; n` of what `_bus_figures.distribution` made."""
    if not found["n"]:
        return NOTHING
    median, p95, most = (number(found[key], digits) for key in ("median", "p95", "max"))
    return f"{median}, {p95}, {most}; {found['n']}"


def bus_routing(report: Report) -> Lines:
    """What the goals and the paper speak of; the rest is in `bus_routing_in_full`."""
    parts, paper, goals = report["parts"], report["paper"], report["goals"]
    aim = f"< {goals['convergence_s'] * 1000:g}"
    less = f"< {paper['convergence_s'] * 1000:g}"
    rows = []
    if "table" in parts:
        found = parts["table"]
        first = f"{found['first_synchronisation_s']:.1f}; {found['after_last_ready_s']:.1f}"
        what = "first synchronisation (eq. 1), s; of it after the last `ready`"
        rows.append([what, f"< {goals['after_ready_s']:g} after", f"< {paper['first_synchronisation_s']:g}", first])
    for kind in ("loud", "silent"):
        if "convergence" in parts:
            found = parts["convergence"][kind]
            rows.append([f"{kind} cut until all nodes route right, ms: median, p95, most; n", aim, less,
                         f"{marks(found['right_ms'])} ({found['within_goal']} within the goal)"])  # fmt: skip
            rows.append([f"{kind} cut until a message comes the new way, ms", aim, less, marks(found["arrived_ms"])])
    for name, found in parts.get("alarms", {}).items():
        rows.append([f"sessions lost without a cut, {name}, {found['seconds']:g} s", f"{goals['false_alarms']}", "",
                     str(found["false_alarms"])])  # fmt: skip
    if "load" in parts:
        steps = parts["load"]["undisturbed"]
        for step in (steps[0], steps[-1]):
            what = f"{step['rate']:g} messages a second over the bus"
            rows.append([f"{what}: CPU of a node, % of a core: median, p95, most; n", "", f"< {paper['cpu_percent']:g}",
                         marks(step["cpu_percent"], 1)])  # fmt: skip
            rows.append([f"{what}: anonymous memory of a node, MB", "", f"< {paper['memory_mb']:g}",
                         marks(step["memory_mb"], 1)])  # fmt: skip
        lost = [step["loss"]["never_came"] for kind in ("undisturbed", "with cuts") for step in parts["load"][kind]]
        rows.append(["share of messages lost (eq. 2, 3), the worst step", "0", "", f"{max(lost):g}"])
    return table(["what", "goal", "paper", "Holdfast"], rows)


def bus_routing_in_full(report: Report) -> Lines:
    lines: Lines = []
    ways = {"table": _bus_table, "convergence": _bus_cuts, "load": _bus_load, "alarms": _bus_alarms}
    for name, told in ways.items():
        if name in report["parts"]:
            lines += ["", *told(report["parts"][name])]
    return [*_bus_paper(report), *lines]


def _bus_paper(report: Report) -> Lines:
    """Table 1 of esb-dynamic-routing, row by row."""
    parts, paper = report["parts"], report["paper"]
    rows = []
    if "table" in parts:
        found = parts["table"]
        steps = found["steps"]

        def shown(*kinds: str) -> str:
            of = [step for step in steps if any(kind in step["step"] for kind in kinds)]
            return _yes(all(step["links_shown_right"] and step["super_sees_links"] for step in of))

        black, green = "the links shown black, no others", "shown green again"
        less = f"less than {paper['first_synchronisation_s']:g} s"
        first = f"{found['first_synchronisation_s']:.1f} s"
        same = sum(step["networkx"] == "same" for step in steps)
        beats = f"{found['heartbeats_by_shortest_path']} of {found['heartbeats']} heartbeats by the shortest path"
        right = f"correct: {steps[0]['paths']} paths, by networkx {steps[0]['networkx']}"
        rows = [
            ["node routing information, first synchronisation (eq. 1)", less, first],
            ["the initial routing table", "correct", right],
            ["disconnect the node", black, shown("killed", "stopped")],
            ["disconnect the link", black, shown("disconnected")],
            ["reconnection node", green, shown("started again")],
            ["reconnection links", green, shown("reconnected")],
            ["the shortest routing", "correct", f"correct in {same} of {len(steps)} steps, {beats}"],
        ]
    if "convergence" in parts:
        told = [f"{kind} cut {marks(parts['convergence'][kind]['right_ms'])} ms" for kind in ("loud", "silent")]
        less = f"less than {paper['convergence_s']:g} s"
        rows.append(["routing information table, convergence", less, "; ".join(told)])
    if "load" in parts:
        for text, key, limit, unit in (("CPU time", "cpu_percent", f"{paper['cpu_percent']:g} %", "% of a core"),
                                       ("memory", "memory_mb", f"{paper['memory_mb']:g} MB", "MB")):  # fmt: skip
            told = [f"{marks(step[key], 1)} at {step['rate']:g} messages a second"
                    for step in (parts["load"]["undisturbed"][0], parts["load"]["undisturbed"][-1])]  # fmt: skip
            rows.append([text, f"less than {limit}", f"{'; '.join(told)} ({unit})"])
    if not rows:
        return []
    return ["### The paper's table 1", "", "Three figures and a count are median, p95, most; n.", "",
            *table(["test content", "paper", "Holdfast"], rows)]  # fmt: skip


def _yes(told: bool) -> str:
    return "right" if told else "**wrong**"


def _bus_table(found: Report) -> Lines:
    rows = [
        [step["step"], f"{step['right_ms']:.0f}", f"{step['paths']}; {step['networkx']}",
         _yes(step["links_shown_right"]), _yes(step["super_sees_links"])]
        for step in found["steps"]
    ]  # fmt: skip
    heads = ["step", "all right after, ms", "paths compared; by networkx", "links shown", "super node's view"]
    idle = found["idle"]
    return [
        "### The test's steps", "",
        *table(heads, rows), "",
        f"First synchronisation {found['first_synchronisation_s']:.2f} s, all nodes `ready` after "
        f"{found['start_until_all_ready_s']:.2f} s, synchronised {found['after_last_ready_s']:.2f} s later. "
        f"{found['heartbeats_by_shortest_path']} of {found['heartbeats']} nodes' heartbeats came by the shortest path. "
        f"Idle: CPU of a node {marks(idle['cpu_percent'], 1)} %, memory {marks(idle['memory_mb'], 1)} MB "
        "(median, p95, most; n).",
    ]  # fmt: skip


def _bus_cuts(found: Report) -> Lines:
    keys = [("the first end noticed", "noticed_ms"), ("both ends noticed", "both_noticed_ms"),
            ("from the first end to the last node", "spreading_ms"), ("**all nodes route right**", "right_ms"),
            ("a message came the new way", "arrived_ms"), ("healed until all route right", "healed_ms"),
            ("bound of the asking's own error", "uncertain_ms")]  # fmt: skip
    rows = [[text, *(marks(found[kind][key]) for kind in ("loud", "silent"))] for text, key in keys]
    told = found["messages"]
    return [
        "### Convergence", "", "Milliseconds since the cut: median, p95, most; n.", "",
        *table(["", "loud cut", "silent cut"], rows), "",
        f"Sessions lost on links that nobody cut: {found['others_lost']}. Of {told['sent']:,} messages over the links "
        f"that were cut {'all' if told['all_came'] else '**not all**'} came, {told['twice']} twice, {told['disorder']} "
        "out of order.",
    ]  # fmt: skip


def _bus_load(found: Report) -> Lines:
    lines: Lines = ["### Rising load"]
    for kind in ("undisturbed", "with cuts"):
        steps = found[kind]
        heads = ["messages a second", *found["classes"], "CPU of all nodes, % of a core", "of the load",
                 "late is lost (eq. 2)", "as the paper counts", "never came", "false alarms"]  # fmt: skip
        rows = [
            [f"{step['rate']:g}", *(f"{told['p50']:.0f}, {told['p95']:.0f}, {told['max']:.0f}" if told["n"] else NOTHING
             for told in (step["delay_ms"][name] for name in found["classes"])), f"{step['cpu_percent_all_nodes']:.0f}",
             f"{step['cpu_percent_of_load']:.0f}", *(f"{step['loss'][key]:g}" if step["loss"][key] is not None else "–"
             for key in ("late_is_lost", "as_paper", "never_came")), str(step["false_alarms"])]
            for step in steps
        ]  # fmt: skip
        lines += ["", f"#### {kind.capitalize()}", ""]
        lines += ["Milliseconds from handing over to arrival by class: p50, p95, most.", "", *table(heads, rows), ""]
        lines += ["By node, CPU in % of a core; last column: anonymous memory in MB.", ""]
        nodes = steps[0]["cpu_percent_by_node"]
        rows = [
            [name, *(f"{step['cpu_percent_by_node'][name]:.1f}" for step in steps),
             f"{steps[-1]['memory_mb_by_node'][name]:.1f}"] for name in nodes
        ]  # fmt: skip
        lines += table(["node", *(f"{step['rate']:g}" for step in steps), "MB"], rows)
    return lines


def _bus_alarms(found: Report) -> Lines:
    rows = [
        [name, f"{row['seconds']:g}", str(row["busy_loops"]), f"{row['cpu_percent_all_nodes']:.0f}",
         *(f"{row[key]:,}" for key in ("probes_sent", "probes_missed", "probes_not_counted")), str(row["false_alarms"])]
        for name, row in found.items()
    ]  # fmt: skip
    heads = ["", "seconds", "busy loops beside it", "CPU of all nodes, %", "probes", "missed", "of no account",
             "sessions lost"]  # fmt: skip
    return ["### False alarms", "", "Nothing is cut; every session that is lost, at either end, is a false alarm.", "",
            *table(heads, rows)]  # fmt: skip


def convergence(report: Report) -> Lines:
    goal = f"< {report['goal_below_s']:g}"
    rows = [
        ["until every node's table is right", goal, span(report["tables_right_s"], 3)],
        ["until the first message comes by the new way", goal, span(report["first_message_s"], 3)],
    ]
    return table(["after a link went dark, worst cut of a seed", "goal, s", "s: median (least–most), seeds"], rows)


def federated(report: Report) -> Lines:
    names = {"holdfast": "Holdfast", "rabbitmq_federation": "RabbitMQ, federation plug-in"}
    counts = list(next(iter(report["results"].values()))["keys_s"])
    rows = [
        [names[name], span(found["deliveries_per_s"]), middle(found["broker_cores"]),
         "" if name not in report["ratio"] else span(report["ratio"][name])]
        for name, found in report["results"].items()
    ]  # fmt: skip
    heads = ["three brokers in a line", "deliveries a second: median (least–most), n", "brokers' cores",
             "deliveries, Holdfast ÷ peer"]  # fmt: skip
    keys = [
        [names[name], f"{int(count):,}", span(found["keys_per_s"].get(count)), span(found["keys_s"].get(count))]
        for count in counts
        for name, found in report["results"].items()
    ]
    heads_of_keys = ["bindings at the last broker", "keys", "bound a second", "s until all are known two hops away"]
    hops = [[f"{int(count):,}", span(found)] for count, found in report.get("hop_s", {}).items()]
    heads_of_hops = ["keys that were bound at a node before", "s until its neighbour, which starts, knows them all"]
    return [*table(heads, rows), "", *table(heads_of_keys, keys), *(["", *table(heads_of_hops, hops)] if hops else [])]


def spark_ingest(report: Report) -> Lines:
    return _spark_ratio(
        report, {"holdfast": "bus → Parquet", "files": "Parquet → Parquet, Spark's file source"}, "rows"
    )


def spark_sink(report: Report) -> Lines:
    names = {"holdfast": "Parquet → bus", "client": "one program with the client library"}
    return _spark_ratio(report, names, "messages")


def _spark_ratio(report: Report, names: dict[str, str], what: str) -> Lines:
    settings, results = report["settings"], report["results"]
    ratios = {"holdfast": [f"≥ {report['goal']:g}", span(report["ratio"])]}
    rows = [[names[name], span(found, 0), *ratios.get(name, ["", ""])] for name, found in results.items()]
    heads = [f"{settings['messages']:,} of {settings['size']:,} B, {settings['rows']:,} in a trigger",
             f"{what} a second: median (least–most), n", "goal, first ÷ second", "ratio"]  # fmt: skip
    return table(heads, rows)


def spark_nodes(report: Report) -> Lines:
    settings = report["settings"]
    rows = [
        [f"{count} {part if count != '1' else part.removesuffix('s')}{more}", span(found, 0),
         "" if found is first else span(report[part]["scaling"][count])]
        for part, more in (("nodes", f", {settings['master']}"),
                           ("executors", f", a core each, {settings['sources']} nodes"))
        for first in [next(iter(report[part]["results"].values()), None)]
        for count, found in report[part]["results"].items()
    ]  # fmt: skip
    heads = [f"{settings['messages']:,} of {settings['size']:,} B", "rows a second: median (least–most), n",
             "÷ the first of its kind"]  # fmt: skip
    return table(heads, rows)


RENDERERS: dict[str, Callable[[Report], Lines]] = {
    "throughput": throughput,
    "latency": latency,
    "many": many,
    "footprint": footprint,
    "selecting": selecting,
    "sorting": sorting,
    "topics": topics,
    "federated": federated,
    "spark_ingest": spark_ingest,
    "spark_sink": spark_sink,
    "spark_nodes": spark_nodes,
    "simulator": simulator,
    "tables": tables,
    "trace_bytes": trace_bytes,
    "bus_routing": bus_routing,
    "convergence-200": convergence,
}
IN_FULL: dict[str, tuple[Path, Callable[[Report], Lines]]] = {
    "bus_routing": (RESULTS / "bus-routing.md", bus_routing_in_full),
}
"""Benchmarks with a page of their own."""


def render(text: str, report: Report) -> str:
    """`text` with the tables of the report's benchmark made anew; Refused."""
    name = report.get("benchmark", "")
    if name not in RENDERERS:
        raise Refused(f"invalid benchmark {name!r}; expected one of {', '.join(RENDERERS)}")
    return within(text, name, [*RENDERERS[name](report), "", *origin(report)])


def within(text: str, name: str, lines: Lines) -> str:
    """`text` with `lines` in the block of that name; Refused."""
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if len(block.findall(text)) != 1:
        raise Refused(f"the document needs one `<!-- {name} -->` with its `<!-- end {name} -->`")
    body = "\n".join(lines)
    return block.sub(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", text)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="what --json-out wrote")
    parser.add_argument("--document", type=Path, help="(default: docs/BENCHMARKS.md, and pages under docs/results)")
    parser.add_argument("--changed", action="store_true", help="take figures of sources that differ from their commit")
    options = parser.parse_args(arguments)
    document = options.document or DOCUMENT
    try:
        texts = {document: document.read_text(encoding="utf-8")}
        for file in options.files:
            report = json.loads(file.read_text(encoding="utf-8"))
            if report.get("commit", "").endswith("+changes") and not options.changed:
                raise Refused(f"{file}: commit {report['commit'][:12]} had changes; --changed takes it all the same")
            texts[document] = render(texts[document], report)
            if options.document is None and report["benchmark"] in IN_FULL:
                page, told = IN_FULL[report["benchmark"]]
                kept = texts.get(page) or page.read_text(encoding="utf-8")
                texts[page] = within(kept, f"{report['benchmark']} in full", [*told(report), "", *origin(report)])
    except (Refused, OSError, ValueError) as error:
        print(f"render: {error}", file=sys.stderr)
        return 2
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
