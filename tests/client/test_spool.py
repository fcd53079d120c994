"""The spool: what was written is read again in order, whatever the crash left of the file."""

import errno
import fcntl
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.broker.stored.ranges import RangeSet
from holdfast.client.errors import ClientFull
from holdfast.client.spool import numbering, records
from holdfast.client.spool import spool as spool_module
from holdfast.client.spool.numbering import BLOCK, Numbering
from holdfast.client.spool.records import MAGIC
from holdfast.client.spool.spool import Spool, SpoolFile
from holdfast.errors import ConfigError, StorageError
from holdfast.units import MIB
from support import today


def open_spool(path: Path, **options: int) -> SpoolFile:
    return SpoolFile(Spool(path, **options), producer="jfk-1", address="flights")


def test_messages_come_back_in_order_after_a_crash(tmp_path: Path) -> None:
    first = open_spool(tmp_path / "spool")
    assert [first.append(b"%d" % n) for n in range(5)] == [1, 2, 3, 4, 5]
    os.close(first._fd)  # the process is gone: nothing was closed properly
    again = open_spool(tmp_path / "spool")
    assert again.load(3) == [(1, b"0"), (2, b"1"), (3, b"2")]
    assert again.load(9) == [(4, b"3"), (5, b"4")]
    assert again.is_drained() and again.undone == 5
    again.close()


def crash(held: SpoolFile) -> None:
    """The process is gone: nothing was closed properly."""
    os.close(held._fd)


def test_what_is_done_does_not_come_back_and_numbers_go_on(tmp_path: Path) -> None:
    first = open_spool(tmp_path / "spool")
    for n in range(4):
        first.append(b"%d" % n)
    assert first.number(1) is None
    first.assign_numbers(500)
    assert [first.number(local) for local in (1, 4)] == [501, 504]
    first.done(1, 1)
    first.done(3, 1)
    first.flush_done()
    first.close()
    again = open_spool(tmp_path / "spool")
    assert (again.next_local, again.number(5), again.undone) == (5, 505, 2)
    assert again.load(10) == [(2, b"1"), (4, b"3")]
    again.done(2, 1)
    again.done(4, 1)
    again.close()
    empty = open_spool(tmp_path / "spool")
    assert (empty.next_local, empty.number(5), empty.undone, empty.undone_bytes) == (5, 505, 0, 0)
    empty.close()


def test_after_a_crash_the_rest_of_the_block_is_not_used_and_numbers_have_no_gap(tmp_path: Path) -> None:
    first = open_spool(tmp_path / "spool")
    first.assign_numbers(0)
    for n in range(4):
        first.append(b"%d" % n)
    crash(first)
    again = open_spool(tmp_path / "spool")
    assert again.append(b"new") == BLOCK + 1
    assert [again.number(local) for local in (1, 4, BLOCK + 1)] == [1, 4, None]
    assert again.numbering.may_have_sent == BLOCK
    again.assign_numbers(6)  # two more than the file holds were sent
    assert [again.number(local) for local in (1, 4, BLOCK + 1)] == [1, 4, 7]
    crash(again)
    last = open_spool(tmp_path / "spool")
    last.append(b"newer")
    last.assign_numbers(2)
    assert [(last.number(local), body) for local, body in last.load(9)] == [
        (1, b"0"), (2, b"1"), (3, b"2"), (4, b"3"), (7, b"new"), (8, b"newer"),
    ]  # fmt: skip
    last.close()


def test_a_block_is_on_the_disk_before_its_first_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    held = open_spool(tmp_path / "spool")
    held.assign_numbers(0)
    synced.clear()
    for _ in range(BLOCK):
        held.append(b"")
    assert synced == []
    held.append(b"")
    assert len(synced) == 1 and synced[0] == held._end - 17
    held.close()


