"""The table of users, addresses and actions against a node's process: each row is said in raw frames over TLS, in each
way in which the action can be asked for."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from access.over_tls import PASSWORD, Client, connected
from access.test_decisions import CONFIG
from holdfast.access.actions import (
    ADMINISTER,
    BROWSE,
    CREATE,
    DELETE,
    LINK_FROM,
    LINK_TO,
    NODE,
    RECEIVE,
    RELAY,
    SEND,
)
from holdfast.access.lists import AccessLists
from holdfast.amqp.wire import extensions
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from support.certificates import needs_openssl, of_node
from support.process import NodeProcess

pytestmark = needs_openssl

ROWS_MIN: Final = 300
USERS: Final = (
    *((user, "") for user in ("ann", "bob", "cleo", "dan", "root", "sub", "eve")),
    ("ann", "acme"),
    ("bob", "acme"),
    ("ann", "globex"),
)
QUEUES: Final = (
    "orders.new", "orders.secret.x", "orders.secret.ann", "public.board", "other", "raw", "clean", "cleo.1", "cleo",
    "vault", "board",
)  # fmt: skip
TOPICS: Final = ("topic/news", "topic/other")
FAR: Final = ("x@hub", "pay@hub", "clean@hub", "orders.new@hub")
NONE: Final = ("nothing.there", "orders.none", "cleo.none")

Right = tuple[str, str]
Try = Callable[[Client], Awaitable[str | int]]
"""Asks for something; the condition of a refusal, or the code of an answer."""
Row = tuple[str, tuple[Right, ...], Try]
"""What is tried, what it takes, and how it is said."""

ENTRY: Final[dict[str, Any]] = {"queue_uuid": str(UUID(int=1)), "sequence": Ulong(1), "delivery_count": Ulong(0)}
COPY: Final = {"distribution_mode": Symbol("copy")}
DURABLE: Final[dict[str, Any]] = {"durable": 2, "expiry_policy": Symbol("never")}
BY_SEQUENCE: Final = {"filter": {Symbol("s"): Described(extensions.START_SEQUENCE, Ulong(1))}}


def sends(address: str, right: Right) -> list[Row]:
    return [
        (f"a sender to {address}", (right,), lambda at: at.attach(role=False, source=Source(), target=Target(address))),
        (f"a message to {address}", (right,), lambda at: at.message(address)),
        (f"a message of a transaction to {address}", (right,), lambda at: at.in_transaction(address)),
    ]


def reads(address: str, what: str, right: Right, **source: Any) -> Row:
    target = Target("here")
    return (
        f"a {what} of {address}", (right,),
        lambda at: at.attach(role=True, source=Source(address, **source), target=target),
    )  # fmt: skip


def asks(operation: str, kind: str, name: str, *rights: Right, **arguments: Any) -> Row:
    told = f"{operation} of {kind} {name!r} {arguments.get('queue', arguments.get('to', ''))}"
    return told, rights, lambda at: at.manage(operation, kind, name, **arguments)


def rows() -> list[Row]:
    """All of them, for any user."""
    found: list[Row] = []
    for address in (*QUEUES, *TOPICS):
        found += [*sends(address, (SEND, address)), reads(address, "receiver", (RECEIVE, address))]
        found += [*sends(f"{address}@localhost", (SEND, address)), reads(address, "browser", (BROWSE, address), **COPY)]
        found += [
            asks("READ", "queue", address, (BROWSE, address)),
            asks("CREATE", "queue", address, (CREATE, address)),
            asks("PURGE", "queue", address, (DELETE, address)),
            asks("UPDATE", "queue", address, (ADMINISTER, address)),
            asks("QUERY", "entry", address, (BROWSE, address)),
            asks("READ", "entry", address, (BROWSE, address), **ENTRY),
            asks("DELETE", "entry", address, (DELETE, address), **ENTRY),
            asks("REQUEUE", "entry", address, (ADMINISTER, address), **ENTRY),
            asks("MOVE", "entry", address, (RECEIVE, address), (SEND, "board"), **ENTRY, to="board"),
            asks("COPY", "entry", "orders.new", (BROWSE, "orders.new"), (SEND, address), **ENTRY, to=address),
            asks("MOVE", "entry", address, (RECEIVE, address), (RELAY, "x@hub"), **ENTRY, to="x@hub"),
            asks("QUERY", "subscription", "", (RECEIVE, address), queue=address),
            asks("PEEK", "subscription", "s", (RECEIVE, address), queue=address),
            asks("DELETE", "subscription", "s", (RECEIVE, address), queue=address),
            asks("SKIP", "queue", address, (ADMINISTER, address)),
        ]
        # A mode that is none: who may do it makes no link.
        link = {"from": address, "to": "clean", "mode": "none"}
        found.append(asks("CREATE", "link", "l", (LINK_FROM, address), (LINK_TO, "clean"), **link))
        link = {"from": "raw", "to": address, "mode": "none"}
        found.append(asks("CREATE", "link", "l", (LINK_FROM, "raw"), (LINK_TO, address), **link))
    for address in QUEUES:
        found += [
            reads(address, "reader by sequence", (BROWSE, address), **BY_SEQUENCE),
            asks("OPEN", "subscription", "s", (RECEIVE, address), queue=address, mode="none"),
        ]
    for address in TOPICS:
        found += [*sends(f"{address}/a", (SEND, address)), reads(f"{address}/a.#", "receiver", (RECEIVE, address))]
    for address in FAR:
        link = {"from": "raw", "to": address, "mode": "none"}
        far = (LINK_TO, address), (RELAY, address)
        found += [*sends(address, (RELAY, address)), asks("CREATE", "link", "l", (LINK_FROM, "raw"), *far, **link)]
    for address in NONE:
        found += [*sends(address, (SEND, address)), reads(address, "receiver", (RECEIVE, address))]
        found += [
            reads(address, "browser", (BROWSE, address), **COPY),
            asks("READ", "queue", address, (BROWSE, address)),
        ]
    for address in ("$dead-letters", "@hub"):
        found += [
            asks("READ", "queue", address, (BROWSE, address)),
            asks("PURGE", "queue", address, (DELETE, address)),
            asks("QUERY", "entry", address, (BROWSE, address)),
            asks("MOVE", "entry", address, (RECEIVE, address), (SEND, "board"), **ENTRY, to="board"),
        ]
    found += [
        reads("$dead-letters", "receiver", (RECEIVE, "$dead-letters")),
        reads("$dead-letters", "browser", (BROWSE, "$dead-letters"), **COPY),
        reads("$temporary/0a", "receiver", (RECEIVE, "$temporary/0a")),
        *sends("$temporary/0a", (SEND, "$temporary/0a")),
        ("a dynamic queue", ((RECEIVE, ""),), lambda at: at.attach(
            role=True, source=Source(dynamic=True), target=Target("here"))),
        ("a dynamic target", ((SEND, ""),), lambda at: at.attach(
            role=False, source=Source(), target=Target(dynamic=True))),
        ("a dynamic topic", ((RECEIVE, ""),), lambda at: at.attach(
            role=True, source=Source(dynamic=True, capabilities=(Symbol("temporary-topic"),)), target=Target("here"))),
        *(asks(operation, kind, name, (ADMINISTER, NODE)) for operation, kind, name in (
            ("STATUS", "node", ""), ("WHERE", "node", ""), ("FORGET", "node", "x"),
            ("NETWORK", "node", ""), ("RESUME", "node", ""),
            ("QUERY", "link", ""), ("CLOSE", "connection", "999"), ("SKIP", "queue", ""),
            ("QUERY", "subscription", ""),
        )),
    ]  # fmt: skip
    return found


def is_refused(answer: str | int) -> bool:
    return answer in ("amqp:unauthorized-access", 403)


def of(host: str) -> str:
    return f'vhost = "{host}"\n' if host else ""


def toml(folder: Path) -> str:
    """The file of a node with the rules of the table."""
    node = of_node()
    told = f'[node]\nname = "here"\ndata = "{folder}/here.holdfast"\nlisten = ["amqps://127.0.0.1:0"]\n'
    told += f'[tls]\ncertificate_file = "{node.certificate}"\nkey_file = "{node.key}"\n'
    told += '[limits]\nattaches_per_s = 100000\n[[neighbour]]\nname = "hub"\nhosts = ["acme", "globex"]\n'
    told += '[[vhost]]\nname = "acme"\n[[vhost]]\nname = "globex"\n'
    for user, host in USERS:
        told += f'[[user]]\nname = "{user}"\npassword_file = "{folder}/password"\n{of(host)}'
    for name in (*QUEUES, *TOPICS):
        told += "".join(f'[[queue]]\nname = "{name}"\n{of(host)}' for host in ("", "acme", "globex"))
    for group in CONFIG.groups:
        told += f'[[group]]\nname = "{group.name}"\nusers = {list(group.users)}\n{of(group.vhost)}'
    for rule in CONFIG.rules:
        told += f'[[access]]\nname = "{rule.name}"\n{of(rule.vhost)}'
        for key in ("users", "groups", "addresses", "allow", "deny"):
            if value := getattr(rule, key):
                told += f"{key} = {list(value)}\n"
    return told


async def test_the_table_holds_over_tls(start_node: Any, tmp_path: Path, day: int) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    config = tmp_path / "here.toml"
    config.write_text(toml(tmp_path))
    node: NodeProcess = await start_node("here", config=config)
    port = int(node.ready["amqps"].rpartition(":")[2])
    context = ssl.create_default_context(cafile=of_node().authority)
    lists = AccessLists(CONFIG)
    tried, allowed, wrong = 0, 0, []
    for user, host in USERS:
        drawn = rows()
        Random(f"{day} {user} {host}").shuffle(drawn)
        async with connected(port, context, user, host) as client:
            for what, rights, ask in drawn:
                may = all(lists.decide(user, action, address, host).allowed for action, address in rights)
                answer = await ask(client)
                tried, allowed = tried + 1, allowed + may
                if is_refused(answer) is may:
                    wrong.append(f"{user} of {host!r}, who {'may' if may else 'may not'}: {what}: {answer!r}")
    assert not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong[:20]])
    assert tried - allowed >= ROWS_MIN and allowed >= ROWS_MIN, (tried, allowed)
    print(f"{tried} rows over TLS, {allowed} of them allowed")
    assert "Traceback" not in node.stderr and " ERROR " not in node.stderr
