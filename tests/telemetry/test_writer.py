"""Lines as the writer makes them are what the reader accepts, whatever a peer put into them."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import LocalProtocolError
from holdfast.telemetry.records import Message, Session, parse
from holdfast.telemetry.writer import TEXT_MAX, line

STORE = UUID("6f1c5f1e-3a0b-4b7f-9f38-0d9c6a2b7e11")
LOSS = {"origin": STORE, "first": 3, "last": 9, "reason": "skipped"}


def write(kind: str, fields: dict[str, Any]) -> bytes:
    return line(kind, fields, node="ewr", wall_ms=1_357_017_300_000, uptime_s=12.34567)


def test_a_line_has_the_common_fields_first_and_nothing_to_spare() -> None:
    assert write("loss", LOSS) == (
        b'{"v":1,"kind":"loss","t":"2013-01-01T05:15:00.000Z","node":"ewr","uptime_s":12.346,'
        b'"origin":"6f1c5f1e-3a0b-4b7f-9f38-0d9c6a2b7e11","first":3,"last":9,"reason":"skipped"}\n'
    )


def test_times_and_identifiers_of_every_amqp_type_become_text() -> None:
    for message_id, expected in ((7, "7"), (STORE, str(STORE)), (b"\x00\xff", "00ff"), ("é", "é")):
        parsed = parse(
            write(
                "message",
                {
                    "event": "stored",
                    "queue": "flights",
                    "message_id": message_id,
                    "created": -1,
                    "wall": 1_357_017_300_001,
                },
            )
        ).body
        assert isinstance(parsed, Message)
        assert parsed.message_id == expected
        assert (parsed.created, parsed.wall) == ("1969-12-31T23:59:59.999Z", "2013-01-01T05:15:00.001Z")


def test_fields_beyond_the_schema_are_written_too() -> None:
    assert parse(write("loss", {**LOSS, "queue": "flights"})).extra == {"queue": "flights"}


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("rumour", {}, "invalid telemetry kind 'rumour'; expected one of node"),
        ("loss", {"origin": STORE, "first": 1}, "telemetry loss: last, reason missing"),
        ("loss", {**LOSS, "node": "other"}, "field 'node' is common"),
        ("loss", {**LOSS, "extra": float("nan")}, "telemetry loss: "),
        ("loss", {**LOSS, "extra": object()}, "telemetry loss: "),
    ],
)
def test_a_wrong_record_is_our_own_defect(kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        write(kind, fields)


@given(reason=st.text(st.characters()), name=st.text(st.characters(codec=None), max_size=20))
def test_whatever_text_comes_a_line_stays_one_line(reason: str, name: str) -> None:
    written = write("session", {"neighbour": name, "state": "Idle", "reason": reason * 100})
    assert written.count(b"\n") == 1
    assert written.endswith(b"}\n")
    assert max(written) < 128
    assert json.loads(written)["neighbour"] == name
    body = parse(written).body
    assert isinstance(body, Session)
    assert body.reason == (reason * 100)[:TEXT_MAX]
