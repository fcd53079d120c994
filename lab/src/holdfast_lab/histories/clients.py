"""Histories of clients: producers that die, readers that come back, dead letters that are moved back to their queue.

Rules of this file: one function a history; programs are the client library's, as an application would write them.
Source: docs/CUSTODY.md, "Producers" and "Readers".
"""

import asyncio
from typing import Any

from holdfast.client import Accepted, Connection, Lease, LinkError, ManagementError, Message
from holdfast.entity_types import QUEUE, SUBSCRIPTION
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.client_history import key_in
from holdfast_lab.histories.programs import data_of
from holdfast_lab.histories.stage import History, Stage, sites
from holdfast_lab.workloads import attached


class Reader:
    """A job that takes: reads ranges by sequence, and advances when what it wrote is safe."""

    def __init__(self, stage: Stage, node: str, queue: str, name: str, mode: str = "take") -> None:
        self.stage, self.node, self.queue, self.name, self.mode = stage, node, queue, name, mode
        self.connection: Connection | None = None
        self.opened: dict[str, Any] = {}
        self.written: list[bytes] = []
        """What its table holds: of each range that it committed, once."""

    async def open(self) -> None:
        """Started, or started anew: it is the holder of the lease now."""
        if self.connection is None:
            self.connection = await self.stage.bed.connect(self.node, self.name)
        self.opened = await self.ask("OPEN", mode=self.mode)

    async def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        assert self.connection is not None
        told = {"queue": self.queue, **arguments}
        if operation in ("PEEK", "ADVANCE"):
            told |= {"queue_uuid": self.opened["queue_uuid"], "lease_epoch": self.opened["lease_epoch"]} | arguments
        return await self.connection.manage(operation, SUBSCRIPTION, self.name, told)

    async def end(self, start: int) -> int:
        return int((await self.ask("PEEK", start=start))["end"])

    async def read(self, start: int, end: int) -> list[bytes]:
        """The keys of the range; it can be read again until it is advanced."""
        assert self.connection is not None
        connection = self.connection
        lease = Lease(self.name, self.opened["queue_uuid"], self.opened["lease_epoch"])
        receiver = await attached(
            lambda: connection.receiver(self.queue, start_sequence=start, end_sequence=end, lease=lease)
        )
        found = []
        async for delivery in receiver:
            key = key_in(delivery.payload)
            assert key is not None
            found.append(key)
            self.stage.bed.history.receive(key, f"{self.queue} at {self.node}, by sequence", marked=True)
        return found

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()
        self.connection = None


# ------------------------------------------------------------------------------------------------ readers


async def one_cursor(stage: Stage) -> None:
    """Spark alone, through a restart of the hub and of itself; then consumers alone; then both, each with all."""
    await stage.together()
    keys = await stage.send("jfk", "work@hub", stage.some(10, 60))
    await stage.until("all is at the hub", lambda: stage.keys("hub", "work") == keys)
    spark = Reader(stage, "hub", "work", "spark")
    await spark.open()
    connection = await stage.bed.connect("hub", "other")
    refusal = await _refusal(connection, "work")
    stage.check("taken by subscription 'spark', which reads alone" in refusal, f"a consumer is refused: {refusal!r}")
    start, half = 1, stage.some(1, len(keys) - 1) + 1
    first = await spark.read(start, half)
    stage.equal("the first range", first, keys[: half - 1])
    spark.written += first
    await spark.ask("ADVANCE", sequence=half)
    await stage.until("what was advanced leaves", lambda: stage.keys("hub", "work") == keys[half - 1 :])
    end = await spark.end(half)
    once = await spark.read(half, end)
    stage.equal("the second range", once, keys[half - 1 :])
    if stage.chance():  # read, and not advanced: the job or the node dies
        stage.crash("hub", power=stage.chance())
        await stage.moment(3.0)
        stage.start("hub")
    else:
        await spark.close()
    await spark.open()
    stage.equal("where it stands", int(spark.opened["advanced"]), half)
    again = await spark.read(half, end)
    stage.equal("the same range again", again, once)
    spark.written += again
    for _ in range(2):  # idempotent
        await spark.ask("ADVANCE", sequence=end)
    stage.equal("what Spark's table holds", spark.written, keys)
    await stage.until("nothing is left", lambda: not stage.keys("hub", "work"))
    stage.check((await _refusal(connection, "work")) != "", "a consumer is still refused")
    await spark.ask("DELETE")
    consumers = [stage.consumer("hub", "work", credit=stage.some(1, 10)) for _ in range(2)]
    alone = await stage.send("jfk", "work@hub", stage.some(5, 30))
    await stage.all_shown()
    shown = sorted(key for consumer in consumers for key in consumer.keys)
    stage.equal("what consumers alone were shown, each once", shown, alone)
    copy = Reader(stage, "hub", "work", "copy", mode="copy")
    await copy.open()
    place = int(copy.opened["tail"])
    both = await stage.send("jfk", "work@hub", stage.some(5, 30))
    await stage.until(
        "consumers have all", lambda: sum(len(consumer.keys) for consumer in consumers) == len(alone + both)
    )
    stage.equal("what the copy's cursor keeps", stage.keys("hub", "work"), both)
    stage.equal("what the copy is shown", await copy.read(place, await copy.end(place)), both)
    await copy.ask("ADVANCE", sequence=await copy.end(place))
    await stage.until("it leaves when every cursor has passed", lambda: not stage.keys("hub", "work"))


