"""Entries that leave their queue only if the turn with their result is stored: of transactions, links between queues
and dead letters.

Rules of this file: an entry that leaves the disk is in `Turn.tied`, and returns to its holder if the turn is undone. If
the cursor remembers finished entries, the entry stays with its holder until the turn is decided, and is in
`QueueRows.tied` meanwhile, so that the batch stores it as finished.
"""

from collections.abc import Iterable

from holdfast.broker.cursors.cursor import Cursor
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Tied, Turn


def retire(catalog: Catalog, turn: Turn, cursor: Cursor, holder: object, sequences: list[int]) -> None:
    """The entries, which `holder` has from a durable queue, leave only with this turn's batch, or, if others read the
    queue too, are finished only with it."""
    queue = catalog.queue_of(cursor)
    if cursor.tracked:
        catalog.rows.tied.setdefault(cursor, {}).update(dict.fromkeys(sequences))
        queue.dirty(cursor)
        return
    tied = {
        (queue.queue_id, sequence): Tied(cursor, holder, cursor.acquired[sequence].size, cursor.counts.get(sequence))
        for sequence in sequences
    }
    cursor.finish(sequences)
    turn.tied.update(tied)


def untie(catalog: Catalog, cursor: Cursor, sequences: Iterable[int]) -> None:
    """The turn was stored or undone: the holder finishes or requeues those of the entries that it still has."""
    mine = catalog.rows.tied.get(cursor)
    if mine is not None:
        for sequence in sequences:
            mine.pop(sequence, None)
        if not mine:
            del catalog.rows.tied[cursor]
