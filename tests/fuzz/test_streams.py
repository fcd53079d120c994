"""Each hostile stream against a node in memory: the answer that it must get, however its bytes are cut."""

import pytest

from amqp.joined import performatives, wire
from fuzz.streams import CREDIT, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, STREAMS, Stream
from holdfast.amqp.wire.frames import AMQP_HEADER, SASL_HEADER
from holdfast.amqp.wire.performatives import Attach, Begin, Close, Detach, Disposition, End, SaslOutcome
from holdfast.engine import events
from holdfast.settings.limits import Limits
from support.raw import Raw
from support.rig import Node, Rig

PROBE = wire(Begin(None, 0, 1, 1), channel=255)
"""Who is still served gets an answer to this."""


def judge(answer: str, heard: bytes, over: bool) -> str | None:
    """What is wrong with it, None where it is the answer due. `over`: the node has ended the connection."""
    kind, _, condition = answer.partition(" ")
    said = [value for _, value, _ in performatives(heard)]
    told = [
        f"{type(item).__name__.lower()} {error.condition}"
        for item in said
        if (error := getattr(item, "error", None)) is not None
    ]
    for item in said:
        state = getattr(item, "state", None)
        error = getattr(state, "error", None)
        if isinstance(item, Disposition) and error is not None:
            told.append(f"rejected {error.condition}")
    closes = [item for item in said if isinstance(item, Close)]
    if over != (kind in ("dropped", "header", "sasl", "close")):
        return f"the connection is {'over' if over else 'up'}: {told}"
    if kind == "dropped":
        return f"a close: {closes}" if closes else None
    if kind == "header":
        wanted = {"AMQP": AMQP_HEADER, "SASL": SASL_HEADER}[condition]
        return None if heard.endswith(wanted) and not closes else f"ends with {heard[-40:]!r}"
    if kind == "sasl":
        codes = [item.code for item in said if isinstance(item, SaslOutcome)]
        return None if codes == [int(condition)] and not closes else f"codes {codes}"
    if kind == "lives":
        return None if not told else f"{told}"
    if kind == "close" and not condition:
        return None if not told and closes else f"{told}, {closes}"
    if kind == "refused":
        answers = [item for item in said if isinstance(item, Attach)]
        nulls = [item for item in answers if (item.source if not item.role else item.target) is None]
        return None if nulls and told == [f"detach {condition}"] else f"{told}, {answers}"
    if not told or set(told) != {f"{kind} {condition}"}:
        return f"{told}"
    one = {"close": Close, "end": End, "detach": Detach}.get(kind)
    return None if one is None or any(isinstance(item, one) for item in said) else f"{said}"


def world() -> tuple[Rig, Node]:
    rig = Rig()
    return rig, rig.node(
        "hub", limits=Limits(message_bytes_max=MESSAGE_BYTES_MAX, credit=CREDIT, name_bytes_max=NAME_BYTES_MAX)
    )


def say(rig: Rig, node: Node, stream: Stream, step: int = 0) -> tuple[bytes, bool]:
    """What the node answers before the probe, and whether it has ended the connection.

    `step`: bytes that one read brings; all of a part come in one turn.
    """
    raw = Raw(rig, node)
    for part in stream.said:
        for at in range(0, len(part), step or len(part)):
            node.handle(events.BytesReceived(connection=raw.number, data=part[at : at + (step or len(part))]))
        rig.settle()
    rig.run(15.0)
    heard = raw.received
    if not raw.alive:
        return heard, True
    raw.received = b""
    raw.end.wire.write(raw.end, PROBE)
    rig.settle()
    assert raw.take(Begin), "no answer to a begin"
    raw.end.wire.cut()
    rig.settle()
    return heard, False


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_the_answer(stream: Stream) -> None:
    rig, node = world()
    wrong = judge(stream.answer, *say(rig, node, stream))
    assert wrong is None, wrong
    healthy = rig.client(node)
    healthy.receiver("healthy")
    link = healthy.sender("healthy")
    rig.settle()
    healthy.send(link, "m")
    rig.settle()
    assert healthy.bodies() == ["m"]
    assert node.core is not None and len(node.core.connections) == 1


@pytest.mark.parametrize(
    "stream", [one for one in STREAMS if sum(map(len, one.said)) < 2_000], ids=lambda one: one.name
)
def test_the_answer_byte_by_byte(stream: Stream) -> None:
    wrong = judge(stream.answer, *say(*world(), stream, 1))
    assert wrong is None, wrong


def test_there_are_two_hundred() -> None:
    assert len(STREAMS) >= 200
