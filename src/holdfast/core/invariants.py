"""What holds of a node after every event: all its invariants in one place (docs/adr/0020).

Rules of this file: reads, never changes. One function for each part of the node, gathered in PARTS; each raises
BrokenInvariant with what contradicts what. Sums are compared with the entries themselves: those on disk, with what
the commit under way and the gathered turn will have changed.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from holdfast.accounts import Account
from holdfast.amqp.connection import Delivery, Receiver, Sender
from holdfast.broker import entry
from holdfast.broker.cursor import Cursor
from holdfast.broker.entry_log import ENTRY_BYTES
from holdfast.broker.queue import Queue
from holdfast.core.parts import Parts
from holdfast.custody.hop.sender import CustodySender
from holdfast.endpoints.browser import ReaderLink
from holdfast.endpoints.consumer import ConsumerLink
from holdfast.endpoints.dynamic_nodes import TemporaryQueue
from holdfast.endpoints.producer import ProducerLink
from holdfast.endpoints.resumable import REJECTED_BYTES, ResumableConsumer
from holdfast.endpoints.settlements import Settles
from holdfast.engine.port import Batch
from holdfast.errors import BrokenInvariant
from holdfast.links.incoming import Ingress, Intake
from holdfast.links.outgoing import Egress
from holdfast.management.requests import ReplyLink
from holdfast.peers.link_tables import links_of
from holdfast.peers.memory import PARKED_BYTES
from holdfast.peers.peer import Peer
from holdfast.peers.use import Use
from holdfast.state.catalog import WAITING

READ_COUNT: Final = 4_096
READ_BYTES: Final = 16 * 1024 * 1024

Place = tuple[int, int]
"""(queue id, sequence)."""


class Facts(NamedTuple):
    """What several checks need; gathered once for each."""

    core: Parts
    entries: dict[int, dict[int, bytes]]
    """By queue id: the entries of each queue whose entries were read, by sequence, as they will be when the gathered
    turn is on disk."""
    leaving: frozenset[Place]
    """What is retired and not yet known to be off the disk."""
    links: list[Any]
    """Every link that the engines of the connections know."""


def check(core: Parts, *, entries_max: int | None = None) -> None:
    """Raises BrokenInvariant for the first invariant that is broken."""
    facts = _facts(core, sys.maxsize if entries_max is None else entries_max)
    for part in PARTS:
        part(facts)


def _must(holds: bool, text: str, *found: object) -> None:
    if not holds:
        raise BrokenInvariant(f"{text}: found {', '.join(map(str, found))}" if found else text)


# --------------------------------------------------------------------------------------------------------- facts


def _facts(core: Parts, entries_max: int) -> Facts:
    left = entries_max
    entries: dict[int, dict[int, bytes]] = {}
    for queue in sorted(core.catalog.queues.values(), key=lambda queue: queue.messages):
        if queue.config.durable and queue.messages <= left:
            left -= queue.messages
            entries[queue.queue_id] = dict(_stored(core, queue))
    in_flight = core.turns.in_flight
    batches = [] if in_flight is None else [in_flight.batch]
    for batch in batches:
        _apply(entries, batch.retires, batch)
    retires = [*core.work.batch.retires, *core.work.moved]
    _append(entries, core.work.batch)
    _retire(entries, retires)
    leaving = frozenset(place for found in (*(batch.retires for batch in batches), retires) for place in found)
    links = [link for peer in core.connections.values() for link in links_of(peer)]
    return Facts(core, entries, leaving, links)


def _stored(core: Parts, queue: Queue) -> Iterable[tuple[int, bytes]]:
    first = 0
    while found := core.store.read(queue.queue_id, first, count_max=READ_COUNT, bytes_max=READ_BYTES):
        yield from found
        first = found[-1][0] + 1


def _apply(entries: dict[int, dict[int, bytes]], retires: Iterable[Place], batch: Batch) -> None:
    """As a store applies a batch; the same whether it has done so already or not."""
    _retire(entries, retires)
    _append(entries, batch)


def _append(entries: dict[int, dict[int, bytes]], batch: Batch) -> None:
    for queue_id, sequence, value in batch.appends:
        if queue_id in entries:
            entries[queue_id][sequence] = value


def _retire(entries: dict[int, dict[int, bytes]], retires: Iterable[Place]) -> None:
    for queue_id, sequence in retires:
        if queue_id in entries:
            entries[queue_id].pop(sequence, None)


# -------------------------------------------------------------------------------------------------------- queues


def queues(facts: Facts) -> None:
    """Messages and bytes of each queue are what its entries sum to; what it caches is among them."""
    core = facts.core
    for name, queue in core.catalog.queues.items():
        _must(queue.name == name, "a queue stands under another name", name, queue.name)
        _must(queue.messages >= 0 and queue.bytes_held >= 0, f"queue {name!r} counts below nothing")
        _must(queue.visible <= queue.next_sequence, f"queue {name!r} shows what it has not given yet")
        known = facts.entries.get(queue.queue_id)
        values = queue.ephemeral if not queue.config.durable else known
        if values is not None:
            _must(len(values) == queue.messages, f"queue {name!r}: messages, and entries", queue.messages, len(values))
            size = sum(map(entry.size_of, values.values()))
            _must(size == queue.bytes_held, f"queue {name!r}: bytes, and those of its entries", queue.bytes_held, size)
            strange = [sequence for sequence in values if not 0 < sequence < queue.next_sequence]
            _must(not strange, f"queue {name!r} has sequences that it never gave", strange)
        if known is not None:
            strange = [sequence for sequence, value in queue.cache.items() if known.get(sequence) != value]
            _must(not strange, f"queue {name!r} caches what is not its entry", strange)
        if queue.config.durable and queue.visible < queue.next_sequence:
            shown_later = queue in core.work.dirty_counters or (
                core.turns.in_flight is not None and any(item is queue for item, _ in core.turns.in_flight.visible)
            )
            _must(shown_later, f"queue {name!r}: nothing will show what was taken", queue.visible, queue.next_sequence)
        for cursor in queue.cursors:
            _must(cursor.queue is queue, f"queue {name!r} has another queue's cursor")
            _cursor(facts, queue, cursor)
        _must(queue.has_consumers == bool(queue.shared.takers), f"queue {name!r}: its flag, and its consumers")
        if known is not None and queue not in core.jobs.purges:
            _nothing_passed_over(queue, known)


def _nothing_passed_over(queue: Queue, known: dict[int, bytes]) -> None:
    """What a cursor has passed is in hands, waits for its turn, or is finished: else it lies there for good."""
    for cursor in queue.cursors:
        kept = {*cursor.below_position()}
        for sequence in known:
            if cursor.floor <= sequence < cursor.position and sequence not in kept and sequence not in cursor.finished:
                swept = any(first <= sequence <= last for first, last in queue.sweeping)
                _must(swept, f"cursor {cursor.name!r} of queue {queue.name!r} passed over {sequence}")


def _cursor(facts: Facts, queue: Queue, cursor: Cursor) -> None:
    """What takers hold are entries, each in one taker's hands, and no taker is gone."""
    core = facts.core
    where = f"cursor {cursor.name!r} of queue {queue.name!r}"
    takers = {id(taker) for taker in cursor.takers}
    _must(len(takers) == len(cursor.takers), f"{where} has a taker twice")
    kept = [record for record in core.resume.by_cursor.get(cursor, ()) if record.until is not None]
    suspended = {id(record.taker) for record in kept} | {*map(id, core.jobs.settlements.waiting)}
    suspended |= {id(item.taker) for item in core.jobs.returns.waiting}
    known = queue.ephemeral if not queue.config.durable else facts.entries.get(queue.queue_id)
    for sequence, shown in cursor.shown.items():
        _must(id(shown.taker) in takers or id(shown.taker) in suspended, f"{where}: {sequence} is held by who is gone")
        _must(sequence < cursor.position, f"{where}: {sequence} is held and still ahead", cursor.position)
        if known is not None:
            value = known.get(sequence)
            _must(value is not None, f"{where}: {sequence} is held and no entry")
            assert value is not None
            size = entry.size_of(value)
            _must(size == shown.size, f"{where}: {sequence} is held with another size", shown.size, size)
    returned = set(cursor.returned)
    _must(len(returned) == len(cursor.returned), f"{where} has given-back entries twice", sorted(cursor.returned)[:20])
    _must(
        returned.isdisjoint(cursor.shown), f"{where}: given back and held", sorted(returned & cursor.shown.keys())[:20]
    )
    aside = cursor.exclusions.aside.keys()
    twice = [*(aside & returned), *(aside & cursor.shown.keys())]
    _must(not twice, f"{where}: set aside, and held or given back", twice[:20])
    _must(
        cursor.mark_stored <= cursor.mark or not queue.config.durable, f"{where}: its stored mark is ahead of its mark"
    )
    if queue.config.durable and cursor.mark > cursor.mark_stored and cursor.takers:
        due = queue in core.work.dirty_counters or (
            core.turns.in_flight is not None and any(item is cursor for item, _ in core.turns.in_flight.marks)
        )
        _must(due, f"{where} waits for a mark that nothing stores", cursor.mark, cursor.mark_stored)
    if known is not None and not (cursor.tracked or queue.sweeping or queue.named or queue in core.jobs.purges):
        places = {*cursor.shown, *returned, *cursor.exclusions.aside}
        lost = [number for number in known if number < min(cursor.position, queue.visible) and number not in places]
        _must(not lost, f"{where} has passed entries that are in nobody's hands", lost[:20])
    if cursor.tracked:
        both = [sequence for sequence in (*cursor.shown, *cursor.returned) if sequence in cursor.finished]
        _must(not both, f"{where}: finished, and held or given back", both[:20])
        low = next(iter(cursor.finished), (cursor.floor, 0))[0]
        _must(low >= cursor.floor, f"{where}: finished below its floor", low, cursor.floor)


