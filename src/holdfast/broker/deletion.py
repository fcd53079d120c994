"""What is forgotten when a queue is deleted, or a dynamic node has ended.

Rules of this file: once a part is done, nothing is called that could fail. Objects that refer to the queue may keep
their reference, but must check that the queue exists before they use it.
"""

from holdfast.broker.entries import entry
from holdfast.broker.queue import Queue


def forget_entries(queue: Queue) -> None:
    """Drops what it has in memory, with the accounts of that."""
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
    """Removes the queue from the turn's work, and its references to its cursors. The cursors refer to the queue, and
    holders of its entries refer to the cursors: a reference cycle would wait for the garbage collector, which runs
    seldom (ADR 0005).
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
