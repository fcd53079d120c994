"""A sender with a spool: what it is given survives breaks, crashes and a power loss, once and in order."""

import asyncio
import errno
import os
from pathlib import Path
from random import Random

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import TRY_LATER
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.performatives import Rejected as RejectedState
from holdfast.amqp.wire.performatives import Released as ReleasedState
from holdfast.amqp.wire.types import Symbol
from holdfast.client import (
    Accepted,
    ClientFull,
    Connection,
    ConnectionFailed,
    ProducerConflict,
    Rejected,
    Sender,
    Spool,
    Spooled,
    connect,
)
from holdfast.client.send import retry_queue
from holdfast.client.spool import numbering
from holdfast.errors import ConfigError, StorageError
from support import today
from support.eventually import eventually_async


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def has_given_back(sender: Sender) -> None:
    async def look() -> int:
        return sender.released

    await eventually_async(look)


async def spooling(connection: Connection, path: Path, **options: int) -> Sender:
    return await connection.sender("q", producer="p", in_doubt_max=5, when_full=Spool(path, **options))


async def test_a_spool_takes_what_is_past_the_bound(broker: FakeBroker, connection: Connection, tmp_path: Path) -> None:
    sender = await spooling(connection, tmp_path / "spool")
    broker.hold_outcomes = True
    futures = [await sender.submit(b"%d" % number) for number in range(1, 21)]
    late = [future.result() for future in futures if future.done()]
    assert late == [Spooled(number) for number in range(6, 21)]
    assert sender.spooled == 20
    broker.release_outcomes()
    await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == bodies(*range(1, 21)) and sender.accepted == 20 and sender.spooled == 0


async def test_a_spool_fills_while_no_node_is_there_and_survives_a_crash(tmp_path: Path) -> None:
    broker = FakeBroker()
    await broker.listen()
    # An earlier run of the producer, before there was a spool: its numbers must not be taken again.
    async with await connect(broker.url) as before:
        await (await before.sender("q", producer="p")).send(b"0")
    await broker.stop()

    connection = await connect(broker.url, retry_s=60, wait=False, rng=Random(1))
    sender = await spooling(connection, tmp_path / "spool")
    for number in range(1, 51):
        await sender.post(b"%d" % number)
    assert sender.spooled == 50 and sender.in_doubt == 5
    await connection.abort()  # the process is gone; nothing was said to anyone

    connection = await connect(broker.url, retry_s=60, wait=False, rng=Random(1))
    sender = await spooling(connection, tmp_path / "spool")
    await sender.post(b"51")
    await broker.listen()
    await asyncio.wait_for(sender.drain(), 10)
    assert broker.bodies("q") == bodies(*range(52))
    assert list(broker.producers["q", "p"]) == [(1, 52)]
    await connection.close()
    await broker.stop()


