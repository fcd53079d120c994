"""The bus paper's equations, load, network and tables as the benchmark computes them; no fleet is started."""

import json
import os
from pathlib import Path
from typing import Any

import _bus_cuts as cuts
import _bus_figures as figures
import _bus_load as load
import bus_routing
import pytest
from _bus_figures import Message
from _bus_fleet import Disagreement, Fleet, FleetFailed, command
from _bus_network import Network, independent, table_of
from _bus_parts import UNICASTS, Use
from _figures import quantile
from _peers import listens_at

import render
from holdfast import cli
from holdfast.client import LinkError
from holdfast_lab.real.fleet_state import FleetError

NAMES = ["a", "b", "c", "d"]


def message(number: int, sent_at: float, came_at: float | None, source: str = "a", target: str = "b") -> Message:
    return Message("k", source, target, number, sent_at, came_at)


# ------------------------------------------------------------------------------------------------ equations


def test_equation_1_is_the_last_node_less_the_super_nodes_start() -> None:
    assert figures.first_synchronisation_s(10.0, {"a": 11.0, "b": 14.5, "c": 12.0}) == 4.5


def test_equation_3_counts_what_any_node_received() -> None:
    assert figures.loss_share(10, [4, 3, 1]) == pytest.approx(0.2)
    assert figures.loss_share(10, [5, 5]) == 0


def test_equation_2_is_the_mean_over_the_nodes_not_over_the_messages() -> None:
    messages = [message(0, 1, None), *(message(n, 1, 2, source="b") for n in range(9))]
    shares = figures.loss_by_node(messages, None)
    assert shares == {"a": 1.0, "b": 0.0} and figures.packet_loss(list(shares.values())) == 0.5


def test_messages_near_a_change_are_not_counted() -> None:
    windows = figures.outside([3.0, 4.0], 2.0, first=0.0, last=10.0)
    assert windows == [(0.0, 3.0), (6.0, 10.0)]
    messages = [message(0, 2.9, 3), message(1, 3.0, None), message(2, 5.9, None), message(3, 6.0, None)]
    assert figures.loss_by_node(messages, windows) == {"a": 0.5}


@pytest.mark.parametrize(
    ("moments", "windows"),
    [([], [(0, 10)]), ([9.0], [(0, 9)]), ([0.0], [(2, 10)]), ([-5.0], [(0, 10)]), ([12.0], [(0, 10)]),
     ([0.0, 8.0], [(2, 8)])],
)  # fmt: skip
def test_windows_at_the_edges(moments: list[float], windows: list[tuple[float, float]]) -> None:
    assert figures.outside(moments, 2.0, first=0.0, last=10.0) == windows


def test_late_counts_as_lost_only_where_asked() -> None:
    messages = [message(0, 0, 2.0), message(1, 0, 2.1)]
    assert [one.came_at for one in figures.in_time(messages, 2.0)] == [2.0, None]
    assert figures.loss_by_node(messages, None) == {"a": 0.0}


def test_disorder_is_within_one_class_and_pair() -> None:
    apart = [message(0, 0, 5), message(0, 0, 1, target="c"), message(1, 0, 6), message(1, 0, 2, target="c")]
    assert figures.disorder(apart) == 0
    assert figures.disorder([message(0, 0, 5), message(1, 0, 4), message(2, 0, 6), message(3, 0, None)]) == 1


def test_quantiles_are_by_nearest_rank() -> None:
    values = [float(n) for n in range(1, 21)]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.95, 1.0)] == [1, 10, 19, 20]
    assert figures.distribution([]) == {"n": 0} and figures.distribution(values)["p95"] == 19


def test_a_link_carries_where_its_end_does_not_say_that_the_way_back_is_down() -> None:
    def node(name: str, state: str = "up", **links: float | None) -> dict[str, Any]:
        return {"name": name, "state": state, "links": [{"to": to, "cost": cost} for to, cost in links.items()]}

    nodes = [node("a", b=1.0, c=1.0, d=1.0), node("b", a=None), node("c"), node("d", state="lost", a=1.0)]
    assert figures.carrying(nodes) == {("a", "c"), ("a", "d")}


# ------------------------------------------------------------------------------------------------ cuts


def test_a_change_lies_between_question_and_answer_less_its_age() -> None:
    change = cuts.change_of({"routing": {"changed_s": 2.0}}, 10.0, 10.25)
    assert (change.least, change.most) == (8.0, 8.25)


