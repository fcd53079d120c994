"""`holdfast store …` beside real nodes: what a backup under load holds, and what a person is told."""

import asyncio
import json
import os
import pty
import signal
from pathlib import Path

import pytest

from holdfast.broker.entries import entry, packed
from holdfast.broker.queue import COUNTERS
from holdfast.broker.stored.records import counters_key
from holdfast.client import connect
from holdfast.engine.port import Batch
from holdfast.storage.lmdb import LmdbStore
from holdfast_lab.base.processes import Child, Children, holdfast_command
from support.eventually import eventually_true
from support.stores import LoneNode, bare_of

LIMIT_S = 60.0
DEEP = 100_000
DEEP_BYTES = 500


async def store(children: Children, *arguments: str | Path) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `holdfast store …`."""
    child = await children.start(f"store-{arguments[0]}", holdfast_command("store", *arguments))
    code = await child.wait(LIMIT_S)
    return code, child.out_path.read_text(), child.stderr_text()


def deep_store(path: Path) -> int:
    """A queue `deep` with a backlog, as a node leaves one; the bytes of its messages."""
    node = LoneNode(path)
    queue = node.queue("deep")
    node.turn()
    node.stop()
    bare = bare_of(DEEP_BYTES)
    value = entry.pack_plain(True, 1_700_000_000_000, 0, bare)
    size = packed.size_of(value)
    disk = LmdbStore(path)
    for first in range(1, DEEP + 1, 10_000):
        end = first + 10_000
        batch = Batch(appends=[(queue.queue_id, sequence, value) for sequence in range(first, end)])
        batch.puts["node", counters_key(queue.queue_id)] = COUNTERS.pack(end, end - 1, (end - 1) * size, 0)
        disk.commit(batch)
    disk.close()
    return DEEP * size


async def start(children: Children, data: Path) -> tuple[Child, str]:
    return await children.node("alone", "--name", "alone", "--listen", "127.0.0.1:0", "--data", data)


async def receive_all(children: Children, address: str, queue: str) -> list[str]:
    command = holdfast_command("receive", queue, "--url", f"amqp://{address}", "--idle-timeout", "1")
    child = await children.start("receive", command)
    await child.wait(LIMIT_S)
    return child.out_path.read_text().splitlines()


async def test_a_backup_of_a_node_that_takes_messages_is_one_moment_of_it(tmp_path: Path) -> None:
    """Sent before it began: in it. Sent after it ended: not. Of those between, the first so many, without a gap."""
    await asyncio.to_thread(deep_store, tmp_path / "data")
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        node, address = await start(children, tmp_path / "data")
        accepted = 0
        warm, over = asyncio.Event(), asyncio.Event()

        async def load() -> None:
            nonlocal accepted
            async with await connect(f"amqp://{address}") as connection:
                sender = await connection.sender("live")
                while not over.is_set():
                    await sender.send(b"%d" % (accepted + 1))
                    accepted += 1
                    if accepted == 20:
                        warm.set()

        sending = asyncio.create_task(load())
        await warm.wait()
        before = accepted
        code, said, complaint = await store(children, "backup", tmp_path / "data", tmp_path / "copy", "--json")
        after = accepted
        over.set()
        await sending
        assert (code, complaint) == (0, "")
        told = json.loads(said)
        assert after > before + 20  # the node went on
        assert set(told) == {"store", "messages", "bytes", "made"}
        live = told["messages"] - DEEP
        assert before <= live <= after

        assert (await store(children, "check", tmp_path / "copy"))[0] == 0
        code, said, _ = await store(children, "restore", tmp_path / "copy", tmp_path / "restored", "--json")
        assert code == 0 and json.loads(said)["messages"] == told["messages"]
        assert await node.stop() == 0
        assert (await store(children, "check", tmp_path / "data"))[0] == 0
        _, address = await start(children, tmp_path / "restored")
        assert await receive_all(children, address, "live") == [str(number) for number in range(1, live + 1)]


async def begun_backup(children: Children, data: Path, target: Path) -> Child:
    """A backup that has begun to write."""
    child = await children.start("backup", holdfast_command("store", "backup", data, target))
    partial = target.with_name(f".{target.name}.partial") / "data.mdb"
    await eventually_true(lambda: partial.exists() or not child.running, what="a backup that has begun", step_s=0.001)
    assert partial.exists() or child.running, child.stderr_text()
    return child


async def test_a_backup_that_is_ended_leaves_the_node_and_no_half(tmp_path: Path) -> None:
    await asyncio.to_thread(deep_store, tmp_path / "data")
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        await start(children, tmp_path / "data")
        child = await begun_backup(children, tmp_path / "data", tmp_path / "copy")
        child.signal(signal.SIGTERM)
        code = await child.wait(LIMIT_S)
        if code == 0:
            pytest.skip("the backup was done before the signal came")
        assert not (tmp_path / "copy").exists() and not (tmp_path / ".copy.partial").exists()
        assert (await store(children, "backup", tmp_path / "data", tmp_path / "copy"))[0] == 0


async def test_a_backup_is_not_put_to_sleep_from_the_terminal(tmp_path: Path) -> None:
    """It would keep from the node all that the node frees, for as long as nobody wakes it."""
    await asyncio.to_thread(deep_store, tmp_path / "data")
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        await start(children, tmp_path / "data")
        child = await begun_backup(children, tmp_path / "data", tmp_path / "copy")
        child.signal(signal.SIGTSTP)
        assert await child.wait(LIMIT_S) == 0
        assert (tmp_path / "copy" / "data.mdb").exists()


async def test_what_runs_is_named_and_mistakes_are_one_line(tmp_path: Path) -> None:
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        node, _ = await start(children, tmp_path / "data")
        for verb in ("check", "compact"):
            code, said, complaint = await store(children, verb, tmp_path / "data")
            assert (code, said) == (1, "")
            held = f"store {tmp_path}/data: in use by process {node.pid}; stop that, or give another directory"
            assert complaint == f"holdfast store {verb}: {held}\n"
        (tmp_path / "taken").mkdir()
        code, _, complaint = await store(children, "backup", tmp_path / "data", tmp_path / "taken")
        assert code == 2
        assert complaint.startswith(f"holdfast store backup: {tmp_path}/taken exists already; choose another name")
        (tmp_path / "loop").symlink_to("loop")
        code, _, complaint = await store(children, "backup", tmp_path / "data", tmp_path / "loop" / "copy")
        assert code == 2 and complaint.endswith(f"there is no directory {tmp_path}/loop; choose one that exists\n")
        assert await node.stop() == 0
        code, said, _ = await store(children, "compact", tmp_path / "data")
        assert code == 0 and said.count("\n") == 1 and "bytes on disk before" in said
        code, said, _ = await store(children, "check", tmp_path / "data", "--json")
        assert code == 0
        told = json.loads(said)
        assert (told["found"], told["findings"], told["messages"]) == (0, [], 0)


async def test_a_store_with_findings_ends_with_1_and_a_line_for_each(tmp_path: Path) -> None:
    node = LoneNode(tmp_path / "data")
    node.fill("q", 3)
    node.store.commit(Batch(appends=[(9, 1, b"x")], retires=[(1, 2)]))
    node.crash()
    async with Children(tmp_path) as children, asyncio.timeout(LIMIT_S):
        code, said, complaint = await store(children, "check", tmp_path / "data")
    assert (code, complaint) == (1, "")
    lines = said.splitlines()
    assert lines[0] == "queue id 9, sequence 1: there is no such queue"
    assert lines[1] == "queue 'q': its counter says 3 messages, but there are 2"
    assert len(lines) == 4 and lines[3].endswith(": 3 found")


async def test_the_bar_is_drawn_on_a_terminal_alone(tmp_path: Path) -> None:
    await asyncio.to_thread(deep_store, tmp_path / "data")
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *holdfast_command("store", "check", tmp_path / "data"), stdout=asyncio.subprocess.PIPE, stderr=theirs
        )
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
        os.close(theirs)
        drawn = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
    assert process.returncode == 0 and said.count(b"\n") == 1 and b"#" not in said
    assert b"\r\x1b[K[" in drawn and drawn.endswith(b"\r\x1b[K")
