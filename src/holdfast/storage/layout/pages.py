"""LMDB's file as it lies on disk, read page by page: its roots, its trees, its list of free pages.

Rules of this file: it only reads by `pread`, never through a mapping, so that a damaged or truncated file is a finding
and does not end the process; it changes nothing, and only knows LMDB. If others write the file, the caller must hold a
read transaction of LMDB, because otherwise the pages change during the walk.

Source: LMDB 0.9, mdb.c (`MDB_page`, `MDB_node`, `MDB_meta`, `MDB_db`), data version 1; integers and sizes are the
machine's own, as LMDB's are.
"""

import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["Damage", "Node", "Root", "Tree", "Walk", "read_root", "reusable_pages"]

MAGIC: Final = 0xBEEFC0DE
DATA_VERSION: Final = 1

_PAGE: Final = Struct("@NHHHH")
"""Page number, padding, flags, and the bounds of the free space in it."""
_RUN: Final = Struct("@NHHI")
"""The first page of an overflow run: the last field is the number of its pages."""
_TREE: Final = Struct("@IHHNNNNN")
_META: Final = Struct("@IIPN")
_META_TAIL: Final = Struct("@NN")
_NODE: Final = Struct("@HHHH")
_SIZE: Final = Struct("@N")
_META_BYTES: Final = _PAGE.size + _META.size + 2 * _TREE.size + _META_TAIL.size

BRANCH: Final = 0x01
LEAF: Final = 0x02
OVERFLOW: Final = 0x04
META: Final = 0x08

BIG: Final = 0x01
SUB: Final = 0x02

NO_PAGE: Final = (1 << (8 * _SIZE.size)) - 1
META_PAGES: Final = 2
DEPTH_MAX: Final = 32
"""LMDB's own bound on a cursor's stack."""
FREE_LIST: Final = "free list"
"""What the list of free pages is called in a `Damage`."""


class Damage(Exception):
    """The file is not as LMDB wrote it. The text names the page and what was found."""


class Tree(NamedTuple):
    """A B-tree's record: of the free list, of the unnamed database, or of a named one."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def pages(self) -> int:
        return self.branch_pages + self.leaf_pages + self.overflow_pages


class Root(NamedTuple):
    """The newer of the file's two meta pages: what the last transaction left."""

    page_bytes: int
    map_bytes: int
    free: Tree
    main: Tree
    last_page: int
    transaction: int

    @property
    def bytes(self) -> int:
        """The length that the file has at the least."""
        return (self.last_page + 1) * self.page_bytes


class Node(NamedTuple):
    """A record of a leaf. `data`: the value; where it lies in pages of its own, its first bytes. `size`: its length."""

    key: bytes
    flags: int
    data: bytes
    size: int


def read_root(fd: int) -> Root | None:
    """The newer root of the LMDB file open as `fd`; None where the file is not LMDB's, or of another version."""
    first = _read_meta(fd, 0)
    if first is None:
        return None
    second = _read_meta(fd, first.page_bytes)
    return first if second is None or second.transaction < first.transaction else second


def _read_meta(fd: int, at: int) -> Root | None:
    data = os.pread(fd, _META_BYTES, at)
    if len(data) < _META_BYTES:
        return None
    flags = _PAGE.unpack_from(data)[2]
    magic, version, _, map_bytes = _META.unpack_from(data, _PAGE.size)
    place = _PAGE.size + _META.size
    page_bytes = int.from_bytes(data[place : place + 4], sys.byteorder)  # the free list's record has it
    if not flags & META or magic != MAGIC or version != DATA_VERSION or not 256 <= page_bytes <= 65_536:
        return None
    last_page, transaction = _META_TAIL.unpack_from(data, place + 2 * _TREE.size)
    return Root(page_bytes, map_bytes, _tree(data, place), _tree(data, place + _TREE.size), last_page, transaction)


def _tree(data: bytes, at: int = 0) -> Tree:
    return Tree(*_TREE.unpack_from(data, at)[1:])


