"""Messages larger than their next hop takes: dead letters, as there is room, and never in the way of others."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.broker.cursors.runs import is_plain
from holdfast.broker.stored import records
from holdfast.custody.dead_lettering import DEAD_FROM, MOVED_BYTES, REASON
from holdfast.custody.hop import oversized
from holdfast.custody.hop import sender as hops
from holdfast.custody.hop.oversized import Oversized
from holdfast.custody.hop.sender import CustodySender
from holdfast.engine.port import Batch
from holdfast.settings.limits import Limits
from holdfast.units import KIB, MIB
from support.hops import reroute
from support.rig import Client, Node, Rig

TAKES = Limits(message_bytes_max=100 * KIB, partial_bytes_max=8 * MIB)
LARGE = "y" * (150 * KIB)


def apart() -> tuple[Rig, Node, Node]:
    """jfk, whose neighbour hub takes less than it does, and is away."""
    rig = Rig()
    jfk, hub = rig.pair(jfk={"queues": ()}, limits=TAKES)
    rig.run(3)
    hub.crash()
    return rig, jfk, hub


def no_room(node: Node) -> None:
    """The store takes nothing that adds to it."""
    assert node.core is not None
    node.store.room_bytes = lambda: -(10**9)  # type: ignore[method-assign]
    node.core.room.bytes = -(10**9)


def room(rig: Rig, node: Node) -> None:
    """It does again."""
    assert node.core is not None
    del node.store.room_bytes  # type: ignore[method-assign]
    node.core.room.bytes = node.store.room_bytes()
    rig.run(2)


def sends(rig: Rig, node: Node, count: int, body: str = LARGE, address: str = "work@hub", **parts: Any) -> Client:
    """As many as there is credit for, `count` at most."""
    client = rig.client(node)
    link = client.sender(address)
    rig.settle()
    for _ in range(count):
        if not link.sendable:
            rig.run(1)
        if not link.sendable:
            break
        client.send(link, body, **parts)
        rig.settle()
    return client


def dead(node: Node) -> int:
    assert node.core is not None
    queue = node.core.catalog.queues.get("$dead-letters")
    return 0 if queue is None else queue.messages


def sender_of(node: Node) -> CustodySender:
    assert node.core is not None
    return node.core.next_hops["hub"].senders["hub"]


def waits(node: Node) -> Any:
    return sender_of(node).oversized


def refused(node: Node) -> int:
    """Commits that the disk refused since the last that it took."""
    assert node.core is not None
    return node.core.disk._refused


@pytest.mark.parametrize("restarts", [False, True])
def test_on_a_full_disk_others_go_on(restarts: bool) -> None:
    """What leaves is stored as leaving, consumers empty the node, and each becomes a dead letter as there is room."""
    rig, jfk, hub = apart()
    jfk.store._bytes_max = jfk.store._bytes_used + 8 * MIB
    sends(rig, jfk, 20, "x" * (100 * KIB), "local")
    sends(rig, jfk, 200)
    rig.run(3)
    assert jfk.core is not None and jfk.core.disk.full
    count = jfk.queue("@hub").messages
    assert count > 5
    if restarts:
        jfk.crash()
        jfk.start()
    hub.start()
    rig.run(10)
    assert refused(jfk) == 0
    client = rig.client(jfk)
    client.receiver("local")
    taken = 0
    for _ in range(20):
        rig.run(1)
        taken += len(client.accept())
    assert taken == 20 and dead(jfk) == count and not waits(jfk).sequences
    assert jfk.queue("@hub").messages == 0


def test_a_slow_disk_gathers_no_more_than_a_share() -> None:
    rig, jfk, hub = apart()
    sends(rig, jfk, 100)
    core = jfk.core
    assert core is not None
    hub.start()
    finish = jfk.finish_commit

    def held() -> None:
        if dead(jfk):
            jfk.hold_commits = True
        else:
            finish()

    jfk.finish_commit = held  # type: ignore[method-assign]
    rig.run(8)
    assert core.disk.stalled and len(waits(jfk).sequences) > 20
    assert core.work.batch.bytes_appended < MOVED_BYTES + 2 * len(LARGE)
    jfk.finish_commit, jfk.hold_commits = finish, False  # type: ignore[method-assign]
    finish()
    rig.run(5)
    assert dead(jfk) == 100 and not waits(jfk).sequences and jfk.queue("@hub").messages == 0


def waiting(*, large: int = 3, **parts: Any) -> tuple[Rig, Node, Node]:
    """Large ones wait at jfk for room; three small ones behind them have gone."""
    rig, jfk, hub = apart()
    sends(rig, jfk, large, **parts)
    sends(rig, jfk, 3, "small")
    no_room(jfk)
    hub.start()
    rig.run(5)
    assert jfk.queue("@hub").messages == len(waits(jfk).sequences) == large and dead(jfk) == 0
    return rig, jfk, hub


def test_what_is_behind_them_goes_on() -> None:
    rig, jfk, hub = waiting()
    room(rig, jfk)
    assert dead(jfk) == 3 and jfk.queue("@hub").messages == 0 and not waits(jfk).sequences
    assert hub.bodies("work") == ["small"] * 3  # the tombstones are there
    sends(rig, jfk, 1, "later")
    rig.run(1)
    assert hub.bodies("work") == ["small"] * 3 + ["later"]


def test_where_tells_what_one_waits_for() -> None:
    rig, jfk, _ = waiting(properties=Properties(message_id="mine"))
    told = rig.client(jfk).manage("WHERE", "node", message_id="mine")[1]
    assert told["waits_for"] == "room for a dead letter: it is larger than 'hub' takes"


def test_a_link_that_takes_more_gets_them() -> None:
    rig, jfk, hub = waiting()
    hub.crash()
    hub.config = replace(hub.config, limits=Limits())
    hub.start()
    rig.run(5)
    assert not waits(jfk).sequences and sorted(hub.bodies("work")) == ["small"] * 3 + [LARGE] * 3
    room(rig, jfk)
    assert dead(jfk) == 0 and jfk.queue("@hub").messages == 0


def test_one_whose_time_is_over_goes_as_a_tombstone() -> None:
    rig, jfk, hub = waiting(header=Header(ttl=8_000))
    rig.run(8)
    assert not waits(jfk).sequences and jfk.queue("@hub").messages == 0
    room(rig, jfk)
    assert dead(jfk) == 0 and hub.bodies("work") == ["small"] * 3


def test_a_turn_looks_at_a_share_of_those_whose_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized, "MOVED_COUNT", 2)
    rig, jfk, hub = waiting(header=Header(ttl=8_000), large=7)
    looked: list[int] = []
    step = Oversized.step

    def counted(self: Oversized, sender: CustodySender, now: float) -> None:
        before = len(self.sequences)
        step(self, sender, now)
        looked.append(before - len(self.sequences))

    monkeypatch.setattr(Oversized, "step", counted)
    rig.run(20)
    assert sum(looked) == 7 and max(looked) == 2
    assert jfk.queue("@hub").messages == 0 and hub.bodies("work") == ["small"] * 3


def test_another_way_takes_them() -> None:
    """They go back to their places, and the neighbour that takes as much has them."""
    rig = Rig()
    ends = {"c": {"limits": TAKES}}
    a, _, c, d = rig.graph("a-b", "a-c", "b-d", "c-d", routes={"a": {"d": "c"}, "b": {"d": "d"}}, **ends)
    rig.run(3)
    c.crash()
    sends(rig, a, 1, address="work@d")
    no_room(a)
    c.start()
    rig.run(3)
    assert a.core.next_hops["c"].senders["d"].oversized.sequences
    reroute(rig, a, d="b")
    rig.run(3)
    assert d.bodies("work") == [LARGE] and not a.core.next_hops["c"].senders["d"].oversized.sequences


def in_doubt_at_b(count: int = 3, **parts: Any) -> tuple[Rig, Node, Node, Node]:
    """Large ones of a's for d are at b, which has them in a commit that does not end; from now on the way leads over
    c, which takes less."""
    rig = Rig()
    a, b, _, d = rig.graph("a-b", "a-c", "b-d", "c-d", routes={"a": {"d": "b"}}, c={"limits": TAKES})
    rig.run(3)
    sends(rig, a, 1, "first", address="work@d")
    rig.run(2)
    b.hold_commits = True
    sends(rig, a, count, address="work@d", **parts)
    rig.run(1)
    assert a.core is not None and len(a.core.next_hops["b"].senders["d"].in_doubt) == count
    reroute(rig, a, d="c")
    rig.run(3)
    return rig, a, b, d


def test_what_another_neighbour_may_have_waits_for_its_answer() -> None:
    """It is delivered, and no dead letter as well; what is behind it goes on."""
    rig, a, b, d = in_doubt_at_b(properties=Properties(message_id="mine"))
    assert dead(a) == 0 and a.queue("@d").messages == 3
    assert rig.client(a).manage("WHERE", "node", message_id="mine")[1]["waits_for"] == "the answer of 'b'"
    sends(rig, a, 2, "small", address="work@d")
    rig.run(1)
    assert a.queue("@d").messages == 3 and d.queue("$waiting").messages == 2  # as d's queue orders them
    b.hold_commits = False
    rig.run(5)
    assert dead(a) == 0 and a.queue("@d").messages == 0 and d.queue("work").messages == 6
    assert a.core is not None and not a.core.next_hops["c"].senders["d"].oversized.sequences


def test_those_that_nobody_else_has_do_not_wait_for_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized, "MOVED_COUNT", 2)
    rig, a, b, d = in_doubt_at_b()
    sends(rig, a, 3, address="work@d")
    rig.run(3)
    assert a.bodies("$dead-letters") == [LARGE] * 3 and a.queue("@d").messages == 3
    b.hold_commits = False
    rig.run(5)
    assert dead(a) == 3 and a.queue("@d").messages == 0 and d.queue("work").messages == 4


def test_one_that_another_neighbour_was_sent_says_so_where_no_answer_can_come() -> None:
    """Its session is lost: whether that neighbour has stored it is never known."""
    rig, a, b, _ = in_doubt_at_b(1)
    b.crash()
    rig.run(5)
    assert dead(a) == 1 and a.queue("@d").messages == 0
    reader = rig.client(a)
    reader.receiver("$dead-letters")
    rig.run(1)
    [found] = reader.messages()
    reason = (found.message_annotations or {})[REASON]
    assert reason == "larger than 'c' takes; 'b' was sent it before, and may have delivered it"
    assert (found.message_annotations or {})[DEAD_FROM] == "work@d", "where `holdfast dead-letters requeue` sends it"


def gives_room(node: Node, due: float) -> Any:
    """The store has room again; what waits is looked at then."""
    assert node.core is not None
    del node.store.room_bytes  # type: ignore[method-assign]
    node.core.room.bytes = node.store.room_bytes()
    found = waits(node)
    found.due = due
    return found


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, jfk, _ = waiting()
    monkeypatch.setattr(hops, "ASIDE_MAX", 3)
    found = gives_room(jfk, rig.now + 1e6)
    sends(rig, jfk, 3)
    rig.run(0.2)
    assert len(found.sequences) == 3


def test_its_sender_is_woken_for_them() -> None:
    _, jfk, _ = waiting()
    assert sender_of(jfk).next_deadline() == waits(jfk).due


def test_one_more_waits_behind_those_that_wait() -> None:
    rig, jfk, _ = waiting()
    found = gives_room(jfk, rig.now + 5)
    sends(rig, jfk, 1, "z" * (150 * KIB))
    rig.run(0.5)
    assert dead(jfk) == 0 and len(found.sequences) == 4
    rig.run(10)
    assert jfk.bodies("$dead-letters") == [LARGE] * 3 + ["z" * (150 * KIB)]


def test_on_a_disk_that_takes_nothing_they_wait() -> None:
    rig, jfk, _ = waiting()
    found = gives_room(jfk, 0.0)
    assert jfk.core is not None
    jfk.core.disk.stalled = True
    found.step(sender_of(jfk), rig.now)
    assert dead(jfk) == 0 and len(found.sequences) == 3


@pytest.mark.parametrize("room_later", [False, True])
def test_what_was_in_doubt_and_is_too_large_now_is_forgotten_whole(room_later: bool) -> None:
    """How often it was given back is forgotten with it, also by a store that kept more: what follows goes in runs."""
    rig, jfk, hub = apart()
    hub.config = replace(hub.config, limits=Limits())
    hub.start()
    rig.run(8)
    hub.hold_commits = True
    sends(rig, jfk, 2)
    assert len(sender_of(jfk).in_doubt) == 2
    hub.crash()
    hub.config = replace(hub.config, limits=TAKES)
    hub.hold_commits = False
    if room_later:
        no_room(jfk)
    hub.start()
    rig.run(8)
    if room_later:
        assert len(waits(jfk).sequences) == 2 and len(sender_of(jfk).cursor.counts) == 2
        room(rig, jfk)
    cursor = sender_of(jfk).cursor
    assert dead(jfk) == 2 and not cursor.counts and is_plain(cursor, sender_of(jfk))


def test_counts_of_entries_that_are_gone_end_with_a_restart() -> None:
    """As a store has them that an earlier version wrote."""
    rig = Rig()
    jfk, hub = rig.pair(jfk={"queues": ()})
    rig.run(3)
    sends(rig, jfk, 1, "small")
    rig.run(1)
    hub.crash()
    sends(rig, jfk, 2, "small")
    gone, here = 1, 2
    queue = jfk.queue("@hub")
    assert [queue.value(sequence) is None for sequence in (gone, here)] == [True, False]
    key = ("node", b"c" + records.counters_key(queue.queue_id))
    jfk.crash()
    jfk.store.commit(Batch(puts={key: records.PAIRS.pack(gone, 1) + records.PAIRS.pack(here, 2)}))
    jfk.start()
    assert jfk.queue("@hub").shared.counts == {here: 2}
    hub.start()
    rig.run(8)
    assert hub.bodies("work") == ["small"] * 3 and not jfk.queue("@hub").shared.counts


def test_a_change_of_the_way_leaves_none_behind() -> None:
    _, jfk, _ = waiting()
    sender = sender_of(jfk)
    shown = dict(sender.cursor.acquired)
    sender.recover()
    assert sender.cursor.acquired == shown, "it knows them"
    sender.stop()
    assert not sender.oversized.sequences and not sender.cursor.acquired
