"""Compares what a node knows with what it would load from its disk if it were started now.

Rules of this file: reads, never changes the node; what is loaded is thrown away. It finds a row that was forgotten or
not taken back when that happens, and not only where a crash meets a message that shows it.
"""

from collections.abc import Iterator, Mapping
from uuid import UUID

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored import records
from holdfast.broker.stored.ranges import RangeSet
from holdfast.broker.topic import Topic
from holdfast.core.node import NodeCore
from holdfast.endpoints.addresses.services import Services
from holdfast.engine.clock import Clock
from holdfast.engine.outbox import Outbox
from holdfast.peers.connections import Connections
from holdfast.peers.limits.memory import Memory
from holdfast.state.blobs import Blobs
from holdfast.state.catalog import Catalog
from holdfast_lab.base.client_history import Violation


def is_stored(core: NodeCore) -> bool:
    """Whether nothing is gathered or under way: then memory and disk say the same. A node that stops has said its last
    words in another form."""
    turns, work = core.turns, core.work
    gathered = turns.gathered
    return not (
        turns.in_flight is not None or gathered or gathered.moves or gathered.touched or work.dirty_counters
        or work.referred or work.left or work.moved or work.rewritten or core.stopping
    )  # fmt: skip


def check_reloaded(core: NodeCore) -> None:
    """Violation for the first difference; to be called where `is_stored`."""
    for what, held, stored in _compared(core):
        if held != stored:
            raise Violation(f"{core.config.name} would forget at a restart: {what} {held!r} is stored as {stored!r}")


def _given(identities: Mapping[str, int]) -> dict[str, int]:
    """The numbers to give next, without those that begin: a turn undone leaves 1 where nothing was before."""
    return {name: number for name, number in identities.items() if number > 1}


def _loaded(core: NodeCore) -> tuple[Catalog, Blobs]:
    work: Work[Queue] = Work()
    clock = Clock(core.clock.wall_ms, core.clock.steady_ms, core.clock.now)
    memory = Memory(core.config.limits, Connections(Outbox(), lambda peer, found: None))
    catalog = Catalog(core.config, core.store, clock=clock, work=work, memory=memory, new_uuid=lambda: UUID(int=0))
    return catalog, Blobs(catalog, core.store, work)


def _compared(core: NodeCore) -> Iterator[tuple[str, object, object]]:
    """(what, as it is in memory, as it is stored)."""
    catalog, blobs = _loaded(core)
    durable = {name: queue for name, queue in core.catalog.queues.items() if queue.config.durable}
    stored = {name: queue for name, queue in catalog.queues.items() if queue.config.durable}
    yield "queues", sorted(durable), sorted(stored)
    yield "queues that leave", sorted(core.catalog.leaving), sorted(catalog.leaving)
    for name, queue in durable.items():
        yield from _of_queue(core.catalog, name, queue, stored[name])
    yield from _of_operators(core)
    ours, theirs = core.catalog.ledger, catalog.ledger
    yield "identities", _given(ours.identities), _given(theirs.identities)
    for what in ("receipts", "passing", "neighbour_stores", "replaced", "names"):
        yield what, getattr(ours, what), getattr(theirs, what)
    for key, progress in core.receiver_parts.hop_stored.items():
        if progress[1]:  # what an epoch begins with is not stored
            yield f"hop {key!r}", progress, theirs.hops.get(key)
    yield "numbers that begin anew", sorted(ours.renewals), sorted(theirs.renewals)
    for host, origins in ours.by_host.items():
        for uuid, origin in origins.items():
            other = theirs.by_host[host].get(uuid)
            known = [] if other is None else [other.mark, other.passed, [*other.finished], [*other.ended]]
            held = [origin.mark, origin.passed, [*origin.finished], [*origin.ended]]
            if other is not None or any(held):
                yield f"origin {uuid} (mark, passed, finished, ended)", held, known
    for key, producer in core.catalog.producers.items():
        made = catalog.producers.get(key)
        yield f"numbers of producer {producer.name!r}", [*producer.stored], [] if made is None else [*made.stored]
    in_memory = {queue.queue_id for queue in core.catalog.queues.values() if not queue.config.durable}
    for number, blob in core.blobs.by_number.items():
        of_disk = blobs.by_number.get(number)
        places = sorted(place for place in blob.places if place[0] not in in_memory)
        if places:
            yield f"entries of blob {number}", places, [] if of_disk is None else sorted(of_disk.places)
            yield f"pieces of blob {number}", blob.end, None if of_disk is None else of_disk.end