def test_answers_narrow_a_moment_unless_it_is_another_one() -> None:
    one, other = cuts.Change(8.0, 8.25), cuts.Change(8.1, 8.5)
    assert cuts.narrowed(one, other) == cuts.narrowed(other, one) == cuts.Change(8.1, 8.25)
    assert cuts.narrowed(one, cuts.Change(9.0, 9.5)) == cuts.Change(9.0, 9.5)


def test_of_a_cut_only_later_changes_count() -> None:
    found = {
        "a": cuts.Change(10.1, 10.2),
        "b": cuts.Change(10.3, 10.35),
        "c": cuts.Change(4.0, 10.9),
        "d": cuts.Change(10.4, 10.5),
    }
    told = cuts.summed_up(10.0, ("a", "b"), found)
    assert told == pytest.approx(
        {"noticed_s": 0.2, "both_noticed_s": 0.35, "right_s": 0.5, "uncertain_s": 0.1, "changed_nodes": 3}
    )
    assert cuts.summed_up(20.0, ("a", "b"), found)["right_s"] == 0.0


def test_cuts_are_summed_up_with_those_within_the_goal() -> None:
    run = {"link": ["a", "b"], "noticed_s": 0.1, "both_noticed_s": 0.1, "arrived_s": None, "healed_s": 1.0,
           "request_s": 0.01, "uncertain_s": 0.001}  # fmt: skip
    told = cuts.summary([run | {"right_s": 0.2}, run | {"right_s": cuts.GOAL_S}])
    assert (told["n"], told["within_goal"], told["arrived_ms"]) == (2, 1, {"n": 0})
    assert told["spreading_ms"]["runs"] == [100.0, 150.0]


# ------------------------------------------------------------------------------------------------ load and network


def test_five_classes_and_every_pair_once() -> None:
    classes = load.classes_of(NAMES, {"one": ("a", "b"), "two": ("b", "c"), "three": ("c", "d")}, "a")
    assert list(classes) == ["each to all", "one", "two", "three", "broadcast"]
    pairs = [pair for round_ in classes["each to all"] for pair in round_]
    assert len(pairs) == len(set(pairs)) == 12 and all(start != end for start, end in pairs)
    assert [start for start, _ in pairs[:4]] == NAMES  # the sources take turns
    assert classes["broadcast"] == [[("a", "b"), ("a", "c"), ("a", "d")]]


def test_the_network_is_the_papers_size_and_whole_without_any_lan_link() -> None:
    network = Network(bus_routing.FILE)
    assert len(network.names) == 16 and network.supers() == ["hub", "standby"]
    assert {name for pair in UNICASTS.values() for name in pair} <= set(network.names)
    links = cuts.lan_links(network)
    assert len(links) == 18
    for link in links:
        network.cut = {frozenset(link)}
        assert all(len(table) == 15 for table in network.expected().tables.values())


def test_what_is_down_is_expected_nowhere() -> None:
    network = Network(bus_routing.FILE)
    network.down, network.cut = {"hub"}, {frozenset(("n1", "n2"))}
    expected = network.expected()
    assert network.supers() == ["standby"] and "hub" not in expected.tables
    assert not {("n1", "n2"), ("n2", "n1"), ("hub", "north")} & expected.links and ("n2", "east") in expected.links
    right = [{"destination": end, "path": list(path)} for end, path in expected.tables["n1"].items()]
    assert table_of({"routes": [*right, {"destination": "hub", "path": None}]}) == expected.tables["n1"]
    assert cuts.wrong_in({"routes": right}, expected, "n1") is None
    assert "14 such" not in str(cuts.wrong_in({"routes": right[1:]}, expected, "n1"))
    assert str(cuts.wrong_in({"routes": right[1:]}, expected, "n1")).endswith("; 1 such")


def test_expected_paths_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "routes", str(bus_routing.FILE), "--from", "mast", "--json"]) == 0
    told = {row["destination"]: tuple(row["path"]) for row in json.loads(capsys.readouterr().out)}
    assert Network(bus_routing.FILE).expected().tables["mast"] == told


