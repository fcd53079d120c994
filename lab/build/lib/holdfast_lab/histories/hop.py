"""Histories of one hop: what happens to a transfer while its connection, its commit or its sender goes.

Rules of this file: one function a history, which sets the scene, sees that it arose, and says how it must end.
Source: docs/CUSTODY.md, "The hop".
"""

import asyncio

from holdfast.custody.hop.receiver import CustodyReceiver
from holdfast_lab.histories.stage import History, Stage, sites
from holdfast_lab.sim.store import Fate

JFK_HUB = sites("jfk-hub")


def in_doubt(stage: Stage, node: str, neighbour: str, destination: str) -> int:
    """Transfers that the node has sent there and awaits the answer of."""
    sender = stage.core(node).next_hops[neighbour].senders.get(destination)
    return len(sender.in_doubt) if sender is not None else 0


def receiver(stage: Stage, node: str) -> CustodyReceiver | None:
    """The custody link that the node receives on; None where nobody asked yet."""
    return next(iter(stage.core(node).links.custody_receivers.values()), None)


async def begin(stage: Stage) -> list[bytes]:
    """Some messages are at the hub and answered: the epoch has a past."""
    await stage.together()
    keys = await stage.send("jfk", "work@hub", stage.some(1, 12))
    await stage.until("the first messages are at the hub", lambda: stage.keys("hub", "work") == keys)
    await stage.until("their answers are at jfk", lambda: not stage.keys("jfk", "@hub"))
    return keys


async def in_order(stage: Stage, keys: list[bytes], seconds: float = 60.0) -> None:
    """All are at the hub in this order, none is left at jfk, and a consumer is shown them."""
    await stage.until("all is at the hub", lambda: stage.holds_all("hub", "work", keys), seconds)
    stage.equal("the hub's queue", stage.keys("hub", "work"), keys)
    await stage.until("jfk has let them go", lambda: not stage.keys("jfk", "@hub"))
    consumer = stage.consumer("hub", "work")
    await stage.all_shown()
    stage.equal("what the consumer was shown", consumer.keys, keys)
    stage.equal("what came as late", consumer.late, [])


# ------------------------------------------------------------------------------------------------ the histories


async def batch_hole(stage: Stage) -> None:
    """8 is gathered behind 7's commit when that is refused, or comes right after it; no word of it reaches jfk."""
    keys = await begin(stage)
    hub = stage.nodes["hub"]
    link = stage.connection("jfk", "hub")
    jfk_end, hub_end = link.ends if link.ends[0].peer == "hub" else link.ends[::-1]
    producer = await stage.producer("jfk", "work@hub")
    hub.store.hold()
    seven = await producer.post(stage.some(1, 5))
    await stage.arises("7 is being committed at the hub", lambda: stage.committing("hub", seven[-1]))
    on_the_wire = stage.chance()
    if on_the_wire:
        link.hold(hub_end)
    eight = await producer.post(stage.some(1, 5))
    await stage.arises("8 is under way too", lambda: in_doubt(stage, "jfk", "hub", "hub") == len(seven + eight))
    await stage.moment(0.1)
    link.hold(jfk_end)
    hub.store.refuse_appends = 1
    hub.store.release()
    await stage.arises("the commit that holds 7 was refused", lambda: not hub.store.refuse_appends)
    stage.equal("what the refused commit left", stage.keys("hub", "work"), keys)
    if on_the_wire:
        await asyncio.sleep(0.001)  # the node has heard of it, jfk has not
        stage.happened(hub_end.alive and jfk_end.alive, "the link is up")
        link.let_go(hub_end)
    await asyncio.sleep(stage.random.uniform(0.01, 0.5))
    stage.cut("jfk", "hub", silent=stage.chance())
    await in_order(stage, keys + seven + eight)


async def commit_in_flight(stage: Stage) -> None:
    keys = await begin(stage)
    hub = stage.nodes["hub"]
    hub.store.hold()
    producer = await stage.producer("jfk", "work@hub")
    seven = await producer.post(1)
    await stage.arises("7 is being committed at the hub", lambda: stage.committing("hub", seven[0]))
    older = receiver(stage, "hub")
    stage.cut("jfk", "hub", silent=stage.chance())
    await stage.arises(
        "the answer is asked while 7 is being committed",
        lambda: receiver(stage, "hub") not in (None, older) and stage.committing("hub", seven[0]),
    )
    newer = receiver(stage, "hub")
    assert newer is not None
    await stage.holds(
        "no answer, and a copy at jfk, while the commit is under way",
        lambda: stage.keys("jfk", "@hub") == seven and not newer.link.attached,
        stage.random.uniform(0.01, 0.5),
    )
    end = stage.random.choice(("committed", "refused", "crashed"))
    stage.bed.world.note("hub", "the commit", end)
    if end == "refused":
        hub.store.refuse_appends = 1
    if end == "crashed":
        fate = hub.crash()
        stage.happened(fate is not Fate.NONE, "the crash met the commit")
        hub.store.release()
        await stage.moment(3.0)
        stage.start("hub")
    else:
        hub.store.release()
    await in_order(stage, keys + seven)
    if end == "committed":
        stage.equal("copies that went again for nothing", stage.core("hub").duplicates.suppressed, 0)


