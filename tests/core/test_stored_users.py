"""Users of a file that may change while the node runs, and logins that a reload changes (peers/accounts.py,
peering/doors.py)."""

from dataclasses import replace
from typing import Any, Final

import pytest

from holdfast.engine import events
from holdfast.peers import accounts, credentials
from holdfast.peers.credentials import Credential
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.neighbours import NeighbourConfig
from support.rig import Client, Node, Rig

SALT: Final = bytes(16)


def key(password: str) -> str:
    return credentials.make(password, SALT, iterations=4_096).as_text()


def change(node: Node, *users: tuple[str, str, str]) -> None:
    node.handle(events.UsersChanged(users=tuple((host, name, key(password)) for host, name, password in users)))
    node.rig.settle()


def login(node: Node, user: str, password: str, **told: str) -> Client:
    return node.rig.login(node, user, password, **told)


def test_before_the_file_was_read_nobody_comes_in_and_then_its_users_do() -> None:
    node = Rig().node("hub", has_users_file=True)
    nobody = node.rig.client(node)
    assert not login(node, "ann", "one").amqp.usable and not nobody.amqp.usable
    change(node, ("", "ann", "one"))
    ann = login(node, "ann", "one")
    assert ann.amqp.usable and not login(node, "ann", "two").amqp.usable
    (row,) = [row for row in node.core.users.status("") if row["user"] == "ann"]
    assert (row["connections"], row["logins_failed"]) == (1, 1)
    node.core.validate()


def test_users_of_an_unknown_virtual_host_are_told() -> None:
    node = Rig().node("hub", has_users_file=True, vhosts=(VhostConfig(name="acme"),))
    change(node, ("", "ann", "one"), ("acme", "bob", "one"))
    assert not any("virtual host" in line for line in node.logs)
    change(node, ("", "ann", "one"), ("nope", "ghost", "one"), ("nope", "eve", "one"))
    (told,) = [line for line in node.logs if "virtual host" in line]
    assert told == (
        "users_file: 2 users are of virtual hosts that this node does not have, and cannot log in: 'nope'; "
        "add a [[vhost]], or remove them"
    )


def test_who_is_removed_or_has_another_password_is_sent_away_and_nobody_else() -> None:
    node = Rig().node("hub", has_users_file=True, vhosts=(VhostConfig(name="acme"),))
    change(node, ("", "ann", "one"), ("", "bob", "one"), ("", "cleo", "one"), ("acme", "ann", "three"))
    ann, bob, cleo = (login(node, name, "one") for name in ("ann", "bob", "cleo"))
    other = login(node, "ann", "three", hostname="vhost:acme")
    assert all(client.amqp.usable for client in (ann, bob, cleo, other))
    change(node, ("", "bob", "two"), ("", "cleo", "one"), ("acme", "ann", "three"))
    assert [client.amqp.usable for client in (ann, bob, cleo, other)] == [False, False, True, True]
    assert sum("its user was removed, or has another password" in line for line in node.logs) == 2
    assert login(node, "bob", "two").amqp.usable and not login(node, "ann", "one").amqp.usable
    node.core.validate()


def test_a_user_of_the_nodes_own_file_has_precedence_and_stays() -> None:
    node = Rig().node("hub", has_users_file=True, users=(UserConfig(name="ann", password="own"),))
    change(node, ("", "ann", "stored"))
    assert login(node, "ann", "own").amqp.usable and not login(node, "ann", "stored").amqp.usable
    ann = login(node, "ann", "own")
    change(node)
    assert ann.amqp.usable and login(node, "ann", "own").amqp.usable


def test_nobody_becomes_a_neighbour_by_the_file() -> None:
    """A neighbour that has a password in the node's own file has no other, whatever users the file has."""
    node = Rig().node("hub", has_users_file=True, neighbours=(NeighbourConfig(name="jfk", user="jfk", password="own"),))
    change(node, ("", "jfk", "stored"))
    jfk = login(node, "jfk", "own")
    assert jfk.amqp.usable and not login(node, "jfk", "stored").amqp.usable
    change(node)
    assert jfk.amqp.usable and login(node, "jfk", "own").amqp.usable
    node.core.validate()


def test_a_neighbour_comes_as_a_user_of_the_file() -> None:
    rig = Rig()
    hub = rig.node("hub", has_users_file=True, neighbours=(NeighbourConfig(name="jfk"),))
    rig.node("jfk", neighbours=(NeighbourConfig(name="hub", remote="127.0.0.1:1", user="jfk", password="one"),))
    change(hub, ("", "jfk", "one"))
    rig.run(5)
    assert hub.core.neighbours["jfk"].established
    change(hub)
    rig.run(5)
    assert not hub.core.neighbours["jfk"].established


def test_how_long_a_login_takes_does_not_tell_who_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Rig().node("hub", has_users_file=True)
    change(node, ("", "ann", "one"))
    verified = []
    verify = Credential.verify
    monkeypatch.setattr(
        Credential, "verify", lambda self, password: verified.append(password) or verify(self, password)
    )
    login(node, "ann", "wrong")
    login(node, "nobody", "wrong too")
    assert verified == ["wrong", "wrong too"]
    assert not login(node, "nobody", "nobody").amqp.usable, "what it is compared with is no password of anybody"
    assert accounts.nobody().verify("nobody")


def test_users_that_are_gone_are_forgotten_once_they_have_no_connections() -> None:
    node = Rig().node("hub", has_users_file=True)
    change(node, *(("", f"user-{number}", "one") for number in range(3)))
    assert len(node.core.users.by_name) == 3
    change(node, ("", "user-1", "one"))
    assert list(node.core.users.by_name) == ["user-1"]


# ------------------------------------------------------------------------------- a login that a reload has changed


def reload(node: Node, **fields: Any) -> None:
    node.handle(events.ConfigRead(config=replace(node.config, **fields)))
    node.rig.settle()
    node.core.validate()


@pytest.mark.parametrize("jfk", [(), (NeighbourConfig(name="jfk", user="jfk", password="two"),)])
def test_who_logged_in_by_a_neighbours_password_goes_with_it(jfk: tuple[NeighbourConfig, ...]) -> None:
    """Also a client that is no neighbour: the password may have been stolen."""
    neighbour = NeighbourConfig(name="jfk", user="jfk", password="own")
    node = Rig().node("hub", users=(UserConfig(name="ann", password="one"),), neighbours=(neighbour,))
    thief, ann = login(node, "jfk", "own"), login(node, "ann", "one")
    reload(node, neighbours=(replace(neighbour, keepalive_s=0.5),))
    assert thief.amqp.usable and ann.amqp.usable, "nothing has changed about the login"
    reload(node, neighbours=jfk)
    assert (thief.amqp.usable, ann.amqp.usable) == (False, True)
    assert thief.closed is not None and "its user was removed, or has another password" in str(thief.closed)


def test_a_user_of_the_nodes_own_file_takes_the_place_of_a_stored_one_and_of_its_connections() -> None:
    node = Rig().node("hub", has_users_file=True, users=(UserConfig(name="bob", password="own"),))
    change(node, ("", "ann", "stored"), ("", "bob", "stored"))
    ann, bob = login(node, "ann", "stored"), login(node, "bob", "own")
    reload(node, users=(UserConfig(name="ann", password="own"), UserConfig(name="bob", password="own")))
    assert (ann.amqp.usable, bob.amqp.usable) == (False, True)
    ann = login(node, "ann", "own")
    reload(node, users=(UserConfig(name="bob", password="own"),))
    assert (ann.amqp.usable, bob.amqp.usable) == (False, True)
    assert login(node, "ann", "stored").amqp.usable
