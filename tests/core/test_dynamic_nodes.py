"""Dynamic nodes (§3.5.3, §3.5.4, §3.5.10 to §3.5.13; CLIENTS 32)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.connection import Receiver, Sender
from holdfast.amqp.wire.performatives import Accepted, Properties, Rejected, Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.broker.entries.entry_log import ENTRY_BYTES
from holdfast.endpoints import settlements
from holdfast.endpoints.addresses import dynamic_nodes
from holdfast.endpoints.addresses.dynamic_nodes import ORPHANS_MAX
from holdfast.engine import events
from holdfast.settings.limits import Limits
from holdfast.settings.queues import QueueConfig
from holdfast.units import MIB
from support import today
from support.rig import Client, Node, Rig

POLICY = Symbol("lifetime-policy")
values = (
    st.none()
    | st.integers(0, 9)
    | st.text(max_size=3)
    | st.builds(Described, st.integers(0x2A, 0x2F).map(Ulong), st.just([]))
)
CODES = {"close": 0x2B, "no-links": 0x2C, "no-messages": 0x2D, "no-links-or-messages": 0x2E}


def alone(**fields: Any) -> tuple[Rig, Node, Client]:
    rig = Rig()
    hub = rig.node("hub", **fields)
    hub.unwatched.add("None")  # what a dynamic node takes is not stored
    return rig, hub, rig.client(hub)


def policy(name: str | None, *, symbol: bool = False) -> dict[Any, Any] | None:
    if name is None:
        return None
    descriptor: object = Symbol(f"amqp:delete-on-{name}:list") if symbol else Ulong(CODES[name])
    return {POLICY: Described(descriptor, [])}


def dynamic_source(client: Client, wanted: dict[Any, Any] | None = None, **source: Any) -> tuple[Receiver, str]:
    terms = Source(dynamic=True, dynamic_node_properties=wanted, **source)
    link = client.session.attach_receiver(f"d{len(client.session.links)}", terms, Target("here"))
    link.grant(100)
    client.rig.settle()
    assert link.remote_attach is not None and link.remote_attach.source is not None, client.detached
    return link, link.remote_attach.source.address


def dynamic_target(client: Client, wanted: dict[Any, Any] | None = None, name: str = "d") -> tuple[Sender, str]:
    target = Target(dynamic=True, dynamic_node_properties=wanted, capabilities=("temporary-queue",))
    link = client.session.attach_sender(name, Source(), target)
    client.rig.settle()
    assert link.remote_attach is not None and link.remote_attach.target is not None, client.detached
    return link, link.remote_attach.target.address


def conditions(client: Client) -> list[str | None]:
    return [item.error.condition if item.error is not None else None for item in client.detached]


def there(hub: Node, name: str) -> bool:
    return name in hub.core.catalog.queues


@pytest.mark.parametrize("symbol", [False, True])
@pytest.mark.parametrize("name", [None, *CODES])
def test_the_answer_tells_a_fresh_address_and_the_policy_in_force(name: str | None, symbol: bool) -> None:
    _, hub, client = alone()
    receiver, address = dynamic_source(client, policy(name, symbol=symbol))
    sender, other = dynamic_target(client, policy(name, symbol=symbol))
    in_force = {POLICY: Described(Ulong(CODES[name or "close"]), [])}
    assert receiver.remote_attach is not None and sender.remote_attach is not None
    source, target = receiver.remote_attach.source, sender.remote_attach.target
    assert source.dynamic and source.dynamic_node_properties == in_force
    assert target.dynamic and target.dynamic_node_properties == in_force and target.capabilities == ("temporary-queue",)
    assert address != other and there(hub, address) and there(hub, other)


@pytest.mark.parametrize("wanted", [{POLICY: Described(Ulong(0x2F), [])}, {POLICY: "x"}, {POLICY: Described("x", [])}])
def test_a_policy_that_nobody_knows_is_answered_with_the_one_in_force(wanted: dict[Any, Any]) -> None:
    _, _, client = alone()
    receiver, _ = dynamic_source(client, wanted)
    assert receiver.remote_attach is not None
    assert receiver.remote_attach.source.dynamic_node_properties == {POLICY: Described(Ulong(0x2B), [])}


def test_a_request_and_its_answer_over_two_connections() -> None:
    rig, _, asking = alone()
    answering = rig.client(rig.nodes["hub"])
    replies, address = dynamic_source(asking)
    requests = answering.receiver("service")
    link = asking.sender("service")
    rig.settle()
    asking.send(link, "question", properties=Properties(reply_to=address))
    rig.settle()
    (request,) = answering.messages(requests)
    assert request.properties is not None and request.properties.reply_to == address
    back = answering.sender(address)
    relay = answering.session.attach_sender("anonymous", Source(), Target())
    rig.settle()
    answering.send(back, "by a link of its own")
    answering.send(relay, "by the relay", properties=Properties(to=address))
    rig.settle()
    assert asking.bodies(replies) == ["by a link of its own", "by the relay"]
    assert [type(state) for _, state in answering.outcomes] == [Accepted, Accepted]


def test_a_dynamic_target_is_read_by_another_link() -> None:
    """JMS makes its temporary queues by a sender that never sends."""
    rig, hub, client = alone()
    made, address = dynamic_target(client)
    receiver = client.receiver(address)
    rig.settle()
    assert made.credit > 0
    client.send(made, "1")
    rig.settle()
    assert client.bodies(receiver) == ["1"]
    made.detach()
    rig.settle()
    assert not there(hub, address) and conditions(client)[-1] == "amqp:resource-deleted"


def test_a_reader_of_a_dynamic_node_keeps_it() -> None:
    rig, hub, client = alone()
    receiver, address = dynamic_source(client, distribution_mode=Symbol("copy"))
    link = client.sender(address)
    rig.settle()
    client.send(link, "1")
    rig.settle()
    assert client.accept() == ["1"] and hub.queue(address).messages == 1
    receiver.detach()
    rig.settle()
    assert not there(hub, address) and "amqp:resource-deleted" in conditions(client)


@pytest.mark.parametrize("how", ["detach", "end", "close", "lost"])
@pytest.mark.parametrize("kind", ["source", "target"])
@pytest.mark.parametrize("name", list(CODES))
def test_when_a_node_goes(name: str, kind: str, how: str) -> None:
    """Each policy, through the end of its link, of another's link, and of its last message."""
    rig, hub, client = alone()
    other = rig.client(hub)
    made, address = (dynamic_source if kind == "source" else dynamic_target)(client, policy(name))
    if isinstance(made, Receiver):
        made.grant(0)
    sender = other.sender(address)
    rig.settle()
    other.send(sender, "1")
    rig.settle()
    if how == "detach":
        made.detach()
    elif how == "end":
        client.session.end()
    elif how == "close":
        client.amqp.close()
    else:
        client.close_transport()
    rig.settle()
    if name == "close":
        assert not there(hub, address) and conditions(other) == ["amqp:resource-deleted"]
        return
    assert there(hub, address)
    receiver = other.receiver(address)
    rig.settle()
    assert other.bodies(receiver) == ["1"]
    if name == "no-links":
        sender.detach()
        rig.settle()
        assert there(hub, address)
        receiver.detach()
        rig.settle()
        assert not there(hub, address) and None in conditions(other)
        return
    other.accept()
    rig.run(1)
    if name == "no-messages":
        assert not there(hub, address) and conditions(other) == ["amqp:resource-deleted"] * 2
        return
    assert there(hub, address)
    sender.detach()
    receiver.detach()
    rig.settle()
    assert not there(hub, address)


