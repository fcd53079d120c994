"""A message of a topic for several nodes behind one neighbour: its bare message crosses each line once (CUSTODY, "The
hop", 8; docs/adr/0102)."""

from typing import Any
from uuid import UUID

import pytest

from holdfast.amqp.connection import Sender
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.custody.transfers import carried
from holdfast.errors import RemoteProtocolError
from holdfast.peers.neighbours import features
from holdfast.peers.neighbours.shared_bodies import (
    BESIDE_BYTES,
    BODY_BYTES_MAX,
    BODY_BYTES_MIN,
    BODY_OF,
    KEPT_AS,
    NOT_KEPT,
    NOTHING,
    WINDOW_BYTES,
    GivenBodies,
    TakenBodies,
)
from holdfast.settings.limits import Limits
from support.federated import DURABLE, federate, publisher, subscribe
from support.liars import connect, custody_link
from support.rig import Client, Node, Rig
from support.routing import network
from support.standing import core_of
from support.wires import listen

SIZE = 2_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def body(number: int) -> str:
    return f"message-{number:06d} ".ljust(SIZE, "x")


def publish(rig: Rig, sender: tuple[Client, Sender], *numbers: int, **options: Any) -> None:
    for number in numbers:
        sender[0].send(sender[1], body(number), properties=Properties(subject="s"), **options)
    rig.run(1)


def line(rig: Rig, limits: Limits = Limits()) -> tuple[list[Node], list[Client]]:
    """a - b - c - d, and e behind b; a durable subscription at each but a."""
    nodes = network(rig, "a-b", "b-c", "c-d", "b-e", **{name: {"limits": limits} for name in "abcde"})
    rig.run(3)
    federate(rig, "a-b", "b-c", "c-d", "b-e")
    rig.run(3)
    return nodes, [subscribe(rig, node, name="d", source=DURABLE)[0] for node in nodes[1:]]


def times(heard: dict[tuple[str, str], bytearray], here: str, there: str, number: int) -> int:
    return heard[here, there].count(body(number).encode())


def test_a_bare_message_crosses_each_line_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = listen(monkeypatch)
    nodes, clients = line(rig)
    sender = publisher(rig, nodes[0])
    numbers = range(30)
    publish(rig, sender, *numbers)
    rig.run(3)
    for client in clients:
        assert client.bodies() == [body(number) for number in numbers]
    for here, there in (("a", "b"), ("b", "c"), ("c", "d"), ("b", "e")):
        assert {times(heard, here, there, number) for number in numbers} == {1}, (here, there)
    assert [
        core_of(nodes[0]).neighbours["b"].hop.messages_shared,
        core_of(nodes[1]).neighbours["c"].hop.messages_shared,
    ] == [90, 30]
    told = rig.client(nodes[0]).manage("STATUS", "node")[1]["sessions"]
    assert [row["messages_shared"] for row in told] == [90]