# --------------------------------------------------------------------------------------------------------- links


def _alive(core: Parts, peer: Peer, whose: str) -> None:
    _must(core.connections.holds(peer), f"{whose} connection is gone", peer.number)


def links(facts: Facts) -> None:
    """No link stands in any table whose connection is gone; consumers and cursors agree on what is unsettled."""
    core = facts.core
    for number, peer in core.connections.items():
        _must(peer.number == number, "a connection stands under another number", number, peer.number)
        for send in peer.sends:
            _must(
                send.peer is peer and peer in core.connections.sending,
                f"connection {number}: a large message nobody sends",
            )
        for session in peer.amqp.sessions:
            _must(session.connection is peer.amqp, f"connection {number} has another's session")
    sending = [link.large for link in facts.links if isinstance(link, (ConsumerLink, ReaderLink))]
    sending += [sender.large for hop in core.next_hops.values() for sender in hop.senders.values()]
    sent = {send for send in sending if send is not None}
    _must(
        sent == {send for peer in core.connections.sending for send in peer.sends},
        "large messages sent, and those of links",
    )
    known = {id(link) for link in facts.links}
    for what, standing in core.links.each():
        _alive(core, standing.peer, f"{what}: a link's")
    for stream in core.streams:
        brings = stream.bringer.growing is stream or stream in stream.bringer.parked
        _must(brings, "a large message that is under way, and that no link brings", stream.first.link.name)
    served: dict[str, Any] = {"producers": core.links.producers, "readers": core.links.readers}
    for what, by_queue in served.items():
        for queue, held in by_queue.items():
            for link in held:
                _must(id(link) in known, f"{what} of {queue.name!r}: a link that its connection does not know")
                _must(link.queue is queue, f"{what} of {queue.name!r}: a link of {link.queue.name!r}")
                _must(core.catalog.queues.get(queue.name) is queue, f"{what}: queue {queue.name!r} is gone")
    for link in facts.links:
        if isinstance(link, (Ingress, Egress)):
            _must(link.link.context is link, "a link of the engine belongs to another of the core")
        if isinstance(link, ConsumerLink):
            _consumer(link, stopping=core.stopping)
        elif isinstance(link, ProducerLink) and link.producer is not None:
            _must(link.producer.holder is link, f"producer {link.producer.name!r} speaks from two links")


