"""What a simulated node reads, and what it puts off, as the runtime does."""

import pytest

from holdfast.engine.events import BytesReceived, Event
from holdfast.engine.reads import LIGHT_BYTES
from holdfast_lab.base.client_history import Violation
from holdfast_lab.canaries import plant
from holdfast_lab.plan.networks import line
from holdfast_lab.plan.plan import Plan
from holdfast_lab.plan.result import Result
from holdfast_lab.runs.coverage import EVENTS, Coverage, watched
from holdfast_lab.runs.run import execute
from holdfast_lab.sim import reads
from holdfast_lab.sim.reads import Readable, SimReads

MUCH = bytes(range(256)) * 256


class Rig:
    """One connection, number 1, and what the core is handed."""

    def __init__(self) -> None:
        self.readable: list[Readable] = []
        self.fed: list[Event] = []
        self.reads = SimReads(self.fed.append, self.readable.append)
        self.reads.opened(1)

    def turn(self) -> bool:
        readable, self.readable[:] = [*self.readable], []
        self.reads.begin_turn()
        for item in readable:
            self.reads.read(item.connection)
        self.reads.tell()
        return self.reads.end_turn()

    @property
    def taken(self) -> bytes:
        return b"".join(event.data for event in self.fed if isinstance(event, BytesReceived))


def test_much_is_taken_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "BYTES_A_TURN", LIGHT_BYTES)
    rig = Rig()
    rig.reads.came(1, MUCH)
    rig.reads.came(1, b"behind it")
    turns = 1
    while rig.turn():
        assert rig.reads.put_off_bytes
        turns += 1
    rig.turn()
    assert rig.taken == MUCH + b"behind it" and turns == len(MUCH) // LIGHT_BYTES
    assert not rig.reads.put_off_bytes


def test_what_was_put_off_and_what_lies_unread_comes_before_the_end() -> None:
    rig = Rig()
    rig.reads.came(1, MUCH)
    rig.reads.came(1, b"behind it")
    rig.turn()
    rig.reads.lost(1)
    assert rig.taken == MUCH + b"behind it"


def test_nothing_more_is_taken_of_what_the_node_closed() -> None:
    rig = Rig()
    rig.reads.came(1, MUCH)
    rig.turn()
    rig.reads.closed(1)
    assert not rig.turn() and rig.taken == MUCH[:LIGHT_BYTES] and not rig.reads.put_off_bytes


def test_the_core_is_told_at_once_that_nothing_waits_any_more_of_what_it_closed() -> None:
    """It closes at the end of a turn, when it was told of this turn's bytes: others may be read again."""
    rig = Rig()
    rig.reads.came(1, MUCH)
    rig.reads.begin_turn()
    rig.reads.read(1)
    assert rig.reads.tell() == len(MUCH) - LIGHT_BYTES
    rig.reads.closed(1)
    assert rig.reads.told_bytes and rig.reads.end_turn(), "another turn comes"
    assert not rig.turn() and not rig.reads.told_bytes


def test_what_the_core_has_enough_of_is_not_read() -> None:
    rig = Rig()
    rig.reads.stop(1)
    rig.reads.came(1, b"one")
    rig.reads.came(1, b"two")
    rig.turn()
    assert not rig.fed
    rig.reads.go_on(1)
    rig.turn()
    assert rig.taken == b"onetwo"


def test_whoever_reads_it_all_the_same_is_told() -> None:
    rig = Rig()
    rig.reads.came(1, MUCH)
    rig.reads.came(1, b"behind it")
    rig.turn()
    rig.reads.stop(1)
    with plant("one-reason-for-both"), pytest.raises(Violation, match="connection 1 is read, though"):
        while rig.turn():
            pass
        rig.turn()


def run(**knobs: int) -> tuple[Result, Coverage]:
    told = [
        {"kind": "publish", "node": "ber", "address": "work@fra", "messages": 40, "size": 3_000},
        {"kind": "consume", "node": "fra", "queue": "work"},
    ]
    coverage = Coverage()
    plan = Plan(name="reads", topology=line("ber fra"), workloads=tuple(told), knobs=knobs)
    with watched(coverage):
        return execute(plan, 1), coverage


def test_a_run_puts_reads_off() -> None:
    knobs = {"holdfast_lab.sim.reads:BYTES_A_TURN": 1_000, "engine.reads:LIGHT_BYTES": 64}
    result, coverage = run(**knobs)
    assert result.ok, result.failure
    assert coverage.counts[EVENTS]["ReadPutOff"] > 100
    assert run(**knobs)[0].digest == result.digest
