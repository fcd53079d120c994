"""Output for people: columns, and sizes and counts in words.

Rules of this file: pure; text in, text out.
"""

from collections.abc import Iterable, Sequence

from holdfast.lines import one_line
from holdfast.units import KIB


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines: the header, then each row, of values as `cell` has them. Columns as wide as they need, numbers to the
    right."""
    header, taken = [one_line(name) for name in header], list(rows)
    cells = [[cell(value) for value in row] for row in taken]
    right = [all(map(_is_number, column)) for column in zip(*taken, strict=True)]
    lines = []
    widths = [max(len(row[index]) for row in (header, *cells)) for index in range(len(header))]
    for row in (header, *cells):
        padded = [
            text.rjust(width) if index < len(right) and right[index] else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def fitting(header: Sequence[str], rows: Iterable[Sequence[object]], width_max: int) -> int:
    """How many columns of that table, from the left, are at most `width_max` wide together; at least one."""
    cells = [header, *rows]
    width = 0
    for count in range(len(header)):
        width += max(len(cell(row[count])) for row in cells) + (2 if count else 0)
        if width > width_max and count:
            return count
    return len(header)


def cell(value: object) -> str:
    """For people, in a line: nothing, and a list without an entry, is a dash; true and false are yes and no."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(cell, value))
    if isinstance(value, float):
        return f"{value:.1f}"
    return one_line(str(value))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def size(count: int | None) -> str:
    """Bytes for people: 512 B, 1.5 KiB, 20.0 MiB."""
    if count is None:
        return "-"
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < KIB:
            break
        amount, unit = amount / KIB, larger
    return f"{int(amount)} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, what: str) -> str:
    """`1 range`, `3 ranges`: the count with its noun, which takes an s."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
