"""Bodies as CSV, JSON or an AMQP map, each read into and written from plain values.

Rules of this file: pure. A table (CSV) is a list of objects in JSON, and a list of maps in AMQP; its values are text. A
value that the other format cannot represent raises StepFailed. The size of the output is checked before it is created,
because a few bytes of input may become many.
"""

import csv
import io
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from holdfast import json_values
from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.types import MISSING, Timestamp
from holdfast.steps.failure import StepFailed
from holdfast.units import KIB

BODY_BYTES_MAX: Final = 64 * KIB
DEPTH_MAX: Final = 16
"""Lists and maps within each other."""
CELLS_MAX: Final = 65_536
"""Of a table: its rows times its columns."""
WHOLE_MAX: Final = 2**63 - 1


def text_of(message: Message) -> str:
    """A body that is text: data sections, or a string or binary value."""
    if message.data is None and not isinstance(message.value, (str, bytes)):
        raise StepFailed("the body is not text")
    try:
        text = message.body_bytes().decode()
    except UnicodeDecodeError:
        raise StepFailed("the body is not text in UTF-8") from None
    if len(text) > BODY_BYTES_MAX:
        raise StepFailed(f"the body has more than {BODY_BYTES_MAX} bytes")
    return text


def fields_of(message: Message) -> dict[str, Any]:
    """The fields of a body that is a JSON object or a map."""
    body = read_map(message) if isinstance(message.value, dict) else read_json(text_of(message))
    if not isinstance(body, dict):
        raise StepFailed("the body is neither a JSON object nor a map")
    return body


# ------------------------------------------------------------------------------------------------ JSON


def read_json(text: str) -> Any:
    try:
        found = json_values.parse(text)
    except (ValueError, RecursionError) as error:
        raise StepFailed(f"the body is no JSON ({str(error)[:100]})") from None
    return checked(found)


def write_json(value: Any) -> str:
    """Writes values of `read_json`, `read_csv` or `read_map`, which bound tables."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise StepFailed(f"the body cannot be written as JSON ({str(error)[:100]})") from None


def checked(value: Any, depth: int = 0) -> Any:
    """The value, if all numbers have 64 bits, all texts can be encoded in UTF-8, and it is not nested too deeply."""
    if depth > DEPTH_MAX:
        raise StepFailed(f"the body has more than {DEPTH_MAX} lists and maps within each other")
    if isinstance(value, dict):
        return {_encodable(key): checked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [checked(item, depth + 1) for item in value]
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, int) and abs(value) > WHOLE_MAX:
        raise StepFailed(f"the body has a number beyond {WHOLE_MAX}")
    if isinstance(value, float) and not math.isfinite(value):
        raise StepFailed("the body has a number that is not finite")
    return value


def _encodable(text: str) -> str:
    """A text of JSON may have half of a pair of surrogates."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise StepFailed("the body has a text that is not in Unicode") from None
    return text


# ------------------------------------------------------------------------------------------------ CSV


def read_csv(text: str) -> list[dict[str, str]]:
    """The rows after the header, by its names."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise StepFailed(f"the body is no CSV ({error})") from None
    if not rows or not rows[0]:
        raise StepFailed("the body is no CSV: it has no header")
    header = rows[0]
    if len(set(header)) < len(header):
        raise StepFailed("the header of the CSV has a name twice")
    found = [row for row in rows[1:] if row]
    for number, row in enumerate(found, 1):
        if len(row) != len(header):
            raise StepFailed(f"row {number} of the CSV has {len(row)} fields; the header has {len(header)}")
    if len(found) * sum(len(name) + 1 for name in header) > BODY_BYTES_MAX:
        raise StepFailed(f"the rows of the CSV with their names would have more than {BODY_BYTES_MAX} bytes")
    return [dict(zip(header, row, strict=True)) for row in found]


def write_csv(value: Any) -> str:
    """A header and rows, of a map or a list of maps without lists or maps in them."""
    rows = value if isinstance(value, list) else [value]
    if not all(isinstance(row, dict) for row in rows):
        raise StepFailed("the body is neither an object nor a list of objects, and has no form in CSV")
    header = list({name: None for row in rows for name in row})
    if not header:
        raise StepFailed("the body has no field, and no form in CSV")
    if len(rows) * len(header) > CELLS_MAX:
        raise StepFailed(f"the body would have more than {CELLS_MAX} fields as CSV")
    out = io.StringIO(newline="")
    try:
        writer = csv.writer(out)
        writer.writerow(header)
        writer.writerows([[_cell(row.get(name), name) for name in header] for row in rows])
    except csv.Error as error:
        raise StepFailed(f"the body cannot be written as CSV ({error})") from None
    return out.getvalue()


def _cell(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise StepFailed(f"{name} is a list or a map, and has no form in CSV")


# ------------------------------------------------------------------------------------------------ AMQP maps


def read_map(message: Message) -> Any:
    """A body that is a map, or a list of maps."""
    value = message.value
    if value is MISSING or not isinstance(value, (dict, list)):
        raise StepFailed("the body is no map")
    if isinstance(value, list) and not all(isinstance(item, dict) for item in value):
        raise StepFailed("the body is a list, but not of maps")
    return checked(_plain(value, 0))


def _plain(value: Any, depth: int) -> Any:
    """A value of AMQP as a value of JSON."""
    if depth > DEPTH_MAX:
        raise StepFailed(f"the body has more than {DEPTH_MAX} lists and maps within each other")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return time_text(int(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise StepFailed("the map has a key that is not text")
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    raise StepFailed(f"the map has a value of type {type(value).__name__}, which has no form in JSON or CSV")


def time_text(time_ms: int) -> str:
    """Wall time, as `holdfast receive --json` writes it."""
    try:
        found = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        raise StepFailed("the message has a time beyond the year 9999") from None
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