def test_what_a_link_held_keeps_a_node_that_waits_for_its_messages() -> None:
    rig, hub, client = alone()
    made, address = dynamic_source(client, policy("no-messages"))
    link = client.sender(address)
    rig.settle()
    client.send(link, "1")
    rig.settle()
    assert client.bodies(made) == ["1"]
    made.detach()  # unsettled: it is given back
    rig.settle()
    assert hub.queue(address).messages == 1


@pytest.mark.parametrize("name", ["close", "no-messages"])
@pytest.mark.parametrize("goes", [False, True])
def test_what_a_consumer_rejects_becomes_a_dead_letter(name: str, goes: bool) -> None:
    """Before the node goes, or as it goes."""
    rig, hub, client = alone()
    link, address = dynamic_source(client, policy(name))
    sender = rig.client(hub).sender(address)
    rig.settle()
    for number in range(3):
        rig.clients[-1].send(sender, str(number))
    rig.settle()
    assert client.accept(Rejected(), link=link) == ["0", "1", "2"]
    if goes:
        link.detach(closed=True)
    rig.run(1)
    core = hub.core
    assert core is not None and not core.jobs.settlements.waiting
    assert hub.bodies("$dead-letters") == ["0", "1", "2"] and core.memory.dynamic.held == 0
    assert there(hub, address) != goes
    core.validate()


