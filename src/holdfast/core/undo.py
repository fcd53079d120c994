"""A refused turn never was: how a full disk takes back what was gathered (ARCHITECTURE, "How a core is driven").

Rules of this file: numbers that were given are given back, copies that were moved are where they were, and what
retires still retires.
"""

from heapq import heappush
from typing import TYPE_CHECKING

from holdfast.broker import entry
from holdfast.broker.port import Batch
from holdfast.broker.records import pack_origin, split_cursor_key
from holdfast.core import streams
from holdfast.core.ingress import ProducerLink
from holdfast.core.turn import Turn

if TYPE_CHECKING:
    from holdfast.core.node import NodeCore


def refuse(core: "NodeCore", room_bytes: int) -> None:
    """No space: the turn in flight and the one gathered after it are refused; what leaves, leaves alone."""
    failed = core.in_flight
    assert failed is not None
    core.in_flight = None
    work = core.work
    work.retires_in_flight = []
    core.hops_in_flight, core.marks_in_flight = {}, {}
    core.room_bytes = min(room_bytes, 0)
    core.refills.update(core.starved)
    core.starved.clear()
    core.log("ERROR", "the disk is full: new messages are refused")
    gathering = core.turn
    work.referred, work.left = [], failed.left + work.left
    retry = Batch()
    work.batch = retry
    work.moved = []
    core.turn = Turn(retry)
    for turn in (gathering, failed):  # the older snapshot is put back last
        _undo(core, turn, retry)
    for turn in (failed, gathering):
        for link, deliveries in turn.arrivals.items():
            if isinstance(link, ProducerLink) and not link.queue.config.durable:
                link.stored(deliveries)
            else:
                link.refused(deliveries)
        core.turn.answers += turn.answers
        core.turn.then += turn.then


def _undo(core: "NodeCore", turn: Turn, retry: Batch) -> None:
    """Puts back what the turn changed; what leaves, and what no append needs, goes into `retry`."""
    batch = turn.batch
    by_id = core.catalog.by_id
    for queue_id, sequence, value in batch.appends:
        queue = by_id.get(queue_id)
        if queue is not None:
            if (queue, sequence) not in turn.rewritten:
                queue.undo(sequence, entry.size_of(value))
                core.forwarding.undone(queue, sequence)
            else:
                queue.uncache(sequence)
                kept = queue.value(sequence)
                if kept is not None:
                    queue.bytes_held += entry.size_of(kept) - entry.size_of(value)
                    for cursor in (queue.shared, *queue.named.values()):
                        held = cursor.shown.get(sequence)
                        if held is not None:  # it leaves with the size that it is counted with
                            cursor.shown[sequence] = held._replace(size=entry.size_of(kept))
            queue.touch_counters()
    for queue, _ in turn.visible:
        if not queue.config.durable:  # what it took in memory is taken, and still to be shown
            queue.touch_counters()
    streams.refused(turn.streams)
    for cursor, _ in turn.marks:  # asked for again, or the cursor waits for it for ever
        cursor.queue.touch_counters()
    moved = {(queue.queue_id, sequence) for queue, sequence, _ in turn.moves}
    for queue, sequence, value in turn.moves:
        queue.messages += 1
        queue.bytes_held += entry.size_of(value)
        heappush(queue.shared.returned, sequence)
        queue.shared.counts.setdefault(sequence, 1)
        queue.look_again([sequence])
        queue.touch_counters()
        queue.touch()
    retry.retires += [item for item in batch.retires if item not in moved]
    gone = set(retry.deletes)  # of the turn gathered after this one: what it deleted stays deleted
    retry.deletes += batch.deletes
    for (table, key), record in batch.puts.items():
        if (table, key) in gone:
            continue
        if table in ("queues", "node") or (table == "custody" and key[:1] in b"rnmo"):
            retry.puts.setdefault((table, key), record)
    for table, key in batch.puts:
        if table == "subscriptions":
            queue_id, name = split_cursor_key(key)
            queue = by_id.get(queue_id)
            if queue is not None and (name in queue.named or (not name and (queue.shared.tracked or queue.sweeping))):
                queue.dirty(queue.named.get(name, queue.shared))
    for producer, stored in turn.producers.items():
        producer.stored = stored
        core.catalog.put_producer(producer)
    for origin, (before, waiting) in turn.origins.items():
        origin.mark, origin.passed, origin.waited_s = before.mark, before.passed, before.waited_s
        origin.finished, origin.ended, origin.waiting = before.finished, before.ended, waiting
        retry.puts["origins", origin.origin.bytes] = pack_origin(before)
    for destination, number in turn.identities.items():
        core.catalog.identities[destination] = number
        core.catalog.put_identity(destination)
