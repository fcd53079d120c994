"""The client and its commands against real nodes: restarts, kills, the command line's contract."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.client import Accepted, LinkError, LinkStolen, ManagementError, Spool, connect
from holdfast.client.blocking import BlockingConnection
from holdfast.units import MIB
from support import today
from support.eventually import eventually_async
from support.process import NodeProcess, run_holdfast, summary
from support.stored import stored_bodies


async def bodies(node: NodeProcess, queue: str) -> list[bytes]:
    return await stored_bodies(node.url, queue)


async def await_left(node: NodeProcess, queue: str, wanted: int) -> None:
    """Waits until so many messages are in the queue."""
    async with await connect(node.url) as connection:

        async def left() -> int:
            return int((await connection.manage("READ", "holdfast:queue", queue))["messages"])

        await eventually_async(left, lambda count: count == wanted, what=f"{wanted} messages in {queue}")


# --------------------------------------------------------------------------------------------------- the library


@pytest.mark.parametrize("seed", today.some(range(2), 1))
async def test_nothing_is_lost_or_doubled_over_kills_of_the_node(node: NodeProcess, seed: int) -> None:
    rng = Random(seed)
    connection = await connect(node.url, retry_s=30, rng=rng)
    sender = await connection.sender("q", producer="p", in_doubt_max=200)
    kills = sorted(rng.sample(range(100, 4000), 3))

    async def post() -> None:
        for number in range(4000):
            if kills and number == kills[0]:
                kills.pop(0)
                await node.kill()
                await node.restart(same_port=True)
            await sender.post(b"%d" % number)
        await sender.drain()

    await asyncio.wait_for(post(), 60)
    await connection.close()
    assert sender.accepted == 4000 and connection.reconnects == 3
    assert await bodies(node, "q") == [b"%d" % number for number in range(4000)]


@pytest.mark.parametrize("terms", [{}, {"resume_s": 30}, {"subscription": "mine"}, {"browse": True}])
async def test_what_comes_before_a_message_that_is_too_large_is_handed_out_and_accepted(
    node: NodeProcess, terms: dict[str, Any]
) -> None:
    """Then the link's error is raised, and what was accepted does not come again."""
    async with await connect(node.url) as connection:
        if "subscription" in terms:
            await (await connection.receiver("q", **terms)).close()
        sender = await connection.sender("q")
        for size in (10, 11, 12, 2_000):
            await sender.send(b"x" * size)
        sizes: list[list[int]] = [[], []]
        for found in sizes:
            receiver = await connection.receiver("q", message_bytes_max=1_000, **terms)
            with pytest.raises(LinkError, match=r"sequence 4 .*message-size-exceeded"):
                async with asyncio.timeout(20):
                    async for delivery in receiver:
                        found.append(len(delivery.message.body_bytes()))
                        if "browse" not in terms:
                            delivery.accept()
        assert sizes == [[10, 11, 12], [10, 11, 12] if "browse" in terms else []]


@pytest.mark.parametrize("size", [1_000, 2 * MIB])
@pytest.mark.parametrize("count_max", [None, 8])
async def test_what_waits_in_a_resuming_receiver_comes_once(
    node: NodeProcess, size: int, count_max: int | None
) -> None:
    """Also where the node begins a large one anew, which it does as a delivery of its own."""
    async with await connect(node.url, retry_s=30) as connection:
        sender = await connection.sender("q")
        for number in range(5):
            await sender.send(b"%d" % number * size)
        receiver = await connection.receiver("q", resume_s=30, count_max=count_max)

        async def waits() -> int:
            return len(receiver._buffer)

        async def sent_again() -> bool:
            queue = await connection.manage("READ", "holdfast:queue", "q")
            return receiver.duplicates_suppressed == 2 and queue["unsettled"] == 5

        async def resumed() -> bool:
            return connection.reconnects == 1 and receiver._resume is not None and receiver._resumed_all.is_set()

        await eventually_async(waits, lambda count: count == 5, what="five messages")
        taken = await receiver.batch(count_max=2)
        assert connection._wire is not None and connection._wire._transport is not None
        connection._wire._transport.abort()
        await eventually_async(resumed, what="a resumed link")
        if size > MIB:  # all five are sent again, and two of them were handed out
            await eventually_async(sent_again, what="five messages again")
        async with asyncio.timeout(30):
            while len(taken) < 5:
                taken += await receiver.batch()
        seen = [delivery.message.body_bytes()[:1] for delivery in taken]
        assert seen == [b"%d" % number for number in range(5)] and await receiver.batch(timeout_s=0.5) == []
        assert receiver.received == 5 and connection.reconnects == 1
        for delivery in taken:
            delivery.accept()
        if count_max:
            for _ in range(5):
                await sender.send(b"more")
            for _ in range(count_max - 5):
                (delivery,) = await receiver.batch(count_max=1)
                delivery.accept()
            assert await receiver.batch(timeout_s=0.5) == []
        await receiver.close()
        await await_left(node, "q", 2 if count_max else 0)


