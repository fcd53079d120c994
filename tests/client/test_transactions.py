"""Transactions of the client library, against a real node (docs/client.md, "Transactions")."""

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client import (
    Accepted,
    Connection,
    Rejected,
    Sender,
    Spool,
    TransactionInDoubt,
    TransactionRolledBack,
    connect,
)
from holdfast.client.receive.receiver import Receiver
from holdfast.client.transactions import Controller
from holdfast.errors import ConfigError
from support.eventually import eventually_async
from support.process import NodeProcess


async def depth(connection: Connection, queue: str) -> int:
    return int((await connection.manage("READ", "holdfast:queue", queue))["messages"])


async def becomes(connection: Connection, queue: str, wanted: int) -> None:
    async def found() -> int:
        return await depth(connection, queue)

    await eventually_async(found, lambda count: count == wanted, what=f"{wanted} messages in {queue}")


async def opened(node: NodeProcess) -> tuple[Connection, Sender, Receiver]:
    """A connection with a sender to `out` and a receiver from `in`, which has three messages."""
    connection = await connect(node.url)
    sender = await connection.sender("in")
    for number in range(3):
        assert await sender.send(str(number)) == Accepted()
    return connection, await connection.sender("out"), await connection.receiver("in")


async def test_a_block_commits_what_was_sent_and_settled(node: NodeProcess) -> None:
    connection, sender, receiver = await opened(node)
    async with connection.transaction() as transaction:
        for _ in range(2):
            delivery = await anext(receiver)
            assert await transaction.send(sender, delivery.payload) == Accepted()
            transaction.accept(delivery)
        assert await depth(connection, "out") == 0 and await depth(connection, "in") == 3
    assert await depth(connection, "out") == 2 and await depth(connection, "in") == 1
    async with connection.transaction() as transaction:
        transaction.reject(await anext(receiver), "amqp:decode-error", "no")
    assert await depth(connection, "in") == 0 and await depth(connection, "$dead-letters") == 1
    await connection.close()


async def test_a_block_that_raises_is_rolled_back(node: NodeProcess) -> None:
    connection, sender, receiver = await opened(node)
    with pytest.raises(KeyError):
        async with connection.transaction() as transaction:
            first = await anext(receiver)
            transaction.accept(first)
            await transaction.send(sender, "x")
            raise KeyError
    assert await depth(connection, "out") == 0 and await depth(connection, "in") == 3
    seen = [(await anext(receiver)).message.body_bytes() for _ in range(3)]
    assert sorted(seen) == [b"0", b"1", b"2"]  # the first came again
    await connection.close()


async def test_several_at_once_and_one_that_releases(node: NodeProcess) -> None:
    connection, sender, receiver = await opened(node)
    async with connection.transaction() as one, connection.transaction() as two:
        await one.send(sender, "1")
        await two.send(sender, "2")
        two.release(await anext(receiver))
        await one.rollback()
    assert await depth(connection, "out") == 1 and await depth(connection, "in") == 3
    await connection.close()


async def test_a_message_that_is_refused_fails_the_commit(node: NodeProcess) -> None:
    connection, _, receiver = await opened(node)
    await connection.manage("CREATE", "holdfast:queue", "small", {"messages_max": 1, "when_full": "refuse"})
    small = await connection.sender("small")
    with pytest.raises(TransactionRolledBack, match="full") as caught:
        async with connection.transaction() as transaction:
            transaction.accept(await anext(receiver))
            await transaction.submit(small, "1")
            refused = await transaction.send(small, "2", check=False)
            assert isinstance(refused, Rejected) and refused.is_full is False
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    assert await depth(connection, "small") == 0 and await depth(connection, "in") == 3
    async with connection.transaction() as transaction:
        await transaction.send(small, "3")
    assert await depth(connection, "small") == 1
    await connection.close()


async def test_a_named_producers_numbers_count_with_the_commit(node: NodeProcess) -> None:
    connection = await connect(node.url)
    sender = await connection.sender("q", producer="p")
    for number in (1, 2, 1):  # the first is repeated, as after an answer that was lost
        async with connection.transaction() as transaction:
            await transaction.send(sender, str(number), number=number)
    await connection.close()
    async with await connect(node.url) as again:
        assert (await again.sender("q", producer="p")).last_number == 2
        assert await depth(again, "q") == 2


