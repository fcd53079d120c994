"""SCRAM, both roles (RFC 5802, RFC 7677): against each other, against another implementation, and against liars; and
EXTERNAL, and a client that chooses among what it is offered."""

from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import scramp

from amqp.joined import NOW, client, hear, of, performatives, pump, server
from holdfast.amqp.connection import Connection, Opened, ProtocolFailed
from holdfast.amqp.login import scram
from holdfast.amqp.login.exchanges import Authenticate, Credentials, LoginWaits, Proof, Side, Unproven
from holdfast.amqp.login.keys import ITERATIONS_MAX, SHA_256, SHA_512, Clear, derive
from holdfast.amqp.login.scram import MESSAGE_BYTES_MAX, NONCE_CHARACTERS_MAX, ClientScram, ServerScram
from holdfast.amqp.settings import Settings
from holdfast.amqp.wire import conditions, encoding
from holdfast.amqp.wire.frames import SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome
from holdfast.errors import ConfigError
from support import today

PASSWORDS = {"user": "pencil", "jürg": "pässword", "a,b=c": "x" * 500}
KNOWN = {user: Clear(password, bytes(range(16))) for user, password in PASSWORDS.items()}
NOBODY = Clear("nobody's", bytes(16))


def authenticate(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    known = KNOWN.get(user or "")
    return known is not None and proof is not None and proof(known)


def side(nonce: str = "server's", check: Authenticate = authenticate) -> Side:
    return Side(check, nonce=nonce, keys=lambda mechanism, user: KNOWN.get(user, NOBODY).keys(mechanism))


def given(user: str, password: str) -> Credentials:
    return Credentials(user, password, "client's")


def login(mechanism: str, user: str, password: str) -> tuple[ServerScram, bool]:
    """Our two sides; whether both are satisfied."""
    here, there = ClientScram(mechanism, given(user, password)), ServerScram(mechanism, side())
    challenge = there.respond(here.first())
    assert isinstance(challenge, bytes)
    entered = there.respond(here.respond(challenge))
    assert isinstance(entered, bool)
    if entered:
        here.entered(there.evidence)
    return there, entered


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", PASSWORDS)
def test_both_sides_know_the_password(mechanism: str, user: str) -> None:
    there, entered = login(mechanism, user, PASSWORDS[user])
    assert entered and there.user == user


@pytest.mark.parametrize(("user", "password"), [("user", "Pencil"), ("user", ""), ("nobody", "pencil")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(user: str, password: str) -> None:
    there, entered = login(SHA_256, user, password)
    assert not entered and there.evidence is None


def test_the_example_of_rfc_7677() -> None:
    here = ClientScram(SHA_256, Credentials("user", "pencil", "rOprNGfwEbeRWgbNEkqO"))
    assert here.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    answer = here.respond(nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert answer == b"c=biws," + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    here.entered(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", PASSWORDS)
def test_another_implementation_logs_in_here(mechanism: str, user: str) -> None:
    other = scramp.ScramClient([mechanism], user, PASSWORDS[user])
    there = ServerScram(mechanism, side())
    challenge = there.respond(other.get_client_first().encode())
    assert isinstance(challenge, bytes)
    other.set_server_first(challenge.decode())
    assert there.respond(other.get_client_final().encode()) is True and there.user == user
    assert there.evidence is not None
    other.set_server_final(there.evidence.decode())


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", PASSWORDS)
def test_we_log_in_at_another_implementation(mechanism: str, user: str) -> None:
    scheme = scramp.ScramMechanism(mechanism)
    salt, stored, key, count = scheme.make_auth_info(PASSWORDS[user], iteration_count=4_096)
    other = scheme.make_server(lambda name: (salt, stored, key, count) if name == user else None)
    here = ClientScram(mechanism, given(user, PASSWORDS[user]))
    other.set_client_first(here.first().decode())
    answer = here.respond(other.get_server_first().encode())
    assert answer is not None
    other.set_client_final(answer.decode())
    here.entered(other.get_server_final().encode())


# ------------------------------------------------------------------------------------------------------- liars


FIRST = b"n,,n=user,r=abc"


@pytest.mark.parametrize(
    "first",
    [
        b"", b"n", b"n,,", b"n,,n=user", b"n,,r=abc,n=user", b"p=tls-exporter,,n=user,r=abc", b"n,a=boss,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc", b"n,,n=,r=abc", b"n,,n=us=er,r=abc", b"n,,n=a\0b,r=abc", b"n,,n=user,r=", b"\xff\xff",
        b"n,,n=user,r=a c", b"n,,n=user,r=\xc3\xa4", b"n,,n=user,r=" + b"x" * (NONCE_CHARACTERS_MAX + 1),
        b"n,,n=user,r=abc,x=" + b"x" * MESSAGE_BYTES_MAX,
    ],
)  # fmt: skip
def test_a_first_message_that_is_none_is_a_login_that_failed(first: bytes) -> None:
    assert ServerScram(SHA_256, side()).respond(first) is False


@pytest.mark.parametrize("first", [FIRST, b"y,,n=user,r=abc", b"n,a=user,n=user,r=abc", b"n,,n=user,r=abc,x=ext"])
def test_what_a_first_message_may_also_say(first: bytes) -> None:
    there = ServerScram(SHA_256, side())
    assert there.respond(None) == b"", "without an initial response it is asked for"
    challenge = there.respond(first)
    assert isinstance(challenge, bytes) and challenge.startswith(b"r=abcserver's,s=")


def test_a_last_message_that_does_not_belong_to_the_first_is_refused() -> None:
    here = ClientScram(SHA_256, given("user", "pencil"))
    there = ServerScram(SHA_256, side())
    challenge = there.respond(here.first())
    assert isinstance(challenge, bytes)
    right = here.respond(challenge)
    assert right is not None
    start = right.partition(b",p=")[0] + b",p="
    for wrong in (
        right.replace(b"c=biws", b"c=eSws"), right.replace(b"server's", b"others"), right[:-4], start + b"AAAAAAA=",
        b"", b"c=biws", right + b",x=more", start, start + b64encode(bytes(32)), start + b64encode(b"x"),
    ):  # fmt: skip
        fresh = ServerScram(SHA_256, side())
        assert fresh.respond(here.first()) == challenge
        assert fresh.respond(wrong) is False, wrong
    assert there.respond(right) is True


@pytest.mark.parametrize("seed", today.some(range(30), 8))
def test_any_bytes_are_a_failure_and_no_more(seed: int) -> None:
    rng = Random(seed)
    here = ClientScram(SHA_256, given("user", "pencil"))
    there = ServerScram(SHA_256, side())
    challenge = there.respond(here.first())
    assert isinstance(challenge, bytes)

    def changed(data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            if found and rng.random() < 0.8:
                found[rng.randrange(len(found))] = rng.choice(b"=,\0\xffan9p+/")
            else:
                del found[rng.randrange(len(found) + 1) :]
        return bytes(found)

    last = here.respond(challenge) or b""
    for _ in range(50):
        other = ServerScram(SHA_256, side())
        answer = other.respond(changed(here.first()))
        assert answer is False or isinstance(answer, bytes)
        wrong = changed(last)
        assert wrong == last or there.respond(wrong) is False
        try:
            answered = ClientScram(SHA_256, given("user", "pencil")).respond(changed(challenge[:50]) + challenge[50:])
        except Unproven:
            continue
        assert answered is not None


@pytest.mark.parametrize(
    ("challenge", "complaint"),
    [
        (b"", "not one of SCRAM"),
        (b"r=other,s=AAAA,i=4096", "not one of SCRAM"),
        (b"r=client's,s=AAAA,i=4096", "not one of SCRAM"),  # the server adds nothing
        (b"r=client'sX,s=!,i=4096", "not one of SCRAM"),
        (b"r=client'sX,s=,i=4096", "not one of SCRAM"),
        (b"r=client'sX,s=AAAA,i=x", "not one of SCRAM"),
        (b"m=x,r=client'sX,s=AAAA,i=4096", "not one of SCRAM"),
        (b"r=client'sX,s=" + b64encode(bytes(129)) + b",i=4096", "not one of SCRAM"),
        (b"r=client'sX,s=AAAA,i=4095", "asks for 4095 iterations"),
        (b"r=client'sX,s=AAAA,i=" + str(ITERATIONS_MAX + 1).encode(), "iterations of SCRAM-SHA-256; expected 4096 to"),
    ],
)
def test_a_server_that_asks_for_the_wrong_things_gets_no_proof(challenge: bytes, complaint: str) -> None:
    with pytest.raises(Unproven, match=complaint):
        ClientScram(SHA_256, given("user", "pencil")).respond(challenge)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    for evidence in (None, b"", b"v=" + b64encode(bytes(32)), b"e=other-error"):
        here, there = ClientScram(SHA_256, given("user", "pencil")), ServerScram(SHA_256, side())
        challenge = there.respond(here.first())
        assert isinstance(challenge, bytes)
        here.respond(challenge)
        with pytest.raises(Unproven, match="did not prove that it knows the password"):
            here.entered(evidence)
    with pytest.raises(Unproven):
        ClientScram(SHA_256, given("user", "pencil")).entered(b"v=")


def test_a_login_that_waits_is_read_again() -> None:
    asked: list[int] = []

    def later(mechanism: str, user: str | None, proof: Proof | None) -> bool:
        asked.append(1)
        if len(asked) == 1:
            raise LoginWaits(NOW + 1)
        return authenticate(mechanism, user, proof)

    here, there = ClientScram(SHA_256, given("user", "pencil")), ServerScram(SHA_256, side(check=later))
    challenge = there.respond(here.first())
    assert isinstance(challenge, bytes)
    final = here.respond(challenge)
    with pytest.raises(LoginWaits):
        there.respond(final)
    assert there.respond(final) is True


def test_a_password_that_was_changed_meanwhile_does_not_fit() -> None:
    """The keys that were offered count, and no others of that user."""
    current = Clear("other", bytes(range(16)))

    def check(mechanism: str, user: str | None, proof: Proof | None) -> bool:
        assert proof is not None
        return proof(current)

    here, there = ClientScram(SHA_256, given("user", "pencil")), ServerScram(SHA_256, side(check=check))
    challenge = there.respond(here.first())
    assert isinstance(challenge, bytes) and there.respond(here.respond(challenge)) is False


# ------------------------------------------------------------------------------------------------------- on the wire


def sasl(*values: object) -> bytes:
    return b"".join(frame(0, encoding.encode(value), SASL_FRAME) for value in values)


def said(connection: Connection) -> list[object]:
    return [value for _, value, _ in performatives(b"".join(connection.take_output(NOW)))]


def checking(mechanism: str, user: str | None, proof: Proof | None) -> bool:
    if mechanism == "EXTERNAL":
        return user == "ann"
    return authenticate(mechanism, user, proof)


def node(**changes: Any) -> Connection:
    settings = {
        "authenticate": checking,
        "sasl_required": True,
        "nonce": "server's",
        "keys": side().keys,
        **changes,
    }
    return server(**settings)


@pytest.mark.parametrize("wanted", [SHA_256, SHA_512, (SHA_512, SHA_256), (SHA_256, "PLAIN")])
@pytest.mark.parametrize("cut", [0, 1, 7])
def test_a_login_from_first_byte_to_open(wanted: str | tuple[str, ...], cut: int) -> None:
    here, there = client(mechanism=wanted, user="user", password="pencil", nonce="client's"), node()
    here.begin()
    first = b"".join(here.take_output(NOW))
    assert here.usable and b"AMQP\x00\x01\x00\x00" not in first, "nothing follows a login that is not over"
    events = [hear(there, first, NOW)]
    events += pump(here, there, cut=cut)
    assert of(Opened, [event for each in events for event in each])
    assert there.authenticated_user == "user" == here.authenticated_user and len(there.sessions) == 1


def test_a_wrong_password_opens_nothing() -> None:
    here, there = client(mechanism=(SHA_512, SHA_256), user="user", password="Pencil", nonce="client's"), node()
    mine, theirs = pump(here, there)
    (failed,) = of(ProtocolFailed, mine)
    assert failed.error.condition == conditions.UNAUTHORIZED_ACCESS
    assert failed.error.description == "wrong user or password"
    (failed,) = of(ProtocolFailed, theirs)
    assert failed.error.description == "the login failed: user 'user'"
    assert here.closed and there.closed


def liar(answer: Callable[[bytes], object]) -> tuple[Connection, list[Any]]:
    """A client, and what it makes of a server that offers SCRAM and answers its login with that."""
    here = client(mechanism=(SHA_256,), user="user", password="pencil", nonce="client's")
    here.take_output(NOW)
    hear(here, SASL_HEADER + sasl(SaslMechanisms((SHA_256,))), NOW)
    return here, hear(here, sasl(answer(b"")), NOW)


def test_a_server_that_lets_everybody_in_is_not_believed() -> None:
    """Whoever sits in between and says yes has learnt no password, and gets no message."""
    here, events = liar(lambda _: SaslOutcome(0))
    (failed,) = of(ProtocolFailed, events)
    assert "did not prove that it knows the password" in failed.error.description
    assert here.closed and here.take_output(NOW) == []
    here, events = liar(lambda _: SaslOutcome(0, b"v=AAAA"))
    assert of(ProtocolFailed, events)
    here, events = liar(lambda _: SaslChallenge(b"r=client'sX,s=AAAA,i=200000000"))
    (failed,) = of(ProtocolFailed, events)
    assert "iterations" in failed.error.description


def test_the_evidence_may_come_as_a_challenge() -> None:
    """As some servers have it, before the outcome (RFC 5802 knows both)."""
    here = client(mechanism=SHA_256, user="user", password="pencil", nonce="client's")
    there = ServerScram(SHA_256, side())
    (init,) = [value for value in said(here) if isinstance(value, SaslInit)]
    challenge = there.respond(init.initial_response)
    assert isinstance(challenge, bytes)
    hear(here, SASL_HEADER + sasl(SaslMechanisms((SHA_256,)), SaslChallenge(challenge)), NOW)
    (answer,) = said(here)
    assert there.respond(answer.response) is True and there.evidence is not None  # type: ignore[attr-defined]
    hear(here, sasl(SaslChallenge(there.evidence)), NOW)
    assert said(here)[0].response == b""  # type: ignore[attr-defined]
    assert not of(ProtocolFailed, hear(here, sasl(SaslOutcome(0)), NOW)) and not here.closed


@pytest.mark.parametrize(
    ("wanted", "offered", "expected"),
    [
        ((SHA_512, SHA_256), ("PLAIN", SHA_256), SHA_256),
        ((SHA_512, SHA_256), (SHA_256, SHA_512), SHA_512),
        ((SHA_512, SHA_256, "PLAIN"), ("PLAIN",), "PLAIN"),
        ((SHA_512, SHA_256), ("PLAIN", "ANONYMOUS"), None),
        (("EXTERNAL", "ANONYMOUS"), ("ANONYMOUS",), "ANONYMOUS"),
        (("EXTERNAL", "ANONYMOUS"), ("EXTERNAL", "ANONYMOUS"), "EXTERNAL"),
        (("EXTERNAL", "ANONYMOUS"), ("GSSAPI",), None),
    ],
)
def test_a_client_takes_the_best_that_is_offered_and_no_worse(
    wanted: tuple[str, ...], offered: tuple[str, ...], expected: str | None
) -> None:
    """Above all not PLAIN, where it does not want it: somebody in between may have left the others out."""
    here = client(mechanism=wanted, user="user", password="pencil", nonce="client's")
    assert said(here) == []
    events = hear(here, SASL_HEADER + sasl(SaslMechanisms(offered)), NOW)
    sent = said(here)
    assert [value.mechanism for value in sent if isinstance(value, SaslInit)] == ([expected] if expected else [])
    failed = of(ProtocolFailed, events)
    assert bool(failed) == (expected is None) == here.closed
    if failed:
        assert "not among what the peer offers" in failed[0].error.description
        assert ("use amqps://, or allow PLAIN" in failed[0].error.description) == ("PLAIN" in offered)


def test_scram_is_offered_where_it_can_be_checked() -> None:
    for changes, offered in (
        ({}, (SHA_512, SHA_256, "ANONYMOUS", "PLAIN")),
        ({"nonce": ""}, ("ANONYMOUS", "PLAIN")),
        ({"keys": None}, ("ANONYMOUS", "PLAIN")),
        ({"mechanisms": (SHA_256, "PLAIN")}, (SHA_256, "PLAIN")),
        ({"mechanisms": ()}, ("EXTERNAL",)),
        ({"authenticate": None}, ("ANONYMOUS",)),
    ):
        there = node(**changes)
        hear(there, SASL_HEADER, NOW)
        assert said(there) == [SaslMechanisms(offered)], changes


@pytest.mark.parametrize(
    ("certified", "response", "enters"),
    [("ann", b"", True), ("ann", None, True), ("ann", b"ann", True), ("ann", b"bob", False), ("bob", b"", False)],
)
def test_external_is_the_user_of_the_certificate(certified: str, response: bytes | None, enters: bool) -> None:
    there = node()
    there.certify(certified)
    hear(there, SASL_HEADER + sasl(SaslInit("EXTERNAL", response)), NOW)
    offered, outcome = said(there)
    assert "EXTERNAL" in offered.sasl_server_mechanisms  # type: ignore[attr-defined]
    assert outcome == SaslOutcome(0 if enters else 1)
    assert there.authenticated_user == ("ann" if enters else None)


def test_external_without_a_certificate_is_refused() -> None:
    there = node()
    hear(there, SASL_HEADER + sasl(SaslInit("EXTERNAL", b"ann")), NOW)
    offered, outcome = said(there)
    assert "EXTERNAL" not in offered.sasl_server_mechanisms and outcome == SaslOutcome(1)  # type: ignore[attr-defined]


def test_settings_want_a_nonce_for_scram() -> None:
    with pytest.raises(ConfigError, match="mechanism SCRAM-SHA-256 needs a nonce"):
        Settings(container_id="c", mechanism=SHA_256, user="a", password="b").validate()


def test_nothing_shows_a_password_or_keys() -> None:
    settings = Settings(container_id="c", mechanism=SHA_256, user="a", password="secret", nonce="once")
    assert "secret" not in repr(settings) and "once" not in repr(settings)
    assert "secret" not in repr(Clear("secret")) and "\\x" not in repr(derive(SHA_256, "secret", bytes(16)))
    assert scram.MESSAGE_BYTES_MAX < 4_096
