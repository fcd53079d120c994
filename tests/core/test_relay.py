"""Links without a target address: each message's `to` decides (CLIENTS 33; Anonymous Terminus for Message Routing)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.connection import Sender
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.endpoints.relay import ROUTES_MAX
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from support import today
from support.rig import Client, Rig


def anonymous(client: Client, target: Target | None = None, **options: Any) -> Sender:
    link = client.session.attach_sender("anonymous", Source(), target, **options)
    client.rig.settle()
    return link


def send(client: Client, link: Sender, to: Any, body: str, *, settled: bool = False) -> None:
    """Without properties where `to` is None."""
    properties = None if to is None else Properties(to=to)
    link.send(Message(properties=properties, data=[body.encode()]).encode(), context=body, settled=settled)


def told(client: Client) -> dict[str, str]:
    """Outcome by body: "" for accepted, else the condition."""
    return {
        body: "" if isinstance(state, Accepted) else str(state.error.condition) if isinstance(state, Rejected) else "?"
        for body, state in client.outcomes
    }


def alone(**fields: Any) -> tuple[Rig, Any, Client]:
    rig = Rig()
    hub = rig.node("hub", **fields)
    return rig, hub, rig.client(hub)


@pytest.mark.parametrize("target", [None, Target(), Target(capabilities=("queue",))])
def test_each_message_says_where_it_goes(target: Target | None) -> None:
    rig, hub, client = alone()
    link = anonymous(client, target)
    assert link.attached and not link.refused and link.remote_attach is not None
    assert link.remote_attach.target == (target or Target())  # not null, or it would be a refusal (§2.6.3)
    for number, to in enumerate(("a", "b", "a@hub", "b@localhost", "/queues/c%2Fd", "amqps://host.example:1/a")):
        send(client, link, to, str(number))
    rig.settle()
    assert set(told(client).values()) == {""}
    assert (hub.bodies("a"), hub.bodies("b"), hub.bodies("c/d")) == (["0", "2", "5"], ["1", "3"], ["4"])


def test_it_is_offered() -> None:
    rig, _, client = alone()
    rig.settle()
    opened = client.amqp.remote_open
    assert opened is not None and Symbol("ANONYMOUS-RELAY") in (opened.offered_capabilities or ())


@pytest.mark.parametrize(
    ("to", "condition"),
    [
        (None, "amqp:precondition-failed"),
        ("missing", "amqp:not-found"),
        ("work@nowhere", "amqp:not-found"),
        ("$temporary/0", "amqp:not-found"),
        ("", "amqp:invalid-field"),
        ("@hub", "amqp:invalid-field"),
        ("$custody", "amqp:not-found"),
        ("$waiting", "amqp:invalid-field"),
        ("x" * 201, "amqp:invalid-field"),
        ("a\nb", "amqp:invalid-field"),
        ("/queues/%zz", "amqp:invalid-field"),
        ("amqps://host", "amqp:invalid-field"),
    ],
)
def test_a_bad_address_costs_its_message_alone(to: str | None, condition: str) -> None:
    rig, hub, client = alone(create_queues=False, queues=(QueueConfig(name="work"),))
    link = anonymous(client)
    send(client, link, "work", "1")
    send(client, link, to, "2")
    send(client, link, "work", "3")
    send(client, link, to, "4", settled=True)
    send(client, link, "work", "5")
    rig.settle()
    assert told(client) == {"1": "", "2": condition, "3": "", "5": ""}
    assert hub.bodies("work") == ["1", "3", "5"] and link.attached
    (text,) = [state.error.description for body, state in client.outcomes if body == "2"]
    assert any(
        words in text
        for words in ("expected ", "no address", "no queue", "no route", "belongs to", "needs the property")
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\x53\x73",
        b"\x00\x53\x73\xc0\x02\x01\x3f",
        b"\x00\x53\x73\xa1\x01a",
        b"\x00\x53\x99\x45",
        encode(Described(Ulong(0x73), [None, None, Ulong(5)])),
        encode(Described(Ulong(0x73), [None, "no binary", "work"])),
        encode(Described(Ulong(0x75), b"body")),
        encode(Described(Ulong(0x72), [])),
    ],
)
def test_a_payload_without_a_readable_address(payload: bytes) -> None:
    rig, hub, client = alone()
    link = anonymous(client)
    link.send(payload, context="bad")
    send(client, link, "work", "good")
    rig.settle()
    assert told(client)["good"] == "" and told(client)["bad"] in ("amqp:decode-error", "amqp:precondition-failed")
    assert hub.bodies("work") == ["good"] and link.attached


@pytest.mark.parametrize("code", [0x71, 0x72, 0x73])
@pytest.mark.parametrize("over", [0, 1])
def test_no_more_is_decoded_for_an_address_than_a_section_may_have(code: int, over: int) -> None:
    """Decoded, a section may take 60 times its bytes in memory, and a long time."""
    limits = Limits(annotation_bytes_max=4_096)
    rig, _, client = alone(queues=(QueueConfig(name="work"),), limits=limits)
    link = anonymous(client)
    size = 4_096 + over - (12 if code == 0x72 else 9)  # of these the section's descriptor counts, too
    if code == 0x73:
        before = b"".join((encode(None), encode(None), encode("work")))
        body = before + encode("s" * (size - len(before) - 5))
        section = b"\x00\x53\x73\xd0" + (len(body) + 4).to_bytes(4) + (4).to_bytes(4) + body
        payload = section + b"\x00\x53\x75\xa0\x01x"
    else:
        text = encode("s" * (size - len(encode(Symbol("k"))) - 5))
        body = encode(Symbol("k")) + text
        section = b"\x00\x53" + bytes((code,)) + b"\xd1" + (len(body) + 4).to_bytes(4) + (2).to_bytes(4) + body
        payload = section + Message(properties=Properties(to="work"), data=[b"x"]).encode()
    link.send(payload, context="it")
    rig.settle()
    assert told(client) == {"it": "amqp:resource-limit-exceeded" if over else ""}


def test_queues_are_made_where_the_node_makes_them() -> None:
    rig, hub, client = alone(create_queues=True, limits=Limits(queues_max=2))
    link = anonymous(client)
    for name in ("a", "b", "c"):
        send(client, link, name, name)
    rig.settle()
    assert told(client) == {"a": "", "b": "", "c": "amqp:resource-limit-exceeded"}
    assert hub.bodies("a") == ["a"] and link.attached


def test_a_message_for_another_node_goes_there() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(3)
    client = rig.client(jfk)
    link = anonymous(client)
    for number in range(1, 4):
        send(client, link, "work@hub", str(number))
        send(client, link, "work", f"here {number}")
    rig.run(3)
    assert set(told(client).values()) == {""}
    assert hub.bodies("work") == ["1", "2", "3"] and jfk.bodies("work") == ["here 1", "here 2", "here 3"]


@pytest.mark.parametrize("when_full", ["block", "refuse"])
def test_a_full_queue_rejects_and_holds_nothing_else_up(when_full: str) -> None:
    """At the bound and one past it; a link of its own would wait at a queue that blocks."""
    queues = (QueueConfig(name="small", messages_max=2, when_full=when_full), QueueConfig(name="work"))
    rig, hub, client = alone(queues=queues)
    link = anonymous(client)
    for number in range(3):
        send(client, link, "small", str(number))
    send(client, link, "work", "other")
    rig.settle()
    assert told(client) == {"0": "", "1": "", "2": "amqp:resource-limit-exceeded", "other": ""}
    assert hub.bodies("work") == ["other"] and link.credit > 0
    client.receiver("small", credit=1)
    rig.settle()
    client.accept()
    rig.run(1)
    send(client, link, "small", "4")
    rig.settle()
    assert told(client)["4"] == ""


def test_a_full_disk_rejects_and_loses_nothing() -> None:
    rig, hub, client = alone(queues=(QueueConfig(name="memory", durable=False),))
    hub.unwatched.add("None")  # what a queue in memory takes is never stored
    link = anonymous(client)
    send(client, link, "work", "1")
    rig.settle()
    hub.refuse = 1
    send(client, link, "work", "2")
    send(client, link, "memory", "3")
    rig.settle()
    assert told(client) == {"1": "", "2": "amqp:resource-limit-exceeded", "3": ""}
    assert hub.bodies("work") == ["1"] and hub.bodies("memory") == ["3"] and link.attached
    rig.run(2)
    send(client, link, "work", "4")
    rig.run(2)
    assert told(client)["4"] == "" and hub.bodies("work") == ["1", "4"]


@pytest.mark.parametrize("how", ["stalled", "gone"])
def test_while_the_disk_takes_nothing_it_has_no_credit_as_all_others(how: str) -> None:
    rig, hub, client = alone(limits=Limits(commit_stall_s=2.0))
    other, late = rig.client(hub), rig.client(hub)
    link, idle = anonymous(client), anonymous(other)
    assert link.credit > 0 and idle.credit > 0
    hub.hold_commits = how == "stalled"
    hub.store.on_disk, hub.store.missing = True, "it was removed or moved" if how == "gone" else None
    send(client, link, "work", "1")
    rig.run(2.5)
    new = anonymous(late)
    assert link.credit == idle.credit == new.credit == 0
    hub.hold_commits, hub.store.missing = False, None
    rig.run(2)
    assert link.credit > 0 and idle.credit > 0 and new.credit > 0
    send(other, idle, "work", "2")
    rig.settle()
    assert "2" in hub.bodies("work")
    for each in (client, other, late):
        assert each.end is not None
        each.end.wire.cut()
    rig.settle()
    assert hub.core is not None and not hub.core.links.relays


def test_credit_is_topped_up_and_is_no_more_than_the_limit() -> None:
    rig, hub, client = alone(limits=Limits(credit=10))
    link = anonymous(client)
    assert link.credit == 10
    for number in range(100):
        send(client, link, f"q{number % 3}", str(number))
        rig.settle()
        assert 5 < link.credit <= 10
    assert hub.bodies("q0") == [str(number) for number in range(0, 100, 3)]


def test_a_queue_may_be_deleted_and_made_again_meanwhile() -> None:
    rig, hub, client = alone()
    link = anonymous(client)
    send(client, link, "work", "1")
    rig.settle()
    assert client.manage("DELETE", "queue", "work")[0] == 200
    send(client, link, "work", "2")
    rig.settle()
    assert hub.bodies("work") == ["2"] and set(told(client).values()) == {""}


@pytest.mark.parametrize("count", [ROUTES_MAX, ROUTES_MAX + 1])
def test_the_bound_on_addresses_remembered(count: int) -> None:
    rig, hub, client = alone()
    link = anonymous(client)
    for _ in range(2):
        for number in range(count):
            send(client, link, f"q{number}", "x")
        rig.settle()
    (relay,) = [end.context for peer in hub.core.connections.values() for end in _links(peer)]
    assert len(relay.routes) == ROUTES_MAX
    assert all(hub.queue(f"q{number}").messages == 2 for number in range(count))


def _links(peer: Any) -> list[Any]:
    return [link for session in peer.amqp.sessions for link in session.links.values() if link.name == "anonymous"]


def test_the_nodes_management_answers_to_its_address() -> None:
    rig, hub, client = alone()
    hub.unwatched.add("None")  # requests are not stored
    client.manage("STATUS", "node")  # the reply link is there
    link = anonymous(client)
    request = Message(
        properties=Properties(message_id="m9", to="$management", reply_to="replies"),
        application_properties={"operation": "STATUS", "type": "holdfast:node", "name": ""},
        value={},
    )
    link.send(request.encode(), context="request")
    rig.settle()
    (answer,) = client.messages()
    assert answer.properties is not None and answer.properties.correlation_id == "m9"
    assert told(client) == {"request": ""}


def test_a_named_producer_needs_an_address() -> None:
    rig, _, client = alone()
    anonymous(client, properties={Symbol("holdfast:producer"): "p"})
    rig.settle()
    (detached,) = client.detached
    assert detached.error is not None and detached.error.condition == "amqp:invalid-field"


def test_nobody_is_believed_on_a_neighbours_word() -> None:
    """The node's own annotations are taken off here as elsewhere."""
    rig, _, client = alone(neighbours=(NeighbourConfig(name="jfk"),))
    link = anonymous(client)
    message = Message(
        properties=Properties(to="work"), data=[b"1"],
        message_annotations={Symbol("x-opt-holdfast-trace"): "x", Symbol("x-opt-mine"): 1},
    )  # fmt: skip
    link.send(message.encode(), context="1")
    receiver = client.receiver("work")
    rig.settle()
    (found,) = client.messages(receiver)
    assert found.message_annotations is not None
    keys = {str(key) for key in found.message_annotations}
    assert "x-opt-mine" in keys and "x-opt-holdfast-trace" not in keys


