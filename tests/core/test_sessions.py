"""Sessions between neighbours: the table, crossing connects, dead links, what routing is told, who is let in."""

from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.performatives import Error
from holdfast.amqp.wire.types import Symbol, Ulong
from holdfast.engine import events
from holdfast.errors import ConfigError
from holdfast.peering import sessions
from holdfast.peering.control import CONTROL_ADDRESS
from holdfast.peers.neighbours import features
from holdfast.peers.neighbours.session_states import IMPOSSIBLE, TRANSITIONS, SessionEvent, State, diagram
from holdfast.peers.peer import REASON_CHARACTERS_MAX
from holdfast.settings.hosts import UserConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from support import today
from support.rig import Node, Rig

DOCS = Path(__file__).resolve().parents[2] / "docs"


INTERNAL = Symbol(conditions.INTERNAL_ERROR)


class Told:
    """Stands for routing: keeps what sessions tell it."""

    closed = False

    def __init__(self) -> None:
        self.costs: dict[str, int] = {}
        self.calls: list[tuple[Any, ...]] = []

    def link_up(self, neighbour: sessions.Neighbour) -> None:
        self.calls.append(("up", neighbour.name))

    def link_down(self, neighbour: sessions.Neighbour) -> None:
        self.calls.append(("down", neighbour.name))

    def cost_measured(
        self, neighbour: sessions.Neighbour, round_trip_s: float, loss_share: float, backlog_bytes: int
    ) -> None:
        self.calls.append(("cost", neighbour.name, round_trip_s, loss_share, backlog_bytes))

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in kinds]


def both_dial(rig: Rig, *, start: bool = True) -> tuple[Node, Node]:
    remote = "127.0.0.1:1"
    return (
        rig.node("hub", start=start, neighbours=(NeighbourConfig(name="jfk", remote=remote),)),
        rig.node("jfk", start=start, neighbours=(NeighbourConfig(name="hub", remote=remote),)),
    )


def ends(node: Node) -> sessions.Neighbour:
    (neighbour,) = node.core.neighbours.values()
    return neighbour


# ------------------------------------------------------------------------------------------------ the table


def test_every_state_and_event_is_in_the_table_or_cannot_happen() -> None:
    everything = {(state, happened) for state in State for happened in SessionEvent}
    assert set(TRANSITIONS) | set(IMPOSSIBLE) == everything
    assert not set(TRANSITIONS) & set(IMPOSSIBLE)
    assert all(IMPOSSIBLE.values())


def test_the_picture_in_the_docs_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in (DOCS / "sessions.md").read_text()


# ------------------------------------------------------------------------------------------------ crossing connects


def assert_one_session(rig: Rig, hub: Node, jfk: Node) -> None:
    one, two = ends(hub), ends(jfk)
    assert one.established and two.established
    (wire,) = rig.between("hub", "jfk")
    assert {one.peer.number, two.peer.number} == {end.number for end in wire.ends}, "both hold the same connection"


@today.examples(10)
@given(st.integers(0, 2**32), st.sampled_from(["both", "hub first", "jfk first"]))
@example(2**32, "both")  # the end of a hold time that no binary fraction of a second is
def test_crossing_connects_end_in_one_session_whatever_comes_first(seed: int, order: str) -> None:
    """Bytes cut anywhere, dials answered at any moment, one side started before the other or both at once; with
    connections cut and nodes killed meanwhile. What cannot happen (IMPOSSIBLE) would raise."""
    rig = Rig(seed)
    hub, jfk = both_dial(rig, start=False)
    for node in (hub, jfk) if order != "jfk first" else (jfk, hub):
        node.start()
        for _ in range(0 if order == "both" else rig.random.randint(0, 30)):
            rig.step()
    for _ in range(rig.random.randint(0, 4)):
        for _ in range(rig.random.randint(0, 200)):
            if not rig.step():
                rig.pass_time(rig.random.choice((0.01, 0.1, 0.5)))
        chance = rig.random.random()
        if chance < 0.5 and (wires := rig.between("hub", "jfk")):
            rig.random.choice(wires).cut(silent=rig.random.random() < 0.5)
        elif chance < 0.7:
            node = rig.random.choice((hub, jfk))
            node.crash()
            rig.pass_time(0.01)
            node.start()
        elif chance < 0.8:
            for node in (hub, jfk):
                node.handle(events.NetworkChanged())
    rig.run(10)
    assert_one_session(rig, hub, jfk)
    flaps = ends(hub).flaps, ends(jfk).flaps
    rig.run(30)
    assert_one_session(rig, hub, jfk)
    assert (ends(hub).flaps, ends(jfk).flaps) == flaps, "it stays"


