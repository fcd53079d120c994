"""Brokers that allow little, are slow to answer, or ask for much (endpoints/remotes/)."""

from collections import deque
from typing import Any

import pytest

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Accepted, Released, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.endpoints.remotes.fetching import SETTLED
from holdfast.endpoints.remotes.kept_link import ANSWER_S, WAIT_S
from holdfast.endpoints.remotes.remote import BEGINS_S
from holdfast.engine import events
from holdfast.errors import ConfigError
from holdfast.settings.limits import Limits
from holdfast.settings.node import NodeConfig
from holdfast.settings.remotes import REMOTE_NAME_BYTES_MAX, Fetch, RemoteConfig
from holdfast_lab.base.plain_broker import PlainBroker, PlainConnection
from support.one_node import fill
from support.plain_party import bodies, payload
from support.remotes import only, world
from support.rig import Node, Rig

SMALLEST = 512
"""Bytes of the smallest frame that a peer may ask for (AMQP 1.0 §2.4.1)."""


# ------------------------------------------------------------------------------------------------------ small frames


def test_a_long_address_is_served_by_a_remote_with_the_smallest_frames() -> None:
    rig, node, client, broker = world()
    rig.plain_settings = {"max_frame_size": SMALLEST}
    far = "x" * 200
    fill(rig, client, 1, f"{far}@mq")
    assert bodies(broker.came[far]) == ["1"] and only(node)["lost"] == 0


@pytest.mark.parametrize("connected", [True, False], ids=["session is up", "session begins"])
def test_an_address_that_fits_no_frame_of_the_remote_delays_no_other(connected: bool) -> None:
    far = "x" * 600
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", addresses=(("long", far),))
    rig, node, client, broker = world(remote)
    rig.plain_settings = {"max_frame_size": SMALLEST}
    rig.refuse_dials = not connected
    rig.run(3 if connected else 0)
    fill(rig, client, 1, "long@mq")
    fill(rig, client, 1, "short@mq")
    rig.refuse_dials = False
    rig.run(20)
    assert bodies(broker.came["short"]) == ["1"] and only(node)["lost"] == 0
    (waits,) = only(node)["waiting"]
    assert waits.startswith("long@mq: no link to it can be attached: Attach takes ")
    assert client.outcomes == [("1", Accepted()), ("1", Accepted())] and node.bodies("long@mq") == ["1"]
    assert not any("defect" in line for line in node.logs)


def test_what_is_fetched_from_a_long_address_may_go_to_a_long_one() -> None:
    far, here = "f" * 250, "h" * 200
    broker = PlainBroker(offers={far: deque([payload("1")])})
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch(far, here),))
    rig, node, _, _ = world(remote, broker)
    rig.plain_settings = {"max_frame_size": SMALLEST}
    rig.run(3)
    assert node.bodies(here) == ["1"]


