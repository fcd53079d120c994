"""Whether files that Spark wrote, and nobody synced, are whole after a power loss (docs/powerloss.md).

Rules of this file: only looks. A file is whole if it has the length that a log tells and, where Hadoop keeps checksums
beside it, those; a metadata log's file if all its lines can be read.
"""

import json
import zlib
from pathlib import Path
from typing import Final

_HEAD: Final = 8
"""Bytes of a file of checksums before the first: `crc`, a zero, and how many bytes each is of."""
_SUM: Final = 4


def damage_of(file: Path, size: int | None) -> str | None:
    """What is wrong with a data file that should have so many bytes, or None. Raises OSError."""
    if not file.exists():
        return "it is not there"
    found = file.stat().st_size
    if size is not None and found != size:
        return f"it has {found} bytes instead of {size}"
    try:
        sums = file.with_name(f".{file.name}.crc").read_bytes()
    except FileNotFoundError:
        return None
    step = int.from_bytes(sums[4:_HEAD], "big")
    if sums[:4] != b"crc\0" or step < 1 or len(sums) != _HEAD + _SUM * -(-found // step):
        return "its file of checksums is not whole"
    with file.open("rb") as source:
        for at in range(_HEAD, len(sums), _SUM):
            if zlib.crc32(source.read(step)) != int.from_bytes(sums[at : at + _SUM], "big"):
                return f"its checksum is wrong behind byte {(at - _HEAD) // _SUM * step}"
    return None


def is_torn(log: Path, lines_min: int = 1) -> bool:
    """Whether a file of one of Spark's metadata logs is not whole: a version, then lines of JSON or `-`. False for one
    that is not there."""
    try:
        version, *lines = log.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line.strip() not in ("", "-"):
                json.loads(line)
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return not version.startswith("v") or 1 + len(lines) < lines_min
