"""Reads from /proc the CPU time of a process, its memory by mapping, and the bytes that it wrote."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(?P<path>.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes resident: in all, of the store's mapping (page cache, not the process's own), anonymous."""

    resident: int
    store_mapping: int
    anonymous: int

    @property
    def own(self) -> int:
        return self.resident - self.store_mapping


def cpu_s(pid: int) -> float:
    """User and system seconds of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def parse_smaps(text: str, mapping: str | None) -> Memory:
    """Sums of a /proc/PID/smaps; `mapping`: the name of the store's file, None where there is no such."""
    resident = stored = anonymous = 0
    in_store = False
    for line in text.splitlines():
        head = _MAPPING.match(line)
        if head is not None:
            in_store = mapping is not None and head["path"].rpartition("/")[2] == mapping
        elif line.startswith("Rss:"):
            size = int(line.split()[1]) * 1024
            resident += size
            stored += size if in_store else 0
        elif line.startswith("Anonymous:"):
            anonymous += int(line.split()[1]) * 1024
    return Memory(resident=resident, store_mapping=stored, anonymous=anonymous)


def memory(pid: int, mapping: str | None) -> Memory:
    return parse_smaps(Path(f"/proc/{pid}/smaps").read_text(), mapping)


def anonymous_bytes(pid: int) -> int:
    """Resident memory that no file backs (RssAnon of /proc/PID/status): what `Memory.anonymous` sums, in one line."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/status has no RssAnon")


def written_bytes(pid: int) -> int:
    """Bytes given to write calls so far, files and sockets (wchar of /proc/PID/io).

    Not its write_bytes: that counts a whole folio of the page cache, up to megabytes, for 4 KB dirtied in it.
    """
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    raise OSError(f"/proc/{pid}/io has no wchar")