def test_the_names_of_an_address_and_its_remote_are_one_key_of_the_store() -> None:
    name = "r" * REMOTE_NAME_BYTES_MAX
    remote = RemoteConfig(name=name, remote="127.0.0.1:1")
    rig = Rig()
    rig.refuse_dials = True
    node = rig.node("hub", remotes=(remote,))
    fill(rig, rig.client(node), 1, "a" * 200 + f"@{name}")
    assert node.bodies("a" * 200 + f"@{name}") == ["1"]
    longer = RemoteConfig(name=name + "r", remote="127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"invalid name 'r+' of a remote; expected at most 199 bytes"):
        NodeConfig(name="hub", remotes=(longer,)).validate()


# ---------------------------------------------------------------------------------------------- sessions and answers


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("channel_max", [0, 255])
@pytest.mark.parametrize("size", [1, 64, None])
def test_a_remote_may_begin_the_session(
    size: int | None, channel_max: int, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the network cuts what it says: its begin may come some reads after its open."""
    rig, node, client, broker = world(broker=PlainBroker(begins=begins))
    rig.plain_settings = {"channel_max": channel_max}
    deliver = rig._deliver
    monkeypatch.setattr(rig, "_deliver", lambda end, _=None: deliver(end, size))
    fill(rig, client, 1, "flights@mq")
    rig.run(3)
    assert bodies(broker.came["flights"]) == ["1"] and only(node)["lost"] == 0


def test_a_node_that_stops_begins_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remote allows one, has not begun it, and does not answer the close either."""
    receive = PlainConnection.receive

    def until_opened(self: PlainConnection, data: bytes, now: float) -> None:
        if not self.amqp.usable:
            receive(self, data, now)

    monkeypatch.setattr(PlainConnection, "receive", until_opened)
    rig, node, client, _ = world()
    rig.plain_settings = {"channel_max": 0}
    fill(rig, client, 1, "flights@mq")
    rig.run(0.3)
    node.handle(events.Stopping())
    rig.run(3)
    assert not [line for line in node.logs if "defect" in line], node.logs


def test_a_session_that_was_awaited_on_a_lost_connection_is_not_begun_on_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its open comes late, and it begins the only session itself."""
    rig, node, client, broker = world()
    rig.plain_settings = {"channel_max": 0}
    rig.run(BEGINS_S / 2)
    assert only(node)["state"] == "opening", "the remote may begin the session"
    broker.begins = True
    said = bytearray()
    with monkeypatch.context() as patch:
        patch.setattr(PlainConnection, "receive", lambda self, data, now: said.extend(data))
        rig.plain["mq"].cut()
        rig.run(2 * BEGINS_S)
    rig.plain["mq"].receive(bytes(said))
    fill(rig, client, 1, "flights@mq")
    rig.run(3 * BEGINS_S)
    assert bodies(broker.came["flights"]) == ["1"] and only(node)["lost"] == 1


def test_a_connection_on_which_no_session_begins_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, node, client, broker = world()
    fill(rig, client, 1, "flights@mq")
    received, deaf = PlainConnection.receive, True

    def only_the_open(self: Any, data: bytes, now: float) -> None:
        if not deaf or self.amqp.remote_open is None:
            received(self, data, now)

    monkeypatch.setattr(PlainConnection, "receive", only_the_open)
    rig.plain["mq"].cut()
    rig.run(2)
    assert only(node)["state"] == "opening"
    rig.run(ANSWER_S - 2)
    deaf = False
    rig.run(5)
    assert any(f"it has not begun a session for {ANSWER_S:g} s" in line for line in node.logs)
    assert only(node)["state"] == "up"
    fill(rig, client, 1, "flights@mq", first=2)
    assert bodies(broker.came["flights"]) == ["1", "2"]


def test_an_attach_that_the_remote_does_not_answer_is_reported() -> None:
    rig, node, client, broker = world(broker=PlainBroker(ignores={"flights"}))
    fill(rig, client, 1, "flights@mq")
    fill(rig, client, 1, "other@mq")
    assert only(node)["waiting"] == [] and bodies(broker.came["other"]) == ["1"]
    rig.run(ANSWER_S + 1)
    text = f"flights@mq: the remote has not answered the attach for {ANSWER_S:g} s"
    assert only(node)["waiting"] == [text] and only(node)["state"] == "up"
    assert node.core is not None
    assert [f"remote mq: {text}; look at that address, here and there"] == [
        line for line in node.core.report.status("")["warnings"] if "remote" in line
    ]
    broker.ignores.clear()
    connection = rig.plain["mq"].connection
    for link in connection.amqp.sessions[0].links.values():
        if link.remote_attach is not None and not link.attach_sent:
            connection._attach(link)
    connection._top_up()
    rig.run(1)
    assert only(node)["waiting"] == [] and bodies(broker.came["flights"]) == ["1"]


def test_a_link_that_worked_and_was_ended_for_being_idle_is_attached_again_soon() -> None:
    rig, node, client, broker = world()
    fill(rig, client, 1, "flights@mq")
    for _ in range(8):
        for _ in range(7):
            rig.run(WAIT_S[1] / 6)
            rig.plain["mq"].connection.tick(rig.now)
        (link,) = rig.plain["mq"].connection.links
        link.detach(closed=True)
        rig.run(WAIT_S[0] + 0.1)
        assert only(node)["waiting"] == [] and len(rig.plain["mq"].connection.links) == 1
    fill(rig, rig.client(node), 1, "flights@mq", first=2)
    assert bodies(broker.came["flights"]) == ["1", "2"]


# ------------------------------------------------------------------------------------------------ what is fetched


def fetching(broker: PlainBroker, target: str = "work", **fields: Any) -> tuple[Any, ...]:
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch("theirs", target),))
    return world(remote, broker, **fields)


def test_a_remote_that_only_sends_settled_messages_is_not_fetched_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be lost where there is no room."""
    attach = PlainConnection._attach

    def settled(self: Any, link: Any) -> None:
        assert link.remote_attach.snd_settle_mode == 0, "unsettled ones are asked for"
        link.remote_attach.snd_settle_mode = SETTLED
        attach(self, link)

    monkeypatch.setattr(PlainConnection, "_attach", settled)
    rig, node, _, broker = fetching(PlainBroker(offers={"theirs": deque([payload("1")])}))
    rig.run(3)
    (waits,) = only(node)["waiting"]
    assert waits.startswith("theirs to work: the remote only sends settled messages")
    assert len(broker.offers["theirs"]) == 1


def test_what_cannot_be_delayed_now_stays_at_the_remote() -> None:
    later = {Symbol("x-opt-delivery-delay"): Ulong(10_000)}
    offered = deque(Message(data=[str(number).encode()], message_annotations=later).encode() for number in range(4))
    rig, node, _, broker = fetching(PlainBroker(offers={"theirs": offered}), limits=Limits(delayed_max=2))
    rig.run(5)
    assert bodies(broker.fetched) == ["0", "1"]
    assert {type(outcome) for _, outcome in broker.not_taken} == {Released}
    rig.run(60)
    assert sorted(node.bodies("work")) == ["0", "1", "2", "3"]


def test_a_remote_s_messages_are_taken_in_shares_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a client, however many selectors each is matched with: others have their turns meanwhile."""
    messages = 500
    rig = Rig()
    rig.brokers["mq"] = broker = PlainBroker()
    remote = RemoteConfig(name="mq", remote="127.0.0.1:1", fetch=(Fetch("theirs", "topic/flights"),))
    node = rig.node("hub", remotes=(remote,))
    client = rig.client(node)
    client.receiver("topic/flights", name="kept", source={"durable": 2, "expiry_policy": Symbol("never")})
    for number in range(50):
        selector = Described(Symbol("apache.org:selector-filter:string"), f"x{number} = {number}")
        client.receiver("topic/flights", source={"filter": {Symbol("s"): selector}})
    rig.run(2)
    shares: list[int] = []
    handle = Node.handle

    def counted(self: Node, event: Any) -> None:
        before = self.queue("topic/flights").next_sequence
        handle(self, event)
        shares.append(self.queue("topic/flights").next_sequence - before)

    monkeypatch.setattr(Node, "handle", counted)
    broker.offers["theirs"].extend(payload(str(number)) for number in range(messages))
    rig.plain["mq"].connection.offer()
    rig.run(5)
    assert len(broker.fetched) == sum(shares) == messages
    assert max(shares) <= messages // 4


def test_what_a_remote_asks_for_beside_its_messages_is_bounded() -> None:
    """It attaches and detaches as fast as the line carries; each is refused."""
    rig, node, client, _ = world(limits=Limits(attaches_per_s=10, attaches_burst=50))
    fill(rig, client, 1, "flights@mq")
    session = rig.plain["mq"].connection.amqp.sessions[0]
    for number in range(200):
        session.attach_sender(f"link-{number}", Source(), Target(address="work"))
    rig.run(1)
    left = len(session.links) - 1
    assert 100 <= left <= 150
    rig.run(20)
    assert only(node)["state"] == "up" and len(session.links) == 1