def _consumer(link: ConsumerLink, *, stopping: bool) -> None:
    where = f"consumer {link.link.name!r} of queue {link.cursor.queue.name!r}"
    mine = {sequence for sequence, shown in link.cursor.shown.items() if shown.taker is link}
    _must(link in link.cursor.takers or stopping, f"{where} is no taker of its cursor")
    large = 0 if link.large is None else 1
    if stopping:
        return
    if link.presettled:
        held, sent = len(link.batch) + large, {*link.batch, *([] if link.large is None else [link.large.context])}
    else:
        waiting = link.waiting if isinstance(link, ResumableConsumer) else {}
        held = link.held + len(waiting)
        sent = {*link.link.unsettled.values(), *waiting.values()}
        if isinstance(link, ResumableConsumer):
            sent |= {sequence for _, sequence in link.steps}
    _must(len(mine) == held, f"{where}: entries in its hands, and counted", len(mine), held)
    _must(mine <= sent, f"{where} holds what it was never sent", sorted(mine - sent)[:20])


def neighbours(facts: Facts) -> None:
    """A session has a living connection, or none; what custody has in doubt is told by a link, or waits for one."""
    core = facts.core
    for name, neighbour in core.neighbours.items():
        peer = neighbour.peer
        if peer is not None:
            _alive(core, peer, f"neighbour {name}: its")
            _must(peer.neighbour is neighbour, f"neighbour {name}: its connection is another's")
        _must(not neighbour.established or peer is not None, f"neighbour {name} is Established without a connection")
        _must(not neighbour.offered or neighbour.established, f"neighbour {name} is offered to routing, and down")
        for destination, sender in neighbour.hop.senders.items():
            _sender(facts, sender, f"neighbour {name}: custody for {destination}")
        for doubting in neighbour.hop.unanswered:
            _must(bool(doubting.in_doubt), f"neighbour {name}: nothing of {doubting.destination} waits for an answer")
        _must(
            neighbour.hop.peer is (peer if neighbour.established else None), f"neighbour {name}: its hop is elsewhere"
        )


