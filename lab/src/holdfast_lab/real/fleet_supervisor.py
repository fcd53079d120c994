"""The supervisor of a fleet: starts every node and a proxy for every link, answers `holdfast fleet`, and ends them all
when it ends.

Neighbours must know where to dial before anybody listens, and links must be cuttable. So each pair of joined nodes has
a proxy that the one dials and that leads to the other's port once it is known; the topology's own addresses are not
used on this machine. A node keeps its port and its store over restarts.

Rules of this file: ports are the system's; nodes are started by the command line and die with this process, however it
ends; one request at a time changes something.
"""

import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError, HoldfastError
from holdfast.lines import json_line, say
from holdfast.routing.topology import Topology, TopologyLink, TopologyNode, cost_number
from holdfast_lab.base.processes import Children, cancel_on_signals, first_of
from holdfast_lab.real import fleet_state
from holdfast_lab.real.configs import Neighbour, NodeFile
from holdfast_lab.real.fleet_state import FleetError, Process, label
from holdfast_lab.real.proxy import Proxy
from holdfast_lab.real.real_node import RealNode

LISTEN: Final = "127.0.0.1:0"
STARTS_MAX: Final = 2 * (os.cpu_count() or 1)
"""Nodes that start at once; more would only take each other's time, until one is too late."""
LOG_LINES: Final = 10
"""Last lines of a node's log that are shown when it does not start."""


class Joint:
    """Two joined nodes, whatever links they have: one session, so one proxy. The first link's beginning dials."""

    def __init__(self, first: TopologyLink, proxy: Proxy) -> None:
        self.dialler, self.dialled = first.from_, first.to
        self.proxy = proxy
        self.cut: str | None = None
        """None, "loud" or "silent"."""


