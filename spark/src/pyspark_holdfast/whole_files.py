"""Files that have their name only once all of their content is on disk.

Rules of this file: whoever puts several into a directory syncs its names, and a torn or abandoned part is never read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.durable import beside, sync_file


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """Where to write what `file` is to contain: synced, it takes that name if the block ends without an exception. It
    is hidden from Spark, and another task's is another file, also on another machine, where it may have our number.
    Raises OSError."""
    part = beside(file)
    yield part
    sync_file(part)
    part.rename(file)
