"""The filters that a source asks for (AMQP 1.0 §3.5.8), and the selectors among them (docs/selectors.md).

Rules of this file: a filter is recognised by its descriptor, whatever its key. Only applied filters are echoed; a link
that takes messages is refused if it has another filter, because it would get messages that it did not ask for (ADR
0022).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.extensions import (
    DIRECT_BINDING,
    DIRECT_BINDING_CODE,
    END_SEQUENCE,
    NO_LOCAL,
    NO_LOCAL_CODE,
    SELECTOR,
    SELECTOR_CODE,
    START_SEQUENCE,
    SUBSCRIPTION,
    TOPIC_BINDING,
    TOPIC_BINDING_CODE,
)
from holdfast.amqp.wire.performatives import Source
from holdfast.amqp.wire.types import Described
from holdfast.broker.entries import annotate
from holdfast.broker.subjects import Pattern
from holdfast.endpoints.addresses.link_refusal import Refusal
from holdfast.endpoints.entry_sections import sections_of, subject_of, usual_properties
from holdfast.endpoints.publishers import HALF
from holdfast.engine.port import EntryReader
from holdfast.errors import ConfigError
from holdfast.selectors.errors import SelectorError
from holdfast.selectors.layouts import Layout, Layouts
from holdfast.selectors.parsing import SELECTOR_BYTES_MAX
from holdfast.selectors.predicate import Predicate, compile_selector
from holdfast.selectors.sections import Sections

Compile = Callable[[object], Predicate]
"""Compiles a peer's selector; Refusal for an invalid one."""

EFFORT_A_BYTE: Final = 10
"""Effort that compiling a selector counts for its connection, for each byte: some take as many microseconds."""

KEPT_MAX: Final = 256
KEPT_BYTES_MAX: Final = 256
"""Selectors that are kept compiled, and the bytes of the longest of them."""


class Compiler:
    """Compiles selectors, and keeps the short ones that were compiled last."""

    def __init__(self) -> None:
        self._kept: dict[str, Predicate] = {}

    def compile(self, text: object, charge: Callable[[int], None]) -> Predicate:
        """Refusal for an invalid selector. `charge` is called with the cost, also then."""
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
    UUID, epoch), a selector, a pattern of subjects, and nothing of its own. `applied`: those filters, as they came, to
    be echoed."""

    start: int | None = None
    end: int | None = None
    lease: list[Any] | None = None
    selector: Predicate | None = None
    pattern: Pattern | None = None
    no_local: bool = False
    applied: dict[Any, Any] = field(default_factory=dict)

    def leave_out_no_local(self) -> None:
        """The filter no-local is not applied, so it is not echoed."""
        names = (str(NO_LOCAL), str(NO_LOCAL_CODE))
        self.applied = {key: value for key, value in self.applied.items() if str(value.descriptor) not in names}


class Given(NamedTuple):
    """A filter as it came: its key in the source's map, its descriptor, its value."""

    key: str
    name: str
    value: Any


def _sequence(given: Given) -> int:
    if not isinstance(given.value, int) or isinstance(given.value, bool) or given.value < 0:
        text = f"invalid value {given.value!r} for filter {given.name}; expected a ulong"
        raise Refusal(conditions.INVALID_FIELD, text)
    return int(given.value)


def _read_start(found: Filters, given: Given, compile_: Compile) -> None:
    found.start = _sequence(given)


def _read_end(found: Filters, given: Given, compile_: Compile) -> None:
    found.end = _sequence(given)


def _read_lease(found: Filters, given: Given, compile_: Compile) -> None:
    if not isinstance(given.value, list) or len(given.value) != 3:
        text = f"invalid value for filter {given.name}; expected a list of name, queue UUID and epoch"
        raise Refusal(conditions.INVALID_FIELD, text)
    found.lease = given.value


def _read_selector(found: Filters, given: Given, compile_: Compile) -> None:
    if found.selector is not None:
        text = f"filter {given.key!r} is a second selector of the source; remove one"
        raise Refusal(conditions.INVALID_FIELD, text)
    found.selector = compile_(given.value)


