"""`holdfast store check`: a sound store has no findings, and each kind of damage is one line with its place."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast.broker.entries import entry, packed
from holdfast.broker.queue import COUNTERS
from holdfast.broker.stored import custody_records, records
from holdfast.broker.stored.origins import Origin
from holdfast.broker.stored.tags import TagRing
from holdfast.engine.port import PIECE_BYTES
from holdfast.errors import StorageError
from holdfast.storage.files.copying import open_quiet
from holdfast.storage.layout.pages import read_root
from holdfast.storage.layout.records import pack
from holdfast.storage.lmdb import LmdbStore
from holdfast.storage.upkeep.check import check
from holdfast.storage.upkeep.check_rows import FINDINGS_MAX
from support.stores import LoneNode, bare_of

LARGE = 200_000
PLAIN = entry.pack_plain(True, 1, 0, bare_of(10))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A queue with gaps and large entries, one in custody, a subscription, a producer, a link to resume, numbers that
    are given anew, origins of two names, and a loss."""
    node = LoneNode(tmp_path / "store")
    node.fill("q", 600)
    node.fill("q", 3, size=LARGE)
    node.fill("@hub", 7)
    queue = node.queue("q")
    for sequence in (1, 2, 3, 100, 101, 300):
        value = queue.value(sequence)
        assert value is not None
        queue.retire(sequence, packed.size_of(value))
    node.turn(1)
    queue.add_cursor("audit", "copy", 50)
    producer = node.core.catalog.producers.named("sensor", "q")
    producer.stored.add(1, 40)
    node.core.catalog.producers.put(producer)
    node.core.losses.add(uuid4(), [(1, 4)], "for the test")
    rows = node.core.work.batch.puts
    rows["custody", b"lin"] = custody_records.pack_link(60.0, "q", TagRing(9, [(5, 8)]))
    rows["custody", b"whub"] = custody_records.pack_renewal(custody_records.Renewal(uuid4(), 3, 4, 4))
    for suffix in ("", "jfk"):
        rows[custody_records.origin_key(uuid4(), suffix)] = custody_records.pack_origin(Origin(uuid4(), 7).record())
    rows["node", custody_records.FIRST_NAME] = b"jfk"
    rows["node", custody_records.WAITED] = custody_records.pack_waited([(9, "jfk")])
    node.settle()
    node.stop()
    return tmp_path / "store"


def test_a_sound_store_is_counted_and_nothing_is_found(store: Path) -> None:
    before = (store / "data.mdb").read_bytes()
    seen: list[tuple[int, int]] = []
    checked = check(store, lambda done, total: seen.append((done, total)))
    assert checked.findings == [] and checked.found == 0
    assert (checked.queues, checked.entries, checked.backup) == (2, 604, None)
    assert checked.bytes == 594 * (100 + 8) + 3 * (LARGE + 8) + 7 * (100 + 8)
    assert all(done <= total for done, total in seen)
    assert (store / "data.mdb").read_bytes() == before


def change(store: Path, do: Callable[[Any, dict[bytes, Any]], None]) -> None:
    with open_quiet(store, write=True) as env, env.begin(write=True) as txn:
        names = [key for key, value in txn.cursor() if len(value) == 48]
        do(txn, {name: env.open_db(name, txn=txn, create=False) for name in names})


def found(store: Path) -> list[str]:
    return check(store).findings


def place(queue_id: int, sequence: int) -> bytes:
    return queue_id.to_bytes(4, "big") + sequence.to_bytes(8, "big")


def row(table: str, key: bytes) -> bytes:
    return table.encode() + b"\0" + key


Change = Callable[[Any, dict[bytes, Any]], None]


def put(name: bytes, key: bytes, value: bytes) -> Change:
    return lambda txn, named: txn.put(key, value, db=named[name])


def drop(name: bytes, key: bytes) -> Change:
    return lambda txn, named: txn.delete(key, db=named[name])


def blob_piece(blob: int, index: int) -> bytes:
    return blob.to_bytes(8) + index.to_bytes(4)


BLOB_ROW = b"blobs\0" + records.blob_key(1)
BLOB = records.BlobRecord(2 * PIECE_BYTES + 3, 0, 3, ((1, 1),))


def record(*entries: tuple[int, int, bytes]) -> Change:
    (group,) = pack(entries)

    def do(txn: Any, named: dict[bytes, Any]) -> None:
        for key, value in group.records:
            txn.put(key, value, db=named[b"entries"])

    return do


