"""The work of a task of the sink, at a real node and without Spark: each row once, in order, whatever is sent again."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from holdfast.amqp.wire.types import Int
from holdfast.client import Message, Released, Sender, connect
from holdfast.client.send.pending import OnOutcome
from holdfast.errors import ConfigError, HoldfastError
from pyspark_holdfast import sending
from pyspark_holdfast.bus import Entry
from pyspark_holdfast.rows import record_batch
from pyspark_holdfast.sending import check_numbers, send_partition
from pyspark_holdfast.sink_options import SinkOptions, parse_sink_options
from support.process import NodeProcess
from support.stored import stored_bodies

if TYPE_CHECKING:
    from pyarrow import RecordBatch

StartNode = Callable[..., Awaitable[NodeProcess]]
LIMIT_S = 60.0


def batch(first: int, last: int, **columns: Any) -> "RecordBatch":
    numbers = range(first, last + 1)
    told = {"body": [str(number).encode() for number in numbers]}
    return pa.RecordBatch.from_pydict(told | {name: [value] * len(numbers) for name, value in columns.items()})


def options_of(node: NodeProcess, **more: str) -> SinkOptions:
    return parse_sink_options({"url": node.url, "address": "q", **more})


async def send(
    options: SinkOptions, batches: Iterator["RecordBatch"], *, first: int = 1, knows: bool = False, partition: int = 0
) -> dict[str, int]:
    work = asyncio.to_thread(send_partition, options, "p", partition, {"q": first}, batches, knows=knows)
    return await asyncio.wait_for(work, LIMIT_S)


async def bodies(node: NodeProcess, queue: str = "q") -> list[int]:
    """The numbers in the queue, in its order; they stay there."""
    return [int(body) for body in await stored_bodies(node.url, queue)]


def failing(*batches: "RecordBatch") -> Iterator["RecordBatch"]:
    yield from batches
    raise RuntimeError("the task was killed")


async def test_rows_are_messages_in_their_order(start_node: StartNode) -> None:
    node = await start_node("hub")
    rows = batch(1, 3_000, subject="s", application_properties={"delay": 5})
    thresholds = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    assert await send(options_of(node), iter([rows, batch(3_001, 3_010)])) == {"q": 3_010}
    assert gc.get_threshold() == (701, 11, 12), "the worker is also for others"
    gc.set_threshold(*thresholds)
    assert await bodies(node) == list(range(1, 3_011))
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("q", start_sequence=1, end_sequence=2)
        (message,) = [delivery.message async for delivery in receiver]
    assert message.properties is not None and message.properties.subject == "s"
    assert message.application_properties == {"delay": 5}


@pytest.mark.parametrize("done", [1, 250, 2_000])
async def test_a_task_that_is_computed_again_sends_what_is_missing(start_node: StartNode, done: int) -> None:
    node = await start_node("hub")
    options = options_of(node)
    with pytest.raises(RuntimeError, match="killed"):
        await send(options, failing(batch(1, done)))
    for _ in range(2):
        assert await send(options, iter([batch(1, 2_000)]), knows=True) == {"q": 2_000}
    assert await send(options, iter([batch(2_001, 2_100)]), first=2_001, knows=True) == {"q": 100}
    assert await bodies(node) == list(range(1, 2_101))


async def test_a_later_attempt_fences_the_one_before(start_node: StartNode) -> None:
    node = await start_node("hub")
    gate, reached = threading.Event(), threading.Event()

    def slow() -> Iterator["RecordBatch"]:
        yield batch(1, 300)
        reached.set()
        gate.wait(LIMIT_S)
        yield batch(301, 600)

    before = asyncio.create_task(send(options_of(node), slow()))
    await asyncio.to_thread(reached.wait, LIMIT_S)
    assert await send(options_of(node), iter([batch(1, 600)]), knows=True) == {"q": 600}
    gate.set()
    with pytest.raises(HoldfastError, match="producer 'p-0' was taken over by another attempt of this task"):
        await before
    assert await bodies(node) == list(range(1, 601))


async def test_through_a_crash_of_the_node(start_node: StartNode) -> None:
    node = await start_node("hub")
    reached, gate = threading.Event(), threading.Event()

    def slow() -> Iterator["RecordBatch"]:
        yield batch(1, 2_500)
        reached.set()
        gate.wait(LIMIT_S)
        yield batch(2_501, 3_000)

    sent = asyncio.create_task(send(options_of(node), slow()))
    await asyncio.to_thread(reached.wait, LIMIT_S)
    await node.kill()
    gate.set()
    await node.restart(same_port=True)
    assert await sent == {"q": 3_000}
    assert await bodies(node) == list(range(1, 3_001))


async def test_addresses_from_a_column(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await start_node("hub")
    options = parse_sink_options({"url": node.url})
    rows = [batch(1, 5, address="a"), batch(6, 9, address="b"), batch(10, 12, address="a")]
    for _ in range(2):
        assert await send(options, iter(rows)) == {"a": 8, "b": 4}
    assert await bodies(node, "a") == [*range(1, 6), *range(10, 13)]
    assert await bodies(node, "b") == [*range(6, 10)]
    monkeypatch.setattr(sending, "ADDRESSES_MAX", 2)
    assert await send(options, iter(rows)) == {"a": 8, "b": 4}
    with pytest.raises(ConfigError, match="partition 0 has rows for more than 2 addresses"):
        await send(options, iter([*rows, batch(13, 13, address="c")]))
    with pytest.raises(ConfigError, match="row 1 of partition 0: invalid value None in column 'address'"):
        await send(options, iter([batch(1, 1)]))


async def test_a_mistake_in_a_row_names_it(start_node: StartNode) -> None:
    node = await start_node("hub")
    with pytest.raises(ConfigError, match=r"^row 301 of partition 4: invalid value 300 for priority; expected a whole"):
        await send(options_of(node), iter([batch(1, 300), batch(301, 301, priority=300)]), partition=4)


def test_a_time_that_is_none_names_its_rows() -> None:
    task = sending._Task(parse_sink_options({"url": "amqp://h:1", "address": "q"}), "p", 4, {}, knows=False)
    times = pa.array([0, 2**62], pa.timestamp("us", tz="UTC"))
    with pytest.raises(
        ConfigError, match=r"^rows 1 to 2 of partition 4: .*; expected times of the years 1 to 9999, and"
    ):
        task._rows_of(pa.RecordBatch.from_arrays([times], names=["created"]))


async def test_a_map_with_a_key_twice_is_sent_as_the_json_beside_it_tells_it(start_node: StartNode) -> None:
    """The keys of a map are text: 1 and "1" are one there."""
    node = await start_node("hub")
    twice = Message(data=[b"1"], application_properties={"1": "a", Int(1): "b"})
    plain = Message(data=[b"2"], application_properties={"delay": 5})
    rows = record_batch("in", [Entry(number, 5, Message.decode(m.encode())) for number, m in enumerate((twice, plain))])
    assert await send(options_of(node), iter([rows])) == {"q": 2}
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("q", start_sequence=1, end_sequence=3)
        found = [delivery.message.application_properties async for delivery in receiver]
    assert found == [twice.application_properties, plain.application_properties]
    alone = rows.select(["body", "application_properties"])
    with pytest.raises(ConfigError, match=r"^rows 1 to 2 of partition 0: .*1.*; expected .*each key of a map once$"):
        await send(options_of(node), iter([alone]))


FULL = """
[node]
name = "full"
data = "{data}"
listen = ["127.0.0.1:0"]

