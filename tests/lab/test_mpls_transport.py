"""The transport: every message once and in order, whatever is lost; a window that grows and gives way."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from holdfast_lab.mpls.clock import Clock
from holdfast_lab.mpls.transport import INITIAL_WINDOW, MSS, RTO_MOST_S, WINDOW_MAX, Connection
from support import today

DELAY_S = 0.02


class Pair:
    """Two ends; `lose` says of each packet from a, and `lose_back` from b, whether it is lost."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.got: list[Any] = []
        self.back: list[Any] = []
        self.packets = 0
        self.lose: Callable[[], bool] = lambda: False
        self.lose_back: Callable[[], bool] = lambda: False
        self.a = Connection(self.clock, self._from_a, self.back.append)
        self.b = Connection(self.clock, self._from_b, self.got.append)

    def _from_a(self, payload: Any, size: int) -> None:
        self.packets += 1
        if not self.lose():
            self.clock.at(self.clock.now + DELAY_S, self.b.receive, payload)

    def _from_b(self, payload: Any, size: int) -> None:
        if not self.lose_back():
            self.clock.at(self.clock.now + DELAY_S, self.a.receive, payload)


def test_messages_arrive_once_and_in_order() -> None:
    pair = Pair()
    for number in range(200):
        pair.a.write(number, 5_000)
    pair.clock.run(30)
    assert pair.got == list(range(200)) and pair.a.waiting_bytes == 0 and pair.a.resent == 0


@pytest.mark.parametrize("seed", today.some(range(5), 2))
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_what_is_lost_is_sent_again(seed: int, share: float) -> None:
    rng = Random(seed)
    pair = Pair()
    pair.lose = pair.lose_back = lambda: rng.random() < share
    for number in range(60):
        pair.clock.at(0.1 * number, lambda number: pair.a.write(number, 5_000), number)
        pair.clock.at(0.1 * number, lambda number: pair.b.write(-number, 60), number)
    pair.clock.run(3_000)
    assert pair.got == list(range(60))
    assert pair.back == [-number for number in range(60)]
    assert pair.a.waiting_bytes == pair.b.waiting_bytes == 0 and pair.a.resent > 0


def test_one_loss_among_many_is_repaired_without_the_timer() -> None:
    pair = Pair()
    pair.lose = lambda: pair.packets == 3
    for number in range(5):
        pair.a.write(number, 5_000)
    pair.clock.run(2)
    assert pair.got == list(range(5)) and (pair.a.resent, pair.a.timeouts) == (1, 0)


def test_the_window_begins_small_and_doubles_in_a_round_trip() -> None:
    pair = Pair()
    pair.a.write(1, 100 * MSS)
    assert pair.packets == INITIAL_WINDOW // MSS
    pair.clock.run(2 * DELAY_S + 0.001)
    first = pair.packets
    assert 8 <= first <= 12
    pair.clock.run(4 * DELAY_S + 0.002)
    assert pair.packets - first > first / 2


def test_no_more_than_the_receivers_window_is_on_the_way() -> None:
    pair = Pair()
    pair.a.write(1, 10_000_000)
    for step in range(200):
        pair.clock.run(step * 0.01)
        assert pair.a._sent - pair.a._acked <= WINDOW_MAX
    pair.clock.run(60)
    assert pair.got == [1]


def test_while_nothing_gets_through_the_timer_doubles_and_then_all_arrives() -> None:
    pair = Pair()
    pair.a.write(0, 5_000)
    pair.clock.run(1)
    pair.lose = lambda: pair.clock.now < 300
    before = pair.packets
    for number in range(1, 11):
        pair.a.write(number, 5_000)
    pair.clock.run(299)
    tried = pair.packets - before
    assert tried < 25, "a dozen of attempts, further and further apart"
    pair.clock.run(300 + 2 * RTO_MOST_S)
    assert pair.got == list(range(11)) and pair.a.timeouts > 5


def test_a_small_message_is_acknowledged_although_nothing_follows() -> None:
    pair = Pair()
    pair.a.write(1, 60)
    pair.clock.run(0.15)
    assert pair.a.waiting_bytes == 0
