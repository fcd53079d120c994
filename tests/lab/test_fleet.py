"""A topology as real processes: up, cut, healed, stopped, started, down; and what is refused."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.routing.topology import TopologyNode
from holdfast_lab.real import fleet_state
from holdfast_lab.real.fleet import state_of
from holdfast_lab.real.fleet_state import FleetError, Process, label
from support.eventually import eventually

LIMIT_S = 60.0
"""Between two looks: a fleet has no event that a test could await."""

RING = """
[[node]]
name = "a"
roles = ["super"]
[[node]]
name = "b"
[[node]]
name = "c"
[[node]]
name = "d/\U0001f6f0"
[[link]]
from = "a"
to = "b"
[[link]]
from = "b"
to = "c"
[[link]]
from = "c"
to = "d/\U0001f6f0"
[[link]]
from = "d/\U0001f6f0"
to = "a"
cost = 3
"""
PAIR = '[[node]]\nname = "a"\n[[node]]\nname = "b"\n[[link]]\nfrom = "a"\nto = "b"\n'


class Fleet:
    """`holdfast fleet` on one directory, as a user types it."""

    def __init__(self, file: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self.directory = directory
        self._capsys = capsys
        self.output = self.errors = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        assert cli.main(["fleet", *words, "--dir", str(self.directory)]) == code, self._capsys.readouterr().err
        captured = self._capsys.readouterr()
        self.output, self.errors = captured.out, captured.err
        return self.output

    def up(self) -> dict[str, dict[str, Any]]:
        """The nodes by name."""
        told = json.loads(self("up", str(self.file), "--json"))
        return {node["node"]: node for node in told["nodes"]}

    def links(self) -> dict[str, str]:
        told = asyncio.run(state_of(self.directory))
        return {f"{link['from'][0]}{link['to'][0]}": link["state"] for link in told["links"]}

    def until(self, wanted: dict[str, str]) -> None:
        """Waits until those links are in those states."""
        eventually(self.links, lambda found: wanted.items() <= found.items(), what=f"{wanted}", limit_s=LIMIT_S)

    def processes(self) -> list[Process]:
        return fleet_state.processes_of(fleet_state.read_state(self.directory))


@pytest.fixture
def make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[str], Fleet]]:
    made = []

    def make(text: str) -> Fleet:
        file = tmp_path / "net.toml"
        file.write_text(text, encoding="utf-8")
        made.append(Fleet(file, tmp_path / "net.fleet", capsys))
        return made[-1]

    yield make
    for fleet in made:
        if fleet_state.is_fleet(fleet.directory):
            fleet("down")


def holdfast(*words: str, text: str = "") -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout


@pytest.mark.crash
def test_a_ring_of_four(make: Callable[[str], Fleet]) -> None:
    """esb-dynamic-routing §5.3, steps 4 to 6, and table 1's rows of links and nodes disconnected and reconnected."""
    fleet = make(RING)
    nodes = fleet.up()
    assert list(nodes) == ["a", "b", "c", "d/\U0001f6f0"]
    assert {Path(node["directory"]).name for node in nodes.values()} == {"a", "b", "c", "_4"}
    everything = {"ab": "up", "bc": "up", "cd": "up", "da": "up"}
    fleet.until(everything)
    processes = fleet.processes()
    assert len(processes) == 5 and all(process.runs for process in processes)

    def cross(text: str) -> None:
        """From a to c, two hops away."""
        holdfast("send", "work@c", "--url", f"amqp://{nodes['a']['address']}", text=text)
        words = ["--url", f"amqp://{nodes['c']['address']}", "--count", "1", "--idle-timeout", "30"]
        assert holdfast("receive", "work", *words) == f"{text}\n"

    cross("by b")
    fleet("cut", "b", "a")
    fleet.until({**everything, "ab": "down"})
    shown = fleet("status")
    assert next(line for line in shown.splitlines() if line.startswith("a     b")).split()[5:7] == ["down", "cut;"]
    assert "\x1b" not in shown
    cross("by d")
    fleet("heal", "a", "b")
    fleet.until(everything)

    fleet("cut", "b", "c", "--silent")
    fleet.until({**everything, "bc": "down"})
    assert "cut silently" in fleet("status")
    fleet("heal", "b", "c")
    fleet.until(everything)

    fleet("stop", "c", "--kill")
    fleet.until({"ab": "up", "bc": "down", "cd": "down", "da": "up"})
    told = json.loads(fleet("status", "--json"))
    assert [node["state"] for node in told["nodes"]] == ["up", "up", "stopped", "up"]
    assert told["nodes"][2]["pid"] is None and told["nodes"][2]["uptime_s"] is None
    assert told["links"][1]["sessions"]["c"] is None
    fleet("start", "c")
    fleet.until(everything)
    assert json.loads(fleet("status", "--json"))["nodes"][2]["address"] == nodes["c"]["address"]
    fleet("stop", "d/\U0001f6f0")
    fleet.until({"ab": "up", "bc": "up", "cd": "down", "da": "down"})
    cross("by b once more")

    processes = fleet.processes()
    fleet("down")
    assert not any(process.runs for process in processes) and not fleet.directory.exists()


