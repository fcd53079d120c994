"""Entries that modified annotates (AMQP 1.0 §3.4.5): what counts them and what is given follow, stored or not yet."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.accounts import Account
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Accepted, Modified
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker import rewriting
from holdfast.broker.entries import annotate as annotations
from holdfast.broker.entries import entry, packed
from holdfast.core import undo
from holdfast.custody.dead_lettering import NOTE_BYTES, DeadLettering
from holdfast.endpoints import settlements
from holdfast.endpoints.settlements import SETTLED_BYTES_MAX, Settlements
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB
from support.rig import Client, Node, Rig

WHY = Symbol("x-opt-why")


class Defect(Exception):
    """Raised where nothing is wrong."""


def broken(*args: object) -> None:
    raise Defect


def shown(cache_bytes: int) -> tuple[Rig, Node, Client, Any]:
    """A consumer with one message in its hands."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(cache_bytes=cache_bytes))
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "m")
    receiver = client.receiver("work", credit=1)
    rig.settle()
    return rig, node, client, receiver


def annotate(client: Client, receiver: Any, note: str) -> None:
    """The delivery goes back with that annotation, and there is credit for the next."""
    (delivery,) = client.deliveries
    client.deliveries.clear()
    receiver.settle(delivery.delivery_id, delivery.delivery_id, Modified(message_annotations={WHY: note}))
    receiver.grant(1)


def notes(client: Client) -> list[object]:
    return [(message.message_annotations or {}).get(WHY) for message in client.messages()]


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_the_next_delivery_has_the_annotation_though_it_is_not_on_disk_yet(cache_bytes: int) -> None:
    rig, node, client, receiver = shown(cache_bytes)
    for note in ("once", "a second time"):
        annotate(client, receiver, note)
        rig.settle()
        assert notes(client) == [note]
    client.accept(Accepted())
    rig.run(1)
    assert (node.queue("work").messages, node.queue("work").bytes_held) == (0, 0)


def test_a_full_disk_leaves_it_as_it_was_however_often_it_was_annotated() -> None:
    rig, node, client, receiver = shown(0)
    queue = node.queue("work")
    before = queue.bytes_held
    node.refuse = 2
    for note in ("once", "a second time"):
        annotate(client, receiver, note)
        rig.settle()
    rig.run(1)
    assert queue.bytes_held == before and not queue.work.rewritten
    client.accept(Accepted())
    rig.run(1)
    assert (queue.messages, queue.bytes_held) == (0, 0)