def tree_of(node: Node) -> Tree:
    """The named database that a record of the unnamed one describes."""
    if not node.flags & SUB or len(node.data) != _TREE.size:
        raise Damage(f"database {node.key!r}: its record has {node.size} bytes, expected {_TREE.size}")
    return _tree(node.data)


class _EachPage:
    """Which pages of a file were met, with a byte for each of the file's: for a walk of all of them."""

    def __init__(self, root: Root) -> None:
        self._met = bytearray(root.last_page + 1)
        self._met[:META_PAGES] = b"\1" * min(META_PAGES, len(self._met))

    def add(self, page: int, count: int) -> bool:
        """Notes [page, page + count); False where one of them was met before."""
        if self._met.find(1, page, page + count) >= 0:
            return False
        self._met[page : page + count] = b"\1" * count
        return True

    @property
    def unmet(self) -> int:
        return self._met.count(0)


class _FewPages:
    """The same as ranges, whose cost follows what was met: for a walk of a part of the file."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def add(self, page: int, count: int) -> bool:
        """As of `_EachPage`."""
        at = bisect_left(self._firsts, page + count)  # the ranges before it begin before the end of the new one
        if at and self._ends[at - 1] > page:
            return False
        self._firsts.insert(at, page)
        self._ends.insert(at, page + count)
        return True


class _Pages:
    """Reads the pages of one file, each once. `on_page` is called for each page that is read (progress)."""

    def __init__(
        self, fd: int, root: Root, met: _EachPage | _FewPages, on_page: Callable[[], None] | None = None
    ) -> None:
        self.fd = fd
        self.root = root
        self._met = met
        self._on_page = on_page

    def take(self, page: int, count: int, what: str) -> None:
        """Notes that `what` has pages [page, page + count). Raises `Damage` where another has one of them."""
        if not META_PAGES <= page <= page + count - 1 <= self.root.last_page:
            raise Damage(f"{what}: page {page}, which lies beyond the file's last, {self.root.last_page}")
        if not self._met.add(page, count):
            raise Damage(f"{what}: page {page} is used twice")

    def nodes(self, tree: Tree, what: str, *, whole: bool = False) -> Iterator[Node]:
        """The records of `tree`, in its order; `what` names it in a `Damage`. `whole`: long values in full.

        Held against the tree's own record: depth, the numbers of pages, of records.
        """
        counted = [0, 0, 0, 0]  # branch, leaf, overflow pages; records
        if tree.root != NO_PAGE:
            if not 0 < tree.depth <= DEPTH_MAX:
                raise Damage(f"{what}: invalid depth {tree.depth}; expected 1 to {DEPTH_MAX}")
            yield from self._below(tree.root, tree.depth, what, counted, whole)
        told = [tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries]
        names = ("branch pages", "leaf pages", "overflow pages", "records")
        for name, found, said in zip(names, counted, told, strict=True):
            if found != said:
                raise Damage(f"{what}: {found} {name}, its record says {said}")

    def _below(self, page: int, depth: int, what: str, counted: list[int], whole: bool) -> Iterator[Node]:
        data = self._page(page, what)
        kind = LEAF if depth == 1 else BRANCH
        counted[kind == LEAF] += 1
        for place in _places(data, page, kind, what):
            low, high, flags, key_bytes = _NODE.unpack_from(data, place)
            start = place + _NODE.size + key_bytes
            if kind == BRANCH:
                if start > len(data):
                    raise Damage(f"{what}: page {page} has a key of {key_bytes} bytes at {place}")
                yield from self._below(_child(low, high, flags), depth - 1, what, counted, whole)
                continue
            size = low | high << 16
            end = start + (_SIZE.size if flags & BIG else size)
            if end > len(data):
                raise Damage(f"{what}: page {page} has a record of {key_bytes} and {size} bytes at {place}")
            counted[3] += 1
            value = data[start:end]
            if flags & BIG:
                value = self._overflow(_SIZE.unpack(value)[0], size, what, counted, whole)
            yield Node(data[place + _NODE.size : start], flags, value, size)

    def _page(self, page: int, what: str) -> bytes:
        self.take(page, 1, what)
        data = os.pread(self.fd, self.root.page_bytes, page * self.root.page_bytes)
        if len(data) < self.root.page_bytes or _PAGE.unpack_from(data)[0] != page:
            raise Damage(f"{what}: page {page} is not there")
        if self._on_page is not None:
            self._on_page()
        return data

    def _overflow(self, page: int, size: int, what: str, counted: list[int], whole: bool) -> bytes:
        """Takes the pages of a long value; its bytes, or the first of them."""
        data = self._page(page, what)
        flags, count = _RUN.unpack_from(data)[2:]
        needed = -(-(_PAGE.size + size) // self.root.page_bytes)
        if not flags & OVERFLOW or count < needed:
            raise Damage(f"{what}: page {page} has flags {flags:#x} and {count} pages for a value of {size} bytes")
        if count > 1:
            self.take(page + 1, count - 1, what)
        counted[2] += count
        if whole:  # only its first page has a header
            return os.pread(self.fd, size, page * self.root.page_bytes + _PAGE.size)
        return data[_PAGE.size : _PAGE.size + size]


class Walk(_Pages):
    """Every page of one file, each met once."""

    def __init__(self, fd: int, root: Root, on_page: Callable[[], None] | None = None) -> None:
        self._all = _EachPage(root)
        super().__init__(fd, root, self._all, on_page)

    def free_list(self) -> int:
        """Takes every page of the list of free pages; their number."""
        total = 0
        for node in self.nodes(self.root.free, FREE_LIST, whole=True):
            count = _pages_of(node)
            for page in Struct(f"@{count}N").unpack_from(node.data, _SIZE.size):
                self.take(page, 1, FREE_LIST)
            total += count
        return total

    def unaccounted(self) -> int:
        """Pages that neither a tree nor the list of free pages has; asked once all of them were walked."""
        return self._all.unmet


def reusable_pages(fd: int, root: Root, before: int) -> int:
    """Free pages that a transaction may reuse while a reader of transaction `before` is active.

    Reads the list only as far as its records are older than `before`: they are in the order of their transactions. What
    it costs follows that, and not the size of the file. Raises `Damage`.
    """
    total = 0
    for node in _Pages(fd, root, _FewPages()).nodes(root.free, FREE_LIST):
        count = _pages_of(node)
        if _SIZE.unpack(node.key)[0] >= before:
            break
        total += count
    return total


def _pages_of(node: Node) -> int:
    """How many pages a record of the free list has."""
    count: int = _SIZE.unpack_from(node.data)[0] if len(node.data) >= _SIZE.size else -1
    if len(node.key) != _SIZE.size or count < 0 or (count + 1) * _SIZE.size > node.size:
        raise Damage(f"{FREE_LIST}: a record of {node.size} bytes says that it has {count} pages")
    return count


def _places(data: bytes, page: int, kind: int, what: str) -> tuple[int, ...]:
    """Where the records of a page begin. Raises `Damage` for a page of another kind, or bounds that cannot be."""
    flags, lower, upper = _PAGE.unpack_from(data)[2:]
    if flags & (BRANCH | LEAF | OVERFLOW | META) != kind:
        raise Damage(f"{what}: page {page} has flags {flags:#x}, expected {'leaf' if kind == LEAF else 'branch'}")
    if not _PAGE.size <= lower <= upper <= len(data) or (lower - _PAGE.size) % 2:
        raise Damage(f"{what}: page {page} says that {lower} to {upper} of its {len(data)} bytes are free")
    places: tuple[int, ...] = Struct(f"@{(lower - _PAGE.size) // 2}H").unpack_from(data, _PAGE.size)
    for place in places:
        if not upper <= place <= len(data) - _NODE.size:
            raise Damage(f"{what}: page {page} has a record at {place}, expected {upper} to {len(data)}")
    return places


def _child(low: int, high: int, flags: int) -> int:
    return low | high << 16 | (flags << 32 if _SIZE.size == 8 else 0)
