"""Histories of several hops: messages that wait at an unreachable node, come back, go round, or find every queue full.

Rules of this file: one function a history. Tables are given by hand, as nodes may have them in the middle of a change.
Source: docs/CUSTODY.md, "End to end", "Trace".
"""

import asyncio

from holdfast.client import Message
from holdfast.custody.sent_back import RETURN_S
from holdfast.settings.limits import Limits
from holdfast_lab.histories.programs import data_of
from holdfast_lab.histories.stage import History, Stage, sites
from holdfast_lab.workloads import attached

DIAMOND = ("a-b", "a-c", "b-d", "c-d")
BOUND_S = 30.0
QUIET_S = 5.0
"""A node that has answered nothing for so long has no room."""


async def asleep(stage: Stage, count: int) -> list[bytes]:
    """So many messages of a's for d lie at b alone, which has gone dark."""
    await stage.until("nothing is on its way", lambda: not stage.keys("a", "@d"))
    stage.part("b", "d")
    stage.reroute("a", d="b")
    keys = await stage.send("a", "work@d", count)
    await stage.arises("5 lies at b alone", lambda: stage.keys("b", "@d") == keys and not stage.keys("a", "@d"))
    stage.crash("b", power=True)
    return keys


def awake(stage: Stage) -> None:
    stage.join("b", "d")
    stage.start("b")


def mark(stage: Stage, node: str, origin: str) -> int:
    """All numbers of the origin up to it are finished at the node."""
    found = stage.core(node).catalog.ledger.origins.get(stage.nodes[origin].store.uuid)
    return found.mark if found is not None else 0


async def _shown(stage: Stage, node: str, keys: list[bytes], late: list[bytes]) -> None:
    stage.equal(f"the queue at {node}", stage.keys(node, "work"), keys)
    consumer = stage.consumer(node, "work")
    await stage.all_shown()
    stage.equal("what the consumer was shown", consumer.keys, keys)
    stage.equal("what came as late", consumer.late, late)


# ------------------------------------------------------------------------------------------------ gaps

EXPIRED_S = 8.0
"""A time to live, and what it may take beside it until what has expired has left."""


async def expired_in_custody(stage: Stage) -> None:
    """5 sleeps at b. What comes after it expires while it waits at d, and on its way at c, in doubt there or not."""
    await stage.together()
    five = await asleep(stage, stage.some(1, 3))
    stage.reroute("a", d="c")
    producer = await stage.producer("a", "work@d")
    waits = await producer.send(stage.some(1, 8), ttl_s=4.0) + (lasts := await producer.send(stage.some(1, 3)))
    await stage.arises("6 waits at d", lambda: stage.keys("d", "$waiting") == waits and not stage.keys("c", "@d"))
    stage.part("c", "d")
    in_doubt = stage.chance()
    if not in_doubt:
        await stage.until("c has given up d", lambda: not stage.core("c").neighbours["d"].established)
    first = await producer.send(stage.some(1, 3))
    ends = await producer.send(stage.some(1, 8), ttl_s=4.0)
    last = await producer.send(stage.some(1, 3))
    stage.excuse([*waits, *ends], "their time to live is short")
    await stage.arises("7 lies at c", lambda: stage.keys("c", "@d") == first + ends + last)
    for node in stage.random.sample("cd", stage.some(0, 2)):
        stage.crash(node, power=stage.chance())
        await stage.moment(2.0)
        stage.start(node)
    given_up_s = 30.0 if in_doubt else 0.0
    await stage.until("what expired has left d", lambda: stage.keys("d", "$waiting") == lasts, EXPIRED_S)
    await stage.until("and c", lambda: stage.keys("c", "@d") == first + last, EXPIRED_S + given_up_s)
    stage.equal("the queue, which waits for 5", stage.keys("d", "work"), [])
    stage.join("c", "d")
    awake(stage)
    wanted = five + lasts + first + last
    await stage.until("all that lasts is at d", lambda: stage.holds_all("d", "work", wanted))
    stage.equal("what is told as lost", stage.losses("d"), [])
    await _shown(stage, "d", wanted, [])


