"""The documents' fenced blocks and the grammar of commands, for the tests that try what they show."""

import argparse
import os
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from holdfast import cli

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(r"^cat > (\S+)\.(toml|py) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"toml": "toml", "py": "python"}


@cache
def grammar() -> argparse.ArgumentParser:
    """That of the command line, which is looked up in what is installed: built once."""
    return cli.parser()


class Example(NamedTuple):
    """A block of a document: where it begins, what it is written in, and its text."""

    place: str
    language: str
    text: str


@cache
def documents() -> tuple[Path, ...]:
    """All documents of ours, as paths from the root: not what is in a hidden folder, was installed, or was made."""
    found = []
    for place, folders, files in os.walk(ROOT):
        folder = Path(place).relative_to(ROOT)
        made = ("try", "demo-out", "build") if place == str(ROOT) else ()
        folders[:] = [name for name in folders if name[0] != "." and name not in ("node_modules", *made)]
        found += [folder / name for name in files if name.endswith(".md") and name[0] != "."]
    return tuple(sorted(found))


@cache
def examples() -> tuple[Example, ...]:
    """All blocks, and the files of TOML and Python that a shell block writes."""
    found = []
    for path in documents():
        document = (ROOT / path).read_text(encoding="utf-8")
        for block in FENCED.finditer(document):
            line = document.count("\n", 0, block.start()) + 1
            found.append(Example(f"{path}:{line}", block[1], block[2]))
            for name, ending, text in WRITTEN.findall(block[2]):
                found.append(Example(f"{path}:{line}:{name}", LANGUAGES[ending], text))
    return tuple(found)


def python_in(document: str, word: str) -> str:
    """The one Python example of that document with this word in it."""
    found = [
        example.text
        for example in examples()
        if example.language == "python" and example.place.startswith(f"{document}:") and word in example.text
    ]
    assert len(found) == 1, f"{document}: {len(found)} Python examples with {word!r}"
    return found[0]
