"""Every workload in the simulator, at peace and through faults: what it demands holds, and it can be repeated."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import Mock, patch

import pytest

from holdfast.amqp.message.message import Message
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.client import Delivery
from holdfast.endpoints.producer import ProducerLink
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast_lab.base.client_history import Violation
from holdfast_lab.plan.faults import Fault
from holdfast_lab.plan.networks import Topology, line
from holdfast_lab.plan.plan import Plan, from_json
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.run import execute
from holdfast_lab.sim.sim_bed import SimBed
from holdfast_lab.workloads import Copy, Narrow, SlowConsumer, Subscription
from holdfast_lab.workloads.common import offered
from support import today

pytestmark = pytest.mark.sim

NODES: Topology = replace(
    line("jfk hub lhr"),
    queues={
        "lhr": (QueueConfig(name="flights"), QueueConfig(name="table"), QueueConfig(name="sorted", priorities=True)),
        "jfk": (QueueConfig(name="back"),),
    },
)
PUBLISH = {"kind": "publish", "node": "jfk", "address": "flights@lhr", "messages": 40, "producers": 2, "rate": 50.0}
CONSUME = {"kind": "consume", "node": "lhr", "queue": "flights"}

WORKLOADS: dict[str, tuple[dict[str, Any], ...]] = {
    "slow-consumer": ({"kind": "slow-consumer", "node": "lhr", "queue": "slow", "messages": 60},),
    "subscription": (
        {**PUBLISH, "address": "table@lhr"},
        {"kind": "subscription", "node": "lhr", "queue": "table", "range_max": 8},
    ),
    "copy": (PUBLISH, {"kind": "copy", "node": "lhr", "queue": "flights"}),
    "selected": (
        {**PUBLISH, "producers": 4},
        {"kind": "copy", "node": "lhr", "queue": "flights", "selector": "JMSPriority > 4 OR even"},
    ),
    "leaving": (PUBLISH, CONSUME, {"kind": "leaving", "node": "lhr", "queue": "flights", "messages": 80, "stays": 10}),
    "thin": ({**PUBLISH, "size": 2_000}, {"kind": "thin", "node": "lhr", "queue": "flights", "life_s": 5.0}),
    "settled second": (PUBLISH, {"kind": "thin", "node": "lhr", "queue": "flights", "second": True}),
    "narrow": (
        PUBLISH,
        {**PUBLISH, "messages": 2, "size": 2_000, "name": "large"},
        {"kind": "narrow", "node": "lhr", "queue": "flights", "messages": 84, "think_s": 0.01},
    ),
    "browse": (PUBLISH, CONSUME, {"kind": "browse", "node": "lhr", "queue": "flights", "browsers": 2}),
    "reconnecting-producer": (
        {"kind": "reconnecting-producer", "node": "jfk", "address": "flights@lhr", "producers": 2, "life_s": 0.3},
        CONSUME,
    ),
    "presettled": (
        {"kind": "presettled", "node": "jfk", "address": "flights@lhr", "messages": 40, "producers": 2, "life_s": 0.3},
        CONSUME,
    ),
    "addressed": (
        {
            "kind": "addressed",
            "node": "lhr",
            "addresses": ["flights", "table@lhr", "back@jfk"],
            "messages": 80,
            "life_s": 0.3,
        },
        CONSUME,
        {**CONSUME, "queue": "table", "name": "takes-table"},
        {**CONSUME, "node": "jfk", "queue": "back", "name": "takes-back"},
    ),
    "dynamic": ({"kind": "dynamic", "node": "lhr", "rounds": 12},),
    "spooled": (
        {"kind": "spooled", "node": "jfk", "address": "flights@lhr", "producers": 2, "life_s": 0.3},
        CONSUME,
    ),
    "expiring": (
        {"kind": "expiring", "node": "jfk", "address": "flights@lhr", "messages": 40, "producers": 2, "rate": 30.0},
        CONSUME,
    ),
    "by the clock": (
        {
            "kind": "expiring",
            "node": "jfk",
            "address": "flights@lhr",
            "messages": 40,
            "producers": 2,
            "rate": 30.0,
            "by_clock": 0.6,
        },
        CONSUME,
    ),
    "relay": (
        PUBLISH,
        {"kind": "relay", "node": "lhr", "queue": "flights", "address": "back@jfk"},
        {"kind": "consume", "node": "jfk", "queue": "back"},
    ),
    "transact": (
        PUBLISH,
        {"kind": "transact", "node": "lhr", "queue": "flights", "address": "table@lhr"},
        {**CONSUME, "queue": "table"},
    ),
    "together": ({"kind": "together", "node": "jfk", "address": "flights@lhr"},),
    "idle": ({"kind": "idle", "node": "lhr", "queue": "topic/idle"},),
    "temporary-topic": ({"kind": "temporary-topic", "node": "lhr"},),
    "by hand": (
        {**PUBLISH, "node": "lhr", "address": "flights"},
        {"kind": "by-hand", "node": "lhr", "queue": "flights", "to": "moved"},
        {**CONSUME, "queue": "moved", "name": "takes-moved"},
    ),
    "sorted": (
        {**PUBLISH, "address": "sorted@lhr"},
        {**CONSUME, "queue": "sorted", "sorts": True, "consumers": 2, "credit": 3, "think_s": 0.05, "release": 0.2},
    ),
    "stepped": (
        {"kind": "stepped", "node": "lhr"},
        {"kind": "stepped", "node": "jfk", "name": "counts", "of": "count"},
    ),
    "manage": (PUBLISH, CONSUME, {"kind": "manage", "node": "lhr"}, {"kind": "manage", "node": "hub"}),
}

FAULTS: dict[str, tuple[Fault, ...]] = {
    "none": (),
    "crashes": (
        Fault(kind="crash", at=0.4, node="lhr", seconds=0.5),
        Fault(kind="silent-cut", at=1.0, link=("hub", "lhr")),
        Fault(kind="crash", at=1.2, node="hub", seconds=0.3),
        Fault(kind="power", at=1.3, node="jfk", seconds=0.2),
    ),
    "links": (
        Fault(kind="cut", at=0.4, link=("jfk", "hub")),
        Fault(kind="partition", at=0.5, link=("hub", "lhr"), seconds=3.0),
    ),
    "disks": (
        Fault(kind="full-disk", at=0.3, node="lhr", seconds=0.6),
        Fault(kind="restore-backup", at=1.1, node="lhr", seconds=0.3, amount=0.5),
    ),
    "new-disk": (Fault(kind="replace-disk", at=0.8, node="lhr", seconds=0.5),),
    "clocks": (
        Fault(kind="clock-step", at=0.5, node="lhr", amount=86_400.0),
        Fault(kind="crash", at=1.0, node="lhr", seconds=0.1),
        Fault(kind="clock-step", at=1.5, node="jfk", amount=-5.0),
        Fault(kind="crash", at=2.0, node="jfk", seconds=0.1),
    ),
}

HELD = [
    *((workload, faults) for workload in WORKLOADS for faults in ("crashes", "disks")),
    *((workload, faults) for workload in ("expiring", "by the clock") for faults in ("clocks", "new-disk")),
    *((workload, "new-disk") for workload in ("subscription", "copy", "selected")),
]


@cache
def ran(workload: str, faults: str) -> Result:
    """The run of seed 1, once for all tests."""
    plan = Plan(name=workload, topology=NODES, workloads=WORKLOADS[workload], faults=FAULTS[faults])
    return execute(plan, 1)


@pytest.mark.parametrize(("workload", "faults"), today.some(HELD, len(HELD) // 3))
def test_it_holds(workload: str, faults: str) -> None:
    result = ran(workload, faults)
    assert result.ok, result.failure


@pytest.mark.parametrize("workload", today.some(list(WORKLOADS), 3))
def test_it_repeats_exactly_from_its_plan(workload: str) -> None:
    first = ran(workload, "crashes")
    plan = Plan(name=workload, topology=NODES, workloads=WORKLOADS[workload], faults=FAULTS["crashes"])
    again = execute(from_json(plan.to_json()), 1)
    assert (again.digest, again.metrics) == (first.digest, first.metrics)


@pytest.mark.parametrize(
    ("workload", "metrics"),
    [
        ("slow-consumer", ["slow-consumer-1.at bound", "slow-consumer-1.taken"]),
        ("subscription", ["subscription-2.fenced", "subscription-2.read again", "subscription-2.committed"]),
        ("copy", ["copy-2.shown", "copy-2.taken"]),
        ("selected", ["copy-2.shown", "copy-2.taken"]),
        ("browse", ["browse-3.seen"]),
        ("narrow", ["narrow-3.taken", "narrow-3.ends", "narrow-3.dead"]),
        ("reconnecting-producer", ["reconnecting-producer-1.stolen", "reconnecting-producer-1.lives"]),
        ("by hand", ["by-hand-2.moved"]),
        ("by the clock", ["expiring-1.with an end on the clock"]),
        ("relay", ["relay-2.passed on"]),
        ("transact", ["transact-2.passed on", "transact-2.committed", "transact-2.aborted"]),
        ("manage", ["manage-3.purged", "manage-4.purged"]),
    ],
)
def test_it_does_what_it_is_for(workload: str, metrics: list[str]) -> None:
    result = ran(workload, "none")
    assert all(result.metrics[name] > 0 for name in metrics), result.metrics


def test_what_a_transaction_sent_may_end_as_a_dead_letter() -> None:
    """Where a node on its way takes less than that: it was accepted before."""
    moves = {"kind": "transact", "node": "jfk", "queue": "back", "address": "flights@lhr", "size": 6_000}
    here = {**PUBLISH, "address": "back"}
    plan = Plan(name="t", topology=replace(NODES, takes={"lhr": 1_500}), workloads=(here, moves, CONSUME))
    result = execute(plan, 1)
    assert result.ok, result.failure
    assert result.metrics["transact-2.passed on"] == result.metrics["dead"] == 80, "of two producers"


@pytest.mark.parametrize("workload", ["expiring", "by the clock"])
def test_what_expires_in_a_dark_link_is_excused_and_nothing_else(workload: str) -> None:
    result = ran(workload, "links")
    assert result.ok, result.failure
    assert 0 < result.metrics["excused"] <= result.metrics["expiring-1.with a time to live"]
    assert result.metrics["received"] + result.metrics["excused"] >= result.metrics["accepted"]


BUFFERED = {"node": "lhr", "queue": "flights", "credit": 10, "think_s": 0.05}
AT_HOME = {**PUBLISH, "node": "lhr", "address": "flights", "in_doubt": 1}


@pytest.mark.parametrize(
    "reader",
    [
        {**BUFFERED, "kind": "copy"},
        {**BUFFERED, "kind": "consume", "resume_s": 5.0, "release": 0.3},
        {"kind": "browse", "node": "lhr", "queue": "flights", "credit": 10, "look_s": 0.3, "stall": 1.0},
    ],
    ids=lambda reader: str(reader["kind"]),
)
@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_what_a_replaced_disk_had_sent_is_judged_as_that_disk_s(reader: dict[str, Any], seconds: float) -> None:
    """A reader that thinks for long is handed the rest of what it has while its node comes back with a new disk."""
    faults = tuple(Fault(kind="replace-disk", at=at, node="lhr", seconds=seconds) for at in (0.6, 2.0))
    rest = () if reader["kind"] != "browse" else (CONSUME,)
    for seed in range(1, 4):
        plan = Plan(name="buffered", topology=NODES, workloads=(AT_HOME, reader, *rest), faults=faults)
        result = execute(plan, seed)
        assert result.ok, f"seed {seed}: {result.failure}"


@pytest.mark.parametrize("second", [False, True])
def test_who_answers_for_several_links_accepts_what_came_whole_and_nothing_else(second: bool) -> None:
    """Frames of several links' large deliveries come side by side: one may end before another that began earlier."""
    topology = replace(NODES, limits=Limits(stream_bytes=500, frame_bytes_max=512))
    sends = {**PUBLISH, "node": "lhr", "address": "flights", "rate": 0.0, "size": 2_000}
    takes: dict[str, Any] = {"kind": "thin", "node": "lhr", "queue": "flights", "links": 4, "window": 8}
    takes |= {"second": second, "life_s": 1e6}
    result = execute(Plan(name="side by side", topology=topology, workloads=(sends, takes)), 1)
    assert result.ok, result.failure
    assert result.metrics["redelivered"] == 0 < result.metrics["thin-2.taken"]