@pytest.mark.parametrize("name", ["close", "no-messages"])
def test_what_still_waits_to_become_one_goes_with_the_node_or_keeps_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(settlements, "SETTLED_BYTES_MAX", 1)
    rig, hub, client = alone()
    link, address = dynamic_source(client, policy(name))
    sender = rig.client(hub).sender(address)
    rig.settle()
    for number in range(3):
        rig.clients[-1].send(sender, str(number))
    rig.settle()
    hub.hold_commits = True
    client.accept(Rejected(), link=link)
    link.detach(closed=True)
    rig.settle()
    hub.hold_commits = False
    rig.run(1)
    core = hub.core
    assert core is not None and not core.jobs.settlements.waiting and core.memory.dynamic.held == 0
    kept = ["0", "1", "2"] if name == "no-messages" else hub.bodies("$dead-letters")
    assert hub.bodies("$dead-letters") == kept and 0 < len(kept) <= 3 and not there(hub, address)


def test_names_are_the_nodes_to_give() -> None:
    rig, hub, client = alone()
    _, address = dynamic_source(client)
    assert address.startswith("$temporary/") and len(address) == len("$temporary/") + 32
    for text in ("$temporary/mine", "$temporary/", f"{address}0", f"{address}@hub"):
        client.sender(text)
        client.receiver(text)
    rig.settle()
    assert len(client.detached) == 8 and set(conditions(client)) == {"amqp:not-found"}
    status, _, _ = client.manage("CREATE", "queue", "$temporary/mine")
    assert status == 400
    assert client.manage("DELETE", "queue", address)[0] == 409
    assert client.manage("OPEN", "subscription", "s", queue=address)[0] == 409
    assert len([name for name in hub.core.catalog.queues if name.startswith("$temporary/")]) == 1