def _read_pattern(found: Filters, given: Given, compile_: Compile, *, is_exact: bool = False) -> None:
    if found.pattern is not None:
        text = f"filter {given.key!r} is a second one for subjects; remove one"
        raise Refusal(conditions.INVALID_FIELD, text)
    found.pattern = pattern_of(given.value, is_exact=is_exact)


def _read_subject(found: Filters, given: Given, compile_: Compile) -> None:
    _read_pattern(found, given, compile_, is_exact=True)


def _read_no_local(found: Filters, given: Given, compile_: Compile) -> None:
    found.no_local = True


class Reader(NamedTuple):
    """What reads a filter. `takes`: it can be applied to a link that takes messages, too."""

    read: Callable[[Filters, Given, Compile], None]
    takes: bool = True


READERS: Final[Mapping[str, Reader]] = {
    str(START_SEQUENCE): Reader(_read_start, takes=False),
    str(END_SEQUENCE): Reader(_read_end, takes=False),
    str(SUBSCRIPTION): Reader(_read_lease, takes=False),
    str(SELECTOR): Reader(_read_selector),
    str(SELECTOR_CODE): Reader(_read_selector),
    str(TOPIC_BINDING): Reader(_read_pattern),
    str(TOPIC_BINDING_CODE): Reader(_read_pattern),
    str(DIRECT_BINDING): Reader(_read_subject),
    str(DIRECT_BINDING_CODE): Reader(_read_subject),
    str(NO_LOCAL): Reader(_read_no_local),
    str(NO_LOCAL_CODE): Reader(_read_no_local),
}
"""By descriptor, as a symbol or as a code: all filters that a node knows."""


def filters_of(source: Source, compile_: Compile) -> Filters:
    """The known filters of a source; Refusal for a malformed one."""
    found = Filters()
    for key, value in (source.filter or {}).items():
        if not isinstance(value, Described):
            continue
        name = str(value.descriptor)
        reader = READERS.get(name)
        if reader is not None:
            reader.read(found, Given(str(key), name, value.value), compile_)
            found.applied[key] = value
    return found


def check_taking(source: Source) -> None:
    """Refuses filters that cannot be applied to a link that takes messages."""
    for key, value in (source.filter or {}).items():
        if value is None:  # §3.5.8: a filter that is not set
            continue
        if not isinstance(value, Described):
            raise Refusal(conditions.INVALID_FIELD, f"invalid filter {str(key)!r}; expected a described value")
        name = str(value.descriptor)
        reader = READERS.get(name)
        if reader is not None and reader.takes:
            continue
        if reader is not None:
            text = f"filter {name} is not supported on a link that takes messages; add {START_SEQUENCE}, or copy"
            raise Refusal(conditions.INVALID_FIELD, text)
        text = f"filter {name} is not supported on a link that takes messages; remove it, or copy unfiltered"
        raise Refusal(conditions.NOT_IMPLEMENTED, text)


class Decoded:
    """The entry that was matched last: many selectors match the same entry, which is decoded once."""

    __slots__ = ("content", "layout", "layouts", "publisher", "sections", "subject", "value")

    def __init__(self) -> None:
        self.value = b""
        self.layouts = Layouts()
        self.sections: Sections | None = None
        self.subject: str | None = None
        self.publisher: tuple[bytes, bytes] | None = None
        """Once somebody has asked for them."""
        self.content: bytes | None = None
        """The map of its application properties, where it is usual; None before `look`."""
        self.layout: Layout | None = None
        """How that is laid out, where it is known."""

    def begin(self, value: bytes) -> None:
        """From now on it is this entry."""
        self.value = value
        self.sections = self.subject = self.publisher = self.content = self.layout = None

    def look(self) -> Layout | None:
        """Finds out `content` and `layout`."""
        self.content = content = usual_properties(self.value)
        self.layout = layout = self.layouts.find(content) if content else None
        return layout


