"""A set has never more rows than a node keeps: what is bound beyond is in a summary, and exact rows come back."""

from functools import partial
from random import Random

import pytest

from holdfast.federation import own as own_module
from holdfast.federation import serving
from holdfast.federation.federation import Federation
from holdfast.federation.keeping import Put
from holdfast.federation.own import Own
from holdfast.federation.rows import EVERYTHING, WIDE, Row, Stamp, covers
from holdfast.federation.sets import Held, Key, make
from holdfast.federation.settings import Bounds, Entry
from holdfast.federation.validation import validate
from support.exchange import T, Together, rows

WORDS = ("a", "b", "c", "d")
SUBJECTS = [f"{one}.{other}" for one in WORDS for other in WORDS]
PATTERNS = [*SUBJECTS, "*.a", "b.*", "c.#", "a", "#"]
PREDICATES = (None, None, None, "x = 1")


def is_covered(row: Row, held: Held) -> bool:
    return any(covers(other.pattern, row.pattern) and other.predicate in {None, row.predicate} for other in held.rows)


@pytest.mark.parametrize("seed", range(40))
def test_no_version_has_more_rows_or_is_narrower_than_the_one_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    message_rows = rng.choice((1, 2, 4, 500))
    monkeypatch.setattr(own_module, "ROWS_MAX", message_rows)
    message_bytes = rng.choice((25, 60, 16_384))
    monkeypatch.setattr(own_module, "BYTES_MAX", message_bytes)
    rows_max, keys_max, bytes_s = rng.choice((1, 2, 5, 9)), rng.choice((0, 3, 30)), rng.choice((20.0, 2_000.0))
    own, held, now = Own(), make(Stamp(1, 1), (), ()), 0.0

    def goes_on(count: int, refusing: float) -> None:
        nonlocal held, now
        for _ in range(count):
            new = own.next(held, now, keys_max, rows_max, bytes_s)
            now += rng.choice((0.0, 0.1, 1.0))
            if new is None or rng.random() < refusing:
                continue
            assert len(new.rows) <= rows_max and new.stamp > held.stamp
            for row in own.rows:
                assert is_covered(row, new) >= is_covered(row, held), (row, held.rows, new.rows)
            own.committed(held, new)
            held = new

    for _ in range(25):
        want = {Row(pattern, rng.choice(PREDICATES)) for pattern in rng.sample(PATTERNS, rng.randrange(14))}
        own.change(
            want - own.rows,
            own.rows - want if rng.random() < 0.5 else rng.sample(sorted(own.rows, key=str), len(own.rows) // 2),
        )
        goes_on(rng.choice((0, 3, 20)), 0.2)
    for count in (14, rows_max, max(0, rows_max - 1), 14, 0):
        own.want(Row(pattern) for pattern in PATTERNS[:count])
        goes_on(200, 0.0)
        wide = {row for row in held.rows if row.bits & WIDE}
        assert all(is_covered(row, held) for row in own.rows)
        assert bool(wide) == (held.rows != own.rows)
        if wide:
            one_message = min(message_rows, 4) >= len(wide)
            assert len(own.rows) + len(wide) > rows_max
            assert len(own.rows) > rows_max or not one_message or message_bytes < 100


def announced(two: Together) -> frozenset[Row]:
    return two.rows("b", "b")


@pytest.mark.parametrize("keys_max", [3, 1_000])
def test_one_row_too_many_is_in_a_summary_and_exact_rows_come_back(keys_max: int) -> None:
    """At each moment the other node sends all that is bound."""
    two = Together("ab", Bounds(keys_max=keys_max, rows_max=50))
    two.nodes["b"].rebind(T, rows(50), [], two.now)
    two.settle()
    two.wait(20.0)
    assert announced(two) == two.rows("a", "b") == set(rows(50))
    most = 0

    def chosen() -> None:
        nonlocal most
        held = two.nodes["a"].sets.current(Key("b", T))
        most = max(most, len(held.rows)) if held is not None else most
        assert all(two.nodes["a"].choose(T, row.pattern).branches == ("b",) for row in rows(50))

    for _ in range(3):
        two.nodes["b"].rebind(T, [Row("z.1")], [], two.now)
        token = two.nodes["b"].confirm(T, Row("z.1"), two.now, 60.0)
        for _ in range(40):
            two.step()
            chosen()
        (answer,) = two.nodes["b"].answers()
        assert answer.token == token and answer.complete and answer.confirmed == ("a",)
        assert two.nodes["a"].choose(T, "z.1").branches == ("b",)
        two.wait(65.0)  # two refreshes
        wide = [row for row in announced(two) if row.bits & WIDE]
        assert wide and EVERYTHING not in wide and len(announced(two)) == 50
        assert two.rows("a", "b") == announced(two)
        two.nodes["b"].rebind(T, [], [Row("z.1")], two.now)
        for _ in range(40):
            two.step()
            chosen()
        two.wait(20.0)
        assert announced(two) == two.rows("a", "b") == set(rows(50))
    assert most == 50


@pytest.mark.parametrize("room", [0, 1, 2, 5])
def test_a_summary_of_everything_takes_the_place_of_no_more_rows_than_it_needs(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the summary that covers the rest would not fit one message."""
    monkeypatch.setattr(own_module, "BYTES_MAX", 1_500)
    monkeypatch.setattr(own_module, "SUMMARY_MAX", 8)
    heads = [f"{number}{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 60}" for number in range(8)]
    wanted = [Row(f"{heads[number % 8]}.{number}") for number in range(50 - room)]
    own, held = Own(), make(Stamp(1, 1), wanted, ())
    own.want(wanted)
    assert own.next(held, 0.0, 10, 50, 1_000.0) is None
    own.change([Row(f"{heads[number % 8]}.b{number}") for number in range(30)], [])
    new = own.next(held, 1.0, 10, 50, 1_000.0)
    assert new is not None and EVERYTHING in new.rows
    assert len(held.rows - new.rows) == max(0, 1 - room)


def test_rows_that_are_replaced_by_as_many_others_leave_room_for_each_other() -> None:
    """Additions go first, and yet no version has more."""
    two = Together("ab", Bounds(keys_max=5_000, rows_max=1_200))
    for first in (0, 10_000, 20_000):
        two.nodes["b"].bind(T, rows(1_100, first), two.now)
        two.settle()
        two.wait(5.0)
        assert announced(two) == two.rows("a", "b") == set(rows(1_100, first))


@pytest.mark.parametrize("stored", [50, 51])
def test_a_set_that_was_stored_with_more_rows_is_announced_within_the_bound(stored: int) -> None:
    """As an earlier version stored it. One with as many as it may have stays as it is."""
    node = Federation("b", 1_000, 0.0)
    node.configure([Entry(T, "a")], 0.0)
    node.bind(T, rows(stored), 0.0)
    disk = {}
    while writes := node.records(0.0):
        disk.update({one.key: one.value for one in writes if isinstance(one, Put)})
        node.committed(0.0)
    again = Federation("b", 2_000, 0.0, bounds=Bounds(rows_max=50), rows=disk)
    validate(again)
    assert again.sets.rows(Key("b", T)) == (set(rows(50)) if stored == 50 else {EVERYTHING})
    again.configure([Entry(T, "a")], 0.0)
    again.bind(T, rows(50), 0.0)
    now = 0.0
    while now < 10.0:
        if again.records(now):
            again.committed(now)
        validate(again)
        again.tick(now)
        now += 0.5
    assert again.sets.rows(Key("b", T)) == set(rows(50))


@pytest.mark.parametrize("first", range(0, 800, 100))
def test_a_set_that_is_full_and_compared_by_parts_is_taken_exactly(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever order its parts come: rows that leave may be in the last one."""
    monkeypatch.setattr(serving, "PART_ROWS", 2)
    two = Together("ab", Bounds(keys_max=5_000, rows_max=50))
    two.nodes["b"].bind(T, rows(50), two.now)
    two.settle()
    two.part("a", "b")
    two.nodes["b"].bind(T, [*rows(47), *rows(3, 1_000 + first)], two.now)
    two.settle()
    two.join("a", "b")
    two.settle()
    assert "parts" in two.kinds() and two.rows("a", "b") == announced(two) == {*rows(47), *rows(3, 1_000 + first)}


def test_a_fault_in_memory_that_makes_a_set_too_large_is_mended() -> None:
    own, held = Own(), make(Stamp(1, 1), rows(60), "a")
    own.want(rows(3))
    ask = partial(own.next, now=0.0, keys_max=1_000, rows_max=50, bytes_s=2_000.0)
    first = ask(held)
    assert first is not None and first.rows == {EVERYTHING} and first.stamp > held.stamp and first.edges == {"a"}
    last = ask(first)
    assert last is not None and last.rows == set(rows(3))


def test_which_rows_make_room_does_not_follow_from_the_order_of_a_set() -> None:
    """That differs from process to process."""
    alike = [Row("a.b", predicate, bits) for predicate in (None, "x = 1", "y = 1") for bits in (0, WIDE)]
    for seed in range(5):
        shuffled = Random(seed).sample(alike, len(alike))
        assert sorted(shuffled, key=own_module._order) == alike
