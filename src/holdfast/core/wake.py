"""When a node has something to do next: the earliest deadline of its parts.

Rules of this file: never late, and seldom early. It is computed at the end of each turn, so parts that wait for nothing
are not asked. A part that can do nothing before a commit requests that commit (`Work.request_commit`). A part that can
do nothing before a peer gives credit reports no deadline.
"""

from math import inf

from holdfast.broker.entries.work import RETIRES_MAX
from holdfast.broker.queue import Queue
from holdfast.core.parts import Parts
from holdfast.core.turn_end import is_more_left
from holdfast.endpoints.drains import has_something
from holdfast.engine.due_times import Timed


def _goes_on(core: Parts) -> bool:
    """Whether a queue continues in the next turn with work that waits for no commit."""
    return len(core.work.batch.retires) < RETIRES_MAX and any(
        _needs_no_disk(core, queue) for queue in core.work.dirty_queues
    )


def _needs_no_disk(core: Parts, queue: Queue) -> bool:
    """Whether the queue's next work waits for no commit: all work of a queue in memory; of a durable queue, entries
    that are on disk and below the cursor's stored watermark, if a consumer accepts some now or continues with entries
    that it held."""
    if queue.stopped or not core.catalog.has(queue):
        return False
    if not queue.config.durable or queue in core.resume.going_on:
        return True
    if any(reader.has_more for reader in core.links.readers.get(queue, ())):
        return True
    return any(
        consumer.will_want() > 0 and has_something(cursor, consumer, watermarks=False)
        for cursor in queue.cursors
        for consumer in cursor.consumers
    )


def wanted(core: Parts) -> float:
    """When the node has something to do, at the latest: the result of `NodeCore.next_deadline`."""
    now = core.clock.now
    links = core.links
    if links.requests or links.refills or (core.connections.sending and core.large_sends.due()):
        return now
    if core.turns.event == core.turn_ended and is_more_left(core):
        return now
    resting = core.containment.resting
    if core.topic_bindings.is_due and core.topic_bindings not in resting:
        return now
    first = core.meter.due_at if core.meter not in resting else inf
    if core.work.halted and any(account.room for account in core.work.halted):
        return now
    if core.turns.in_flight is None and not core.disk.rests:
        if core.work.dirty_queues or core.users.waking or core.blobs.dropping or core.bindings.is_due:
            return now
        if core.destination.busy and core.destination not in resting:
            return now
        if core.jobs.pending and core.jobs not in resting and core.jobs.busy:
            return now
        if core.retire_at is not None and core.retire_at < first:
            first = core.retire_at
    elif (
        core.users.waking
        or (core.work.dirty_queues and _goes_on(core))
        or (core.jobs.goes_on and core.jobs not in resting)
    ):
        return now
    at = core.deadlines.soonest(now)
    if at is not None and at < first:
        first = at
    part: Timed | None = None
    try:
        at = core.due_times.soonest(now, resting)
        if at < first:
            first = at
        for waits, part in core.timed:
            if not waits or (resting and part in resting):
                continue
            at = part.next_deadline()
            if at is not None and at < first:
                first = at
    except Exception:
        core.asked = part or core.due_times.asked
        raise
    return first
