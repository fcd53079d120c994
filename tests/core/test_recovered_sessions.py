"""A session with a neighbour of which a step fails: what the step was to do is done all the same (ADR 0019)."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from holdfast.custody.hop.next_hop import NextHop
from holdfast.custody.hop.sender import CustodySender
from holdfast.endpoints.producer import ProducerLink
from holdfast.peering.sessions import Neighbour
from holdfast.peers.neighbours.session_states import State
from holdfast.settings.queues import QueueConfig
from support.hops import apart, names, send
from support.rig import Node, Rig

STRICT = (QueueConfig(name="work", order="strict"),)


class Defect(Exception):
    """Raised where nothing is wrong."""


class Told:
    """Stands for routing: whether it may use the link, as it was told last; it is never told the same twice."""

    closed = False

    def __init__(self) -> None:
        self.costs: dict[str, int] = {}
        self.calls: list[bool] = []

    def link_up(self, neighbour: Neighbour) -> None:
        self.calls.append(True)

    def link_down(self, neighbour: Neighbour) -> None:
        if self.calls and self.calls[-1]:  # it is said of dials that failed too
            self.calls.append(False)

    def cost_measured(self, *_: object) -> None:
        assert self.calls and self.calls[-1]


def core_of(node: Node) -> Any:
    assert node.core is not None
    return node.core


def failing_once(patch: pytest.MonkeyPatch, owner: Any, function: str, *, done: bool) -> list[Defect]:
    """The next call of that function fails, before it does anything or when all is `done`; empty once it has."""
    left = [Defect(f"of {function}")]
    whole: Callable[..., Any] = getattr(owner, function)

    def call(*arguments: Any, **options: Any) -> Any:
        if not left:
            return whole(*arguments, **options)
        error = left.pop()
        if done:
            whole(*arguments, **options)
        raise error

    patch.setattr(owner, function, call)
    return left


def joined() -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, hub = rig.pair(queues=STRICT)
    for node in (jfk, hub):
        core_of(node).session_parts.routing = Told()
    rig.run(1)
    assert core_of(jfk).neighbours["hub"].established
    return rig, jfk, hub


def check_whole(rig: Rig, jfk: Node, hub: Node, bodies: list[str]) -> None:
    """The session is there again, and what was sent is there once."""
    rig.run(40)
    for node in (jfk, hub):
        (session,) = core_of(node).neighbours.values()
        assert session.established and session.offered and session.hop.peer is session.peer
        assert not core_of(node).containment.resting
        calls = core_of(node).session_parts.routing.calls
        assert calls[-1] and all(one is not other for one, other in pairwise(calls)), calls
        core_of(node).validate()
    assert hub.bodies("work") == bodies
    send(rig, jfk, "last", to="hub")
    rig.run(2)
    assert hub.bodies("work") == [*bodies, "last"] and not core_of(jfk).catalog.queues["@hub"].messages


LOSING = [
    (Neighbour, "lost"), (Neighbour, "_let_go"), (Neighbour, "_move"), (Neighbour, "_fell"), (Neighbour, "_dial_later"),
    (NextHop, "session_lost"), (CustodySender, "lost"), (Told, "link_down"),
]  # fmt: skip


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("side", ["jfk", "hub"])
@pytest.mark.parametrize(("owner", "function"), LOSING, ids=[f"{owner.__name__}.{name}" for owner, name in LOSING])
def test_a_session_whose_loss_fails_comes_back(owner: Any, function: str, side: str, done: bool) -> None:
    rig, jfk, hub = joined()
    hub.hold_commits = True
    send(rig, jfk, *names(1, 3), to="hub")  # in doubt
    node = {"jfk": jfk, "hub": hub}[side]
    (session,) = core_of(node).neighbours.values()
    with pytest.MonkeyPatch.context() as patch:
        left = failing_once(patch, owner, function, done=done)
        (end,) = [end for wire in rig.between("jfk", "hub") for end in wire.ends if end.node is node]
        end.lose("cut")
        hub.hold_commits = False
        if not left:
            assert session.state is State.IDLE and session.peer is None and not session.offered
            assert session.control is None and session.hop.peer is None
            assert session.flaps == 1 or function in ("_let_go", "session_lost")  # the count was cut off with the rest
            assert all(sender.link is None for sender in session.hop.senders.values())
            assert (session.dial_at is not None) == (side == "jfk")
        rig.settle()
        apart(rig, "jfk", "hub")
    assert not left or (side == "hub" and owner is CustodySender)  # the hub sends nothing
    check_whole(rig, jfk, hub, names(1, 3))


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("function", ["connect_failed", "_dial_ended", "_move", "_dial_later"])
def test_a_dial_whose_failure_fails_is_tried_again(function: str, done: bool) -> None:
    rig, jfk, hub = joined()
    rig.refuse_dials = True
    apart(rig, "jfk", "hub")
    session = core_of(jfk).neighbours["hub"]
    while not rig.dials:
        rig.move() or rig.pass_time(0.01)
    send_later = names(1, 2)
    with pytest.MonkeyPatch.context() as patch:
        left = failing_once(patch, Neighbour, function, done=done)
        rig.connect()
    assert not left and session.state is State.IDLE and not session.dialling
    assert session.dial_at is not None and session.dial_at <= rig.now + 5
    rig.refuse_dials = False
    send(rig, jfk, *send_later, to="hub")
    check_whole(rig, jfk, hub, send_later)


COMING = [(Neighbour, "connected"), (Neighbour, "opened"), (Neighbour, "_maybe_established"), (Neighbour, "_offer")]


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(
    ("owner", "function"), [*COMING, (NextHop, "session_up"), (Told, "link_up")], ids=lambda item: str(item)[:40]
)
def test_a_session_whose_beginning_fails_comes(owner: Any, function: str, done: bool) -> None:
    rig, jfk, hub = joined()
    apart(rig, "jfk", "hub")
    send(rig, jfk, *names(1, 2), to="hub")
    with pytest.MonkeyPatch.context() as patch:
        left = failing_once(patch, owner, function, done=done)
        rig.run(10)
    assert not left
    check_whole(rig, jfk, hub, names(1, 2))


def test_a_failure_of_another_leaves_a_session_as_it_is() -> None:
    """Neither one that stands nor a dial under way is begun anew."""
    rig, jfk, hub = joined()
    session = core_of(jfk).neighbours["hub"]
    peer, dials = session.peer, session.dials
    fail_for_a_client(rig, jfk)
    assert session.peer is peer and session.established and session.flaps == 0
    apart(rig, "jfk", "hub")
    while not rig.dials:
        rig.move() or rig.pass_time(0.01)
    under_way, rig.dials = rig.dials, []
    assert session.state is State.CONNECT and session.dials == dials + 1
    fail_for_a_client(rig, jfk)
    assert session.state is State.CONNECT and session.dialling and not rig.dials
    rig.dials = under_way
    rig.run(1)
    assert session.established and session.dials == dials + 1
    check_whole(rig, jfk, hub, [])


def fail_for_a_client(rig: Rig, node: Node) -> None:
    client = rig.client(node)
    link = client.sender("other")
    rig.settle()
    ended = core_of(node).containment.peers_ended
    with pytest.MonkeyPatch.context() as patch:
        left = failing_once(patch, ProducerLink, "take", done=False)
        client.send(link, "a")
        rig.settle()
    assert not left and client.over and core_of(node).containment.peers_ended == ended + 1


def test_a_node_that_stops_dials_nobody_whatever_fails() -> None:
    rig, jfk, hub = joined()
    session = core_of(jfk).neighbours["hub"]
    core_of(jfk).stopping = True  # as of the signal on; its connections are still there
    with pytest.MonkeyPatch.context() as patch:
        left = failing_once(patch, Neighbour, "_let_go", done=False)
        apart(rig, "jfk", "hub")
    assert not left and session.state is State.IDLE and session.dial_at is None
    assert hub.core is not None
