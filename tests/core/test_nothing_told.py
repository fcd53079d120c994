"""Who may do nothing at a node learns nothing of what is there: each attach, message and request is answered byte for
byte as at a node that has nothing (docs/security.md, "Where it is asked")."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from access.worlds import ask_login, full_node, node_with_nothing, said_to
from amqp.joined import wire
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire import extensions
from holdfast.amqp.wire.performatives import (
    Attach,
    Coordinator,
    Declare,
    Flow,
    Properties,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from support.raw import Raw
from support.rig import Node

ROWS_MAX: Final = 500
"""Of more than a thousand; others each day."""

NEVER: Final = Symbol("never")
DURABLE: Final[dict[str, Any]] = {"durable": 2, "expiry_policy": NEVER}
COPY: Final = {"distribution_mode": Symbol("copy")}


def filtered(descriptor: object, value: object) -> dict[str, Any]:
    return {"filter": {Symbol("f"): Described(descriptor, value)}}


SOURCES: Final[dict[str, dict[str, Any]]] = {
    "consume": {},
    "browse": COPY,
    "by sequence": filtered(extensions.START_SEQUENCE, Ulong(1)),
    "by sequence, as who has a lease": COPY
    | {
        "filter": {
            Symbol("s"): Described(extensions.START_SEQUENCE, Ulong(1)),
            Symbol("l"): Described(extensions.SUBSCRIPTION, ["mine", str(UUID(int=1)), Ulong(1)]),
        }
    },
    "selected": filtered(extensions.SELECTOR, "a = 1"),
    "a wrong selector": filtered(extensions.SELECTOR, "a ="),
    "no-local": filtered(extensions.NO_LOCAL, []),
    "browse, no-local": COPY | filtered(extensions.NO_LOCAL, []),
    "pattern": filtered(extensions.TOPIC_BINDING, "a.#"),
    "durable": DURABLE,
    "durable copy": DURABLE | COPY,
    "shared": {"capabilities": (Symbol("shared"), Symbol("global"))},
    "shared and durable": DURABLE | {"capabilities": (Symbol("shared"),)},
    "kept": {"timeout": 30},
    "what nobody knows": {"distribution_mode": Symbol("guess")},
}
TARGETS: Final[dict[str, dict[str, Any]]] = {
    "send": {},
    "named producer": {"properties": {extensions.PRODUCER: "p"}},
    "kept": {"properties": {extensions.TAG_OFFSET: 0}, "unsettled": {}},
}
REQUESTS: Final = (
    ("QUERY", "queue"), ("READ", "queue"), ("CREATE", "queue"), ("UPDATE", "queue"), ("DELETE", "queue"),
    ("PURGE", "queue"), ("SKIP", "queue"), ("QUERY", "entry"), ("READ", "entry"), ("DELETE", "entry"),
    ("REQUEUE", "entry"), ("MOVE", "entry"), ("COPY", "entry"), ("OPEN", "subscription"), ("READ", "subscription"),
    ("PEEK", "subscription"), ("GAPS", "subscription"), ("ADVANCE", "subscription"), ("DELETE", "subscription"),
    ("QUERY", "subscription"), ("CREATE", "link"), ("DELETE", "link"), ("STOP", "link"), ("START", "link"),
    ("QUERY", "link"), ("STATUS", "node"), ("WHERE", "node"), ("FORGET", "node"), ("NETWORK", "node"),
    ("DRAIN", "node"), ("RESUME", "node"), ("QUERY", "connection"),
    ("CLOSE", "connection"), ("QUERY", "org.amqp.management"), ("READ", "org.amqp.management"),
)  # fmt: skip


def addresses(node: Node) -> list[str]:
    """What a stranger may have heard of, and what is nowhere; all of them are at one of the two nodes at most."""
    return [
        "secret", "secret@hub", "secret@localhost", "/queues/secret", "amqp://hub/secret", "kept", "named",
        "topic/news", "topic/news/sports", "topic/news@hub", "topic/none", "topic/none/part", "$dead-letters",
        "$delayed", "$waiting", "@jfk", "x@jfk", "x@nowhere", "topic/news@jfk", "$temporary/0", "none",
        *sorted(name for name in node.core.catalog.queues if name.startswith("$temporary/")),
    ]  # fmt: skip


Say = Callable[[Raw], list[Any]]
"""Says one thing at a connection; what the node answered."""


def rows(known: list[str]) -> dict[str, Say]:
    """Everything that is said, by name."""
    found: dict[str, Say] = {}
    for address in known:
        for how, source in SOURCES.items():
            attach = Attach("link", 5, True, source=Source(address, **source), target=Target("here"))
            found[f"{how} {address}"] = lambda peer, attach=attach: peer.say(attach)
        for how, fields in TARGETS.items():
            attach = Attach("link", 5, False, source=Source(), target=Target(address), initial_delivery_count=0)
            attach = replace(attach, **fields)
            found[f"{how} {address}"] = lambda peer, attach=attach: peer.say(attach)
        for settled in (False, True):
            found[f"message, settled {settled}, {address}"] = lambda peer, address=address, settled=settled: message(
                peer, address, settled=settled
            )
        found[f"in a transaction {address}"] = lambda peer, address=address: in_transaction(peer, address)
        for operation, kind in REQUESTS:
            found[f"{operation} {kind} {address}"] = lambda peer, told=(operation, kind, address): request(peer, *told)
    for name in ("durable-mine", "link", "none", "client|shared-mine", "shared-mine"):
        found[f"look up {name}"] = lambda peer, name=name: peer.say(
            Attach(name, 5, True, source=None, target=Target("here"))
        )
        for operation in ("DELETE", "STOP", "START"):
            found[f"{operation} the link {name}"] = lambda peer, told=(operation, "link", name): request(peer, *told)
    for node in (Source(dynamic=True), Source(dynamic=True, capabilities=(Symbol("temporary-topic"),))):
        found[f"dynamic {node.capabilities}"] = lambda peer, node=node: peer.say(
            Attach("link", 5, True, source=node, target=Target("here"))
        )
    return found


def transfer(handle: int, payload: bytes, **told: Any) -> bytes:
    return wire((Transfer(handle, 0, b"tag", 0, **told), payload))


def message(peer: Raw, address: str, *, settled: bool) -> list[Any]:
    attach = Attach("link", 5, False, source=Source(), target=Target(), initial_delivery_count=0)
    payload = Message(properties=Properties(to=address), data=[b"x"]).encode()
    return peer.say(attach) + peer.say(transfer(5, payload, settled=settled))


def in_transaction(peer: Raw, address: str) -> list[Any]:
    attach = Attach("link", 5, False, source=Source(), target=Target(), initial_delivery_count=0)
    coordinator = Attach("control", 6, False, source=Source(), target=Coordinator(), initial_delivery_count=0)
    heard = peer.say(attach, coordinator) + peer.say(transfer(6, Message(value=Declare()).encode()))
    declared = next(item.state for item in heard if getattr(item, "state", None) is not None)
    payload = Message(properties=Properties(to=address), data=[b"x"]).encode()
    posted = wire((Transfer(5, 1, b"post", 0, state=TransactionalState(declared.txn_id)), payload))
    return [item.state.outcome for item in peer.say(posted)]  # the name of the transaction is random


def request(peer: Raw, operation: str, kind: str, name: str) -> list[Any]:
    replies = Attach("replies", 6, True, source=Source("$management"), target=Target("replies"))
    asks = Attach("link", 5, False, source=Source(), target=Target("$management"), initial_delivery_count=0)
    told = {"operation": operation, "type": kind if "." in kind else f"holdfast:{kind}", "name": name}
    value = {
        "queue": name, "queue_uuid": str(UUID(int=1)), "sequence": Ulong(1), "delivery_count": Ulong(0),
        "lease_epoch": Ulong(1), "to": name, "from": name, "message_id": "x",
    }  # fmt: skip
    if kind == "subscription":
        told["name"] = "mine"
    properties = Properties(message_id="m", reply_to="replies")
    payload = Message(properties=properties, application_properties=told, value=value).encode()
    heard = peer.say(replies, asks)
    peer.say(Flow(0, 1_000, 0, 1_000, handle=6, delivery_count=0, link_credit=10))
    return heard + peer.say(transfer(5, payload, settled=True))


@pytest.mark.parametrize("creates", [True, False])
def test_a_stranger_is_answered_as_where_nothing_is(creates: bool, day: int) -> None:
    """Each row at a connection of its own; they come in a drawn order, so that none depends on those before it."""
    full, bare = full_node(create_queues=creates), node_with_nothing(create_queues=creates)
    known = addresses(full)
    drawn = list(rows(known).items())
    Random(day).shuffle(drawn)
    del drawn[ROWS_MAX:]
    before = set(full.core.catalog.queues), set(bare.core.catalog.queues)
    told = []
    for name, say in drawn:
        here, there = (said_to(ask_login(node, "bob"), say) for node in (full, bare))
        if here != there:
            told.append(f"{name}: {here} where it is, {there} where it is not")
    assert not told, "\n".join([f"{len(told)} of {len(drawn)} rows", *sorted(told)[:5]])
    assert (set(full.core.catalog.queues), set(bare.core.catalog.queues)) == before
    assert len(drawn) == ROWS_MAX