def test_another_reader_is_given_it_with_the_size_that_it_has_now() -> None:
    """What a consumer annotates beside a subscription leaves, once that is gone, with the size that it has then."""
    rig, node, client, receiver = shown(0)
    other = rig.client(node)
    assert other.manage("OPEN", "subscription", "s", queue="work", mode="copy")[0] == 201
    annotate(client, receiver, "once")
    rig.settle()
    assert notes(client) == ["once"]
    assert other.manage("DELETE", "subscription", "s", queue="work")[0] == 200
    client.accept(Accepted())
    rig.run(1)
    assert (node.queue("work").messages, node.queue("work").bytes_held) == (0, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_turn_that_is_undone_leaves_the_sum_right(leaves: bool) -> None:
    """Annotated twice in the turn; what left after that has left all the same."""
    _, node, _, _ = shown(0)
    core = node.core
    assert core is not None
    queue = node.queue("work")
    before = queue.bytes_held
    (sequence,) = queue.shared.acquired
    (peer,) = core.connections.values()
    for note in ("once", "a second time"):
        core.dead_lettering.annotate_entry(peer, queue, sequence, annotations.to_add({WHY: note}))
    if leaves:
        queue.shared.finish([sequence])
    undo.take_back_gathered(core, ())
    assert queue.bytes_held == (0 if leaves else before) and not queue.work.rewritten
    assert leaves or queue.shared.acquired[sequence].size == before


@pytest.mark.parametrize("subscriptions", [0, 2])
@pytest.mark.parametrize("notes", [1, 3])
def test_an_annotation_counts_with_what_it_costs_each_reader(notes: int, subscriptions: int) -> None:
    """The entry that is put anew, and something for each note and each cursor."""
    _, node, _, _ = shown(0)
    core = node.core
    assert core is not None
    queue = node.queue("work")
    for number in range(subscriptions):
        queue.add_cursor(f"s{number}", "copy", 1)
    (sequence,) = queue.shared.acquired
    (peer,) = core.connections.values()
    before = core.turns.gathered.heard_bytes
    added = {Symbol(f"x-opt-{number}"): "n" for number in range(notes)}
    ended, why = core.dead_lettering.annotate_entry(peer, queue, sequence, annotations.to_add(added))
    value = queue.value(sequence)
    assert not why and value is not None
    assert ended.read_bytes == len(value) + NOTE_BYTES * (notes + subscriptions)
    assert core.turns.gathered.heard_bytes - before == ended.read_bytes


# ------------------------------------------------------------------------------------------------ bounds


def held(count: int, size: int, **fields: Any) -> tuple[Rig, Node, Client, Any]:
    """A consumer with so many messages of that size in its hands."""
    rig = Rig()
    node = rig.node("hub", **fields)
    node.unwatched.add("work")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in range(count):
        client.send(link, f"{number:04}".ljust(size))
    receiver = client.receiver("work", credit=count)
    rig.settle()
    assert len(client.deliveries) == count
    return rig, node, client, receiver


def told(node: Node) -> list[str]:
    return [line for line in node.logs if "are left out" in line]


@pytest.mark.parametrize("bound", ["queue", "memory"])
def test_annotations_keep_within_the_bound_of_their_queue(bound: str) -> None:
    """What does not fit is left out, which the log is told; nothing is lost, and what fits stays."""
    room = 100 * KIB
    queue = QueueConfig(name="work", durable=bound == "queue", bytes_max=room if bound == "queue" else None)
    rig, node, client, receiver = held(50, 100, queues=[queue], limits=Limits(memory_queue_bytes_max=room))
    work = node.queue("work")
    most = 0
    for size in (1_000, 4_000, 16_000, 60_000):
        client.accept(Modified(message_annotations={WHY: "x" * size}))
        rig.settle()
        most = max(most, work.bytes_held, node.core.memory.queues.held)  # type: ignore[union-attr]
        receiver.grant(50)
        rig.settle()
        assert len(client.deliveries) == 50
    assert 80 * KIB < most <= room
    assert any(note is not None for note in notes(client))
    assert told(node) and all("has no room" in line for line in told(node))
    client.accept(Accepted())
    rig.run(1)
    assert (work.messages, work.bytes_held, node.core.memory.queues.held) == (0, 0, 0)  # type: ignore[union-attr]


def test_a_message_has_at_most_annotation_bytes_max() -> None:
    rig, node, client, receiver = held(1, 100, limits=Limits(annotation_bytes_max=1_024))
    work = node.queue("work")
    for number in range(10):
        client.accept(Modified(message_annotations={Symbol(f"x-opt-{number}"): "x" * 300}))
        rig.settle()
        receiver.grant(1)
        rig.settle()
    assert len(client.messages()[0].message_annotations or {}) == 3 + 2 and work.bytes_held < 2_000
    assert len(told(node)) == 7 and "at most 1024 bytes" in told(node)[0]


def test_what_one_connection_has_annotated_in_one_batch_is_bounded() -> None:
    """However small the annotation: the whole message is put anew. Another one's is, beside it; then all the rest."""
    size = 256 * KIB
    rig, node, client, receiver = held(60, size)
    core = node.core
    assert core is not None
    other = rig.client(node)
    link = other.sender("small")
    rig.settle()
    other.send(link, "m")
    theirs = other.receiver("small")
    rig.settle()
    node.hold_commits = True
    before = core.work.batch.bytes_appended
    client.accept(Modified(message_annotations={WHY: "x"}))
    rig.settle()
    annotate(other, theirs, "mine")
    rig.settle()
    assert node.pending is not None and core.turns.in_flight is not None
    appended = core.work.batch.bytes_appended - before
    for batch in (appended, core.turns.in_flight.batch.bytes_appended):
        assert batch <= SETTLED_BYTES_MAX + 2 * size
    assert core.memory.unstored.held >= appended
    node.finish_commit()
    rig.settle()
    node.finish_commit()
    rig.settle()
    assert [(message.message_annotations or {})[WHY] for message in other.messages()] == ["mine"]
    node.hold_commits = False
    receiver.grant(60)
    rig.run(1)
    assert len(client.deliveries) == 60 and notes(client) == ["x"] * 60 and not told(node)


class Turns:
    """How many entries each turn annotates: the last is the one that has not ended."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.counts = [0]
        annotate_one, begin = DeadLettering.annotate_entry, Settlements.begin_turn

        def counted(*given: Any) -> Any:
            self.counts[-1] += 1
            return annotate_one(*given)

        def begun(self_: Settlements) -> None:
            self.counts.append(0)
            begin(self_)

        patch.setattr(DeadLettering, "annotate_entry", counted)
        patch.setattr(Settlements, "begin_turn", begun)


@pytest.mark.parametrize("frames", ["one", "each"])
@pytest.mark.parametrize("durable", [True, False])
def test_what_one_turn_annotates_is_bounded_by_count(
    monkeypatch: pytest.MonkeyPatch, durable: bool, frames: str
) -> None:
    """One disposition of many, or many of one each in one read: the rest goes on in the next turns, in order."""
    monkeypatch.setattr(settlements, "EFFORT_A_TURN", 10 * settlements.MESSAGE_EFFORT)
    rig, _, client, receiver = held(100, 50, queues=[QueueConfig(name="work", durable=durable)])
    turns = Turns(monkeypatch)
    ids = [item.delivery_id for item in client.deliveries]
    bodies = [body.strip() for body in client.bodies()]
    client.deliveries.clear()
    for first, last in [(ids[0], ids[-1])] if frames == "one" else [(number, number) for number in ids]:
        receiver.settle(first, last, Modified(message_annotations={WHY: "x"}))
    client.flush()
    rig.run(1)
    assert sum(turns.counts) == 100 and max(turns.counts) <= 10
    receiver.grant(100)
    rig.run(1)
    assert [body.strip() for body in client.bodies()] == bodies and notes(client) == ["x"] * 100


def test_annotations_that_may_be_decoded_count_for_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer messages fit into a turn the more they are annotated with already."""
    monkeypatch.setattr(settlements, "EFFORT_A_TURN", 20 * settlements.MESSAGE_EFFORT)
    rig, _, client, receiver = held(40, 50)
    turns = Turns(monkeypatch)
    most = []
    for note in ("x" * 100 * settlements.EFFORT_NOTE_BYTES, "y", "z"):
        client.accept(Modified(message_annotations={WHY if len(note) == 1 else Symbol("x-opt-much"): note}))
        rig.run(1)
        most.append(max(turns.counts))
        turns.counts = [0]
        receiver.grant(40)
        rig.run(1)
        assert len(client.deliveries) == 40
    assert most[0] <= 20 and max(most[1:]) <= 20 * 40 // 140 + 1
    assert notes(client) == ["z"] * 40


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("end", ["nothing", "detach", "lost", "deleted", "refused", "failure", "stop"])
def test_what_ends_while_annotations_wait(monkeypatch: pytest.MonkeyPatch, end: str, mode: int) -> None:
    """Each message goes on once, annotated or as it was; who settles second is answered when all of it is on disk."""
    monkeypatch.setattr(settlements, "EFFORT_A_TURN", 10 * settlements.MESSAGE_EFFORT)
    rig, node, client, _ = held(10, 50)
    client.close_transport()
    client = rig.client(node)
    sender = client.sender("work")
    rig.settle()
    for number in range(10, 50):
        client.send(sender, f"{number:04}")
    receiver = client.receiver("work", credit=50, rcv_settle_mode=mode)
    rig.settle()
    core = node.core
    assert core is not None and len(client.deliveries) == 50
    ids = [item.delivery_id for item in client.deliveries]
    client.deliveries.clear()
    node.hold_commits = True
    if end == "failure":
        limit = iter(range(13))
        annotate_one = DeadLettering.annotate_entry

        def failing(*given: Any) -> Any:
            if next(limit, None) is None:
                raise Defect
            return annotate_one(*given)

        monkeypatch.setattr(DeadLettering, "annotate_entry", failing)
    client_settles = Modified(True, message_annotations={WHY: "x"})
    receiver.settle(ids[0], ids[-1], client_settles)
    client.flush()
    rig.move()
    waiting = core.jobs.settlements
    if end != "failure":
        assert 30 <= sum(len(item.sequences) for item in waiting.waiting) < 50
        assert core.memory.settling.held == waiting.held_bytes > 0
    if end == "detach":
        receiver.detach(closed=True)
    elif end == "lost":
        client.close_transport()
    elif end == "refused":
        node.refuse = 1
    rig.move()
    if end == "deleted":
        node.hold_commits = False
        client.close_transport()
        assert rig.client(node).manage("DELETE", "queue", "work")[0] in (200, 204, 409)
    if end == "stop":
        node.handle(events.Stopping())
    node.hold_commits = False
    rig.run(2)
    assert not waiting.waiting and not waiting.counts and core.memory.settling.held == 0
    if end in ("deleted", "stop"):
        return
    core.validate()
    other = rig.client(node)
    other.receiver("work", credit=100)
    rig.run(1)
    assert sorted(body.strip() for body in other.bodies()) == [f"{number:04}" for number in range(50)]
    if end != "failure":
        assert node.core.containment.peers_ended == 0  # type: ignore[union-attr]
    if end not in ("refused", "failure"):
        assert notes(other) == ["x"] * 50


ANNOTATED: Any = st.dictionaries(
    st.sampled_from(
        [Symbol("x-opt-a"), Symbol("x-opt-b"), Symbol("a"), Symbol("x-opt-ab"), "x-opt-a", Ulong(1), Ulong(7)]
    ),
    st.one_of(st.text(max_size=5), st.booleans(), st.binary(max_size=300), st.lists(st.text(max_size=9), max_size=3)),
    max_size=5,
)


@given(
    before=ANNOTATED,
    added=ANNOTATED,
    identity=st.booleans(),
    to=st.sampled_from(["", "queue"]),
    ttl=st.sampled_from([0, 99]),
)
def test_what_is_not_touched_is_not_decoded(
    before: dict[Any, Any], added: dict[Any, Any], identity: bool, to: str, ttl: int
) -> None:
    """The annotated entry is the one that taking it apart, merging the maps and packing it again makes."""
    items = b"".join(encode(key) + encode(part) for key, part in before.items())
    value = entry.pack(
        flags=entry.DURABLE, enqueued_ms=5, bare=b"bare", expires_ms=ttl, annotation_count=2 * len(before),
        annotations=items, identity=entry.Identity(UUID(int=7), 3) if identity else None,
        trace=bytes(range(32)) if identity else b"", to=to,
    )  # fmt: skip
    merged = annotations.merge(value, annotations.to_add(added), 10_000)
    item, was = entry.unpack(merged), entry.unpack(value)
    assert annotations.notes_of(item) == annotations.notes_of(was) | added
    assert item._replace(annotations=was.annotations, annotation_count=was.annotation_count) == was


def test_none_of_many_annotations_is_decoded_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {Symbol(f"x-opt-{number}"): True for number in range(100)}
    items = b"".join(encode(key) + encode(part) for key, part in before.items())
    value = entry.pack(flags=0, enqueued_ms=5, bare=b"bare", annotation_count=200, annotations=items)
    with monkeypatch.context() as patch:
        patch.setattr(annotations, "decode", broken)
        merged = annotations.merge(value, annotations.to_add({WHY: "x"}), 10_000)
    assert annotations.notes_of(entry.unpack(merged)) == before | {WHY: "x"}


def test_nothing_is_changed_before_the_last_call_that_could_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    _, node, _, _ = shown(0)
    queue = node.queue("work")
    before = queue.bytes_held
    value = queue.value(1)
    monkeypatch.setattr(type(queue), "touch_counters", broken)
    with pytest.raises(Defect):
        rewriting.replace(queue, 1, value, value + b"more")
    assert queue.bytes_held == before


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_two_subscriptions_hold_it_with_one_size(cache_bytes: int) -> None:
    """What one of them annotates the other has in its hands too; a contained failure finds nothing that contradicts
    itself, and what both accept leaves with the size that it has."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(cache_bytes=cache_bytes))
    clients = [rig.client(node, container_id=name) for name in ("a", "b")]
    fields: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    names = ("s", "t")
    links = [
        client.receiver("work", name=name, source=dict(fields), credit=1)
        for client, name in zip(clients, names, strict=True)
    ]
    rig.settle()
    sender = rig.client(node)
    link = sender.sender("work")
    rig.settle()
    sender.send(link, "m")
    rig.settle()
    annotate(clients[0], links[0], "once")
    rig.settle()
    queue = node.queue("work")
    assert {cursor.acquired[1].size for cursor in queue.named.values()} == {queue.bytes_held}
    assert node.core is not None
    node.core.validate()
    sender.receiver("work")
    rig.settle()
    for client in (*clients, sender):
        client.accept(Accepted())
    rig.run(1)
    assert (queue.messages, queue.bytes_held) == (0, 0)


@pytest.mark.parametrize("durable", [True, False])
def test_a_failure_behind_the_change_leaves_the_sum_right(monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    """The value and its count are one step: whatever fails after it, the turn that is undone knows of both."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(cache_bytes=10_000), queues=[QueueConfig(name="work", durable=durable)])
    node.unwatched.add("work")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "m")
    receiver = client.receiver("work", credit=1)
    rig.settle()
    core = node.core
    assert core is not None
    with monkeypatch.context() as patch:
        patch.setattr(Account, "charge", broken)
        annotate(client, receiver, "once")
        rig.settle()
    core.validate()
    assert core.containment.peers_ended == int(durable)


