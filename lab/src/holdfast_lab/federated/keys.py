"""What the keys of a topic cost across one hop: two whole nodes, and a line of 64 kbit/s between them.

Rules of this file: bytes are those of control messages, before frames and transfers; seconds are the simulator's, whose
processors take no time, so processor seconds are told beside them.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from time import process_time
from typing import Any, Final

from holdfast.amqp.wire.encoding import encode
from holdfast.engine import events
from holdfast.federation.confirming import Answer
from holdfast.federation.federation import Federation
from holdfast.federation.rows import Row
from holdfast.federation.sets import Key
from holdfast.federation.settings import Entry
from holdfast_lab.histories.stage import History, Stage
from holdfast_lab.plan.networks import Link, LinkShape, Topology

TOPIC: Final = "prices"
LINE_BYTES_S: Final = 8_000.0
DELAY_S: Final = 0.03
WAIT_S: Final = 800.0
"""Until all is known: above 1,000 keys exact rows follow at a quarter of the line."""


@dataclass(slots=True)
class Keys:
    """`bytes_all`: until every row is known; `confirmed_s`: until a bind to the last of them is confirmed; `busy_s`:
    of one processor, for both nodes and the simulator, until then."""

    keys: int
    bytes_all: int = 0
    bytes_one: int = 0
    confirmed_s: float = 0.0
    busy_s: float = 0.0
    known_s: float = 0.0
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _network(random: Random) -> Topology:
    shape = LinkShape(rate=LINE_BYTES_S, delay_s=DELAY_S)
    ends = {"a": (Entry(TOPIC, "b"),), "b": (Entry(TOPIC, "a"),)}
    return Topology(nodes=("a", "b"), links=(Link(one="a", other="b", there=shape),), federation=ends)


def measured(count: int) -> Keys:
    made = Keys(count)
    said = [0]

    def counted(found: Federation) -> None:
        take = found.take

        def taken(*given: Any) -> list[dict[str, Any]]:
            messages = take(*given)
            said[0] += sum(len(encode(message)) for message in messages)
            return messages

        setattr(found, "take", taken)  # noqa: B010  # of this node alone

    async def act(stage: Stage) -> None:
        await stage.together()
        here, there = stage.core("b").bindings, stage.core("a").bindings
        await stage.until("both federate", lambda: here.federation is not None and there.federation is not None)
        assert here.federation is not None and there.federation is not None
        for found in (here.federation, there.federation):
            counted(found)
        answers: list[Answer] = []
        here.answered = answers.append
        rows = [Row(f"flights.gate{number:05}") for number in range(count)]
        await stage.until("the link is quiet", _quiet(stage, said), 20.0)
        made.bytes_all, made.confirmed_s, made.busy_s, made.known_s = await _bind(stage, said, rows, answers)
        made.bytes_one, *_ = await _bind(stage, said, [*rows, Row("flights.one.more")], answers)

    result = History("keys", "Keys become known across a hop.", _network, act).run(count)
    made.failure = "" if result.ok else result.failure
    return made


def _quiet(stage: Stage, said: list[int]) -> Callable[[], bool]:
    began = stage.bed.world.elapsed_s
    return lambda: stage.bed.world.elapsed_s > began + 10.0


async def _bind(
    stage: Stage, said: list[int], rows: list[Row], answers: list[Answer]
) -> tuple[int, float, float, float]:
    """Bytes until all is known; seconds and processor seconds until the last is confirmed; seconds until known."""
    world, control, other = stage.bed.world, stage.core("b").bindings, stage.core("a").bindings.federation
    assert other is not None
    began, before, busy = world.elapsed_s, said[0], process_time()
    answers.clear()
    wanted = frozenset(rows)
    setattr(stage.core("b").topic_bindings, "_rows_of", lambda name: wanted)  # noqa: B010  # as of that many clients
    control.bind(TOPIC, wanted)
    control.confirm(TOPIC, rows[-1], WAIT_S)
    stage.nodes["b"].post(events.TimerFired())
    await stage.until("the last is confirmed", lambda: answers, WAIT_S)
    confirmed_s, busy_s = world.elapsed_s - began, process_time() - busy
    stage.check(answers[0].complete, f"it is confirmed, not {answers[0]}")
    key = Key("b", TOPIC)

    def known() -> bool:
        held = other.sets.committed(key)
        return held is not None and len(held.rows) == len(wanted) and held.rows == wanted

    await stage.until("all is known", known, WAIT_S)
    return said[0] - before, confirmed_s, busy_s, world.elapsed_s - began
