"""Whether a queue has anything that a draining link may still get (AMQP 1.0 §2.6.7).

Rules of this file: a drain is answered within bounded time. It waits for messages that the node is about to send. It
does not wait for anything that may last: messages that the link cannot have, actions of the peer, a stalled disk, a
paused queue.
"""

from collections.abc import Container

from holdfast.broker.cursors import back_ahead
from holdfast.broker.cursors.cursor import Cursor
from holdfast.broker.cursors.entry_consumer import EntryConsumer
from holdfast.broker.queue import Queue


def offers(queue: Queue, resting: Container[object]) -> bool:
    """Whether the queue hands out entries now: not while it is stopped, or paused after a failure (`resting`)."""
    return not queue.stopped and queue not in resting


def has_something(cursor: Cursor, consumer: EntryConsumer, *, watermarks: bool) -> bool:
    """Whether a pump could hand `consumer` anything, now or, with `watermarks`, once one is stored; another consumer
    may get it instead."""
    if cursor.returning:
        return True
    if cursor.selections is not None and consumer in cursor.selections:
        return cursor.selections.has_something(consumer, watermarks=watermarks)
    if cursor.exclusions.aside and not cursor.exclusions.has_none_for(consumer):
        return True
    if cursor.requeued and (watermarks or cursor.may_be_shown(cursor.requeued[0])):
        return True
    queue = cursor.queue
    limit = queue.visible if watermarks or not queue.config.durable else min(queue.visible, cursor.watermark_stored)
    if cursor.halted and not cursor.fills_gaps:
        return back_ahead.has_some(cursor, consumer, cursor.selections, watermarks=watermarks)
    return cursor.position < limit


def only_excluded(cursor: Cursor, consumer: EntryConsumer) -> bool:
    """Whether all remaining entries are ones that `consumer` cannot have. If only a pump can tell, it requests one."""
    if cursor.returning:
        return False
    if cursor.selections is not None and consumer in cursor.selections:
        if consumer.wants() > 0:
            cursor.queue.touch()
        return False
    if cursor.position < cursor.queue.visible and not cursor.halted:
        return False
    if back_ahead.has_some(cursor, consumer, cursor.selections, watermarks=True):
        return False
    if not all(sequence in consumer.excluded for sequence in cursor.requeued):
        return False
    if cursor.exclusions.has_none_for(consumer):
        return True
    if consumer.wants() > 0:
        cursor.queue.touch()
    return False