async def test_a_kill_rolls_back_what_was_open(node: NodeProcess) -> None:
    connection, sender, receiver = await opened(node)
    with pytest.raises(TransactionRolledBack, match="rolled"):
        async with connection.transaction() as transaction:
            transaction.accept(await anext(receiver))
            assert await transaction.send(sender, "x") == Accepted()
            await node.kill()
            await node.restart(same_port=True)
            await becomes(connection, "in", 3)
            await transaction.send(sender, "y")
    assert await depth(connection, "out") == 0
    async with connection.transaction() as transaction:
        await transaction.send(sender, "z")
    assert await depth(connection, "out") == 1
    await connection.close()


async def test_what_came_before_a_break_is_not_settled_in_a_transaction_behind_it(node: NodeProcess) -> None:
    """The node offers it again, and would commit without it."""
    connection, sender, receiver = await opened(node)
    delivery = await anext(receiver)
    link = delivery.link
    await node.kill()
    await node.restart(same_port=True)
    await becomes(connection, "in", 3)
    delivery.link = link  # as long as the node has not offered it again
    assert link.attached, "which is all that the end of a connection leaves of it"
    with pytest.raises(TransactionRolledBack, match="link of the delivery is gone"):
        async with connection.transaction() as transaction:
            await transaction.send(sender, "x")
            transaction.accept(delivery)
    assert not delivery.settled and await depth(connection, "out") == 0
    await connection.close()


async def test_a_break_during_the_commit_is_in_doubt(node: NodeProcess) -> None:
    connection, sender, _ = await opened(node)
    transaction = connection.transaction()
    await transaction.__aenter__()
    await transaction.send(sender, "x")
    controller = connection.controller()
    ask = controller.ask

    async def broken(value: Any) -> Any:
        asked = ask(value)
        assert connection._wire is not None
        node.signal(signal.SIGSTOP)
        connection.loop.call_later(0.05, connection._wire.abort, "cut")
        try:
            return await asked
        finally:
            node.signal(signal.SIGCONT)

    controller.ask = broken  # type: ignore[method-assign]
    with pytest.raises(TransactionInDoubt, match="may have done it or not"):
        await transaction.commit()
    await connection.close()


async def test_mistakes_are_told(node: NodeProcess, tmp_path: Any) -> None:
    connection, sender, receiver = await opened(node)
    transaction = connection.transaction()
    with pytest.raises(ConfigError, match="has not begun"):
        await transaction.send(sender, "x")
    spooled = await connection.sender("q", producer="p", when_full=Spool(tmp_path / "spool"))
    async with transaction:
        delivery = await anext(receiver)
        transaction.accept(delivery)
        with pytest.raises(ConfigError, match="settled already"):
            transaction.accept(delivery)
        with pytest.raises(ConfigError, match="exclude each other"):
            await transaction.send(spooled, "x")
    with pytest.raises(ConfigError, match="is over"):
        await transaction.send(sender, "x")
    await connection.close()


async def shown(connection: Connection, queue: str, count: int) -> list[bytes]:
    receiver = await connection.receiver(queue)
    found = [(await asyncio.wait_for(anext(receiver), 20)).message.body_bytes() for _ in range(count)]
    await receiver.close()
    return sorted(found)


