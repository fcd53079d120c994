"""`aggregate`: one message for all messages of a key within a window.

Rules of this file: each message is counted in one window, that of its key, which begins with the first message outside
a window. A row has the count, the state of the field, and the links that the messages have passed. Every row can be
sent as an aggregate: a message that would prevent that fails itself, so `close` never fails.
"""

from math import isfinite
from struct import Struct
from typing import Any, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import LINKS
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import Symbol, Timestamp
from holdfast.broker.entries import annotate, entry
from holdfast.errors import ConfigError, LocalProtocolError
from holdfast.steps import formats
from holdfast.steps.failure import StepFailed
from holdfast.steps.message import StepMessage, encoded
from holdfast.steps.step import Outcome, Rows, is_within, start_of
from holdfast.steps.values import key_of, number_of, own_name, reader_of

KINDS: Final = ("count", "mean", "least", "most", "last")
OWN_NAMES: Final = ("count", "begins", "ends")
"""Properties of an aggregate, beside its key and its field."""
VALUE_BYTES_MAX: Final = 1_024
"""The last value of a field, encoded."""
NAME_BYTES_MAX: Final = 256
"""Of a key or a field, in UTF-8: both are in each aggregate."""
_HEAD: Final = Struct(">QQ")
_LINKS_BYTES_MAX: Final = annotate.LINK_ID_BYTES * annotate.LINKS_MAX


class Aggregate:
    """`of`: one of KINDS; `field`: its field, unless it is `count`."""

    kind = "aggregate"

    def __init__(self, key: str, field: str | None, within_ms: int, of: str, where: str) -> None:
        self.within_ms = within_ms
        self.windows_text = f"aggregate {within_ms} {of} {key!r} {field!r}"
        self._key = key
        self._field = field
        self._of = of
        self._read_key = reader_of(key, f"{where} key")
        self._read_field = None if field is None else reader_of(field, f"{where} field")
        names = [own_name(key), *([] if field is None else [own_name(field)])]
        for name in names:
            if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
                text = f"{name[:60]!r}…; expected a name of at most {NAME_BYTES_MAX} bytes"
                raise ConfigError(f"invalid value {text} for {where} key or field")
            if name in OWN_NAMES or names.count(name) > 1:
                expected = f"expected a name that differs from the others and from {', '.join(OWN_NAMES)}"
                raise ConfigError(f"invalid value {name!r} for {where} key or field; {expected}")

    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        value = self._read_key(message)
        if value is None:
            raise StepFailed(f"the message has no {self._key}")
        key = key_of(value, self._key)
        added = self._added(message)
        passed = annotate.links_passed(message.value)
        row = rows.get(key)
        if row is None or not is_within(row, message.time_ms, self.within_ms):
            fresh = _HEAD.pack(message.time_ms, 1) + encode([value, added, passed])
            return Outcome(None if row is None else self.close(row), {key: fresh})
        start, count = _HEAD.unpack_from(row)
        _, before, passed_before = decode(row, _HEAD.size)[0]
        state = self._joined(before, added)
        return Outcome(None, {key: _HEAD.pack(start, count + 1) + encode([value, state, _both(passed_before, passed)])})

    def _added(self, message: StepMessage) -> Any:
        if self._read_field is None or self._field is None:
            return None
        value = self._read_field(message)
        if self._of != "last":
            if value is None:
                raise StepFailed(f"the message has no {self._field}")
            number = number_of(value, self._field)
            return float(number) if self._of == "mean" else number
        try:
            size = len(encode(value))
        except LocalProtocolError:
            raise StepFailed(f"{self._field} is no single value") from None
        if size > VALUE_BYTES_MAX or isinstance(value, (list, dict)):
            raise StepFailed(f"{self._field} is no single value of at most {VALUE_BYTES_MAX} bytes")
        return value

    def _joined(self, before: Any, added: Any) -> Any:
        if self._of == "mean":
            if not isfinite(before + added):
                raise StepFailed(f"the sum of {self._field} would be no finite number")
            return before + added
        if self._of == "least":
            return min(before, added)
        return max(before, added) if self._of == "most" else added

    def close(self, row: bytes) -> StepMessage:
        start, count = start_of(row), _HEAD.unpack_from(row)[1]
        value, state, passed = decode(row, _HEAD.size)[0]
        ends = start + self.within_ms
        pairs: dict[str, Any] = {own_name(self._key): value, "count": count}
        if self._field is not None:
            pairs[own_name(self._field)] = state / count if self._of == "mean" else state
        told = {name: _in_json(item) for name, item in pairs.items()}
        told |= {"begins": _time_in_json(start), "ends": _time_in_json(ends)}
        bare = encoded(
            Message(
                properties=Properties(content_type=Symbol("application/json")),
                application_properties=pairs | {"begins": _time(start), "ends": _time(ends)},
                data=[formats.write_json(told).encode()],
            )
        )
        made = entry.pack(flags=entry.DURABLE, enqueued_ms=ends, bare=bare)
        if passed:
            made = annotate.merge(made, annotate.to_add({LINKS: passed}), 2 * _LINKS_BYTES_MAX)
        return StepMessage(made, ends, is_input=False)


def _in_json(value: Any) -> Any:
    """Any key or result as JSON, which cannot represent all of them directly."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Timestamp):
        return _time_in_json(int(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else "NaN" if value != value else f"{'-' if value < 0 else ''}Infinity"
    return value.hex() if isinstance(value, bytes) else str(value)


def _time_in_json(time_ms: int) -> str | int:
    """As text, if the time can be written so."""
    try:
        return formats.time_text(time_ms)
    except StepFailed:
        return time_ms


def _time(time_ms: int) -> Timestamp:
    return Timestamp(min(time_ms, formats.WHOLE_MAX))


def _both(before: bytes, passed: bytes) -> bytes:
    """The ids of the links that either has passed."""
    if not passed or passed == before:
        return before
    size = annotate.LINK_ID_BYTES
    ids = {ids[at : at + size]: None for ids in (before, passed) for at in range(0, len(ids), size)}
    return b"".join(ids)[:_LINKS_BYTES_MAX]
