"""`load` and `pace`: through the wire and back, at each bound and one past it, and whatever else a peer may write."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.types import Ulong
from holdfast.errors import RemoteProtocolError
from holdfast.names import NAME_BYTES_MAX
from holdfast.pacing.messages import (
    BYTES_MAX,
    GROUP_CHARACTERS_MAX,
    NODES_MAX,
    NUMBER_END,
    VALID_MS_MAX,
    Pace,
    Report,
    read_pace,
    read_report,
    relayed,
)
from holdfast.peering.control import VALUE

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=20)
NUMBERS = st.integers(0, NUMBER_END - 1)
VERSIONS = st.integers(1, NUMBER_END - 1)
BYTES = st.integers(0, BYTES_MAX)
RATES = st.integers(1, BYTES_MAX)

REPORTS = st.builds(
    Report, NAMES, NAMES, st.one_of(st.just(""), NAMES), NUMBERS, VERSIONS, st.integers(0, 1_000),
    RATES, st.just(0), st.one_of(st.none(), BYTES), BYTES, NUMBERS, NUMBERS, NUMBERS, st.booleans(),
    st.integers(0, NODES_MAX - 1),
)  # fmt: skip
PACES = st.builds(
    Pace, NAMES, NAMES, st.one_of(st.just(""), NAMES), NUMBERS, VERSIONS, NUMBERS, VERSIONS, RATES, RATES,
    st.integers(1, VALID_MS_MAX), st.integers(0, NODES_MAX - 1),
)  # fmt: skip

REPORT = Report("hub", "jfk", "", 7, 1, 3, 1_000_000, 250_000, 41_000, 9_000)
PACE = Pace("hub", "jfk", "", 9, 2, 7, 1, 41_666, 41_666, 6_000)

WHATEVER = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=300),
        st.binary(max_size=20), st.builds(Ulong, NUMBERS),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)  # fmt: skip


def over_the_wire(fields: dict[str, Any]) -> dict[Any, Any]:
    """As the control link carries it (peering/control.py)."""
    value = Message.decode(VALUE + encode(fields)).value
    assert isinstance(value, dict)
    return value


@given(REPORTS, st.data())
def test_a_report_comes_as_it_went(report: Report, data: st.DataObject) -> None:
    report = report._replace(used=data.draw(st.integers(0, report.capacity)))
    assert read_report(over_the_wire(report.fields())) == report


@given(PACES)
def test_a_pace_comes_as_it_went(pace: Pace) -> None:
    assert read_pace(over_the_wire(pace.fields())) == pace


def test_unknown_fields_are_passed_over() -> None:
    assert read_report({**over_the_wire(REPORT.fields()), "later": 1}) == REPORT
    assert read_pace({**over_the_wire(PACE.fields()), "later": [1]}) == PACE


@pytest.mark.parametrize("field", [field for field in REPORT.fields() if field not in ("kind", "arrivals")])
def test_a_report_without_a_field_is_none(field: str) -> None:
    fields = REPORT.fields()
    del fields[field]
    assert read_report(fields) is None


@pytest.mark.parametrize("field", [field for field in PACE.fields() if field != "kind"])
def test_a_pace_without_a_field_is_none(field: str) -> None:
    fields = PACE.fields()
    del fields[field]
    assert read_pace(fields) is None


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("process", 0, NUMBER_END - 1),
        ("version", 1, NUMBER_END - 1),
        ("weight", 0, 1_000),
        ("capacity", 250_000, BYTES_MAX),
        ("used", 0, 1_000_000),
        ("arrivals", 0, BYTES_MAX),
        ("spread", 0, BYTES_MAX),
        ("root_process", 0, NUMBER_END - 1),
        ("applied", 0, NUMBER_END - 1),
        ("held", 0, NUMBER_END - 1),
        ("passed", 0, NODES_MAX - 1),
    ],
)
def test_the_bounds_of_a_report(field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert read_report({**REPORT.fields(), field: value}) is not None
    for value in (low - 1, high + 1, float(low), True, str(low)):
        assert read_report({**REPORT.fields(), field: value}) is None


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("process", 0, NUMBER_END - 1),
        ("version", 1, NUMBER_END - 1),
        ("of", 0, NUMBER_END - 1),
        ("heard", 1, NUMBER_END - 1),
        ("rate", 1, BYTES_MAX),
        ("base", 1, BYTES_MAX),
        ("valid", 1, VALID_MS_MAX),
        ("passed", 0, NODES_MAX - 1),
    ],
)
def test_the_bounds_of_a_pace(field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert read_pace({**PACE.fields(), field: value}) is not None
    for value in (low - 1, high + 1, float(low), None, True):
        assert read_pace({**PACE.fields(), field: value}) is None


@pytest.mark.parametrize("field", ["root", "origin"])
@pytest.mark.parametrize("name", ["", "a@b", "\n", "x" * (NAME_BYTES_MAX + 1), b"jfk", None, 1, "\ud800"])
def test_what_is_no_name_is_none(field: str, name: object) -> None:
    assert read_report({**REPORT.fields(), field: name}) is None


@pytest.mark.parametrize("group", [None, 1, "a\nb", "x" * (GROUP_CHARACTERS_MAX + 1)])
def test_what_is_no_group_is_none(group: object) -> None:
    assert read_report({**REPORT.fields(), "group": group}) is None
    assert read_pace({**PACE.fields(), "group": group}) is None


def test_the_longest_group_is_read() -> None:
    assert read_report({**REPORT.fields(), "group": "x" * GROUP_CHARACTERS_MAX}) is not None


@given(st.sampled_from(list(REPORT.fields())), WHATEVER)
def test_any_value_in_a_report_is_none_or_within_bounds(field: str, value: Any) -> None:
    found = read_report({**REPORT.fields(), field: value})
    if found is not None:
        assert 0 <= found.used <= found.capacity <= BYTES_MAX
        assert 0 <= found.weight <= 1_000
        assert found.arrivals is None or 0 <= found.arrivals <= BYTES_MAX
        assert read_report(over_the_wire(found.fields())) == found


@given(st.sampled_from(list(PACE.fields())), WHATEVER)
def test_any_value_in_a_pace_is_none_or_within_bounds(field: str, value: Any) -> None:
    found = read_pace({**PACE.fields(), field: value})
    if found is not None:
        assert 1 <= found.rate <= BYTES_MAX
        assert 1 <= found.valid_ms <= VALID_MS_MAX
        assert read_pace(over_the_wire(found.fields())) == found


@given(st.sampled_from([REPORT.fields(), PACE.fields()]), st.data())
def test_hostile_bytes_are_refused_or_read_within_bounds(fields: dict[str, Any], data: st.DataObject) -> None:
    payload = bytearray(VALUE + encode(fields))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for written in (bytes(payload), bytes(payload[:cut])):
        try:
            value = Message.decode(written).value
        except RemoteProtocolError:
            continue  # as the control link does: a WARNING, and nothing else
        if isinstance(value, dict):
            report, pace = read_report(value), read_pace(value)
            assert report is None or report.used <= report.capacity
            assert pace is None or pace.valid_ms <= VALID_MS_MAX


def test_a_message_is_passed_on_until_it_came_through_too_many() -> None:
    message: Report | Pace | None = REPORT
    count = 0
    while message is not None:
        assert read_report(message.fields()) is not None
        message = relayed(message)
        count += 1
    assert count == NODES_MAX
    assert relayed(PACE) == PACE._replace(passed=1)
