"""What the documents say of links, files, make targets, commands, options, keys and errors is so.

Rules of this file: nothing is listed here that the code can tell: verbs and options come from the parser, keys from the
tables of a node's file and of a topology, targets from the Makefile, texts of errors from the source. `…` in a document
stands for what differs from case to case.
"""

import argparse
import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast.node import config_schema
from holdfast.routing import topology
from support.documents import ROOT, documents, grammar
from support.packages import MODULES

PACKAGE = Path(holdfast.__file__).parent
DOCUMENTS = [path.as_posix() for path in documents() if path.parts[:2] not in (("docs", "adr"), ("docs", "results"))]
"""All but decisions and results, which tell of what there was when they were written."""
LINE_MAX = 120
EXTRAS = ("[demo]",)
"""What pip installs with Holdfast; written as a table of TOML is."""
SCRIPTS = ("benchmarks", "tools", "tests")
WITHOUT_KEYS = {"docs/simulator.md", "docs/mpls.md", "docs/spark.md"}
"""Their TOML is of scenarios, sweeps, networks and jobs: tests/test_examples.py reads each with its own parser."""
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDER = re.compile(r"[A-Z@…'$][\w@…'$-]*")
"""A word of a command that stands for another: QUEUE, MESSAGE-ID, '$dead-letters'."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block: its document, what it is written in, and its text."""

    document: str
    language: str
    text: str


def blocks(name: str) -> list[Block]:
    return [Block(name, found[2], found[3]) for found in FENCED.finditer(text_of(name))]


def prose(text: str) -> str:
    """Without its fenced blocks."""
    return FENCED.sub("", text)


# ------------------------------------------------------------------------------------------------------ links