@pytest.mark.crash
def test_what_is_refused(make: Callable[[str], Fleet], tmp_path: Path) -> None:
    fleet = make(PAIR)
    for words in (["status"], ["down"], ["cut", "a", "b"], ["stop", "a"]):
        fleet(*words, code=2)
        assert "there is no fleet in" in fleet.errors and fleet.errors.count("\n") == 1
    fleet.up()
    fleet("up", str(fleet.file), code=1)
    assert f"a fleet runs in {fleet.directory} already" in fleet.errors
    fleet("cut", "a", "x", code=2)
    assert "the topology has no link 'a' to 'x'; expected 'b' beside 'a'" in fleet.errors
    fleet("heal", "x", "a", code=2)
    assert "expected two joined nodes" in fleet.errors
    fleet("start", "x", code=2)
    assert "invalid node 'x'; expected one of 'a', 'b'" in fleet.errors
    with pytest.raises(FleetError, match="unknown request 'dance'"):
        asyncio.run(fleet_state.ask(fleet.directory, {"do": "dance"}, LIMIT_S))
    with pytest.raises(FleetError, match="invalid request"):
        asyncio.run(fleet_state.ask(fleet.directory, {}, LIMIT_S))
    assert len(fleet.links()) == 1


@pytest.mark.crash
def test_a_directory_that_is_somebody_else_s_stays_as_it_is(make: Callable[[str], Fleet]) -> None:
    fleet = make(PAIR)
    fleet.directory.mkdir()
    (fleet.directory / "letters").write_text("mine")
    fleet("up", str(fleet.file), code=2)
    assert "give --dir a new or empty directory" in fleet.errors
    assert [path.name for path in fleet.directory.iterdir()] == ["letters"]


@pytest.mark.crash
def test_a_file_that_is_no_topology_starts_nothing(make: Callable[[str], Fleet]) -> None:
    fleet = make(PAIR + PAIR)
    fleet("up", str(fleet.file), code=2)
    assert "node 'a' is listed twice" in fleet.errors and not fleet.directory.exists()


@pytest.mark.crash
def test_without_a_directory_the_only_one_here_is_meant(
    make: Callable[[str], Fleet], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make(PAIR)
    monkeypatch.chdir(fleet.directory.parent)
    assert cli.main(["fleet", "status"]) == 2
    assert "there is no fleet here; give the directory of one with --dir" in capsys.readouterr().err
    assert cli.main(["fleet", "up", "net.toml"]) == 0
    shown = capsys.readouterr().out
    assert str(fleet.directory / "nodes" / "b") in shown and "holdfast fleet status\n" in shown
    assert cli.main(["fleet", "down", "--keep"]) == 0
    assert (fleet.directory / "nodes" / "a" / "store").is_dir()


@pytest.mark.crash
def test_a_node_that_does_not_start_ends_them_all(make: Callable[[str], Fleet]) -> None:
    fleet = make(PAIR)
    fleet.up()
    fleet("down", "--keep")
    store = fleet.directory / "nodes" / "b" / "store"
    store.rename(store.with_name("aside"))
    store.write_text("no store")
    fleet("up", str(fleet.file), code=1)
    assert "b: ended with" in fleet.errors and str(fleet.directory / "logs" / "b.err") in fleet.errors
    assert str(store) in fleet.output, "the node's last log lines"
    with pytest.raises(FleetError, match="no fleet runs"):
        fleet.links()
    # What it started is gone: the stores are free, and the same directory is taken up again.
    store.unlink()
    store.with_name("aside").rename(store)
    fleet.up()
    fleet.until({"ab": "up"})


@pytest.mark.crash
def test_a_node_that_ends_by_itself_is_shown_and_can_be_started(make: Callable[[str], Fleet]) -> None:
    fleet = make(PAIR)
    nodes = fleet.up()
    fleet.until({"ab": "up"})
    Process(**nodes["b"]["process"]).signal(signal.SIGKILL)
    fleet.until({"ab": "down"})

    # A killed process closes its sockets a moment before it is gone.
    def states() -> list[str]:
        return [node["state"] for node in json.loads(fleet("status", "--json"))["nodes"]]

    eventually(lambda: states() == ["up", "ended"], what="b shown as ended", limit_s=LIMIT_S)
    fleet("start", "b")
    fleet.until({"ab": "up"})


@pytest.mark.crash
def test_a_fleet_whose_supervisor_was_killed_leaves_nothing(make: Callable[[str], Fleet]) -> None:
    fleet = make(PAIR)
    fleet.up()
    processes = fleet.processes()
    processes[0].signal(signal.SIGKILL)
    eventually(lambda: not any(process.runs for process in processes), what="no process left", limit_s=LIMIT_S)
    fleet("status", code=1)
    assert f"no fleet runs in {fleet.directory}" in fleet.errors
    fleet("down")
    assert not fleet.directory.exists()


# ------------------------------------------------------------------------------------------------- the state


def test_an_id_that_went_to_another_process_is_not_ours() -> None:
    us = Process.of(os.getpid())
    assert us is not None and us.runs
    another = Process(us.pid, us.started + "0")
    assert not another.runs
    another.signal(signal.SIGKILL)  # would end this very test
    assert Process.of(2**22 + 1) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ewr", "ewr"), ("n-1.b_c", "n-1.b_c"), ("..", "_7"), ("a/b", "_7"), ("ü", "_7"), ("x" * 101, "_7"), ("_7", "_7")],
)
def test_a_name_that_is_no_file_name_is_its_number(name: str, expected: str) -> None:
    assert label(TopologyNode(name=name, number=7)) == expected


async def test_requests_find_the_supervisor_however_long_the_path(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * 120) / ("y" * 120)
    directory.mkdir(parents=True)
    listener = fleet_state.listen_for_requests(directory)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async with asyncio.timeout(LIMIT_S), await asyncio.start_unix_server(answer, sock=listener):
        assert await fleet_state.ask(directory, {"do": "state"}, LIMIT_S) == {"do": "state"}
    with pytest.raises(FleetError, match="no fleet runs"):
        await fleet_state.ask(directory, {"do": "state"}, LIMIT_S)
