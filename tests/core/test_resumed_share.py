"""What a consumer that is resumed is sent again keeps to the bounds of all that is handed out (resumption/)."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import pytest

from core.test_handed import put, written
from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.performatives import Accepted, Error, Modified, Received, Rejected
from holdfast.amqp.wire.types import Symbol
from holdfast.broker.queue import Queue
from holdfast.endpoints.resumption import consumer as consumers
from holdfast.engine import events
from holdfast.peers.limits import memory
from holdfast.peers.limits.memory import HANDED_BYTES
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import KIB, MIB
from support.memory import check_accounts
from support.one_node import world
from support.rig import Client, Node, Rig

COUNT = 40
SIZE = 200 * KIB
TIMED = {"timeout": 300}
MOST = HANDED_BYTES + SIZE + 64 * KIB


def suspended(rig: Rig, node: Node, links: int = 1, queue: str = "work", of: str = "client") -> list[list[bytes]]:
    """The tags of what consumers on a connection that is lost held, by link, in order: all of the queue in turn."""
    client = rig.client(node, container_id=of)
    taken = [client.receiver(queue, name=f"r{number}", source=TIMED, unsettled={}) for number in range(links)]
    rig.settle()
    tags = [[item.tag for item in client.deliveries if item.link is link] for link in taken]
    client.close_transport()
    rig.settle()
    return tags


def resume(client: Client, tags: list[bytes], number: int = 0, state: Any = None, **terms: Any) -> Any:
    queue = terms.pop("queue", "work")
    return client.receiver(queue, name=f"r{number}", source=TIMED, unsettled=dict.fromkeys(tags, state), **terms)


def number_at(node: Node, client: Client) -> int:
    assert client.end is not None
    return next(end.number for end in client.end.wire.ends if end.node is node)


def numbers(client: Client) -> list[int]:
    return [int(body) for body in client.bodies()]


def stored(node: Node, queue: str) -> list[int]:
    return [int(body) for body in node.bodies(queue)]


def filled(count: int = COUNT, size: int = SIZE) -> tuple[Rig, Node]:
    rig, node, _ = world(QueueConfig(name="work"), QueueConfig(name="other"))
    put(rig, node, "work", count, size)
    return rig, node


@pytest.mark.parametrize("links", [1, 4])
def test_a_turn_hands_a_connection_a_bounded_share_of_it(links: int) -> None:
    rig, node = filled()
    tags = suspended(rig, node, links)
    client = rig.client(node)
    sizes = written(node)
    for number, mine in enumerate(tags):
        resume(client, mine, number)
    rig.settle()
    most = max(count for turn in sizes for count in turn.values())
    assert HANDED_BYTES // 2 < most < MOST
    assert sorted(item.tag for item in client.deliveries) == sorted(tag for mine in tags for tag in mine)
    assert all(item.resume for item in client.deliveries) and sorted(numbers(client)) == list(range(COUNT))
    if links == 1:
        assert numbers(client) == list(range(COUNT))


def test_who_does_not_read_is_sent_nothing_and_all_of_it_once_it_reads() -> None:
    rig, node = filled()
    (tags,) = suspended(rig, node)
    client = rig.client(node)
    rig.settle()
    sizes, number = written(node), number_at(node, client)
    node.handle(events.WritingPaused(connection=number))
    resume(client, tags)
    rig.run(1)
    core = node.core
    assert core is not None and sum(turn[number] for turn in sizes) < 10 * KIB
    assert all(session.backlog_bytes == 0 for peer in core.connections.values() for session in peer.amqp.sessions)
    node.handle(events.WritingResumed(connection=number))
    rig.settle()
    assert numbers(client) == list(range(COUNT)) and max(turn[number] for turn in sizes) < MOST


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("frame", [4_096, 1_024])
def test_a_window_that_opens_later_lets_one_message_wait_and_no_more(frame: int, drain: bool) -> None:
    """Where the map fits no frame, too: only resumed deliveries are allowed then, for which there is a credit apart."""
    rig, node = filled(200, 20 * KIB)
    (tags,) = suspended(rig, node)
    client = rig.client(node, incoming_window=4, max_frame_size=frame)
    core = node.core
    assert core is not None
    rig.settle()
    link = resume(client, tags, credit=0)
    link.grant(1_000, drain=drain)
    most = 0
    while rig.move():
        waiting = [session.backlog_bytes for peer in core.connections.values() for session in peer.amqp.sessions]
        most = max(most, *waiting, 0)
    assert 10 * KIB < most < 21 * KIB
    told = link.remote_attach.unsettled
    assert link.resumes_only is (frame == 1_024) and (len(told) < len(tags)) is link.resumes_only
    assert [item.tag for item in client.deliveries] == list(told) and numbers(client) == list(range(len(told)))
    assert link.credit == (0 if drain else 1_000 - len(told))


def test_credit_that_comes_later() -> None:
    rig, node = filled()
    (tags,) = suspended(rig, node)
    client = rig.client(node)
    link = resume(client, tags, credit=0)
    rig.settle()
    assert client.deliveries == []
    sizes = written(node)
    for credit in (3, 20, 1_000):
        link.grant(credit)
        rig.settle()
    put(rig, node, "work", 1, 10)
    assert numbers(client) == [*range(COUNT), 0]
    assert max(count for turn in sizes for count in turn.values()) < MOST


@pytest.mark.parametrize("credit", [COUNT - 10, COUNT + 10])
def test_a_drain_is_answered_once_all_of_it_was_sent_or_the_credit_is_used_up(credit: int) -> None:
    rig, node = filled()
    (tags,) = suspended(rig, node)
    client = rig.client(node)
    link = resume(client, tags, credit=0)
    rig.settle()
    link.grant(credit, drain=True)
    rig.settle()
    assert numbers(client) == list(range(min(credit, COUNT))) and link.credit == 0
    link.grant(100)
    rig.settle()
    assert numbers(client) == list(range(COUNT))


def test_what_the_peer_has_already_is_read_by_shares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is sent, but how much of it the peer has only its content tells."""
    rig, node = filled()
    (tags,) = suspended(rig, node)
    read: Counter[int] = Counter()
    value = Queue.value

    def counting(queue: Queue, sequence: int) -> bytes | None:
        found = value(queue, sequence)
        read[node.turns] += len(found or b"")
        return found

    monkeypatch.setattr(Queue, "value", counting)
    client = rig.client(node)
    resume(client, tags, state=Received(3, 0))
    rig.settle()
    assert [item.tag for item in client.deliveries] == tags and not any(item.payload for item in client.deliveries)
    assert max(read.values()) < MOST