async def low_water(stage: Stage) -> None:
    await stage.together()
    stage.reroute("a", d="c")
    first = await stage.send("a", "work@d", stage.some(0, 8)) if stage.chance() else []
    await stage.until("the first are at d", lambda: stage.keys("d", "work") == first)
    five = await asleep(stage, stage.some(1, 3))
    stage.reroute("a", d="c")
    six = await stage.send("a", "work@d", 1) + await stage.send("a", "work@d", stage.some(1, 8))
    await stage.arises(
        "6 has travelled, a's queue is empty", lambda: not stage.keys("a", "@d") and not stage.keys("c", "@d")
    )
    stage.equal("what waits at d", stage.keys("d", "$waiting"), six)
    await stage.holds(
        "d's word stands before 5, and 6 waits, however long",
        lambda: mark(stage, "d", "a") == len(first) and stage.keys("d", "$waiting") == six,
        stage.random.uniform(35.0, 70.0),
    )
    stage.check(stage.core("a").catalog.ledger.receipts.get("d", 0) <= len(first), "a has heard of nothing beyond")
    if stage.chance():
        stage.crash("d")
        stage.start("d")
        await stage.moment(40.0)
    awake(stage)
    await stage.until("5 and 6 are at d", lambda: stage.holds_all("d", "work", five + six))
    stage.equal("what is told as lost", stage.losses("d"), [])
    await _shown(stage, "d", first + five + six, [])


async def bounded_restarts(stage: Stage) -> None:
    """d is killed every 20 s, in whose lives no gap could ever wait its 30 s if each began to count anew."""
    await stage.together()
    five = await asleep(stage, stage.some(1, 3))
    stage.reroute("a", d="c")
    six = await stage.send("a", "work@d", stage.some(1, 8))
    await stage.arises("6 waits at d", lambda: stage.keys("d", "$waiting") == six)
    waited_s, lives = 0.0, 1
    while True:
        up_s = stage.random.uniform(18.0, 22.0)
        here = stage.bed.now()
        try:
            await asyncio.wait_for(stage.until("6 goes on", lambda: stage.holds_all("d", "work", six), 100.0), up_s)
            waited_s += stage.bed.now() - here
            break
        except TimeoutError:
            waited_s += up_s
        stage.check(waited_s < BOUND_S + 2 * lives + 5.0, f"6 goes on: it has waited {waited_s:.1f} s in {lives} lives")
        stage.crash("d", power=stage.chance())
        await stage.moment(2.0)
        stage.start("d")
        lives += 1
    stage.happened(lives > 1, "no life of d was long enough")
    stage.check(waited_s >= BOUND_S - 2.0 * lives, f"it waited its time, and no less: {waited_s:.1f} s")
    awake(stage)
    await stage.until("5 comes after all", lambda: stage.holds_all("d", "work", five))
    await stage.until("the gap is closed", lambda: mark(stage, "d", "a") == len(five + six))
    stage.equal("what is told as lost", stage.losses("d"), [])
    await _shown(stage, "d", six + five, five)


async def late_after_tombstone(stage: Stage) -> None:
    """b has 5 and its answer is lost; a's copy is purged, or expires, and its end reaches d by another way first."""
    await stage.together()
    stage.reroute("a", d="b")
    stage.part("b", "d")
    expires = stage.chance()
    link = stage.connection("a", "b")
    a_end = link.ends[0] if link.ends[0].peer == "b" else link.ends[1]
    producer = await stage.producer("a", "work@d")
    link.hold(a_end)
    five = await producer.send(stage.some(1, 3), ttl_s=60.0 if expires else None)
    stage.excuse(five, "it ends at a")
    await stage.arises(
        "b has 5, and a does not know", lambda: stage.keys("b", "@d") == five and stage.keys("a", "@d") == five
    )
    stage.crash("b", power=True)
    stage.part("a", "c")
    stage.reroute("a", d="c")
    await stage.until("a has given up b", lambda: not stage.core("a").neighbours["b"].established)
    await stage.until("and c", lambda: not stage.core("a").neighbours["c"].established)
    if expires:
        await asyncio.sleep(61.0)
    else:
        connection = await stage.bed.connect("a", "operator")
        told = await connection.manage("PURGE", "holdfast:queue", "@d")
        stage.equal("purged", told["purged"], len(five))
        await connection.close()
    six = await producer.send(stage.some(1, 6))
    stage.join("a", "c")
    await stage.arises("6 is at d, which knows that 5 has ended", lambda: stage.keys("d", "work") == six)
    stage.equal("d's word", mark(stage, "d", "a"), len(five + six))
    if expires:  # at b nobody can tell how long it was dark: its copy lives on
        stage.nodes["b"].clock.step(-3_600.0)
    awake(stage)
    await stage.until("the live 5 is delivered after all", lambda: stage.holds_all("d", "work", five))
    stage.equal("what is told as lost", stage.losses("d"), [])
    await _shown(stage, "d", six + five, five)


