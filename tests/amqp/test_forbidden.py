"""Every input that amqp/states.py does not have, in every state: drawn from the table, so that none is forgotten.

As steps of the machine, as raw bytes to an engine that rests in the state, and said by an engine that breaks the rules
to one that does not.
"""

from collections.abc import Callable
from typing import Any

import pytest

from amqp.joined import NOW, client, hear, of, performatives, pump, server, wire
from holdfast.amqp.connection import TRANSITIONS, Connection, ConnectionClosed, ProtocolFailed, State, Step
from holdfast.amqp.states import MAY_SPEAK
from holdfast.amqp.wire.frames import AMQP_HEADER, EMPTY_FRAME
from holdfast.amqp.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from holdfast.errors import LocalProtocolError, RemoteProtocolError

FORBIDDEN = [
    (state, step) for state in State for step in Step if step is not Step.FAIL and (state, step) not in TRANSITIONS
]


def name_of(value: Any) -> str:
    return str(getattr(value, "value", value))


@pytest.mark.parametrize(("state", "step"), FORBIDDEN, ids=name_of)
def test_the_machine_refuses(state: State, step: Step) -> None:
    side = server()
    side.state = state
    with pytest.raises(LocalProtocolError if step.value.startswith("S") else RemoteProtocolError, match=step.value):
        side._step(step)
    assert side.state is state


# ------------------------------------------------------------------------------------------------- raw bytes


def _started(side: Connection, *said: bytes) -> Connection:
    for data in said:
        hear(side, data)
    side.take_output(NOW)
    return side


def _closed(side: Connection) -> Connection:
    side.close()
    side.take_output(NOW)
    return side


OPENED = AMQP_HEADER + wire(Open("peer"), Begin(None, 0, 100, 100))

AT_REST: dict[tuple[State, str], Callable[[], Connection]] = {
    (State.START, "server"): lambda: _started(server()),
    (State.HDR_EXCH, "server"): lambda: _started(server(), AMQP_HEADER),
    (State.OPENED, "server"): lambda: _started(server(), OPENED),
    (State.CLOSE_SENT, "server"): lambda: _closed(_started(server(), OPENED)),
    (State.END, "server"): lambda: _started(server(), OPENED, wire(Close())),
    (State.OPEN_PIPE, "client"): lambda: _started(client()),
    (State.OC_PIPE, "client"): lambda: _closed(_started(client())),
    (State.OPEN_SENT, "client"): lambda: _started(client(), AMQP_HEADER),
    (State.CLOSE_PIPE, "client"): lambda: _closed(_started(client(), AMQP_HEADER)),
    (State.OPENED, "client"): lambda: _started(client(), OPENED),
    (State.CLOSE_SENT, "client"): lambda: _closed(_started(client(), OPENED)),
    (State.END, "client"): lambda: _started(client(), OPENED, wire(Close())),
}
"""An engine that waits for its peer in that state. In the states that are not here none ever waits."""
IN_PASSING = {State.HDR_RCVD, State.HDR_SENT, State.OPEN_RCVD, State.CLOSE_RCVD}

INPUTS: dict[str, tuple[Step, bytes]] = {
    "header": (Step.R_HEADER, AMQP_HEADER),
    "open": (Step.R_OPEN, wire(Open("again"))),
    "close": (Step.R_CLOSE, wire(Close())),
    "begin": (Step.R_FRAME, wire(Begin(None, 0, 1, 1), channel=1)),
    "attach": (Step.R_FRAME, wire(Attach("l", 0, False, source=Source(), target=Target("q")))),
    "flow": (Step.R_FRAME, wire(Flow(0, 1, 0, 1))),
    "transfer": (Step.R_FRAME, wire((Transfer(0, 0, b"t"), b"x"))),
    "disposition": (Step.R_FRAME, wire(Disposition(True, 0))),
    "detach": (Step.R_FRAME, wire(Detach(0))),
    "end": (Step.R_FRAME, wire(End())),
}
WAITS_FOR_HEADER = (State.START, State.OPEN_PIPE, State.OC_PIPE)


