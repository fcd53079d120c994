"""Probes and echoes without the codec, and what the control link keeps for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.codec import encode
from holdfast.amqp.message import Message
from holdfast.amqp.types import Ulong
from holdfast.core import control
from holdfast.core.control import CONTROL_RESERVE
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


@pytest.mark.parametrize("number", [-1, 2**64, "x", None, 1.5])
def test_a_probe_without_a_number_is_not_answered(number: object) -> None:
    rig = Rig()
    jfk, _ = rig.pair()
    rig.run(1)
    ours = jfk.core.neighbours["hub"]
    credit = ours.control.link.credit
    ours.hear({"kind": "probe", "number": number})
    assert ours.control.link.credit == credit
