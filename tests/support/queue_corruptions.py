"""Corruptions of queues, cursors, blobs and the turn (support/corruption.py).

Rules of this file: one function, or one line, each.
"""

from typing import Any

from holdfast.broker.bands import Bands
from holdfast.broker.cursors.delivery_counts import DeliveryCounts
from holdfast.broker.cursors.entry_consumer import Acquired
from holdfast.broker.cursors.exclusions import ASIDE_MAX
from holdfast.broker.entries.blob import Blob
from holdfast.broker.stored.bounds import Bounds
from holdfast.endpoints.admission import ROWS_MAX
from support.corruption import breaks, one_more
from support.standing import committing, publishing, selecting, serving, streaming

# ------------------------------------------------------------------------------------------------- state: queues


@breaks("state: a queue stands under another name", serving)
def _(s: Any) -> None:
    s.core.catalog.queues["other"] = s.core.catalog.queues.pop("plain")


@breaks("endpoints: too many rows of refusals", serving)
def _(s: Any) -> None:
    s.core.admission.refused = dict.fromkeys(range(2 * ROWS_MAX + 1))


@breaks("endpoints: queue {}: room by priority, and its settings", serving)
def _(s: Any) -> None:
    s.core.catalog.queues["plain"].bands = Bands(0.5, 0.5, 1.0, 0.0)


@breaks("endpoints: the node is drained, and links bring messages for", serving)
def _(s: Any) -> None:
    s.core.node_drain.since_ms = 0


@breaks("endpoints: queue {}: links that never end", serving)
def _(s: Any) -> None:
    next(iter(next(filter(None, s.core.links.producers.values())))).ends = True


@breaks("state: queue {} is called otherwise within its host", serving)
def _(s: Any) -> None:
    s.core.catalog.queues["plain"].host = "acme"


for count in ("messages", "bytes_held"):
    one_more("state: queue {} counts below nothing", serving, lambda s: s.plain, count, by=-1000)


one_more("state: queue {} shows what it has not given yet", serving, lambda s: s.plain, "visible")


@breaks("state: queue {}: its flag, and its consumers", serving)
def _(s: Any) -> None:
    s.plain.has_consumers = False


one_more("state: queue {}: messages, and entries", serving, lambda s: s.plain, "messages")


@breaks("state: queue {}: messages, and entries", serving)
def _(s: Any) -> None:
    s.memory.ephemeral.popitem()


@breaks("state: queue {}: messages, and entries", committing)
def _(s: Any) -> None:
    s.core.turns.in_flight.batch.appends.clear()


@breaks("state: queue {}: messages, and entries", committing)
def _(s: Any) -> None:
    s.core.work.batch.appends.clear()


one_more("state: queue {}: bytes, and those of its entries", serving, lambda s: s.plain, "bytes_held")


one_more("state: queue {}: tombstones, and those among its entries", serving, lambda s: s.plain, "tombstones")


@breaks("state: what leaves with the turn left before", serving)
def _(s: Any) -> None:
    s.core.work.left.append((s.memory.queue_id, 1))


@breaks("custody: queue {}: hidden, and expired", serving)
def _(s: Any) -> None:
    s.plain.hidden.add(1)


@breaks("state: queue {} has sequences that it never gave", serving)
def _(s: Any) -> None:
    s.memory.ephemeral[9] = s.memory.ephemeral.pop(2)


@breaks("state: queue {} has sequences that it never gave", serving)
def _(s: Any) -> None:
    s.memory.ephemeral[0] = s.memory.ephemeral.pop(2)


@breaks("state: queue {} caches what is not its entry", serving)
def _(s: Any) -> None:
    s.plain.cache[5] = b"another"


@breaks("state: queue {}: nothing will show what was taken", serving)
def _(s: Any) -> None:
    s.plain.visible -= 1
    s.plain.shared.position = s.plain.visible


@breaks("state: queue {} has another queue's cursor", serving)
def _(s: Any) -> None:
    s.plain.shared.queue = s.work


@breaks("state: {} has passed entries that are in nobody's hands", serving)
def _(s: Any) -> None:
    del s.plain.shared.acquired[3]


@breaks("state: {} has passed entries that are in nobody's hands", serving)
def _(s: Any) -> None:
    s.plain.shared.requeued.remove(1)


@breaks("state: {} counts failures of entries that are gone", serving)
def _(s: Any) -> None:
    s.plain.shared.counts[77] = 1


@breaks("state: {} marks entries as shown that are gone", serving)
def _(s: Any) -> None:
    s.plain.shared.counts = DeliveryCounts({})
    s.plain.shared.counts.marked.add(77)


@breaks("state: cursor {} of queue {} passed over {}", serving)
def _(s: Any) -> None:
    del s.work.shared.acquired[3]


