"""What verbs print: nothing in another's text moves a terminal's cursor, turns a line round or begins another one."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.client.verbs.status_lines import status_lines
from holdfast.client.verbs.where import lines_of
from holdfast.columns import table
from holdfast.lines import json_line, one_line, say

PACKAGE = Path(holdfast.__file__).parent
NASTY = ["\x1b[2J", "\x9b2J", "\u202e", "\u2028", "\r", "\nwarning: none", "\x85", "\x7f"]
"""What clears a screen (by ESC and by a C1 character), turns text round, ends a line, or goes back in it."""

VERBS = [
    *sorted((PACKAGE / "client" / "verbs").glob("*.py")),
    *sorted((PACKAGE / "cli").glob("*.py")),
    *(PACKAGE / part for part in ("node/command.py", "node/topology_commands.py", "storage/commands.py")),
]
BAR = "Progress"
"""Draws a line anew, of numbers alone."""


@pytest.mark.parametrize("nasty", NASTY)
def test_a_line_is_one_line_and_prints(nasty: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"node {nasty!s} é", "next")
    out = capsys.readouterr().out
    assert out.count("\n") == 2 and out.endswith("\nnext\n") and out.replace("\n", "").isprintable()


def test_what_prints_is_left_as_it_is() -> None:
    assert one_line("naïve 東京 'x\\y'") == "naïve 東京 'x\\y'"
    assert json_line({"ü": "東京"}) == '{"ü": "東京"}'


@pytest.mark.parametrize("nasty", [*NASTY, "\U000e0041"])
def test_json_says_the_same_and_prints(nasty: str) -> None:
    line = json_line({f"key{nasty}": [f"ü{nasty}"]}, separators=(",", ":"))
    assert line.isprintable() and "ü" in line
    assert json.loads(line) == {f"key{nasty}": [f"ü{nasty}"]}


@pytest.mark.parametrize("nasty", NASTY)
def test_a_row_of_a_table_is_one_line(nasty: str) -> None:
    lines = table(("name", f"n{nasty}"), [(f"a{nasty}b", 1), ("c", None)])
    assert len(lines) == 3 and all(line.isprintable() for line in lines)


@pytest.mark.parametrize("nasty", NASTY)
def test_status_and_where_print_what_others_say(nasty: str, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, Any] = {
        "node": f"hub{nasty}",
        "warnings": [f"a node 'x{nasty}' tried to be a neighbour"],
        "queues": [{"name": f"work{nasty}", "messages": 1}],
        "sessions": [{"neighbour": f"jfk{nasty}", "reason": nasty}],
    }
    say(*status_lines(told))
    step = {"node": f"a{nasty}", "state": f"queued{nasty}", "reason": nasty}
    answer = {"message_id": nasty, "found": True, "state": step["state"], "path": [step], "steps": [step]}
    say(*lines_of(answer))
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable() and out.count("\n") == 10 + 5


@pytest.mark.parametrize("path", VERBS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_verbs_print_by_say_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == BAR]
    drawn = {node for found in classes for node in ast.walk(found)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in drawn]
    assert not [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
