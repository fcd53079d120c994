"""Payloads that are no message by the framing of their sections: refused at entry, and what came in all the same."""

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Header, Properties, Source, Target
from holdfast.endpoints import plain_runs, producer
from holdfast.links import incoming
from holdfast.settings.queues import QueueConfig
from support.hops import is_empty
from support.rig import Client, Node, Rig
from support.streams import LARGE, LIMITS, body, is_clean, sending, start

CLAIMS = bytes.fromhex("005375b07fffffff")
"""A data section of 2 GiB, of which nothing is there."""
MALFORMED = (
    CLAIMS,
    Message(data=[b"a"]).encode()[:-1],
    Message(data=[b"a"]).encode() + b"trash",
    Message(properties=Properties(subject="s"), data=[b"a"]).encode() + Message(header=Header(True)).encode(),
    Message(header=Header(True)).encode() + CLAIMS,
    Message(message_annotations={"x": 1}).encode() + CLAIMS,
    Message(properties=Properties(subject="s")).encode() + CLAIMS,
    bytes.fromhex("005373a10178") + Message(data=[b"a"]).encode(),
    Message(data=[b"a"]).encode() + Message(value="b").encode(),
    bytes.fromhex("0053773f"),
)
WHOLE = (
    Message(data=[b"a"]), Message(data=[b"b" * 300]), Message(header=Header(True), data=[b"c"]), Message(value=5),
    Message(properties=Properties(subject="s"), data=[b"d", b"e"]), Message(sequences=[[1]], footer={"a": 1}),
)  # fmt: skip


def refusals(client: Client) -> dict[int, str]:
    """By context: why it was rejected; "" where it was accepted."""
    return {
        context: "" if isinstance(state, Accepted) else f"{state.error.condition} {state.error.description}"
        for context, state in client.outcomes
    }


@pytest.mark.parametrize("address", ["work", "far@jfk", None])
def test_each_costs_itself_alone(address: str | None) -> None:
    rig = Rig()
    _, hub = rig.pair()
    client = rig.client(hub)
    relays = address is None
    link = client.session.attach_sender("any", Source(), Target(address=address))
    rig.settle()
    parts = [part for pair in zip(MALFORMED, WHOLE * 2, strict=False) for part in (pair[0], pair[1].encode())]
    if relays:
        to = Message(properties=Properties(to="work")).encode()
        parts = [to + Message(data=[b"a"]).encode(), to + CLAIMS, to + Message(value=5).encode()]
    for number, payload in enumerate(parts):
        link.send(payload, context=number)
    rig.settle()
    told = refusals(client)
    wrong = {number: why for number, why in told.items() if why}
    expected = {1} if relays else set(range(0, len(parts), 2))
    assert set(wrong) == expected and len(told) == len(parts)
    assert all(why.startswith("amqp:decode-error byte ") for why in wrong.values())


@pytest.mark.parametrize("before", [b"", Message(header=Header(True)).encode()])
@pytest.mark.parametrize("bad", [CLAIMS, Message(data=[b"x" * 20]).encode()[:-1], Message(data=[b"0"]).encode() + b"!"])
def test_in_a_run_of_alike_messages(before: bytes, bad: bytes) -> None:
    """Runs are taken at once, where what precedes the body is the same."""
    rig = Rig()
    hub = rig.node("hub")
    client = rig.client(hub)
    link = client.sender("work")
    rig.settle()
    for number in range(100):
        link.send(before + (bad if number % 10 == 7 else Message(data=[b"%d" % number]).encode()), context=number)
    rig.settle()
    assert [number for number, why in refusals(client).items() if why] == list(range(7, 100, 10))
    assert hub.bodies("work") == [str(number) for number in range(100) if number % 10 != 7]


@pytest.mark.parametrize(
    "payload",
    [
        bytes.fromhex("005375b07fffffff") + body(LARGE).encode(),
        Message(data=[body(LARGE).encode()]).encode()[:-1],
        Message(data=[body(LARGE).encode()]).encode() + b"\0",
        Message(data=[body(LARGE).encode()]).encode() + CLAIMS,
        Message(data=[body(LARGE).encode(), b"x"], header=Header(True)).encode() + Message(value=1).encode(),
    ],
)
def test_large_ones_in_parts(payload: bytes) -> None:
    rig = Rig()
    node = start(rig)
    client, link = sending(rig, node)
    client.send(link, "1")
    link.send(payload, context=2)
    client.send(link, body(LARGE, "c"))
    rig.settle()
    rig.run(1)
    told = refusals(client)
    assert told.pop(2).startswith("amqp:decode-error byte ")
    assert not any(told.values()) and len(told) == 2
    assert node.bodies("work")[0] == "1" and node.queue("work").messages == 2
    consumer = rig.client(node)
    consumer.receiver("work")
    rig.settle()
    assert consumer.accept() == ["1", body(LARGE, "c")]
    rig.run(1)
    assert is_clean(node)


def _lax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes take from clients what an earlier version took; destinations look."""
    monkeypatch.setattr(incoming, "check", lambda payload: None)
    monkeypatch.setattr(plain_runs, "fault", lambda payload, at: None)
    monkeypatch.setattr(producer.ProducerLink, "keeps_faulty", True)


def dead(rig: Rig, node: Node) -> list[tuple[str, bytes]]:
    client = rig.client(node)
    link = client.receiver("$dead-letters")
    rig.settle()
    found = []
    for item in client.deliveries:
        at = item.payload.index(b"\x00\x53\x75")
        notes = Message.decode(item.payload[:at]).message_annotations or {}
        found.append((notes["x-opt-dead-letter-reason"], item.payload[at:]))
    assert link.attached
    return found


@pytest.mark.parametrize("order", ["none", "bounded", "strict"])
@pytest.mark.parametrize("large", [False, True])
def test_what_a_neighbour_of_an_earlier_version_holds_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, order: str, large: bool
) -> None:
    """A node on the way carries it, the destination puts it aside, and nothing behind it waits."""
    rig = Rig()
    options = {"limits": LIMITS}
    queues = {"queues": (QueueConfig(name="work", order=order),), **options}
    a, b, c = rig.line("a", "b", "c", a=options, b=options, c=queues)
    rig.run(3)
    _lax(monkeypatch)
    client = rig.client(a)
    link = client.sender("work@c")
    rig.settle()
    payload = CLAIMS + body(LARGE).encode() if large else CLAIMS
    for number in range(6):
        link.send(payload if number in (0, 3) else Message(data=[b"%d" % number]).encode(), context=number)
    rig.settle()
    assert not any(refusals(client).values())
    rig.run(5)
    assert c.bodies("work") == ["1", "2", "4", "5"]
    assert is_empty(a, b, c)
    assert not [line for line in (*a.logs, *b.logs, *c.logs) if "refused" in line]
    found = dead(rig, c)
    assert [carried for _, carried in found] == [payload] * 2
    assert all(why.startswith("no message: byte ") for why, _ in found)
