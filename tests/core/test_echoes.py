"""An outcome that a peer hears again fits its own frames, however long it made it, and costs nobody else anything."""

from typing import Any

import pytest

from holdfast.amqp.links.sender import Sender
from holdfast.amqp.wire.frames import bounded
from holdfast.amqp.wire.performatives import Accepted, Disposition, Error, Modified, Rejected, Released, Transfer
from holdfast.amqp.wire.types import Symbol
from support.one_node import fill, world
from support.rig import Client, Node, Rig

LONG: dict[str, Any] = {
    "condition": Rejected(Error(Symbol("c" * 485))),
    "longer condition": Rejected(Error(Symbol("c" * 5_000))),
    "words": Rejected(Error(Symbol("x:y"), "w" * 5_000)),
    "info": Rejected(Error(Symbol("x:y"), "words", {Symbol("why"): "w" * 600})),
    "annotations": Modified(True, False, {Symbol("x-opt-why"): "w" * 600}),
    "accepted": Accepted(),
    "released": Released(),
}
TIMED = {"timeout": 60}


def small(rig: Rig, node: Node) -> Client:
    """A client that takes frames of 512 bytes and sends as long ones as the node takes."""
    client = rig.client(node, max_frame_size=512)
    rig.settle()
    client.amqp.frame_size_out = 65_536
    return client


def speak(rig: Rig, client: Client) -> None:
    """All that the client has to say arrives, and no turn ends."""
    client.flush()
    assert client.end is not None
    node_end = client.end.wire.other(client.end)
    rig._deliver(node_end)


def another(rig: Rig, node: Node) -> tuple[Client, Any]:
    good = rig.client(node)
    link = good.sender("other")
    rig.settle()
    return good, link


def meanwhile(rig: Rig, node: Node, good: Client, link: Any) -> None:
    """What the other brings joins the turn that is gathered while a commit is out, which then comes back."""
    node.hold_commits = True
    rig.run(0.1)  # what only retires waits for that long; where no commit is needed, none is out
    good.send(link, "good")
    speak(rig, good)
    node.hold_commits = False
    rig.run(1)


def check(rig: Rig, node: Node, client: Client, good: Client) -> None:
    core = node.core
    assert core is not None
    assert core.containment.peers_ended == core.containment.parts_failed == 0 and not client.over
    assert [type(state) for _, state in good.outcomes] == [Accepted] and node.bodies("other") == ["good"]
    core.validate()


@pytest.mark.parametrize("kind", ["consumer", "reader"])
@pytest.mark.parametrize("said", LONG)
def test_what_a_receiver_that_settles_second_says(kind: str, said: str) -> None:
    rig, node, producer = world()
    fill(rig, producer, 1)
    client = small(rig, node)
    source = {"distribution_mode": Symbol("copy")} if kind == "reader" else {}
    client.receiver("work", rcv_settle_mode=1, source=source)
    rig.settle()
    (item,) = client.deliveries
    good, link = another(rig, node)
    client.session.write_disposition(True, item.delivery_id, item.delivery_id, False, LONG[said])
    meanwhile(rig, node, good, link)
    check(rig, node, client, good)
    assert item.delivery_id not in client.session.unsettled_in


@pytest.mark.parametrize("said", LONG)
def test_what_the_map_of_a_consumer_that_is_resumed_says(said: str) -> None:
    rig, node, producer = world()
    fill(rig, producer, 2)
    first = rig.client(node)
    first.receiver("work", name="r", source=TIMED, unsettled={})
    rig.settle()
    tags = [item.tag for item in first.deliveries]
    first.close_transport()
    rig.settle()
    client, (good, link) = small(rig, node), another(rig, node)
    client.receiver("work", name="r", source=TIMED, unsettled={tags[0]: LONG[said], tags[1]: None})
    meanwhile(rig, node, good, link)
    check(rig, node, client, good)
    resumed = [item for item in client.deliveries if item.resume]
    assert [(item.tag, item.settled) for item in resumed] == [(tags[0], True), (tags[1], False)]


def test_an_answer_that_fails_costs_nobody_else_what_he_brought_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changed nothing of the turn that is gathered by then."""
    rig, node, producer = world()
    fill(rig, producer, 1)
    client, (good, link) = rig.client(node), another(rig, node)
    client.receiver("work", rcv_settle_mode=1)
    rig.settle()
    (item,) = client.deliveries

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Sender, "settle", fail)
    client.session.write_disposition(True, item.delivery_id, item.delivery_id, False, Rejected())
    meanwhile(rig, node, good, link)
    assert node.core is not None and node.core.containment.peers_ended == 1 and client.over
    assert [type(state) for _, state in good.outcomes] == [Accepted] and node.bodies("other") == ["good"]


@pytest.mark.parametrize("limit", [100, 504, 4_000])
@pytest.mark.parametrize("said", LONG)
def test_the_frame_says_as_much_as_fits_and_changes_nothing_of_what_was_said(said: str, limit: int) -> None:
    state = LONG[said]
    before = repr(state)
    for performative in (Disposition(False, 1, 1, True, state), Transfer(1, 2, b"tag!", 0, True, state=state)):
        assert len(bounded(performative, limit)) <= limit
    assert repr(state) == before
