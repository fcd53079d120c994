"""Remotes that allow fewer links in a session, or on a connection, than there are addresses (link_slots.py)."""

from collections import deque
from typing import Any

import pytest

from holdfast.amqp.connection import Connection
from holdfast.amqp.links.link import Link
from holdfast.amqp.wire.performatives import Accepted, Released
from holdfast.endpoints.remotes.fetching import IDLE_S
from holdfast.endpoints.remotes.kept_link import ANSWER_S, LEAVE_S, WAIT_S
from holdfast.endpoints.remotes.link_slots import LOOK_S, TURN_S
from holdfast.endpoints.remotes.remote import BEGINS_S
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.settings.remotes import Fetch, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker, PlainConnection
from support.one_node import done, fill
from support.plain_party import bodies, payload
from support.remotes import CHANGE_S, few, only, world
from support.rig import Node, Rig


def sessions(rig: Rig) -> list[Any]:
    return rig.plain["mq"].connection.amqp.sessions


def warned(node: Node) -> list[str]:
    assert node.core is not None
    return [line for line in node.core.report.status("")["warnings"] if "remote" in line]


# ------------------------------------------------------------------------------------------------ further sessions


@pytest.mark.parametrize("handles", [1, 2, 3])
@pytest.mark.parametrize("begins", [False, True], ids=["the node begins", "the remote begins one too"])
def test_further_sessions_are_begun_for_links_that_no_session_takes(handles: int, begins: bool) -> None:
    rig, node, client, broker = few(handles, 8, broker=PlainBroker(begins=begins))
    for address in "abcde":
        fill(rig, client, 1, f"{address}@mq")
    assert sorted(broker.came) == [*"abcde"]
    assert len(sessions(rig)) == max(-(-5 // handles), 1 + begins)
    assert all(len(session.links) <= handles for session in sessions(rig))
    assert only(node)["waiting"] == [] and warned(node) == [] and only(node)["lost"] == 0


def test_no_more_sessions_are_begun_than_this_node_allows_either() -> None:
    rig, node, client, broker = world(limits=Limits(sessions_max=3))
    rig.plain_settings = {"handle_max": 0}
    for address in "abcde":
        fill(rig, client, 1, f"{address}@mq")
    assert sorted(broker.came) == [*"abc"] and len(sessions(rig)) == 3
    rig.run(2 * 4 * LOOK_S)
    assert sorted(broker.came) == [*"abcde"] and only(node)["lost"] == 0


def test_a_remote_that_ends_each_further_session_keeps_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client, broker = few(2, 8)
    receive = PlainConnection.receive
    ended = []

    def one_alone(self: PlainConnection, data: bytes, now: float) -> None:
        receive(self, data, now)
        for session in self.amqp.sessions[1:]:
            if session.usable:
                session.end()
                ended.append(now)

    monkeypatch.setattr(PlainConnection, "receive", one_alone)
    for address in "abcd":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(WAIT_S[1] / 2)
    assert sorted(broker.came) == [*"abcd"] and only(node)["lost"] == 0
    assert len(ended) == 1, "none is begun again soon"


def test_a_remote_that_answers_no_further_session_keeps_its_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client, broker = few(2, 8)
    send_begin = Connection._send_begin

    def first_alone(self: Any, session: Any, remote_channel: int | None) -> None:
        if not (self.settings.container_id == broker.name and session.channel):
            send_begin(self, session, remote_channel)

    monkeypatch.setattr(Connection, "_send_begin", first_alone)
    for address in "abcd":
        fill(rig, client, 1, f"{address}@mq")
    assert sorted(broker.came) == ["a", "b"] and only(node)["waiting"] == []
    rig.run(ANSWER_S + 4 * CHANGE_S)
    assert sorted(broker.came) == [*"abcd"] and only(node)["lost"] == 0


# ------------------------------------------------------------------------------------------------ turns


def test_links_take_turns_where_the_remote_allows_no_further_session() -> None:
    rig, node, client, broker = few(1, 2)
    for address in "abcdef":
        fill(rig, client, 2, f"{address}@mq")
    allowed = "the connection allows 2 links (handle-max and channel-max of both sides)"
    assert only(node)["waiting"] == [f"{address}@mq: it waits for its turn: {allowed}" for address in "cdef"]
    assert warned(node) == [
        f"remote mq: 4 links wait for their turn: {allowed}; allow more links or sessions there, or use fewer addresses"
    ]
    rig.run(4 * 4 * LOOK_S)
    assert {address: bodies(broker.came[address]) for address in broker.came} == {key: ["1", "2"] for key in "abcdef"}
    assert only(node)["waiting"] == [] and warned(node) == [] and only(node)["lost"] == 0
    fill(rig, client, 1, "d@mq", first=3)
    rig.run(4 * LOOK_S)
    assert bodies(broker.came["d"]) == ["1", "2", "3"], "those that have nothing to send are passed over"


def test_one_link_that_waits_for_the_only_other_one_is_told_as_one() -> None:
    rig, node, client, _ = few(1, 1)
    for address in "ab":
        fill(rig, client, 1, f"{address}@mq")
    allowed = "the connection allows 1 link (handle-max and channel-max of both sides)"
    assert only(node)["waiting"] == [f"b@mq: it waits for its turn: {allowed}"]
    advice = "allow more links or sessions there, or use fewer addresses"
    assert warned(node) == [f"remote mq: 1 link waits for its turn: {allowed}; {advice}"]


def test_all_addresses_that_are_fetched_from_have_their_turns() -> None:
    """Whether anything is there, only the remote knows."""
    names = [f"f{number}" for number in range(5)]
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=tuple(Fetch(name, "work") for name in names))
    offers = {name: deque([payload(f"{name}-{number}") for number in range(3)]) for name in names}
    rig, node, client, broker = few(1, 1, remote, PlainBroker(offers=offers))
    rig.run(5 * (IDLE_S + 4 * LOOK_S))
    assert sorted(node.bodies("work")) == [f"{name}-{number}" for name in names for number in range(3)]
    offers["f0"].append(payload("late"))
    fill(rig, client, 1, "sent@mq")
    rig.run(6 * (IDLE_S + 4 * LOOK_S))
    assert "late" in node.bodies("work") and bodies(broker.came["sent"]) == ["1"]
    assert broker.not_taken == [] and only(node)["lost"] == 0


def test_a_link_that_always_has_something_to_send_leaves_its_slot_after_its_turn() -> None:
    """With nothing in doubt: the remote gets each message once."""
    rig, node, client, broker = few(1, 1)
    for number in range(int(3 * CHANGE_S)):
        fill(rig, client, 3, "busy@mq", first=1 + 3 * number)
        if number == 1:
            fill(rig, client, 1, "other@mq")
        rig.run(1)
    assert bodies(broker.came["other"]) == ["1"]
    rig.run(2 * CHANGE_S)
    assert bodies(broker.came["busy"]) == [str(number) for number in range(1, 1 + 3 * int(3 * CHANGE_S))]
    assert only(node)["lost"] == 0


def test_a_link_that_is_to_leave_sends_nothing_more() -> None:
    """Else there would always be a message of which the remote has not said anything yet."""
    rig, node, client, broker = few(
        1, 1, broker=PlainBroker(decide=lambda address, payload: None if address == "busy" else Accepted())
    )
    connection = rig.plain["mq"].connection
    fill(rig, client, 1, "other@mq")
    for number in range(int(3 * CHANGE_S)):
        before = list(connection.open)
        fill(rig, client, 1, "busy@mq", first=1 + number)
        for delivery in before:
            connection.settle(delivery, Accepted())
        rig.run(0.5)
        if number == 5:
            fill(rig, client, 1, "other@mq", first=2)
    assert bodies(broker.came["other"]) == ["1", "2"] and only(node)["lost"] == 0


def test_what_is_fetched_and_not_on_disk_yet_keeps_its_link() -> None:
    """It is accepted on that link, and comes once."""
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch("a", "work"), Fetch("b", "work")))
    offers = {"a": deque[bytes](), "b": deque([payload("b")])}
    rig, node, _, broker = few(1, 1, remote, PlainBroker(offers=offers))
    offers["a"].append(payload("a"))
    node.hold_commits = True
    rig.plain["mq"].connection.offer()
    rig.run(2 * IDLE_S)
    assert [link.context for link in rig.plain["mq"].connection.links] == ["a"]
    node.hold_commits = False
    rig.run(2 * CHANGE_S)
    assert bodies(broker.fetched) == node.bodies("work") == ["a", "b"]