@pytest.mark.parametrize("first", ["hub", "jfk"])
def test_of_two_that_cross_both_keep_the_one_that_the_lower_name_dialled(first: str) -> None:
    rig = Rig()
    hub, jfk = both_dial(rig)
    for node in (hub, jfk):
        node.handle(events.TimerFired())
    rig.dials.sort(key=lambda dial: dial[0].name != first)
    rig.settle()
    assert_one_session(rig, hub, jfk)
    assert ends(hub).peer.dialled and not ends(jfk).peer.dialled
    assert not rig.dials


def test_a_neighbour_that_lost_the_session_is_taken_at_once_though_we_do_not_know_yet() -> None:
    """jfk dialled nothing that counts: hub's connection won. Its next dial says that it has lost that one."""
    rig = Rig()
    hub, jfk = both_dial(rig)
    rig.run(1.0)
    (wire,) = rig.between("hub", "jfk")
    wire.cut(silent=True)
    jfk.core.connections.drop(ends(jfk).peer, "its address is another one")
    jfk.end_turn()
    rig.run(0.15)
    assert_one_session(rig, hub, jfk)


def test_a_late_open_of_a_dial_that_was_given_up_takes_nothing() -> None:
    rig = Rig()
    hub, _ = both_dial(rig)
    rig.run(1.0)
    held = ends(hub)
    peer, dial = held.peer, held.hello_dial
    assert not held._yields_to(dial)
    assert held._yields_to(dial + 1)
    assert held.peer is peer


def test_a_connection_that_has_been_silent_gives_way_whatever_comes() -> None:
    """Its end may be gone for good: a second node of this name, or one with another store, has no other way in."""
    rig = Rig()
    hub, _ = both_dial(rig)
    rig.run(1.0)
    held = ends(hub)
    dial, other_store = held.hello_dial, UUID(int=5)
    held.heard_at = hub.core.clock.now - held.config.keepalive_s
    assert not held._yields_to(dial) and not held._yields_to(dial + 1, other_store)
    held.heard_at -= 0.001
    assert held._yields_to(dial) and held._yields_to(dial + 1, other_store)


# ------------------------------------------------------------------------------------------------ dead links


def test_a_silent_link_is_down_after_three_probes_and_the_hold_time_is_the_last_resort() -> None:
    rig = Rig()
    fast = {"keepalive_s": 1.0, "probe_s": 0.05, "hold_time_s": 3.0}
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", **fast),))
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk", **fast),))
    rig.run(2.0)
    for node in (jfk, hub):
        node.core.session_parts.routing = Told()
    (wire,) = rig.between("hub", "jfk")
    wire.cut(silent=True)
    rig.refuse_dials = True
    rig.run(0.16)
    for node in (jfk, hub):
        assert node.core.session_parts.routing.of("up", "down") == [("down", ends(node).name)]
        assert not ends(node).established
        assert ends(node).reason == "3 probes without an answer"
        assert ends(node).liveness.missed == 3
        assert node.core.connections == {}