def test_what_a_full_disk_refused_of_a_temporary_topic_is_awaited_by_nobody() -> None:
    """Large messages are on disk, whatever their queues are, and no subscription has one that was refused."""
    topology = replace(NODES, limits=Limits(stream_bytes=500, frame_bytes_max=512))
    publishes = {"kind": "temporary-topic", "node": "lhr", "rounds": 5, "size": 2_000}
    faults = tuple(Fault(kind="refusing-disk", at=0.1 + at / 2, node="lhr", seconds=0.1) for at in range(8))
    result = execute(Plan(name="refused", topology=topology, workloads=(publishes,), faults=faults), 1)
    assert result.ok, result.failure
    metrics = result.metrics
    assert min(metrics[f"temporary-topic-1.{name}"] for name in ("refused", "shown", "ended")) > 0, metrics


# ------------------------------------------------------------------------------ each check can fail


def told(bed: SimBed, act: Callable[[], None], match: str) -> None:
    with bed, pytest.raises(Violation, match=match):
        act()


def test_a_starved_consumer_is_told() -> None:
    bed = SimBed(NODES, 1)
    slow = SlowConsumer(node="lhr", queue="slow")
    slow.consume.taken_by = {"one": 99, "other": 1}
    told(bed, lambda: slow.check(bed), "one of them starved")


