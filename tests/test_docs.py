"""The documents say what is so: every test that docs/GUARANTEES.md names is there, every limit has its default, the
index of decisions is whole, and links lead somewhere.
"""

import ast
import inspect
import re
from dataclasses import Field, fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from amqp.client_transcripts import CLIENT_TRANSCRIPTS
from amqp.transcripts import TRANSCRIPTS
from holdfast.client.administration import Administration
from holdfast.routing.settings import ROUTING_WITHIN
from holdfast.settings.limits import LIMITS_WITHIN, Limits
from pyspark_holdfast.options import NAMES, parse_options

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8"))


def test_guarantees_name_tests() -> None:
    lines = [line for line in (ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8").splitlines() if "|" in line]
    promises = [line for line in lines if not line.startswith(("|---", "| promise"))]
    assert promises
    assert [line for line in promises if "::test_" not in line] == []


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of all functions in a module. Kept: a module is asked about for each of its tests that is named."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_it_is_there(path: str, name: str) -> None:
    assert name in functions_of(ROOT / path)


def test_each_row_beside_other_connectors_names_tests_that_are_there() -> None:
    """But what Holdfast has not: partitions to be chosen, a place for each queue, other languages."""
    text = (ROOT / "docs" / "spark-connectors.md").read_text(encoding="utf-8")
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert name in functions_of(ROOT / path), (path, name)
    rows = re.findall(r"^\| ([a-z][^|]*) \|", text, re.MULTILINE)
    assert re.findall(r"^- ([^:]*): *`?", text, re.MULTILINE) == [row for row in rows if row not in WITHOUT]


WITHOUT = ("some partitions", "begin apart in each", "languages")


def test_each_request_of_the_client_library_is_told_with_its_arguments() -> None:
    text = (ROOT / "docs" / "client.md").read_text(encoding="utf-8").split("\n## Administration\n")[1].split("\n## ")[0]
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    told = {name: re.sub(r"=[^,)]*", "", arguments) for name, arguments in re.findall(r"`(\w+)\(([^`]*)\)`", rows)}
    there = {}
    for name, method in vars(Administration).items():
        if not inspect.isfunction(method) or name.startswith("_") or name in ("entities", "pages"):  # these are general
            continue
        _, *given = inspect.signature(method).parameters.values()
        plain, named = ([one.name for one in given if (one.kind is one.KEYWORD_ONLY) is it] for it in (False, True))
        there[name] = ", ".join([*plain, *(["*", *named] if named else [])])
    assert told == there


def test_drills_name_tests_that_are_there() -> None:
    """Each drill has one; a name without a file is one of the drills on processes, all of which are named."""
    text = (ROOT / "docs" / "drills.md").read_text(encoding="utf-8")
    drills = text.split("\n## ")[1:]
    assert drills and [drill.splitlines()[0] for drill in drills if "**Test.**" not in drill] == []
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert name in functions_of(ROOT / path), (path, name)
    alone = set(re.findall(r"`(test_\w+)`", text))
    there = {name for name in functions_of(ROOT / "tests" / "node" / "test_drills.py") if name.startswith("test_")}
    assert alone == there


ROOTS = tuple(
    ROOT / name for name in (".", "src/holdfast", "lab/src", "lab/src/holdfast_lab", "spark/src", "benchmarks")
)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
TAKEN_AWAY = {"docs/adr/0055-one-wire-form.md": {"amqp/direct.py"}}


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_modules_that_a_page_names_are_there(page: str) -> None:
    """Those that stand with their package; TAKEN_AWAY names what a decision is about that deleted it."""
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)", (ROOT / page).read_text(encoding="utf-8")))
    missing = {path for path in named if not any((root / path).exists() for root in ROOTS)}
    assert missing == TAKEN_AWAY.get(page, set())


ITEMS = {
    int(number): text
    for number, text in re.findall(
        r"^(\d+)\. (.*?)(?=^\d+\. |^## |^Not all)", (ROOT / "docs/CLIENTS.md").read_text(encoding="utf-8"), re.S | re.M
    )
}
NOT_OURS_YET: set[int] = set()


@pytest.fixture(scope="module")
def test_names() -> set[str]:
    return {name for path in (ROOT / "tests").rglob("test_*.py") for name in functions_of(path)}


def test_every_habit_of_clients_is_there() -> None:
    assert sorted(ITEMS) == list(range(1, 42))


@pytest.mark.parametrize("number", sorted(ITEMS))
def test_habits_of_clients_name_tests(number: int, test_names: set[str]) -> None:
    """docs/CLIENTS.md: each item a test that is there, or it is no promise yet."""
    text = " ".join(ITEMS[number].split())
    named = re.findall(r"`(test_\w+)`", text)
    transcripts = re.findall(r"\*T\* (\d+)", text)
    conversations = re.findall(r"\*C\* (go-amqp|Qpid JMS|uAMQP|Proton C\+\+)", text)
    assert text.count("*C*") == len(conversations) and text.count("*T*") == len(transcripts)
    assert bool(named or transcripts or conversations) is (number not in NOT_OURS_YET)
    assert [name for name in named if name not in test_names] == []
    assert all(any(title.startswith(f"{one} ") for title in TRANSCRIPTS) for one in transcripts)
    for client in conversations:
        assert any(
            title.startswith(client) and re.search(rf"[( ]{number}[,) ]", title) for title in CLIENT_TRANSCRIPTS
        ), f"no conversation of {client} lists {number}"


def test_the_index_of_decisions_is_whole() -> None:
    """Each record with its title, and each number in between that has none as given up."""
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    titles = {}
    for path in sorted(folder.glob("[0-9]*.md")):
        number, title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").split(" ", 1)
        assert path.name.startswith(f"{number}-")
        titles[int(number)] = f"| [{number}]({path.name}) | {title} |"
    assert re.findall(r"^\| \[.*$", index, re.MULTILINE) == list(titles.values())
    told = re.search(r"given up:\*\* ([^.]+)\.", index)
    assert told is not None
    given_up: set[int] = set()
    for part in re.split(r",\s+", told[1]):
        first, _, last = part.partition(" to ")
        given_up |= set(range(int(first), int(last or first) + 1))
    assert given_up == set(range(1, max(titles))) - set(titles)


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


@pytest.mark.parametrize("field", fields(Limits), ids=lambda field: str(field.name))
def test_a_limit_is_told_with_its_default(field: Field[Any]) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| `{field.name}` \| ([\d,.]+) \| .*[a-z]", text, re.MULTILINE)
    assert found is not None, f"{field.name} is not in docs/configuration.md"
    assert float(found[1].replace(",", "")) == field.default


RANGES = LIMITS_WITHIN | ROUTING_WITHIN


@pytest.mark.parametrize("key", sorted(RANGES))
def test_a_limit_is_told_with_its_range(key: str) -> None:
    """`from 1 to 2^24`; where only sizes of memory that nobody has lie above, `At least 65,536` is enough."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{key}` \|.*$", text, re.MULTILINE)
    low, high = (_spellings(number) for number in RANGES[key])
    range_ = re.search(r"\b[Ff]rom ([\d,.]+) to ([\d,.]*\d(?:\^\d+)?)", row)
    if range_ is None:
        least = re.search(r"\bAt least ([\d,]*\d)", row)
        assert RANGES[key][1] >= 2**40 and least is not None and least[1] in low, row
    else:
        assert range_[1] in low and range_[2] in high, row


def _spellings(number: float) -> set[str]:
    power = {f"2^{int(number).bit_length() - 1}"} if int(number).bit_count() == 1 else set()
    return {f"{number:,}", f"{number:g}"} | power


def test_the_spark_source_s_options_are_told_with_their_defaults() -> None:
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    table = text[text.index("| option | default | |") :].partition("\n\n")[0]
    told = {
        name: default
        for names, default in re.findall(r"^\| (`\w+`(?: or `\w+`)*) \| ([^|]*)\|", table, re.MULTILINE)
        for name in re.findall(r"\w+(?=`)", names)
    }
    assert sorted(told) == sorted(NAMES)
    defaults = parse_options({"url": "amqp://localhost", "address": "q"})
    assert (told["mode"], told["startingFrom"]) == (f"`{defaults.mode}` ", f"`{defaults.starting_from}` ")
    assert told["bytesPerTrigger"] == f"{defaults.bytes_aim >> 20} MiB "
    numbers = (defaults.rows_max, defaults.rows_per_partition, defaults.rows_per_batch, defaults.retry_s)
    names = ("maxRowsPerTrigger", "rowsPerPartition", "rowsPerBatch", "retrySeconds")
    assert (told["onUnreadable"], told["failOnDataLoss"]) == ("`row` ", "`true` ")
    assert [float(told[name].replace(",", "")) for name in names] == list(numbers)
