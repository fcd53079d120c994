"""The audit log: who, from where, what, and how it ended (peers/audit.py)."""

from dataclasses import replace
from typing import Any

import pytest

from core.test_logins import tries
from holdfast.access.rules import AccessConfig, AccessRule
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import Properties, SaslInit, Source
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events, strangers
from holdfast.peers import audit
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.queues import QueueConfig
from support.raw import Raw
from support.rig import Client, Node, Rig

ACCESS = AccessConfig(
    rules=(
        AccessRule(name="ann", users=("ann",), addresses=("work",), allow=("send", "delete")),
        AccessRule(name="root", users=("root",), addresses=("*",), allow=("administer",)),
    )
)
USERS = tuple(UserConfig(name=name, password="secret") for name in ("ann", "root", "jfk"))


def node(**told: Any) -> Node:
    fields = {"users": USERS, "access": ACCESS, "audit": True, "queues": (QueueConfig(name="work"),)}
    return Rig().node("hub", **{**fields, **told})


def login(hub: Node, user: str = "ann", password: str = "secret") -> Client:
    return hub.rig.login(hub, user, password)


def taken(hub: Node) -> list[dict[str, Any]]:
    """What was recorded since this was asked, without the number of the connection."""
    hub.rig.settle()
    found, hub.audited = hub.audited, []
    return [{key: value for key, value in row.items() if key not in ("connection", "container")} for row in found]


def test_changes_by_files_are_recorded() -> None:
    """SIGHUP and `holdfast user` leave a trace too; a request has its own, with who has made it."""
    hub = node()
    hub.handle(events.ConfigRead(config=replace(hub.config, users=USERS[:2])))
    told = {"kind": "change", "outcome": "ok"}
    assert taken(hub) == [told | {"change": "configuration reloaded: user 'jfk' removed"}]
    hub.handle(events.ConfigRead(config=replace(hub.config, users=USERS[:2])))
    assert taken(hub) == [], "nothing has changed"
    hub.handle(events.UsersChanged(users=()))
    assert taken(hub) == [told | {"change": "the file of users was read"}]
    silent = node(audit=False)
    silent.handle(events.UsersChanged(users=()))
    assert taken(silent) == []


def test_logins_are_recorded_and_no_name_that_may_be_a_password() -> None:
    hub = node()
    login(hub)
    login(hub, "ann", "wrong")
    login(hub, "secret", "ann")  # in the wrong fields
    rows = taken(hub)
    told = {"kind": "login", "from": "client"}
    assert rows == [
        told | {"outcome": "ok", "user": "ann"},
        told | {"outcome": "refused", "user": "ann", "mechanism": "PLAIN"},
        told | {"outcome": "refused", "mechanism": "PLAIN"},
    ]
    assert "secret" not in str(rows)


def test_a_login_that_is_not_looked_at_is_recorded_as_that() -> None:
    hub = node(limits=Limits(login_failures_max=1, login_retry_s=30.0))
    for _ in range(3):
        login(hub, "ann", "wrong")
    assert next(row["outcome"] for row in taken(hub)) == "refused"
    hub.rig.run(6)
    login(hub, "ann")
    assert taken(hub)[-1]["outcome"] == "not checked"


def test_refusals_are_recorded_wherever_they_are_said() -> None:
    hub = node()
    ann = login(hub)
    taken(hub)
    ann.receiver("work")
    ann.sender("other@hub")
    link = ann.session.attach_sender("anonymous", Source(), None)
    hub.rig.settle()
    link.send(Message(properties=Properties(to="secret"), data=[b"1"]).encode(), context=1)
    assert ann.manage("STATUS", "node")[0] == 403
    told = {"kind": "refusal", "outcome": "refused", "user": "ann", "from": "client"}
    assert taken(hub) == [
        told | {"action": "receive", "address": "work"},
        told | {"action": "send", "address": "other"},
        told | {"action": "send", "address": "secret"},
        told | {"action": "holdfast:node STATUS", "address": "$management"},
    ]


def test_changes_are_recorded_once_they_are_on_disk() -> None:
    hub = node()
    root = login(hub, "root")
    taken(hub)
    root.manage("CREATE", "queue", "new")
    root.manage("READ", "queue", "new")
    root.manage("DELETE", "queue", "new")
    told = {"kind": "change", "outcome": "ok", "user": "root", "from": "client"}
    assert taken(hub) == [
        told | {"change": "queue 'new' created"},
        told | {"change": "queue 'new' deleted: 0 messages dropped"},
    ]


def test_what_operators_do_with_the_node_and_its_connections_is_recorded() -> None:
    hub = node()
    ann, root = login(hub), login(hub, "root")
    taken(hub)
    told = {"kind": "change", "outcome": "ok", "user": "root", "from": "client"}

    def changed(operation: str, kind: str, name: str = "", **arguments: Any) -> list[str]:
        assert root.manage(operation, kind, name, **arguments)[0] == 200
        rows = taken(hub)
        assert all(row == told | {"change": row["change"]} for row in rows)
        return [row["change"] for row in rows]

    assert changed("DRAIN", "node") == ["node drained"] and changed("DRAIN", "node") == []
    assert changed("RESUME", "node") == ["drain of the node ended"] and changed("RESUME", "node") == []
    ann.receiver("$management")
    place = next(number for number, peer in hub.core.connections.items() if peer.who == "ann")
    assert changed("CLOSE", "attachment", f"{place}/0/0") == [f"attachment '{place}/0/0' closed"]
    assert changed("CLOSE", "session", f"{place}/0") == [f"session '{place}/0' closed"]
    assert changed("CLOSE", "connection", f"{place}") == [f"connection '{place}' closed"]