def test_before_the_first_attach_nothing_is_reserved(tmp_path: Path) -> None:
    for n in range(3):
        held = open_spool(tmp_path / "spool")
        assert held.append(b"%d" % n) == n + 1
        crash(held)
    held = open_spool(tmp_path / "spool")
    held.assign_numbers(7)
    assert [held.number(local) for local, _ in held.load(9)] == [8, 9, 10]
    held.close()


def test_a_sync_that_failed_makes_no_proper_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_spool(tmp_path / "spool")
    held.assign_numbers(0)
    held.append(b"0")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError, match=r"spool .*: Input/output error"):
            held.sync()
    held.close()
    again = open_spool(tmp_path / "spool")
    assert again.next_local == BLOCK + 1
    again.close()


def run_out(number: int) -> Callable[..., int]:
    def fail(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("kept", [0, 7])
def test_a_reservation_that_was_not_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """The disk is full for one write, of which `kept` bytes arrive: no number is given out twice after it."""
    first = open_spool(tmp_path / "spool")
    first.append(b"m1")
    first.assign_numbers(0)
    first.done(1, 2)
    first.flush_done()
    first.close()
    second = open_spool(tmp_path / "spool")
    real, left = os.pwrite, [kept]

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if not left or not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: left.pop()], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="No space left on device"):
            second.append(b"A")
    sent = [second.append(b"B"), second.append(b"C")]
    assert [second.number(local) for local in sent] == [2, 3]
    crash(second)
    third = open_spool(tmp_path / "spool")
    new = third.append(b"NEW")
    assert new not in sent and third.number(new) is None
    third.assign_numbers(3)
    assert [(third.number(local), body) for local, body in third.load(9)] == [(2, b"B"), (3, b"C"), (4, b"NEW")]
    third.close()


def test_numbers_that_were_not_written_are_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_spool(tmp_path / "spool")
    held.append(b"A")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", run_out(errno.ENOSPC))
        with pytest.raises(StorageError, match="No space left on device"):
            held.assign_numbers(5)
    assert not held.is_numbered and held.number(1) is None
    held.assign_numbers(9)
    assert held.number(1) == 10
    held.close()


def test_after_a_sync_that_failed_a_spool_takes_nothing_until_it_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what the disk holds, and a second sync may succeed without having written what the first lost."""
    held = open_spool(tmp_path / "spool")
    held.append(b"A")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", run_out(errno.EIO))
        with pytest.raises(StorageError, match="Input/output error"):
            held.assign_numbers(5)
    for attempt in (lambda: held.append(b"B"), lambda: held.assign_numbers(5)):
        with pytest.raises(StorageError, match=r"spool .*: an earlier sync failed; open the sender again"):
            attempt()
    held.close()
    again = open_spool(tmp_path / "spool")
    assert again.load(9) == [(1, b"A")]
    again.append(b"B")
    again.close()


def test_after_a_sync_of_its_directories_that_failed_a_spool_takes_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a compaction its file may be under no name on the disk."""
    held = open_spool(tmp_path / "spool")
    held.append(b"A")
    with monkeypatch.context() as patch:
        patch.setattr(spool_module, "sync_directories", run_out(errno.EIO))
        with pytest.raises(StorageError, match="a sync of its directories failed: Input/output error"):
            held._sync_directories()
    with pytest.raises(StorageError, match="an earlier sync failed; open the sender again"):
        held.append(b"B")
    held.close()
    assert open_spool(tmp_path / "spool").load(9) == [(1, b"A")]


