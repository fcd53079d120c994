"""Whether a name is a user's is told by nothing that a stranger can try: not by when its tries are used up, not by the
salt of a challenge over restarts, not by the work of a check (peers/logins.py, accounts.py and entrance.py)."""

from typing import Any, Final

import pytest

from core.test_logins import said, tries
from core.test_mechanisms import heard, joined, sasl, tell
from holdfast.amqp.login.exchanges import Credentials
from holdfast.amqp.login.keys import SHA_256, SHA_512
from holdfast.amqp.login.scram import ClientScram
from holdfast.amqp.wire.frames import SASL_HEADER
from holdfast.amqp.wire.performatives import SaslChallenge, SaslInit
from holdfast.amqp.wire.types import Symbol
from holdfast.engine import events
from holdfast.peers import credentials, kept, logins
from holdfast.peers.credentials import Credential
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from support.rig import Node, Rig

USERS: Final = (UserConfig(name="ann", password="right"), UserConfig(name="bob", password="right"))
SEED: Final = b"seed" * 8


def key(password: str, salt: bytes) -> str:
    return credentials.make(password, salt, iterations=4_096).as_text()


def stored(node: Node, *names: str) -> None:
    users = tuple(("", name, key("right", name.encode() * 6)) for name in names)
    node.handle(events.UsersChanged(users=users, seed=SEED))
    node.rig.settle()


@pytest.mark.parametrize("before", [["eve"], ["eve", "x", "y", "z"]])
@pytest.mark.parametrize("failures", [3, 30])
def test_tries_for_names_that_are_none_use_up_no_others(before: list[str], failures: int) -> None:
    """Were they counted together, one more try would tell a user's name from one that is none."""
    found = {}
    for name in ("ann", "nobody"):
        rig = Rig()
        node = rig.node("hub", limits=Limits(login_failures_max=3, login_retry_s=1.0), users=USERS)
        for number in range(failures):
            tries(rig, node, "wrong", user=before[number % len(before)])
        found[name] = [said(tries(rig, node, "wrong", user=name)) for _ in range(12)]
    assert found["ann"] == found["nobody"]
    assert found["ann"] == ["failed"] * 3 + ["waits"] * 5 + ["not checked"] * 4


def test_names_that_are_none_are_not_kept_nor_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be passwords; whoever makes them up does not fill the memory."""
    monkeypatch.setattr(logins, "REMEMBERED_MAX", 10)
    rig = Rig()
    node = rig.node("hub", users=USERS)
    for number in range(20):
        tries(rig, node, "wrong", user=f"hunter{number}")
    assert len(node.core.logins.tries) == 10 and "hunter" not in repr(node.core.logins.tries)
    assert {row["user"] for row in node.core.logins.status()["latest"]} == {None}


def challenge(node: Node, user: str, mechanism: str, nonce: bytes) -> str:
    """What the node says to a first message of SCRAM, without the nonce."""
    rig = node.rig
    peer = joined(rig, node, nonce=nonce)
    here = ClientScram(mechanism, Credentials(user, "x", "once"))
    tell(rig, peer, SASL_HEADER + sasl(SaslInit(Symbol(mechanism), here.first(), None)))
    (found,) = heard(peer, SaslChallenge)
    return bytes(found.challenge).decode().partition(",")[2]


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_challenge_is_the_same_after_a_restart_whoever_the_user_is(mechanism: str) -> None:
    """That of a file's user is: so is that of a name that is none, and of a user of the node's own file."""
    told = []
    for nonce in (b"a" * 18, b"b" * 18):
        rig = Rig()
        node = rig.node("hub", has_users_file=True, users=(UserConfig(name="own", password="x"),))
        stored(node, "ann")
        told.append([challenge(node, user, mechanism, nonce) for user in ("ann", "own", "nobody", "else")])
    assert told[0] == told[1] and len({*told[0]}) == 4


def test_a_wrong_password_costs_the_same_whosever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a user whose password the node keeps as it is, and of a neighbour."""
    rig = Rig()
    jfk = NeighbourConfig(name="jfk", user="jfk", password="right", remote="127.0.0.1:1")
    node = rig.node("hub", has_users_file=True, users=USERS, neighbours=(jfk,))
    stored(node, "cleo")
    verified: list[str] = []
    verify = Credential.verify
    monkeypatch.setattr(
        Credential, "verify", lambda self, password: verified.append(password) or verify(self, password)
    )
    for name in ("ann", "jfk", "cleo", "nobody"):
        verified.clear()
        assert said(tries(rig, node, "wrong", user=name)) == "failed"
        assert verified == ["wrong"], name
    verified.clear()
    assert said(tries(rig, node, "right")) == "entered" and verified == []


def test_a_login_that_is_refused_unread_costs_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    node = rig.node("hub", has_users_file=True, limits=Limits(login_failures_max=1, login_retry_s=30.0))
    stored(node, "ann")
    assert said(tries(rig, node, "wrong")) == "failed"
    monkeypatch.setattr(Credential, "verify", lambda self, password: pytest.fail("it is not looked at"))
    assert said(tries(rig, node, "right")) == "not checked"


def test_who_guesses_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names and connections he uses: at another address a user who was not there before comes in."""
    monkeypatch.setattr(kept, "FAILURES_BURST", 3.0)
    rig = Rig()
    node = rig.node("hub", has_users_file=True)
    stored(node, "ann")
    guesses = [tries(rig, node, "wrong", user=f"guess-{number}") for number in range(200)]
    assert sum(said(guess) == "failed" for guess in guesses) == 3
    ann: Any = tries(rig, node, "right", address="10.0.0.2")
    assert said(ann) == "entered"
    rig.run(5)
    assert 3 < sum(said(guess) == "failed" for guess in guesses) < 12


def test_who_goes_while_its_password_waits_to_be_checked_has_had_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that has fitted is known at once: that one waits tells that it is wrong."""
    monkeypatch.setattr(kept, "CHECKS_BURST", 1.0)
    rig = Rig()
    node = rig.node("hub", has_users_file=True, limits=Limits(login_failures_max=3, login_retry_s=5.0))
    stored(node, "ann")
    assert said(tries(rig, node, "right")) == "entered"
    found = []
    for number in range(8):
        guess = tries(rig, node, f"guess-{number}")
        found.append(said(guess))
        guess.end.wire.cut()
        rig.settle()
    assert found == ["waits"] * 4 + ["not checked"] * 4
    assert said(tries(rig, node, "right")) == "not checked", "as after so many wrong ones"
