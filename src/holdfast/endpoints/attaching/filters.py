"""The filters that a source asks for (AMQP 1.0 §3.5.8), and the selectors among them (docs/selectors.md).

Rules of this file: a filter is known by its descriptor, whatever its key. Only filters that are applied are echoed; a
link that takes messages is refused for any other, because it would be given what it did not ask for (ADR 0022).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import END_SEQUENCE, SELECTOR, SELECTOR_CODE, START_SEQUENCE, SUBSCRIPTION
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Described
from holdfast.broker.entries import entry
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.engine.port import EntryReader
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.parsing import SELECTOR_BYTES_MAX
from holdfast.selectors.predicate import Predicate, compile_selector
from holdfast.selectors.sections import Sections

SELECTORS: Final = (str(SELECTOR), str(SELECTOR_CODE))
"""Descriptors of a selector."""


Compile = Callable[[object], Predicate]
"""Compiles what a peer sent as a selector. Refusal of what is none."""

EFFORT_A_BYTE: Final = 10
"""What a selector that is compiled costs its connection, by its bytes: some take as many microseconds each."""

KEPT_MAX: Final = 256
KEPT_BYTES_MAX: Final = 256
"""Selectors that are kept compiled, and the longest of them."""


class Compiler:
    """Compiles selectors, and keeps the short ones that were compiled last."""

    def __init__(self) -> None:
        self._kept: dict[str, Predicate] = {}

    def compile(self, text: object, charge: Callable[[int], None]) -> Predicate:
        """Refusal of what is no selector. `charge` is told what it cost, also then."""
        if not isinstance(text, str):
            raise Refusal(conditions.INVALID_FIELD, "invalid selector; expected a string")
        kept = self._kept.pop(text, None)
        if kept is None:
            charge(min(len(text), SELECTOR_BYTES_MAX) * EFFORT_A_BYTE)
            try:
                kept = compile_selector(text)
            except SelectorError as error:
                raise Refusal(conditions.INVALID_FIELD, f"invalid selector: {error}") from error
        if len(text) <= KEPT_BYTES_MAX:
            self._kept[text] = kept
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        return kept


@dataclass(slots=True)
class Filters:
    """What a source asks for: a range of sequences `[start, end)`, the `lease` under which it is read (name, queue's
    UUID, epoch), and a selector. `applied`: those filters, as they came, to be echoed."""

    start: int | None = None
    end: int | None = None
    lease: list[Any] | None = None
    selector: Predicate | None = None
    applied: dict[Any, Any] = field(default_factory=dict)


def filters_of(source: Source, compile_: Compile) -> Filters:
    """The filters that a node knows; Refusal of one that is malformed."""
    found = Filters()
    for key, value in (source.filter or {}).items():
        if not isinstance(value, Described):
            continue
        name = str(value.descriptor)
        if name in (START_SEQUENCE, END_SEQUENCE):
            if not isinstance(value.value, int) or isinstance(value.value, bool) or value.value < 0:
                text = f"invalid value {value.value!r} for filter {name}; expected a ulong"
                raise Refusal(conditions.INVALID_FIELD, text)
            if name == START_SEQUENCE:
                found.start = int(value.value)
            else:
                found.end = int(value.value)
        elif name == SUBSCRIPTION:
            if not isinstance(value.value, list) or len(value.value) != 3:
                text = f"invalid value for filter {name}; expected a list of name, queue UUID and epoch"
                raise Refusal(conditions.INVALID_FIELD, text)
            found.lease = value.value
        elif name in SELECTORS:
            if found.selector is not None:
                text = f"filter {str(key)!r} is a second selector of the source; remove one"
                raise Refusal(conditions.INVALID_FIELD, text)
            found.selector = compile_(value.value)
        else:
            continue
        found.applied[key] = value
    return found


def check_taking(source: Source) -> None:
    """Refuses whatever filter a link that takes messages could not have applied: what it leaves out others would
    miss."""
    for key, value in (source.filter or {}).items():
        if value is None:  # §3.5.8: a filter that is not set
            continue
        if not isinstance(value, Described):
            raise Refusal(conditions.INVALID_FIELD, f"invalid filter {str(key)!r}; expected a described value")
        name = str(value.descriptor)
        if name in SELECTORS:
            continue
        if name in (START_SEQUENCE, END_SEQUENCE, SUBSCRIPTION):
            text = f"filter {name} is not supported on a link that takes messages; add {START_SEQUENCE}, or copy"
            raise Refusal(conditions.INVALID_FIELD, text)
        text = f"filter {name} is not supported on a link that takes messages; remove it, or copy unfiltered"
        raise Refusal(conditions.NOT_IMPLEMENTED, text)


class Decoded:
    """The entry that a selector was asked about last: many are asked about the same one, which is decoded once."""

    __slots__ = ("sections", "value")

    def __init__(self) -> None:
        self.value = b""
        self.sections = Sections(b"")


class EntrySelector:
    """A selector asked about entries. Of a large message the first piece is looked at: what does not begin there is
    UNKNOWN."""

    __slots__ = ("_decoded", "_predicate", "_store", "text")

    def __init__(self, predicate: Predicate, store: EntryReader, decoded: "Decoded") -> None:
        self.text = predicate.text
        self._predicate = predicate
        self._store = store
        self._decoded = decoded

    def matches(self, value: bytes) -> bool:
        decoded = self._decoded
        if decoded.value is not value:
            decoded.sections = self._sections(value)
            decoded.value = value
        return self._predicate.matches(decoded.sections)

    def _sections(self, value: bytes) -> Sections:
        payload, at, whole = value, entry.bare_at(value), True
        if value[1] & entry.BLOB:
            blob, length = entry.blob_of(value)
            payload, at = self._store.piece(blob, 0) or b"", 0
            whole = len(payload) >= length
        return Sections(
            payload,
            at,
            durable=bool(value[1] & entry.DURABLE),
            priority=value[2],
            annotations=entry.annotations_of(value),
            whole=whole,
        )
