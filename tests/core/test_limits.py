"""Every bound of core.config.Limits, at the bound and one past it, with what the peer is told."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from amqp.joined import wire
from holdfast.amqp.weight import weight
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME
from holdfast.amqp.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Header,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.broker.entries.entry_log import ENTRY_BYTES
from holdfast.engine import events
from holdfast.settings.limits import Limits
from support.limits import RESOURCE, conditions, world
from support.raw import DATA, HELLO, Raw, opened, receives, sends, transfer
from support.rig import Rig

ELSEWHERE = {
    "delayed_max": "test_delays.py",
    "group_messages_max": "test_groups.py",
    "group_wait_s": "test_groups.py",
    "resume_links_max": "test_resume.py",
    "resume_tags_max": "test_resume.py",
    "resume_s_max": "test_resume.py",
    "stream_bytes": "test_streams.py",
    "streams_max": "test_pressure.py",
    "connection_unstored_bytes_max": "test_pressure.py",
    "unstored_bytes_max": "test_pressure.py",
    "unfinished_bytes_max": "test_pressure.py",
    "parked_bytes_max": "test_pressure.py",
    "memory_bytes_max": "test_memory.py",
    "memory_queue_bytes_max": "test_memory.py",
    "connection_request_bytes_max": "test_memory.py",
    "login_failures_max": "test_logins.py",
    "login_retry_s": "test_logins.py",
    "user_connections_max": "test_users.py",
    "user_links_max": "test_users.py",
    "user_unsettled_bytes_max": "test_users.py",
    "user_requests_per_s": "test_users.py",
    "commit_stall_s": "test_disk.py",
    "passed_max": "test_where.py",
    "neighbour_links_max": "test_hop_links.py",
    "neighbours_unstored_bytes_max": "test_pressure.py",
    "reserved_connections_max": "test_places.py",
    "log_lines_per_minute": "test_log_rate.py",
    "where_entries_max": "test_where.py",
    "requests_max": "test_limits_of_management.py",
    "request_bytes_max": "test_limits_of_management.py",
    "excluded_max": "test_exclusions.py",
    "too_large_links_max": "test_exclusions.py",
    "transactions_max": "test_transactions.py",
    "transaction_operations_max": "test_transactions.py",
    "transaction_bytes_max": "test_transactions.py",
    "transactions_bytes_max": "test_transactions.py",
    "transaction_s": "test_transactions.py",
}
"""Where a limit is tested that is not here, beside what it bounds."""


def test_every_limit_has_its_test() -> None:
    assert {field.name for field in fields(Limits) if f"test_{field.name}" not in globals()} == set(ELSEWHERE)
    for name, file in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert re.search(rf"\b(?:Limits|world)\([^)]*\b{name}=", text), f"{file} sets no {name}"


# ------------------------------------------------------------------------------------------------ connections


def test_connections_max() -> None:
    rig, node = world(connections_max=3)
    peers = [opened(rig, node) for _ in range(3)]
    assert all(peer.alive for peer in peers)
    assert not opened(rig, node).served
    assert any("connections of clients, the most there may be" in line for line in node.logs)
    peers[0].say(Close())
    assert opened(rig, node).served and all(peer.alive for peer in peers[1:])


def test_by_default_one_user_leaves_the_others_of_its_address_places() -> None:
    limits = Limits()
    assert limits.user_connections_max < limits.address_connections_max < limits.connections_max


def test_address_connections_max() -> None:
    rig, node = world(address_connections_max=2)
    peers = [opened(rig, node) for _ in range(2)]
    assert not opened(rig, node).served
    assert opened(rig, node, address="10.0.0.2").served
    peers[0].say(Close())
    assert opened(rig, node).served and not opened(rig, node).served
    for peer in peers:
        peer.end.wire.cut()
    rig.settle()
    assert node.core is not None and node.core.guard.by_address == {"10.0.0.1": 1, "10.0.0.2": 1}


def test_handshakes_max() -> None:
    """The oldest of those that have said least goes; who has opened is none of them."""
    rig, node = world(handshakes_max=2)
    known = opened(rig, node)
    half = [Raw(rig, node) for _ in range(2)]
    half[0].say(AMQP_HEADER)
    assert half[0].alive and half[1].alive
    third = Raw(rig, node)
    rig.settle()
    assert [peer.alive for peer in (known, *half, third)] == [True, False, True, True]
    third.say(HELLO)
    assert third.alive and Raw(rig, node).alive and half[1].alive


@pytest.mark.parametrize("said", [b"", b"AMQ", AMQP_HEADER, HELLO[:20], b"AMQP\x03\x01\x00\x00"])
def test_handshake_time_out_s(said: bytes) -> None:
    rig, node = world(handshake_time_out_s=10.0)
    peer = Raw(rig, node)
    peer.say(said)
    rig.run(9.9)
    assert peer.alive
    rig.run(0.2)
    assert not peer.alive


def test_a_hello_that_comes_byte_by_byte_has_no_longer() -> None:
    rig, node = world(handshake_time_out_s=10.0)
    peer = Raw(rig, node)
    for number in range(len(HELLO)):
        peer.say(HELLO[number : number + 1])
        rig.run(1.0)
    assert not peer.alive


def test_idle_time_out_s() -> None:
    rig, node = world(idle_time_out_s=5.0)
    peer = opened(rig, node)
    rig.run(4.9)
    peer.say(EMPTY_FRAME)
    rig.run(4.9)
    assert peer.alive
    rig.run(0.2)
    assert not peer.alive and conditions(peer.take()) == [f"Close {RESOURCE}"]


@pytest.mark.parametrize(("said_ms", "taken"), [(100, True), (99, False)])
def test_peer_idle_time_out_min_s(said_ms: int, taken: bool) -> None:
    rig, node = world(peer_idle_time_out_min_s=0.1)
    peer = Raw(rig, node)
    said = peer.say(AMQP_HEADER, Open("raw", idle_time_out=said_ms))
    assert peer.alive is taken and conditions(said) == ([] if taken else ["Close amqp:invalid-field"])


@pytest.mark.parametrize(("size", "condition"), [(600, "amqp:decode-error"), (601, "amqp:connection:framing-error")])
def test_frame_bytes_max(size: int, condition: str) -> None:
    """A frame of nulls at the bound is read, and found to be nothing; one past it is not even waited for."""
    rig, node = world(frame_bytes_max=600)
    peer = opened(rig, node)
    head = size.to_bytes(4, "big") + b"\x02\x00\x00\x00"
    said = peer.say(head + (b"\x40" * (size - 8) if size == 600 else b""))
    assert conditions(said) == [f"Close {condition}"] and not peer.alive


def nested(depth: int) -> Any:
    return [] if depth == 0 else [nested(depth - 1)]


@pytest.mark.parametrize(("depth", "taken"), [(5, True), (6, False)])
def test_nesting_max(depth: int, taken: bool) -> None:
    """The attach, its list and its properties are three levels, the empty list inside is none."""
    rig, node = world(nesting_max=8)
    peer = opened(rig, node)
    said = peer.say(sends(properties={Symbol("x"): nested(depth)}))
    assert conditions(said) == ([] if taken else ["Close amqp:decode-error"])


def test_sessions_max() -> None:
    rig, node = world(sessions_max=2)
    peer = opened(rig, node)
    assert [type(item) for item in peer.say(Begin(None, 0, 1, 1), channel=1)] == [Begin]
    assert conditions(peer.say(Begin(None, 0, 1, 1), channel=2)) == ["Close amqp:connection:framing-error"]


def test_links_max() -> None:
    rig, node = world(links_max=2)
    peer = opened(rig, node)
    assert conditions(peer.say(sends(handle=0), receives(handle=1))) == []
    said = peer.say(sends(handle=2))
    assert conditions(said) == [f"Detach {RESOURCE}"] and said[0].target is None and peer.alive
    peer.say(Detach(0, True), Detach(2, True))
    assert conditions(peer.say(sends(handle=0, name="again"))) == []


def test_session_links_max() -> None:
    rig, node = world(session_links_max=2)
    peer = Raw(rig, node)
    begun = [item for item in peer.say(HELLO) if isinstance(item, Begin)]
    assert begun[0].handle_max == 1
    assert conditions(peer.say(sends(handle=0), receives(handle=1))) == []
    assert conditions(peer.say(sends(handle=2))) == ["Close amqp:connection:framing-error"]


@pytest.mark.parametrize(("count", "expected"), [(2, []), (3, [f"End {RESOURCE}"])])
def test_incoming_unsettled_max(count: int, expected: list[str]) -> None:
    rig, node = world(incoming_unsettled_max=2)
    peer = opened(rig, node)
    peer.say(sends())
    said = peer.say(*(transfer(number) for number in range(count)))
    assert conditions(said) == expected


@pytest.mark.parametrize(("more", "expected"), [(500, []), (501, [f"Detach {RESOURCE}"])])
def test_partial_bytes_max(more: int, expected: list[str]) -> None:
    rig, node = world(message_bytes_max=1_000, partial_bytes_max=1_500)
    peer = opened(rig, node)
    peer.say(sends(handle=0), sends(handle=1))
    said = peer.say(transfer(0, bytes(1_000), more=True), transfer(1, bytes(more), handle=1, more=True))
    assert conditions(said) == expected
    peer.say(Detach(0, True), Detach(1, True))
    assert node.core is not None and node.core.connections[peer.number].amqp.partial_bytes == 0


def test_terms_bytes_max() -> None:
    rig, node = world(terms_bytes_max=65_536)
    peer = opened(rig, node)
    room = 65_536 - weight(Open("raw"))
    attach = sends(properties={Symbol("x"): b""})
    room -= weight(attach)
    assert attach.properties is not None
    attach.properties[Symbol("x")] = bytes(room)
    assert conditions(peer.say(attach)) == [] and peer.alive
    assert peer.node.core is not None
    assert peer.node.core.connections[peer.number].amqp.terms_bytes == 65_536
    peer.say(Detach(0, True))
    assert conditions(peer.say(attach)) == []
    assert conditions(peer.say(Attach("", 1, True))) == [f"Close {RESOURCE}"]


def test_terms_past_the_bound_end_the_connection_alone() -> None:
    """The links before it are small: what they held comes off the account, which is still past its bound."""
    rig, node = world(terms_bytes_max=65_536)
    peer = opened(rig, node)
    assert conditions(peer.say(sends(), sends(handle=1))) == []
    large = sends(handle=2, properties={Symbol("x"): bytes(60_000), Symbol("y"): [None] * 3_000})
    assert conditions(peer.say(large)) == [f"Close {RESOURCE}"]
    assert conditions(opened(rig, node).say(sends())) == []


def test_links_that_are_refused_and_never_detached_count_too() -> None:
    rig, node = world(terms_bytes_max=65_536, attaches_burst=100_000)
    peer = opened(rig, node)
    for handle in range(1_000):
        peer.say(sends("$nothing", handle=handle))
        if not peer.alive:
            return
    raise AssertionError("a thousand links that are over are held")


def test_attaches_per_s_and_burst() -> None:
    """The bytes of 100 attaches are there at once; 50 are answered, then one each tenth of a second."""
    rig, node = world(attaches_per_s=10, attaches_burst=50)
    peer = opened(rig, node)
    said = peer.say(*(sends("$nothing", handle=number) for number in range(100)))
    first = len([item for item in said if isinstance(item, Attach)])
    assert 40 <= first <= 50 and peer.number in node.not_read
    other = opened(rig, node)
    assert [type(item) for item in other.say(sends())] == [Attach, Flow]
    rig.run(1.0)
    assert 8 <= len(peer.take(Attach)) <= 11
    rig.run(10.0)
    assert first + len(peer.take(Attach)) >= 85 and peer.alive and peer.number not in node.not_read


test_attaches_per_s = test_attaches_burst = test_attaches_per_s_and_burst


def test_what_waits_comes_in_its_order() -> None:
    rig, node = world(attaches_per_s=10, attaches_burst=50)
    peer = opened(rig, node)
    peer.say(*(sends("$nothing", handle=number) for number in range(60)), wire(End()), b"\x00")
    rig.run(10.0)
    said = peer.take()
    assert isinstance(said[-1], End) and [item.handle for item in said if isinstance(item, Detach)][-1] == 59


def test_output_bytes_max() -> None:
    """Answers to a peer that reads nothing, up to the bound; then it is dropped."""
    rig, node = world(output_bytes_max=65_536)
    peer = opened(rig, node)
    assert node.core is not None
    inside = node.core.connections[peer.number]
    node.handle(events.WritingPaused(connection=peer.number))
    last = 0
    while peer.alive:
        assert inside.unread_bytes <= 65_536
        last = inside.unread_bytes
        peer.say(*[Flow(0, 5_000, 0, 5_000, echo=True)] * 10)
    assert last > 64_000 and inside.unread_bytes > 65_536
    assert any("does not read" in line for line in node.logs)
    slow = opened(rig, node)
    node.handle(events.WritingPaused(connection=slow.number))
    for _ in range(20):
        slow.say(*[Flow(0, 5_000, 0, 5_000, echo=True)] * 100)
        node.handle(events.WritingResumed(connection=slow.number))
        node.handle(events.WritingPaused(connection=slow.number))
    assert slow.alive


@pytest.mark.parametrize(("size", "expected"), [(256, []), (257, ["Close amqp:invalid-field"])])
def test_name_bytes_max(size: int, expected: list[str]) -> None:
    for hello in (Open("c" * size), Open("c", hostname="h" * size)):
        rig, node = world(name_bytes_max=256)
        assert conditions(Raw(rig, node).say(AMQP_HEADER, hello)) == expected
    rig, node = world(name_bytes_max=256)
    assert conditions(opened(rig, node).say(sends(name="é" * (size // 2) + "n" * (size % 2)))) == expected


# ------------------------------------------------------------------------------------------------ the log


def test_a_log_line_about_a_peer_has_an_end() -> None:
    rig, node = world()
    peer = Raw(rig, node)
    peer.say(AMQP_HEADER, Open("c" * 1_000), Attach("l", 0, True))
    assert len(node.logs[-1]) == 500


# ------------------------------------------------------------------------------------------------ queues


def test_queues_max() -> None:
    rig, node = world(queues_max=2)
    peer = opened(rig, node)
    assert conditions(peer.say(sends("one", handle=0), receives("two", handle=1))) == []
    said = peer.say(sends("three", handle=2))
    assert conditions(said) == [f"Detach {RESOURCE}"] and said[0].target is None


def test_subscriptions_max() -> None:
    rig, node = world(subscriptions_max=2)
    client = rig.client(node)
    assert client.manage("OPEN", "subscription", "a", queue="one", mode="copy")[0] == 201
    assert client.manage("OPEN", "subscription", "b", queue="two", mode="copy")[0] == 201
    assert client.manage("OPEN", "subscription", "c", queue="three", mode="copy")[0] == 409
    assert client.manage("OPEN", "subscription", "a", queue="one", mode="copy")[0] == 200
    durable = {"durable": 1, "expiry_policy": Symbol("never")}
    client.receiver("one", name="d", source=durable)
    rig.settle()
    assert [str(item.error.condition) for item in client.detached if item.error] == [RESOURCE]


def test_queue_subscriptions_max() -> None:
    rig, node = world(queue_subscriptions_max=1)
    client = rig.client(node)
    assert client.manage("OPEN", "subscription", "a", queue="one", mode="copy")[0] == 201
    assert client.manage("OPEN", "subscription", "b", queue="one", mode="copy")[0] == 409
    assert client.manage("OPEN", "subscription", "b", queue="two", mode="copy")[0] == 201


# ------------------------------------------------------------------------------------------------ messages


@pytest.mark.parametrize(("size", "expected"), [(1_000, []), (1_001, ["Detach amqp:link:message-size-exceeded"])])
def test_message_bytes_max(size: int, expected: list[str]) -> None:
    rig, node = world(message_bytes_max=1_000)
    peer = opened(rig, node)
    peer.say(sends())
    payload = b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4, "big") + bytes(size - 8)
    assert conditions(peer.say(transfer(0, payload))) == expected
    peer.say(sends(handle=1, name="other"))
    parts = transfer(1, payload[:500], handle=1, more=True), wire((Transfer(1), payload[500:]))
    assert conditions(peer.say(*parts)) == expected


@pytest.mark.parametrize("section", [b"\x00\x53\x71", b"\x00\x53\x72"])
@pytest.mark.parametrize("before", [b"", encode(Header(durable=True))])
@pytest.mark.parametrize(("size", "outcome"), [(1_024, "Accepted"), (1_025, "Rejected")])
def test_annotation_bytes_max(section: bytes, before: bytes, size: int, outcome: str) -> None:
    rig, node = world(annotation_bytes_max=1_024)
    peer = opened(rig, node)
    peer.say(sends())
    fixed = len(section) if section[2] == 0x72 else 0  # the bound is on what is decoded
    value = bytes(size - fixed - 9 - len(b"\xa3\x01x\xb0\x00\x00\x00\x00"))
    pairs = b"\xa3\x01x\xb0" + len(value).to_bytes(4, "big") + value
    field = section + b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + (2).to_bytes(4, "big") + pairs
    said = peer.say(transfer(0, before + field + DATA))
    (answer,) = [item for item in said if isinstance(item, Disposition)]
    assert type(answer.state).__name__ == outcome
    if isinstance(answer.state, Rejected):
        assert answer.state.error is not None and answer.state.error.condition == RESOURCE


def test_annotations_that_are_added_have_the_same_bound() -> None:
    from holdfast.amqp.wire.performatives import Modified

    rig, node = world(annotation_bytes_max=1_024)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "m")
    receiver = client.receiver("work", credit=1)
    rig.settle()
    for number in range(10):
        (delivery,) = client.deliveries
        client.deliveries.clear()
        modified = Modified(message_annotations={Symbol(f"x-{number}"): "v" * 200})
        receiver.settle(delivery.delivery_id, delivery.delivery_id, modified)
        receiver.grant(1)
        rig.settle()
    found = client.messages()[0].message_annotations or {}
    assert [key for key in found if str(key).startswith("x-") and "opt" not in key] == [f"x-{n}" for n in range(4)]


@pytest.mark.parametrize(("count", "expected"), [(5, []), (6, ["Detach amqp:link:transfer-limit-exceeded"])])
def test_credit(count: int, expected: list[str]) -> None:
    rig, node = world(credit=5)
    peer = opened(rig, node)
    assert [flow.link_credit for flow in peer.say(sends()) if isinstance(flow, Flow)] == [5]
    assert conditions(peer.say(*(transfer(number) for number in range(count)))) == expected


def test_cache_bytes() -> None:
    """Bodies that fit are kept for the consumer, what is past the bound it is given from the disk."""
    for budget, kept in ((400, 2), (399, 1)):
        rig, node = world(cache_bytes=budget)
        client = rig.client(node)
        client.receiver("work", credit=0)
        link = client.sender("work")
        rig.settle()
        node.hold_commits = True
        for _ in range(2):
            client.send(link, "m" * (200 - 5 - 30))
        rig.settle()
        sizes = [len(value) for value in node.queue("work").cache.values()]
        assert sizes == [200] * kept, sizes
        node.hold_commits = False
        consumer = client.receiver("work")
        rig.settle()
        assert len(client.bodies(consumer)) == 2


@pytest.mark.parametrize("browse", [False, True])
def test_unsettled_max(browse: bool) -> None:
    rig, node = world(unsettled_max=3)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in range(5):
        client.send(link, str(number))
    rig.settle()
    source = {"distribution_mode": Symbol("copy")} if browse else {}
    consumer = client.receiver("work", source=source)
    rig.settle()
    assert client.bodies(consumer) == ["0", "1", "2"]
    client.accept(count=1)
    rig.settle()
    assert client.bodies(consumer) == ["1", "2", "3"]


def test_unsettled_max_is_none_for_a_reader_that_leaves_nothing_unsettled() -> None:
    rig, node = world(unsettled_max=3)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for number in range(8):
        client.send(link, str(number))
    rig.settle()
    reader = client.reader("work", 1, 9)
    rig.settle()
    assert client.bodies(reader) == [str(number) for number in range(8)] and reader.detached


def test_ranges_max() -> None:
    rig, node = world(ranges_max=2)
    client = rig.client(node)
    link = client.sender("work", properties={Symbol("holdfast:producer"): "p"})
    rig.settle()
    for number in (1, 3, 5, 4, 7):
        client.send(link, str(number), number=number)
        rig.settle()
    assert [(body, type(state).__name__) for body, state in client.outcomes] == [
        ("1", "Accepted"), ("3", "Accepted"), ("5", "Rejected"), ("4", "Accepted"), ("7", "Rejected"),
    ]  # fmt: skip


def test_producers_max() -> None:
    """The one longest idle is forgotten, by use, over a restart too; who is attached is not."""
    rig, node = world(producers_max=2)

    def use(name: str) -> Ulong:
        client = rig.client(node)
        link = client.sender("work", properties={Symbol("holdfast:producer"): name})
        rig.settle()
        client.send(link, name, number=1)
        rig.settle()
        attach = link.remote_attach
        assert attach is not None and attach.properties is not None
        client.close_transport()
        rig.settle()
        rig.run(1.0)
        return Ulong(attach.properties[Symbol("holdfast:last-number")])

    assert [use("a"), use("b"), use("a")] == [0, 0, 1]
    node.crash()
    node.start()
    rig.settle()
    assert [use("c"), use("a"), use("b")] == [0, 1, 0]


def test_origins_max() -> None:
    """The bound itself; what becomes of the messages: tests/core/test_hostile.py."""
    rig = Rig()
    jfk, hub = rig.pair(limits=Limits(origins_max=1))
    rig.run(1)
    for name, taken in (("first", True), ("second", False)):
        client = rig.client(jfk)
        link = client.sender("work@hub")
        rig.settle()
        client.send(link, name)
        rig.run(2)
        assert hub.core is not None and len(hub.core.catalog.ledger.origins) == 1
        assert (name in hub.bodies("work")) is taken
        jfk.crash()
        jfk.store = type(jfk.store)(mint_from=rig.uuid)
        jfk.start()
        rig.run(2)


def test_hop_in_doubt_max() -> None:
    rig = Rig()
    jfk, hub = rig.pair(jfk={"limits": Limits(hop_in_doubt_max=3)})
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    hub.hold_commits = True
    for number in range(5):
        client.send(link, str(number))
    rig.settle()
    assert jfk.core is not None
    sender = jfk.core.next_hops["hub"].senders["hub"]
    assert len(sender.in_doubt) == 3
    hub.hold_commits = False
    rig.run(1)
    assert hub.bodies("work") == ["0", "1", "2", "3", "4"]


def test_dynamic_nodes_max() -> None:
    rig, node = world(dynamic_nodes_max=1)
    peer = opened(rig, node)
    one, two = (
        Attach(f"d{handle}", handle, True, source=Source(dynamic=True), target=Target("x")) for handle in (0, 1)
    )
    assert conditions(peer.say(one)) == []
    assert conditions(peer.say(two)) == [f"Detach {RESOURCE}"]
    peer.say(Detach(0, True), Detach(1, True))
    assert conditions(peer.say(one)) == []


def test_dynamic_bytes_max() -> None:
    for budget, outcome in ((len(DATA) + ENTRY_BYTES, "Accepted"), (len(DATA) + ENTRY_BYTES - 1, "Rejected")):
        rig, node = world(dynamic_bytes_max=budget)
        peer = opened(rig, node)
        said = peer.say(Attach("d", 0, True, source=Source(dynamic=True), target=Target("x")))
        peer.say(sends(str(said[0].source.address), handle=1))
        (answer,) = [item for item in peer.say(transfer(0, handle=1)) if isinstance(item, Disposition)]
        assert type(answer.state).__name__ == outcome
