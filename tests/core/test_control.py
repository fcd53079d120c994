"""Probes and echoes without the codec, and what the control link keeps for them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.links.receiver import Receiver
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.performatives import Source, Target
from holdfast.amqp.wire.types import Ulong
from holdfast.custody.hop.sender import BESIDE_BYTES
from holdfast.peering import control
from holdfast.peers.neighbours.session_port import CONTROL_RESERVE
from holdfast.settings.limits import Limits
from holdfast.units import MIB
from support.hops import send
from support.rig import Rig

ulongs = st.integers(0, 2**64 - 1)


@given(ulongs, ulongs)
def test_they_are_what_the_codec_reads(number: int, version: int) -> None:
    probe, echo = control.probe(number, version), control.echo(number)
    assert Message.decode(probe).value == {"kind": "probe", "number": number, "version": version}
    assert Message.decode(echo).value == {"kind": "echo", "number": number}
    assert control.read_probe(probe) == (number, version)
    assert control.read_echo(echo) == number


@given(st.binary(max_size=80), st.integers(0, 34))
def test_nothing_else_is_taken_for_one(data: bytes, cut: int) -> None:
    assert control.read_probe(data) is None
    assert control.read_echo(data) is None
    assert control.read_probe(control.probe(1, 2)[:cut]) is None
    assert control.read_echo(control.echo(1)[:cut]) is None


def test_another_encoding_of_them_is_understood() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    ours = hub.core.neighbours["jfk"]
    before = ours.liveness.sent
    jfk.core.neighbours["hub"].control.send(
        control.VALUE + encode({"kind": "probe", "number": Ulong(3), "version": Ulong(7)})
    )
    jfk.due = True
    rig.settle()
    assert ours.version == 7
    assert ours.liveness.sent == before


def test_what_is_said_leaves_credit_for_probes_and_an_echo_is_owed_without_any() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    ours = jfk.core.neighbours["hub"]
    link = ours.control.link
    link.credit = CONTROL_RESERVE + 1
    assert ours.send({"kind": "x"})
    assert not ours.send({"kind": "x"}), "one past it"
    link.credit = 0
    ours.hear_probe(41, 1)
    ours.hear_probe(42, 1)
    assert ours.control.owed == 42
    link.credit = 5
    ours.control.credited()
    assert ours.control.owed is None
    assert link.credit == 4, "one echo, the last one's"
    hub.core.neighbours["jfk"].liveness.reset(3.0)


def test_nothing_is_said_into_a_closed_session_window_and_the_last_echo_goes_when_it_opens() -> None:
    """A neighbour may give any credit and let nothing through: what is sent would wait in the session's backlog."""
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    ours = jfk.core.neighbours["hub"]
    link = ours.control.link
    session = link.session
    link.credit, window = 2**31 - 1, session.window_out
    session.outgoing.window = 0
    for number in range(1_000):
        ours.hear_probe(number, 1)
    assert not ours.send({"kind": "x"})
    assert not session.backlog and ours.control.owed == 999
    ours.control.greeted = False
    ours.control.credited()
    assert not ours.control.greeted, "the first message would be lost"
    ours.control.greeted = True
    session.outgoing.window = window
    ours.control.credited()
    assert ours.control.owed is None and session.window_out == window - 1


@pytest.mark.parametrize("number", [-1, 2**64, "x", None, 1.5])
def test_a_probe_without_a_number_is_not_answered(number: object) -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    ours = jfk.core.neighbours["hub"]
    credit = ours.control.link.credit
    ours.hear({"kind": "probe", "number": number})
    assert ours.control.link.credit == credit


@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_a_probe_with_the_first_or_the_last_number_is_answered(number: int) -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    ours = jfk.core.neighbours["hub"]
    credit = ours.control.link.credit
    ours.hear({"kind": "probe", "number": number})
    assert ours.control.link.credit == credit - 1


def test_a_neighbour_whose_control_link_takes_too_little_has_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may say any max-message-size (AMQP 1.0 §2.7.3): what the node says of itself would not pass."""
    monkeypatch.setattr("holdfast.endpoints.attaching.neighbour_attach.NODE_MESSAGE_BYTES_MAX", MIB - 1)
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    assert not jfk.core.neighbours["hub"].established and not hub.core.neighbours["jfk"].established
    assert any("allows messages of 1048575 bytes; expected 1048576 or more" in line for line in jfk.logs + hub.logs)
    monkeypatch.setattr("holdfast.endpoints.attaching.neighbour_attach.NODE_MESSAGE_BYTES_MAX", MIB)
    rig.run(10)
    assert jfk.core.neighbours["hub"].established


@pytest.mark.parametrize(
    "limits",
    [
        Limits(frame_bytes_max=512, stream_bytes=500),
        Limits(frame_bytes_max=512, unfinished_bytes_max=1),
        Limits(frame_bytes_max=512, stream_bytes=500, partial_bytes_max=1_000),
    ],
)
def test_what_comes_in_many_frames_is_heard_whatever_may_be_held_of_messages(limits: Limits) -> None:
    """It was taken for a large message, and dropped without a word."""
    rig = Rig()
    jfk, hub = rig.pair(limits=limits)
    rig.run(1)
    heard: list[Any] = []
    theirs = hub.core.neighbours["jfk"]
    theirs.hear = heard.append
    said = {"kind": "known", "rows": [f"{number:030d}" for number in range(100)]}
    assert jfk.core.neighbours["hub"].send(said)
    jfk.due = True
    rig.settle()
    assert said in heard


def test_a_connection_has_one_control_link() -> None:
    """What is unfinished of it is held whatever else is: of many that would be no bound."""
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(3)
    peer = jfk.core.neighbours["hub"].peer
    session = peer.amqp.sessions[0]
    second = session.attach_sender("second", Source(address="a"), Target(address=control.CONTROL_ADDRESS))
    second.context = None
    peer.touch()
    jfk.due = True
    rig.run(3)
    assert second.refused and str(second.error.condition) == "amqp:not-allowed"
    assert jfk.core.neighbours["hub"].established and jfk.core.neighbours["hub"].flaps == 0


def test_what_is_larger_than_the_neighbour_takes_is_not_said() -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    control_link = jfk.core.neighbours["hub"].control
    assert control_link.send(bytes(MIB))
    assert not control_link.send(bytes(MIB + 1))


def test_a_neighbour_whose_custody_link_takes_no_tombstone_has_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    accept = Receiver.accept

    def small(link: Receiver, **parts: Any) -> None:
        accept(link, **parts | ({"max_message_size": BESIDE_BYTES} if link.name.startswith("custody:") else {}))

    monkeypatch.setattr(Receiver, "accept", small)
    send(rig, jfk, "1", to="hub")
    rig.run(0.1)
    assert any("its custody link allows messages of 4096 bytes; expected more than 4096" in line for line in jfk.logs)
    monkeypatch.undo()
    rig.run(10)
    assert hub.bodies("work") == ["1"]


@pytest.mark.parametrize("address", [[1], {"a": 1}, 5])
def test_a_neighbours_attach_to_what_is_no_address_is_refused_and_ends_nothing(address: Any) -> None:
    """An address is any value on the wire, one without a hash too."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(3)
    assert jfk.core is not None and hub.core is not None
    neighbour = jfk.core.neighbours["hub"]
    peer = neighbour.peer
    assert peer is not None
    link = peer.amqp.sessions[0].attach_sender("second", Source(address="a"), Target(address=address))
    peer.touch()
    jfk.due = True
    rig.run(1)
    assert str(link.error.condition) == "amqp:not-implemented"
    assert hub.core.containment.peers_ended == 0 and neighbour.flaps == 0
