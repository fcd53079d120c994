"""A node with access lists, asked over the wire at each place where an address is used (docs/security.md)."""

from typing import Any, Final

import pytest

from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.extensions import START_SEQUENCE
from holdfast.amqp.wire.performatives import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Properties,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from holdfast.amqp.wire.types import Described, Symbol, Ulong
from holdfast.engine import events
from holdfast.management.status.queues import QUEUES_A_PAGE
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from support.rig import Client, Node, Rig

UNAUTHORIZED: Final = "amqp:unauthorized-access"
NAMES: Final = ("ann", "bob", "root", "jfk")
USERS: Final = tuple(UserConfig(name=name, password="x") for name in NAMES)


def rule(users: str, addresses: str, *allow: str, **told: Any) -> AccessRule:
    names = tuple(users.split())
    return AccessRule(name=f"{users} {addresses} {allow}", users=names, addresses=(addresses,), allow=allow, **told)


RULES: Final = AccessConfig(
    rules=(
        rule("root", "*", "administer"),
        rule("ann", "in", "send"),
        rule("ann", "out", "receive"),
        rule("ann", "shown", "browse"),
        rule("ann", "topic/news", "send", "receive"),
        rule("ann", "ann.*", "send", "receive", "create", "delete"),
        rule("ann", "$temporary/*", "create"),
        rule("ann", "raw", "link-from"),
        rule("ann", "clean", "link-to"),
        rule("bob", "work@hub", "relay"),
        rule("jfk", "work", "send"),
    )
)


def node(**told: Any) -> Node:
    return Rig().node("hub", users=USERS, access=RULES, **told)


def login(hub: Node, user: str) -> Client:
    return hub.rig.login(hub, user, "x")


def refused(client: Client) -> list[tuple[str, str]]:
    """Condition and description of each link that was refused since this was asked."""
    client.rig.settle()
    found = [(str(item.error.condition), str(item.error.description)) for item in client.detached if item.error]
    client.detached.clear()
    return found


def no(action: str) -> tuple[str, str]:
    return UNAUTHORIZED, f"no permission to {action} there; ask the administrator of this node"


BROWSE: Final = {"distribution_mode": Symbol("copy")}
BY_SEQUENCE: Final = {"filter": {Symbol("s"): Described(START_SEQUENCE, Ulong(1))}}


@pytest.mark.parametrize(
    ("user", "what", "address", "action"),
    [
        ("ann", "sender", "in", None),
        ("ann", "sender", "in@hub", None),
        ("ann", "sender", "/queues/in", None),
        ("ann", "sender", "out", "send"),
        ("ann", "sender", "ann.new", None),
        ("ann", "sender", "topic/news", None),
        ("ann", "sender", "topic/news/world", None),
        ("ann", "sender", "topic/newspaper", "send"),
        ("ann", "sender", "in@jfk", "relay"),
        ("bob", "sender", "in@jfk", "relay"),
        ("ann", "receiver", "out", None),
        ("ann", "receiver", "in", "receive"),
        ("ann", "receiver", "shown", "receive"),
        ("ann", "receiver", "topic/news/world.#", None),
        ("ann", "receiver", "topic/other", "receive"),
        ("ann", "receiver", "$dead-letters", "receive"),
        ("ann", "browser", "shown", None),
        ("ann", "browser", "out", "browse"),
        ("ann", "browser", "$dead-letters", "browse"),
        ("ann", "reader", "shown", None),
        ("ann", "reader", "out", "browse"),
        ("bob", "sender", "in", "send"),
        ("bob", "sender", "nothing.there", "send"),
        ("bob", "receiver", "nothing.there", "receive"),
        ("root", "sender", "in", None),
        ("root", "receiver", "out", None),
        ("root", "browser", "out", None),
        ("root", "receiver", "$dead-letters", None),
        ("root", "sender", "new", None),
    ],
)
def test_each_attach_is_asked_about(user: str, what: str, address: str, action: str | None) -> None:
    queues = tuple(QueueConfig(name=name) for name in ("in", "out", "shown", "topic/news", "topic/other"))
    hub = node(queues=queues)
    client = login(hub, user)
    before = set(hub.core.catalog.queues)
    if what == "sender":
        client.sender(address)
    else:
        source = {"browser": BROWSE, "reader": BY_SEQUENCE}.get(what, {})
        client.receiver(address, source=source)
    assert refused(client) == ([] if action is None else [no(action)])
    if action is not None:
        assert set(hub.core.catalog.queues) == before, "nothing is made for who is refused"


