"""Steps that drop messages, or change their application properties: `select`, `properties`, `lookup`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.selectors.predicate import Predicate
from holdfast.steps.message import StepMessage
from holdfast.steps.step import Outcome, Rows, WithoutWindows
from holdfast.steps.values import reader_of, text_of


class Select(WithoutWindows):
    """Passes messages that match a selector."""

    kind = "select"

    def __init__(self, predicate: Predicate) -> None:
        self._predicate = predicate

    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        return Outcome(message if self._predicate.matches(message.sections) else None)


class ChangeProperties(WithoutWindows):
    """First drops, then renames, then adds; an existing property with the new name is replaced."""

    kind = "properties"

    def __init__(self, add: Mapping[str, Any], rename: Mapping[str, str], drop: Sequence[str]) -> None:
        self._add = dict(add)
        self._rename = dict(rename)
        self._drop = list(drop)

    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        found = message.decoded()
        pairs = dict(found.application_properties or {})
        for name in self._drop:
            pairs.pop(name, None)
        renamed = {new: pairs.pop(old) for old, new in self._rename.items() if old in pairs}
        return Outcome(message.changed(replace(found, application_properties=pairs | renamed | self._add)))


class Lookup(WithoutWindows):
    """Adds the value that a table has for a key as the property `value`; if it has none, `default`, or nothing."""

    kind = "lookup"

    def __init__(self, key: str, value: str, table: Mapping[str, str], default: str | None, where: str) -> None:
        self._key = key
        self._value = value
        self._table = dict(table)
        self._default = default
        self._read = reader_of(key, f"{where} key")

    def apply(self, message: StepMessage, rows: Rows) -> Outcome:
        found = self._read(message)
        value = self._default if found is None else self._table.get(text_of(found, self._key), self._default)
        if value is None:
            return Outcome(message)
        decoded = message.decoded()
        pairs = {**(decoded.application_properties or {}), self._value: value}
        return Outcome(message.changed(replace(decoded, application_properties=pairs)))
