"""The demo: its timetable, its directories, and the whole of it, small, and interrupted."""

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.amqp.message.message import Message
from holdfast.errors import ConfigError
from holdfast.routing.paths import Graph
from holdfast.routing.topology import Topology
from holdfast.selectors.predicate import compile_selector
from holdfast.selectors.sections import Sections
from holdfast_lab.base.processes import Child, Children, holdfast_command
from holdfast_lab.demo.command import HUB, MARKER, PER_S_MAX, SITES, Plan, run_demo, sixteen
from holdfast_lab.demo.departures import data_path
from holdfast_lab.demo.flight_paths import Event
from holdfast_lab.demo.late_flights import PREDICATE, Late, late_ids
from holdfast_lab.demo.tag_reads import TIMES, Reads, raw_reads
from support.eventually import eventually_true


def data_or_skip() -> None:
    try:
        data_path()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("flights", [1, 400, 1_800, 20_000, 336_776])
def test_all_that_is_done_fits_between_first_and_last_flight(flights: int) -> None:
    plan = Plan.of(flights)
    moments = [event.at_s for event in plan.events]
    assert [0.0, *moments, plan.send_s] == sorted({0.0, *moments, plan.send_s})
    assert flights / plan.send_s <= PER_S_MAX + 1
    for number, event in enumerate(plan.events):
        if event.breaks:
            mended = next(later for later in plan.events[number:] if later.nodes == event.nodes and not later.breaks)
            assert mended.at_s - event.at_s >= 4.0, "longer than anybody needs to notice and go another way"


def test_each_tag_is_read_again_and_again_beside_the_others() -> None:
    tags = [str(number) for number in range(25)]
    raw = raw_reads(tags)
    assert len(raw) == TIMES * 25 and sorted(raw) == sorted(tags * TIMES) and raw[:10] == raw[10:20] == tags[:10]
    assert Reads(600, 120, ok=True).line() == (
        "tags read 600 times at jfk, 120 reads travelled to the hub: each tag once"
    )


def test_a_flight_is_late_by_its_delay_and_the_predicate_says_the_same() -> None:
    delays = ["-43", "-5", "0", "9", "99", "100", "101", "1301", "NA"]
    rows = [[str(number), "EWR", delay] for number, delay in enumerate(delays)]
    assert late_ids(("id", "origin", "dep_delay"), rows) == ["5", "6", "7"]
    predicate = compile_selector(PREDICATE)
    found = [
        number
        for number, _, delay in rows
        if predicate.matches(Sections(Message(application_properties={"dep_delay": delay}, value=None).encode()))
    ]
    assert found == ["5", "6", "7"]
    assert Late(400, 12, ok=True).line() == (
        "400 departures announced, 12 to the subscriber to late ones: all that are late, and no others"
    )


def without(topology: Topology, events: Sequence[Event]) -> dict[str, tuple[str, ...]]:
    """Each airport's shortest path to the hub while what those events broke is gone."""
    links = {frozenset(event.nodes) for event in events if len(event.nodes) == 2}
    nodes = {event.nodes[0] for event in events if len(event.nodes) == 1}
    edges = {
        one: {
            other: cost
            for other, cost in ends.items()
            if not {one, other} & nodes and frozenset((one, other)) not in links
        }
        for one, ends in topology.edges().items()
    }
    graph = Graph(edges)
    return {site: graph.paths_from(site)[HUB].nodes for site in SITES}


def test_the_sixteen_nodes_have_a_way_round_whatever_is_gone(tmp_path: Path) -> None:
    topology = sixteen(tmp_path / "fleet")
    assert (tmp_path / "fleet" / "topology.toml").exists()
    assert len(topology.nodes) == 16 and [node.name for node in topology.supers()] == ["buf", "chi"]
    before = without(topology, [])
    assert before == {
        "ewr": ("ewr", "phl", "pit", "cmh", "ind", "hub"),
        "jfk": ("jfk", "alb", "buf", "cle", "chi", "hub"),
        "lga": ("lga", "bdl", "syr", "det", "mke", "hub"),
    }
    broken: list[Event] = []
    changed: set[str] = set()
    for event in Plan.of(1_800).events:
        broken = [*broken, event] if event.breaks else [old for old in broken if old.nodes != event.nodes]
        now = without(topology, broken)
        assert not any(old.is_on(" ".join(path)) for old in broken for path in now.values())
        changed |= {site for site in SITES if now[site] != before[site]}
    assert not broken and changed == set(SITES), "every airport's path changes"
    middle = {node.name for node in topology.nodes} - {HUB, *SITES}
    for name in middle:
        without(topology, [Event(0.0, "kill", (name,))])
    for path in before.values():
        for pair in pairwise(path):
            without(topology, [Event(0.0, "cut", pair)])


