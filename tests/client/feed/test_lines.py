"""Bytes into lines, lines into messages: whatever comes, it is a line, a message, or a mistake of one line."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.amqp.wire.performatives import Header, Properties
from holdfast.client.feed.cutting import Cut, Cutter
from holdfast.client.feed.forms import COLUMNS_MAX, Form
from holdfast.client.feed.sockets import Rate

HEADER = Header(durable=True)


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"."))), st.lists(st.integers(1, 9)))
def test_lines_are_cut_wherever_their_bytes_come_apart(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    whole = Cutter(8, 100).cut(data)
    assert [cut.line for cut in whole] == [
        (line.removesuffix(b"\r") if len(line.removesuffix(b"\r")) <= 8 else None) for line in lines
    ]
    cutter, found, at = Cutter(8, 100), [], 0
    for size in [*sizes, len(data) + 1]:
        found += cutter.cut(data[at : at + size])
        at += size
    assert found == whole and (not whole or whole[-1].end == 100 + len(data))


def test_the_bound_of_a_line_and_one_past_it() -> None:
    cutter = Cutter(4)
    assert cutter.cut(b"1234\r\n12345\n1") == [Cut(b"1234", 6), Cut(None, 12)]
    assert cutter.pending == 1 and cutter.cut(b"2345") == [] and not cutter.skips
    assert cutter.cut(b"6") == [] and cutter.skips and cutter.pending == 0
    assert cutter.cut(b"x" * 100 + b"\nok\n") == [Cut(None, 119), Cut(b"ok", 122)]


def test_each_form() -> None:
    text = Form("lines", header=HEADER, subject="s", properties={"a": "b"}).message(b"\xff", None)
    assert (text.data, text.application_properties) == ([b"\xff"], {"a": "b"})
    assert text.properties == Properties(subject="s") and text.header == HEADER
    value = Form("json", header=HEADER, subject_from="k").message(b' {"k": [1]} ', None)
    assert value.data == [b' {"k": [1]} '] and value.application_properties is None
    assert value.properties == Properties(subject="[1]", content_type="application/json")
    csv = Form("csv", header=HEADER, subject_from="b", properties={"c": "x"})
    assert csv.has_header
    names = csv.names('a,"b"'.encode("utf-8-sig"))
    row = csv.message(b'1,"2,3"', names)
    assert row.data == [b'{"a":"1","b":"2,3"}'] and row.properties is not None and row.properties.subject == "2,3"
    assert row.application_properties == {"a": "1", "b": "2,3", "c": "x"}
    given_names = Form("csv", header=HEADER, columns=["a"])
    assert not given_names.has_header and given_names.message(b"1", None).data == [b'{"a":"1"}']


@pytest.mark.parametrize(
    ("form", "line", "said"),
    [
        ("json", b"-Infinity", "invalid JSON (-Infinity is not"),
        ("json", b"{", "invalid JSON"), ("json", b"\xff", "invalid JSON"), ("json", b"[" * 9_999, "invalid JSON"),
        ("json", b"1", "there is no key 'k'"), ("json", b'{"k": "\\ud800"}', "expected text that UTF-8 can encode"),
        ("csv", b"1", "the row has 1 fields; expected 2"), ("csv", b'"', "invalid CSV"),
        ("csv", b"\xff,1", "bytes that are not text at 0"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_said_in_a_line(form: str, line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Form(form, header=HEADER, subject_from="k" if form == "json" else None).message(line, ["a", "b"])


def numbered(count: int) -> bytes:
    return ",".join(map(str, range(count))).encode()


@pytest.mark.parametrize("line", [b"a,a", b"a,", b"", b"\xff", b"x", numbered(COLUMNS_MAX + 1)])
def test_a_header_that_names_no_columns_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"header|invalid CSV"):
        Form("csv", header=HEADER, subject_from="k").names(line)
    assert len(Form("csv", header=HEADER).names(numbered(COLUMNS_MAX))) == COLUMNS_MAX


@given(st.sampled_from(["lines", "json", "csv"]), st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_any_line_is_a_message_or_a_mistake(form: str, line: bytes) -> None:
    try:
        message = Form(form, header=HEADER).message(line, ["a"])
    except ValueError as error:
        assert str(error)
    else:
        assert message.encode()
        if form == "json":
            json.loads(line)


def test_a_device_that_was_quiet_may_send_a_burst_and_then_its_rate() -> None:
    rate = Rate(10, 0.0)
    assert rate.wait_s(10, 0.0) == 0 and rate.wait_s(5, 0.0) == 0.5
    assert rate.wait_s(0, 0.5) == 0 and rate.wait_s(1, 100.0) == 0 and rate.wait_s(19, 100.0) == 1.0