def test_a_connection_s_other_links_have_its_share_in_turn() -> None:
    rig, node = filled()
    (tags,) = suspended(rig, node)
    put(rig, node, "other", COUNT, SIZE)
    client = rig.client(node)
    other = client.receiver("other")
    mine = resume(client, tags)
    rig.settle()
    came = ["other" if item.link is other else "mine" for item in client.deliveries]
    assert Counter(came) == {"other": COUNT, "mine": COUNT} and mine.credit
    assert all(came.index(name) < COUNT // 2 for name in ("other", "mine"))
    assert all(came[::-1].index(name) < COUNT // 2 for name in ("other", "mine"))


def test_all_connections_together_are_handed_a_bounded_share_and_none_is_dropped() -> None:
    names = [f"c{number}" for number in range(30)]
    rig, node, _ = world(QueueConfig(name="work"), limits=Limits(memory_bytes_max=16 * MIB))
    tags = {}
    for name in names:
        put(rig, node, "work", 10, 100 * KIB)
        (tags[name],) = suspended(rig, node, of=name)
        assert len(tags[name]) == 10
    core = node.core
    assert core is not None
    sizes, handed = written(node), core.memory.handed_max
    clients = [rig.client(node, container_id=name) for name in names]
    for client, name in zip(clients, names, strict=True):
        resume(client, tags[name])
        client.flush()
    rig.settle()
    assert all(numbers(client) == list(range(10)) for client in clients) and not core.memory.dropped
    assert max(turn.total() for turn in sizes) < 8 * MIB + handed + 200 * KIB


def test_lost_again_in_the_middle_of_it() -> None:
    """The rest is held for the next attach, in the order in which it was sent."""
    rig, node = filled()
    (tags,) = suspended(rig, node)
    client = rig.client(node)
    resume(client, tags)
    while not client.deliveries:
        rig.move()
    assert 0 < len(client.deliveries) < COUNT // 2
    client.close_transport()
    rig.settle()
    again = rig.client(node)
    resume(again, tags)
    rig.settle()
    assert [item.tag for item in again.deliveries] == tags and numbers(again) == list(range(COUNT))


def test_large_messages_begin_anew_among_it() -> None:
    rig, node, _ = world(QueueConfig(name="work"), limits=Limits(stream_bytes=100_000))
    put(rig, node, "work", 10, 300 * KIB)
    (tags,) = suspended(rig, node)
    client = rig.client(node)
    resume(client, tags)
    rig.run(1)
    assert numbers(client) == list(range(10)) and not any(item.resume for item in client.deliveries)


@pytest.mark.parametrize("how", ["detached", "closed", "lost"])
def test_who_goes_in_the_turn_of_its_credit_is_sent_nothing_and_keeps_what_it_held(how: str) -> None:
    rig, node = filled(10, KIB)
    (tags,) = suspended(rig, node)
    client = rig.client(node)
    link = resume(client, tags, credit=0)
    rig.settle()
    link.grant(1_000)
    if how == "lost":
        client.flush()
        assert client.end is not None
        (theirs,) = [end for end in client.end.wire.ends if end.node is node]
        rig._deliver(theirs)
        node.handle(events.ConnectionLost(connection=theirs.number, reason="cut"))
        theirs.wire.cut()
    else:
        link.detach(closed=how == "closed")
    rig.settle()
    assert not client.deliveries
    core = node.core
    assert core is not None and not core.resume.going_on and core.containment.peers_ended == 0
    after = rig.client(node)
    if how == "closed":
        after.receiver("work")
    else:
        resume(after, tags)
    rig.settle()
    assert numbers(after) == list(range(10))
    assert all(item.resume for item in after.deliveries) is (how != "closed")


def test_what_a_resumed_link_has_taken_over_is_counted_for_it_and_not_for_its_record() -> None:
    rig, node = filled(10, KIB)
    (tags,) = suspended(rig, node)
    core = node.core
    assert core is not None
    check_accounts(core)
    resume(rig.client(node), tags)
    rig.settle()
    check_accounts(core)


class Frames:
    """Transfers that each turn makes, by link."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: dict[int, Counter[Any]] = defaultdict(Counter)
        resume = Sender.resume

        def counting(link: Sender, *args: Any, **terms: Any) -> None:
            self.turns[node.turns][link] += 1
            resume(link, *args, **terms)

        monkeypatch.setattr(Sender, "resume", counting)

    @property
    def most(self) -> int:
        return max(counts.total() for counts in self.turns.values())


@pytest.mark.parametrize("links", [1, 3])
@pytest.mark.parametrize("how", ["settled", "gone"])
def test_a_turn_makes_a_bounded_number_of_frames_however_few_bytes_they_have(
    how: str, links: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the peer had settled is told again, and what is gone is aborted: neither has any content."""
    monkeypatch.setattr(memory, "OFFERED_COUNT", 100 * consumers.SENT_AGAIN_COST)
    monkeypatch.setattr(consumers, "RESUME_COUNT", 20)
    rig, node = filled(600, 10)
    tags = suspended(rig, node, links)
    if how == "gone":
        monkeypatch.setattr(Queue, "value", lambda queue, number: None)
    frames = Frames(node, monkeypatch)
    client = rig.client(node)
    state = Accepted() if how == "settled" else None
    resumed = [resume(client, mine, number, state=state, credit=0) for number, mine in enumerate(tags)]
    rig.settle()
    for link in resumed:
        link.grant(1_000)
    rig.settle()
    assert sum(counts.total() for counts in frames.turns.values()) == 600
    assert frames.most <= 100
    early = sum([frames.turns[turn] for turn in sorted(frames.turns)[:3]], Counter[Any]())
    assert len(early) == links and min(early.values()) >= 60  # nobody waits until another one has had all


def with_error_or_annotation(number: int, how: str) -> Rejected | Modified:
    if how == "rejected":
        return Rejected(Error(Symbol("test:odd"), f"number {number}"))
    return Modified(message_annotations={Symbol("x-opt-number"): number})


class Applied(NamedTuple):
    """An outcome of one entry, when it was applied. `answered`: its link's attach had been answered before."""

    turn: int
    sequence: int
    answered: bool


def applied(monkeypatch: pytest.MonkeyPatch) -> list[Applied]:
    """What resumed consumers apply from now on, in order."""
    seen: list[Applied] = []
    take = consumers.ResumableConsumer.outcomes

    def outcomes(consumer: Any, sequences: list[int], *rest: Any) -> None:
        turn, answered = consumer.parts.work.turns, consumer.link.attach_sent
        seen.extend(Applied(turn, sequence, answered) for sequence in sequences)
        take(consumer, sequences, *rest)

    monkeypatch.setattr(consumers.ResumableConsumer, "outcomes", outcomes)
    return seen


@pytest.mark.parametrize("how", ["rejected", "annotated"])
def test_outcomes_with_an_error_or_annotations_are_applied_by_shares_and_the_link_is_answered_after_all(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame holds thousands of these."""
    rig, node = filled(300, 10)
    [tags] = suspended(rig, node)
    seen = applied(monkeypatch)
    client = rig.client(node)
    states = {tag: with_error_or_annotation(number, how) for number, tag in enumerate(tags)}
    link = client.receiver("work", name="r0", source=TIMED, unsettled=states, credit=0)
    rig.settle()
    done = Counter(item.turn for item in seen)
    assert link.attached and done.total() == 300 and not any(item.answered for item in seen)
    assert 1 < max(done.values()) <= memory.OFFERED_COUNT // consumers.OUTCOME_COST
    if how == "rejected":
        assert stored(node, "$dead-letters") == list(range(300))
        assert not node.core.catalog.queues["work"].messages
    else:
        assert sorted(stored(node, "work")) == list(range(300))
    check_accounts(node.core)


@pytest.mark.parametrize("closed", [False, True])
def test_a_link_that_goes_before_all_its_outcomes_are_applied_holds_the_others_as_before(
    closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "OUTCOME_COST", memory.OFFERED_COUNT)  # one in each turn
    rig, node = filled(5, 10)
    [tags] = suspended(rig, node)
    states = {tag: with_error_or_annotation(number, "rejected") for number, tag in enumerate(tags)}
    client = rig.client(node)
    link = client.receiver("work", name="r0", source=TIMED, unsettled=states, credit=0)
    while "$dead-letters" not in node.core.catalog.queues or not stored(node, "$dead-letters"):
        assert rig.move()
    if closed:
        link.detach(closed=True)
    else:
        client.close_transport()
    rig.settle()
    assert 0 < len(stored(node, "$dead-letters")) < 5
    if closed:
        assert link.detached, "its attach and its detach are answered"
        other = rig.client(node)
        other.receiver("work")
        rig.settle()
        assert numbers(other) == list(range(len(stored(node, "$dead-letters")), 5))
    else:
        again = rig.client(node)
        again.receiver("work", name="r0", source=TIMED, unsettled=states, credit=0)
        rig.settle()
        assert stored(node, "$dead-letters") == list(range(5))
    check_accounts(node.core)


@pytest.mark.parametrize("error", [None, Error(Symbol("test:odd"))])
def test_an_attach_is_answered_once_what_its_map_settled_is_on_disk(error: Error | None) -> None:
    """What is rejected is moved by shares of its own, however few turns the map took."""
    rig, node = filled(400, 10)
    [tags] = suspended(rig, node)
    client = rig.client(node)
    link = client.receiver("work", name="r0", source=TIMED, unsettled=dict.fromkeys(tags, Rejected(error)))
    while not link.attached:
        assert rig.move()
    node.crash()
    node.start()
    rig.settle()
    assert stored(node, "$dead-letters") == list(range(400))


def test_who_reads_the_queue_beside_resumed_links_is_not_kept_waiting() -> None:
    rig, node = filled(1_200, 10)
    tags = suspended(rig, node, 4)
    client = rig.client(node)
    resumed = [resume(client, mine, number, credit=0) for number, mine in enumerate(tags)]
    beside = rig.client(node)
    reader = beside.reader("work", 0, credit=0)
    rig.settle()
    for link in resumed:
        link.grant(1_000)
    reader.grant(1_000)
    client.flush()
    beside.flush()
    before = node.core.work.turns
    while not beside.deliveries:
        assert rig.move()
    assert node.core.work.turns - before <= 3


def test_a_turn_makes_no_more_than_so_many_frames(monkeypatch: Any) -> None:
    rig, node = filled(900, 10)
    [tags] = suspended(rig, node)
    frames = Frames(node, monkeypatch)
    client = rig.client(node)
    link = resume(client, tags, state=Accepted(), credit=0)
    rig.settle()
    link.grant(1_000)
    rig.settle()
    assert sum(counts.total() for counts in frames.turns.values()) == 900 and frames.most <= 300
