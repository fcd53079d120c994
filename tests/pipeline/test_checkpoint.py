"""Reading a checkpoint and the sink's log, and what is synced before anything is released."""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, StorageError
from pyspark_holdfast.checkpoint import Checkpoint, Proven, SinkLog, batches_in
from pyspark_holdfast.offsets import FORMER, Offset, Place


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of what is synced, in order."""
    names: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def batch(root: Path, number: int, end: int, *, done: bool = True, sub: str = "s") -> None:
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True, exist_ok=True)
    line = json.dumps({"sub": sub, "queue": "u", "seq": end})
    (root / "offsets" / str(number)).write_text(f"v1\n{{}}\n-\n{line}")
    if done:
        (root / "commits" / str(number)).write_text("v1\n{}")


def sink_batch(out: Path, number: int, *files: str, compact: bool = False) -> None:
    log = out / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    lines = ["v1"]
    for name in files:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("rows")
        lines.append(json.dumps({"path": (out / name).as_uri(), "action": "add"}))
    (log / f"{number}{'.compact' if compact else ''}").write_text("\n".join(lines))


def sums_of(data: bytes, step: int = 512) -> bytes:
    """As Hadoop keeps them beside a file."""
    sums = [zlib.crc32(data[at : at + step]) for at in range(0, len(data), step)]
    return b"crc\0" + struct.pack(f">I{len(sums)}I", step, *sums)


def ends(end: int, queue: str = "u") -> Offset:
    """A line of an earlier version's checkpoint, as `batch` writes it."""
    return Offset("s", {FORMER: Place(queue, end)})


def above(sequence: int) -> dict[str, Place]:
    return {"hub/q": Place("u", sequence)}


def test_nothing_is_proven_before_the_first_commit(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "s")
    assert checkpoint.proven() is None
    batch(tmp_path, 0, 5, done=False)
    assert checkpoint.proven() is None


def test_sources_of_one_name_find_each_queue_s_place(tmp_path: Path) -> None:
    batch(tmp_path, 0, 5)
    offsets = tmp_path / "offsets" / "0"
    other = Offset("s", {"hub/a": Place("x", 9), "hub/b": Place("y", 3)})
    offsets.write_text(offsets.read_text() + "\n" + json.dumps(other.json()))
    checkpoint = Checkpoint(tmp_path, "s")
    assert checkpoint.proven() == Proven(0, [ends(5), other])
    assert checkpoint.holds(ends(5)) and checkpoint.holds(other) and not checkpoint.holds(ends(6))
    lines = checkpoint.lines(0)
    found = [checkpoint.place(lines, key, queue) for key, queue in (("hub/q", "u"), ("hub/a", "x"), ("hub/b", "y"))]
    assert found == [Place("u", 5), Place("x", 9), Place("y", 3)]
    assert checkpoint.place(lines, "hub/c", "z") is None
    assert checkpoint.place(lines, "hub/a", "made anew") == Place("x", 9)
    offsets.write_text(offsets.read_text() + "\n" + json.dumps(other.json()))
    with pytest.raises(ConfigError, match=r"several sources .* 's' of queue 'a' of node 'hub'; give each a name"):
        checkpoint.place(checkpoint.lines(0), "hub/a", "x")


def test_the_newest_commit_is_proven_not_the_newest_offset(tmp_path: Path) -> None:
    for number in range(12):
        batch(tmp_path, number, 10 * number)
    batch(tmp_path, 12, 999, done=False)
    (tmp_path / "commits" / ".13.tmp").write_text("")
    (tmp_path / "commits" / "..11.crc").write_text("")
    checkpoint = Checkpoint(tmp_path, "s")
    assert checkpoint.proven() == Proven(11, [ends(110)])
    assert checkpoint.holds(ends(999))
    assert not checkpoint.holds(ends(110))
    assert batches_in(tmp_path / "commits") == list(range(12))


def test_another_subscriptions_checkpoint_is_refused(tmp_path: Path) -> None:
    batch(tmp_path, 0, 5, sub="other")
    with pytest.raises(ConfigError, match="offsets/0"):
        Checkpoint(tmp_path, "s").proven()


def test_it_is_seen_before_a_run_whose_it_is(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "s")
    checkpoint.check()
    batch(tmp_path, 0, 5)
    checkpoint.check()
    batch(tmp_path, 1, 5, done=False, sub="other")
    with pytest.raises(ConfigError, match=r"offsets/1 holds no place of subscription 's'; give the checkpointLocation"):
        checkpoint.check()
    assert checkpoint.proven() == Proven(0, [ends(5)])