async def test_a_receiver_sees_each_once_over_restarts(node: NodeProcess) -> None:
    async with await connect(node.url) as connection:
        sender = await connection.sender("q")
        for number in range(2000):
            await sender.post(b"%d" % number)
        await sender.drain()
        receiver = await connection.receiver("q", credit=300)
        seen = []
        async with asyncio.timeout(60):
            while len(seen) < 2000:
                for delivery in await receiver.batch(count_max=100):
                    seen.append(delivery.message.body_bytes())
                    delivery.accept()
                if len(seen) in (500, 1000):
                    await node.kill()
                    await node.restart(same_port=True)
        assert seen == [b"%d" % number for number in range(2000)]
        await receiver.close()
        status = await connection.manage("READ", "holdfast:queue", "q")
        assert status["messages"] == 0


async def test_a_spool_waits_for_a_node_that_is_away(node: NodeProcess, tmp_path: Path) -> None:
    async with await connect(node.url) as connection:
        await (await connection.sender("q", producer="p")).send(b"0")
    await node.stop()
    for first in (1, 501):
        connection = await connect(node.url, wait=False)
        spool = Spool(tmp_path / "spool")
        sender = await connection.sender("q", producer="p", in_doubt_max=50, when_full=spool)
        for number in range(first, first + 500):
            await sender.post(b"%d" % number)
        if first == 501:
            await node.restart(same_port=True)
            await asyncio.wait_for(sender.drain(), 30)
            assert sender.accepted == 1000
        await connection.abort()
    assert await bodies(node, "q") == [b"%d" % number for number in range(1001)]


async def test_a_name_is_held_by_one(node: NodeProcess) -> None:
    async with await connect(node.url) as one, await connect(node.url) as two:
        first = await one.sender("q", producer="p")
        assert await first.send(b"1") == Accepted()
        second = await two.sender("q", producer="p")
        assert await second.send(b"2") == Accepted()
        with pytest.raises(LinkStolen):
            await asyncio.wait_for(first.send(b"3"), 10)
    assert await bodies(node, "q") == [b"1", b"2"]


async def test_the_blocking_form(node: NodeProcess) -> None:
    def use() -> None:
        with BlockingConnection(node.url) as connection:
            assert "127.0.0.1" in repr(connection)
            for number in range(50):
                assert connection.send("q", b"%d" % number, producer="b") == Accepted()
            opened = connection.manage(
                "OPEN", "holdfast:subscription", "s", {"queue": "q", "mode": "copy", "start": "first"}
            )
            batches = list(connection.read_range("q", 11, 41, "s", opened["queue_uuid"], opened["lease_epoch"]))
            entries = [entry for batch in batches for entry in batch]
            assert [entry.sequence for entry in entries] == list(range(11, 41))
            assert entries[0].message.body_bytes() == b"10" and entries[0].enqueued_ms > 0
            with pytest.raises(LinkError, match="queue 'q' ends at 51, before 60: its store was put back") as refused:
                next(connection.read_range("q", 11, 60, "s", opened["queue_uuid"], opened["lease_epoch"]))
            assert refused.value.condition == "amqp:illegal-state"
            with pytest.raises(ManagementError) as caught:
                connection.manage("READ", "holdfast:queue", "nothing")
            assert caught.value.code == 404
        connection.close()

    await asyncio.to_thread(use)


