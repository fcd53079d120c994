"""Histories of disks and clocks: nodes that come back with less than they had, or with another time.

Rules of this file: one function a history; each says which keys are where, and which numbers are told as lost.
Source: docs/CUSTODY.md, "Names" and "End to end".
"""

import asyncio
from typing import Final

from holdfast_lab.histories.hop import in_order
from holdfast_lab.histories.stage import History, Stage, sites

DAY_S: Final = 86_400.0


async def restored_backup(stage: Stage) -> None:
    await stage.together()
    jfk = stage.nodes["jfk"]
    before = await stage.send("jfk", "work@hub", stage.some(10, 60))
    if stage.chance():  # the backup may be of a moment in which some are on their way
        await stage.until("all is at the hub", lambda: stage.keys("hub", "work") == before)
    backup = jfk.store.snapshot()
    forgotten = await stage.send("jfk", "work@hub", stage.some(1, 20))
    await stage.until("the hub has those too", lambda: stage.keys("hub", "work") == before + forgotten)
    await stage.moment(1.0)
    old = jfk.store.uuid
    stage.crash("jfk", power=stage.chance())
    stage.part("jfk", "hub")
    jfk.store.restore(backup)
    stage.bed.disk_changed(jfk)
    stage.start("jfk")
    fresh = await stage.send("jfk", "work@hub", stage.some(1, 40))
    taken = {(old, number) for number in range(1, len(before + forgotten) + 1)}
    again = [key for key, item in stage.entries("jfk", "@hub") if key in fresh and item.identity in taken]
    stage.happened(again, "a number that the hub has seen was given again")
    await stage.moment(3.0)
    stage.join("jfk", "hub")
    await stage.together()
    late = await stage.send("jfk", "work@hub", stage.some(1, 5))
    await in_order(stage, before + forgotten + fresh + late)
    stage.check(jfk.store.uuid != old, "jfk has a new UUID")
    stage.equal("origins that the hub knows", len(stage.core("hub").catalog.ledger.origins), 2)
    stage.equal("what the hub tells as lost", stage.losses("hub"), [])
    told = [(origin, first, last) for origin, first, last, _ in stage.losses("jfk")]
    stage.equal("what jfk tells of its former self", told, [(str(old), len(before) + 1, len(before + forgotten))])


async def copied_store(stage: Stage) -> None:
    """An older copy of jfk's store is put back. via, with a new disk, is all that it meets; the hub, which has seen its
    numbers, is out of reach: jfk knows by its own directory that it needs a new UUID."""
    await stage.together()
    jfk, via = stage.nodes["jfk"], stage.nodes["via"]
    before = await stage.send("jfk", "work@hub", stage.some(1, 30))
    await stage.until("all is at the hub", lambda: stage.keys("hub", "work") == before)
    backup = jfk.store.snapshot()
    forgotten = await stage.send("jfk", "work@hub", stage.some(1, 20))
    await stage.until("the hub has those too", lambda: stage.keys("hub", "work") == before + forgotten)
    await stage.until("and nobody else", lambda: not stage.keys("jfk", "@hub") and not stage.keys("via", "@hub"))
    old = jfk.store.uuid
    stage.part("via", "hub")
    stage.crash("via", power=stage.chance())
    via.replace_disk()
    stage.crash("jfk", power=stage.chance())
    jfk.store.restore(backup)
    jfk.store.copied = "its file is not the one that was opened last"
    stage.bed.disk_changed(jfk)
    stage.start("via", "jfk")
    await stage.until("jfk and via are joined", lambda: stage.joined("jfk", "via"))
    fresh = await stage.send("jfk", "work@hub", stage.some(1, 40))
    if stage.chance():
        await stage.moment(2.0)
        stage.crash("jfk", power=stage.chance())
        stage.start("jfk")
    await stage.moment(3.0)
    stage.join("via", "hub")
    await stage.together()
    await in_order(stage, before + forgotten + fresh)
    stage.check(jfk.store.uuid != old and stage.told("jfk", "copied, put back"), "jfk has a new UUID, and says so")


async def replaced_disk_receiver(stage: Stage) -> None:
    """Strict, and not for ever: the hub's new disk begins where its old one's word ended."""
    await stage.together()
    hub = stage.nodes["hub"]
    consumer = stage.consumer("hub", "work", credit=5)
    consumer.quota = stage.some(1, 5)
    old = await stage.send("jfk", "work@hub", stage.some(6, 40))
    await consumer.done()
    await stage.until("the hub's word on all is at jfk", lambda: _receipt(stage, "jfk", "hub") == len(old))
    await stage.until("and nothing else is", lambda: not stage.keys("jfk", "@hub"))
    lost = stage.keys("hub", "work")
    stage.happened(lost, "the hub's disk alone held some")
    stage.crash("hub", power=stage.chance())
    on_the_way = await stage.send("jfk", "work@hub", stage.some(1, 20))
    hub.replace_disk()
    await stage.moment(5.0)
    stage.start("hub")
    new = on_the_way + await stage.send("jfk", "work@hub", stage.some(1, 5))
    await in_order(stage, new)
    stage.equal("what is lost", sorted(stage.bed.history.excused), sorted(lost))
    told = [(origin, first, last) for origin, first, last, _ in stage.losses("hub")]
    stage.equal("what the hub tells as lost", told, [(str(stage.nodes["jfk"].store.uuid), 1, len(old))])
    stage.check(stage.told("hub", "former disk"), "the hub says why")


def _receipt(stage: Stage, node: str, destination: str) -> int:
    return stage.core(node).catalog.ledger.receipts.get(destination, 0)


