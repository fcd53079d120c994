"""A disk that guarantees only what it must: what it shows while the power is on, and what it may hold afterwards.

Rules of this file: a write is on disk once a sync that covers it has returned, and until then each of its sectors
is there or not, on its own; a name is on disk once its directory was synced, and until then it stands for
anything that it stood for since the sync before. Files know nothing of names. docs/powerloss.md says what is
assumed beyond that.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from holdfast_lab.powerloss.calls import Record, RecordingFailed

SECTOR_BYTES: Final = 512
META_BYTES: Final = 8_192
"""The first two pages of LMDB's file: its two roots."""

SYNCS: Final = ("data", "root", "names")
"""Kinds of sync that a disk may be told to ignore: of a file's data, of a write itself (O_DSYNC), of a directory."""


@dataclass(frozen=True, slots=True)
class Change:
    """To one file, not synced: `data` at `offset`, or no data and a new length `offset` (`cut`: even if shorter)."""

    offset: int
    data: bytes = b""
    cut: bool = False

    @property
    def sectors(self) -> int:
        """How many sectors the data touches."""
        if not self.data:
            return 0
        return (self.offset + len(self.data) - 1) // SECTOR_BYTES - self.offset // SECTOR_BYTES + 1

    def sector(self, index: int) -> "Change":
        """The part of the data in the sector of that index, counted from its first."""
        start = max(self.offset, (self.offset // SECTOR_BYTES + index) * SECTOR_BYTES)
        end = min(self.offset + len(self.data), (self.offset // SECTOR_BYTES + index + 1) * SECTOR_BYTES)
        return Change(start, self.data[start - self.offset : end - self.offset])


def change(content: bytearray, one: Change, fill: Callable[[int], bytes] = bytes) -> None:
    """Bring `one` into `content`; `fill(count)` makes what lies between its old end and a place behind it."""
    end = one.offset + len(one.data)
    if len(content) < end:
        content += fill(end - len(content))
    if one.data:
        content[one.offset : end] = one.data
    elif one.cut:
        del content[one.offset :]


@dataclass(slots=True, eq=False)
class File:
    """`shown` is what a process sees, `kept` what is surely on disk, `pending` what lies between, in order."""

    shown: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    mapped: bool = False

    def change(self, one: Change) -> None:
        change(self.shown, one)
        self.pending.append(one)

    def sync(self) -> None:
        for one in self.pending:
            change(self.kept, one)
        self.pending.clear()

    def sync_range(self, start: int, end: int) -> None:
        """The sectors from `start` to `end` are on disk as shown; of other changes nothing is said."""
        start -= start % SECTOR_BYTES
        end = min(len(self.shown), end + -end % SECTOR_BYTES)
        change(self.kept, Change(start, bytes(self.shown[start:end])))
        left: list[Change] = []
        for one in self.pending:
            if not one.data or one.offset >= end or one.offset + len(one.data) <= start:
                left.append(one)
                continue
            if one.offset < start:
                left.append(Change(one.offset, one.data[: start - one.offset]))
            if one.offset + len(one.data) > end:
                left.append(Change(end, one.data[end - one.offset :]))
        self.pending = left


@dataclass(slots=True, eq=False)
class Directory:
    """Names and what they stand for. `before`: of names changed since the last sync, all that they stood for."""

    shown: "dict[str, Node]" = field(default_factory=dict)
    before: "dict[str, list[Node | None]]" = field(default_factory=dict)

    def change(self, name: str, node: "Node | None") -> None:
        self.before.setdefault(name, []).append(self.shown.get(name))
        if node is None:
            self.shown.pop(name, None)
        else:
            self.shown[name] = node

    def sync(self) -> None:
        self.before.clear()


Node = File | Directory


class Disk:
    """Made by applying records in order. The root directory itself is on disk from the start.

    `ignored`: kinds of sync (`SYNCS`) that this disk answers and does not do: a judge that finds nothing wrong on
    such a disk is blind.
    """

    def __init__(self, ignored: frozenset[str] = frozenset()) -> None:
        self.root = Directory()
        self._ignored = ignored

    def apply(self, one: Record) -> None:
        """Raises `RecordingFailed` for a call whose effect is not known here."""
        match one.kind:
            case "M":
                pass
            case "w":
                self._file(one.path).change(Change(one.offset, one.data))
                if one.synced:
                    self._sync_range(one)
            case "f":
                self._sync_range(one)
            case "g":
                self._file(one.path).change(Change(one.offset))
            case "t":
                self._file(one.path).change(Change(one.offset, cut=True))
            case "s":
                node = self._node(one.path)
                if ("names" if isinstance(node, Directory) else "data") not in self._ignored:
                    node.sync()
            case "m":
                self._file(one.path).mapped = True
            case "o":
                directory, name = self._place(one.path)
                if name not in directory.shown:
                    directory.change(name, File())
                elif one.offset:
                    self._file(one.path).change(Change(0, cut=True))
            case "d":
                directory, name = self._place(one.path)
                directory.change(name, Directory())
            case "u":
                directory, name = self._place(one.path)
                directory.change(name, None)
            case "r":
                node = self._node(one.path)
                directory, name = self._place(one.second)
                directory.change(name, node)
                directory, name = self._place(one.path)
                directory.change(name, None)
            case _:
                raise RecordingFailed(f"{one.path}: changed by a call that the replay does not know")

    def _sync_range(self, one: Record) -> None:
        if "root" not in self._ignored:
            self._file(one.path).sync_range(one.offset, one.offset + len(one.data))

    def visible(self) -> Iterator[tuple[str, Node]]:
        """All that a process sees: path and what it stands for, the root left out."""
        return _walk(self.root, "", lambda directory: directory.shown)

    def _node(self, path: str) -> Node:
        node: Node = self.root
        for name in Path(path).parts:
            if not isinstance(node, Directory) or name not in node.shown:
                raise RecordingFailed(f"{path}: used before the log says that it was made")
            node = node.shown[name]
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if not isinstance(node, File):
            raise RecordingFailed(f"{path}: a directory, written to as a file")
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        inner = Path(path)
        directory = self._node(str(inner.parent))
        if not isinstance(directory, Directory):
            raise RecordingFailed(f"{path}: below a file")
        return directory, inner.name


def _walk(
    directory: Directory, prefix: str, names: "Callable[[Directory], dict[str, Node]]"
) -> Iterator[tuple[str, Node]]:
    for name, node in names(directory).items():
        yield prefix + name, node
        if isinstance(node, Directory):
            yield from _walk(node, f"{prefix}{name}/", names)


class Image:
    """What `disk` may hold if the power goes now, one of many: drawn by `random` in the manner of `variant`.

    `choices` tells two images of one disk apart: equal choices, equal images (but for what a file holds that was
    never written: rubbish or zeros).
    """

    def __init__(self, disk: Disk, variant: str, random: Random) -> None:
        self._variant = variant
        self._random = random
        self._rubbish = variant not in ("lost", "kept") and random.random() < 0.5
        self.choices: list[object] = []
        self.nodes: list[tuple[str, bytes | None]] = []
        """Path and content, None for a directory; parents first."""
        for path, node in _walk(disk.root, "", self._names):
            self.nodes.append((path, None if isinstance(node, Directory) else self._content(path, node)))

    def write(self, target: Path) -> None:
        """Make the files below `target`, which is there."""
        for path, content in self.nodes:
            if content is None:
                (target / path).mkdir()
            else:
                (target / path).write_bytes(content)

    def _names(self, directory: Directory) -> "dict[str, Node]":
        names = dict(directory.shown)
        for name, before in directory.before.items():
            if self._variant == "lost":
                index = 0
            elif self._variant in ("kept", "prefix", "root", "body"):
                index = len(before)
            else:
                index = self._random.randint(0, len(before))
            self.choices.append((name, index))
            node = [*before, directory.shown.get(name)][index]
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
        return names

    def _content(self, path: str, file: File) -> bytes:
        content = bytearray(file.kept)
        fill = self._random.randbytes if self._rubbish else bytes
        for index, sectors in DRAWS[self._variant](file.pending, self._random):
            one = file.pending[index]
            self.choices.append((path, index, sectors))
            if sectors is None:
                change(content, one, fill)
            else:
                for sector in sectors:
                    change(content, one.sector(sector), fill)
        return bytes(content)


Drawn = Iterator[tuple[int, tuple[int, ...] | None]]
"""Of the pending changes those that are on disk, in order: the index, and which sectors; None for all."""


def _lost(pending: list[Change], random: Random) -> Drawn:
    yield from ()


def _kept(pending: list[Change], random: Random) -> Drawn:
    yield from ((index, None) for index in range(len(pending)))


def _some(pending: list[Change], random: Random) -> Drawn:
    share = random.random()
    yield from ((index, None) for index in range(len(pending)) if random.random() < share)


def _torn(pending: list[Change], random: Random) -> Drawn:
    share = random.random()
    for index, one in enumerate(pending):
        if not one.data:
            if random.random() < share:
                yield index, None
        elif sectors := tuple(sector for sector in range(one.sectors) if random.random() < share):
            yield index, sectors


def _prefix(pending: list[Change], random: Random) -> Drawn:
    if not pending:
        return
    end = random.randrange(len(pending))
    yield from ((index, None) for index in range(end))
    if count := pending[end].sectors:
        yield end, tuple(range(random.randint(0, count)))


def _last(pending: list[Change], random: Random) -> Drawn:
    if pending:
        yield len(pending) - 1, None


def _but_last(pending: list[Change], random: Random) -> Drawn:
    yield from ((index, None) for index in range(len(pending) - 1))


def _root(pending: list[Change], random: Random) -> Drawn:
    yield from ((index, None) for index, one in enumerate(pending) if one.data and one.offset < META_BYTES)


def _body(pending: list[Change], random: Random) -> Drawn:
    yield from ((index, None) for index, one in enumerate(pending) if not one.data or one.offset >= META_BYTES)


DRAWS: Final[dict[str, Callable[[list[Change], Random], Drawn]]] = {
    "lost": _lost,
    "kept": _kept,
    "some": _some,
    "torn": _torn,
    "prefix": _prefix,
    "last": _last,
    "but-last": _but_last,
    "root": _root,
    "body": _body,
}
"""Ways in which what was not synced comes out of it; each is drawn anew for every file."""

VARIANTS: Final = tuple(DRAWS)