# ----------------------------------------------------------------------------------------------- the command line


async def test_lines_there_and_back(node: NodeProcess) -> None:
    sent = await run_holdfast("send", "q", "--url", node.url, stdin="one\ntwo\n\n")
    assert sent.code == 0 and not sent.stdout
    assert {"sent": 3, "accepted": 3, "rejected": 0}.items() <= summary(sent.stderr).items()
    looked = await run_holdfast("receive", "q", "--url", node.url, "--count", "3", "--browse", "--json")
    ids = [json.loads(line)["message_id"] for line in looked.stdout.splitlines()]
    assert summary(sent.stderr)["ids"] == [ids[0], ids[2]] and ids[1].endswith("-2")
    got = await run_holdfast("receive", "q", "--url", node.url, "--count", "3")
    assert (got.code, got.stdout) == (0, "one\ntwo\n\n")
    told = summary(got.stderr)
    assert told["received"] == 3 and told["duplicates_suppressed"] == 0 and told["seconds"] >= 0
    empty = await run_holdfast("receive", "q", "--url", node.url, "--count", "1", "--idle-timeout", "0.2")
    assert (empty.code, empty.stdout, summary(empty.stderr)["received"]) == (1, "", 0)
    idle = await run_holdfast("receive", "q", "--url", node.url, "--idle-timeout", "0.2")
    assert idle.code == 0


