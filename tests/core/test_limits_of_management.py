"""The bounds of core.config.Limits on requests to $management, at the bound and one past it."""

import gc
import tracemalloc
from collections.abc import Callable
from uuid import UUID

import pytest

from core.test_memory import status_request
from holdfast.amqp.connection import Sender
from holdfast.amqp.effort import ATTACH
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Accepted, Attach, Disposition, Flow, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Ulong
from holdfast.endpoints.addresses.attach import QUEUE_EFFORT
from holdfast.endpoints.background_jobs import BackgroundJobs
from holdfast.management.operations import dispatch
from holdfast.management.operations.answers import Answer
from holdfast.management.operations.operation import READS, Operation
from holdfast.management.requests import BACK_BYTES_MAX
from holdfast.settings.limits import Limits
from support.limits import conditions, world
from support.raw import DATA, opened, sends, transfer
from support.rig import Client, Node, Rig


@pytest.mark.parametrize(("count", "expected"), [(3, []), (4, ["Detach amqp:link:transfer-limit-exceeded"])])
def test_requests_max(count: int, expected: list[str]) -> None:
    rig, node = world(requests_max=3)
    peer = opened(rig, node)
    assert [flow.link_credit for flow in peer.say(sends("$management")) if isinstance(flow, Flow)] == [3]
    assert conditions(peer.say(*(transfer(number) for number in range(count)))) == expected


@pytest.mark.parametrize(("size", "expected"), [(1_024, []), (1_025, ["Detach amqp:link:message-size-exceeded"])])
def test_request_bytes_max(size: int, expected: list[str]) -> None:
    rig, node = world(request_bytes_max=1_024)
    peer = opened(rig, node)
    assert peer.say(sends("$management"))[0].max_message_size == 1_024
    payload = b"\x00\x53\x77\xb0" + (size - 8).to_bytes(4, "big") + bytes(size - 8)
    assert conditions(peer.say(transfer(0, payload))) == expected


def test_requests_of_who_takes_no_answers_wait_and_the_others_do_not() -> None:
    rig, node = world(output_bytes_max=65_536, requests_max=1_000)
    client = rig.client(node)
    for number in range(100):
        client.sender(f"queue{number:03}")
    rig.settle()
    replies = client.receiver("$management", name="replies", credit=0)
    assert replies.name == "replies"
    link = client.sender("$management")
    rig.settle()
    ask = Message(
        properties=Properties(reply_to="here"),
        application_properties={"operation": "QUERY", "type": "holdfast:queue", "name": ""},
        value={},
    ).encode()
    for _ in range(50):
        link.send(ask, context=None, settled=True)
    rig.settle()
    assert node.core is not None
    inside = next(iter(node.core.connections.values()))
    assert 65_536 <= inside.reply_bytes < 2 * 65_536 and inside.stalled and not node.core.links.requests
    assert rig.client(node).manage("STATUS", "node")[0] == 200
    replies.grant(1_000)
    rig.settle()
    assert len(client.deliveries) == 50 and inside.reply_bytes == 0 and not inside.stalled


def to(address: str, number: int) -> bytes:
    """A framed transfer whose message says where it goes."""
    return transfer(number, encode(Properties(to=address, reply_to="nobody")) + DATA, settled=True)


def test_a_link_whose_requests_were_all_rejected_goes_on_once_there_is_room() -> None:
    """What another link's requests hold of the connection's bound ends with them; then this one's are answered."""
    rig = Rig()
    limits = Limits(connection_request_bytes_max=65_536, user_requests_per_s=1)
    node = rig.node("hub", limits=limits)
    client = rig.client(node)
    client.receiver("$management")
    first, second = client.sender("$management"), client.sender("$management")
    rig.settle()
    for number in range(3):
        first.send(status_request(20_000), context=("first", number))
    rig.settle()
    for number in range(3 * limits.requests_max):
        assert second.credit
        second.send(status_request(30_000), context=number)
        rig.settle()
    assert len(client.outcomes) >= 3 * limits.requests_max and isinstance(client.outcomes[-1][1], Rejected)
    rig.run(8)
    second.send(status_request(500), context="later")
    rig.run(2)
    assert client.outcomes[-1] == ("later", Accepted())