async def _refusal(connection: Connection, queue: str, **parts: Any) -> str:
    """What a receiver is refused with; empty where it is not."""
    try:
        receiver = await connection.receiver(queue, **parts)
    except LinkError as error:
        return str(error)
    await receiver.close()
    return ""


async def recreated_queue(stage: Stage) -> None:
    """The queue of a checkpoint is deleted and made anew: what the checkpoint says is refused, and moves nothing."""
    await stage.together()
    keys = await stage.send("jfk", "work@hub", stage.some(5, 40))
    await stage.until("all is at the hub", lambda: stage.keys("hub", "work") == keys)
    spark = Reader(stage, "hub", "work", "spark")
    await spark.open()
    stop = stage.some(2, len(keys))
    await spark.read(1, stop)
    old = dict(spark.opened)
    operator = await stage.bed.connect("hub", "operator")
    stage.excuse(keys, "the operator deletes the queue")
    await spark.ask("DELETE")
    await operator.manage("DELETE", QUEUE, "work")
    await operator.manage("CREATE", QUEUE, "work", {"order": "strict"})
    fresh = await stage.send("jfk", "work@hub", stop + stage.some(0, 9))
    await stage.until("the new ones are there", lambda: stage.keys("hub", "work") == fresh)
    if stage.chance():
        stage.crash("hub")
        stage.start("hub")
    await spark.open()
    stage.happened(spark.opened["queue_uuid"] != old["queue_uuid"], "it is another queue")
    line = f"queue 'work' was deleted and created again: it is {spark.opened['queue_uuid']} now"
    told = {"queue_uuid": old["queue_uuid"], "lease_epoch": spark.opened["lease_epoch"]}
    for operation, arguments in (("ADVANCE", {"sequence": stop}), ("PEEK", {"start": stop})):
        try:
            await spark.ask(operation, **arguments, **told)
            stage.check(False, f"{operation} with the old checkpoint is refused")
        except ManagementError as error:
            stage.check(line in str(error), f"{operation} is refused with a clear line: {error}")
    lease = Lease("spark", old["queue_uuid"], spark.opened["lease_epoch"])
    assert spark.connection is not None
    refusal = await _refusal(spark.connection, "work", start_sequence=stop, end_sequence=stop + 1, lease=lease)
    stage.check(line in refusal, f"a range of the old queue is refused with a clear line: {refusal!r}")
    stage.equal("the new queue", stage.keys("hub", "work"), fresh)
    stage.equal("where the new one stands", int((await spark.ask("READ"))["advanced"]), int(spark.opened["advanced"]))
    start = int(spark.opened["head"])
    stage.equal("what it reads from its start", await spark.read(start, await spark.end(start)), fresh)


# ------------------------------------------------------------------------------------------------ producers