def test_networkx_finds_what_is_wrong() -> None:
    network = Network(bus_routing.FILE)
    tables = network.expected().tables
    assert independent(network.topology, tables) == "same"
    longer = tables["hub"] | {"north": ("hub", "standby", "east", "north")}
    assert independent(network.topology, tables | {"hub": longer}).startswith("hub to north")
    assert independent(network.topology, tables | {"hub": {}}).startswith("hub: reaches")


def test_the_line_that_says_ready() -> None:
    assert listens_at("first\nready name=hub amqp=127.0.0.1:44275 more\n") == ("127.0.0.1", 44275)
    assert listens_at("ready name=hub amqp=127.0.0.1:442") is None  # it is still being written
    assert listens_at("ready name=hub\n") is None


async def test_a_command_that_does_not_end_says_so() -> None:
    with pytest.raises(FleetFailed, match=r"^holdfast fleet status: no end within 0 s$"):
        await command("fleet", "status", limit_s=0.0)


# ------------------------------------------------------------------------------------------------ reports


def report(commit: str = "0" * 40, **parts: Any) -> dict[str, Any]:
    machine = {"cpu": "c", "cores": 2, "kernel": "k", "python": "p", "file_system": "f", "load_average_before": 0.5}
    return {"benchmark": "bus_routing", "commit": commit, "command": f"run {' '.join(parts)}", "started": "2026-01-01",
            "machine": machine, "paper": bus_routing.parts.PAPER, "goals": bus_routing.parts.GOALS, "parts": parts,
            "failed": {}, "load_average_after": 1.0}  # fmt: skip


def spread(*values: float) -> dict[str, Any]:
    return figures.distribution(values, 1)


USED = {"cpu_percent": spread(2.0, 4.0), "cpu_percent_by_node": {"a": 2.0, "b": 4.0},
        "cpu_percent_all_nodes": 6.0, "cpu_percent_of_load": 1.0,
        "memory_mb": spread(20.0, 21.0), "memory_mb_by_node": {"a": 20.0, "b": 21.0}}  # fmt: skip
STEP = {"rate": 10.0, **USED,
        "delay_ms": {"each to all": {"n": 1, "p50": 5.0, "p95": 6.0, "max": 7.0}, "one": {"n": 0}},
        "loss": {"never_came": 0.0, "as_paper": None, "late_is_lost": 0.125}, "false_alarms": 0}  # fmt: skip
WATCH = {"seconds": 5.0, "busy_loops": 4, **USED, "probes_sent": 9, "probes_missed": 1, "probes_not_counted": 1,
         "false_alarms": 2}  # fmt: skip
KEYS = ("noticed_ms", "both_noticed_ms", "spreading_ms", "right_ms", "arrived_ms", "healed_ms", "uncertain_ms")
CUT = {"n": 1, "within_goal": 1, **{key: spread(123.0) for key in KEYS}}
WHOLE = report(
    table={
        "first_synchronisation_s": 4.5, "after_last_ready_s": 0.5, "start_until_all_ready_s": 4.0, "heartbeats": 15,
        "heartbeats_by_shortest_path": 15, "idle": USED,
        "steps": [{"step": "start", "right_ms": 3.0, "paths": 240, "networkx": "same", "links_shown_right": True,
                   "super_sees_links": False}],
    },
    convergence={"loud": CUT, "silent": CUT, "others_lost": 0,
                 "messages": {"sent": 10, "all_came": True, "twice": 0, "disorder": 0}},
    load={"classes": ["each to all", "one"], "undisturbed": [STEP], "with cuts": [STEP]},
    alarms={"loaded": WATCH},
)  # fmt: skip


def test_all_parts_have_their_place_in_the_page() -> None:
    text = "\n".join(render.bus_routing_in_full(WHOLE))
    for expected in ("| the initial routing table | correct | correct: 240 paths, by networkx same |",
                     "| routing information table, convergence | less than 1 s | loud cut 123, 123, 123; 1 ms; silent",
                     "| start | 3 | 240; same | right | **wrong** |", "| **all nodes route right** | 123, 123, 123;",
                     "| 10 | 5, 6, 7 | not measured | 6 | 1 | 0.125 | – | 0 | 0 |", "| a | 2.0 | 20.0 |",
                     "| loaded | 5 | 4 | 6 | 9 | 1 | 1 | 2 |"):  # fmt: skip
        assert expected in text
    short = "\n".join(render.bus_routing(WHOLE))
    assert "s; of it after the last `ready` | < 1 after | < 8 | 4.5; 0.5 |" in short
    assert "| 123, 123, 123; 1 (1 within the goal) |" in short and short.count("| 0.125 |") == 0


