"""The telemetry schema: read back what is written, refuse the rest in one line, keep what is newer."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import RemoteProtocolError
from holdfast.telemetry.records import COMMON, KINDS, VERSION, Loss, Turns, parse, validate, wall_ms
from holdfast.units import iso8601

UUID_TEXT = "6f1c5f1e-3a0b-4b7f-9f38-0d9c6a2b7e11"
COMMON_FIELDS = {"v": 1, "t": "2013-01-01T05:15:00.000Z", "node": "ewr", "uptime_s": 12.5}

EXAMPLES: dict[str, dict[str, Any]] = {
    "node": {"event": "started", "store": UUID_TEXT, "resident_bytes": 31_000_000},
    "queue": {
        "name": "flights",
        "messages": 3,
        "bytes": 3_000,
        "oldest_s": 1.5,
        "in_total": 10,
        "out_total": 7,
        "in_per_s": 2.0,
        "out_per_s": 1.5,
        "next_sequence": 11,
        "vhost": "acme",
    },
    "session": {
        "neighbour": "hub",
        "state": "Established",
        "previous": "OpenConfirm",
        "reason": "opened",
        "round_trip_s": 0.002,
        "damped": False,
    },
    "message": {
        "event": "stored",
        "queue": "flights",
        "sequence": 11,
        "origin": UUID_TEXT,
        "destination": "hub",
        "identity": 42,
        "message_id": "row-42",
        "created": "2013-01-01T05:14:59.500Z",
        "wall": "2013-01-01T05:15:00.000Z",
        "vhost": "acme",
    },
    "custody": {
        "destination": "hub",
        "waiting": 5,
        "in_doubt": 2,
        "receipt": 37,
        "duplicates_suppressed": 1,
        "late": 0,
        "gaps": 0,
    },
    "loss": {"origin": UUID_TEXT, "first": 3, "last": 9, "reason": "skipped by hand"},
    "turns": {
        "turns": 3,
        "cpu_s": 0.0215,
        "longest_s": 0.0201,
        "longest_kinds": "BytesReceived Commit",
        **dict.fromkeys([field.name for field in dataclasses.fields(Turns)][4:], 0),
        "to_25_6_ms": 3,
    },
    "pacing": {"rate": 1, "given": 1, "clients": 1, "ignoring": 0, "changes": 2, "overflow_s": 300.0},
    "pace": {
        "client": "ewr",
        "rate": 5,
        "weight": 3,
        "used": 7,
        "capacity": 20,
        "arrivals": 6,
        "overflow_s": 13.0,
        "vhost": "acme",
    },
    "paced": {
        "root": "hub",
        "rate": 5,
        "weight": 3,
        "used": 7,
        "capacity": 20,
        "arrivals": 6,
        "overflow_s": 13.0,
        "vhost": "acme",
    },
    "paths": {"paths_shortest": 7, "paths_other": 2, "paths_unknown": 1, "loops": 0},
}


def record(kind: str, /, **changes: Any) -> dict[str, Any]:
    return {**COMMON_FIELDS, "kind": kind, **EXAMPLES[kind], **changes}


def without(kind: str, name: str) -> dict[str, Any]:
    whole = record(kind)
    del whole[name]
    return whole


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_back_field_by_field(kind: str) -> None:
    parsed = parse(json.dumps(record(kind)))
    assert type(parsed.body) is KINDS[kind]
    assert dataclasses.asdict(parsed.body) == EXAMPLES[kind]
    assert (parsed.v, parsed.kind, parsed.node, parsed.uptime_s) == (1, kind, "ewr", 12.5)
    assert parsed.wall_ms == 1_357_017_300_000
    assert parsed.extra == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_may_be_absent_or_null_only_where_it_is_optional(kind: str) -> None:
    for place in dataclasses.fields(KINDS[kind]):
        for changed in (without(kind, place.name), record(kind, **{place.name: None})):
            if place.default is None:
                assert getattr(validate(changed).body, place.name) is None
            else:
                with pytest.raises(RemoteProtocolError, match=rf"{kind} {place.name}( is missing|; expected )"):
                    validate(changed)


@pytest.mark.parametrize("name", COMMON)
def test_common_fields_are_required(name: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rf"\b{name} is missing|invalid value None for {name};"):
        validate(without("loss", name))


def test_unknown_fields_are_kept() -> None:
    parsed = validate(record("loss", invented={"later": [1]}))
    assert parsed.extra == {"invented": {"later": [1]}}
    assert isinstance(parsed.body, Loss)


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_a_newer_version_is_refused_in_one_clear_line(version: int) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        validate({"v": version, "kind": "unheard of"})
    assert refused.value.description == (
        f"telemetry record: version {version} is newer than this reader; expected up to {VERSION}"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (record("loss", v=0), "invalid value 0 for v; expected 1 to 1"),
        (record("loss", v="1"), "invalid value '1' for v"),
        (record("loss", v=True), "invalid value True for v"),
        (record("loss", kind="rumour"), "invalid value 'rumour' for kind; expected one of node, queue, session"),
        (record("loss", first=-1), "invalid value -1 for loss first; expected a whole number from 0"),
        (record("loss", first=1.0), "invalid value 1.0 for loss first"),
        (record("loss", first=True), "invalid value True for loss first"),
        (record("loss", origin="jfk"), "invalid value 'jfk' for loss origin; expected a UUID"),
        (record("loss", reason=7), "invalid value 7 for loss reason; expected a text"),
        (record("loss", t="yesterday"), "invalid value 'yesterday' for loss t; expected a time in ISO 8601, UTC"),
        (record("loss", t="2013-01-01T05:15:00"), "for loss t; expected a time"),
        (record("loss", t=5), "invalid value 5 for loss t"),
        (record("loss", uptime_s=-0.5), "invalid value -0.5 for loss uptime_s; expected a number from 0"),
        (record("queue", in_per_s=float("nan")), "invalid value nan for queue in_per_s"),
        (record("queue", in_per_s=float("inf")), "invalid value inf for queue in_per_s"),
        (record("queue", in_per_s=10**400), "invalid value 1000"),
        (
            record("node", event="paused"),
            "invalid value 'paused' for node event; expected one of started, running, stopped",
        ),
        (record("message", event="lost"), "invalid value 'lost' for message event"),
        (record("loss", reason=["x" * 500]), "… for loss reason; expected a text"),
        ([], "invalid list; expected a JSON object"),
        (None, "invalid NoneType; expected a JSON object"),
    ],
)
def test_what_is_refused_is_named_with_what_is_accepted(changed: object, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=re.escape(message)) as refused:
        validate(changed)
    assert refused.value.condition == "amqp:decode-error"
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("line", [b"", b"{", b"\xff\xfe{}", "[" * 60_000, b"x" * 70_000, b"nan"])
def test_a_line_that_is_no_record_is_refused(line: bytes | str) -> None:
    with pytest.raises(RemoteProtocolError, match="telemetry record: "):
        parse(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(kind=st.sampled_from(list(KINDS)), changes=st.dictionaries(st.text(max_size=3), JSON), data=st.data())
def test_any_object_is_read_or_refused_never_more(kind: str, changes: dict[str, Any], data: st.DataObject) -> None:
    changed = record(kind, **changes)
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(JSON)
    try:
        parsed = validate(changed)
    except RemoteProtocolError:
        return
    assert type(parsed.body) is KINDS[parsed.kind]
    assert parsed.extra.keys() <= changed.keys()


@given(st.integers(-80_000_000_000_000, 400_000_000_000_000))
def test_times_are_read_back_to_the_millisecond(moment: int) -> None:
    assert wall_ms(iso8601(moment)) == moment


def test_the_document_says_every_field_with_its_unit() -> None:
    document = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()
    for kind, shape in KINDS.items():
        section = document.split(f"## `{kind}`", 1)[1].split("\n## ", 1)[0]
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
        said = {name: (unit.strip(), "or null" in kind_of) for name, kind_of, unit in rows}
        assert said == {
            place.name: (place.metadata["unit"], place.default is None) for place in dataclasses.fields(shape)
        }