async def producer_crash(stage: Stage) -> None:
    """The program dies with numbers in doubt; what it left in the buffers comes when a newer one has its name."""
    await stage.together()
    jfk = stage.nodes["jfk"]
    producer = await stage.producer("jfk", "work@hub", name="ledger")
    sent = await producer.send(stage.some(1, 10))
    jfk.store.hold()
    doubt = await producer.post(stage.some(1, 5))
    await stage.arises("some are being committed", lambda: stage.committing("jfk", doubt[0]))
    link = stage.connection("ledger", "jfk")
    client_end, node_end = link.ends if link.ends[0].peer == "jfk" else link.ends[::-1]
    link.hold(node_end)
    buffered = await producer.post(stage.some(1, 5))
    await stage.arises(
        "more lie in the node's buffer", lambda: any(buffered[0] in data for data in link.held(node_end))
    )
    link.reset_for(client_end)
    await producer.crash()
    release_at = stage.random.choice(("while the newer asks", "when the newer is told", "after all"))
    stage.bed.world.note("jfk", "the buffer is read", release_at)
    attaching = asyncio.ensure_future(producer.attach())
    await stage.arises(
        "the newer holder asks while its older self's are being committed",
        lambda: stage.committing("jfk", doubt[0]) and len(stage.bed.network.between("ledger", "jfk")) == 2,
    )
    await stage.moment(0.5)
    if release_at == "while the newer asks":
        link.let_go(node_end)
        await stage.moment(0.01)
    end = stage.random.choice(("stored", "refused", "killed"))
    if end == "refused":
        jfk.store.refuse_appends = 1
    if end == "killed":
        stage.crash("jfk")
        jfk.store.release()
        stage.start("jfk")
    else:
        jfk.store.release()
    await attaching
    if release_at == "when the newer is told":
        link.let_go(node_end)
    assert producer.sender is not None
    stage.check(
        len(sent) <= producer.sender.last_number <= len(sent + doubt + buffered), "the node tells what it has stored"
    )
    # The application knows the numbers that it had answers for, and sends all others again.
    again = await producer.send(len(doubt + buffered), first=len(sent) + 1)
    stage.equal("what goes again", again, doubt + buffered)
    if release_at == "after all":
        link.let_go(node_end)
    more = await producer.send(stage.some(1, 5))
    keys = sent + doubt + buffered + more
    await stage.until("all is at the hub", lambda: stage.holds_all("hub", "work", keys))
    stage.equal("the hub's queue, each once", sorted(stage.keys("hub", "work")), keys)
    consumer = stage.consumer("hub", "work")
    await stage.all_shown()
    stage.equal("what the consumer was shown, each once", sorted(seen.key for seen in consumer.seen), keys)


async def refused_then_retried(stage: Stage) -> None:
    """5 is too large for what room is left, 6 is not; 5 goes again under its number, over a new connection too."""
    producer = await stage.producer("jfk", "small")
    before = await producer.send(4, size=200)
    five = await producer.send(1, size=1_500)
    stage.happened(five[0] not in stage.bed.history.accepted, "5 was refused")
    six = await producer.send(stage.some(1, 3), size=50)
    stage.happened(all(key in stage.bed.history.accepted for key in six), "6 was taken after it")
    stage.equal("the queue", stage.keys("jfk", "small"), before + six)
    consumer = stage.consumer("jfk", "small")
    await stage.until("the queue is empty", lambda: not stage.keys("jfk", "small"))
    if stage.chance():
        stage.crash("jfk", power=stage.chance())
        await stage.moment(2.0)
        stage.start("jfk")
    await producer.crash()
    await producer.attach()
    assert producer.sender is not None
    stage.equal("what the node says is missing", list(producer.sender.missing), [(5, 5)])
    stage.equal("and the last", producer.sender.last_number, 5 + len(six))
    again = await producer.send(1, size=1_500, first=5)
    stage.equal("5 under its number", again, five)
    stage.check(five[0] in stage.bed.history.accepted, "5 is taken now")
    for first in (5, 6):  # and once more, as one does who has not heard the answer
        await producer.crash()
        await producer.attach()
        outcome = await producer.outcome((await producer.send(1, size=50, first=first))[0])
        stage.check(isinstance(outcome, Accepted), "what is stored is accepted again")
    await stage.all_shown()
    stage.equal("what the consumer was shown", consumer.keys, before + six + five)
    stage.equal("each once", len([seen for seen in consumer.seen if not seen.marked]), len(before + six + five))


