"""The offset between neighbours' clocks, for reports alone (RFC 5905)."""

from typing import Any

import pytest

from holdfast.amqp.message.message import Header
from holdfast.amqp.wire.performatives import Accepted
from holdfast.amqp.wire.types import Ulong
from holdfast.broker.stored.custody_records import STEADY, WALL
from holdfast.engine import events
from holdfast.peering import clocks
from holdfast.peering.clocks import ANSWER_S, EVERY_S, SAMPLES, WALL_MS_MAX
from holdfast.state import steady
from support.hops import send
from support.rig import Node, Rig


def pair(error_ms: int) -> tuple[Rig, Node, Node]:
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    hub.clock_error_ms = error_ms
    jfk.start()
    hub.start()
    return rig, jfk, hub


def offset_s(node: Node) -> Any:
    return node.rig.client(node).manage("STATUS", "node")[1]["sessions"][0]["clock_offset_s"]


@pytest.mark.parametrize("error_ms", [0, 250, -250, 3_600_000, -3_600_000])
def test_both_sides_find_the_offset(error_ms: int) -> None:
    rig, jfk, hub = pair(error_ms)
    jfk.end_turn()
    assert jfk.core.clocks.offset_s("hub") is None
    rig.run(3)
    assert offset_s(jfk) == pytest.approx(error_ms / 1000, abs=0.002)
    assert offset_s(hub) == pytest.approx(-error_ms / 1000, abs=0.002)


class Asker:
    """A neighbour that answers as it is told to."""

    name = "hub"
    established = True

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def send(self, fields: dict[str, Any]) -> bool:
        self.told.append(fields)
        return True


class Core:
    """As much of a node as clocks look at."""

    def __init__(self) -> None:
        self.now = 100.0
        self.clock = self
        self.asker = Asker()
        self.neighbours = {"hub": self.asker}

    @property
    def wall_ms(self) -> int:
        return int(self.now * 1000)


def exchange(core: Core, known: clocks.Clocks, there_s: float, back_s: float, ahead_s: float) -> None:
    known.tick(core.clock.now)
    asked = core.asker.told[-1]
    core.clock.now += there_s
    theirs = Ulong(core.wall_ms + int(ahead_s * 1000))
    core.clock.now += back_s
    answer = {"kind": "time", "number": asked["number"], "sent": asked["sent"], "heard": theirs, "answered": theirs}
    known.hears["time"](core.asker, answer)
    core.clock.now += EVERY_S[1]


def test_the_shortest_round_trip_of_the_last_eight_counts() -> None:
    core: Any = Core()
    known = clocks.Clocks(core.clock, core.neighbours)
    exchange(core, known, 0.5, 0.1, ahead_s=7.0)  # lopsided: wrong by 0.2 s
    assert known.offset_s("hub") == pytest.approx(7.2, abs=0.002)
    exchange(core, known, 0.01, 0.01, ahead_s=7.0)
    for _ in range(SAMPLES - 1):
        exchange(core, known, 0.9, 0.1, ahead_s=7.0)
        assert known.offset_s("hub") == pytest.approx(7.0, abs=0.002)
    exchange(core, known, 0.9, 0.1, ahead_s=7.0)  # the short one is the ninth last now
    assert known.offset_s("hub") == pytest.approx(7.4, abs=0.002)
    assert len(known.offsets["hub"].samples) == SAMPLES


def test_an_answer_that_comes_late_says_nothing() -> None:
    core: Any = Core()
    known = clocks.Clocks(core.clock, core.neighbours)
    exchange(core, known, ANSWER_S, 0.0, ahead_s=1.0)
    assert known.offset_s("hub") is not None
    known.offsets.clear()
    exchange(core, known, ANSWER_S, 0.01, ahead_s=1.0)
    assert known.offset_s("hub") is None


def test_it_asks_seldom() -> None:
    rig, jfk, _ = pair(0)
    rig.run(SAMPLES * EVERY_S[0] + 2)
    before = jfk.core.clocks.offsets["hub"].number
    assert SAMPLES <= before <= SAMPLES + 2
    rig.run(10 * EVERY_S[1])
    assert 9 <= jfk.core.clocks.offsets["hub"].number - before <= 11


@pytest.mark.parametrize("key", ["number", "sent", "heard", "answered"])
@pytest.mark.parametrize("value", [None, -1, 2**53, 2**70, "x", True, [], {}])
def test_what_is_no_time_is_passed_over(key: str, value: Any) -> None:
    core: Any = Core()
    known = clocks.Clocks(core.clock, core.neighbours)
    known.tick(core.clock.now)
    asked = core.asker.told.pop()
    good = {"number": asked["number"], "sent": asked["sent"], "heard": Ulong(1), "answered": Ulong(1)}
    known.hears["time"](core.asker, {"kind": "time", **good, key: value})
    assert known.offset_s("hub") is None
    known.hears["clock"](core.asker, {"kind": "clock", **good, key: value})
    assert len(core.asker.told) == (key in ("heard", "answered"))


