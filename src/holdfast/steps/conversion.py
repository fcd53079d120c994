"""`convert`: the body of a message in another format (the ESB's format conversion; esb-dynamic-routing, 1)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from holdfast.amqp.message.message import Message
from holdfast.amqp.wire.performatives import Properties
from holdfast.amqp.wire.types import MISSING, Symbol
from holdfast.steps import formats
from holdfast.steps.failure import StepFailed
from holdfast.steps.message import StepMessage
from holdfast.steps.step import Outcome, Rows, WithoutWindows

READERS: Final[dict[str, Callable[[Message], Any]]] = {
    "csv": lambda message: formats.read_csv(formats.text_of(message)),
    "json": lambda message: formats.read_json(formats.text_of(message)),
    "map": formats.read_map,
}
CONTENT_TYPES: Final = {"csv": Symbol("text/csv"), "json": Symbol("application/json"), "map": None}


def _written(value: Any, target: str) -> tuple[list[bytes] | None, Any]:
    """The data sections, or the value."""
    if target == "csv":
        return [formats.write_csv(value).encode()], MISSING
    if target == "json":
        return [formats.write_json(value).encode()], MISSING
    if not isinstance(value, dict) and not (isinstance(value, list) and all(isinstance(row, dict) for row in value)):
        raise StepFailed("the body is neither an object nor a list of objects, and has no form as a map")
    return None, value


class Convert(WithoutWindows):
    """`source`, `target`: two different ones of `csv`, `json` and `map`."""

    kind = "convert"

    def __init__(self, source: str, target: str) -> None:
        self._read = READERS[source]
        self._target = target

    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        found = message.decoded()
        data, value = _written(self._read(found), self._target)
        properties = replace(found.properties or Properties(), content_type=CONTENT_TYPES[self._target])
        changed = replace(found, properties=properties, data=data, sequences=None, value=value, footer=None)
        return Outcome(message.changed(changed))