@pytest.mark.parametrize("seed", today.some(range(6), 2))
async def test_crashes_of_client_and_connection_leave_each_once_in_order(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    async with FakeBroker() as broker:
        number = 0
        while number < 300:
            broker.hold_outcomes = rng.random() < 0.3
            connection = await connect(broker.url, retry_s=20, rng=rng)
            sender = await spooling(connection, tmp_path / "spool")
            for _ in range(rng.randrange(1, 120)):
                await sender.post(b"%d" % number)
                number += 1
                if rng.random() < 0.02:
                    broker.cut()
                if rng.random() < 0.05:
                    await asyncio.sleep(0)
            if rng.random() < 0.5:
                broker.release_outcomes()
                await asyncio.wait_for(sender.drain(), 10)
            await connection.abort()
        broker.release_outcomes()
        connection = await connect(broker.url, rng=rng)
        sender = await spooling(connection, tmp_path / "spool")
        await asyncio.wait_for(sender.drain(), 10)
        await connection.close()
        assert broker.bodies("q") == bodies(*range(number))


@pytest.mark.parametrize("attached_first", [False, True])
async def test_after_a_power_loss_no_number_is_given_twice(
    broker: FakeBroker, tmp_path: Path, attached_first: bool
) -> None:
    """The disk keeps what was synced at the first attach; the node has all five."""
    path = tmp_path / "spool"
    connection = await connect(broker.url, rng=Random(1))
    sender = await spooling(connection, path, fsync_interval_s=60)
    await asyncio.wait_for(sender.ready(), 10)
    synced = path.read_bytes()
    for number in range(5):
        await sender.send(b"%d" % number)
    await connection.abort()
    path.write_bytes(synced)  # the power went

    if not attached_first:
        await broker.stop()
    connection = await connect(broker.url, retry_s=60, wait=attached_first, rng=Random(1))
    sender = await spooling(connection, path, fsync_interval_s=60)
    if attached_first:
        await asyncio.wait_for(sender.ready(), 10)
    for number in range(5, 8):
        await sender.post(b"%d" % number)
    if not attached_first:
        await broker.listen()
    await asyncio.wait_for(sender.drain(), 10)
    await connection.close()
    assert broker.bodies("q") == bodies(*range(8))
    assert list(broker.producers["q", "p"]) == [(1, 8)]  # and no gap, of which a node remembers so many only


async def test_an_older_copy_of_a_spool_is_a_conflict_before_anything_is_accepted(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "BLOCK", 3)
    path = tmp_path / "spool"
    async with await connect(broker.url) as connection:
        await (await spooling(connection, path)).ready()
    copy = path.read_bytes()
    async with await connect(broker.url) as connection:
        sender = await spooling(connection, path)
        for number in range(5):
            await sender.send(b"%d" % number)
    path.write_bytes(copy)
    await broker.stop()
    connection = await connect(broker.url, retry_s=60, wait=False, rng=Random(1))
    sender = await spooling(connection, path)
    futures = [await sender.submit(b"new") for _ in range(7)]
    await broker.listen()
    with pytest.raises(ProducerConflict, match=r"the node has stored number 5, and 0 is the last .* an older copy"):
        await asyncio.wait_for(sender.drain(), 10)
    assert all(isinstance(future.exception(), ProducerConflict) for future in futures[:5])
    assert sender.accepted == 0 and sender.spooled == 7
    await connection.abort()


FULL = RejectedState(Error(Symbol("amqp:resource-limit-exceeded"), "the disk is full", {TRY_LATER: True}))


@pytest.mark.parametrize("state", [ReleasedState(), FULL])
@pytest.mark.parametrize("is_cut", [False, True])
async def test_what_the_node_gives_back_stays_in_the_spool_and_is_offered_again(
    broker: FakeBroker,
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_cut: bool,
    state: object,
) -> None:
    monkeypatch.setattr(retry_queue, "RETRY_DELAY_S", 60.0 if is_cut else 0.01)
    sender = await spooling(connection, tmp_path / "spool")
    asked = 0

    def decide(bare: bytes) -> object:
        nonlocal asked
        asked += 1
        return state if asked % 2 and asked < 9 else None

    broker.decide = decide
    for number in range(20):
        await sender.post(b"%d" % number)
    if is_cut:  # what waits to be offered again goes at once on a new connection
        await has_given_back(sender)
        assert sender.spooled > 0
        broker.cut()
        broker.decide = None
    await asyncio.wait_for(sender.drain(), 10)
    assert sorted(broker.bodies("q")) == sorted(bodies(*range(20)))
    assert (sender.accepted, sender.spooled) == (20, 0) and sender.released > 0


async def test_what_is_rejected_for_good_leaves_the_spool(
    broker: FakeBroker, connection: Connection, tmp_path: Path
) -> None:
    sender = await spooling(connection, tmp_path / "spool")
    broker.decide = lambda bare: RejectedState(Error(Symbol("amqp:resource-limit-exceeded"), "too many annotations"))
    outcome = await sender.send(b"1", check=False)
    assert isinstance(outcome, Rejected) and not outcome.is_full
    assert (sender.rejected, sender.spooled) == (1, 0)


async def test_what_the_node_gives_back_goes_before_anything_later(
    broker: FakeBroker, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what was given back last of all that was under way, and in the order of their numbers: a node bounds the
    gaps in them, and rejects what would be one more."""
    monkeypatch.setattr(retry_queue, "RETRY_DELAY_S", 0.02)
    sender = await spooling(connection, tmp_path / "spool")
    came: list[bytes] = []

    def decide(bare: bytes) -> object:
        came.append(Message.decode(bare).body_bytes())
        return ReleasedState() if came.count(came[-1]) == 1 and came[-1] in (b"1", b"3") else None

    broker.decide = decide
    broker.hold_outcomes = True
    for number in range(5):
        await sender.post(b"%d" % number)
    await broker.until(lambda: len(came) == 5)
    (peer,) = broker.connections
    rest, peer.decided = peer.decided[2:], peer.decided[:2]
    peer.settle()
    await has_given_back(sender)
    for number in range(5, 30):
        await sender.post(b"%d" % number)
    await asyncio.sleep(0.2)  # several times as long as what was given back waits
    assert came == bodies(*range(5))
    peer.decided = rest
    broker.release_outcomes()
    await asyncio.wait_for(sender.drain(), 10)
    assert came == bodies(*range(5), 1, 3, *range(5, 30))
    assert (sender.accepted, sender.rejected) == (30, 0)


async def test_a_full_spool_raises(broker: FakeBroker, connection: Connection, tmp_path: Path) -> None:
    sender = await spooling(connection, tmp_path / "spool", bytes_max=5_000)
    broker.hold_outcomes = True
    with pytest.raises(ClientFull, match="spool"):
        for _ in range(100):
            await sender.post(bytes(500))
    broker.release_outcomes()
    await asyncio.wait_for(sender.drain(), 5)
    assert await sender.send(b"again") == Accepted()


async def test_a_full_disk_under_one_spool_ends_its_sender_alone(
    broker: FakeBroker, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file cannot even be closed properly: that is said by the sender, and the connection goes on."""
    other = await connection.sender("other")
    third = await connection.sender("q", producer="third", when_full=Spool(tmp_path / "third"))
    sender = await spooling(connection, tmp_path / "spool")
    assert await sender.send(b"a") == Accepted()
    broker.hold_outcomes = True
    waiting = await sender.submit(b"b")
    await broker.until(lambda: len(broker.bodies("q")) == 2)

    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        broker.hold_outcomes = False
        broker.release_outcomes()
        assert await asyncio.wait_for(waiting, 5) == Accepted()
        assert await asyncio.wait_for(other.send(b"c"), 5) == Accepted()
        assert isinstance(sender.failure, StorageError) and connection.failure is None
        with pytest.raises(StorageError, match="No space left on device"):
            await third.close()
    assert await asyncio.wait_for(other.send(b"d"), 5) == Accepted()


async def test_with_interval_zero_each_submit_waits_for_the_disk(
    broker: FakeBroker, connection: Connection, tmp_path: Path
) -> None:
    sender = await spooling(connection, tmp_path / "spool", fsync_interval_s=0)
    outcomes = await asyncio.gather(*(sender.send(b"%d" % number) for number in range(30)))
    assert all(isinstance(outcome, Accepted | Spooled) for outcome in outcomes)
    await asyncio.wait_for(sender.drain(), 5)
    assert sorted(broker.bodies("q")) == sorted(bodies(*range(30)))


async def test_a_spool_needs_a_name(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a producer name"):
        await connection.sender("q", when_full=Spool(tmp_path / "spool"))


async def test_a_spool_keeps_what_a_lost_node_did_not_take(broker: FakeBroker, tmp_path: Path) -> None:
    connection = await connect(broker.url, retry_s=0.2, rng=Random(1))
    sender = await spooling(connection, tmp_path / "spool")
    broker.hold_outcomes = True
    await sender.post(b"kept")
    await broker.stop()
    with pytest.raises(ConnectionFailed):
        await asyncio.wait_for(sender.drain(), 5)
    await connection.close()  # nothing is lost sight of: it lies in the file
    broker.hold_outcomes = False
    await broker.listen()
    async with await connect(broker.url) as again:
        sender = await spooling(again, tmp_path / "spool")
        await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == [b"kept"]
