"""Failed logins wait, for one address and one name; nobody else is kept out by them (peers/logins.py)."""

import pytest

from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import SaslInit
from holdfast.amqp.wire.types import Symbol
from holdfast.peers import logins
from holdfast.settings.hosts import UserConfig
from holdfast.settings.limits import Limits
from holdfast.units import iso8601
from support.raw import HELLO, Raw
from support.rig import Node, Rig

USERS = (UserConfig(name="ann", password="right"), UserConfig(name="bob", password="right"))
ENTERED = b"\x00\x53\x44\xc0\x03\x01\x50\x00"
FAILED = b"\x00\x53\x44\xc0\x03\x01\x50\x01"
NOT_CHECKED = b"\x00\x53\x44\xc0\x03\x01\x50\x04"
"""sys-temp: the client may try again."""


def init(user: str, password: str) -> bytes:
    said = SaslInit(Symbol("PLAIN"), f"\0{user}\0{password}".encode(), None)
    return SASL_HEADER + frame(0, encode(said), SASL_FRAME)


def tries(rig: Rig, node: Node, password: str, *, user: str = "ann", address: str = "10.0.0.1") -> Raw:
    """A connection that logs in; what it heard stays in `received`."""
    peer = Raw(rig, node, address=address, loopback=False)
    peer.end.wire.write(peer.end, init(user, password))
    rig.settle()
    return peer


def said(peer: Raw) -> str:
    answers = {"entered": ENTERED, "failed": FAILED, "not checked": NOT_CHECKED}
    return next((answer for answer, spelt in answers.items() if spelt in peer.received), "waits")


def world(**limits: float) -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node("hub", limits=Limits(login_failures_max=3, **limits), users=USERS)  # type: ignore[arg-type]


@pytest.mark.parametrize(("failures", "expected"), [(2, "failed"), (3, "waits")])
def test_login_failures_max(failures: int, expected: str) -> None:
    """At the bound the next try waits, the right password like a wrong one."""
    rig, node = world(login_retry_s=1.0)
    for _ in range(failures):
        assert said(tries(rig, node, "wrong")) == "failed"
    wrong = tries(rig, node, "wrong")
    assert said(wrong) == expected
    if expected == "failed":
        return
    right = tries(rig, node, "right")
    assert said(right) == "waits" and right.number in node.not_read
    rig.run(1.05)
    assert (said(wrong), said(right)) == ("failed", "waits")
    rig.run(1.05)
    assert said(right) == "entered" and right.number not in node.not_read
    right.say(HELLO)
    assert right.alive and node.core is not None and node.core.users.by_name["ann"].connections == 1


def test_login_retry_s() -> None:
    """A failure is forgiven each time it has passed."""
    rig, node = world(login_retry_s=2.0)
    for _ in range(3):
        tries(rig, node, "wrong")
    rig.run(1.9)
    early = tries(rig, node, "right")
    assert said(early) == "waits"
    rig.run(0.2)
    assert said(early) == "entered"
    rig.run(2.1)
    assert said(tries(rig, node, "right")) == "entered"


def test_nobody_is_locked_out_by_a_stranger() -> None:
    """Who floods from another address, or for another name, costs the honest nothing."""
    rig, node = world()
    for _ in range(50):
        tries(rig, node, "wrong")
        tries(rig, node, "wrong", user="nobody")
    assert said(tries(rig, node, "right", address="10.0.0.2")) == "entered"
    assert said(tries(rig, node, "right", user="bob")) == "entered"
    assert node.core is not None
    status = node.core.logins.status()
    assert status["failed"] == 6 and status["refused"] and status["delayed"]
    assert rig_status(node)["logins_failed"] == 3
    rig.run(20)
    assert said(tries(rig, node, "right")) == "entered"


def test_status_tells_who_failed_where_how_often_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LISTED_MAX", 2)
    rig, node = world(login_retry_s=1.0)
    assert node.core is not None and node.core.logins.status()["latest"] == []
    tries(rig, node, "wrong", address="10.0.0.9")
    tries(rig, node, "wrong", user="nobody")
    first = iso8601(rig.wall_ms)
    rig.run(10)
    tries(rig, node, "wrong", user="another")
    tries(rig, node, "wrong")
    last = iso8601(rig.wall_ms)
    tries(rig, node, "right", user="bob")
    assert node.core.logins.status()["latest"] == [
        {"address": "10.0.0.1", "user": "ann", "failed": 1, "since": last, "last": last},
        {"address": "10.0.0.1", "user": None, "failed": 2, "since": first, "last": last},
    ]


def rig_status(node: Node) -> dict[str, int]:
    assert node.core is not None
    (row,) = [row for row in node.core.users.status("") if row["user"] == "ann"]
    return row


def test_guesses_are_bounded_however_many_connections_guess() -> None:
    rig, node = world(login_retry_s=1.0)
    for _ in range(100):
        tries(rig, node, "wrong")
        rig.run(0.1)
    assert node.core is not None and 10 <= node.core.logins.failed <= 3 + 10 + 1


def test_what_waits_too_long_is_refused_unread_and_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "REMEMBERED_MAX", 2)
    rig, node = world(login_retry_s=1.0)
    waiting = [tries(rig, node, "wrong") for _ in range(3 + 5)]
    assert [said(peer) for peer in waiting] == ["failed"] * 3 + ["waits"] * 5
    for password in ("right", "wrong"):
        refused = tries(rig, node, password)
        assert said(refused) == "not checked" and not refused.alive
    for number in range(2, 5):
        tries(rig, node, "wrong", address=f"10.0.0.{number}")
    assert node.core is not None and len(node.core.logins.tries) == 2


def test_a_right_password_uses_up_no_try() -> None:
    """However often an honest user comes, who mistyped before: one try is left, and stays left."""
    rig, node = world(login_retry_s=1.0)
    for _ in range(2):
        assert said(tries(rig, node, "wrong")) == "failed"
    assert [said(tries(rig, node, "right")) for _ in range(5)] == ["entered"] * 5


def test_who_failed_last_is_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guesser is not forgiven because others fail too: at the bound the one longest without a failure goes."""
    monkeypatch.setattr(logins, "REMEMBERED_MAX", 2)
    rig, node = world(login_retry_s=1.0)
    for last in (1, 2, 1, 3):
        tries(rig, node, "wrong", address=f"10.0.0.{last}")
    assert node.core is not None and sorted(node.core.logins.tries) == [("10.0.0.1", "ann"), ("10.0.0.3", "ann")]


def test_who_goes_while_its_login_waits_leaves_nothing() -> None:
    rig, node = world()
    for _ in range(3):
        tries(rig, node, "wrong")
    gone = tries(rig, node, "right")
    assert said(gone) == "waits"
    gone.end.wire.cut()
    rig.run(3)
    assert node.core is not None and not node.core.connections and not node.core.guard.waiting
