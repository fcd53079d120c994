"""Blocking calls on files that are to be there after a power loss.

Rules of this file: OSError goes to the caller, who knows what the file is.
"""

import os
from pathlib import Path


def write_all(descriptor: int, data: bytes) -> int:
    """All of `data` where the descriptor stands; its length."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return len(data)


def sync_directories(path: Path, count: int | None = None) -> None:
    """The name of the file at `path`, and those of the directories above it up to its file system's root, or of
    `count` of them: a file whose directory was not synced may be gone after a power loss.
    """
    for directory in path.resolve().parents[:count]:
        try:
            descriptor = os.open(directory, os.O_RDONLY)
        except PermissionError:
            continue  # what we may not look into we did not make
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if os.path.ismount(directory):
            break