def test_what_a_queue_in_the_file_may_be_used_for_does_not_create_others() -> None:
    hub = node()
    ann = login(hub, "ann")
    ann.sender("in")  # she may send there, and not create it
    assert refused(ann) == [no("create")]
    assert "in" not in hub.core.catalog.queues


def test_without_rules_everybody_who_may_log_in_may_do_everything_as_before() -> None:
    hub = Rig().node("hub", users=USERS)
    client = login(hub, "bob")
    client.sender("anything")
    client.receiver("$dead-letters")
    client.session.attach_receiver("r", Source(dynamic=True), Target("here"))
    assert refused(client) == []
    assert client.manage("SKIP", "queue", "anything")[0] == 200 and client.manage("STATUS", "node")[0] == 200


def outcome(client: Client, link: Any, to: str, **told: Any) -> Any:
    client.rig.settle()
    client.outcomes.clear()
    link.send(Message(properties=Properties(to=to), data=[b"1"]).encode(), context=to, **told)
    client.rig.settle()
    ((_, found),) = client.outcomes
    return found


def test_each_message_of_a_link_without_an_address_is_asked_about() -> None:
    hub = node(queues=(QueueConfig(name="in"), QueueConfig(name="out")))
    ann = login(hub, "ann")
    link = ann.session.attach_sender("anonymous", Source(), None)
    for _ in range(2):  # from what is remembered, too
        assert not isinstance(outcome(ann, link, "in"), Rejected)
        assert not isinstance(outcome(ann, link, "ann.new"), Rejected)
        for to, action in (("out", "send"), ("nothing", "send"), ("x@jfk", "relay")):
            found = outcome(ann, link, to)
            assert isinstance(found, Rejected) and found.error is not None
            assert (found.error.condition, found.error.description) == no(action)
    assert hub.bodies("in") == ["1"] * 2 and hub.bodies("out") == [] and "nothing" not in hub.core.catalog.queues


def test_each_message_of_a_transaction_is_asked_about() -> None:
    hub = node(queues=(QueueConfig(name="in"), QueueConfig(name="out")))
    ann = login(hub, "ann")
    link = ann.session.attach_sender("anonymous", Source(), None)
    coordinator = ann.session.attach_sender("coordinator", Source(), Coordinator())
    hub.rig.settle()

    def ask(body: Any) -> Any:
        ann.outcomes.clear()
        coordinator.send(Message(value=body).encode(), context="t")
        hub.rig.settle()
        ((_, found),) = ann.outcomes
        return found

    declared = ask(Declare())
    assert isinstance(declared, Declared)
    inside = TransactionalState(declared.txn_id)
    assert not isinstance(outcome(ann, link, "in", state=inside), Rejected)
    found = outcome(ann, link, "out", state=inside)
    told = found.outcome if isinstance(found, TransactionalState) else found
    assert isinstance(told, Rejected) and told.error is not None and told.error.condition == UNAUTHORIZED
    ask(Discharge(declared.txn_id, False))
    assert hub.bodies("out") == []


def test_a_dynamic_node_is_made_by_who_may_and_read_by_its_user_alone() -> None:
    hub = node()
    ann, also_ann, bob, root = (login(hub, user) for user in ("ann", "ann", "bob", "root"))
    link = ann.session.attach_receiver("r", Source(dynamic=True), Target("here"))
    hub.rig.settle()
    address = link.source.address
    bob.session.attach_receiver("r", Source(dynamic=True), Target("here"))
    assert refused(bob) == [no("receive")]
    for client in (also_ann, root):
        client.sender(address)
        client.receiver(address)
        assert refused(client) == []
    bob.sender(address)
    bob.receiver(address)
    bob.receiver(address, source=BROWSE)
    assert refused(bob) == [no("send"), no("receive"), no("browse")]
    bob.receiver("$temporary/00")  # there is none
    assert refused(bob) == [no("receive")]


def test_a_subscription_of_a_queue_that_one_may_not_receive_from_is_as_if_it_were_not_there() -> None:
    hub = node(queues=(QueueConfig(name="out"),))
    ann, bob = login(hub, "ann"), login(hub, "bob")
    link = ann.receiver("out", name="mine", source={"durable": 2, "expiry_policy": Symbol("never")})
    hub.rig.settle()
    link.detach(closed=False)
    hub.rig.settle()
    for name in ("mine", "none"):
        bob.session.attach_receiver(name, None, Target("here"))
        assert refused(bob) == [("amqp:not-found", f"no subscription {name!r} that was created by a link")]
    ann.detached.clear()
    ann.session.attach_receiver("mine", None, Target("here"))
    assert refused(ann) == []


