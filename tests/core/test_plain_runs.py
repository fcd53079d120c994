"""Messages of a run are stored as each of them alone is, however they begin."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.endpoints import plain_runs
from holdfast.endpoints.plain_runs import PlainRuns

MESSAGES = st.builds(
    lambda header, size, subject: Message(
        header=header, properties=Properties(subject=subject) if subject else None, data=[b"x" * size]
    ).encode(),
    st.none() | st.builds(Header, durable=st.booleans() | st.none(), priority=st.none() | st.integers(0, 9)),
    st.sampled_from([0, 3, 255, 256, 300, 300, 1_000]),
    st.sampled_from(["", "", "", "s"]),
)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Some that are cut, have a byte more, or another one."""
    payload = draw(MESSAGES)
    how = draw(st.sampled_from(["", "", "", "", "cut", "more", "other"]))
    if how == "cut":
        return payload[: draw(st.integers(0, len(payload)))]
    if how == "more":
        return payload + b"\0"
    if how == "other" and payload:
        at = draw(st.integers(0, min(20, len(payload) - 1)))
        return payload[:at] + bytes([draw(st.integers(0, 255))]) + payload[at + 1 :]
    return payload


def alone(payload: bytes) -> list[bytes]:
    return PlainRuns(65_536).values([payload], 1_700_000_000_000, 0)


@given(st.lists(payloads(), max_size=12))
def test_a_run_is_stored_as_its_messages_alone(run: list[bytes]) -> None:
    expected = []
    for payload in run:
        found = alone(payload)
        if not found:
            break
        expected += found
    link = PlainRuns(65_536)
    link.values(run[:3], 1, 0)  # what came before changes nothing
    assert link.values(run, 1_700_000_000_000, 0) == expected


def test_each_of_ten_headers_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    header_of = plain_runs.header_of
    monkeypatch.setattr(plain_runs, "header_of", lambda payload: looked.append(1) or header_of(payload))
    draw = random.Random(1)
    run = [
        Message(header=Header(durable=True, priority=draw.randrange(10)), data=[b"x" * 1_024]).encode()
        for _ in range(500)
    ]
    assert len(PlainRuns(65_536).values(run, 1, 0)) == 500
    assert len(looked) <= 10
