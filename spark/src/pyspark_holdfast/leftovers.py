"""What a batch left out because its node was away, until a later batch has it (docs/spark.md, ADR 0088).

Rules of this file: a file says what one batch leaves out of one queue; it is on disk before the batch has tasks, and
after the batch's plan, so that every attempt of the batch leaves out the same. The next batch's offset takes over what
the files of its predecessor say; then they are of no more use.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from holdfast.durable import sync_file, whole_file
from holdfast.errors import ConfigError, StorageError
from pyspark_holdfast.offsets import Offset, Part, part_between, part_of

DIRECTORY: Final = "holdfast-left"


class Leftovers:
    """Of the sources of one subscription, in the query's checkpoint."""

    def __init__(self, checkpoint: Path, subscription: str) -> None:
        self._checkpoint = checkpoint
        self._directory = checkpoint / DIRECTORY
        self._subscription = subscription

    def of(self, batch: int) -> dict[str, Part]:
        """What this batch leaves out, by queue. Raises ConfigError."""
        found: dict[str, Part] = {}
        for file in self._files():
            if _batch_of(file) != batch:
                continue
            try:
                told = json.loads(file.read_text(encoding="utf-8"))
                part = part_of(told["part"])
            except (OSError, ValueError, KeyError, TypeError):
                part = None
            if part is None:
                raise ConfigError(f"{file} cannot be read; use a new checkpoint with a new output")
            if told["sub"] == self._subscription:
                found[str(told["key"])] = part
        return found

    def of_plan(self, batch: int, first: Offset, last: Offset) -> dict[str, Part]:
        """What a batch that reads from `first` to `last` leaves out. A file that says something else of a queue is of
        another plan with that number, and goes. Raises ConfigError, StorageError."""
        found = self.of(batch)
        for key in found.keys() & last.places.keys():
            if found[key] != part_between(first, last, key):
                try:
                    self._file(batch, key).unlink(missing_ok=True)
                    sync_file(self._directory)
                except OSError as error:
                    raise self._unwritten(error) from error
                del found[key]
        return found

    def after(self, batch: int, lines: Iterable[Offset]) -> dict[str, Part]:
        """All that is still to be read once `batch` is done, which ends at these offsets."""
        found = {key: part for line in lines for key, part in line.left.items()}
        for key, part in self.of(batch).items():
            before = found.get(key)
            found[key] = part if before is None or before.queue != part.queue else before.joined(part)
        return found

    def leave(self, batch: int, parts: Mapping[str, Part]) -> None:
        """From now on `batch` leaves this out. Raises StorageError."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for key, part in parts.items():
                told = {"sub": self._subscription, "key": key, "part": part.json()}
                with whole_file(self._file(batch, key)) as out:
                    out.write(json.dumps(told).encode())
            sync_file(self._directory)
            sync_file(self._checkpoint)
        except OSError as error:
            raise self._unwritten(error) from error

    def forget(self, batch: int) -> None:
        """`batch` is done, so what earlier ones left out is in its offset."""
        for file in self._files():
            if _batch_of(file) < batch:
                file.unlink(missing_ok=True)

    def _unwritten(self, error: OSError) -> StorageError:
        return StorageError(f"{self._directory} cannot be written ({error.strerror or error})")

    def _file(self, batch: int, key: str) -> Path:
        name = hashlib.sha256(f"{self._subscription}\0{key}".encode()).hexdigest()[:16]
        return self._directory / f"{batch}-{name}"

    def _files(self) -> list[Path]:
        try:
            return sorted(file for file in self._directory.iterdir() if file.name[0].isdigit())
        except FileNotFoundError:
            return []


def _batch_of(file: Path) -> int:
    return int(file.name.partition("-")[0])