def test_the_proof_is_synced_with_its_directories(tmp_path: Path, synced: list[str]) -> None:
    root = tmp_path / "c"
    batch(root, 0, 5)
    batch(root, 1, 9)
    checkpoint = Checkpoint(root, "s")
    proven = checkpoint.proven()
    assert proven is not None
    checkpoint.make_durable(proven, above(5))
    wanted = [root / "offsets" / "1", root / "offsets", root / "commits" / "1", root / "commits", root, tmp_path]
    assert [name for name in synced if name in map(str, wanted)] == [str(path) for path in wanted]


def test_the_sinks_files_of_every_unreleased_batch_come_first(tmp_path: Path, synced: list[str]) -> None:
    root, out = tmp_path / "c", tmp_path / "out"
    for number, end in enumerate((5, 6, 12)):
        batch(root, number, end)
        sink_batch(out, number, f"part {number}")
    checkpoint = Checkpoint(root, "s", SinkLog(out))
    checkpoint.make_durable(Proven(2, [ends(12)]), above(5))
    names = [os.path.relpath(name, tmp_path) for name in synced]
    assert "out/part 0" not in names
    for number in (1, 2):
        assert names.index(f"out/part {number}") < names.index(f"out/_spark_metadata/{number}")
    assert names.index("out/_spark_metadata") < names.index("c/commits/2")
    assert names.index("c/commits/2") < names.index("c/commits") < names.index("c")


def test_a_batch_that_ends_above_in_any_queue_is_synced(tmp_path: Path, synced: list[str]) -> None:
    root, out = tmp_path / "c", tmp_path / "out"
    for number, (one, other) in enumerate(((5, 1), (5, 4), (9, 4))):
        batch(root, number, 0)
        line = Offset("s", {"a/q": Place("u", one), "b/q": Place("v", other)})
        (root / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(line.json())}")
        sink_batch(out, number, f"part {number}")
    released = {"a/q": Place("u", 5), "b/q": Place("v", 1)}
    Checkpoint(root, "s", SinkLog(out)).make_durable(Proven(2, []), released)
    names = [os.path.relpath(name, tmp_path) for name in synced]
    assert [name for name in names if "part" in name] == ["out/part 1", "out/part 2"]


def test_a_compacted_log_is_synced_with_what_it_took_over(tmp_path: Path, synced: list[str]) -> None:
    root, out = tmp_path / "c", tmp_path / "out"
    for number, end in enumerate((5, 9, 12)):
        batch(root, number, end)
    sink_batch(out, 0, "a")
    sink_batch(out, 2, "a", "b", "c", compact=True)
    checkpoint = Checkpoint(root, "s", SinkLog(out))
    checkpoint.make_durable(Proven(2, [ends(12)]), above(5))
    assert {str(out / name) for name in ("b", "c")} <= set(synced)
    assert SinkLog(out).files() == [out / "a", out / "b", out / "c"]


def test_hadoops_checksums_are_synced_with_their_files(tmp_path: Path, synced: list[str]) -> None:
    """A file whose checksum was torn off by a power loss is one that Spark refuses to read."""
    root, out = tmp_path / "c", tmp_path / "out"
    batch(root, 0, 5)
    sink_batch(out, 0, "a")
    (root / "metadata").write_text("{}")
    files = [
        root / "metadata",
        root / "offsets" / "0",
        root / "commits" / "0",
        out / "a",
        out / "_spark_metadata" / "0",
    ]
    sums = [file.with_name(f".{file.name}.crc") for file in files]
    for one in sums:
        one.write_bytes(sums_of(b"rows"))
    Checkpoint(root, "s", SinkLog(out)).make_durable(Proven(0, [ends(5)]), above(1))
    assert {*map(str, files), *map(str, sums)} <= set(synced)


def test_a_data_file_that_is_gone_stops_the_release(tmp_path: Path) -> None:
    root, out = tmp_path / "c", tmp_path / "out"
    batch(root, 0, 5)
    checkpoint = Checkpoint(root, "s", SinkLog(out))
    sink_batch(out, 0, "a")
    (out / "a").unlink()
    with pytest.raises(StorageError, match="cannot be synced"):
        checkpoint.make_durable(Proven(0, [ends(5)]), above(1))


def test_the_log_is_the_truth_about_the_directory(tmp_path: Path) -> None:
    sink_batch(tmp_path, 0, "a b", "c")
    sink_batch(tmp_path, 1, "d")
    (tmp_path / "part-of-no-batch").write_text("torn")
    (tmp_path / "_spark_metadata" / ".2.tmp").write_text("torn")
    assert SinkLog(tmp_path).files() == [tmp_path / "a b", tmp_path / "c", tmp_path / "d"]
    assert SinkLog(tmp_path / "nowhere").files() == []
