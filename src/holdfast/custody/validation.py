"""Invariants of custody at its destination and at its origin (docs/adr/0020).

Rules of this file: reads, never changes; BrokenInvariant says what contradicts what.
"""

from collections import Counter
from collections.abc import Iterable

from holdfast.broker.cursors.delivery_counts import EXHAUSTED, DeliveryCounts
from holdfast.broker.entries import entry, packed
from holdfast.broker.entries.host_names import host_of, shown
from holdfast.broker.entries.kinds import QueueKind
from holdfast.broker.entries.work import Work
from holdfast.broker.queue import Queue
from holdfast.broker.stored.origins import Origin
from holdfast.custody.arrival.destination import Destination
from holdfast.custody.delays import Delays
from holdfast.custody.delivery_limits import DeliveryLimits
from holdfast.custody.expiry import UnhideExpired
from holdfast.custody.names.identity import Identities
from holdfast.engine.invariants import must
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Turns
from holdfast.state.validation import Entries


def origins(entries: Entries, destination: Destination, catalog: Catalog) -> None:
    """Waiting messages are in `$waiting`, and no number is both waiting and finished."""
    all_held = {queue.host: queue for queue in catalog.queues.values() if queue.kind is QueueKind.WAITING}
    waiting: Counter[str] = Counter()
    for origin in catalog.ledger.all_origins():
        where = f"origin {origin.origin} for {shown(origin.host, origin.suffix)}"
        waiting[origin.host] += len(origin.waiting)
        held = all_held.get(origin.host)
        lies = None if held is None else entries.get(held.queue_id)
        must(not origin.waiting or origin in destination.waiters, f"{where}: nobody counts how long it waits")
        low = next(iter(origin.finished), (origin.mark + 2, 0))[0]
        must(low > origin.mark + 1, f"{where}: finished at or below its mark", low, origin.mark)
        _groups(origin, where)
        for number, item in origin.waiting.items():
            must(number > origin.mark, f"{where}: {number} waits below the mark", origin.mark)
            must(number not in origin.finished, f"{where}: {number} waits and is finished")
            must(lies is None or item.held_at in lies, f"{where}: {number} waits and lies nowhere", item.held_at)
    for host, held in all_held.items():
        lies = entries.get(held.queue_id)
        if lies is not None:
            must(len(lies) == waiting[host], "messages that wait, and entries of $waiting", waiting[host], len(lies))
    for host, origins in catalog.ledger.by_host.items():
        for origin in origins.values():
            must(origin.host == host, f"origin {origin.origin} counts for another virtual host", origin.host, host)
    kept = {queue.name for queue in catalog.queues.values() if queue.awaited or queue.awaited_bytes}
    awaiting = {queue.name for queue in destination.places.awaiting if catalog.has(queue)}
    must(kept == awaiting, "queues that keep room for a group", sorted(kept ^ awaiting))
    counts = destination.ticking or destination.next_tick is not None
    must(bool(counts) or not destination.waiters, "origins of which something waits, and no time that is counted")
    for origin in destination.blocked:
        must(bool(origin.waiting), f"origin {origin.origin} is blocked, and nothing of it waits")


def _groups(origin: Origin, where: str) -> None:
    """Messages that wait for their group are counted there, and messages that wait for nothing are known."""
    waiting, members = origin.waiting, set[int]()
    for first, group in origin.groups.by_first.items():
        numbers = group.members.keys()
        within = bool(numbers) and first <= min(numbers) and max(numbers) <= group.last
        must(within, f"{where}: a group has none, or others", first)
        held = sum(waiting[number].stored_bytes for number in numbers if number in waiting)
        must(group.stored_bytes == held, f"{where}: bytes of a group", group.stored_bytes, held)
        members |= numbers
    grouped = {number for number, item in waiting.items() if item.group is not None}
    must(members == grouped, f"{where}: what waits for its group", sorted(members ^ grouped)[:20])
    apart = {number for number, item in waiting.items() if item.group is None and item.order == "none"}
    known = origin.groups.apart.keys()
    must(known == apart, f"{where}: what waits for nothing", sorted(known ^ apart)[:20])


