"""A node lists the mechanisms of SASL by which somebody may come in, and no others; and whom each lets in."""

from random import Random
from typing import Any

import pytest

from amqp.joined import performatives
from holdfast.amqp.login.exchanges import Credentials
from holdfast.amqp.login.keys import SHA_256, SHA_512
from holdfast.amqp.login.scram import ClientScram
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from holdfast.amqp.wire.performatives import (
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from holdfast.amqp.wire.types import Symbol
from holdfast.core.node import NodeCore
from holdfast.engine import events
from holdfast.errors import ConfigError
from holdfast.settings.hosts import UserConfig, VhostConfig
from holdfast.settings.limits import Limits
from holdfast.settings.neighbours import NeighbourConfig
from holdfast.settings.node import NodeConfig
from holdfast.storage.memory import MemoryStore
from support.raw import Raw
from support.rig import Node, Rig
from support.wires import Wire

ANN = UserConfig(name="ann", password="a")
BOB = UserConfig(name="bob", certificate="bob.example")
JFK = NeighbourConfig(name="jfk", user="jfk", password="j")
NONCE = bytes(range(18))


def listed(config: NodeConfig, *, certificate: str | None = None, **opened: Any) -> list[str]:
    """The mechanisms that a connection of that kind is offered."""
    core = NodeCore(config, MemoryStore(), rng=Random(1), wall_ms=1, now=0.0)
    core.handle(events.ConnectionOpened(connection=1, peer="10.0.0.9:5000", **opened), 0.0)
    if opened.get("encrypted"):
        core.handle(events.Secured(connection=1, version="TLSv1.3", certificate=certificate), 0.0)
    core.handle(events.BytesReceived(connection=1, data=SASL_HEADER), 0.0)
    commands = core.handle(events.TurnEnded(wall_ms=1), 0.0)
    said = b"".join(b"".join(command.chunks) for command in commands if isinstance(command, events.SendBytes))
    (told,) = [item for _, item, _ in performatives(said) if isinstance(item, SaslMechanisms)]
    return [str(name) for name in told.sasl_server_mechanisms]


@pytest.mark.parametrize(
    ("fields", "loopback", "expected"),
    [
        ({}, True, ["ANONYMOUS", "PLAIN"]),
        ({"neighbours": (JFK,)}, True, ["ANONYMOUS", "PLAIN"]),
        ({}, False, ["PLAIN"]),
        ({"users": (ANN,)}, True, ["PLAIN"]),
        ({"users": (ANN,)}, False, ["PLAIN"]),
    ],
)
def test_what_would_be_refused_is_not_listed(fields: dict[str, Any], loopback: bool, expected: list[str]) -> None:
    """By a driver without random bytes."""
    assert listed(NodeConfig(name="hub", **fields), loopback=loopback) == expected


BOTH = [SHA_512, SHA_256]


@pytest.mark.parametrize(
    ("fields", "opened", "expected"),
    [
        ({}, {"loopback": True}, ["ANONYMOUS", "PLAIN"]),  # nobody has a password that could be checked
        ({"neighbours": (JFK,)}, {"loopback": True}, [*BOTH, "ANONYMOUS", "PLAIN"]),
        ({"users": (ANN,)}, {"loopback": True}, [*BOTH, "PLAIN"]),
        ({"users": (ANN,)}, {"loopback": False}, BOTH),
        ({"users": (ANN,), "plain_without_tls": True}, {"loopback": False}, [*BOTH, "PLAIN"]),
        ({"users": (ANN,)}, {"loopback": False, "encrypted": True}, [*BOTH, "PLAIN"]),
        ({"users": (ANN, BOB)}, {"loopback": False, "encrypted": True}, [*BOTH, "PLAIN"]),
        (
            {"users": (ANN, BOB)},
            {"loopback": False, "encrypted": True, "certificate": "bob.example"},
            ["EXTERNAL", *BOTH, "PLAIN"],
        ),
        ({"users": (ANN, BOB)}, {"loopback": False, "encrypted": True, "certificate": "bob"}, [*BOTH, "PLAIN"]),
        (
            {"users": (BOB,)},
            {"loopback": False, "encrypted": True, "certificate": "bob.example"},
            ["EXTERNAL"],
        ),
        ({"users": (BOB,)}, {"loopback": False}, ["EXTERNAL"]),  # the list must name one: what there is to do
    ],
)
def test_what_each_connection_is_offered(fields: dict[str, Any], opened: dict[str, Any], expected: list[str]) -> None:
    config = NodeConfig(name="hub", **{"plain_without_tls": False, **fields})
    assert listed(config, nonce=NONCE, **opened) == expected


def sasl(*values: object) -> bytes:
    return b"".join(frame(0, encode(value), SASL_FRAME) for value in values)


def heard(peer: Raw, kind: type) -> list[Any]:
    return [item for _, item, _ in performatives(peer.received) if isinstance(item, kind)]


def joined(rig: Rig, node: Node, *, certificate: str | None = None, **opened: Any) -> Raw:
    peer = Raw(rig, node, **{"loopback": False, "nonce": NONCE, **opened})
    if opened.get("encrypted"):
        node.handle(events.Secured(connection=peer.number, version="TLSv1.3", certificate=certificate))
    return peer


def tell(rig: Rig, peer: Raw, data: bytes) -> None:
    peer.end.wire.write(peer.end, data)
    rig.settle()


def scram(rig: Rig, peer: Raw, user: str, password: str, *, hostname: str | None = None) -> int | None:
    """Logs in by SCRAM; the code of the outcome, None while there is none."""
    here = ClientScram(SHA_256, Credentials(user, password, "once"))
    tell(rig, peer, SASL_HEADER + sasl(SaslInit(Symbol(SHA_256), here.first(), hostname)))
    (challenge,) = heard(peer, SaslChallenge)
    answer = here.respond(challenge.challenge)
    assert answer is not None
    tell(rig, peer, sasl(SaslResponse(answer)))
    outcomes = heard(peer, SaslOutcome)
    if outcomes and outcomes[0].code == 0:
        here.entered(outcomes[0].additional_data)
    return outcomes[0].code if outcomes else None


def test_scram_lets_in_whom_it_should() -> None:
    rig = Rig()
    node = rig.node("hub", users=(ANN, BOB), neighbours=(JFK,), plain_without_tls=False)
    for user, password, code in (("ann", "a", 0), ("ann", "b", 1), ("bob", "", 1), ("eve", "a", 1), ("jfk", "j", 0)):
        peer = joined(rig, node)
        assert scram(rig, peer, user, password) == code, (user, password)
        tell(rig, peer, AMQP_HEADER + frame(0, encode(Open("c"))))
        assert peer.alive == (code == 0)


def test_plain_is_refused_where_it_would_be_heard() -> None:
    rig = Rig()
    node = rig.node("hub", users=(ANN,), plain_without_tls=False)
    init = SASL_HEADER + sasl(SaslInit(Symbol("PLAIN"), b"\0ann\0a"))
    for opened, code in (({}, 1), ({"encrypted": True}, 0), ({"loopback": True}, 0)):
        peer = joined(rig, node, **opened)
        tell(rig, peer, init)
        assert [item.code for item in heard(peer, SaslOutcome)] == [code], opened
    assert any("'PLAIN' is not offered to this connection" in text for text in node.logs)


def test_a_stranger_does_not_learn_who_is_a_user() -> None:
    """Of a name that is none the challenge looks the same, and is the same each time."""
    rig = Rig()
    node = rig.node("hub", users=(ANN,))
    challenges = []
    for user in ("ann", "eve", "eve", "ann", "mallory"):
        peer = joined(rig, node)
        here = ClientScram(SHA_512, Credentials(user, "x", "once"))
        tell(rig, peer, SASL_HEADER + sasl(SaslInit(Symbol(SHA_512), here.first())))
        (challenge,) = heard(peer, SaslChallenge)
        challenges.append(challenge.challenge)
    ann, eve, again, same, mallory = challenges
    assert ann == same and eve == again and len({ann, eve, mallory}) == 3
    assert len({len(challenge) for challenge in challenges}) == 1
    assert all(challenge.endswith(b",i=10000") for challenge in challenges)


def test_failures_of_scram_are_slowed_down_as_those_of_plain() -> None:
    rig = Rig()
    node = rig.node("hub", users=(ANN,), limits=Limits(login_failures_max=2, login_retry_s=1.0))
    for _ in range(2):
        assert scram(rig, joined(rig, node), "ann", "wrong") == 1
    late = joined(rig, node)
    assert scram(rig, late, "ann", "a") is None
    rig.run(1.1)
    assert [item.code for item in heard(late, SaslOutcome)] == [0]


def test_external_lets_in_whose_certificate_it_is_in_its_virtual_host() -> None:
    rig = Rig()
    users = (BOB, UserConfig(name="carol", certificate="carol", vhost="acme"))
    node = rig.node("hub", users=users, vhosts=(VhostConfig(name="acme"),))
    for certificate, response, code, host in (
        ("bob.example", b"", 0, ""), ("bob.example", b"bob", 0, ""), ("bob.example", b"carol", 1, None),
        ("carol", b"", 0, "acme"), ("bob", b"", 1, None), (None, b"bob", 1, None),
    ):  # fmt: skip
        peer = joined(rig, node, certificate=certificate, encrypted=True)
        tell(rig, peer, SASL_HEADER + sasl(SaslInit(Symbol("EXTERNAL"), response)))
        assert [item.code for item in heard(peer, SaslOutcome)] == [code], (certificate, response)
        if host is not None:
            tell(rig, peer, AMQP_HEADER + frame(0, encode(Open("c"))))
            assert node.core is not None and node.core.connections[peer.number].host == host


def test_scram_in_a_virtual_host_is_by_its_hostname() -> None:
    rig = Rig()
    users = (ANN, UserConfig(name="ann", password="other", vhost="acme"))
    node = rig.node("hub", users=users, vhosts=(VhostConfig(name="acme"),))
    assert scram(rig, joined(rig, node), "ann", "other", hostname="vhost:acme") == 0
    assert scram(rig, joined(rig, node), "ann", "a", hostname="vhost:acme") == 1
    assert scram(rig, joined(rig, node), "ann", "a") == 0


@pytest.mark.parametrize(
    ("password", "known", "plain", "established"),
    [
        ("right", "right", False, True),
        ("wrong", "right", False, False),
        ("right", None, False, False),  # the other side is of a time before SCRAM, and offers PLAIN alone
        ("right", None, True, True),
    ],
)
def test_a_neighbour_on_another_machine_does_not_hear_the_password(
    password: str, known: str | None, plain: bool, established: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`known` None: a node that offers no SCRAM."""
    crossed = bytearray()
    write = Wire.write
    monkeypatch.setattr(Wire, "write", lambda wire, end, data: crossed.extend(data) or write(wire, end, data))
    rig = Rig()
    rig.exposed = NONCE
    hub = rig.node("hub", neighbours=(NeighbourConfig(name="jfk"),), users=(UserConfig(name="jfk", password="right"),))
    neighbour = NeighbourConfig(name="hub", remote="10.0.0.1:1", user="jfk", password=password)
    jfk = rig.node("jfk", neighbours=(neighbour,), plain_without_tls=plain)
    assert hub.core is not None and jfk.core is not None
    if known is None:
        hub.core.doors.entrance.mechanisms = lambda event: ("PLAIN",)  # type: ignore[method-assign]
    rig.run(5.0)
    assert hub.core.neighbours["jfk"].established == established
    assert b"AMQP" in crossed and (b"\0jfk\0right" in crossed) == (plain and known is None)
    if not established and known is None:
        assert any("a password is not sent in the clear" in text for text in jfk.logs)


def test_a_certificate_is_one_users() -> None:
    twice = (BOB, UserConfig(name="carol", certificate="bob.example"))
    with pytest.raises(
        ConfigError, match=r"^users 'bob' and 'carol' have the certificate 'bob.example'; give it to one"
    ):
        NodeConfig(name="hub", users=twice).validate()
    both = (BOB, UserConfig(name="bob", certificate="bob.example", vhost="acme"))
    NodeConfig(name="hub", users=both, vhosts=(VhostConfig(name="acme"),)).validate()
