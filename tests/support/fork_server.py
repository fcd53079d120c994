"""A process that has imported Holdfast, and forks itself into `python -m holdfast …` when asked (support/forking.py).

    python fork_server.py KIND SOCKET

KIND says what it imports: what a node and a client need, or what the simulator does. Each request is a packet of JSON
with three descriptors, the standard streams; the answer is the new process's id. The new one's parent ends at once, so
that whoever asked, and adopts orphans meanwhile, becomes its parent.
"""

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import threading
from typing import Any, Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_DESCRIPTORS_MAX: Final = 256
_PACKET_BYTES: Final = 1 << 20

# What nearly every process of a kind would import, much of it once it runs; it is not used here.
LOADED: Final = {
    "node": (
        "holdfast.cli", "holdfast.node.command", "holdfast.node.runtime", "holdfast.storage.lmdb", "holdfast.client",
        "holdfast.client.verbs.send", "holdfast.client.verbs.receive", "holdfast.client.verbs.manage",
        "holdfast.core.node", "holdfast.telemetry.writer", "holdfast.client.feed.feeding",
        "holdfast.storage.commands", "uvloop",
        "concurrent.futures.thread", "encodings.idna",
    ),
    "sim": (
        "holdfast.cli", "holdfast_lab.sim_commands", "holdfast_lab.runs.run", "holdfast_lab.runs.swarm",
        "holdfast_lab.verbs", "holdfast_lab.histories", "holdfast_lab.plan.scenario_file", "importlib.metadata",
        "email.message", "tomllib",
    ),
}  # fmt: skip


def main() -> int:
    """Serves until whoever asks is gone; in a fork, what the command's own `main` returns."""
    ours = socket.socket(fileno=int(sys.argv[2]))
    del sys.path[0]  # our own folder, which no command has
    for module in LOADED[sys.argv[1]]:
        __import__(module)
    gc.freeze()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(ours, _PACKET_BYTES, 3)
        if not packet:
            return 0
        request = json.loads(packet)
        told, tell = os.pipe()
        wait, go = os.pipe()
        parent = os.fork()
        if parent == 0:
            child = os.fork()
            if child != 0:
                os.write(tell, b"%d" % child)
                os._exit(0)
            os.close(go)
            os.read(wait, 1)  # until our parent is who asked
            try:
                code = run(request, descriptors)
            except SystemExit as ended:
                if not isinstance(ended.code, int):
                    raise
                code = ended.code
            end(code)
        os.waitpid(parent, 0)
        ours.send(os.read(told, 64))
        for descriptor in (told, tell, wait, go, *descriptors):
            os.close(descriptor)


def run(request: dict[str, Any], descriptors: list[int]) -> int:
    """The command, in the process that is to be it."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, _DESCRIPTORS_MAX)
    if request["session"]:
        os.setsid()
    if request["dies_with_parent"]:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = sys.__stdin__ = _stream(0, sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, sys.stderr)
    program, code = request["program"], 0
    if os.path.isabs(program):
        sys.path.insert(0, os.path.dirname(program))
        sys.argv = [program, *request["arguments"]]
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path.insert(0, request["folder"])
        command = importlib.import_module(program)
        sys.argv = [str(command.__file__), *request["arguments"]]
        code = command.main()
    return code


def end(code: int) -> NoReturn:
    """As the interpreter ends, but that it takes nothing apart, which costs more than many a command."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        os.write(2, f"Exception ignored in: {sys.stdout}\n{error!r}\n".encode())
        code = 120
    os._exit(code)


def _stream(number: int, before: Any) -> Any:
    """As the interpreter makes it when it starts."""
    raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    buffered = io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    line_buffering = number == 2 or raw.isatty()
    return io.TextIOWrapper(buffered, before.encoding, before.errors, line_buffering=line_buffering)


if __name__ == "__main__":
    sys.exit(main())
