"""Space taken ahead: whole MiB at the end, within the bound, as much as the disk has."""

import os
import resource
from pathlib import Path

import pytest

from holdfast.storage.files.allocation import Allocation
from holdfast.units import MIB


@pytest.fixture
def fd(tmp_path: Path) -> int:
    return os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)


def test_it_grows_by_whole_mebibytes_up_to_the_bound(fd: int) -> None:
    allocation = Allocation(fd, 5 * MIB + 4_096)
    assert allocation.bytes == 0
    assert allocation.grow(1)
    assert allocation.bytes == MIB == os.fstat(fd).st_size
    assert allocation.occupied() >= MIB
    assert not allocation.grow(MIB)
    assert allocation.grow(MIB + 1)
    assert allocation.bytes == 2 * MIB
    assert allocation.grow(100 * MIB)
    assert allocation.bytes == 5 * MIB + 4_096
    assert not allocation.grow(100 * MIB)
    os.close(fd)


def test_holes_of_a_copy_are_filled_and_what_is_there_stays(fd: int) -> None:
    os.pwrite(fd, b"kept", 3 * MIB - 4)
    assert os.fstat(fd).st_blocks * 512 < MIB
    allocation = Allocation(fd, 8 * MIB)
    assert allocation.bytes == 3 * MIB
    assert allocation.occupied() >= 3 * MIB
    assert os.pread(fd, 4, 3 * MIB - 4) == b"kept"
    os.close(fd)


def test_a_file_beyond_the_bound_stays_and_counts_as_the_bound(fd: int) -> None:
    os.ftruncate(fd, 3 * MIB)
    allocation = Allocation(fd, 2 * MIB)
    assert allocation.bytes == 2 * MIB
    assert not allocation.grow(4 * MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    os.close(fd)


def test_it_takes_what_the_disk_has_and_asks_again(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = Allocation(fd, 100 * MIB)
    monkeypatch.setattr(allocation, "free_on_disk", lambda: MIB - 1)
    assert not allocation.grow(8 * MIB)
    monkeypatch.setattr(allocation, "free_on_disk", lambda: 3 * MIB - 1)
    assert allocation.grow(8 * MIB)
    assert allocation.bytes == 2 * MIB
    monkeypatch.undo()
    assert allocation.grow(8 * MIB)
    assert allocation.bytes == 8 * MIB
    os.close(fd)


def test_it_grows_as_far_as_the_process_may_write(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = Allocation(fd, 100 * MIB)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (5 * MIB + 1, resource.RLIM_INFINITY))
    assert allocation.bytes_most == 5 * MIB and allocation.grow(8 * MIB)
    assert allocation.bytes == 5 * MIB and not allocation.can_grow(6 * MIB)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (MIB, resource.RLIM_INFINITY))
    assert allocation.bytes_most == 5 * MIB and not allocation.grow(6 * MIB)
    monkeypatch.undo()
    assert allocation.bytes_most == 100 * MIB and allocation.grow(6 * MIB)
    os.close(fd)