def test_what_is_asked_of_a_queue_is_recorded() -> None:
    hub = node()
    root = login(hub, "root")
    taken(hub)
    root.manage("UPDATE", "queue", "work", messages_max=10, room_low=0.5)
    root.manage("UPDATE", "queue", "work", messages_max=None, room_low=1.0, when_full="refuse")
    assert [row["change"] for row in taken(hub)] == [
        "queue 'work' changed: messages_max 10, room_low 0.5",
        "queue 'work' changed: messages_max none, when_full refuse, room_low 1.0",
    ]


def test_what_a_neighbour_may_not_publish_is_recorded() -> None:
    hub = node(neighbours=(NeighbourConfig(name="jfk"),))
    jfk = hub.rig.node(
        "jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="secret"),)
    )
    hub.rig.run(1)
    client = hub.rig.client(jfk)
    link = client.sender("work@hub")
    hub.rig.settle()
    client.send(link, "1")
    hub.rig.run(1)
    rows = taken(hub)
    assert rows[0] == {"kind": "login", "outcome": "ok", "user": "jfk", "neighbour": "jfk", "from": "jfk"}
    assert rows[1:] == [
        {"kind": "refusal", "outcome": "refused", "user": "jfk", "neighbour": "jfk", "action": "send",
         "address": "work"}
    ]  # fmt: skip


def test_records_are_bounded_by_source_and_hide_no_others() -> None:
    hub = node()
    ann, root = login(hub), login(hub, "root")
    taken(hub)
    link = ann.session.attach_sender("anonymous", Source(), None)
    hub.rig.settle()
    burst = int(audit.RECORDS_BURST)
    for _ in range(burst + 5):
        link.send(Message(properties=Properties(to="secret"), data=[b"1"]).encode(), context=1)
        hub.rig.settle()
    assert len(taken(hub)) == burst
    root.manage("CREATE", "queue", "new")
    ann.manage("PURGE", "queue", "work")
    assert [row["kind"] for row in taken(hub)] == ["change", "change"]
    hub.rig.run(2)
    ann.receiver("work")
    (row,) = taken(hub)
    assert row["left_out"] == 5


def test_addresses_beyond_the_bound_count_as_one_and_hide_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has many addresses hides others without a user for a minute, and never what users are refused."""
    monkeypatch.setattr(audit, "ADDRESSES_MAX", 50)
    hub = node(limits=Limits(login_failures_max=1_000))
    burst = int(audit.RECORDS_BURST)
    for number in range(50 + burst + 30):
        tries(hub.rig, hub, "wrong", address=f"10.0.0.{number}")
    assert len(taken(hub)) == 50 + burst and len(hub.core.audit.addresses) == 50
    ann = login(hub)
    ann.receiver("work")
    assert [row["kind"] for row in taken(hub)][-1] == "refusal"
    hub.rig.run(strangers.QUIET_S)
    tries(hub.rig, hub, "wrong", address="10.0.1.1")
    (row,) = taken(hub)
    assert row["from"] == "10.0.1.1:1024" and "left_out" not in row


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "SCRAM-SHA-1", "hunter2"])
def test_logins_by_what_is_not_offered_are_recorded(mechanism: str) -> None:
    hub = node()
    peer = Raw(hub.rig, hub)
    said = SaslInit(Symbol(mechanism), b"", None)
    peer.say(SASL_HEADER + frame(0, encode(said), SASL_FRAME))
    assert not peer.alive
    (row,) = taken(hub)
    known = {"mechanism": mechanism} if mechanism in ("ANONYMOUS", "EXTERNAL") else {}
    assert row == {"kind": "login", "outcome": "refused", "from": "10.0.0.1:1024", **known}


@pytest.mark.parametrize(
    "response", [b"", b"ann", b"\0", b"\0ann", b"\0\0secret", b"bob\0ann\0secret", b"\0\xff\0secret"]
)
def test_logins_that_are_malformed_or_for_somebody_else_are_refused_and_recorded(response: bytes) -> None:
    hub = node()
    peer = Raw(hub.rig, hub)
    peer.say(SASL_HEADER + frame(0, encode(SaslInit(Symbol("PLAIN"), response, None)), SASL_FRAME))
    assert not peer.alive
    assert taken(hub) == [{"kind": "login", "outcome": "refused", "from": "10.0.0.1:1024", "mechanism": "PLAIN"}]


def test_without_a_file_nothing_is_recorded() -> None:
    hub = node(audit=False)
    login(hub, "ann", "wrong")
    login(hub).receiver("work")
    assert taken(hub) == []
