"""No row of a small table outgrows the store's bound, whatever peers do: at a bound numbers go back, none is lost."""

from typing import Any

import pytest

from holdfast.amqp.wire.types import Symbol
from holdfast.broker.cursors import halting
from holdfast.broker.entries import annotate, entry
from holdfast.broker.stored import custody_records, records
from holdfast.broker.stored import origins as custody
from holdfast.broker.stored.gaps import CLOCKS_MAX, GapClocks
from holdfast.broker.stored.origins import Origin, Verdict
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.stored.tags import TagRing
from holdfast.custody.transfers.carried import Arrival
from holdfast.settings.limits import LIMITS_WITHIN, Limits
from holdfast.storage.bounds import check_put
from support.rig import Rig


def every_second(count: int) -> RangeSet:
    return RangeSet((number, number) for number in range(2, 2 * count + 2, 2))


def test_the_longest_rows_fit() -> None:
    most = {key: int(high) for key, (_, high) in LIMITS_WITHIN.items()}
    finished, ended = every_second(custody.FINISHED_MAX + 1), every_second(custody.ENDED_MAX + 1)
    clocks = GapClocks((number, 1.0) for number in range(CLOCKS_MAX + 1))
    check_put(
        "origins",
        bytes(16),
        custody_records.pack_origin(custody_records.OriginRecord(1, 1, 0.0, finished, ended, clocks)),
    )
    check_put("producers", b"p", records.pack_producer(1, 1, every_second(most["ranges_max"])))
    tags = TagRing(most["resume_tags_max"], [(number, number) for number in range(0, 2 * most["resume_tags_max"], 2)])
    check_put("custody", b"l", custody_records.pack_link(1.0, "a" * 65_535, tags))
    places = tuple((number, number) for number in range(most["queue_subscriptions_max"] + 2))
    check_put("blobs", b"b", records.pack_blob(records.BlobRecord(1, 0, 1, places)))


def test_a_cursor_with_more_ranges_than_a_row_holds_keeps_the_lowest() -> None:
    """27 consumers with 5,000 unsettled each, of which every second was accepted."""
    finished = every_second(67_500)
    row = records.pack_cursor(records.CursorRecord(False, 1, 135_000, 0, finished))
    check_put("subscriptions", b"s", row)
    kept = list(records.unpack_cursor(row).finished)
    assert kept == list(finished)[: len(kept)] and len(kept) > halting.OUTSTANDING_MAX


def test_what_a_tracked_cursor_has_shown_is_bounded_and_goes_on_as_it_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halting, "OUTSTANDING_MAX", 8)
    rig = Rig()
    node = rig.node("hub")
    other = rig.client(node)
    other.receiver("work", name="sub", credit=0, source={"durable": 2, "expiry_policy": Symbol("never")})
    rig.settle()
    clients = [rig.client(node) for _ in range(3)]
    for client in clients:
        client.receiver("work")
    link = other.sender("work")
    rig.settle()
    for number in range(40):
        other.send(link, str(number))
    rig.settle()
    shared = node.queue("work").shared
    assert len(shared.acquired) == 8
    seen: list[str] = []
    while any(client.deliveries for client in clients):
        for client in clients:
            if client.deliveries:  # the newest first: the lower ones stay
                client.deliveries.insert(0, client.deliveries.pop())
                seen += client.accept(count=1)
                rig.settle()
            assert len(shared.acquired) + len(shared.finished) + len(shared.requeued) <= 8 + 2
    assert sorted(seen, key=int) == [str(number) for number in range(40)]


def test_no_subscription_begins_while_consumers_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halting, "OUTSTANDING_MAX", 4)
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    client.receiver("work")
    link = client.sender("work")
    rig.settle()
    for number in range(6):
        client.send(link, str(number))
    rig.settle()
    status, _, text = client.manage("OPEN", "subscription", "s", queue="work", mode="copy")
    assert status == 409 and "6 messages" in text
    client.accept(count=3)
    rig.settle()
    assert client.manage("OPEN", "subscription", "s", queue="work", mode="copy")[0] == 201


def arrival(origin: Any, number: int, *, tombstone: bool = True) -> Arrival:
    return Arrival(
        1, entry.Identity(origin, number), "work", b"", 0, tombstone, True, 4, None, annotate.NO_ANNOTATIONS,
        memoryview(b"\x00\x53\x77\x40"),
    )  # fmt: skip


def test_alternating_tombstones_go_back_at_the_bound_and_pass_in_order() -> None:
    rig = Rig()
    hub = rig.node("hub", limits=Limits(ranges_max=3))
    uuid = rig.uuid()
    take = hub.core.destination.take
    assert [take("", arrival(uuid, number), message_format=0, via="jfk") for number in (2, 4, 6, 8, 10, 7, 4)] == [
        True, True, True, False, False, True, True,
    ]  # fmt: skip
    origin = hub.core.catalog.ledger.origins[uuid]
    assert list(origin.finished) == [(2, 2), (4, 4), (6, 7)]
    assert [take("", arrival(uuid, number), message_format=0, via="jfk") for number in (1, 3, 8, 10, 5, 9)] == [
        True
    ] * 6
    assert origin.mark == 10


def test_late_numbers_go_back_at_the_bound_too() -> None:
    origin = Origin(Rig().uuid(), passed=1_000)
    for number in (3, 5):
        assert origin.decide(number, "none", ranges_max=2) is Verdict.LATE
        origin.finish(number)
    assert origin.decide(7, "none", ranges_max=2) is Verdict.FULL
    assert origin.decide(6, "none", ranges_max=2) is Verdict.LATE
    assert origin.decide(1, "none", ranges_max=2) is Verdict.LATE


def test_numbers_that_ended_are_bounded_when_live_copies_come_between_them() -> None:
    origin = Origin(Rig().uuid())
    origin.end(2, 6 * custody.ENDED_MAX)
    for number in range(3, 6 * custody.ENDED_MAX, 2):
        origin.finish(number)
    assert len(origin.ended) <= custody.ENDED_MAX


def test_what_waited_long_enough_goes_on_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custody, "FINISHED_MAX", 3)
    origin = Origin(Rig().uuid())
    for number in (3, 5, 7, 9):
        origin.wait(number, custody.Waiting(number, "work", "bounded", 30.0))
    origin.clocks.pass_time(60.0)
    for number in (3, 5, 7):
        assert origin.waited_enough(number)
        origin.leave(number)
        origin.finish(number)
    assert not origin.waited_enough(9)
    origin.end(1, 2)
    assert origin.mark == 3 and origin.waited_enough(9)