async def replaced_disk_sender(stage: Stage) -> None:
    """5 sleeps at via when jfk's disk goes: what waits for it at the hub waits for the grace time, and no longer."""
    await stage.together()
    jfk = stage.nodes["jfk"]
    first = await stage.send("jfk", "work@hub", stage.some(1, 6))
    await stage.until("the first are at the hub", lambda: stage.keys("hub", "work") == first)
    await stage.until("and answered", lambda: not stage.keys("jfk", "@hub"))
    stage.part("via", "hub")
    stage.reroute("jfk", hub="via")
    five = await stage.send("jfk", "work@hub", stage.some(1, 3))
    await stage.arises(
        "5 sleeps at via alone", lambda: stage.keys("via", "@hub") == five and not stage.keys("jfk", "@hub")
    )
    stage.crash("via", power=True)
    stage.reroute("jfk")
    six = await stage.send("jfk", "work@hub", stage.some(1, 6))
    await stage.arises("6 waits at the hub for 5", lambda: stage.keys("hub", "$waiting") == six)
    await stage.until("jfk has let 6 go", lambda: not stage.keys("jfk", "@hub"))
    stage.part("jfk", "hub")
    alone = await stage.send("jfk", "work@hub", stage.some(1, 4))
    old = jfk.store.uuid
    stage.crash("jfk", power=stage.chance())
    jfk.replace_disk()
    stage.equal("what the dead disk alone held", sorted(stage.bed.history.excused), sorted(alone))
    await stage.moment(3.0)
    stage.start("jfk")
    stage.join("jfk", "hub")
    await stage.together(("jfk", "hub"))
    new = await stage.send("jfk", "work@hub", stage.some(1, 6))
    await stage.until("what the new disk sends waits for nobody", lambda: stage.holds_all("hub", "work", new), 10.0)
    # What was on the wire when jfk crashed comes once the link is joined, because its old session is there still.
    six += [key for key in stage.keys("hub", "$waiting") if key in alone]
    await stage.holds("6 still waits", lambda: stage.keys("hub", "$waiting") == six, 40.0)
    if stage.chance():
        stage.crash("hub")
        stage.start("hub")
    await stage.until("6 goes on when the grace time is over", lambda: stage.holds_all("hub", "work", six), 130.0)
    stage.equal("the hub's queue", stage.keys("hub", "work"), first + new + six)
    gap = [(str(old), len(first) + 1, len(first + five), "its store was replaced")]
    await stage.until("the hub tells of it, which is on disk", lambda: stage.losses("hub") != [])
    stage.equal("what the hub tells as lost", stage.losses("hub"), gap)
    stage.join("via", "hub")
    stage.start("via")
    await stage.until("5 comes after all", lambda: stage.holds_all("hub", "work", five))
    consumer = stage.consumer("hub", "work")
    await stage.all_shown()
    stage.equal("what the consumer was shown", consumer.keys, first + new + six + five)
    stage.equal("what came as late", consumer.late, five)


async def clock_jump(stage: Stage) -> None:
    """While a node runs, times to live go by its steady clock. Over a restart only the wall can say how long it took:
    one that was set back then lengthens no life by more than the pause."""
    await stage.together()
    jfk, hub = stage.nodes["jfk"], stage.nodes["hub"]
    jump = stage.random.choice((DAY_S, -DAY_S, 400 * DAY_S, -3_600.0, 3_600.0))
    before = stage.core("jfk").neighbours["hub"].flaps
    jfk.clock.step(jump)
    if stage.chance():
        hub.clock.step(-jump)
    await asyncio.sleep(stage.random.uniform(2.0, 5.0))
    stage.check(stage.joined("jfk", "hub"), "the session outlives a jump")
    stage.equal("sessions lost by a jump", stage.core("jfk").neighbours["hub"].flaps, before)
    stage.part("jfk", "hub")
    await stage.until("the line is known to be dead", lambda: not stage.joined("jfk", "hub"))
    producer = await stage.producer("jfk", "work@hub")
    long = await producer.send(stage.some(1, 5), ttl_s=120.0)
    short = await producer.send(stage.some(1, 5), ttl_s=4.0)
    plain = await producer.send(stage.some(1, 5))
    stage.excuse(short, "its time to live is short")
    await stage.moment(2.0)
    if stage.chance():  # set back, however far it leapt before, and started so
        jfk.clock.step(-2 * abs(jump))
        stage.crash("jfk")
        stage.start("jfk")
    else:
        jfk.clock.step(-2 * jump)
    await asyncio.sleep(stage.random.uniform(6.0, 20.0))
    await stage.until("what is short has ended on its way", lambda: stage.keys("jfk", "@hub") == long + plain, 5.0)
    stage.join("jfk", "hub")
    await stage.until("what lives is at the hub", lambda: stage.holds_all("hub", "work", long + plain))
    hub.clock.step(jump)
    await in_order(stage, long + plain)


HISTORIES = (
    History("restored-backup", "jfk is restored to an older state and gives numbers again: it gets a new UUID.",
            sites("jfk-hub"), restored_backup),
    History("copied-store", "An older copy of jfk's store is put back, and who it meets first cannot know.",
            sites("jfk-via", "via-hub", forwarding={"jfk": {"hub": "via"}, "hub": {"jfk": "via"}}), copied_store),
    History("replaced-disk-receiver", "The hub's disk is replaced: it begins where its old disk's word ended.",
            sites("jfk-hub"), replaced_disk_receiver),
    History("replaced-disk-sender", "jfk's disk is replaced while 5 sleeps elsewhere: its gap closes, told as lost.",
            sites("jfk-hub", "jfk-via", "via-hub"), replaced_disk_sender),
    History("clock-jump", "Wall clocks jump by days: times to live and sessions go by clocks that only go on.",
            sites("jfk-hub"), clock_jump),
)  # fmt: skip