def test_what_could_not_be_noted_as_done_is_noted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_spool(tmp_path / "spool")
    held.append(b"A")
    held.assign_numbers(0)
    held.done(1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", run_out(errno.ENOSPC))
        with pytest.raises(StorageError, match="No space left on device"):
            held.flush_done()
    held.flush_done()
    crash(held)
    again = open_spool(tmp_path / "spool")
    assert again.load(9) == []
    again.close()


@pytest.mark.parametrize("base", [None, 40])
def test_a_spool_of_an_earlier_version_opens(tmp_path: Path, base: int | None) -> None:
    def record(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">II", len(body) + 1, crc32(kind + body)) + kind + body

    about = {"producer": "jfk-1", "address": "flights", "base": base, "next": 1}
    messages = b"".join(record(b"M", struct.pack(">Q", local) + b"%d" % local) for local in (1, 2, 3))
    done = record(b"D", struct.pack(">QQ", 1, 1))
    (tmp_path / "spool").write_bytes(MAGIC + record(b"B", json.dumps(about).encode()) + messages + done)
    held = open_spool(tmp_path / "spool")
    held.append(b"new")
    held.assign_numbers(50)  # the end of the file was lost, in which 44 to 50 were
    assert held.numbering.may_have_sent == (None if base is None else 40 + 3 + BLOCK)
    found = [(held.number(local), body) for local, body in held.load(9)]
    assert found == ([(52, b"2"), (53, b"3"), (54, b"new")] if base is None else [(42, b"2"), (43, b"3"), (51, b"new")])
    held.close()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=today.drawn(20), deadline=None)
def test_numbers_are_given_once_whatever_the_crash_left(seed: int) -> None:
    """Numbering alone, over runs that lose the end of what was not synced."""
    rng = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbering, "BLOCK", 5)
        disk = Numbering().as_dict()
        messages: dict[int, int] = {}  # body by local: what the file holds and is not done
        node: list[int] = []  # bodies by number
        body = synced = 0
        for _ in range(rng.randrange(1, 12)):
            held = Numbering()
            held.load(disk)
            if held.recovered(max(messages, default=0)):
                disk = held.as_dict()
            kept = RangeSet((local, local) for local in sorted(messages))
            attaches = rng.random() < 0.7
            for _ in range(rng.randrange(12)):
                if attaches and held.unnumbered is not None and rng.random() < 0.3:
                    assert held.may_have_sent is None or len(node) <= held.may_have_sent
                    held.assign(len(node), kept)
                    disk = held.as_dict()
                if held.needs_block():
                    held.reserve()
                    disk = held.as_dict()
                assert held.next_local not in messages
                messages[held.next_local] = body
                held.next_local += 1
                body += 1
                for local in sorted(messages) if held.unnumbered is None else ():
                    number = held.number(local)
                    assert number is not None and number <= len(node) + 1
                    if rng.random() < 0.5:
                        break
                    if number == len(node) + 1:
                        node.append(messages[local])
                    assert node[number - 1] == messages.pop(local)
            if held.unnumbered is None and rng.random() < 0.3:
                held.closed = True
                disk, synced = held.as_dict(), held.next_local - 1
            else:  # a power loss: of what was not synced the end is gone
                for local in sorted(messages, reverse=True)[: rng.randrange(4)]:
                    if local > synced:
                        del messages[local]
        assert node == sorted(set(node))


def test_the_bound_and_one_past_it(tmp_path: Path) -> None:
    size = 8 + 1 + 8 + 100
    held = open_spool(tmp_path / "spool", bytes_max=3 * size)
    for _ in range(3):
        held.append(bytes(100))
    with pytest.raises(ClientFull, match=r"spool .* is full: .* the limit is"):
        held.append(b"")
    held.done(1, 100)
    held.flush_done()
    assert held.append(bytes(100)) == 4
    held.close()


def test_a_message_of_any_size_that_fits_is_read_back(tmp_path: Path) -> None:
    """What `append` took is no damage, and neither is what lies behind it."""
    spool = Spool(tmp_path / "s", bytes_max=200 * MIB)
    file = SpoolFile(spool, producer="p", address="q")
    sizes = [7, 65 * MIB, 9]
    for size in sizes:
        file.append(bytes(size))
    assert [len(payload) for _, payload in file.load(10)] == sizes
    file.close()
    again = SpoolFile(spool, producer="p", address="q")
    assert (again.undone, again.damaged_bytes) == (3, 0)
    assert [len(payload) for _, payload in again.load(10)] == sizes
    again.close()


