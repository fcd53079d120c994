"""The node's resident memory, without the pages that the store has mapped.

Source: proc(5), /proc/self/statm. Its two counters cost 10 µs whatever the store's size; smaps_rollup walks
every mapped page and would stop the loop for tens of milliseconds beside a store of gigabytes.
"""

import os
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_STATM: Final = "/proc/self/statm"


def _statm() -> tuple[int, int] | None:
    """(resident, backed by a file) in bytes; None without /proc."""
    try:
        with open(_STATM, "rb", buffering=0) as file:
            words = file.read(256).split()
        return int(words[1]) * _PAGE_BYTES, int(words[2]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


class ResidentMemory:
    """Must be created before the store is opened: file-backed pages until then belong to libraries, later ones to the
    store."""

    def __init__(self) -> None:
        statm = _statm()
        self._libraries_bytes = 0 if statm is None else statm[1]

    def measure(self) -> int | None:
        """Resident bytes without the store's mapping; None if the system does not report it."""
        statm = _statm()
        if statm is None:
            return None
        resident, backed = statm
        return resident - backed + min(backed, self._libraries_bytes)
