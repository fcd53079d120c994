"""Who may do what is asked at each attach, and for each message of a link without an address (peers/authorise.py)."""

from typing import Any

import pytest

from holdfast.access.current import CurrentAccess
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import START_SEQUENCE
from holdfast.amqp.wire.performatives import Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.settings.hosts import UserConfig
from support.rig import Client, Node, Rig

UNAUTHORIZED = "amqp:unauthorized-access"


class Asked:
    """What was asked, as (who, action, address); refuses the addresses in `refused`, and the actions in `denied`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, str, str]] = []
        self.refused: set[str] = set()
        self.denied: set[str] = set()

    def answer(self, who: str | None, action: str, address: str) -> str | None:
        self.asked.append((who, action, address))
        return f"not to {action} here" if address in self.refused or action in self.denied else None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()
    monkeypatch.setattr(
        CurrentAccess, "authorise", lambda self, who, action, address, host: found.answer(who, action, address)
    )
    return found


@pytest.fixture
def hub() -> Node:
    return Rig().node("hub")


def refusals(client: Client) -> list[tuple[str, str]]:
    """Condition and description of each link that was refused."""
    client.rig.settle()
    return [(str(item.error.condition), str(item.error.description)) for item in client.detached if item.error]


def test_a_link_is_refused_where_its_user_may_not_send_or_receive(hub: Node, asked: Asked) -> None:
    asked.refused = {"secret"}
    client = hub.rig.client(hub)
    sender, receiver = client.sender("secret"), client.receiver("secret")
    assert refusals(client) == [(UNAUTHORIZED, "not to send here"), (UNAUTHORIZED, "not to receive here")]
    assert sender.refused and receiver.refused
    assert asked.asked == [(None, "send", "secret"), (None, "receive", "secret")]
    assert hub.core is not None and "secret" not in hub.core.catalog.queues  # nothing is made for who is refused


def test_whoever_is_refused_one_queue_has_the_others(hub: Node, asked: Asked) -> None:
    asked.refused = {"secret"}
    client = hub.rig.client(hub)
    client.sender("secret")
    sender = client.sender("work")
    client.receiver("work")
    hub.rig.settle()
    client.send(sender, "1")
    hub.rig.settle()
    assert client.bodies() == ["1"]


@pytest.mark.parametrize("address", ["work@hub", "work@localhost", "/queues/work", "amqps://host.example/work"])
def test_an_address_is_asked_about_as_the_node_writes_it(hub: Node, asked: Asked, address: str) -> None:
    client = hub.rig.client(hub)
    client.sender(address)
    hub.rig.settle()
    assert asked.asked == [(None, "send", "work"), (None, "create", "work")]


def test_a_queue_of_another_node_is_asked_about_with_its_node(asked: Asked) -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    asked.asked.clear()
    asked.refused = {"work@hub"}
    client = rig.client(jfk)
    client.sender("work@hub")
    assert refusals(client) == [(UNAUTHORIZED, "not to relay here")]
    assert asked.asked == [(None, "relay", "work@hub")]


def test_a_session_of_neighbours_needs_no_such_answer(asked: Asked) -> None:
    asked.refused = {"$holdfast/control", "$holdfast/custody"}
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    client = rig.client(jfk)
    sender = client.sender("work@hub")
    rig.settle()
    client.send(sender, "1")
    rig.run(1)
    assert hub.bodies("work") == ["1"]


@pytest.mark.parametrize("role", ["send", "receive"])
def test_dynamic_nodes_and_management_are_asked_about_too(hub: Node, asked: Asked, role: str) -> None:
    asked.refused = {"", "$management"}
    client = hub.rig.client(hub)
    if role == "send":
        client.session.attach_sender("s", Source(), Target(dynamic=True))
        client.sender("$management")
    else:
        client.session.attach_receiver("r", Source(dynamic=True), Target("here"))
        client.receiver("$management", credit=0)
    assert refusals(client) == [(UNAUTHORIZED, f"not to {role} here")] * 2
    assert asked.asked == [(None, role, ""), (None, role, "$management")]


def test_a_queue_is_made_on_demand_by_who_may_create_it(hub: Node, asked: Asked) -> None:
    client = hub.rig.client(hub)
    client.sender("there")
    hub.rig.settle()
    asked.denied = {"create"}
    for address in ("new", "topic/new", "there"):
        client.sender(address)
    assert refusals(client) == [(UNAUTHORIZED, "not to create here")] * 2
    assert hub.core is not None and {"new", "topic/new"}.isdisjoint(hub.core.catalog.queues)


@pytest.mark.parametrize(
    ("source", "action"),
    [
        ({}, "receive"),
        ({"distribution_mode": Symbol("move")}, "receive"),
        ({"distribution_mode": Symbol("copy")}, "browse"),
        ({"distribution_mode": Symbol("copy"), "durable": 2, "expiry_policy": Symbol("never")}, "receive"),
        ({"filter": {Symbol("s"): Described(START_SEQUENCE, Ulong(1))}}, "browse"),
        (
            {
                "durable": 2,
                "expiry_policy": Symbol("never"),
                "filter": {Symbol("s"): Described(START_SEQUENCE, Ulong(1))},
            },
            "browse",
        ),
    ],
)
def test_to_read_and_leave_it_there_is_to_browse(hub: Node, asked: Asked, source: dict[str, Any], action: str) -> None:
    client = hub.rig.client(hub)
    client.sender("work")
    hub.rig.settle()
    asked.asked.clear()
    client.receiver("work", source=source)
    hub.rig.settle()
    assert asked.asked == [(None, action, "work")]


def test_of_others_dynamic_nodes_is_asked_and_not_of_ones_own(asked: Asked) -> None:
    rig = Rig()
    node = rig.node("hub", users=tuple(UserConfig(name=name, password="x") for name in ("ann", "bob")))
    ann, bob = (rig.client(node, mechanism="PLAIN", user=name, password="x") for name in ("ann", "bob"))
    link = ann.session.attach_receiver("r", Source(dynamic=True), Target("here"))
    rig.settle()
    address = link.source.address
    asked.asked.clear()
    ann.sender(address)
    ann.receiver(address)
    rig.settle()
    assert asked.asked == []
    asked.refused = {address}
    bob.sender(address)
    bob.receiver(address)
    assert refusals(bob) == [(UNAUTHORIZED, "not to send here"), (UNAUTHORIZED, "not to receive here")]
    assert asked.asked == [("bob", "send", address), ("bob", "receive", address)]


def test_a_subscription_is_ended_by_who_may_receive_from_its_queue(hub: Node, asked: Asked) -> None:
    client = hub.rig.client(hub)
    kept = {"durable": 2, "expiry_policy": Symbol("never")}
    link = client.receiver("work", name="mine", source=kept)
    hub.rig.settle()
    link.detach(closed=False)
    hub.rig.settle()
    asked.refused = {"work"}
    client.detached.clear()
    client.session.attach_receiver("mine", None, Target("here"))  # as an "unsubscribe" begins
    (refused,) = refusals(client)
    assert refused == ("amqp:not-found", "no subscription 'mine' that was created by a link"), "as if it were not there"
    assert hub.core is not None and "mine" in hub.core.catalog.queues["work"].named


def test_each_message_of_a_link_without_an_address_is_asked_about(hub: Node, asked: Asked) -> None:
    """What a user may do can change while the link is there, and what it looked up before is remembered."""
    client = hub.rig.client(hub)
    link = client.session.attach_sender("anonymous", Source(), None)
    hub.rig.settle()
    assert not asked.asked  # nobody knows where to yet

    def send(to: str) -> Any:
        client.outcomes.clear()
        message = Message(properties=Properties(to=to), data=[b"1"])
        link.send(message.encode(), context=to)
        hub.rig.settle()
        ((_, outcome),) = client.outcomes
        return outcome

    assert not isinstance(send("work"), Rejected) and not isinstance(send("work@hub"), Rejected)
    assert asked.asked == [(None, "send", "work"), (None, "create", "work"), (None, "send", "work")]
    asked.refused = {"work", "$management"}
    for to in ("work", "work@hub", "$management"):
        outcome = send(to)
        assert isinstance(outcome, Rejected) and outcome.error is not None
        assert (outcome.error.condition, outcome.error.description) == (UNAUTHORIZED, "not to send here")
    asked.refused.clear()
    assert not isinstance(send("work"), Rejected)
    assert hub.bodies("work") == ["1"] * 3 and not link.detached


def test_who_is_refused_takes_nothing_from_an_older_link_of_that_name(hub: Node, asked: Asked) -> None:
    """The link that it would have taken the place of goes on, and what is kept of it stays."""
    asked.refused = {"secret"}
    older, newer = hub.rig.client(hub), hub.rig.client(hub)
    kept = older.receiver("work", name="mine", source={"timeout": 600})
    hub.rig.settle()
    resume = hub.core.resume
    before = len(resume.outgoing)
    refused = newer.receiver("secret", name="mine")
    hub.rig.settle()
    assert refused.error is not None and kept.attached and not kept.detached
    assert before == len(resume.outgoing) == 1