async def sender_restart(stage: Stage) -> None:
    keys = await begin(stage)
    hub, jfk = stage.nodes["hub"], stage.nodes["jfk"]
    hub.store.hold()
    producer = await stage.producer("jfk", "work@hub")
    five = await producer.send(stage.some(1, 3))
    six = await producer.send(1, ttl_s=2.0)
    seven = await producer.send(stage.some(1, 3))
    stage.excuse(six, "its time to live is short")
    await stage.arises(
        "5 to 7 are in doubt, none is stored at the hub",
        lambda: (
            in_doubt(stage, "jfk", "hub", "hub") == len(five + six + seven)
            and stage.committing("hub", five[0])
            and stage.keys("hub", "work") == keys
        ),
    )
    fate = "stored"
    jfk.crash()
    if stage.chance():  # what the hub had read of them is lost with it, or stored though nobody heard
        fate = hub.crash().value
    hub.store.release()
    await asyncio.sleep(stage.random.uniform(2.5, 6.0))
    if not stage.up("hub"):
        stage.start("hub")
    expired = stage.keys("jfk", "@hub")
    stage.equal("what jfk's disk still holds", expired, five + six + seven)
    stage.start("jfk")
    wanted = keys + five + seven
    await stage.until(f"5 and 7 are at the hub ({fate})", lambda: stage.holds_all("hub", "work", wanted))
    await stage.until("jfk has let all go", lambda: not stage.keys("jfk", "@hub"))
    found = stage.keys("hub", "work")
    stage.equal("the hub's queue without 6", [key for key in found if key not in six], wanted)
    if fate != "stored" and six[0] in found:
        stage.equal("where 6 lies, which was stored before", found, keys + five + six + seven)
    consumer = stage.consumer("hub", "work")
    await stage.all_shown()
    stage.equal("what came as late", consumer.late, [])


async def late_old_connection(stage: Stage) -> None:
    """Hub's side of the old connection is held: what jfk sent lies in a buffer while jfk has a newer connection."""
    await stage.together()
    before = await stage.send("jfk", "work@hub", stage.some(1, 8))
    await stage.until("the first are at the hub", lambda: stage.keys("hub", "work") == before)
    await stage.until("and answered", lambda: not stage.keys("jfk", "@hub"))
    old = stage.connection("jfk", "hub")
    jfk_end, hub_end = old.ends if old.ends[0].peer == "hub" else old.ends[::-1]
    release_at = stage.random.choice(("as the new connection opens", "as the new link asks", "after another 7"))
    stage.bed.world.note("network", "held until", release_at)
    producer = await stage.producer("jfk", "work@hub")
    old.hold(hub_end)
    seven = await producer.send(1)
    await stage.arises("7 lies in the hub's buffer", lambda: any(seven[0] in data for data in old.held(hub_end)))
    stage.reroute("jfk", hub="via")
    old.reset_for(jfk_end)
    newer = stage.bed.network.between
    if release_at == "as the new connection opens":
        await stage.arises("jfk is back on a newer connection", lambda: newer("jfk", "hub")[-1] is not old)
        stage.happened(hub_end.alive, "the hub still has the old connection")
        old.let_go(hub_end)
    await stage.until("7 is at the hub, by the other way or late", lambda: seven[0] in stage.keys("hub", "work"))
    await stage.together(("jfk", "hub"))
    link = stage.core("hub").links.custody_receivers.get(b"jfk\0hub")
    stage.reroute("jfk")
    if release_at == "as the new link asks":
        await stage.arises("a newer link asks", lambda: _asked(stage, link))
        old.let_go(hub_end)
    # Numbers of the new epoch reach beyond the one that 7 had in the old one.
    after = await stage.send("jfk", "work@hub", len(before) + stage.some(2, 8))
    if release_at == "after another 7":
        await stage.arises(
            "another transfer has the hop number of 7",
            lambda: in_doubt(stage, "jfk", "hub", "hub") or stage.holds_all("hub", "work", after),
        )
        old.let_go(hub_end)
    await in_order(stage, before + seven + after)
    await stage.until("via has let 7 go", lambda: not stage.keys("via", "@hub"))


def _asked(stage: Stage, older: CustodyReceiver | None) -> bool:
    return stage.core("hub").links.custody_receivers.get(b"jfk\0hub") not in (None, older)


HISTORIES = (
    History("batch-hole", "7 fails at the disk, 8 is behind it, the link is cut: no later number is stored before it.",
            JFK_HUB, batch_hole),
    History("commit-in-flight", "The answer to a new link is asked while 7 is being committed: it waits for the disk.",
            JFK_HUB, commit_in_flight),
    History("sender-restart", "5 to 7 are in doubt when their sender is killed, and one expires: copies are known.",
            JFK_HUB, sender_restart),
    History("late-old-connection", "7 lies in the hub's buffer while jfk reconnects and sends it another way.",
            sites("jfk-hub", "jfk-via", "via-hub"), late_old_connection),
)  # fmt: skip