@pytest.mark.parametrize(
    ("do", "findings"),
    [
        (record((1, 2_000, PLAIN)), ["597 messages, but there are 598", "bytes, but there are", "an entry is at 2000"]),
        (record((9, 1, PLAIN)), ["queue id 9, sequence 1: there is no such queue"]),
        (record((1, 0, PLAIN)), ["an entry with the sequence 0", "there are 598", "bytes, but there are"]),
        (
            record((1, 1_500, b"junk")),
            ["sequence 1500: 4 bytes that are no entry", "there are 598", "an entry is at 1500"],
        ),
        (record((1, 599, PLAIN)), ["sequence 599: two records hold it", "there are 59", "bytes, but there are"]),
        (drop(b"chunks", place(1, 602) + b"\0\0\0\1"), ["sequence 602: chunk 1 is missing", "bytes, but there are"]),
        (put(b"chunks", place(1, 4_000) + b"\0\0\0\0", b"x"), ["chunks: key", "belongs to no entry"]),
        (put(b"gaps", place(1, 601), b"\1"), ["gaps: key", "belongs to no record of several"]),
        (put(b"gaps", place(5, 1), b"\1"), ["gaps: key 000000050000000000000001 belongs to no entry"]),
        (put(b"entries", b"short", b"\0\1"), ["entries: key 73686f7274 of a record of 2 bytes"]),
        (put(b"entries", place(1, 3_000), b"\0\2\0\0\0\1\0\0\0\1"), ["sequence 3000: a record of 10 bytes does not"]),
        (put(b"tables", b"strangers\0x", b""), ["tables: key b'strangers\\x00x' belongs to no table"]),
        (put(b"tables", row("queues", b"q2"), b"\x40"), ["table queues: row b'q2' cannot be read"]),
        (
            put(b"tables", row("queues", b"again"), records.pack_map({"id": 1, "uuid": UUID(int=3), "durable": True})),
            ["queue 'q': has the id 1, as queue 'again' has"],
        ),
        (
            put(b"tables", row("queues", b"q9"), records.pack_map({"id": 9, "uuid": "none", "durable": True})),
            ["queue 'q9': it has no UUID"],
        ),
        (put(b"tables", row("node", b"zzz"), b""), ["table node: row b'zzz' cannot be read"]),
        (put(b"tables", row("node", b"q" + bytes(4)), bytes(32)), ["counters of queue id 0: there is no such queue"]),
        (put(b"tables", row("node", b"q\0\0\0\1"), b"12"), ["table node: row b'q\\x00\\x00\\x00\\x01' cannot be read"]),
        (put(b"tables", row("subscriptions", b"\0\0\0\7s"), bytes(25)), ["subscription 's': there is no queue"]),
        (put(b"tables", row("custody", b"x"), b""), ["table custody: row b'x' cannot be read"]),
        (put(b"tables", row("custody", b"ihub"), b"1"), ["table custody: row b'ihub' cannot be read"]),
        (put(b"tables", row("custody", b"lin"), bytes(13)), ["table custody: row b'lin' cannot be read"]),
        (put(b"tables", row("origins", b"short"), b""), ["table origins: row b'short' cannot be read"]),
        (put(b"tables", row("producers", b"name"), bytes(16)), ["table producers: row b'name' cannot be read"]),
        (lambda txn, named: txn.put(b"more", b"x"), ["data.mdb: b'more' is not known to this version"]),
        (lambda txn, named: txn.drop(named[b"gaps"]), ["data.mdb: there is no database gaps"]),
    ],
)
def test_what_contradicts_itself_is_found_with_its_place(store: Path, do: Change, findings: list[str]) -> None:
    change(store, do)
    lines = found(store)
    assert lines and all(any(wanted in line for line in lines) for wanted in findings), lines


def test_an_entry_of_a_message_of_no_bytes_is_one(store: Path) -> None:
    """The layout allows it; a byte less than an entry's fixed part is none."""
    empty = entry.pack_plain(True, 1, 0, b"")
    assert packed.size_of(empty) == 0
    change(store, record((1, 2_000, empty), (1, 2_001, empty[:-1])))
    lines = found(store)
    assert not [line for line in lines if "sequence 2000" in line or "bytes, but there are" in line]
    assert len([line for line in lines if f"sequence 2001: {len(empty) - 1} bytes that are no entry" in line]) == 1


def test_counters_are_held_against_what_is_there(store: Path) -> None:
    key = row("node", records.counters_key(1))

    def do(txn: Any, named: dict[bytes, Any]) -> None:
        following, messages, size, mark = COUNTERS.unpack(txn.get(key, db=named[b"tables"]))
        txn.put(key, COUNTERS.pack(following, messages + 1, size - 1, mark), db=named[b"tables"])

    change(store, do)
    lines = found(store)
    assert len(lines) == 2
    assert lines[0] == "queue 'q': its counter says 598 messages, but there are 597"
    assert lines[1].startswith("queue 'q': its counter says ") and "bytes, but there are" in lines[1]


def test_findings_are_kept_up_to_a_bound_and_counted_beyond(store: Path) -> None:
    def do(txn: Any, named: dict[bytes, Any]) -> None:
        for sequence in range(FINDINGS_MAX + 1):
            txn.put(place(7, 1 + sequence) + b"\0\0\0\0", b"x", db=named[b"chunks"])

    change(store, do)
    checked = check(store)
    assert (checked.found, len(checked.findings)) == (FINDINGS_MAX + 1, FINDINGS_MAX)


