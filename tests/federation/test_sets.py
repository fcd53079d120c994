"""Sets, their sums and their parts; covers and summaries; what is on disk."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.broker.subjects import Pattern
from holdfast.federation.keeping import WRITES_ENOUGH, Put, Sets, Write
from holdfast.federation.rows import Row, Stamp, covers, row_hash
from holdfast.federation.sets import (
    STEPS_FEW,
    STEPS_MAX,
    Key,
    Parts,
    changed,
    difference,
    make,
    stamped,
    steps_from,
    substitute,
    together,
)
from holdfast.federation.summaries import SUMMARY_MAX, summary

WORDS = st.sampled_from(["a", "b", "*", "#"])
PATTERNS = st.lists(WORDS, min_size=1, max_size=4).map(lambda words: Pattern(".".join(words)).text)
SUBJECTS = ["a", "b", "a.a", "a.b", "b.a", "a.b.a", "b.b.b.b"]
ROWS = st.frozensets(st.builds(Row, PATTERNS, st.sampled_from([None, "x = 1"]), st.integers(0, 3)), max_size=12)
KEY = Key("ewr", "t")


@given(PATTERNS, PATTERNS)
def test_what_is_covered_matches(wider: str, narrower: str) -> None:
    if covers(wider, narrower):
        assert all(Pattern(wider).matches(text) for text in [*SUBJECTS, ""] if Pattern(narrower).matches(text))


def test_covers() -> None:
    for wider, narrower in (
        ("#", "a.*"),
        ("a.#", "a"),
        ("a.#", "a.#"),
        ("*.b", "a.b"),
        ("a.#.c", "a.b.*.c"),
        ("#", "#"),
    ):
        assert covers(wider, narrower), (wider, narrower)
    for wider, narrower in (("a.*", "a.#"), ("a", "*"), ("a.*", "a"), ("*", "#"), ("a.b", "a.b.c"), ("*.#", "#")):
        assert not covers(wider, narrower), (wider, narrower)


@given(st.lists(PATTERNS, max_size=200))
def test_a_summary_covers_all(patterns: list[str]) -> None:
    found = summary(map(Row, patterns))
    assert len(found) <= SUMMARY_MAX
    assert all(any(covers(row.pattern, pattern) for row in found) for pattern in patterns)


def test_a_summary_keeps_what_all_share() -> None:
    assert {row.pattern for row in summary(Row(f"a.b.{number}") for number in range(100))} == {"a.b.*"}
    assert {row.pattern for row in summary(Row(f"a.b.{number}.c") for number in range(100))} == {"a.b.#"}
    assert {row.pattern for row in summary(Row(f"{number}") for number in range(100))} == {"#"}


@given(ROWS, ROWS, st.frozensets(st.sampled_from("pqr")), st.frozensets(st.sampled_from("pqr")))
def test_a_change_gives_what_is_made_anew(
    before: frozenset[Row], after: frozenset[Row], old: frozenset[str], new: frozenset[str]
) -> None:
    found = changed(make(Stamp(1, 1), before, old), Stamp(1, 2), add=after, remove=before - after, edges=new)
    right = make(Stamp(1, 2), after, new)
    assert found == right
    assert (found.bytes, found.marked) == (right.bytes, right.marked)


@given(ROWS, st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=STEPS_MAX + 2))
def test_what_differs_between_two_forms_of_a_set(
    first: frozenset[Row], steps: list[tuple[frozenset[Row], frozenset[Row]]]
) -> None:
    forms = [make(Stamp(1, 1), first, ())]
    for add, remove in steps:
        forms.append(changed(forms[-1], Stamp(1, 1), add=add, remove=remove, edges=frozenset()))
        assert len(forms[-1].steps) <= STEPS_MAX
    for old in [None, *forms]:
        before = frozenset() if old is None else old.rows
        for new in [None, *forms]:
            after = frozenset() if new is None else new.rows
            came, went = difference(old, new)
            assert (set(came), set(went)) == (after - before, before - after)


def test_what_differs_after_a_few_changes_costs_what_they_changed() -> None:
    first = make(Stamp(1, 1), [Row("a"), Row("b")], ())
    second = changed(first, Stamp(1, 2), add=[Row("c")], remove=[Row("a")], edges=frozenset())
    third = changed(stamped(second, Stamp(1, 3)), Stamp(1, 4), add=[Row("d")], remove=[], edges=frozenset("p"))
    unread = replace(first, rows=frozenset())  # whoever looks at all rows finds other ones
    assert difference(unread, third) == ({Row("c"), Row("d")}, {Row("a")})
    assert not any(difference(replace(third, rows=frozenset()), stamped(third, Stamp(1, 5))))


@given(ROWS, st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=STEPS_FEW + 2))
def test_the_steps_from_an_earlier_form_add_up_to_the_difference(
    first: frozenset[Row], changes: list[tuple[frozenset[Row], frozenset[Row]]]
) -> None:
    forms = [make(Stamp(1, 1), first, ())]
    for version, (add, remove) in enumerate(changes, 2):
        edges = frozenset("pq"[: version % 3])
        forms.append(changed(forms[-1], Stamp(1, version), add=add, remove=remove, edges=edges))
    last = forms[-1]
    for at, old in enumerate(forms):
        steps = steps_from(old.form, last)
        if steps is None:
            assert old.form not in {step.form for step in last.steps}
            continue
        come, gone = together(steps)
        assert (come, gone) == (last.rows - old.rows, old.rows - last.rows)
        for step in steps:
            there = next(form for form in forms[at:] if form.edition == step.edition)
            assert (there.form, there.edges) == (step.form, step.edges)


def test_a_small_set_knows_few_earlier_forms() -> None:
    for count, known in ((1, STEPS_FEW), (20, 20), (100, STEPS_MAX)):
        held = make(Stamp(1, 1), [Row(f"k.{number}") for number in range(count)], ())
        for version in range(2, 80):
            held = changed(held, Stamp(1, version), add=[Row("x")], remove=[], edges=frozenset())
            held = changed(held, Stamp(1, version), add=[], remove=[Row("x")], edges=frozenset())
        assert len(held.steps) == known


@given(ROWS, ROWS, ROWS, ROWS)
def test_an_index_follows_each_change_of_a_set(
    first: frozenset[Row], add: frozenset[Row], remove: frozenset[Row], last: frozenset[Row]
) -> None:
    sets, held = Sets(), make(Stamp(1, 1), first, "")
    sets.put(KEY, held)
    index = sets.index("t", "me")
    for new in (changed(held, Stamp(1, 3), add=add, remove=remove, edges=frozenset()), make(Stamp(1, 4), last, "")):
        sets.put(KEY, new)
        assert index.has("ewr", new.rows)


@given(ROWS, st.text("0123456789abcdef", max_size=3))
def test_parts(rows: frozenset[Row], prefix: str) -> None:
    parts = Parts(rows)
    inside = {row for row in rows if f"{row_hash(row):016x}".startswith(prefix)}
    assert set(parts.rows(prefix)) == inside
    assert parts.count(prefix) == len(inside)
    assert parts.digest(prefix) == sum(map(row_hash, inside)) % 2**64
    assert sum(parts.digests(prefix)) % 2**64 == parts.digest(prefix)


def written(disk: dict[tuple[str, ...], list[object]], writes: list[Write]) -> None:
    """As a store would: through the codec."""
    for one in writes:
        if isinstance(one, Put):
            value, _ = decode(encode(one.value))
            disk[one.key] = value
        else:
            disk.pop(one.key, None)


def test_what_is_on_disk_is_loaded_again() -> None:
    rng, sets = Random(1), Sets()
    disk: dict[tuple[str, ...], list[object]] = {}
    for version in range(1, 60):
        for origin in "abc":
            rows = [Row(rng.choice("xyz") + str(rng.randrange(9)), rng.choice([None, "p = 1"])) for _ in range(5)]
            held = make(Stamp(7, version), rows, rng.sample("pqr", 2))
            if rng.random() < 0.2:
                held = substitute(Stamp(7, version), held.edges, 99)
            if rng.random() < 0.1:
                sets.drop(Key(origin, "t"))
            else:
                sets.put(Key(origin, "t"), held)
        before = dict(sets.stored)
        writes = sets.records()
        if rng.random() < 0.3:
            sets.refuse()
            assert sets.stored == before
        else:
            written(disk, writes)
            sets.commit()
        again = Sets()
        again.load(disk)
        assert again.stored == sets.stored
        assert again.bytes == sum(held.bytes for held in sets.stored.values())


def test_a_refused_commit_leaves_all_as_it_was() -> None:
    sets = Sets()
    sets.put(KEY, make(Stamp(1, 1), [Row("a")], "p"))
    sets.records()
    sets.commit()
    index = sets.index("t", "me")
    sets.put(KEY, make(Stamp(1, 2), [Row("b")], "p"))
    sets.records()
    sets.put(KEY, make(Stamp(1, 3), [Row("c")], "p"))
    sets.put(Key("new", "t"), make(Stamp(1, 1), [Row("c")], "p"))
    assert list(index.wanting("c", lambda text: None)) == ["ewr", "new"]
    assert set(sets.refuse()) == {KEY, Key("new", "t")}
    assert sets.current(KEY) == make(Stamp(1, 1), [Row("a")], "p")
    assert sets.everything() == [KEY]
    assert list(index.wanting("a", lambda text: None)) == ["ewr"]
    assert not list(index.wanting("c", lambda text: None))


def test_two_rows_that_differ_in_bits_alone() -> None:
    sets = Sets()
    sets.put(KEY, make(Stamp(1, 1), [Row("a"), Row("a", None, 2)], "p"))
    index = sets.index("t", "me")
    sets.put(KEY, make(Stamp(1, 2), [Row("a")], "p"))
    assert list(index.wanting("a", lambda text: None)) == ["ewr"]
    for number, row in enumerate((Row("a", None, 1), Row("a", None, 9)), 3):
        sets.put(KEY, make(Stamp(1, number), [Row("a"), row], "p"))
        sets.put(KEY, make(Stamp(1, number), [row], "p"))
        assert list(index.wanting("a", lambda text: None)) == ["ewr"], "also with bits of a later version"


def test_a_selector_that_does_not_match_is_not_sent_to() -> None:
    sets = Sets()
    sets.put(KEY, make(Stamp(1, 1), [Row("a", "x = 1")], "p"))
    index = sets.index("t", "me")
    assert not list(index.wanting("a", lambda text: False))
    assert list(index.wanting("a", lambda text: None)) == ["ewr"]  # in doubt it is sent


def test_a_commit_writes_as_many_sets_as_are_enough() -> None:
    """The rest goes with the next; a refusal puts back what it took and what is left."""
    sets = Sets()
    keys = [Key(name, "t") for name in ("a", "b", "c")]
    rows = [Row(f"w{number}") for number in range(WRITES_ENOUGH * 2 // 3)]
    for key in keys:
        sets.put(key, make(Stamp(1, 1), rows, []))
    first = sets.records()
    assert len(first) == 2 * (len(rows) + 1) and list(sets.under_way or ()) == keys[:2]
    assert not sets.has_records and not sets.is_settled(keys[2])
    sets.commit()
    assert list(sets.stored) == keys[:2] and sets.has_records
    sets.put(keys[0], make(Stamp(1, 2), [], []))
    assert sets.records() and list(sets.under_way or ()) == [keys[2], keys[0]]
    assert sets.refuse() == [keys[2], keys[0]] and list(sets.stored) == keys[:2] and not sets.has_records


def test_what_was_changed_since_a_commit_began_is_taken_back_alone() -> None:
    sets = Sets()
    sets.put(KEY, make(Stamp(1, 1), [Row("a")], []))
    sets.records()
    sets.put(KEY, make(Stamp(1, 2), [Row("b")], []))
    sets.put(Key("jfk", "t"), make(Stamp(1, 1), [Row("c")], []))
    assert sets.undo() == [KEY, Key("jfk", "t")]
    held = sets.current(KEY)
    assert held is not None and held.rows == {Row("a")} and sets.current(Key("jfk", "t")) is None
    assert sets.everything() == [KEY] and sets.bytes == held.bytes
    sets.commit()
    assert sets.committed(KEY) == held
