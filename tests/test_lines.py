"""What verbs print: nothing in another's text moves a terminal's cursor, turns a line round or begins another one."""

import ast
import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from holdfast.client.verbs.status_lines import status_lines
from holdfast.client.verbs.where import lines_of
from holdfast.columns import table
from holdfast.lines import YELLOW, json_line, one_line, painted, say
from holdfast_lab.base.progress import Progress
from support.packages import LAB, SPARK, module_path
from support.screen import Screen

PACKAGE = Path(holdfast.__file__).parent
NASTY = ["\x1b[2J", "\x9b2J", "\u202e", "\u2028", "\r", "\nwarning: none", "\x85", "\x7f"]
"""What clears a screen (by ESC and by a C1 character), turns text round, ends a line, or goes back in it."""

OURS = ("holdfast", "pyspark_holdfast")
"""What the names of our packages begin with."""
GRAMMAR = [*sorted((PACKAGE / "cli").glob("*.py")), LAB / "verbs.py", SPARK / "verbs.py"]
IMPORTS = [
    node
    for path in GRAMMAR
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith(OURS)
]
VERBS = sorted(
    {
        *GRAMMAR,
        *(PACKAGE / "client" / "verbs").glob("*.py"),
        *(Path(str(find_spec(str(node.module)).origin)) for node in IMPORTS),  # type: ignore[union-attr]  # it is there
    }
)
"""Modules of the command line, and all of ours that it imports, now or when a verb runs."""
DRAWS = {"Progress", "_Bar", "_draw", "_end_line", "_erase", "say"}
"""Classes and functions that draw a line anew or in colour, of text that they escape; and `say` itself."""


@pytest.mark.parametrize("nasty", NASTY)
def test_a_line_is_one_line_and_prints(nasty: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"node {nasty!s} é", "next")
    out = capsys.readouterr().out
    assert out.count("\n") == 2 and out.endswith("\nnext\n") and out.replace("\n", "").isprintable()


def test_a_colour_is_for_a_terminal() -> None:
    lines, screen = io.StringIO(), Screen()
    for file in (lines, screen):
        say(painted("warning: \x1b[2J", YELLOW), "plain", file=file)
    assert lines.getvalue() == "warning: \\u001b[2J\nplain\n"
    assert screen.getvalue() == "\x1b[33mwarning: \\u001b[2J\x1b[0m\nplain\n"


def test_what_prints_is_left_as_it_is() -> None:
    assert one_line("naïve 東京 'x\\y'") == "naïve 東京 'x\\y'"
    assert one_line("naïve\x1b[2J\n東京") == "naïve\\u001b[2J\\n東京"
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


@pytest.mark.parametrize("nasty", NASTY)
def test_a_bar_is_one_line(nasty: str) -> None:
    lines, bar = io.StringIO(), Screen()
    with Progress(lines, bar) as progress:
        progress.show(1, 2, f"scenario {nasty}")
        progress.say(f"node {nasty}")
    drawn = bar.getvalue().replace("\r\x1b[K", "")
    assert drawn.isprintable() and lines.getvalue().rstrip("\n").isprintable()


@pytest.mark.parametrize("nasty", NASTY)
def test_a_mistake_on_the_command_line_is_one_line(nasty: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["status", f"--x{nasty}"],
        [f"verb{nasty}"],
        ["send", "q", "--count", nasty],
        ["status", nasty],
    ):
        with pytest.raises(SystemExit):
            main(words)
        said = capsys.readouterr().err
        assert said.endswith("\n") and said[:-1].isprintable()


def test_every_verb_is_looked_at() -> None:
    found = {module_path(path) for path in VERBS}
    assert {
        "holdfast_lab/real/fleet.py",
        "holdfast_lab/sim_commands.py",
        "node/command.py",
        "storage/commands.py",
    } <= found
    assert {"client/verbs/send.py", "holdfast_lab/demo/command.py", "node/topology_commands.py"} <= found
    assert "pyspark_holdfast/commands.py" in found


@pytest.mark.parametrize("path", VERBS, ids=module_path)
def test_verbs_print_by_say_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    draws = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in DRAWS]
    drawn = {node for found in draws for node in ast.walk(found)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in drawn]
    assert not [call.lineno for call in calls if _prints(call)]


def _prints(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id="print") | ast.Attribute(value=ast.Attribute(attr="stdout" | "stderr"), attr="write"):
            return True
    return False