def test_a_work_directory_of_someone_elses_is_left_alone(tmp_path: Path) -> None:
    data_or_skip()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "precious").touch()
    with pytest.raises(ConfigError, match="no demo made"):
        run_demo(argparse.Namespace(flights=10, all=False, out=str(tmp_path), keep=False))
    assert (tmp_path / "work" / "precious").exists() and not (tmp_path / "work" / MARKER).exists()


def processes_naming(path: Path) -> list[str]:
    """Command lines of live processes that name `path`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(path) in command:
                found.append(command)
    return found


async def said(child: Child, text: str) -> None:
    """Waits until the child's output has a line with `text`; it writes lines at once."""

    def found() -> bool:
        return any(text in line for line in child.lines)

    await eventually_true(lambda: found() or not child.running, what=f"a line with {text!r}", limit_s=240.0)
    assert found(), child.stderr_text()


@pytest.mark.spark
async def test_a_small_demo_is_exact(tmp_path: Path) -> None:
    data_or_skip()
    out = tmp_path / "out"
    async with Children(tmp_path / "logs") as children, asyncio.timeout(400):
        demo = await children.start("demo", holdfast_command("demo", "--flights", 400, "--out", out))
        code = await demo.wait()
    assert code == 0, "\n".join(demo.lines) + demo.stderr_text()
    numbers = json.loads((out / "numbers.json").read_text())
    assert numbers["ok"] and numbers["sent"] == numbers["arrived"] == numbers["spark_counts"]
    assert sum(numbers["sent"].values()) == 400
    assert (numbers["lost"], numbers["twice"], numbers["reordered"]) == (0, 0, 0)
    reads = numbers["tag_reads"]
    assert reads["ok"] and reads["raw"] == TIMES * reads["travelled"] > 0
    late = numbers["late_flights"]
    assert late["ok"] and late["announced"] == 400 and 0 < late["received"] < 100
    burst = numbers["burst"]
    assert burst["ok"] and burst["arrived"] == burst["sent"] > 100
    assert burst["waited_most"] > 20_000, "the hub could not take it at once"
    assert burst["rate_most"] > burst["share"], "the other airports lent their rate"
    assert [event["kind"] for event in numbers["events"]] == ["cut", "kill", "cut", "heal", "heal", "start"]
    assert sum(use["flights"] for use in numbers["paths"]) == 400
    for site in SITES:
        theirs = [use["path"].split(" ") for use in numbers["paths"] if use["airport"] == site.upper()]
        assert len(theirs) > 1 and all(len(path) > 4 and (path[0], path[-1]) == (site, HUB) for path in theirs)
    assert {"buf", "chi"} <= {acting["node"] for acting in numbers["acting_super"]}
    assert (out / "paths.png").stat().st_size > 10_000
    assert not (out / "work").exists()


@pytest.mark.spark
async def test_ctrl_c_leaves_no_process(tmp_path: Path, day: int) -> None:
    """While Spark starts; every fourth day while flights are under way, for which Spark has to start."""
    data_or_skip()
    out = tmp_path / "out"
    async with Children(tmp_path / "logs") as children, asyncio.timeout(320):
        demo = await children.start("demo", holdfast_command("demo", "--flights", 400, "--out", out))
        await said(demo, "sending" if day % 4 == 0 else "all nodes know each other")
        assert processes_naming(out / "work")
        demo.signal(signal.SIGINT)
        assert await demo.wait() == 130
        assert processes_naming(out / "work") == []
