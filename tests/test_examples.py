"""Every example of TOML and Python in the documents is one that Holdfast takes: it is loaded as a user's file would be.

Rules of this file: an example that is no node's file and no topology says so by its first table; what an example names
outside itself (password files, a topology file) is made for it, in a directory of the test's own.
"""

import ast
import inspect
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.client import Connection, Sender, connect
from holdfast.node.config import load_settings
from holdfast_lab.mpls.network_file import parse_network
from holdfast_lab.plan import scenario_file
from pyspark_holdfast.job_file import read_job
from pyspark_holdfast.jobs import check_job
from pyspark_holdfast.sweep_file import read_sweep
from support.documents import FENCED, ROOT, Example, documents, examples, grammar

TABLE = re.compile(r"^\[\[?\w+\]\]?\s*(#.*)?$", re.MULTILINE)

# What a scenario must have beside the part that an example shows.
SCENARIO = """
[topology]
[[workload]]
kind = "publish"
node = "n000"
address = "flights@n001"
[[workload]]
kind = "consume"
node = "n001"
queue = "flights"
"""

# A command in a block or an indented line, up to a pipe, a redirection or the end; not what a command prints.
COMMAND = re.compile(
    r"(?:^(?:\$ | {4})?|\| |&& )(holdfast (?!\w+(?: \w+)?:)(?:(?! 2>)(?:'[^'\n]*'|[^|&<>\n]))*)", re.MULTILINE
)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
PLACEHOLDER = re.compile(r"…|\[[A-Z]|\[-")


ALL = examples()
TOMLS = [example for example in ALL if example.language == "toml"]
PYTHONS = [example for example in ALL if example.language == "python"]


def load(example: Example, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads the example as what it is; ConfigError, or a failed assertion, where it is none."""
    document: dict[str, Any] = tomllib.loads(example.text)
    monkeypatch.chdir(directory)
    if "workload" in document:
        scenario_file.parse(example.text, "example")
        return
    if "grid" in document:
        file = directory / "sweep.toml"
        file.write_text(example.text)
        assert read_sweep(str(file))
        return
    if "sink" in document:
        file = directory / "job.toml"
        (directory / "password").write_text("secret\n")
        file.write_text(re.sub(r'^passwordFile = ".+"', 'passwordFile = "password"', example.text, flags=re.MULTILINE))
        check_job(read_job(str(file)))
        return
    if "vpn" in document:
        parse_network("example", example.text)
        return
    if "network" in document:
        scenario_file.parse(SCENARIO + example.text, "example")
        return
    text = example.text
    for given in re.findall(r'^password_file = "(.+)"', text, re.MULTILINE):
        own = directory / Path(given).name
        own.write_text("secret\n")
        text = text.replace(f'"{given}"', f'"{own}"')
    for table in re.findall(r'file = "([^"/]+\.csv)"', text):
        (directory / table).write_text("tag,pallet\n1,a\n")
    file = directory / "example.toml"
    file.write_text(text)
    links = document.get("link", ())  # between queues they have names
    if isinstance(document.get("node"), list) or any("name" not in link for link in links):
        assert cli.main(["topology", "check", str(file)]) == 0
        return
    load_settings(file)


def test_there_are_some() -> None:
    assert {example.place.partition(":")[0] for example in TOMLS} >= {
        "README.md", "docs/configuration.md", "docs/topology.md", "docs/simulator.md",
    }  # fmt: skip
    assert {example.place.partition(":")[0] for example in PYTHONS} >= {"docs/client.md", "docs/spark.md"}


def test_every_toml_is_marked_as_toml() -> None:
    """Else it would not be looked at below."""
    assert [example.place for example in ALL if not example.language and TABLE.search(example.text)] == []


@pytest.mark.parametrize("example", TOMLS, ids=lambda example: str(example.place))
def test_an_example_of_toml_is_accepted(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load(example, tmp_path, monkeypatch)
    assert capsys.readouterr().err == "", "an example has no mistake, and nothing to be warned of"


def test_the_topology_commands_print_what_the_document_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the file that stands above them."""
    (tmp_path / "topology.toml").write_text(next(one.text for one in TOMLS if one.place.startswith("docs/topology.md")))
    monkeypatch.chdir(tmp_path)
    shown = [one.text for one in ALL if one.place.startswith("docs/topology.md") and one.text.startswith("$ ")]
    assert len(shown) == 1
    for command in re.split(r"^\$ ", shown[0], flags=re.MULTILINE)[1:]:
        line, _, printed = command.partition("\n")
        assert cli.main(line.split()[1:]) == 0
        assert capsys.readouterr() == (printed, "")


def commands() -> list[tuple[str, str]]:
    found = []
    for path in documents():
        document = (ROOT / path).read_text(encoding="utf-8")
        code = [block[2] for block in FENCED.finditer(document) if block[1] in ("", "sh")]
        code += INDENTED.findall(FENCED.sub("", document))
        lines = [line for text in code for line in COMMAND.findall(text) if not PLACEHOLDER.search(line)]
        found += [(path.name, line.strip()) for line in lines]
    return found


@pytest.mark.parametrize(("document", "line"), sorted(set(commands())))
def test_a_command_of_the_documents_is_one(document: str, line: str) -> None:
    """As far as the grammar says: it is not run."""
    arguments = shlex.split(line.replace("\\\n", " "), comments=True)[1:]
    grammar().parse_args(arguments)


@pytest.mark.parametrize("example", PYTHONS, ids=lambda example: str(example.place))
def test_an_example_of_python_is_python_and_imports_what_there_is(example: Example) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    tree = compile(example.text, example.place, "exec", flags=flags)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    exec(compile(ast.Module(imports, type_ignores=[]), example.place, "exec"), {})


def test_signatures_that_the_client_s_document_shows_are_so() -> None:
    """Those that begin a paragraph: names of arguments, and defaults; `…` stands for others."""
    shown = re.findall(r"\n\n`(\w+\(.+)\)`", (ROOT / "docs/client.md").read_text(encoding="utf-8"))
    known = {"connect": connect} | {name: getattr(kind, name) for kind in (Connection, Sender) for name in vars(kind)}
    assert len(shown) >= 3
    for text in shown:
        call = ast.parse(f"{text.removesuffix(', …')})", mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        parameters = inspect.signature(known[call.func.id]).parameters
        assert {argument.id for argument in call.args if isinstance(argument, ast.Name)} <= set(parameters)
        for keyword in call.keywords:
            assert parameters[str(keyword.arg)].default == ast.literal_eval(keyword.value), f"{text}: {keyword.arg}"
