"""What a query's checkpoint proves to be done, and making it last before the node forgets (CUSTODY,
"Readers").

Rules of this file: reads Spark's own files, writes none. `commits/N` exists: batch N is done; `offsets/N`
holds one JSON line for each source from its third line on. Spark syncs nothing: a power loss may take away
`commits/N` after the node has let the entries go, so everything that proves a batch is synced first, and the
sink's files before that. All of a batch is synced before the next one is planned. So `offsets/N` proves that the
batches before N are on disk, and of batch N alone, in a run that finds it, a power loss may have left a part.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from holdfast.durable import sync_directories, sync_file
from holdfast.errors import ConfigError, StorageError
from pyspark_holdfast.damage import damage_of, is_torn
from pyspark_holdfast.offsets import Offset, Place, offset_of, places_in, shown

SYNCED_PATHS_MAX: Final = 100_000
"""Names of data files known to be synced; beyond it they are forgotten and synced once more, which is cheap.
"""

SINK_LOG: Final = "_spark_metadata"
"""The directory inside a table where Spark's file sink lists what it wrote."""

_BATCH: Final = re.compile(r"(\d+)")
_SINK_BATCH: Final = re.compile(r"(\d+)(\.compact)?")


class Proven(NamedTuple):
    """The newest batch that is done, and the offsets of our subscription where it ended: one for each source."""

    batch: int
    lines: list[Offset]


