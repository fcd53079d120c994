"""`holdfast messages`, `holdfast dead-letters` and `holdfast queue update` against a node."""

import json
import re
import time
from pathlib import Path

from holdfast.client import Message, Properties, connect
from holdfast.client.link import CLOSE_LIMIT_S
from holdfast.units import MIB
from support.process import NodeProcess, run_holdfast


async def run(node: NodeProcess, line: str, code: int = 0) -> str:
    ended = await run_holdfast(*line.split(), "--url", node.url)
    assert ended.code == code, ended.stderr
    return ended.stdout if code == 0 else ended.stderr


async def filled(node: NodeProcess, queue: str, *bodies: bytes) -> None:
    async with await connect(node.url) as connection:
        sender = await connection.sender(queue)
        for body in bodies:
            await sender.send(Message(properties=Properties(message_id=body.decode()), data=[body]))


async def test_messages_are_listed_shown_moved_copied_and_deleted(node: NodeProcess) -> None:
    await filled(node, "flights", b"a", b"b", b"c", b"d")
    rows = json.loads(await run(node, "messages list flights --json"))
    assert [(row["sequence"], row["message_id"], row["state"]) for row in rows] == [
        (1, "a", "ready"), (2, "b", "ready"), (3, "c", "ready"), (4, "d", "ready"),
    ]  # fmt: skip
    assert len(json.loads(await run(node, "messages list flights --json --after 1 --count 2"))) == 2
    listed = await run(node, "messages list flights --after 3")
    assert listed.split()[:2] == ["sequence", "state"] and len(listed.splitlines()) == 2
    shown = json.loads(await run(node, "messages show flights 2 --json"))
    assert shown["body"] == "b" and shown["whole"] and shown["bytes"] > 0
    assert (await run(node, "messages show flights 2")).splitlines()[-1] == "b"
    assert await run(node, "messages move flights 2 --to late") == "flights 2 moved to late\n"
    assert json.loads(await run(node, "messages copy flights 3 --to late --json")) == [{"sequence": 3, "to": "late"}]
    assert await run(node, "messages delete flights 1 4") == "flights 1 deleted\nflights 4 deleted\n"
    assert (await run(node, "receive late --count 2")).splitlines()[:2] == ["b", "c"]
    assert (await run(node, "receive flights --count 1")).splitlines()[0] == "c"
    assert await run(node, "messages delete flights 1 9", code=1) == (
        "holdfast messages delete: no message 1 in queue 'flights'\n"
        "holdfast messages delete: no message 9 in queue 'flights'\n"
    )


async def test_what_a_selector_selects_is_changed(node: NodeProcess) -> None:
    await filled(node, "flights", b"a", b"b", b"c", b"d", b"e")
    async with await connect(node.url) as connection:
        holder = await connection.receiver("flights", count_max=1)
        (held,) = await holder.batch(count_max=1)
        assert held.sequence == 1
        selector = ("--selector", "amqp.message_id <> 'c'")

        async def ended(*words: str) -> tuple[int, str, str]:
            found = await run_holdfast(*words, "--url", node.url)
            return found.code, found.stdout, found.stderr

        assert await ended("messages", "copy", "flights", *selector, "--to", "flights", "--after", "3") == (
            0, "flights 4 copied to flights\nflights 5 copied to flights\n", "",
        )  # fmt: skip
        assert await ended("messages", "delete", "flights", *selector, "--count", "3") == (
            1, "flights 2 deleted\nflights 4 deleted\n",
            "holdfast messages delete: a consumer holds message 1 of queue 'flights'\n",
        )  # fmt: skip
        nothing = "no message in flights matches\n"
        code, told, _ = await ended("messages", "list", "flights", *selector, "--after", "1", "--count", "3", "--json")
        assert [(row["sequence"], row["state"]) for row in json.loads(told)] == [
            (5, "ready"),
            (6, "ready"),
            (7, "ready"),
        ]
        assert await ended("messages", "list", "flights", "--selector", "JMSType = 'x'") == (0, "", nothing)
        assert await ended("messages", "delete", "flights", "--selector", "JMSType = 'x'") == (0, "", nothing)
        code, told, _ = await ended("messages", "move", "flights", *selector, "--to", "late", "--after", "1", "--json")
        assert code == 0 and [row["sequence"] for row in json.loads(told)] == [5, 6, 7]
        assert [row["message_id"] for row in json.loads(await run(node, "messages list flights --json"))] == ["a", "c"]
        for words, wrong in (
            (["1", *selector], "give SEQUENCE, one or several, or --selector"),
            ([], "give SEQUENCE, one or several, or --selector"),
            (["1", "--count", "1"], "--after and --count choose among what --selector selects; leave them out"),
        ):
            assert await ended("messages", "delete", "flights", *words) == (
                2, "", f"holdfast messages delete: {wrong}\n",
            )  # fmt: skip
        code, _, told = await ended("messages", "delete", "flights", "--selector", "a >")
        assert code == 1 and "invalid selector" in told and len(told.splitlines()) == 1
        assert await ended("dead-letters", "requeue", "--selector", "TRUE") == (
            0,
            "",
            "no message in $dead-letters matches\n",
        )


