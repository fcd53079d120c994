"""`drop_repeats`: of messages with the same key only the first passes, until its window ends."""

from typing import Final

from holdfast.steps.message import StepMessage
from holdfast.steps.step import START_BYTES, Outcome, Rows, is_within
from holdfast.steps.values import key_of, reader_of

_TIME_MAX: Final = 2**64 - 1


class DropRepeats:
    """`key`: a name; `within_ms`: how long after a message others with the same key are dropped. Messages without the
    key pass."""

    kind = "drop_repeats"

    def __init__(self, key: str, within_ms: int, where: str) -> None:
        self.within_ms = within_ms
        self.windows_text = f"drop_repeats {within_ms} {key}"
        self._name = key
        self._read = reader_of(key, f"{where} key")

    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        value = self._read(message)
        if value is None:
            return Outcome(message)
        key = key_of(value, self._name)
        row = rows.get(key)
        if row is not None and is_within(row, message.time_ms, self.within_ms):
            return Outcome(None)
        return Outcome(message, {key: min(message.time_ms, _TIME_MAX).to_bytes(START_BYTES, "big")})

    def close(self, row: bytes) -> StepMessage | None:
        return None