def test_requests_by_a_link_without_an_address_are_bounded_too() -> None:
    rig, node = world(requests_max=3)
    peer = opened(rig, node)
    anonymous = Attach("relay", 0, False, source=Source(), target=Target(), initial_delivery_count=0)
    assert conditions(peer.say(anonymous)) == []
    asked = [encode(Properties(to="$management")) + DATA] * 4
    said = peer.say(*(transfer(number, payload) for number, payload in enumerate(asked)))
    outcomes = [(item.first, type(item.state).__name__) for item in said if isinstance(item, Disposition)]
    assert sorted(outcomes) == [(0, "Accepted"), (1, "Accepted"), (2, "Accepted"), (3, "Rejected")]


def test_queues_that_messages_make_are_work_too() -> None:
    each = QUEUE_EFFORT / ATTACH
    rig, node = world(attaches_per_s=10, attaches_burst=50)
    peer = opened(rig, node)
    peer.say(Attach("relay", 0, False, source=Source(), target=Target(), initial_delivery_count=0))
    peer.say(*(to(f"queue{number}", number) for number in range(40)))
    assert node.core is not None and peer.number in node.not_read
    made = len(node.core.catalog.queues)
    assert 50 // each <= made < 40, "what a read makes counts before all of it is understood"
    peer.say(*(to(f"more{number}", number) for number in range(40, 80)))
    assert len(node.core.catalog.queues) == made
    rig.run(each * 80 / 10 / 2)
    assert made < len(node.core.catalog.queues) < 80
    rig.run(each * 80 / 10)
    assert len(node.core.catalog.queues) == 80 and peer.alive


def asking(rig: Rig, node: Node, credit: int) -> tuple[Client, Sender]:
    """A client whose answers go to `here`, with credit for so many."""
    client = rig.client(node)
    client.session.attach_receiver("replies", Source(address="$management"), Target(address="here")).grant(credit)
    link = client.sender("$management")
    rig.settle()
    return client, link


ASK = Message(
    properties=Properties(reply_to="here"),
    application_properties={"operation": "STATUS", "type": "holdfast:node", "name": ""},
    value={},
).encode()


def test_answers_that_wait_count_for_who_does_not_take_them() -> None:
    rig, node = world()
    _, link = asking(rig, node, 0)
    for _ in range(5):
        link.send(ASK, context=None, settled=True)
    rig.settle()
    assert node.core is not None
    (peer,) = node.core.connections.values()
    assert peer.reply_bytes > 1_000 and peer.request_bytes == 0
    assert node.core.memory.weight(peer) == peer.held_bytes + peer.reply_bytes


def test_a_request_whose_answer_fails_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node = world()
    client, link = asking(rig, node, 5)
    assert node.core is not None
    operations = node.core.management.operations
    odd = Operation(lambda *_: Answer(200, "no type", {"": object()}), READS)
    monkeypatch.setitem(operations, ("holdfast:node", "STATUS"), odd)
    link.send(ASK, context=None, settled=True)
    rig.settle()
    assert client.over and node.core.containment.peers_ended == 1 and node.core.memory.requests.held == 0


def test_a_request_that_waits_keeps_nothing_of_what_was_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list is one byte on the wire, and sixty in memory."""
    count = 8
    rig, node = world()
    client, link = asking(rig, node, count)
    assert rig.client(node).manage("CREATE", "queue", "work")[0] == 201
    body = Message(
        properties=Properties(reply_to="here", message_id="m"),
        application_properties={"operation": "PURGE", "type": "holdfast:queue", "name": "work"},
        value={"junk": [[]] * 60_000},
    ).encode()
    ends: list[Callable[[int], None]] = []
    monkeypatch.setattr(dispatch, "_check_keys", lambda *_: None)  # as if it had an argument of that name
    monkeypatch.setattr(BackgroundJobs, "purge", lambda jobs, queue, told: ends.append(told))
    assert node.core is not None
    requests = node.core.memory.requests
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            link.send(body, context=None, settled=True)
            rig.settle()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(ends) == count and requests.held >= count * len(body)
    assert grown < 2 * requests.held
    for told in ends:
        told(0)
    node.due = True
    rig.settle()
    answers = [Message.decode(item.payload).properties for item in client.deliveries]
    assert [(told.to, told.correlation_id) for told in answers if told is not None] == [("here", "m")] * count
    assert requests.held == 0


def way_back(field: str, value: object, operation: str = "CREATE") -> bytes:
    """A request with that in its properties; of a queue's name for each."""
    fields = {"reply_to": "here", "message_id": "m"} | {field: value}
    return Message(
        properties=Properties(**fields),  # type: ignore[arg-type]
        application_properties={"operation": operation, "type": "holdfast:queue", "name": "work"},
        value={},
    ).encode()


