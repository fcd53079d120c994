"""A turn taken back: how a full disk, or a failure that was contained, undoes what was gathered (docs/adr/0019).

Rules of this file: numbers that were given are given back, copies that were moved are where they were, and what
retires still retires. One mechanism for both uses; they differ in which turns go, and in what their senders hear.
"""

from collections.abc import Collection
from heapq import heappush
from typing import Final

from holdfast.amqp.wire.performatives import Released
from holdfast.broker import entry, rewriting
from holdfast.broker.blob import PIECE_OVERHEAD
from holdfast.broker.kinds import QueueKind
from holdfast.broker.queue import Queue
from holdfast.broker.records import origin_key, pack_origin, split_cursor_key
from holdfast.core.parts import Parts
from holdfast.endpoints.producer import ProducerLink
from holdfast.engine.port import Batch
from holdfast.peers.peer import Peer
from holdfast.state.turns import Turn

RELEASED: Final = Released()


def refuse(core: Parts, room_bytes: int) -> None:
    """No space: the turn in flight and the one gathered after it are refused; what leaves, leaves alone."""
    failed = core.turns.in_flight
    assert failed is not None
    core.turns.in_flight = None
    core.work.retires_in_flight = []
    core.hops_in_flight, core.marks_in_flight = {}, {}
    core.disk.look()
    core.room.bytes = min(room_bytes, 0)
    core.disk.refused(failed.batch)
    core.links.room_may_be_back()
    _take_back(core, (failed, core.turns.gathered), core.disk.refusal, ())


def take_back_gathered(core: Parts, ended: Collection[Peer]) -> None:
    """A failure was contained: the gathered turn never was; the one in flight is on its way to the disk and stays.

    Deliveries of the peers that are about to end get no answer. All others are released, so that they come again.
    """
    _take_back(core, (core.turns.gathered,), RELEASED, ended)


def _take_back(core: Parts, turns: tuple[Turn, ...], outcome: object, ended: Collection[Peer]) -> None:
    """`turns`, the oldest first, the gathered one last, never were; what of them stays goes into a fresh one."""
    work = core.work
    lost = _undo_unstored(core, [*(item for turn in turns for item in turn.referred), *work.referred])
    work.referred = []
    work.left = [place for turn in turns for place in turn.left] + work.left
    retry = Batch()
    work.batch = retry
    work.moved = []
    core.turns.gathered = Turn(retry)
    for turn in reversed(turns):  # the older snapshot is put back last
        _undo(core, turn, retry)
        _undo_streams(core, turn, outcome, ended)
    _undo_rewritten(core, turns, retry)
    core.losses.undo(reversed(turns))
    for turn in turns:
        for effect in turn.decided:
            core.containment.finish(core.turns.effects.decided(effect, stored=False), undoing=True)
        for link, deliveries in turn.arrivals.items():
            if link.peer in ended:
                continue
            try:
                if isinstance(link, ProducerLink) and not link.queue.config.durable and link.queue not in lost:
                    link.stored(deliveries)
                else:
                    link.refused(deliveries, outcome)
            except Exception as error:
                core.containment.failed(error, link, changed=False)
        core.turns.gathered.answers += turn.answers
        core.turns.gathered.then += turn.then


def _undo_unstored(core: Parts, referred: list[tuple[Queue, int, int]]) -> dict[Queue, None]:
    """What a queue in memory took stays, but for large messages, whose bytes are not on disk: they never came. Returns
    their queues; whatever came for these in the turn is refused, and small ones may be doubled by that."""
    lost: dict[Queue, None] = {}
    for queue, sequence, _ in referred:
        if not queue.config.durable and core.catalog.has(queue):
            value = queue.ephemeral.pop(sequence, None)
            if value is not None:
                queue.undo(sequence, value)
                queue.count_memory()
                lost[queue] = None
    return lost


def _undo_streams(core: Parts, turn: Turn, outcome: object, ended: Collection[Peer]) -> None:
    """Pieces of large messages need no number: after a failure those of other peers stay; on a full disk none do."""
    if outcome is not RELEASED:
        for stream in turn.streams:
            stream.refuse(core.disk.text)
        return
    kept = {stream.blob.number for stream in turn.streams if stream.bringer.peer not in ended}
    batch = core.work.batch
    for piece in turn.batch.pieces:
        if piece[0] in kept:
            batch.pieces.append(piece)
            batch.bytes_appended += len(piece[2]) + PIECE_OVERHEAD
    core.turns.gathered.streams = {stream: None for stream in turn.streams if stream.blob.number in kept}


