"""`python -m holdfast …` from a fork is what it is when started anew (tests/support/forking.py)."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast_lab.base.processes import die_with_parent

COMMAND = (sys.executable, "-m", "holdfast")
WAITS = ("send", "q", "--url", "amqp://127.0.0.1:1", "--retry", "60")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen((*COMMAND, *arguments), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_fork(process: "subprocess.Popen[bytes]") -> bool:
    return b"fork_server.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


def test_it_is_a_child_with_its_own_streams_and_exit_code(tmp_path: Path) -> None:
    done = subprocess.run((*COMMAND, "--version"), capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("holdfast ")
    done = subprocess.run((*COMMAND, "node", "no-such.toml"), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no-such.toml" in done.stderr and "Traceback" not in done.stderr
    program = f"import subprocess; print(subprocess.run({(*COMMAND, 'nonsense')!r}, capture_output=True).returncode)"
    anew = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert int(anew.stdout) == subprocess.run((*COMMAND, "nonsense"), capture_output=True, check=False).returncode == 2


def test_it_stands_where_it_is_told_to(tmp_path: Path) -> None:
    with started(*WAITS, cwd=tmp_path, start_new_session=True, preexec_fn=die_with_parent) as process:
        assert process.stderr is not None and process.stderr.readline()
        assert is_fork(process)
        assert os.getsid(process.pid) == process.pid
        assert Path(f"/proc/{process.pid}/cwd").resolve() == tmp_path.resolve()
        parent = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert parent == os.getpid()
        open_there = {int(name) for name in os.listdir(f"/proc/{process.pid}/fd")}
        sockets = [number for number in open_there if number > 2 and "socket" in link_of(process.pid, number)]
        ours = {link_of(os.getpid(), int(name)) for name in os.listdir("/proc/self/fd")}
        assert not [number for number in sockets if link_of(process.pid, number) in ours]


def link_of(pid: int, number: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except FileNotFoundError:
        return ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_signals_end_it_as_they_should(number: signal.Signals, code: int) -> None:
    with started(*WAITS) as process:
        assert process.stderr is not None and process.stderr.readline()
        process.send_signal(number)
        assert process.wait(10) == code


@pytest.mark.parametrize(
    "options",
    [
        {"env": {**os.environ, "PYTHONHASHSEED": "1"}},
        {"preexec_fn": lambda: None},
        {"pass_fds": (2,)},
        {"umask": 0o077},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_a_fork_cannot_stand_for_is_started_anew(options: dict[str, Any]) -> None:
    with started(*WAITS, **options) as process:
        assert process.stderr is not None and process.stderr.readline()
        assert not is_fork(process)


def test_so_it_is_under_another_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        with started(*WAITS) as process:
            assert process.stderr is not None and process.stderr.readline()
            assert not is_fork(process)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