def _sender(facts: Facts, sender: CustodySender, where: str) -> None:
    core = facts.core
    _must(sender in sender.queue.shared.takers or core.stopping, f"{where} is no taker of its queue")
    _must(core.catalog.queues.get(sender.queue.name) is sender.queue, f"{where}: its queue is gone")
    _must((sender.link is None) == (sender.peer is None), f"{where} has a link without a connection")
    if sender.peer is not None:
        _alive(core, sender.peer, f"{where}: its")
        _must(sender.peer is sender.hop.peer, f"{where} speaks on a connection that the session has left")
    _must(not sender.open or sender.link is not None, f"{where} is open without a link")
    returned = core.forwarding.returned.get(sender.destination)
    known = {*sender.in_doubt.values(), *sender.oversized.sequences, *(() if returned is None else returned.sequences)}
    for blocked in sender.blocked.values():
        known.update(blocked.aside)
    held = {sequence for sequence, item in sender.queue.shared.shown.items() if item.taker is sender}
    _must(held <= known, f"{where} has entries in its hands, and forgot them", sorted(held - known)[:20])
    places = sender.places
    _must((sender in places.holding) <= (sender.link is not None), f"{where} has a link's place, and no link")
    waits = sender in places.ready or sender in places.holding or not sender.may_attach or not sender.has_work
    waits = waits or core.stopping or sender.retry_at is not None or not sender.hop.established
    _must(waits or sender.link is not None, f"{where} has work, and nothing attaches its link")


# -------------------------------------------------------------------------------------------------------- budgets