def test_a_relay_that_is_lost_while_it_waits_for_room_leaves_nothing_behind() -> None:
    """Nor do the places that it looked up, kept or not: nobody asks them again."""
    rig, hub, client = alone(unknown_destination="keep")
    link = anonymous(client)
    core = hub.core
    send(client, link, "work", "1")
    rig.settle()
    hub.hold_commits = True
    other = rig.client(hub)
    send(other, anonymous(other), "work", "2")
    rig.settle()  # what room there is, the commit under way decides
    core.room.bytes = 0
    send(client, link, "work@nowhere", "3")
    rig.settle()
    assert core.links.waiting_for_space
    core.links.refills.update(core.links.waiting_for_space)
    client.close_transport()
    rig.settle()
    assert not core.links.waiting_for_space and not core.links.refills
    core.validate()
    hub.hold_commits = False
    rig.settle()
    core.validate()


def test_a_lost_connection_leaves_nothing_behind() -> None:
    rig, hub, client = alone()
    link = anonymous(client)
    send(client, link, "work", "1")
    rig.settle()
    client.close_transport()
    rig.settle()
    assert not hub.core.links.refills and not hub.core.links.waiting_for_space and hub.bodies("work") == ["1"]
    assert hub.core.links.producers_of(hub.queue("work")) == {}


