"""More destinations behind a neighbour than links on its connection: more sessions, then turns; nobody crashes."""

from dataclasses import replace
from typing import Any

import pytest

from amqp.joined import wire
from holdfast.amqp.wire.extensions import PRODUCER
from holdfast.amqp.wire.frames import AMQP_HEADER
from holdfast.amqp.wire.performatives import Attach, Begin, Detach, Open, Properties
from holdfast.amqp.wire.types import Symbol
from holdfast.custody.hop import links as hop_links
from holdfast.custody.hop.sender import CustodySender
from holdfast.engine import events
from holdfast.peers.neighbours.features import CUSTODY
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from support.hops import is_empty, names, send
from support.raw import Raw, credit, opened, sends
from support.rig import Node, Rig


def many(rig: Rig, count: int, *, jfk: Limits = Limits(), hub: Limits = Limits()) -> tuple[Node, Node]:
    """jfk dials hub, behind which are `count` destinations; their messages wait at the hub."""
    behind = [f"d{number}" for number in range(count)]
    jfk_, hub_, far = rig.graph(
        "jfk-hub",
        "hub-far",
        routes={"jfk": dict.fromkeys(behind, "hub"), "hub": dict.fromkeys(behind, "far")},
        jfk={"limits": jfk},
        hub={"limits": hub},
    )
    far.crash()
    return jfk_, hub_


def came(hub: Node) -> list[str]:
    """What waits at the hub, by destination."""
    return [
        f"{name[1:]} {body}" for name in hub.core.catalog.queues if name.startswith("@d") for body in hub.bodies(name)
    ]


def send_to_all(rig: Rig, jfk: Node, count: int, *, each: int = 1) -> None:
    """`each` messages for each destination, by one client with a link each."""
    client = rig.client(jfk)
    link = client.sender(None)
    rig.settle()
    for body in range(each):
        for number in range(count):
            if not link.sendable:
                rig.settle()
            client.send(link, f"{body}", properties=Properties(to=f"work@d{number}"))
    rig.settle()


def wanted(count: int, each: int = 1) -> list[str]:
    return sorted(f"d{number} {body}" for number in range(count) for body in range(each))


def assert_all_came(rig: Rig, jfk: Node, hub: Node, count: int, *, each: int = 1, seconds: float = 60) -> None:
    lives = jfk.core.neighbours["hub"].established_count
    until = rig.now + seconds
    while rig.now < until and sorted(came(hub)) != wanted(count, each):
        rig.run(1)
    rig.run(5)
    assert sorted(came(hub)) == wanted(count, each)
    assert jfk.core.neighbours["hub"].established_count == lives, "the session stayed"
    assert not any(queue.messages for queue in jfk.core.catalog.transit.values())


def test_more_destinations_than_a_session_has_handles() -> None:
    """1,024 links are what one session takes (handle-max 1023), the control link among them."""
    rig = Rig()
    jfk, hub = many(rig, 1_040)
    rig.run(1)
    jfk.checks = hub.checks = False  # a look through thousands of queues at each event
    send_to_all(rig, jfk, 1_040)
    assert_all_came(rig, jfk, hub, 1_040, seconds=10)
    for node in (jfk, hub):
        assert node.core is not None
        node.core.validate()
    assert len(jfk.core.next_hops["hub"].links.sessions) == 2
    assert not any("take turns" in line for line in jfk.logs)


@pytest.mark.parametrize("side", ["jfk", "hub"])
def test_one_channel_alone(side: str) -> None:
    """channel-max 0 at either side: both share the dialler's session, whenever its begin comes."""
    rig = Rig()
    jfk, hub = many(rig, 3, **{side: Limits(sessions_max=1)})
    rig.run(1)
    assert jfk.core.neighbours["hub"].established and hub.core.neighbours["jfk"].established
    send_to_all(rig, jfk, 3)
    assert_all_came(rig, jfk, hub, 3, seconds=5)


@pytest.mark.parametrize("side", ["jfk", "hub"])
def test_handle_max_0_takes_more_sessions(side: str) -> None:
    rig = Rig()
    jfk, hub = many(rig, 5, **{side: Limits(session_links_max=1)})
    rig.run(1)
    send_to_all(rig, jfk, 5, each=2)
    assert_all_came(rig, jfk, hub, 5, each=2)
    assert len(jfk.core.next_hops["hub"].links.sessions) == 6
    assert not any("take turns" in line for line in jfk.logs)


