"""Links at a node: ends in any order, names that come again, tags, settle modes (CLIENTS 17, 18, 26, 37)."""

from itertools import permutations
from typing import Any

import pytest

from amqp.joined import performatives, wire
from amqp.node_player import Player
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from holdfast.amqp.wire.types import Symbol
from support.rig import Client, Node, Rig

BODY = b"\x00\x53\x75\xa0\x01x"


def opened() -> Player:
    node = Player()
    node.open(0)
    node.hear(0, AMQP_HEADER + wire(Open("c"), Begin(None, 0, 100, 100)))
    node.take(0)
    return node


def told(node: Player) -> list[Any]:
    return [value for _, value, _ in performatives(node.take(0))]


def producing(node: Player, snd: int = 2, rcv: int = 0) -> list[Any]:
    """A sender to `q` on handle 0; what it was told."""
    node.hear(0, wire(Attach("s", 0, False, snd, rcv, Source(), Target("q"), initial_delivery_count=0)))
    return told(node)


@pytest.mark.parametrize("role", [True, False])
@pytest.mark.parametrize("dynamic", [True, False])
def test_an_attach_with_its_detach_behind_it_is_answered(role: bool, dynamic: bool) -> None:
    """A client that changes its mind in one flight waits for both answers."""
    node = opened()
    address = None if dynamic else "q"
    attach = Attach("l", 0, role, source=Source(address, dynamic=dynamic and role), initial_delivery_count=0)
    attach.target = Target(address, dynamic=dynamic and not role)
    node.hear(0, wire(attach, Detach(0, True), attach))
    kinds = [type(value) for value in told(node)]
    assert kinds == [Attach, Detach, Attach] + ([] if role else [Flow])
    assert len(node.core.catalog.queues) == 1 + dynamic


def consumers(hub: Node) -> tuple[Client, Client]:
    """One that holds three messages unsettled over two links, and another that is waiting."""
    rig = hub.rig
    one, two = rig.client(hub), rig.client(hub)
    sender = one.sender("work", name="s")
    one.receiver("work", name="r1", credit=2)
    rig.settle()
    for number in range(3):
        one.send(sender, str(number))
    rig.settle()
    one.receiver("work", name="r2", credit=1)
    rig.settle()
    assert sorted(one.bodies()) == ["0", "1", "2"]
    two.receiver("work")
    rig.settle()
    return one, two


@pytest.mark.parametrize(
    "order",
    [
        order
        for size in (1, 2, 3, 4, 5)
        for order in permutations(["detach r1", "detach r2", "detach s", "end", "close", "cut"], size)
        if {"end", "close", "cut"} & {order[-1]} and not {"end", "close", "cut"} & set(order[:-1])
    ],
)
def test_what_was_held_is_there_for_others_whatever_ended_first(order: tuple[str, ...]) -> None:
    hub = Rig().node("hub")
    one, two = consumers(hub)
    links = {link.name: link for link in one.session.links.values()}
    for step in order:
        if step.startswith("detach"):
            links[step.removeprefix("detach ")].detach()
        elif step == "end":
            one.session.end()
        elif step == "close":
            one.amqp.close()
        else:
            one.close_transport()
    hub.rig.run(1)
    assert sorted(two.bodies()) == ["0", "1", "2"]
    assert two.accept() and not hub.core.links.producers_of(hub.queue("work"))
    hub.rig.run(1)
    assert hub.queue("work").messages == 0


def test_the_same_name_again_on_a_session_gives_the_newer_link_what_the_older_held() -> None:
    node = opened()
    producing(node)
    consumer = Attach("r", 1, True, source=Source("q"), target=Target())
    node.hear(0, wire((Transfer(0, 0, b"t"), BODY), consumer, Flow(0, 9, 1, 9, 1, 0, 5)))
    assert [type(value) for value in told(node)] == [Attach, Disposition, Transfer]
    again = Attach("r", 2, True, source=Source("q"), target=Target())
    node.hear(0, wire(again, Flow(1, 9, 1, 9, 2, 0, 5)))
    detach, attach, transfer = told(node)
    assert detach.error.condition == "amqp:link:stolen" and attach.name == "r" and transfer.handle == attach.handle
    node.hear(0, wire(Detach(1, True), Disposition(True, transfer.delivery_id, None, True, Accepted())))
    assert told(node) == []
    node.wait(1)
    assert node.core.catalog.queues["q"].messages == 0


@pytest.mark.parametrize("other", ["session", "connection"])
def test_the_same_name_on_another_session_or_connection_is_another_link(other: str) -> None:
    """Proton names links by the address: two consumers of one program share theirs (docs/amqp.md, "Link names")."""
    hub = Rig().node("hub")
    one = hub.rig.client(hub, container_id="c")
    first = one.receiver("work", name="c-work", credit=1)
    hub.rig.settle()
    if other == "session":
        two = one
        second = one.amqp.begin().attach_receiver("c-work", Source("work"), Target())
        second.grant(1)
    else:
        two = hub.rig.client(hub, container_id="c")
        second = two.receiver("work", name="c-work", credit=1)
    sender = one.sender("work")
    hub.rig.settle()
    for number in range(2):
        one.send(sender, str(number))
    hub.rig.settle()
    assert first.attached and second.attached
    assert len(one.bodies(first)) == len(two.bodies(second)) == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (b"\0", b"\0"), (b"1", b"2"), (bytes(4), bytes(3) + b"\1"), (bytes(8), bytes(8)), (b"", b""),
        (b"x" * 32, b"y" * 32),
    ],
)  # fmt: skip
def test_a_tag_of_any_kind_is_taken_and_names_nothing(one: bytes, two: bytes) -> None:
    """CLIENTS 26: one byte used again at once, four or eight bytes, digits; equal tags are two messages."""
    node = opened()
    producing(node)
    node.hear(0, wire((Transfer(0, 0, one), BODY), (Transfer(0, 1, two), BODY)))
    assert told(node)[-1] == Disposition(True, 0, 1, True, Accepted())
    assert node.core.catalog.queues["q"].messages == 2