@pytest.mark.parametrize("seed", today.some(range(15), 4))
def test_what_was_accepted_is_there_in_order_whatever_the_disk_and_the_line_do(seed: int) -> None:
    """The rig holds every acceptance against the commits; here each queue's order, and that nothing is doubled."""
    rig = Rig(seed)
    names = ("a", "b", "c")
    hub = rig.node("hub", queues=(QueueConfig(name="b", messages_max=15), QueueConfig(name="c", durable=True)))
    accepted: list[str] = []
    sent = 0
    for _ in range(4):
        client = rig.client(hub)
        link = client.session.attach_sender("anonymous", Source(), Target())
        rig.settle()
        for _ in range(60):
            if rig.random.random() < 0.4 and link.sendable:
                to = rig.random.choice((*names, None, "x@nowhere"))
                send(client, link, to, f"{to} {sent}")
                sent += 1
            elif rig.random.random() < 0.05:
                hub.refuse = 1
            else:
                rig.step()
        if rig.random.random() < 0.5:
            rig.settle()
        client.close_transport()
        rig.settle()
        accepted += [body for body, state in client.outcomes if isinstance(state, Accepted)]
        assert all(not body.startswith(("None", "x@")) for body in accepted)
    for name in names:
        stored = hub.bodies(name) if name in hub.core.catalog.queues else []
        numbers = [int(body.split()[1]) for body in stored]
        assert numbers == sorted(set(numbers)) and all(body.startswith(f"{name} ") for body in stored)
        assert [body for body in accepted if body.startswith(f"{name} ") and body not in stored] == []
        assert name != "b" or len(stored) <= 15


anything = st.recursive(
    st.none() | st.booleans() | st.text(max_size=4) | st.binary(max_size=4) | st.integers(0, 9).map(Ulong),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=today.drawn(50))
@given(
    st.lists(
        st.binary(max_size=30)
        | st.builds(lambda code, value: encode(Described(Ulong(code), value)), st.integers(0x6F, 0x79), anything)
        | st.lists(anything, max_size=14).map(lambda fields: encode(Described(Ulong(0x73), fields))),
        max_size=6,
    )
)
def test_no_payload_harms_the_link(payloads: list[bytes]) -> None:
    """Each is decided, none raises, and the next good one goes through."""
    rig, hub, client = alone(limits=Limits(queues_max=3))
    hub.unwatched.add("None")
    link = anonymous(client)
    for number, payload in enumerate(payloads):
        link.send(payload, context=number)
    send(client, link, "work", "good")
    rig.settle()
    told_of = [context for context, _ in client.outcomes]
    assert sorted(map(str, told_of)) == sorted(map(str, [*range(len(payloads)), "good"]))
    assert link.attached and not client.detached
