"""Converts messages to entries and back: header and annotations are rewritten, the bare message stays unchanged (§3.2).

Rules of this file: pure. Annotations `x-opt-holdfast-…` of clients are stripped. An entry may have only these of them:
the subject that an address gave, the publisher of a message to a topic, the links that the message passed, and the
annotations of relays of federation. Consumers get `x-opt-sequence-number` and `x-opt-enqueued-time`, which clients of
other brokers know, and a redelivery is always marked as one.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.amqp.message.message import Sections
from holdfast.amqp.wire import conditions
from holdfast.amqp.wire.decoding import decode
from holdfast.amqp.wire.encoding import encode
from holdfast.amqp.wire.extensions import (
    LATE,
    LINKS,
    NUMBER,
    ORIGIN,
    OWN_PREFIX,
    PATH,
    PUBLICATION,
    PUBLISHER,
    RELAY,
    SUBJECT,
    TAGS,
)
from holdfast.amqp.wire.types import Described, Ulong
from holdfast.broker.entries import entry, packed
from holdfast.errors import RemoteProtocolError
from holdfast.names import NAME_BYTES_MAX
from holdfast.schema import is_whole_within

PATHS_MAX: Final = 1_024
"""Paths whose encoding is remembered."""
TOLD_ANEW: Final = ("x-opt-sequence-number", "x-opt-enqueued-time")
ANNOTATIONS_MAX: Final = 1_000
NAMES_MAX: Final = 8
"""Names that are looked for among the annotations of a message without decoding these."""

_SEQUENCE: Final = b"\xa3\x15x-opt-sequence-number\x80"
_ENQUEUED: Final = b"\xa3\x13x-opt-enqueued-time\x83"
_LATE: Final = encode(LATE) + b"\x41"
_OWN_BYTES: Final = len(_SEQUENCE) + len(_ENQUEUED) + 16
_SECTION: Final = Struct(">3sBII")
_MAP8: Final = 0xC1
_MAP32: Final = 0xD1
_OUR_NAMES: Final = (OWN_PREFIX.encode(), *(name.encode() for name in TOLD_ANEW))
_MESSAGE_ANNOTATIONS: Final = b"\x00\x53\x72"
_LINKS_NAME: Final = LINKS.encode()
_RELAYED: Final = (PUBLICATION, TAGS, RELAY)
_RELAYED_NAMES: Final = tuple(name.encode() for name in _RELAYED)
_PUBLISHER: Final = encode(PUBLISHER) + b"\xa0\x10"
PUBLISHER_BYTES: Final = 16

DURABLE_HEADER: Final = b"\x00\x53\x70\xc0\x02\x01\x41"
"""The header that `for_neighbour` writes for a durable message of the usual priority, without time to live."""


def _ours(key: object) -> bool:
    """Whether only nodes set this annotation: it is set again at each delivery, so that there is only one."""
    return str(key).startswith(OWN_PREFIX) or key in TOLD_ANEW


TAGS_MAX: Final = 64
"""Nodes that are named as having delivered a message."""
PUBLISHER_CHARACTERS_MAX: Final = NAME_BYTES_MAX + 40

LINK_ID_BYTES: Final = 8
LINKS_MAX: Final = 64
"""Links between queues that a message may pass."""


def _are_links(value: object) -> bool:
    return isinstance(value, bytes) and not len(value) % LINK_ID_BYTES and len(value) <= LINK_ID_BYTES * LINKS_MAX


def _is_carried(key: object, value: object) -> bool:
    """Whether nodes pass on this annotation of theirs."""
    if key == SUBJECT:
        return isinstance(value, str) and len(value) <= NAME_BYTES_MAX
    if key == RELAY:
        return value is True
    if key == PUBLICATION:
        return publication_in(value) is not None
    if key == TAGS:
        return isinstance(value, list) and len(value) <= TAGS_MAX and all(map(_is_name, value))
    return key == LINKS and _are_links(value)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_BYTES_MAX


def publication_in(value: object) -> tuple[str, int] | None:
    """The publication in an annotation: its store, its first destination, and its number."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    store, number = value
    if not isinstance(store, str) or not 0 < len(store) <= PUBLISHER_CHARACTERS_MAX:
        return None
    return (str(store), int(number)) if is_whole_within(number, 1, 2**63) else None


def links_passed(value: bytes) -> bytes:
    """The ids of the links that an entry has passed, in order."""
    count, items = packed.annotations_of(value)
    if _LINKS_NAME not in items:
        return b""
    found = decoded(count, items).get(LINKS)
    return found if _are_links(found) and isinstance(found, bytes) else b""


def without_relayed(item: entry.Entry) -> entry.Entry:
    """The entry without the annotations of relays, as a new message."""
    return _without(item, _RELAYED_NAMES, _RELAYED.__contains__)


