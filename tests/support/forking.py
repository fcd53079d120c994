"""Starts `python -m holdfast …`, nodes that kill themselves and the examples as forks of a process that has imported
Holdfast already (`fork_server.py`).

Tests start some thousand such processes, and each would spend a fifth of a second on imports before it does anything.
`install()` makes subprocess.Popen, and with it asyncio, ask the server for those that a fork can stand for: same
arguments, environment, folder and standard streams, a process and a child of ours in its own right, with its own exit
code. Whatever differs in more than that is started anew, as everywhere else: another interpreter or module, variables
that the interpreter or the dynamic linker reads, limits or ignored signals that changed since the server started.

Linux alone; elsewhere nothing is installed.
"""

import ctypes
import inspect
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast_lab.base.processes import die_with_parent

SERVER: Final = Path(__file__).with_name("fork_server.py")
MODULES: Final = {"holdfast": "holdfast.__main__", "holdfast_lab.real.killed_node": "holdfast_lab.real.killed_node"}
"""What may be run by `python -m`, and the module whose `main` that is."""
EXAMPLES: Final = SERVER.parents[2] / "examples"
"""Whose programs may be run by their path."""
REQUEST_BYTES_MAX: Final = 100_000
"""A request is one packet, which a socket's buffer has to take."""

READ_BY_THE_INTERPRETER: Final = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG", "GLIBC_")
LIMITS: Final = (
    resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CORE,
)  # fmt: skip
_PR_SET_CHILD_SUBREAPER: Final = 36


class _Server:
    """The process that forks, which has imported what commands of `kind` do. `start` raises OSError where it has
    ended.
    """

    def __init__(self, kind: str) -> None:
        self.standing = _standing(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._libc = ctypes.CDLL(None)
        with theirs:
            self._process = _really(
                [sys.executable, str(SERVER), kind, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def start(self, request: bytes, streams: tuple[int, int, int]) -> int:
        """The id of the new process, a child of ours: its parent ends at once, and meanwhile we adopt orphans."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(self._socket, [request], streams)
            answer = self._socket.recv(64)
        finally:
            self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)
        if not answer:
            raise ConnectionError(f"{SERVER.name} has ended")
        return int(answer)


def _standing(environment: Mapping[str, str]) -> tuple[object, ...]:
    """What a process has from the one that starts it, and cannot be told to a fork."""
    read = {name: value for name, value in environment.items() if name.startswith(READ_BY_THE_INTERPRETER)}
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN]
    return read, ignored, [resource.getrlimit(limit) for limit in LIMITS], signal.pthread_sigmask(signal.SIG_BLOCK, ())


_servers: dict[tuple[int, str], _Server] = {}
_one_at_a_time = threading.Lock()
_execute_anew: Callable[..., None] = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_ORDER: Final = inspect.signature(_execute_anew)


def _really(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, **options)


def install() -> None:
    """From now on; for this process."""
    if sys.platform == "linux":
        subprocess.Popen._execute_child = _execute  # type: ignore[attr-defined]


def _execute(popen: Any, *given: Any) -> None:
    """In place of Popen's own method: it sets the process's id, and closes our copies of the child's streams."""
    told = _ORDER.bind(popen, *given).arguments
    words = [os.fsdecode(word) for word in _words(told["args"])]
    if words[:1] != [sys.executable] or _program(words) is None:
        _execute_anew(popen, *given)
        return
    with _one_at_a_time:
        server = _the_server(words)
        request = _request(told, words, server)
        if request is not None:
            streams = _or_ours((told["p2cread"], told["c2pwrite"], told["errwrite"]))
            popen.pid = server.start(request, streams)
    if request is None:
        _execute_anew(popen, *given)
        return
    popen._child_created = True
    popen._close_pipe_fds(
        *(told[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
    )


def _program(words: list[str]) -> tuple[str, list[str]] | None:
    """The module or the file of a program that a fork can stand for, and its arguments."""
    if words[1:2] == ["-m"] and words[2:3] and words[2] in MODULES:
        return MODULES[words[2]], words[3:]
    if words[1:2] and os.path.dirname(words[1]) == str(EXAMPLES):
        return words[1], words[2:]
    return None


def _words(arguments: Any) -> list[Any]:
    return list(arguments) if isinstance(arguments, (list, tuple)) else [arguments]


def _or_ours(streams: tuple[int, int, int]) -> tuple[int, int, int]:
    first, second, third = (ours if stream == -1 else stream for ours, stream in enumerate(streams))
    return first, second, third


def _the_server(words: list[str]) -> _Server:
    """The one for a command of these words."""
    kind = "sim" if words[3:4] == ["sim"] else "node"
    place = os.getpid(), kind  # of a process that has forked it are none
    if place not in _servers:
        _servers[place] = _Server(kind)
    return _servers[place]


def _request(told: Mapping[str, Any], words: list[str], server: _Server) -> bytes | None:
    """What the server is asked for; None where it has to be started anew."""
    program = _program(words)
    assert program is not None
    environment = dict(os.environ if told["env"] is None else told["env"])
    plain = (
        told["executable"] in (None, sys.executable)
        and told["preexec_fn"] in (None, die_with_parent)
        and told["close_fds"]
        and not told["pass_fds"]
        and not told["shell"]
        and told["restore_signals"]
        and all(told[name] in (None, -1) for name in ("gid", "gids", "uid", "umask", "process_group"))
        and _standing(environment) == server.standing
    )
    if not plain:
        return None
    request = json.dumps(
        {
            "program": program[0],
            "arguments": program[1],
            "folder": os.fsdecode(told["cwd"] if told["cwd"] is not None else os.getcwd()),
            "environment": environment,
            "session": bool(told["start_new_session"]),
            "dies_with_parent": told["preexec_fn"] is die_with_parent,
        }
    ).encode(errors="surrogateescape")
    return request if len(request) <= REQUEST_BYTES_MAX else None
