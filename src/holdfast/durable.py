"""What a power loss must not undo: files and names brought to disk.

Rules of this file: a file whose directory was not synced after it was made or renamed may be gone after a power loss.
"""

import os
from pathlib import Path

__all__ = ["sync_directories", "sync_file"]


def sync_file(place: Path) -> None:
    """A file's data and length, or a directory's names, on disk. Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(lowest: Path, count: int | None = None) -> None:
    """The names in the directory `lowest` and in those above it up to its file system's root, or in `count` of them."""
    place = lowest.resolve()
    for directory in (place, *place.parents)[:count]:
        try:
            sync_file(directory)
        except PermissionError:
            continue  # what we may not look into we did not make
        if os.path.ismount(directory):
            break
