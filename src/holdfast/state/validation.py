"""Invariants of queues, cursors, blobs and the turn (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what. Sums are compared with the entries
themselves: those on disk, with what the commit under way and the gathered turn will have changed.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable
from typing import Any, Final

from holdfast.broker import backlogs
from holdfast.broker.cursors import exclusions
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.cursors.selection import Group, Selection
from holdfast.broker.cursors.sharing import Sharing
from holdfast.broker.cursors.waiting_for_others import WaitingForOthers
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.host_names import hosted
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.topic import Topic
from holdfast.engine.invariants import must
from holdfast.engine.port import Batch
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns

READ_COUNT: Final = 4_096
READ_BYTES: Final = 16 * 1024 * 1024

Entries = dict[int, dict[int, bytes]]
"""By queue id: the entries of each queue whose entries were read, by sequence, as they will be when the gathered turn
is on disk."""

EntryRef = tuple[int, int]
"""(queue id, sequence)."""


def entries_of(catalog: Catalog, turns: Turns, work: Work[Queue], entries_max: int) -> Entries:
    """The entries of durable queues, the smallest first, at most so many together."""
    left = entries_max
    entries: Entries = {}
    for queue in sorted(catalog.queues.values(), key=lambda queue: queue.messages):
        if queue.config.durable and queue.messages <= left:
            left -= queue.messages
            entries[queue.queue_id] = dict(_stored(catalog, queue))
    if turns.in_flight is not None:  # as a store applies it; the same before and after
        _retire(entries, turns.in_flight.batch.retires)
        _append(entries, turns.in_flight.batch)
    _append(entries, work.batch)
    _retire(entries, [*work.batch.retires, *work.moved])
    return entries


def _stored(catalog: Catalog, queue: Queue) -> Iterable[tuple[int, bytes]]:
    first = 0
    while found := catalog.store.read(queue.queue_id, first, count_max=READ_COUNT, bytes_max=READ_BYTES):
        yield from found
        first = found[-1][0] + 1


def _append(entries: Entries, batch: Batch) -> None:
    for queue_id, sequence, value in batch.appends:
        if queue_id in entries:
            entries[queue_id][sequence] = value


def _retire(entries: Entries, retires: Iterable[EntryRef]) -> None:
    for queue_id, sequence in retires:
        if queue_id in entries:
            entries[queue_id].pop(sequence, None)


# -------------------------------------------------------------------------------------------------------- queues


def queues(
    entries: Entries,
    catalog: Catalog,
    turns: Turns,
    work: Work[Queue],
    *,
    purges: Container[Queue],
    suspended: Collection[int],
) -> None:
    """The counted messages and bytes of each queue match its entries, and its cache only has some of these. `purges`:
    queues that are being emptied; `suspended`: the ids of consumers that are gone and have kept entries."""
    in_flight = turns.in_flight
    for name, queue in catalog.queues.items():
        must(queue.key == name, "a queue stands under another name", name, queue.key)
        must(queue.key == hosted(queue.host, queue.name), f"queue {name!r} is called otherwise within its host")
        must(queue.messages >= 0 and queue.bytes_held >= 0, f"queue {name!r} counts below nothing")
        must(queue.visible <= queue.next_sequence, f"queue {name!r} shows what it has not given yet")
        known = entries.get(queue.queue_id)
        values = queue.ephemeral if not queue.config.durable else known
        if values is not None:
            must(len(values) == queue.messages, f"queue {name!r}: messages, and entries", queue.messages, len(values))
            size = sum(map(packed.size_of, values.values()))
            must(size == queue.bytes_held, f"queue {name!r}: bytes, and those of its entries", queue.bytes_held, size)
            ended = sum(value[1] & entry.TOMBSTONE > 0 for value in values.values())
            must(ended == queue.tombstones, f"queue {name!r}: tombstones, and those among its entries", ended)
            strange = [sequence for sequence in values if not 0 < sequence < queue.next_sequence]
            must(not strange, f"queue {name!r} has sequences that it never gave", strange)
        if known is not None:
            strange = [sequence for sequence, value in queue.cache.items() if known.get(sequence) != value]
            must(not strange, f"queue {name!r} caches what is not its entry", strange)
        if queue.config.durable and queue.visible < queue.next_sequence:
            shown_later = queue in work.dirty_counters or (
                in_flight is not None and any(item is queue for item, _ in in_flight.visible)
            )
            must(shown_later, f"queue {name!r}: nothing will show what was taken", queue.visible, queue.next_sequence)
        if isinstance(queue, Topic):
            _interests(queue)
            _bounded(queue, known, settled=queue not in work.dirty_queues and not queue.stopped)
        for cursor in queue.cursors:
            must(cursor.queue is queue, f"queue {name!r} has another queue's cursor")
            where = f"cursor {cursor.name!r} of queue {name!r}"
            _hands(cursor, where, values, suspended)
            _watermark(cursor, where, turns, work)
            if values is not None and not (cursor.tracked or queue.sweeping or queue.named or queue in purges):
                places = {*cursor.acquired, *cursor.requeued, *cursor.exclusions.aside}
                passed = min(cursor.position, queue.visible)
                lost = [number for number in values if number < passed and number not in places]
                must(not lost, f"{where} has passed entries that are in nobody's hands", lost[:20])
                stale = [number for number in cursor.counts if number not in values]
                must(not stale, f"{where} counts failures of entries that are gone", stale[:20])
                marked = cursor.counts.marked if isinstance(cursor.counts, DeliveryCounts) else ()
                stale = [number for number in marked if number not in values]
                must(not stale, f"{where} marks entries as shown that are gone", stale[:20])
            if values is not None and queue not in purges:
                _selections(cursor, where, values)
        must(queue.has_consumers == bool(queue.shared.consumers), f"queue {name!r}: its flag, and its consumers")
        if known is not None and queue not in purges:
            _nothing_passed_over(queue, known)


def _nothing_passed_over(queue: Queue, known: dict[int, bytes]) -> None:
    """Each entry that a cursor has passed is acquired, requeued or finished; otherwise it would stay for ever."""
    for cursor in queue.cursors:
        kept = {*cursor.below_position()}
        for sequence in known:
            if cursor.floor <= sequence < cursor.position and sequence not in kept and sequence not in cursor.finished:
                swept = any(first <= sequence <= last for first, last in queue.sweeping)
                must(swept, f"cursor {cursor.name!r} of queue {queue.name!r} passed over {sequence}")


def _hands(cursor: Cursor, where: str, known: dict[int, bytes] | None, suspended: Collection[int]) -> None:
    """Consumers hold existing entries, each entry has one holder, and no holder is gone."""
    consumers = {id(consumer) for consumer in cursor.consumers}
    for sequence, acquired in cursor.acquired.items():
        must(
            id(acquired.consumer) in consumers or id(acquired.consumer) in suspended,
            f"{where}: {sequence} is held by who is gone",
        )
        is_ahead = sequence in cursor.ahead
        must(is_ahead == (sequence >= cursor.position), f"{where}: {sequence} is held ahead", cursor.position, is_ahead)
        if known is not None:
            value = known.get(sequence)
            must(value is not None, f"{where}: {sequence} is held and no entry")
            assert value is not None
            size = packed.size_of(value)
            must(size == acquired.size, f"{where}: {sequence} is held with another size", acquired.size, size)
    must(cursor.ahead <= cursor.acquired.keys(), f"{where}: ahead and held by nobody", sorted(cursor.ahead)[:20])
    must(max(cursor.ahead, default=0) <= cursor.ahead_end, f"{where}: held beyond what was handed out ahead")
    returned = set(cursor.requeued)
    must(len(returned) == len(cursor.requeued), f"{where} has given-back entries twice", sorted(cursor.requeued)[:20])
    must(
        returned.isdisjoint(cursor.acquired),
        f"{where}: given back and held",
        sorted(returned & cursor.acquired.keys())[:20],
    )
    aside = cursor.exclusions.aside.keys()
    twice = [*(aside & returned), *(aside & cursor.acquired.keys())]
    must(not twice, f"{where}: set aside, and held or given back", twice[:20])
    must(len(aside) <= exclusions.ASIDE_MAX, f"{where}: more is set aside than the bound", len(aside))
    selected = [
        sequence
        for sequence, consumer in cursor.exclusions.accepted_by.items()
        if sequence not in aside or consumer not in cursor.consumers or consumer in cursor.unfiltered
    ]
    must(not selected, f"{where}: set aside for a consumer with a selector that is gone", selected[:20])
    if cursor.tracked:
        both = [sequence for sequence in (*cursor.acquired, *cursor.requeued) if sequence in cursor.finished]
        must(not both, f"{where}: finished, and held or given back", both[:20])
        low = next(iter(cursor.finished), (cursor.floor, 0))[0]
        must(low >= cursor.floor, f"{where}: finished below its floor", low, cursor.floor)


def _interests(topic: Topic) -> None:
    """The cached interests of a topic match its subscriptions."""
    named, where = topic.named.values(), f"topic {topic.name!r}"
    selectors = {cursor: cursor.selector for cursor in named}
    subscribed, listening = topic.subscribed, topic.listening
    must(
        subscribed is None or subscribed.is_changing or subscribed.owners == selectors,
        f"{where}: who is asked, and subscriptions",
    )
    must(
        listening is None or listening.is_changing or listening.owners == topic.listeners,
        f"{where}: who is asked, and subscriptions that are not durable",
    )
    strange = topic.bindings.keys() - topic.named.keys()
    must(not strange, f"{where}: something is wanted by subscriptions that are gone", sorted(strange))
    bounded = {name for name, wants in topic.bindings.items() if wants.bounds.messages_max}
    held = {cursor.name for cursor in topic.limited}
    must(held == bounded, f"{where}: subscriptions with a bound, and those held to it", sorted(bounded ^ held))


def _bounded(topic: Topic, known: dict[int, bytes] | None, *, settled: bool) -> None:
    """What a subscription with a bound has not finished is what it wants of the store, and no more than its bounds
    unless a link holds it. `settled`: whether the topic has nothing to do."""
    for cursor, bounds in topic.limited.items():
        where = f"subscription {cursor.name!r} of topic {topic.name!r}"
        bound = topic.bindings.get(cursor.name)
        must(bound is not None and bound.bounds == bounds, f"{where}: its bounds, and what is stored")
        must(cursor.is_bounded, f"{where}: its bounds, and what its cursor knows")
        must(topic.named.get(cursor.name) is cursor, f"{where} has a bound and is gone")
        if topic.unmarked is not None or known is None:
            continue
        selector = cursor.selector
        wanted = {
            sequence: packed.size_of(value)
            for sequence, value in known.items()
            if cursor.floor <= sequence < topic.visible
            and sequence not in cursor.finished
            and (selector is None or value[1] & entry.BLOB or selector.matches(value))
        }
        counted, held = backlogs.unfinished(cursor), sum(wanted.values())
        must(counted == len(wanted), f"{where}: messages to finish, and those of the store", counted, len(wanted))
        if bounds.bytes_max:
            size = backlogs.unfinished_bytes(cursor)
            must(size == held, f"{where}: bytes to finish, and those of the store", size, held)
        stay = {item: size for item, size in wanted.items() if not _is_nodes_own(cursor, item)}
        over = len(stay) > bounds.messages_max
        if bounds.bytes_max and len(stay) > 1:
            over = over or sum(stay.values()) > bounds.bytes_max
        may_be = cursor in topic.work.overfull or all(sequence in cursor.acquired for sequence in stay)
        must(not (over and settled) or may_be, f"{where} has more than its bounds", counted, held, *bounds[:2])


def _is_nodes_own(cursor: Cursor, sequence: int) -> bool:
    """Whether the entry is on its way elsewhere, in the hands of no consumer."""
    held = cursor.acquired.get(sequence)
    return held is not None and isinstance(held.consumer, str)


def _selections(cursor: Cursor, where: str, known: dict[int, bytes]) -> None:
    """Each consumer is with a selector or without; no selection has passed over a free entry that matches."""
    selections = cursor.selections
    filtered = [] if selections is None else [each for selection in selections for each in selection.consumers]
    must(
        cursor.consumers.keys() == {*cursor.unfiltered, *filtered}
        and len(cursor.consumers) == len(cursor.unfiltered) + len(filtered),
        f"{where}: its consumers, and those with selectors and without",
    )
    if selections is None:
        return
    waiting = {*cursor.requeued, *cursor.exclusions.aside}
    free = {
        sequence: value
        for sequence, value in known.items()
        if sequence not in cursor.acquired
        and sequence not in cursor.finished
        and sequence < cursor.queue.visible
        and (sequence >= cursor.position or sequence in waiting)
        and not cursor.queue.expired(value)
    }
    for group in selections:
        if isinstance(group, Selection):
            must(group.hits.first == min(group.hits, default=None), f"{where}: hits, and the lowest of them")
            must(set(group.hits).isdisjoint(group.for_others), f"{where}: hits that wait for others")
        for waiting in group.all_for_others:
            _for_others(group, waiting, where, free)
            _forgotten(selections, group, waiting, where, free)
        lost = selections.passed_over(group, free)
        must(not lost, f"{where}: selector {group.selector.text!r} passed over what matches", lost[:20])


def _forgotten(
    selections: Sharing[Any], group: Group, waiting: WaitingForOthers, where: str, free: dict[int, bytes]
) -> None:
    """What was forgotten of that is scanned again for each of the others."""
    first = waiting.forgotten_from
    if first is None:
        return
    must(first < waiting.forgotten_to, f"{where}: what was forgotten, and its end", first, waiting.forgotten_to)
    for sequence, value in free.items():
        if not first <= sequence < waiting.forgotten_to or selections.looks_again_at(sequence):
            continue
        if selections.was_forgotten(group, waiting, sequence, value):
            for consumer in group.consumers:
                is_scanned = sequence in consumer.excluded or waiting.place_of(consumer) <= sequence
                is_too_large = not is_scanned and consumer.delivery_bytes(sequence, value) > consumer.bytes_max
                must(bool(is_scanned or is_too_large), f"{where}: {sequence} is not scanned again for who can have it")


def _for_others(group: Group, waiting: WaitingForOthers, where: str, free: dict[int, bytes]) -> None:
    """What consumers could not have is offered to each of the others."""
    kept = [*waiting]
    end = group.position if waiting.forgotten_from is None else min(group.position, waiting.forgotten_from)
    must(kept == sorted(set(kept)), f"{where}: what waits for others, and its order", kept[:20])
    must(not kept or kept[-1] < end, f"{where}: what waits for others, and what is scanned later", kept[-20:], end)
    gone = waiting.consumers - group.consumers.keys()
    must(not gone, f"{where}: something waits for a consumer that is gone", len(gone))
    for sequence in kept:
        for consumer in group.consumers if sequence in free else ():
            is_offered = sequence in consumer.excluded or waiting.not_yet_asked((consumer,), sequence)
            is_too_large = not is_offered and consumer.delivery_bytes(sequence, free[sequence]) > consumer.bytes_max
            must(bool(is_offered or is_too_large), f"{where}: {sequence} waits for none that can have it")


def _watermark(cursor: Cursor, where: str, turns: Turns, work: Work[Queue]) -> None:
    queue, in_flight = cursor.queue, turns.in_flight
    if not queue.config.durable:
        return
    must(cursor.watermark_stored <= cursor.watermark, f"{where}: its stored watermark is ahead of its watermark")
    if cursor.watermark > cursor.watermark_stored and cursor.consumers:
        due = queue in work.dirty_counters or (
            in_flight is not None and any(item is cursor for item, _ in in_flight.watermarks)
        )
        must(due, f"{where} waits for a watermark that nothing stores", cursor.watermark, cursor.watermark_stored)


# --------------------------------------------------------------------------------------------------------- blobs


def blobs(entries: Entries, held: Blobs, catalog: Catalog, turns: Turns, work: Work[Queue]) -> None:
    """Each blob that an entry refers to knows the entry, and each entry that refers to one finds it."""
    for number, blob in held.by_number.items():
        must(blob.number == number, "a blob stands under another number", number, blob.number)
        must((blob in held.loose) == (not blob.places), f"blob {number}: loose, and referred to")
        for place in blob.places:
            must(held.by_place.get(place) is blob, f"blob {number}: an entry that knows nothing of it", place)
    gone = _gone(turns, work)
    for place, blob in held.by_place.items():
        must(place in blob.places, f"blob {blob.number}: an entry that it knows nothing of", place)
        queue_id, sequence = place
        queue = catalog.by_id.get(queue_id)
        if queue is not None and place not in gone:
            there = entries.get(queue_id) if queue.config.durable else queue.ephemeral
            must(there is None or sequence in there, f"blob {blob.number} is kept for an entry that is gone", place)
    referred = {(queue.queue_id, sequence) for queue, sequence, _ in work.referred}
    if turns.in_flight is not None:
        referred |= {(queue.queue_id, sequence) for queue, sequence, _ in turns.in_flight.referred}
    for place in work.left:
        must(place in referred or place in held.by_place, "what leaves with the turn left before", place)
    in_memory = {queue.queue_id: queue.ephemeral for queue in catalog.queues.values()}
    for queue_id, found in (*entries.items(), *in_memory.items()):
        for sequence, value in found.items():
            if value[1] & entry.BLOB:
                place = (queue_id, sequence)
                must(place in referred or place in held.by_place, "an entry whose message is nowhere", place)
                blob_number = entry.blob_of(value).blob
                must(blob_number in held.by_number, "an entry whose blob is gone", place, blob_number)


def _gone(turns: Turns, work: Work[Queue]) -> set[EntryRef]:
    """Entries that leave with the gathered turn or with the one that is being committed."""
    gone = {*work.batch.retires, *work.moved, *work.left}
    if turns.in_flight is not None:
        gone.update(turns.in_flight.batch.retires, turns.in_flight.left)
    return gone


# ---------------------------------------------------------------------------------------------------------- turn


def turn(catalog: Catalog, turns: Turns, work: Work[Any]) -> None:
    """One batch is gathered, at most one is being committed, and its parts are in no other batch."""
    in_flight = turns.in_flight
    must(turns.gathered.batch is work.batch, "the queues gather into another batch than the turn's")
    expected = [] if in_flight is None else in_flight.batch.retires
    must(work.retires_in_flight == expected, "what leaves with the commit under way")
    moves = [(queue.queue_id, sequence) for queue, sequence, _ in turns.gathered.moves]
    must(Counter(work.moved) == Counter(moves), "moves of the turn, and of its queues", len(work.moved), len(moves))
    retired = Counter([*work.batch.retires, *work.moved])
    ours = {queue.queue_id for queue in catalog.queues.values()}
    twice = [place for place, count in retired.items() if count > 1 and place[0] in ours]
    must(not twice, "entries that leave twice", twice[:20])
    for queue_id in catalog.leaving:
        must(queue_id not in catalog.by_id, "a deleted queue that is still there", queue_id)
    for held in (turns.gathered, in_flight):
        if held is not None:
            total = sum(held.heard.values())
            must(held.heard_bytes == total, "bytes heard in a turn", held.heard_bytes, total)
