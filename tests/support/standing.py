"""Nodes in the middle of their work: whatever a node keeps, one of these has some of it.

Rules of this file: made through the wire; what is made holds all invariants. Each call makes a node anew.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import DELIVERY_DELAY, PRODUCER
from holdfast.amqp.wire.performatives import Accepted, Modified, Properties, Rejected, Released, Source, Target
from holdfast.amqp.wire.types import Described, Symbol
from holdfast.custody.hop.paced_sender import PacedSender
from holdfast.federation.sets import Key
from holdfast.federation.settings import Entry
from holdfast.pacing.settings import PacingConfig
from holdfast.peers.link_tables import links_of
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import LinkConfig, QueueConfig
from holdfast.units import KIB
from support.hops import send
from support.rig import Node, Rig
from support.streams import LARGE, begun, body
from support.transactions import Controller

SELECTOR = Symbol("apache.org:selector-filter:string")

Standing = SimpleNamespace
"""`rig`, `node`, `core`, and what else a node of that kind has."""


def core_of(node: Node) -> Any:
    assert node.core is not None
    return node.core


def serving() -> Standing:
    """A node with clients: entries held, given back, set aside, finished out of order, in memory and copied; links of
    each kind, one of them to be resumed; a dynamic node; an answer that waits for credit."""
    rig = Rig()
    queues = (QueueConfig(name="memory", durable=False), QueueConfig(name="full", messages_max=1))
    node = rig.node("hub", queues=queues)
    node.unwatched.add("memory")  # what a queue in memory takes is not stored
    core = core_of(node)
    client = rig.client(node)
    assert client.manage("OPEN", "subscription", "copies", queue="work", mode="copy")[0] == 201
    for address, count in (("work", 6), ("memory", 2), ("plain", 6), ("kept", 3)):
        link = client.sender(address)
        rig.settle()
        for number in range(count):
            client.send(link, f"{address}-{number}")
        rig.settle()
    full, other = client.sender("full"), rig.client(node, container_id="other")
    filling = other.sender("full")
    rig.settle()
    other.send(filling, "first")
    rig.settle()
    client.send(full, "parked")  # it had credit before
    client.sender("named", properties={PRODUCER: "me"})
    held = client.receiver("plain", credit=4)
    client.receiver("work", credit=4)
    client.receiver("kept", credit=2, name="kept", source={"timeout": 30})
    client.reader("work", 1)
    rig.settle()
    first, second = [item for item in client.deliveries if item.link is held][:2]
    held.settle(first.delivery_id, first.delivery_id, Released())
    held.settle(second.delivery_id, second.delivery_id, Modified(undeliverable_here=True))
    rig.settle()
    terms = Source(dynamic=True)
    made = client.session.attach_receiver("made", terms, Target("here"))
    rig.settle()
    assert made.attached
    asking = rig.client(node, container_id="asking")
    asking.manage("STATUS", "node")
    assert asking._management is not None
    asking._management[1].grant(0)
    rig.settle()
    (peer,) = [item for item in core.connections.values() if item.amqp.remote_open.container_id == "client"]
    return Standing(
        rig=rig, node=node, core=core, client=client, peer=peer, plain=node.queue("plain"), work=node.queue("work"),
        memory=node.queue("memory"), links={link.link.name: link for link in links_of(peer)}, held=held,
    )  # fmt: skip


def selecting() -> Standing:
    """A node with a consumer whose selector some of the messages match: it holds two of those three."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("chosen")
    rig.settle()
    for number in range(6):
        client.send(link, str(number), properties=Properties(subject="late" if number > 2 else "early"))
    rig.settle()
    client.receiver(
        "chosen", credit=2, source={"filter": {Symbol("selector"): Described(SELECTOR, "JMSType = 'late'")}}
    )
    rig.settle()
    assert client.bodies() == ["3", "4"]
    return Standing(rig=rig, node=node, core=core_of(node), chosen=node.queue("chosen"))