def test_a_refusal_of_a_queue_that_blocks_is_told() -> None:
    bed = SimBed(NODES, 1)
    slow = SlowConsumer(node="lhr", queue="slow")
    log = slow.publish.new_log(bed, "p")
    log.reasons["queue"] = 3
    slow.publish.logs.append(log)
    told(bed, lambda: slow.check(bed), "blocks when full, and 3 were refused")


@pytest.mark.parametrize(
    ("size", "failed", "options", "match"),
    [
        (100, False, {}, "which a consumer takes"),
        (2_000, False, {"wide": True}, "which another consumer takes"),
        (2_000, True, {"fails": True, "alone": True}, "which is too large for all consumers"),
    ],
)
def test_a_dead_letter_that_should_be_none_is_told(
    size: int, failed: bool, options: dict[str, Any], match: str
) -> None:
    bed, key = SimBed(NODES, 1), b"000-00000001"
    offered(bed.history, key, "flights@lhr", size)
    narrow = Narrow(node="lhr", queue="flights", **options)
    told(bed, lambda: narrow._judge_dead(bed, key, failed=failed), match)


def test_a_delivery_that_is_too_large_is_told() -> None:
    bed, key = SimBed(NODES, 1), b"000-00000001"
    payload = offered(bed.history, key, "flights@lhr", 700).encode()
    narrow = Narrow(node="lhr", queue="flights")
    told(
        bed, lambda: narrow._show(bed, Mock(payload=payload), 0), "a link of flights at lhr that takes 600 was sent it"
    )