def test_it_is_sent_whole_to_a_node_that_keeps_none(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = listen(monkeypatch)
    earlier = tuple(one for one in features.ALL if one != features.BODIES)
    monkeypatch.setattr(features, "ALL", earlier)
    monkeypatch.setattr(features.offered_by, "__defaults__", (earlier,))
    nodes, clients = line(rig)
    publish(rig, publisher(rig, nodes[0]), 1)
    rig.run(3)
    assert [client.bodies() for client in clients] == [[body(1)]] * 4
    assert times(heard, "a", "b", 1) == 4 and times(heard, "b", "c", 1) == 2


def test_what_waited_for_a_cut_line_is_shared_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, clients = line(rig)
    sender = publisher(rig, nodes[0])
    nodes[1].crash()
    publish(rig, sender, *range(100))
    heard = listen(monkeypatch)
    nodes[1].start()
    rig.run(10)
    assert sum(times(heard, "a", "b", number) for number in range(100)) == 100
    again = subscribe(rig, nodes[1], name="d", source=DURABLE)[0]
    for client in (again, *clients[1:]):
        assert client.bodies() == [body(number) for number in range(100)]


def test_each_comes_once_and_in_order_over_cuts(rig: Rig) -> None:
    nodes, _ = line(rig)
    sender = publisher(rig, nodes[0])
    for first in range(0, 40, 8):
        for number in range(first, first + 8):
            sender[0].send(sender[1], body(number), properties=Properties(subject="s"))
        for _ in range(rig.random.randint(20, 200)):
            rig.move()
        for wire in rig.between(*rig.random.choice((("a", "b"), ("b", "c")))):
            wire.cut(silent=rig.random.random() < 0.5)
        rig.run(20)
    for node in nodes[1:]:
        client, _ = subscribe(rig, node, name="d", source=DURABLE)
        assert client.bodies() == [body(number) for number in range(40)]


def test_who_does_not_have_what_is_named_says_so_and_is_sent_whole_messages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = listen(monkeypatch)
    nodes, clients = line(rig)
    monkeypatch.setattr(TakenBodies, "keep", lambda self, number, body: None)
    sender = publisher(rig, nodes[0])
    publish(rig, sender, 1)
    rig.run(10)
    publish(rig, sender, 2)
    rig.run(3)
    assert [client.bodies() for client in clients] == [[body(1), body(2)]] * 4
    assert times(heard, "a", "b", 2) == 4, "whole from then on"
    assert any("whole messages are sent on this connection from now on" in text for text in nodes[0].logs)
    assert core_of(nodes[0]).neighbours["b"].established


@pytest.mark.parametrize("size", [BODY_BYTES_MIN - 200, BODY_BYTES_MAX])
def test_short_and_long_messages_go_whole(rig: Rig, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    heard = listen(monkeypatch)
    nodes, clients = line(rig)
    client, link = publisher(rig, nodes[0])
    text = "short or long ".ljust(size, "x")
    client.send(link, text, properties=Properties(subject="s"))
    rig.run(3)
    assert [each.bodies() for each in clients] == [[text]] * 4
    assert heard["a", "b"].count(text[:50].encode()) == 4


def test_a_message_in_parts_is_not_shared(rig: Rig) -> None:
    """A node takes what is larger than `stream_bytes` in parts, and keeps none of it."""
    nodes, clients = line(rig, limits=Limits(stream_bytes=1_000))
    publish(rig, publisher(rig, nodes[0]), 1, 2)
    rig.run(5)
    assert [client.bodies() for client in clients] == [[body(1), body(2)]] * 4
    assert not any("whole messages are sent" in text for node in nodes for text in node.logs)


def test_header_and_annotations_are_each_copy_s_own(rig: Rig) -> None:
    nodes, clients = line(rig)
    publish(rig, publisher(rig, nodes[0]), 1, header=Header(durable=True, priority=7, ttl=600_000),
            message_annotations={Symbol("x-mine"): "yes"})  # fmt: skip
    rig.run(3)
    for client in clients:
        (message,) = client.messages()
        assert message.header is not None and message.header.priority == 7 and message.header.ttl is not None
        assert message.message_annotations is not None and message.message_annotations[Symbol("x-mine")] == "yes"


def in_custody(number: int, told: bytes, bare: bytes) -> bytes:
    section = carried.write(
        UUID(int=7).bytes + number.to_bytes(8, "big"),
        number,
        to=b"work",
        trace=UUID(int=8).bytes,
        receipt=0,
        shared=told,
    )
    return section + bare


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (encode(BODY_OF) + encode(Ulong(9)), "nothing is kept as '9'"),
        (encode(BODY_OF) + encode("x"), "nothing is kept as 'x'"),
        (encode(KEPT_AS) + encode(Ulong(9)), "invalid x-opt-holdfast-body-kept '9' with 12 bytes"),
        (encode(KEPT_AS) + encode(-1), "invalid x-opt-holdfast-body-kept '-1'"),
    ],
)
def test_a_neighbour_that_names_nonsense_loses_that_link_alone(rig: Rig, told: bytes, text: str) -> None:
    _, hub = rig.pair(start=False)
    hub.start()
    liar = connect(rig, hub)
    link = custody_link(rig, liar, "custody0")
    link.send(in_custody(1, told, b"\x00\x53\x75\xa0\x07nothing"), context=1)
    rig.settle()
    assert link.detached and text in link.error.description
    assert any("neighbour jfk" in line and text in line for line in hub.logs)
    other = custody_link(rig, liar, "custody1")
    other.send(in_custody(1, b"", b"\x00\x53\x75\xa0\x01x"), context=1)
    rig.settle()
    assert not other.detached and hub.bodies("work") == ["x"]


