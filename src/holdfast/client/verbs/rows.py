"""What `holdfast send` reads: lines, CSV rows or JSON lines of a file, or generated bodies, a batch at a time.

Rules of this file: streams, so memory holds one batch and one row; blocking reads, made for a thread. A batch ends
where the next read might wait, so a pipe's lines go out as they come.
"""

import codecs
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast import json_values
from holdfast.amqp.message.message import Message
from holdfast.client.errors import unreadable
from holdfast.client.messages.message_json import FORMAT, message_of
from holdfast.errors import ConfigError
from holdfast.units import MIB

READ_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 64 * MIB
BATCH_ROWS: Final = 1000

JSON_TYPE: Final = "application/json"
MARK: Final = "holdfast-message-"
"""The beginning of the field `format` of a line with a whole message, in any version."""


class Row(NamedTuple):
    """One message to send. `properties`: application properties; `subject`: None unless a column gives it.
    `message`: all of it, if the line has a whole one; then there is no `body`."""

    body: bytes
    subject: str | None = None
    properties: dict[str, str] | None = None
    content_type: str | None = None
    message: Message | None = None


class _Paused(NamedTuple):
    """The next read might block: the batch ends here."""


_PAUSED: Final = _Paused()


class Source:
    """Rows of `file` ("-" is standard input), `batch` by `batch`. Raises ConfigError with file and line."""

    def __init__(self, file: str, form: str, subject_from: str | None) -> None:
        self.name = "standard input" if file == "-" else file
        self.bytes_read = 0
        self.size: int | None = None
        try:
            # Of our own, and raw: a thread that waits in a read must not hold the lock of sys.stdin at exit.
            self._file = io.FileIO(0 if file == "-" else file, closefd=file != "-")
            if file != "-" and Path(file).is_file():
                self.size = Path(file).stat().st_size
        except OSError as error:
            raise unreadable(self.name, error) from None
        self._subject_from = subject_from
        self._failure: ConfigError | None = None
        self._items: Iterator[Row | _Paused] = {"lines": self._lines, "csv": self._csv, "json": self._json}[form]()

    def batch(self) -> list[Row] | None:
        """The next rows, None at the end; may block. ConfigError where a line is no row, after the rows before it."""
        rows: list[Row] = []
        try:
            if self._failure is not None:
                raise self._failure
            for item in self._items:
                if isinstance(item, Row):
                    rows.append(item)
                    if len(rows) >= BATCH_ROWS:
                        return rows
                elif rows:
                    return rows
        except ConfigError as error:
            if not rows:
                raise
            self._failure = error
        except OSError as error:  # a disk that fails, a terminal that is gone
            self._failure = unreadable(self.name, error)
            if not rows:
                raise self._failure from None
        return rows or None

    def close(self) -> None:
        """Closes the file; not while a thread is in `batch`."""
        self._file.close()

    def _raw_lines(self) -> Iterator[bytes | _Paused]:
        """Lines with their ends; `_PAUSED` before each read."""
        pending: list[bytes] = []
        held = before = 0
        while True:
            yield _PAUSED
            chunk = self._file.read(READ_BYTES)
            if not chunk:
                break
            self.bytes_read += len(chunk)
            lines = list(io.BytesIO(chunk))  # at line feeds alone; bytes.splitlines takes carriage returns too
            if pending:
                pending.append(lines[0])
                if len(lines) > 1 or lines[0].endswith(b"\n"):
                    lines[0] = b"".join(pending)
                    pending, held = [], 0
                else:
                    held += len(lines[0])
                    if held > LINE_BYTES_MAX:
                        text = f"{self.name}, line {before + 1}: it has more than {LINE_BYTES_MAX} bytes"
                        raise ConfigError(f"{text}; send what is so large with --file, one message a file")
                    continue
            if not lines[-1].endswith(b"\n"):
                last = lines.pop()
                pending, held = [last], len(last)
            before += len(lines)
            yield from lines
        if pending:
            yield b"".join(pending)

    def _lines(self) -> Iterator[Row | _Paused]:
        for line in self._raw_lines():
            if isinstance(line, _Paused):
                yield line
            else:
                yield Row(line[:-1] if line.endswith(b"\n") else line)

    def _json(self) -> Iterator[Row | _Paused]:
        number = 0
        for line in self._raw_lines():
            if isinstance(line, _Paused):
                yield line
                continue
            number += 1
            body = line.strip().removeprefix(codecs.BOM_UTF8).lstrip()
            if not body:
                continue
            try:
                value = json_values.parse(body.decode())  # of bytes it would guess the encoding
            except (ValueError, RecursionError) as error:
                wrong = f"{self.name}, line {number}: invalid JSON ({_why(error)})"
                raise ConfigError(f"{wrong}; expected a value on each line, in UTF-8") from None
            subject = self._subject(value, number)
            if isinstance(value, dict) and str(value.get("format")).startswith(MARK):
                yield Row(b"", subject, message=self._message(value, number))
            else:
                yield Row(body, subject, None, JSON_TYPE)

    def _message(self, line: dict[str, Any], number: int) -> Message:
        try:
            if line["format"] != FORMAT:
                raise ValueError(f"invalid value {line['format']!r:.80} for format; expected {FORMAT}")
            return message_of(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.name}, line {number}: {_why(error)}") from None

    def _csv(self) -> Iterator[Row | _Paused]:
        # csv reads line by line; a pause that it reads past is yielded after the row.
        paused = False
        number = 0

        def texts() -> Iterator[str]:
            nonlocal paused, number
            for line in self._raw_lines():
                if isinstance(line, _Paused):
                    paused = True
                    continue
                number += 1
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")

        csv.field_size_limit(LINE_BYTES_MAX)
        reader = csv.reader(texts(), strict=True)
        header: list[str] | None = None
        try:
            for fields in reader:
                if header is None:
                    header = self._header(fields)
                elif fields:
                    yield self._row(header, fields, reader.line_num)
                if paused:
                    paused = False
                    yield _PAUSED
            if not header:
                raise ConfigError(f"{self.name}: no header; CSV begins with a line of column names")
        except (csv.Error, UnicodeDecodeError) as error:
            wrong = f"{self.name}, line {number}: invalid CSV ({_why(error)})"
            raise ConfigError(f"{wrong}; expected CSV in UTF-8") from None

    def _header(self, header: list[str]) -> list[str]:
        twice = {name for name in header if header.count(name) > 1}
        if twice:
            raise ConfigError(f"{self.name} has column {min(twice)!r} twice; give each column its own name")
        if self._subject_from is not None and self._subject_from not in header:
            raise ConfigError(
                f"invalid value {self._subject_from!r} for --subject-from; expected a column of {self.name}: "
                f"{', '.join(header)}"
            )
        return header

    def _row(self, header: list[str], fields: list[str], line: int) -> Row:
        if len(fields) != len(header):
            raise ConfigError(
                f"{self.name}, line {line}: the row has {len(fields)} fields; expected {len(header)}, as in the header"
            )
        row = dict(zip(header, fields, strict=True))
        body = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
        return Row(body, None if self._subject_from is None else row[self._subject_from], row, JSON_TYPE)

    def _subject(self, value: object, line: int) -> str | None:
        key = self._subject_from
        if key is None:
            return None
        if not isinstance(value, dict) or key not in value:
            raise ConfigError(f"{self.name}, line {line}: there is no key {key!r}; expected a JSON object with it")
        found = value[key]
        return found if isinstance(found, str) else json.dumps(found)


def _why(error: Exception) -> str:
    """What is wrong with a line, of which the number is told beside it."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"bytes that are not text at {error.start}"
    return f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


class Generated:
    """`count` bodies of `size` bytes each, which begin with their number."""

    def __init__(self, count: int, size: int) -> None:
        self.bytes_read = 0
        self.size = count * max(1, size)
        self._left = count
        self._count = count
        self._body_bytes = size
        self._filler = (b"holdfast " * (size // 9 + 1))[:size]

    def close(self) -> None:
        """Nothing is open."""

    def batch(self) -> list[Row] | None:
        """The next rows, None at the end."""
        take = min(BATCH_ROWS, self._left)
        if not take:
            return None
        first = self._count - self._left + 1
        self._left -= take
        size, filler = self._body_bytes, self._filler
        rows = []
        for number in range(first, first + take):
            mark = b"%012d " % number
            rows.append(Row((mark + filler[len(mark) :])[:size]))
        self.bytes_read += take * max(1, size)
        return rows
