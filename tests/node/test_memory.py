"""What the node says of its own memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.node.process import memory
from holdfast.node.process.memory import ResidentMemory

MEASURE = """
import mmap, sys
from holdfast.node.process.memory import ResidentMemory

size = int(sys.argv[2])
resident = ResidentMemory()
before = resident.measure()
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
    assert sum(mapped[::4096]) > 0
    during = resident.measure()
own = bytearray(size)
print(before, during, resident.measure())
"""


def test_mapped_files_do_not_count_and_own_bytes_do(tmp_path: Path) -> None:
    """In a process of its own: what others leave in one, and when it is collected, would be measured with it."""
    size = 32 * 1024 * 1024
    path = tmp_path / "mapped"
    path.write_bytes(b"x" * size)
    told = subprocess.run([sys.executable, "-c", MEASURE, path, str(size)], capture_output=True, text=True, check=True)
    before, during, after = map(int, told.stdout.split())
    assert during - before < size // 2
    assert after - before > size // 2


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STATM", "/nowhere")
    assert ResidentMemory().measure() is None


SELDOM = ("cryptography", "difflib", "holdfast.telemetry", "lark", "prometheus_client", "statistics")
"""What takes 0.2 to 10 MB, and serves what a node may do without."""


def test_a_plain_node_loads_nothing_that_it_seldom_needs() -> None:
    modules = "holdfast.cli, holdfast.node.command, holdfast.core, holdfast.storage.lmdb"
    program = f"import sys, {modules}; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"holdfast.node.runtime", "holdfast.core"} <= set(told.stdout.split())
    assert not set(SELDOM) & set(told.stdout.split())
