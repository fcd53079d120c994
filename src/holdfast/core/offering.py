"""What a turn offers before it ends: what the queues that changed have, to who waits for it.

Rules of this file: a turn costs what changed in it. A queue that nobody touched is not looked at, and of one that was
touched only what may have come of it: a cursor that has nothing ahead is not asked, and producers are given credit
anew where room may have come back. Source: docs/adr/0010-hot-path.md, "One message alone".
"""

from typing import TYPE_CHECKING, Final

from holdfast.core.sending import pump
from holdfast.core.turn import Extent

if TYPE_CHECKING:
    from holdfast.broker.queue import Queue
    from holdfast.core.node import NodeCore

PUMP_LIMIT: Final = 1_024
"""Entries that one cursor hands out in one turn."""


def offer(core: "NodeCore", extent: Extent = None) -> None:
    """One turn's share of everything that was touched in it; `extent`: of what was gathered, where that is known."""
    containment = core.containment
    if core.destination.blocked or core.destination.releasing:
        containment.run(core.destination, core.destination.step)
        extent = None
    if core.chores.pending:
        containment.run(core.chores, core.chores.step)
        extent = None
    if core.dead_letters.pending:
        containment.run(core.dead_letters, core.dead_letters.step)
        extent = None
    if core.users.waking:
        core.users.wake()
    work = core.work
    if work.halted and core.memory.has_room_again:
        halted, work.halted = work.halted, {}
        for queue in halted:
            queue.touch()
    if work.busy:
        busy, work.busy = work.busy, {}
        offered_max = core.memory.offered_max
        turn, before = core.turn, core.turn.extent() if extent is None else extent
        for queue in list(busy):
            if work.offered_bytes >= offered_max:
                break
            del busy[queue]
            if queue in containment.resting:
                continue
            try:
                _offer_of(core, queue)
            except Exception as error:
                containment.part_failed(queue, error, changed=core.turn is not turn or turn.extent() != before)
                turn, before = core.turn, core.turn.extent()
        if busy:
            work.busy = busy | work.busy
        for receiver in list(core.parked_receivers):
            if receiver.parked:
                core.refills[receiver] = None
            else:
                del core.parked_receivers[receiver]
    if core.sending:
        pump(core)
    if core.presettled:
        presettled, core.presettled = core.presettled, {}
        for link in presettled:
            try:
                link.finish_presettled()
            except Exception as error:
                containment.failed(error, link)
    if core.refills:
        refills, core.refills = core.refills, {}
        for refill in refills:
            try:
                refill.refill()
            except Exception as error:
                containment.failed(error, refill)
    if core.drains:
        for drain in list(core.drains):
            try:
                if drain.drain_if_idle():
                    core.drains.pop(drain, None)
            except Exception as error:
                containment.failed(error, drain)


def _offer_of(core: "NodeCore", queue: "Queue") -> None:
    if queue.reclaiming or queue.sweeping:
        queue.reclaim_some()
    if queue.stopped:
        return
    shared = queue.shared
    if shared.takers and shared.has_ahead and queue.taken_by is None and shared.pump(PUMP_LIMIT) >= PUMP_LIMIT:
        queue.touch()
    if queue.named:
        for cursor in queue.named.values():
            if cursor.takers and cursor.has_ahead and cursor.pump(PUMP_LIMIT) >= PUMP_LIMIT:
                queue.touch()
            if cursor.counts or cursor.exclusions.counted_given_back:
                cursor.exclusions.count_given_back(len(cursor.counts))
    if (shared.counts or shared.exclusions.counted_given_back) and core.catalog.has(queue):
        shared.exclusions.count_given_back(len(shared.counts))
    readers = core.readers.get(queue)
    if readers:
        for reader in list(readers):
            reader.pump()
    producers = core.producers.get(queue)
    if producers:
        if queue.bounded:
            core.refills.update(dict.fromkeys(producers))
        else:
            core.refills.update(dict.fromkeys([producer for producer in producers if producer.parked]))
