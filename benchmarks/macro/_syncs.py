"""Counts what reaches the disk for good, from outside the process: an strace log, read after the run.

Counted are fsync, fdatasync, msync(MS_SYNC) and each write through a descriptor opened with O_DSYNC or
O_SYNC, or with RWF_DSYNC or RWF_SYNC (LMDB writes its meta page through an O_DSYNC descriptor). A write
through io_uring is not seen. Format: `strace -f -y -s 0 -ttt -o LOG` (see _peers.strace_command).
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

KINDS: Final = ("fsync", "fdatasync", "msync", "dsync_write")
_CALL = re.compile(r"^(?P<pid>\d+)\s+(?P<at>\d+\.\d+) (?P<call>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<pid>\d+)\s+(?P<at>\d+\.\d+) <\.\.\. (?P<call>\w+) resumed>(?P<rest>.*)$")
_OPENED = re.compile(r"= (?P<descriptor>\d+)<(?P<path>[^>]*)>\s*$")
_TARGET = re.compile(r"^(?P<descriptor>\d+)<(?P<path>[^>]*)>")
_SYNCED_OPEN = re.compile(r"\bO_D?SYNC\b")
_SYNCED_WRITE = re.compile(r"\bRWF_D?SYNC\b")
_OPENS: Final = ("open", "openat", "creat")
_WRITES: Final = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
_UNFINISHED: Final = "<unfinished ...>"


def count_syncs(lines: Iterable[str], first: float, last: float) -> dict[str, int]:
    """Counts by kind of the calls that began within first..last (seconds since 1970); all kinds present."""
    counts: Counter[str] = Counter()
    synced: set[tuple[str, str]] = set()
    pending: dict[str, str] = {}
    for line in lines:
        found = _CALL.match(line)
        if found is None:
            found = _RESUMED.match(line)
            if found is not None and found["call"] in _OPENS:
                _note_open(pending.pop(found["pid"], "") + found["rest"], synced)
            continue
        call, rest = found["call"], found["rest"]
        if call in _OPENS:
            if rest.rstrip().endswith(_UNFINISHED):
                pending[found["pid"]] = rest.rstrip().removesuffix(_UNFINISHED)
            else:
                _note_open(rest, synced)
            continue
        if not first <= float(found["at"]) <= last:
            continue
        if call in ("fsync", "fdatasync") or (call == "msync" and "MS_SYNC" in rest):
            counts[call] += 1
        elif call in _WRITES:
            target = _TARGET.match(rest)
            through = target is not None and (target["descriptor"], target["path"]) in synced
            if through or _SYNCED_WRITE.search(rest):
                counts["dsync_write"] += 1
    return {kind: counts[kind] for kind in KINDS}


def _note_open(rest: str, synced: set[tuple[str, str]]) -> None:
    """Remember the descriptor of a successful open with O_DSYNC or O_SYNC; forget a reused one."""
    opened = _OPENED.search(rest)
    if opened is None:
        return
    key = (opened["descriptor"], opened["path"])
    if _SYNCED_OPEN.search(rest):
        synced.add(key)
    else:
        synced.discard(key)
