"""What the benchmarks read of /proc."""

import os
from pathlib import Path

import _process as process
import pytest
from _peers import file_system, require_real_disk

SMAPS = """\
55d0-55e0 r--p 00000000 fe:00 1310     /usr/bin/python3.11
Size:                  4 kB
Rss:                  40 kB
Anonymous:             0 kB
7f00-7f10 r--s 00000000 fe:00 99     /var/lib/node with spaces/data.mdb
Rss:                 100 kB
Anonymous:             0 kB
7f20-7f30 rw-p 00000000 00:00 0 
Rss:                  20 kB
Anonymous:            20 kB
VmFlags: rd wr
"""  # noqa: W291


def test_store_mapping_is_told_apart() -> None:
    found = process.parse_smaps(SMAPS, "data.mdb")
    assert (found.resident, found.store_mapping, found.anonymous) == (160 * 1024, 100 * 1024, 20 * 1024)
    assert found.own == 60 * 1024


def test_without_a_store_all_is_the_process_own() -> None:
    assert process.parse_smaps(SMAPS, None).own == 160 * 1024


def test_a_living_process_can_be_read() -> None:
    pid = os.getpid()
    assert process.memory(pid, None).resident > 0
    assert process.cpu_s(pid) >= 0 and process.written_bytes(pid) >= 0


def test_a_memory_file_system_is_refused() -> None:
    memory = Path("/dev/shm")
    if file_system(memory) != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    with pytest.raises(SystemExit, match="a sync costs nothing"):
        require_real_disk(memory)
