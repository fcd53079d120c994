"""Claims on their way to the origin of a set."""

import pytest

from holdfast.federation.claims import CLAIM_GAP_S, Claims
from holdfast.federation.messages import TRACE_MAX
from holdfast.federation.rows import Stamp
from holdfast.federation.sets import Edition, Key

KEY = Key("o", "t")


def test_a_claim_is_passed_on_once_in_a_while_and_the_highest_of_several() -> None:
    claims = Claims("a")
    claims.add(KEY, Edition(Stamp(5, 1), 1), ())
    assert [has.stamp for _, has, _ in claims.take(0.0)] == [(5, 1)]
    claims.passed(KEY, 0.0)
    for version in (3, 7, 4):
        claims.add(KEY, Edition(Stamp(5, version), 1), ("b",))
    assert list(claims.take(CLAIM_GAP_S * 0.9)) == []
    assert list(claims.next_deadlines()) == [CLAIM_GAP_S]
    assert [(has.stamp, trace) for _, has, trace in claims.take(CLAIM_GAP_S)] == [((5, 7), ("b",))]
    assert list(claims.take(10.0)) == []


@pytest.mark.parametrize(
    ("trace", "is_passed"),
    [
        (("b", "c"), True),
        (("b", "a", "c"), False),
        (tuple(f"n{number}" for number in range(TRACE_MAX - 1)), True),
        (tuple(f"n{number}" for number in range(TRACE_MAX)), False),
    ],
)
def test_a_claim_goes_round_no_circle_and_not_for_ever(trace: tuple[str, ...], is_passed: bool) -> None:
    claims = Claims("a")
    claims.add(KEY, Edition(Stamp(5, 1), 1), trace)
    assert bool(list(claims.take(0.0))) is is_passed
