"""The end of a turn offers entries of changed queues to the consumers that wait for them.

Rules of this file: the cost of a turn depends on what changed in it. A queue that was not touched is not looked at. Of
a touched queue, cursors with nothing ahead are skipped, and producers get new credit only if room may have come back.
Source: docs/adr/0010-hot-path.md, "One message alone".
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, TypeVar

from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.queue import Queue
from holdfast.core.parts import Parts
from holdfast.peers.link_tables import Reader
from holdfast.state.turns import Extent

PUMP_LIMIT: Final = 256
"""Entries that one cursor looks at when it is offered: those that it hands out, and those that it does not."""

LinkT = TypeVar("LinkT")


def offer(core: Parts, extent: Extent = None) -> None:
    """Offers one turn's share of everything that was touched. `extent`: the extent of the gathered turn, if known."""
    containment = core.containment
    if core.destination.blocked or core.destination.releasing:
        containment.run(core.destination, core.destination.step)
        extent = None
    if core.jobs.pending:
        containment.run(core.jobs, core.jobs.step)
        extent = None
    if core.dead_letters.pending:
        containment.run(core.dead_letters, core.dead_letters.step)
        extent = None
    if core.users.waking:
        core.users.wake()
    work = core.work
    left: dict[Queue, None] = {}
    if work.halted:
        for account in [account for account in work.halted if account.room]:
            for queue in work.halted.pop(account):
                queue.touch()
    work.cut_short.clear()
    work.unreached.clear()
    if work.dirty_queues:
        core.memory.give_budget(work)
        busy, work.dirty_queues = work.dirty_queues, {}
        turn, before = core.turns.gathered, core.turns.gathered.extent() if extent is None else extent
        for queue in list(busy):
            if work.is_used_up:
                break
            del busy[queue]
            if queue in containment.resting or not core.catalog.has(queue):
                continue
            try:
                _offer_of(core, queue)
            except Exception as error:
                containment.part_failed(
                    queue, error, changed=core.turns.gathered is not turn or turn.extent() != before
                )
                turn, before = core.turns.gathered, core.turns.gathered.extent()
        if busy:
            left, work.dirty_queues = busy, busy | work.dirty_queues
        for receiver in list(core.links.parked_receivers):
            if receiver.parked:
                core.links.refills[receiver] = None
            else:
                del core.links.parked_receivers[receiver]
    if core.users.waking:
        core.users.offered(left, work)
    if core.work.overfull:
        containment.run(core.subscription_ends, core.subscription_ends.step)
        containment.run(core.overflow, core.overflow.step)
    if core.work.exhausted:
        containment.run(core.delivery_limits, core.delivery_limits.step)
    if core.queue_links.has_work:
        containment.run(core.queue_links, core.queue_links.step)
    if core.connections.sending:
        core.large_sends.pump()
    for link in _each_once(core.links.presettled):
        try:
            link.finish_presettled()
        except Exception as error:
            containment.failed(error, link)
    for refilled in _each_once(core.links.refills):
        try:
            refilled.refill()
        except Exception as error:
            containment.failed(error, refilled)
    if core.links.drains:
        for drain in list(core.links.drains):
            try:
                if drain.drain_if_idle():
                    core.links.drains.pop(drain, None)
            except Exception as error:
                containment.failed(error, drain)


def _each_once(links: dict[LinkT, None]) -> Iterator[LinkT]:
    """Takes each of these links out, but none that is gone by then: a failure of one may end others with it. Those that
    are added meanwhile have their turn later."""
    for link in list(links):
        if link in links:
            del links[link]
            yield link


def _offer_of(core: Parts, queue: Queue) -> None:
    if queue in core.resume.going_on:
        core.resume.go_on(queue)
    if queue.reclaiming or queue.sweeping:
        queue.reclaim_some()
    if queue.stopped:
        return
    shared = queue.shared
    readers = core.links.readers.get(queue)
    if queue.named or readers:
        _offer_in_turn(core, queue, readers or ())
    else:
        _pump(queue, shared)
    for cursor in queue.named.values():
        if cursor.counts or cursor.exclusions.counted_given_back:
            cursor.exclusions.count_given_back(len(cursor.counts))
    if shared.counts or shared.exclusions.counted_given_back:
        shared.exclusions.count_given_back(len(shared.counts))
    if core.queue_links.awaits_room(queue):
        core.queue_links.room_may_be_back(queue)
    if core.too_large.met_in:
        core.too_large.look_again(queue)
    producers = core.links.producers.get(queue)
    if producers:
        if queue.bounded:
            core.links.refills.update(dict.fromkeys(producers))
        else:
            core.links.refills.update(dict.fromkeys([producer for producer in producers if producer.parked]))


def _offer_in_turn(core: Parts, queue: Queue, readers: Iterable[Reader]) -> None:
    """Offers a queue with many readers, as far as the turn's budget goes: to the shared consumers, to subscriptions,
    and to readers by sequence. Which of the three is first changes with each call. Among subscriptions, and among
    readers, those that waited the longest are first."""
    named = [cursor for cursor in queue.named.values() if cursor.consumers and cursor.has_ahead]
    parts: list[list[Cursor | Reader]] = [[queue.shared], [*named], [*readers]]
    first = queue.offered_first = (queue.offered_first + 1) % len(parts)
    for part in chain(*parts[first:], *parts[:first]):
        if core.work.is_used_up:
            queue.touch()
            if not core.users.waking:
                break
            if isinstance(part, Cursor):
                core.work.unreached.add(part)
        elif isinstance(part, Cursor):
            _pump(queue, part)
        else:
            part.pump()


def _pump(queue: Queue, cursor: Cursor) -> None:
    if not (cursor.consumers and cursor.has_ahead) or (cursor is queue.shared and queue.taken_by is not None):
        return
    before = queue.work.offered_count
    cursor.pump(PUMP_LIMIT)
    named = queue.named
    if queue.work.offered_count > before and cursor.name in named and len(named) > 1:
        named[cursor.name] = named.pop(cursor.name)