def _undo(core: Parts, turn: Turn, retry: Batch) -> None:
    """Puts back what the turn changed; what leaves, and what no append needs, goes into `retry`."""
    batch = turn.batch
    retry.mint = retry.mint or batch.mint
    catalog = core.catalog
    by_id = catalog.by_id
    for queue_id, sequence, value in batch.appends:
        queue = by_id.get(queue_id)
        if queue is not None:
            if (queue, sequence) not in turn.rewritten:
                core.forwarding.undone(queue, sequence)
                queue.undo(sequence, value)
            queue.touch_counters()
    for queue, _ in turn.visible:  # what it took in memory is taken, and numbers stay given over any number of retries
        if (not queue.config.durable or queue.visible < queue.next_sequence) and catalog.has(queue):
            queue.touch_counters()
    for cursor, _ in turn.marks:  # asked for again, or the cursor waits for it for ever
        if catalog.has(cursor.queue):
            cursor.queue.touch_counters()
    moved = {(queue.queue_id, sequence) for queue, sequence, _ in turn.moves}
    retry.retires += [item for item in batch.retires if item not in moved]
    _undo_moves(core, turn, retry)
    gone = set(retry.deletes)  # of the turn gathered after this one: what it deleted stays deleted
    retry.deletes += batch.deletes
    for (table, key), record in batch.puts.items():
        if (table, key) in gone:
            continue
        if table in ("queues", "node") or (table == "custody" and key[:1] in b"rnmouw"):
            retry.puts.setdefault((table, key), record)
    for table, key in batch.puts:
        if table == "subscriptions":
            queue_id, name = split_cursor_key(key)
            queue = by_id.get(queue_id)
            if queue is not None and (name in queue.named or (not name and (queue.shared.tracked or queue.sweeping))):
                queue.dirty(queue.named.get(name, queue.shared))
    for producer, stored in turn.producers.items():
        producer.stored = stored
        if catalog.producers.get(producer.key) is producer:
            catalog.put_producer(producer)
    for origin, (before, waiting) in turn.origins.items():
        origin.restore(before, waiting)
        core.destination.restored(origin)
        retry.puts[origin_key(origin.origin, origin.suffix)] = pack_origin(before)
    for destination, number in turn.identities.items():
        core.catalog.put_identity(destination, number)
    core.identities.undo(turn)


def _undo_moves(core: Parts, turn: Turn, retry: Batch) -> None:
    """What was moved elsewhere is in its queue again; of one that was deleted since, it leaves with the rest."""
    back: dict[Queue, list[int]] = {}
    for queue, sequence, value in turn.moves:
        if not core.catalog.has(queue):
            retry.retires.append((queue.queue_id, sequence))
            continue
        queue.messages += 1
        queue.bytes_held += entry.size_of(value)
        back.setdefault(queue, []).append(sequence)
    for queue, sequences in back.items():
        _give_back(queue, sequences)
        queue.touch_counters()
        queue.touch()


def _give_back(queue: Queue, sequences: list[int]) -> None:
    """Entries that were moved elsewhere are in their places again: one that lies ahead is met there, once; what
    `$waiting` has is read by no cursor. A transmission queue offers nothing while what lies ahead of its cursor is
    moved."""
    cursor = queue.shared
    if queue.kind is QueueKind.WAITING:
        return
    below = [sequence for sequence in sequences if sequence < cursor.position]
    known = {*cursor.shown, *cursor.returned} if below else set()  # of these their taker gives them back
    for sequence in below:
        if sequence not in known:
            known.add(sequence)
            heappush(cursor.returned, sequence)
        cursor.counts.setdefault(sequence, 1)
    queue.look_again(below)


def _undo_rewritten(core: Parts, turns: tuple[Turn, ...], retry: Batch) -> None:
    """Entries that `turns` put anew, however often, are what the commit that stays makes of them, or the store has.

    What leaves all the same has left with the size that it had.
    """
    last = {place: value for turn in turns for place, value in turn.rewritten.items()}
    kept = {} if core.turns.in_flight is None else core.turns.in_flight.rewritten
    core.work.rewritten = {(queue.queue_id, sequence): value for (queue, sequence), value in kept.items()}
    gone = set(retry.retires) if last else set()
    for (queue, sequence), value in last.items():
        if not core.catalog.has(queue):
            continue
        queue.uncache(sequence)
        before = queue.value(sequence)
        if before is not None and (queue.queue_id, sequence) not in gone:
            rewriting.replace(queue, sequence, value, before)