def publishing() -> Standing:
    """A node with a topic that has two durable subscriptions, by pattern and to everything, and one that is not; each
    was sent something."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    durable = {"durable": 2, "expiry_policy": Symbol("never")}
    for name, pattern in (("all", ""), ("late", "/late.#")):
        client.receiver(f"topic/flights{pattern}", name=name, credit=0, source=durable)
    client.receiver("topic/flights/early.*", credit=0)
    link = client.sender("topic/flights")
    rig.settle()
    for subject in ("late.jfk", "early.jfk", "other"):
        client.send(link, subject, properties=Properties(subject=subject))
    rig.settle()
    return Standing(rig=rig, node=node, core=core_of(node), topic=node.queue("topic/flights"))


def committing() -> Standing:
    """A node whose disk is at work, with another turn gathered: entries come and go in both."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link, taking = client.sender("work"), client.receiver("work", credit=2)
    rig.settle()
    for number in range(6):
        client.send(link, str(number))
    rig.settle()
    node.hold_commits = True
    one, other = client.deliveries
    taking.settle(one.delivery_id, one.delivery_id, Accepted())
    client.send(link, "under way")
    rig.settle()
    client.send(link, "gathered")
    taking.settle(other.delivery_id, other.delivery_id, Accepted())
    rig.settle()
    core = core_of(node)
    assert core.turns.in_flight is not None and core.turns.gathered.batch
    return Standing(rig=rig, node=node, core=core, client=client, work=node.queue("work"), link=link)


def rejecting() -> Standing:
    """A node that has more outcomes to carry out than a turn takes."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link, taking = client.sender("work"), client.receiver("work", credit=400)
    rig.settle()
    for number in range(400):
        client.send(link, str(number))
        if not number % 100:
            rig.settle()
    rig.settle()
    first, last = client.deliveries[0], client.deliveries[-1]
    taking.settle(first.delivery_id, last.delivery_id, Rejected())
    client.flush()
    assert client.end is not None
    end = client.end.wire.other(client.end)
    data = bytes(end.inbox)
    end.inbox.clear()
    end.receive(data)
    core = core_of(node)
    assert core.jobs.settlements.waiting
    return Standing(rig=rig, node=node, core=core, client=client, work=node.queue("work"), taking=taking)


def streaming() -> Standing:
    """A node with large messages: one that comes, one that goes, one that lies there."""
    rig = Rig()
    node = rig.node("hub", limits=Limits(stream_bytes=100 * KIB))
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    for name in "ab":
        client.send(link, body(LARGE, name))
    rig.settle()
    slow = rig.client(node, container_id="slow", incoming_window=2)
    slow.session.hold_window(True)
    slow.receiver("work", credit=1)
    rig.settle()
    more = client.sender("more")
    rig.settle()
    part = client.sender("part")
    rig.settle()
    payload = Message(data=[body(LARGE, "c").encode()]).encode()
    begun(client, more, payload, 200 * KIB)
    begun(client, part, payload, 10 * KIB)
    rig.settle()
    core = core_of(node)
    assert len(core.streams) == 1 and core.connections.sending
    peers = {peer.amqp.remote_open.container_id: peer for peer in core.connections.values()}
    return Standing(
        rig=rig, node=node, core=core, client=client, slow=peers["slow"], peer=peers["client"], work=node.queue("work")
    )


def linking() -> Standing:
    """A node with links between queues: one that copies, with its batch at the disk, and one that has nothing to do."""
    rig = Rig()
    links = (
        LinkConfig(name="copies", source="work", target="copied", mode="copy"),
        LinkConfig(name="idle", source="empty", target="moved"),
    )
    node = rig.node("hub", links=links)
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    node.hold_commits = True
    for number in range(3):
        client.send(link, str(number))
    core = core_of(node)
    held = core.queue_links
    rig.settle()
    while not (node.pending is not None and held.by_name["copies"].moving):
        node.finish_commit()
        rig.settle()
    assert len(held.by_name["copies"].moving.left) == 3 and core.catalog.rows.tied
    return Standing(
        rig=rig, node=node, core=core, client=client, links=held, copies=held.by_name["copies"],
        idle=held.by_name["idle"],
    )  # fmt: skip


def delaying() -> Standing:
    """A node with a message that is not to be delivered yet."""
    rig = Rig()
    node = rig.node("hub")
    client = rig.client(node)
    link = client.sender("work")
    rig.settle()
    client.send(link, "late", message_annotations={DELIVERY_DELAY: 60_000})
    rig.settle()
    return Standing(rig=rig, node=node, core=core_of(node), client=client)


def limiting() -> Standing:
    """A node with a subscription of which one message has failed as often as it may, and is on its way to the disk as a
    dead letter; another one is in its consumer's hands."""
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="limited", deliveries_max=1),))
    client = rig.client(node)
    assert client.manage("OPEN", "subscription", "reads", queue="limited", mode="copy")[0] == 201
    link = client.sender("limited")
    rig.settle()
    for number in range(3):
        client.send(link, str(number))
    durable = {"durable": 2, "expiry_policy": Symbol("never"), "distribution_mode": Symbol("copy")}
    taker = rig.client(node)
    taker.receiver("limited", name="reads", credit=2, source=durable)
    rig.settle()
    node.hold_commits = True
    taker.accept(Modified(delivery_failed=True), count=1)
    rig.settle()
    core = core_of(node)
    cursor = node.queue("limited").named["reads"]
    assert node.pending is not None and core.delivery_limits.moving.by_cursor[cursor] and 2 in cursor.acquired
    return Standing(rig=rig, node=node, core=core, client=client, cursor=cursor, limits=core.delivery_limits)


