"""What the node says of its own memory."""

import mmap
from pathlib import Path

import pytest

from holdfast.node import memory
from holdfast.node.memory import ResidentMemory


def test_mapped_files_do_not_count_and_own_bytes_do(tmp_path: Path) -> None:
    size = 32 * 1024 * 1024
    path = tmp_path / "mapped"
    path.write_bytes(b"x" * size)
    resident = ResidentMemory()
    before = resident.measure()
    assert before is not None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::4096]) > 0
        during = resident.measure()
    own = bytearray(size)
    after = resident.measure()
    assert during is not None
    assert after is not None
    assert during - before < size // 2
    assert after - before > size // 2
    assert len(own) == size


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STATM", "/nowhere")
    assert ResidentMemory().measure() is None