QUEUES: Final = ("in", "out", "shown", "raw", "clean", "ann.1", "secret")
ENTRY: Final = {"queue_uuid": "x", "sequence": Ulong(1), "delivery_count": Ulong(0)}


@pytest.mark.parametrize(
    ("operation", "kind", "name", "arguments", "may"),
    [
        ("READ", "queue", "shown", {}, True),
        ("READ", "queue", "out", {}, False),
        ("CREATE", "queue", "ann.2", {}, True),
        ("CREATE", "queue", "other", {}, False),
        ("UPDATE", "queue", "ann.1", {}, False),
        ("PURGE", "queue", "ann.1", {}, True),
        ("PURGE", "queue", "in", {}, False),
        ("DELETE", "queue", "ann.1", {}, True),
        ("DELETE", "queue", "secret", {}, False),
        ("DELETE", "queue", "@jfk", {}, False),
        ("PURGE", "queue", "$dead-letters", {}, False),
        ("SKIP", "queue", "ann.1", {}, False),
        ("SKIP", "queue", "", {}, False),
        ("OPEN", "subscription", "s", {"queue": "out"}, True),
        ("OPEN", "subscription", "s", {"queue": "shown"}, False),
        ("QUERY", "subscription", "", {"queue": "out"}, True),
        ("QUERY", "subscription", "", {}, False),
        ("QUERY", "entry", "shown", {}, True),
        ("QUERY", "entry", "out", {}, False),
        ("READ", "entry", "shown", ENTRY, True),
        ("DELETE", "entry", "ann.1", ENTRY, True),
        ("DELETE", "entry", "out", ENTRY, False),
        ("REQUEUE", "entry", "$dead-letters", ENTRY, False),
        ("MOVE", "entry", "out", {**ENTRY, "to": "in"}, True),
        ("MOVE", "entry", "out", {**ENTRY, "to": "secret"}, False),
        ("MOVE", "entry", "out", {**ENTRY, "to": "secret@localhost"}, False),
        ("MOVE", "entry", "out", {**ENTRY, "to": "in@jfk"}, False),
        ("MOVE", "entry", "out", {**ENTRY, "to": "new"}, False),
        ("MOVE", "entry", "in", {**ENTRY, "to": "in"}, False),
        ("COPY", "entry", "shown", {**ENTRY, "to": "in"}, True),
        ("COPY", "entry", "shown", {**ENTRY, "to": "$dead-letters"}, False),
        ("CREATE", "link", "l", {"from": "raw", "to": "clean"}, True),
        ("CREATE", "link", "l", {"from": "raw", "to": "in"}, False),
        ("CREATE", "link", "l", {"from": "in", "to": "clean"}, False),
        ("CREATE", "link", "l", {"from": "raw", "to": "clean@jfk"}, False),
        ("CREATE", "link", "l", {"to": "clean"}, False),
        ("QUERY", "link", "", {}, False),
        ("DELETE", "link", "none", {}, False),
        ("STATUS", "node", "", {}, False),
        ("WHERE", "node", "", {"message_id": "x"}, False),
        ("FORGET", "node", "jfk", {}, False),
        ("NETWORK", "node", "", {"limit_s": 0.1}, False),
        ("DRAIN", "node", "", {}, False),
        ("RESUME", "node", "", {}, False),
        ("CLOSE", "connection", "1", {}, False),
        ("CLOSE", "session", "1/0", {}, False),
        ("CLOSE", "attachment", "1/0/0", {}, False),
        ("QUERY", "org.amqp.management", "self", {}, False),
        ("GET-TYPES", "org.amqp.management", "self", {}, True),
    ],
)
def test_each_operation_is_asked_about(
    operation: str, kind: str, name: str, arguments: dict[str, Any], may: bool
) -> None:
    hub = node(queues=tuple(QueueConfig(name=queue) for queue in QUEUES), neighbours=(NeighbourConfig(name="jfk"),))
    ann, bob, root = (login(hub, user) for user in ("ann", "bob", "root"))
    status, _, text = ann.manage(operation, kind, name, **arguments)
    assert (status != 403) is may, text
    if not may:
        assert text.startswith("no permission to ")
    if operation != "GET-TYPES":
        assert bob.manage(operation, kind, name, **arguments)[0] == 403
    assert root.manage(operation, kind, name, **arguments)[0] != 403


