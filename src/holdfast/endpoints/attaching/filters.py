"""The filters that a source asks for (AMQP 1.0 §3.5.8), and the selectors among them (docs/selectors.md).

Rules of this file: a filter is known by its descriptor, whatever its key. Only filters that are applied are echoed; a
link that takes messages is refused for any other, because it would be given what it did not ask for (ADR 0022).
"""

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
from holdfast.selectors.predicate import Predicate, compile_selector
from holdfast.selectors.sections import Sections

SELECTORS: Final = (str(SELECTOR), str(SELECTOR_CODE))
"""Descriptors of a selector."""


@dataclass(slots=True)
class Filters:
    """What a source asks for: a range of sequences `[start, end)`, the `lease` under which it is read (name, queue's
    UUID, epoch), and a selector. `applied`: those filters, as they came, to be echoed."""

    start: int | None = None
    end: int | None = None
    lease: list[Any] | None = None
    selector: Predicate | None = None
    applied: dict[Any, Any] = field(default_factory=dict)


def filters_of(source: Source) -> Filters:
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
            found.selector = _compiled(value.value)
        else:
            continue
        found.applied[key] = value
    return found


def _compiled(text: object) -> Predicate:
    if not isinstance(text, str):
        raise Refusal(conditions.INVALID_FIELD, "invalid selector; expected a string")
    try:
        return compile_selector(text)
    except SelectorError as error:
        raise Refusal(conditions.INVALID_FIELD, f"invalid selector: {error}") from error


def check_taking(source: Source, *, selects: bool) -> None:
    """Refuses whatever filter a link that takes messages could not have applied: what it leaves out others would miss.
    `selects`: it is a subscription, which a selector may choose for."""
    for key, value in (source.filter or {}).items():
        if value is None:  # §3.5.8: a filter that is not set
            continue
        if not isinstance(value, Described):
            raise Refusal(conditions.INVALID_FIELD, f"invalid filter {str(key)!r}; expected a described value")
        name = str(value.descriptor)
        if name in SELECTORS:
            if not selects:
                text = "a selector is applied to a link that copies, and to a durable subscription"
                raise Refusal(conditions.NOT_IMPLEMENTED, text)
        elif name in (START_SEQUENCE, END_SEQUENCE, SUBSCRIPTION):
            text = f"filter {name} is not supported on a link that takes messages; add {START_SEQUENCE}, or copy"
            raise Refusal(conditions.INVALID_FIELD, text)
        else:
            text = f"filter {name} is not supported on a link that takes messages; remove it, or copy unfiltered"
            raise Refusal(conditions.NOT_IMPLEMENTED, text)


class EntrySelector:
    """A selector asked about entries. Of a large message the first piece is looked at: what does not begin there is
    UNKNOWN."""

    __slots__ = ("_predicate", "_store")

    def __init__(self, predicate: Predicate, store: EntryReader) -> None:
        self._predicate = predicate
        self._store = store

    def matches(self, value: bytes) -> bool:
        item = entry.unpack(value)
        bare: bytes | memoryview = item.bare
        whole = True
        if item.flags & entry.BLOB:
            blob, length = entry.blob_of(bare)
            bare = self._store.piece(blob, 0) or b""
            whole = len(bare) >= length
        return self._predicate.matches(
            Sections(
                bare,
                durable=bool(item.flags & entry.DURABLE),
                priority=item.priority,
                annotations=(item.annotation_count, item.annotations),
                whole=whole,
            )
        )


def entry_selector(filters: Filters, store: EntryReader) -> EntrySelector | None:
    """What the filters' selector says of entries; None where they have none."""
    return None if filters.selector is None else EntrySelector(filters.selector, store)
