"""The table file of a `lookup`: CSV with a header, whose first column is the key.

Rules of this file: pure; the file is read by the process that has it, at start or for a request. A request to a node
has the table itself.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.errors import ConfigError
from holdfast.schema import found
from holdfast.units import MIB

FILE_BYTES_MAX: Final = 4 * MIB

Read = Callable[[str, str, int], str]
"""(where, name of a file, its bytes at most) -> its text (text_files.py)."""


def with_tables(told: object, where: str, read: Read) -> object:
    """Steps in which each `file` of a `lookup` is replaced by the `table` in it."""
    if not isinstance(told, Sequence) or isinstance(told, str):
        return told
    return [_with_table(item, f"{where} step {number} lookup", read) for number, item in enumerate(told, 1)]


def _with_table(item: object, where: str, read: Read) -> object:
    given = item.get("lookup") if isinstance(item, Mapping) else None
    if not isinstance(given, Mapping) or "file" not in given:
        return item
    rest = {key: value for key, value in given.items() if key != "file"}
    if "table" in rest:
        raise ConfigError(f"{where} has a table and a file; remove one")
    file, value = given["file"], rest.get("value")
    if not isinstance(file, str) or not file:
        raise ConfigError(f"invalid value {found(file)} for {where} file; expected the name of a CSV file")
    if not isinstance(value, str):
        raise ConfigError(f"{where} has no value; expected the name of a column")
    return {
        "lookup": {
            **rest,
            "table": table_of(read(f"{where} file", file, FILE_BYTES_MAX), value, f"{where} file {file!r}"),
        }
    }


def table_of(text: str, value: str, where: str) -> dict[str, str]:
    """The column `value` of the CSV, by its first column."""
    try:
        rows: list[list[str]] = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise ConfigError(f"{where} is no CSV ({error})") from None
    header = rows[0] if rows else []
    if value not in header[1:]:
        expected = ", ".join(header[1:]) or "a header with two columns or more"
        raise ConfigError(f"{where} has no column {value!r} behind the first; expected one of {expected}")
    at = header.index(value, 1)
    table: dict[str, str] = {}
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(header):
            raise ConfigError(f"{where} row {number} has {len(row)} fields; expected {len(header)}, as in the header")
        if row[0] in table:
            raise ConfigError(f"{where} row {number} has the key {row[0][:60]!r} again; list it once")
        table[row[0]] = row[at]
    return table