# ------------------------------------------------------------------------------------------------ full


async def strict_full(stage: Stage) -> None:
    """c wakes with 1 when d waits for it with all that it may hold, and 1 is behind the rest on the one way there."""
    await stage.together()
    stage.part("c", "d")
    stage.reroute("a", d="c")
    one = await stage.send("a", "work@d", 1)
    await stage.arises("1 lies at c alone", lambda: stage.keys("c", "@d") == one and not stage.keys("a", "@d"))
    stage.crash("c", power=True)
    stage.reroute("a", d="b")
    rest = await stage.send("a", "work@d", stage.some(60, 150))
    bound = stage.bed.topology.limits.ranges_max * 16
    await stage.arises("d waits with all that it may hold", lambda: len(stage.keys("d", "$waiting")) >= bound)
    await stage.until("all the others are at b", lambda: not stage.keys("a", "@d"))
    await stage.moment(20.0)
    stage.equal("d's queue", stage.keys("d", "work"), [])
    behind = stage.keys("b", "@d")
    stage.happened(behind, "the link to d is full")
    stage.start("c")
    await stage.together(("c", "b"))
    stage.reroute("c", d="b")
    await stage.arises("1 is behind the others at b", lambda: one[0] in stage.keys("b", "@d")[1:])
    await stage.until("all is at d", lambda: stage.holds_all("d", "work", one + rest), 90.0)
    stage.equal("what is told as lost", stage.losses("d"), [])
    await _shown(stage, "d", one + rest, [])


async def full_neighbours(stage: Stage) -> None:
    """b and c have no room, each for what must pass the other."""
    stage.crash("a")
    stage.crash("d")
    stage.part("b", "c")
    for name in ("b", "c"):
        stage.nodes[name].store.bound(32 * 2**20)
    size = stage.some(180_000, 240_000)
    from_b = await _fill(stage, "b", "work@d", size)
    from_c = await _fill(stage, "c", "work@a", size)
    stage.join("b", "c")
    await stage.together(("b", "c"))
    await asyncio.sleep(stage.random.uniform(20.0, 40.0))
    for name in ("b", "c"):
        stage.happened(
            stage.core(name).room.bytes < 2 * size, f"{name} has no room: {stage.core(name).room.bytes} bytes"
        )
    stage.start("a", "d")
    consumers = [stage.consumer("d", "work"), stage.consumer("a", "work")]
    await stage.all_shown(300.0)
    for consumer, keys in zip(consumers, (from_b, from_c), strict=True):
        stage.equal(f"what the consumer at {consumer.node} was shown", consumer.keys, keys)
    places = [("b", "@d"), ("c", "@a"), ("b", "@a"), ("c", "@d")]
    await stage.until("nothing is on its way", lambda: not any(stage.keys(*place) for place in places))
    stage.equal("dead letters", stage.bed.ledger.dead, {})


async def _fill(stage: Stage, node: str, address: str, size: int) -> list[bytes]:
    """Sends until the node gives no more credit, or leaves what it was sent unanswered; returns what it took."""
    producer = await stage.producer(node, address)
    history = stage.bed.history
    while True:
        try:
            await asyncio.wait_for(producer.send(1, size=size), QUIET_S)
        except TimeoutError:
            stage.happened(stage.core(node).disk.full, f"{node} takes no more because its disk is full")
            await producer.crash()
            taken = [key for key in producer.sent if key in history.accepted]
            stage.happened(len(taken) > 30, f"{node} took many")
            return taken


# ------------------------------------------------------------------------------------------------ round and round


