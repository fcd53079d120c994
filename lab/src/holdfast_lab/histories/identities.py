"""Histories of a node's identity: a node that is killed while its store gets a new UUID, and a name and a store that no
longer belong together.

Rules of this file: one function a history; each says which keys are where, which store gave a number, and what is told.
Source: docs/CUSTODY.md, "Names"; docs/adr/0025-copied-stores.md.
"""

from collections.abc import Sequence
from typing import Final

from holdfast_lab.histories.hop import in_order
from holdfast_lab.histories.stage import History, Stage, sites


async def killed_as_someone_new(stage: Stage) -> None:
    """jfk's store is put back. It knows by its directory, or has accepted messages under numbers that the hub has seen
    when it hears so; it has its new UUID, and is killed before the commit behind that, perhaps again and again."""
    await stage.together()
    jfk = stage.nodes["jfk"]
    before = await stage.send("jfk", "work@hub", stage.some(1, 20))
    await stage.until("all is at the hub", lambda: stage.keys("hub", "work") == before)
    await stage.until("and answered", lambda: not stage.keys("jfk", "@hub"))
    backup = jfk.store.snapshot()
    forgotten = await stage.send("jfk", "work@hub", stage.some(1, 30))
    await stage.until("the hub has those too", lambda: stage.keys("hub", "work") == before + forgotten)
    await stage.moment(1.0)
    stage.crash("jfk", power=stage.chance())
    stage.part("jfk", "hub")
    jfk.store.restore(backup)
    stage.bed.disk_changed(jfk)
    old, known, fresh = jfk.store.uuid, stage.chance(), []
    if known:
        jfk.store.copied = "its file is not the one that was opened last"
    stage.start("jfk")
    if not known:
        fresh = await stage.send("jfk", "work@hub", stage.some(1, 40))
        stage.join("jfk", "hub")
    await stage.arises("jfk has its new UUID", lambda: jfk.store.uuid != old)
    own = jfk.store.uuid.bytes
    rows = dict(jfk.store.table("custody"))
    stage.happened(
        (own in rows.values()) != known, "nothing else of that life is on disk" if known else "all is at once"
    )
    for _ in range(stage.some(1, 3)):
        stage.crash("jfk", power=stage.chance())
        await stage.moment(1.0)
        stage.start("jfk")
    stage.join("jfk", "hub")
    late = await stage.send("jfk", "work@hub", stage.some(1, 5))
    await stage.until("all is at the hub", lambda: stage.holds_all("hub", "work", fresh + late))
    taken = [item.identity for _, item in stage.entries("hub", "work")]
    stage.equal("numbers that were given twice", len(taken) - len(set(taken)), 0)
    await in_order(stage, before + forgotten + fresh + late)
    stage.equal("what the hub took for copies", stage.core("hub").duplicates.suppressed, 0)
    stage.equal("what the hub tells as lost", stage.losses("hub"), [])


# ------------------------------------------------------------------------------------------------ names

SENDERS: Final = ("hub", "jfk")
"""A neighbour of `x` and `xx`, and a node behind it."""


async def _begin(stage: Stage) -> dict[str, list[bytes]]:
    """x is up and xx is not. What was sent to each and is there, by name."""
    stage.crash("xx")
    await stage.together(("jfk", "hub"), ("hub", "x"))
    found: dict[str, list[bytes]] = {"x": [], "xx": []}
    await _fill(stage, found, "x")
    return found


async def _send(stage: Stage, name: str) -> list[bytes]:
    """Both senders send some to `work` at that name."""
    return [key for node in SENDERS for key in await stage.send(node, f"work@{name}", stage.some(1, 20))]


async def _fill(stage: Stage, found: dict[str, list[bytes]], name: str, sent: Sequence[bytes] = ()) -> None:
    """What was sent to that name before, and some more, comes to be there, once each."""
    found[name] += [*sent, *await _send(stage, name)]
    await stage.until(f"all is at {name}", lambda: stage.holds_all(name, "work", found[name]), 120.0)
    stage.equal(f"how much is at {name}", len(stage.keys(name, "work")), len(found[name]))
    await stage.until("its senders let go", lambda: not any(stage.keys(node, f"@{name}") for node in SENDERS))


def _move(stage: Stage, one: str, other: str) -> None:
    """The directory of `one`, which is down, becomes that of `other`, which is started with it."""
    _copy(stage, one, other)
    stage.nodes[one].replace_disk()


def _copy(stage: Stage, one: str, other: str, why: str | None = None) -> None:
    """`other`, which is down, is started with a copy of the directory of `one`; `why`: what that shows of it."""
    there = stage.nodes[other]
    there.store.restore(stage.nodes[one].store.snapshot())
    there.store.copied = why
    stage.bed.disk_changed(there)
    stage.start(other)


def _is_known(stage: Stage, node: str, name: str) -> bool:
    """Whether the node has that name's word on all that it numbered for it."""
    catalog = stage.core(node).catalog
    return catalog.ledger.receipts.get(name, 0) == catalog.ledger.identities[name] - 1


