"""What waits for an earlier number: moved to its queue in bounded steps, each gap waited for by itself, over full disks
and restarts."""

import pytest

from holdfast.amqp.connection import Delivery
from holdfast.broker.stored import custody_records
from holdfast.broker.stored.gaps import GapClocks
from holdfast.custody.arrival import destination
from holdfast.endpoints.producer import ProducerLink
from holdfast.settings.queues import QueueConfig
from support.hops import names
from support.rig import Node, Rig

SHARE = destination.RELEASE_COUNT
WAIT_S = 30.0


def together(*queues: QueueConfig) -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, hub = rig.pair(queues=queues or (QueueConfig(name="work", order="strict"),))
    rig.run(8)
    return rig, jfk, hub


def send_from(rig: Rig, node: Node, number: int, *bodies: str, queue: str = "work") -> None:
    """What is sent next gets that number."""
    assert node.core is not None
    node.core.catalog.ledger.identities["hub"] = number
    client = rig.client(node)
    link = client.sender(f"{queue}@hub")
    rig.settle()
    for body in bodies:
        if not link.sendable:
            rig.settle(10**6)
        client.send(link, body)
    rig.settle(10**6)


def moves_of(node: Node) -> list[int]:
    """How many entries each commit from now on takes out of `$waiting`."""
    found: list[int] = []
    commit = node.store.commit

    def counted(batch: object) -> None:
        held = node.queue("$waiting").queue_id
        found.append(sum(queue_id == held for queue_id, _ in batch.retires))  # type: ignore[attr-defined]
        commit(batch)  # type: ignore[arg-type]

    node.store.commit = counted  # type: ignore[method-assign]  # counts what it passes on
    return found


@pytest.mark.parametrize("count", [SHARE, SHARE + 1, 3 * SHARE])
def test_what_waited_moves_on_in_shares_and_in_order(count: int) -> None:
    rig, jfk, hub = together()
    send_from(rig, jfk, 2, *names(2, count + 1))
    assert hub.queue("$waiting").messages == count
    moves = moves_of(hub)
    send_from(rig, jfk, 1, "1")
    assert hub.bodies("work") == names(1, count + 1) and hub.queue("$waiting").messages == 0
    assert max(moves) <= SHARE and sum(moves) == count


def test_what_comes_while_the_rest_moves_stays_behind_it() -> None:
    rig, jfk, hub = together()
    send_from(rig, jfk, 2, *names(2, 2 * SHARE))
    hub.hold_commits = True
    send_from(rig, jfk, 1, "1")
    send_from(rig, jfk, 2 * SHARE + 1, "the last")
    hub.hold_commits = False
    rig.settle(10**6)
    assert hub.bodies("work") == [*names(1, 2 * SHARE), "the last"]