async def stale_return(stage: Stage) -> None:
    """b's table still sends d's messages by a: they come back once, and rest until a table is another one."""
    await stage.together()
    keys = await stage.send("a", "work@d", stage.some(1, 60))
    core = stage.core("a")
    await stage.arises("all came back to a", lambda: core.forwarding.sent_back.held("d") == len(keys))
    await stage.until("b has let them go", lambda: not stage.keys("b", "@d"))
    hops = stage.bed.ledger.hops
    stage.equal("hops: there and back, once", hops, 2 * len(keys))
    await asyncio.sleep(stage.random.uniform(5.0, RETURN_S[1] - 5.0))
    stage.equal("hops while nothing changes", stage.bed.ledger.hops, hops)
    stage.equal("what a holds", sorted(stage.keys("a", "@d")), sorted(keys))
    more = await stage.send("a", "work@d", stage.some(1, 5)) if stage.chance() else []
    if stage.chance():
        stage.cut("a", "b", silent=stage.chance())
    stage.reroute("b", d="d")
    await stage.until("all is at d", lambda: stage.holds_all("d", "work", keys + more), RETURN_S[1] + 30.0)
    way = stage.nodes["a"].store.uuid.bytes + stage.nodes["b"].store.uuid.bytes
    traces = {item.trace for _, item in stage.entries("d", "work")}
    stage.equal("the traces", traces, {way})
    await _shown(stage, "d", keys + more, [])


async def own_origin(stage: Stage) -> None:
    """A program at the hub sends what it takes there on to jfk, where it came from: it is a new message for jfk."""
    await stage.together()
    jfk, hub = stage.nodes["jfk"].store.uuid, stage.nodes["hub"].store.uuid
    keys = await stage.send("jfk", "in@hub", stage.some(1, 30))
    await stage.until("all is at the hub", lambda: stage.keys("hub", "in") == keys)
    stage.happened(
        all(item.identity is not None and item.identity.origin == jfk for _, item in stage.entries("hub", "in")),
        "jfk is the origin at the hub",
    )
    stage.bed.spawn(_pass_on(stage, "hub", "in", "work@jfk"), "pass on", background=True)
    if stage.chance():
        await stage.moment(0.2)
        stage.cut("jfk", "hub", silent=stage.chance())
    if stage.chance():
        await stage.moment(0.2)
        stage.crash("hub", power=stage.chance())
        await stage.moment(2.0)
        stage.start("hub")
    await stage.until("all is back at jfk", lambda: stage.holds_all("jfk", "work", keys), 120.0)
    for number, (_, item) in enumerate(stage.entries("jfk", "work"), 1):
        stage.equal("its identity and trace", (item.identity, item.trace), ((hub, number), hub.bytes))
    await _shown(stage, "jfk", keys, [])


async def _pass_on(stage: Stage, node: str, queue: str, address: str) -> None:
    """An internal link: takes, sends under the number of its place, accepts once that is stored."""
    connection = await stage.bed.connect(node, "pass-on")
    receiver = await attached(lambda: connection.receiver(queue, credit=10))
    sender = await attached(lambda: connection.sender(address, producer="pass-on"))
    async for delivery in receiver:
        future = await sender.submit(Message(data=[data_of(delivery)]), number=delivery.sequence)
        await future
        delivery.accept()


HISTORIES = (
    History("low-water", "5 sleeps at a dark node, the origin's queue is empty, 6 travels: who waits, waits for 5.",
            sites(*DIAMOND), low_water),
    History("bounded-restarts", "The destination restarts every 20 s: a gap's 30 s are counted over its lives.",
            sites(*DIAMOND, order="bounded"), bounded_restarts),
    History("late-after-tombstone", "5 has ended as the destination knows, and its live copy comes after all: as late.",
            sites(*DIAMOND), late_after_tombstone),
    History("expired-in-custody", "Times to live end on the way and while an earlier message is missing: nobody waits.",
            sites(*DIAMOND), expired_in_custody),
    History("strict-full", "The missing message is behind the same full link as those that wait for it.",
            sites("a-b", "a-c", "c-b", "b-d", "c-d", limits=Limits(ranges_max=2)), strict_full),
    History("full-neighbours", "Two nodes without room, each with what must pass the other: both flow on.",
            sites("a-b", "b-c", "c-d"), full_neighbours),
    History("stale-return", "The right table here, a stale one there: what comes back rests until a table changes.",
            sites("a-b", "b-d", forwarding={"a": {"d": "b"}, "b": {"d": "a"}}), stale_return),
    History("own-origin", "What began at jfk comes home by the hub as a new message, and is not taken for a loop.",
            sites("jfk-hub"), own_origin),
)  # fmt: skip