def test_a_copy_that_never_came_is_told() -> None:
    bed = SimBed(NODES, 1)
    copy = Copy(node="lhr", queue="flights", subscriptions=1)
    bed.history.add_reader(copy.names[0], "flights@lhr")
    bed.history.offer(b"000-00000001", "flights@lhr")
    bed.history.accept(b"000-00000001")
    told(bed, lambda: copy.check(bed), "never shown 1 messages, 000-00000001 the first")


@pytest.mark.parametrize(
    ("shown", "match"),
    [
        ([(0, 5, 1), (0, 6, 2), (1, 1, 3), (1, 2, 4)], ""),
        ([(0, 5, 1), (1, 1, 1), (2, 1, 1)], ""),
        ([(0, 5, 1), (0, 4, 2)], "sequence 4, after sequence 5"),
        ([(0, 5, 1), (1, 2, 2), (1, 1, 3)], "sequence 1, after sequence 2"),
        ([(0, 5, 1), (1, 2, 2), (0, 6, 3)], "from disk 0 of lhr, after one from disk 1"),
        ([(0, 5, 1), (0, 6, 1)], "as sequence 6, and as 5 before"),
        ([(0, 5, 1), (0, 5, 1)], "twice, the second time not as a redelivery"),
        ([(0, 5, 1), (1, 1, 2), (1, 1, 2)], "twice, the second time not as a redelivery"),
    ],
)
def test_what_a_copy_is_shown_goes_forward_on_each_disk(shown: list[tuple[int, int, int]], match: str) -> None:
    """(disk, sequence, number): all that is shown comes after the second disk was replaced."""
    bed = SimBed(NODES, 1)
    copy = Copy(node="lhr", queue="flights", subscriptions=1)
    bed.history.add_reader(copy.names[0], "flights@lhr")
    bed.history.disk_changed("lhr")
    bed.history.disk_changed("lhr")
    disks: dict[Delivery, int] = {}

    def run() -> None:
        for disk, sequence, number in shown:
            payload = Message(data=[b"000-%08d" % number]).encode()
            delivery = Delivery(Mock(), Mock(payload=payload, settled=False), sequence, 0)
            disks[delivery] = disk
            copy.show(bed, copy.names[0], delivery)

    with patch.object(bed, "disk_of", lambda _, delivery: disks[delivery]):
        if match:
            told(bed, run, match)
        else:
            with bed:
                run()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_copy_out_of_order_is_told(replaced: bool) -> None:
    """The node offers a subscription two entries in the wrong order, now and then."""
    original, held = Cursor._next, dict[int, Any]()

    def _next(cursor: Cursor, limit: int) -> Any:
        if id(cursor) in held:
            return held.pop(id(cursor))
        first = original(cursor, limit)
        if first is None or not cursor.name or first[0] % 7:
            return first
        second = original(cursor, limit)
        if second is not None:
            held[id(cursor)] = first
        return second or first

    one_by_one = patch("holdfast.broker.cursors.cursor.is_plain", lambda *_: False)
    with patch.object(Cursor, "_next", _next), one_by_one:
        faults = (Fault(kind="replace-disk", at=0.01, node="lhr"),) if replaced else ()
        workloads = {**AT_HOME, "rate": 1_000.0, "in_doubt": 100}, {**BUFFERED, "kind": "copy"}
        result = execute(Plan(name="copy", topology=NODES, workloads=workloads, faults=faults), 1)
    assert bool(result.metrics["faults"]) is replaced
    assert "after sequence" in result.failure