@pytest.mark.parametrize(
    "at_ms",
    [-(10**15), -100_000_000, -1, 0, WALL_MS_MAX, 2**53, 2**63, 2**64, 10**30],
)
def test_a_node_works_whatever_its_wall_clock_says(at_ms: int) -> None:
    """Before 1970, after 9999, and where no integer of a format has room: messages and sessions pass, and go on."""
    rig = Rig()
    jfk, hub = rig.pair(start=False)
    for node in (jfk, hub):
        node.clock_error_ms = at_ms - rig.wall_ms
        node.start()
    rig.run(1)
    client = send(rig, jfk, "a", "b", to="hub")
    rig.run(1)
    assert client.outcomes == [("a", Accepted()), ("b", Accepted())]
    assert hub.bodies("work") == ["a", "b"]
    body = rig.client(hub).manage("STATUS", "node")[1]
    assert body["failures"] == {"peers_ended": 0, "parts": 0}
    assert next(queue["oldest_s"] for queue in body["queues"] if queue["name"] == "work") >= 0
    hub.crash()
    hub.clock_error_ms = 0  # someone set it
    hub.start()
    rig.run(10)
    send(rig, jfk, "c", to="hub")
    rig.run(1)
    assert hub.bodies("work") == ["a", "b", "c"]


def test_a_wall_clock_that_jumps_while_the_node_runs() -> None:
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    for at_ms in (-(10**12), 2**64, 0, rig.wall_ms):
        jfk.clock_error_ms = hub.clock_error_ms = at_ms - rig.wall_ms
        send(rig, jfk, str(at_ms), to="hub")
        rig.run(3)
    assert len(hub.bodies("work")) == 4
    for node in (jfk, hub):
        assert rig.client(node).manage("STATUS", "node")[1]["failures"] == {"peers_ended": 0, "parts": 0}


@pytest.mark.parametrize("set_s", [3_600, -3_600])
def test_setting_the_wall_clock_does_not_change_a_time_to_live(set_s: int) -> None:
    """Nor does the next start, which takes from the wall clock how long the node was down."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    send(rig, jfk, "short", to="hub", header=Header(ttl=20_000))
    send(rig, jfk, "long", to="hub", header=Header(ttl=60_000))
    hub.clock_error_ms = set_s * 1000
    rig.run(2)
    send(rig, jfk, "last", to="hub")  # hub stores something after it was set
    rig.run(1)
    for _ in range(2):
        hub.crash()
        rig.run(3)
        hub.start()
        rig.run(2)
    assert hub.bodies("work") == ["short", "long", "last"]
    rig.run(30)  # where it was set back, what no commit has stored and the time down are not counted
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    assert client.bodies() == ["long", "last"]


@pytest.mark.parametrize("set_s", [3_600, -3_600])
def test_a_stop_after_the_clock_was_set_does_not_change_a_time_to_live(set_s: int) -> None:
    """Nothing was stored between that and the stop, which stores both clocks."""
    rig = Rig()
    jfk, hub = rig.pair()
    rig.run(1)
    send(rig, jfk, "short", to="hub", header=Header(ttl=20_000))
    send(rig, jfk, "long", to="hub", header=Header(ttl=60_000))
    rig.run(2)
    hub.clock_error_ms = set_s * 1000
    rig.run(3)
    hub.handle(events.Stopping())
    rig.run(1)
    assert hub.stopped
    hub.crash()
    hub.start()
    rig.run(4)
    assert hub.bodies("work") == ["short", "long"]
    rig.run(20)
    client = rig.client(hub)
    client.receiver("work")
    rig.settle()
    assert client.bodies() == ["long"]


@pytest.mark.parametrize(
    ("stored", "now_ms", "found"),
    [
        ((), 5_000, 5_000),  # a new store
        ((4_000,), 5_000, 5_000),  # of an earlier version
        ((4_000,), 3_000, 4_000),
        ((4_000, 4_000), 5_000, 5_000),
        ((4_000, 9_000), 10_000, 5_000),  # set forward before that
        ((4_000, 9_000), 3_000, 4_000),  # and back since: how long it was down is not known
        ((4_000, 4_000), 1_000, 4_000),
        ((4_000, 0), 5_000, 5_000),  # it was no time at all then, and is right since
        ((4_000, 2_000), 5_000, 5_000),
    ],
)
def test_what_a_start_counts_is_the_less_of_what_the_wall_clock_says(
    stored: tuple[int, ...], now_ms: int, found: int
) -> None:
    keys = (STEADY, WALL)
    rows = {key: ms.to_bytes(8, "big") for key, ms in zip(keys, stored, strict=False)}
    assert steady.at_start(rows, now_ms) == found
