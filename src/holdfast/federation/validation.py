"""The invariants of a node's federation after every event (docs/adr/0020).

Rules of this file: it only reads; BrokenInvariant names the contradiction.
"""

from holdfast.engine.invariants import must
from holdfast.federation.confirming import WAITING_MAX
from holdfast.federation.federation import Federation
from holdfast.federation.keeping import Sets
from holdfast.federation.messages import FOLLOWED_MAX
from holdfast.federation.neighbour import Neighbour
from holdfast.federation.rows import VOID, digest_of
from holdfast.federation.serving import NAMES_ALL_MAX, NAMES_MAX, REPLIES_MAX
from holdfast.federation.sets import Key, held_bytes
from holdfast.federation.taking import ASKED_MAX


def validate(node: Federation) -> None:
    """Checks all invariants. It computes all digests again, so the cost grows with the number of rows."""
    sets(node.sets, node)
    for name, neighbour in node.neighbours.items():
        must(name == neighbour.name, f"federation: the session of {name} is another's", neighbour.name)
        _serving(neighbour)
        _taking(neighbour, node)
    must(len(node.confirming.binds) <= WAITING_MAX, "federation: too many binds wait", len(node.confirming.binds))
    for token, bind in node.confirming.binds.items():
        must(token == bind.token, "federation: a bind under another number", token)
        must(bind.topic in node.own, "federation: a bind to a topic that is not announced", bind.topic)
    for key, parent in node.parents.items():
        edges = {entry.neighbour for entry in node.entries if entry.topic == key.topic and entry.mode == "dynamic"}
        must(parent in edges, f"federation: a parent of {key} that is not forwarded to", parent)
        must(key.origin != node.name, "federation: a parent of the own set", key)
    for topic, own in node.own.items():
        held = node.sets.committed(Key(node.name, topic))
        rows = held.rows if held is not None else frozenset()
        if held is not None and held.stamp.life < node.life:
            continue  # of an earlier life: nobody is told of it
        must(own.since.keys() == rows, f"federation: rows of {topic} since when is not known", own.since.keys() ^ rows)
        must(
            held is None or all(stamp <= held.stamp for stamp in own.since.values()),
            f"federation: a row of {topic} from a version to come",
        )


def sets(sets: Sets, node: Federation) -> None:
    size = 0
    for key in sets.everything():
        held = sets.current(key)
        must(held is not None, "federation: a set that is listed and not there", key)
        assert held is not None
        size += held.bytes
        must(held.bytes == held_bytes(held.rows, held.edges), f"federation: bytes of {key}", held.bytes)
        must(
            held.marked == {row for row in held.rows if row.bits}, f"federation: marked rows of {key}", len(held.marked)
        )
        must(held.digest == digest_of(held.rows, held.edges), f"federation: digest of {key}", held.digest)
        must(held.is_whole or len(held.rows) == 1, f"federation: rows of {key} that has another digest")
        must(len(held.rows) <= node.bounds.rows_max, f"federation: too many rows of {key}", len(held.rows))
        must(held.stamp != VOID or key.origin != node.name, "federation: our own set has no stamp", key)
    must(sets.bytes == size, "federation: bytes of all sets", sets.bytes, size)
    known = {*sets.stored, *(sets.under_way or ()), *sets.staged}
    there = {key for key in known if sets.current(key) is not None}
    must(
        there == set(sets.everything()),
        "federation: sets that are there and not listed",
        there ^ set(sets.everything()),
    )
    must(not sets.moved, "federation: what a commit moved was not passed on", len(sets.moved))


def _serving(neighbour: Neighbour) -> None:
    serving = neighbour.serving
    must(len(serving.followers) <= FOLLOWED_MAX, f"federation: {neighbour.name} follows too much")
    must(
        serving.pending.keys() <= serving.followers.keys(),
        f"federation: {neighbour.name} is sent what it does not take",
    )
    must(len(serving.replies) <= REPLIES_MAX, f"federation: replies to {neighbour.name}", len(serving.replies))
    named = 0
    for key, follower in serving.followers.items():
        must(key.topic in serving.topics, f"federation: {neighbour.name} takes what it does not forward", key)
        must(
            follower.compared is None or follower.sent == follower.compared.edition,
            f"federation: {neighbour.name} compares what it was not sent last",
            key,
        )
        named += len(follower.names)
        must(len(follower.names) <= NAMES_MAX, f"federation: names behind {neighbour.name}", len(follower.names))
    must(
        named == serving.named <= NAMES_ALL_MAX, f"federation: all names behind {neighbour.name}", named, serving.named
    )


def _taking(neighbour: Neighbour, node: Federation) -> None:
    taking = neighbour.taking
    name = neighbour.name
    must(taking.told.keys() <= taking.wanted.keys(), f"federation: {name} was told what is not wanted")
    must(taking.asked.keys() <= taking.wanted.keys(), f"federation: {name} is asked for what is not wanted")
    must(taking.repairs.keys() <= taking.wanted.keys(), f"federation: repairs from {name} of what is not wanted")
    asked = sum(len(repair.asked) for repair in taking.repairs.values())
    size = sum(repair.bytes for repair in taking.repairs.values())
    must(asked == taking.questions <= ASKED_MAX, f"federation: parts asked of {name}", asked, taking.questions)
    must(size == taking.repair_bytes, f"federation: bytes of repairs from {name}", size, taking.repair_bytes)
    must(taking.requests.keys() <= taking.repairs.keys(), f"federation: {name} is asked for parts of no repair")
    for key, prefix in taking.open:
        repair = taking.repairs.get(key)
        must(repair is not None and prefix in repair.asked, f"federation: {name} was asked for parts of no repair", key)
    for key in taking.wanted:
        must(node.parents.get(key) == name, f"federation: {name} is not the parent of {key}", node.parents.get(key))
        must(key in taking.told or key in taking.asked, f"federation: {name} is not asked for {key}")
    named = sum(len(told.names) for told in taking.told.values())
    must(named == taking.named, f"federation: names that {name} was told", named, taking.named)