def test_probes_by_default_follow_keepalive_and_by_kind_a_lan() -> None:
    assert NeighbourConfig(name="n", keepalive_s=0.5).probe_every_s(None) == 0.5
    assert NeighbourConfig(name="n").probe_every_s("tcp") == 0.05
    assert NeighbourConfig(name="n").probe_every_s("serial") == 1.0
    assert NeighbourConfig(name="n", probe_s=0.2).probe_every_s("serial") == 0.2
    assert NeighbourConfig(name="n", keepalive_s=0.3).probe_every_s("serial") == 0.3


def test_an_idle_link_is_probed_by_one_side_mostly() -> None:
    rig = Rig()
    fast = {"keepalive_s": 1.0, "probe_s": 0.05}
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", **fast),))
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk", **fast),))
    rig.run(0.5)
    before = ends(jfk).liveness.sent + ends(hub).liveness.sent
    rig.run(10.0)
    sent = ends(jfk).liveness.sent + ends(hub).liveness.sent - before
    assert sent <= 1.1 * 10.0 / 0.05 + 20
    assert not ends(jfk).liveness.missed + ends(hub).liveness.missed


def test_while_we_do_not_read_from_it_a_neighbour_is_not_silent() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1.0)
    peer = ends(jfk).peer
    assert peer.pause("test")
    (wire,) = rig.between("hub", "jfk")
    next(end for end in wire.ends if end.node is jfk).paused = True
    rig.run(30.0)
    assert ends(jfk).peer is peer
    assert not ends(jfk).liveness.missed


def test_a_link_that_was_declared_down_and_was_not_is_a_false_alarm() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(3.0)
    ours = ends(jfk)
    ours._act(sessions.ProbeAction.DOWN)  # as after three misses
    jfk.end_turn()
    rig.run(0.9)
    assert ours.established
    assert ours.liveness.false_alarms == 1
    assert ends(hub).liveness.false_alarms == 0, "hub declared nothing"
    ours._act(sessions.ProbeAction.DOWN)
    hub.crash()
    hub.start()
    rig.run(0.9)
    assert ours.established
    assert ours.liveness.false_alarms == 1, "another life of the neighbour's"
    ours._act(sessions.ProbeAction.DOWN)
    ends(hub)._act(sessions.ProbeAction.DOWN)
    rig.run(0.9)
    assert ours.established
    assert ours.liveness.false_alarms == 1, "both found it dead"
    rig.refuse_dials = True
    ours._act(sessions.ProbeAction.DOWN)
    rig.run(1.5)
    rig.refuse_dials = False
    rig.run(6.0)
    assert ours.established
    assert ours.liveness.false_alarms == 1, "too late to have been one"


# ------------------------------------------------------------------------------------------------ the network's word


def test_a_changed_network_ends_the_back_off_at_once() -> None:
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    jfk.start()
    rig.run(30.0)  # nobody there: the back-off is at its longest
    assert ends(jfk).attempts > 4
    hub.start()
    rig.run(0.01)
    assert not ends(jfk).established
    jfk.handle(events.NetworkChanged())
    rig.run(0.01)
    assert ends(jfk).established
    assert ends(jfk).attempts == 0


def test_a_dial_under_way_is_given_up_for_a_fresh_one_when_the_network_changes() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    for _ in range(5):
        jfk.handle(events.TimerFired())
    assert [name for _, name in rig.dials] == ["hub"]
    rig.dials.clear()  # it hangs
    rig.pass_time(1.0)
    jfk.handle(events.NetworkChanged())
    jfk.handle(events.TimerFired())
    assert [name for _, name in rig.dials] == ["hub"]
    rig.pass_time(sessions.REDIAL_S[0] / 2)
    jfk.handle(events.NetworkChanged())
    jfk.handle(events.TimerFired())
    assert len(rig.dials) == 1, "changes come in bursts"
    rig.run(0.1)
    assert ends(jfk).established