@pytest.mark.parametrize("answers", [True, False])
def test_what_requests_say_of_their_answers_is_not_kept_while_a_commit_is_under_way(answers: bool) -> None:
    """Whatever it is decoded to: it would wait for the disk with the answer, and with the line in the log."""
    count = 10
    rig, node = world()
    client, link = asking(rig, node, count)
    if not answers:
        next(iter(client.session.links.values())).detach(closed=True)
    other = client.sender("held")
    rig.settle()
    node.hold_commits = True
    client.send(other, "held")
    rig.settle()
    assert node.pending is not None and node.core is not None
    bodies = [way_back("reply_to", [[]] * 6_000, operation) for operation in ("CREATE", "DELETE")]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            link.send(bodies[number % 2], context=None, settled=True)
            rig.settle()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < count * 32 * 1_024
    node.hold_commits = False
    rig.settle()
    assert node.core.memory.requests.held == 0 and not client.over


LONG = BACK_BYTES_MAX - len(Message(properties=Properties(to="here", correlation_id="x" * 256)).encode()) + 256


@pytest.mark.parametrize(
    ("field", "value", "taken"),
    [
        ("reply_to", None, True), ("reply_to", 5, False), ("reply_to", [], False), ("reply_to", b"here", False),
        ("message_id", "x" * LONG, True), ("message_id", "x" * (LONG + 1), False),
        ("message_id", b"m", True), ("message_id", UUID(int=7), True), ("message_id", Ulong(7), True),
        ("message_id", None, True), ("correlation_id", "c", True), ("correlation_id", "x" * (LONG + 1), False),
    ],
)  # fmt: skip
def test_what_a_request_may_say_of_its_answer(field: str, value: object, taken: bool) -> None:
    """What cannot be kept is rejected with the reason, and nothing is carried out."""
    rig, node = world()
    client, link = asking(rig, node, 5)
    link.send(way_back(field, value), context="asked")
    rig.settle()
    assert node.core is not None
    assert ("work" in node.core.catalog.queues) == taken
    state = dict(client.outcomes)["asked"]
    assert isinstance(state, Accepted if taken else Rejected)
    answers = [Message.decode(item.payload).properties for item in client.deliveries]
    if not taken:
        assert (
            isinstance(state, Rejected)
            and state.error is not None
            and "of a request" in (state.error.description or "")
        )
        assert not answers
    elif value is not None and field != "reply_to":
        assert [told.correlation_id for told in answers if told is not None] == [value]
    assert node.core.memory.requests.held == 0


def test_a_request_for_which_there_is_no_memory_before_it_is_whole_is_rejected() -> None:
    """Unfinished deliveries have used up their bound: it is not kept until its last frame is there."""
    rig, node = world(unfinished_bytes_max=1_000, frame_bytes_max=512)
    client = rig.client(node)
    link = client.sender("$management")
    rig.settle()
    for body in ("long" * 1_000, "short"):
        client.send(link, body, context=body[:5])
    rig.settle()
    (long, told), (short, _) = client.outcomes
    assert (long, short) == ("longl", "short") and isinstance(told, Rejected) and told.error is not None
    assert str(told.error.condition) == "amqp:resource-limit-exceeded"
    assert told.error.description == "the message is too large; the limit is 1048576 bytes, and few unfinished at once"
    assert not client.detached