def pattern_of(text: object, *, is_exact: bool = False) -> Pattern:
    """A peer's pattern of subjects. Refusal for an invalid one; `is_exact`: wildcards are not allowed."""
    if not isinstance(text, str):
        raise Refusal(conditions.INVALID_FIELD, "invalid filter for subjects; expected a string")
    try:
        pattern = Pattern(text)
    except ConfigError as error:
        raise Refusal(conditions.INVALID_FIELD, str(error)) from error
    if is_exact and not pattern.is_exact:
        raise Refusal(conditions.INVALID_FIELD, f"invalid subject {text[:60]!r}; expected words without wildcards")
    return pattern


class EntrySelector:
    """A selector and a pattern of subjects, either of which may be missing, for entries. Of a large message the first
    piece is read: fields that are not in it are UNKNOWN. `not_from`: whose messages are excluded."""

    __slots__ = ("_by_layout", "_decoded", "_is_alone", "_predicate", "_store", "not_from", "pattern", "text", "weight")

    def __init__(
        self,
        predicate: Predicate | None,
        pattern: Pattern | None,
        store: EntryReader,
        decoded: Decoded,
        not_from: bytes = b"",
    ) -> None:
        self.text = f"{pattern.text if pattern else ''}\0{predicate.text if predicate else ''}"
        if not_from:
            self.text += f"\0{not_from.hex()}"
        self.not_from = not_from
        self.weight = 1 if predicate is None else predicate.weight
        self.pattern = pattern
        self._predicate = predicate
        self._is_alone = pattern is None and not not_from
        self._by_layout = predicate.by_layout if predicate is not None and predicate.has_layouts else None
        self._store = store
        self._decoded = decoded

    @property
    def condition(self) -> str:
        return "" if self._predicate is None else self._predicate.text

    def matches(self, value: bytes) -> bool:
        if self.pattern is not None and not self.pattern.matches(self.subject(value)):
            return False
        return self.matches_beside(value)

    def each(self, values: Iterable[bytes]) -> Iterator[bool]:
        """As `matches`, of one after the other; of those laid out as the one before without detours."""
        fits = condition = None
        for value in values:
            content = usual_properties(value) if condition is not None else b""
            if condition is not None and fits is not None and fits(content):
                yield condition(content) is True
                continue
            yield self.matches(value)
            layout = self._decoded.layout
            if self._by_layout is not None and self._is_alone and layout is not None:
                fits, condition = layout.fits, self._by_layout.get(layout)

    def matches_beside(self, value: bytes) -> bool:
        if self.not_from and self.not_from in self._publisher(value):
            return False
        predicate = self._predicate
        if predicate is None:
            return True
        if self._by_layout is not None:  # the usual selector
            decoded = self._decoded
            if decoded.value is not value:
                decoded.begin(value)
            layout = decoded.layout if decoded.content is not None else decoded.look()
            if layout is not None and decoded.content is not None:  # and the usual message
                condition = self._by_layout.get(layout) or predicate.of_layout(layout)
                if condition is not None:
                    return condition(decoded.content) is True
        return predicate.matches(self._sections(value))

    def subject(self, value: bytes) -> str:
        """The subject of a message, or the one that its address gave it; "" if there is none."""
        sections, decoded = self._sections(value), self._decoded
        subject = decoded.subject
        if subject is None:
            subject = decoded.subject = subject_of(sections) or ""
        return subject

    def _publisher(self, value: bytes) -> tuple[bytes, bytes]:
        """The connection and the container that published a message."""
        decoded = self._decoded
        if decoded.value is not value:
            decoded.begin(value)
        if decoded.publisher is None:
            told = annotate.publisher_of(value)
            decoded.publisher = told[:HALF], told[HALF:]
        return decoded.publisher

    def _sections(self, value: bytes) -> Sections:
        decoded = self._decoded
        if decoded.value is not value:
            decoded.begin(value)
        sections = decoded.sections
        if sections is None:
            sections = decoded.sections = sections_of(value, self._store, decoded.layouts, decoded.content or b"")
        return sections


def entry_selector(
    filters: Filters, store: EntryReader, decoded: Decoded, not_from: bytes = b""
) -> EntrySelector | None:
    """The selector of the filters; None if they select everything."""
    pattern = None if filters.pattern is None or filters.pattern.is_all else filters.pattern
    if filters.selector is None and pattern is None and not not_from:
        return None
    return EntrySelector(filters.selector, pattern, store, decoded, not_from)