def test_a_network_that_changes_all_the_time_leaves_a_dial_its_time() -> None:
    """Interfaces that come and go many times a second, and a neighbour 0.6 s away."""
    rig = Rig()
    jfk, _ = rig.pair()
    begun: list[float] = []
    for _ in range(500):
        jfk.handle(events.NetworkChanged())
        jfk.handle(events.TimerFired())
        begun += [rig.now] * len(rig.dials)
        rig.dials.clear()  # each hangs
        rig.pass_time(sessions.REDIAL_S[0])
    gaps = [after - before for before, after in pairwise(begun)]
    assert gaps[0] < 0.2 and 4.9 < max(gaps) <= sessions.REDIAL_S[1] + 0.1
    assert len(begun) < 12


def test_a_changed_network_probes_what_stands_with_little_time() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(5.0)
    (wire,) = rig.between("hub", "jfk")
    wire.cut(silent=True)
    rig.pass_time(0.1)
    jfk.handle(events.NetworkChanged())
    rig.refuse_dials = True
    rig.run(0.1)
    assert not ends(jfk).established
    assert ends(jfk).reason == "3 probes without an answer"


# ------------------------------------------------------------------------------------------------ routing


def test_routing_is_told_of_links_costs_and_kinds_that_sessions_do_not_know() -> None:
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    jfk.start()
    hub.start()
    told = jfk.core.session_parts.routing = Told()
    heard: list[tuple[str, Any]] = []
    jfk.core.control_kinds["record"] = lambda neighbour, fields: heard.append((neighbour.name, fields))
    rig.run(5.0)
    assert told.of("up", "down")[-1:] == [("up", "hub")]
    costs = told.of("cost")
    assert 3 <= len(costs) <= 6, "each keepalive at most"
    assert all(name == "hub" and rtt >= 0 and loss == 0.0 and backlog == 0 for _, name, rtt, loss, backlog in costs)
    ends(hub).send({"kind": "record", "of": "ord"})
    ends(hub).send({"kind": None})
    ends(hub).send({"kind": "marks", "marks": []})
    hub.due = True
    rig.settle()
    assert heard == [("hub", {"kind": "record", "of": "ord"})]
    hub.crash()
    rig.run(0.1)
    assert told.of("up", "down")[1] == ("down", "hub")


def test_a_session_that_is_replaced_is_down_and_up_for_routing() -> None:
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    hub.start()
    told = hub.core.session_parts.routing = Told()
    jfk.start()
    rig.run(1.0)
    (wire,) = rig.between("hub", "jfk")
    wire.cut(silent=True)
    jfk.core.connections.drop(ends(jfk).peer, "its address is another one")
    jfk.end_turn()
    rig.run(0.5)
    down = ("down", "jfk")
    assert told.of("up", "down") == [("up", "jfk"), down, ("up", "jfk")]


def test_a_link_that_flaps_is_held_down_for_routing_while_its_session_stays() -> None:
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    jfk.start()
    told = jfk.core.session_parts.routing = Told()
    hub.start()
    for number in range(4):
        rig.run(0.8)
        assert ends(jfk).established and not ends(jfk).damped
        assert told.of("up", "down")[-1] == ("up", "hub"), f"failure {number} damps nothing"
        for wire in rig.between("hub", "jfk"):
            wire.cut()
    rig.run(0.8)
    assert ends(jfk).established and ends(jfk).damped
    assert told.of("up", "down")[-1][0] == "down"
    assert any("its session broke too often: no route uses it for" in line for line in jfk.logs)
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.settle()
    client.send(link, "1")
    rig.run(1.0)
    assert hub.bodies("work") == ["1"], "the neighbour itself is reached all the same"
    ups = len(told.of("up"))
    at = ends(jfk).damping.reuse_at()
    assert at is not None
    rig.run(at - rig.now - 0.0001)
    assert len(told.of("up")) == ups and ends(jfk).damped
    rig.run(0.0002)
    assert len(told.of("up")) == ups + 1, "not only when something else wakes the node"
    rig.run(30.0)
    assert len(told.of("up")) == ups + 1
    assert not ends(jfk).damped