def test_a_report_of_some_parts_is_rendered_too() -> None:
    for name, part in WHOLE["parts"].items():
        assert render.bus_routing_in_full(report(**{name: part}))
        assert isinstance(render.bus_routing(report(**{name: part})), list)


def test_the_picture_is_drawn_where_its_parts_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, part, out = tmp_path / "whole.json", tmp_path / "part.json", tmp_path / "out.png"
    whole.write_text(json.dumps(WHOLE))
    part.write_text(json.dumps(report(load=WHOLE["parts"]["load"])))
    assert bus_routing.main(["--merge", str(part), "--picture", str(out)]) == 2
    assert "no part convergence" in capsys.readouterr().err and not out.exists()
    assert bus_routing.main(["--merge", str(whole), "--picture", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_measurement_draws_its_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its report, which names the picture among its settings, is written first."""

    async def measured(*_: Any) -> tuple[dict[str, Any], dict[str, str]]:
        return {name: WHOLE["parts"][name] for name in ("convergence", "load")}, {}

    monkeypatch.setattr(bus_routing, "measured", measured)
    picture, out = tmp_path / "out.png", tmp_path / "out.json"
    words = ["--quick", "--data", str(tmp_path), "--picture", str(picture), "--json-out", str(out)]
    assert bus_routing.main(words) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(out.read_text())["settings"]["picture"] == str(picture)


@pytest.mark.parametrize(
    "error",
    [
        Disagreement("found"),
        FleetError("the supervisor went away"),
        LinkError("detached", None),
        ConnectionError("ended"),
    ],
)
async def test_a_part_that_fails_leaves_the_others(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def good(*_: Any) -> dict[str, Any]:
        return {"n": 1}

    async def bad(*_: Any) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(bus_routing, "cancel_on_signals", lambda: None)
    monkeypatch.setattr(bus_routing, "PARTS", {"table": good, "load": bad, "alarms": good})
    results, failed = await bus_routing.measured(bus_routing.parse(["--parts", "table,load,alarms"]), tmp_path)
    assert list(results) == ["table", "alarms"] and failed == {"load": str(error)}


def test_the_page_has_a_place_for_the_tables() -> None:
    for name, (page, _) in render.IN_FULL.items():
        assert page.read_text(encoding="utf-8").count(f"<!-- {name} in full -->\n") == 1


def test_reports_are_merged(tmp_path: Path) -> None:
    files = []
    for number, part in enumerate((report(table=1, load=2), report(load=3), report(alarms=4))):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(part))
    out = tmp_path / "merged.json"
    assert bus_routing.main(["--merge", *map(str, files), "--json-out", str(out)]) == 0
    merged = json.loads(out.read_text())
    assert merged["parts"] == {"table": 1, "load": 3, "alarms": 4}
    assert merged["command"] == "run table load; run load; run alarms"


def test_reports_of_different_sources_are_not_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text(json.dumps(report(table=1)))
    other.write_text(json.dumps(report(commit="1" * 40, load=2)))
    assert bus_routing.main(["--merge", str(one), str(other)]) == 2
    assert "000000000000 and 111111111111" in capsys.readouterr().err
    other.write_text(json.dumps({"benchmark": "tables"}))
    assert bus_routing.main(["--merge", str(one), str(other)]) == 2
    assert "'tables'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--parts", "table,other"], ["--rates", "10,many"]])
def test_options_that_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bus_routing.parse(words)
    assert ended.value.code == 2 and "expected" in capsys.readouterr().err


def test_quick_is_smaller_in_everything_it_names() -> None:
    usual, quick = bus_routing.parse([]), bus_routing.parse(["--quick"])
    assert quick.cuts < usual.cuts and len(quick.rates) == 1 and len(usual.rates) == 9 and quick.step < usual.step
    assert quick.parts == ["convergence", "load"] and len(usual.parts) == len(bus_routing.PARTS)


def test_use_is_of_the_processes_named(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, tmp_path)
    fleet.pids = {"own": os.getpid()}
    used = Use(fleet).end()
    assert set(used["cpu_percent_by_node"]) == {"own"} and used["memory_mb_by_node"]["own"] > 5