def expected(state: State, role: str, what: str) -> str | None:
    """The condition, None where the table has the input (or the input comes before its own rules apply)."""
    step, _ = INPUTS[what]
    if (state, step) in TRANSITIONS and (what == "header") == (state in WAITS_FOR_HEADER):
        return None
    if state in WAITS_FOR_HEADER:  # eight bytes that are no header
        return "amqp:not-allowed" if role == "server" else "amqp:connection:framing-error"
    return "amqp:connection:framing-error" if what == "header" else "amqp:illegal-state"


CASES = [(state, role, what) for state, role in AT_REST if state is not State.END for what in INPUTS]


def test_every_state_is_looked_at() -> None:
    assert {state for state, _ in AT_REST} | IN_PASSING == set(State)
    assert {step for step, _ in INPUTS.values()} == {step for step in Step if step.value.startswith("R")}


@pytest.mark.parametrize(("state", "role"), AT_REST, ids=name_of)
def test_it_rests_there(state: State, role: str) -> None:
    assert AT_REST[state, role]().state is state


@pytest.mark.parametrize(("state", "role", "what"), CASES, ids=name_of)
@pytest.mark.parametrize("step", [0, 1])
def test_forbidden_input(state: State, role: str, what: str, step: int) -> None:
    side = AT_REST[state, role]()
    condition = expected(state, role, what)
    data = INPUTS[what][1]
    events = []
    for at in range(0, len(data), step or len(data)):
        events += hear(side, data[at : at + (step or len(data))])
    faults = [event.error.condition for event in of(ProtocolFailed, events)]
    told = [
        value.error.condition
        for _, value, _ in performatives(b"".join(side.take_output(NOW)))
        if isinstance(value, Close) and value.error is not None
    ]
    if condition is None:
        assert "amqp:illegal-state" not in faults and "amqp:connection:framing-error" not in faults
        return
    assert faults == [condition] and side.closed and side.state is State.END
    assert told == ([condition] if state in MAY_SPEAK or state is State.HDR_EXCH else [])
    assert hear(side, data) == [] and side.take_output(NOW) == [] and side.next_deadline() is None


@pytest.mark.parametrize("role", ["server", "client"])
@pytest.mark.parametrize("what", INPUTS)
def test_after_the_end_nothing_means_anything(role: str, what: str) -> None:
    side = AT_REST[State.END, role]()
    assert hear(side, INPUTS[what][1] + EMPTY_FRAME) == [] and side.take_output(NOW) == []


# ---------------------------------------------------------------------------------------------------- joined


@pytest.mark.parametrize("what", [what for what in INPUTS if expected(State.OPENED, "server", what) is not None])
@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("closing", [False, True])
def test_said_by_an_engine_that_breaks_the_rules(what: str, cut: int, closing: bool) -> None:
    """The other engine ends it, and the one at fault is told why; the condition is the same on both sides."""
    here, there = client(), server()
    session = here.begin()
    pump(here, there)
    link = session.attach_sender("l", Source(), Target("q"))
    pump(here, there)
    if closing:
        there.close()
    here.output.append(INPUTS[what][1])
    mine, theirs = pump(here, there, cut=cut)
    condition = expected(State.OPENED, "server", what)
    assert [event.error.condition for event in of(ProtocolFailed, theirs)] == [condition]
    assert there.closed and here.closed and link.over
    if not closing:
        assert [event.error.condition for event in of(ConnectionClosed, mine)] == [condition]


@pytest.mark.parametrize("what", [what for what in INPUTS if expected(State.OPEN_SENT, "client", what) is not None])
def test_a_server_that_breaks_the_rules(what: str) -> None:
    here = AT_REST[State.OPEN_SENT, "client"]()
    events = hear(here, INPUTS[what][1])
    assert of(ProtocolFailed, events)[-1].error.condition == expected(State.OPEN_SENT, "client", what)
    assert here.closed