def transacting() -> Standing:
    """A node with an open transaction, which sends one message and takes two, one of them settled."""
    rig = Rig()
    node = rig.node("hub", queues=(QueueConfig(name="other", messages_max=5),))
    client = send(rig, node, "1", "2", to="hub")
    controller, link = Controller(client), client.sender("other")
    client.receiver("work")
    rig.settle()
    txn_id = controller.begin()
    controller.send(txn_id, link, "x")
    controller.take(txn_id)
    controller.take(txn_id, settled=False)
    core = core_of(node)
    transaction = core.transactions.open[txn_id]
    assert len(transaction.posts) == 1 and len(transaction.takes) == 2
    return Standing(
        rig=rig, node=node, core=core, client=client, controller=controller, transaction=transaction,
        held=core.transactions, work=node.queue("work"), other=node.queue("other"),
    )  # fmt: skip


def deciding() -> Standing:
    """The same, while the disk has its commit."""
    found = transacting()
    found.node.hold_commits = True
    found.controller.commit(found.transaction.txn_id)
    assert found.transaction.deciding
    return found


def sending() -> Standing:
    """A node that has sent messages to its neighbour, which has not answered; some of them it brought itself."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    client = send(rig, jfk, "1", to="hub")
    hub.hold_commits = True
    send(rig, jfk, "2", "3", to="hub")
    core = core_of(jfk)
    hop = core.next_hops["hub"]
    sender = hop.senders["hub"]
    assert len(sender.in_doubt) == 2 and sender.open
    return Standing(
        rig=rig, node=jfk, core=core, client=client, hop=hop, sender=sender, neighbour=core.neighbours["hub"],
        peer=core.neighbours["hub"].peer,
    )  # fmt: skip


def waiting() -> Standing:
    """A destination at which messages wait for one before them."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(8)
    core_of(jfk).catalog.ledger.identities["hub"] = 2
    send(rig, jfk, "2", "3", to="hub")
    core = core_of(hub)
    (origin,) = core.catalog.ledger.all_origins()
    assert sorted(origin.waiting) == [2, 3]
    return Standing(rig=rig, node=hub, core=core, origin=origin, lies=core.catalog.queues["$waiting"])