class Fleet:
    """`async with Fleet(topology, directory) as fleet`, then `start`. Leaving ends everything.

    `ended` is called with a node that ended by itself; without it the log does. `probe_s`: how long an idle link goes
    unprobed, in seconds; None as its kind has it. `more`: by node, what its file has besides, as TOML.
    """

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        *,
        ended: Callable[[BaseException], None] | None = None,
        probe_s: float | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self._more = more or {}
        self.topology = topology
        self.directory = directory
        self._ended = ended
        self._probe_s = probe_s
        self.nodes: dict[str, RealNode] = {}
        self.joints: dict[frozenset[str], Joint] = {}
        self.over = asyncio.Event()
        self._stack = AsyncExitStack()
        self._changing = asyncio.Lock()
        self._failed: str | None = None
        """The first node that did not start."""
        self._stopped: set[str] = set()
        """Nodes that were stopped by a request."""

    async def __aenter__(self) -> "Fleet":
        self._children = await self._stack.enter_async_context(Children(self.directory / fleet_state.LOGS))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.forget()
        await self._stack.aclose()

    async def start(self, ready: Callable[[str], None]) -> None:
        """All nodes, ready; `ready` is called with each. Raises ChildFailed for the first that is not."""
        for link in self.topology.links:
            ends = frozenset(link.ends)
            if ends not in self.joints:
                proxy = Proxy("127.0.0.1", 1)  # leads nowhere until the node that is dialled has its port
                await self._stack.enter_async_context(proxy)
                self.joints[ends] = Joint(link, proxy)
        for node in self.topology.nodes:
            home = self.directory / fleet_state.NODES / label(node)
            home.mkdir(parents=True, exist_ok=True)
            config = home / "node.toml"
            config.write_text(self._file(node, home).text() + self._more.get(node.name, ""), encoding="utf-8")
            self.nodes[node.name] = RealNode(label(node), self._children, config, self._mourn)
        turns = asyncio.Semaphore(STARTS_MAX)

        async def start(name: str) -> None:
            async with turns:
                try:
                    await self._start(name)
                except HoldfastError:
                    self._failed = self._failed or name
                    raise
                ready(name)

        try:
            async with asyncio.TaskGroup() as group:
                for name in self.nodes:
                    group.create_task(start(name), name=f"start {name}")
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None

    def log_lines(self) -> list[str]:
        """The last lines of the log of the node that did not start."""
        node = None if self._failed is None else self.topology.node(self._failed)
        if node is None:
            return []
        log = self.directory / fleet_state.LOGS / f"{label(node)}.err"
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]

    def _file(self, node: TopologyNode, home: Path) -> NodeFile:
        neighbours = [
            Neighbour(
                name=joint.dialled if joint.dialler == node.name else joint.dialler,
                remote=joint.proxy.address if joint.dialler == node.name else None,
                keepalive_s=None,
                hold_time_s=None,
                probe_s=self._probe_s,
            )
            for ends, joint in self.joints.items()
            if node.name in ends
        ]
        return NodeFile(
            name=node.name,
            role=None,
            data=home / "store",
            listen=LISTEN,
            neighbours=neighbours,
            create_queues=True,
            topology=self.directory / fleet_state.TOPOLOGY,
        )

    async def _start(self, name: str) -> None:
        node = self.nodes[name]
        await node.start()
        for joint in self.joints.values():
            if joint.dialled == name:
                joint.proxy.retarget(node.address)

    def _mourn(self, error: BaseException) -> None:
        """A node ended by itself: that is for whoever looks to see; its links are down."""
        if self._ended is not None:
            self._ended(error)
        else:
            say(str(error), file=sys.stderr, flush=True)
        self.save()

    # ------------------------------------------------------------------------------------------------- the state

    def tell(self, told: dict[str, Any]) -> None:
        """Writes one line to `holdfast fleet up`."""
        say(json_line(told), flush=True)

    def state(self) -> dict[str, Any]:
        nodes = []
        for node in self.topology.nodes:
            real = self.nodes[node.name]
            process = None if real.pid is None else Process.of(real.pid)
            nodes.append(
                {
                    "node": node.name,
                    "address": real.address,
                    "process": None if process is None else process.as_json(),
                    "stopped": node.name in self._stopped,
                    "directory": str(self.directory / fleet_state.NODES / label(node)),
                    "log": str(self.directory / fleet_state.LOGS / f"{label(node)}.err"),
                }
            )
        links = []
        for link in self.topology.links:
            joint = self.joints[frozenset(link.ends)]
            links.append(
                {
                    "from": link.from_,
                    "to": link.to,
                    "kind": link.kind,
                    "direction": link.direction,
                    "cost": cost_number(link.cost_micro),
                    "cut": joint.cut,
                    "proxy": joint.proxy.address,
                }
            )
        us = Process.of(os.getpid())
        return {
            "directory": str(self.directory),
            "supervisor": None if us is None else us.as_json(),
            "nodes": nodes,
            "links": links,
        }

    def save(self) -> dict[str, Any]:
        """Writes the state down, and returns it."""
        state = self.state()
        fleet_state.write_state(self.directory, state)
        return state

    # ------------------------------------------------------------------------------------------------- requests

    async def serve(self) -> asyncio.Server:
        listener = fleet_state.listen_for_requests(self.directory)
        return await asyncio.start_unix_server(self._asked, sock=listener, limit=fleet_state.REQUEST_BYTES_MAX)

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over = False
        try:
            request = json.loads(await reader.readline())
            answer = await self._answer(request)
            over = request["do"] == "down"
        except ConfigError as error:
            answer = {"error": str(error), "usage": True}
        except HoldfastError as error:
            answer = {"error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"error": f"invalid request: {error!r}"}
        try:
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except OSError as error:
            say(f"an answer was not taken ({error.strerror})", file=sys.stderr)
        if over:
            self.over.set()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        action = request["do"]
        if action == "state":
            return self.state()
        async with self._changing:
            if action == "down":
                await self._down()
                return {}
            if action in ("cut", "heal"):
                self.change_link(action, request["a"], request["b"], silent=bool(request.get("silent")))
            elif action in ("stop", "start"):
                await self.change_node(action, request["node"], kill=bool(request.get("kill")))
            else:
                raise FleetError(f"unknown request {action!r}")
            return self.save()

    def change_link(self, action: str, one: str, other: str, *, silent: bool = False) -> None:
        """`cut` or `heal`, at once. ConfigError where no link joins the two."""
        joint = self.joints.get(frozenset((one, other)))
        if joint is None:
            joined = sorted(name for ends in self.joints if one in ends for name in ends - {one})
            expected = f"{', '.join(map(repr, joined))} beside {one!r}" if joined else "two joined nodes"
            raise ConfigError(f"the topology has no link {one!r} to {other!r}; expected {expected}")
        if action == "heal":
            joint.proxy.heal(reset=True)
            joint.cut = None
        elif silent:
            joint.proxy.cut_silently()
            joint.cut = "silent"
        else:
            joint.proxy.refuse()
            joint.cut = "loud"

    async def change_node(self, action: str, name: str, *, kill: bool = False) -> None:
        """`stop` (with `kill` by -9) or `start`; done when it returns. ConfigError where there is none of that name."""
        node = self.nodes.get(name)
        if node is None:
            raise ConfigError(f"invalid node {name!r}; expected one of {', '.join(map(repr, self.nodes))}")
        if action == "start":
            await self._start(name)
            self._stopped.discard(name)
        else:
            self._stopped.add(name)
            await (node.kill() if kill else node.stop())

    async def stop(self) -> None:
        """Stops all nodes in order."""
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))

    async def _down(self) -> None:
        await self.stop()
        fleet_state.write_state(self.directory, self.state() | {"supervisor": None})


def supervise(topology: Topology, directory: Path) -> int:
    """Runs the fleet until the request `down`. `holdfast fleet up` starts it, and reads its standard output."""
    if os.fork():
        return 0  # whoever started us has no child to wait for
    holder = fleet_state.lock(directory)
    if holder is None:
        say(json_line({"error": f"a fleet runs in {directory} already"}), flush=True)
        return 1
    us = Process.of(os.getpid())
    assert us is not None
    say(json_line({"supervisor": us.as_json()}), flush=True)
    try:
        return asyncio.run(_run(topology, directory))
    except asyncio.CancelledError:
        return 0
    finally:
        (directory / fleet_state.CONTROL).unlink(missing_ok=True)
        os.close(holder)


async def _run(topology: Topology, directory: Path) -> int:
    cancel_on_signals()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # four for each link, and pipes
    async with Fleet(topology, directory) as fleet:
        try:
            await fleet.start(lambda name: fleet.tell({"ready": name}))
        except HoldfastError as error:
            fleet.tell({"error": str(error), "log": fleet.log_lines()})
            return 1
        async with await fleet.serve():
            fleet.tell({"fleet": fleet.save()})
            _let_go_of_output()
            await fleet.over.wait()
    return 0


def _let_go_of_output() -> None:
    """So that who started us may go; later lines go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
