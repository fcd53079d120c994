"""What counts as lost, twice, strange and reordered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_lab.judge.arrivals import Verdict, judge, judge_all


@pytest.mark.parametrize(
    ("arrived", "lost", "twice", "strange", "reordered"),
    [
        ("abcd", 0, 0, 0, 0),
        ("abd", 1, 0, 0, 0),
        ("", 4, 0, 0, 0),
        ("abcdd", 0, 1, 0, 0),
        ("abcdabcd", 0, 4, 0, 0),
        ("aaabcd", 0, 2, 0, 0),
        ("abxcd", 0, 0, 1, 0),
        ("acbd", 0, 0, 0, 1),
        ("dabc", 0, 0, 0, 3),
        ("bcda", 0, 0, 0, 1),
    ],
)
def test_verdicts(arrived: str, lost: int, twice: int, strange: int, reordered: int) -> None:
    verdict = judge("abcd", arrived)
    assert (verdict.lost, verdict.twice, verdict.strange, verdict.reordered) == (
        lost,
        twice,
        strange,
        reordered,
    )
    assert verdict.ok is (arrived == "abcd")


@given(
    st.lists(st.integers(), unique=True, max_size=30).map(lambda numbers: [str(n) for n in numbers]),
    st.data(),
)
def test_only_the_very_same_is_ok(sent: list[str], data: st.DataObject) -> None:
    arrived = data.draw(st.lists(st.sampled_from([*sent, "strange"]), max_size=40))
    assert judge(sent, arrived).ok is (arrived == sent)
    assert judge(sent, sent).ok


def test_origins_that_appear_on_one_side_only_are_judged_too() -> None:
    verdicts = judge_all({"ewr": ["1"], "jfk": ["2"]}, {"jfk": ["2"], "mars": ["3"]})
    assert list(verdicts) == ["ewr", "jfk", "mars"]
    assert [verdict.ok for verdict in verdicts.values()] == [False, True, False]
    assert verdicts["mars"] == Verdict(0, 1, 0, 0, 1, 0, ("strange 3",))