async def test_a_refusal_that_concerns_all_messages_ends_the_command(node: NodeProcess) -> None:
    """A target that cannot be, or one that is full: the next message would be refused as well."""
    await filled(node, "w", b"a", b"b", b"c")
    for line, told in (
        ("messages move w --selector TRUE --to x@none", "messages move: w 1: 't' has no route to 'none'"),
        ("messages copy w 2 3 --to x@none", "messages copy: w 2: 't' has no route to 'none'"),
        ("messages move w --selector TRUE --to w", "messages move: w 1: it is in queue 'w' already"),
        ("messages delete nosuch 1 2", "messages delete: nosuch 1: no queue 'nosuch'"),
    ):
        assert await run(node, line, code=1) == f"holdfast {told}\n"
    await run(node, "queue create small --messages-max 1 --when-full refuse")
    ended = await run_holdfast("messages", "move", "w", "1", "2", "3", "--to", "small", "--url", node.url)
    assert (ended.code, ended.stdout) == (1, "w 1 moved to small\n")
    assert ended.stderr == "holdfast messages move: w 2: queue 'small' is full\n"


async def test_a_command_that_ends_at_a_refusal_ends_at_once(node: NodeProcess) -> None:
    """And not when the node has been waited for: what it had read on for is closed once."""
    await run(node, "send w --count 2000")
    began = time.monotonic()
    await run(node, "messages move w --selector TRUE --to w", code=1)
    assert time.monotonic() - began < CLOSE_LIMIT_S


async def test_a_large_message_keeps_no_other_from_being_copied(node: NodeProcess) -> None:
    await filled(node, "w", b"a")
    async with await connect(node.url) as connection:
        await (await connection.sender("w")).send_parts([bytes(MIB)] * 3)
    await filled(node, "w", b"c")
    ended = await run_holdfast("messages", "copy", "w", "--selector", "TRUE", "--to", "x", "--url", node.url)
    assert (ended.code, ended.stdout) == (1, "w 1 copied to x\nw 3 copied to x\n")
    assert ended.stderr == (
        "holdfast messages copy: message 2 of queue 'w' is larger than stream_bytes, and cannot be copied; "
        "move it, or read it and send it\n"
    )


async def test_a_message_that_no_command_receives_keeps_none_from_being_listed_moved_and_deleted(
    node: NodeProcess,
) -> None:
    await filled(node, "w", b"a", b"b")
    async with await connect(node.url) as connection:
        sender = await connection.sender("w")
        for _ in range(2):
            await sender.send_parts([bytes(MIB)] * 65)
    await filled(node, "w", b"e", b"f")

    async def listed(more: str = "") -> list[int]:
        told = await run(node, f"messages list w --selector TRUE --json {more}")
        return [row["sequence"] for row in json.loads(told)]

    assert await listed() == [1, 2, 3, 4, 5, 6]
    assert await listed("--count 3") == [1, 2, 3] and await listed("--after 2 --count 3") == [3, 4, 5]
    moved = await run(node, "messages move w --selector TRUE --to x --count 3")
    assert moved == "w 1 moved to x\nw 2 moved to x\nw 3 moved to x\n"
    assert await run(node, "messages delete w --selector TRUE") == "w 4 deleted\nw 5 deleted\nw 6 deleted\n"


async def test_a_message_larger_than_the_target_keeps_no_other_from_being_moved(node: NodeProcess) -> None:
    """Where the target is not empty it never fits; what is behind it may."""
    await run(node, "queue create small --bytes-max 4000 --when-full refuse")
    await filled(node, "w", b"a", b"b" * 5000, b"c", b"d" * 1980, b"e")
    ended = await run_holdfast("messages", "move", "w", "--selector", "TRUE", "--to", "small", "--url", node.url)
    assert (ended.code, ended.stdout) == (1, "w 1 moved to small\nw 3 moved to small\n")
    large, full = ended.stderr.splitlines()
    assert re.fullmatch(
        r"holdfast messages move: message 2 of queue 'w' has \d+ bytes; "
        "queue 'small' takes more than 4000 only while it is empty",
        large,
    )
    assert full == "holdfast messages move: w 4: queue 'small' is full"


async def test_dead_letters_go_back_to_their_queue(node: NodeProcess) -> None:
    await filled(node, "flights", b"a", b"b")
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("flights", count_max=2)
        async for delivery in receiver:
            delivery.reject("app:no", "not mine")
        await receiver.close()
    rows = json.loads(await run(node, "dead-letters list --json"))
    assert [(row["message_id"], row["from"], row["reason"]) for row in rows] == [
        ("a", "flights", "rejected: app:no not mine"), ("b", "flights", "rejected: app:no not mine"),
    ]  # fmt: skip
    assert await run(node, "dead-letters requeue 2") == "$dead-letters 2 requeued to flights\n"
    assert json.loads(await run(node, "dead-letters show 1 --json"))["body"] == "a"
    assert await run(node, "dead-letters delete 1") == "$dead-letters 1 deleted\n"
    assert json.loads(await run(node, "dead-letters list --json")) == []
    assert (await run(node, "receive flights --count 1")).splitlines()[0] == "b"


