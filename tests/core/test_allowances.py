"""How often a peer may ask for something: engine/allowance.py and peers/limits/allowances.py."""

from holdfast.engine.allowance import Allowance
from holdfast.engine.clock import Clock
from holdfast.peers.limits.allowances import Allowances


def test_a_burst_and_then_the_rate() -> None:
    allowance = Allowance(0.0, per_s=2.0, burst=3.0)
    assert [allowance.count(0.0) for _ in range(4)] == [True, True, True, False]
    assert [allowance.count(0.5) for _ in range(2)] == [True, False]
    assert [allowance.count(60.0) for _ in range(4)] == [True, True, True, False]


def test_a_refused_request_takes_nothing() -> None:
    allowance = Allowance(0.0, per_s=2.0, burst=1.0)
    taken = [allowance.count(tenth / 10) for tenth in range(101)]
    assert sum(taken) == 21


def test_who_comes_when_it_is_free_is_not_refused_again() -> None:
    """Whatever rounding does to the time; and the rate is kept."""
    for per_s, now in ((10.0, 5.0), (0.3, 100_000.1), (7.0, 1e9 / 3)):
        allowance, began = Allowance(now, per_s=per_s, burst=1.0), now
        for _ in range(1_000):
            assert allowance.count(now) and not allowance.count(now)
            now = allowance.free_at(now)
        assert now - began > 999.9 / per_s


def test_each_peer_has_its_own() -> None:
    allowances = Allowances(Clock(now=0.0, wall_ms=0, steady_ms=0), per_s=1.0, burst=1.0)
    assert [allowances.count(name) for name in ("jfk", "jfk", "ewr")] == [True, False, True]
