"""Deep queues and many of them: what must not be one turn's work, and ends all the same, over restarts too."""

from pathlib import Path

import pytest

from holdfast.broker.entries.work import RETIRES_MAX
from holdfast.broker.queue import RECLAIM_COUNT
from holdfast.endpoints.background_jobs import ASKED_MAX
from holdfast.errors import ConfigError
from holdfast.management.operations.answers import Later, Refused
from holdfast.management.status.queues import QUEUES_A_PAGE
from holdfast.settings.limits import Limits
from holdfast.settings.node import NodeConfig
from holdfast.settings.queues import QueueConfig
from holdfast.storage.upkeep.check import check
from support.rig import Rig
from support.stores import Idle, LoneNode

DEEP = 30_000
BATCH_MAX = RETIRES_MAX + RECLAIM_COUNT
"""What a share may be beyond the bound at which no further one begins."""


def deepest(node: LoneNode) -> int:
    return max(len(batch.retires) for batch in node.commits)


def purge(node: LoneNode, name: str) -> list[int]:
    told: list[int] = []
    node.core.jobs.purge(node.queue(name), told.append)
    return told


def test_a_deep_queue_is_purged_bit_by_bit_and_what_comes_meanwhile_stays(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    consumer = Idle(3)
    queue = node.queue("q")
    queue.shared.attach(consumer)
    node.settle()
    assert consumer.taken == [1, 2, 3]
    told = purge(node, "q")
    node.turn()
    assert not told and DEEP - BATCH_MAX <= queue.messages < DEEP
    node.fill("q", 2)
    node.settle()
    assert told == [DEEP - 3]
    assert node.sequences("q") == [1, 2, 3, DEEP + 1, DEEP + 2]
    assert queue.messages == 5 and deepest(node) <= BATCH_MAX
    queue.shared.finish([1, 2])
    consumer.taken.clear()
    node.settle()
    assert consumer.taken == [DEEP + 1, DEEP + 2]
    node.stop()
    assert check(tmp_path).findings == []


def test_a_purge_that_a_crash_ends_leaves_the_rest_and_true_counters(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    told = purge(node, "q")
    node.turn()
    node.crash()
    assert not told
    left = check(tmp_path)
    assert left.findings == [] and DEEP - BATCH_MAX <= left.entries < DEEP
    node = LoneNode(tmp_path)
    consumer = Idle(1)
    node.queue("q").shared.attach(consumer)
    node.settle()
    assert consumer.taken == [node.sequences("q")[0]]
    node.stop()


def test_two_purges_at_once_are_one_and_both_are_answered(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    first = purge(node, "q")
    node.turn()
    node.fill("q", 10)
    second = purge(node, "q")
    node.settle()
    assert (first, second) == ([DEEP], [10]), "each message is counted once"
    assert node.sequences("q") == [] and node.queue("q").messages == 0
    node.stop()


def test_requests_that_wait_for_purges_are_bounded(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    purging = node.core.management.operations["holdfast:queue", "PURGE"].carry_out
    for _ in range(ASKED_MAX - 1):
        purge(node, "q")
    assert isinstance(purging("", "q", {}), Later)
    with pytest.raises(Refused, match="256 requests wait") as refused:
        purging("", "q", {})
    assert refused.value.answer.status == 409
    node.settle()
    assert isinstance(purging("", "q", {}), Later)
    node.stop()


def test_a_deep_transmission_queue_is_purged_with_an_end_told_for_each(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("@hub", 3 * RECLAIM_COUNT)
    told = purge(node, "@hub")
    node.settle()
    assert told == [3 * RECLAIM_COUNT]
    queue = node.queue("@hub")
    assert queue.messages == 3 * RECLAIM_COUNT and node.sequences("@hub")[0] == 3 * RECLAIM_COUNT + 1
    node.stop()
    assert check(tmp_path).findings == []


def delete(node: LoneNode, name: str) -> None:
    queue = node.queue(name)
    node.core.delete_queue(queue)


def test_a_deep_queue_is_deleted_at_once_and_leaves_the_disk_over_restarts(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    node.fill("other", 5)
    former = node.queue("q").queue_id
    delete(node, "q")
    node.turn()
    assert "q" not in node.core.catalog.queues
    node.crash()
    left = check(tmp_path)
    assert left.findings == [] and 0 < left.leaving < DEEP and left.entries - left.leaving == 5
    node = LoneNode(tmp_path)
    anew = node.queue("q")
    assert anew.queue_id > former + 1 and anew.messages == 0
    node.fill("q", 3)
    node.turn()
    node.crash()
    node = LoneNode(tmp_path)
    node.settle()
    assert node.sequences("q") == [1, 2, 3] and node.sequences("other") == [1, 2, 3, 4, 5]
    assert not node.core.catalog.leaving and deepest(node) <= BATCH_MAX
    node.stop()
    left = check(tmp_path)
    assert left.findings == [] and (left.entries, left.leaving) == (8, 0)


def test_an_empty_queue_leaves_nothing_behind_when_deleted(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.queue("q")
    node.turn()
    delete(node, "q")
    node.settle()
    assert not node.core.catalog.leaving
    node.stop()
    assert check(tmp_path).findings == []


def test_a_queue_deleted_while_it_is_purged_answers_the_purge(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    told = purge(node, "q")
    node.turn()
    delete(node, "q")
    assert told and 0 < told[0] < DEEP
    node.settle()
    node.stop()
    assert check(tmp_path).entries == 0


@pytest.mark.parametrize("restart", [False, True])
def test_what_a_deleted_subscription_kept_leaves_bit_by_bit(tmp_path: Path, restart: bool) -> None:
    """The shared cursor had finished most of it; a hole in the middle stays."""
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    queue = node.queue("q")
    queue.add_cursor("audit", "copy", 1)
    node.settle()
    shared = queue.shared
    shared.finished.add(1, 9_999)
    shared.finished.add(10_001, DEEP - 1)
    shared.advance(2)
    shared.position = DEEP
    shared.requeued.append(10_000)
    node.turn()
    assert queue.messages == DEEP
    queue.remove_cursor("audit")
    node.turn()
    assert 0 < queue.messages < DEEP
    if restart:
        node.crash()
        assert check(tmp_path).findings == []
        node = LoneNode(tmp_path)
        queue = node.queue("q")
    assert queue.head() == 10_000
    node.settle()
    assert node.sequences("q") == [10_000, DEEP] and queue.messages == 2
    assert deepest(node) <= BATCH_MAX
    node.stop()
    assert check(tmp_path).findings == []
    node = LoneNode(tmp_path)
    assert not node.queue("q").shared.tracked and not node.queue("q").sweeping
    consumer = Idle(10)
    node.queue("q").shared.attach(consumer)
    node.settle()
    assert consumer.taken == [10_000, DEEP]
    node.stop()


@pytest.mark.parametrize("subscription", [False, True])
def test_a_deep_backlog_that_has_expired_is_not_one_turns_work(tmp_path: Path, subscription: bool) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP, expires_ms=1)
    node.fill("q", 1)
    queue = node.queue("q")
    cursor = queue.add_cursor("audit", "copy", 1) if subscription else queue.shared
    node.settle()
    consumer = Idle(1)
    cursor.attach(consumer)
    turns = node.settle()
    assert consumer.taken == [DEEP + 1] and turns > DEEP / (4 * BATCH_MAX)
    assert deepest(node) <= BATCH_MAX
    if not subscription:
        assert node.sequences("q") == [DEEP + 1]
    node.stop()


def test_a_deep_range_that_is_finished_is_passed_in_one_step(tmp_path: Path) -> None:
    node = LoneNode(tmp_path)
    node.fill("q", DEEP)
    queue = node.queue("q")
    cursor = queue.add_cursor("audit", "copy", 1)
    cursor.finished.add(2, DEEP - 1)
    node.settle()
    reads = 0
    read = queue.reader.read

    def counted(queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        nonlocal reads
        reads += 1
        return read(queue_id, first, count_max=count_max, bytes_max=bytes_max)

    node.store.read = counted  # type: ignore[method-assign]  # counts what it passes on
    consumer = Idle(5)
    cursor.attach(consumer)
    node.settle()
    assert consumer.taken == [1, DEEP] and reads < 20
    node.stop()


# ---------------------------------------------------------------------------------------------------- many queues


def many(rig: Rig, count: int) -> None:
    node = rig.node("hub", queues=tuple(QueueConfig(name=f"q{number:05}") for number in range(count)))
    rig.settle()
    assert node.core is not None


@pytest.mark.parametrize("count", [QUEUES_A_PAGE, QUEUES_A_PAGE + 1, 3 * QUEUES_A_PAGE])
def test_queues_are_told_page_by_page(count: int) -> None:
    rig = Rig()
    many(rig, count)
    client = rig.client(rig.nodes["hub"])
    status, body, _ = client.manage("STATUS", "node")
    assert status == 200 and len(body["queues"]) == QUEUES_A_PAGE
    assert body["queues_more"] is (count > QUEUES_A_PAGE)
    names: list[str] = []
    more = True
    while more:
        after = {"after": names[-1]} if names else {}
        status, body, _ = client.manage("QUERY", "queue", **after)
        assert status == 200
        names += [queue["name"] for queue in body["queues"]]
        more = body["more"]
    assert names == [f"q{number:05}" for number in range(count)]


def test_subscriptions_are_told_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.management.operations.subscriptions.SUBSCRIPTIONS_A_PAGE", 3)
    rig = Rig()
    many(rig, 6)
    client = rig.client(rig.nodes["hub"])
    for number in range(5):
        for name in ("a", "b"):
            client.manage("OPEN", "subscription", name, queue=f"q{number:05}", mode="copy")
    _, first, _ = client.manage("QUERY", "subscription")
    assert [row["queue"] for row in first["subscriptions"]] == ["q00000", "q00000", "q00001", "q00001"]
    assert first["more"]
    _, rest, _ = client.manage("QUERY", "subscription", after="q00003")
    assert [row["queue"] for row in rest["subscriptions"]] == ["q00004", "q00004"] and not rest["more"]
    _, one, _ = client.manage("QUERY", "subscription", queue="q00002")
    assert [row["name"] for row in one["subscriptions"]] == ["a", "b"]


def told(node: LoneNode) -> list[str]:
    found = [fields["name"] for kind, fields in node.records if kind == "queue"]
    node.records.clear()
    return found


def test_telemetry_of_many_queues_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn tells some, an interval tells a bounded number, and the next interval begins with the others."""
    from holdfast.engine import events
    from holdfast.management.status import meter

    monkeypatch.setattr(meter, "QUEUES_A_TURN", 4)
    monkeypatch.setattr(meter, "QUEUES_MAX", 10)
    node = LoneNode(tmp_path, limits=Limits(queues_max=25))
    names = [f"q{number:02}" for number in range(25)]
    for name in names:
        node.fill(name, 1)
    node.settle()
    node.records.clear()
    seen: list[str] = []
    for _ in range(5):
        node.now = node.core.next_deadline() or node.now
        interval: list[str] = []
        while len(interval) < 10:
            node.do(events.TimerFired())
            here = told(node)
            assert 0 < len(here) <= 4 + 3
            interval += here
        seen += interval
        assert (node.core.next_deadline() or 0) > node.now
    assert all(seen.count(name) in (2, 3) for name in names) and len(seen) >= 50
    node.stop()


def test_without_a_reader_of_telemetry_no_queue_is_measured(tmp_path: Path) -> None:
    from holdfast.engine import events

    node = LoneNode(tmp_path, telemetry=False)
    node.fill("q", 1)
    node.settle()
    node.now += 5
    node.do(events.TimerFired())
    assert told(node) == []
    node.stop()


def test_a_name_given_twice_among_ten_thousand_is_refused() -> None:
    queues = tuple(QueueConfig(name=f"q{number}") for number in range(10_000))
    NodeConfig(name="n", queues=queues).validate()
    with pytest.raises(ConfigError, match="queue 'q7' is listed twice"):
        NodeConfig(name="n", queues=(*queues, QueueConfig(name="q7"))).validate()


def test_a_store_that_was_rolled_back_is_renumbered_from_where_this_life_began(tmp_path: Path) -> None:
    """What lies there from before is not read again, however deep it is."""
    node = LoneNode(tmp_path)
    node.fill("@hub", DEEP)
    node.stop()
    node = LoneNode(tmp_path)
    node.fill("@hub", 5)
    reads: list[int] = []
    read = node.store.read

    def noted(queue_id: int, first: int, *, count_max: int, bytes_max: int) -> list[tuple[int, bytes]]:
        reads.append(first)
        return read(queue_id, first, count_max=count_max, bytes_max=bytes_max)

    node.store.read = noted  # type: ignore[method-assign]  # notes what it passes on
    node.core.identities.check_or_renew("hub", DEEP + 100)
    node.settle()
    assert node.core.identities.renewed and min(reads) > DEEP
    assert node.core.catalog.ledger.identities["hub"] == 6
    node.stop()
