"""What is set aside because takers cannot have it comes back for exactly those that can (broker/exclusions.py)."""

from typing import Any

from holdfast.broker.exclusions import Exclusions


class Taker:
    """As far as it is asked here."""

    def __init__(self, wanted: int = 10) -> None:
        self.excluded: set[int] = set()
        self.wanted = wanted

    def wants(self) -> int:
        return self.wanted


def aside(*sequences: int) -> tuple[Exclusions, Any]:
    """These are set aside because of a taker, which has looked at them."""
    exclusions, taker = Exclusions(), Taker()
    exclusions.exclude(taker, sequences)  # type: ignore[arg-type]
    exclusions.set_aside(list(sequences))
    assert exclusions.offer_to([taker], 100) == []  # type: ignore[list-item]
    return exclusions, taker


def test_who_left_and_comes_back_is_offered_it_anew() -> None:
    """A custody link's sender is one taker over all its connections."""
    exclusions, taker = aside(1, 2)
    assert exclusions.left(taker) == []
    assert exclusions.offer_to([taker], 100) == [1, 2]


def test_what_is_done_with_is_offered_to_nobody() -> None:
    exclusions, _ = aside(1, 2, 3)
    exclusions.done([2])
    other: Any = Taker()
    assert exclusions.offer_to([other], 100) == [1, 3] and exclusions.live == {1, 3}


def test_what_is_set_aside_later_is_looked_at_by_who_had_nothing_before() -> None:
    exclusions, taker = aside(1)
    exclusions.set_aside([2])
    assert exclusions.offer_to([taker], 100) == [2] and list(exclusions.aside) == [1]


def test_each_gets_back_what_it_wants_and_no_more_than_the_limit_in_all() -> None:
    exclusions, _ = aside(*range(1, 11))
    few: Any = Taker(2)
    many: Any = Taker(5)
    assert exclusions.offer_to([few, many], 6) == [1, 2, 3, 4, 5, 6]
    assert list(exclusions.aside) == [7, 8, 9, 10]