def test_a_message_that_the_system_reads_in_several_calls_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux hands on somewhat less than 2 GiB at once."""
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: pread(descriptor, min(length, 1_000), offset))
    spool = Spool(tmp_path / "s")
    file = SpoolFile(spool, producer="p", address="q")
    for payload in (b"a" * 5_000, b"b" * 300_000, b"c"):
        file.append(payload)
    file.close()
    again = SpoolFile(spool, producer="p", address="q")
    assert (again.undone, again.damaged_bytes) == (3, 0)
    assert [len(payload) for _, payload in again.load(10)] == [5_000, 300_000, 1]
    again.close()


def test_a_message_whose_length_no_record_can_say_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RECORD_BYTES_MAX", 1_000)
    file = SpoolFile(Spool(tmp_path / "s"), producer="p", address="q")
    fits = 1_000 - 1 - 8
    file.append(bytes(fits))
    with pytest.raises(ClientFull, match="4 GiB"):
        file.append(bytes(fits + 1))
    assert [len(payload) for _, payload in file.load(10)] == [fits]
    file.close()


def test_another_producers_spool_is_refused(tmp_path: Path) -> None:
    open_spool(tmp_path / "spool").close()
    with pytest.raises(ConfigError, match="is of producer 'jfk-1' to 'flights'"):
        SpoolFile(Spool(tmp_path / "spool"), producer="other", address="flights")


def test_a_spool_in_use_and_another_file_are_refused(tmp_path: Path) -> None:
    held = open_spool(tmp_path / "spool")
    with pytest.raises(ConfigError, match="one sender at a time"):
        open_spool(tmp_path / "spool")
    held.close()
    (tmp_path / "letter").write_text("Dear reader, this is something else altogether.")
    with pytest.raises(ConfigError, match="another kind of file"):
        open_spool(tmp_path / "letter")


@given(cut=st.integers(0, 600), flip=st.booleans())
@settings(max_examples=today.drawn(20), deadline=None)
def test_a_torn_end_costs_only_what_is_behind_it(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: bool
) -> None:
    path = tmp_path_factory.mktemp("torn") / "spool"
    first = open_spool(path)
    start = path.stat().st_size
    ends = []
    for n in range(10):
        first.append(bytes([n]) * (n * 7))
        ends.append(path.stat().st_size)
    first.close()
    at = min(start + cut, ends[-1])
    content = path.read_bytes()
    if flip and at < len(content):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
    else:
        path.write_bytes(content[:at])
    whole = sum(end <= at for end in ends)
    again = open_spool(path)
    assert again.load(100) == [(n + 1, bytes([n]) * (n * 7)) for n in range(whole)]
    damaged = path.with_name("spool.damaged")
    assert again.damaged_bytes == (damaged.stat().st_size if damaged.exists() else 0)
    again.append(b"more")
    again.close()
    last = open_spool(path)
    assert last.damaged_bytes == 0 and last.undone == whole + 1
    last.close()


@pytest.mark.parametrize("call", ["open", "write", "fsync", "ftruncate"])
def test_a_damaged_spool_on_a_full_disk_is_one_clear_error_and_keeps_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """What could not be put aside whole is not there twice once there is room."""
    path = tmp_path / "spool"
    first = open_spool(path)
    first.append(b"1")
    crash(first)
    with path.open("ab") as file:
        file.write(b"damaged")
    content = path.read_bytes()
    aside = tmp_path / "spool.damaged"
    aside.write_bytes(b"of an earlier time, ")
    real_open, real_write = os.open, os.write

    def no_open(name: Any, flags: int, *rest: Any, **options: Any) -> int:
        if str(name).endswith(".damaged"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_open(name, flags, *rest, **options)

    def half(descriptor: int, data: Any) -> int:
        if len(data) <= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(descriptor, data[:4])

    with monkeypatch.context() as patch:
        patch.setattr(os, call, {"open": no_open, "write": half}.get(call, run_out(errno.ENOSPC)))
        with pytest.raises(StorageError, match=r"/spool: .*No space left on device") as told:
            open_spool(path)
    assert "\n" not in str(told.value) and path.read_bytes() == content
    assert call == "ftruncate" or aside.read_bytes() == b"of an earlier time, "
    again = open_spool(path)
    assert again.load(9) == [(1, b"1")] and again.damaged_bytes == 7
    assert aside.read_bytes().startswith(b"of an earlier time, damaged")
    again.close()


def test_a_new_file_that_does_not_fit_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = open_spool(tmp_path / "spool")
    for local in range(1, 101):
        held.append(bytes(100))
        held.done(local, 100)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", run_out(errno.ENOSPC))
        with pytest.raises(StorageError, match="No space left on device"):
            held.close()
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]
    open_spool(tmp_path / "spool").close()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=today.drawn(14), deadline=None)
def test_any_run_agrees_with_a_list(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Appends, reads, decisions in any order, compactions and crashes, against a plain dict."""
    rng = Random(seed)
    path = tmp_path_factory.mktemp("run") / "spool"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "COMPACT_BYTES", 600)
        patch.setattr(records, "READ_BYTES", 256)
        held = open_spool(path)
        undone: dict[int, bytes] = {}
        loaded: dict[int, bytes] = {}
        next_local = 1
        for _ in range(rng.randrange(1, 80)):
            choice = rng.random()
            if choice < 0.45:
                payload = rng.randbytes(rng.randrange(0, 400))
                assert held.append(payload) == next_local
                undone[next_local] = payload
                next_local += 1
            elif choice < 0.65:
                for local, payload in held.load(rng.randrange(1, 6)):
                    assert local not in loaded and undone[local] == payload
                    assert not loaded or local > max(loaded)
                    loaded[local] = payload
            elif choice < 0.9:
                for local in rng.sample(sorted(set(loaded) & set(undone)), k=min(2, len(set(loaded) & set(undone)))):
                    held.done(local, len(undone.pop(local)))
                held.flush_done()
            else:
                os.close(held._fd)
                held = open_spool(path)
                loaded.clear()
        assert held.undone == len(undone)
        assert held.undone_bytes == sum(17 + len(payload) for payload in undone.values())
        held.close()
        last = open_spool(path)
        assert last.load(1000) == sorted(undone.items())
        last.close()