@pytest.mark.parametrize("capability", ["temporary-queue", "temporary-topic"])
def test_a_node_ends_at_once_though_its_connection_is_dropped_when_the_turns_work_is_done(
    capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is used up: the heaviest connection goes at the very end of a turn."""
    rig, hub, heavy = alone(limits=Limits(memory_bytes_max=2 * MIB, attaches_burst=100_000))
    core = hub.core
    assert core is not None
    other = rig.client(hub)
    made = heavy.session.attach_sender("made", Source(), Target(dynamic=True, capabilities=(Symbol(capability),)))
    rig.settle()
    assert made.remote_attach is not None and made.remote_attach.target is not None
    link = other.receiver(made.remote_attach.target.address)
    rig.settle()
    assert link.attached
    handle, wakes = core.handle, []

    def handles(event: events.Event, now: float) -> list[events.Command]:
        before = core.memory.dropped
        commands = handle(event, now)
        if core.memory.dropped > before:
            assert isinstance(event, events.TurnEnded)
            wakes.append(core.next_deadline())
        return commands

    monkeypatch.setattr(core, "handle", handles)
    while not wakes and len(heavy.session.links) < 200:
        heavy.sender("work", properties={Symbol("x"): bytes(30_000)})
        rig.settle()
    assert wakes == [rig.now] and not link.attached


def test_an_address_beside_dynamic_is_passed_over() -> None:
    rig, hub, client = alone()
    link = client.receiver("wanted", source={"dynamic": True})
    rig.settle()
    assert link.remote_attach is not None and link.remote_attach.source.address.startswith("$temporary/")
    assert not there(hub, "wanted")


def test_no_subscription_is_made_of_it() -> None:
    _, hub, client = alone()
    receiver, address = dynamic_source(client, durable=2, expiry_policy=Symbol("never"))
    assert receiver.remote_attach is not None and receiver.remote_attach.source.durable == 0
    assert hub.queue(address).named == {}


def test_nothing_of_it_is_stored() -> None:
    rig, hub, client = alone(queues=(QueueConfig(name="work"),))
    rig.run(1)
    commits = hub.core.turns.number
    _, address = dynamic_source(client)
    link = client.sender(address)
    rig.settle()
    client.send(link, "1")
    rig.settle()
    assert client.accept() == ["1"]
    rig.settle()
    assert hub.core.turns.number == commits
    hub.crash()
    hub.start()
    rig.settle()
    assert list(hub.core.catalog.queues) == ["work"]


@pytest.mark.parametrize("refused", [False, True])
def test_the_bound_on_nodes_of_a_connection(refused: bool) -> None:
    rig, hub, client = alone(limits=Limits(dynamic_nodes_max=3))
    made = [dynamic_source(client)[0], dynamic_source(client)[0], dynamic_target(client)[0]]
    if refused:
        client.session.attach_sender("more", Source(), Target(dynamic=True))
        rig.settle()
        assert conditions(client) == ["amqp:resource-limit-exceeded"]
    dynamic_source(rig.client(hub))  # another's are its own
    made[0].detach()
    rig.settle()
    dynamic_source(client)
    client.close_transport()
    rig.settle()
    assert len(hub.core.dynamic_nodes.of_peer) == 1


def test_the_bound_on_queues_counts_them() -> None:
    rig, _, client = alone(limits=Limits(queues_max=1))
    made, _ = dynamic_source(client)
    client.session.attach_sender("more", Source(), Target(dynamic=True))
    rig.settle()
    assert conditions(client) == ["amqp:resource-limit-exceeded"]
    made.detach()
    rig.settle()
    dynamic_target(client)


def test_the_bound_on_bytes_is_one_for_all() -> None:
    """A message at the bound is taken, one byte more is refused, and what leaves makes room."""
    body = b"x" * 1000
    one = len(b"\x00\x53\x75\xb0\0\0\0\0") + len(body)
    rig, hub, client = alone(limits=Limits(dynamic_bytes_max=2 * (one + ENTRY_BYTES)))
    places = [dynamic_target(client, name=f"d{number}") for number in range(3)]

    def send(number: int, size: int) -> str:
        client.outcomes.clear()
        client.send(places[number][0], "x" * size)
        rig.settle()
        ((_, state),) = client.outcomes
        return "" if isinstance(state, Accepted) else str(state.error.condition)

    assert [send(0, 1000), send(1, 1001), send(1, 1000), send(2, 1)] == [
        "", "amqp:resource-limit-exceeded", "", "amqp:resource-limit-exceeded",
    ]  # fmt: skip
    client.receiver(places[0][1])
    rig.settle()
    client.accept()
    rig.run(1)
    assert send(2, 1000) == "" and send(2, 1) == "amqp:resource-limit-exceeded"
    for sender, _ in places:
        sender.detach()
    rig.settle()
    assert hub.core.dynamic_nodes.bytes_left == 2 * (one + ENTRY_BYTES)


@pytest.mark.parametrize("count", [40, 41])
def test_the_bound_on_bytes_holds_for_many_at_once(count: int) -> None:
    """As they come in one read; the last is one past the bound."""
    one = len(b"\x00\x53\x75\xa0\0") + 10 + ENTRY_BYTES
    rig, hub, client = alone(limits=Limits(dynamic_bytes_max=40 * one))
    made, address = dynamic_target(client)
    for _ in range(count):
        client.send(made, "x" * 10)
    rig.settle()
    taken = [state for _, state in client.outcomes if isinstance(state, Accepted)]
    assert len(client.outcomes) == count and len(taken) == 40 == hub.queue(address).messages
    assert hub.core.dynamic_nodes.bytes_left == 0


def test_the_bound_on_nodes_that_outlive_their_link(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ORPHANS_MAX == 1_000
    monkeypatch.setattr(dynamic_nodes, "ORPHANS_MAX", 3)
    rig, hub, client = alone()
    addresses = []
    for _ in range(4):
        made, address = dynamic_target(client, policy("no-messages"))
        client.send(made, "kept")
        rig.settle()
        made.detach()
        rig.settle()
        addresses.append(address)
        assert there(hub, address) and there(hub, addresses[0]) is (len(addresses) <= 3)


def test_a_refused_attach_leaves_no_node() -> None:
    rig, hub, client = alone()
    bad = {Symbol("f"): Described(Symbol("holdfast:start-sequence:ulong"), "x")}
    client.session.attach_receiver("r", Source(dynamic=True, filter=bad), Target("here"))
    client.session.attach_sender("p", Source(), Target(dynamic=True), properties={Symbol("holdfast:producer"): "p"})
    rig.settle()
    assert conditions(client) == ["amqp:invalid-field"] * 2
    assert not hub.core.catalog.queues and not hub.core.dynamic_nodes.of_peer


def test_other_nodes_cannot_name_it() -> None:
    """Custody ends on a disk, and a dynamic node has none."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(3)
    _, address = dynamic_source(rig.client(hub))
    client = rig.client(jfk)
    client.sender(f"{address}@hub")
    rig.settle()
    assert conditions(client) == ["amqp:not-found"]


def test_a_proper_stop_with_dynamic_nodes() -> None:
    rig, hub, client = alone()
    made, address = dynamic_source(client)
    link = client.sender(address)
    made.grant(0)
    rig.settle()
    client.send(link, "1")
    rig.settle()
    hub.handle(events.Stopping())
    rig.settle()
    assert hub.stopped and not there(hub, address)
    assert not dict(hub.store.table("queues"))


@settings(max_examples=today.drawn(50))
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.booleans(),
            st.none() | st.text(max_size=8) | st.binary(max_size=3) | st.integers(0, 9).map(Ulong) | st.just("work"),
            st.none() | st.dictionaries(st.sampled_from([POLICY, Symbol("x"), Ulong(1)]), values, max_size=2),
            st.sampled_from([0, 1, 2, 7]),
            st.sampled_from(["never", "link-detach", "x"]),
        ),
        max_size=5,
    )
)
def test_no_terminus_harms_the_node(termini: list[tuple[Any, ...]]) -> None:
    rig, hub, client = alone(limits=Limits(dynamic_nodes_max=2, queues_max=4))
    for number, (sends, dynamic, address, properties, durable, expiry) in enumerate(termini):
        terms = {
            "address": address, "dynamic": dynamic, "dynamic_node_properties": properties, "durable": durable,
            "expiry_policy": Symbol(expiry),
        }  # fmt: skip
        if sends:
            client.session.attach_sender(f"n{number}", Source(), Target(**terms))
        else:
            client.session.attach_receiver(f"n{number}", Source(**terms), Target())
    rig.settle()
    links = len(client.session.links)
    assert links + len(client.detached) == len(termini)
    client.amqp.close()
    rig.settle()
    assert not [name for name in hub.core.catalog.queues if name.startswith("$temporary/")]
    assert not hub.core.dynamic_nodes.of_peer