def _of_operators(core: NodeCore) -> Iterator[tuple[str, object, object]]:
    """What requests have changed: names of services, and links between queues."""
    rows = dict(core.store.table("node"))
    yield "services", core.services.registered, Services(core.config, core.turns, rows.items()).registered
    for key, link in core.queue_links.by_name.items():
        if link.ended:
            continue
        config, row = link.config, rows.pop(records.queue_link_key(key), None)
        stored = None if row is None else records.unpack_queue_link(row)
        told = None if stored is None else (stored.source, stored.target, stored.mode, stored.start)
        yield f"link {link.name!r}", (config.source, config.target, config.mode, config.start), told
        yield f"link {link.name!r} is stopped", link.is_stopped, stored is not None and stored.is_stopped
    yield "links that are gone", [], [key for key in rows if key.startswith(records.QUEUE_LINK)]


def _of_queue(catalog: Catalog, name: str, queue: Queue, stored: Queue) -> Iterator[tuple[str, object, object]]:
    where = f"queue {name!r}:"
    yield f"{where} messages", queue.messages, stored.messages
    yield f"{where} bytes", queue.bytes_held, stored.bytes_held
    yield f"{where} sequences from", max(queue.next_sequence, stored.next_sequence), queue.next_sequence
    yield f"{where} settings", queue.config, stored.config
    yield f"{where} sequences with a time to live", queue.timed, stored.timed
    yield f"{where} subscriptions", sorted(queue.named), sorted(stored.named)
    if isinstance(queue, Topic):
        yield f"{where} what they want", queue.bindings, stored.bindings if isinstance(stored, Topic) else None
    for cursor in queue.cursors:
        other = stored.named.get(cursor.name) if cursor.name else stored.shared
        if other is not None and cursor not in catalog.rows.tied:
            yield from _of_cursor(f"{where} cursor {cursor.name!r}:", queue, cursor, other)


def _of_cursor(where: str, queue: Queue, cursor: Cursor, stored: Cursor) -> Iterator[tuple[str, object, object]]:
    mode = cursor.mode, cursor.tracked, cursor.lease_epoch
    yield f"{where} mode", mode, (stored.mode, stored.tracked, stored.lease_epoch)
    if cursor.tracked:
        ours, theirs = _finished(cursor), _finished(stored)
        yield f"{where} stored as finished", [], _entries_of(queue, theirs, without=ours)
        if cursor.selector is None and not isinstance(queue, Topic):  # what a selector leaves out is stored later
            yield f"{where} finished", _entries_of(queue, ours, without=theirs), []
    if not cursor.is_counted:
        yield f"{where} watermark", cursor.watermark_stored, stored.watermark


def _finished(cursor: Cursor) -> RangeSet:
    return RangeSet(sorted([*([(0, cursor.floor - 1)] if cursor.floor else []), *cursor.finished]))


def _entries_of(queue: Queue, ranges: RangeSet, *, without: RangeSet) -> list[int]:
    """The first entry of the queue, if any, in each part of `ranges` that is not in `without`."""
    found = []
    for first, last in ranges:
        for low, high in without.gaps(first, last):
            entries = queue.read(low, count_max=1, bytes_max=1)
            found += [sequence for sequence, _ in entries if sequence <= high and not queue.leaves(sequence)]
    return found