[[queue]]
name = "q"
messages_max = 3
when_full = "{when_full}"
"""


async def test_a_refusal_names_the_row(start_node: StartNode, tmp_path: Path) -> None:
    config = tmp_path / "full.toml"
    more = "[limits]\nmessage_bytes_max = 10_000\n"
    config.write_text(FULL.format(data=tmp_path / "full.holdfast", when_full="block") + more)
    node = await start_node("full", config=config)
    large = pa.RecordBatch.from_pydict({"body": [b"x", bytes(20_000), b"y"]})
    with pytest.raises(HoldfastError, match="the node refused row 2 of partition 0 for this address: amqp:link:"):
        await send(options_of(node), iter([large]))


@pytest.mark.parametrize("when_full", ["block", "refuse"])
async def test_a_full_queue_is_waited_for_told_and_given_up(
    start_node: StartNode, tmp_path: Path, capfd: pytest.CaptureFixture[str], when_full: str
) -> None:
    config = tmp_path / "full.toml"
    config.write_text(FULL.format(data=tmp_path / "full.holdfast", when_full=when_full))
    node = await start_node("full", config=config)
    with pytest.raises(HoldfastError, match=r"^q: the node .*; given up after 4 s \(stallSeconds\)$"):
        await send(options_of(node, stallSeconds="4"), iter([batch(1, 10)]))
    assert "holdfast Spark sink: q: the node " in capfd.readouterr().err
    sent = asyncio.create_task(send(options_of(node), iter([batch(1, 10)]), knows=True))
    found: list[int] = []
    async with await connect(node.url) as connection:
        receiver = await connection.receiver("q", credit=2)
        async for delivery in receiver:
            found.append(int(delivery.message.body_bytes()))
            delivery.accept()
            if len(found) == 10:
                break
    assert await sent == {"q": 10}
    assert sorted(found) == list(range(1, 11))


class Returning:
    """A sender at a node that gives all back once."""

    producer, address, last_number = "p-0", "q", 0

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.accepted = 0
        self._back: list[tuple[int, OnOutcome]] = []

    async def post(self, message: Message, *, number: int, on_outcome: OnOutcome) -> None:
        if number in self.numbers:
            self.accepted += 1
        else:
            self._back.append((number, on_outcome))
        self.numbers.append(number)

    async def drain(self) -> None:
        back, self._back = self._back, []
        for number, on_outcome in back:
            on_outcome(number, Released())

    async def close(self) -> None:
        return


async def test_messages_that_are_given_back_together_share_one_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause for each would make minutes of a thousand."""
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(sending.asyncio, "sleep", sleep)
    sender = Returning()
    outflow = sending._Outflow(sender, "queue 'q'", 0, 1, None)  # type: ignore[arg-type]  # it has what is asked of one
    await outflow.put([Message()] * 5)
    await outflow.end()
    assert sender.numbers == [1, 2, 3, 4, 5] * 2 and pauses == [sending.PAUSE_S]