def budgets(facts: Facts) -> None:
    """Bytes that are bounded together are what their holders have."""
    core = facts.core
    pressure = core.pressure
    for account, size in held_by_account(core, facts.links).items():
        _must(account.held == size, f"account {account.name}: bytes, and those of its holders", account.held, size)
    asked = sum(peer.request_bytes + peer.reply_bytes for peer in core.connections.values())
    _must(core.memory.requests.held >= asked, "bytes of requests and answers", core.memory.requests.held, asked)
    total = sum(account.held for account in core.memory.accounts)
    _must(core.memory.total.held == total, "the account of all memory, and its parts", core.memory.total.held, total)
    for peer in core.connections.values():
        parked = sum(parked_bytes_of(link) for link in facts.links if isinstance(link, Intake) and link.peer is peer)
        _must(peer.parked_bytes == parked, f"connection {peer.number}: parked bytes", peer.parked_bytes, parked)
    ahead: Counter[Peer] = Counter()
    for stream in core.streams:
        ahead[stream.bringer.peer] += stream.counted
    _must(pressure.ahead_bytes == ahead.total(), "bytes of large messages", pressure.ahead_bytes, ahead.total())
    partial_bytes = 0
    for peer in core.connections.values():
        _must(peer.ahead_bytes == ahead[peer], f"connection {peer.number}: large bytes", peer.ahead_bytes, ahead[peer])
        replies = sum(len(item) for link in peer.egress if isinstance(link, ReplyLink) for item in link.waiting)
        _must(peer.reply_bytes == replies, f"connection {peer.number}: bytes of answers", peer.reply_bytes, replies)
        partial_bytes += partial_bytes_of(peer)
    held = pressure.partials.held
    _must(held == partial_bytes, "bytes of deliveries that have not come whole", held, partial_bytes)
    for turn in (core.turns.gathered, core.turns.in_flight):
        if turn is not None:
            total = sum(turn.heard.values())
            _must(turn.heard_bytes == total, "bytes heard in a turn", turn.heard_bytes, total)
    counted = (peer for peer in core.connections.values() if not peer.dialled and peer not in core.refusals.due)
    hosts = Counter(peer.address.rpartition(":")[0] for peer in counted)
    _must(core.guard.by_address == dict(hosts), "connections by address", core.guard.by_address, dict(hosts))
    for peer in (*core.guard.half_open, *core.guard.waiting, *core.refusals.due):
        _alive(core, peer, "guard: a")


def partial_bytes_of(peer: Peer) -> int:
    """Bytes of deliveries of that connection that have not come whole."""
    receivers = {
        link for session in peer.amqp.sessions for link in session.remote_links.values() if isinstance(link, Receiver)
    }
    return sum(link.partial.kept_bytes for link in receivers if link.partial is not None)


def parked_bytes_of(link: Intake) -> int:
    """Bytes of deliveries that wait for room, as they are counted."""
    return sum(PARKED_BYTES + len(item.payload) for item in link.parked if isinstance(item, Delivery))


def held_by_account(core: Parts, links: list[Any]) -> dict[Account, int]:
    """What the holders of each account of memory have; but for `unstored`, of which the turn's end says it, and
    `requests`, where an answer may outlive its connection."""
    memory = core.memory
    every = core.catalog.queues.values()
    cursors = [cursor for queue in every for cursor in queue.cursors]
    found = {
        memory.connections: sum(peer.held_bytes for peer in core.connections.values()),
        memory.parked: sum(parked_bytes_of(link) for link in links if isinstance(link, Intake)),
        memory.cached: sum(len(value) for queue in every for value in queue.cache.values()),
        memory.read_ahead.account: sum(cursor.read_ahead_bytes for cursor in cursors),
        memory.resumable: sum(
            record.counted_bytes for record in (*core.resume.incoming.values(), *core.resume.outgoing.values())
        ),
        memory.rejected: sum(REJECTED_BYTES * len(record.rejected) for record in core.resume.incoming.values()),
        memory.settling: core.jobs.settlements.held_bytes,
        memory.ranges: sum(producer.counted_bytes for producer in core.catalog.producers.values())
        + sum(cursor.counted_bytes for cursor in cursors),
        memory.withheld.aside: sum(cursor.exclusions.counted_aside for cursor in cursors),
        memory.withheld.given_back: sum(cursor.exclusions.counted_given_back for cursor in cursors),
        memory.withheld.excluded: sum(cursor.exclusions.counted_excluded for cursor in cursors),
    }
    for account in (memory.queues, memory.dynamic):
        found[account] = sum(
            queue.bytes_held + ENTRY_BYTES * queue.messages for queue in every if queue.memory is account
        )
    return found


def resumable(facts: Facts) -> None:
    """Each consumer's link that may be resumed stands with its cursor."""
    resume = facts.core.resume
    found: dict[Cursor, set[int]] = {}
    for record in resume.outgoing.values():
        found.setdefault(record.cursor, set()).add(id(record))
    indexed = {cursor: {*map(id, records)} for cursor, records in resume.by_cursor.items()}
    _must(found == indexed, "links that may be resumed, by cursor", len(found), len(indexed))