def test_a_file_of_another_kind_or_cut_short_is_one_finding(store: Path) -> None:
    size = (store / "data.mdb").stat().st_size
    with (store / "data.mdb").open("rb") as file:
        root = read_root(file.fileno())
    assert root is not None
    os.truncate(store / "data.mdb", root.bytes - 1)
    assert found(store) == [f"data.mdb is cut short; it has {root.bytes - 1} bytes, expected {root.bytes}"]
    (store / "data.mdb").write_bytes(b"\0" * size)
    assert found(store) == ["data.mdb: it is no LMDB file of this machine's kind"]


def test_pages_overwritten_anywhere_are_found_or_free_and_end_no_process(store: Path) -> None:
    """Each page in turn holds rubbish; what then opens without a finding held the same before."""
    file = store / "data.mdb"
    with open_quiet(store) as env:
        last = env.info()["last_pgno"]
    whole = file.read_bytes()[: (last + 1) * 4_096]
    random = Random(1)
    seen = 0
    for page in range(2, last + 1):
        file.write_bytes(whole[: page * 4_096] + random.randbytes(4_096) + whole[(page + 1) * 4_096 :])
        seen += bool(found(store))
    file.write_bytes(whole)
    with open_quiet(store) as env, env.begin() as txn:
        stats = [txn.stat(), *[txn.stat(env.open_db(name, txn=txn)) for name in (b"entries", b"tables")]]
    used = sum(stat["branch_pages"] + stat["leaf_pages"] for stat in stats)
    assert seen >= used
    assert found(store) == []


def test_a_store_in_use_is_refused_with_who_holds_it(tmp_path: Path) -> None:
    held = LmdbStore(tmp_path / "store")
    with pytest.raises(StorageError, match=f"store {tmp_path}/store: in use by process {os.getpid()}"):
        check(tmp_path / "store")
    held.close()


def test_where_no_store_is_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no store"):
        check(tmp_path)
    assert os.listdir(tmp_path) == []


def large_store(path: Path) -> Path:
    """A queue with one message of three pieces."""
    node = LoneNode(path)
    pieces = [bytes(PIECE_BYTES), bytes(PIECE_BYTES), b"end"]
    length = sum(map(len, pieces))
    queue = node.core.catalog.own("", "q")
    value = entry.pack(flags=entry.BLOB, enqueued_ms=1, bare=entry.reference(1, length))
    blob = node.core.blobs.new()
    blob.length, blob.end = length, len(pieces)
    node.core.work.batch.pieces += [(blob.number, index, piece) for index, piece in enumerate(pieces)]
    queue.append(value, packed.size_of(value))
    node.core.blobs.close(blob)
    node.settle()
    node.stop()
    return path


def test_a_sound_blob_is_counted_with_its_entry(tmp_path: Path) -> None:
    checked = check(large_store(tmp_path / "store"))
    assert checked.findings == []
    assert (checked.entries, checked.bytes) == (1, 2 * PIECE_BYTES + 3)


@pytest.mark.parametrize(
    ("do", "findings"),
    [
        (drop(b"blobs", blob_piece(1, 1)), ["blob 1: it has 2 pieces, expected 3"]),
        (put(b"blobs", blob_piece(1, 2), b"longer"), ["blob 1: piece 2 has 6 bytes, expected 3"]),
        (put(b"blobs", blob_piece(1, 3), b"more"), ["blob 1: piece 3 belongs to no blob"]),
        (put(b"blobs", blob_piece(7, 0), b"lost"), ["blob 7: piece 0 belongs to no blob"]),
        (put(b"blobs", b"short", b"x"), ["blobs: key 73686f7274"]),
        (drop(b"tables", BLOB_ROW), ["refers to blob 1, whose record does not name it", *["belongs to no blob"] * 3]),
        (put(b"tables", BLOB_ROW, b"x"), ["row", "refers to blob 1", *["belongs to no blob"] * 3]),
        (
            put(b"tables", BLOB_ROW, records.pack_blob(BLOB._replace(length=BLOB.length + 1))),
            [f"refers to {2 * PIECE_BYTES + 3} bytes of blob 1", "piece 2 has 3 bytes, expected 4"],
        ),
        (
            put(
                b"tables", BLOB_ROW, records.pack_blob(records.BlobRecord(2 * PIECE_BYTES + 3, 0, 3, ((1, 1), (1, 9))))
            ),
            ["blob 1: queue id 1, sequence 9 does not refer to it"],
        ),
    ],
)
def test_what_is_wrong_with_a_blob_is_a_line_with_its_place(tmp_path: Path, do: Change, findings: list[str]) -> None:
    store = large_store(tmp_path / "store")
    change(store, do)
    found = check(store).findings
    assert len(found) == len(findings), found
    assert all(text in line for text, line in zip(findings, found, strict=True)), found