async def test_large_rows_are_sent_before_more_are_made_into_messages(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of 5 MB for each of a hundred addresses would be more than a worker has."""
    node = await start_node("hub")
    monkeypatch.setattr(sending, "IN_DOUBT_BYTES_MAX", 100_000)
    monkeypatch.setattr(sending, "BYTES_AT_ONCE", 25_000)
    held: list[int] = []
    post = Sender.post

    async def posted(sender: Sender, message: Any, **more: Any) -> None:
        in_doubt[sender] = [*in_doubt.get(sender, ()), message]
        await post(sender, message, **more)
        for one in in_doubt:
            in_doubt[one] = in_doubt[one][len(in_doubt[one]) - one.in_doubt :]
        held.append(sum(len(each.data[0]) for messages in in_doubt.values() for each in messages))

    in_doubt: dict[Sender, list[Any]] = {}
    monkeypatch.setattr(Sender, "post", posted)
    told = {"body": [b"%10000d" % number for number in range(1, 51)], "address": ["a", "b"] * 25}
    assert await send(parse_sink_options({"url": node.url}), iter([pa.RecordBatch.from_pydict(told)])) == {
        "a": 25, "b": 25,
    }  # fmt: skip
    assert max(held) <= 100_000
    assert await bodies(node, "a") + await bodies(node, "b") == [*range(1, 50, 2), *range(2, 51, 2)]
    assert [part.num_rows for part in sending._cut(batch(1, 1))] == [1]


async def test_fewer_rows_than_the_node_has_are_told(start_node: StartNode) -> None:
    node = await start_node("hub")
    await send(options_of(node), iter([batch(1, 10)]))
    with pytest.raises(HoldfastError, match="has number 10 of producer 'p-0', and this partition ends at 9: it was"):
        await send(options_of(node), iter([batch(1, 9)]), knows=True)
    with pytest.raises(HoldfastError, match="has number 10 of producer 'p-0', and this partition ends at 0: it was"):
        await send(options_of(node), iter([]), knows=True)
    assert await send(options_of(node), iter([]), first=11, knows=True) == {}, "it had no rows before either"
    by_column = parse_sink_options({"url": node.url})
    with pytest.raises(
        HoldfastError, match=r"queue 'q' .* has number 10 of producer 'p-0', and this partition ends at"
    ):
        await send(by_column, iter([batch(1, 3, address="other")]), first=5, knows=True)


async def test_a_producer_that_the_node_has_forgotten_is_told(start_node: StartNode) -> None:
    node = await start_node("hub")
    with pytest.raises(HoldfastError, match="has forgotten producer 'p-0'"):
        await send(options_of(node), iter([batch(1, 9)]), first=2, knows=True)
    assert await send(options_of(node), iter([batch(1, 9)]), first=5) == {"q": 9}


async def test_an_older_checkpoint_is_told_before_a_row_is_sent(start_node: StartNode) -> None:
    node = await start_node("hub")
    options = options_of(node)
    await send(options, iter([batch(1, 10)]))
    await asyncio.to_thread(check_numbers, options, "p", {"q": {0: 11, 1: 1}})
    with pytest.raises(ConfigError, match="has number 10 of producer 'p-0', and the checkpoint gives 7 next: it is an"):
        await asyncio.to_thread(check_numbers, options, "p", {"q": {0: 7}})


async def test_an_address_that_is_gone_ends_no_query_that_does_not_write_there(
    start_node: StartNode, tmp_path: Path
) -> None:
    config = tmp_path / "full.toml"
    config.write_text(FULL.format(data=tmp_path / "full.holdfast", when_full="block"))
    node = await start_node("full", config=config)
    options = parse_sink_options({"url": node.url})
    await asyncio.to_thread(check_numbers, options, "p", {"gone": {0: 7, 1: 3}, "q": {0: 1}})
    first = {"gone": 7, "q": 1}
    for knows in (False, True):
        rows = iter([batch(1, 2, address="q")])
        assert await asyncio.to_thread(send_partition, options, "p", 0, first, rows, knows=knows) == {"q": 2}
    with pytest.raises(HoldfastError, match="no queue 'gone'"):
        await send(options, iter([batch(1, 2, address="gone")]))


async def test_those_producers_are_asked_that_were_used_last(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each that ever was: a node remembers so many of all programs together."""
    node = await start_node("hub")
    monkeypatch.setattr(sending, "CHECKED_MAX", 2)
    numbers = {f"q{number}": {0: 1} for number in range(9)}
    await asyncio.to_thread(check_numbers, parse_sink_options({"url": node.url}), "p", numbers)
    async with await connect(node.url) as connection:
        told = await connection.manage("QUERY", "holdfast:queue", "")
    assert [row["name"] for row in told["queues"] if row["name"].startswith("q")] == ["q7", "q8"]


async def test_a_node_that_is_not_there_is_told() -> None:
    options = parse_sink_options({"url": "amqp://127.0.0.1:1", "address": "q", "retrySeconds": "0"})
    with pytest.raises(HoldfastError, match=r"amqp://127\.0\.0\.1:1: .*refused"):
        await send(options, iter([batch(1, 1)]))
    with pytest.raises(HoldfastError, match=r"queue 'q' at amqp://127\.0\.0\.1:1"):
        await asyncio.to_thread(check_numbers, options, "p", {"q": {0: 7}})