def batches_in(directory: Path) -> list[int]:
    """The numbers of a metadata log's files, ascending; none where the directory is missing."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if _BATCH.fullmatch(name))


class SinkLog:
    """The file sink's own list of what it wrote: the truth about the directory."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.directory = out / SINK_LOG

    def batches(self) -> dict[int, Path]:
        """The log's file of each batch, ascending; a compacted one holds all that came before it too."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return {}
        found: dict[int, Path] = {}
        for name in sorted(names):
            match = _SINK_BATCH.fullmatch(name)
            if match:
                found[int(match[1])] = self.directory / name
        return dict(sorted(found.items()))

    def files(self) -> list[Path]:
        """All data files that belong to the output, in the order they were added."""
        logs = self.batches()
        compacted = [batch for batch, path in logs.items() if path.suffix]
        first = compacted[-1] if compacted else -1
        paths: dict[Path, None] = {}
        for batch, path in logs.items():
            if batch >= first:
                for file, added in _sink_entries(path):
                    if added:
                        paths[file] = None
                    else:
                        paths.pop(file, None)
        return list(paths)

    def files_of(self, log: Path) -> list[Path]:
        """The data files that one file of the log adds."""
        return list(self.sizes_of(log))

    def sizes_of(self, log: Path) -> dict[Path, int | None]:
        """The same with their sizes, as far as the log tells them."""
        return {
            self.path_of(line["path"]): line.get("size")
            for line in self.lines_of(log)
            if line.get("action", "add") == "add"
        }

    def directories_of(self, file: Path) -> list[Path]:
        """Those with the names on the way from the table to a data file; of a table that is partitioned several."""
        out = self.out.absolute()
        return [place for place in file.parents if out in place.parents] or [file.parent]

    @staticmethod
    def lines_of(log: Path) -> list[dict[str, Any]]:
        """What one file of the log says, a line for each data file."""
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[1:] if line.strip()]

    @staticmethod
    def path_of(uri: str) -> Path:
        """The data file that a line names."""
        return Path(unquote(urlsplit(uri).path))


def _sink_entries(log: Path) -> Iterator[tuple[Path, bool]]:
    for line in SinkLog.lines_of(log):
        yield SinkLog.path_of(line["path"]), line.get("action", "add") == "add"


class Checkpoint:
    """One query's checkpoint directory, as seen by a source of `subscription`.

    Several sources of a query may have one name: each finds what is its own by its queues, of which no two sources can
    have one.
    """

    def __init__(self, path: Path, subscription: str, sink: SinkLog | None = None) -> None:
        self.path = path
        self.subscription = subscription
        self.sink = sink
        self._synced_paths: set[Path] = set()
        self._synced_batch: int | None = None
        """The newest batch of which this run has synced all."""
        self._found_batch = -1 if sink is None else max(sink.batches(), default=-1)
        """The newest that the sink's log had when the run began."""

    def proven(self) -> Proven | None:
        """The newest batch with a `commits/N`; None before the first. Raises ConfigError where it is not
        ours.
        """
        commits = batches_in(self.path / "commits")
        return Proven(commits[-1], self._own_lines(commits[-1])) if commits else None

    def check(self) -> None:
        """Raises ConfigError where the newest planned batch is not ours, or Spark could not read it."""
        planned, done = batches_in(self.path / "offsets"), batches_in(self.path / "commits")
        for log, batches, lines_min in (("offsets", planned, 3), ("commits", done, 2)):
            if batches and is_torn(self.path / log / str(batches[-1]), lines_min):
                cure = f"remove it and .{batches[-1]}.crc beside it: no message is lost, and none comes twice"
                if log == "offsets" and done and done[-1] >= batches[-1]:
                    cure = "use a new checkpoint with a new output"
                name = f"{log}/{batches[-1]}"
                raise ConfigError(f"checkpoint {self.path}: {name} is not whole, as after a power loss; {cure}")
        if planned:
            self._own_lines(planned[-1])

    def _own_lines(self, batch: int) -> list[Offset]:
        lines = self.lines(batch)
        if not lines:
            raise ConfigError(
                f"checkpoint {self.path}: offsets/{batch} holds no place of subscription {self.subscription!r}; give "
                "the checkpointLocation of the query that reads it"
            )
        return lines

    def lines(self, batch: int) -> list[Offset]:
        """Where `batch` ends for sources of our subscription; nothing where the file is missing."""
        try:
            texts = (self.path / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        found: list[Offset] = []
        for text in texts[2:]:
            try:
                offset = offset_of(json.loads(text))
            except ValueError:
                continue
            if offset is not None and offset.sub == self.subscription:
                found.append(offset)
        return found

    def place(self, lines: list[Offset], key: str, queue: str) -> Place | None:
        """What `lines` say of one queue. Raises ConfigError where two sources read it under our name."""
        places = places_in(lines, key, queue)
        if len(places) > 1:
            raise ConfigError(
                f"checkpoint {self.path}: several sources of this query are subscription {self.subscription!r} of "
                f"{shown(key)}; give each a name of its own"
            )
        return places[0] if places else None

    def holds(self, end: Offset) -> bool:
        """Whether the newest planned batch ends at `end`, as it must in this query's own checkpoint."""
        planned = batches_in(self.path / "offsets")
        return bool(planned) and end in self.lines(planned[-1])

    def sync_plan(self) -> None:
        """The newest planned batch, before anything is done for it. Raises StorageError."""
        sync_plan(self.path, batches_in(self.path / "offsets")[-1])

    def make_durable(self, proven: Proven, released: Mapping[str, Place]) -> None:
        """Syncs what proves every batch that this run has not synced yet, the newest last: to be called before another
        is planned on top. Of a run's first call these are, besides the newest, those that end above the place up to
        which the node has let entries go, in one of these queues. Raises StorageError, and ConfigError where the newest
        is not whole.
        """
        if proven.batch == self._synced_batch:
            return
        try:
            if self.sink is not None:
                self._sync_sink(self.sink, proven.batch, released)
            root = self.path
            if self._synced_batch is None:
                _sync_summed(root / "metadata")
            for log in ("offsets", "commits"):
                _sync_summed(root / log / str(proven.batch))
                sync_file(root / log)
            if self._synced_batch is None:
                sync_directories(root)
        except OSError as error:
            raise _unsynced(self.path, error) from error
        self._synced_batch = proven.batch

    def _ends_above(self, batch: int, released: Mapping[str, Place]) -> bool:
        lines = self.lines(batch)
        for key, place in released.items():
            end = self.place(lines, key, place.queue)
            if end is not None and end.queue == place.queue and end.seq > place.seq:
                return True
        return False

    def _is_released(self, batch: int, released: Mapping[str, Place]) -> bool:
        """Whether the nodes have let all entries of this batch go; False where one is not asked."""
        for line in self.lines(batch):
            for key, place in line.places.items():
                at = released.get(key)
                if at is None or at.queue != place.queue or at.seq < place.seq:
                    return False
        return True

    def _unsynced_batches(self, newest: int, released: Mapping[str, Place]) -> set[int]:
        if self._synced_batch is not None:
            return set(range(self._synced_batch + 1, newest + 1))
        if self._is_released(newest, released):  # it was synced before
            return set()
        wanted = {newest}
        for batch in reversed(batches_in(self.path / "offsets")):
            if batch < newest:
                if not self._ends_above(batch, released):
                    break
                wanted.add(batch)
        return wanted

    def _sync_sink(self, sink: SinkLog, newest: int, released: Mapping[str, Place]) -> None:
        logs = sink.batches()
        wanted = self._unsynced_batches(newest, released)
        if not wanted:
            return
        compacted = max((batch for batch, log in logs.items() if log.suffix), default=-1)
        for batch in sorted(wanted - logs.keys(), reverse=True):
            if batch > compacted or batch == newest:
                raise ConfigError(
                    f"output {sink.out}: its log holds no batch {batch}, which checkpoint {self.path} says is "
                    "done; give the output that was written with this checkpoint"
                )
        if self._synced_batch is None and newest <= self._found_batch:
            self._check_whole(sink, newest, logs)
        directories = {sink.directory: None, sink.out: None}
        if len(self._synced_paths) > SYNCED_PATHS_MAX:
            self._synced_paths.clear()
        for batch, log in logs.items():
            if batch in wanted or (log.suffix and batch >= min(wanted)):
                for file in sink.files_of(log):
                    if file not in self._synced_paths:
                        _sync_summed(file)
                        self._synced_paths.add(file)
                        directories |= dict.fromkeys(sink.directories_of(file))
                _sync_summed(log)
        for directory in directories:
            sync_file(directory)
        if self._synced_batch is None:
            sync_directories(sink.out)

    def _check_whole(self, sink: SinkLog, batch: int, logs: Mapping[int, Path]) -> None:
        """Raises ConfigError where a file of this batch, which an earlier run wrote, is not whole."""
        before = {file for number, log in logs.items() if number < batch for file in sink.files_of(log)}
        for file, size in sink.sizes_of(logs[batch]).items():
            damage = None if file in before else damage_of(file, size)
            if damage is not None:
                log, commit = logs[batch], self.path / "commits" / str(batch)
                raise ConfigError(
                    f"output {sink.out}: {file.name} of batch {batch} is not whole, as after a power loss: {damage}. "
                    f"The nodes have its messages: remove {log} and {commit}, each with its .crc, and start the query "
                    "again, which writes the batch anew"
                )


def sync_plan(checkpoint: Path, batch: int) -> None:
    """The query's id and the batch that Spark has planned, on disk, with the one before, without which Spark does not
    start: before anything that outlives a power loss is written under the batch's number. Raises StorageError.
    """
    try:
        _sync_summed(checkpoint / "metadata")
        for number in (batch - 1, batch):
            file = checkpoint / "offsets" / str(number)
            if number == batch or file.exists():
                _sync_summed(file)
        sync_directories(checkpoint / "offsets", 3 if batch else None)  # the query's first: its directories may be new
    except OSError as error:
        raise _unsynced(checkpoint, error) from error


def _unsynced(checkpoint: Path, error: OSError) -> StorageError:
    return StorageError(f"checkpoint {checkpoint}: cannot be synced to disk ({error})")


def query_id(checkpoint: Path) -> str:
    """Spark's id of the query, which is the checkpoint's. Raises ConfigError."""
    file = checkpoint / "metadata"
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} cannot be read ({error}); expected Spark's file of a query's id") from None


def _sync_summed(path: Path) -> None:
    """The file and the checksum that Hadoop keeps beside it: a torn one makes a whole file unreadable."""
    for name in (path, path.with_name(f".{path.name}.crc")):
        try:
            sync_file(name)
        except FileNotFoundError:
            if name is path and path.name != "metadata":
                raise