@pytest.mark.parametrize("missing", [0, 1])
def test_annotations_may_fill_their_queue_to_its_last_byte(missing: int) -> None:
    """And not beyond it."""
    sizes = []
    for bytes_max in (None, 0):
        most = None if bytes_max is None else sizes[0] - missing
        rig, node, client, _ = held(1, 100, queues=[QueueConfig(name="work", bytes_max=most)])
        before = node.queue("work").bytes_held
        client.accept(Modified(message_annotations={WHY: "x" * 400}))
        rig.run(1)
        sizes.append(node.queue("work").bytes_held)
    assert sizes[0] > before + 400
    assert (sizes[1], len(told(node))) == ((before, 1) if missing else (sizes[0], 0))


def test_a_message_may_have_as_many_annotations_as_are_accepted_and_no_more() -> None:
    value = entry.pack(flags=0, enqueued_ms=1, bare=b"")
    notes = {Symbol(f"x-opt-{number}"): number for number in range(annotations.ANNOTATIONS_MAX)}
    full = annotations.merge(value, annotations.to_add(notes), 10**6)
    assert packed.annotations_of(full)[0] == 2 * annotations.ANNOTATIONS_MAX
    assert annotations.merge(full, annotations.to_add({Symbol("x-opt-1"): "anew"}), 10**6) is not full
    assert annotations.merge(full, annotations.to_add({Symbol("x-opt-more"): 1}), 10**6) is full
