"""A PostgreSQL server of a test's own, on a free port of 127.0.0.1; the test skips where there is none."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

PROGRAMS: Final = Path("/usr/lib/postgresql")
LIMIT_S: Final = 60.0


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of its database. The server refuses to run as root, so root runs it as Debian's user."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = sorted(PROGRAMS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not programs:
        pytest.skip("PostgreSQL is not installed")
    user = "postgres" if os.geteuid() == 0 else None
    root = Path(tempfile.mkdtemp(prefix="holdfast-postgresql-", dir="/tmp"))  # which that user may enter
    try:
        if user is not None:
            shutil.chown(root, user)
        data, bin_ = root / "data", programs[-1].parent
        command = [str(bin_ / "initdb"), "--auth=trust", "--username=ann", "--no-sync", "-D", str(data)]
        subprocess.run(command, user=user, cwd=root, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        port = free_port()
        settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={root}"
        control = [str(bin_ / "pg_ctl"), "-D", str(data), "-w"]
        start = [*control, "-l", str(root / "log"), "-o", settings, "start"]
        subprocess.run(start, user=user, cwd=root, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        try:
            yield f"postgresql://ann@127.0.0.1:{port}/postgres"
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, user=user, cwd=root, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    finally:
        shutil.rmtree(root, ignore_errors=True)
