"""Syncs files and directories, so that a power loss does not undo them.

Rules of this file: a file may be gone after a power loss if its directory was not synced after the file was created or
renamed.
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
            continue  # a directory that we may not open was not created by us
        if os.path.ismount(directory):
            break
