"""Documents in Markdown of which a program writes the part between two marks, and the tables for that part."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.errors import ConfigError


def put_into(document: str, lines: Sequence[str], begin: str, end: str) -> str:
    """The document with these lines between the marks `begin` and `end`. Raises ConfigError where it has none."""
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ConfigError(f"the document has no {begin} with {end} after it; write them where the tables are to be")
    return f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"


class MarkedPage:
    """A file in which a program replaces the part between two marks. ConfigError at once if the file has no such part,
    before the lines are computed."""

    def __init__(self, path: Path, begin: str, end: str) -> None:
        self._path = path
        self._marks = begin, end
        self._with([])

    def _with(self, lines: Sequence[str]) -> str:
        return put_into(self._path.read_text(encoding="utf-8"), lines, *self._marks)

    def fill(self, lines: Sequence[str]) -> None:
        """Writes the file with these lines in that part."""
        self._path.write_text(self._with(lines), encoding="utf-8")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