def check(hub: Node) -> None:
    """What is counted is what is there."""
    held = hub.core.dynamic_nodes
    queues = [queue for name, queue in hub.core.catalog.queues.items() if name.startswith("$temporary/")]
    used = sum(queue.bytes_held + ENTRY_BYTES * queue.messages for queue in queues)
    assert held.bytes_left == hub.config.limits.dynamic_bytes_max - used
    counted: dict[Any, int] = {}
    for queue in queues:
        if queue.peer is not None:
            counted[queue.peer] = counted.get(queue.peer, 0) + 1
        assert (queue.peer is None) == (queue.creator is None) == (queue in held._orphans)
        assert queue.creator is not None or queue.policy != Ulong(CODES["close"])
        assert queue.links(hub.core.links) or queue.messages
        assert len(queue.ephemeral) == queue.messages
    assert held.of_peer == counted


@pytest.mark.parametrize("seed", today.some(range(25), 5))
def test_whatever_clients_do_nothing_is_left_that_should_not_be(seed: int) -> None:
    rig = Rig(seed)
    hub = rig.node("hub", limits=Limits(dynamic_nodes_max=4, dynamic_bytes_max=20_000))
    hub.unwatched.add("None")
    clients = [rig.client(hub) for _ in range(3)]
    links: list[tuple[Client, Any]] = []
    for number in range(120):
        chance = rig.random
        at = chance.randrange(3)
        client = clients[at]
        names = [name for name in hub.core.catalog.queues if name.startswith("$temporary/")]
        what = chance.choice(["make", "make", "join", "join", "send", "send", "send", "accept", "detach", "go", "move"])
        if what == "make":
            wanted = policy(chance.choice([None, *CODES]))
            if chance.random() < 0.5:
                target = Target(dynamic=True, dynamic_node_properties=wanted)
                links.append((client, client.session.attach_sender(f"n{number}", Source(), target)))
            else:
                mode = chance.choice([None, Symbol("copy")])
                source = Source(dynamic=True, dynamic_node_properties=wanted, distribution_mode=mode)
                links.append((client, client.session.attach_receiver(f"n{number}", source, Target())))
        elif what == "join" and names:
            if chance.random() < 0.5:
                links.append((client, client.sender(chance.choice(names), name=f"n{number}")))
            else:
                links.append((client, client.receiver(chance.choice(names), name=f"n{number}", credit=2)))
        elif what == "send":
            for owner, link in links:
                if isinstance(link, Sender) and link.sendable and chance.random() < 0.5:
                    owner.send(link, "x" * chance.choice([1, 1000]))
        elif what == "accept":
            client.accept(count=2)
        elif what == "detach" and links:
            links.pop(chance.randrange(len(links)))[1].detach()
        elif what == "go" and chance.random() < 0.3:
            client.close_transport() if chance.random() < 0.5 else client.amqp.close()
            links = [item for item in links if item[0] is not client]
            rig.settle()
            clients[at] = rig.client(hub)
        if chance.random() < 0.6:
            rig.settle()
            check(hub)
        else:
            rig.step()
    for client in clients:
        client.amqp.close()
    rig.run(1)
    check(hub)
    assert not hub.core.dynamic_nodes.of_peer and not hub.core.links.refills
    for queue in hub.core.dynamic_nodes._orphans:
        assert queue.messages and queue.policy in (0x2D, 0x2E)


def test_a_node_whose_end_fails_ends_with_the_next_try_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, hub, client = alone()
    (first, address), (second, other) = dynamic_target(client, name="a"), dynamic_target(client, name="b")
    over, failures = dynamic_nodes.DynamicNodes._over, []

    def failing(self: dynamic_nodes.DynamicNodes, queue: dynamic_nodes.TemporaryQueue) -> bool:
        if queue.name == address and not failures:
            failures.append(queue.name)
            raise MemoryError("once")
        return over(self, queue)

    monkeypatch.setattr(dynamic_nodes.DynamicNodes, "_over", failing)
    first.detach()
    second.detach()
    rig.settle()
    rig.run(5)
    assert failures and not there(hub, address) and not there(hub, other)
