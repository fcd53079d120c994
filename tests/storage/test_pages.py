"""LMDB's file read from outside: held against what LMDB itself says of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from struct import Struct

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.port import Batch
from holdfast.storage.layout.pages import (
    META_PAGES,
    NO_PAGE,
    SUB,
    Damage,
    Root,
    Tree,
    Walk,
    _EachPage,
    _FewPages,
    read_root,
    reusable_pages,
    tree_of,
)
from holdfast.storage.lmdb import LmdbStore

NO_TREE = Tree(0, 0, 0, 0, 0, 0, NO_PAGE)
SIZES = (0, 10, 900, 3_000, 5_000, 70_000, 300_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    """Of many commits: values of every kind come, are written anew and leave."""
    random = Random(3)
    store = LmdbStore(tmp_path, ahead_bytes=1 << 20)
    for number in range(60):
        appends = [(1, number * 50 + place, random.randbytes(random.choice(SIZES))) for place in range(20)]
        retires = [(1, (number - 9) * 50 + place) for place in range(20) if number > 8 and (place % 7 or number % 2)]
        store.commit(Batch(appends=appends, retires=retires, puts={("node", b"%d" % number): bytes(300)}))
    yield store
    store.close()


def root_of(store: LmdbStore) -> Root:
    root = read_root(store._data_fd)
    assert root is not None
    return root


def test_the_newer_root_is_the_one_that_lmdb_reads(store: LmdbStore) -> None:
    for _ in range(3):
        info, root = store._env.info(), root_of(store)
        assert (root.transaction, root.last_page) == (info["last_txnid"], info["last_pgno"])
        assert (root.page_bytes, root.map_bytes) == (store._page_bytes, info["map_size"])
        assert root.main.entries == store._env.stat()["entries"]
        store.mint()


def test_a_walk_meets_every_page_once_and_every_record(store: LmdbStore) -> None:
    root = root_of(store)
    read: list[None] = []
    walk = Walk(store._data_fd, root, lambda: read.append(None))
    trees = [(node.key, tree_of(node)) for node in walk.nodes(root.main, "main") if node.flags & SUB]
    with store._env.begin() as txn:
        for name, tree in trees:
            database = store._env.open_db(name, txn=txn, create=False)
            stat = txn.stat(database)
            pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            assert (tree.entries, tree.pages, tree.depth) == (stat["entries"], pages, stat["depth"])
            records = [(node.key, node.size) for node in walk.nodes(tree, name.decode())]
            assert records == [(key, len(value)) for key, value in txn.cursor(db=database)]
    free = walk.free_list()
    used = META_PAGES + root.main.pages + root.free.pages + sum(tree.pages for _, tree in trees)
    assert free + used == root.last_page + 1 and walk.unaccounted() == 0
    assert len(read) > len(trees)


def test_free_pages_that_a_reader_leaves_to_be_used(store: LmdbStore) -> None:
    root = root_of(store)
    walk = Walk(store._data_fd, root)
    by_age = {}
    for node in walk.nodes(root.free, "free", whole=True):
        by_age[int.from_bytes(node.key, "little")] = int.from_bytes(node.data[:8], "little")
    assert len(by_age) > 1
    for before in (0, *sorted(by_age), 1 << 40):
        told = sum(count for transaction, count in by_age.items() if transaction < before)
        assert reusable_pages(store._data_fd, root, before) == told


def test_what_the_free_pages_cost_does_not_grow_with_the_file(store: LmdbStore) -> None:
    root = root_of(store)
    told = reusable_pages(store._data_fd, root, 1 << 40)
    assert reusable_pages(store._data_fd, root._replace(last_page=1 << 50), 1 << 40) == told > 0


@given(st.lists(st.tuples(st.integers(META_PAGES, 40), st.integers(1, 8)), max_size=20))
def test_few_pages_know_what_was_met_as_each_page_does(taken: list[tuple[int, int]]) -> None:
    each, few = _EachPage(Root(4096, 0, NO_TREE, NO_TREE, 64, 0)), _FewPages()
    for page, count in taken:
        assert few.add(page, count) == each.add(page, count)


def test_a_long_list_of_free_pages_is_counted_through_its_branches(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), map_size=1 << 27, max_readers=4, sync=False) as env:
        for number in range(800):
            with env.begin(write=True) as txn:
                txn.put(b"%06d" % number, bytes(3_000))
        reader = env.begin()
        for number in range(700):  # what each frees stays a record of its own while somebody reads
            with env.begin(write=True) as txn:
                txn.delete(b"%06d" % number)
        fd = os.open(tmp_path / "data.mdb", os.O_RDONLY)
        root = read_root(fd)
        assert root is not None and root.free.depth > 1 and root.free.entries > 600
        since = reader.id()
        kept = reusable_pages(fd, root, since)
        assert kept < 20 < reusable_pages(fd, root, root.transaction + 1) == Walk(fd, root).free_list()
        reader.abort()
        os.close(fd)


@pytest.mark.parametrize("content", [b"", b"x", bytes(8_192), b"\xff" * 8_192])
def test_what_is_not_lmdbs_has_no_root(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        assert read_root(file.fileno()) is None


def test_pages_beyond_the_end_or_used_twice_are_damage(store: LmdbStore) -> None:
    root = root_of(store)
    walk = Walk(store._data_fd, root)
    walk.take(META_PAGES, 2, "one")
    with pytest.raises(Damage, match=f"two: page {META_PAGES + 1} is used twice"):
        walk.take(META_PAGES + 1, 1, "two")
    for first, count in ((root.last_page, 2), (root.last_page + 1, 1), (META_PAGES - 1, 1)):
        with pytest.raises(Damage, match="lies beyond the file's last"):
            walk.take(first, count, "three")
    walk.take(root.last_page, 1, "four")


@pytest.mark.parametrize("change", ["rubbish", "short", "key", "count", "page"])
def test_a_damaged_list_of_free_pages_is_damage(store: LmdbStore, tmp_path: Path, change: str) -> None:
    root = root_of(store)
    content = bytearray((tmp_path / "data.mdb").read_bytes())
    at = root.free.root * root.page_bytes
    (first,) = Struct("@H").unpack_from(content, at + 16)
    if change == "rubbish":
        content[at : at + root.page_bytes] = Random(1).randbytes(root.page_bytes)
    elif change == "short":
        del content[at + 100 :]
    elif change == "key":
        content[at + first + 6] = 5
    elif change == "count":
        content[at + first + 16 : at + first + 24] = b"\xff" * 8
    else:
        root = root._replace(free=root.free._replace(root=1 << 62))
    (tmp_path / "damaged").write_bytes(content)
    with (tmp_path / "damaged").open("rb") as file, pytest.raises(Damage, match="free list"):
        reusable_pages(file.fileno(), root, 1 << 40)
