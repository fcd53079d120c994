"""The remembered deadlines answer what asking every connection would, whatever happens in between."""

from heapq import heapify
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.peers import deadlines as module
from holdfast.peers.deadlines import STALE_SPARE, Deadlines
from holdfast.peers.peer import NEVER, Peer
from support import today


class Engine:
    """A connection's deadline alone."""

    def __init__(self, at: float | None) -> None:
        self.at = at
        self.deadline_sooner = False

    def next_deadline(self) -> float | None:
        return self.at


def peer(number: int, at: float | None) -> Peer:
    return cast(Peer, SimpleNamespace(number=number, amqp=Engine(at), wake_at=NEVER))


class Remembered(RuleBasedStateMachine):
    """Peers come and go, their deadlines move; time runs; compared with asking all."""

    def __init__(self) -> None:
        super().__init__()
        self.peers: dict[int, Peer] = {}
        self.deadlines = Deadlines(self.peers)
        self.number = 0
        self.now = 0.0

    def engine(self, number: int) -> Any:
        return self.peers[number].amqp

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.peers)))

    @rule(after=st.none() | st.integers(0, 50))
    def comes(self, after: int | None) -> None:
        self.number += 1
        self.peers[self.number] = peer(self.number, None if after is None else self.now + after)
        self.deadlines.watch(self.peers[self.number])

    @precondition(lambda self: self.peers)
    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        del self.peers[self.pick(data)]

    @precondition(lambda self: self.peers)
    @rule(data=st.data(), by=st.integers(0, 50))
    def moves_away_unsaid(self, data: st.DataObject, by: int) -> None:
        engine = self.engine(self.pick(data))
        if engine.at is not None:
            engine.at += by

    @precondition(lambda self: self.peers)
    @rule(data=st.data())
    def ends_unsaid(self, data: st.DataObject) -> None:
        self.engine(self.pick(data)).at = None

    @precondition(lambda self: self.peers)
    @rule(data=st.data(), after=st.integers(0, 50))
    def comes_nearer_and_is_watched(self, data: st.DataObject, after: int) -> None:
        number = self.pick(data)
        engine = self.engine(number)
        engine.at = self.now + after if engine.at is None else min(engine.at, self.now + after)
        engine.deadline_sooner = True
        self.deadlines.watch(self.peers[number])
        assert not engine.deadline_sooner

    @rule(by=st.integers(1, 20))
    def time_passes(self, by: int) -> None:
        self.now += by
        moments = {number: self.engine(number).at for number in sorted(self.peers)}
        expected = [number for number, at in moments.items() if at is not None and at <= self.now]
        found = self.deadlines.take_due(self.now)
        assert [each.number for each in found] == expected
        for each in found:
            cast(Any, each.amqp).at = self.now + 30
            self.deadlines.watch(each)

    @invariant()
    def asked_in_haste_it_is_never_late_and_knows_what_is_due(self) -> None:
        moments = [self.engine(number).at for number in self.peers]
        first = min((at for at in moments if at is not None), default=None)
        soonest = self.deadlines.soonest(self.now)
        if first is not None:
            assert soonest is not None and soonest <= first
        if soonest is not None and soonest <= self.now:
            assert soonest == first

    @invariant()
    def answers_as_if_all_were_asked(self) -> None:
        moments = [self.engine(number).at for number in self.peers]
        assert self.deadlines.first() == min((at for at in moments if at is not None), default=None)


TestRemembered = seed(today.number)(Remembered).TestCase
TestRemembered.settings = settings(max_examples=today.drawn(20), stateful_step_count=40, deadline=None)


def test_connections_that_are_gone_are_forgotten() -> None:
    living = peer(0, 1000.0)
    peers = {0: living}
    deadlines = Deadlines(peers)
    deadlines.watch(living)
    for number in range(1, 5 * STALE_SPARE):
        peers[number] = peer(number, 2000.0 + number)
        deadlines.watch(peers[number])
        assert len(deadlines._heap) <= 2 * len(peers) + STALE_SPARE + 1
        del peers[number]
    assert deadlines.first() == 1000.0


def test_all_is_built_anew_only_when_most_of_it_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection that comes, or comes nearer, pays for a few."""
    built: list[int] = []
    monkeypatch.setattr(module, "heapify", lambda heap: (built.append(len(heap)), heapify(heap)))
    peers: dict[int, Peer] = {}
    deadlines = Deadlines(peers)
    for number in range(20 * STALE_SPARE):
        peers[number] = peer(number, 1000.0)
        deadlines.watch(peers[number])
    assert built == [], "all of it is fresh"
    for turn in range(8):
        for each in peers.values():
            cast(Any, each.amqp).at = 999.0 - turn
            deadlines.watch(each)
    assert 0 < sum(built) <= 2 * 8 * len(peers)