async def _is_exact(stage: Stage, found: dict[str, list[bytes]]) -> None:
    """What was sent to each name that is up is shown there, what it sends arrives, and the others are who they were."""
    back = []
    for name in [name for name in found if stage.up(name)]:
        stage.consumer(name, "work")
        back += await stage.send(name, "work@jfk", stage.some(1, 5))
    await stage.until("what they sent is at jfk", lambda: stage.holds_all("jfk", "work", back))
    stage.consumer("jfk", "work")
    await stage.all_shown()
    for node in SENDERS:
        stage.check(not stage.core(node).identities.renewed, f"{node} is who it was")
        stage.equal(f"what {node} tells as lost", stage.losses(node), [])


async def renamed_at_rest(stage: Stage) -> None:
    found = await _begin(stage)
    for one, other in stage.some(1, 4) * (("x", "xx"), ("xx", "x")):
        stage.crash(one, power=stage.chance())
        _move(stage, one, other)
        found[other] += found.pop(one)
        found[one] = []
        await _fill(stage, found, other)
    await _is_exact(stage, found)


async def renamed_in_doubt(stage: Stage) -> None:
    """x is killed with some in doubt, and is xx then; what was for x waits for it, until it has its name again."""
    found = await _begin(stage)
    x = stage.nodes["x"]
    x.store.hold()
    doubted = await _send(stage, "x")
    await stage.arises("x is committing some of it", lambda: any(stage.committing("x", key) for key in doubted))
    stage.crash("x", power=stage.chance())
    x.store.release()
    await stage.moment(2.0)
    already = found.pop("x")
    _move(stage, "x", "xx")
    found["x"], here = [], stage.keys("xx", "work")
    found["xx"] = here
    await _fill(stage, found, "xx")
    stage.equal("what is in doubt at the hub", sorted(stage.keys("hub", "@x")), sorted(doubted))
    stage.crash("xx", power=stage.chance())
    found["x"] = [key for key in found.pop("xx") if key not in doubted]
    stage.check(set(already) <= set(found["x"]), "x has what it had")
    found["xx"] = []
    _move(stage, "xx", "x")
    await _fill(stage, found, "x", doubted)
    await _is_exact(stage, found)


async def two_names_at_once(stage: Stage) -> None:
    """A copy of x's directory is started as xx, and both live: what one of them is given is nothing to the other."""
    found = await _begin(stage)
    consumer = stage.consumer("x", "work")  # what is in both would be shown at both, of which no name tells
    consumer.quota = len(found["x"])
    await consumer.done()
    await stage.until("x has nothing left", lambda: not stage.keys("x", "work"))
    found["x"] = []
    stage.nodes["hub"].store.hold()
    queued = await stage.send("x", "work@jfk", stage.some(1, 10))
    sent = stage.core("x").identities.sent
    await stage.arises("x has sent all of it, and has it still", lambda: sent.get("jfk", 0) == len(queued))
    stage.equal("what is in both", stage.keys("x", "@jfk"), queued)
    _copy(stage, "x", "xx", stage.random.choice((None, "its file is not the one that was opened last")))
    stage.nodes["hub"].store.release()
    await stage.together()
    stage.check(stage.nodes["x"].store.uuid != stage.nodes["xx"].store.uuid, "they are two")
    for _ in range(stage.some(1, 3)):
        await _fill(stage, found, "x")
        await _fill(stage, found, "xx")
    await stage.until("what was queued is at jfk", lambda: stage.holds_all("jfk", "work", queued))
    await _is_exact(stage, found)


async def copied_there_and_back(stage: Stage) -> None:
    """A copy of x's directory lives as xx, and is put back as x's: what x had taken meanwhile is gone with its disk."""
    found = await _begin(stage)
    known = "its file is not the one that was opened last"
    found["xx"] = stage.keys("x", "work")
    _copy(stage, "x", "xx", stage.random.choice((None, known)))
    await stage.together()
    await _fill(stage, found, "xx")
    if stage.chance():
        await _fill(stage, found, "x")
        await stage.until("both know that x had it", lambda: all(_is_known(stage, node, "x") for node in SENDERS))
    stage.crash("x", power=stage.chance())
    stage.crash("xx", power=stage.chance())
    _copy(stage, "xx", "x", stage.random.choice((None, known)))
    stage.nodes["xx"].replace_disk()
    found["x"], found["xx"] = found["xx"], []
    await _fill(stage, found, "x")
    await _is_exact(stage, found)


NAMES: Final = sites("jfk-hub", "hub-x", "hub-xx")
HISTORIES = (
    History("killed-as-someone-new", "A store that was put back is killed as soon as it has its new UUID.",
            sites("jfk-hub"), killed_as_someone_new),
    History("renamed-at-rest", "A node gets another name, and its old one back: no number counts for both.",
            NAMES, renamed_at_rest),
    History("renamed-in-doubt", "It gets another name while messages for it are in doubt, and its old one back.",
            NAMES, renamed_in_doubt),
    History("two-names-at-once", "A copy of a store lives beside it under another name: each has numbers of its own.",
            NAMES, two_names_at_once),
    History("copied-there-and-back", "A copy lived under another name, and is put back under the first.",
            NAMES, copied_there_and_back),
)  # fmt: skip