async def test_a_dead_letter_whose_queue_is_full_keeps_no_other_from_going_back(node: NodeProcess) -> None:
    """Each goes to a queue of its own."""
    await run(node, "queue create small --messages-max 1 --when-full refuse")
    for queue, body in (("small", b"a"), ("flights", b"b")):
        await filled(node, queue, body)
        async with await connect(node.url) as connection:
            receiver = await connection.receiver(queue, count_max=1)
            async for delivery in receiver:
                delivery.reject()
    await filled(node, "small", b"c")
    ended = await run_holdfast("dead-letters", "requeue", "--selector", "TRUE", "--url", node.url)
    assert (ended.code, ended.stdout) == (1, "$dead-letters 2 requeued to flights\n")
    assert ended.stderr == "holdfast dead-letters requeue: $dead-letters 1: queue 'small' is full\n"


async def test_a_queues_limits_are_changed(node: NodeProcess) -> None:
    await run(node, "queue create small --messages-max 2")
    told = "small changed: messages_max 5, when_full refuse\n"
    assert await run(node, "queue update small --messages-max 5 --when-full refuse") == told
    told = "small changed: messages_max none\n"
    assert await run(node, "queue update small --messages-max none") == told
    assert await run(node, "queue update small --messages-max none") == "small is so already: messages_max none\n"
    assert json.loads(await run(node, "queue update small --messages-max none --json"))["messages_max"] is None
    assert "nothing to change" in await run(node, "queue update small", code=2)
    assert "no queue 'nosuch'" in await run(node, "queue update nosuch --messages-max 5", code=1)


async def test_a_node_without_dead_letters_says_so(node: NodeProcess, tmp_path: Path) -> None:
    assert json.loads(await run(node, "dead-letters list --json")) == []
    listed = await run_holdfast("dead-letters", "list", "--url", node.url)
    assert (listed.code, listed.stdout, listed.stderr) == (0, "", "no messages in $dead-letters\n")
    for action in ("show", "requeue", "delete"):
        told = await run(node, f"dead-letters {action} 1", code=1)
        assert told == f"holdfast dead-letters {action}: no message 1 in queue '$dead-letters'\n"
    file = tmp_path / "dead.ndjson"
    await run(node, f"dead-letters export {file}")
    assert file.read_bytes() == b""
    assert await run(node, "messages list none", code=1) == "holdfast messages list: no queue 'none'\n"
    refused = await run(node, "messages export none --selector x=", code=1)
    assert refused.splitlines()[0] == "holdfast messages export: no queue 'none'"


async def test_there_are_no_dead_letters_to_purge_on_a_fresh_node(node: NodeProcess) -> None:
    assert await run(node, "queue purge $dead-letters") == "$dead-letters: 0 messages dropped\n"
    assert json.loads(await run(node, "queue purge $dead-letters --json")) == {"purged": 0, "held": 0}
    assert await run(node, "queue purge none", code=1) == "holdfast queue purge: no queue 'none'\n"


async def test_whoever_meets_a_large_message_is_told_how_it_is_taken(node: NodeProcess) -> None:
    async with await connect(node.url) as connection:
        await (await connection.sender("w")).send_parts([bytes(MIB)] * 65)
    how = "`holdfast receive w --to DIRECTORY`"
    shown = await run(node, "messages show w 1")
    assert shown.splitlines()[-1] == f"(a large message: {how} writes it into a file)"
    for verb in ("receive w --count 1", "receive w --browse --count 1", "messages export w"):
        complaint = (await run(node, verb, code=1)).splitlines()[0]
        assert complaint.endswith(f"; {how} takes messages of any size"), complaint


async def test_whoever_browses_a_topic_is_told_which_option_to_leave_out(node: NodeProcess) -> None:
    for option, name in (("--browse", "--browse"), ("--from-sequence 1", "--from-sequence")):
        complaint = (await run(node, f"receive topic/t {option}", code=1)).splitlines()[0]
        what = "topic/t is a topic, which has subscriptions only: it cannot be browsed (distribution-mode copy)"
        assert complaint.endswith(f"{what} (amqp:not-implemented); leave out {name}"), complaint


async def test_what_an_export_complains_of_names_the_whole_verb(node: NodeProcess) -> None:
    await filled(node, "flights", b"a")
    refused = await run(node, "messages export flights --selector x=", code=1)
    assert refused.startswith("holdfast messages export: receiver from 'flights': the node ended the link: invalid")