def grouped() -> Standing:
    """A destination at which the two messages of a transaction wait, together, for one before them."""
    rig = Rig()
    jfk, hub = rig.pair(queues=(QueueConfig(name="work", order="strict"),))
    rig.run(8)
    core_of(jfk).catalog.ledger.identities["hub"] = 2
    client = rig.client(jfk)
    controller, link = Controller(client), client.sender("work@hub")
    rig.settle()
    mine = controller.begin()
    for text in ("2", "3"):
        controller.send(mine, link, text)
    controller.commit(mine)
    rig.settle()
    core = core_of(hub)
    (origin,) = core.catalog.ledger.all_origins()
    (group,) = origin.groups.by_first.values()
    assert sorted(group.members) == sorted(origin.waiting) == [2, 3]
    return Standing(rig=rig, node=hub, core=core, origin=origin, group=group)


def apart() -> Standing:
    """A node whose neighbour is away, with messages for it."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    send(rig, jfk, "1", to="hub")
    hub.crash()
    rig.refuse_dials = True
    rig.settle()
    send(rig, jfk, "2", to="hub")
    core = core_of(jfk)
    return Standing(
        rig=rig, node=jfk, core=core, sender=core.next_hops["hub"].senders["hub"], neighbour=core.neighbours["hub"]
    )


def pacing() -> Standing:
    """A node that is a root for one neighbour, and keeps to the rates of the other, for which messages wait for
    theirs."""
    rig = Rig()
    neighbours = tuple(NeighbourConfig(name=name) for name in ("hub", "c"))
    to_it = (NeighbourConfig(name="mid", remote="127.0.0.1:1"),)
    hub = rig.node("hub", neighbours=to_it, pacing=PacingConfig(rate=1_000))
    mid = rig.node("mid", neighbours=neighbours, pacing=PacingConfig(rate=1_000, roots=("hub",)))
    rig.node("c", neighbours=to_it, pacing=PacingConfig(roots=("mid",)))
    rig.run(3)
    send(rig, mid, *["x" * 500] * 20, to="hub")
    core = core_of(mid)
    sender, pacer = core.next_hops["hub"].senders["hub"], core.rates.pacers["hub"]
    assert isinstance(sender, PacedSender) and sender.waiting
    assert core.rates.root is not None
    table = core.rates.root.groups.tables[""]
    assert "c" in table.rows and core_of(hub)
    return Standing(
        rig=rig, node=mid, core=core, sender=sender, pacer=pacer, rates=core.rates, table=table, row=table.rows["c"]
    )


def federating() -> Standing:
    """The node in the middle of three: it takes what the one behind it wants, wants something itself, and is followed
    by the one before it."""
    rig = Rig()
    a, b, c = (
        rig.node(name, neighbours=neighbours, federation=entries)
        for name, neighbours, entries in (
            ("a", (NeighbourConfig(name="b", remote="127.0.0.1:1"),), (Entry("prices", "b"),)),
            (
                "b",
                (NeighbourConfig(name="a"), NeighbourConfig(name="c", remote="127.0.0.1:1")),
                (Entry("prices", "c"),),
            ),
            ("c", (NeighbourConfig(name="b"),), ()),
        )
    )
    core = core_of(b)
    for node, patterns in ((b, ("eu.#", "us.*")), (c, ("us.#", "asia.#"))):
        client = rig.client(node)
        for pattern in patterns:
            client.receiver(f"topic/prices/{pattern}")
        rig.run(3)
    federation, key = core.bindings.federation, Key("c", "prices")
    held = federation.sets.committed(key)
    assert len(held.rows) == 2 and key in federation.neighbours["a"].serving.followers and core_of(a)
    return Standing(
        rig=rig, node=b, core=core, control=core.bindings, federation=federation, sets=federation.sets, key=key,
        own=Key("b", "prices"), held=held, serving=federation.neighbours["a"].serving,
        taken=federation.neighbours["c"], taking=federation.neighbours["c"].taking,
    )  # fmt: skip


def of_each(make: Callable[[], Standing]) -> Standing:
    """One of these, in which no invariant is broken."""
    found = make()
    found.core.validate()
    return found