def _without(item: entry.Entry, names: Iterable[bytes], leave: Callable[[object], bool]) -> entry.Entry:
    """The entry without the annotations that `leave`; it can have some only if its bytes have one of `names`."""
    items = bytes(item.annotations)
    if not any(name in items for name in names):
        return item
    notes = {key: part for key, part in notes_of(item).items() if not leave(key)}
    items = b"".join(encode(key) + encode(part) for key, part in notes.items())
    return item._replace(annotation_count=2 * len(notes), annotations=memoryview(items))


def publisher_items(publisher: bytes) -> bytes:
    """The annotation of a message with that publisher, encoded."""
    assert len(publisher) == PUBLISHER_BYTES
    return _PUBLISHER + publisher


def publisher_of(value: bytes) -> bytes:
    """The publisher of an entry's message, as given to `publisher_items`; b"" if no subscription needed it then."""
    count, items = packed.annotations_of(value)
    found = decoded(count, items).get(PUBLISHER) if _PUBLISHER in items else None
    return found if isinstance(found, bytes) else b""


class Annotations(NamedTuple):
    """Message annotations as they are stored (`count` items, encoded) and the producer's number, if it gave one."""

    item_count: int
    items: bytes
    number: int | None


NO_ANNOTATIONS: Final = Annotations(0, b"", None)


def subject_items(subject: str) -> bytes:
    """The annotation of a message whose address gave it that subject, encoded; nothing for ""."""
    return encode(SUBJECT) + encode(subject) if subject else b""


def strip(payload: bytes, sections: Sections, bytes_max: int, *, is_carried: bool = False) -> Annotations:
    """The message annotations of a payload without those that only nodes set. RemoteProtocolError if they are not a
    map, or too large. `is_carried`: they come from a neighbour, which may say which links the message has passed, and
    the subject that an address gave it."""
    first, last = sections.annotations
    if first == last:
        return NO_ANNOTATIONS
    if last - first > bytes_max:
        text = f"message-annotations have {last - first} bytes; the limit is {bytes_max}"
        raise RemoteProtocolError(conditions.RESOURCE_LIMIT_EXCEEDED, text)
    section, _ = decode(payload, first)
    fields = section.value if isinstance(section, Described) else None
    if not isinstance(fields, dict) or len(fields) > ANNOTATIONS_MAX:
        text = f"invalid message-annotations; expected a map of at most {ANNOTATIONS_MAX} entries"
        raise RemoteProtocolError(conditions.DECODE_ERROR, text)
    sent = _as_sent(bytes(payload[first:last]), 2 * len(fields))
    if sent is not None:
        return sent
    number = fields.get(NUMBER)
    kept = {key: value for key, value in fields.items() if not _ours(key) or (is_carried and _is_carried(key, value))}
    items = b"".join(encode(key) + encode(value) for key, value in kept.items())
    return Annotations(2 * len(kept), items, number if isinstance(number, int) else None)


def _as_sent(section: bytes, count: int) -> Annotations | None:
    """The annotations in their sender's encoding, if none of them is one that only nodes set; otherwise None."""
    if section[:3] != _MESSAGE_ANNOTATIONS or any(name in section for name in _OUR_NAMES):
        return None
    head = {_MAP8: 6, _MAP32: 12}.get(section[3])
    return None if head is None else Annotations(count, section[head:], None)


def notes_of(item: entry.Entry) -> dict[Any, Any]:
    """The message annotations of an entry."""
    return decoded(item.annotation_count, bytes(item.annotations))


class Notes(NamedTuple):
    """Message annotations that are added to messages, encoded once for all of them. `names`: their keys as bytes, if
    there are few and all are plain words; None if a message's annotations must be decoded to find out whether it has
    one of them."""

    added: dict[Any, Any]
    items: bytes
    names: tuple[bytes, ...] | None


NO_NOTES: Final = Notes({}, b"", ())


def to_add(added: dict[Any, Any]) -> Notes:
    """These annotations, encoded to be added."""
    items = b"".join(encode(key) + encode(part) for key, part in added.items())
    words = len(added) <= NAMES_MAX and all(isinstance(key, str) for key in added)
    return Notes(added, items, tuple(str(key).encode() for key in added) if words else None)


def notes_added(told: dict[Any, Any] | None) -> Notes:
    """Those of a consumer's message annotations (modified, §3.4.5) that are stored."""
    return to_add({key: part for key, part in told.items() if not _ours(key)}) if told else NO_NOTES