def test_what_goes_past_a_gap_moves_in_shares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half is for a queue that waits for ever, and is passed over."""
    monkeypatch.setattr(destination, "RELEASE_COUNT", 10)
    rig, jfk, hub = together(
        QueueConfig(name="strict", order="strict"), QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S)
    )
    send_from(rig, jfk, 2, *names(2, 101), queue="strict")
    send_from(rig, jfk, 102, *names(102, 201))
    moves = moves_of(hub)
    rig.run(WAIT_S + 3)
    assert hub.bodies("work") == names(102, 201) and hub.queue("strict").messages == 0
    assert max(moves) == 10 and sum(moves) == 100


def test_a_later_gap_is_waited_for_from_its_own_beginning() -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S))
    send_from(rig, jfk, 2, "2")
    rig.run(WAIT_S + 3)
    assert hub.bodies("work") == ["2"]
    send_from(rig, jfk, 3, "3")
    assert hub.bodies("work") == ["2", "3"]  # that gap was waited for
    send_from(rig, jfk, 5, "5")
    rig.run(WAIT_S - 1)
    assert hub.bodies("work") == ["2", "3"]
    send_from(rig, jfk, 4, "4")
    rig.run(3)
    assert hub.bodies("work") == ["2", "3", "4", "5"]


def test_a_gaps_time_is_kept_over_a_restart() -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S))
    send_from(rig, jfk, 2, "2")
    rig.run(20)
    send_from(rig, jfk, 4, "4")
    for _ in range(2):
        hub.crash()
        hub.start()
        rig.run(6)
    assert hub.bodies("work") == ["2"]
    rig.run(WAIT_S - 6)
    assert hub.bodies("work") == ["2", "4"]


def test_a_release_that_a_full_disk_refuses_is_done_again_without_other_traffic() -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S))
    send_from(rig, jfk, 2, *names(2, 4))
    hub.refuse = 1
    rig.run(WAIT_S + 2)
    rig.run(5)
    assert not hub.refuse and hub.bodies("work") == names(2, 4) and hub.queue("$waiting").messages == 0


def test_a_full_queue_holds_up_what_moves_and_nobody_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="strict", messages_max=3))
    send_from(rig, jfk, 2, *names(2, 9))
    send_from(rig, jfk, 1, "1")
    assert hub.core is not None and hub.bodies("work") == names(1, 3)
    assert not hub.core.destination.busy and (hub.core.next_deadline() or 0) > rig.now
    client = rig.client(hub)
    client.receiver("work")
    taken: list[str] = []
    for _ in range(12):
        rig.settle()
        taken += client.accept()
        rig.run(0.2)
    assert taken == names(1, 9)


def three_origins_with_a_gap() -> tuple[Rig, Node]:
    """The hub has number 2 of each of three neighbours, and waits WAIT_S for their first."""
    rig = Rig()
    queues = (QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S),)
    nodes = rig.graph("a-hub", "b-hub", "c-hub", hub={"queues": queues})
    rig.run(8)
    for node in nodes:
        if node.name != "hub":
            send_from(rig, node, 2, f"{node.name}2")
    hub = rig.nodes["hub"]
    return rig, hub


def test_time_is_counted_for_some_origins_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "ORIGINS_A_TURN", 1)
    rig, hub = three_origins_with_a_gap()
    assert hub.core is not None and len(hub.core.destination.waiters) == 3
    rig.run(WAIT_S - 2)
    assert hub.bodies("work") == []
    rig.run(5)
    assert sorted(hub.bodies("work")) == ["a2", "b2", "c2"]
    rig.run(2)
    assert hub.core.destination.next_tick is None and not hub.core.destination.waiters


@pytest.mark.parametrize(("ranges", "most"), [(1, 1), (2, 2), (100, 3)])
def test_time_is_counted_for_some_ranges_a_turn(monkeypatch: pytest.MonkeyPatch, ranges: int, most: int) -> None:
    """Each of the three origins has one gap, and so one clock."""
    monkeypatch.setattr(destination, "TICK_RANGES", ranges)
    rig, hub = three_origins_with_a_gap()
    counted: list[int] = []
    passed: list[float] = []
    pass_time = GapClocks.pass_time
    tick = destination.Destination.tick

    def measured(self: destination.Destination, now: float) -> None:
        passed.clear()
        tick(self, now)
        counted.append(len(passed))

    def passing(self: GapClocks, seconds: float) -> None:
        passed.append(seconds)
        pass_time(self, seconds)

    monkeypatch.setattr(GapClocks, "pass_time", passing)
    monkeypatch.setattr(destination.Destination, "tick", measured)
    rig.run(WAIT_S + 5)
    assert max(counted) == most and sorted(hub.bodies("work")) == ["a2", "b2", "c2"]


def test_what_finds_its_queue_full_is_not_read_again_before_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="strict", messages_max=3))
    send_from(rig, jfk, 2, *names(2, 9))
    send_from(rig, jfk, 1, "1")
    client = rig.client(hub)
    link = client.sender("other")
    rig.settle()
    held, get = hub.queue("$waiting").queue_id, hub.store.get
    reads = 0

    def counted(queue_id: int, sequence: int) -> bytes | None:
        nonlocal reads
        reads += queue_id == held
        return get(queue_id, sequence)

    monkeypatch.setattr(hub.store, "get", counted)
    for body in names(1, 20):
        client.send(link, body)
        rig.settle()
    assert reads == 0 and hub.core is not None and hub.core.destination.blocked
    client.receiver("work")
    rig.settle()
    client.accept(count=1)
    rig.settle()
    assert reads == 2  # the one that fits now, and the next, which does not


def test_the_origins_row_is_written_once_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, jfk, hub = together()
    send_from(rig, jfk, 2, *names(2, SHARE))
    packed = 0
    pack = custody_records.pack_origin

    def counted(record: custody_records.OriginRecord) -> bytes:
        nonlocal packed
        packed += 1
        return pack(record)

    monkeypatch.setattr(custody_records, "pack_origin", counted)
    send_from(rig, jfk, 1, "1")
    assert hub.bodies("work") == names(1, SHARE) and packed < 10


def test_a_gap_that_shows_itself_between_two_ticks_is_not_waited_for_less() -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S))
    send_from(rig, jfk, 2, "2")
    rig.run(20.9)
    send_from(rig, jfk, 4, "4")
    rig.run(WAIT_S - 0.4)
    assert hub.bodies("work") == ["2"]
    rig.run(1.5)
    assert hub.bodies("work") == ["2", "4"]


def test_what_comes_while_the_rest_goes_past_a_gap_has_its_place_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "RELEASE_COUNT", 1)
    rig, jfk, hub = together(QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S))
    send_from(rig, jfk, 2, "2", "3")
    send_from(rig, jfk, 5, *names(5, 7))
    rig.run(WAIT_S - 2)
    hub.hold_commits = True
    rig.run(4)
    send_from(rig, jfk, 4, "4")
    rig.run(1)
    hub.hold_commits = False
    rig.run(5)
    assert hub.bodies("work") == names(2, 7)


@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_release_that_is_refused_again_gives_nothing_back_to_a_cursor(refused: int) -> None:
    rig, jfk, hub = together(QueueConfig(name="work", order="bounded", order_wait_s=WAIT_S))
    send_from(rig, jfk, 2, *names(2, 4))
    hub.refuse = refused
    rig.run(WAIT_S + 10)
    held = hub.queue("$waiting")
    assert not hub.refuse and not held.messages and not held.shared.requeued and not held.shared.counts
    assert hub.bodies("work") == names(2, 4)


def test_a_failure_undoes_what_was_blocked_in_the_same_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 waits, and 2 makes it due before it is on disk; then another client's link fails, and all of it never was."""
    rig, jfk, hub = together()
    jfk.checks = False  # it gives numbers that it gave
    send_from(rig, jfk, 1, "1")
    rig.run(1)
    bad, good = rig.client(hub), rig.client(hub)
    failing, sound = bad.sender("other"), good.sender("other")
    rig.settle()
    hub.hold_commits = True
    good.send(sound, "x")
    rig.settle()
    send_from(rig, jfk, 3, "3")
    send_from(rig, jfk, 2, "2")
    assert hub.core is not None and hub.core.destination.blocked
    delivered = ProducerLink.delivered

    def fail(self: ProducerLink, delivery: Delivery) -> None:
        delivered(self, delivery)
        raise RuntimeError("a defect")

    monkeypatch.setattr(ProducerLink, "delivered", fail)
    bad.send(failing, "bad")
    rig.settle()
    monkeypatch.undo()
    assert bad.over and not hub.core.destination.blocked
    hub.hold_commits = False
    rig.run(10)
    assert hub.bodies("work") == names(1, 3)


def test_what_may_go_at_the_start_of_a_node_goes_without_another_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message that was missing is stored, and the node dies before the turn in which the others move."""
    monkeypatch.setattr(destination, "RELEASE_COUNT", 2)
    rig, jfk, hub = together()
    send_from(rig, jfk, 2, *names(2, 9))
    hub.hold_commits = True
    send_from(rig, jfk, 1, "1")
    assert hub.pending is not None
    hub.store.commit(hub.pending.batch)
    hub.crash()
    hub.hold_commits = False
    jfk.crash()
    hub.start()
    assert hub.queue("$waiting").messages > 4
    rig.settle(10**6)
    assert hub.bodies("work") == names(1, 9) and hub.queue("$waiting").messages == 0


def test_a_turn_looks_at_so_many_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "LOOKS_MAX", 3)
    rig, jfk, hub = together()
    send_from(rig, jfk, 2, *names(2, 12))
    moves = moves_of(hub)
    send_from(rig, jfk, 1, "1")
    assert hub.bodies("work") == names(1, 12)
    assert max(moves) <= 3 and sum(moves) == 11