def test_a_tag_beyond_32_bytes_ends_its_link() -> None:
    node = opened()
    producing(node)
    node.hear(0, wire((Transfer(0, 0, b"x" * 33), BODY)))
    assert told(node)[-1].error.condition == "amqp:invalid-field"
    node.hear(0, wire(Detach(0, True)))
    assert [type(value) for value in producing(node)] == [Attach, Flow]


def test_our_tags_are_short_and_each_its_own_while_unsettled() -> None:
    node = opened()
    producing(node)
    node.hear(0, wire(*((Transfer(0, number, b"t"), BODY) for number in range(10))))
    node.take(0)
    node.hear(0, wire(Attach("r", 1, True, source=Source("q"), target=Target()), Flow(0, 99, 9, 9, 1, 0, 10)))
    tags = [value.delivery_tag for value in told(node) if isinstance(value, Transfer)]
    assert len(tags) == len(set(tags)) == 10 and all(0 < len(tag) <= 32 for tag in tags)


@pytest.mark.parametrize("snd", [0, 1, 2])
@pytest.mark.parametrize("rcv", [0, 1])
@pytest.mark.parametrize("settled", [False, True])
def test_every_pair_of_settle_modes_brings_a_message_in_and_out(snd: int, rcv: int, settled: bool) -> None:
    """In: answered settled, whichever mode. Out: as asked, and mode second waits for the node's settlement."""
    node = opened()
    attach, _ = producing(node, snd, rcv)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (snd, rcv)
    node.hear(0, wire((Transfer(0, 7, b"t", settled=settled or None), BODY)))
    assert told(node) == ([] if settled else [Disposition(True, 7, 7, True, Accepted())])
    node.hear(0, wire(Attach("r", 1, True, snd, rcv, Source("q"), Target()), Flow(0, 9, 1, 9, 1, 0, 5)))
    attach, transfer = told(node)
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (snd, rcv)
    assert transfer.settled is (snd == 1)
    if snd != 1:
        node.hear(0, wire(Disposition(True, transfer.delivery_id, None, rcv == 0, Accepted(), batchable=True)))
        assert told(node) == ([Disposition(False, 0, 0, True, Accepted())] if rcv else [])
    node.wait(1)
    assert node.core.catalog.queues["q"].messages == 0


@pytest.mark.parametrize("last", [Detach(1, True), End(), Close()])
def test_an_outcome_that_is_not_settled_counts_though_its_link_ends_at_once(last: Any) -> None:
    """Mode second: the node has heard the outcome; only its answer finds nobody."""
    node = opened()
    producing(node)
    receiver = Attach("r", 1, True, 0, 1, Source("q"), Target())
    node.hear(0, wire((Transfer(0, 0, b"t"), BODY), receiver, Flow(0, 9, 1, 9, 1, 0, 5)))
    node.take(0)
    node.hear(0, wire(Disposition(True, 0, None, False, Accepted()), last))
    node.wait(1)
    assert node.core.catalog.queues["q"].messages == 0


@pytest.mark.parametrize("other", ["session", "connection"])
def test_a_durable_subscription_has_one_reader_the_newest(other: str) -> None:
    """What must have one holder is known by its own name, and the newer link gets what the older held."""
    hub = Rig().node("hub")
    rig = hub.rig
    one = rig.client(hub, container_id="c")
    lasting = {"durable": 2, "expiry_policy": Symbol("never")}
    first = one.receiver("work", name="sub", source=lasting)
    sender = one.sender("work")
    rig.settle()
    one.send(sender, "1")
    rig.settle()
    assert one.bodies(first) == ["1"]
    if other == "session":
        two = one
        second = one.amqp.begin().attach_receiver("sub", Source("work", **lasting), Target())
        second.grant(5)
    else:
        two = rig.client(hub, container_id="c")
        second = two.receiver("work", name="sub", source=lasting)
    rig.settle()
    assert [item.error.condition for item in one.detached if item.error] == ["amqp:link:stolen"]
    assert two.bodies(second) == ["1"] and first.detached


def test_a_newer_link_for_the_same_answers_stays_when_the_older_one_ends() -> None:
    rig = Rig()
    client = rig.client(rig.node("hub"))
    source, target = Source(address="$management"), Target(address="replies")
    older = client.session.attach_receiver("older", source, target)
    rig.settle()
    newer = client.session.attach_receiver("replies", source, target)
    newer.grant(10)
    rig.settle()
    client._management = client.sender("$management"), newer
    rig.settle()
    older.detach(closed=True)
    rig.settle()
    assert client.manage("STATUS", "node")[0] == 200