def test_a_producer_that_is_not_fenced_is_told() -> None:
    with patch.object(ProducerLink, "detach_with", lambda *_: None):
        result = ran.__wrapped__("reconnecting-producer", "none")
    assert "was accepted from a producer that a newer one has fenced" in result.failure


def test_a_subscription_whose_entries_stay_is_told() -> None:
    with patch.object(Queue, "reclaim", lambda _: None):
        result = ran.__wrapped__("subscription", "none")
    assert "holds entries that subscription-lhr-table has advanced past" in result.failure


def test_a_range_that_changed_is_told() -> None:
    """The reader's memory of a range, falsified: the next reading of it must not pass."""
    bed = SimBed(NODES, 1)
    workload = Subscription(node="lhr", queue="table", forget=1.0, range_max=4)

    def falsified() -> bool:
        for table in workload.tables.values():
            table.entries = dict.fromkeys(table.entries, b"something else")
        return False

    async def sent() -> None:
        connection = await bed.connect("lhr", "sender")
        sender = await connection.sender("table")
        for number in range(1, 5):
            bed.history.offer(b"000-%08d" % number, "table")
            await sender.send(b"000-%08d" % number)

    def run() -> None:
        bed.start()
        bed.spawn(workload.setup(bed), "set up")
        bed.run(5.0, bed.finished)
        workload.start(bed)
        bed.spawn(sent(), "send")
        bed.run(30.0, falsified)

    told(bed, run, "again, and it has other bytes")
