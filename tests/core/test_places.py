"""A neighbour finds its place whoever else is connected, and whatever they say of themselves."""

from typing import Any

import pytest

from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import Begin, Close, Open
from holdfast.amqp.wire.types import Symbol
from holdfast.peers.containers import SOLE
from holdfast.peers.neighbours.features import CUSTODY
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from support.raw import Raw, opened
from support.rig import Node, Rig


def hub_and_clients(rig: Rig, limits: Limits) -> tuple[Node, list[Raw]]:
    """A hub whose places for clients are all taken by idle ones."""
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),), limits=limits)
    clients = [opened(rig, hub) for _ in range(3)]
    assert all(client.alive for client in clients)
    return hub, clients


@pytest.mark.parametrize("bound", ["address_connections_max", "user_connections_max", "connections_max"])
def test_a_site_whose_line_broke_is_back_when_its_dead_connections_have_been_silent_for_the_idle_time(
    bound: str,
) -> None:
    rig = Rig()
    hub = rig.node("hub", limits=Limits(**{bound: 10}, idle_time_out_s=60))
    for _ in range(10):
        client = rig.client(hub)
        rig.settle()
        assert client.end is not None
        client.end.wire.silent = True  # nobody hears of its end
        rig.clients.remove(client)
    early = rig.client(hub)
    rig.settle()
    assert early.over
    rig.run(61)
    back = [rig.client(hub) for _ in range(10)]
    rig.settle()
    assert not any(client.over for client in back)


def dial(rig: Rig) -> Node:
    return rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))


@pytest.mark.parametrize("limits", [Limits(connections_max=3), Limits(address_connections_max=3)])
def test_idle_clients_leave_a_neighbour_its_place(limits: Limits) -> None:
    rig = Rig()
    hub, clients = hub_and_clients(rig, limits)
    jfk = dial(rig)
    rig.run(3)
    assert jfk.core.neighbours["hub"].established and jfk.core.neighbours["hub"].established_count == 1
    assert all(client.alive for client in clients)
    assert not opened(rig, hub).served, "the neighbour's place is not one for clients"
    clients[0].say(Close())
    assert opened(rig, hub).served and not opened(rig, hub).served


@pytest.mark.parametrize(("silent", "first_stays"), [(2, True), (3, False)])
def test_reserved_connections_max(silent: int, first_stays: bool) -> None:
    """Of those that say nothing the oldest makes room, so a neighbour is never kept out by them."""
    rig = Rig()
    hub, _ = hub_and_clients(rig, Limits(connections_max=3, reserved_connections_max=2))
    strangers = [Raw(rig, hub) for _ in range(silent)]
    rig.settle()
    assert strangers[0].alive is first_stays and strangers[-1].alive
    jfk = dial(rig)
    rig.run(3)
    assert jfk.core.neighbours["hub"].established
    assert any("3 connections of clients, the most there may be" in line for line in hub.logs)


def test_who_merely_claims_a_neighbours_name_takes_no_place_of_its() -> None:
    """Logged in as somebody else, and with the neighbour's container-id."""
    rig = Rig()
    hub = rig.node(
        "hub",
        neighbours=(NeighbourConfig(name="jfk", user="from-jfk"),),
        users=(UserConfig(name="from-jfk", password="right"), UserConfig(name="ann", password="other")),
        limits=Limits(connections_max=1, reserved_connections_max=2),
    )
    claims: dict[str, Any] = {
        "mechanism": "PLAIN",
        "user": "ann",
        "password": "other",
        "container_id": "jfk",
        "offered_capabilities": (CUSTODY,),
        "desired_capabilities": (SOLE,),
    }
    first = rig.client(hub, **claims)
    rig.run(0.5)
    assert not first.over, "a client, whatever it calls itself"
    strangers = [rig.client(hub, **claims) for _ in range(5)]
    rig.run(0.5)
    assert all(stranger.over for stranger in strangers)
    jfk = rig.node(
        "jfk",
        neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", user="from-jfk", password="right"),),
    )
    rig.run(5)
    assert jfk.core.neighbours["hub"].established and not jfk.core.neighbours["hub"].flaps
    assert not first.over


def test_a_client_that_is_alone_with_a_neighbours_name_does_not_keep_it_out() -> None:
    rig = Rig()
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),))
    raw = Raw(rig, hub)
    said = raw.say(AMQP_HEADER, Open("jfk", desired_capabilities=[Symbol(SOLE)]), Begin(None, 0, 5_000, 5_000))
    offered = next(item for item in said if isinstance(item, Open)).offered_capabilities
    assert SOLE not in (offered or ())
    jfk = dial(rig)
    rig.run(3)
    assert jfk.core.neighbours["hub"].established and raw.alive
