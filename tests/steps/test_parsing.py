"""What a link's `steps` may say, and each mistake in one line (docs/links.md, "Steps")."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.amqp.wire.types import Ulong
from holdfast.errors import ConfigError
from holdfast.steps import parsing, tables
from holdfast.text_files import read_text


def steps(*told: Any) -> list[str]:
    return [step.kind for step in parsing.steps_of(parsing.as_text(told, "link 'l'"), "link 'l'")]


GOOD: list[dict[str, Any]] = [
    {"select": "rssi > -60"},
    {"drop_repeats": {"key": "tag", "within_s": 5}},
    {"aggregate": {"key": "body.tag", "within_s": 0.5, "of": "count"}},
    {"aggregate": {"key": "tag", "field": "rssi", "within_s": 60, "of": "mean"}},
    {"convert": {"from": "csv", "to": "json"}},
    {"properties": {"drop": ["a"]}},
    {"lookup": {"key": "amqp.subject", "value": "place", "table": {"a": "b"}, "default": ""}},
]


def test_names_of_an_aggregate_may_have_256_bytes() -> None:
    assert steps({"aggregate": {"key": "t" * 256, "field": "f" * 256, "within_s": 1, "of": "last"}}) == ["aggregate"]


def test_all_kinds() -> None:
    kinds = ["select", "drop_repeats", "aggregate", "aggregate", "convert", "properties", "lookup"]
    assert steps(*GOOD) == kinds and set(kinds) == {parsing.SELECT, *parsing.STEPS} and steps() == []


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (3, "invalid value 3 for link 'l' step 1; expected a table with one key, its kind"),
        ({}, "invalid value {} for link 'l' step 1; expected a table with one key, its kind"),
        ({"sort": {}}, "unknown key 'sort' in link 'l' step 1; expected one of select, drop_repeats, aggregate, "
         "convert, properties, lookup"),
        ({"select": 1}, "invalid value 1 for link 'l' step 1 select; expected a selector in quotes"),
        ({"select": "a >"}, "invalid selector of link 'l' step 1 select: "),
        ({"convert": "csv"}, "invalid value 'csv' for link 'l' step 1 convert; expected a table"),
        ({"convert": {"from": "csv"}}, "link 'l' step 1 convert has no to; expected one of csv, json, map"),
        ({"convert": {"from": "csv", "to": "xml"}},
         "invalid value 'xml' for link 'l' step 1 convert to; expected one of csv, json, map"),
        ({"convert": {"from": "csv", "to": "csv"}},
         "invalid value 'csv' for link 'l' step 1 convert to; expected another format than from"),
        ({"drop_repeats": {"key": "tag"}}, "link 'l' step 1 drop_repeats has no within_s; expected a number"),
        ({"drop_repeats": {"key": "tag", "within_s": 0}},
         "invalid value 0 for link 'l' step 1 drop_repeats within_s; expected a number of seconds from "
         "0.001 to 31622400"),
        ({"drop_repeats": {"key": "tag", "within_s": 31_622_401}}, "invalid value 31622401 for link 'l' step 1"),
        ({"drop_repeats": {"key": "JMSNothing", "within_s": 1}},
         "invalid value 'JMSNothing' for link 'l' step 1 drop_repeats key: "),
        ({"drop_repeats": {"kee": "tag", "within_s": 1}},
         "unknown key 'kee' in link 'l' step 1 drop_repeats; expected one of key, within_s; did you mean key?"),
        ({"aggregate": {"key": "t" * 257, "within_s": 1, "of": "count"}},
         f"invalid value '{'t' * 60}'…; expected a name of at most 256 bytes for link 'l' step 1 aggregate key or"),
        ({"aggregate": {"key": "tag", "within_s": 1, "of": "sum"}},
         "invalid value 'sum' for link 'l' step 1 aggregate of"),
        ({"aggregate": {"key": "tag", "within_s": 1, "of": "mean"}}, "link 'l' step 1 aggregate has no field; add one"),
        ({"aggregate": {"key": "tag", "within_s": 1, "of": "count", "field": "a"}},
         "link 'l' step 1 aggregate has a field, and counts messages; remove it"),
        ({"aggregate": {"key": "tag", "within_s": 1, "of": "mean", "field": "body.tag"}},
         "invalid value 'tag' for link 'l' step 1 aggregate key or field; expected a name that differs"),
        ({"aggregate": {"key": "ends", "within_s": 1, "of": "count"}}, "invalid value 'ends' for link 'l' step 1"),
        ({"properties": {}}, "link 'l' step 1 properties changes nothing; expected add, rename or drop"),
        ({"properties": {"add": {"a": [1]}}}, "invalid value { a = [1] } for link 'l' step 1 properties add"),
        ({"properties": {"add": {"a": 2**63}}}, "invalid value 9223372036854775808 "),
        ({"lookup": {"key": "a", "value": "b"}},
         "link 'l' step 1 lookup has no table; expected a table of at most 10000"),
        ({"lookup": {"key": "a", "value": "b", "table": {"a": 1}}},
         "invalid value { a = 1 } for link 'l' step 1 lookup"),
    ],
)  # fmt: skip
def test_mistakes(step: Any, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        steps(step)
    assert str(raised.value).startswith(line) and "\n" not in str(raised.value)


def test_how_many_steps_and_how_large() -> None:
    assert len(steps(*[GOOD[0]] * parsing.STEPS_MAX)) == 16
    with pytest.raises(ConfigError, match="link 'l' has 17 steps; the limit is 16"):
        steps(*[GOOD[0]] * 17)
    rows = {str(number): "" for number in range(parsing.TABLE_ROWS_MAX)}
    assert steps({"lookup": {"key": "a", "value": "b", "table": rows}}) == ["lookup"]
    with pytest.raises(ConfigError, match="expected a table of at most 10000 texts"):
        steps({"lookup": {"key": "a", "value": "b", "table": rows | {"x": ""}}})
    with pytest.raises(ConfigError, match="the limit is 524288"):
        steps({"lookup": {"key": "a", "value": "b", "table": {"a": "x" * parsing.STEPS_BYTES_MAX}}})


@pytest.mark.parametrize("told", ["steps", 3, None, {"select": "TRUE"}])
def test_no_list(told: object) -> None:
    with pytest.raises(ConfigError, match="expected a list of tables"):
        parsing.as_text(told, "link 'l'")


def test_what_json_has_not() -> None:
    for value in (b"x", float("nan"), object()):
        with pytest.raises(ConfigError, match="invalid steps of link 'l'; expected texts, numbers, lists and tables"):
            parsing.as_text([{"properties": {"add": {"a": value}}}], "link 'l'")
    assert parsing.as_text([{"drop_repeats": {"within_s": Ulong(5), "key": "tag"}}], "") == parsing.as_text(
        [GOOD[1]], ""
    )


def test_a_table_file(tmp_path: Path) -> None:
    file = tmp_path / "tags.csv"
    told = [{"lookup": {"key": "tag", "value": "place", "file": str(file)}}, GOOD[0]]

    def read() -> Any:
        return tables.with_tables(told, "link 'l'", read_text)

    with pytest.raises(ConfigError, match=r"step 1 lookup file '.*' cannot be read \(No such file or directory\)"):
        read()
    file.write_text("\ufefftag,owner,place\na,x,gate 1\n\nb,y,gate 2\n")
    assert read() == [{"lookup": {"key": "tag", "value": "place", "table": {"a": "gate 1", "b": "gate 2"}}}, GOOD[0]]
    for text, why in (
        ("tag,owner\n", "has no column 'place' behind the first; expected one of owner"),
        ("", "expected one of a header with two columns or more"),
        ("tag,place\na\n", "row 2 has 1 fields; expected 2, as in the header"),
        ("tag,place\na,1\na,2\n", "row 3 has the key 'a' again; list it once"),
        ('tag,place\n"a"b,1\n', "is no CSV"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as raised:
            read()
        assert why in str(raised.value)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not in UTF-8"):
        read()
    file.write_bytes(b"x" * (tables.FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="has more than 4194304 bytes"):
        read()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"file": "f", "table": {}, "value": "x"}, "has a table and a file; remove one"),
        ({"file": 3, "value": "x"}, "invalid value 3 for link 'l' step 1 lookup file; expected the name of a CSV file"),
        ({"file": "f"}, "has no value; expected the name of a column"),
    ],
)
def test_mistakes_beside_a_file(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tables.with_tables([{"lookup": given}], "link 'l'", read_text)
    assert why in str(raised.value)
    assert tables.with_tables("x", "", read_text) == "x"
