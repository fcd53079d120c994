"""Passwords of which keys alone are kept: what fitted is known again at once, and all else is checked only so often."""

from hmac import digest

import pytest

from holdfast.amqp.login.exchanges import LoginWaits
from holdfast.amqp.login.keys import SHA_256
from holdfast.engine import events
from holdfast.engine.clock import Clock
from holdfast.peers import credentials, kept
from holdfast.peers.credentials import Credential
from holdfast.peers.kept import Checks, Kept
from support.rig import Client, Rig

CREDENTIAL = credentials.make("right", bytes(16), iterations=4_096)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords for which the keys were computed."""
    found: list[str] = []
    verify = Credential.verify

    def noted(self: Credential, password: str) -> bool:
        found.append(password)
        return verify(self, password)

    monkeypatch.setattr(Credential, "verify", noted)
    return found


def test_what_fitted_is_known_again(checked: list[str]) -> None:
    checks = Checks(Clock(wall_ms=0, steady_ms=0, now=0.0))
    checks.secret = digest(b"drawn", b"", "sha256")
    user = Kept(CREDENTIAL, checks)
    assert [user.verify(password) for password in ("wrong", "right", "right", "right")] == [False, True, True, True]
    assert checked == ["wrong", "right"]
    assert not user.verify("wrong") and checked == ["wrong", "right", "wrong"]
    assert user.keys(SHA_256) == CREDENTIAL.sha256


def test_without_a_secret_nothing_is_remembered(checked: list[str]) -> None:
    user = Kept(CREDENTIAL, Checks(Clock(wall_ms=0, steady_ms=0, now=0.0)))
    assert user.verify("right") and user.verify("right") and len(checked) == 2


def test_checks_are_bounded_for_all_together(checked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "CHECKS_BURST", 2.0)
    clock = Clock(wall_ms=0, steady_ms=0, now=5.0)
    checks = Checks(clock)
    checks.secret = b"x" * 32
    ann, bob = Kept(CREDENTIAL, checks), Kept(CREDENTIAL, checks)
    assert ann.verify("right") and not bob.verify("wrong")
    with pytest.raises(LoginWaits) as waits:
        bob.verify("right")
    assert waits.value.at == pytest.approx(5.1) and len(checked) == 2
    assert ann.verify("right"), "who is known does not wait"
    clock.now = 5.1
    assert bob.verify("right")
    with pytest.raises(LoginWaits):
        bob.verify("wrong")


def test_a_login_that_must_be_found_out_waits_and_then_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "CHECKS_BURST", 1.0)
    rig = Rig()
    node = rig.node("hub", has_users_file=True)
    node.handle(events.UsersChanged(users=(("", "ann", CREDENTIAL.as_text()), ("", "bob", CREDENTIAL.as_text()))))

    def login(user: str, password: str) -> Client:
        client = rig.client(node, mechanism="PLAIN", user=user, password=password)
        rig.settle()
        return client

    assert node.core is not None
    guess, ann = login("bob", "wrong"), login("ann", "right")
    assert not guess.amqp.usable
    assert ann.amqp.remote_open is None, "it waits for its check"
    rig.run(0.2)
    assert ann.amqp.remote_open is not None and ann.amqp.usable
