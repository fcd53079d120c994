"""Acts on what a node offers beyond links: filters, dynamic nodes, transactions, management, producers, resuming.

Rules of this file: those of `acts.py`.
"""

from typing import Any, Final
from uuid import UUID

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import END_SEQUENCE, PRODUCER, START_SEQUENCE, SUBSCRIPTION, TAG_OFFSET
from holdfast.amqp.wire.performatives import (
    Accepted,
    Coordinator,
    Declare,
    Discharge,
    Properties,
    Received,
    Source,
    Target,
    TransactionalState,
)
from holdfast.amqp.wire.types import Described, Symbol, Ubyte, Uint, Ulong
from holdfast_lab.hostile.acts import (
    FLOOD,
    NUMBERS,
    REQUESTS,
    SEQUENCES,
    STORM,
    act,
    message,
    receiving,
)
from holdfast_lab.hostile.client import UINT_MAX, HostileClient

OWN: Final = ("$holdfast/custody", "$holdfast/control", "$waiting", "$dead-letters", "$nothing", "@hub", "")
"""What a node keeps for itself, and what names nothing."""


@act("transactions")
def transactions(client: HostileClient) -> bytes:
    draw = client.random.choice
    which = draw(("transfer", "flow", "coordinator"))
    if which == "transfer":
        sends = client.pick(receives=False, credit=True)
        if sends is None:
            return client.attach(False)[1]
        return client.transfer(sends, message(client, 10), state=TransactionalState(draw((b"", b"t", b"t" * 99))))
    if which == "flow":
        link, said = receiving(client)
        return said + client.flow(link, link_credit=5, properties={Symbol("txn-id"): b"t"})
    return client.attach(False, target=Coordinator((Symbol("amqp:local-transactions"),)))[1]


@act("transactions without credit", rude=True)
def transactions_at_once(client: HostileClient) -> bytes:
    link, said = client.attach(False, target=Coordinator((Symbol("amqp:local-transactions"),)))
    asked = client.random.choice((Declare(), Discharge(b"t", fail=False)))
    return said + client.transfer(link, b"\x00\x53\x77" + encode(asked))


@act("filters")
def filters(client: HostileClient) -> bytes:
    draw = client.random.choice
    wild: dict[Any, Any] = draw((
        {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 'b'")},
        {Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), [])},
        {Symbol("x"): Described(Symbol("example:nonsense"), {"a": [1] * 100})},
        {Symbol("x"): "no described value"},
        {Symbol("s"): Described(START_SEQUENCE, Ulong(draw(SEQUENCES)))},
        {Symbol("s"): Described(START_SEQUENCE, Ulong(draw(SEQUENCES))),
         Symbol("e"): Described(END_SEQUENCE, Ulong(draw(SEQUENCES)))},
        {Symbol("s"): Described(START_SEQUENCE, "first")},
        {Symbol("s"): Described(SUBSCRIPTION, ["s", UUID(int=client.random.getrandbits(128)), Ulong(1)])},
        {Symbol("s"): Described(SUBSCRIPTION, [1, 2, 3, 4])},
        {Symbol(f"f{n}"): Described(Ulong(n), n) for n in range(200)},
    ))  # fmt: skip
    link, said = client.attach(True, source=Source(draw(client.places.own), filter=wild))
    return said + client.flow(link, link_credit=10)


@act("dynamic nodes")
def dynamic_nodes(client: HostileClient) -> bytes:
    draw = client.random.choice
    found = []
    for _ in range(STORM):
        policy = {Symbol("lifetime-policy"): Described(Ulong(draw((0x2B, 0x2C, 0x2D, 0x2E, 0x99))), [])}
        wanted: dict[str, Any] = {"dynamic": True, "dynamic_node_properties": draw((None, policy))}
        if draw((True, False)):
            found.append(client.attach(True, source=Source(**wanted))[1])
        else:
            found.append(client.attach(False, target=Target(**wanted))[1])
    for address in client.addresses[-2:]:
        link, said = client.attach(draw((True, False)), source=Source(address), target=Target(address))
        found.append(said + (client.flow(link, link_credit=10) if link.receives else b""))
    return b"".join(found)


@act("management requests")
def management(client: HostileClient) -> bytes:
    """By the hundred; the link of the replies never has credit."""
    draw = client.random.choice
    link = next(
        (one for one in client.session().links.values() if one.address == "$management" and not one.receives), None
    )
    said = b""
    if link is None:
        link, said = client.attach(False, target=Target("$management"))
        said += client.attach(True, source=Source("$management"), target=Target("replies"))[1]
    own = draw(client.places.own)
    found = []
    for number in range(min(REQUESTS, max(1, link.credit))):
        operation, kind, name = draw((
            ("STATUS", "holdfast:node", ""), ("READ", "holdfast:queue", own), ("QUERY", "holdfast:queue", ""),
            ("CREATE", "holdfast:queue", f"{own}-{number % 7}"), ("DELETE", "holdfast:queue", f"{own}-{number % 7}"),
            ("PURGE", "holdfast:queue", own), ("OPEN", "holdfast:subscription", "s"), ("WHERE", "holdfast:node", ""),
            ("QUERY", "holdfast:subscription", ""), ("DANCE", "holdfast:queue", own), ("READ", "x" * 500, "y" * 500),
        ))  # fmt: skip
        asked = {"operation": operation, "type": kind, "name": name}
        value = {"queue": own, "mode": draw(("copy", "take")), "messages_max": 3, "message_id": "x", "after": "a"}
        head = encode(Properties(message_id=number, reply_to=draw(("replies", "nowhere", None))))
        section = encode(Described(Ulong(0x74), asked)) + encode(Described(Ulong(0x77), value))
        found.append(client.transfer(link, head + section, settled=draw((None, True))))
    return said + b"".join(found)