def identities(entries: Entries, identities: Identities, catalog: Catalog) -> None:
    """No number in a transmission queue is still to be given."""
    for destination, queue in catalog.transmissions():
        must(queue.host == host_of(destination), f"{destination}: its queue is another host's", queue.host)
        numbers = [
            packed.identity_of(value).number
            for value in entries.get(queue.queue_id, {}).values()
            if value[1] & entry.CUSTODY and packed.origin_of(value) == identities.store_uuid.bytes
        ]
        following = catalog.ledger.identities.get(destination, 1)
        must(max(numbers, default=0) < following, f"{destination}: numbers that are still to be given", following)
        must(catalog.has(queue), f"transmission queue {queue.name!r} is gone")


def delivery_limits(limits: DeliveryLimits, catalog: Catalog, turns: Turns, work: Work[Queue]) -> None:
    """Entries that exceeded `deliveries_max` are being dead-lettered, and counted failed deliveries are stored."""
    in_flight = turns.in_flight
    for queue in catalog.queues.values():
        for cursor in queue.cursors:
            where = f"cursor {cursor.name!r} of queue {queue.name!r}"
            mine = {number for number, item in cursor.acquired.items() if item.consumer is EXHAUSTED}
            moving = {*limits.moving.of(cursor)}
            must(cursor.exhausted.keys() <= mine, f"{where}: on its way to the dead letters, and in other hands")
            must(mine <= cursor.exhausted.keys() | moving, f"{where}: nothing moves what is delivered no more")
            must(moving.isdisjoint(cursor.exhausted), f"{where}: on its way to the dead letters twice")
            must(
                not cursor.exhausted or cursor in work.exhausted, f"{where}: nobody looks at what is delivered no more"
            )
            bounded = queue.config.durable and queue.config.deliveries_max is not None and not cursor.is_links
            must(cursor.is_counted or not bounded, f"{where}: failed deliveries are not stored")
            in_order = list(cursor.lives) == sorted(cursor.lives, reverse=True)
            must(in_order, f"{where}: ends of earlier lives out of order", cursor.lives)
            if not isinstance(cursor.counts, DeliveryCounts):
                continue
            counts = cursor.counts
            written = {item for at, found in (in_flight.counts if in_flight else ()) if at is cursor for item in found}
            lost = counts.unstored - counts.changed - written
            must(not lost, f"{where}: waits for a failed delivery that nothing stores", sorted(lost)[:20])
            must(counts.marked_stored <= counts.marked, f"{where}: stored as shown, and not to be shown")
            due = queue in work.dirty_counters or not counts.changed
            must(due, f"{where}: nothing stores failed deliveries", sorted(counts.changed)[:20])
            waiting = counts.marked - counts.marked_stored - counts.changed - written
            must(not waiting, f"{where}: nothing stores what is to be shown", sorted(waiting)[:20])


def expired(catalog: Catalog, turns: Turns, by_hand: Iterable[tuple[int, int]]) -> None:
    """Expired entries are hidden exactly until they are off the disk. `by_hand`: entries that an operator moved or
    deleted, as (queue id, sequence)."""
    leaving: dict[int, set[int]] = {}
    for queue_id, sequence in by_hand:
        leaving.setdefault(queue_id, set()).add(sequence)
    for turn in (turns.gathered, turns.in_flight):
        for effect in turn.then if turn is not None else ():
            if isinstance(effect, UnhideExpired):
                for queue_id, sequences in effect.gone:
                    leaving.setdefault(queue_id, set()).update(sequences)
    for queue in catalog.queues.values():
        expected = leaving.get(queue.queue_id, set()) if queue.config.durable else set()
        must(queue.hidden == expected, f"queue {queue.name!r}: hidden, and expired", queue.hidden ^ expected)


def delays(entries: Entries, held: Delays, catalog: Catalog) -> None:
    """Each delayed message has a time at which it is examined."""
    for queue in catalog.queues.values():
        lies = entries.get(queue.queue_id, {}) if queue.kind is QueueKind.DELAYED else {}
        of_host = held.by_host.get(queue.host)
        known: set[int] = set()
        first, end = 0, 0
        if of_host is not None:
            known = {sequence for heap in (of_host.steady, of_host.wall) for _, sequence in heap}
            known.update(sequence for waiting in of_host.waiting.values() for _, sequence in waiting)
            known.update(sequence for moved in of_host.moving for _, sequence in moved)
            first, end = of_host.unread or (0, 0)
        lost = [sequence for sequence in lies if sequence not in known and not first <= sequence < end]
        must(not lost, "delayed messages that nobody will deliver", lost[:20])
