"""A device's line as a message: text as it is, a value of JSON, or a row of CSV.

Rules of this file: pure; whatever a line holds, it is a message or a ValueError of one line.
"""

import csv
import json
from typing import Any, Final

from holdfast import json_values
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Header, Properties

FORMS: Final = ("lines", "json", "csv")
JSON_TYPE: Final = "application/json"
COLUMNS_MAX: Final = 1_000


class Form:
    """What the options say of every line, and of the messages that are made of them."""

    def __init__(
        self,
        form: str,
        *,
        columns: list[str] | None = None,
        subject: str | None = None,
        subject_from: str | None = None,
        properties: dict[str, Any] | None = None,
        header: Header,
    ) -> None:
        self.has_header = form == "csv" and columns is None
        """The first line of each stream names the columns."""
        self._form = form
        self._columns = columns
        self._subject = subject
        self._subject_from = subject_from
        self._properties = properties or {}
        self._header = header

    def names(self, line: bytes) -> list[str]:
        """The columns that a first line names. ValueError."""
        names = _fields(line)
        if not names or len(names) > COLUMNS_MAX or len(set(names)) < len(names) or "" in names:
            raise ValueError(f"invalid header; expected 1 to {COLUMNS_MAX} columns with names of their own")
        if self._subject_from is not None and self._subject_from not in names:
            raise ValueError(f"the header has no column {self._subject_from!r}, which --subject-from names")
        return names

    def message(self, line: bytes, names: list[str] | None) -> Message:
        """The message of a line, without its id and time. `names`: the columns of its stream. ValueError."""
        subject, told = self._subject, self._properties
        body, content_type = line, None
        if self._form == "json":
            content_type = JSON_TYPE
            subject = self._subject_of(line)
        elif self._form == "csv":
            row = self._row(line, self._columns or names or [])
            content_type = JSON_TYPE
            body = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
            subject = subject if self._subject_from is None else row[self._subject_from]
            told = {**row, **told}
        return Message(
            header=self._header,
            properties=Properties(subject=subject, content_type=content_type),
            application_properties=told or None,
            data=[body],
        )

    def _subject_of(self, line: bytes) -> str | None:
        try:
            value = json_values.parse(line)
        except (ValueError, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else error
            raise ValueError(f"invalid JSON ({reason}); expected a value on each line") from None
        if self._subject_from is None:
            return self._subject
        if not isinstance(value, dict) or self._subject_from not in value:
            raise ValueError(f"there is no key {self._subject_from!r}; expected a JSON object with it")
        found = value[self._subject_from]
        subject = found if isinstance(found, str) else json.dumps(found)
        try:
            subject.encode()
        except UnicodeEncodeError:
            raise ValueError(f"invalid value for {self._subject_from!r}; expected text that UTF-8 can encode") from None
        return subject

    def _row(self, line: bytes, names: list[str]) -> dict[str, str]:
        fields = _fields(line)
        if len(fields) != len(names):
            raise ValueError(f"the row has {len(fields)} fields; expected {len(names)}, as there are columns")
        return dict(zip(names, fields, strict=True))


def _fields(line: bytes) -> list[str]:
    try:
        rows = list(csv.reader([line.decode("utf-8-sig")], strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        reason = str(error) if isinstance(error, csv.Error) else f"bytes that are not text at {error.start}"
        raise ValueError(f"invalid CSV ({reason}); expected a row in UTF-8 on one line") from None
    if len(rows) != 1:
        raise ValueError("invalid CSV; expected a row on one line")
    return rows[0]
