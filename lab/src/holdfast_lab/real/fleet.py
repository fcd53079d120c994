"""`holdfast fleet`: a whole topology as real processes on this machine (docs/fleet.md; esb-dynamic-routing §5).

Rules of this file: it asks; what runs belongs to the supervisor (`fleet_supervisor.py`). A link's state is what the
sessions at its two ends say. Answers go to standard output; the names of `--json` are other programs' too.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.client import connect
from holdfast.columns import table
from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import GREEN, json_line, painted, say
from holdfast.routing.topology import Topology
from holdfast_lab.base.processes import holdfast_command
from holdfast_lab.base.progress import Progress
from holdfast_lab.real import fleet_state
from holdfast_lab.real.fleet_state import FleetError, Process

SUFFIX: Final = ".fleet"
ASK_S: Final = 5.0
"""How long a node may take to say how it is."""
ASKED_MAX: Final = 32
"""Nodes that are asked at once."""
ANSWER_S: Final = 10.0
CHANGE_S: Final = 60.0
"""How long the supervisor may take to start or end a node, or all of them."""
END_S: Final = 10.0
END_STEP_S: Final = 0.02

ESTABLISHED: Final = "Established"


def up(args: argparse.Namespace, topology: Topology) -> int:
    """0 once every node of `topology` is ready. `args`: file (its path), dir (or None), json."""
    directory = Path(args.dir if args.dir is not None else Path(args.file).stem + SUFFIX).absolute()
    _make_room(directory, Path(args.file))
    log = directory / fleet_state.LOGS / fleet_state.SUPERVISOR_LOG
    with log.open("wb") as err:
        starter = subprocess.Popen(
            holdfast_command("fleet", "supervise", directory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=err,
            start_new_session=True,
        )
    state = _follow(starter, topology, log)
    if args.json:
        say(json_line(state))
        return 0
    rows = [[node["node"], node["address"], _pid(node), node["directory"]] for node in state["nodes"]]
    say(*table(("node", "address", "pid", "directory"), rows))
    told = f" --dir {args.dir}" if args.dir is not None else ""
    say("", f"links:  holdfast fleet status{told}", f"a node: holdfast status --url amqp://{rows[0][1]}")
    say(f"logs:   {directory / fleet_state.LOGS}", f"end:    holdfast fleet down{told}")
    return 0


def _pid(node: dict[str, Any]) -> int | None:
    return None if node["process"] is None else int(node["process"]["pid"])


def _make_room(directory: Path, file: Path) -> None:
    """The directory with the topology in it. ConfigError if it is not a fleet's directory, FleetError if a fleet
    runs."""
    taken = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if taken and not fleet_state.is_fleet(directory):
        raise ConfigError(f"no fleet made {directory}; give --dir a new or empty directory")
    try:
        (directory / fleet_state.LOGS).mkdir(parents=True, exist_ok=True)
        holder = fleet_state.lock(directory)
        if holder is None:
            raise FleetError(f"a fleet runs in {directory} already; `holdfast fleet down` ends it")
        try:
            empty: dict[str, Any] = {"directory": str(directory), "supervisor": None, "nodes": [], "links": []}
            fleet_state.write_state(directory, empty)
            (directory / fleet_state.TOPOLOGY).write_bytes(file.read_bytes())
        finally:
            os.close(holder)
    except OSError as error:
        raise ConfigError(
            f"directory {directory} cannot be written ({error.strerror}); give --dir one that can be"
        ) from None


def _follow(starter: "subprocess.Popen[bytes]", topology: Topology, log: Path) -> dict[str, Any]:
    """Reads the supervisor's reports until all nodes are ready; the fleet's state. Raises FleetError.

    Whatever else happens ends the supervisor, and it its nodes: nothing is left of a start that failed.
    """
    supervisor: Process | None = None
    ready = 0
    try:
        with starter, Progress() as progress:
            assert starter.stdout is not None
            for line in starter.stdout:
                told = json.loads(line)
                if "supervisor" in told:
                    supervisor = Process(**told["supervisor"])
                elif "ready" in told:
                    ready += 1
                    progress.show(ready, len(topology.nodes), f"{ready} of {len(topology.nodes)} nodes ready")
                elif "fleet" in told:
                    state: dict[str, Any] = told["fleet"]
                    return state
                else:
                    for text in told.get("log", ()):
                        progress.say(text)
                    raise FleetError(told["error"])
        raise FleetError(f"the supervisor ended before all nodes were ready; its log is {log}")
    except BaseException:
        if supervisor is not None:
            supervisor.signal(signal.SIGTERM)
            _await_end(log.parent.parent, [supervisor])
        raise


def down(args: argparse.Namespace) -> int:
    """Ends the fleet, its own processes alone, and removes what it made unless `args.keep`. `args`: dir, keep."""
    directory = _directory(args.dir)
    state = fleet_state.read_state(directory)
    try:
        asyncio.run(fleet_state.ask(directory, {"do": "down"}, CHANGE_S))
    except FleetError as error:
        left = [process for process in fleet_state.processes_of(state) if process.runs]
        if left:
            say(f"holdfast fleet {args.action}: {error}; {len(left)} processes of it are killed", file=sys.stderr)
        for process in left:
            process.signal(signal.SIGKILL)
    _await_end(directory, fleet_state.processes_of(state))
    if args.keep:
        say(f"kept: {directory}")
    else:
        fleet_state.clear(directory)
    return 0


def _await_end(directory: Path, processes: Sequence[Process]) -> None:
    """Until none of them is there. Raises FleetError."""
    until = time.monotonic() + END_S
    while processes := [process for process in processes if process.runs]:
        if time.monotonic() > until:
            pids = ", ".join(str(process.pid) for process in processes)
            raise FleetError(f"{directory}: processes {pids} do not end")
        time.sleep(END_STEP_S)


def change(args: argparse.Namespace) -> int:
    """`cut A B [--silent]`, `heal A B`, `stop NODE [--kill]`, `start NODE`: done when it returns."""
    directory = _directory(args.dir)
    request: dict[str, Any] = {"do": args.action}
    for key in ("a", "b", "silent", "node", "kill"):
        if hasattr(args, key):
            request[key] = getattr(args, key)
    asyncio.run(fleet_state.ask(directory, request, CHANGE_S))
    return 0


# ------------------------------------------------------------------------------------------------------ status


def status(args: argparse.Namespace) -> int:
    """0 where a fleet runs, whatever of it is up. `args`: dir, json."""
    directory = _directory(args.dir)
    told = asyncio.run(state_of(directory))
    if args.json:
        say(json_line(told))
        return 0
    nodes = [[node["node"], node["state"], node["address"], node["pid"], node["uptime_s"]] for node in told["nodes"]]
    say(*table(("node", "state", "address", "pid", "uptime_s"), nodes))
    rows = [
        [link["from"], link["to"], link["direction"], link["kind"], str(link["cost"]), link["state"], _why(link)]
        for link in told["links"]
    ]
    heads = ("from", "to", "direction", "kind", "cost", "state", "")
    lines = table(heads, rows)
    say("", lines[0])
    for line, link in zip(lines[1:], told["links"], strict=True):
        say(painted(line, GREEN) if link["state"] == "up" else line)
    return 0


def _why(link: dict[str, Any]) -> str:
    """What there is to say of a link that is down."""
    cut = {"loud": "cut", "silent": "cut silently"}.get(link["cut"], "")
    said = [f"{end} says {state or 'nothing'}" for end, state in link["sessions"].items() if state != ESTABLISHED]
    return "; ".join(filter(None, [cut, ", ".join(said)]))


async def state_of(directory: Path) -> dict[str, Any]:
    """`{"directory", "nodes": [{"node", "state", "address", "pid", "directory", "log", "uptime_s"}], "links": [{"from",
    "to", "kind", "direction", "cost", "cut", "proxy", "state", "sessions"}]}`. A link is up where both its nodes say
    that their session is established; `proxy` is the address that stands on it. Raises FleetError where no fleet runs.
    """
    state = await fleet_state.ask(directory, {"do": "state"}, ANSWER_S)
    turns = asyncio.Semaphore(ASKED_MAX)

    async def told(node: dict[str, Any]) -> dict[str, Any] | None:
        if node["process"] is None:
            return None
        async with turns:
            try:
                return await asyncio.wait_for(_asked(node["address"]), ASK_S)
            except (HoldfastError, OSError, TimeoutError):
                return None

    answers = await asyncio.gather(*(told(node) for node in state["nodes"]))
    sessions: dict[tuple[str, str], str] = {}
    nodes = []
    for node, answer in zip(state["nodes"], answers, strict=True):
        for session in [] if answer is None else answer["sessions"]:
            sessions[node["node"], session["neighbour"]] = session["state"]
        has_ended = node["process"] is None or not Process(**node["process"]).runs  # killed since it was asked about
        up = "stopped" if node["stopped"] else "ended" if has_ended else "no answer"
        nodes.append(
            {
                "node": node["node"],
                "state": up if answer is None else "up",
                "address": node["address"],
                "pid": _pid(node),
                "directory": node["directory"],
                "log": node["log"],
                "uptime_s": None if answer is None else answer["uptime_s"],
            }
        )
    links = []
    for link in state["links"]:
        ends = link["from"], link["to"]
        said = {one: sessions.get((one, other)) for one, other in (ends, ends[::-1])}
        is_up = all(found == ESTABLISHED for found in said.values())
        links.append(link | {"state": "up" if is_up else "down", "sessions": said})
    return {"directory": state["directory"], "nodes": nodes, "links": links}


async def _asked(address: str) -> dict[str, Any]:
    async with await connect(f"amqp://{address}", retry_s=0.0) as connection:
        return await connection.manage("STATUS", "holdfast:node", limit_s=ASK_S)


def _directory(given: str | None) -> Path:
    """The fleet's directory: as given, else the only one here. Raises ConfigError."""
    if given is not None:
        directory = Path(given).absolute()
        fleet_state.read_state(directory)
        return directory
    here = sorted(path for path in Path.cwd().glob(f"*{SUFFIX}") if fleet_state.is_fleet(path))
    if len(here) != 1:
        fleets = f"here are {', '.join(path.name for path in here)}" if here else "there is no fleet here"
        raise ConfigError(f"{fleets}; give the directory of one with --dir")
    return here[0]
