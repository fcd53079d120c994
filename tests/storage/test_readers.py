"""Who reads beside a node: what was there when a backup began stays readable, whatever the node writes meanwhile."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import lmdb
import pytest

from holdfast.engine.port import Batch
from holdfast.errors import StorageError, StorageFull
from holdfast.storage.files import environment, readers
from holdfast.storage.files.copying import open_quiet
from holdfast.storage.files.readers import BackupReaderLock
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.backup import backup
from holdfast.units import MIB
from support import today

LIMIT_S = 20.0

OTHER = """
import os, sys
from pathlib import Path
from holdfast.storage.files.copying import copy_out, open_quiet
from holdfast.storage.files.readers import BackupReaderLock
path = Path(sys.argv[1])
data = os.open(path / "data.mdb", os.O_RDONLY)
places, txns, seen = {}, {}, {}
def content(env, txn):
    found = []
    for name in (b"entries", b"chunks"):
        with txn.cursor(db=env.open_db(name, txn=txn, create=False)) as cursor:
            found += list(cursor)
    return found
def place(number):
    places[number] = BackupReaderLock(path, data)
def begin(number):
    txns[number] = places[number].begin(env)
    seen[number] = content(env, txns[number])
    return len(seen[number])
def same(number):
    return content(env, txns[number]) == seen[number]
def copy(number):
    target = path / f"copy-{number}"
    target.mkdir()
    copy_out(env, target / "data.mdb", txn=txns[number])
    with open_quiet(target) as copied, copied.begin() as txn:
        return content(copied, txn) == seen[number]
def end(number):
    txns.pop(number).abort()
    places.pop(number).close()
with open_quiet(path) as env:
    print("open", flush=True)
    for line in sys.stdin:
        word, number = line.split()
        print(globals()[word](number), flush=True)
"""


class Other:
    """Another process that reads a store as backups do, several at once."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", OTHER, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.hear() == "open"

    def __enter__(self) -> "Other":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, word: str, number: int = 0) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word} {number}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def answer(self, word: str, number: int = 0) -> str:
        self.ask(word, number)
        return self.hear()

    def place(self, number: int = 0) -> None:
        """From now on what the store holds stays readable for that one."""
        assert self.answer("place", number) == "None"

    def begin(self, number: int = 0) -> int:
        """Its transaction; how many records it sees."""
        return int(self.answer("begin", number))

    def check(self, number: int = 0) -> None:
        """It sees what it saw."""
        assert self.answer("same", number) == "True"

    def end(self, number: int = 0) -> None:
        assert self.answer("end", number) == "None"