@pytest.mark.parametrize(
    ("operation", "kind", "name", "arguments"),
    [
        ("OPEN", "subscription", "s", {"queue": "out"}),
        ("OPEN", "subscription", "s", {"queue": "topic/news"}),
        ("OPEN", "subscription", "s", {"queue": "topic/news/world"}),
        ("MOVE", "entry", "raw", {**ENTRY, "to": "in"}),
        ("COPY", "entry", "raw", {**ENTRY, "to": "topic/news/world"}),
        ("CREATE", "link", "l", {"from": "raw", "to": "clean"}),
    ],
)
def test_no_request_creates_a_queue_for_who_may_only_use_it(
    operation: str, kind: str, name: str, arguments: dict[str, Any]
) -> None:
    hub = node(queues=(QueueConfig(name="shown"),))
    ann, root = login(hub, "ann"), login(hub, "root")
    before = set(hub.core.catalog.queues)
    status, _, text = ann.manage(operation, kind, name, **arguments)
    assert set(hub.core.catalog.queues) == before
    assert status == 403, text
    assert kind == "entry" or text == "no permission to create there; ask the administrator of this node"
    assert root.manage(operation, kind, name, **arguments)[0] != 403


def test_queues_are_listed_to_who_may_read_them_without_a_word_of_others() -> None:
    others = [QueueConfig(name=f"secret.{number:03}") for number in range(QUEUES_A_PAGE)]
    mine = [QueueConfig(name=name) for name in (*QUEUES, "ann.1", "zeta") if name != "ann.1"]
    hub = node(queues=(*others, QueueConfig(name="ann.1"), *mine), neighbours=(NeighbourConfig(name="jfk"),))
    ann, bob, root = (login(hub, user) for user in ("ann", "bob", "root"))
    status, body, _ = ann.manage("QUERY", "queue")
    assert status == 200 and [row["name"] for row in body["queues"]] == ["ann.1", "out"]
    assert body["more"] and body["offset"] == QUEUES_A_PAGE
    _, body, _ = ann.manage("QUERY", "queue", offset=body["offset"])
    assert [row["name"] for row in body["queues"]] == ["shown"] and body["more"] is False and "offset" not in body
    assert ann.manage("QUERY", "queue", offset=Ulong(2**63 - 1))[1] == {"queues": [], "more": False}
    assert ann.manage("QUERY", "queue", offset=-1)[::2] == (400, "invalid value -1 for offset; expected 0 to 2^63 - 1")
    assert bob.manage("QUERY", "queue")[1]["queues"] == []
    assert bob.manage("QUERY", "queue", after="x")[1]["queues"] == []
    told = root.manage("QUERY", "queue")[1]
    assert len(told["queues"]) == QUEUES_A_PAGE and told["more"] and "offset" not in told


def test_a_link_is_stopped_and_deleted_by_who_may_make_it() -> None:
    hub = node(queues=tuple(QueueConfig(name=queue) for queue in QUEUES))
    ann, bob = login(hub, "ann"), login(hub, "bob")
    assert ann.manage("CREATE", "link", "l", **{"from": "raw", "to": "clean"})[0] == 201
    for operation in ("STOP", "START", "DELETE"):
        told = [bob.manage(operation, "link", name) for name in ("l", "none")]
        assert told[0] == told[1] and told[0][0] == 403, "who may not is not told which links there are"
        assert ann.manage(operation, "link", "l")[0] == 200


def test_what_a_neighbour_brings_is_published_under_its_account() -> None:
    rig = Rig()
    hub = rig.node("hub", users=USERS, access=RULES, neighbours=(NeighbourConfig(name="jfk"),), create_queues=False,
                   queues=(QueueConfig(name="work"), QueueConfig(name="secret")))  # fmt: skip
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="x"),))
    rig.run(1)
    client = rig.client(jfk)
    for address in ("work@hub", "secret@hub"):
        link = client.sender(address)
        rig.settle()
        client.send(link, address)
    rig.run(1)
    assert hub.bodies("work") == ["work@hub"] and hub.bodies("secret") == []
    assert hub.bodies("$dead-letters") == ["secret@hub"]
    root = login(hub, "root")
    _, body, _ = root.manage("QUERY", "entry", "$dead-letters")
    (entry,) = body["entries"]
    assert entry["reason"] == "neighbour 'jfk' has no permission to send to 'secret' as user 'jfk'"