def test_a_file_cut_within_the_magic_line_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "spool").write_bytes(MAGIC[:5])
    held = open_spool(tmp_path / "spool")
    assert held.append(b"x") == 1
    held.close()


def test_what_was_cut_off_is_gone_from_the_disk_before_anything_is_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss could bring it back behind what is new."""
    path = tmp_path / "spool"
    first = open_spool(path)
    first.append(b"1")
    crash(first)
    with path.open("ab") as file:
        file.write(b"damaged")
    calls: list[str] = []

    def told(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return call

    for name in ("ftruncate", "fdatasync", "write", "pwrite"):
        monkeypatch.setattr(os, name, told(name, getattr(os, name)))
    again = open_spool(path)
    again.append(b"2")
    cut = calls.index("ftruncate")
    assert again.damaged_bytes and calls[cut + 1] == "fdatasync"
    again.close()


def test_a_lock_on_a_file_that_another_sender_has_just_replaced_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spool"
    first = open_spool(path)
    first.append(b"1")
    crash(first)
    compacted = tmp_path / "compacted"
    compacted.write_bytes(path.read_bytes())
    flock = fcntl.flock

    def replaced(descriptor: int, operation: int) -> None:
        if compacted.exists():
            os.replace(compacted, path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replaced)
    again = open_spool(path)
    assert os.path.samestat(os.fstat(again._fd), os.stat(path)) and again.undone == 1
    again.close()