@pytest.mark.parametrize("limits", [
    Limits(session_links_max=1, sessions_max=5),
    Limits(session_links_max=6, sessions_max=1),
    Limits(links_max=8),
    Limits(neighbour_links_max=2),
])  # fmt: skip
@pytest.mark.parametrize("side", ["jfk", "hub"])
def test_destinations_take_turns(limits: Limits, side: str) -> None:
    """Few links for many destinations: each has its turn, in the order of its messages, and one line says so."""
    rig = Rig()
    jfk, hub = many(rig, 20, **{side: limits})
    rig.run(1)
    send_to_all(rig, jfk, 20, each=3)
    assert_all_came(rig, jfk, hub, 20, each=3)
    for queue in hub.core.catalog.queues:
        if queue.startswith("@d"):
            assert hub.bodies(queue) == ["0", "1", "2"]
    lines = [line for line in jfk.logs if "take turns" in line]
    assert len(lines) == (1 if side == "jfk" or limits.neighbour_links_max > 2 else 0)


def test_a_busy_destination_gives_its_link_up_after_its_turn() -> None:
    rig = Rig()
    jfk, hub = many(rig, 2, jfk=Limits(neighbour_links_max=1), hub=Limits(credit=1))
    rig.run(1)
    links = jfk.core.next_hops["hub"].links
    client = rig.client(jfk)
    first, second = client.sender("work@d0"), client.sender("work@d1")
    rig.settle()
    busy = jfk.core.next_hops["hub"].senders["d0"]
    busy.wants = lambda: 0  # as with a neighbour that takes nothing more of it
    client.send(first, "stuck")
    rig.run(0.1)
    client.send(second, "waits")
    rig.run(hop_links.TURN_S / 2)
    assert list(links.holding) == [busy], "its turn is not over"
    rig.run(hop_links.TURN_S + 2 * hop_links.LOOK_S)
    assert came(hub) == ["d1 waits"]


def test_a_refusal_is_forgotten_with_the_connection_that_it_was_on() -> None:
    """A neighbour that comes back with room for more gets all links at once, not REFUSED_S later."""
    rig = Rig()
    jfk, hub = many(rig, 20, hub=Limits(links_max=8))
    rig.run(1)
    send_to_all(rig, jfk, 20)
    rig.run(2)
    links = jfk.core.next_hops["hub"].links
    assert any("take turns" in line for line in jfk.logs) and len(links.holding) < 20
    hub.crash()
    hub.config = replace(hub.config, limits=Limits())
    hub.start()
    for _ in range(100):
        rig.run(0.2)
        if jfk.core.neighbours["hub"].established:
            break
    send_to_all(rig, jfk, 20)
    rig.run(0.5)
    assert len(links.holding) == 20 and not links.ready


def test_neighbour_links_max() -> None:
    rig = Rig()
    jfk, _ = many(rig, 3, jfk=Limits(neighbour_links_max=3))
    rig.run(1)
    send_to_all(rig, jfk, 3)
    rig.run(1)
    assert len(jfk.core.next_hops["hub"].links.holding) == 3
    rig = Rig()
    jfk, _ = many(rig, 4, jfk=Limits(neighbour_links_max=3))
    rig.run(1)
    send_to_all(rig, jfk, 4)
    rig.run(10)
    assert len(jfk.core.next_hops["hub"].links.holding) == 3


def test_no_handle_for_any_destination_keeps_the_session_and_says_so() -> None:
    """handle-max 1 and channel-max 0: two control links, and nothing else."""
    rig = Rig()
    jfk, hub = many(rig, 2, hub=Limits(session_links_max=2, sessions_max=1))
    rig.run(1)
    send_to_all(rig, jfk, 2)
    rig.run(30)
    assert jfk.core.neighbours["hub"].established and hub.core.neighbours["jfk"].flaps == 0
    assert came(hub) == []
    assert len([line for line in jfk.logs if "take turns" in line]) == 1
    (line,) = rig.client(jfk).manage("STATUS", "node")[1]["warnings"]
    assert "2 destinations wait for a custody link, 0 have one" in line