def merge(value: bytes, notes: Notes, bytes_max: int) -> bytes:
    """The entry with `notes` added to its message annotations; `value` itself if they would exceed `bytes_max`. The
    entry's annotations are only decoded if one of the names may be among them.
    """
    count, before = packed.annotations_of(value)
    if notes.names is not None and not any(name in before for name in notes.names):
        count += 2 * len(notes.added)
        items = before + notes.items
    else:
        merged = decoded(count, before) | notes.added
        count = 2 * len(merged)
        items = b"".join(encode(key) + encode(part) for key, part in merged.items())
    if count > 2 * ANNOTATIONS_MAX or len(items) > bytes_max:
        return value  # repeated changes must not let it grow without limit
    return packed.with_annotations(value, count, items)


def decoded(count: int, items: bytes) -> dict[Any, Any]:
    """The message annotations of an entry, as `packed.annotations_of` has them."""
    if not count:
        return {}
    fields, _ = decode(b"\xd1" + (len(items) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items)
    return dict(fields)


def encode_header(durable: bool, priority: int | None, ttl_ms: int | None, first: bool, count: int) -> bytes:
    """A header section (§3.2.1); None is the field's default."""
    fields = bytearray(b"\x41" if durable else b"\x42")
    fields += b"\x40" if priority is None else bytes((0x50, priority))
    fields += b"\x40" if ttl_ms is None else b"\x70" + min(ttl_ms, 2**32 - 1).to_bytes(4, "big")
    fields += b"\x41" if first else b"\x42"
    fields += b"\x43" if count == 0 else b"\x70" + count.to_bytes(4, "big")
    return b"\x00\x53\x70\xc0" + bytes((len(fields) + 1, 5)) + bytes(fields)


_FIRST_DURABLE_ACQUIRED: Final = encode_header(True, None, None, True, 0)
_FIRST_VOLATILE: Final = encode_header(False, None, None, True, 0)


_NOTHING: Final = bytes(8)
"""`message_format` and length of the annotations, as they stand in `value[20:28]`."""
_MA_PLAIN: Final = _SECTION.pack(_MESSAGE_ANNOTATIONS, _MAP32, _OWN_BYTES + 4, 4) + _SEQUENCE
_TOLD: Final = Struct(f">{len(_MA_PLAIN)}sQ{len(_ENQUEUED)}s8s").pack
VIEWED_BYTES: Final = 8_192
"""From so many bytes on a view of an entry costs less than a copy."""
_PLAIN_FLAGS: Final = (0, entry.DURABLE, entry.CUSTODY, entry.CUSTODY | entry.DURABLE)
_PLAIN_PRIORITIES: Final = range(10)
"""Those that are told apart (§3.2.1)."""


def _plain_head(flags: int, priority: int) -> tuple[bytes, Any]:
    told = None if priority == entry.PRIORITY_DEFAULT else priority
    before = encode_header(bool(flags & entry.DURABLE), told, None, True, 0) + _MA_PLAIN
    return before, Struct(f">{len(before)}sQ{len(_ENQUEUED) + 8}s").pack


_PLAIN_HEADS: Final = {
    bytes((entry.VERSION, flags, priority)): _plain_head(flags, priority)
    for flags in _PLAIN_FLAGS
    for priority in _PLAIN_PRIORITIES
}
"""By how a plain entry begins: what precedes its sequence for a consumer, and what packs it with that and the time."""


@lru_cache(PATHS_MAX)
def path_items(nodes: tuple[str, ...]) -> bytes:
    """The annotation with a path, as items of the map."""
    return encode(PATH) + encode(list(nodes))


def way_items(value: bytes, nodes: tuple[str, ...]) -> bytes:
    """The three annotations with the path and the identity of an entry in custody, as items of the map."""
    origin, number = packed.identity_of(value)
    return path_items(nodes) + encode(ORIGIN) + encode(origin) + encode(NUMBER) + encode(Ulong(number))


def for_consumer(
    value: bytes, sequence: int, delivery_count: int | None, steady_ms: int, way: bytes = b""
) -> tuple[Any, ...]:
    """The parts of a transfer of `value` to a client: header, annotations, bare message. `way`: from `way_items`, for a
    client that asked for paths."""
    if (
        delivery_count is None
        and not value[1] & (entry.CUSTODY | entry.LATE)
        and value[2] == entry.PRIORITY_DEFAULT
        and value[12:20] == entry.NEVER
        and value[24:30] == b"\0\0\0\0\0\0"
    ):
        told = _TOLD(_MA_PLAIN, sequence, _ENQUEUED, value[4:12])
        head = _FIRST_DURABLE_ACQUIRED if value[1] & entry.DURABLE else _FIRST_VOLATILE
        return (head, told, memoryview(value)[entry.FIXED_BYTES :])
    item = entry.unpack(value)
    own = b"".join((_SEQUENCE, sequence.to_bytes(8, "big"), _ENQUEUED, item.enqueued_ms.to_bytes(8, "big")))
    count = item.annotation_count + 4
    if item.flags & entry.LATE:
        own += _LATE
        count += 2
    if way:
        own += way
        count += 6
    size = 4 + len(item.annotations) + len(own)
    told = _SECTION.pack(_MESSAGE_ANNOTATIONS, _MAP32, size, count)
    return (_head_of(item, delivery_count, steady_ms), told, item.annotations, own, item.bare)


def for_remote(value: bytes, delivery_count: int | None, steady_ms: int) -> tuple[Any, ...]:
    """As `for_consumer`, for a broker that is no node: without all annotations that only nodes set."""
    item = _without(entry.unpack(value), _OUR_NAMES, _ours)
    return (_head_of(item, delivery_count, steady_ms), *_section_of(item), item.bare)


def _section_of(item: entry.Entry) -> list[Any]:
    """Its message annotations as a section, in parts; nothing if it has none."""
    if not item.annotation_count:
        return []
    size = 4 + len(item.annotations)
    return [_SECTION.pack(_MESSAGE_ANNOTATIONS, _MAP32, size, item.annotation_count), item.annotations]


def _head_of(item: entry.Entry, delivery_count: int | None, steady_ms: int) -> bytes:
    """The header of a delivery; `delivery_count`: None for the first."""
    ttl_ms = max(1, item.expires_ms - steady_ms) if item.expires_ms else None
    priority = None if item.priority == entry.PRIORITY_DEFAULT else item.priority
    first, failed = delivery_count is None, delivery_count or 0
    if item.earlier is not None:
        first, failed = False, min(entry.EARLIER_MAX, failed + item.earlier)
    return encode_header(bool(item.flags & entry.DURABLE), priority, ttl_ms, first, failed)


def plain_for_consumer(
    sequences: Sequence[int], values: Sequence[bytes]
) -> tuple[list[bytes], list[bytes | memoryview]]:
    """The hot path's `for_consumer`, of entries that were never shown and have no time to live: what precedes each bare
    message, and the bare messages; up to the first that differs."""
    heads: list[bytes] = []
    bares: list[bytes | memoryview] = []
    if packed.vary(values):
        return _plain_apart(sequences, values)
    for fixed, group in groupby(values, packed.fixed_of):  # entries that were stored together begin with the same bytes
        form = _PLAIN_HEADS.get(fixed[:3])
        if form is None or fixed[20:28] != _NOTHING:
            break
        before, pack = form
        enqueued = _ENQUEUED + fixed[4:12]
        at = packed.plain_parts(fixed)[3] if fixed[1] & entry.CUSTODY else entry.FIXED_BYTES
        first = len(bares)
        bares += [value[at:] if len(value) < VIEWED_BYTES else memoryview(value)[at:] for value in group]
        heads += [pack(before, sequence, enqueued) for sequence in sequences[first : len(bares)]]
    return heads, bares


def _plain_apart(sequences: Sequence[int], values: Sequence[bytes]) -> tuple[list[bytes], list[bytes | memoryview]]:
    """As `plain_for_consumer`, for entries that rarely begin with the same bytes, such as those with priorities."""
    heads: list[bytes] = []
    bares: list[bytes | memoryview] = []
    known: dict[bytes, tuple[bytes, Any, bytes, int]] = {}
    for sequence, value in zip(sequences, values, strict=True):
        fixed = value[: entry.FIXED_BYTES]
        found = known.get(fixed)
        if found is None:
            form = _PLAIN_HEADS.get(fixed[:3])
            if form is None or fixed[20:28] != _NOTHING:
                break
            at = packed.plain_parts(fixed)[3] if fixed[1] & entry.CUSTODY else entry.FIXED_BYTES
            found = known[fixed] = (*form, _ENQUEUED + fixed[4:12], at)
        before, pack, enqueued, at = found
        bares.append(value[at:] if len(value) < VIEWED_BYTES else memoryview(value)[at:])
        heads.append(pack(before, sequence, enqueued))
    return heads, bares


def for_neighbour(item: entry.Entry, steady_ms: int) -> tuple[bytes, list[Any]]:
    """Header and message annotations as they are sent to the next node; the time spent here is subtracted from the time
    to live."""
    ttl_ms = max(1, item.expires_ms - steady_ms) if item.expires_ms else None
    durable = bool(item.flags & entry.DURABLE)
    if item.priority == entry.PRIORITY_DEFAULT and ttl_ms is None:
        head = DURABLE_HEADER if durable else b""
    else:
        head = encode_header(durable, item.priority, ttl_ms, False, 0)
    return head, _section_of(item)
