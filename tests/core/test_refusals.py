"""Who is one connection too many is told which bound it is, and few such answers are under way at once."""

from typing import Any

import pytest

from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import Close, Open
from holdfast.peers.limits.refusals import REFUSAL_S, REFUSALS_MAX
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from support.limits import RESOURCE
from support.raw import HELLO, Raw, opened
from support.rig import Node, Rig

BOUNDS = [
    ("connections_max", "this node has 2 connections of clients, the most there may be (connections_max)"),
    (
        "address_connections_max",
        "address 10.0.0.1 has 2 connections, the most that one address may have (address_connections_max)",
    ),
    (
        "user_connections_max",
        "clients without a name have 2 connections, the most they may have (user_connections_max)",
    ),
]


def hub_with(rig: Rig, bound: str, **more: Any) -> Node:
    return rig.node("hub", limits=Limits(**{bound: 2}, **more))


def reason(said: list[Any]) -> tuple[str, str]:
    """Condition and description of the close that answers an open."""
    assert [type(item) for item in said] == [Open, Close]
    return str(said[1].error.condition), str(said[1].error.description)


@pytest.mark.parametrize(("bound", "text"), BOUNDS)
def test_one_more_is_told_which_bound_it_is(bound: str, text: str) -> None:
    rig = Rig()
    hub = hub_with(rig, bound)
    kept = [opened(rig, hub) for _ in range(2)]
    more = Raw(rig, hub)
    assert reason(more.say(HELLO)) == (RESOURCE, text)
    assert more.alive, "it answers the close first: else its system could throw away what it has not read"
    more.say(Close())
    assert not more.alive and all(peer.alive for peer in kept)
    assert [line for line in hub.logs if text in line]


def test_a_user_is_told_of_its_own_bound() -> None:
    rig = Rig()
    hub = rig.node("hub", users=(UserConfig(name="ann", password="a", connections_max=1),))
    first = rig.client(hub, mechanism="PLAIN", user="ann", password="a")
    rig.settle()
    more = rig.client(hub, mechanism="PLAIN", user="ann", password="a")
    rig.settle()
    assert not first.over and more.over
    assert hub.core is not None and [row["refused"] for row in hub.core.users.status("") if row["user"] == "ann"] == [1]
    assert [line for line in hub.logs if "user 'ann' has 1 connections, the most it may have (connections_max" in line]


@pytest.mark.parametrize("bound", [bound for bound, _ in BOUNDS])
def test_who_does_not_answer_the_close_takes_no_place_and_goes_soon(bound: str) -> None:
    rig = Rig()
    hub = hub_with(rig, bound)
    kept = [opened(rig, hub) for _ in range(2)]
    silent = [opened(rig, hub) for _ in range(3)]
    assert all(peer.alive for peer in silent)
    kept[0].say(Close())
    assert opened(rig, hub).alive and hub.core is not None
    hub.core.validate()
    rig.run(REFUSAL_S - 0.1)
    assert all(peer.alive for peer in silent)
    rig.run(0.2)
    assert not any(peer.alive for peer in silent) and kept[1].alive
    hub.core.validate()


@pytest.mark.parametrize("bound", [bound for bound, _ in BOUNDS])
def test_at_most_so_many_refusals_are_under_way(bound: str) -> None:
    """The one that has had its answer for longest goes for the next."""
    rig = Rig()
    hub = hub_with(rig, bound)
    kept = [opened(rig, hub) for _ in range(2)]
    silent = [opened(rig, hub) for _ in range(REFUSALS_MAX)]
    assert all(peer.alive for peer in silent)
    more = Raw(rig, hub)
    assert reason(more.say(HELLO))[0] == RESOURCE
    assert [peer.alive for peer in silent] == [False] + [True] * (REFUSALS_MAX - 1)
    assert all(peer.alive for peer in kept) and hub.core is not None
    assert len(hub.core.connections) == 2 + REFUSALS_MAX
    hub.core.validate()


def test_who_goes_on_talking_has_no_longer() -> None:
    rig = Rig()
    hub = hub_with(rig, "connections_max")
    for _ in range(2):
        opened(rig, hub)
    more = opened(rig, hub)
    for _ in range(5):
        rig.run(REFUSAL_S / 4)
        more.say(bytes.fromhex("0000000802000000"))
    assert not more.alive


def test_a_refusal_shares_one_read_with_all_that_the_client_sends_at_once() -> None:
    """Header, open, begin and the peer's own close in one flight."""
    rig = Rig()
    hub = hub_with(rig, "connections_max")
    for _ in range(2):
        opened(rig, hub)
    more = Raw(rig, hub)
    assert reason(more.say(AMQP_HEADER, Open("raw"), Close()))[0] == RESOURCE
    assert not more.alive


