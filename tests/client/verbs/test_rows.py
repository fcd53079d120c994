"""Rows of files, pipes and generators: what each line means, and mistakes named by file and line."""

import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.verbs import rows as rows_module
from holdfast.client.verbs.rows import Generated, Row, Source
from holdfast.errors import ConfigError
from support import today


def all_rows(source: Source | Generated) -> list[Row]:
    found: list[Row] = []
    while (batch := source.batch()) is not None:
        assert 1 <= len(batch) <= rows_module.BATCH_ROWS
        found += batch
    return found


def rows_of(file: str, form: str, subject_from: str | None) -> list[Row]:
    source = Source(file, form, subject_from)
    try:
        return all_rows(source)
    finally:
        source.close()


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@given(lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))), last=st.booleans())
@settings(max_examples=today.drawn(34), deadline=None)
def test_lines_are_what_lies_between_line_feeds(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], last: bool
) -> None:
    content = b"\n".join(lines) + (b"\n" if last and lines else b"")
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "READ_BYTES", 7)
        source = Source(written(tmp_path_factory.mktemp("lines") / "f", content), "lines", None)
        assert [row.body for row in all_rows(source)] == expected
        source.close()
    assert source.bytes_read == source.size == len(content)


def test_csv_rows_are_json_with_properties(tmp_path: Path) -> None:
    text = 'origin,dest,note\nJFK,LAX,"two\nlines"\nEWR,"S,F",é\n'
    rows = rows_of(written(tmp_path / "f.csv", text.encode()), "csv", "origin")
    assert [row.subject for row in rows] == ["JFK", "EWR"]
    assert rows[0].properties == {"origin": "JFK", "dest": "LAX", "note": "two\nlines"}
    assert [json.loads(row.body) for row in rows] == [row.properties for row in rows]
    assert rows[0].content_type == "application/json" and "é".encode() in rows[1].body


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb\xbf ", b"\xef\xbb\xbf\n"])
def test_a_byte_order_mark_is_no_part_of_the_json(tmp_path: Path, mark: bytes) -> None:
    """Nor where files that begin with one are joined."""
    rows = rows_of(written(tmp_path / "f", mark + b'{"a": "x"}\n' + mark + b'{"a": "y"}\n'), "json", "a")
    assert [(row.body, row.subject) for row in rows] == [(b'{"a": "x"}', "x"), (b'{"a": "y"}', "y")]


def test_json_lines_are_bodies(tmp_path: Path) -> None:
    rows = rows_of(written(tmp_path / "f", b'{"a": 1}\n\n {"a": "x"} \r\n'), "json", "a")
    assert [(row.body, row.subject, row.properties) for row in rows] == [
        (b'{"a": 1}', "1", None),
        (b'{"a": "x"}', "x", None),
    ]


@pytest.mark.parametrize(
    ("form", "subject", "content", "said"),
    [
        ("csv", None, b"a,b\n1,2\n1\n", "line 3: the row has 1 fields; expected 2"),
        ("csv", None, b"a,a\n", "has column 'a' twice"),
        ("csv", "c", b"a,b\n", "invalid value 'c' for --subject-from; expected a column of .*: a, b"),
        ("csv", None, b"a\n\xff\n", "expected CSV in UTF-8"),
        ("csv", None, b'a\n"x\n', "expected CSV"),
        ("json", None, b'{"a": 1}\nnot\n', "line 2: invalid JSON"),
        ("json", "a", b'{"a": 1}\n[1]\n', "line 2: there is no key 'a'"),
        ("csv", None, b"", "no header; CSV begins with a line of column names"),
        ("csv", None, b"\n", "no header; CSV begins with a line of column names"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, form: str, subject: str | None, content: bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rows_of(written(tmp_path / "f", content), form, subject)


@pytest.mark.parametrize(
    ("form", "content", "good", "said"),
    [
        ("csv", b"a,b\n1,2\n3,4\n5\n6,7\n", 2, "line 4: the row has 1 fields"),
        ("csv", b"a,b\n1,2\n\xff,4\n", 1, "line 3: invalid CSV (bytes that are not text at 0)"),
        ("csv", b'a,b\n1,2\n"x"y,4\n', 1, "line 3: invalid CSV ("),
        ("json", b'{"a":1}\n{"a":2}\n{oops\n{"a":3}\n', 2, "line 3: invalid JSON (Expecting property name"),
        (
            "json",
            b'{"a":1}\n{"a" 2}\n',
            1,
            "file, line 2: invalid JSON (Expecting ':' delimiter, column 6); expected a value on each line, in UTF-8",
        ),
        (
            "json",
            b'{"a":1}\n"\xe9"\n',
            1,
            "line 2: invalid JSON (bytes that are not text at 1); expected a value on each",
        ),
        ("json", b'{"a":1}\n[1, NaN]\n', 1, "line 2: invalid JSON (NaN is not a JSON number); expected a value"),
        ("json", b'{"a":1}\n\x00\x01\xff\n', 1, "line 2: invalid JSON (bytes that are not text at 2); expected"),
        ("json", b'{"a":1}\n' + b"[" * 100_000 + b"\n", 1, "line 2: invalid JSON (nested too deep)"),
    ],
)
def test_what_goes_before_a_mistake_is_handed_over_first(
    tmp_path: Path, form: str, content: bytes, good: int, said: str
) -> None:
    source = Source(written(tmp_path / "file", content), form, None)
    rows = source.batch()
    assert rows is not None and len(rows) == good
    for _ in range(2):
        with pytest.raises(ConfigError, match=re.escape(said)):
            source.batch()
    source.close()


def test_a_csv_field_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    file = written(tmp_path / "file", b"a\n" + b"x" * 300_000 + b"\n")
    assert len(rows_of(file, "csv", None)[0].body) > 300_000


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"^/does/not/exist cannot be read .No such file"):
        Source("/does/not/exist", "lines", None)


def test_a_line_above_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(rows_module, "READ_BYTES", 10)
    assert len(rows_of(written(tmp_path / "f", bytes(100)), "lines", None)) == 1
    for before, number in ((b"", 1), (b"a\n", 2), (b"a\n" * 30, 31), (bytes(25) + b"\n", 2)):
        with pytest.raises(ConfigError) as caught:
            rows_of(written(tmp_path / "g", before + bytes(101)), "lines", None)
        advice = "send what is so large with --file, one message a file"
        assert str(caught.value) == f"{tmp_path}/g, line {number}: it has more than 100 bytes; {advice}"


def test_what_a_pipe_has_is_handed_over_before_the_next_read() -> None:
    read_end, write_end = os.pipe()
    source = Source("/dev/null", "lines", None)
    source.close()
    source._file = io.FileIO(read_end)
    os.write(write_end, b"one\ntwo\nthr")
    assert [row.body for row in source.batch() or []] == [b"one", b"two"]
    os.write(write_end, b"ee\n")
    assert [row.body for row in source.batch() or []] == [b"three"]
    os.close(write_end)
    assert source.batch() is None
    source._file.close()


@pytest.mark.parametrize(("count", "size"), [(1, 0), (3, 5), (2500, 64), (1000, 1024)])
def test_generated_bodies(count: int, size: int) -> None:
    rows = all_rows(Generated(count, size))
    assert len(rows) == count and {len(row.body) for row in rows} == {size}
    if size >= 12:
        assert [int(row.body.split()[0]) for row in rows] == list(range(1, count + 1))
