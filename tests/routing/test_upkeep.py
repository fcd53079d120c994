"""Link states from newer nodes, versions at their end, forgotten nodes, and tables that a fault made wrong."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.amqp.wire.types import Ulong
from holdfast.routing.linkstate import LinkStates
from holdfast.routing.records import BITS_KNOWN, VERSION_END, VERSION_HIGH, VERSION_VOID, Known, Record
from holdfast.routing.rows import FIELDS_MAX, Malformed, read_row, write_row
from routing.test_linkstate import COST
from support import today

ROW, _ = write_row(Known(Record("a", 7, (("b", COST),), is_super=True), stamp=("s", 3)))


def table(name: str = "a", version: int = 1_000) -> LinkStates:
    edges = {"a": {"b": COST}, "b": {"a": COST}}
    states = LinkStates(name, edges, records_max=10, neighbours_max=10)
    states.originate(edges[name], version=version)
    return states


@pytest.mark.parametrize("more", [[None], ["x"], [[1, 2], Ulong(5)], (FIELDS_MAX - len(ROW)) * [0]])
def test_a_row_with_unknown_fields_and_bits_is_taken_for_what_is_known(more: list[Any]) -> None:
    row = [*ROW, *more]
    row[2] = Ulong(int(row[2]) | 2**40 | 16)
    assert read_row(row, 10) == read_row(ROW, 10)


def test_a_row_has_at_most_so_many_fields() -> None:
    with pytest.raises(Malformed, match="a list of 8 to 32"):
        read_row([*ROW, *((FIELDS_MAX - len(ROW) + 1) * [0])], 10)


def test_a_summary_with_unknown_fields_and_bits_is_taken_for_what_is_known() -> None:
    states = table()
    told: list[str] = []
    states.malformed = lambda neighbour, text: told.append(text)
    states.up("b")
    row = ["b", Ulong(5), Ulong(6), Ulong(BITS_KNOWN | 2**33), "new", None]
    states.receive_summary("b", [row, [*row, *(FIELDS_MAX * [0])]], first=True, last=True)
    assert states.told["b"].editions["b"] == (5, 6, BITS_KNOWN)
    assert told == ["invalid row of a summary; expected a list of 4 to 32 fields"]


@pytest.mark.parametrize("version", [VERSION_HIGH - 1, VERSION_HIGH, VERSION_END - 1])
def test_a_node_whose_own_version_is_at_its_end_begins_anew(version: int) -> None:
    """As BINDINGS has it: reset, each follower voids what it has and takes the next word, whatever its version."""
    states, other = table("a"), table("b")
    known = Known(Record("a", version, (("b", None),)), stamp=("s", 1))
    for each in (states, other):
        each.up("b" if each is states else "a")
        each.receive("x", [write_row(known)[0]])
    assert states.must_reoriginate
    states.originate({"b": COST}, version=2_000)
    own = states.own
    assert own is not None and own.record.version == 2_000 and states.resets
    assert other.known["a"].record.version == version
    links = other.edges()
    assert other.void("a")
    assert other.edges() == links, "what it said stays in use"
    other.receive("a", states.to_tell("b", lambda known: True)[0])
    assert other.known["a"].record == own.record
    assert not other.void("a"), "a reset that comes again voids nothing"
    other.receive("a", [write_row(known)[0]])
    assert other.known["a"].record == own.record, "what was high is not taken while it may go round"
    assert other.stale == {("a", "a"): None}
    states.resets = False
    states.originate({"b": COST}, version=2_000)
    assert not states.resets and own.record.version == 2_000


@pytest.mark.parametrize("version", [VERSION_VOID - 1, VERSION_VOID, VERSION_HIGH - 2])
def test_what_a_node_says_before_its_versions_end_is_no_reset_and_can_be_voided_by_one(version: int) -> None:
    states, other = table("a"), table("b")
    heard = write_row(Known(Record("a", version, (("b", None),))))[0]
    states.receive("x", [heard])
    states.originate({"b": COST}, version=2_000)
    own = states.own
    assert own is not None and own.record.version == version + 1 and not states.resets
    other.receive("a", [write_row(own)[0]])
    assert other.known["a"].record == own.record and other.void("a")


def test_a_node_whose_reset_still_goes_round_says_no_version_that_others_do_not_take() -> None:
    states = table("a")
    states.quarantined["a"] = None
    states.floor = VERSION_VOID - 1
    states.originate({"b": COST}, version=2_000)
    assert states.own is not None and states.own.record.version == 2_000 and states.resets


def test_what_was_dropped_is_not_taken_again_but_from_itself_or_newer() -> None:
    states = table()
    row = write_row(Known(Record("x", 5, ()), stamp=("s", 1)))[0]
    newer = write_row(Known(Record("x", 6, ()), stamp=("s", 1)))[0]
    states.receive("b", [row])
    digest = states.digest
    assert states.drop("x") is not None and "x" not in states.known and states.digest != digest
    states.receive("b", [row])
    assert "x" not in states.known
    states.receive("x", [row])
    assert "x" in states.known, "it lives, whatever its clock says"
    states.drop("x")
    states.receive("b", [newer])
    assert states.known["x"].record.version == 6 and "x" not in states.dropped
    assert states.drop("nobody") is None


@settings(max_examples=today.drawn(17))
@given(st.integers(0, 2**32))
def test_the_digest_is_right_again_after_a_recount(seed: int) -> None:
    random = Random(seed)
    states = table()
    states.receive("b", [write_row(Known(Record("x", 5, ()), stamp=("s", 1)))[0]])
    right = states.digest
    states.digest = random.getrandbits(63)
    states.known["b"] = Known(replace(states.known["b"].record, version=9))
    states.recount()
    states.known["b"] = Known(replace(states.known["b"].record, version=0))
    assert "b" in states.unstamped
    states.recount()
    assert states.digest == right


@pytest.mark.parametrize("version", [-1, VERSION_END, VERSION_END + 5])
def test_a_record_that_no_neighbour_can_take_goes_with_the_next_recount_and_its_next_word_is_taken(
    version: int,
) -> None:
    """A fault in memory: what cannot be told would be told, and refused, after each comparison."""
    states = table()
    row = write_row(Known(Record("b", 5, (("a", COST),)), stamp=("s", 1)))[0]
    states.receive("b", [row])
    right = states.digest
    for name in ("b", "ghost"):
        states.known[name] = Known(Record(name, version, ()), stamp=("ghost", 1))
    states.recount()
    assert set(states.known) == {"a"} and states.changed
    states.receive("b", [row])
    assert states.digest == right and states.known["b"].record.version == 5
    own = states.known["a"].record
    states.known["a"] = Known(replace(own, version=version))
    states.recount()
    states.originate(dict(own.links), version=2_000)
    assert states.own is not None and 0 < states.own.record.version < VERSION_HIGH


def test_a_record_that_a_fault_took_alone_is_not_stamped() -> None:
    states = table()
    states.receive("b", [write_row(Known(Record("b", 5, (("a", COST),))))[0]])
    del states.known["b"]
    assert "b" in states.unstamped
    states.stamp("b", "a", 1)
    assert "b" not in states.unstamped and "b" not in states.known


def test_only_a_table_whose_own_version_came_to_its_end_begins_anew() -> None:
    fresh = LinkStates("a", {"a": {"b": COST}}, records_max=10, neighbours_max=10)
    assert not fresh.resets and not table().resets
    assert not table(version=VERSION_HIGH - 1).resets
    states = table(version=VERSION_HIGH - 1)
    states.originate({"b": COST}, version=1)
    assert states.resets
