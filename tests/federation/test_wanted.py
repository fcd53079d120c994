"""What is wanted and not announced, kept as either changes."""

from random import Random

import pytest

from holdfast.federation.rows import Row, Stamp
from holdfast.federation.sets import Held, changed, make
from holdfast.federation.wanted import Wanted

ROWS = [Row(word, predicate, bits) for word in "abcdef" for predicate in (None, "x = 1") for bits in (0, 2)]


def some(rng: Random) -> list[Row]:
    return rng.sample(ROWS, rng.randrange(5))


def moved(rng: Random, held: Held, version: int) -> Held:
    if rng.random() < 0.2:
        return make(Stamp(1, version), some(rng), ())
    return changed(held, Stamp(1, version), add=some(rng), remove=some(rng), edges=frozenset())


@pytest.mark.parametrize("seed", range(20))
def test_what_differs_is_what_a_look_at_all_rows_finds(seed: int) -> None:
    rng = Random(seed)
    wanted, held = Wanted(), make(Stamp(1, 1), some(rng), ())
    earlier = held
    for version in range(2, 60):
        before, changes = set(wanted.rows), wanted.changes
        kind = rng.randrange(5)
        if kind == 0:
            wanted.change(some(rng), some(rng))
        elif kind == 1:
            rows = some(rng)
            assert set(wanted.want(rows)) == set(rows) - before
            assert wanted.rows == set(rows)
        elif kind == 2:
            earlier, held = held, moved(rng, held, version)
            held = moved(rng, held, version) if rng.random() < 0.5 else held
        elif kind == 3:  # a commit that was refused
            held = earlier
        else:
            wanted.forget()
        assert (wanted.changes > changes) >= (wanted.rows != before)
        wanted.compare(held)
        assert wanted.missing.keys() == wanted.rows - held.rows
        assert wanted.extra.keys() == held.rows - wanted.rows


def test_a_fault_in_memory_is_gone_after_a_comparison_of_all_rows() -> None:
    wanted, held = Wanted(), make(Stamp(1, 1), [Row("a")], ())
    wanted.want([Row("b")])
    wanted.compare(held)
    wanted.missing.clear()
    wanted.compare(held)
    assert not wanted.missing
    wanted.forget()
    wanted.compare(held)
    assert list(wanted.missing) == [Row("b")]
