"""Whatever a peer sends, NodeCore.handle raises nothing, and the node serves on."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.stored.origins import Origin
from holdfast.broker.stored.ranges import RangeSet
from holdfast.entity_types import (
    ATTACHMENT,
    CONNECTION,
    ENTRY,
    FEDERATION,
    LINK,
    MANAGEMENT,
    NODE,
    QUEUE,
    SERVICE,
    SESSION,
    SUBSCRIPTION,
    TRANSACTION,
)
from holdfast.management.status.origins import ORIGINS_LISTED
from holdfast.settings.limits import Limits
from support import today
from support.rig import Rig

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=12) | st.binary(max_size=12)
    | st.floats() | st.uuids() | st.integers(0, 2**64 - 1).map(Ulong)
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2)
)
KEYS = (
    "queue", "queue_uuid", "lease_epoch", "start", "sequence", "mode", "messages_max", "bytes_max",
    "when_full", "order", "order_wait_s", "durable", "origin", "other", "to", "delivery_count", "after", "count",
    "idle_s", "offset", "ranges", "start_ms", "exact", "entityType", "attributeNames", "tombstones", "from", "selector",
    "mail", "limit_s",
)  # fmt: skip

OPERATIONS = [
    (ATTACHMENT, "CLOSE"),
    (CONNECTION, "CLOSE"),
    *((ENTRY, name) for name in ("COPY", "DELETE", "MOVE", "QUERY", "READ", "REQUEUE")),
    *((FEDERATION, name) for name in ("CREATE", "DELETE", "QUERY", "TREE")),
    *((LINK, name) for name in ("CREATE", "DELETE", "QUERY", "START", "STOP")),
    *((NODE, name) for name in ("DRAIN", "FORGET", "NETWORK", "RELOAD", "RESUME", "STATUS", "WHERE")),
    *((QUEUE, name) for name in ("CREATE", "DELETE", "PURGE", "QUERY", "READ", "SKIP", "UPDATE")),
    *((SERVICE, name) for name in ("CREATE", "DELETE", "QUERY", "READ", "UPDATE")),
    (SESSION, "CLOSE"),
    *((SUBSCRIPTION, name) for name in ("ADVANCE", "DELETE", "GAPS", "OPEN", "PEEK", "QUERY", "READ", "UPDATE")),
    (TRANSACTION, "CLOSE"),
    *((MANAGEMENT, name) for name in ("GET-ATTRIBUTES", "GET-MGMT-NODES", "GET-OPERATIONS", "GET-TYPES", "QUERY")),
]
ALONE = ((ATTACHMENT, "CLOSE"), (CONNECTION, "CLOSE"), (SESSION, "CLOSE"), (NODE, "RELOAD"))
"""Three may close what asks; the other is answered by a driver (tests/core/test_reloading.py)."""


@settings(max_examples=today.drawn(20))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([each for each in OPERATIONS if each not in ALONE]),
            st.sampled_from(["work", "sub", "", "$waiting", "@x"]) | st.text(max_size=9),
            st.dictionaries(st.sampled_from(KEYS), values | st.just("work"), max_size=5),
        ),
        max_size=6,
    )
)
def test_management(requests: list[tuple[tuple[str, str], str, dict[str, object]]]) -> None:
    rig = Rig()
    node = rig.node("hub")
    assert node.core is not None and sorted(node.core.management.operations) == OPERATIONS
    client = rig.client(node)
    client.manage("CREATE", "queue", "work")
    link = client.sender("work")
    rig.settle()
    client.send(link, "x")
    rig.settle()
    for (kind, operation), name, arguments in requests:
        status, _, text = client.manage(operation, kind.removeprefix("holdfast:"), name, **arguments)
        assert status in (200, 201, 400, 404, 409, 412) and text
    assert client.manage("STATUS", "node")[0] == 200


@settings(max_examples=today.drawn(14))
@given(st.lists(st.binary(max_size=60) | values.map(lambda value: b"\x00\x53\x72" + encode(value)), max_size=5))
def test_payloads(payloads: list[bytes]) -> None:
    rig = Rig()
    rig.pair()
    rig.run(3)
    for node in rig.nodes.values():
        client = rig.client(node)
        for address in ("work", "work@hub", "$management"):
            link = client.sender(address)
            rig.settle()
            for payload in payloads:
                if link.sendable:
                    link.send(payload, context=None)
            rig.settle()
        client.receiver("work")
        rig.settle()


@settings(max_examples=today.drawn(14))
@given(st.dictionaries(st.sampled_from(["holdfast:producer", "holdfast:epoch"]).map(Symbol), values), st.text())
def test_attaches(properties: dict[Symbol, object], address: str) -> None:
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    client.sender(address, properties=properties)
    client.receiver(address, properties=properties)
    client.sender("work", properties=properties)
    rig.settle()


@pytest.mark.parametrize("what", ["probe", "echo", "marks", "hello", "else"])
@pytest.mark.parametrize("value", [None, -1, 2**63 - 1, "x" * 1000, [[1, 2, 3]], [["x" * 900, None, 1]], {"a": 1}])
def test_control_messages(what: str, value: object) -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(3)
    neighbour = jfk.core.neighbours["hub"]
    neighbour.send({"kind": what, "number": value, "marks": value, "store": value})
    hub.due = jfk.due = True
    rig.run(3)
    assert neighbour.established and hub.core.neighbours["jfk"].established


def test_no_spin_while_a_dial_is_out() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.connect = lambda: None  # type: ignore[method-assign]  # the dial hangs
    jfk.end_turn()
    from holdfast.engine import events

    jfk.handle(events.TimerFired())
    rig.pass_time(30)
    jfk.handle(events.TimerFired())
    jfk.end_turn()
    assert jfk.core.next_deadline() > rig.now


def test_a_neighbours_wild_marks_make_a_node_someone_new_once_at_most() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    before = jfk.core.identities.store_uuid
    seen = {before}
    for mark in (10**6, 10**9, 10**12):
        neighbour = jfk.core.neighbours["hub"]
        neighbour.hear({"kind": "marks", "marks": [["hub", jfk.core.identities.store_uuid, Ulong(mark)]]})
        rig.run(2)
        seen.add(jfk.core.identities.store_uuid)
    assert len(seen) == 2
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "1")
    rig.run(2)
    assert hub.bodies("work") == ["1"]


def test_no_more_origins_are_taken_than_the_limit() -> None:
    rig = Rig()
    _, hub = rig.pair(limits=Limits(origins_max=1))
    rig.run(1)
    jfk = rig.nodes["jfk"]
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "1")
    rig.run(2)
    jfk.crash()
    jfk.store = type(jfk.store)(mint_from=rig.uuid)
    jfk.start()
    rig.run(2)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "2")
    rig.run(3)
    assert hub.bodies("work") == ["1"] and jfk.queue("@hub").messages == 1
    assert any("1 origins are known" in line for line in hub.logs)


def test_status_lists_few_of_many_origins_the_worst_first() -> None:
    rig = Rig()
    hub = rig.node("hub")
    hub.checks = False
    origins = hub.core.catalog.ledger.origins
    for number in range(300):
        ranges = {7: [(7, 7)], 9: [(7, 7), (9, 9)]}.get(number, [])
        origins[UUID(int=number)] = Origin(UUID(int=number), mark=5, finished=RangeSet(ranges))
    _, body, _ = rig.client(hub).manage("STATUS", "node")
    told = [UUID(row["origin"]).int for row in body["origins"]]
    assert told == [9, 7, *range(299, 201, -1)] and len(told) == ORIGINS_LISTED and body["origins_more"] == 200
    assert body["origins"][0]["gaps"] == [[6, 6], [8, 8]]
    for number in range(100, 300):
        del origins[UUID(int=number)]
    _, body, _ = rig.client(hub).manage("STATUS", "node")
    assert len(body["origins"]) == 100 and body["origins_more"] == 0
