"""A fleet's directory: its files, the running processes, and requests to the supervisor (docs/fleet.md).

    fleet.json      the state: supervisor, nodes, links; what makes a directory a fleet's
    topology.toml   the topology as it was at `up`
    nodes/NAME/     each node's node.toml and store; a name that is no plain file name is its number there
    logs/           NAME.err, NAME.out; supervisor.err
    control.sock    one JSON object a line, a request and its answer
    lock            held by the supervisor as long as it runs

Rules of this file: a process is known by its id together with the moment it started, so that an id which went to
another process is never taken for ours.
"""

import asyncio
import fcntl
import json
import os
import re
import shutil
import socket
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from holdfast.errors import ConfigError, HoldfastError
from holdfast.routing.topology import TopologyNode

STATE: Final = "fleet.json"
TOPOLOGY: Final = "topology.toml"
NODES: Final = "nodes"
LOGS: Final = "logs"
CONTROL: Final = "control.sock"
LOCK: Final = "lock"
SUPERVISOR_LOG: Final = "supervisor.err"

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""An answer has a row for each node and link: 110,000 at most."""
REQUEST_BYTES_MAX: Final = 64 * 1024

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class FleetError(HoldfastError):
    """The request cannot be carried out now; the text is one line."""


@dataclass(frozen=True, slots=True)
class Process:
    """`started` is the boot's identity and the clock tick of the start in it (proc(5), stat, field 22)."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has that id now, None where there is none or it has ended."""
        try:
            text = Path("/proc", str(pid), "stat").read_text()
            boot = _boot()
        except OSError:
            return None
        # The command's name stands in parentheses and may hold spaces and parentheses itself.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, f"{boot}/{fields[19]}")

    @property
    def runs(self) -> bool:
        """Whether it is this very process that has the id."""
        return Process.of(self.pid) == self

    def signal(self, number: int) -> None:
        """Signals this process, and never a later one with the same id."""
        if self.runs:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@cache
def _boot() -> str:
    """The identity of this boot, which stays the same while the process runs."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def label(node: TopologyNode) -> str:
    """What a node's files are called: its name where that is a plain file name, else its number."""
    return node.name if _PLAIN_NAME.fullmatch(node.name) else f"_{node.number}"


def is_fleet(directory: Path) -> bool:
    return (directory / STATE).is_file()


def read_state(directory: Path) -> dict[str, Any]:
    """What the supervisor wrote last. Raises ConfigError where the directory is no fleet's."""
    try:
        found = json.loads((directory / STATE).read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(
            f"there is no fleet in {directory}; give --dir a directory that `holdfast fleet up` made"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{directory / STATE}: not JSON: {error}") from None
    assert isinstance(found, dict)
    return found


def write_state(directory: Path, state: dict[str, Any]) -> None:
    """Writes the state atomically."""
    aside = directory / f"{STATE}.new"
    aside.write_text(json.dumps(state, ensure_ascii=False, indent=1), encoding="utf-8")
    aside.replace(directory / STATE)


def processes_of(state: dict[str, Any]) -> list[Process]:
    """The supervisor first, then the nodes' that ran when the state was written."""
    found = [state.get("supervisor"), *(node.get("process") for node in state.get("nodes", ()))]
    return [Process(**process) for process in found if process]


def clear(directory: Path) -> None:
    """Removes what a fleet made there, and the directory where that leaves it empty."""
    for name in (NODES, LOGS):
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in (CONTROL, LOCK, TOPOLOGY, f"{STATE}.new", STATE):
        (directory / name).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:
        return  # somebody else's files are in it


def lock(directory: Path) -> int | None:
    """The descriptor that holds the directory's lock, until it is closed; None where another process holds it."""
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _near(directory: Path, use: Any) -> Any:
    """`use` of the control socket's path in a form that fits a socket's address: 107 bytes, whatever the path."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return use(f"/proc/self/fd/{descriptor}/{CONTROL}")
    finally:
        os.close(descriptor)


def listen_for_requests(directory: Path) -> socket.socket:
    """The supervisor's end; who may enter the directory may ask."""
    (directory / CONTROL).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _near(directory, listener.bind)
    (directory / CONTROL).chmod(0o600)
    listener.setblocking(False)
    return listener


async def ask(directory: Path, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """The supervisor's answer. Raises FleetError where none runs or answers in time, and what it answered as error."""
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    endpoint.settimeout(limit_s)
    try:
        _near(directory, endpoint.connect)
        endpoint.setblocking(False)
    except OSError:
        endpoint.close()
        raise FleetError(f"no fleet runs in {directory}; `holdfast fleet up FILE` starts one") from None
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_unix_connection(sock=endpoint, limit=ANSWER_BYTES_MAX)
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
            writer.close()
    except TimeoutError:
        raise FleetError(f"the supervisor of {directory} did not answer for {limit_s:g} s") from None
    except OSError as error:
        raise FleetError(f"the supervisor of {directory} went away ({error.strerror})") from None
    if not line.endswith(b"\n"):
        raise FleetError(f"the supervisor of {directory} went away; its log is {directory / LOGS / SUPERVISOR_LOG}")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise (ConfigError if answer.get("usage") else FleetError)(answer["error"])
    return answer