async def until(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        for _ in iter(ready, True):
            await asyncio.sleep(0)


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_commit_that_is_cancelled_while_messages_are_on_their_way_is_rolled_back(node: NodeProcess) -> None:
    connection, sender, receiver = await opened(node)
    transaction = await connection.transaction().__aenter__()
    transaction.accept(await anext(receiver))
    sent = [await transaction.submit(sender, "x" * 10_000) for _ in range(20)]
    committing = asyncio.create_task(transaction.__aexit__(None, None, None))
    await asyncio.sleep(0)
    assert not committing.done()
    await cancelled(committing)
    assert not any(future.cancelled() for future in sent)
    await receiver.close()
    other = await connect(node.url)
    assert await shown(other, "in", 3) == [b"0", b"1", b"2"] and await depth(other, "out") == 0
    with pytest.raises(ConfigError, match="is over"):
        await transaction.send(sender, "x")
    await other.close()
    await connection.close()


async def test_a_commit_that_is_cancelled_before_it_is_asked_for_is_rolled_back(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, sender, receiver = await opened(node)
    transaction = await connection.transaction().__aenter__()
    transaction.accept(await anext(receiver))
    await transaction.send(sender, "x")
    with monkeypatch.context() as patch:
        patch.setattr(Controller, "turn_ended", lambda self, *, paused: None)
        committing = asyncio.create_task(transaction.__aexit__(None, None, None))
        await asyncio.sleep(0.05)
        await cancelled(committing)
    connection.controller().touch()
    await receiver.close()
    other = await connect(node.url)
    assert await shown(other, "in", 3) == [b"0", b"1", b"2"] and await depth(other, "out") == 0
    await other.close()
    await connection.close()


async def test_a_send_that_was_given_up_does_not_hide_one_that_was_refused(node: NodeProcess) -> None:
    connection, sender, _ = await opened(node)
    await connection.admin.create_queue("small", messages_max=1, when_full="refuse")
    small = await connection.sender("small")
    await small.send("1")
    transaction = await connection.transaction().__aenter__()
    (await transaction.submit(sender, "x")).cancel()
    await transaction.submit(small, "2")
    with pytest.raises(TransactionRolledBack, match=r"^a message was refused: .*full") as caught:
        await transaction.commit()
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    assert await depth(connection, "out") == 0
    await connection.close()


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_send_that_was_given_up_leaves_only_the_rollback(
    node: NodeProcess, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """Nobody knows whether its message is in; and what was not sent does not come behind the transaction's end."""
    connection, _, receiver = await opened(node)
    sender = await connection.sender("out", in_doubt_max=1)
    transaction = await connection.transaction().__aenter__()
    transaction.accept(await anext(receiver))
    with monkeypatch.context() as patch:
        patch.setattr(sender, "turn_ended", lambda *, paused: None)  # as without credit
        first = await transaction.submit(sender, "x") if is_full else None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transaction.send(sender, "y"), 0.1)
        committing = asyncio.ensure_future(transaction.commit())
        await asyncio.sleep(0)
        if first is not None:
            first.cancel()
        with pytest.raises(TransactionRolledBack, match="a send was cancelled: its message may not be in"):
            await asyncio.wait_for(committing, 20)
    assert sender.in_doubt == 0
    async with connection.transaction() as again:
        await again.send(sender, "z")
    await receiver.close()
    assert await shown(connection, "out", 1) == [b"z"] and await depth(connection, "in") == 3
    await connection.close()


async def test_a_rollback_leaves_out_what_was_not_sent(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, sender, _ = await opened(node)
    transaction = await connection.transaction().__aenter__()
    with monkeypatch.context() as patch:
        patch.setattr(sender, "turn_ended", lambda *, paused: None)  # as without credit
        sent = await transaction.submit(sender, "x")
        kept = await sender.submit("y")
        await transaction.rollback()
    with pytest.raises(TransactionRolledBack, match="ended before the message was sent"):
        await asyncio.wait_for(sent, 20)
    sender.touch()
    assert await asyncio.wait_for(kept, 20) == Accepted()
    assert (sender.in_doubt, sender.rejected) == (0, 0) and await depth(connection, "out") == 1
    await connection.close()


async def test_whoever_is_cancelled_while_a_transaction_begins_leaves_none(node: NodeProcess) -> None:
    """The node has places for 64."""
    connection = await connect(node.url)
    controller = connection.controller()
    await controller.ready()
    for _ in range(70):
        beginning = asyncio.create_task(connection.transaction().__aenter__())
        await until(lambda: bool(controller._asked))
        await cancelled(beginning)
        await until(lambda: not (controller._asked or controller._unsent))
    async with connection.transaction() as transaction:
        await transaction.send(await connection.sender("out"), "x")
    assert await depth(connection, "out") == 1
    await connection.close()