def slugs_of(text: str) -> set[str]:
    """Anchors of a document's headings, as hosts of repositories make them."""
    found: dict[str, int] = {}
    slugs = set()
    for heading in re.findall(r"^#{1,6} (.+)$", prose(text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        slugs.add(f"{slug}-{count}" if count else slug)
    return slugs


def broken_links(path: Path) -> list[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    broken = []
    for target in LINK.findall(SPAN.sub("", prose(text))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        found = (ROOT / path).parent / name if name else ROOT / path
        if not found.exists() or (
            anchor and found.suffix == ".md" and anchor not in slugs_of(found.read_text(encoding="utf-8"))
        ):
            broken.append(target)
    return broken


@pytest.mark.parametrize("path", documents(), ids=str)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    assert broken_links(path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.md").write_text("# One `two`\n[x](b.md) [y](#one-two) [z](#three) [w](https://example.org)\n")
    assert broken_links(Path("a.md")) == ["b.md", "#three"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_that_is_named_is_there(name: str) -> None:
    """And every test that is named by its file; a word in capitals stands for another."""
    text = text_of(name)
    words = [
        word
        for piece in [*SPAN.findall(prose(text)), *(block.text for block in blocks(name))]
        for word in piece.split()
    ]
    named = [word for word in words if re.match(r"(src|tests|docs|tools|benchmarks|\.ci)/\S", word)]
    paths = [word.partition("::") for word in named if not re.search(r"/[A-Z]+/", word)]
    assert [path for path, _, _ in paths if not (ROOT / path).exists()] == []
    assert [test for path, _, test in paths if test and f"def {test}(" not in text_of(path)] == []


def test_the_index_names_every_document() -> None:
    named = {target.partition("#")[0] for target in LINK.findall(text_of("docs/index.md"))}
    documents = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert documents - named == set()


def test_every_term_of_the_glossary_is_linked_and_in_order() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text_of("docs/glossary.md"), re.MULTILINE)[1:]
    terms = [term for term, _ in rows]
    assert len(terms) > 40 and terms == sorted(terms, key=str.lower)
    assert [term for term, meaning in rows if not LINK.search(meaning)] == []


def test_what_is_said_of_other_products_has_its_source() -> None:
    """Each line of the comparison's lists, but conditions, which say nothing of a product."""
    text = text_of("docs/comparison.md")
    products = re.findall(r"^## (?:RabbitMQ|NATS|ActiveMQ|Kafka|Qpid).*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(products) == 5
    for section in products:
        said = section[section.index("documentation says:") : section.index("is the better choice")]
        items = re.split(r"^- ", said, flags=re.MULTILINE)[1:]
        assert len(items) >= 4
        assert [item for item in items if "](https://" not in item] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_lines_are_short(name: str) -> None:
    """But rows of tables, what programs print, and addresses."""
    lines = prose(text_of(name)).splitlines()
    assert [line for line in lines if len(line) > LINE_MAX and not line.startswith("|") and "](http" not in line] == []


# ------------------------------------------------------------------------------------------------------- make


def targets() -> set[str]:
    found = re.search(r"^\.PHONY: (.+)$", text_of("Makefile"), re.MULTILINE)
    assert found is not None
    return set(found[1].split())


def made(text: str) -> list[str]:
    """Targets that are named behind `make`, in blocks and between backticks."""
    code = [found[3] for found in FENCED.finditer(text)] + SPAN.findall(prose(text))
    return [target for piece in code for target in re.findall(r"(?:^|\n| )make ([a-z][\w-]*)", piece)]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_is_in_the_makefile(name: str) -> None:
    assert set(made(text_of(name))) - targets() == set()


def test_the_targets_that_are_named_are_found() -> None:
    assert {"setup", "demo"} <= set(made(text_of("README.md")))
    assert targets() - set(made(text_of("CONTRIBUTING.md"))) <= {"peers", "demo", "constraints", "clean"}


# --------------------------------------------------------------------------------------------------- commands


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers behind its verbs or actions that help lists; empty where there are none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {choice.dest: action.choices[choice.dest] for choice in action._choices_actions}
    return {}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for below in actions_of(parser).values():
        yield from parsers(below)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """What help lists."""
    return {
        name for action in parser._actions if action.help is not argparse.SUPPRESS for name in action.option_strings
    }


@cache
def all_options() -> frozenset[str]:
    return frozenset(name for parser in parsers(grammar()) for name in options_of(parser))


def complaint(command: str) -> str | None:
    """What is wrong with a command that is named, whole or in part: `holdfast queue list --json`; None if nothing."""
    parser = grammar()
    try:
        words = shlex.split(command)
    except ValueError:  # a part of one, cut within quotes
        words = command.split()
    for word in words[1:]:
        if word.startswith("--"):
            if word not in options_of(parser):
                return f"{parser.prog}: no option {word}"
        elif actions_of(parser):
            if word not in actions_of(parser):
                return None if PLACEHOLDER.fullmatch(word) else f"{parser.prog}: no {word}"
            parser = actions_of(parser)[word]
    return None


def commands_in(name: str) -> list[str]:
    """Lines of shell blocks that begin with `holdfast`, up to a redirection, a pipe or the end."""
    text = "\n".join(WRITTEN.sub("", block.text) for block in blocks(name) if block.language == "sh")
    return [line.strip() for line in re.findall(r"^ *(holdfast (?:(?! 2>)[^|&<>#\n])*)", text, re.MULTILINE)]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_that_is_shown_is_accepted(name: str) -> None:
    for line in commands_in(name):
        if "--help" not in line:
            grammar().parse_args(shlex.split(line)[1:])
        assert complaint(line) is None


@cache
def script_options() -> frozenset[str]:
    """Those of scripts beside the package, and of the tests, as their sources write them."""
    sources = (path.read_text(encoding="utf-8") for place in SCRIPTS for path in (ROOT / place).rglob("*.py"))
    return frozenset(option for source in sources for option in re.findall(r'"(--[a-z][a-z-]+)"', source))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_verb_and_option_that_is_named_is_there(name: str) -> None:
    spans = SPAN.findall(prose(text_of(name)))
    named = [complaint(span) for span in spans if span.startswith("holdfast ")]
    assert [found for found in named if found is not None] == []
    options = {span for span in spans if re.fullmatch(r"--[a-z][a-z-]+", span)}
    assert options - all_options() - script_options() == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_script_that_python_is_to_run_is_there(name: str) -> None:
    """By its path, or as a module; or a block of the document writes it."""
    text = text_of(name)
    code = [*SPAN.findall(prose(text)), *(block.text for block in blocks(name))]
    written = {file for block in blocks(name) for file, _ in WRITTEN.findall(block.text)}
    for piece in code:
        for module in re.findall(r"\bpython -m ([\w.]+)", piece):
            assert find_spec(module) is not None, module
        for script in re.findall(r"\bpython ([\w/.]+\.py)", piece):
            assert script in written or (ROOT / script).exists(), script


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("holdfast send q --stall-timeout 3", None),
        ("holdfast queue delete @NODE", None),
        ("holdfast --version", None),
        ("holdfast VERB --help", None),
        ("holdfast sned q", "holdfast: no sned"),
        ("holdfast queue move a b", "holdfast queue: no move"),
        ("holdfast receive q --slector x", "holdfast receive: no option --slector"),
    ],
)
def test_a_command_that_is_none_is_found(command: str, found: str | None) -> None:
    assert complaint(command) == found


# ------------------------------------------------------------------------------------------------------- keys


@cache
def tables() -> dict[str, frozenset[str]]:
    """By how a table is written in TOML, its keys: of a node's file, and of a topology's."""
    found = {f"[{name}]": set(keys) for name, keys in config_schema.TABLES.items()}
    found |= {f"[[{name}]]": set(keys) for name, keys in config_schema.LISTS.items()}
    found |= {"[[node]]": set(topology._NODE), "[[link]]": found["[[link]]"] | set(topology._LINK)}
    return {name: frozenset(keys) for name, keys in found.items()}


@cache
def all_keys() -> frozenset[str]:
    return frozenset(key for keys in tables().values() for key in keys)


def tomls(name: str) -> list[str]:
    """Blocks of TOML, and files of TOML that a shell block writes."""
    found = blocks(name)
    written = [text for block in found for file, text in WRITTEN.findall(block.text) if file.endswith(".toml")]
    return [block.text for block in found if block.language == "toml"] + written


def unknown_keys(text: str) -> list[str]:
    unknown = []
    for name, value in tomllib.loads(text).items():
        written, entries = (f"[[{name}]]", value) if isinstance(value, list) else (f"[{name}]", [value])
        keys = tables().get(written, frozenset())
        unknown += [f"{written} {key}" for entry in entries for key in entry if key not in keys]
        unknown += [written] if written not in tables() else []
    return unknown


def misnamed(span: str) -> str | None:
    """What is wrong with what a span between backticks says of a table or a key; None where nothing is."""
    table = None if span in EXTRAS else re.match(r"\[\[?[a-z_]+\]\]?(?= |$)", span)
    if table is not None:
        if table[0] not in tables():
            return f"no table {table[0]}"
        key = re.match(r"\w+", span[table.end() :].strip())
        return None if key is None or key[0] in tables()[table[0]] else f"{table[0]} has no {key[0]}"
    given = re.match(r'(\w+) = (?:"|\d|true|false|\[)', span)
    return None if given is None or given[1] in all_keys() else f"no key {given[1]}"


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in WITHOUT_KEYS])
def test_every_key_in_toml_and_in_the_text_is_in_the_schema(name: str) -> None:
    text = re.sub(r"^### Removed$.*?(?=^##)", "", prose(text_of(name)), flags=re.MULTILINE | re.DOTALL)
    assert [key for block in tomls(name) for key in unknown_keys(block)] == []
    assert [found for found in map(misnamed, SPAN.findall(text)) if found is not None] == []


def test_there_is_toml_to_look_at() -> None:
    assert len(tomls("README.md")) == 4


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/troubleshooting.md", "docs/concepts.md"])
def test_words_with_a_bound_s_ending_are_keys(name: str) -> None:
    named = {span for span in SPAN.findall(prose(text_of(name))) if re.fullmatch(r"[a-z_]+_(max|s|bytes)", span)}
    assert named and named - all_keys() == set()


@pytest.mark.parametrize(
    ("span", "found"),
    [
        ("[limits] streams_max", None),
        ("[[user]]", None),
        ('when_full = "block"', None),
        ("[limits] stream_max", "[limits] has no stream_max"),
        ("[[users]]", "no table [[users]]"),
        ('when_ful = "block"', "no key when_ful"),
        ("[pipeline]", "no table [pipeline]"),
        ("[demo]", None),
    ],
)
def test_a_key_that_is_none_is_found(span: str, found: str | None) -> None:
    assert misnamed(span) == found
    assert unknown_keys("[node]\nnames = 'x'\n[[user]]\nname = 'y'\n[user_]\n") == ["[node] names", "[user_]"]


# ----------------------------------------------------------------------------------------------------- errors


@cache
def constants() -> str:
    """All texts of the source, one after the other; of a text with holes each part between two holes."""
    texts = [
        node.value
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return "\0".join(texts)


def parts_of(line: str) -> list[str]:
    """What of an error's line is to stand in the source: between `…`, split where the source joins two texts."""
    line = re.sub(r"^holdfast \w+: ", "", line)
    pieces = [part for whole in line.split("…") for part in re.split(r"(?<=[;:.]) |, (?=or )", whole)]
    return [part.strip(" ;:.,()") for part in pieces if len(part.strip(" ;:.,()")) > 3]


def untold(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in parts_of(line) if part not in constants()]


def test_every_error_that_is_shown_is_a_text_of_the_source() -> None:
    shown = [block.text for block in blocks("docs/troubleshooting.md") if block.language == "text"]
    assert len(shown) > 20
    assert [part for text in shown for part in untold(text)] == []


def test_an_error_that_the_source_does_not_say_is_found() -> None:
    assert untold("store …: in use by …; call somebody\n") == ["call somebody"]