def test_a_body_is_kept_though_its_own_link_takes_nothing_more(rig: Rig) -> None:
    """Others that name it were sent before its sender could know."""
    _, hub = rig.pair(start=False)
    hub.start()
    liar = connect(rig, hub)
    links = [custody_link(rig, liar, "custody0"), custody_link(rig, liar, "custody1")]  # the second fences the first
    bare = b"\x00\x53\x75\xb0" + (300).to_bytes(4, "big") + b"x" * 300
    links[0].send(in_custody(1, encode(KEPT_AS) + encode(Ulong(1)), bare), context=1)
    links[1].send(in_custody(1, encode(BODY_OF) + encode(Ulong(1)), NOTHING), context=1)
    rig.settle()
    assert hub.bodies("work") == ["x" * 300]


# ---------------------------------------------------------------------------------------------------- the two ends


def given(*bodies: bytes) -> tuple[GivenBodies, list[tuple[bytes, Any]]]:
    end = GivenBodies()
    return end, [end.share(each, keeps=True) for each in bodies]


def test_a_second_transfer_names_what_the_first_brought() -> None:
    end, [(told, first), (named, second)] = given(b"x" * 300, b"x" * 300)
    assert first == b"x" * 300 and second == NOTHING and b"body-kept" in told and b"body-of" in named
    assert end.share(b"y" * 300, keeps=False) == (b"", b"y" * 300), "nobody else wants it"


def test_the_oldest_are_forgotten_at_both_ends_alike() -> None:
    size = 1_000
    most = WINDOW_BYTES // (size + BESIDE_BYTES)
    bodies = [b"%d" % number + b"x" * (size - len(b"%d" % number)) for number in range(most + 1)]
    end, taken = GivenBodies(), TakenBodies()
    for number, each in enumerate(bodies[:-1], 1):
        end.share(each, keeps=True)
        taken.keep(number, each)
    assert end.share(bodies[0], keeps=True)[1] == NOTHING and taken.body_of(1) == bodies[0]
    end.share(bodies[-1], keeps=True)
    taken.keep(most + 1, bodies[-1])
    assert end.share(bodies[0], keeps=False)[1] == bodies[0]
    with pytest.raises(RemoteProtocolError) as raised:
        taken.body_of(1)
    assert raised.value.condition == NOT_KEPT
    assert end.held_bytes == taken.held_bytes <= WINDOW_BYTES


def test_what_may_be_overtaken_is_not_named() -> None:
    end, _ = given(b"x" * 300)
    end.held_back()
    end.held_back()  # something waits, and then something else does
    assert end.share(b"x" * 300, keeps=False)[1] == b"x" * 300
    end, _ = given(b"x" * 300)
    end.forget()
    assert end.share(b"x" * 300, keeps=False)[1] == b"x" * 300


@pytest.mark.parametrize(
    ("number", "size"),
    [(0, 300), (-1, 300), (2**64, 300), ("1", 300), (None, 300), (True, 300), (7, 300), (8, BODY_BYTES_MIN - 1),
     (8, BODY_BYTES_MAX + 1)],
)  # fmt: skip
def test_what_no_node_has_kept_is_refused(number: object, size: int) -> None:
    taken = TakenBodies()
    taken.keep(7, b"x" * BODY_BYTES_MIN)
    taken.keep(9, b"x" * BODY_BYTES_MAX)
    with pytest.raises(RemoteProtocolError):
        taken.keep(number, b"x" * size)


@pytest.mark.parametrize("number", [0, 8, 2**64, "7", None, True, 7.0, [7]])
def test_what_is_not_kept_cannot_be_named(number: object) -> None:
    taken = TakenBodies()
    taken.keep(7, b"x" * 300)
    with pytest.raises(RemoteProtocolError):
        taken.body_of(number)


def test_a_node_with_little_memory_for_its_neighbours_keeps_none(rig: Rig) -> None:
    """What all of them may have it keep takes at most a quarter of its memory."""
    least = 8 * WINDOW_BYTES
    a, b, _ = network(rig, "a-b", "c-a", a={"limits": Limits(memory_bytes_max=2 * least)},
                      b={"limits": Limits(memory_bytes_max=least)},
                      c={"limits": Limits(memory_bytes_max=least - 1)})  # fmt: skip
    rig.run(3)
    assert core_of(a).neighbours["c"].established
    assert features.BODIES in core_of(b).neighbours["a"].features
    assert features.BODIES not in core_of(a).neighbours["c"].features