def test_messages_are_relayed_for_named_users_alone() -> None:
    rig = Rig()
    jfk = rig.node("jfk", users=USERS, access=RULES, neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1"),))
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),))
    rig.run(1)
    ann, bob = login(jfk, "ann"), login(jfk, "bob")
    for client in (ann, bob):
        client.sender("other@hub")
        assert refused(client) == [no("relay")]
    ann.sender("work@hub")
    assert refused(ann) == [no("relay")]
    link = bob.sender("work@hub")
    rig.settle()
    bob.send(link, "1")
    rig.run(1)
    assert refused(bob) == [] and hub.bodies("work") == ["1"]


def test_a_node_that_was_dialled_acts_as_its_account_and_not_as_whom_we_are_there() -> None:
    """It did not log in here; that we did there says nothing of what it may do."""
    rig = Rig()
    hub = rig.node("hub", users=USERS, neighbours=(NeighbourConfig(name="jfk"),))
    rules = AccessConfig(rules=(rule("jfk", "*", "send", "receive"), rule("hub", "hub.*", "send")))
    remote = NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="x")
    users = (UserConfig(name="ann", password="x"),)
    jfk = rig.node("jfk", users=users, access=rules, neighbours=(remote,), queues=(QueueConfig(name="hub.in"),))
    rig.run(1)
    assert hub.core.neighbours["jfk"].established
    (peer,) = [each for each in jfk.core.connections.values() if each.dialled]
    assert (peer.amqp.authenticated_user, peer.who) == ("jfk", "hub")
    (there,) = [each for each in hub.core.connections.values() if not each.dialled]
    session = there.amqp.begin()
    links = [session.attach_sender(f"s{number}", Source(), Target(to)) for number, to in enumerate(("hub.in", "other"))]
    there.touch()
    hub.handle(events.TurnEnded(wall_ms=hub.wall_ms))
    rig.settle()
    assert [link.refused for link in links] == [False, True]
    (line,) = [error for link in links if (error := link.error) is not None]
    assert line.condition == UNAUTHORIZED


@pytest.mark.parametrize("may_create", [False, True])
def test_a_queue_is_created_for_what_a_neighbour_brings_if_its_account_may(may_create: bool) -> None:
    rig = Rig()
    allowed = ("send", "create") if may_create else ("send",)
    access = AccessConfig(rules=(rule("jfk", "new*", *allowed),))
    hub = rig.node("hub", users=USERS, access=access, neighbours=(NeighbourConfig(name="jfk"),))
    jfk = rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="x"),))
    rig.run(1)
    client = rig.client(jfk)
    link = client.sender("new.1@hub")
    rig.settle()
    client.send(link, "1")
    rig.run(1)
    assert ("new.1" in hub.core.catalog.queues) is may_create
    assert hub.bodies("new.1" if may_create else "$dead-letters") == ["1"]


def test_a_neighbour_that_is_dialled_publishes_under_its_own_name() -> None:
    rig = Rig()
    queues = (QueueConfig(name="work"), QueueConfig(name="secret"))
    remote = NeighbourConfig(name="hub", remote="127.0.0.1:1")
    access = AccessConfig(rules=(rule("hub", "work", "send"),))
    jfk = rig.node("jfk", users=USERS, access=access, neighbours=(remote,), queues=queues)
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),))
    rig.run(1)
    client = rig.client(hub)
    for address in ("work@jfk", "secret@jfk"):
        link = client.sender(address)
        rig.settle()
        client.send(link, address)
    rig.run(1)
    assert (jfk.bodies("work"), jfk.bodies("$dead-letters")) == (["work@jfk"], ["secret@jfk"])


def test_in_a_virtual_host_the_account_needs_a_rule_of_that_host() -> None:
    rig = Rig()
    vhosts = (VhostConfig(name="acme"),)
    access = AccessConfig(rules=(rule("jfk", "*", "send"), rule("jfk", "work", "send", vhost="acme")))
    queues = tuple(QueueConfig(name=name, vhost="acme") for name in ("work", "secret"))
    there = NeighbourConfig(name="jfk", hosts=("acme",))
    hub = rig.node("hub", users=USERS, access=access, vhosts=vhosts, queues=queues, neighbours=(there,))
    remote = NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="x", hosts=("acme",))
    jfk = rig.node("jfk", vhosts=vhosts, neighbours=(remote,))
    rig.run(1)
    client = rig.client(jfk, hostname="vhost:acme")
    for address in ("work@hub", "secret@hub"):
        link = client.sender(address)
        rig.settle()
        client.send(link, address)
    rig.run(1)
    found = {name: hub.core.catalog.find("acme", name).messages for name in ("work", "secret", "$dead-letters")}
    assert found == {"work": 1, "secret": 0, "$dead-letters": 1}