@act("floods to nobody")
def floods(client: HostileClient) -> bytes:
    """`nosuch` at a node that is there, and a queue at one that is not."""
    nodes = client.places.nodes
    target = f"nosuch@{client.random.choice(nodes)}" if nodes and client.random.random() < 0.5 else "q@nosuch"
    link = next((one for one in client.session().links.values() if one.address == target), None)
    if link is None:
        return client.attach(False, target=Target(target))[1]
    return b"".join(client.transfer(link, message(client, 20)) for _ in range(min(FLOOD, max(0, link.credit))))


@act("anonymous terminus")
def anonymous(client: HostileClient) -> bytes:
    draw = client.random.choice
    link = next((one for one in client.session().links.values() if one.address is None and not one.receives), None)
    if link is None:
        return client.attach(False, target=Target())[1]
    to = draw((draw(client.places.own), "nosuch@nosuch", "$management", "", None, "@", "x" * 5_000))
    count = min(5, max(0, link.credit))
    return b"".join(client.transfer(link, message(client, 10, to=to), settled=draw((None, True))) for _ in range(count))


@act("one delivery-id for many settled", rude=True)
def repeated_settled(client: HostileClient) -> bytes:
    """Legal for settled deliveries of some clients (Proton repeats them so), also on the anonymous terminus."""
    draw = client.random.choice
    links = [link for link in client.session().links.values() if link.credit >= 5 and not link.abandoned]
    if not links or (draw((True, False)) and all(link.address is not None for link in links)):
        return client.attach(False, target=Target())[1]
    link = next((link for link in links if link.address is None), links[0])
    number, settled = client.session().next_id, draw((True, True, None))
    return b"".join(
        client.transfer(link, message(client, 10, to=draw(client.places.own)), delivery_id=number, settled=settled)
        for _ in range(5)
    )


@act("durable subscriptions")
def subscriptions(client: HostileClient) -> bytes:
    draw = client.random.choice
    source = Source(
        draw(client.places.own), durable=draw((0, 1, 2, 9)), expiry_policy=Symbol(draw(("never", "link-detach", "x"))),
        timeout=draw((0, 1, UINT_MAX)), capabilities=draw((None, (Symbol("topic"),), (Symbol("queue"),) * 50)),
    )  # fmt: skip
    link, said = client.attach(True, source=source)
    return said + client.flow(link, link_credit=5) + (client.detach(link, closed=draw((True, False))))


@act("resumed links")
def resumed(client: HostileClient) -> bytes:
    draw = client.random.choice
    tags = {b"%d" % n: draw((None, Accepted(), Received(0, 5))) for n in range(draw((0, 3, 300)))}
    terms: dict[str, Any] = {
        "unsettled": tags,
        "incomplete_unsettled": draw((False, True)),
        "name": f"{client.name}-resumed",
    }
    expiry: dict[str, Any] = {
        "durable": draw((0, 1)),
        "expiry_policy": Symbol("connection-close"),
        "timeout": draw((0, 30)),
    }
    if draw((True, False)):
        return client.attach(True, source=Source(draw(client.places.own), **expiry), **terms)[1]
    link = client.named(terms["name"])
    if link is None or link.receives or link.credit < 1:
        return client.attach(False, target=Target(draw(client.places.own), **expiry), **terms)[1]
    said = client.transfer(link, message(client, 20), delivery_tag=b"1", resume=draw((True, False)))
    return said + (client.detach(link, closed=False) if draw((True, False)) else b"")


@act("producers")
def producers(client: HostileClient) -> bytes:
    draw = client.random.choice
    wild = draw((
        {PRODUCER: f"{client.name}-p{client.random.randrange(5)}"}, {PRODUCER: "x" * 2_000}, {PRODUCER: Ulong(7)},
        {TAG_OFFSET: Uint(draw(NUMBERS))}, {TAG_OFFSET: "x"},
    ))  # fmt: skip
    name = f"{client.name}-producer"
    link = client.named(name)
    if link is None or link.credit < 5:
        return client.attach(False, properties=wild, name=name)[1]
    tags = [draw(SEQUENCES).to_bytes(8, "big") for _ in range(5)]
    return b"".join(client.transfer(link, message(client, 10), delivery_tag=tag) for tag in tags)


@act("a node's own words")
def custody(client: HostileClient) -> bytes:
    """Links and annotations that neighbours alone may use."""
    draw = client.random.choice
    receives, source = draw((True, False)), Source(draw(OWN))
    if source.address == "$dead-letters":  # what others rejected: it only looks
        source.distribution_mode = Symbol("copy")
    link, said = client.attach(receives, source=source, target=Target(draw(OWN)))
    forged = {
        Symbol("x-opt-holdfast-number"): Ulong(draw(SEQUENCES)),
        Symbol("x-opt-holdfast-sequence"): Ulong(draw(SEQUENCES)),
        Symbol("x-opt-holdfast-origin"): UUID(int=client.random.getrandbits(128)),
        Symbol("x-opt-holdfast-tombstone"): True,
    }
    said += client.flow(link, link_credit=5) if link.receives else b""
    sends = client.pick(receives=False, credit=True)
    if sends is None:
        return said + client.attach(False)[1]
    return said + client.transfer(sends, b"\x00\x53\x71" + encode(forged) + message(client, 10))


@act("large properties")
def large_properties(client: HostileClient) -> bytes:
    """Terms that take memory for as long as the link stays."""
    wild = {Symbol(f"x{n}"): [Ubyte(n % 256)] * 20 for n in range(client.random.choice((1, 50)))}
    room = client.frame_bytes_max
    return client.attach(True, properties=wild)[1] if room > 8_192 else b""
