"""Steps of links, one at a time and in a row (docs/links.md, "Steps"; docs/adr/0068)."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.accounts import Account
from holdfast.amqp.wire.extensions import LINKS
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import MISSING, Char, Decimal64, Float, Symbol, Timestamp, Ulong
from holdfast.broker.entries import annotate, entry
from holdfast.client import Message
from holdfast.steps import aggregates, formats, parsing, pipeline, windows
from holdfast.steps.failure import StepFailed
from holdfast.steps.message import MESSAGE_BYTES_MAX, StepMessage
from holdfast.steps.windows import Gathered, Windows
from support import today


class Line:
    """Steps and their windows, as a link has them: each message is a turn that is stored."""

    def __init__(self, *steps: dict[str, Any], bytes_max: int = 1 << 30) -> None:
        self.steps = parsing.steps_of(parsing.as_text(steps, "link 'l'"), "link 'l'")
        self.windows = Windows(self.steps, Account("windows", bytes_max))
        self.failures: list[str] = []

    def put(self, message: Message, time_ms: int = 1_000, passed: bytes = b"") -> StepMessage | None:
        value = entry.pack(flags=entry.DURABLE, enqueued_ms=time_ms, bare=message.encode())
        if passed:
            value = annotate.merge(value, annotate.to_add({LINKS: passed}), 1_000)
        gathered = Gathered(self.windows)
        came = pipeline.run(self.steps, StepMessage(value, time_ms), gathered)
        if came.failure:
            self.failures.append(came.failure)
            assert came.message is not None
            came.message = None
        gathered.add(came.changes)
        self.windows.apply(gathered.changes)
        assert self.windows.account.held == self.windows.held_bytes
        return came.message

    def end(self, time_ms: int) -> list[StepMessage]:
        """Windows that are over."""
        found = []
        gathered = Gathered(self.windows)
        for number in self.windows.rows:
            for key, row in self.windows.over(number, time_ms, time_ms, gathered):
                came = pipeline.close(self.steps, number, key, row, gathered)
                assert not came.failure
                gathered.add(came.changes)
                if came.message is not None:
                    found.append(came.message)
        self.windows.apply(gathered.changes)
        return found


def reading(body: bytes = b"x", **properties: Any) -> Message:
    return Message(application_properties=properties or None, data=[body])


def pairs(message: StepMessage | None) -> dict[str, Any]:
    assert message is not None
    return dict(message.message.application_properties or {})


# ------------------------------------------------------------------------------------------------ one at a time


def test_select_passes_what_matches() -> None:
    line = Line({"select": "rssi > -60"})
    assert (
        line.put(reading(rssi=-50)) is not None and line.put(reading(rssi=-70)) is None and line.put(reading()) is None
    )


def test_properties_are_dropped_renamed_and_added_in_that_order() -> None:
    line = Line(
        {"properties": {"add": {"site": "jfk", "n": 2}, "rename": {"a": "b", "missing": "c"}, "drop": ["b", "z"]}}
    )
    made = line.put(reading(a=1, b=9, z=0, kept=Ulong(3)))
    assert pairs(made) == {"b": 1, "site": "jfk", "n": 2, "kept": 3} and type(pairs(made)["kept"]) is Ulong
    assert made is not None and made.message.data == [b"x"]


def test_lookup_adds_what_the_table_has() -> None:
    table = {"a": "gate 1", "7": "gate 7", "true": "yes"}
    line = Line({"lookup": {"key": "tag", "value": "place", "table": table}})
    assert pairs(line.put(reading(tag="a"))) == {"tag": "a", "place": "gate 1"}
    assert pairs(line.put(reading(tag=7)))["place"] == "gate 7" and pairs(line.put(reading(tag=True)))["place"] == "yes"
    assert pairs(line.put(reading(tag="b"))) == {"tag": "b"} and pairs(line.put(reading(x=1))) == {"x": 1}
    other = Line({"lookup": {"key": "body.tag", "value": "place", "table": table, "default": "?"}})
    assert pairs(other.put(reading(b'{"tag": "a"}'))) == {"place": "gate 1"}
    assert pairs(other.put(reading(b'{"tag": "b"}'))) == pairs(other.put(reading(b"{}"))) == {"place": "?"}


TABLE = 'tag,rssi\r\na,-50\r\n"b, c",\r\n'
ROWS = [{"tag": "a", "rssi": "-50"}, {"tag": "b, c", "rssi": ""}]


def test_convert_goes_every_way() -> None:
    def made(source: str, target: str, message: Message) -> Message:
        came = Line({"convert": {"from": source, "to": target}}).put(message)
        assert came is not None
        return came.message

    json = made("csv", "json", Message(data=[TABLE.encode()], properties=Properties(subject="s")))
    assert formats.read_json(formats.text_of(json)) == ROWS
    assert json.properties is not None
    assert (json.properties.content_type, json.properties.subject) == ("application/json", "s")
    assert made("csv", "map", Message(data=[TABLE.encode()])).value == ROWS
    back = made("json", "csv", json)
    assert back.body_bytes().decode() == TABLE and back.properties is not None
    assert back.properties.content_type == "text/csv"
    mapped = made("json", "map", Message(value='{"a": [1, {"b": null}], "c": true}'))
    assert mapped.value == {"a": [1, {"b": None}], "c": True} and mapped.data is None
    assert formats.read_json(formats.text_of(made("map", "json", mapped))) == mapped.value
    moment = Message(value={"at": Timestamp(0), "n": Ulong(1), "s": Symbol("x")})
    assert made("map", "csv", moment).body_bytes() == b"at,n,s\r\n1970-01-01T00:00:00.000Z,1,x\r\n"


@pytest.mark.parametrize(
    ("source", "target", "message", "why"),
    [
        ("json", "map", Message(data=[b"{"]), "the body is no JSON"),
        ("json", "map", Message(data=[b"NaN"]), "NaN is not a JSON number"),
        ("json", "map", Message(data=[b"3"]), "has no form as a map"),
        ("json", "map", Message(data=[b"[" * 9_000]), "no JSON"),
        ("json", "map", Message(data=[b"[" * 40 + b"]" * 40]), "more than 16 lists and maps"),
        ("json", "map", Message(data=[b'{"n": 1' + b"0" * 30 + b"}"]), "a number beyond"),
        ("json", "csv", Message(data=[b'{"n": 1' + b"0" * 5_000 + b"}"]), "no JSON"),
        ("json", "csv", Message(data=[b'{"n": 1e999}']), "not finite"),
        ("json", "csv", Message(data=[b'{"n": "\\ud800"}']), "not in Unicode"),
        ("json", "csv", Message(data=[b'{"n": {}}']), "n is a list or a map"),
        ("json", "csv", Message(data=[b"[1]"]), "has no form in CSV"),
        ("json", "csv", Message(data=[b"[]"]), "has no field"),
        ("json", "csv", Message(data=[b"\xff"]), "not text in UTF-8"),
        ("json", "csv", Message(sequences=[[1]]), "not text"),
        ("json", "csv", Message(), "not text"),
        ("csv", "json", Message(data=[b""]), "has no header"),
        ("csv", "json", Message(data=[b"a,a\n"]), "a name twice"),
        ("csv", "json", Message(data=[b"a,b\n1\n"]), "row 1 of the CSV has 1 fields; the header has 2"),
        ("csv", "json", Message(data=[b'a\n"x" y\n']), "no CSV"),
        ("csv", "json", Message(data=[b"n" * 30_000 + b"\n" + b"1\n" * 9_000]), "more than 65536 bytes"),
        ("map", "json", Message(value="x"), "no map"),
        ("map", "json", Message(value=[1]), "not of maps"),
        ("map", "json", Message(value={"a": b"x"}), "of type bytes, which has no form in JSON or CSV"),
        ("map", "json", Message(value={1: "x"}), "a key that is not text"),
        ("map", "json", Message(value={"t": Timestamp(2**62)}), "beyond the year 9999"),
        ("csv", "map", Message(data=[b"a" * (MESSAGE_BYTES_MAX + 1)]), "the limit is 65536"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_fails_with_the_step(source: str, target: str, message: Message, why: str) -> None:
    line = Line({"select": "TRUE"}, {"convert": {"from": source, "to": target}})
    assert line.put(message) is None
    assert line.failures[0].startswith("step 2 (convert): ") and why in line.failures[0], line.failures


def test_a_wide_table_of_many_rows_is_refused_before_it_is_made() -> None:
    rows = [{f"k{number}": 1} for number in range(4_000)]
    with pytest.raises(StepFailed, match="more than 65536 fields"):
        formats.write_csv(rows)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=today.drawn(17))
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), VALUES, max_size=5))
def test_json_through_a_map_and_back_is_the_same(value: dict[str, Any]) -> None:
    line = Line({"convert": {"from": "json", "to": "map"}}, {"convert": {"from": "map", "to": "json"}})
    try:
        text = formats.write_json(formats.checked(value))
    except StepFailed:
        return
    came = line.put(Message(data=[text.encode()]))
    if came is None:
        assert line.failures
    else:
        assert formats.read_json(formats.text_of(came.message)) == value


@given(st.binary(max_size=400), st.sampled_from(["csv", "json", "map"]), st.sampled_from(["csv", "json", "map"]))
def test_bytes_of_whatever_kind_are_converted_or_refused(bare: bytes, source: str, target: str) -> None:
    if source == target:
        return
    line = Line(
        {"convert": {"from": source, "to": target}}, {"properties": {"add": {"a": 1}}},
        {"drop_repeats": {"key": "body.a", "within_s": 1}}, {"aggregate": {"key": "a", "within_s": 1, "of": "count"}},
    )  # fmt: skip
    for head in (b"", b"\x00\x53\x75\xa0", b"\x00\x53\x77"):
        value = entry.pack(flags=0, enqueued_ms=1, bare=head + bare)
        for steps in (line.steps, line.steps[1:], line.steps[2:], line.steps[3:]):
            shifted = Windows(steps, Account("windows", 1 << 20))
            pipeline.run(steps, StepMessage(value, 1), Gathered(shifted))


# ------------------------------------------------------------------------------------------------ windows


def test_a_window_begins_with_the_message_that_passes() -> None:
    line = Line({"drop_repeats": {"key": "tag", "within_s": 5}})
    came = [line.put(reading(tag="a"), time_ms=at) is not None for at in (1_000, 3_000, 5_999, 6_000, 10_999, 11_000)]
    assert came == [True, False, False, True, False, True]
    assert line.put(reading(tag="b"), time_ms=11_001) is not None and line.put(reading(), time_ms=11_002) is not None
    assert [type(line.put(reading(tag=tag), time_ms=11_003)) for tag in (1, 1.0, "1")] == [StepMessage] * 3
    assert line.end(15_999) == [] and len(line.windows) == 5
    assert line.end(16_003) == [] and len(line.windows) == 0 and line.windows.held_bytes == 0


def test_a_clock_that_is_set_back_begins_windows_anew() -> None:
    line = Line({"drop_repeats": {"key": "tag", "within_s": 5}})
    assert line.put(reading(tag="a"), time_ms=100_000) is not None
    assert line.put(reading(tag="a"), time_ms=95_001) is None
    assert line.windows.due_in_ms(96_000) == 9_000 and line.windows.due_in_ms(95_000) == -5_000
    assert line.put(reading(tag="a"), time_ms=95_000) is not None


@pytest.mark.parametrize(
    ("of", "result"), [("mean", 2.5), ("least", 1), ("most", 5), ("last", "2"), ("count", None)]
)  # fmt: skip
def test_an_aggregate_counts_each_message_once(of: str, result: Any) -> None:
    field = {} if of == "count" else {"field": "body.rssi"}
    line = Line({"aggregate": {"key": "tag", "within_s": 10, "of": of, **field}})
    for at, rssi in ((1_000, "5"), (2_000, "2.0"), (10_999, "1"), (500, "2")):
        assert line.put(reading(b'{"rssi": "%s"}' % rssi.encode(), tag="a"), time_ms=at) is None
    line.put(reading(b'{"rssi": 1}', tag="b"), time_ms=10_000)
    (made,) = line.end(11_000)
    wanted = {"tag": "a", "count": 4, "begins": 1_000, "ends": 11_000} | ({} if of == "count" else {"rssi": result})
    assert pairs(made) == wanted and made.time_ms == 11_000
    told = formats.fields_of(made.message)
    times = {"begins": "1970-01-01T00:00:01.000Z", "ends": "1970-01-01T00:00:11.000Z"}
    assert told == wanted | times and len(line.windows) == 1


def test_the_message_behind_a_window_ends_it() -> None:
    line = Line({"aggregate": {"key": "tag", "within_s": 10, "of": "count"}})
    assert line.put(reading(tag="a"), time_ms=1_000) is None
    assert pairs(line.put(reading(tag="a"), time_ms=11_000))["count"] == 1
    assert pairs(*line.end(21_000))["begins"] == 11_000


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (reading(rssi=1), "the message has no tag"),
        (reading(tag="a"), "the message has no rssi"),
        (reading(tag="a", rssi="x"), "rssi is not a number"),
        (reading(tag="a", rssi="1_0"), "rssi is not a number"),
        (reading(tag="a", rssi=True), "rssi is not a number"),
        (reading(tag="a", rssi=float("nan")), "rssi is no finite number"),
        (reading(tag="a", rssi="9" * 19), "rssi is beyond"),
        (reading(tag="x" * 300, rssi=1), "tag has 305 bytes as a key; the limit is 256"),
        (reading(tag=[1], rssi=1), "tag is a list or a map"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_fails_and_changes_nothing(message: Message, why: str) -> None:
    line = Line({"drop_repeats": {"key": "rssi", "within_s": 5}}, {"aggregate": {
        "key": "tag", "field": "rssi", "within_s": 10, "of": "mean"}})  # fmt: skip
    if message.application_properties == {"tag": [1], "rssi": 1}:
        line = Line({"aggregate": {"key": "tag", "field": "rssi", "within_s": 10, "of": "mean"}})
    line.put(message)
    assert why in line.failures[0] and "(aggregate): " in line.failures[0] and len(line.windows) == 0


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (Float("nan"), "NaN"),
        (Timestamp(2**62), 2**62), (Timestamp(-(2**62)), -(2**62)), (Timestamp(0), "1970-01-01T00:00:00.000Z"),
        (b"\0\xff", "00ff"), (Char("x"), "x"), (UUID(int=1), str(UUID(int=1))), (Decimal64(bytes(8)), "00" * 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("of", ["count", "last"])
def test_whatever_may_be_counted_can_be_told(value: Any, told: Any, of: str) -> None:
    """Else the window could never end, nor any behind it, nor any other link of the node go on."""
    step = {"key": "tag", "within_s": 10, "of": of} | ({} if of == "count" else {"field": "value"})
    line = Line({"aggregate": step})
    for _ in range(2):
        assert line.put(reading(tag=value, value=value)) is None
    line.put(reading(tag="b", value=1), time_ms=12_000)
    (made,) = line.end(13_000)
    found = formats.fields_of(made.message)
    assert found["tag"] == told and found["count"] == 2 and (of == "count" or found["value"] == told)
    assert type(pairs(made)["tag"]) is type(value) and not line.failures


def test_a_sum_that_is_no_finite_number_fails_and_is_not_counted() -> None:
    line = Line({"aggregate": {"key": "tag", "field": "rssi", "within_s": 10, "of": "mean"}})
    for _ in range(3):
        line.put(reading(tag="a", rssi=1.7e308))
    assert line.failures == ["step 1 (aggregate): the sum of rssi would be no finite number"] * 2
    (made,) = line.end(20_000)
    assert pairs(made)["rssi"] == 1.7e308 and pairs(made)["count"] == 1


def test_an_old_message_ends_no_window_of_another_key() -> None:
    line = Line({"drop_repeats": {"key": "tag", "within_s": 5}})
    line.put(reading(tag="a"), time_ms=100_000)
    gathered = Gathered(line.windows)
    assert list(line.windows.over(0, 50_000, 100_000, gathered)) == []
    assert [key for key, _ in line.windows.over(0, 105_000, 105_000, gathered)]
    assert [key for key, _ in line.windows.over(0, 50_000, 95_000, gathered)], "the clock was set back"


def test_what_an_aggregate_gives_passes_the_steps_behind() -> None:
    line = Line(
        {"aggregate": {"key": "tag", "within_s": 10, "of": "count"}},
        {"select": "count > 1"},
        {"properties": {"add": {"site": "jfk"}, "rename": {"count": "readings"}}},
        {"aggregate": {"key": "site", "field": "readings", "within_s": 100, "of": "most"}},
    )
    for at in (0, 1, 11_000, 30_000, 30_001, 30_002):
        line.put(reading(tag="a"), time_ms=at)
    assert line.end(50_000) == []
    (made,) = line.end(110_000)
    assert pairs(made) == {"site": "jfk", "readings": 3, "count": 2, "begins": 10_000, "ends": 110_000}


def test_an_aggregate_has_passed_the_links_of_all_that_it_counts() -> None:
    line = Line({"aggregate": {"key": "tag", "within_s": 10, "of": "count"}})
    one, two = b"1" * annotate.LINK_ID_BYTES, b"2" * annotate.LINK_ID_BYTES
    for passed in (one, b"", two + one, one):
        line.put(reading(tag="a"), passed=passed)
    (made,) = line.end(20_000)
    assert annotate.links_passed(made.value) == one + two


def test_100_000_keys_and_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert windows.KEYS_MAX == 100_000
    monkeypatch.setattr(windows, "KEYS_MAX", 3)
    line = Line({"drop_repeats": {"key": "tag", "within_s": 5}})
    assert [line.put(reading(tag=tag)) is not None for tag in (1, 2, 3, 3)] == [True, True, True, False]
    assert line.put(reading(tag=4)) is None
    assert line.failures == ["step 1 (drop_repeats): it has 3 windows, the most that a step may have"]
    line.end(6_000)
    assert line.put(reading(tag=4), time_ms=6_001) is not None


def test_the_memory_of_windows_is_bounded() -> None:
    line = Line({"drop_repeats": {"key": "tag", "within_s": 5}}, bytes_max=3 * windows.ROW_BYTES)
    assert [line.put(reading(tag=tag)) is not None for tag in (1, 2, 3)] == [True, True, False]
    assert "as much memory as they may" in line.failures[0]


def test_rows_of_equal_steps_differ_and_stay_the_same_over_restarts() -> None:
    step = {"drop_repeats": {"key": "tag", "within_s": 5}}
    one, other = Line(step, {"select": "TRUE"}, step), Line({"select": "TRUE"}, step, step)
    first, second = one.windows.ids.values()
    assert first != second and [*other.windows.ids.values()] == [first, second]
    assert Line({"drop_repeats": {"key": "tag", "within_s": 6}}).windows.ids[0] not in (first, second)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30_000)), max_size=30), st.integers(0, 5))
def test_windows_agree_with_a_plain_model(told: list[tuple[str, int]], every: int) -> None:
    """However often windows that are over are ended, in order of time."""
    told = sorted(told, key=lambda item: item[1])
    line = Line({"aggregate": {"key": "tag", "within_s": 5, "of": "count"}})
    made: list[StepMessage] = []
    begins: dict[str, int] = {}
    wanted: dict[tuple[str, int], int] = {}
    for number, (tag, at) in enumerate(told):
        if tag not in begins or at - begins[tag] >= 5_000:
            begins[tag] = at
        wanted[tag, begins[tag]] = wanted.get((tag, begins[tag]), 0) + 1
        came = line.put(reading(tag=tag), time_ms=at)
        made += [] if came is None else [came]
        if every and not number % every:
            made += line.end(at)
    made += line.end(100_000)
    assert {(item["tag"], item["begins"]): item["count"] for item in map(pairs, made)} == wanted
    assert len(made) == len(wanted)


def test_a_body_is_read_once_and_missing_is_missing() -> None:
    assert StepMessage(entry.pack(flags=0, enqueued_ms=1, bare=Message(value={"a": 1}).encode()), 1).content == {"a": 1}
    assert Message().value is MISSING


def test_windows_are_in_the_order_in_which_they_began() -> None:
    """One that begins anew is the last: else it would hold up those that began before it and are over."""
    held = Line({"drop_repeats": {"key": "tag", "within_s": 5}}).windows
    began = [(time_ms).to_bytes(8, "big") for time_ms in (1_000, 2_000, 9_000)]
    held.apply({(0, b"a"): began[0], (0, b"b"): began[1]})
    assert list(held.rows[0]) == [b"a", b"b"]
    held.apply({(0, b"a"): began[0] + b"more"})  # the same window
    assert list(held.rows[0]) == [b"a", b"b"]
    held.apply({(0, b"a"): began[2]})
    assert list(held.rows[0]) == [b"b", b"a"]
    over = [key for key, _ in held.over(0, 8_000, 8_000, Gathered(held))]
    assert over == [b"b"]
    begun_anew = Gathered(held)
    begun_anew.add({(0, b"b"): began[2]})
    assert not list(held.over(0, 8_000, 8_000, begun_anew)), "in this turn it began anew"


def test_an_aggregate_has_passed_no_more_links_than_a_message_may() -> None:
    """Those of all that it counts: the first that came are told."""
    size, most = annotate.LINK_ID_BYTES, annotate.LINKS_MAX
    ids = [number.to_bytes(size, "big") for number in range(most + 2)]
    first, second = b"".join(ids[: most - 1]), b"".join(ids[1:])
    assert aggregates._both(first, second) == b"".join(ids[:most])
    assert aggregates._both(first, ids[0]) == first and aggregates._both(b"", second[:size]) == second[:size]