@breaks("state: {} has given-back entries twice", serving)
def _(s: Any) -> None:
    s.plain.shared.requeued.append(1)


@breaks("state: {}: given back and held", serving)
def _(s: Any) -> None:
    s.plain.shared.requeued.append(3)


@breaks("state: {}: set aside, and held or given back", serving)
def _(s: Any) -> None:
    s.plain.shared.exclusions.aside[3] = 0


@breaks("state: {}: set aside, and held or given back", serving)
def _(s: Any) -> None:
    s.plain.shared.exclusions.aside[1] = 0


@breaks("state: {}: more is set aside than the bound", serving)
def _(s: Any) -> None:
    s.plain.shared.exclusions.aside.update(dict.fromkeys(range(1_000, 1_001 + ASIDE_MAX), 0))


@breaks("state: {}: set aside for a consumer with a selector that is gone", serving)
def _(s: Any) -> None:
    s.plain.shared.exclusions.aside[1_000] = 1
    s.plain.shared.exclusions.accepted_by[1_000] = object()


@breaks("state: {}: set aside for a consumer with a selector that is gone", serving)
def _(s: Any) -> None:
    s.plain.shared.exclusions.accepted_by[1_000] = next(iter(s.plain.shared.consumers))


@breaks("state: {}: {} is held by who is gone", serving)
def _(s: Any) -> None:
    s.plain.shared.acquired[3] = Acquired(object(), s.plain.shared.acquired[3].size)


@breaks("state: {}: {} is held ahead", serving)
def _(s: Any) -> None:
    s.plain.shared.position = 4


@breaks("state: {}: {} is held ahead", selecting)
def _(s: Any) -> None:
    s.chosen.shared.ahead.clear()


@breaks("state: {}: ahead and held by nobody", selecting)
def _(s: Any) -> None:
    s.chosen.shared.ahead.add(s.chosen.next_sequence)


@breaks("state: {}: held beyond what was handed out ahead", selecting)
def _(s: Any) -> None:
    s.chosen.shared.ahead_end = 4