# ------------------------------------------------------------------------------------------------ status


def test_status_tells_of_each_session() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    client = rig.client(jfk)
    link = client.sender("work@hub")
    rig.run(1.0)
    for number in range(10):
        client.send(link, str(number))
    rig.run(2.0)
    (ours,) = rig.client(jfk).manage("STATUS", "node")[1]["sessions"]
    (theirs,) = rig.client(hub).manage("STATUS", "node")[1]["sessions"]
    assert (ours["neighbour"], ours["state"], ours["established"], ours["lost"]) == ("hub", "Established", 1, 0)
    assert ours["messages_out"] == theirs["messages_in"] == 10
    assert ours["messages_in"] == theirs["messages_out"] == 0
    assert theirs["bytes_in"] > 500
    assert ours["probe_s"] == 1.0 and ours["hold_time_s"] == 3.0 and ours["round_trip_s"] is not None
    assert ours["probes"]["sent"] >= 2 and not ours["probes"]["missed"] + ours["probes"]["false_alarms"]
    assert ours["damped"] is False and ours["since_s"] > 2.5 and ours["attempts"] == 0
    hub.crash()
    rig.run(20.0)
    (ours,) = rig.client(jfk).manage("STATUS", "node")[1]["sessions"]
    assert ours["state"] in ("Idle", "Connect") and ours["attempts"] > 3 and ours["lost"] == 1
    assert ours["reason"] == "nobody there" and ours["last_end"] not in ("", "nobody there")
    assert ours["messages_out"] == 10


def test_status_has_no_reason_while_a_session_is_established_and_keeps_why_the_last_one_ended() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(2)
    hub.crash()
    rig.run(5)
    (ours,) = rig.client(jfk).manage("STATUS", "node")[1]["sessions"]
    assert ours["reason"]
    hub.start()
    rig.run(20)
    (again,) = rig.client(jfk).manage("STATUS", "node")[1]["sessions"]
    assert (again["state"], again["reason"], again["last_end"]) == ("Established", "", ours["last_end"])


# ------------------------------------------------------------------------------------------------ who is let in


def guarded(rig: Rig) -> Node:
    """A node with users, and a neighbour who logs in as one of them."""
    return rig.node(
        "hub",
        neighbours=(NeighbourConfig(name="jfk", user="from-jfk"), NeighbourConfig(name="ewr")),
        users=(UserConfig(name="from-jfk", password="right"), UserConfig(name="ann", password="other")),
    )


@pytest.mark.parametrize(
    ("user", "password", "container"),
    [
        ("from-jfk", "wrong", "jfk"),
        ("from-jfk", "", "jfk"),
        ("ann", "other", "jfk"),
        ("from-jfk", "right", "ewr"),
        ("ann", "other", "ewr"),
        ("nobody", "right", "jfk"),
    ],
)
def test_who_is_not_the_neighbour_gets_nothing_of_it(user: str, password: str, container: str) -> None:
    """A wrong password, another one's user, a client that claims a neighbour's container-id."""
    rig = Rig()
    hub = guarded(rig)
    client = rig.client(
        hub,
        container_id=container,
        mechanism="PLAIN",
        user=user,
        password=password,
        offered_capabilities=(features.CUSTODY,),
        properties={sessions.STORE: rig.uuid(), sessions.DIAL: Ulong(2**63)},
    )
    for address in (CONTROL_ADDRESS, "$holdfast/custody"):
        client.sender(address)
    rig.run(2.0)
    assert client.over or len(client.detached) == 2
    assert not hub.core.links.custody_receivers
    for neighbour in hub.core.neighbours.values():
        assert neighbour.state is State.IDLE
        assert neighbour.peer is None