# ------------------------------------------------------------------------------------------------ dead letters


async def dead_letter_back(stage: Stage) -> None:
    """What the full queue of the destination refused, and what its reader rejected, is moved back to work."""
    await stage.together()
    bound = stage.bed.ledger.bounds["small@hub"]
    keys = await stage.send("jfk", "small@hub", bound + stage.some(1, 10))
    await stage.until("the rest is among the dead letters", lambda: stage.keys("hub", "$dead-letters") == keys[bound:])
    stage.equal("what found a place", stage.keys("hub", "small"), keys[:bound])
    await stage.until("nothing came back along the way", lambda: not stage.keys("jfk", "@hub"))
    stage.bed.ledger.moved_by_hand.add("small")
    consumer = stage.consumer("hub", "small")
    stage.excuse(keys[:1], "its reader rejects it, and sees it again as one that was moved")
    consumer.reject.add(keys[0])
    await stage.until("one is rejected", lambda: stage.keys("hub", "$dead-letters") == [*keys[bound:], keys[0]])
    await consumer.leave()
    await stage.until("the queue is empty", lambda: not stage.keys("hub", "small"))
    back = stage.consumer("hub", "small", credit=1)
    stage.bed.spawn(_move(stage, "hub", "$dead-letters", "small@hub"), "move back", background=True)
    if stage.chance():
        await stage.moment(0.1)
        stage.crash("hub", power=stage.chance())
        await stage.moment(2.0)
        stage.start("hub")
    wanted = [*keys[bound:], keys[0]]
    await stage.until("all of them are worked on", lambda: back.keys == wanted)
    await stage.until("no dead letter is left", lambda: not stage.keys("hub", "$dead-letters"))
    reasons = [str(seen.annotations.get("x-opt-dead-letter-reason", "")) for seen in back.seen]
    stage.check(all("queue 'small' is full" in reason for reason in reasons[:-1]), f"the reasons: {reasons[:-1][:3]}")
    stage.check("rejected: amqp:decode-error" in reasons[-1], f"the reason of what was rejected: {reasons[-1]!r}")
    again = await stage.send("jfk", "small@hub", 1)
    await stage.until("and the way is free", lambda: back.keys == wanted + again)


async def _move(stage: Stage, node: str, queue: str, address: str) -> None:
    """An operator's program: each dead letter goes as it is, under the number of its place, so that it goes once."""
    connection = await stage.bed.connect(node, "mover")
    receiver = await attached(lambda: connection.receiver(queue, credit=4))
    sender = await attached(lambda: connection.sender(address, producer="mover"))
    async for delivery in receiver:
        message = delivery.message
        notes = {key: value for key, value in (message.message_annotations or {}).items() if "dead-letter" in key}
        while True:
            moved = Message(data=[data_of(delivery)], message_annotations=notes)
            outcome = await (await sender.submit(moved, number=delivery.sequence))
            if isinstance(outcome, Accepted):
                break
            await asyncio.sleep(0.5)  # its queue is full: later
        delivery.accept()


SMALL = {"jfk": (QueueConfig(name="small", when_full="refuse", bytes_max=2_000),)}

HISTORIES = (
    History("one-cursor", "Spark reads alone, by sequence; consumers alone share one cursor; both have one each.",
            sites("jfk-hub"), one_cursor),
    History("recreated-queue", "A queue is made anew: a checkpoint of the old one is refused with a clear line.",
            sites("jfk-hub"), recreated_queue),
    History("producer-crash", "A producer dies with numbers in doubt and others in a buffer: each is stored once.",
            sites("jfk-hub"), producer_crash),
    History("refused-then-retried", "5 is refused and 6 is not: 5 goes again under its number, and is taken once.",
            sites("jfk-hub", queues=SMALL), refused_then_retried),
    History("dead-letter-back", "What the destination's queue refused or its reader rejected goes back to work.",
            sites("jfk-hub", queues={"hub": (QueueConfig(name="small", when_full="refuse", messages_max=8),)}),
            dead_letter_back),
)  # fmt: skip