def test_the_longest_name_fits_the_smallest_frame() -> None:
    rig = Rig()
    name = "d" + 199 * "n"
    jfk, hub = rig.graph(
        "jfk-hub", routes={"jfk": {name: "hub"}, "hub": {name: "jfk"}}, hub={"limits": Limits(frame_bytes_max=512)}
    )
    rig.run(1)
    send(rig, jfk, *names(1, 3), to=name)
    rig.run(2)
    assert jfk.core.neighbours["hub"].flaps == 0
    assert not is_empty(hub) or hub.core.destination is not None


def test_a_neighbour_that_refuses_links_gets_fewer() -> None:
    """Its links_max is reached: what it refused is not asked for again while others wait for their turn."""
    rig = Rig()
    jfk, hub = many(rig, 12, hub=Limits(links_max=7))
    rig.run(1)
    send_to_all(rig, jfk, 12)
    assert_all_came(rig, jfk, hub, 12, seconds=120)


def test_the_links_of_a_lost_connection_are_forgotten() -> None:
    rig = Rig()
    jfk, hub = many(rig, 6, jfk=Limits(neighbour_links_max=2))
    rig.run(1)
    send_to_all(rig, jfk, 6)
    (wire,) = rig.between("jfk", "hub")
    wire.cut()
    links = jfk.core.next_hops["hub"].links
    assert not links.holding and not links.ready and links.peer is None
    rig.run(60)
    assert sorted(came(hub)) == wanted(6)


def test_a_custody_link_that_is_detached_at_once_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attach and detach in one flight: the answer to the attach is made a turn later, and frees the handle."""
    rig = Rig()
    jfk, hub = many(rig, 1)
    rig.run(1)
    attach, left = CustodySender.attach, [3]

    def and_detach(sender: CustodySender, *where: Any) -> None:
        attach(sender, *where)
        if left[0]:
            left[0] -= 1
            sender.link.detach(closed=True)

    monkeypatch.setattr(CustodySender, "attach", and_detach)
    send_to_all(rig, jfk, 1)
    rig.run(10)
    assert came(hub) == ["d0 0"] and not left[0]
    assert len(jfk.core.next_hops["hub"].links.sessions[0].links) == 2, "the control link and one custody link"


def test_a_producers_link_that_is_detached_at_once_is_answered() -> None:
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="work"),))
    raw = opened(rig, node)
    for said in (sends("work", properties={PRODUCER: "p"}), Detach(0, True)):
        node.handle(events.BytesReceived(connection=raw.number, data=wire(said)))
    rig.settle()
    assert [type(said) for said in raw.take()][-2:] == [Attach, Detach]


@pytest.mark.parametrize("begins", [0, 1, 2, 3])
@pytest.mark.parametrize("channel_max", [0, 1, 2])
@pytest.mark.parametrize("handle_max", [0, 1])
def test_a_neighbour_that_says_anything_of_its_limits(begins: int, channel_max: int, handle_max: int) -> None:
    """Any channel-max and handle-max, any number of begins in the flight of its open, or a read later."""
    for cut in range(begins + 1):
        rig = Rig()
        hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),), forwarding=(("d", "jfk"),))
        raw = Raw(rig, hub)
        hello = [Open("jfk", channel_max=channel_max, offered_capabilities=[Symbol(CUSTODY)])]
        sessions = [wire(Begin(None, 0, 5_000, 5_000, handle_max), channel=channel) for channel in range(begins)]
        raw.say(AMQP_HEADER, *hello, *sessions[:cut])
        for begin in sessions[cut:]:
            raw.say(begin)
        raw.say(b"")
        send(rig, hub, "1", to="d")
        for answers in range(3):  # it answers a session that the node began, and its control link
            raw.say(wire(Begin(0, 0, 5_000, 5_000, handle_max), channel=begins + answers))
            raw.say(sends("$holdfast/control", handle=0, name="control:jfk"), credit(100))
        rig.run(5)
        assert hub.core is not None and hub.bodies("@d") == ["1"], "it serves on and has lost nothing"