@breaks("state: {}: its consumers, and those with selectors and without", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.consumers.clear()


@breaks("state: {}: its consumers, and those with selectors and without", selecting)
def _(s: Any) -> None:
    s.chosen.shared.unfiltered.update(s.chosen.shared.consumers)


@breaks("state: {}: hits, and the lowest of them", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.hits.add(1)
    selection.hits._heap.clear()


@breaks("state: {}: hits that wait for others", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.hits.add(1)
    selection.for_others.add(1, [], 5)


@breaks("state: {}: what waits for others, and its order", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.for_others._kept += [2, 1]


@breaks("state: {}: what waits for others, and what is scanned later", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.for_others.add(selection.position, [], 5)


@breaks("state: {}: what waits for others, and what is scanned later", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.for_others.add(1, [], 5)
    selection.for_others.forgotten_from = 1


@breaks("state: {}: something waits for a consumer that is gone", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.for_others.add(1, [object()], 5)


@breaks("state: {}: {} waits for none that can have it", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.position = s.chosen.visible
    selection.for_others.add(selection.position - 1, [], 5)


@breaks("state: {}: what was forgotten, and its end", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.for_others.forgotten_from = selection.position


@breaks("state: {}: {} is not scanned again for who can have it", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.position = s.chosen.visible
    selection.for_others.forgotten_from, selection.for_others.forgotten_to = 1, selection.position


@breaks("state: {}: selector {} passed over what matches", selecting)
def _(s: Any) -> None:
    (selection,) = s.chosen.shared.selections
    selection.position = s.chosen.visible
    selection.hits.replace(())


@breaks("state: {}: who is asked, and subscriptions", publishing)
def _(s: Any) -> None:
    s.topic.subscribed.owners.popitem()


def _bounded(s: Any, messages_max: int, bytes_max: int = 0) -> Any:
    """The subscription to everything, which has a bound from now on, and has been looked through."""
    (cursor,) = [each for each in s.topic.named.values() if each.selector is None]
    bounds = Bounds(messages_max, bytes_max, "end")
    s.topic.bind(cursor.name, s.topic.bindings[cursor.name]._replace(bounds=bounds))
    while s.topic.unmarked is not None:
        s.topic.reclaim_some()
    s.core.work.overfull.clear()
    s.core.work.dirty_queues.pop(s.topic, None)
    return cursor


@breaks("state: {}: its bounds, and what is stored", publishing)
def _(s: Any) -> None:
    s.topic.limited[_bounded(s, 100)] = Bounds(99, 0, "end")


@breaks("state: {}: its bounds, and what its cursor knows", publishing)
def _(s: Any) -> None:
    _bounded(s, 100).is_bounded = False


@breaks("state: {}: bytes to finish, and those of the store", publishing)
def _(s: Any) -> None:
    _bounded(s, 100, 100_000).finished.total += 1


@breaks("state: {} has a bound and is gone", publishing)
def _(s: Any) -> None:
    cursor = _bounded(s, 100)
    s.topic.named[cursor.name] = type(cursor)(s.topic, s.topic, cursor.name)
    s.topic.subscribed = None


@breaks("state: {}: something is wanted by subscriptions that are gone", publishing)
def _(s: Any) -> None:
    s.topic.bindings["gone"] = next(iter(s.topic.bindings.values()))


@breaks("state: {}: subscriptions with a bound, and those held to it", publishing)
def _(s: Any) -> None:
    _bounded(s, 100)
    s.topic.limited.clear()


@breaks("state: {}: messages to finish, and those of the store", publishing)
def _(s: Any) -> None:
    _bounded(s, 100).floor = 0


@breaks("state: {} has more than its bounds", publishing)
def _(s: Any) -> None:
    _bounded(s, 1)


@breaks("state: {}: who is asked, and subscriptions that are not durable", publishing)
def _(s: Any) -> None:
    s.topic.listening.owners.clear()


@breaks("state: {}: {} is held and no entry", serving)
def _(s: Any) -> None:
    s.plain.shared.acquired[0] = s.plain.shared.acquired[3]


@breaks("state: {}: {} is held with another size", serving)
def _(s: Any) -> None:
    held = s.plain.shared.acquired
    held[3] = Acquired(held[3].consumer, held[3].size + 1)


@breaks("state: {}: finished, and held or given back", serving)
def _(s: Any) -> None:
    s.work.shared.finished.add(3)


@breaks("state: {}: finished below its floor", serving)
def _(s: Any) -> None:
    s.work.shared.finished.add(s.work.shared.floor - 1)


one_more(
    "state: {}: its stored watermark is ahead of its watermark", serving, lambda s: s.plain.shared, "watermark_stored"
)


one_more(
    "state: {} waits for a watermark that nothing stores", serving, lambda s: s.plain.shared, "watermark_stored", by=-1
)


def lying(s: Any) -> Blob:
    """The blob of an entry."""
    found: Blob = next(blob for blob in s.core.blobs.by_number.values() if blob.places)
    return found


@breaks("state: a blob stands under another number", streaming)
def _(s: Any) -> None:
    s.core.blobs.by_number[9] = s.core.blobs.by_number[1]


@breaks("state: blob {}: loose, and referred to", streaming)
def _(s: Any) -> None:
    s.core.blobs.loose[lying(s)] = None


@breaks("state: blob {}: loose, and referred to", streaming)
def _(s: Any) -> None:
    s.core.blobs.loose.clear()


@breaks("state: blob {}: an entry that it knows nothing of", streaming)
def _(s: Any) -> None:
    s.core.blobs.by_place[77, 1] = lying(s)


@breaks("state: blob {}: an entry that knows nothing of it", streaming)
def _(s: Any) -> None:
    lying(s).places[77, 1] = None


@breaks("state: blob {} is kept for an entry that is gone", streaming)
def _(s: Any) -> None:
    blob = lying(s)
    queue_id, sequence = next(iter(blob.places))
    blob.places[queue_id, sequence + 100] = None
    s.core.blobs.by_place[queue_id, sequence + 100] = blob


@breaks("state: an entry whose message is nowhere", streaming)
def _(s: Any) -> None:
    blob = lying(s)
    for place in blob.places:
        del s.core.blobs.by_place[place]
    blob.places = {}
    s.core.blobs.loose[blob] = None


@breaks("state: an entry whose blob is gone", streaming)
def _(s: Any) -> None:
    blob = lying(s)
    del s.core.blobs.by_number[blob.number]


@breaks("state: the queues gather into another batch than the turn's", committing)
def _(s: Any) -> None:
    s.core.turns.gathered.batch = type(s.core.work.batch)()


@breaks("state: what leaves with the commit under way", committing)
def _(s: Any) -> None:
    s.core.work.retires_in_flight = []


@breaks("state: moves of the turn, and of its queues", committing)
def _(s: Any) -> None:
    s.core.turns.gathered.moves.append((s.work, 77, 1))


@breaks("state: entries that leave twice", committing)
def _(s: Any) -> None:
    s.core.work.batch.retires += s.core.work.batch.retires


@breaks("state: a deleted queue that is still there", committing)
def _(s: Any) -> None:
    s.core.catalog.leaving[s.work.queue_id] = None


one_more("state: bytes heard in a turn", committing, lambda s: s.core.turns.in_flight, "heard_bytes")
one_more("state: bytes heard in a turn", committing, lambda s: s.core.turns.gathered, "heard_bytes")