def dynamic_nodes(facts: Facts) -> None:
    """Dynamic nodes: how many of each connection, and whose."""
    core = facts.core
    nodes = [queue for queue in core.catalog.queues.values() if isinstance(queue, TemporaryQueue)]
    counts = Counter(queue.peer for queue in nodes if queue.peer is not None)
    _must(core.dynamic_nodes.of_peer == dict(counts), "dynamic nodes by connection")
    for queue in nodes:
        if queue.peer is not None and queue not in core.dynamic_nodes.due:
            _alive(core, queue.peer, f"{queue.name}: its maker's")


def users(facts: Facts) -> None:
    """What each user has is what its connections have, and its consumers, suspended ones too."""
    core = facts.core
    unsettled = unsettled_bytes(core, facts.links)
    for use in core.users.all():
        mine = [peer for peer in core.connections.values() if peer.use is use]
        _must(use.connections == len(mine), f"{use.name}: connections", use.connections, len(mine))
        total = sum(peer.counted_links for peer in mine)
        _must(use.links == total, f"{use.name}: links", use.links, total)
        held = unsettled[use]
        _must(use.unsettled_bytes == held, f"{use.name}: unsettled bytes", use.unsettled_bytes, held)


def unsettled_bytes(core: Parts, links: list[Any]) -> Counter[Use | None]:
    """By user: of messages that its consumers among `links` hold, and its consumers that are suspended."""
    found: Counter[Use | None] = Counter()
    for link in links:
        if isinstance(link, ConsumerLink):
            found[link.use] += link.held_bytes
    for record in core.resume.outgoing.values():
        found[record.use] += record.use_bytes
    return found


def timed(facts: Facts) -> None:
    """A part whose `waits` is empty has no deadline, for it is not asked (peers/deadlines.py); nor is a session asked
    earlier than it told, unless it was stirred (engine/due_times.py)."""
    core = facts.core
    for waits, part in core.timed:
        _must(bool(waits) or part.next_deadline() is None, "a part that has nothing to wait for has a deadline", part)
    for neighbour, told in core.due_times.told.items():
        at = neighbour.next_deadline()
        if at is not None and neighbour not in core.due_times.stirred:
            _must(told <= at, f"neighbour {neighbour.name} wants to act earlier than it told", at, told)


# ---------------------------------------------------------------------------------------------- large messages


def blobs(facts: Facts) -> None:
    """Each blob is needed by somebody or going, and each entry that refers to one finds it."""
    core = facts.core
    held = core.blobs
    for number, blob in held.by_number.items():
        _must(blob.number == number, "a blob stands under another number", number, blob.number)
        _must((blob in held.loose) == (not blob.places), f"blob {number}: loose, and referred to")
        _must(not blob.open or any(stream.blob is blob for stream in core.streams), f"blob {number}: nobody brings it")
        for place in blob.places:
            _must(held.by_place.get(place) is blob, f"blob {number}: an entry that knows nothing of it", place)
    pins = Counter(send.blob for peer in core.connections.values() for send in peer.sends)
    for blob in held.by_number.values():
        _must(blob.pins == pins[blob], f"blob {blob.number}: who sends it", blob.pins, pins[blob])
    for place, blob in held.by_place.items():
        _must(place in blob.places, f"blob {blob.number}: an entry that it knows nothing of", place)
    referred = {(queue.queue_id, sequence) for queue, sequence, _ in core.work.referred}
    if core.turns.in_flight is not None:
        referred |= {(queue.queue_id, sequence) for queue, sequence, _ in core.turns.in_flight.referred}
    in_memory = {queue.queue_id: queue.ephemeral for queue in core.catalog.queues.values()}
    for queue_id, found in (*facts.entries.items(), *in_memory.items()):
        for sequence, value in found.items():
            if value[1] & entry.BLOB:
                place = (queue_id, sequence)
                _must(place in referred or place in held.by_place, "an entry whose message is nowhere", place)
                blob_number = entry.blob_of(value).blob
                _must(blob_number in held.by_number, "an entry whose blob is gone", place, blob_number)


