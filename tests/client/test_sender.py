"""What a sender promises: nothing lost, nothing doubled with a name, bounds kept, outcomes as values."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from client.fake_broker import FakeBroker
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.performatives import Rejected as RejectedState
from holdfast.amqp.wire.performatives import Released as ReleasedState
from holdfast.amqp.wire.types import Long, Symbol, Ulong
from holdfast.client import (
    Accepted,
    ClientFull,
    Connection,
    LinkError,
    LinkStolen,
    ProducerConflict,
    Rejected,
    Released,
    Spool,
    connect,
)
from holdfast.client.send import transmission
from holdfast.client.send.sender import WhenFull
from holdfast.client.waiting import Waiting
from holdfast.errors import ConfigError
from support import today


def bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


async def test_who_is_cancelled_waits_no_more(broker: FakeBroker, connection: Connection) -> None:
    """Nothing is kept of it, however long the others wait."""
    broker.hold_outcomes = True
    sender = await connection.sender("q", in_doubt_max=1)
    await sender.submit(b"1")
    for wait in (sender.submit(b"2"), sender.drain()):
        task = asyncio.create_task(wait)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    waiting = sender._outbox.waiting
    assert not waiting._for_room and not waiting._for_end
    broker.release_outcomes()
    await sender.drain()
    assert broker.bodies("q") == [b"1"]


async def test_a_place_meant_for_who_is_cancelled_goes_to_the_next(broker: FakeBroker, connection: Connection) -> None:
    """Cancelled at the moment when there is room: the other is not left waiting."""
    broker.hold_outcomes = True
    sender = await connection.sender("q", in_doubt_max=1)
    decided = await sender.submit(b"1")
    first, second = (asyncio.create_task(sender.submit(body)) for body in (b"2", b"3"))
    await asyncio.sleep(0)
    decided.add_done_callback(lambda _: first.cancel())  # called before who was woken runs
    broker.release_outcomes()
    async with asyncio.timeout(10):
        await second
        assert first.cancelled()
        broker.release_outcomes()
        await sender.drain()
    assert broker.bodies("q") == [b"1", b"3"]


async def test_who_is_cancelled_takes_no_place_of_another() -> None:
    """Not even where it has not run since."""
    waiting = Waiting(asyncio.get_running_loop())
    first, second = (asyncio.create_task(waiting.for_room()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    waiting.wake(1, is_empty=False)
    async with asyncio.timeout(10):
        await second


async def test_outcomes_are_values(broker: FakeBroker, connection: Connection) -> None:
    def decide(bare: bytes) -> object:
        if bare.endswith(b"bad"):
            return RejectedState(Error(Symbol("amqp:not-allowed"), "never"))
        return ReleasedState() if bare.endswith(b"not now") else None

    broker.decide = decide
    sender = await connection.sender("q")
    told: list[object] = []
    await sender.post(b"bad", on_outcome=lambda number, outcome: told.append((number, outcome)))
    assert await sender.send(b"good") == Accepted()
    assert await sender.send(b"bad", check=False) == Rejected("amqp:not-allowed", "never")
    assert await sender.send(b"not now", check=False) == Released()
    assert (sender.accepted, sender.rejected, sender.released) == (1, 2, 1)
    assert told == [(None, Rejected("amqp:not-allowed", "never"))]


async def test_what_is_in_doubt_goes_again_without_a_name(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    broker.hold_outcomes = True
    for body in bodies(1, 2, 3):
        await sender.post(body)
    await broker.until(lambda: len(broker.bodies("q")) == 3)
    broker.hold_outcomes = False
    broker.cut()
    await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == bodies(1, 2, 3, 1, 2, 3)  # at least once: the broker cannot tell
    assert sender.accepted == 3


async def test_with_a_name_none_is_doubled(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", producer="p")
    broker.hold_outcomes = True
    for body in bodies(1, 2, 3):
        await sender.post(body)
    await broker.until(lambda: len(broker.bodies("q")) == 3)
    broker.hold_outcomes = False
    broker.cut()
    await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == bodies(1, 2, 3)
    assert sender.accepted == 3 and sender.last_number == 3
    assert sender.epoch == 2


async def test_the_missing_ones_go_again_in_order(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", producer="p")
    broker.hold_outcomes = True
    futures = [await sender.submit(body) for body in bodies(1, 2, 3, 4, 5)]
    await broker.until(lambda: len(broker.bodies("q")) == 5)
    stored = broker.producers["q", "p"]
    stored.remove(2)
    stored.remove(5)
    broker.queue("q").appended.clear()
    broker.hold_outcomes = False
    broker.cut()
    assert await asyncio.wait_for(asyncio.gather(*futures), 5) == [Accepted()] * 5
    assert broker.bodies("q") == bodies(2, 5)


@pytest.mark.parametrize("seed", today.some(range(8), 2))
async def test_cut_again_and_again_each_is_there_once_in_order(seed: int) -> None:
    rng = Random(seed)
    async with FakeBroker() as broker, await connect(broker.url, retry_s=20, rng=rng) as connection:
        sender = await connection.sender("q", producer="p", in_doubt_max=rng.choice((1, 7, 300)))
        cuts = sorted(rng.sample(range(1, 400), 5))
        for number in range(400):
            if cuts and number >= cuts[0]:
                cuts.pop(0)
                broker.hold_outcomes = rng.random() < 0.5
                broker.cut()
                await broker.until(lambda: bool(broker.connections))
                broker.release_outcomes()
            await asyncio.wait_for(sender.post(b"%d" % number), 10)
        await asyncio.wait_for(sender.drain(), 10)
        assert broker.bodies("q") == bodies(*range(400))
        assert sender.accepted == 400


async def test_a_new_run_of_a_producer_goes_on_with_its_numbers(broker: FakeBroker) -> None:
    for run in (1, 2):
        async with await connect(broker.url) as connection:
            sender = await connection.sender("q", producer="p")
            assert sender.next_number == (run - 1) * 2 + 1
            await sender.send(b"a")
            await sender.send(b"b")
    assert broker.bodies("q") == [b"a", b"b", b"a", b"b"]


async def test_own_numbers_say_what_is_there_already(broker: FakeBroker) -> None:
    for _ in range(2):
        async with await connect(broker.url) as connection:
            sender = await connection.sender("q", producer="p")
            for number in (1, 2, 3):
                assert await sender.send(b"%d" % number, number=number) == Accepted()
    assert broker.bodies("q") == bodies(1, 2, 3)


async def test_a_rejected_number_may_be_tried_again_later(broker: FakeBroker, connection: Connection) -> None:
    broker.decide = lambda bare: RejectedState() if bare.endswith(b"five") else None
    sender = await connection.sender("q", producer="p")
    assert isinstance(await sender.send(b"five", check=False), Rejected)
    assert await sender.send(b"six") == Accepted()
    broker.decide = None
    assert await sender.send(b"five", number=1) == Accepted()
    assert await sender.send(b"five", number=1) == Accepted()  # dropped by the broker, which has it
    assert broker.bodies("q") == [b"six", b"five"]


async def test_numbers_need_a_name(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    with pytest.raises(ConfigError, match="needs a producer name"):
        await sender.send(b"x", number=1)
    named = await connection.sender("q", producer="p")
    with pytest.raises(ConfigError, match="expected 1 to"):
        await named.send(b"x", number=0)


async def test_the_bound_waits_and_one_past_it_is_not_taken(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", in_doubt_max=3)
    broker.hold_outcomes = True
    for body in bodies(1, 2, 3):
        await sender.post(body)
    late = asyncio.create_task(sender.post(b"4"))
    gone = asyncio.create_task(sender.post(b"never"))
    await broker.until(lambda: len(broker.bodies("q")) == 3)
    assert not late.done() and sender.in_doubt == 3
    gone.cancel()
    broker.release_outcomes()
    await asyncio.wait_for(late, 5)
    await asyncio.wait_for(sender.drain(), 5)
    assert broker.bodies("q") == bodies(1, 2, 3, 4)


async def test_many_waiters_at_the_bound(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", in_doubt_max=2)
    outcomes = await asyncio.wait_for(asyncio.gather(*(sender.send(b"%d" % n) for n in range(50))), 5)
    assert outcomes == [Accepted()] * 50 and sorted(broker.bodies("q")) == sorted(bodies(*range(50)))


async def test_the_bound_raises(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", in_doubt_max=2, when_full="raise")
    broker.hold_outcomes = True
    await sender.post(b"1")
    await sender.post(b"2")
    with pytest.raises(ClientFull, match="2 messages are in doubt; the limit is 2"):
        await sender.post(b"3")
    broker.release_outcomes()
    await sender.drain()
    assert await sender.send(b"3") == Accepted()


async def test_a_stolen_name_is_one_clear_error(broker: FakeBroker, connection: Connection) -> None:
    first = await connection.sender("q", producer="p")
    broker.hold_outcomes = True
    future = await first.submit(b"x")
    await broker.until(lambda: len(broker.bodies("q")) == 1)
    async with await connect(broker.url) as other:
        second = await other.sender("q", producer="p")
        with pytest.raises(LinkStolen, match="another holds the name"):
            await asyncio.wait_for(future, 5)
        with pytest.raises(LinkStolen):
            await first.send(b"y")
        with pytest.raises(LinkStolen):
            await first.drain()
        broker.release_outcomes()
        assert second.next_number == 2


async def test_a_name_used_by_another_meanwhile_is_a_conflict(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", producer="p")
    await sender.send(b"x")
    broker.producers["q", "p"].add(2, 7)
    broker.cut()
    await broker.until(sender.is_over)
    with pytest.raises(ProducerConflict, match="the node has stored number 7"):
        await sender.send(b"y")


@pytest.mark.parametrize("missing", [5, "x", [5], [["a", "b"]], [[1]], [[1, 2, 3]], [[3, 2]], [[0, 1]], [[True, 2]]])
async def test_a_node_that_says_nonsense_of_numbers_costs_its_link_alone(
    broker: FakeBroker, connection: Connection, missing: object
) -> None:
    other = await connection.sender("q")
    broker.untruths = {Symbol("holdfast:missing"): missing}
    with pytest.raises(LinkError, match="holdfast:missing"):
        await asyncio.wait_for(connection.sender("q", producer="p"), 5)
    assert await asyncio.wait_for(other.send(b"x"), 5) == Accepted()
    assert connection.reconnects == 0


@pytest.mark.parametrize("last", [True, "x", [1], Long(-5), Long(-1), Ulong(2**63), Ulong(2**64 - 1)])
@pytest.mark.parametrize("has_spool", [False, True])
async def test_a_node_that_says_nonsense_of_its_last_number_costs_its_link_alone(
    last: object, has_spool: bool, broker: FakeBroker, connection: Connection, tmp_path: Path
) -> None:
    """And nothing of it is kept in the spool."""
    other = await connection.sender("q")
    broker.untruths = {Symbol("holdfast:last-number"): last}
    when_full: WhenFull = Spool(tmp_path / "spool") if has_spool else "wait"
    with pytest.raises(LinkError, match=r"^sender to 'q': invalid holdfast:last-number .* expected a number from 0 "):
        sender = await connection.sender("q", producer="p", when_full=when_full)
        await asyncio.wait_for(sender.ready(), 5)
    assert await asyncio.wait_for(other.send(b"x"), 5) == Accepted()
    assert connection.reconnects == 0
    broker.untruths = {}
    sender = await connection.sender("q", producer="p", when_full=when_full)
    assert await asyncio.wait_for(sender.send(b"y"), 5) == Accepted() and broker.producers["q", "p"].last == 1


async def test_behind_the_last_number_there_is_no_other(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", producer="p")
    assert await sender.send(b"x", number=2**63 - 1) == Accepted()
    broker.cut()
    assert await asyncio.wait_for(sender.send(b"y", number=3), 5) == Accepted()
    with pytest.raises(ConfigError, match="there is no number above"):
        await sender.send(b"z")
    assert await sender.send(b"z", number=2) == Accepted() and connection.reconnects == 1


async def test_a_final_detach_fails_what_is_in_doubt(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    broker.hold_outcomes = True
    future = await sender.submit(b"x")
    await broker.until(lambda: len(broker.bodies("q")) == 1)
    broker.detach_all("amqp:resource-deleted", "the queue is gone")
    with pytest.raises(LinkError, match=r"the queue is gone \(amqp:resource-deleted\)"):
        await asyncio.wait_for(future, 5)
    with pytest.raises(LinkError):
        await connection.close()


async def test_a_passing_detach_is_attached_again(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q", producer="p")
    for condition in ("amqp:link:detach-forced", None):
        attaches = broker.attaches
        broker.detach_all(condition)
        await broker.until(lambda: broker.attaches > attaches)  # noqa: B023 - looked at within this turn
        assert await asyncio.wait_for(sender.send(b"x"), 5) == Accepted()
    assert connection.reconnects == 0 and len(broker.bodies("q")) == 2


async def test_a_message_larger_than_the_node_takes_is_rejected_here(
    broker: FakeBroker, connection: Connection
) -> None:
    sender = await connection.sender("q")
    sender._transmission.message_bytes_max = 100
    outcome = await sender.send(bytes(200), check=False)
    assert outcome == Rejected("amqp:link:message-size-exceeded", "the node takes at most 100 bytes in a message")
    assert await sender.send(b"small") == Accepted()


@pytest.mark.parametrize("run_max", [0, 1, 3, 64])
async def test_messages_keep_their_order_in_runs_and_alone(
    broker: FakeBroker, connection: Connection, monkeypatch: pytest.MonkeyPatch, run_max: int
) -> None:
    """Small ones, those of several frames, and one that is read while it is sent."""
    monkeypatch.setattr(transmission, "RUN_MAX", run_max)
    sender = await connection.sender("q", producer="p")
    sent = [b"%d" % number * (100_000 if number % 17 == 0 else 1) for number in range(1, 101)]
    for body in sent[:50]:
        await sender.post(body)
    parts = asyncio.create_task(sender.send_parts([b"in ", b"parts"]))
    await asyncio.sleep(0)
    for body in sent[50:]:
        await sender.post(body)
    await asyncio.wait_for(sender.drain(), 10)
    assert await parts == Accepted()
    assert broker.bodies("q") == [*sent[:50], b"in parts", *sent[50:]]


async def test_large_messages_arrive_whole(broker: FakeBroker, connection: Connection) -> None:
    sender = await connection.sender("q")
    body = Random(1).randbytes(3_000_000)
    assert await asyncio.wait_for(sender.send(body), 10) == Accepted()
    assert broker.bodies("q") == [body]


# ------------------------------------------------------------------------------------------------------ spool