class Churn:
    """Batches that fill and empty a store at random, so that its pages are soon used again."""

    def __init__(self, store: LmdbStore, seed: int) -> None:
        self._store = store
        self._random = Random(seed)
        self._held: list[int] = []
        self._next = 1

    def step(self) -> None:
        random = self._random
        added = range(self._next, self._next + random.randint(0, 60))
        self._next = added.stop
        gone = random.sample(self._held, len(self._held) * random.randint(0, 9) // 10)
        self._held = sorted({*self._held, *added} - {*gone})
        appends = [(1, number, random.randbytes(random.choice((20, 900, 9_000)))) for number in added]
        self._store.commit(Batch(appends=appends, retires=[(1, number) for number in gone]))

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


# ------------------------------------------------------------------------------------------------ the table


def written_through_memory() -> set[str]:
    """Files that this process has mapped so that it may write them."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return {words[5] for words in lines if words[1].startswith("rw-s") and words[4] != "0"}


def test_no_file_of_the_store_is_written_through_memory(tmp_path: Path) -> None:
    before = written_through_memory()
    store = LmdbStore(tmp_path)
    store.commit(Batch(appends=[(1, 1, b"x")]))
    assert store.get(1, 1) == b"x" and store.table_in_memory
    (table,) = written_through_memory() - before
    assert table.startswith("/memfd:holdfast-readers")
    store.close()
    assert written_through_memory() == before


def test_what_the_opening_needs_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = environment.tempfile.mkdtemp

    def noted(*, prefix: str, dir: str) -> str:
        made.append(make(prefix=prefix, dir=dir))
        return made[-1]

    monkeypatch.setattr(environment.tempfile, "mkdtemp", noted)
    LmdbStore(tmp_path / "store").close()
    assert made and not any(Path(place).exists() for place in made)


def test_where_memory_has_no_place_for_links_the_store_itself_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "MEMORY", "/nowhere")
    monkeypatch.setattr(environment.tempfile, "tempdir", "/nowhere")
    store = LmdbStore(tmp_path)
    assert store.table_in_memory
    store.close()
    assert sorted(os.listdir(tmp_path)) == ["data.mdb", "lock", "lock.mdb", "opened-1"]


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_another_process_reads_stays_wherever_the_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    if not in_memory:

        def refused(name: str) -> int:
            raise OSError("not here")

        monkeypatch.setattr(environment.os, "memfd_create", refused)
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    assert store.table_in_memory == in_memory
    churn = Churn(store, 1)
    churn.steps(30)
    with Other(tmp_path) as other:
        other.place()
        assert other.begin() > 0
        churn.steps(100)
        other.check()
        assert store._readers.foreign
    churn.step()
    assert not store._readers.foreign  # it was killed
    store.close()


# ------------------------------------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("seed", today.some(range(2), 1))
def test_what_was_there_stays_however_many_read_and_whenever_they_begin(tmp_path: Path, seed: int) -> None:
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    random, churn = Random(seed), Churn(store, seed)
    churn.steps(20)
    with Other(tmp_path) as other:
        places: list[int] = []
        for number in range(200):
            drawn = random.random()
            if drawn < 0.1 and len(places) < 5:
                other.place(number)
                churn.steps(random.choice((0, 0, 1, 7)))  # between its place and its transaction
                other.begin(number)
                places.append(number)
            elif drawn < 0.15 and places:
                ended = places.pop(random.randrange(len(places)))
                other.check(ended)
                other.end(ended)
            churn.step()
            assert store._readers.foreign == bool(places)
        for number in places:
            other.check(number)
    store.close()


def test_a_copy_is_of_the_moment_at_which_it_began(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    churn = Churn(store, 5)
    churn.steps(40)
    with Other(tmp_path) as other:
        other.place()
        other.begin()
        churn.steps(60)
        assert other.answer("copy") == "True"
    store.close()


def test_transactions_within_one_commit_heed_it_too(tmp_path: Path) -> None:
    """A store that is full tries again after two of them."""
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    churn = Churn(store, 6)
    churn.steps(20)
    with Other(tmp_path) as other:
        other.place()
        other.begin()
        for _ in range(20):
            store._touch()
            store._touch()
            churn.step()
        other.check()
    store.close()


def test_a_store_that_is_read_when_a_node_opens_it_stays_readable(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, ahead_bytes=MIB)
    Churn(store, 7).steps(20)
    store.close()
    with Other(tmp_path) as other:
        other.place()
        other.begin()
        store = LmdbStore(tmp_path, ahead_bytes=MIB)
        assert store._readers.foreign
        held = store.read(1, 0, count_max=1_000, bytes_max=1 << 30)
        store.commit(Batch(retires=[(1, number) for number, _ in held]))
        for first in range(10_000, 20_000, 500):
            store.commit(Batch(appends=[(1, first + number, bytes(500)) for number in range(500)]))
            store.commit(Batch(retires=[(1, first + number) for number in range(500)]))
        other.check()
    store.close()


def test_a_smaller_bound_at_the_start_heeds_it_too(tmp_path: Path) -> None:
    """The file is mapped anew then, which ends the transactions that LMDB knows."""
    store = LmdbStore(tmp_path, ahead_bytes=MIB, bytes_max=32 * MIB)
    for first in range(0, 10_000, 500):
        store.commit(Batch(appends=[(1, first + number, bytes(1_000)) for number in range(500)]))
    store.close()
    with Other(tmp_path) as other:
        other.place()
        other.begin()
        store = LmdbStore(tmp_path, ahead_bytes=MIB, bytes_max=4 * MIB)
        for first in range(0, 10_000, 500):
            try:
                store.commit(Batch(retires=[(1, first + number) for number in range(500)]))
            except StorageFull:  # what is read is kept, and there is no more space
                break
        other.check()
    store.close()


# ------------------------------------------------------------------------------------------------ beginning


class Held:
    """A store with a commit under way until `go_on`."""

    def __init__(self, path: Path) -> None:
        self._at = Event()
        self.go_on = Event()
        self.store = LmdbStore(path, on_point=self._passed)
        self._commit = Thread(target=self.store.commit, args=(Batch(appends=[(1, 1, b"x")]),))

    def _passed(self, name: str) -> None:
        if name == "committing":
            self._at.set()
            self.go_on.wait(LIMIT_S)

    def begin(self) -> None:
        self._commit.start()
        assert self._at.wait(LIMIT_S)

    def answers_after(self, other: Other, word: str, number: int) -> str:
        """What `other` answers, which it does not before the commit has ended."""
        heard: list[str] = []
        other.ask(word, number)
        hearing = Thread(target=lambda: heard.append(other.hear()))
        hearing.start()
        hearing.join(0.1)
        assert not heard
        self.go_on.set()
        hearing.join(LIMIT_S)
        return heard[0]

    def end(self) -> None:
        self._commit.join(LIMIT_S)
        self.store.close()


def test_a_backup_waits_for_a_commit(tmp_path: Path) -> None:
    held = Held(tmp_path)
    with Other(tmp_path) as other:
        held.begin()
        assert held.answers_after(other, "place", 1) == "None"
        assert other.begin(1) == 1
    held.end()


def test_a_backup_waits_no_longer_than_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ADMIT_S", 0.05)
    held = Held(tmp_path)
    held.begin()
    data = os.open(tmp_path / "data.mdb", os.O_RDONLY)
    with pytest.raises(StorageError, match=r"its node has been at one commit for 0\.05 s"):
        BackupReaderLock(tmp_path, data)
    os.close(data)
    held.go_on.set()
    held.end()


def test_a_backup_begins_between_two_commits_while_another_reads(tmp_path: Path) -> None:
    """A root that is half written is nothing to begin from."""
    held = Held(tmp_path)
    with Other(tmp_path) as other:
        other.place(1)
        other.place(2)
        held.begin()  # pinned: it does not wait for those who read
        assert held.answers_after(other, "begin", 2) == "1"
    held.end()


def test_a_backup_that_is_stopped_while_it_begins_holds_no_commit_up_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "BEGIN_S", 0.05)
    store = LmdbStore(tmp_path)
    data = os.open(tmp_path / "data.mdb", os.O_RDONLY)
    place = BackupReaderLock(tmp_path, data)
    fcntl.flock(data, fcntl.LOCK_EX)
    began = time.monotonic()
    store.commit(Batch(appends=[(1, 1, b"x")]))
    assert store.get(1, 1) == b"x"
    assert time.monotonic() >= began + 0.05
    fcntl.flock(data, fcntl.LOCK_UN)
    place.close()
    os.close(data)
    store.close()


@pytest.mark.parametrize("where", ["before it knows that it has the lock", "after it has begun"])
def test_a_beginning_that_took_too_long_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The node may have gone on meanwhile."""
    monkeypatch.setattr(readers, "BEGIN_S", 0.2)
    LmdbStore(tmp_path).close()
    data = os.open(tmp_path / "data.mdb", os.O_RDONLY)
    place = BackupReaderLock(tmp_path, data)
    begun: list[Any] = []
    flock = fcntl.flock

    def stopped(fd: int, kind: int) -> None:
        flock(fd, kind)
        if where == "before it knows that it has the lock" and not begun:
            time.sleep(0.15)

    monkeypatch.setattr(readers.fcntl, "flock", stopped)

    class Slow:
        def begin(self) -> Any:
            begun.append(env.begin())
            if where == "after it has begun" and len(begun) == 1:
                time.sleep(0.15)
            return begun[-1]

    with open_quiet(tmp_path) as env:
        txn = place.begin(Slow())  # type: ignore[arg-type]  # stands in for an environment
        assert len(begun) >= 2 and txn is begun[-1]
        with pytest.raises(lmdb.Error):
            begun[0].stat()
        txn.abort()
    place.close()
    os.close(data)


# ------------------------------------------------------------------------------------------------ by LMDB's table

BY_TABLE = """
import sys, lmdb
env = lmdb.open(sys.argv[1], readonly=True, create=False, max_dbs=16, map_size=1 << 34)
print("reading", flush=True)
sys.stdin.readline()
"""


def by_table(path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BY_TABLE, str(path)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_who_would_read_by_lmdbs_own_table_is_turned_away(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    with by_table(tmp_path) as other:
        assert "MDB_INVALID" in other.communicate("", timeout=LIMIT_S)[1]
        assert other.returncode == 1
    store.close()
    with by_table(tmp_path) as other:  # nobody writes now
        assert other.stdout is not None and other.stdout.readline() == "reading\n"
        with pytest.raises(
            StorageError, match=r"by a program that knows LMDB's own table of readers alone.*end that first"
        ):
            LmdbStore(tmp_path)
        with pytest.raises(StorageError, match="by a program that knows LMDB's own table of readers alone"):
            backup(tmp_path, tmp_path.with_name("copy"))
        other.communicate("", timeout=LIMIT_S)
    with Other(tmp_path) as beside:
        beside.place()
        with by_table(tmp_path) as other:
            assert "MDB_INVALID" in other.communicate("", timeout=LIMIT_S)[1]
    LmdbStore(tmp_path).close()