async def test_rows_with_all_that_can_be_said(node: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("origin,n\nJFK,1\nEWR,2\n")
    options = ["--format", "csv", "--subject-from", "origin", "--property", "k=v", "--ttl", "60", "--priority", "7"]
    sent = await run_holdfast("send", "q", str(tmp_path / "f.csv"), *options, "--url", node.url)
    assert sent.code == 0
    got = await run_holdfast("receive", "q", "--url", node.url, "--json", "--browse", "--idle-timeout", "0.3")
    lines = [json.loads(line) for line in got.stdout.splitlines()]
    assert [line["subject"] for line in lines] == ["JFK", "EWR"]
    assert lines[0]["properties"] == {"origin": "JFK", "n": "1", "k": "v"}
    assert json.loads(lines[1]["body"]) == {"origin": "EWR", "n": "2"}
    assert lines[0]["content_type"] == "application/json" and lines[0]["sequence"] == 1
    again = await run_holdfast(
        "receive", "q", "--url", node.url, "--from-sequence", "2", "--idle-timeout", "0.3", "--json"
    )
    assert [json.loads(line)["sequence"] for line in again.stdout.splitlines()] == [2]


async def test_delayed_messages_wait(node: NodeProcess) -> None:
    sent = await run_holdfast("send", "q", "--count", "2", "--delay", "3600", "--url", node.url)
    assert sent.code == 0 and summary(sent.stderr)["accepted"] == 2
    listed = await run_holdfast("messages", "list", "$delayed", "--url", node.url, "--json")
    assert listed.code == 0 and listed.stdout.count('"delayed"') == 2
    got = await run_holdfast("receive", "q", "--url", node.url, "--idle-timeout", "0.2")
    assert got.stdout == ""


async def test_a_resumed_file_is_sent_once(node: NodeProcess, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n2\n3\n")
    command = ["send", "q", str(tmp_path / "f"), "--producer", "p", "--resume", "--url", node.url]
    assert summary((await run_holdfast(*command)).stderr)["sent"] == 3
    (tmp_path / "f").write_text("1\n2\n3\n4\n")
    told = summary((await run_holdfast(*command)).stderr)
    assert (told["sent"], told["skipped"]) == (1, 3)
    assert await bodies(node, "q") == [b"1", b"2", b"3", b"4"]


async def test_a_bad_row_stops_it_after_what_went_before(node: NodeProcess) -> None:
    sent = await run_holdfast("send", "q", "--format", "json", "--url", node.url, stdin='{"a": 1}\nnot\n')
    assert sent.code == 2 and "standard input, line 2: invalid JSON" in sent.stderr
    assert summary(sent.stderr)["accepted"] <= 1


async def test_a_full_queue_is_told_and_waited_for(node: NodeProcess) -> None:
    create = await run_holdfast("queue", "create", "full", "--messages-max", "10", "--url", node.url)
    assert create.code == 0
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "send", "full", "--count", "30", "--url", node.url,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(30):
        line = await process.stderr.readline()
        assert line.decode() == (
            "holdfast send: full: the node takes no more messages at the moment: the queue, or the transmission queue "
            "to it, is full, or its disk fails (`holdfast status`); waiting\n"
        )
        taken = await run_holdfast("receive", "full", "--count", "30", "--url", node.url)
        told = (await process.communicate())[1].decode()
    assert (taken.code, process.returncode) == (0, 0)
    assert summary(told)["accepted"] == 30


async def test_who_does_not_want_to_wait_for_a_full_queue_says_so(node: NodeProcess, tmp_path: Path) -> None:
    at = ("--url", node.url)
    assert (await run_holdfast("queue", "create", "full", "--messages-max", "10", *at)).code == 0
    sent = await run_holdfast("send", "full", "--count", "30", "--stall-timeout", "3", *at)
    assert sent.code == 1 and summary(sent.stderr)["accepted"] == 10
    assert "holdfast send: full: the node takes no more messages at the moment" in sent.stderr
    assert "given up after 3 s (--stall-timeout)" in sent.stderr and "waiting" not in sent.stderr
    (tmp_path / "file").write_bytes(b"x")
    sent = await run_holdfast("send", "full", "--file", str(tmp_path / "file"), "--stall-timeout", "0.5", *at)
    assert sent.code == 1 and "given up after 0.5 s" in sent.stderr


async def test_what_did_not_come_is_said(node: NodeProcess) -> None:
    found = await run_holdfast("receive", "none", "--count", "2", "--idle-timeout", "0.5", "--url", node.url)
    assert found.code == 1
    assert found.stderr.splitlines()[0] == "holdfast receive: none: 0 of 2 messages came, then none for 0.5 s"


async def test_a_file_whose_name_is_no_text_is_refused(node: NodeProcess, tmp_path: Path) -> None:
    path = str(tmp_path / "f\udcff")
    await asyncio.to_thread(Path(path).write_bytes, b"x")
    sent = await run_holdfast("send", "q", "--file", path, "--url", node.url)
    assert sent.code == 2 and sent.stderr.count("\n") == 1
    assert "f\\udcff'; expected one in UTF-8" in sent.stderr


@pytest.mark.parametrize("verb", [["send", "q", "--count", "1"], ["status"]])
async def test_tls_to_a_port_without_it_is_one_line(node: NodeProcess, verb: list[str]) -> None:
    found = await run_holdfast(*verb, "--retry", "0", "--url", node.url.replace("amqp://", "amqps://"))
    assert found.code == 1
    assert "cannot connect: the port does not speak TLS; a URL of one that does not begins with amqp://" in found.stderr
    assert "SSL" not in found.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
async def test_a_terminal_that_goes_ends_send_after_what_it_has(node: NodeProcess, number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "send", "q", "--url", node.url,
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"1\n2\n")
    taken = await run_holdfast("receive", "q", "--count", "2", "--url", node.url)
    assert taken.code == 0
    process.send_signal(signal.SIGUSR1)
    process.send_signal(number)
    async with asyncio.timeout(30):
        told = (await process.communicate())[1].decode()
    assert process.returncode == 128 + number
    assert "SIGUSR1 ignored" in told and summary(told)["accepted"] == 2


async def test_rejections_are_counted_shown_and_exit_1(node: NodeProcess) -> None:
    made = await run_holdfast(
        "queue", "create", "small", "--messages-max", "2", "--when-full", "refuse", "--url", node.url
    )
    assert made.code == 0
    sent = await run_holdfast("send", "small", "--count", "5", "--size", "10", "--url", node.url)
    assert sent.code == 1 and sent.stderr.count("rejected: ") == 3 and " more" not in sent.stderr
    assert {"sent": 5, "accepted": 2, "rejected": 3}.items() <= summary(sent.stderr).items()
    sent = await run_holdfast("send", "small", "--count", "7", "--size", "10", "--url", node.url)
    assert sent.stderr.count("rejected: ") == 6 and "rejected: 2 more\n" in sent.stderr


async def test_what_is_queued_for_a_node_that_left_becomes_dead_letters(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[node]\nname = "t"\nunknown_destination = "keep"\n')
    async with await NodeProcess.start(tmp_path / "data", config=config) as node:
        at = ("--url", node.url)
        assert (await run_holdfast("send", "work@gone", "--count", "3", *at)).code == 0
        deleted = await run_holdfast("queue", "delete", "@gone", *at)
        assert deleted.code == 0 and "3 messages dead-lettered, 3 tombstones kept" in deleted.stdout
        await await_left(node, "$dead-letters", 3)
        given_up = await run_holdfast("queue", "delete", "@gone", "--tombstones", "--json", *at)
        assert json.loads(given_up.stdout) == {"dead_lettered": 0, "tombstones": 0}
        assert [queue["name"] for queue in json.loads((await run_holdfast("queue", "list", "--json", *at)).stdout)] == [
            "$dead-letters"
        ]


async def test_a_queue_that_sorts(node: NodeProcess) -> None:
    at = ("--url", node.url)
    assert (await run_holdfast("queue", "create", "a", "--priorities", *at)).code == 0
    (found,) = json.loads((await run_holdfast("queue", "list", "--json", *at)).stdout)
    assert found["priorities"] is True
    for priority in ("1", "200", "5"):
        assert (await run_holdfast("send", "a", "--count", "2", "--priority", priority, *at)).code == 0
    received = await run_holdfast("receive", "a", "--count", "6", "--json", *at)
    lines = [json.loads(line) for line in received.stdout.splitlines()]
    assert [(line["priority"], line["sequence"]) for line in lines] == [
        (200, 3), (200, 4), (5, 5), (5, 6), (1, 1), (1, 2),
    ]  # fmt: skip


async def test_queues_and_subscriptions(node: NodeProcess) -> None:
    at = ("--url", node.url)
    assert (await run_holdfast("queue", "create", "a", "--bytes-max", "1000", *at)).code == 0
    assert (await run_holdfast("send", "a", "--count", "3", "--size", "5", *at)).code == 0
    (found,) = json.loads((await run_holdfast("queue", "list", "--json", *at)).stdout)
    assert (found["name"], found["messages"], found["bytes_max"]) == ("a", 3, 1000)
    told = json.loads((await run_holdfast("status", "--json", *at)).stdout)
    assert told["node"] == "t" and told["uptime_s"] >= 0 and told["resident_bytes"] > 0
    assert {"sessions", "routes", "queues"} <= told.keys()
    assert {"name", "messages", "bytes", "oldest_s"} <= told["queues"][0].keys()
    shown = await run_holdfast("status", *at)
    assert shown.code == 0 and shown.stdout.startswith("node t, up ")
    assert (await run_holdfast("receive", "a", "--subscription", "audit", "--idle-timeout", "0.2", *at)).code == 0
    (found,) = json.loads((await run_holdfast("subscription", "list", "--json", *at)).stdout)
    assert (found["queue"], found["name"]) == ("a", "audit")
    assert (await run_holdfast("subscription", "delete", "audit", *at)).code == 0
    gone = await run_holdfast("subscription", "delete", "audit", *at)
    assert gone.code == 1 and gone.stderr == "holdfast subscription delete: no subscription 'audit'\n"
    assert "3 messages dropped" in (await run_holdfast("queue", "purge", "a", *at)).stdout
    unknown = await run_holdfast("queue", "delete", "@gone", "--tombstones", *at)
    assert unknown.code == 1 and unknown.stderr == "holdfast queue delete: no queue '@gone'\n"
    assert (await run_holdfast("queue", "skip", "a", *at)).code == 0
    again = await run_holdfast("queue", "create", "a", *at)
    assert again.code == 0 and again.stdout == "a is there already\n"
    again = await run_holdfast("queue", "create", "a", "--bytes-max", "1000", *at)
    assert again.code == 0 and again.stdout == "a is there already, with these settings\n"
    for verb, action, *words in (
        ("queue", "skip", "nosuch"),
        ("queue", "purge", "nosuch"),
        ("subscription", "list", "--queue", "nosuch"),
    ):
        unknown = await run_holdfast(verb, action, *words, *at)
        assert unknown.code == 1 and unknown.stderr == f"holdfast {verb} {action}: no queue 'nosuch'\n"
    forgotten = await run_holdfast("topology", "forget", "x", *at)
    assert forgotten.code == 1 and forgotten.stderr.startswith("holdfast topology forget: this node has no topology")
    assert (await run_holdfast("queue", "delete", "a", *at)).code == 0
    gone = await run_holdfast("queue", "delete", "a", *at)
    assert gone.code == 1 and len(gone.stderr.splitlines()) == 1


async def test_bounds_of_a_subscription(node: NodeProcess) -> None:
    at = ("--url", node.url)
    assert (await run_holdfast("receive", "topic/a", "--subscription", "audit", "--idle-timeout", "0.2", *at)).code == 0
    nothing = await run_holdfast("subscription", "update", "audit", *at)
    assert nothing.code == 2 and "expected --messages-max, --bytes-max, --when-full or --idle" in nothing.stderr
    update = ("subscription", "update", "audit", "--queue", "topic/a", *at)
    bounded = await run_holdfast(*update, "--messages-max", "2", "--when-full", "drop-oldest", "--idle", "60")
    assert bounded.code == 0, bounded.stderr
    assert bounded.stdout == (
        "audit on topic/a changed: messages_max 2, bytes_max none, when_full drop-oldest, idle_s 60\n"
    )
    assert (await run_holdfast("send", "topic/a", "--count", "5", *at)).code == 0
    (found,) = json.loads((await run_holdfast("subscription", "list", "--json", *at)).stdout)
    assert (found["messages"], found["messages_max"], found["idle_s"]) == (2, 2, 60)
    assert (await run_holdfast("receive", "a", "--subscription", "first", "--idle-timeout", "0.2", *at)).code == 0
    heading, *rows = (await run_holdfast("subscription", "list", *at)).stdout.splitlines()
    assert "messages_max" in heading.split() and [row.split()[:2] for row in rows] == [
        ["a", "first"],
        ["topic/a", "audit"],
    ]
    again = await run_holdfast(*update, "--messages-max", "none", "--idle", "none")
    assert again.stdout == "audit on topic/a changed: messages_max none, bytes_max none, when_full none, idle_s none\n"
    refused = await run_holdfast(*update, "--messages-max", "9000", "--when-full", "end")
    assert refused.code == 2 and refused.stderr == (
        "holdfast subscription update: invalid value '9000' for --messages-max; expected a number of messages, "
        "1 to 8192, or none\n"
    )


async def test_nobody_receives_from_management(node: NodeProcess) -> None:
    got = await run_holdfast("receive", "$management", "--url", node.url)
    assert got.code == 2 and "$management answers requests; it has no messages to receive" in got.stderr


@pytest.mark.parametrize("what", [[], ["--file", __file__], ["--count", "1"]])
async def test_nobody_sends_lines_to_management(node: NodeProcess, what: list[str]) -> None:
    """They would be accepted, and do nothing."""
    sent = await run_holdfast("send", "$management", "--url", node.url, *what, stdin="x\n")
    assert sent.code == 2 and "$management takes requests, not messages; give a queue" in sent.stderr


async def test_no_node_is_one_line_and_exit_1(node: NodeProcess) -> None:
    await node.stop()
    for command in (["status"], ["queue", "list"]):
        failed = await run_holdfast(*command, "--url", node.url)
        assert failed.code == 1 and failed.stderr.endswith("Connection refused\n")
        assert len(failed.stderr.splitlines()) == 1
    sent = await run_holdfast("send", "q", "--count", "1", "--retry", "0.2", "--url", node.url)
    assert sent.code == 1 and summary(sent.stderr)["sent"] == 0
    got = await run_holdfast("receive", "q", "--retry", "0.2", "--url", node.url)
    assert got.code == 1 and summary(got.stderr)["received"] == 0


async def started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_ctrl_c_ends_receive_quietly_and_keeps_what_was_printed(node: NodeProcess) -> None:
    sent = await run_holdfast("send", "q", "--url", node.url, stdin="one\n")
    assert sent.code == 0
    process = await started("receive", "q", "--url", node.url)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 10) == b"one\n"
    process.send_signal(signal.SIGINT)
    _, stderr = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 130
    assert summary(stderr.decode())["received"] == 1 and len(stderr.splitlines()) == 1
    await await_left(node, "q", 0)


async def test_a_pipe_is_sent_as_it_comes_and_ctrl_c_ends_it(node: NodeProcess) -> None:
    process = await started("send", "q", "--url", node.url)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthr")
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("q", browse=True)
        for body in (b"one", b"two"):
            assert (await asyncio.wait_for(anext(receiver), 10)).message.body_bytes() == body
    process.send_signal(signal.SIGINT)
    _, stderr = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 130
    assert summary(stderr.decode())["accepted"] == 2 and len(stderr.splitlines()) == 1


async def test_a_reader_that_leaves_costs_no_message(node: NodeProcess) -> None:
    sent = await run_holdfast("send", "q", "--url", node.url, "--count", "2000", "--size", "1000")
    assert sent.code == 0
    process = await started("receive", "q", "--url", node.url)
    assert process.stdout is not None
    first = await asyncio.wait_for(process.stdout.readline(), 10)
    assert first.startswith(b"000000000001 ")
    process.stdout._transport.close()  # type: ignore[attr-defined]  # as `| head -1` does
    code = await asyncio.wait_for(process.wait(), 10)
    assert code == 1
    assert process.stderr is not None
    stderr = (await process.stderr.read()).decode()
    assert "Traceback" not in stderr
    # What was written may be lost in the pipe; what was not written is still here.
    await await_left(node, "q", 2000 - summary(stderr)["received"])


async def test_a_wrong_password_is_one_line(tmp_path: Path) -> None:
    """Of every kind of verb, however long it would try; and what a login without a user is told."""
    (tmp_path / "right").write_text("right")
    (tmp_path / "wrong").write_text("wrong")
    config = tmp_path / "t.toml"
    user = f'[[user]]\nname = "ann"\npassword_file = {json.dumps(str(tmp_path / "right"))}\n'
    config.write_text(f'[node]\nname = "t"\n{user}')
    async with await NodeProcess.start(tmp_path / "data", config=config) as node:
        at = ("--url", node.url.replace("amqp://", "amqp://ann@"), "--password-file", str(tmp_path / "wrong"))
        for words in (("status",), ("queue", "list"), ("send", "q", "--count", "1"), ("receive", "q")):
            ended = await run_holdfast(*words, *at, "--retry", "30")
            verb = "queue list" if words[0] == "queue" else words[0]
            lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
            assert ended.code == 1 and lines == [f"holdfast {verb}: {node.url}: wrong user or password"]
        ended = await run_holdfast("status", "--url", node.url)
        wants = "this node requires a user and a password, as in amqp://user@host: a login without a user was refused"
        offered = "ANONYMOUS is not among what the peer offers: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"
        assert ended.code == 1 and ended.stderr == f"holdfast status: {node.url}: {wants}: {offered}\n"
