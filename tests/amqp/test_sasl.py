"""Logging in, both roles (§5.3, RFC 4505, RFC 4616)."""

import pytest

from amqp.joined import NOW, client, hear, of, performatives, pump, server
from holdfast.amqp.connection import Connection, Opened, ProtocolFailed
from holdfast.amqp.login.exchanges import Authenticate, LoginNotChecked, LoginWaits, Proof, Side
from holdfast.amqp.login.keys import Clear
from holdfast.amqp.login.mechanisms import MECHANISMS, Mechanism
from holdfast.amqp.settings import Settings
from holdfast.amqp.wire import conditions, encoding
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_FRAME, SASL_FRAME_SIZE_MAX, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import (
    Error,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.errors import ConfigError


def users(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    """Anonymous may enter, and jfk with its password."""
    return mechanism == "ANONYMOUS" or (user == "jfk" and proof is not None and proof(Clear("pässword")))


def nobody(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    """Only users."""
    return mechanism != "ANONYMOUS" and users(mechanism, user, proof)


def sasl(*values: object) -> bytes:
    return b"".join(frame(0, encoding.encode(value), SASL_FRAME) for value in values)


def answers(side: Connection) -> list[object]:
    return [value for _, value, _ in performatives(b"".join(side.take_output(NOW)))]


@pytest.mark.parametrize("response", [None, b"", b"anonymous", b"\0anonymous", b"a" * 400])
def test_every_form_of_the_anonymous_response(response: bytes | None) -> None:
    """CLIENTS 3."""
    side = server(sasl_required=True)
    events = hear(
        side,
        SASL_HEADER
        + sasl(SaslInit("ANONYMOUS", response, "host"))
        + AMQP_HEADER
        + frame(0, encoding.encode(Open("c"))),
        NOW,
    )
    assert of(Opened, events)
    said = answers(side)
    assert said[:2] == [SaslMechanisms(("ANONYMOUS",)), SaslOutcome(0)] and isinstance(said[2], Open)
    assert side.authenticated_user is None


def test_mechanisms_come_before_the_client_speaks() -> None:
    """CLIENTS 4."""
    side = server(authenticate=users)
    hear(side, SASL_HEADER, NOW)
    assert answers(side) == [SaslMechanisms(("ANONYMOUS", "PLAIN"))]


@pytest.mark.parametrize(
    ("response", "enters"),
    [
        (b"\0jfk\0p\xc3\xa4ssword", True),
        (b"jfk\0jfk\0p\xc3\xa4ssword", True),
        (b"boss\0jfk\0p\xc3\xa4ssword", False),  # for somebody else
        (b"\0jfk\0wrong", False),
        (b"\0jfk", False),
        (b"\0jfk\0a\0b", False),
        (b"\0\0", False),
        (b"\0\xff\0\xff", False),
        (b"", False),
    ],
)
def test_plain(response: bytes, enters: bool) -> None:
    side = server(authenticate=nobody)
    events = hear(side, SASL_HEADER + sasl(SaslInit("PLAIN", response)), NOW)
    assert answers(side)[-1] == SaslOutcome(0 if enters else 1)
    assert side.closed is not enters and bool(of(ProtocolFailed, events)) is not enters
    assert side.authenticated_user == ("jfk" if enters else None)


def test_plain_without_initial_response_is_asked_for() -> None:
    side = server(authenticate=users)
    hear(side, SASL_HEADER + sasl(SaslInit("PLAIN")), NOW)
    assert answers(side)[-1] == SaslChallenge(b"")
    hear(side, sasl(SaslResponse(b"\0jfk\0p\xc3\xa4ssword")), NOW)
    assert answers(side) == [SaslOutcome(0)] and side.authenticated_user == "jfk"


@pytest.mark.parametrize("mechanism", ["PLAIN", "EXTERNAL", "anonymous"])
def test_an_unknown_mechanism_gets_an_outcome(mechanism: str) -> None:
    side = server()
    hear(side, SASL_HEADER + sasl(SaslInit(mechanism, b"\0a\0b")), NOW)
    assert answers(side)[-1] == SaslOutcome(1) and side.closed


@pytest.mark.parametrize("frames", [SaslResponse(b""), SaslOutcome(0), Open("c")])
def test_a_frame_out_of_place_ends_the_transport(frames: object) -> None:
    side = server()
    events = hear(side, SASL_HEADER + sasl(frames), NOW)
    assert of(ProtocolFailed, events) and side.closed
    assert answers(side)[-1] == SaslOutcome(1)


@pytest.mark.parametrize(
    "raw", ["00002001020100 00", "7fffffff02010000", "0000000702010000", "0000000cff010000", "0000000c0201000000533f40"]
)
def test_a_malformed_frame_gets_an_outcome(raw: str) -> None:
    """CLIENTS 4: without one a client sits out its own time limit."""
    side = server()
    events = hear(side, SASL_HEADER + bytes.fromhex(raw) + bytes(9_000), NOW)
    assert of(ProtocolFailed, events) and side.closed
    assert answers(side)[-1] == SaslOutcome(1)


def test_a_login_that_the_node_failed_with_is_no_wrong_password() -> None:
    """A client gives up for good after code 1; after code 4 it tries again."""
    side = server(authenticate=users)
    hear(side, SASL_HEADER, NOW)
    side.transport_lost(Error(Symbol(conditions.INTERNAL_ERROR), "a failure of ours"))
    assert answers(side)[-1] == SaslOutcome(4)


def test_a_login_that_comes_too_late_is_no_wrong_password() -> None:
    side = server(authenticate=users, handshake_time_out_s=5.0)
    hear(side, SASL_HEADER + sasl(SaslInit("PLAIN"))[:9], NOW)
    side.tick(NOW + 5.0)
    assert answers(side)[-1] == SaslOutcome(4) and side.closed


@pytest.mark.parametrize("code", [2, 4])
def test_a_client_is_told_that_its_login_was_not_checked(code: int) -> None:
    side = client(mechanism="ANONYMOUS")
    (failed,) = of(
        ProtocolFailed, hear(side, SASL_HEADER + sasl(SaslMechanisms(("ANONYMOUS",)), SaslOutcome(code)), NOW)
    )
    assert failed.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED
    assert f"code {code}" in str(failed.error.description)


def test_the_bound_on_sasl_frames() -> None:
    def sized(size: int) -> bytes:
        empty = len(sasl(SaslInit("ANONYMOUS", b"x" * 300)))
        return sasl(SaslInit("ANONYMOUS", b"x" * (300 + size - empty)))

    fits, over = server(), server()
    hear(fits, SASL_HEADER + sized(SASL_FRAME_SIZE_MAX), NOW)
    assert answers(fits)[-1] == SaslOutcome(0)
    hear(over, SASL_HEADER + sized(SASL_FRAME_SIZE_MAX + 1), NOW)
    assert over.closed and SaslOutcome(0) not in answers(over)


def test_a_plain_header_is_taken_as_anonymous_unless_a_login_is_required() -> None:
    """CLIENTS 1."""
    easy, strict = server(authenticate=users), server(sasl_required=True)
    hear(easy, AMQP_HEADER, NOW)
    assert easy.take_output(NOW) == [AMQP_HEADER]
    hear(strict, AMQP_HEADER, NOW)
    assert strict.take_output(NOW) == [SASL_HEADER] and strict.closed


@pytest.mark.parametrize("change", [{"authenticate": nobody}, {"mechanisms": ("PLAIN",), "authenticate": users}])
def test_a_plain_header_where_anonymous_may_not_enter(change: dict[str, object]) -> None:
    side = server(**change)
    hear(side, AMQP_HEADER, NOW)
    assert side.take_output(NOW) == [SASL_HEADER] and side.closed


@pytest.mark.parametrize("cut", [0, 1])
def test_a_client_logs_in(cut: int) -> None:
    here = client(mechanism="PLAIN", user="jfk", password="pässword", hostname="hub")
    there = server(authenticate=users, sasl_required=True)
    mine, theirs = pump(here, there, cut=cut)
    assert of(Opened, mine) and of(Opened, theirs) and there.authenticated_user == "jfk"


@pytest.mark.parametrize(("mechanism", "reason"), [("PLAIN", "wrong user or password"), ("ANONYMOUS", "not among")])
def test_a_client_is_refused(mechanism: str, reason: str) -> None:
    here = client(mechanism=mechanism, user="jfk", password="wrong")
    there = server(authenticate=users, sasl_required=True, mechanisms=("PLAIN",))
    mine, theirs = pump(here, there)
    (failed,) = of(ProtocolFailed, mine)
    assert failed.error.condition == "amqp:unauthorized-access" and reason in failed.error.description
    assert here.closed and there.closed and of(ProtocolFailed, theirs)


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        (1, "amqp:unauthorized-access"),
        (2, "amqp:resource-limit-exceeded"),
        (3, "amqp:unauthorized-access"),
        (4, "amqp:resource-limit-exceeded"),
        (5, "amqp:unauthorized-access"),
    ],
)
def test_a_client_knows_which_refusals_pass(code: int, condition: str) -> None:
    """§5.3.3.6: sys and sys-temp may pass; a wrong password and sys-perm do not."""
    here = client(mechanism="PLAIN", user="jfk", password="x")
    (failed,) = of(ProtocolFailed, hear(here, SASL_HEADER + sasl(SaslOutcome(code)), NOW))
    said = "wrong user or password" if code == 1 else f"code {code}"
    assert failed.error.condition == condition and said in failed.error.description


def test_a_client_without_a_user_hears_that_it_needs_one() -> None:
    here = client(mechanism="ANONYMOUS")
    (failed,) = of(ProtocolFailed, hear(here, SASL_HEADER + sasl(SaslOutcome(1)), NOW))
    assert failed.error.description == "a login without a user was refused"


def test_a_client_takes_no_challenge() -> None:
    here = client(mechanism="PLAIN", user="a", password="b")
    events = hear(here, SASL_HEADER + sasl(SaslMechanisms(("PLAIN",)), SaslChallenge(b"?")), NOW)
    assert of(ProtocolFailed, events) and here.closed


class ReversedServer:
    """Asks who it is, and then for the password backwards."""

    def __init__(self, side: Side) -> None:
        self.user: str | None = None
        self.evidence: bytes | None = None
        self._authenticate: Authenticate = side.authenticate

    def respond(self, response: bytes | None) -> bytes | bool:
        if self.user is None:
            self.user = (response or b"").decode()
            return b"backwards, please"
        said = (response or b"").decode()
        return self._authenticate("X-REVERSED", self.user, lambda known: known.verify(said[::-1]))


@pytest.fixture
def reversed_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = Mechanism(
        "X-REVERSED",
        has_user=True,
        has_password=True,
        at_once=False,
        server=ReversedServer,
        client=MECHANISMS["PLAIN"].client,
        may_enter=lambda side: True,
        refused="not backwards",
    )
    monkeypatch.setitem(MECHANISMS, mechanism.name, mechanism)


@pytest.mark.usefixtures("reversed_mechanism")
@pytest.mark.parametrize(("said", "enters"), [("drowssäp", True), ("pässword", False)])
def test_a_mechanism_with_a_challenge_is_one_entry(said: str, enters: bool) -> None:
    side = server(authenticate=nobody, mechanisms=("PLAIN", "X-REVERSED"), sasl_required=True)
    hear(side, SASL_HEADER + sasl(SaslInit("X-REVERSED", b"jfk")), NOW)
    assert answers(side) == [SaslMechanisms(("PLAIN", "X-REVERSED")), SaslChallenge(b"backwards, please")]
    hear(side, sasl(SaslResponse(said.encode())), NOW)
    assert answers(side) == [SaslOutcome(0 if enters else 1)]
    assert side.authenticated_user == ("jfk" if enters else None)


@pytest.mark.usefixtures("reversed_mechanism")
def test_what_waits_or_is_not_checked_does_so_after_a_challenge_too() -> None:
    asked: list[str | None] = []

    def later(mechanism: str, user: str | None, proof: Proof | None) -> bool:
        asked.append(user)
        if len(asked) == 1:
            raise LoginWaits(NOW + 1)
        raise LoginNotChecked

    side = server(authenticate=later, mechanisms=("X-REVERSED",))
    hear(side, SASL_HEADER + sasl(SaslInit("X-REVERSED", b"jfk"), SaslResponse(b"x")), NOW)
    assert answers(side)[-1] == SaslChallenge(b"backwards, please")
    (failed,) = of(ProtocolFailed, list(side.resume(NOW + 1)))
    assert asked == ["jfk", "jfk"] and "user 'jfk' was not checked" in failed.error.description
    assert answers(side)[-1] == SaslOutcome(4)


def test_settings_know_the_mechanisms() -> None:
    with pytest.raises(
        ConfigError, match="invalid value 'GSSAPI' for mechanism; expected EXTERNAL or SCRAM-SHA-512 or"
    ):
        Settings(container_id="c", mechanism="GSSAPI").validate()
    with pytest.raises(ConfigError, match="PLAIN needs a user and a password"):
        Settings(container_id="c", mechanism="PLAIN", user="jfk").validate()
