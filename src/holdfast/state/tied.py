"""What leaves its queue only if the turn that has what became of it is stored: of transactions, and of links between
queues.

Rules of this file: an entry that leaves the disk is in `Turn.tied`, and is in its holder's hands again if the turn is
undone; one of a cursor that remembers what it finished stays in its holder's hands until it is known which, and is in
`Catalog.tied` meanwhile, so that the batch has it as finished.
"""

from collections.abc import Iterable

from holdfast.broker.cursors.cursor import Cursor
from holdfast.state.catalog import Catalog
from holdfast.state.turns import Tied, Turn


def retire(catalog: Catalog, turn: Turn, cursor: Cursor, holder: object, sequences: list[int]) -> None:
    """The entries, which `holder` has from a durable queue, leave with this turn's batch alone, or, where others read
    them too, are finished with it alone."""
    queue = catalog.queue_of(cursor)
    if cursor.tracked:
        catalog.tied.setdefault(cursor, {}).update(dict.fromkeys(sequences))
        queue.dirty(cursor)
        return
    tied = {
        (queue.queue_id, sequence): Tied(cursor, holder, cursor.acquired[sequence].size, cursor.counts.get(sequence))
        for sequence in sequences
    }
    cursor.finish(sequences)
    turn.tied.update(tied)


def untie(catalog: Catalog, cursor: Cursor, sequences: Iterable[int]) -> None:
    """It is known whether the turn is stored: its holder finishes what it still has of them, or gives it back."""
    mine = catalog.tied.get(cursor)
    if mine is not None:
        for sequence in sequences:
            mine.pop(sequence, None)
        if not mine:
            del catalog.tied[cursor]