# -------------------------------------------------------------------------------------------------------- custody


def custody(facts: Facts) -> None:
    """Origins: what waits lies in `$waiting`, and nothing is both waited for and finished."""
    core = facts.core
    catalog = core.catalog
    held = catalog.queues.get(WAITING)
    lies = None if held is None else facts.entries.get(held.queue_id)
    waiting = 0
    for origin in catalog.all_origins():
        where = f"origin {origin.origin}"
        waiting += len(origin.waiting)
        low = next(iter(origin.finished), (origin.mark + 2, 0))[0]
        _must(low > origin.mark + 1, f"{where}: finished at or below its mark", low, origin.mark)
        for number, item in origin.waiting.items():
            _must(number > origin.mark, f"{where}: {number} waits below the mark", origin.mark)
            _must(number not in origin.finished, f"{where}: {number} waits and is finished")
            _must(lies is None or item.held_at in lies, f"{where}: {number} waits and lies nowhere", item.held_at)
    if lies is not None:
        _must(len(lies) == waiting, "messages that wait, and entries of $waiting", waiting, len(lies))
    for origin in core.destination.blocked:
        _must(bool(origin.waiting), f"origin {origin.origin} is blocked, and nothing of it waits")
    for destination, queue in catalog.transmissions():
        numbers = [
            entry.identity_of(value).number
            for value in facts.entries.get(queue.queue_id, {}).values()
            if value[1] & entry.CUSTODY and entry.origin_of(value) == core.identities.store_uuid.bytes
        ]
        following = catalog.identities.get(destination, 1)
        _must(max(numbers, default=0) < following, f"{destination}: numbers that are still to be given", following)
        _must(catalog.queues.get(queue.name) is queue, f"transmission queue {queue.name!r} is gone")
    for queue, links in core.links.producers.items():
        _must(not links or catalog.queues.get(queue.name) is queue, f"producers of {queue.name!r}, which is gone")


# ----------------------------------------------------------------------------------------------------------- turn


def turn(facts: Facts) -> None:
    """One batch is gathered, at most one is under way, and what goes with that one goes with nothing else."""
    core = facts.core
    work, in_flight = core.work, core.turns.in_flight
    _must(core.turns.gathered.batch is work.batch, "the queues gather into another batch than the turn's")
    expected = [] if in_flight is None else in_flight.batch.retires
    _must(work.retires_in_flight == expected, "what leaves with the commit under way")
    moves = [(queue.queue_id, sequence) for queue, sequence, _ in core.turns.gathered.moves]
    _must(Counter(work.moved) == Counter(moves), "moves of the turn, and of its queues", len(work.moved), len(moves))
    retired = Counter([*work.batch.retires, *work.moved])
    ours = {queue.queue_id for queue in core.catalog.queues.values()}
    twice = [place for place, count in retired.items() if count > 1 and place[0] in ours]
    _must(not twice, "entries that leave twice", twice[:20])
    for place in core.catalog.leaving:
        _must(place not in core.catalog.by_id, "a deleted queue that is still there", place)
    for queue in core.jobs.purges:
        _must(core.catalog.queues.get(queue.name) is queue, f"a purge of queue {queue.name!r}, which is gone")
    settlements = core.jobs.settlements
    by_user: Counter[tuple[Cursor, Use | None]] = Counter()
    by_link: Counter[Settles] = Counter()
    for settlement in settlements.waiting:
        by_user[settlement.cursor, settlement.link.use] += len(settlement.sequences)
        by_link[settlement.link] += len(settlement.sequences)
    _must(settlements.counts.keys() == by_user.keys() and settlements.counts == by_user, "outcomes that wait")
    for link, count in by_link.items():
        _must(link.settling == count, f"consumer {link.link.name!r}: outcomes that wait", link.settling, count)
    for sender, *_ in core.turns.gathered.answers:
        _must(isinstance(sender, Sender), "an answer to what is no sender")


PARTS: Final[tuple[Callable[[Facts], None], ...]] = (
    queues, links, neighbours, budgets, resumable, dynamic_nodes, users, timed, blobs, custody, turn,
)  # fmt: skip
