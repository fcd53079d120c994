"""What is forgotten of a queue that is deleted: an operator's, or a dynamic node that has ended.

Rules of this file: nothing is called that could fail once a part of it is done. Who knew the queue may know it still,
and asks it for nothing any more: what comes late looks first whether the queue is there.
"""

from holdfast.broker.entries import entry
from holdfast.broker.queue import Queue


def forget_entries(queue: Queue) -> None:
    """What it had in memory is gone, and is counted no more."""
    for cursor in queue.cursors:
        cursor.forget_memory()
    if queue.memory is not None:
        queue.memory.refund(queue.counted_bytes)
        queue.counted_bytes = 0
    for sequence, value in queue.ephemeral.items():  # from here on nothing is called that could fail
        if value[1] & entry.BLOB:
            queue.work.left.append((queue.queue_id, sequence))
    queue.ephemeral.clear()


def part(queue: Queue) -> None:
    """Takes it out of the turn's work, and parts it from its cursors, of which it is not asked any more.

    These know the queue still, and who held entries of it knows them: in a circle all would wait for the garbage
    collector, which runs seldom (ADR 0005).
    """
    work = queue.work
    work.dirty_queues.pop(queue, None)
    work.dirty_counters.pop(queue, None)
    for halted in work.halted.values():
        halted.pop(queue, None)
    for cursor in queue.cursors:
        cursor.acquired.clear()
    queue.timed = None  # nothing of it is looked for
    queue.named.clear()
    del queue.shared