def test_a_remote_that_answers_no_detach_keeps_its_other_links(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client, broker = few(3, 1)
    send_detach = Link._send_detach

    def silent(self: Any, *of: Any) -> None:
        if self.session.connection.settings.container_id != broker.name:
            send_detach(self, *of)

    monkeypatch.setattr(Link, "_send_detach", silent)
    for address in "abcd":
        fill(rig, client, 1, f"{address}@mq")
    rig.run(4 * CHANGE_S)
    fill(rig, rig.client(node), 1, "b@mq", first=2)
    fill(rig, rig.client(node), 1, "c@mq", first=2)
    assert bodies(broker.came["b"]) == bodies(broker.came["c"]) == ["1", "2"] and "d" not in broker.came


def test_a_link_whose_messages_are_not_answered_stays() -> None:
    rig, node, client, broker = few(
        1, 1, broker=PlainBroker(decide=lambda address, payload: None if address == "slow" else Accepted())
    )
    fill(rig, client, 1, "slow@mq")
    fill(rig, client, 1, "other@mq")
    rig.run(TURN_S + 2 * LEAVE_S)
    connection = rig.plain["mq"].connection
    (delivery,) = connection.open
    assert "other" not in broker.came and only(node)["waiting"]
    connection.settle(delivery, Accepted())
    rig.run(4 * LOOK_S)
    assert bodies(broker.came["slow"]) == ["1"] and bodies(broker.came["other"]) == ["1"] and only(node)["lost"] == 0


def unanswered(*addresses: str) -> PlainBroker:
    """A broker that decides nothing of what comes to these addresses."""
    return PlainBroker(decide=lambda address, payload: None if address in addresses else Accepted())


def answer(rig: Rig, body: str) -> None:
    """The remote accepts that message."""
    connection = rig.plain["mq"].connection
    (delivery,) = [each for each in connection.open if body in bodies([each.payload])]
    connection.settle(delivery, Accepted())


def test_a_link_that_is_to_leave_is_given_time_for_the_answers() -> None:
    rig, _, client, broker = few(1, 1, broker=unanswered("slow"))
    fill(rig, client, 1, "slow@mq")
    fill(rig, client, 1, "other@mq")
    rig.run(TURN_S + 4 * LOOK_S)
    fill(rig, client, 1, "slow@mq", first=2)
    rig.run(2 * LOOK_S)
    answer(rig, "1")
    rig.run(3 * LOOK_S)
    assert bodies(broker.came["slow"]) == ["1"] and bodies(broker.came["other"]) == ["1"]


def test_a_link_that_is_to_leave_goes_on_once_nobody_wants_its_slot() -> None:
    rig, node, client, broker = few(1, 1, broker=unanswered("slow"))
    fill(rig, client, 1, "slow@mq")
    fill(rig, client, 1, "other@mq")
    rig.run(TURN_S + 2 * LOOK_S)
    done(rig.client(node), "PURGE", "queue", "other@mq")
    rig.run(2 * LOOK_S)
    fill(rig, client, 1, "slow@mq", first=2)
    rig.run(LOOK_S)
    assert len(rig.plain["mq"].connection.open) == 2 and "other" not in broker.came


def test_another_link_has_to_leave_after_one_that_stays() -> None:
    """One that is not answered would have to leave each time."""
    rig, _, client, broker = few(2, 1, broker=unanswered("stuck", "slow"))
    fill(rig, client, 1, "stuck@mq")
    rig.run(LOOK_S)
    fill(rig, client, 1, "slow@mq", first=2)
    fill(rig, client, 1, "other@mq")
    rig.run(TURN_S + LEAVE_S + 4 * LOOK_S)
    fill(rig, client, 1, "slow@mq", first=3)
    answer(rig, "2")
    rig.run(3 * LOOK_S)
    assert bodies(broker.came["slow"]) == ["2"] and bodies(broker.came["other"]) == ["1"]


def test_one_link_at_a_time_leaves_its_slot() -> None:
    rig, _, client, broker = few(4, 1)
    for address in "abcdefgh":
        fill(rig, client, 1, f"{address}@mq")
    came = len(broker.came)
    for _ in range(10):
        rig.run(LOOK_S)
        assert len(broker.came) - came <= 1
        came = len(broker.came)
    assert came == 8
    assert len(sessions(rig)) == 1


def test_a_link_that_rests_leaves_its_slot_and_its_rest_goes_on() -> None:
    returned = []

    def decide(address: str, data: bytes) -> object:
        if address != "returned":
            return Accepted()
        returned.append(rig.now)
        return Released()

    rig, node, client, broker = few(1, 1, broker=PlainBroker(decide=decide))
    fill(rig, client, 1, "returned@mq")
    rig.run(2 * WAIT_S[1])
    count = len(returned)
    fill(rig, rig.client(node), 1, "other@mq")
    for number in range(int(3 * WAIT_S[1] / CHANGE_S)):
        fill(rig, rig.client(node), 1, "other@mq", first=2 + number)
        rig.run(CHANGE_S)
        assert bodies(broker.came["other"])[-1] == str(2 + number)
    assert 0 < len(returned) - count <= 4, "as seldom as before"
    assert node.bodies("returned@mq") == ["1"]


def test_what_waits_here_for_room_goes_back_when_its_link_leaves() -> None:
    """The queue here is full, and holds up no other address."""
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch("full", "full"), Fetch("free", "free")))
    offers = {"full": deque[bytes](), "free": deque([payload("1")])}
    rig, node, client, broker = world(
        remote, PlainBroker(offers=offers), queues=(QueueConfig(name="full", messages_max=2),)
    )
    rig.plain_settings = {"handle_max": 0, "channel_max": 0}
    rig.run(2 * BEGINS_S)
    fill(rig, client, 2, "full")
    offers["full"].extend(map(payload, "34"))
    rig.plain["mq"].connection.offer()
    rig.run(2 * CHANGE_S)
    assert node.bodies("free") == ["1"] and node.bodies("full") == ["1", "2"]
    assert {type(outcome) for _, outcome in broker.not_taken} == {Released}
    done(rig.client(node), "PURGE", "queue", "full")
    rig.run(2 * CHANGE_S)
    assert sorted(node.bodies("full")) == ["3", "4"]


def test_a_queue_that_waits_for_its_turn_can_be_deleted() -> None:
    rig, node, client, broker = few(1, 1)
    for address in "ab":
        fill(rig, client, 1, f"{address}@mq")
    client.amqp.close()
    rig.settle()
    done(rig.client(node), "DELETE", "queue", "b@mq")
    attached = set()
    for _ in range(int(2 * CHANGE_S / LOOK_S)):
        rig.run(LOOK_S)
        attached |= {link.name.partition(" ")[0] for link in sessions(rig)[0].links.values()}
    assert only(node)["waiting"] == [] and "b" not in broker.came and attached == {"a@mq"}


def test_links_that_wait_for_their_turn_have_it_on_the_next_connection() -> None:
    rig, node, client, broker = few(1, 1)
    for address in "abc":
        fill(rig, client, 1, f"{address}@mq")
    rig.plain["mq"].cut()
    rig.run(3 * CHANGE_S)
    assert {address: bodies(broker.came[address]) for address in broker.came} == {key: ["1"] for key in "abc"}
    assert only(node)["lost"] == 1