def test_a_stranger_takes_no_session_away() -> None:
    rig = Rig()
    jfk, hub = _with_users(rig)
    rig.run(1.0)
    held = ends(hub).peer
    assert ends(hub).established
    client = rig.client(
        hub,
        container_id="jfk",
        mechanism="PLAIN",
        user="ann",
        password="other",
        offered_capabilities=(features.CUSTODY,),
        properties={sessions.DIAL: Ulong(2**63)},
    )
    client.sender(CONTROL_ADDRESS)
    rig.run(2.0)
    assert ends(hub).peer is held and ends(hub).established and ends(jfk).established
    assert [item.error.condition for item in client.detached] == ["amqp:unauthorized-access"]


def _with_users(rig: Rig) -> tuple[Node, Node]:
    to_hub = NeighbourConfig(name="hub", remote="127.0.0.1:1", user="from-jfk", password="right")
    return (
        rig.node("jfk", neighbours=(to_hub,)),
        rig.node(
            "hub",
            neighbours=(NeighbourConfig(name="jfk", user="from-jfk"),),
            users=(UserConfig(name="from-jfk", password="right"), UserConfig(name="ann", password="other")),
        ),
    )


def test_a_local_user_cannot_be_the_one_that_a_dialled_neighbour_logs_in_as() -> None:
    """Who logs in as it could speak as that neighbour, whichever of the two passwords it has."""
    hub = NeighbourConfig(name="hub", remote="127.0.0.1:1", user="ewr", password="at the hub")
    users = (UserConfig(name="ewr", password="here"),)
    with pytest.raises(ConfigError, match=r"^neighbour 'hub' has user 'ewr', which is also a \[\[user\]\]"):
        NodeConfig(name="ewr", neighbours=(hub,), users=users).validate()
    listening = NeighbourConfig(name="hub", user="ewr")
    NodeConfig(name="ewr", neighbours=(listening,), users=users).validate()
    NodeConfig(name="ewr", neighbours=(hub,), users=(UserConfig(name="hub", password="x"),)).validate()


def test_what_failed_before_a_session_came_up_is_no_reason_any_more() -> None:
    """Why a session ended is told also of the next one; a dial that failed only until one comes through."""
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    jfk.start()
    rig.run(2)
    assert jfk.core.neighbours["hub"].reason == "nobody there"
    hub.start()
    rig.run(10)
    ours = jfk.core.neighbours["hub"]
    assert ours.established and ours.reason == ""
    hub.crash()
    rig.run(5)
    assert ours.reason == "nobody there"
    hub.start()
    rig.run(10)
    assert ours.established and ours.reason == "cut"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, ""),
        (Error(INTERNAL), f": {INTERNAL}"),
        (Error(INTERNAL, "no more"), f": {INTERNAL}: no more"),
        (Error(INTERNAL, "x" * 9_000), f": {INTERNAL}: {'x' * (REASON_CHARACTERS_MAX - len(INTERNAL) - 2)}"),
    ],
)
def test_a_neighbour_that_closes_is_lost_for_the_reason_that_it_gave(error: Error | None, reason: str) -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1.0)
    peer = ends(hub).peer
    assert peer is not None
    peer.amqp.close(error)
    peer.touch()
    hub.end_turn()
    rig.settle()
    assert [line for line in jfk.logs if line.endswith(f"Established -> Idle: the control link was detached{reason}")]


@pytest.mark.parametrize("side", ["jfk", "hub"])
def test_a_connection_that_is_dropped_is_cut_off_with_what_is_on_its_way(side: str) -> None:
    """A close would wait for a peer that perhaps never reads."""
    rig = Rig()
    rig.pair()
    rig.run(1.0)
    core = rig.nodes[side].core
    assert core is not None
    (peer,) = core.connections.values()
    core.connections.drop(peer, "for once")
    closing = [item for item in core.outbox.take() if isinstance(item, events.CloseConnection)]
    assert closing == [events.CloseConnection(connection=peer.number, abort=True)]