def test_a_second_connection_of_a_sole_container_takes_no_place_either() -> None:
    from holdfast.peers.containers import SOLE

    rig = Rig()
    hub = hub_with(rig, "connections_max")
    first = Raw(rig, hub)
    first.say(AMQP_HEADER, Open("one", desired_capabilities=[SOLE]))
    again = Raw(rig, hub)
    again.say(AMQP_HEADER, Open("one", desired_capabilities=[SOLE]))
    assert again.alive, "it has not answered the close"
    assert opened(rig, hub).alive
    rig.run(REFUSAL_S + 0.1)
    assert not again.alive and first.alive


@pytest.mark.parametrize("bound", [bound for bound, _ in BOUNDS])
def test_a_refused_connection_that_a_failure_ends_is_no_refusal_any_more(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """It has heard its answer, says something that the node fails at, and is gone from every count, once."""
    rig = Rig()
    hub = hub_with(rig, bound)
    kept = [opened(rig, hub) for _ in range(2)]
    first, second = (Raw(rig, hub) for _ in range(2))
    assert reason(first.say(HELLO))[0] == reason(second.say(HELLO))[0] == RESOURCE
    core = hub.core
    assert core is not None and len(core.refusals.due) == 2
    number = core.connections[first.number].number
    told = core.dispatch.deliver

    def fail(peer: Any, events: Any) -> None:
        if peer.number == number:
            raise RuntimeError("for once")
        told(peer, events)

    with monkeypatch.context() as patch:
        patch.setattr(core.dispatch, "deliver", fail)
        assert first.say(bytes.fromhex("0000000802000000")) == [], "it was told all that it is told"
    assert first.over and not first.alive and core.containment.peers_ended == 1
    assert [peer.number for peer in core.refusals.due] == [second.number]
    core.validate()
    assert all(peer.alive for peer in kept) and reason(Raw(rig, hub).say(HELLO))[0] == RESOURCE
    kept[0].say(Close())
    assert opened(rig, hub).served
    refused = sum(row["refused"] for row in core.users.status(""))
    rig.run(REFUSAL_S + 0.1)
    assert (
        not core.refusals.due and not second.alive and sum(row["refused"] for row in core.users.status("")) == refused
    )
    assert refused == 3 and core.containment.peers_ended == 1 and core.containment.parts_failed == 0


@pytest.mark.parametrize("step", ["error", "closing"])
def test_a_failure_in_the_refusing_itself_is_told_as_one_and_leaves_no_place_taken(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    rig = Rig()
    hub = hub_with(rig, "address_connections_max")
    kept = [opened(rig, hub) for _ in range(2)]
    core = hub.core
    assert core is not None

    def fail(*_: Any) -> Any:
        raise RuntimeError("for once")

    more = Raw(rig, hub)
    with monkeypatch.context() as patch:
        patch.setattr(core.refusals, step, fail)
        said = more.say(HELLO)
    errors = [str(item.error.condition) for item in said if isinstance(item, Close)]
    assert errors == (["amqp:internal-error"] if step == "error" else [RESOURCE])
    assert not more.alive and not core.refusals.due and core.containment.peers_ended == 1
    core.validate()
    kept[0].say(Close())
    assert opened(rig, hub).served and reason(Raw(rig, hub).say(HELLO))[0] == RESOURCE


def test_a_neighbour_that_is_refused_says_why_it_has_no_session() -> None:
    """It dials a node that does not know it, and where it is a client like all others."""
    rig = Rig()
    hub = rig.node("hub", limits=Limits(connections_max=1))
    assert opened(rig, hub).alive
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))
    rig.run(3)
    assert "connections of clients, the most there may be" in jfk.core.neighbours["hub"].reason


def test_who_waits_for_its_share_of_work_may_be_gone_when_its_time_comes() -> None:
    """What another one's share brought ended it: nobody else waits for that."""
    rig = Rig()
    hub = rig.node("hub", limits=Limits(user_connections_max=1))
    opened(rig, hub)
    first = Raw(rig, hub)
    first.say(HELLO)
    for _ in range(REFUSALS_MAX - 1):
        Raw(rig, hub).say(HELLO)
    core = hub.core
    assert core is not None and len(core.refusals.due) == REFUSALS_MAX
    many = bytes.fromhex("0000000c 03000000 00000000") * 2_500  # empty frames that no run has: one counted each
    last = Raw(rig, hub)
    rig.settle()
    last.say(AMQP_HEADER + many + HELLO[8:], settle=False)
    first.say(many, settle=False)
    for raw in (last, first):
        rig._deliver(raw.end.wire.other(raw.end))
    assert [peer.number for peer in core.guard.waiting] == [last.number, first.number]
    rig.settle()
    assert not first.alive and not core.guard.waiting
    assert not core.containment.parts_failed and not core.containment.resting
