"""Links and transactions of the client without an event loop, against a real node."""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from holdfast.client import (
    Accepted,
    ConnectionEnded,
    LinkError,
    Rejected,
    TransactionRolledBack,
    connect,
)
from holdfast.client.blocking import BlockingConnection
from holdfast.errors import ConfigError
from support.eventually import eventually
from support.process import NodeProcess, killed_at_the_end

T = TypeVar("T")

LIMIT_S = 60


async def blocking(node: NodeProcess, work: Callable[[BlockingConnection], T]) -> T:
    """`work` in a thread, with a connection and three messages in `in`."""

    def run() -> T:
        with BlockingConnection(node.url) as connection:
            for number in range(3):
                connection.send("in", str(number))
            return work(connection)

    return await asyncio.wait_for(asyncio.to_thread(run), LIMIT_S)


def depth(connection: BlockingConnection, queue: str) -> int:
    return int(connection.manage("READ", "holdfast:queue", queue)["messages"])


async def test_a_block_commits_what_was_sent_and_settled(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> None:
        sender, receiver = connection.sender("out"), connection.receiver("in")
        assert repr(sender) == "<BlockingSender to out>" and repr(receiver) == "<BlockingReceiver of in>"
        with connection.transaction() as transaction:
            for _ in range(2):
                delivery = next(receiver)
                assert transaction.send(sender, delivery.payload) == Accepted()
                assert transaction.submit(sender, "more").result(LIMIT_S) == Accepted()
                transaction.accept(delivery)
            assert (depth(connection, "out"), depth(connection, "in")) == (0, 3)
        assert (depth(connection, "out"), depth(connection, "in")) == (4, 1)
        with connection.transaction() as transaction:
            transaction.reject(next(receiver), "app:no", "not mine")
        assert (depth(connection, "in"), depth(connection, "$dead-letters")) == (0, 1)
        with pytest.raises(ConfigError, match="is over"):
            transaction.commit()

    await blocking(node, work)


async def test_a_block_that_raises_is_rolled_back(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> None:
        sender = connection.sender("out")
        with connection.receiver("in") as receiver:
            with pytest.raises(KeyError), connection.transaction() as transaction:
                transaction.accept(next(receiver))
                transaction.send(sender, "x")
                raise KeyError
            with connection.transaction() as transaction:
                transaction.release(next(receiver))
                transaction.submit(sender, "y")
                transaction.rollback()
            assert (depth(connection, "out"), depth(connection, "in")) == (0, 3)

    await blocking(node, work)


async def test_a_message_that_is_refused_fails_the_commit(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> None:
        connection.manage("CREATE", "holdfast:queue", "small", {"messages_max": 1, "when_full": "refuse"})
        small = connection.sender("small")
        with pytest.raises(TransactionRolledBack, match="full"), connection.transaction() as transaction:
            transaction.send(small, "1")
            assert isinstance(transaction.submit(small, "2").result(LIMIT_S), Rejected)
        assert depth(connection, "small") == 0

    await blocking(node, work)


async def test_a_named_producers_numbers_count_with_the_commit(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> None:
        sender = connection.sender("q", producer="p")
        for number in (1, 2, 1):
            with connection.transaction() as transaction:
                transaction.send(sender, str(number), number=number)
        assert sender.send("3", number=4) == Accepted()
        sender.close()
        again = connection.sender("q", producer="p")
        assert (again.last_number, again.next_number, list(again.missing)) == (4, 5, [(3, 3)])
        assert depth(connection, "q") == 3

    await blocking(node, work)


async def test_a_receiver_gives_and_settles_messages(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> None:
        receiver = connection.receiver("in", count_max=3)
        (first,) = receiver.batch(count_max=1)
        assert (first.sequence, first.message.body_bytes(), first.settled) == (1, b"0", False)
        assert first.enqueued_ms > 0 and "sequence 1" in repr(first)
        first.modify(annotations={"x": 1})
        second, third = receiver
        assert receiver.batch(timeout_s=0.1) == [] and not receiver.ended
        second.reject("app:no")
        third.release()
        assert second.settled and third.settled
        receiver.close()
        again = eventually(
            lambda: list(connection.receiver("in", browse=True, start_sequence=1, end_sequence=4)),
            lambda found: [delivery.sequence for delivery in found] == [1, 3],
            what="the rejection in the store",
        )
        assert (again[0].message.message_annotations or {})["x"] == 1
        last = connection.receiver("in", count_max=2)
        for delivery in last:
            delivery.accept()
        last.close()
        assert (depth(connection, "in"), depth(connection, "$dead-letters")) == (0, 1)

    await blocking(node, work)


async def test_what_was_made_of_a_closed_connection_is_ended(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> None:
        sender, receiver, transaction = connection.sender("q"), connection.receiver("in"), connection.transaction()
        with pytest.raises(LinkError):
            connection.sender("$holdfast/no")
        transaction.__enter__()
        delivery = next(receiver)
        connection.close()
        calls: list[Callable[[], Any]] = [
            lambda: sender.send("x"), lambda: next(receiver), delivery.accept, transaction.commit,
        ]  # fmt: skip
        for reopened in (False, True):
            if reopened:
                connection.open()
            for call in calls:
                with pytest.raises(ConnectionEnded, match="closed"):
                    call()
        assert depth(connection, "in") == 3 and depth(connection, "q") == 0

    await blocking(node, work)


async def test_a_kill_rolls_back_what_was_open(node: NodeProcess) -> None:
    killed, up = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def restart() -> None:
        await killed.wait()
        await node.kill()
        await node.restart(same_port=True)
        up.set()

    restarting = asyncio.create_task(restart())

    def work(connection: BlockingConnection) -> None:
        sender, receiver = connection.sender("out"), connection.receiver("in")
        with pytest.raises(TransactionRolledBack), connection.transaction() as transaction:
            transaction.accept(next(receiver))
            assert transaction.send(sender, "x") == Accepted()
            loop.call_soon_threadsafe(killed.set)
            asyncio.run_coroutine_threadsafe(up.wait(), loop).result(LIMIT_S)
        with connection.transaction() as transaction:
            transaction.send(sender, "z")
        assert (depth(connection, "out"), depth(connection, "in")) == (1, 3)

    await blocking(node, work)
    await restarting


INTERRUPTED = """
import sys
from holdfast.client.blocking import BlockingConnection

with BlockingConnection(sys.argv[1]) as connection:
    sender, receiver = connection.sender("out"), connection.receiver("in")
    with connection.transaction() as transaction:
        transaction.accept(next(receiver))
        transaction.send(sender, "x")
        print("open", flush=True)
        connection.receiver("nothing").batch()
"""


async def test_ctrl_c_in_a_block_rolls_it_back(node: NodeProcess) -> None:
    async with await connect(node.url) as connection:
        await (await connection.sender("in")).send("0")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", INTERRUPTED, node.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with killed_at_the_end(process):
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), LIMIT_S) == b"open\n"
            process.send_signal(signal.SIGINT)
            _, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
        assert errors.decode().splitlines()[-1] == "KeyboardInterrupt"
        for queue, messages in (("in", 1), ("out", 0)):
            assert (await connection.manage("READ", "holdfast:queue", queue))["messages"] == messages
