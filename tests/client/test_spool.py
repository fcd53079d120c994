"""The spool: what was written is read again in order, whatever the crash left of the file."""

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client import spool as spool_module
from holdfast.client.errors import ClientFull
from holdfast.client.spool import MAGIC, Spool, SpoolFile
from holdfast.errors import ConfigError


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


def test_what_is_done_does_not_come_back_and_numbers_go_on(tmp_path: Path) -> None:
    first = open_spool(tmp_path / "spool")
    for n in range(4):
        first.append(b"%d" % n)
    first.set_base(500)
    first.done(1, 1)
    first.done(3, 1)
    first.flush_done()
    os.close(first._fd)
    again = open_spool(tmp_path / "spool")
    assert (again.base, again.next_local, again.undone) == (500, 5, 2)
    assert again.load(10) == [(2, b"1"), (4, b"3")]
    again.done(2, 1)
    again.done(4, 1)
    again.close()
    empty = open_spool(tmp_path / "spool")
    assert (empty.base, empty.next_local, empty.undone, empty.undone_bytes) == (500, 5, 0, 0)
    empty.close()


def test_the_bound_and_one_past_it(tmp_path: Path) -> None:
    size = 8 + 1 + 8 + 100
    held = open_spool(tmp_path / "spool", bytes_max=3 * size)
    for _ in range(3):
        held.append(bytes(100))
    with pytest.raises(ClientFull, match=r"spool .*accepted is at most"):
        held.append(b"")
    held.done(1, 100)
    held.flush_done()
    assert held.append(bytes(100)) == 4
    held.close()


def test_another_producers_spool_is_refused(tmp_path: Path) -> None:
    open_spool(tmp_path / "spool").close()
    with pytest.raises(ConfigError, match="found producer 'jfk-1' to 'flights'"):
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
@settings(max_examples=60, deadline=None)
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


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_any_run_agrees_with_a_list(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Appends, reads, decisions in any order, compactions and crashes, against a plain dict."""
    rng = Random(seed)
    path = tmp_path_factory.mktemp("run") / "spool"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "COMPACT_BYTES", 600)
        patch.setattr(spool_module, "READ_BYTES", 256)
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
