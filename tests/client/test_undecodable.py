"""Messages that cannot be decoded, among others: each costs itself alone, whoever reads."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Timestamp
from holdfast.client import UndecodableMessage, connect
from holdfast.client.blocking import BlockingConnection
from holdfast.client.messages import payload as cutting
from holdfast.client.messages.payload import Cut
from support.process import NodeProcess, run_holdfast, summary

ODD = (
    bytes.fromhex("005377d000000005000000013f"),  # a list with an element of a type that AMQP does not have
    bytes.fromhex("005373c0020150") + Message(data=[b"x"]).encode(),  # properties whose only field is cut short
    bytes.fromhex("005374c1020140") + Message(data=[b"x"]).encode(),  # a map of one element
)
GOOD = [Message(data=[b"%d" % number]).encode() for number in range(4)]
SENT = [GOOD[0], ODD[0], ODD[1], GOOD[1], ODD[2], GOOD[2], GOOD[3]]
ODD_PLACES = [2, 3, 5]
EXTREME = (
    Message(properties=Properties(creation_time=Timestamp(-(2**63))), data=[b"a"]),
    Message(properties=Properties(absolute_expiry_time=Timestamp(2**63 - 1)), value=Timestamp(2**63 - 1)),
    Message(value=float("nan")), Message(value={1: {b"\xff": None}}), Message(sequences=[[Timestamp(-(2**63))]]),
)  # fmt: skip


async def send(node: NodeProcess, monkeypatch: pytest.MonkeyPatch, payloads: list[bytes]) -> None:
    """Into the queue `q`, as they are."""
    monkeypatch.setattr(cutting, "cut", lambda payload: Cut(b"", None, payload))
    async with await connect(node.url) as connection:
        sender = await connection.sender("q")
        for payload in payloads:
            await sender.post(payload)
        await sender.drain()
        assert sender.accepted == len(payloads)
    monkeypatch.undo()


async def run(node: NodeProcess, *words: str) -> tuple[int, str, str]:
    ended = await run_holdfast(*words, "--url", node.url)
    return ended.code, ended.stdout, ended.stderr


async def counts(node: NodeProcess) -> dict[str, int]:
    async with await connect(node.url) as connection:
        queues = (await connection.manage("STATUS", "holdfast:node"))["queues"]
        return {queue["name"]: queue["messages"] for queue in queues if queue["messages"]}


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("how", [("--browse",), ("--from-sequence", "1"), ()])
async def test_receive_prints_the_others(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...], form: tuple[str, ...]
) -> None:
    await send(node, monkeypatch, SENT)
    code, out, err = await run(node, "receive", "q", *how, *form, "--idle-timeout", "0.5")
    lines = out.splitlines()
    assert [json.loads(line)["body"] if form else line for line in lines] == ["0", "1", "2", "3"]
    assert code == 1 and summary(err)["received"] == 4 and summary(err)["unreadable"] == 3
    told = [line for line in err.splitlines() if "cannot be read" in line]
    ends = "passed over" if how else "rejected"
    assert len(told) == 3
    for line, place in zip(told, ODD_PLACES, strict=True):
        assert line.startswith(f"holdfast receive: q: sequence {place} cannot be read, {ends}: amqp:decode-error: ")
    assert await counts(node) == ({"q": 7} if how else {"$dead-letters": 3})


async def test_dead_letters_that_cannot_be_read_stay_there(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(node, monkeypatch, SENT)
    await run(node, "receive", "q", "--idle-timeout", "0.5")
    code, out, err = await run(node, "receive", "$dead-letters", "--idle-timeout", "0.5")
    assert code == 1 and out == "" and err.count("left in the queue") == 3
    assert await counts(node) == {"$dead-letters": 3}


async def test_receive_to_files(node: NodeProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What can be decoded and is no bytes stays in the queue."""
    await send(node, monkeypatch, [*SENT, Message(value=[1]).encode()])
    place = tmp_path / "files"
    place.mkdir()
    code, out, err = await run(node, "receive", "q", "--to", str(place), "--idle-timeout", "0.5")
    assert code == 1 and sorted(path.read_bytes() for path in place.iterdir()) == [b"0", b"1", b"2", b"3"]
    assert len(out.splitlines()) == 4
    told = [line for line in err.splitlines() if "cannot be read" in line]
    assert [" rejected: " in line for line in told] == [False, True, True, False]
    assert [f"sequence {place} " in line for line, place in zip(told, [*ODD_PLACES, 8], strict=True)] == [True] * 4
    assert await counts(node) == {"q": 2, "$dead-letters": 2}


async def test_values_at_their_extremes_are_printed(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(node, monkeypatch, [message.encode() for message in EXTREME])
    for form in ((), ("--json",)):
        code, out, err = await run(node, "receive", "q", "--browse", *form, "--idle-timeout", "0.5")
        assert (code, len(out.splitlines())) == (0, len(EXTREME)), err


async def test_the_library_names_it_and_settles_it(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(node, monkeypatch, SENT)
    odd: list[Any] = []
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("q", count_max=7)
        async for delivery in receiver:
            try:
                assert delivery.message.data
                delivery.accept()
            except UndecodableMessage as error:
                odd.append((error.sequence, error.condition, error.payload == delivery.payload))
                assert delivery.payload.endswith(ODD[len(odd) - 1])
                delivery.reject(error.condition, error.description)
    assert odd == [(place, "amqp:decode-error", True) for place in ODD_PLACES]
    assert await counts(node) == {"$dead-letters": 3}


async def test_in_parts_it_is_named_and_settled(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(node, monkeypatch, [GOOD[0], ODD[1], GOOD[1], ODD[2], GOOD[2]])
    odd, good = [], []
    async with await connect(node.url) as connection:
        receiver = await connection.parts_receiver("q", count_max=5)
        async for delivery in receiver:
            try:
                assert delivery.message is not None
                good.append(b"".join([part async for part in delivery.parts()]))
                delivery.accept()
            except UndecodableMessage:
                odd.append(delivery.sequence)
                delivery.reject("amqp:decode-error")
    assert good == [b"0", b"1", b"2"] and odd == [2, 4]
    assert await counts(node) == {"$dead-letters": 2}


async def test_a_range_goes_up_to_it_and_on_behind_it(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await send(node, monkeypatch, SENT)

    def read() -> tuple[list[bytes], list[int]]:
        found, odd, start = [], [], 1
        with BlockingConnection(node.url) as connection:
            while start:
                try:
                    for entries in connection.read_range("q", start, 8):
                        found += [entry.message.body_bytes() for entry in entries]
                    start = 0
                except UndecodableMessage as error:
                    assert f"queue 'q', sequence {error.sequence}: " in str(error)
                    odd.append(error.sequence)
                    start = error.sequence + 1
        return found, odd

    assert await asyncio.to_thread(read) == ([b"0", b"1", b"2", b"3"], ODD_PLACES)
